/* SPDX-License-Identifier: Apache-2.0 */
/* engine_private.h - the state of an engine, for the files of src/engine and for white-box tests.
 * All other code includes engine.h.
 *
 * Thread: token holder, except fields marked "submit lock" or atomic. */
#ifndef HVD_ENGINE_ENGINE_PRIVATE_H
#define HVD_ENGINE_ENGINE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/config.h"
#include "engine/clock.h"
#include "engine/deadlock.h"
#include "engine/direct.h"
#include "engine/engine.h"
#include "engine/meter.h"
#include "engine/op.h"
#include "engine/procset.h"

#define ENGINE_IN_FLIGHT_MAX 1000000 /* ops of one rank */

struct autotune;
struct flight;

struct set_record { /* every live process set, also those this rank is not in */
    bool is_live;
    bool is_opened; /* by hvd_process_set_open(): removed when no rank holds it any longer */
    uint32_t incarnation;
    int32_t count;
    int32_t *ranks;
    int32_t holds;     /* how often ranks have opened and not closed it, equal on all ranks */
    int32_t own_holds; /* of those, this rank */
};

struct early { /* a message for a process set that is not open yet */
    struct early *next;
    int32_t peer;
    size_t bytes;
    uint8_t message[];
};

struct sign {         /* signs of life of a peer (hung.c) */
    int64_t heard_ns; /* last value of transport_ops.last_heard_ns */
    int64_t awake_ns; /* when that changed, by engine.awake_ns */
    bool is_told;     /* its silence was reported */
};

struct outbox { /* control messages that did not fit yet */
    uint8_t *bytes;
    size_t used, capacity, at;
};

struct traffic { /* control messages with a peer */
    uint64_t sent, sent_bytes, received, received_bytes;
};

enum engine_left { PEER_LEFT = 1, PEER_ANSWERED = 2 };

struct engine {
    const struct os *os;
    const struct config *config;
    const struct log *log;
    int32_t rank, size;
    struct engine_options options;
    struct backend *backend;
    int64_t now_ns;

    pthread_mutex_t submit_lock;
    struct op *queue_head, *queue_tail; /* submit lock */
    struct op *free_ops;                /* submit lock */
    struct ticket *free_tickets;        /* submit lock */
    struct ticket **tickets;            /* submit lock: slot = handle % ticket_capacity */
    size_t ticket_capacity, ticket_count;
    hvd_handle_t next_handle;
    void *chunks; /* of ops and tickets, to free them at the end */

    _Atomic int32_t queued;    /* in the queue, not drained */
    _Atomic int32_t in_flight; /* submitted and not complete */
    _Atomic int32_t waiters;   /* threads inside wait */

    struct procset
        *sets[HVD_PROCESS_SETS_MAX]; /* member sets; changed under token and submit lock */
    struct set_record records[HVD_PROCESS_SETS_MAX]; /* the same */
    struct procset *members[HVD_PROCESS_SETS_MAX];   /* the same sets without gaps */
    int32_t member_count;
    uint64_t completions; /* tickets completed: the driver wakes waiters when it increases */
    int32_t free_ids[HVD_PROCESS_SETS_MAX]; /* removed ids, first in first out */
    int32_t free_id_head, free_id_count, next_set_id;
    uint32_t next_incarnation;
    int32_t promised_sets; /* rank 0: told to all, and not open yet */

    struct ticket *done_head, *done_tail; /* completed, callbacks not called */
    struct outbox *outboxes;              /* by world rank */
    int32_t outbox_waiting;
    struct traffic *traffic; /* by world rank */
    struct direct direct;
    struct early *early;
    size_t early_bytes;

    struct deadlock_claim deadlock;
    char words[ENGINE_WORDS_MAX];    /* why this rank is about to end; "": it has not said */
    char farewell[ENGINE_WORDS_MAX]; /* the same of the rank that was the first to shut down */

    bool is_shutdown_asked, is_shutdown_told;
    struct sign *signs; /* by world rank */
    int64_t start_ns;   /* of the first turn; -1: none yet */
    int64_t looked_ns;  /* when hung.c last checked the peers; -1: never */
    int64_t awake_ns;   /* its clock: advances only while it checks regularly */
    uint8_t *has_left;  /* by world rank: 0, or it said goodbye or is down; enum engine_left */
    int32_t left_count;
    bool has_lost;           /* a peer went down without a goodbye */
    _Atomic bool is_stopped; /* shut down or broken: nothing can be submitted any more */
    hvd_status_t stop_status;
    char stop_text[HVD_ERROR_MAX];
    hvd_status_t cause; /* what broke the first set; HVD_OK: none is broken */
    char cause_text[HVD_ERROR_MAX];
    int32_t culprit; /* the world rank that caused the failure, or shut down; -1: this one */
    _Atomic bool is_cause_told; /* options.broke was called */

    struct tunables tunables; /* as configured: those of the first sets */
    uint64_t tune_asked;      /* rank 0: the last version assigned */
    int64_t next_tick_ns;
    struct timeline *timeline; /* NULL: none */
    struct meter meter;
    struct autotune *autotune; /* NULL: not tuning */
    struct clock clock;        /* against rank 0's, while it is on */
    struct flight *flight;
    hvd_stats_t stats;
};

/* All have agreed to shut down, as the rank `first` asked: sends the goodbye. */
void engine_leave(struct engine *engine, int32_t first);
/* Before the call that breaks a set: records the rank to blame. The first one is kept. */
void engine_blame(struct engine *engine, int32_t culprit);
/* Reads from a peer's message why it gives up; false: malformed. */
bool engine_take_cause(struct engine *engine, int32_t peer, struct reader *r,
                       hvd_status_t *ret_status, char ret_text[HVD_ERROR_MAX]);
void engine_tell_cause(struct engine *engine, const char *text); /* any thread */
/* This rank has no memory for `what`: stops with that cause, and notifies the peers. */
void engine_no_memory(struct engine *engine, const char *what);
const char *engine_peer_name(const struct engine *engine, int32_t world_rank, char *ret_text,
                             size_t bytes);
/* How long an op has waited, as sent in messages, and the inverse. */
uint32_t engine_waited_ms(const struct engine *engine, int64_t since_ns);
int64_t engine_since_ns(const struct engine *engine, uint32_t waited_ms);

#endif
