/* SPDX-License-Identifier: Apache-2.0 */
/* procset.h - a process set: its ranks, with all state of their negotiation. Sets never wait for
 * each other: each has its own coordinator (its lowest rank), cache, batches, plan and join state.
 *
 * Messages follow a tree: the ranks on a machine under the lowest of them, those leaders in a
 * binomial tree under the coordinator. `ready_count` of an entry counts the children whose whole
 * subtree announced it, and this rank; when all have, this is announced to the parent, or at the
 * root the entry is ready.
 *
 * Thread: token holder, except `tensors` and the auto-name counters (submit lock).
 * Owner: struct engine.  Start reading at procset_create(). */
#ifndef HVD_ENGINE_PROCSET_H
#define HVD_ENGINE_PROCSET_H

#include "backend/backend.h"
#include "base/map.h"
#include "engine/message.h"
#include "engine/op.h"
#include "engine/tunables.h"

#define PROCSET_IDS     16384u /* ids alive at once, to begin with; a power of two */
#define PROCSET_IDS_MAX (1u << 24)
#define PROCSET_RING    16384u
#define PROCSET_RUNS    3 /* batches in execution: one copies in, one moves, one copies out */

struct engine;
struct coordinator;
struct plan;
struct stage;

/* The definition of an id, equal on all members. */
struct entry {
    uint32_t id;
    bool is_transient;
    uint8_t kind, dtype, reduce;
    uint8_t memory;  /* HVD_MEMORY_* */
    uint8_t wire;    /* hvd_wire_t */
    int32_t devices; /* of all ranks, folded into a number; 0: host memory */
    int32_t device;  /* this rank's own */
    int32_t root;
    int32_t ndim;
    double prescale, postscale;
    uint32_t group;
    int64_t shape[HVD_DIMS_MAX]; /* allgather, alltoall: shape[0] is this rank's own */
    int64_t *dim0;               /* allgather: first dimension of every rank */
    struct tensor *tensor; /* local name; NULL: this rank never submitted it (it has joined) */
    char *name;            /* own copy, for errors and the timeline */
    uint32_t name_bytes;
    struct flight_name flight_name;
    int32_t queued;         /* unfinished batches that contain it */
    bool is_forgotten;      /* void: freed when queued is 0 */
    int32_t ready_count;    /* tree: children and self that announced it */
    uint8_t *ready_bits;    /* which: children by number, then self; valid if ready_count > 0 */
    bool is_announced;      /* by this rank, in this generation */
    int64_t first_ready_ns; /* when the first announcement arrived (stall) */
    uint64_t bytes;         /* of the input here: fusion */
    /* coordinator: recent steps */
    uint64_t step_seen;
    struct entry *older, *newer; /* cached, in the order of use */
    bool is_ready;               /* waits to be batched */
    int32_t plan_batch;          /* position in the plan, -1 = not in it */
    uint32_t plan_generation;    /* of the last plan that was announced with it */
    bool is_plan_ready;          /* submitted here for the coming turn of the plan */
    /* meter.c */
    uint64_t step_run; /* the last step in which it ran */
    uint64_t run_count;
    int64_t wait_ns, run_ns; /* sums: submit to start, start to completion */
};

/* Entries executed together, or an event that must happen at this point in the order. */
enum batch_kind {
    BATCH_RUN,
    BATCH_PLAN,
    BATCH_JOINED,
    BATCH_SHUTDOWN,
    BATCH_SET_ADD,
    BATCH_SET_REMOVE,
    BATCH_SET_CLOSE,
    BATCH_TUNE
};
struct batch {
    enum batch_kind kind;
    int32_t argument;   /* JOINED: last rank; SET_*: id */
    uint32_t argument2; /* SET_ADD: incarnation, or the rank that opens it; SET_CLOSE: the rank */
    int32_t count;
    uint32_t *ids; /* RUN: in the set's ring; PLAN: ids with 0 after each batch; SET_ADD: ranks;
                    * SET_CLOSE: incarnation; TUNE: a struct tunables */
    uint32_t ring_span; /* ids taken from the ring */
    bool is_owned;      /* ids is a separate allocation */
};

enum run_state {
    RUN_FREE,
    RUN_IN,     /* inputs are copied to the stage */
    RUN_READY,  /* inputs are copied; earlier runs are still in the backend, or about to be */
    RUN_MOVING, /* in the backend, one of a set at a time */
    RUN_OUT,    /* results are copied from the stage */
    RUN_DRAIN,  /* cancelled while inputs were copied: freed when the copies finish */
    RUN_DONE    /* waits for earlier runs, which it must not overtake */
};

struct run { /* a batch in execution */
    enum run_state state;
    bool is_splits_phase;
    bool is_planned;
    bool is_staged;      /* the parts are in `stage`, not in the ops' memory */
    struct stage *stage; /* allocated when the first batch needs it */
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
    uint64_t number; /* of the batches that all members complete; equal on all */
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
    int32_t *via;           /* by member: number of the child whose subtree holds it, -1: none */
    int32_t *child_members; /* by child: ranks of its subtree, itself included */
    bool *child_waits;      /* last report of each child */
    bool is_waiter_told;    /* what was last reported to the parent */

    struct map tensors; /* name -> struct tensor */
    /* Numbers of unnamed ops. A rank that has joined skips those of the others, so each completed
     * join makes all ranks count from 0 again, under a name that includes the join's number. */
    uint64_t auto_names[HVD_KIND_COUNT];
    uint32_t join_count;

    struct op *pending_head, *pending_tail; /* all ops seen and not complete, oldest first */
    int32_t pending_count;
    struct entry **ids; /* ids are never reused, slot = id % id_capacity */
    uint32_t id_capacity;
    uint32_t id_count;
    uint32_t id_newest; /* the last one defined: no rank can know a later one */

    struct batch *batches; /* ring: what to execute, in order */
    uint32_t batch_capacity, batch_head, batch_tail;
    uint32_t *ring; /* ids of the batches in the queue, PROCSET_RING of them, first in first out */
    uint64_t ring_head, ring_tail;
    struct run runs[PROCSET_RUNS]; /* ring, in the order of the batches */
    uint32_t run_head, run_tail;

    struct writer up_ready, up_request; /* under construction */
    uint32_t up_ready_count, up_request_count;
    uint8_t *up_bytes;

    struct tunables tunables; /* in force */
    uint64_t tune_version;    /* the last that the coordinator has sent */
    uint64_t order;           /* batches that have run or begun, equal on all members wherever
                                 something other than a batch comes next */

    uint64_t responses; /* applied, equal to those that the coordinator has sent once all arrived */

    struct coordinator *coordinator; /* at the root only */
    struct plan *plan;               /* while one is in force */

    bool is_removed;     /* it only waits for copies to finish */
    bool must_announce;  /* a generation has begun: announce all pending ops again */
    struct op *join_op;  /* this rank has joined and waits */
    hvd_status_t broken; /* not HVD_OK: the set is broken, and why */
    char broken_text[HVD_ERROR_MAX];
};

hvd_status_t procset_create(struct engine *engine, int32_t id, uint32_t incarnation,
                            const int32_t *ranks, int32_t count, struct procset **ret,
                            struct error *error);
void procset_destroy(struct procset *set);
int32_t procset_index(const struct procset *set, int32_t world_rank); /* -1: not a member */

/* Allocates what a run needs for any batch; kept. false: no memory. */
bool procset_run_prepare(struct procset *set, struct run *run);

struct entry *procset_entry(const struct procset *set, uint32_t id); /* NULL: unknown */
hvd_status_t procset_define(struct procset *set, const struct request *request, const int64_t *dim0,
                            uint32_t id, struct entry **ret);
void procset_forget(struct procset *set, struct entry *entry);
/* Does the op match the id's definition? The rows of an alltoall may differ. */
bool procset_entry_fits(const struct entry *entry, const struct op *op);

/* The backend numbers its collectives from a new base; equal on all members. */
void procset_rebase(struct procset *set, uint32_t generation);
hvd_status_t procset_batch_push(struct procset *set, const struct batch *batch);
/* Room for the ids of a batch; false: no memory. They must be returned in the order they were
 * taken. */
bool procset_ids_take(struct procset *set, struct batch *batch, int32_t count);
void procset_ids_give(struct procset *set, struct batch *batch);
/* Fills `error`: this rank has no memory for `what`. */
hvd_status_t procset_no_memory(const struct procset *set, struct error *error, const char *what);

#endif
