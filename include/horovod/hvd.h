/* SPDX-License-Identifier: Apache-2.0 */
/* hvd.h - the public C API of Horovod: all that a C program or a framework binding needs.
 *
 * Every function is safe to call from any thread. None of them starts a thread or opens a socket
 * before hvd_init(). A `const char *` result is a static string unless its owner is named.
 *
 * Using an op: fill a struct hvd_op, hvd_submit() it, get a handle at once; the engine agrees
 * with the other ranks, moves the bytes and completes it; hvd_wait(), hvd_poll() or the op's
 * callback reports completion; read the result, then hvd_release() the handle. Tensor memory is
 * borrowed from submit to completion. */
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

#define HVD_VERSION_STRING     "0.29.0" /* as horovod.__version__ in Python */
#define HVD_API_VERSION        1u    /* increases with every incompatible change of this header */
#define HVD_NAME_MAX           1024u /* bytes of an op's full name, with the terminating NUL */
#define HVD_DIMS_MAX           16    /* dimensions of a tensor */
#define HVD_ERROR_MAX          1024u /* bytes of an error text */
#define HVD_PROCESS_SETS_MAX   256   /* live process sets, the global one included */
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

/* The type in which values travel between machines. Between ranks that share memory nothing is
 * converted: sums are made from the values themselves. Where they travel, each hop adds in float32
 * and rounds once; a float16 sum that is not finite travels again as float32. All ranks get the
 * same bits. */
typedef enum hvd_wire {
    HVD_WIRE_SAME = 0, /* that of the tensor */
    HVD_WIRE_FLOAT16 = 1,
    HVD_WIRE_BFLOAT16 = 2,
    HVD_WIRE_COUNT = 3
} hvd_wire_t;

/* Structs that begin with struct_size grow at their end only, and a field that is 0 has its
 * default. So zero-fill one, set struct_size to its sizeof, then the fields you need:
 *
 *     hvd_op_t op = {.struct_size = sizeof op, .kind = HVD_ALLREDUCE, .reduce = HVD_SUM, ...};
 *
 * A library accepts the structs of older headers, and those of newer ones if the fields that it
 * does not know are 0; otherwise the call fails and names the struct. struct hvd_tensor is part of
 * others and does not grow. */

#define HVD_MEMORY_HOST 0 /* kinds of memory: hvd_op.memory. There is no other yet. */
#define HVD_DEVICE_CPU  0 /* the only device of host memory; -1 has the same meaning */

typedef struct hvd_tensor {
    void *data;           /* first element; may be NULL when the tensor has no element */
    const int64_t *shape; /* read during hvd_submit() only */
    int32_t ndim;
    hvd_dtype_t dtype;
    int32_t device; /* number among those of its kind of memory (hvd_op.memory) */
} hvd_tensor_t;

typedef int64_t hvd_handle_t; /* positive; 0 is never a handle */

/* Called once when the op has completed, from an internal thread or from one inside
 * hvd_wait()/hvd_poll(), with no lock held: it may submit ops, but must not wait for one. The
 * handle is valid until it returns if the op was submitted with HVD_OP_AUTO_RELEASE, else until
 * hvd_release(). */
typedef void (*hvd_callback_t)(void *arg, hvd_handle_t handle, hvd_status_t status);

/* Allocates a result whose size is known only now (allgather, alltoall, reducescatter): output
 * `index` of the op, with the given `ndim` and `shape`. Returns NULL on failure. Called from the
 * same threads as the callback. */
typedef void *(*hvd_alloc_result_t)(void *arg, int32_t index, int32_t ndim, const int64_t *shape);

enum {
    HVD_OP_AUTO_RELEASE = 1u << 0, /* release the handle after the callback */
    HVD_OP_NAME_HOLD = 1u << 1,  /* the name stays taken until the handle is polled done, waited for
                                    or released, or 1 ms has passed (the PyTorch rule); else it is
                                    free at completion */
    HVD_OP_WAITED = 1u << 2,     /* the caller waits for it at once: no other thread is woken */
    HVD_OP_SCALE_EXACT = 1u << 3 /* a scale of 0 multiplies by 0; without this it counts as 1 */
};

/* One tensor to communicate. If zero-filled, it is an average over all ranks without scaling, in
 * host memory; see above. */
typedef struct hvd_op {
    size_t struct_size;
    hvd_kind_t kind;
    uint32_t flags; /* HVD_OP_* */
    const char
        *name; /* equal on all ranks; NULL or "" lets the library number it per set and kind */
    int32_t process_set;        /* id, HVD_PROCESS_SET_GLOBAL for all */
    hvd_reduce_t reduce;        /* allreduce, reducescatter */
    double prescale, postscale; /* allreduce, reducescatter; 0 counts as 1: HVD_OP_SCALE_EXACT */
    int32_t root;               /* broadcast: global rank */
    hvd_tensor_t input;
    hvd_tensor_t output;   /* allreduce, broadcast: same shape, may be the input (in place). Others:
                              data NULL   = the library or `alloc_result` provides it */
    const int32_t *splits; /* alltoall: rows for each rank of the set; NULL = equal parts */
    int32_t splits_count;
    hvd_callback_t callback;
    hvd_alloc_result_t alloc_result;
    void *arg; /* for both */
    /* For both input and output, which are on the same device. When the op is submitted, work that
     * the caller has already put into `stream` may still be writing to memory that is not host
     * memory. */
    int32_t memory;  /* HVD_MEMORY_* */
    void *stream;    /* of the memory's kind; NULL: its default one; host memory has none */
    hvd_wire_t wire; /* allreduce by SUM or AVERAGE of float32; equal on all ranks. Others: SAME */
} hvd_op_t;

/* Alternative initialisation: struct_size, no flags, global set, SUM, scales 1, float32, CPU. */
HVD_API void hvd_op_init(hvd_op_t *op, hvd_kind_t kind);
/* The same for a struct of the given size; the macro passes the size in the caller's header. */
HVD_API void hvd_op_init_sized(hvd_op_t *op, size_t struct_size, hvd_kind_t kind);
#define hvd_op_init(op, kind) hvd_op_init_sized(op, sizeof *(op), kind)

/* Explicit configuration. Fields left 0 or NULL are taken from the environment, then from the
 * launcher that started the process, then from the defaults. */
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

/* ---- init and shutdown ---- */
HVD_API hvd_status_t
hvd_init(const hvd_config_t *config); /* config may be NULL; HVD_OK if already up */
HVD_API void hvd_shutdown(void);      /* collective; no-op if not up */
/* Before hvd_shutdown() of a process that has failed: why, in one line. The errors of the other
 * ranks and the report of horovodrun contain it. */
HVD_API void hvd_last_words(const char *text);
/* A closing paragraph about the job, which horovodrun prints at its end (--summary). Only rank 0's,
 * between hvd_init() and hvd_shutdown(), of a job that asks for it; otherwise nothing happens. */
HVD_API void hvd_summary(const char *text);
HVD_API bool hvd_is_initialized(void);
/* Why the last call of this thread that returns a status failed; "" if it succeeded. For a failed
 * op, hvd_wait() and hvd_poll() also put its text here. */
HVD_API const char *hvd_last_error(void);
HVD_API const char *hvd_status_name(hvd_status_t status); /* "mismatch", "peer dead", ... */
HVD_API hvd_status_class_t hvd_status_class(hvd_status_t status);
HVD_API size_t hvd_dtype_bytes(hvd_dtype_t dtype);
HVD_API const char *hvd_dtype_name(hvd_dtype_t dtype); /* "float32" */

/* ---- identity of this process (-1 when not initialised) ---- */
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
/* The set of these ranks, which begins now if there is none. Not collective: its members ask when
 * they want, and the other ranks need not know. Returns when this rank can use it. */
HVD_API hvd_status_t hvd_process_set_open(const int32_t *ranks, int32_t count, int32_t *ret_id);
/* This rank no longer needs a set that it has opened; call it once for each open, after the rank's
 * last operation in the set. Not collective. The set is removed when no rank needs it. */
HVD_API hvd_status_t hvd_process_set_close(int32_t id);
HVD_API hvd_status_t hvd_process_set_remove(int32_t id); /* collective */
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
/* All or nothing: one handle for the group, complete after its last op, status = first error.
 * Results are read by the op's index. All ops have the same struct_size. */
HVD_API hvd_status_t hvd_submit_group(const hvd_op_t *ops, size_t count, hvd_handle_t *ret_handle);
/* A message to one rank, or from one. The receiver needs as many bytes as were sent, else both
 * sides fail with HVD_ERR_MISMATCH. Messages of one sender are received in their order within a
 * channel and tag. Handles are those of ops; hvd_result_rank() is the sender. Zero-fill it, as
 * hvd_op. */
#define HVD_ANY_RANK (-1)
typedef struct hvd_message {
    size_t struct_size;
    uint32_t flags; /* HVD_OP_* */
    int32_t peer; /* global rank, not one's own; HVD_ANY_RANK receives from whichever sends first */
    void *data;   /* borrowed until the end; a send only reads it */
    size_t bytes;
    uint64_t channel, tag; /* a receive gets what was sent with the same two */
    hvd_callback_t callback;
    void *arg;
} hvd_message_t;
HVD_API hvd_status_t hvd_send(const hvd_message_t *message, hvd_handle_t *ret_handle);
HVD_API hvd_status_t hvd_recv(const hvd_message_t *message, hvd_handle_t *ret_handle);
HVD_API hvd_status_t
hvd_poll(hvd_handle_t handle); /* IN_PROGRESS, or the final status; never blocks */
/* timeout_ms < 0: no limit; 0: does what can be done and spins a moment, but never sleeps. */
HVD_API hvd_status_t hvd_wait(hvd_handle_t handle, int64_t timeout_ms);
/* Declares that no thread of this process submits anything before one of these handles is complete:
 * all of them only wait. If all ranks have declared so and nothing can complete any more, the job
 * fails at once, instead of at the time limit for stalled ops. `where`: the place in the program,
 * for the text of that error. Without effect if a handle is complete or unknown. */
HVD_API void hvd_only_waits(const hvd_handle_t *handles, size_t count, const char *where);
HVD_API const char *hvd_error(hvd_handle_t handle); /* why the op failed; valid until release */
HVD_API void hvd_release(hvd_handle_t handle);      /* unknown handles are ignored */

/* ---- results; valid after completion and before release ---- */
HVD_API hvd_status_t hvd_result_shape(hvd_handle_t handle, int32_t index, int32_t *ret_ndim,
                                      int64_t ret_shape[HVD_DIMS_MAX]);
HVD_API void *hvd_result_data(hvd_handle_t handle,
                              int32_t index); /* the library's buffer; NULL if yours */
/* Transfers the buffer to the caller, who frees it with hvd_free(). NULL if there is none. */
HVD_API void *hvd_result_take(hvd_handle_t handle, int32_t index);
HVD_API hvd_status_t hvd_result_splits(hvd_handle_t handle, int32_t index,
                                       int32_t *ret_splits); /* alltoall:
                                 one per rank of the set */
HVD_API int32_t hvd_result_rank(hvd_handle_t handle); /* join: the global rank that joined last */

/* ---- memory that peers on this machine can access ---- */
/* 64-byte aligned, zeroed. NULL when full or not initialised. Without shared memory (a world of
 * one, HOROVOD_SHM_DISABLE) it is ordinary memory; see hvd_is_shared(). Memory not freed before
 * shutdown keeps its address and contents, no longer shared, until the process exits. */
HVD_API void *hvd_alloc(size_t bytes);
/* Frees memory from hvd_alloc() or hvd_result_take(), also after shutdown; ignores NULL and unknown
 * pointers. */
HVD_API void hvd_free(void *ptr);
/* Makes an existing buffer accessible to peers: its pages move into the arena at their present
 * addresses, keeping their contents, so that collectives need not copy it. Address and length must
 * be multiples of the page (4096), the memory private and anonymous (aligned_alloc, mmap), and no
 * thread may write to it during the call. A forked child shares it instead of getting a copy.
 * Unregister it before you free or unmap it; shutdown unregisters all. Without other ranks on this
 * machine there is nothing to do: both return HVD_OK. */
HVD_API hvd_status_t hvd_register(void *ptr, size_t bytes);
HVD_API hvd_status_t hvd_unregister(void *ptr);            /* the address that was registered */
HVD_API bool hvd_is_shared(const void *ptr, size_t bytes); /* wholly inside this rank's arena? */

/* ---- elastic jobs: workers that come and go ---- */
enum {
    HVD_NOTICE_REMOVED = 1u << 0, /* a worker is to leave, or has left */
    HVD_NOTICE_ADDED = 1u << 1    /* a worker waits to be taken in */
};
/* Which kinds of changes has horovodrun announced after change number `since`? *ret_version is the
 * number of the last one. Reads memory and nothing else. 0 and 0 where nothing is announced. */
HVD_API uint32_t hvd_notice(uint64_t since, uint64_t *ret_version);
/* The generation that this process is in, and the number of the last change that it accounts for.
 * False: not initialised, or the job is not elastic. */
HVD_API bool hvd_generation(uint64_t *ret_epoch, uint64_t *ret_notice);
/* Asks to be left out of the next generation. hvd_init() then returns HVD_ERR_REMOVED. */
HVD_API hvd_status_t hvd_leave_request(void);

/* ---- timeline ---- */
HVD_API hvd_status_t hvd_timeline_start(const char *path, bool mark_cycles);
HVD_API hvd_status_t hvd_timeline_stop(void);

/* ---- counters, for tests and benchmarks ---- */
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
/* Fills struct_size bytes; counters that this library does not have are 0. */
HVD_API void hvd_stats(hvd_stats_t *ret_stats);

/* ---- what is it doing? ---- */
#define HVD_SNAPSHOT_VERSION 1            /* increases when a field is removed or redefined */
#define HVD_SNAPSHOT_MIN     16384u       /* bytes that hvd_snapshot() needs at least */
#define HVD_SNAPSHOT_BYTES   (256u << 10) /* bytes that are enough for every entry it lists */
/* Writes a NUL-terminated JSON text about this process: its identity, which ops wait, how long and
 * for which ranks, what runs, its links, counters and recent events; docs/snapshot.md has the
 * schema. Entries that do not fit are omitted and counted. It has no side effects and works at any
 * time: before hvd_init(), when the job is broken, and while an internal thread is stuck; then it
 * writes after 100 ms what it can read without that thread. Returns the length, or 0 if `bytes` is
 * less than HVD_SNAPSHOT_MIN. */
HVD_API size_t hvd_snapshot(char *ret_text, size_t bytes);
/* Writes this rank's snapshot, with its last events, into FOLDER/rank.N.json for horovod-inspect;
 * `folder` NULL: HOROVOD_POSTMORTEM_DIR. An older file of this rank is replaced. Works from any
 * thread while the job is stuck or broken. With HOROVOD_POSTMORTEM_DIR, SIGUSR1 does the same if
 * the program had no handler of its own at hvd_init(). HVD_ERR_NOT_INITIALIZED; HVD_ERR_CONFIG:
 * there is no folder; HVD_ERR_OS: it can't be written. */
HVD_API hvd_status_t hvd_dump(const char *folder);

#define HVD_METRICS_VERSION 1     /* increases when a field is removed or redefined */
#define HVD_METRICS_MIN     4096u /* bytes that hvd_metrics() needs at least */
#define HVD_METRICS_BYTES   (128u << 10)
/* Writes a NUL-terminated JSON text about what this rank has measured since hvd_init(): ops and
 * bytes, how long tensors waited and ran, steps, which ranks it waited for; on rank 0 also the
 * steps of all ranks and which of them are slow. docs/metrics.md has the schema. "state" is "busy"
 * if an internal thread is stuck, and then little else is there. Returns the length, or 0 if
 * `bytes` is less than HVD_METRICS_MIN. */
HVD_API size_t hvd_metrics(char *ret_text, size_t bytes);

/* What this build and machine support: "mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm", "shm",
 * "tcp"; 0 = no. Works before init. "gloo" is 1: our TCP plane replaces it; "mpi" is 1 if there is
 * an MPI library. For the job that hvd_init() started: "mpi_enabled", "gloo_enabled",
 * "mpi_threads" (MPI_THREAD_MULTIPLE). */
HVD_API int32_t hvd_feature(const char *name);

/* A transport or a backend of this build. */
typedef struct hvd_probe {
    size_t struct_size;
    char kind[16];  /* "transport" or "backend" */
    char name[16];  /* "shm" */
    char why[256];  /* a sentence, if it is not usable */
    bool is_usable; /* on this machine, with the settings in the environment */
} hvd_probe_t;
/* Describes number `index`, from 0 on; returns false past the last one. Fills struct_size bytes.
 * Opens and loads nothing; works before init. */
HVD_API bool hvd_probe(int32_t index, hvd_probe_t *ret_probe);

/* Every setting (environment variable, type, default, limits, help) and every option of horovodrun
 * as a JSON array of objects. Works before init. Writes at most `bytes` including a NUL; returns
 * the length of the whole text without the NUL, so hvd_settings_json(NULL, 0) returns the size. */
HVD_API size_t hvd_settings_json(char *ret_text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
