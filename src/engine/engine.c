/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - the engine's life, its turn (engine_progress), and its way to and from the transports.
 * See engine.h.  Start reading at engine_progress(). */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "engine/flight.h"
#include "engine/sets.h"
#include "engine/timeline.h"

#define TICK_NS         1000000000LL
#define EARLY_BYTES_MAX (16u << 20)

/* ---- life ---- */

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
    engine->size = options->size;
    engine->options = *options;
    engine->backend = options->backend;
    if (engine->options.result_alloc == NULL) {
        engine->options.result_alloc = default_alloc;
        engine->options.result_free = default_free;
        engine->options.result_ctx = (void *)(uintptr_t)os;
    }
    engine->stop_status = HVD_OK;
    pthread_mutex_init(&engine->submit_lock, NULL);
    engine->flight = os_alloc(os, sizeof *engine->flight);
    engine->outboxes = os_alloc(os, (size_t)engine->size * sizeof *engine->outboxes);
    engine->has_left = os_alloc(os, (size_t)engine->size);
    engine->is_hung_told = os_alloc(os, (size_t)engine->size);
    if (engine->flight == NULL || engine->outboxes == NULL || engine->has_left == NULL ||
        engine->is_hung_told == NULL) {
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
    for (int32_t i = 0; engine->outboxes != NULL && i < engine->size; i++)
        os_free(engine->os, engine->outboxes[i].bytes);
    os_free(engine->os, engine->outboxes);
    while (engine->early != NULL) {
        struct early *next = engine->early->next;
        os_free(engine->os, engine->early);
        engine->early = next;
    }
    os_free(engine->os, engine->has_left);
    os_free(engine->os, engine->is_hung_told);
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

/* ---- messages out ---- */

static void outbox_put(struct engine *engine, int32_t world_rank, const void *bytes, size_t n)
{
    struct outbox *box = &engine->outboxes[world_rank];
    size_t need = box->used + n + 4;
    if (need > box->capacity) {
        size_t capacity = need * 2;
        uint8_t *grown = engine->os->resize(engine->os->ctx, box->bytes, capacity);
        if (grown == NULL) {
            engine_stop(engine, HVD_ERR_NO_MEMORY, "Out of memory for control messages.", false);
            return;
        }
        box->bytes = grown;
        box->capacity = capacity;
    }
    if (box->used == 0)
        engine->outbox_waiting++;
    uint32_t length = (uint32_t)n;
    memcpy(box->bytes + box->used, &length, 4);
    memcpy(box->bytes + box->used + 4, bytes, n);
    box->used += n + 4;
}

static void outbox_drain(struct engine *engine, int32_t world_rank)
{
    struct outbox *box = &engine->outboxes[world_rank];
    struct transport *t = engine->options.routes[world_rank];
    while (box->at < box->used) {
        uint32_t n;
        memcpy(&n, box->bytes + box->at, 4);
        if (t->ops->message_send(t, world_rank, box->bytes + box->at + 4, n) == HVD_AGAIN)
            return;
        box->at += n + 4u;
    }
    box->at = box->used = 0;
    engine->outbox_waiting--;
}

void engine_send(struct engine *engine, int32_t world_rank, const void *bytes, size_t n)
{
    struct transport *t = engine->options.routes[world_rank];
    engine->stats.messages_sent++;
    if (t == NULL)
        return;
    if (engine->outboxes[world_rank].used > 0 ||
        t->ops->message_send(t, world_rank, bytes, n) == HVD_AGAIN)
        outbox_put(engine, world_rank, bytes, n);
}

/* ---- events in ---- */

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n);

static void peer_left(struct engine *engine, int32_t peer)
{
    engine->left_count += engine->has_left[peer] == 0;
    engine->has_left[peer] = 1;
}

/* A member may hear of a new process set from another one before it has opened it itself: such
 * messages wait for their set. */
static void early_keep(struct engine *engine, int32_t peer, const void *bytes, size_t n)
{
    struct early *early =
        engine->early_bytes + n <= EARLY_BYTES_MAX ? os_alloc(engine->os, sizeof *early + n) : NULL;
    if (early == NULL) {
        engine_stop(engine, HVD_ERR_LIMIT,
                    "Too many messages for a process set that is not open yet.", true);
        return;
    }
    early->peer = peer;
    early->bytes = n;
    memcpy(early->message, bytes, n);
    engine->early_bytes += n;
    struct early **end = &engine->early;
    while (*end != NULL)
        end = &(*end)->next;
    *end = early;
}

void engine_early_replay(struct engine *engine)
{
    struct early *early = engine->early;
    engine->early = NULL;
    engine->early_bytes = 0;
    while (early != NULL) {
        struct early *next = early->next;
        on_message(engine, early->peer, early->message,
                   early->bytes); /* keeps it again if still too early */
        os_free(engine->os, early);
        early = next;
    }
}

/* Goodbye; with a cause if the peer goes because something broke for it. */
static void on_leave(struct engine *engine, int32_t peer, struct reader *r)
{
    char text[HVD_ERROR_MAX];
    peer_left(engine, peer);
    if (r->at == r->size)
        return;
    int32_t status = (int32_t)get_u32(r);
    get_text(r, text, sizeof text);
    if (r->bad || status >= 0)
        return;
    for (int32_t i = 0; i < engine->member_count; i++)
        if (procset_index(engine->members[i], peer) >= 0)
            negotiate_set_broken(engine->members[i], (hvd_status_t)status, text, true);
}

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct engine *engine = ctx;
    struct reader r;
    struct message_head head;
    reader_init(&r, bytes, n);
    if (!head_get(&r, &head)) {
        LOG_AT(engine->log, LOG_WARNING, "Dropped a malformed message from rank %d.", peer);
        return;
    }
    if (head.type == MESSAGE_LEAVE) {
        on_leave(engine, peer, &r);
        return;
    }
    struct procset *set = engine->sets[head.set];
    if ((set == NULL || set->incarnation < head.incarnation) &&
        head.incarnation >= engine->next_incarnation)
        early_keep(engine, peer, bytes, n);
    if (set == NULL || set->incarnation != head.incarnation || set->broken != HVD_OK)
        return;
    int32_t index = procset_index(set, peer);
    if (index >= 0)
        negotiate_message(set, index, &head, &r, bytes, n);
}

static void on_peer_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct engine *engine = ctx;
    char name[160], text[HVD_ERROR_MAX], op_text[320];
    bool is_expected = engine->has_left[peer] != 0;
    peer_left(engine, peer);
    if (is_expected || engine->is_shutdown_told || atomic_load(&engine->is_stopped))
        return;
    flight_note(engine->flight, engine->now_ns, FLIGHT_PEER_DOWN, 0, peer, why);
    engine_peer_name(engine, peer, name, sizeof name);
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        if (set->broken != HVD_OK || procset_index(set, peer) < 0)
            continue;
        op_text[0] = '\0';
        if (set->pending_head != NULL)
            snprintf(op_text, sizeof op_text, " %.200s was waiting for %.1f s.",
                     set->pending_head->tensor->name,
                     (double)(engine->now_ns - set->pending_head->submit_ns) / 1e9);
        if (strncmp(why, "rank ", 5) == 0) /* names it already */
            snprintf(text, sizeof text, "%s.%s", why, op_text);
        else
            snprintf(text, sizeof text, "%s is gone: %s.%s", name, why, op_text);
        LOG_AT(engine->log, LOG_DEBUG, "%s", text);
        negotiate_set_broken(set, status, text, true);
    }
}

struct transport_events engine_events(struct engine *engine)
{
    return (struct transport_events){
        .ctx = engine, .message = on_message, .peer_down = on_peer_down};
}

/* ---- stopping ---- */

/* A rank that shuts down since something else broke is not the culprit: the others hear why it goes
 * before they see its links close. They may have heard already, from whoever saw it first; but that
 * may be slower on its way than we are. */
static void leave_with_cause(struct engine *engine)
{
    char name[160], text[HVD_ERROR_MAX];
    uint8_t bytes[NEGOTIATE_HEAD + HVD_ERROR_MAX + 16];
    struct writer w;
    struct message_head head = {.type = MESSAGE_LEAVE};
    engine_peer_name(engine, engine->rank, name, sizeof name);
    snprintf(text, sizeof text, "%.800s (so %s has left)", engine->cause_text, name);
    writer_init(&w, bytes, sizeof bytes);
    head_put(&w, &head);
    put_u32(&w, (uint32_t)engine->cause);
    put_text(&w, text);
    for (int32_t i = 0; i < engine->size && !w.bad; i++)
        if (i != engine->rank)
            engine_send(engine, i, bytes, w.used);
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
    flight_note(engine->flight, engine->now_ns, FLIGHT_SHUTDOWN, 0, (int32_t)status, text);
    queue_drain(engine);
    if (status == HVD_ERR_SHUTDOWN && engine->cause != HVD_OK)
        leave_with_cause(engine);
    for (int32_t i = 0; i < engine->member_count; i++)
        negotiate_set_broken(engine->members[i], status, text, is_told);
}

static void shutdown_ask_up(struct procset *global)
{
    uint8_t bytes[4];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_u32(&w, (uint32_t)global->engine->rank);
    negotiate_up(global, MESSAGE_SHUTDOWN, bytes, w.used);
}

void engine_shutdown_ask(struct engine *engine)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (engine->is_shutdown_asked || atomic_load(&engine->is_stopped))
        return;
    engine->is_shutdown_asked = true;
    if (global == NULL || global->broken != HVD_OK)
        engine_stop(engine, HVD_ERR_SHUTDOWN, ENGINE_SHUTDOWN_TEXT, false);
    else if (global->parent < 0)
        coordinator_shutdown(global, engine->rank);
    else
        shutdown_ask_up(global);
}

/* A rank may only close its links when nobody is still working with what it gave: everyone says
 * goodbye after its last batch, and waits for the others' goodbye. */
void engine_leave(struct engine *engine, int32_t first)
{
    uint8_t bytes[NEGOTIATE_HEAD];
    char name[160], text[HVD_ERROR_MAX];
    struct writer w;
    struct message_head head = {.type = MESSAGE_LEAVE};
    engine->is_shutdown_told = true;
    snprintf(text, sizeof text, "%s", ENGINE_SHUTDOWN_TEXT);
    if (first >= 0 && first < engine->size && first != engine->rank) {
        engine_peer_name(engine, first, name, sizeof name);
        snprintf(text, sizeof text, "%s The first to shut down was %s.", ENGINE_SHUTDOWN_TEXT,
                 name);
    }
    engine_stop(engine, HVD_ERR_SHUTDOWN, text, false);
    writer_init(&w, bytes, sizeof bytes);
    head_put(&w, &head);
    for (int32_t i = 0; i < engine->size; i++)
        if (i != engine->rank)
            engine_send(engine, i, bytes, w.used);
}

bool engine_is_over(const struct engine *engine)
{
    if (!atomic_load(&engine->is_stopped) || engine->outbox_waiting > 0)
        return false;
    return !engine->is_shutdown_told || engine->left_count >= engine->size - 1;
}

/* ---- the turn ---- */

static void tick(struct engine *engine)
{
    if (engine->now_ns < engine->next_tick_ns)
        return;
    engine->next_tick_ns = engine->now_ns + TICK_NS;
    hung_tick(engine, engine->now_ns);
    for (int32_t i = 0; i < engine->member_count; i++)
        if (engine->members[i]->coordinator != NULL && engine->members[i]->broken == HVD_OK)
            coordinator_tick(engine->members[i], engine->now_ns);
}

/* Who has asked for shutdown waits for the agreement of all; without the global set none comes. */
static void shutdown_check(struct engine *engine)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (engine->is_shutdown_asked && global != NULL && global->broken != HVD_OK)
        engine_stop(engine, HVD_ERR_SHUTDOWN, ENGINE_SHUTDOWN_TEXT, false);
}

bool engine_progress(struct engine *engine, int64_t now_ns)
{
    bool has_moved = false;
    engine->now_ns = now_ns;
    for (int32_t i = 0; i < engine->options.transport_count; i++) {
        struct transport *t = engine->options.transports[i];
        has_moved |= t->ops->progress(t, now_ns);
    }
    for (int32_t i = 0; engine->outbox_waiting > 0 && i < engine->size; i++)
        if (engine->outboxes[i].used > 0)
            outbox_drain(engine, i);
    /* Asked before the queue is emptied: what a waiter submitted before it waited is then seen. */
    bool is_waited = atomic_load_explicit(&engine->waiters, memory_order_acquire) > 0;
    has_moved |= atomic_load_explicit(&engine->queued, memory_order_acquire) > 0;
    queue_drain(engine);
    shutdown_check(engine);
    tick(engine);
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
        /* Something waits for others: the clock of the stall check must go on. */
        if (set->coordinator != NULL && set->id_count + (uint32_t)set->pending_count > 0 &&
            engine->next_tick_ns < deadline)
            deadline = engine->next_tick_ns;
    }
    return deadline;
}
