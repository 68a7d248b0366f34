/* SPDX-License-Identifier: Apache-2.0 */
/* op.h - one named tensor submitted (struct op), the handle of one or more of them (struct ticket),
 * and the name they go by in a process set (struct tensor).
 *
 * Life of an op: taken from the pool and filled by the submitter, pushed on the engine's queue,
 * owned by the engine until it is complete, kept by its ticket until release. Life of a tensor:
 * created by the first submit of its name; it exists while an op is in flight or the name is in the
 * response cache.
 *
 * Thread: `state`, `word` and the results are published by a release store of ticket.state;
 * everything else as noted. Owner: struct engine's pools. */
#ifndef HVD_ENGINE_OP_H
#define HVD_ENGINE_OP_H

#include <stdatomic.h>

#include "base/map.h"
#include "engine/flight.h"
#include "horovod/hvd.h"

struct entry;
struct memory_kind;
struct memory_mark;
struct ticket;

/* A name within a process set. Guarded by the engine's submit lock, except `entry` (token). */
struct tensor {
    struct op *op;       /* in flight, NULL if none */
    struct ticket *hold; /* keeps the name taken after completion (HVD_OP_NAME_HOLD) */
    int64_t hold_until_ns;
    struct entry *entry; /* what the set's coordinator defined for it, NULL if not cached */
    struct flight_name flight_name;
    uint32_t name_bytes;
    bool is_cacheable; /* false for generated names: they are never reused */
    char name[];
};

enum op_state {
    OP_QUEUED,    /* submitted, the engine has not seen it */
    OP_HELD,      /* seen, not yet announced */
    OP_ANNOUNCED, /* sent to the coordinator, by id or in full */
    OP_BATCHED    /* in a batch that waits for its turn or runs */
};

/* Factors agree if they are equal, or neither is a number. */
static inline bool factor_is_same(double a, double b)
{
    return a == b || (a != a && b != b);
}

struct op {
    struct op *next; /* queue, or list of the set's pending ops */
    struct op *prev;
    struct ticket *ticket;
    struct tensor *tensor;
    struct procset *set;
    int64_t submit_ns;
    const void *in;
    void *out;
    hvd_callback_t callback;
    hvd_alloc_result_t alloc_result;
    void *arg;
    double prescale, postscale;
    int64_t count; /* elements of the input */
    int64_t shape[HVD_DIMS_MAX];
    int32_t *splits;      /* alltoall: set size entries, owned */
    int32_t *recv_splits; /* alltoall result, owned */
    void *result;         /* buffer allocated for the output, owned until taken */
    int64_t result_dim0;
    int32_t ndim;
    int32_t index;    /* in the ticket */
    int32_t root;     /* index in the set */
    int32_t set_size; /* of its set, which may be removed before the result is read */
    int32_t device;
    uint32_t group; /* tag of a grouped submit, 0 = none */
    uint32_t flags;
    /* Messages to one rank (direct.h) */
    uint64_t channel, tag, number, moved;
    int32_t peer; /* world rank */
    uint8_t kind, dtype, reduce, state;
    uint8_t memory_kind;        /* HVD_MEMORY_* */
    uint8_t wire;               /* hvd_wire_t */
    bool is_lent;               /* copies from or to its memory are running: can't complete yet */
    struct memory_kind *memory; /* accesses in and out; NULL: the processor does */
    struct memory_mark *mark;   /* memory: where the caller's stream was at submit */
};

/* The object behind a handle: `count` ops that complete together. */
struct ticket {
    struct ticket *next; /* free list or completed list */
    hvd_handle_t handle;
    _Atomic int32_t state; /* hvd_status_t: HVD_IN_PROGRESS until all ops completed */
    int32_t remaining;     /* ops not completed (token) */
    int32_t count;
    int32_t answer;           /* join: the last rank; change of the sets: the id */
    hvd_status_t first_error; /* token */
    uint32_t flags;
    bool is_live; /* false: on the free list */
    bool is_name_held;
    _Atomic bool is_error_added; /* something was appended to the text */
    struct op **ops;             /* = &one for a single op */
    struct op *one;
    struct error *error; /* allocated when it fails */
};

#endif
