/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - the control messages between the engines of a job, and their bounded codec.
 *
 * Every message starts with a head {type, flags, set, incarnation, generation}. Up the tree of a
 * process set go READY (cached ids that a whole subtree has submitted), REQUEST (full
 * descriptions), BREAK and POSITION (leaving a plan), SHUTDOWN; down come RESPONSE (a sequence of
 * items, executed in order by all) and HALT/COMMIT (leaving a plan). ABORT goes to everyone.
 *
 * Thread: any (pure).  Start reading at request_get(). */
#ifndef HVD_ENGINE_MESSAGE_H
#define HVD_ENGINE_MESSAGE_H

#include "base/codec.h"
#include "horovod/hvd.h"

enum message_type {
    MESSAGE_READY = 1,
    MESSAGE_REQUEST,
    MESSAGE_NUDGE,    /* nothing but its flags */
    MESSAGE_RESPONSE, /* down */
    MESSAGE_BREAK,    /* up: somebody can't follow the plan */
    MESSAGE_HALT,     /* down: start no further batch of the plan, tell how many you started */
    MESSAGE_POSITION, /* up: the answer */
    MESSAGE_COMMIT,   /* down: batches below `commit` are finished, the rest never happened */
    MESSAGE_SHUTDOWN, /* up */
    MESSAGE_ABORT,    /* to all: the set or the job is broken, and why */
    MESSAGE_LEAVE     /* to all: this rank has executed everything agreed on and is shutting down */
};

enum { MESSAGE_FLAG_WAITER = 1u }; /* somebody in this subtree waits: do not hold ready ops back */

struct message_head {
    uint8_t type, flags;
    uint16_t set;
    uint32_t incarnation; /* of the set: ids are used again */
    uint32_t generation;  /* grows when a plan starts or ends; older READY and REQUEST are void */
};

enum response_item {
    ITEM_DEFINE = 1, /* an id and what it stands for */
    ITEM_BATCH,      /* ids to execute together, next in order */
    ITEM_ERROR,      /* a name that fails on all ranks, and why */
    ITEM_FORGET,     /* an id is void; who announced it announces it again in full */
    ITEM_JOINED,     /* all ranks have joined; the last one */
    ITEM_PLAN,       /* from here on these batches repeat without any message */
    ITEM_SET_ADD,    /* a process set begins (global set only) */
    ITEM_SET_REMOVE, /* and ends */
    ITEM_RESET,      /* every id is void and a generation begins: a rank joins */
    ITEM_SHUTDOWN
};

/* Kinds beyond hvd_kind_t that travel in requests. */
enum { KIND_SET_ADD = 16, KIND_SET_REMOVE = 17 };

/* What one rank says about one tensor; also what an id stands for. */
struct request {
    const char *name; /* not NUL-terminated; points into the message or a tensor */
    uint32_t name_bytes;
    uint8_t kind, dtype, reduce, flags; /* REQUEST_* */
    int32_t rank;                       /* index in the set */
    int32_t root, device;
    uint32_t group;
    double prescale, postscale;
    int32_t ndim;
    int64_t shape[HVD_DIMS_MAX];
    const uint8_t *payload; /* SET_ADD: i32 ranks; SET_REMOVE: i32 id */
    uint32_t payload_bytes;
};
enum { REQUEST_TRANSIENT = 1u }; /* never cached */

void head_put(struct writer *w, const struct message_head *head);
bool head_get(struct reader *r, struct message_head *ret);
void request_put(struct writer *w, const struct request *request);
/* false: malformed or beyond a limit; nothing of *ret may be used then. `set_size` bounds ranks. */
bool request_get(struct reader *r, int32_t set_size, struct request *ret);

/* Bytes one element count takes; false when the product overflows 63 bits. */
bool shape_elements(int32_t ndim, const int64_t *shape, int64_t *ret_count);
/* "[2, 3]" */
void shape_format(int32_t ndim, const int64_t *shape, char *ret_text, size_t bytes);
const char *kind_name(uint8_t kind, uint8_t reduce);           /* "ALLREDUCE", "ADASUM", ... */
const char *kind_negotiate_name(uint8_t kind, uint8_t reduce); /* "NEGOTIATE_ALLREDUCE", ... */

#endif
