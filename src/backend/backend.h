/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - runs a whole collective for a group of ranks. The second of our three tables;
 * backends.h lists the implementations.
 *
 * The engine has agreed with all members that this collective comes next in this group; a backend
 * moves the bytes, step by step, never blocking. One collective per group at a time; groups are
 * independent.
 *
 * Every implementation passes tests/unit/backend_conformance.h.
 *
 * Thread: token holder.  Start reading at backend/native/native.c. */
#ifndef HVD_BACKEND_BACKEND_H
#define HVD_BACKEND_BACKEND_H

#include "base/config.h"
#include "base/os.h"
#include "base/status.h"
#include "schedule/schedule.h"
#include "transport/transport.h"

#define BACKEND_VERSION 1u
#define COLL_PARTS_MAX  1024 /* tensors fused into one collective */

/* The ranks of a process set as a backend sees them. */
struct group {
    int32_t set_id;
    int32_t size;
    int32_t self;         /* my index */
    const int32_t *ranks; /* world rank by index, ascending */
    struct topology topology;
    bool is_one_host; /* every member maps every other's arena */
};

struct coll_part { /* one tensor */
    const void *in;
    void *out;      /* may be `in` */
    uint64_t count; /* elements of `in` */
};

struct coll {
    hvd_kind_t kind;
    hvd_dtype_t dtype;
    hvd_reduce_t reduce; /* HVD_SUM for HVD_AVERAGE: 1/n is folded into postscale */
    double prescale, postscale;
    int32_t root;   /* index */
    int32_t memory; /* kind of memory that the parts are in; 0: the host's */
    const struct coll_part *parts;
    int32_t part_count; /* allreduce, allgather, reducescatter: 1 .. COLL_PARTS_MAX; others: 1 */
    /* allgather: counts[p * size + i] elements that rank i contributes to part p; `out` has all, in
     * rank order. reducescatter: counts[p * size + i] elements that rank i receives; `in` has all,
     * in rank order. alltoall: counts[i] elements of `in` for rank i; recv_counts[i] from rank i
     * into `out`. */
    const uint64_t *counts;
    const uint64_t *recv_counts;
    /* How to run it, equal on all members; 0: the value of the group's topology, and 100. */
    int32_t channels;
    int32_t threshold_percent; /* of the sizes at which the algorithm changes */
    hvd_wire_t wire; /* allreduce by HVD_SUM of float32; a backend may ignore it, on all members */
};

struct backend;
struct backend_group; /* a backend's own state for a group */

/* A collective to run, described by what is equal on all members of the group. */
struct backend_ask {
    hvd_kind_t kind;
    hvd_dtype_t dtype;
    hvd_reduce_t reduce;
    hvd_wire_t wire;
    int32_t memory;
    uint64_t bytes; /* of all members' inputs, or of the one that all have alike; alltoall: 0 */
};

#define BACKEND_BASE_LAST ((uint64_t)UINT32_MAX << 32)

/* One direction of the data between this rank and another one, through a transport. */
struct backend_load {
    uint64_t bytes;
    int64_t ns; /* with at least one transfer under way */
};

struct backend_ops {
    uint32_t version;
    const char *name;
    /* How suitable is this backend for it, for this group? The highest wins; below 0: it can't, and
     * start() returns HVD_ERR_UNSUPPORTED. The result must be the same on every member. NULL:
     * always 0. */
    int32_t (*score)(const struct backend *b, const struct group *group,
                     const struct backend_ask *ask);
    /* HVD_ERR_UNSUPPORTED: never serves such a group; the same on all its members. */
    hvd_status_t (*group_open)(struct backend *b, const struct group *group,
                               struct backend_group **ret, struct error *error);
    void (*group_close)(struct backend *b, struct backend_group *g);
    /* Starts a collective; `coll` and what it points to stay valid until it completes. Adasum
     * allreduces come one part at a time or fused: the rule is per part.
     * HVD_ERR_UNSUPPORTED depends only on what is equal on all members, so all of them get it and
     * the group remains usable. After any other error of start or progress only reset with
     * BACKEND_BASE_LAST may follow: the member may be the only one that failed. */
    hvd_status_t (*start)(struct backend *b, struct backend_group *g, const struct coll *coll,
                          struct error *error);
    /* HVD_IN_PROGRESS, HVD_OK, or an error (text in `error`). *ret_moved: there was progress. */
    hvd_status_t (*progress)(struct backend *b, struct backend_group *g, bool *ret_moved,
                             struct error *error);
    /* Cancels the collective in progress without having changed any output: only legal when some
     * member has not started it (a broken plan). `base` is a number that only increases, equal on
     * all members: all later waves and streams are numbered from it. BACKEND_BASE_LAST: the set is
     * broken and nothing follows; then outputs may have changed. After the return, no collective
     * that could still succeed on another member reads or writes memory of this one. */
    void (*reset)(struct backend *b, struct backend_group *g, uint64_t base);
    const char *(*activity)(const struct backend_group *g,
                            hvd_kind_t kind); /* its timeline name here: "GLOO_ALLREDUCE" */
    void (*destroy)(struct backend *b);
    /* NULL: a bell or a transport signals progress. Else nothing does: while a collective runs, a
     * sleeping thread must poll again after at most this time. */
    int64_t (*poll_ns)(struct backend *b);
    /* May be NULL: not known. Does the collective in progress wait for this member to arrive or to
     * continue? For snapshots; no side effects. */
    bool (*awaits)(const struct backend_group *g, int32_t index);
    /* May be NULL: not known. Adds what has moved to and from this world rank so far. */
    void (*load)(const struct backend *b, int32_t rank, struct backend_load *ret_sent,
                 struct backend_load *ret_received);
};

struct backend {
    const struct backend_ops *ops;
    const struct os *os;
    bool is_final;      /* a collective that was started can't be reset: plans must be off */
    bool is_one_thread; /* only one thread may call it, always the same */
};

#endif
