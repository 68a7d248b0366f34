/* SPDX-License-Identifier: Apache-2.0 */
/* mx_api.h - the part of MXNet's C interface that we use, as a table of functions found at load
 * time. MXNet's headers are neither needed nor included.
 *
 * What is not in that interface but fixed in every MXNet 1.x from 1.6 on: the 24 bytes of a
 * completion (struct mx_done), an NDArray's first member being the pointer to its memory (its
 * "chunk", which views share), and the error of a completion being a std::runtime_error.
 *
 * Thread: the table is filled once, by mx_api_load(), and only read afterwards.
 * Owner: static memory of mx_api.c. */
#ifndef HVD_BINDINGS_MXNET_MX_API_H
#define HVD_BINDINGS_MXNET_MX_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *mx_array; /* NDArrayHandle */

struct mx_context {
    int32_t type, id;
};

/* Of what MXNet hands to an asynchronous operation; copied before that returns. */
struct mx_done {
    void (*run)(void *engine, void *param, const void *error);
    void *engine;
    void *param;
};

typedef void (*mx_operation_fn)(void *run_context, void *done, void *param);
typedef void (*mx_delete_fn)(void *param);

enum { MX_CPU = 1, MX_CPU_PINNED = 3, MX_CPU_SHARED = 5 };
enum { MX_STORAGE_DENSE = 0 };
enum { MX_CPU_PRIORITIZED = 3 }; /* the queue of the engine that honours priorities */
enum {
    MX_FLOAT32 = 0,
    MX_FLOAT64 = 1,
    MX_FLOAT16 = 2,
    MX_UINT8 = 3,
    MX_INT32 = 4,
    MX_INT8 = 5,
    MX_INT64 = 6,
    MX_BOOL = 7
};

/* Each returns 0, or -1 with the reason in GetLastError(). */
#define MX_API_REQUIRED(X)                                                                         \
    X(const char *, GetLastError, (void))                                                          \
    X(int, IsNumpyShape, (int *ret_is_numpy))                                                      \
    X(int, NDArrayGetData, (mx_array, void **ret_data))                                            \
    X(int, NDArrayGetShapeEx64, (mx_array, int *ret_ndim, const int64_t **ret_dims))               \
    X(int, NDArrayGetDType, (mx_array, int *ret_type))                                             \
    X(int, NDArrayGetContext, (mx_array, int *ret_type, int *ret_id))                              \
    X(int, NDArrayGetStorageType, (mx_array, int *ret_type))                                       \
    X(int, ShallowCopyNDArray, (mx_array, mx_array * ret_copy))                                    \
    X(int, NDArrayFree, (mx_array))                                                                \
    X(int, EnginePushAsyncND,                                                                      \
      (mx_operation_fn, void *param, mx_delete_fn, const struct mx_context *, mx_array *read,      \
       int read_count, mx_array *written, int written_count, const int *property, int priority,    \
       const char *name, bool is_waited_for))

struct mx_api {
#define X(result, name, arguments) result(*name) arguments;
    MX_API_REQUIRED(X)
#undef X
    /* Brings the memory of a chunk from oneDNN's own layout to row by row. NULL: this MXNet has no
     * such layouts. */
    void (*chunk_lay_out)(void *chunk);
    /* Constructor and destructor of std::runtime_error. */
    void (*error_create)(void *error, const char *text);
    void (*error_destroy)(void *error);
};

extern struct mx_api mx;

/* path: of the libmxnet that Python has loaded. The name that is missing, or NULL. */
const char *mx_api_load(const char *path);

/* What views of one array have in common and different arrays have not. */
static inline void *mx_chunk(mx_array array)
{
    return *(void **)array;
}

/* Completes an operation; text is NULL if it succeeded. `done` may be freed by this call. */
void mx_complete(const struct mx_done *done, const char *text);

#endif
