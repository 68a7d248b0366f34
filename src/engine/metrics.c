/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - what meter.c has measured, as JSON: docs/metrics.md has the schema.
 *
 * Thread: token holder. No side effects.  Start reading at metrics_write(). */
#include "base/json.h"
#include "base/proc.h"
#include "engine/engine_private.h"
#include "engine/kind.h"
#include "engine/snapshot.h"

#define TENSORS_MAX 32
#define RANKS_MAX   1024

/* ---- ops and tensors ---- */

static void ops_write(struct json *json, const struct meter *m)
{
    if (!json_open(json, "ops", true))
        return;
    for (uint8_t kind = 0; kind < HVD_KIND_COUNT; kind++) {
        if (m->ops[kind] == 0 || !json_open(json, kind_prefix(kind), true))
            continue;
        json_uint(json, "count", m->ops[kind]);
        json_uint(json, "bytes", m->bytes[kind]);
        json_close(json);
    }
    json_close(json);
}

/* Keeps the entries with the longest waits, the longest first. */
static int32_t longest(const struct procset *set, const struct entry *ret[TENSORS_MAX])
{
    int32_t count = 0;
    for (uint32_t i = 0; i < set->id_capacity; i++) {
        const struct entry *e = set->ids[i];
        if (e == NULL || e->run_count == 0)
            continue;
        int32_t at = count < TENSORS_MAX ? count++ : TENSORS_MAX;
        for (; at > 0 && ret[at - 1]->wait_ns + ret[at - 1]->run_ns < e->wait_ns + e->run_ns; at--)
            if (at < TENSORS_MAX)
                ret[at] = ret[at - 1];
        if (at < TENSORS_MAX)
            ret[at] = e;
    }
    return count;
}

static void tensors_write(struct json *json, const struct procset *set)
{
    const struct entry *found[TENSORS_MAX];
    int32_t count = set != NULL ? longest(set, found) : 0;
    if (!json_open(json, "tensors", false))
        return;
    for (int32_t i = 0; i < count; i++) {
        struct json_mark mark = json_try(json);
        if (json_open(json, NULL, true)) {
            json_text(json, "name", found[i]->name);
            json_uint(json, "count", found[i]->run_count);
            json_uint(json, "bytes", found[i]->bytes);
            json_seconds(json, "wait_s", found[i]->wait_ns);
            json_seconds(json, "run_s", found[i]->run_ns);
            json_close(json);
        }
        if (!json_tried(json, &mark))
            break;
    }
    json_close(json);
}

/* ---- steps and ranks ---- */

static void steps_write(struct json *json, const struct meter *m)
{
    int64_t steps = (int64_t)m->sums.steps;
    if (!json_open(json, "steps", true))
        return;
    json_int(json, "count", steps);
    json_seconds(json, "last_s", m->last_step_ns);
    json_seconds(json, "last_alone_s", m->last_alone_ns);
    json_seconds(json, "sum_s", m->sums.step_ns);
    json_seconds(json, "sum_alone_s", m->sums.alone_ns);
    json_close(json);
}

static void awaits_write(struct json *json, const struct engine *engine)
{
    int32_t count = 0;
    if (!json_open(json, "awaits", false))
        return;
    for (int32_t i = 0; i < engine->size && count < RANKS_MAX; i++) {
        if (engine->meter.awaits_ns[i] == 0 || !json_open(json, NULL, true))
            continue;
        json_int(json, "rank", i);
        json_seconds(json, "s", engine->meter.awaits_ns[i]);
        json_close(json);
        count++;
    }
    json_close(json);
}

/* What the links carry, apart from memory that ranks share. */
static void links_write(struct json *json, const struct engine *engine)
{
    const struct backend *backend = engine->backend;
    int32_t count = 0;
    if (backend->ops->load == NULL || !json_open(json, "links", false))
        return;
    for (int32_t i = 0; i < engine->size && count < RANKS_MAX; i++) {
        struct backend_load sent = {0}, received = {0};
        backend->ops->load(backend, i, &sent, &received);
        if (sent.bytes + received.bytes == 0 || !json_open(json, NULL, true))
            continue;
        json_int(json, "rank", i);
        json_text(json, "transport", engine->options.routes[i]->ops->name);
        json_uint(json, "sent_bytes", sent.bytes);
        json_uint(json, "received_bytes", received.bytes);
        json_seconds(json, "send_s", sent.ns);
        json_seconds(json, "receive_s", received.ns);
        json_close(json);
        count++;
    }
    json_close(json);
}

static void rank_write(struct json *json, int32_t rank, const struct pace_rank *r)
{
    uint64_t last = (r->count - 1) % PACE_HISTORY;
    if (!json_open(json, NULL, true))
        return;
    json_int(json, "rank", rank);
    json_seconds(json, "step_s", (int64_t)r->step.values[last]);
    json_seconds(json, "alone_s", (int64_t)r->alone.values[last]);
    json_seconds(json, "awaited_s", (int64_t)r->awaited.values[last]);
    json_text(json, "slow", pace_cause_name(r->told));
    json_close(json);
}

/* Rank 0: the last report of each rank, and which ones are slow. */
static void ranks_write(struct json *json, const struct pace *pace)
{
    if (pace->ranks == NULL || !json_open(json, "ranks", false))
        return;
    for (int32_t i = 0; i < pace->size && i < RANKS_MAX; i++)
        if (pace->ranks[i].count > 0)
            rank_write(json, i, &pace->ranks[i]);
    json_close(json);
}

static void tunables_write(struct json *json, const struct tunables *t)
{
    if (!json_open(json, "tunables", true))
        return;
    json_uint(json, "version", t->version);
    json_int(json, "fusion_threshold_bytes", t->fusion_threshold_bytes);
    json_seconds(json, "cycle_time_s", t->cycle_time_ns);
    json_int(json, "flows", t->flows);
    json_int(json, "threshold_percent", t->threshold_percent);
    json_close(json);
}

/* Processor time of this process. */
static void cpu_write(struct json *json, const struct os *os)
{
    struct proc_times times;
    if (!proc_times(os, os->pid(os->ctx), &times) || !json_open(json, "cpu", true))
        return;
    json_seconds(json, "user_s", times.user_ns);
    json_seconds(json, "system_s", times.system_ns);
    json_seconds(json, "age_s", times.age_ns);
    json_close(json);
}

void metrics_write(const struct engine *engine, struct json *json)
{
    const struct meter *m = &engine->meter;
    json_int(json, "pending", m->pending);
    json_seconds(json, "wait_s", m->wait_ns);
    json_seconds(json, "run_s", m->run_ns);
    cpu_write(json, engine->os);
    ops_write(json, m);
    if (json_open(json, "counters", true)) {
        snapshot_counters(json, engine);
        json_close(json);
    }
    steps_write(json, m);
    tunables_write(json, engine_tunables(engine));
    snapshot_transports(json, engine);
    awaits_write(json, engine);
    links_write(json, engine);
    ranks_write(json, &m->pace);
    tensors_write(json, engine->sets[HVD_PROCESS_SET_GLOBAL]);
}
