/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - see stats.h. */
#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESAMPLES 1000

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_quantile(const double *sorted, size_t count, double q)
{
    double at = q * (double)(count - 1);
    size_t below = (size_t)at;
    size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

double stats_quantile(const double *samples, size_t count, double q)
{
    double sorted[STATS_SAMPLES_MAX];
    if (count == 0)
        return 0.0;
    memcpy(sorted, samples, count * sizeof *samples);
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted_quantile(sorted, count, q);
}

uint32_t stats_random(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static struct stats_interval interval_of(const double *samples, size_t count)
{
    double medians[RESAMPLES], drawn[STATS_SAMPLES_MAX];
    uint32_t state = 2463534242u;
    for (size_t k = 0; k < RESAMPLES; k++) {
        for (size_t i = 0; i < count; i++)
            drawn[i] = samples[stats_random(&state) % count];
        medians[k] = stats_quantile(drawn, count, 0.5);
    }
    qsort(medians, RESAMPLES, sizeof *medians, compare);
    return (struct stats_interval){.median = stats_quantile(samples, count, 0.5),
                                   .low = sorted_quantile(medians, RESAMPLES, 0.025),
                                   .high = sorted_quantile(medians, RESAMPLES, 0.975)};
}

struct stats_interval stats_ratio(const double *theirs, const double *ours, size_t count)
{
    double ratios[STATS_SAMPLES_MAX];
    for (size_t i = 0; i < count; i++)
        ratios[i] = theirs[i] / ours[i];
    return interval_of(ratios, count);
}

struct stats_interval stats_difference(const double *a, const double *b, size_t count)
{
    double differences[STATS_SAMPLES_MAX];
    for (size_t i = 0; i < count; i++)
        differences[i] = a[i] - b[i];
    return interval_of(differences, count);
}

double stats_load(void)
{
    double load = -1.0;
    FILE *file = fopen("/proc/loadavg", "r");
    if (file == NULL)
        return load;
    if (fscanf(file, "%lf", &load) != 1)
        load = -1.0;
    fclose(file);
    return load;
}

double stats_steal_s(void)
{
    long ticks[8] = {0};
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL)
        return 0.0;
    int got = fscanf(file, "cpu %ld %ld %ld %ld %ld %ld %ld %ld", &ticks[0], &ticks[1], &ticks[2],
                     &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
    fclose(file);
    return got == 8 ? (double)ticks[7] / (double)sysconf(_SC_CLK_TCK) : 0.0;
}
