/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - what an engine is doing, as JSON for users and tools; docs/snapshot.md has the
 * schema. It has no side effects: no message, no counter, no state that an op depends on.
 *
 * Everything is bounded, in number and in bytes. Truncated lists count the omitted entries; the
 * oldest ops, unhealthy links and newest events come first.
 *
 * Thread: token holder for most; sets_beside() writes what is atomic or under the submit lock.
 * Start reading at snapshot_write(). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/flight.h"
#include "engine/hung.h"
#include "engine/plan.h"
#include "engine/snapshot.h"
#include "engine/waits.h"

#define OPS_MAX      64 /* listed of a set; the same for what others wait for */
#define RANKS_MAX    64 /* listed of one op */
#define LINKS_MAX    256
#define EVENTS_MAX   64
#define LOOKS_MAX    4096 /* ops that are searched for each one requested */
#define TAIL_BYTES   128  /* reserved for what follows a list: how many were omitted */
#define LOCK_TRIES   100
#define LOCK_WAIT_NS 100000

/* ---- pieces ---- */

static bool list_open(struct json *json, const char *key, size_t share, size_t *ret_limit)
{
    size_t room = json_room(json);
    *ret_limit = json_limit(json, room / share > TAIL_BYTES ? room / share - TAIL_BYTES : 0);
    if (json_open(json, key, false))
        return true;
    json_unlimit(json, *ret_limit);
    return false;
}

static void list_close(struct json *json, size_t limit)
{
    json_close(json);
    json_unlimit(json, limit);
}

static void left_out(struct json *json, const char *key, int64_t count)
{
    if (count > 0)
        json_int(json, key, count);
}

static int64_t op_bytes(const struct op *op)
{
    return op->kind < HVD_KIND_COUNT ? op->count * (int64_t)hvd_dtype_bytes((hvd_dtype_t)op->dtype)
                                     : 0;
}

/* Every rank of a set with this word about a wait; for those that are unsure, the child that relays
 * their announcements. */
static void wait_ranks(struct json *json, const char *key, const struct procset *set,
                       const struct wait *w, enum waits_word word)
{
    int32_t all = 0;
    if (!json_open(json, key, false))
        return;
    for (int32_t i = 0; i < set->size; i++) {
        bool is_named = waits_member(set, w, i) == word &&
                        (word != WAITS_UNSURE || set->children[set->via[i]] == i);
        if (is_named && ++all <= RANKS_MAX)
            json_int(json, NULL, set->ranks[i]);
    }
    json_close(json);
    left_out(json, "missing_left_out", all - RANKS_MAX);
}

static void wait_write(struct json *json, const struct procset *set, const struct wait *w,
                       int64_t now_ns)
{
    json_seconds(json, "waiting_s", now_ns - w->since_ns);
    wait_ranks(json, "missing", set, w, WAITS_MISSING);
    if (!waits_is_exact(set, w))
        wait_ranks(json, "missing_below", set, w, WAITS_UNSURE);
}

/* ---- ops ---- */

static const struct run *run_at(const struct procset *set, uint32_t number)
{
    return &set->runs[number % PROCSET_RUNS];
}

/* Entries of a completed or cancelled one may have been freed. */
static bool has_entries(const struct procset *set, const struct run *run)
{
    return set->broken == HVD_OK && (run->state == RUN_IN || run->state == RUN_READY ||
                                     run->state == RUN_MOVING || run->state == RUN_OUT);
}

static bool is_running(const struct procset *set, const struct op *op)
{
    for (uint32_t n = set->run_head; n != set->run_tail; n++) {
        const struct run *run = run_at(set, n);
        for (int32_t i = 0; has_entries(set, run) && i < run->batch.count; i++)
            if (run->entries[i] == op->tensor->entry)
                return true;
    }
    return false;
}

const char *snapshot_op_state(const struct procset *set, const struct op *op)
{
    switch ((enum op_state)op->state) {
    case OP_QUEUED: return "queued";
    case OP_HELD: return plan_is_on(set) ? "planned" : "held";
    case OP_ANNOUNCED: return "announced";
    case OP_BATCHED: return is_running(set, op) ? "running" : "batched";
    }
    return "?";
}

static void op_head(struct json *json, const struct op *op, const char *state, int64_t now_ns)
{
    json_text(json, "name", op->tensor->name);
    json_text(json, "kind", kind_prefix(op->kind));
    json_int(json, "bytes", op_bytes(op));
    json_seconds(json, "age_s", now_ns - op->submit_ns);
    json_text(json, "state", state);
}

static bool op_write(struct json *json, const struct procset *set, const struct op *op,
                     int64_t now_ns)
{
    struct wait w;
    struct json_mark mark = json_try(json);
    if (json_open(json, NULL, true)) {
        op_head(json, op, snapshot_op_state(set, op), now_ns);
        if (op->state == OP_HELD && op->tensor->entry != NULL && op->tensor->entry->plan_batch >= 0)
            json_int(json, "plan_batch", op->tensor->entry->plan_batch);
        if (op->state == OP_ANNOUNCED && waits_of_op(set, op, &w))
            wait_write(json, set, &w, now_ns);
        json_close(json);
    }
    return json_tried(json, &mark);
}

static bool submit_lock(struct engine *engine)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (pthread_mutex_trylock(&engine->submit_lock) == 0)
            return true;
        engine->os->sleep_ns(engine->os->ctx, LOCK_WAIT_NS);
    }
    return false;
}

/* The submit lock is held: ops that no turn has seen yet, at most `most`. */
static void queued_write(struct json *json, const struct procset *set, int64_t most, int64_t now_ns)
{
    const struct op *op = set->engine->queue_head;
    for (int i = 0; op != NULL && i < LOOKS_MAX && most > 0; i++, op = op->next) {
        if (op->set != set)
            continue;
        struct json_mark mark = json_try(json);
        if (json_open(json, NULL, true)) {
            op_head(json, op, "queued", now_ns);
            json_close(json);
        }
        if (!json_tried(json, &mark))
            return;
        most--;
    }
}

static void ops_write(struct json *json, const struct procset *set, int64_t now_ns)
{
    size_t limit;
    int64_t count = 0;
    if (list_open(json, "ops", 2, &limit)) {
        const struct op *op = set->pending_head;
        for (; op != NULL && count < OPS_MAX && op_write(json, set, op, now_ns); op = op->next)
            count++;
        if (op == NULL && submit_lock(set->engine)) {
            queued_write(json, set, OPS_MAX - count, now_ns);
            pthread_mutex_unlock(&set->engine->submit_lock);
        }
        list_close(json, limit);
    }
    left_out(json, "ops_left_out", set->pending_count - count);
}

/* Ops that other ranks have announced and this one has not submitted. */
static bool other_write(struct json *json, const struct procset *set, const struct wait *w,
                        int64_t now_ns)
{
    struct json_mark mark = json_try(json);
    if (json_open(json, NULL, true)) {
        json_text(json, "name", w->name);
        uint8_t kind = w->pending != NULL ? w->pending->request.kind
                       : w->entry != NULL ? w->entry->kind
                                          : (uint8_t)HVD_JOIN;
        json_text(json, "kind", kind_prefix(kind));
        wait_write(json, set, w, now_ns);
        json_close(json);
    }
    return json_tried(json, &mark);
}

static void others_write(struct json *json, const struct procset *set, int64_t now_ns)
{
    size_t limit, cursor = 0;
    int64_t all = 0, count = 0;
    if (set->child_count == 0 || !list_open(json, "others", 2, &limit))
        return;
    for (struct wait w; waits_next(set, &cursor, &w);) {
        if (waits_member(set, &w, set->self) != WAITS_MISSING)
            continue;
        all++;
        count += count < OPS_MAX && other_write(json, set, &w, now_ns);
    }
    list_close(json, limit);
    left_out(json, "others_left_out", all - count);
}

/* ---- sets ---- */

static void plan_write(struct json *json, const struct procset *set)
{
    struct plan_view view;
    if (!plan_look(set, &view) || !json_open(json, "plan", true))
        return;
    json_text(json, "state", view.state);
    json_int(json, "batches", view.batches);
    json_int(json, "position", view.position);
    json_int(json, "not_submitted", view.missing);
    json_uint(json, "started", view.started);
    json_uint(json, "finished", view.finished);
    json_close(json);
}

static void awaited_write(struct json *json, const struct procset *set)
{
    const struct backend *backend = set->engine->backend;
    int32_t all = 0;
    if (backend->ops->awaits == NULL || !json_open(json, "awaits", false))
        return;
    for (int32_t i = 0; i < set->size; i++)
        if (i != set->self && backend->ops->awaits(set->backend_group, i) && ++all <= RANKS_MAX)
            json_int(json, NULL, set->ranks[i]);
    json_close(json);
    left_out(json, "awaits_left_out", all - RANKS_MAX);
}

static const char *run_state(enum run_state state)
{
    switch (state) {
    case RUN_IN: return "copying in";
    case RUN_READY: return "ready";
    case RUN_MOVING: return "moving";
    case RUN_OUT: return "copying out";
    case RUN_FREE:
    case RUN_DRAIN:
    case RUN_DONE: break;
    }
    return "?";
}

static void run_write(struct json *json, const struct procset *set, const struct run *run,
                      int64_t now_ns)
{
    uint64_t bytes = 0;
    if (!has_entries(set, run) || !json_open(json, NULL, true))
        return;
    for (int32_t i = 0; i < run->batch.count; i++)
        bytes += run->entries[i]->bytes;
    json_text(json, "name", run->entries[0]->name);
    json_text(json, "kind", kind_prefix(run->entries[0]->kind));
    json_text(json, "state", run_state(run->state));
    json_int(json, "ops", run->batch.count);
    json_uint(json, "bytes", bytes);
    json_seconds(json, "age_s", now_ns - run->start_ns);
    json_bool(json, "planned", run->is_planned);
    if (set->backend_group != NULL) /* NULL: the set is removed and waits for copies only */
        json_text(json, "activity",
                  set->engine->backend->ops->activity(set->backend_group,
                                                      (hvd_kind_t)run->entries[0]->kind));
    if (run->state == RUN_MOVING)
        awaited_write(json, set);
    json_close(json);
}

/* In the order of the batches; the backend has one of them at a time. */
static void runs_write(struct json *json, const struct procset *set, int64_t now_ns)
{
    if (!json_open(json, "running", false))
        return;
    for (uint32_t n = set->run_head; n != set->run_tail; n++)
        run_write(json, set, run_at(set, n), now_ns);
    json_close(json);
}

static void joined_write(struct json *json, const struct procset *set)
{
    const struct coordinator *c = set->coordinator;
    int32_t all = 0;
    if (c == NULL || c->joined_count == 0 || !json_open(json, "joined", false))
        return;
    for (int32_t i = 0; i < set->size; i++)
        if (c->joined[i] && ++all <= RANKS_MAX)
            json_int(json, NULL, set->ranks[i]);
    json_close(json);
    left_out(json, "joined_left_out", all - RANKS_MAX);
}

static void set_head(struct json *json, const struct procset *set)
{
    json_int(json, "id", set->id);
    json_int(json, "size", set->size);
    json_int(json, "rank", set->self);
    json_int(json, "coordinator", set->ranks[0]);
    if (set->parent >= 0)
        json_int(json, "parent", set->ranks[set->parent]);
    if (set->broken == HVD_OK)
        return;
    json_text(json, "broken", hvd_status_name(set->broken));
    json_text(json, "broken_text", set->broken_text);
}

static void set_write(struct json *json, const struct procset *set, int64_t now_ns)
{
    set_head(json, set);
    json_uint(json, "generation", set->generation);
    json_int(json, "pending", set->pending_count);
    json_int(json, "batches_waiting", (int32_t)(set->batch_tail - set->batch_head));
    joined_write(json, set);
    plan_write(json, set);
    runs_write(json, set, now_ns);
    ops_write(json, set, now_ns);
    others_write(json, set, now_ns);
}

/* A set that does not fit keeps its first fields: the lists are the last ones. */
static void sets_write(struct json *json, const struct engine *engine, int64_t now_ns)
{
    size_t limit;
    int32_t count = 0;
    if (list_open(json, "process_sets", 2, &limit)) {
        for (; count < engine->member_count && json_open(json, NULL, true); count++) {
            set_write(json, engine->members[count], now_ns);
            json_close(json);
        }
        list_close(json, limit);
    }
    left_out(json, "process_sets_left_out", engine->member_count - count);
}

/* Another thread has the token: the table of sets, why they are broken and the queue are under the
 * submit lock as well. */
static void sets_beside(struct json *json, struct engine *engine, int64_t now_ns)
{
    size_t limit, ops_limit;
    int32_t count = 0;
    if (!submit_lock(engine)) {
        json_bool(json, "submit_busy", true);
        return;
    }
    if (list_open(json, "process_sets", 2, &limit)) {
        for (; count < engine->member_count && json_open(json, NULL, true); count++) {
            set_head(json, engine->members[count]);
            if (list_open(json, "ops", 2, &ops_limit)) {
                queued_write(json, engine->members[count], OPS_MAX, now_ns);
                list_close(json, ops_limit);
            }
            json_close(json);
        }
        list_close(json, limit);
    }
    left_out(json, "process_sets_left_out", engine->member_count - count);
    pthread_mutex_unlock(&engine->submit_lock);
}

/* ---- links ---- */

static bool is_sick(const struct engine *engine, int32_t rank)
{
    return engine->has_left[rank] != 0 || engine->signs[rank].is_told;
}

static bool link_write(struct json *json, const struct engine *engine, int32_t rank)
{
    const struct transport *t = engine->options.routes[rank];
    const struct sign *sign = &engine->signs[rank];
    const struct outbox *box = &engine->outboxes[rank];
    const struct traffic *traffic = &engine->traffic[rank];
    struct json_mark mark = json_try(json);
    if (json_open(json, NULL, true)) {
        json_int(json, "rank", rank);
        json_text(json, "transport", t != NULL ? t->ops->name : "none");
        json_text(json, "state",
                  engine->has_left[rank] != 0 ? "left"
                  : sign->is_told             ? "silent"
                                              : "up");
        if (sign->heard_ns > 0)
            json_seconds(json, "silent_s", hung_silence_ns(engine, rank));
        json_uint(json, "messages_sent", traffic->sent);
        json_uint(json, "message_bytes_sent", traffic->sent_bytes);
        json_uint(json, "messages_received", traffic->received);
        json_uint(json, "message_bytes_received", traffic->received_bytes);
        if (box->used > box->at)
            json_uint(json, "unsent_bytes", box->used - box->at);
        json_close(json);
    }
    return json_tried(json, &mark);
}

void snapshot_transports(struct json *json, const struct engine *engine)
{
    if (!json_open(json, "transports", false))
        return;
    for (int32_t i = 0; i < engine->options.transport_count; i++) {
        const struct transport *t = engine->options.transports[i];
        uint64_t messages = 0, bytes = 0;
        t->ops->counters(t, &messages, &bytes);
        if (!json_open(json, NULL, true))
            break;
        json_text(json, "name", t->ops->name);
        json_uint(json, "messages", messages);
        json_uint(json, "bytes", bytes);
        json_close(json);
    }
    json_close(json);
}

static void links_write(struct json *json, const struct engine *engine)
{
    size_t limit;
    int32_t count = 0;
    if (list_open(json, "links", 2, &limit)) {
        for (int sick = 1; sick >= 0; sick--)
            for (int32_t i = 0; i < engine->size && count < LINKS_MAX; i++)
                if (i != engine->rank && is_sick(engine, i) == (sick != 0))
                    count += link_write(json, engine, i);
        list_close(json, limit);
    }
    left_out(json, "links_left_out", engine->size - 1 - count);
}

/* ---- events ---- */

static bool event_write(struct json *json, uint64_t number, const struct flight_event *e,
                        int64_t now_ns)
{
    struct json_mark mark = json_try(json);
    if (json_open(json, NULL, true)) {
        json_uint(json, "number", number);
        json_seconds(json, "age_s", now_ns - e->time_ns);
        json_text(json, "event", flight_kind_name(e->kind));
        json_int(json, "process_set", e->set);
        json_int(json, "value", e->value);
        json_text_part(json, "name", (const char *)e->name.words, sizeof e->name);
        json_close(json);
    }
    return json_tried(json, &mark);
}

/* Newest first. */
static void events_write(struct json *json, const struct engine *engine, int64_t now_ns)
{
    size_t limit;
    uint64_t all = flight_count(engine->flight), count = 0;
    if (list_open(json, "events", 1, &limit)) {
        for (uint64_t i = all; i > 0 && all - i < EVENTS_MAX; i--) {
            struct flight_event e;
            if (!flight_read(engine->flight, i - 1, &e))
                continue;
            if (!event_write(json, i - 1, &e, now_ns))
                break;
            count++;
        }
        list_close(json, limit);
    }
    left_out(json, "events_left_out", (int64_t)(all - count));
}

/* ---- all of it ---- */

void snapshot_counters(struct json *json, const struct engine *engine)
{
    static const struct {
        const char *key;
        size_t at;
    } counters[] = {
        {"ops_completed", offsetof(hvd_stats_t, ops_completed)},
        {"batches", offsetof(hvd_stats_t, batches)},
        {"batches_planned", offsetof(hvd_stats_t, batches_planned)},
        {"bytes_reduced", offsetof(hvd_stats_t, bytes_reduced)},
        {"messages_sent", offsetof(hvd_stats_t, messages_sent)},
        {"plan_starts", offsetof(hvd_stats_t, plan_starts)},
        {"plan_breaks", offsetof(hvd_stats_t, plan_breaks)},
        {"cache_hits", offsetof(hvd_stats_t, cache_hits)},
        {"cache_misses", offsetof(hvd_stats_t, cache_misses)},
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&engine->stats + counters[i].at, sizeof value);
        json_uint(json, counters[i].key, value);
    }
}

const char *snapshot_state(const struct engine *engine)
{
    hvd_status_t broken = engine_broken(engine);
    return broken == HVD_ERR_SHUTDOWN  ? "shut down"
           : broken != HVD_OK          ? "broken"
           : engine->is_shutdown_asked ? "stopping"
                                       : "running";
}

static void state_write(struct json *json, const struct engine *engine)
{
    json_text(json, "state", snapshot_state(engine));
    if (engine->cause == HVD_OK || !json_open(json, "cause", true))
        return;
    json_text(json, "status", hvd_status_name(engine->cause));
    json_text(json, "text", engine->cause_text);
    json_int(json, "rank", engine->culprit >= 0 ? engine->culprit : engine->rank);
    json_close(json);
}

void snapshot_write(struct engine *engine, int64_t now_ns, bool has_token, struct json *json)
{
    if (has_token)
        state_write(json, engine);
    else
        json_text(json, "state", atomic_load(&engine->is_stopped) ? "stopped" : "busy");
    json_int(json, "in_flight", atomic_load(&engine->in_flight));
    json_int(json, "queued", atomic_load(&engine->queued));
    json_int(json, "waiters", atomic_load(&engine->waiters));
    if (has_token && json_open(json, "counters", true)) {
        snapshot_counters(json, engine);
        json_close(json);
    }
    if (has_token) {
        sets_write(json, engine, now_ns);
        snapshot_transports(json, engine);
        links_write(json, engine);
    } else {
        sets_beside(json, engine, now_ns);
    }
    events_write(json, engine, now_ns);
}

void snapshot_missing(const struct engine *engine, const struct ticket *ticket, int64_t now_ns,
                      char *ret, size_t bytes)
{
    char ranks[512];
    struct wait w;
    ret[0] = '\0';
    for (int32_t i = 0; i < engine->member_count; i++) {
        const struct op *op = engine->members[i]->pending_head;
        for (int looks = 0; op != NULL && looks < LOOKS_MAX; looks++, op = op->next) {
            if (op->ticket != ticket || !waits_of_op(op->set, op, &w))
                continue;
            waits_text(op->set, &w, ranks, sizeof ranks);
            if (ranks[0] != '\0')
                snprintf(ret, bytes, "%.300s has waited %.1f s for %s", w.name,
                         (double)(now_ns - w.since_ns) / 1e9, ranks);
            return;
        }
    }
    direct_missing(engine, ticket, now_ns, ret, bytes);
}
