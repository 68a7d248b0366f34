/* SPDX-License-Identifier: Apache-2.0 */
/* hvd.h - the public C API of Horovod: all that a C program or a framework binding needs.
 *
 * Every function is safe from any thread. None of them starts a thread or opens a socket before
 * hvd_init(). A text returned by value of `const char *` without an owner named is static.
 *
 * One op's life: fill a struct hvd_op, hvd_submit() it, get a handle at once; the engine agrees
 * with the other ranks, moves the bytes and completes it; hvd_wait(), hvd_poll() or the op's
 * callback tells; read the result, then hvd_release() the handle. Tensor memory is borrowed from
 * submit to completion. */
#ifndef HOROVOD_HVD_H
#define HOROVOD_HVD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "horovod/hvd_status.h"

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_VERSION_STRING     "0.28.1" /* the contract that scripts see */
#define HVD_API_VERSION        1u       /* grows with every incompatible change of this header */
#define HVD_NAME_MAX           1024u    /* bytes of an op's full name, with the terminating NUL */
#define HVD_DIMS_MAX           16       /* dimensions of a tensor */
#define HVD_ERROR_MAX          1024u    /* bytes of an error text */
#define HVD_PROCESS_SETS_MAX   256      /* live process sets, the global one included */
#define HVD_PROCESS_SET_GLOBAL 0

typedef enum hvd_dtype {
    HVD_UINT8 = 0,
    HVD_INT8 = 1,
    HVD_UINT16 = 2,
    HVD_INT16 = 3,
    HVD_INT32 = 4,
    HVD_INT64 = 5,
    HVD_FLOAT16 = 6,
    HVD_FLOAT32 = 7,
    HVD_FLOAT64 = 8,
    HVD_BOOL = 9,
    HVD_BFLOAT16 = 10,
    HVD_DTYPE_COUNT = 11
} hvd_dtype_t;

typedef enum hvd_reduce {
    HVD_AVERAGE = 0,
    HVD_SUM = 1,
    HVD_ADASUM = 2,
    HVD_MIN = 3,
    HVD_MAX = 4,
    HVD_PRODUCT = 5,
    HVD_REDUCE_COUNT = 6
} hvd_reduce_t;

typedef enum hvd_kind {
    HVD_ALLREDUCE = 0,
    HVD_ALLGATHER = 1,
    HVD_BROADCAST = 2,
    HVD_JOIN = 3,
    HVD_ALLTOALL = 4,
    HVD_BARRIER = 5,
    HVD_REDUCESCATTER = 6,
    HVD_KIND_COUNT = 7
} hvd_kind_t;

#define HVD_DEVICE_CPU (-1)

typedef struct hvd_tensor {
    void *data;           /* first element; may be NULL when the tensor has no element */
    const int64_t *shape; /* read during hvd_submit() only */
    int32_t ndim;
    hvd_dtype_t dtype;
    int32_t device; /* HVD_DEVICE_CPU, or the index of an accelerator */
} hvd_tensor_t;

typedef int64_t hvd_handle_t; /* positive; 0 is never a handle */

/* Called once when the op has ended, from a thread of ours or from one inside
 * hvd_wait()/hvd_poll(), with no lock held: it may submit ops, it may not wait for one. The handle
 * is valid until it returns if the op was submitted with HVD_OP_AUTO_RELEASE, else until
 * hvd_release(). */
typedef void (*hvd_callback_t)(void *arg, hvd_handle_t handle, hvd_status_t status);

/* Gives memory for a result whose size is known only now (allgather, alltoall, reducescatter):
 * output `index` of the op, `ndim` and `shape` as given. Returns NULL when it can't. Called from
 * the same threads as the callback. */
typedef void *(*hvd_alloc_result_t)(void *arg, int32_t index, int32_t ndim, const int64_t *shape);

enum {
    HVD_OP_AUTO_RELEASE = 1u << 0, /* release the handle after the callback */
    HVD_OP_NAME_HOLD = 1u << 1, /* the name stays taken until the handle is polled done, waited for
                                   or released, or 1 ms has passed (the PyTorch rule); else it is
                                   free at completion */
    HVD_OP_WAITED = 1u << 2     /* the caller waits for it at once: nobody else need be woken */
};

/* One tensor to communicate. Zero-fill it, set struct_size = sizeof, then what the kind needs. */
typedef struct hvd_op {
    size_t struct_size;
    hvd_kind_t kind;
    uint32_t flags; /* HVD_OP_* */
    const char
        *name; /* equal on all ranks; NULL or "" lets the library number it per set and kind */
    int32_t process_set; /* id, HVD_PROCESS_SET_GLOBAL for all */
    hvd_reduce_t reduce; /* allreduce, reducescatter */
    double prescale;     /* 0 counts as 1 only if struct hvd_op was zero-filled by hvd_op_init() */
    double postscale;
    int32_t root; /* broadcast: global rank */
    hvd_tensor_t input;
    hvd_tensor_t output;   /* allreduce, broadcast: same shape, may be the input (in place). Others:
                              data NULL   = the library or `alloc_result` provides it */
    const int32_t *splits; /* alltoall: rows for each rank of the set; NULL = equal parts */
    int32_t splits_count;
    hvd_callback_t callback;
    hvd_alloc_result_t alloc_result;
    void *arg; /* for both */
} hvd_op_t;

/* Sets struct_size and the defaults (no flags, global set, SUM, scales 1, CPU). */
HVD_API void hvd_op_init(hvd_op_t *op, hvd_kind_t kind);

/* Explicit configuration; zero-fill and set struct_size. Whatever is left 0 or NULL comes from the
 * environment, then from the launcher that started us, then from the defaults. */
typedef struct hvd_config {
    size_t struct_size;
    int32_t rank,
        size; /* both 0: find out (HOROVOD_RANK, MPI, Slurm, torchrun, else a world of one) */
    int32_t local_rank, local_size, cross_rank, cross_size;
    const char *rendezvous; /* "unix:NAME" or "HOST:PORT" of the store */
    const void *key;        /* job key, key_bytes long (32) */
    size_t key_bytes;
    uint64_t epoch;
    const int32_t *const *process_sets; /* static sets: rank lists */
    const int32_t *process_set_sizes;
    int32_t process_set_count;
    const int32_t *ranks; /* a sub-world: these world ranks only (under MPI; else ignored) */
    int32_t rank_count;
    /* An array of MPI_Comm of the MPI library in this process: the first is the world, each further
     * one defines a process set. MPI must have been initialised by the caller. */
    const void *mpi_comms;
    int32_t mpi_comm_count;
} hvd_config_t;

/* ---- life ---- */
HVD_API hvd_status_t
hvd_init(const hvd_config_t *config); /* config may be NULL; HVD_OK if already up */
HVD_API void hvd_shutdown(void);      /* collective; no-op if not up */
HVD_API bool hvd_is_initialized(void);
/* Why the last call of this thread that returns a status failed; "" if it did not. For an op that
 * failed hvd_wait() and hvd_poll() put its text here, too. */
HVD_API const char *hvd_last_error(void);
HVD_API const char *hvd_status_name(hvd_status_t status); /* "mismatch", "peer dead", ... */
HVD_API hvd_status_class_t hvd_status_class(hvd_status_t status);
HVD_API size_t hvd_dtype_bytes(hvd_dtype_t dtype);
HVD_API const char *hvd_dtype_name(hvd_dtype_t dtype); /* "float32" */

/* ---- who am I (-1 when not initialised) ---- */
HVD_API int32_t hvd_rank(void);
HVD_API int32_t hvd_size(void);
HVD_API int32_t hvd_local_rank(void);
HVD_API int32_t hvd_local_size(void);
HVD_API int32_t hvd_cross_rank(void);
HVD_API int32_t hvd_cross_size(void);
HVD_API int32_t hvd_is_homogeneous(void); /* 1, 0, -1 */

/* ---- process sets ---- */
HVD_API hvd_status_t hvd_process_set_add(const int32_t *ranks, int32_t count,
                                         int32_t *ret_id); /* collective */
HVD_API hvd_status_t hvd_process_set_remove(int32_t id);   /* collective */
HVD_API hvd_status_t hvd_process_set_rank(int32_t id,
                                          int32_t *ret_rank); /* ABORTED if not a member */
HVD_API hvd_status_t hvd_process_set_size(int32_t id, int32_t *ret_size);
HVD_API int32_t hvd_process_set_count(void);
HVD_API void hvd_process_set_ids(int32_t *ret_ids); /* hvd_process_set_count() of them */
HVD_API hvd_status_t hvd_process_set_ranks(int32_t id, int32_t *ret_ranks);
/* The set with the same members as a communicator of the MPI library in this process. */
HVD_API hvd_status_t hvd_process_set_of_comm(const void *mpi_comm, int32_t *ret_id);

/* ---- ops ---- */
HVD_API hvd_status_t hvd_submit(const hvd_op_t *op, hvd_handle_t *ret_handle);
/* All or nothing: one handle for the group, complete after the last member, status = first error.
 * Results are read by member index. */
HVD_API hvd_status_t hvd_submit_group(const hvd_op_t *ops, size_t count, hvd_handle_t *ret_handle);
HVD_API hvd_status_t
hvd_poll(hvd_handle_t handle); /* IN_PROGRESS, or the final status; never blocks */
HVD_API hvd_status_t hvd_wait(hvd_handle_t handle, int64_t timeout_ms); /* < 0: until it ends */
HVD_API const char *hvd_error(hvd_handle_t handle); /* why the op failed; valid until release */
HVD_API void hvd_release(hvd_handle_t handle);      /* unknown handles are ignored */

/* ---- results; valid after completion and before release ---- */
HVD_API hvd_status_t hvd_result_shape(hvd_handle_t handle, int32_t index, int32_t *ret_ndim,
                                      int64_t ret_shape[HVD_DIMS_MAX]);
HVD_API void *hvd_result_data(hvd_handle_t handle,
                              int32_t index); /* the library's buffer; NULL if yours */
/* Takes the buffer out of the handle; give it back with hvd_free(). NULL if there is none. */
HVD_API void *hvd_result_take(hvd_handle_t handle, int32_t index);
HVD_API hvd_status_t hvd_result_splits(hvd_handle_t handle, int32_t index,
                                       int32_t *ret_splits); /* alltoall:
                                 one per rank of the set */
HVD_API int32_t hvd_result_rank(hvd_handle_t handle); /* join: the global rank that joined last */

/* ---- memory that peers on this host can reach ---- */
/* 64-byte aligned, zeroed. NULL when full or not initialised. Without shared memory (a world of
 * one, HOROVOD_SHM_DISABLE) it is ordinary memory; hvd_is_shared() tells. What was not freed before
 * shutdown stays where it is with what it holds, no longer shared, until the process ends. */
HVD_API void *hvd_alloc(size_t bytes);
/* Of hvd_alloc() or hvd_result_take(), also after shutdown; NULL and unknown pointers are left
 * alone. */
HVD_API void hvd_free(void *ptr);
/* Makes a buffer of your own reachable as it is: its pages move into the arena at the addresses
 * where they are, contents kept, so that collectives need not copy it. Address and length must be
 * multiples of the page (4096), the memory private and anonymous (aligned_alloc, mmap), and nobody
 * may write to it during the call. A forked child shares it with you instead of getting a copy.
 * Unregister it before you free or unmap it; shutdown unregisters all. Without other ranks on this
 * host there is nothing to do: both say HVD_OK. */
HVD_API hvd_status_t hvd_register(void *ptr, size_t bytes);
HVD_API hvd_status_t hvd_unregister(void *ptr);            /* the address that was registered */
HVD_API bool hvd_is_shared(const void *ptr, size_t bytes); /* wholly inside this rank's arena? */

/* ---- timeline ---- */
HVD_API hvd_status_t hvd_timeline_start(const char *path, bool mark_cycles);
HVD_API hvd_status_t hvd_timeline_stop(void);

/* ---- counters, for tests, benchmarks and the curious ---- */
typedef struct hvd_stats {
    size_t struct_size;
    uint64_t ops_completed, batches, batches_planned;
    uint64_t bytes_reduced; /* payload bytes of completed allreduces */
    uint64_t messages_sent; /* control messages to peers */
    uint64_t allocations;   /* from the system, since init */
    uint64_t plan_starts, plan_breaks;
    uint64_t cache_hits, cache_misses;
    uint64_t shm_bytes, net_bytes; /* moved by transports */
    uint64_t wakeups, sleeps;
} hvd_stats_t;
HVD_API void hvd_stats(hvd_stats_t *ret_stats);

/* What this build and machine can do now: "mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm",
 * "shm", "tcp"; 0 = no. Works before init. "gloo" is 1: our TCP plane fills its place; "mpi" is 1
 * if there is an MPI library. And of the job that hvd_init() started: "mpi_enabled",
 * "gloo_enabled", "mpi_threads" (MPI_THREAD_MULTIPLE). */
HVD_API int32_t hvd_feature(const char *name);

#ifdef __cplusplus
}
#endif
#endif
