/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_ops.c - maps our types and operations to MPI's.
 *
 * MPI has no half types, does not define the result of MIN and MAX for a NaN, and its logical
 * operations need a separate type: there our kernels are passed to MPI as operations. A half type
 * is sent as uint16 and a bool as uint8, which only those operations see.
 *
 * Thread: token holder; MPI calls the operations from inside its own calls. Start reading at
 * mpi_ops_find(). */
#include "backend/mpi/mpi_backend.h"
#include "reduce/reduce.h"

mpi_handle_t mpi_ops_type(const struct mpi_lib *lib, hvd_dtype_t dtype)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL: return lib->types[MPI_TYPE_UINT8];
    case HVD_INT8: return lib->types[MPI_TYPE_INT8];
    case HVD_UINT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16: return lib->types[MPI_TYPE_UINT16];
    case HVD_INT16: return lib->types[MPI_TYPE_INT16];
    case HVD_INT32: return lib->types[MPI_TYPE_INT32];
    case HVD_INT64: return lib->types[MPI_TYPE_INT64];
    case HVD_FLOAT32: return lib->types[MPI_TYPE_FLOAT32];
    case HVD_FLOAT64: return lib->types[MPI_TYPE_FLOAT64];
    case HVD_DTYPE_COUNT: break;
    }
    return lib->types[MPI_TYPE_BYTE];
}

static void fold(hvd_dtype_t dtype, hvd_reduce_t op, const void *in, void *inout, int count)
{
    reduce_two(dtype, op, in, inout, inout, (size_t)(count > 0 ? count : 0), 1.0);
}

/* MPI passes only the type to an operation, so each pair needs a separate function. */
#define OPERATIONS(X)                                                                              \
    X(FLOAT16, SUM)                                                                                \
    X(FLOAT16, MIN)                                                                                \
    X(FLOAT16, MAX)                                                                                \
    X(FLOAT16, PRODUCT)                                                                            \
    X(BFLOAT16, SUM)                                                                               \
    X(BFLOAT16, MIN)                                                                               \
    X(BFLOAT16, MAX)                                                                               \
    X(BFLOAT16, PRODUCT)                                                                           \
    X(FLOAT32, MIN)                                                                                \
    X(FLOAT32, MAX)                                                                                \
    X(FLOAT64, MIN)                                                                                \
    X(FLOAT64, MAX)                                                                                \
    X(BOOL, SUM)                                                                                   \
    X(BOOL, MIN)                                                                                   \
    X(BOOL, MAX)                                                                                   \
    X(BOOL, PRODUCT)

#define OPERATION(dtype, op)                                                                       \
    static void reduce_##dtype##_##op(void *in, void *inout, int *count, void *type)               \
    {                                                                                              \
        (void)type;                                                                                \
        fold(HVD_##dtype, HVD_##op, in, inout, *count);                                            \
    }
OPERATIONS(OPERATION)

static const mpi_reduce_fn own[HVD_DTYPE_COUNT][HVD_REDUCE_COUNT] = {
#define OPERATION_ROW(dtype, op) [HVD_##dtype][HVD_##op] = reduce_##dtype##_##op,
    OPERATIONS(OPERATION_ROW)};

static mpi_handle_t of_mpi(const struct mpi_lib *lib, hvd_reduce_t reduce)
{
    switch (reduce) {
    case HVD_MIN: return lib->ops[MPI_OPERATION_MIN];
    case HVD_MAX: return lib->ops[MPI_OPERATION_MAX];
    case HVD_PRODUCT: return lib->ops[MPI_OPERATION_PRODUCT];
    case HVD_SUM:
    case HVD_AVERAGE:
    case HVD_ADASUM:
    case HVD_REDUCE_COUNT: break;
    }
    return lib->ops[MPI_OPERATION_SUM];
}

hvd_status_t mpi_ops_find(struct mpi_ops *ops, hvd_dtype_t dtype, hvd_reduce_t reduce,
                          mpi_handle_t *ret, struct error *error)
{
    if (own[dtype][reduce] == NULL) {
        *ret = of_mpi(ops->lib, reduce);
        return HVD_OK;
    }
    if (!ops->is_made[dtype][reduce]) {
        int code =
            ops->lib->abi->op_create(ops->lib, own[dtype][reduce], true, &ops->made[dtype][reduce]);
        if (code != 0)
            return mpi_lib_error(ops->lib, "MPI_Op_create", code, error);
        ops->is_made[dtype][reduce] = true;
    }
    *ret = ops->made[dtype][reduce];
    return HVD_OK;
}

void mpi_ops_destroy(struct mpi_ops *ops)
{
    for (int d = 0; d < HVD_DTYPE_COUNT; d++)
        for (int r = 0; r < HVD_REDUCE_COUNT; r++) {
            if (ops->is_made[d][r])
                ops->lib->abi->op_free(ops->lib, &ops->made[d][r]);
            ops->is_made[d][r] = false;
        }
}
