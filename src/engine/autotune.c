/* SPDX-License-Identifier: Apache-2.0 */
/* autotune.c - see autotune.h. */
#include "engine/autotune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_private.h"
#include "engine/tune.h"
#include "engine/tuner.h"

#define MB 1048576.0

struct mark {
    uint64_t steps, bytes;
    int64_t ns;
};

struct autotune {
    struct tuner tuner;
    struct mark mark;
    bool is_marked;
    bool is_settling; /* the plan is learned again */
    double scores[AUTOTUNE_SCORES];
    int32_t score_count;
    bool has_key;
    uint64_t key; /* of the model and the world */
};

/* ---- create and destroy ---- */

static bool is_given(const struct engine *engine, enum setting_row row)
{
    return config_is_set(engine->os, setting_rows[row].name);
}

bool autotune_init(struct engine *engine)
{
    const struct config *c = engine->config;
    if (!c->autotune || engine->rank != 0 || engine->size < 2)
        return true;
    bool has_network = false;
    for (int32_t i = 1; engine->options.host != NULL && i < engine->size; i++)
        has_network = has_network || engine->options.host[i] != engine->options.host[0];
    engine->autotune = os_alloc(engine->os, sizeof *engine->autotune);
    if (engine->autotune == NULL)
        return false;
    tuner_init(
        &engine->autotune->tuner,
        &(struct tuner_options){.start = engine->tunables,
                                .warmup_samples = (int32_t)c->autotune_warmup_samples,
                                .search_samples = (int32_t)c->autotune_bayes_opt_max_samples,
                                .noise = c->autotune_gaussian_process_noise,
                                .has_fusion = !is_given(engine, ROW_fusion_threshold_bytes),
                                .has_cycle = !is_given(engine, ROW_cycle_time_ms),
                                .has_flows = has_network && !is_given(engine, ROW_tcp_flows),
                                .has_threshold = has_network && !is_given(engine, ROW_algorithm)});
    return true;
}

void autotune_destroy(struct engine *engine)
{
    os_free(engine->os, engine->autotune);
}

/* ---- what is written down ---- */

/* A row in the format of 0.28.1. The first four columns do not vary here: the algorithm is chosen
 * by size and topology, and the cache is always on. */
static void row_put(const struct engine *engine, const struct tunables *t, double score)
{
    char row[160];
    const struct engine_options *o = &engine->options;
    snprintf(row, sizeof row, "0,0,0,1,%g,%g,%g", (double)t->cycle_time_ns / 1e6,
             (double)t->fusion_threshold_bytes / MB, score);
    LOG_AT(engine->log, LOG_INFO, "Autotuner: %s", row);
    if (o->tuner_row != NULL)
        o->tuner_row(o->tuner_ctx, row);
}

/* The same for jobs whose steps have the same tensors, on as many ranks and machines. */
static uint64_t key_of(const struct engine *engine)
{
    const struct procset *set = engine->sets[HVD_PROCESS_SET_GLOBAL];
    uint64_t key = 0;
    for (uint32_t i = 0; i < set->id_capacity; i++) {
        const struct entry *e = set->ids[i];
        if (e != NULL && e->run_count > 1) /* in any order */
            key += (hash_bytes(e->name, e->name_bytes) ^ e->bytes) * 0x9e3779b97f4a7c15u;
    }
    uint32_t world[2] = {(uint32_t)engine->size, 0};
    for (int32_t i = 0; engine->options.host != NULL && i < engine->size; i++)
        world[1] += engine->options.host[i] == i;
    return key ^ hash_bytes(world, sizeof world);
}

/* Before the warm-up ends: what an earlier job has found. */
static void recall(struct engine *engine, struct autotune *a)
{
    const struct engine_options *o = &engine->options;
    struct tunables known = a->tuner.options.start;
    a->has_key = true;
    a->key = key_of(engine);
    if (o->tuner_known == NULL || !o->tuner_known(o->tuner_ctx, a->key, &known))
        return;
    known.spin_ns = a->tuner.options.start.spin_ns;
    struct error error = {0};
    if (tune_check(&known, &error) == HVD_OK)
        tuner_know(&a->tuner, &known);
}

static void finish(struct engine *engine, const struct autotune *a, double score)
{
    const struct engine_options *o = &engine->options;
    const struct tunables *best = &a->tuner.best;
    row_put(engine, best, score);
    LOG_AT(engine->log, LOG_INFO,
           "Autotuner: finished; fusion threshold %g MB, cycle time %g ms, %d flows, algorithm "
           "thresholds at %d %%.",
           (double)best->fusion_threshold_bytes / MB, (double)best->cycle_time_ns / 1e6,
           best->flows, best->threshold_percent);
    if (o->tuner_found != NULL)
        o->tuner_found(o->tuner_ctx, a->key, best);
}

/* ---- scores ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sample(struct engine *engine, struct autotune *a)
{
    struct error error = {0};
    struct tunables scored = a->tuner.now;
    qsort(a->scores, AUTOTUNE_SCORES, sizeof *a->scores, by_value);
    double score = a->scores[AUTOTUNE_SCORES / 2];
    a->score_count = 0;
    if (!a->has_key)
        recall(engine, a);
    if (a->tuner.phase != TUNER_WARMUP)
        row_put(engine, &scored, score);
    if (!tuner_take(&a->tuner, score))
        return;
    if (a->tuner.phase == TUNER_DONE)
        finish(engine, a, score);
    a->is_settling = true;
    a->is_marked = false; /* until the change is in force */
    if (engine_tune(engine, &a->tuner.now, &error) != HVD_OK)
        LOG_AT(engine->log, LOG_DEBUG, "Autotuner: %s", error.text);
}

static double score_of(const struct mark *from, const struct mark *to)
{
    double us = (double)(to->ns - from->ns) / 1000;
    if (us <= 0)
        return 0;
    /* A job without allreduces is scored by its steps. */
    return to->bytes > from->bytes ? (double)(to->bytes - from->bytes) / us
                                   : (double)(to->steps - from->steps) / us;
}

void autotune_step(struct engine *engine)
{
    struct autotune *a = engine->autotune;
    const struct meter *m = &engine->meter;
    if (a == NULL || a->tuner.phase == TUNER_DONE ||
        engine_tunables(engine)->version != engine->tune_asked) /* a change is on its way */
        return;
    struct mark now = {
        .steps = m->sums.steps, .bytes = m->bytes[HVD_ALLREDUCE], .ns = m->step_begin_ns};
    if (a->is_marked &&
        now.steps - a->mark.steps < (uint64_t)engine->config->autotune_steps_per_sample)
        return;
    if (a->is_marked && !a->is_settling)
        a->scores[a->score_count++] = score_of(&a->mark, &now);
    if (a->is_marked)
        a->is_settling = false;
    a->is_marked = true;
    a->mark = now;
    if (a->score_count == AUTOTUNE_SCORES)
        sample(engine, a);
}
