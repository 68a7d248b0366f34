/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.h - the parts of the DLPack ABI (version 1) that we use: how frameworks describe a tensor
 * to each other.
 *
 * Two ways: a capsule that owns a struct dlpack_managed (results we hand out), and a table of
 * functions that a tensor type offers as `__dlpack_c_exchange_api__` (tensors we are given; no
 * Python call, no allocation). Layouts are fixed by that ABI. */
#ifndef HVD_BINDINGS_PYTHON_DLPACK_H
#define HVD_BINDINGS_PYTHON_DLPACK_H

#include <stdint.h>

#define DLPACK_CAPSULE          "dltensor"
#define DLPACK_EXCHANGE_NAME    "__dlpack_c_exchange_api__"
#define DLPACK_EXCHANGE_CAPSULE "dlpack_exchange_api"
#define DLPACK_MAJOR            1u

enum dlpack_device { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3 };

enum dlpack_code {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_BOOL = 6
};

struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides NULL: dense, row by row */
    uint64_t offset_bytes;
};

struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *ctx;
    void (*deleter)(struct dlpack_managed *self);
};

/* Fills a view of a Python tensor; 0, or -1 with a Python exception. */
typedef int (*dlpack_read_t)(void *object, struct dlpack_tensor *ret_tensor);

struct dlpack_exchange {
    uint32_t major, minor;
    struct dlpack_exchange *previous; /* the same in an older version, or NULL */
    void *managed_alloc;
    void *managed_from_object;
    void *managed_to_object;
    dlpack_read_t read;
    void *current_stream;
};

#endif
