/* SPDX-License-Identifier: Apache-2.0 */
/* extend.c - see extend.h. */
#include "api/extend.h"

#include <string.h>

static size_t first_not_zero(const unsigned char *bytes, size_t from, size_t to)
{
    while (from < to && bytes[from] == 0)
        from++;
    return from;
}

hvd_status_t extend_check(const struct extend_kind *kind, const void *theirs, size_t struct_size,
                          struct error *error)
{
    if (struct_size < kind->first_bytes || struct_size > EXTEND_MAX)
        return error_set(error, HVD_ERR_INVALID,
                         "struct_size of struct %s is %zu, but it has at least %zu bytes; set it "
                         "to sizeof the struct.",
                         kind->name, struct_size, kind->first_bytes);
    size_t at = first_not_zero(theirs, kind->bytes, struct_size);
    if (at < struct_size)
        return error_set(error, HVD_ERR_UNSUPPORTED,
                         "struct %s has %zu bytes and sets a field at byte %zu that this library "
                         "does not know, it knows %zu bytes; update the library, or leave the "
                         "field 0.",
                         kind->name, struct_size, at, kind->bytes);
    return HVD_OK;
}

void extend_copy(const struct extend_kind *kind, void *ret, const void *theirs, size_t struct_size)
{
    size_t known = struct_size < kind->bytes ? struct_size : kind->bytes;
    memset(ret, 0, kind->bytes);
    memcpy(ret, theirs, known);
    memcpy(ret, &kind->bytes, sizeof kind->bytes); /* struct_size is the first member */
}
