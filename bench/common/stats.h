/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - what a row of samples says: median, tail, and how sure a median of ratios is.
 * Thread: any; nothing is kept.  Start reading at stats_ratio(). */
#ifndef HVD_BENCH_STATS_H
#define HVD_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

#define STATS_SAMPLES_MAX 512

struct stats_interval { /* a median with its 95 % bootstrap interval */
    double median, low, high;
};

double stats_quantile(const double *samples, size_t count, double q); /* 0.5: median */
/* Of theirs[i] / ours[i]; samples of equal index were taken side by side. */
struct stats_interval stats_ratio(const double *theirs, const double *ours, size_t count);
struct stats_interval stats_difference(const double *a, const double *b, size_t count); /* a - b */
uint32_t stats_random(uint32_t *state); /* same seed, same sequence on every rank */

double stats_load(void);    /* load average of the last minute; -1: unknown */
double stats_steal_s(void); /* seconds that the hypervisor took, all cores, since boot */

#endif
