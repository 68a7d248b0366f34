/* SPDX-License-Identifier: Apache-2.0 */
/* abi_standard.c - the binary interface that MPI 5.0 defines for all libraries (libmpi_abi.so):
 * handles are pointers, predefined ones have small fixed values.
 *
 * Thread, blocking: as noted in mpi_lib.h.  Start reading at mpi_calls.inc. */
#include "transport/mpi/mpi_symbols.h"

typedef void *HANDLE;

struct abi_status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int internal[5];
};

enum {
    ABI_THREAD_SINGLE = 0,
    ABI_THREAD_FUNNELED = 1024,
    ABI_THREAD_SERIALIZED = 2048,
    ABI_THREAD_MULTIPLE = 4096,
    ABI_COMM_TYPE_SHARED = 221,
    ABI_TAG_UB = 501,
    ABI_UNDEFINED = -32766,
    ABI_ANY_SOURCE = -1,
    ABI_ANY_TAG = -2
};

static bool abi_constants(struct mpi_lib *lib, const char **ret_missing)
{
    static const mpi_handle_t types[MPI_TYPE_COUNT] = {
        [MPI_TYPE_BYTE] = 0x247,   [MPI_TYPE_UINT8] = 0x241,   [MPI_TYPE_INT8] = 0x240,
        [MPI_TYPE_UINT16] = 0x249, [MPI_TYPE_INT16] = 0x248,   [MPI_TYPE_INT32] = 0x250,
        [MPI_TYPE_INT64] = 0x258,  [MPI_TYPE_FLOAT32] = 0x210, [MPI_TYPE_FLOAT64] = 0x214,
        [MPI_TYPE_BOOL] = 0x238};
    static const mpi_handle_t ops[MPI_OPERATION_COUNT] = {
        [MPI_OPERATION_SUM] = 0x21,     [MPI_OPERATION_MIN] = 0x22,    [MPI_OPERATION_MAX] = 0x23,
        [MPI_OPERATION_PRODUCT] = 0x24, [MPI_OPERATION_OR] = 0x31,     [MPI_OPERATION_AND] = 0x30,
        [MPI_OPERATION_BIT_OR] = 0x29,  [MPI_OPERATION_BIT_AND] = 0x28};
    (void)ret_missing;
    lib->comm_null = 0x100;
    lib->comm_world = 0x101;
    lib->comm_self = 0x102;
    lib->message_null = 0x128;
    lib->request_null = 0x180;
    lib->info_null = 0x130;
    lib->errors_return = 0x143;
    for (int i = 0; i < MPI_TYPE_COUNT; i++)
        lib->types[i] = types[i];
    for (int i = 0; i < MPI_OPERATION_COUNT; i++)
        lib->ops[i] = ops[i];
    lib->in_place = (void *)1;
    lib->any_source = ABI_ANY_SOURCE;
    lib->any_tag = ABI_ANY_TAG;
    lib->undefined = ABI_UNDEFINED;
    return true;
}

/* MPI_Comm_fromint() replaces MPI_Comm_f2c(), which a library may lack. */
static mpi_handle_t abi_comm_from_fortran(const struct mpi_lib *lib, int handle)
{
    HANDLE (*from_int)(int) = (HANDLE(*)(int))mpi_symbol(lib, "MPI_Comm_fromint");
    if (from_int == NULL)
        from_int = (HANDLE(*)(int))mpi_symbol(lib, "MPI_Comm_f2c");
    return from_int != NULL ? (mpi_handle_t)from_int(handle) : lib->comm_null;
}

#include "transport/mpi/mpi_calls.inc"

const struct mpi_abi mpi_abi_standard = ABI_TABLE(MPI_FLAVOUR_STANDARD, "the standard interface");
