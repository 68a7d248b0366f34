/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_symbols.h - the functions of an MPI library that we call, by name; all are of MPI 3.0.
 *
 * A library that lacks one is too old, and the error names it. mpi_calls.inc gives each its type.
 * Thread: none (names only).  Start reading at MPI_SYMBOLS. */
#ifndef HVD_TRANSPORT_MPI_SYMBOLS_H
#define HVD_TRANSPORT_MPI_SYMBOLS_H

#include "transport/mpi/mpi_lib.h"

#define MPI_SYMBOLS(X)                                                                             \
    X(Init_thread)                                                                                 \
    X(Query_thread)                                                                                \
    X(Is_thread_main)                                                                              \
    X(Initialized)                                                                                 \
    X(Finalized)                                                                                   \
    X(Finalize)                                                                                    \
    X(Abort)                                                                                       \
    X(Error_string)                                                                                \
    X(Get_library_version)                                                                         \
    X(Get_count)                                                                                   \
    X(Test_cancelled)                                                                              \
    X(Comm_rank)                                                                                   \
    X(Comm_size)                                                                                   \
    X(Comm_dup)                                                                                    \
    X(Comm_split)                                                                                  \
    X(Comm_split_type)                                                                             \
    X(Comm_create_group)                                                                           \
    X(Comm_free)                                                                                   \
    X(Comm_group)                                                                                  \
    X(Comm_set_errhandler)                                                                         \
    X(Comm_get_attr)                                                                               \
    X(Group_incl)                                                                                  \
    X(Group_size)                                                                                  \
    X(Group_free)                                                                                  \
    X(Group_translate_ranks)                                                                       \
    X(Isend)                                                                                       \
    X(Irecv)                                                                                       \
    X(Improbe)                                                                                     \
    X(Imrecv)                                                                                      \
    X(Test)                                                                                        \
    X(Wait)                                                                                        \
    X(Cancel)                                                                                      \
    X(Request_free)                                                                                \
    X(Barrier)                                                                                     \
    X(Bcast)                                                                                       \
    X(Allreduce)                                                                                   \
    X(Allgather)                                                                                   \
    X(Allgatherv)                                                                                  \
    X(Ibarrier)                                                                                    \
    X(Ibcast)                                                                                      \
    X(Iallreduce)                                                                                  \
    X(Iallgather)                                                                                  \
    X(Iallgatherv)                                                                                 \
    X(Ialltoallv)                                                                                  \
    X(Ireduce_scatter)                                                                             \
    X(Type_contiguous)                                                                             \
    X(Type_commit)                                                                                 \
    X(Type_free)                                                                                   \
    X(Op_create)                                                                                   \
    X(Op_free)

#define MPI_SYMBOL_ENUM(name) SYMBOL_##name,
enum mpi_symbol { MPI_SYMBOLS(MPI_SYMBOL_ENUM) SYMBOL_COUNT };
#undef MPI_SYMBOL_ENUM

_Static_assert(SYMBOL_COUNT <= MPI_SYMBOLS_MAX, "the table of struct mpi_lib holds them all");

/* NULL: the library has none of that name. */
static inline void *mpi_symbol(const struct mpi_lib *lib, const char *name)
{
    return lib->os->library_symbol(lib->os->ctx, lib->library, name);
}

extern const struct mpi_abi mpi_abi_open_mpi, mpi_abi_mpich, mpi_abi_standard;

#endif
