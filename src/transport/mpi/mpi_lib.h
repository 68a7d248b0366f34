/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_lib.h - an MPI library found at run time, behind one table for all its binary interfaces.
 *
 * No MPI header is needed to build this: abi_*.c declare the three interfaces that exist (Open MPI
 * with pointers, MPICH and its derivatives with integers, the standard one of MPI 5). All other
 * code sees handles as plain words and calls lib->abi->NAME(lib, ...).
 *
 * Functions of the table return MPI's own error code, 0 on success; mpi_lib_error() turns it into a
 * text. Errors return instead of aborting the process on communicators created by
 * mpi_lib_comm_own() and those derived from them. Counts are ints: split longer transfers.
 *
 * Thread: any with MPI_LEVEL_MULTIPLE, else only the one that lib->level allows.  Owner: the
 * process: a library is loaded once, and MPI is finalized once, at exit.  Blocks: where MPI does.
 * Start reading at mpi_lib_open(). */
#ifndef HVD_TRANSPORT_MPI_LIB_H
#define HVD_TRANSPORT_MPI_LIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

typedef uintptr_t mpi_handle_t; /* a communicator, request, message, type, op, in any interface */

enum mpi_flavour { MPI_FLAVOUR_OPEN_MPI, MPI_FLAVOUR_MPICH, MPI_FLAVOUR_STANDARD };

enum mpi_level { MPI_LEVEL_SINGLE, MPI_LEVEL_FUNNELED, MPI_LEVEL_SERIALIZED, MPI_LEVEL_MULTIPLE };

enum mpi_type {
    MPI_TYPE_BYTE,
    MPI_TYPE_UINT8,
    MPI_TYPE_INT8,
    MPI_TYPE_UINT16,
    MPI_TYPE_INT16,
    MPI_TYPE_INT32,
    MPI_TYPE_INT64,
    MPI_TYPE_FLOAT32,
    MPI_TYPE_FLOAT64,
    MPI_TYPE_BOOL,
    MPI_TYPE_COUNT
};

enum mpi_op {
    MPI_OPERATION_SUM,
    MPI_OPERATION_MIN,
    MPI_OPERATION_MAX,
    MPI_OPERATION_PRODUCT,
    MPI_OPERATION_OR, /* logical */
    MPI_OPERATION_AND,
    MPI_OPERATION_BIT_OR,
    MPI_OPERATION_BIT_AND,
    MPI_OPERATION_COUNT
};

struct mpi_status {
    int source, tag, error;
    int count; /* elements of the type given; -1: no whole number */
    bool is_cancelled;
};

struct mpi_lib;

/* Our own reduction: inout[i] = in[i] op inout[i]; `type` points to the library's own handle. */
typedef void (*mpi_reduce_fn)(void *in, void *inout, int *count, void *type);

struct mpi_abi {
    enum mpi_flavour flavour;
    const char *name;
    size_t handle_bytes; /* sizeof(MPI_Comm) */
    /* Fills the constants of `lib`; false: a symbol is missing, named by *ret_missing. */
    bool (*constants)(struct mpi_lib *lib, const char **ret_missing);

    /* init and finalize */
    int (*init_thread)(const struct mpi_lib *lib, enum mpi_level wanted, enum mpi_level *ret_level);
    int (*query_thread)(const struct mpi_lib *lib, enum mpi_level *ret_level);
    int (*is_thread_main)(const struct mpi_lib *lib, bool *ret);
    int (*initialized)(const struct mpi_lib *lib, bool *ret);
    int (*finalized)(const struct mpi_lib *lib, bool *ret);
    int (*finalize)(const struct mpi_lib *lib);
    int (*abort)(const struct mpi_lib *lib, mpi_handle_t comm, int code);
    int (*error_string)(const struct mpi_lib *lib, int code, char *ret_text); /* MPI_TEXT_MAX */

    /* communicators; all but rank, size, errors_return, tag_ub, translate are collective */
    int (*comm_rank)(const struct mpi_lib *lib, mpi_handle_t comm, int *ret);
    int (*comm_size)(const struct mpi_lib *lib, mpi_handle_t comm, int *ret);
    int (*comm_dup)(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t *ret);
    int (*comm_split)(const struct mpi_lib *lib, mpi_handle_t comm, int color, int key,
                      mpi_handle_t *ret);
    int (*comm_split_shared)(const struct mpi_lib *lib, mpi_handle_t comm, int key,
                             mpi_handle_t *ret);
    /* A communicator of these ranks of `comm`, in this order; only they call it. */
    int (*comm_create_group)(const struct mpi_lib *lib, mpi_handle_t comm, const int *ranks,
                             int count, int tag, mpi_handle_t *ret);
    int (*comm_free)(const struct mpi_lib *lib, mpi_handle_t *comm);
    int (*comm_errors_return)(const struct mpi_lib *lib, mpi_handle_t comm);
    int (*comm_tag_ub)(const struct mpi_lib *lib, mpi_handle_t comm, int *ret);
    /* Ranks of all members of `comm` in `other`; lib->undefined: not a member. */
    int (*comm_translate)(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t other,
                          int *ret_ranks);
    mpi_handle_t (*comm_from_fortran)(const struct mpi_lib *lib, int handle);
    mpi_handle_t (*comm_at)(const void *handles, int index); /* from an array of MPI_Comm */

    /* point to point */
    int (*isend)(const struct mpi_lib *lib, const void *bytes, int count, mpi_handle_t type, int to,
                 int tag, mpi_handle_t comm, mpi_handle_t *ret_request);
    int (*irecv)(const struct mpi_lib *lib, void *bytes, int count, mpi_handle_t type, int from,
                 int tag, mpi_handle_t comm, mpi_handle_t *ret_request);
    int (*improbe)(const struct mpi_lib *lib, int from, int tag, mpi_handle_t comm, bool *ret_found,
                   mpi_handle_t *ret_message, struct mpi_status *ret_status); /* count: bytes */
    int (*imrecv)(const struct mpi_lib *lib, void *bytes, int count, mpi_handle_t type,
                  mpi_handle_t *message, mpi_handle_t *ret_request);
    /* When done, *request is lib->request_null. `type` counts the status; both may be 0 and NULL.
     */
    int (*test)(const struct mpi_lib *lib, mpi_handle_t *request, mpi_handle_t type, bool *ret_done,
                struct mpi_status *ret_status);
    int (*wait)(const struct mpi_lib *lib, mpi_handle_t *request, mpi_handle_t type,
                struct mpi_status *ret_status);
    int (*cancel)(const struct mpi_lib *lib, mpi_handle_t *request);
    int (*request_free)(const struct mpi_lib *lib, mpi_handle_t *request);

    /* collectives; lib->in_place if MPI allows it */
    int (*barrier)(const struct mpi_lib *lib, mpi_handle_t comm);
    int (*bcast)(const struct mpi_lib *lib, void *bytes, int count, mpi_handle_t type, int root,
                 mpi_handle_t comm);
    int (*allreduce)(const struct mpi_lib *lib, const void *in, void *out, int count,
                     mpi_handle_t type, mpi_handle_t op, mpi_handle_t comm);
    int (*allgather)(const struct mpi_lib *lib, const void *in, int in_count, mpi_handle_t in_type,
                     void *out, int out_count, mpi_handle_t out_type, mpi_handle_t comm);
    int (*allgatherv)(const struct mpi_lib *lib, const void *in, int in_count, mpi_handle_t in_type,
                      void *out, const int *out_counts, const int *out_at, mpi_handle_t out_type,
                      mpi_handle_t comm);
    int (*ibarrier)(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t *ret_request);
    int (*ibcast)(const struct mpi_lib *lib, void *bytes, int count, mpi_handle_t type, int root,
                  mpi_handle_t comm, mpi_handle_t *ret_request);
    int (*iallreduce)(const struct mpi_lib *lib, const void *in, void *out, int count,
                      mpi_handle_t type, mpi_handle_t op, mpi_handle_t comm,
                      mpi_handle_t *ret_request);
    int (*iallgather)(const struct mpi_lib *lib, const void *in, int in_count, mpi_handle_t in_type,
                      void *out, int out_count, mpi_handle_t out_type, mpi_handle_t comm,
                      mpi_handle_t *ret_request);
    int (*iallgatherv)(const struct mpi_lib *lib, const void *in, int in_count,
                       mpi_handle_t in_type, void *out, const int *out_counts, const int *out_at,
                       mpi_handle_t out_type, mpi_handle_t comm, mpi_handle_t *ret_request);
    int (*ialltoallv)(const struct mpi_lib *lib, const void *in, const int *in_counts,
                      const int *in_at, mpi_handle_t in_type, void *out, const int *out_counts,
                      const int *out_at, mpi_handle_t out_type, mpi_handle_t comm,
                      mpi_handle_t *ret_request);
    int (*ireduce_scatter)(const struct mpi_lib *lib, const void *in, void *out, const int *counts,
                           mpi_handle_t type, mpi_handle_t op, mpi_handle_t comm,
                           mpi_handle_t *ret_request);

    /* our own types and operations */
    int (*type_contiguous)(const struct mpi_lib *lib, int count, mpi_handle_t type,
                           mpi_handle_t *ret); /* committed */
    int (*type_free)(const struct mpi_lib *lib, mpi_handle_t *type);
    int (*op_create)(const struct mpi_lib *lib, mpi_reduce_fn fn, bool is_commutative,
                     mpi_handle_t *ret);
    int (*op_free)(const struct mpi_lib *lib, mpi_handle_t *op);
};

#define MPI_TEXT_MAX    8192 /* enough for any library's text */
#define MPI_SYMBOLS_MAX 64

struct mpi_lib {
    const struct os *os;
    const struct mpi_abi *abi;
    char path[512];     /* where it was found */
    char version[128];  /* "Open MPI v4.1.4", "MPICH 4.0.2": first words of its own version text */
    const char *origin; /* how it was found: "already in the process", "of the launcher", ... */
    void *library;      /* of os->library_open() */
    void *symbols[MPI_SYMBOLS_MAX]; /* by enum mpi_symbol of mpi_symbols.h */
    bool is_ours;                   /* we initialised MPI, so we finalize it */
    enum mpi_level level;           /* after mpi_lib_init() */

    /* constants of this interface */
    mpi_handle_t comm_world, comm_self, comm_null, request_null, message_null, info_null;
    mpi_handle_t errors_return;
    mpi_handle_t types[MPI_TYPE_COUNT], ops[MPI_OPERATION_COUNT];
    void *in_place;
    int any_source, any_tag, undefined;
};

/* The communicator through which the ranks of a job met: errors return, its ranks are the world's.
 */
struct mpi_job {
    const struct mpi_lib *lib; /* initialised */
    mpi_handle_t comm;
};

/* Finds and loads: the library already in this process, else the one that belongs to the launcher
 * that started the process, else the usual names. Does not initialise MPI. HVD_ERR_CONFIG: there is
 * no usable one; `error` lists what was tried and why it was rejected. `wanted`: a file that the
 * user names (HOROVOD_MPI_LIBRARY), which then is the only candidate; "" or NULL: none. */
hvd_status_t mpi_lib_open(const struct os *os, const char *wanted, struct mpi_lib **ret,
                          struct error *error);
/* Would mpi_lib_open() find a library? Loads nothing. `ret_path` may be NULL. */
bool mpi_lib_probe(const struct os *os, const char *wanted, char *ret_path, size_t bytes);
/* Frees the table; the library itself stays loaded. Does not finalize. NULL is fine. */
void mpi_lib_close(struct mpi_lib *lib);

/* Initialises MPI unless it is initialised; sets level and is_ours. `is_single`: request no
 * threads. */
hvd_status_t mpi_lib_init(struct mpi_lib *lib, bool is_single, struct error *error);
/* Finalizes MPI if we initialised it and it has not been finalized since. At exit only. */
void mpi_lib_finalize(struct mpi_lib *lib);

/* A duplicate of `comm` on which errors return. Collective. */
hvd_status_t mpi_lib_comm_own(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t *ret,
                              struct error *error);

/* "MPI_Isend failed: ... (Open MPI v4.1.4, /usr/lib/libmpi.so.40)" into `error`; 0 is HVD_OK. */
hvd_status_t mpi_lib_error(const struct mpi_lib *lib, const char *call, int code,
                           struct error *error);

#endif
