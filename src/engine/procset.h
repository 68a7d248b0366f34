/* SPDX-License-Identifier: Apache-2.0 */
/* procset.h - a process set: ranks that agree, with all state of their agreement. Sets never wait
 * for each other: each has its own coordinator (its lowest rank), cache, batches, plan and join
 * state.
 *
 * Messages go along a tree: the ranks of a host under the lowest of them, those leaders in a
 * binomial tree under the coordinator. `ready_count` of an entry counts children whose whole
 * subtree announced it, and oneself; when all have, the news goes up, or at the root the entry is
 * ready.
 *
 * Thread: token holder, except `tensors` and the auto-name counters (submit lock).
 * Owner: struct engine.  Start reading at procset_create(). */
#ifndef HVD_ENGINE_PROCSET_H
#define HVD_ENGINE_PROCSET_H

#include "backend/backend.h"
#include "base/map.h"
#include "engine/message.h"
#include "engine/op.h"

#define PROCSET_IDS     16384u /* ids alive at once, to begin with; a power of two */
#define PROCSET_IDS_MAX (1u << 24)
#define PROCSET_RING    16384u
#define BATCH_QUEUE     4096u

struct engine;
struct coordinator;
struct plan;

/* What an id stands for, equal on all members. */
struct entry {
    uint32_t id;
    bool is_transient;
    uint8_t kind, dtype, reduce;
    int32_t root;
    int32_t ndim;
    double prescale, postscale;
    uint32_t group;
    int64_t shape[HVD_DIMS_MAX]; /* allgather, alltoall: shape[0] is this rank's own */
    int64_t *dim0;               /* allgather: first dimension of every rank */
    struct tensor *tensor; /* local name; NULL: this rank never submitted it (it has joined) */
    char *name;            /* own copy, for errors and the timeline */
    uint32_t name_bytes;
    int32_t queued;         /* batches that hold it and have not ended */
    bool is_forgotten;      /* void: goes when queued is 0 */
    int32_t ready_count;    /* tree: children and self that announced it */
    bool is_announced;      /* by this rank, in this generation */
    int64_t first_ready_ns; /* when the first announcement came (stall) */
    uint64_t bytes;         /* of the input here: fusion */
    /* coordinator's memory of the last steps */
    uint64_t step_seen;
    struct entry *older, *newer; /* cached, in the order of use */
    bool is_ready;               /* waits to be batched */
    int32_t plan_batch;          /* position in the plan, -1 = not in it */
    bool is_plan_ready;          /* submitted here for the coming turn of the plan */
};

/* Entries executed together, or an event that must happen at this place in the order. */
enum batch_kind {
    BATCH_RUN,
    BATCH_PLAN,
    BATCH_JOINED,
    BATCH_SHUTDOWN,
    BATCH_SET_ADD,
    BATCH_SET_REMOVE
};
struct batch {
    enum batch_kind kind;
    int32_t argument;   /* JOINED: last rank; SET_*: id */
    uint32_t argument2; /* SET_ADD: incarnation */
    int32_t count;
    uint32_t *ids; /* RUN: in the set's ring; PLAN: ids with 0 behind each batch; SET_ADD: ranks */
    uint32_t ring_span; /* ids taken from the ring */
    bool is_owned;      /* ids is an allocation of its own */
};

struct run { /* the batch in execution */
    bool is_active, is_splits_phase;
    bool is_planned;
    struct batch batch;
    struct coll coll;
    struct coll_part *parts; /* COLL_PARTS_MAX */
    struct entry **entries;
    uint64_t *counts; /* part_count x size, grown when needed */
    size_t counts_capacity;
    uint64_t *recv_counts; /* size */
    int32_t *all_splits;   /* size x size: alltoall */
    void *zeros;           /* input and output of a joined rank */
    size_t zeros_bytes;
    int64_t start_ns;
};

struct procset {
    struct engine *engine;
    int32_t id;
    uint32_t incarnation;
    uint32_t generation;
    int32_t size;
    int32_t self; /* my index; a struct procset exists only on members */
    int32_t *ranks;
    struct group group;
    int32_t *host; /* topology.host */
    struct backend_group *backend_group;

    int32_t parent; /* index, -1 at the root */
    int32_t *children;
    int32_t child_count;
    bool *child_waits;   /* last word of each child */
    bool is_waiter_told; /* what the parent was told last */

    struct map tensors; /* name -> struct tensor */
    /* Numbers of ops without a name. A rank that has joined leaves the others' out, so each join
     * that ends makes all ranks count from the beginning, under a name that tells the joins. */
    uint64_t auto_names[HVD_KIND_COUNT];
    uint32_t join_count;

    struct op *pending_head, *pending_tail; /* all ops seen and not complete, oldest first */
    int32_t pending_count;
    struct entry **ids; /* ids grow for ever, slot = id % id_capacity */
    uint32_t id_capacity;
    uint32_t id_count;

    struct batch *batches; /* ring: what to execute, in order */
    uint32_t batch_capacity, batch_head, batch_tail;
    uint32_t *ring; /* ids of the batches in the queue, PROCSET_RING of them, first in first out */
    uint64_t ring_head, ring_tail;
    struct run run;

    struct writer up_ready, up_request; /* under construction */
    uint32_t up_ready_count, up_request_count;
    uint8_t *up_bytes;

    struct coordinator *coordinator; /* at the root only */
    struct plan *plan;               /* while one is in force */

    bool must_announce;  /* a generation has begun: all pending ops are to be announced anew */
    struct op *join_op;  /* this rank has joined and waits */
    hvd_status_t broken; /* not HVD_OK: the set is dead, and why */
    char broken_text[HVD_ERROR_MAX];
};

hvd_status_t procset_create(struct engine *engine, int32_t id, uint32_t incarnation,
                            const int32_t *ranks, int32_t count, struct procset **ret,
                            struct error *error);
void procset_destroy(struct procset *set);
int32_t procset_index(const struct procset *set, int32_t world_rank); /* -1: not a member */

struct entry *procset_entry(const struct procset *set, uint32_t id); /* NULL: unknown */
hvd_status_t procset_define(struct procset *set, const struct request *request, const int64_t *dim0,
                            uint32_t id, struct entry **ret);
void procset_forget(struct procset *set, struct entry *entry);

/* A new life or generation begins for the backend; equal on all members. */
void procset_rebase(struct procset *set, uint32_t generation);
hvd_status_t procset_batch_push(struct procset *set, const struct batch *batch);
/* Room for the ids of a batch; false: no memory. They are given back in the order they were taken.
 */
bool procset_ids_take(struct procset *set, struct batch *batch, int32_t count);
void procset_ids_give(struct procset *set, struct batch *batch);
#endif
