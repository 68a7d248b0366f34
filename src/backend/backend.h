/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - runs a whole collective for a group of ranks. The second of our three tables.
 *
 * The engine has agreed with all members that this collective comes next in this group; a backend
 * moves the bytes, step by step, never blocking. One collective per group at a time; groups are
 * independent.
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
    bool is_one_host; /* every member sees every other's arena */
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
    int32_t root; /* index */
    const struct coll_part *parts;
    int32_t part_count; /* allreduce, allgather, reducescatter: 1 .. COLL_PARTS_MAX; others: 1 */
    /* allgather: counts[p * size + i] elements that rank i gives to part p; out holds all, in rank
     * order. reducescatter: counts[p * size + i] elements that rank i receives; `in` holds all, in
     * rank order. alltoall: counts[i] elements for rank i out of `in`; recv_counts[i] from rank i
     * into `out`. */
    const uint64_t *counts;
    const uint64_t *recv_counts;
};

struct backend;
struct backend_group; /* a backend's own state for a group */

#define BACKEND_BASE_LAST ((uint64_t)UINT32_MAX << 32)

struct backend_ops {
    uint32_t version;
    const char *name;
    hvd_status_t (*group_open)(struct backend *b, const struct group *group,
                               struct backend_group **ret, struct error *error);
    void (*group_close)(struct backend *b, struct backend_group *g);
    /* Begins; `coll` and what it points to stay valid until the end. Adasum allreduces come one
     * part at a time or fused: the rule is per part. */
    hvd_status_t (*start)(struct backend *b, struct backend_group *g, const struct coll *coll,
                          struct error *error);
    /* HVD_IN_PROGRESS, HVD_OK, or an error (`error` says which). *ret_moved: anything happened. */
    hvd_status_t (*progress)(struct backend *b, struct backend_group *g, bool *ret_moved,
                             struct error *error);
    /* Gives up the collective in progress without having changed any output: only legal when some
     * member has not started it (a broken plan). `base` is a number that only grows, equal on all
     * members: all later waves and streams are numbered from it. BACKEND_BASE_LAST: the set is
     * broken and nothing follows; then outputs may have changed. On return nothing is read from or
     * written to memory of this member any more on behalf of a collective that could still end well
     * on another. */
    void (*reset)(struct backend *b, struct backend_group *g, uint64_t base);
    const char *(*activity)(const struct backend_group *g,
                            hvd_kind_t kind); /* its timeline name here: "GLOO_ALLREDUCE" */
    void (*destroy)(struct backend *b);
};

struct backend {
    const struct backend_ops *ops;
    const struct os *os;
};

#endif
