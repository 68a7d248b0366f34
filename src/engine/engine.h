/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - the engine: a state machine that agrees with the other ranks, batches, executes and
 * completes. Layers above and the simulator use only this header (and timeline.h).
 *
 * It never sleeps, starts a thread or opens a socket: it is driven by submitted ops, by the
 * messages that its transports deliver inside engine_progress(), and by the time, which is passed
 * in or read from struct os. Many engines can run in one process (the simulator runs a thousand).
 *
 * Threads: the caller of engine_progress() holds the token, which the driver (src/api/driver.c) or
 * the simulator passes around. Comments state which functions need it; the others are for any
 * thread. The first word of a function's name is its file. Start reading in README.md. */
#ifndef HVD_ENGINE_ENGINE_H
#define HVD_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/tunables.h"
#include "horovod/hvd.h"
#include "memory/memory.h"
#include "transport/transport.h"

struct backend;
struct config;
struct engine;
struct log;
struct os;
struct ticket; /* the object behind a handle: ops that complete together */
struct timeline;

#define ENGINE_TRANSPORTS_MAX 8
#define ENGINE_WORDS_MAX      320u

/* One item of a stall report, which consists of STALL_OP, STALL_WAITS, one STALL_MISSING for each
 * missing rank, STALL_AHEAD where there is one, and STALL_END. */
enum engine_stall_kind { STALL_OP, STALL_WAITS, STALL_MISSING, STALL_AHEAD, STALL_END };
struct engine_stall {
    enum engine_stall_kind kind;
    int32_t rank;      /* MISSING, AHEAD: the world rank */
    int64_t count;     /* OP: ops that wait; MISSING: ops that it has not submitted, -1: it sends
                          nothing at all; AHEAD: ops that only some ranks, with it, have submitted */
    int64_t waited_ms; /* OP */
    const char *text;  /* OP, MISSING, AHEAD: an op; WAITS: the ranks that have submitted it */
};

struct engine_options {
    const struct os *os;
    const struct config *config;
    const struct log *log;
    int32_t rank, size;
    struct transport *const *routes; /* by world rank; NULL for oneself; kept */
    struct transport *transports[ENGINE_TRANSPORTS_MAX];
    int32_t transport_count;
    const int32_t *host;     /* machine number of each world rank, by first rank; kept */
    struct backend *backend; /* kept */
    bool is_host_sight;      /* shm: ranks on one machine map each other's arenas */
    struct memory_kind *memories[MEMORY_KINDS_MAX]; /* kinds of memory besides the host's */
    int32_t memory_count;
    /* Memory for results without a caller's buffer: NULL = os->alloc. */
    void *(*result_alloc)(void *ctx, size_t bytes);
    void (*result_free)(void *ctx, void *ptr);
    void *result_ctx;
    const char *(*peer_name)(void *ctx, int32_t rank); /* "rank 1 on host b"; may be NULL */
    void *peer_ctx;
    /* Called once, from any thread, before an op fails because the job broke or was shut down by
     * another rank. `culprit`: the world rank that caused it; -1: this rank. May be NULL. */
    void (*broke)(void *ctx, int32_t culprit, const char *text);
    void *broke_ctx;
    /* Called once, with the token, when something broke and nothing pending has failed yet. May be
     * NULL. */
    void (*breaking)(void *ctx);
    void *breaking_ctx;
    /* Called with the token when an op has waited too long for some ranks. May be NULL. */
    void (*stalled)(void *ctx, const struct engine_stall *stall);
    void *stalled_ctx;
    /* Called with the token when a set has changed its tunables, after `position` of its batches.
     * May be NULL. */
    void (*tuned)(void *ctx, int32_t set, const struct tunables *tunables, uint64_t position);
    void *tuned_ctx;
    /* Rank 0 with HOROVOD_AUTOTUNE; token; each may be NULL. A row for the log; what was found by
     * an earlier job with this key (false: nothing); what this one has found. */
    void (*tuner_row)(void *ctx, const char *row);
    bool (*tuner_known)(void *ctx, uint64_t key, struct tunables *ret);
    void (*tuner_found)(void *ctx, uint64_t key, const struct tunables *tunables);
    void *tuner_ctx;
};

/* ---- create and destroy: before the first turn or after the last ---- */

hvd_status_t engine_create(const struct engine_options *options, struct engine **ret,
                           struct error *error);
void engine_destroy(struct engine *engine);
struct transport_events control_events(struct engine *engine); /* to pass to transports */
void engine_transport_add(struct engine *engine, struct transport *transport);
void engine_timeline_set(struct engine *engine, struct timeline *timeline); /* NULL: none */
/* The global set and the static ones. */
hvd_status_t sets_open(struct engine *engine, const int32_t *const *sets, const int32_t *sizes,
                       int32_t count, struct error *error);

/* ---- submitting: any thread ---- */

/* All or nothing; `ret` gets the ticket, its handle is a number from 1 on. */
hvd_status_t submit_ops(struct engine *engine, const hvd_op_t *ops, size_t count,
                        struct ticket **ret, struct error *error);
/* Adding a set (`ranks`) or removing one, as an op of the global set. */
hvd_status_t submit_set_change(struct engine *engine, const int32_t *ranks, int32_t count,
                               int32_t remove_id, struct ticket **ret, struct error *error);
/* A set that the other ranks need not ask for, and that may exist already. */
hvd_status_t submit_set_open(struct engine *engine, const int32_t *ranks, int32_t count,
                             struct ticket **ret, struct error *error);
/* One member no longer needs a set that it has opened. */
hvd_status_t submit_set_close(struct engine *engine, int32_t id, struct ticket **ret,
                              struct error *error);
/* A message to or from one rank. */
hvd_status_t submit_message(struct engine *engine, const hvd_message_t *message, bool is_send,
                            struct ticket **ret, struct error *error);

/* ---- tickets: any thread ---- */

struct ticket_result { /* of one op */
    int32_t ndim;
    int64_t shape[HVD_DIMS_MAX];
    const void *out; /* where the result is */
    void *made;      /* the same if the engine allocated it, else NULL; owned by the ticket */
    const int32_t *recv_splits; /* alltoall, by rank of its set; else NULL */
    int32_t recv_count;
};

struct ticket *ticket_find(struct engine *engine, hvd_handle_t handle); /* NULL: unknown */
hvd_handle_t ticket_handle(const struct ticket *ticket);
/* HVD_IN_PROGRESS until all ops have completed; call the functions below only after that. */
hvd_status_t ticket_status(const struct ticket *ticket);
const char *ticket_error(const struct ticket *ticket); /* why it failed; "": it succeeded */
void ticket_error_add(struct ticket *ticket, const char *text); /* once; to that text */
int32_t ticket_op_count(const struct ticket *ticket);
int32_t ticket_answer(const struct ticket *ticket); /* join: last rank; change of sets: the id */
void ticket_result(const struct ticket *ticket, int32_t index, struct ticket_result *ret);
void ticket_result_taken(struct ticket *ticket, int32_t index); /* the caller now owns `made` */
void ticket_seen(struct engine *engine, struct ticket *ticket); /* its names are free again */
void ticket_release(struct engine *engine, struct ticket *ticket);

/* ---- driving: token ---- */

/* One turn: does what can be done at `now_ns` without waiting; true if anything happened. */
bool engine_progress(struct engine *engine, int64_t now_ns);
/* When engine_progress() must run again even if nothing arrives; INT64_MAX: never. */
int64_t engine_deadline_ns(const struct engine *engine);
int64_t engine_now_ns(const struct engine *engine);       /* of the last turn */
bool engine_is_running(const struct engine *engine);      /* a batch is in progress */
bool engine_has_unsent(const struct engine *engine);      /* control messages that did not fit */
uint64_t engine_completions(const struct engine *engine); /* of tickets: increases */
/* Completed tickets with callbacks, NULL: none. complete_callbacks() runs them without the token.
 */
struct ticket *complete_take(struct engine *engine);
void complete_callbacks(struct engine *engine, struct ticket *done);

/* Rank 0 only: all ranks change their tunables, each set at one point in its order. The version is
 * assigned here; the caller drives the engine afterwards. HVD_ERR_INVALID: out of range. */
hvd_status_t engine_tune(struct engine *engine, const struct tunables *tunables,
                         struct error *error);
const struct tunables *
engine_tunables(const struct engine *engine); /* in force, of the global set */

/* ---- hints for the driving thread: any thread ---- */

bool engine_has_queued(const struct engine *engine);    /* submitted, not yet seen by a turn */
bool engine_has_in_flight(const struct engine *engine); /* submitted and not complete */
/* Called by a thread that waits: ready ops are then not held back for a larger batch. */
void engine_wait_begin(struct engine *engine);
bool engine_wait_end(struct engine *engine); /* true: it was the last one */
bool engine_has_waiters(const struct engine *engine);

/* Token. The caller submits nothing before one of these tickets is complete: see deadlock.h.
 * `where`: where in the program it waits; "": not known. */
void deadlock_claim(struct engine *engine, const struct ticket *const *tickets, int32_t count,
                    const char *where);

/* ---- the end: token ---- */

#define ENGINE_SHUTDOWN_TEXT                                                                       \
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an "       \
    "attempt to "                                                                                  \
    "allreduce, allgather or broadcast a tensor after one of the ranks finished execution. If "    \
    "the shutdown "                                                                                \
    "was caused by an exception, you should see the exception in the log before the first "        \
    "shutdown message."

void engine_words_set(struct engine *engine, const char *text); /* before engine_shutdown_ask() */
void engine_shutdown_ask(struct engine *engine);
bool engine_is_over(const struct engine *engine); /* stopped, and no peer needs this rank */
/* Fails everything pending with this cause; notifies the peers if is_told. */
void engine_stop(struct engine *engine, hvd_status_t status, const char *text, bool is_told);
/* HVD_OK, or the error that broke the global set, and with it the job. */
hvd_status_t engine_broken(const struct engine *engine);
int32_t engine_culprit(const struct engine *engine); /* after that: the rank; -1: this one */
bool engine_is_clean(const struct engine *engine);   /* all ranks have agreed to shut down */
bool engine_has_lost(const struct engine *engine);   /* a peer went down without a goodbye */

/* ---- process sets: any thread ---- */

/* Sorted, no duplicate, all within the world? The error names the wrong rank in the contract's
 * words. */
hvd_status_t sets_check(const struct engine *engine, const int32_t *ranks, int32_t count,
                        struct error *error);
int32_t sets_find(struct engine *engine, const int32_t *ranks, int32_t count); /* id or -1 */
/* A live set: this rank's index in it (-1: not a member), its size, its members. Each may be NULL.
 * false: there is no set with this id. */
bool sets_get(struct engine *engine, int32_t id, int32_t *ret_rank, int32_t *ret_size,
              int32_t *ret_ranks);
int32_t sets_list(struct engine *engine, int32_t *ret_ids); /* how many; ret_ids may be NULL */

/* ---- diagnostics ---- */

struct json;
/* Writes what the engine is doing into an open JSON object: docs/snapshot.md has the schema. No
 * side effects. Any thread; without the token it writes only what can be read concurrently. */
void snapshot_write(struct engine *engine, int64_t now_ns, bool has_token, struct json *json);
/* The ranks that have not submitted the op a ticket waits for, as text: "grad.a has waited 5.0 s
 * for rank 3 on host b". "": this rank does not know. Token. */
void snapshot_missing(const struct engine *engine, const struct ticket *ticket, int64_t now_ns,
                      char *ret, size_t bytes);

/* The same in one record, without the epoch. Without the token little of it is known. */
struct ask_status;
void doing_read(struct engine *engine, int64_t now_ns, bool has_token, struct ask_status *ret);

/* Writes what the engine has measured into an open JSON object: docs/metrics.md has the schema.
 * Token.
 */
void metrics_write(const struct engine *engine, struct json *json);

/* ---- options and counters ---- */

const struct os *engine_os(const struct engine *engine);
const struct log *engine_log(const struct engine *engine);
struct transport *const *engine_transports(const struct engine *engine, int32_t *ret_count);
struct timeline *engine_timeline(const struct engine *engine); /* NULL: none */
const hvd_stats_t *engine_stats(const struct engine *engine);  /* token */

#endif
