/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - see request.h. Thread: any. Start reading at request_read(). */
#include "request.h"

#include <string.h>

static const char wrong_text[] = "Horovod: the attributes of a compiled collective are wrong.";

/* What the attribute "chain" says about the last result. */
enum { CHAIN_LINK = 1, CHAIN_SPARE = 2 };

static const void *find(const struct ffi_attributes *attributes, const char *name, int32_t type)
{
    size_t length = strlen(name);
    for (int64_t i = 0; i < attributes->count; i++)
        if (attributes->types[i] == type && attributes->names[i]->length == length &&
            memcmp(attributes->names[i]->text, name, length) == 0)
            return attributes->values[i];
    return NULL;
}

static bool read_int(const struct ffi_attributes *attributes, const char *name, int64_t *ret_value)
{
    const struct ffi_scalar *scalar = find(attributes, name, FFI_ATTRIBUTE_SCALAR);
    if (scalar == NULL || scalar->dtype != FFI_S64)
        return false;
    memcpy(ret_value, scalar->value, sizeof *ret_value);
    return true;
}

static bool read_double(const struct ffi_attributes *attributes, const char *name,
                        double *ret_value)
{
    const struct ffi_scalar *scalar = find(attributes, name, FFI_ATTRIBUTE_SCALAR);
    if (scalar == NULL || scalar->dtype != FFI_F64)
        return false;
    memcpy(ret_value, scalar->value, sizeof *ret_value);
    return true;
}

const char *request_read(const struct ffi_attributes *attributes, struct request *ret_request)
{
    int64_t kind, reduce, root, set, wire, chain;
    struct request request = {0};
    const struct ffi_span *name = find(attributes, "name", FFI_ATTRIBUTE_STRING);
    if (name == NULL || !read_int(attributes, "kind", &kind) ||
        !read_int(attributes, "reduce", &reduce) || !read_int(attributes, "root", &root) ||
        !read_int(attributes, "set", &set) || !read_int(attributes, "wire", &wire) ||
        !read_int(attributes, "chain", &chain) ||
        !read_double(attributes, "prescale", &request.prescale) ||
        !read_double(attributes, "postscale", &request.postscale))
        return wrong_text;
    if (kind < 0 || kind >= HVD_KIND_COUNT || reduce < 0 || reduce >= HVD_REDUCE_COUNT ||
        root < 0 || root > INT32_MAX || set < 0 || set > INT32_MAX || wire < 0 ||
        wire >= HVD_WIRE_COUNT)
        return wrong_text;
    request.kind = (hvd_kind_t)kind;
    request.reduce = (hvd_reduce_t)reduce;
    request.root = (int32_t)root;
    request.set = (int32_t)set;
    request.wire = (hvd_wire_t)wire;
    request.is_chained = chain == CHAIN_LINK;
    request.has_spare = chain == CHAIN_SPARE;
    request.name = *name;
    const struct ffi_array *splits = find(attributes, "splits", FFI_ATTRIBUTE_ARRAY);
    if (splits != NULL) {
        if (splits->dtype != FFI_S64 || splits->count > INT32_MAX)
            return wrong_text;
        request.splits = splits->values;
        request.splits_count = splits->count;
    }
    *ret_request = request;
    return NULL;
}

bool request_dtype(int32_t type, hvd_dtype_t *ret_dtype, int32_t *ret_lanes)
{
    static const struct {
        int32_t type;
        hvd_dtype_t dtype;
        int32_t lanes;
    } rows[] = {{FFI_F32, HVD_FLOAT32, 1},      {FFI_BF16, HVD_BFLOAT16, 1},
                {FFI_F16, HVD_FLOAT16, 1},      {FFI_F64, HVD_FLOAT64, 1},
                {FFI_S32, HVD_INT32, 1},        {FFI_S64, HVD_INT64, 1},
                {FFI_S8, HVD_INT8, 1},          {FFI_S16, HVD_INT16, 1},
                {FFI_U8, HVD_UINT8, 1},         {FFI_U16, HVD_UINT16, 1},
                {FFI_BOOL, HVD_BOOL, 1},        {FFI_U32, HVD_INT32, 1},
                {FFI_U64, HVD_INT64, 1},        {FFI_C64, HVD_INT64, 1},
                {FFI_C128, HVD_INT64, 2},       {FFI_F8E5M2, HVD_UINT8, 1},
                {FFI_F8E4M3FN, HVD_UINT8, 1},   {FFI_F8E3M4, HVD_UINT8, 1},
                {FFI_F8E4M3, HVD_UINT8, 1},     {FFI_F8E4M3B11FNUZ, HVD_UINT8, 1},
                {FFI_F8E5M2FNUZ, HVD_UINT8, 1}, {FFI_F8E4M3FNUZ, HVD_UINT8, 1},
                {FFI_F8E8M0FNU, HVD_UINT8, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type) {
            *ret_dtype = rows[i].dtype;
            *ret_lanes = rows[i].lanes;
            return true;
        }
    return false;
}
