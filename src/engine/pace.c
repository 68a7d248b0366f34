/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - see pace.h. */
#include "engine/pace.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/os.h"

#define LIMIT_SHARE  0.15 /* of the typical value */
#define LIMIT_STEP   0.05 /* of the step */
#define EACH_SHARE   0.07 /* of the typical value: for single samples */
#define EACH_MISSING 1    /* samples that may be below that */
#define PAUSE_FACTOR 1.5  /* of the median: no sample counts for more */

bool pace_init(struct pace *pace, const struct os *os, int32_t size)
{
    *pace = (struct pace){.os = os, .size = size};
    pace->ranks = os_alloc(os, (size_t)size * sizeof *pace->ranks);
    pace->sorted = os_alloc(os, (size_t)size * sizeof *pace->sorted);
    if (pace->ranks != NULL && pace->sorted != NULL)
        return true;
    pace_destroy(pace);
    return false;
}

void pace_destroy(struct pace *pace)
{
    if (pace->os == NULL)
        return;
    os_free(pace->os, pace->ranks);
    os_free(pace->os, pace->sorted);
    *pace = (struct pace){0};
}

const char *pace_cause_name(enum pace_cause cause)
{
    switch (cause) {
    case PACE_FINE: return "none";
    case PACE_LATE_SUBMIT: return "late submit";
    case PACE_LATE_TRANSFER: return "late transfer";
    }
    return "?";
}

/* ---- one rank ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower of the middle two: with two ranks, the faster one. Sorts. */
static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[(count - 1) / 2];
}

static double value_at(const struct pace_series *s, uint64_t number)
{
    return s->values[number % PACE_HISTORY];
}

/* A longer pause counts as this. A series that is mostly zero has no pauses. */
static double ceiling(const struct pace_series *s, uint64_t count)
{
    double window[PACE_WINDOW];
    for (uint64_t i = 0; i < PACE_WINDOW; i++)
        window[i] = value_at(s, count - 1 - i);
    double middle = median(window, PACE_WINDOW);
    return middle > 0 ? PAUSE_FACTOR * middle : INFINITY;
}

static void measure(struct pace_series *s, uint64_t count)
{
    uint64_t known = count < PACE_HISTORY ? count : PACE_HISTORY;
    double sum = 0, squares = 0, top = ceiling(s, count);
    for (uint64_t i = 0; i < PACE_WINDOW; i++)
        sum += fmin(value_at(s, count - 1 - i), top);
    for (uint64_t i = 1; i < known; i++) {
        double step = fmin(value_at(s, count - i), top) - fmin(value_at(s, count - 1 - i), top);
        squares += step * step;
    }
    s->mean = sum / PACE_WINDOW;
    s->variance = squares / (2.0 * (double)(known - 1));
}

static void put(struct pace_series *s, uint64_t count, double value)
{
    s->values[(count - 1) % PACE_HISTORY] = value;
    if (count >= PACE_WINDOW)
        measure(s, count);
}

void pace_take(struct pace *pace, int32_t rank, const struct pace_sample *sample)
{
    struct pace_rank *r = &pace->ranks[rank];
    int32_t other = sample->awaits_rank;
    r->count++;
    put(&r->step, r->count, sample->step_ns);
    put(&r->alone, r->count, sample->alone_ns);
    put(&r->awaited, r->count, r->awaited_sum / (pace->size > 1 ? pace->size - 1 : 1));
    r->awaited_sum = 0;
    if (other >= 0 && other < pace->size && other != rank)
        pace->ranks[other].awaited_sum += sample->awaits_ns;
}

/* ---- all ranks ---- */

struct typical { /* of all ranks, for one series */
    double value;
    double error; /* standard error of a rank's difference from it */
};

static struct pace_series *series(const struct pace *pace, int32_t rank, size_t offset)
{
    return (struct pace_series *)((char *)&pace->ranks[rank] + offset);
}

static struct typical typical_of(const struct pace *pace, size_t offset)
{
    double noise = 0;
    for (int32_t i = 0; i < pace->size; i++) {
        pace->sorted[i] = series(pace, i, offset)->mean;
        noise += series(pace, i, offset)->variance / pace->size;
    }
    return (struct typical){.value = median(pace->sorted, (size_t)pace->size),
                            .error = sqrt(2 * noise / PACE_WINDOW)};
}

static bool is_steady(const struct pace_series *s, uint64_t count, double above)
{
    int32_t missing = 0;
    for (uint64_t i = 0; i < PACE_WINDOW; i++)
        missing += value_at(s, count - 1 - i) <= above;
    return missing <= EACH_MISSING;
}

/* Is the rank beyond the limit, by a share of `scale`? One that is named stays so until it is below
 * half of the limit. */
static bool is_beyond(const struct pace_rank *r, const struct pace_series *s,
                      const struct typical *typical, double scale, double step)
{
    double limit = fmax(fmax(LIMIT_SHARE * scale, LIMIT_STEP * step), PACE_SIGMAS * typical->error);
    double excess = s->mean - typical->value;
    if (r->told != PACE_FINE)
        return excess > limit / 2;
    return excess > limit && is_steady(s, r->count, typical->value + EACH_SHARE * scale);
}

static bool has_all(const struct pace *pace)
{
    for (int32_t i = 0; i < pace->size; i++)
        if (pace->ranks[i].count < PACE_WINDOW)
            return false;
    return pace->size > 1;
}

void pace_judge(struct pace *pace, void (*tell)(void *ctx, const struct pace_verdict *verdict),
                void *ctx)
{
    if (!has_all(pace))
        return;
    double step = typical_of(pace, offsetof(struct pace_rank, step)).value;
    struct typical alone = typical_of(pace, offsetof(struct pace_rank, alone));
    struct typical awaited = typical_of(pace, offsetof(struct pace_rank, awaited));
    for (int32_t i = 0; i < pace->size; i++) {
        struct pace_rank *r = &pace->ranks[i];
        bool is_alone = is_beyond(r, &r->alone, &alone, alone.value, step);
        bool is_awaited = !is_alone && is_beyond(r, &r->awaited, &awaited, step, step);
        enum pace_cause cause = is_alone     ? PACE_LATE_SUBMIT
                                : is_awaited ? PACE_LATE_TRANSFER
                                             : PACE_FINE;
        if ((cause == PACE_FINE) == (r->told == PACE_FINE))
            continue;
        r->told = cause;
        tell(ctx, &(struct pace_verdict){.rank = i,
                                         .cause = cause,
                                         .own_ns = is_awaited ? r->awaited.mean : r->alone.mean,
                                         .typical_ns = is_awaited ? awaited.value : alone.value,
                                         .step_ns = step});
    }
}
