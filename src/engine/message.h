/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - the control messages between the engines of a job, and their bounded codec.
 *
 * Every message starts with a header {type, flags, set, incarnation, generation}. Sent up the tree
 * of a process set: READY (cached ids that a whole subtree has submitted), REQUEST (full
 * descriptions), BREAK and POSITION (leaving a plan), SHUTDOWN, STUCK. Sent down: RESPONSE (a
 * sequence of items, applied in order by all) and HALT/COMMIT (leaving a plan). ABORT goes to all
 * members.
 *
 * Thread: any (pure).  Start reading at message_request_get(). */
#ifndef HVD_ENGINE_MESSAGE_H
#define HVD_ENGINE_MESSAGE_H

#include "base/codec.h"
#include "engine/kind.h"
#include "engine/shape.h"
#include "horovod/hvd.h"

enum message_type {
    MESSAGE_READY = 1,
    MESSAGE_REQUEST,
    MESSAGE_NUDGE,    /* only flags */
    MESSAGE_RESPONSE, /* down */
    MESSAGE_BREAK,    /* up: a rank can't follow the plan */
    MESSAGE_HALT,     /* down: start no further batch of the plan, report how many you started */
    MESSAGE_POSITION, /* up: the reply */
    MESSAGE_COMMIT,   /* down: batches below `commit` are finished, the rest never happened */
    MESSAGE_SHUTDOWN, /* up */
    MESSAGE_STUCK,    /* up: a rank can't continue by itself (deadlock.h) */
    MESSAGE_ABORT,    /* to all: the set or the job is broken, and why */
    MESSAGE_LEAVE,    /* to all: this rank has executed everything agreed on and is shutting down */
    MESSAGE_OFFER,    /* from one rank to another: direct.h */
    MESSAGE_TAKE,
    MESSAGE_PIECE,
    MESSAGE_CLOCK, /* what time is it at rank 0? and the answer: clock.h */
    MESSAGE_PACE   /* to rank 0: how long the steps take here: meter.h */
};

enum { MESSAGE_FLAG_WAITER = 1u }; /* a caller in this subtree waits: do not hold ready ops back */

#define MESSAGE_HEAD_BYTES 12u

struct message_head {
    uint8_t type, flags;
    uint16_t set;
    uint32_t incarnation; /* of the set: set ids are reused */
    uint32_t
        generation; /* increases when a plan starts or ends; older READY and REQUEST are void */
};

enum response_item {
    ITEM_DEFINE = 1, /* an id and its definition */
    ITEM_BATCH,      /* ids to execute together, next in order */
    ITEM_ERROR,      /* a name that fails on all ranks, and why */
    ITEM_FORGET,     /* an id is void; ranks that announced it announce it again in full */
    ITEM_JOINED,     /* all ranks have joined; the last one */
    ITEM_PLAN,       /* from here on these batches repeat without any message */
    ITEM_SET_ADD,    /* a process set begins (global set only); its number, or SET_NUMBER_* */
    ITEM_SET_REMOVE, /* it is removed */
    ITEM_RESET,      /* every id is void and a generation begins: a rank joins */
    ITEM_SHUTDOWN,
    ITEM_TUNE,     /* the tunables change here */
    ITEM_SET_CLOSE /* a rank no longer needs a set that it has opened */
};

/* In place of a set's number: every rank assigns it when the item's turn comes, with the
 * same outcome. Several such items can be in transit at once. */
#define SET_NUMBER_OPEN UINT32_MAX       /* one member has asked; the set may exist already */
#define SET_NUMBER_NEXT (UINT32_MAX - 1) /* all have asked, while such a set was in transit */

#define JOIN_NAME "join.noname" /* of every join, and of no other op */

/* One rank's description of one tensor; also the definition of an id. */
struct request {
    const char *name; /* not NUL-terminated; points into the message or a tensor */
    uint32_t name_bytes;
    uint8_t kind, dtype, reduce, flags; /* REQUEST_* */
    int32_t rank;                       /* index in the set */
    int32_t root;
    /* This rank's device. In a definition: those of all ranks, folded into a number (0: host). */
    int32_t device;
    uint8_t memory; /* HVD_MEMORY_* */
    uint8_t wire;   /* hvd_wire_t */
    uint32_t group;
    uint32_t waited_ms; /* since it was submitted */
    double prescale, postscale;
    int32_t ndim;
    int64_t shape[HVD_DIMS_MAX];
    /* SET_ADD, SET_OPEN: i32 ranks; SET_REMOVE: i32 id; SET_CLOSE: i32 id, u32 incarnation; else
     * none */
    const uint8_t *payload;
    uint32_t payload_bytes;
};
enum { REQUEST_TRANSIENT = 1u }; /* never cached */

void message_head_put(struct writer *w, const struct message_head *head);
bool message_head_get(struct reader *r, struct message_head *ret);
void message_request_put(struct writer *w, const struct request *request);
/* false: malformed, beyond a limit, or nothing an engine would write (such as a broadcast with a
 * reduction); *ret must not be used then. `set_size` bounds ranks. */
bool message_request_get(struct reader *r, int32_t set_size, struct request *ret);

/* Can such an op travel in this type (hvd_wire_t)? */
bool message_wire_is_sane(uint8_t kind, uint8_t dtype, uint8_t reduce, uint8_t wire);

/* Bytes of an allgather's result if member i contributes dim0[i] rows; false: negative or beyond 63
 * bits. */
bool message_rows_bytes(const struct request *request, const int64_t *dim0, int32_t set_size,
                        uint64_t *ret_bytes);

#endif
