/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - see search.h. */
#include "engine/search.h"

#include <math.h>
#include <string.h>

#define LENGTH      0.3 /* over which scores resemble each other */
#define EXPLORE     1.0 /* deviations by which an unknown point may be better than expected */
#define CANDIDATES  512
#define NOISE_FLOOR 1e-3 /* keeps the factorisation stable */

void search_init(struct search *s, int32_t dims, double noise)
{
    memset(s, 0, sizeof *s);
    s->dims = dims;
    s->noise = noise > NOISE_FLOOR ? noise : NOISE_FLOOR;
}

void search_add(struct search *s, const double x[SEARCH_DIMS_MAX], double score)
{
    if (s->count == SEARCH_POINTS_MAX)
        return;
    struct search_point *p = &s->points[s->count++];
    memcpy(p->x, x, sizeof p->x);
    p->score = score;
}

int32_t search_best(const struct search *s)
{
    int32_t best = -1;
    for (int32_t i = 0; i < s->count; i++)
        if (best < 0 || s->points[i].score > s->points[best].score)
            best = i;
    return best;
}

static double kernel(const struct search *s, const double *a, const double *b)
{
    double square = 0;
    for (int32_t i = 0; i < s->dims; i++)
        square += (a[i] - b[i]) * (a[i] - b[i]);
    double near = 1 / (1 + square / (2 * LENGTH * LENGTH));
    return near * near;
}

struct scale {
    double mean, deviation;
};

static struct scale scale_of(const struct search *s)
{
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < s->count; i++)
        sum += s->points[i].score;
    double mean = s->count > 0 ? sum / s->count : 0;
    for (int32_t i = 0; i < s->count; i++)
        squares += (s->points[i].score - mean) * (s->points[i].score - mean);
    double deviation = s->count > 1 ? sqrt(squares / (s->count - 1)) : 0;
    return (struct scale){.mean = mean, .deviation = deviation > 0 ? deviation : 1};
}

static void factorise(struct search *s)
{
    for (int32_t i = 0; i < s->count; i++)
        for (int32_t k = 0; k <= i; k++) {
            double sum = kernel(s, s->points[i].x, s->points[k].x);
            sum += i == k ? s->noise * s->noise : 0;
            for (int32_t j = 0; j < k; j++)
                sum -= s->factor[i][j] * s->factor[k][j];
            s->factor[i][k] =
                i == k ? sqrt(fmax(sum, NOISE_FLOOR * NOISE_FLOOR)) : sum / s->factor[k][k];
        }
}

/* Solves factor * x = b in place. */
static void solve_lower(const struct search *s, double *b)
{
    for (int32_t i = 0; i < s->count; i++) {
        for (int32_t j = 0; j < i; j++)
            b[i] -= s->factor[i][j] * b[j];
        b[i] /= s->factor[i][i];
    }
}

static void fit(struct search *s, const struct scale *scale)
{
    factorise(s);
    for (int32_t i = 0; i < s->count; i++)
        s->weights[i] = (s->points[i].score - scale->mean) / scale->deviation;
    solve_lower(s, s->weights);
    for (int32_t i = s->count - 1; i >= 0; i--) {
        for (int32_t j = i + 1; j < s->count; j++)
            s->weights[i] -= s->factor[j][i] * s->weights[j];
        s->weights[i] /= s->factor[i][i];
    }
}

/* The score that a point may well have: what is expected, and more where little is known. */
static double promise(const struct search *s, const double *x)
{
    double covariance[SEARCH_POINTS_MAX], mean = 0, known = 0;
    for (int32_t i = 0; i < s->count; i++) {
        covariance[i] = kernel(s, x, s->points[i].x);
        mean += covariance[i] * s->weights[i];
    }
    solve_lower(s, covariance);
    for (int32_t i = 0; i < s->count; i++)
        known += covariance[i] * covariance[i];
    return mean + EXPLORE * sqrt(fmax(1 - known, 0));
}

/* Points that fill the cube evenly: the digits of `number` in a base, mirrored. */
static double halton(int32_t number, int32_t base)
{
    double value = 0, part = 1;
    for (; number > 0; number /= base) {
        part /= base;
        value += part * (number % base);
    }
    return value;
}

void search_next(struct search *s, double ret_x[SEARCH_DIMS_MAX])
{
    static const int32_t bases[SEARCH_DIMS_MAX] = {2, 3, 5, 7};
    struct scale scale = scale_of(s);
    double most = -INFINITY;
    fit(s, &scale);
    for (int32_t i = 1; i <= CANDIDATES; i++) {
        double x[SEARCH_DIMS_MAX] = {0};
        for (int32_t k = 0; k < s->dims; k++)
            x[k] = halton(i, bases[k]);
        double value = promise(s, x);
        if (value <= most)
            continue;
        most = value;
        memcpy(ret_x, x, sizeof x);
    }
}
