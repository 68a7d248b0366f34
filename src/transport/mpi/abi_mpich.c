/* SPDX-License-Identifier: Apache-2.0 */
/* abi_mpich.c - the binary interface that MPICH shares with Intel MPI, MVAPICH, Cray and others:
 * handles are ints, predefined ones have fixed values.
 *
 * Thread, blocking: as noted in mpi_lib.h.  Start reading at mpi_calls.inc. */
#include "transport/mpi/mpi_symbols.h"

typedef int HANDLE;

struct abi_status {
    int count_lo, count_hi_and_cancelled;
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
};

enum {
    ABI_THREAD_SINGLE = 0,
    ABI_THREAD_FUNNELED = 1,
    ABI_THREAD_SERIALIZED = 2,
    ABI_THREAD_MULTIPLE = 3,
    ABI_COMM_TYPE_SHARED = 1,
    ABI_TAG_UB = 0x64400001,
    ABI_UNDEFINED = -32766,
    ABI_ANY_SOURCE = -2,
    ABI_ANY_TAG = -1
};

static bool abi_constants(struct mpi_lib *lib, const char **ret_missing)
{
    static const mpi_handle_t types[MPI_TYPE_COUNT] = {
        [MPI_TYPE_BYTE] = 0x4c00010d,    [MPI_TYPE_UINT8] = 0x4c00013b,
        [MPI_TYPE_INT8] = 0x4c000137,    [MPI_TYPE_UINT16] = 0x4c00023c,
        [MPI_TYPE_INT16] = 0x4c000238,   [MPI_TYPE_INT32] = 0x4c000439,
        [MPI_TYPE_INT64] = 0x4c00083a,   [MPI_TYPE_FLOAT32] = 0x4c00040a,
        [MPI_TYPE_FLOAT64] = 0x4c00080b, [MPI_TYPE_BOOL] = 0x4c00013f};
    static const mpi_handle_t ops[MPI_OPERATION_COUNT] = {
        [MPI_OPERATION_SUM] = 0x58000003,    [MPI_OPERATION_MIN] = 0x58000002,
        [MPI_OPERATION_MAX] = 0x58000001,    [MPI_OPERATION_PRODUCT] = 0x58000004,
        [MPI_OPERATION_OR] = 0x58000007,     [MPI_OPERATION_AND] = 0x58000005,
        [MPI_OPERATION_BIT_OR] = 0x58000008, [MPI_OPERATION_BIT_AND] = 0x58000006};
    (void)ret_missing;
    lib->comm_null = 0x04000000;
    lib->comm_world = 0x44000000;
    lib->comm_self = 0x44000001;
    lib->request_null = lib->message_null = 0x2c000000;
    lib->info_null = 0x1c000000;
    lib->errors_return = 0x54000001;
    for (int i = 0; i < MPI_TYPE_COUNT; i++)
        lib->types[i] = types[i];
    for (int i = 0; i < MPI_OPERATION_COUNT; i++)
        lib->ops[i] = ops[i];
    lib->in_place = (void *)-1;
    lib->any_source = ABI_ANY_SOURCE;
    lib->any_tag = ABI_ANY_TAG;
    lib->undefined = ABI_UNDEFINED;
    return true;
}

static mpi_handle_t abi_comm_from_fortran(const struct mpi_lib *lib, int handle)
{
    (void)lib;
    return (mpi_handle_t)handle; /* the same numbers in both languages */
}

#include "transport/mpi/mpi_calls.inc"

const struct mpi_abi mpi_abi_mpich = ABI_TABLE(MPI_FLAVOUR_MPICH, "MPICH");
