/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - the life cycle of the engine: creating it, its turn (engine_progress), and how it
 * stops, by agreement or because something broke. See engine.h.  Start reading at
 * engine_progress(). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/autotune.h"
#include "engine/control.h"
#include "engine/coordinator.h"
#include "engine/deadlock.h"
#include "engine/engine_private.h"
#include "engine/execute.h"
#include "engine/flight.h"
#include "engine/hung.h"
#include "engine/negotiate.h"
#include "engine/plan.h"
#include "engine/pool.h"
#include "engine/sets.h"
#include "engine/stall.h"
#include "engine/submit.h"
#include "engine/timeline.h"
#include "engine/tune.h"

#define MS_NS        1000000LL
#define COPY_POLL_NS 20000 /* how soon to check whether a copy has finished */

/* ---- create and destroy ---- */

static void *default_alloc(void *ctx, size_t bytes)
{
    return os_alloc(ctx, bytes);
}

static void default_free(void *ctx, void *ptr)
{
    os_free(ctx, ptr);
}

hvd_status_t engine_create(const struct engine_options *options, struct engine **ret,
                           struct error *error)
{
    const struct os *os = options->os;
    struct engine *engine = os_alloc(os, sizeof *engine);
    if (engine == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    engine->os = os;
    engine->config = options->config;
    engine->log = options->log;
    engine->rank = options->rank;
    engine->culprit = -1;
    engine->size = options->size;
    engine->options = *options;
    engine->backend = options->backend;
    if (engine->options.result_alloc == NULL) {
        engine->options.result_alloc = default_alloc;
        engine->options.result_free = default_free;
        engine->options.result_ctx = (void *)(uintptr_t)os;
    }
    engine->tunables = tune_configured(options->config);
    engine->stop_status = HVD_OK;
    engine->start_ns = engine->looked_ns = -1;
    pthread_mutex_init(&engine->submit_lock, NULL);
    engine->flight = os_alloc(os, sizeof *engine->flight);
    engine->outboxes = os_alloc(os, (size_t)engine->size * sizeof *engine->outboxes);
    engine->traffic = os_alloc(os, (size_t)engine->size * sizeof *engine->traffic);
    engine->has_left = os_alloc(os, (size_t)engine->size);
    engine->signs = os_alloc(os, (size_t)engine->size * sizeof *engine->signs);
    if (engine->flight == NULL || engine->outboxes == NULL || engine->traffic == NULL ||
        engine->has_left == NULL || engine->signs == NULL || !meter_init(engine) ||
        !autotune_init(engine)) {
        engine_destroy(engine);
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    }
    *ret = engine;
    return HVD_OK;
}

void engine_destroy(struct engine *engine)
{
    if (engine == NULL)
        return;
    sets_destroy(engine);
    pool_destroy(engine);
    control_destroy(engine);
    direct_destroy(engine);
    meter_destroy(engine);
    autotune_destroy(engine);
    os_free(engine->os, engine->traffic);
    os_free(engine->os, engine->has_left);
    os_free(engine->os, engine->signs);
    os_free(engine->os, engine->flight);
    pthread_mutex_destroy(&engine->submit_lock);
    os_free(engine->os, engine);
}

const char *engine_peer_name(const struct engine *engine, int32_t world_rank, char *ret_text,
                             size_t bytes)
{
    const char *name = NULL;
    if (engine->options.peer_name != NULL)
        name = engine->options.peer_name(engine->options.peer_ctx, world_rank);
    if (name != NULL)
        snprintf(ret_text, bytes, "%s", name);
    else
        snprintf(ret_text, bytes, "rank %d", world_rank);
    return ret_text;
}

/* ---- waiting times ---- */

uint32_t engine_waited_ms(const struct engine *engine, int64_t since_ns)
{
    int64_t ms = (engine->now_ns - since_ns) / MS_NS;
    return ms <= 0 ? 0 : ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* A peer may send any value: nothing can have waited longer than this engine has existed. */
int64_t engine_since_ns(const struct engine *engine, uint32_t waited_ms)
{
    int64_t since_ns = engine->now_ns - (int64_t)waited_ms * MS_NS;
    return since_ns > engine->start_ns ? since_ns : engine->start_ns;
}

/* ---- why it broke ---- */

void engine_blame(struct engine *engine, int32_t culprit)
{
    bool is_peer = culprit >= 0 && culprit < engine->size && culprit != engine->rank;
    if (engine->cause == HVD_OK && engine->culprit < 0 && is_peer)
        engine->culprit = culprit;
}

int32_t engine_culprit(const struct engine *engine)
{
    return engine->culprit;
}

void engine_tell_cause(struct engine *engine, const char *text)
{
    if (engine->options.broke != NULL && !atomic_exchange(&engine->is_cause_told, true))
        engine->options.broke(engine->options.broke_ctx, engine->culprit, text);
}

bool engine_take_cause(struct engine *engine, int32_t peer, struct reader *r,
                       hvd_status_t *ret_status, char ret_text[HVD_ERROR_MAX])
{
    char text[HVD_ERROR_MAX];
    int32_t status = (int32_t)get_u32(r);
    get_text(r, text, sizeof text);
    int32_t culprit = (int32_t)get_u32(r);
    if (!reader_done(r) || status >= 0 || status < HVD_ERR_INTERNAL)
        return false;
    /* If two ranks don't understand each other, either may be wrong: name both. */
    if (status == HVD_ERR_CORRUPT)
        snprintf(ret_text, HVD_ERROR_MAX, "%.900s (reported by rank %d)", text, peer);
    else
        snprintf(ret_text, HVD_ERROR_MAX, "%s", text);
    *ret_status = (hvd_status_t)status;
    engine_blame(engine, culprit);
    return true;
}

/* ---- stopping ---- */

/* A rank that shuts down because something else broke is not the culprit: the others learn its
 * cause before they see its links close. They may already know it from the rank that saw it first,
 * but that message may be slower than ours. */
static void leave_with_cause(struct engine *engine)
{
    char name[160], text[HVD_ERROR_MAX];
    uint8_t bytes[MESSAGE_HEAD_BYTES + HVD_ERROR_MAX + 16];
    struct writer w;
    struct message_head head = {.type = MESSAGE_LEAVE};
    engine_peer_name(engine, engine->rank, name, sizeof name);
    snprintf(text, sizeof text, "%.800s (so %s has left)", engine->cause_text, name);
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    put_u32(&w, (uint32_t)engine->cause);
    put_text(&w, text);
    put_u32(&w, (uint32_t)(engine->culprit >= 0 ? engine->culprit : engine->rank));
    for (int32_t i = 0; i < engine->size && !w.bad; i++)
        if (i != engine->rank)
            control_send(engine, i, bytes, w.used);
    for (int32_t i = 0; i < engine->member_count; i++)
        negotiate_set_broken(engine->members[i], engine->cause, text, false);
}

void engine_stop(struct engine *engine, hvd_status_t status, const char *text, bool is_told)
{
    if (atomic_load(&engine->is_stopped))
        return;
    pthread_mutex_lock(&engine->submit_lock);
    engine->stop_status = status;
    snprintf(engine->stop_text, sizeof engine->stop_text, "%s", text);
    pthread_mutex_unlock(&engine->submit_lock);
    atomic_store(&engine->is_stopped, true);
    flight_note_text(engine->flight, engine->now_ns, FLIGHT_SHUTDOWN, 0, (int32_t)status, text);
    submit_drain(engine);
    if (status == HVD_ERR_SHUTDOWN && engine->cause != HVD_OK)
        leave_with_cause(engine);
    for (int32_t i = 0; i < engine->member_count; i++)
        negotiate_set_broken(engine->members[i], status, text, is_told);
}

void engine_no_memory(struct engine *engine, const char *what)
{
    char name[160], text[HVD_ERROR_MAX];
    engine_peer_name(engine, engine->rank, name, sizeof name);
    snprintf(text, sizeof text, "%s has no memory for %s.", name, what);
    engine_stop(engine, HVD_ERR_NO_MEMORY, text, true);
}

static void shutdown_ask_up(struct procset *global)
{
    uint8_t bytes[4 + 4 + ENGINE_WORDS_MAX];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_u32(&w, (uint32_t)global->engine->rank);
    put_text(&w, global->engine->words);
    negotiate_up(global, MESSAGE_SHUTDOWN, bytes, w.used);
}

void engine_words_set(struct engine *engine, const char *text)
{
    snprintf(engine->words, sizeof engine->words, "%s", text);
}

void engine_shutdown_ask(struct engine *engine)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (engine->is_shutdown_asked)
        return;
    engine->is_shutdown_asked = true;
    bool is_stopped = atomic_load(&engine->is_stopped);
    if (is_stopped && engine->cause != HVD_OK && !engine->is_shutdown_told)
        leave_with_cause(engine);
    if (is_stopped)
        return;
    if (global == NULL || global->broken != HVD_OK)
        engine_stop(engine, HVD_ERR_SHUTDOWN, ENGINE_SHUTDOWN_TEXT, false);
    else if (global->parent < 0)
        coordinator_shutdown(global, engine->rank, engine->words);
    else
        shutdown_ask_up(global);
}

/* A rank may only close its links when no peer still uses its data: every rank sends a goodbye
 * after its last batch, and waits for the others' goodbyes. */
void engine_leave(struct engine *engine, int32_t first)
{
    uint8_t bytes[MESSAGE_HEAD_BYTES];
    char name[160], text[HVD_ERROR_MAX];
    struct writer w;
    struct message_head head = {.type = MESSAGE_LEAVE};
    engine->is_shutdown_told = true;
    snprintf(text, sizeof text, "%s", ENGINE_SHUTDOWN_TEXT);
    if (first >= 0 && first < engine->size && first != engine->rank) {
        engine_peer_name(engine, first, name, sizeof name);
        if (engine->farewell[0] != '\0')
            snprintf(text, sizeof text, "Horovod has been shut down: %s failed with %s.", name,
                     engine->farewell);
        else
            snprintf(text, sizeof text, "%s The first to shut down was %s.", ENGINE_SHUTDOWN_TEXT,
                     name);
        engine_blame(engine, first);
    }
    engine_stop(engine, HVD_ERR_SHUTDOWN, text, false);
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    for (int32_t i = 0; i < engine->size; i++)
        if (i != engine->rank)
            control_send(engine, i, bytes, w.used);
}

bool engine_is_over(const struct engine *engine)
{
    if (!atomic_load(&engine->is_stopped) || engine->outbox_waiting > 0 ||
        engine_is_running(engine))
        return false;
    return !engine->is_shutdown_told || engine->left_count >= engine->size - 1;
}

/* ---- the turn ---- */

static void tick(struct engine *engine)
{
    if (engine->now_ns < engine->next_tick_ns)
        return;
    engine->next_tick_ns = engine->now_ns + config_beat_ns(engine->config) / 2;
    hung_tick(engine, engine->now_ns);
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        if (set->broken == HVD_OK)
            plan_stall_check(set, engine->now_ns);
        if (set->broken == HVD_OK && set->coordinator != NULL)
            stall_tick(set, engine->now_ns);
    }
    deadlock_tick(engine, engine->now_ns);
}

/* A rank that has requested shutdown waits for the agreement of all; without the global set there
 * is none. */
static void shutdown_check(struct engine *engine)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (engine->is_shutdown_asked && global != NULL && global->broken != HVD_OK)
        engine_stop(engine, HVD_ERR_SHUTDOWN, ENGINE_SHUTDOWN_TEXT, false);
}

/* A peer that left in an orderly manner waits for our goodbye. The shutdown that it has agreed to
 * no longer reaches us, so reply now. */
static void leavers_answer(struct engine *engine)
{
    uint8_t bytes[MESSAGE_HEAD_BYTES];
    struct writer w;
    struct message_head head = {.type = MESSAGE_LEAVE};
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    for (int32_t i = 0; i < engine->size && !engine->is_shutdown_told; i++) {
        if (engine->has_left[i] != PEER_LEFT)
            continue;
        engine->has_left[i] = PEER_ANSWERED;
        control_send(engine, i, bytes, w.used);
    }
}

/* A rank that left in an orderly manner no longer takes part in anything. Usually this rank also
 * receives the shutdown that the peer received; not if the global set has broken here first. */
static void left_check(struct engine *engine)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (engine->left_count == 0 || global == NULL || global->broken == HVD_OK)
        return;
    leavers_answer(engine);
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        for (int32_t k = 0; k < set->size && set->broken == HVD_OK; k++) {
            char name[160], text[HVD_ERROR_MAX];
            if (engine->has_left[set->ranks[k]] == 0)
                continue;
            engine_peer_name(engine, set->ranks[k], name, sizeof name);
            snprintf(text, sizeof text, "%.800s (so %s has left)", global->broken_text, name);
            negotiate_set_broken(set, global->broken, text, true);
        }
    }
}

bool engine_progress(struct engine *engine, int64_t now_ns)
{
    assert(now_ns >= engine->now_ns); /* the clock never goes backwards */
    engine->now_ns = now_ns;
    if (engine->start_ns < 0)
        engine->start_ns = now_ns;
    bool has_moved = control_listen(engine);
    control_drain(engine);
    /* Read before the queue is drained, so that ops that a waiter submitted before it waited are
     * seen. */
    bool is_waited = atomic_load_explicit(&engine->waiters, memory_order_acquire) > 0;
    has_moved |= atomic_load_explicit(&engine->queued, memory_order_acquire) > 0;
    submit_drain(engine);
    shutdown_check(engine);
    left_check(engine);
    tick(engine);
    if (timeline_is_on(engine->timeline))
        clock_tick(engine);
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        if (set->broken != HVD_OK)
            continue;
        if (is_waited)
            plan_waiting(set);
        else if (set->plan != NULL)
            plan_tick(set, now_ns);
        if (set->must_announce && !plan_is_on(set))
            negotiate_again(set);
        negotiate_flush(set);
    }
    for (int32_t i = 0; i < engine->member_count; i++)
        has_moved |= execute_progress(engine->members[i]);
    has_moved |= direct_progress(engine);
    sets_sweep(engine);
    return has_moved;
}

int64_t engine_deadline_ns(const struct engine *engine)
{
    int64_t deadline = INT64_MAX;
    for (int32_t i = 0; i < engine->member_count; i++) {
        const struct procset *set = engine->members[i];
        int64_t at = set->coordinator != NULL ? coordinator_deadline_ns(set) : INT64_MAX;
        int64_t plan_at = plan_deadline_ns(set);
        deadline = at < deadline ? at : deadline;
        deadline = plan_at < deadline ? plan_at : deadline;
        if (execute_is_copying(set) && engine->now_ns + COPY_POLL_NS < deadline)
            deadline = engine->now_ns + COPY_POLL_NS; /* nothing rings when a copy has ended */
        /* Something waits for others: the clock of the stall check must advance. */
        if (set->coordinator != NULL && set->id_count + (uint32_t)set->pending_count > 0 &&
            engine->next_tick_ns < deadline)
            deadline = engine->next_tick_ns;
    }
    return deadline;
}

/* ---- tuning ---- */

hvd_status_t engine_tune(struct engine *engine, const struct tunables *tunables,
                         struct error *error)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    struct tunables next = *tunables;
    hvd_status_t status = tune_check(&next, error);
    if (status != HVD_OK)
        return status;
    if (global == NULL || global->broken != HVD_OK || atomic_load(&engine->is_stopped))
        return error_set(error, HVD_ERR_SHUTDOWN, "The job is over: nothing can be tuned.");
    if (global->coordinator == NULL)
        return error_set(error, HVD_ERR_INVALID, "Only rank %d can tune, not rank %d.",
                         global->ranks[0], engine->rank);
    next.version = ++engine->tune_asked;
    tune_ask(global, &next);
    return HVD_OK;
}

const struct tunables *engine_tunables(const struct engine *engine)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    return global != NULL ? &global->tunables : &engine->tunables;
}

/* ---- queries ---- */

void engine_transport_add(struct engine *engine, struct transport *transport)
{
    assert(engine->start_ns < 0 && engine->options.transport_count < ENGINE_TRANSPORTS_MAX);
    engine->options.transports[engine->options.transport_count++] = transport;
}

struct transport *const *engine_transports(const struct engine *engine, int32_t *ret_count)
{
    *ret_count = engine->options.transport_count;
    return engine->options.transports;
}

void engine_timeline_set(struct engine *engine, struct timeline *timeline)
{
    engine->timeline = timeline;
}

struct timeline *engine_timeline(const struct engine *engine)
{
    return engine->timeline;
}

const struct os *engine_os(const struct engine *engine)
{
    return engine->os;
}

const struct log *engine_log(const struct engine *engine)
{
    return engine->log;
}

const hvd_stats_t *engine_stats(const struct engine *engine)
{
    return &engine->stats;
}

int64_t engine_now_ns(const struct engine *engine)
{
    return engine->now_ns;
}

bool engine_is_running(const struct engine *engine)
{
    for (int32_t i = 0; i < engine->member_count; i++)
        if (execute_is_active(engine->members[i]))
            return true;
    return false;
}

bool engine_has_unsent(const struct engine *engine)
{
    return engine->outbox_waiting > 0;
}

uint64_t engine_completions(const struct engine *engine)
{
    return engine->completions;
}

bool engine_has_queued(const struct engine *engine)
{
    return atomic_load(&engine->queued) > 0;
}

bool engine_has_in_flight(const struct engine *engine)
{
    return atomic_load(&engine->in_flight) > 0;
}

void engine_wait_begin(struct engine *engine)
{
    atomic_fetch_add(&engine->waiters, 1);
}

bool engine_wait_end(struct engine *engine)
{
    int32_t waiters = atomic_fetch_sub(&engine->waiters, 1);
    assert(waiters > 0);
    return waiters == 1;
}

bool engine_has_waiters(const struct engine *engine)
{
    return atomic_load(&engine->waiters) > 0;
}

hvd_status_t engine_broken(const struct engine *engine)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    return global != NULL ? global->broken : HVD_ERR_NOT_INITIALIZED;
}

bool engine_is_clean(const struct engine *engine)
{
    return engine->is_shutdown_told;
}

bool engine_has_lost(const struct engine *engine)
{
    return engine->has_lost;
}
