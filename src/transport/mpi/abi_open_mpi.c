/* SPDX-License-Identifier: Apache-2.0 */
/* abi_open_mpi.c - the binary interface of Open MPI (and Spectrum MPI): handles are pointers,
 * predefined ones the addresses of objects that the library exports.
 *
 * Thread, blocking: as noted in mpi_lib.h.  Start reading at mpi_calls.inc. */
#include "base/library.h"
#include "transport/mpi/mpi_symbols.h"

typedef void *HANDLE;

struct abi_status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int cancelled;
    size_t count;
};

enum {
    ABI_THREAD_SINGLE = 0,
    ABI_THREAD_FUNNELED = 1,
    ABI_THREAD_SERIALIZED = 2,
    ABI_THREAD_MULTIPLE = 3,
    ABI_COMM_TYPE_SHARED = 0,
    ABI_TAG_UB = 0,
    ABI_UNDEFINED = -32766,
    ABI_ANY_SOURCE = -1,
    ABI_ANY_TAG = -1
};

struct object {
    const char *symbol;
    mpi_handle_t *place;
};

/* A program that was linked to the library may hold the object itself (a copy relocation); the
 * library then uses that one, and its own is never filled. */
static void *object_find(const struct mpi_lib *lib, const char *name)
{
    const struct os *os = lib->os;
    void *own = os->library_symbol(os->ctx, lib->library, name);
    void *seen = os->library_symbol(os->ctx, NULL, name);
    bool is_copied = own != NULL && seen != NULL && seen != own && library_is_of_program(seen);
    return is_copied ? seen : own;
}

static bool objects_find(const struct mpi_lib *lib, const struct object *objects, size_t count,
                         const char **ret_missing)
{
    for (size_t i = 0; i < count; i++) {
        *objects[i].place = (mpi_handle_t)object_find(lib, objects[i].symbol);
        if (*objects[i].place == 0) {
            *ret_missing = objects[i].symbol;
            return false;
        }
    }
    return true;
}

static bool abi_constants(struct mpi_lib *lib, const char **ret_missing)
{
    const struct object objects[] = {
        {"ompi_mpi_comm_world", &lib->comm_world},
        {"ompi_mpi_comm_self", &lib->comm_self},
        {"ompi_mpi_comm_null", &lib->comm_null},
        {"ompi_request_null", &lib->request_null},
        {"ompi_message_null", &lib->message_null},
        {"ompi_mpi_info_null", &lib->info_null},
        {"ompi_mpi_errors_return", &lib->errors_return},
        {"ompi_mpi_byte", &lib->types[MPI_TYPE_BYTE]},
        {"ompi_mpi_uint8_t", &lib->types[MPI_TYPE_UINT8]},
        {"ompi_mpi_int8_t", &lib->types[MPI_TYPE_INT8]},
        {"ompi_mpi_uint16_t", &lib->types[MPI_TYPE_UINT16]},
        {"ompi_mpi_int16_t", &lib->types[MPI_TYPE_INT16]},
        {"ompi_mpi_int32_t", &lib->types[MPI_TYPE_INT32]},
        {"ompi_mpi_int64_t", &lib->types[MPI_TYPE_INT64]},
        {"ompi_mpi_float", &lib->types[MPI_TYPE_FLOAT32]},
        {"ompi_mpi_double", &lib->types[MPI_TYPE_FLOAT64]},
        {"ompi_mpi_c_bool", &lib->types[MPI_TYPE_BOOL]},
        {"ompi_mpi_op_sum", &lib->ops[MPI_OPERATION_SUM]},
        {"ompi_mpi_op_min", &lib->ops[MPI_OPERATION_MIN]},
        {"ompi_mpi_op_max", &lib->ops[MPI_OPERATION_MAX]},
        {"ompi_mpi_op_prod", &lib->ops[MPI_OPERATION_PRODUCT]},
        {"ompi_mpi_op_lor", &lib->ops[MPI_OPERATION_OR]},
        {"ompi_mpi_op_land", &lib->ops[MPI_OPERATION_AND]},
        {"ompi_mpi_op_bor", &lib->ops[MPI_OPERATION_BIT_OR]},
        {"ompi_mpi_op_band", &lib->ops[MPI_OPERATION_BIT_AND]},
    };
    lib->in_place = (void *)1;
    lib->any_source = ABI_ANY_SOURCE;
    lib->any_tag = ABI_ANY_TAG;
    lib->undefined = ABI_UNDEFINED;
    return objects_find(lib, objects, sizeof objects / sizeof objects[0], ret_missing);
}

static mpi_handle_t abi_comm_from_fortran(const struct mpi_lib *lib, int handle)
{
    HANDLE (*from_int)(int) = (HANDLE(*)(int))mpi_symbol(lib, "MPI_Comm_f2c");
    return from_int != NULL ? (mpi_handle_t)from_int(handle) : lib->comm_null;
}

#include "transport/mpi/mpi_calls.inc"

const struct mpi_abi mpi_abi_open_mpi = ABI_TABLE(MPI_FLAVOUR_OPEN_MPI, "Open MPI");
