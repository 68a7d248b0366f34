/* SPDX-License-Identifier: Apache-2.0 */
/* xla_ffi.h - the part of XLA's foreign function interface that we use, in our own declarations.
 *
 * The interface is plain C with sizes and versions in its structs, so that nothing need be compiled
 * against JAX. Layouts are those of 64-bit systems and were compared with jaxlib 0.4.35 to 0.10.2.
 * Runtimes only append to structs, with one exception: the functions for futures are where they
 * stand here if api.size is at least FFI_API_BYTES_FUTURES; smaller tables have them elsewhere. */
#ifndef HVD_BINDINGS_JAX_XLA_FFI_H
#define HVD_BINDINGS_JAX_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

struct ffi_error; /* opaque */
struct ffi_future;

struct ffi_extension {
    size_t size;
    int32_t type;
    struct ffi_extension *next;
};

struct ffi_version {
    size_t size;
    struct ffi_extension *extension;
    int32_t major, minor;
};

struct ffi_metadata {
    size_t size;
    struct ffi_version version;
    uint32_t traits;
};

enum { FFI_EXTENSION_METADATA = 1 };

/* In a frame: "tell which version you were written for, and don't run". */
struct ffi_metadata_query {
    struct ffi_extension base;
    struct ffi_metadata *metadata;
};

enum ffi_code {
    FFI_UNKNOWN = 2,
    FFI_INVALID_ARGUMENT = 3,
    FFI_RESOURCE_EXHAUSTED = 8,
    FFI_FAILED_PRECONDITION = 9,
    FFI_ABORTED = 10,
    FFI_INTERNAL = 13
};

struct ffi_error_create {
    size_t size;
    struct ffi_extension *extension;
    const char *message;
    int32_t code;
};

struct ffi_future_create {
    size_t size;
    struct ffi_extension *extension;
    struct ffi_future *future; /* out */
};

struct ffi_future_available {
    size_t size;
    struct ffi_extension *extension;
    struct ffi_future *future;
};

struct ffi_future_error {
    size_t size;
    struct ffi_extension *extension;
    struct ffi_future *future;
    struct ffi_error *error; /* passes to the runtime */
};

struct ffi_api {
    size_t size;
    struct ffi_extension *extension;
    struct ffi_version version;
    void *internal;
    struct ffi_error *(*error_create)(struct ffi_error_create *args);
    void (*error_message)(void *args);
    void (*error_destroy)(void *args);
    void *unused[10]; /* registration, streams, types, contexts, states, memory, the pool */
    struct ffi_error *(*future_create)(struct ffi_future_create *args);
    struct ffi_error *(*future_set_available)(struct ffi_future_available *args);
    struct ffi_error *(*future_set_error)(struct ffi_future_error *args);
};

#define FFI_API_BYTES_FUTURES 192u

_Static_assert(offsetof(struct ffi_api, error_create) == 48, "layout of XLA's function table");
_Static_assert(offsetof(struct ffi_api, future_create) == 152, "layout of XLA's function table");

struct ffi_values {
    size_t size;
    struct ffi_extension *extension;
    int64_t count;
    const int32_t *types;
    void **values;
};

struct ffi_span {
    const char *text; /* not NUL-terminated */
    size_t length;
};

struct ffi_attributes {
    size_t size;
    struct ffi_extension *extension;
    int64_t count;
    const int32_t *types;
    const struct ffi_span **names;
    void **values;
};

enum { FFI_ATTRIBUTE_ARRAY = 1, FFI_ATTRIBUTE_SCALAR = 3, FFI_ATTRIBUTE_STRING = 4 };

struct ffi_scalar {
    int32_t dtype;
    const void *value;
};

struct ffi_array {
    int32_t dtype;
    size_t count;
    const void *values;
};

enum ffi_dtype {
    FFI_BOOL = 1,
    FFI_S8 = 2,
    FFI_S16 = 3,
    FFI_S32 = 4,
    FFI_S64 = 5,
    FFI_U8 = 6,
    FFI_U16 = 7,
    FFI_U32 = 8,
    FFI_U64 = 9,
    FFI_F16 = 10,
    FFI_F32 = 11,
    FFI_F64 = 12,
    FFI_C64 = 15,
    FFI_BF16 = 16,
    FFI_C128 = 18,
    FFI_F8E5M2 = 19,
    FFI_F8E4M3FN = 20,
    FFI_F8E4M3B11FNUZ = 23,
    FFI_F8E5M2FNUZ = 24,
    FFI_F8E4M3FNUZ = 25,
    FFI_F8E4M3 = 28,
    FFI_F8E3M4 = 29,
    FFI_F8E8M0FNU = 33
};

struct ffi_buffer {
    size_t size;
    struct ffi_extension *extension;
    int32_t dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
};

enum { FFI_STAGE_EXECUTE = 3 };

struct ffi_frame {
    size_t size;
    struct ffi_extension *extension;
    const struct ffi_api *api;
    void *context; /* dead after the handler has returned */
    int32_t stage;
    struct ffi_values arguments, results;
    struct ffi_attributes attributes;
    struct ffi_future *future; /* out; the reported size does not count it */
};

_Static_assert(offsetof(struct ffi_frame, arguments) == 40, "layout of XLA's call frame");
_Static_assert(offsetof(struct ffi_frame, attributes) == 120, "layout of XLA's call frame");
_Static_assert(offsetof(struct ffi_frame, future) == 168, "layout of XLA's call frame");

#endif
