/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c - see meter.h. */
#include "engine/meter.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "engine/autotune.h"
#include "engine/control.h"
#include "engine/engine_private.h"

bool meter_init(struct engine *engine)
{
    struct meter *m = &engine->meter;
    size_t bytes = (size_t)engine->size * sizeof *m->awaits_ns;
    m->step = 1;
    m->awaits_ns = os_alloc(engine->os, bytes);
    m->awaits_reported_ns = os_alloc(engine->os, bytes);
    return m->awaits_ns != NULL && m->awaits_reported_ns != NULL &&
           (engine->rank != 0 || pace_init(&m->pace, engine->os, engine->size));
}

void meter_destroy(struct engine *engine)
{
    os_free(engine->os, engine->meter.awaits_ns);
    os_free(engine->os, engine->meter.awaits_reported_ns);
    pace_destroy(&engine->meter.pace);
}

/* ---- ops ---- */

void meter_submitted(struct engine *engine, const struct op *op)
{
    struct meter *m = &engine->meter;
    if (m->pending++ == 0 && m->quiet_ns != 0 && op->submit_ns > m->quiet_ns)
        m->sums.alone_ns += op->submit_ns - m->quiet_ns;
}

void meter_completed(struct engine *engine)
{
    struct meter *m = &engine->meter;
    if (--m->pending == 0)
        m->quiet_ns = os_now_ns(engine->os); /* the turn may have begun long ago */
}

void meter_ran(struct engine *engine, struct entry *entry, const struct op *op,
               const struct run *run)
{
    struct meter *m = &engine->meter;
    int64_t wait_ns = run->start_ns > op->submit_ns ? run->start_ns - op->submit_ns : 0;
    int64_t run_ns = engine->now_ns - run->start_ns;
    m->ops[entry->kind]++;
    m->bytes[entry->kind] += entry->bytes;
    m->wait_ns += wait_ns;
    m->run_ns += run_ns;
    entry->run_count++;
    entry->wait_ns += wait_ns;
    entry->run_ns += run_ns;
}

/* ---- waiting for data ---- */

void meter_waiting(struct procset *set)
{
    struct engine *engine = set->engine;
    struct meter *m = &engine->meter;
    const struct backend_ops *ops = engine->backend->ops;
    int64_t passed_ns = engine->now_ns - m->looked_ns;
    if (passed_ns < METER_AWAIT_NS || ops->awaits == NULL)
        return;
    m->looked_ns = engine->now_ns;
    for (int32_t i = 0; i < set->size; i++)
        if (i != set->self && ops->awaits(set->backend_group, i))
            m->awaits_ns[set->ranks[i]] += passed_ns;
}

/* ---- what rank 0 makes of the reports ---- */

static void on_verdict(void *ctx, const struct pace_verdict *v)
{
    const struct engine *engine = ctx;
    char name[160];
    engine_peer_name(engine, v->rank, name, sizeof name);
    switch (v->cause) {
    case PACE_FINE:
        LOG_AT(engine->log, LOG_WARNING, "%s is no longer slower than the other ranks.", name);
        return;
    case PACE_LATE_SUBMIT:
    case PACE_LATE_TRANSFER:
        LOG_AT(
            engine->log, LOG_WARNING,
            v->cause == PACE_LATE_SUBMIT
                ? "%s is slow: it computes or loads data for %.1f ms of each step, the median "
                  "rank for %.1f ms; a step takes %.1f ms, and the other ranks wait for it."
                : "%s is slow: it submits in time, but the other ranks wait %.1f ms of each step "
                  "for its data (median: %.1f ms); a step takes %.1f ms.",
            name, v->own_ns / 1e6, v->typical_ns / 1e6, v->step_ns / 1e6);
        return;
    }
}

/* ---- reports ---- */

static int32_t most_awaited(struct engine *engine, int64_t *ret_ns)
{
    struct meter *m = &engine->meter;
    int32_t most = -1;
    *ret_ns = 0;
    for (int32_t i = 0; i < engine->size; i++) {
        int64_t ns = m->awaits_ns[i] - m->awaits_reported_ns[i];
        m->awaits_reported_ns[i] = m->awaits_ns[i];
        if (ns <= *ret_ns)
            continue;
        *ret_ns = ns;
        most = i;
    }
    return most;
}

static void sample_send(struct engine *engine, const struct pace_sample *sample)
{
    uint8_t bytes[MESSAGE_HEAD_BYTES + 3 * 8 + 4];
    struct writer w;
    struct message_head head = {.type = MESSAGE_PACE};
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    put_f64(&w, sample->step_ns);
    put_f64(&w, sample->alone_ns);
    put_f64(&w, sample->awaits_ns);
    put_u32(&w, (uint32_t)sample->awaits_rank);
    control_send(engine, 0, bytes, w.used);
    engine->stats.messages_sent--; /* which counts what agreement costs */
}

static void report(struct engine *engine)
{
    struct meter *m = &engine->meter;
    double steps = (double)(m->sums.steps - m->reported.steps);
    int64_t awaits_ns;
    int32_t rank = most_awaited(engine, &awaits_ns);
    struct pace_sample sample = {.step_ns = (double)(m->sums.step_ns - m->reported.step_ns) / steps,
                                 .alone_ns =
                                     (double)(m->sums.alone_ns - m->reported.alone_ns) / steps,
                                 .awaits_ns = (double)awaits_ns / steps,
                                 .awaits_rank = rank};
    m->reported = m->sums;
    m->reported_ns = engine->now_ns;
    if (engine->rank != 0) {
        sample_send(engine, &sample);
        return;
    }
    pace_take(&m->pace, 0, &sample);
    pace_judge(&m->pace, on_verdict, engine);
}

static bool is_time(double ns)
{
    return isfinite(ns) && ns >= 0;
}

bool meter_message(struct engine *engine, int32_t peer, struct reader *r)
{
    struct pace_sample sample;
    sample.step_ns = get_f64(r);
    sample.alone_ns = get_f64(r);
    sample.awaits_ns = get_f64(r);
    sample.awaits_rank = (int32_t)get_u32(r);
    if (!reader_done(r) || !is_time(sample.step_ns) || !is_time(sample.alone_ns) ||
        !is_time(sample.awaits_ns) || sample.awaits_rank < -1 ||
        sample.awaits_rank >= engine->size || engine->rank != 0)
        return false;
    pace_take(&engine->meter.pace, peer, &sample);
    return true;
}

/* ---- steps ---- */

static void step_end(struct engine *engine)
{
    struct meter *m = &engine->meter;
    int64_t now_ns = engine->now_ns;
    m->step++;
    if (m->step_begin_ns != 0) {
        m->last_step_ns = now_ns - m->step_begin_ns;
        m->last_alone_ns = m->sums.alone_ns - m->alone_at_begin_ns;
        m->sums.steps++;
        m->sums.step_ns += m->last_step_ns;
    } else { /* what was before the first step is part of none */
        m->reported_ns = now_ns;
        m->reported = m->sums;
    }
    m->step_begin_ns = now_ns;
    m->alone_at_begin_ns = m->sums.alone_ns;
    if (engine->size > 1 && m->sums.steps > m->reported.steps &&
        now_ns - m->reported_ns >= METER_REPORT_NS && !engine->config->slow_rank_check_disable)
        report(engine);
    autotune_step(engine);
}

void meter_batch(struct procset *set, const struct run *run)
{
    struct engine *engine = set->engine;
    struct meter *m = &engine->meter;
    m->looked_ns = engine->now_ns;
    if (set->id != HVD_PROCESS_SET_GLOBAL)
        return;
    for (int32_t i = 0; i < run->batch.count; i++) {
        struct entry *e = run->entries[i];
        if (e->step_run == m->step)
            step_end(engine);
        e->step_run = m->step;
    }
}
