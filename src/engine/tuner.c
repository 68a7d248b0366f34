/* SPDX-License-Identifier: Apache-2.0 */
/* tuner.c - see tuner.h. */
#include "engine/tuner.h"

#include <math.h>
#include <string.h>

#define MB           1048576.0
#define MS           1e6
#define FUSION_MB    64.0 /* from 0 */
#define CYCLE_MS     99.0 /* beyond 1 */
#define FLOWS_MORE   7.0  /* beyond 1 */
#define PERCENT_MIN  25.0
#define PERCENT_MORE 375.0

/* ---- tunables as points of the unit cube ---- */

static void point_of(const struct tuner *t, const struct tunables *v, double ret[SEARCH_DIMS_MAX])
{
    const struct tuner_options *o = &t->options;
    int32_t n = 0;
    memset(ret, 0, SEARCH_DIMS_MAX * sizeof *ret);
    if (o->has_fusion)
        ret[n++] = sqrt((double)v->fusion_threshold_bytes / MB / FUSION_MB);
    if (o->has_cycle)
        ret[n++] = sqrt(sqrt(fmax((double)v->cycle_time_ns / MS - 1, 0) / CYCLE_MS));
    if (o->has_flows)
        ret[n++] = sqrt((v->flows - 1) / FLOWS_MORE);
    if (o->has_threshold)
        ret[n++] = sqrt(fmax(v->threshold_percent - PERCENT_MIN, 0) / PERCENT_MORE);
    for (int32_t i = 0; i < n; i++)
        ret[i] = fmin(fmax(ret[i], 0), 1);
}

static struct tunables values_of(const struct tuner *t, const double x[SEARCH_DIMS_MAX])
{
    const struct tuner_options *o = &t->options;
    struct tunables v = o->start;
    int32_t n = 0;
    double squares[SEARCH_DIMS_MAX];
    for (int32_t i = 0; i < SEARCH_DIMS_MAX; i++)
        squares[i] = x[i] * x[i]; /* more points where small values are */
    if (o->has_fusion)
        v.fusion_threshold_bytes = (int64_t)(squares[n++] * FUSION_MB * MB);
    if (o->has_cycle) {
        v.cycle_time_ns = (int64_t)((1 + squares[n] * squares[n] * CYCLE_MS) * MS);
        n++;
    }
    if (o->has_flows)
        v.flows = (int32_t)(1.5 + squares[n++] * FLOWS_MORE);
    if (o->has_threshold)
        v.threshold_percent = (int32_t)(PERCENT_MIN + squares[n++] * PERCENT_MORE);
    return v;
}

static int32_t dims_of(const struct tuner_options *o)
{
    return o->has_fusion + o->has_cycle + o->has_flows + o->has_threshold;
}

void tuner_init(struct tuner *t, const struct tuner_options *options)
{
    memset(t, 0, sizeof *t);
    t->options = *options;
    t->now = t->best = options->start;
    search_init(&t->search, dims_of(options), options->noise);
    int32_t most = SEARCH_POINTS_MAX - 1;
    t->options.search_samples = options->search_samples < most ? options->search_samples : most;
    t->phase = options->warmup_samples > 0 ? TUNER_WARMUP : TUNER_SEARCH;
    if (t->search.dims == 0)
        t->phase = TUNER_DONE;
}

void tuner_know(struct tuner *t, const struct tunables *known)
{
    t->known = *known;
    t->has_known = true;
}

/* ---- the phases ---- */

static struct tunables fixed_point(const struct tuner *t, int32_t number)
{
    static const struct {
        double mb, ms;
    } points[] = {{4, 5}, {32, 50}, {16, 25}, {8, 10}};
    struct tunables v = t->options.start;
    if (t->options.has_fusion)
        v.fusion_threshold_bytes = (int64_t)(points[number].mb * MB);
    if (t->options.has_cycle)
        v.cycle_time_ns = (int64_t)(points[number].ms * MS);
    return v;
}

/* Point 0 is the start; the fixed ones vary only two of the tunables. */
static struct tunables proposal(struct tuner *t)
{
    double x[SEARCH_DIMS_MAX] = {0};
    bool has_fixed = t->options.has_fusion || t->options.has_cycle;
    if (has_fixed && t->search.count <= 4)
        return fixed_point(t, t->search.count - 1);
    search_next(&t->search, x);
    return values_of(t, x);
}

static bool confirm_begin(struct tuner *t)
{
    int32_t best = search_best(&t->search);
    t->best = t->has_known ? t->known : t->tried[best];
    t->samples = 0;
    if (!t->has_known && best == 0) { /* nothing was better than the start values */
        t->phase = TUNER_DONE;
        t->best = t->now = t->options.start;
        return true;
    }
    t->phase = TUNER_CONFIRM;
    t->now = t->best;
    return true;
}

static bool search_take(struct tuner *t, double score)
{
    double x[SEARCH_DIMS_MAX];
    point_of(t, &t->now, x);
    t->tried[t->search.count] = t->now;
    search_add(&t->search, x, score);
    if (t->has_known || ++t->samples > t->options.search_samples)
        return confirm_begin(t);
    t->now = proposal(t);
    return true;
}

static bool is_better(const struct tuner *t)
{
    double sums[2] = {0}, spread = 0;
    int32_t lost = 0;
    for (int32_t i = 0; i < TUNER_ROUNDS; i++) {
        lost += t->rounds[1][i] <= t->rounds[0][i];
        for (int32_t k = 0; k < 2; k++)
            sums[k] += t->rounds[k][i] / TUNER_ROUNDS;
    }
    for (int32_t i = 0; i < TUNER_ROUNDS; i++)
        for (int32_t k = 0; k < 2; k++)
            spread += (t->rounds[k][i] - sums[k]) * (t->rounds[k][i] - sums[k]);
    spread = sqrt(spread / (2 * (TUNER_ROUNDS - 1)));
    return lost <= 1 && sums[1] - sums[0] > spread;
}

static bool confirm_take(struct tuner *t, double score)
{
    int32_t is_best = t->samples % 2 == 0;
    t->rounds[is_best][t->samples / 2] = score;
    if (++t->samples == 2 * TUNER_ROUNDS) {
        t->phase = TUNER_DONE;
        if (!is_better(t))
            t->best = t->options.start;
        t->now = t->best;
    } else {
        t->now = is_best ? t->options.start : t->best;
    }
    return true;
}

bool tuner_take(struct tuner *t, double score)
{
    switch (t->phase) {
    case TUNER_WARMUP:
        if (++t->samples >= t->options.warmup_samples) {
            t->phase = TUNER_SEARCH;
            t->samples = 0;
        }
        return false;
    case TUNER_SEARCH: return search_take(t, score);
    case TUNER_CONFIRM: return confirm_take(t, score);
    case TUNER_DONE: return false;
    }
    return false;
}
