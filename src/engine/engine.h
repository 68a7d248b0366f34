/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - the engine: a state machine that agrees with the other ranks, batches, executes and
 * completes.
 *
 * It never reads a clock, sleeps, starts a thread or opens a socket by itself: it is driven by
 * submitted ops, by what its transports deliver inside engine_progress(), and by the time passed
 * in. Many engines can live in one process (the simulator runs a thousand).
 *
 * Threads: engine_submit(), engine_ticket_*() from any thread (submit lock). Everything else only
 * by the holder of the token, which the driver (src/api/driver.c) or the simulator hands around.
 * Start reading at engine_progress() in engine.c; one op's way is submit.c, negotiate.c,
 * coordinator.c, batch.c, execute.c, complete.c. */
#ifndef HVD_ENGINE_ENGINE_H
#define HVD_ENGINE_ENGINE_H

#include <pthread.h>

#include "base/config.h"
#include "engine/op.h"
#include "engine/procset.h"
#include "transport/transport.h"

struct flight;
struct timeline;

#define ENGINE_TRANSPORTS_MAX 4

struct engine_options {
    const struct os *os;
    const struct config *config;
    const struct log *log;
    int32_t rank, size;
    struct transport *const *routes; /* by world rank; NULL for oneself; kept */
    struct transport *transports[ENGINE_TRANSPORTS_MAX];
    int32_t transport_count;
    const int32_t *host;     /* host number of each world rank, by first rank; kept */
    struct backend *backend; /* kept */
    bool is_host_sight;      /* shm: ranks of one host see each other's arenas */
    /* Memory for results nobody gave: NULL = os->alloc. */
    void *(*result_alloc)(void *ctx, size_t bytes);
    void (*result_free)(void *ctx, void *ptr);
    void *result_ctx;
    const char *(*peer_name)(void *ctx, int32_t rank); /* "rank 1 on host b"; may be NULL */
    void *peer_ctx;
};

struct set_record { /* every live process set, also those this rank is not in */
    bool is_live;
    uint32_t incarnation;
    int32_t count;
    int32_t *ranks;
};

struct early { /* a message for a process set that is not open yet */
    struct early *next;
    int32_t peer;
    size_t bytes;
    uint8_t message[];
};

struct outbox { /* control messages that found no room yet */
    uint8_t *bytes;
    size_t used, capacity, at;
};

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
    void *chunks; /* of ops and tickets, for the end */

    _Atomic int32_t queued;    /* in the queue, not drained */
    _Atomic int32_t in_flight; /* submitted and not complete */
    _Atomic int32_t waiters;   /* threads inside wait */

    struct procset
        *sets[HVD_PROCESS_SETS_MAX]; /* member sets; changed under token and submit lock */
    struct set_record records[HVD_PROCESS_SETS_MAX]; /* the same */
    struct procset *members[HVD_PROCESS_SETS_MAX];   /* the same sets without gaps */
    int32_t member_count;
    uint64_t completions; /* tickets completed: the driver wakes waiters when it grows */
    int32_t free_ids[HVD_PROCESS_SETS_MAX]; /* removed ids, first in first out */
    int32_t free_id_head, free_id_count, next_set_id;
    uint32_t next_incarnation;

    struct ticket *done_head, *done_tail; /* completed, callbacks not called */
    struct outbox *outboxes;              /* by world rank */
    int32_t outbox_waiting;
    struct early *early;
    size_t early_bytes;

    bool is_shutdown_asked, is_shutdown_told;
    uint8_t *is_hung_told; /* by world rank: people know of its silence */
    uint8_t *has_left;     /* by world rank: it said goodbye, or is down */
    int32_t left_count;
    _Atomic bool is_stopped; /* shut down or broken: nothing can be submitted any more */
    hvd_status_t stop_status;
    char stop_text[HVD_ERROR_MAX];
    hvd_status_t cause; /* what broke the first set; HVD_OK: nothing did */
    char cause_text[HVD_ERROR_MAX];

    int64_t next_tick_ns;
    struct timeline *timeline; /* NULL: none */
    struct flight *flight;
    hvd_stats_t stats;
};

hvd_status_t engine_create(const struct engine_options *options, struct engine **ret,
                           struct error *error);
void engine_destroy(struct engine *engine);
struct transport_events engine_events(struct engine *engine); /* to hand to transports */
hvd_status_t engine_open_sets(struct engine *engine, const int32_t *const *sets,
                              const int32_t *sizes, int32_t count,
                              struct error *error); /* the global set and the static ones */

/* Any thread. All or nothing; `ret` gets the ticket, its handle is a number from 1 on. */
hvd_status_t engine_submit(struct engine *engine, const hvd_op_t *ops, size_t count,
                           struct ticket **ret, struct error *error);
/* Any thread: adding or removing a set, as an op of the global set. */
hvd_status_t engine_submit_set(struct engine *engine, const int32_t *ranks, int32_t count,
                               int32_t remove_id, struct ticket **ret, struct error *error);
struct ticket *engine_ticket(struct engine *engine,
                             hvd_handle_t handle); /* any thread; NULL: unknown */
void engine_ticket_seen(struct engine *engine,
                        struct ticket *ticket); /* any thread: names are free again */
void engine_ticket_release(struct engine *engine,
                           struct ticket *ticket); /* any thread; after completion */

/* Token. Does what can be done at `now_ns` without waiting; true if anything happened. */
bool engine_progress(struct engine *engine, int64_t now_ns);
/* Token. When engine_progress() must run again though nothing arrives; INT64_MAX: never. */
int64_t engine_deadline_ns(const struct engine *engine);
/* Token. Completed tickets with callbacks; the caller runs them without the token. */
struct ticket *engine_take_done(struct engine *engine);
void engine_shutdown_ask(struct engine *engine); /* token */
/* token: all have agreed to shut down, as this rank was the first to ask; says goodbye */
void engine_leave(struct engine *engine, int32_t first);
bool engine_is_over(const struct engine *engine); /* token: stopped, and nobody needs us any more */
/* Token: ends everything pending with this cause; tells the peers if is_told. */
void engine_stop(struct engine *engine, hvd_status_t status, const char *text, bool is_told);

/* ---- between the engine's files ---- */
void engine_early_replay(struct engine *engine); /* a set was opened */
void engine_send(struct engine *engine, int32_t world_rank, const void *bytes, size_t n);
const char *engine_peer_name(const struct engine *engine, int32_t world_rank, char *ret_text,
                             size_t bytes);

void queue_drain(struct engine *engine); /* submit.c */
void op_pool_free(struct engine *engine, struct op *op);
struct op *op_take(struct engine *engine);
struct ticket *ticket_take(struct engine *engine, int32_t count);
void ticket_pool_free(struct engine *engine, struct ticket *ticket);

void pool_destroy(struct engine *engine);
void submit_name_done(struct engine *engine, struct op *op);

/* negotiate.c */
void negotiate_op(struct procset *set, struct op *op); /* a new local op */
void negotiate_announce(struct procset *set, struct op *op);
void negotiate_flush(struct procset *set); /* send what was collected */
void negotiate_message(struct procset *set, int32_t from, const struct message_head *head,
                       struct reader *r, const void *bytes, size_t n);
void negotiate_ready(struct procset *set, struct entry *entry,
                     int64_t now_ns); /* one more child (or self) */
#define NEGOTIATE_HEAD 12u
/* Root: hands items to everyone. The first NEGOTIATE_HEAD bytes of `message` are free for the head.
 */
void negotiate_respond(struct procset *set, uint8_t *message, size_t n);
void negotiate_generation(
    struct procset *set); /* a new one begins: nothing announced before counts */
void negotiate_down(struct procset *set, enum message_type type, const void *body, size_t n);
void negotiate_up(struct procset *set, enum message_type type, const void *body, size_t n);
void negotiate_again(struct procset *set); /* announce all pending ops anew (generation changed) */
/* The set is dead; the other members are told the cause if is_told. */
void negotiate_set_broken(struct procset *set, hvd_status_t status, const char *text, bool is_told);

/* coordinator.c: the root's half */
hvd_status_t coordinator_create(struct procset *set, struct coordinator **ret);
void coordinator_destroy(struct coordinator *c);
void coordinator_request(struct procset *set, const struct request *request);
void coordinator_ready(struct procset *set, struct entry *entry);
void coordinator_flush(struct procset *set, bool is_forced);
void coordinator_tick(struct procset *set, int64_t now_ns);
int64_t coordinator_deadline_ns(const struct procset *set);
void coordinator_forget_all(struct procset *set); /* all entries go, by a reset */
void coordinator_generation(
    struct procset *set); /* a new one has begun: forget what was announced */
void coordinator_shutdown(struct procset *set, int32_t rank); /* global: who asked */
void coordinator_ran(struct procset *set,
                     const struct batch *batch); /* a batch was handed out: learn the step */

void hung_tick(struct engine *engine, int64_t now_ns); /* hung.c */

/* batch.c */
struct batch_item {
    struct entry *entry;
    bool is_taken;
};
/* Groups ready entries greedily, with look-ahead, into batches; calls `emit` for each. */
void batch_fuse(const struct procset *set, struct batch_item *items, int32_t count,
                void (*emit)(void *arg, const uint32_t *ids, int32_t count), void *arg);

/* plan.c */
void plan_prepare(
    struct procset *set); /* one was announced: nothing is negotiated until it begins */
void plan_begin(struct procset *set, const struct batch *batch); /* ids with 0 between batches */
void plan_destroy(struct procset *set);
bool plan_op(struct procset *set, struct op *op); /* true: the plan takes it */
bool plan_progress(struct procset *set);
void plan_message(struct procset *set, const struct message_head *head, struct reader *r);
bool plan_is_on(const struct procset *set);
bool plan_has_begun(const struct procset *set);
void plan_waiting(struct procset *set); /* somebody waits: is the plan going to deliver? */
void plan_break(struct procset *set);
int64_t plan_deadline_ns(const struct procset *set);
void plan_tick(struct procset *set, int64_t now_ns);

/* execute.c */
bool execute_progress(struct procset *set); /* runs the set's batches; true if anything happened */
hvd_status_t execute_begin(struct procset *set, const struct batch *batch);
hvd_status_t execute_step(struct procset *set,
                          bool *ret_moved); /* IN_PROGRESS, or the batch has ended */
void execute_cancel(struct procset *set);   /* its ops are pending again */

/* complete.c */
void complete_op(struct engine *engine, struct op *op, hvd_status_t status, const char *text);
void complete_pending(struct procset *set, hvd_status_t status, const char *text);
#define ENGINE_SHUTDOWN_TEXT                                                                       \
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an "       \
    "attempt to "                                                                                  \
    "allreduce, allgather or broadcast a tensor after one of the ranks finished execution. If "    \
    "the shutdown "                                                                                \
    "was caused by an exception, you should see the exception in the log before the first "        \
    "shutdown message."

#endif
