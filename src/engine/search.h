/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - where to look next for the highest score: Bayesian optimisation in a unit cube.
 *
 * A Gaussian process with a rational-quadratic kernel is fitted to the scores known so far, which
 * are normalised; of a fixed set of candidates, the one with the highest upper confidence bound is
 * next. Pure and deterministic: the same scores lead to the same points.
 *
 * Thread: the owner's.  Start reading at search_next(). */
#ifndef HVD_ENGINE_SEARCH_H
#define HVD_ENGINE_SEARCH_H

#include <stdint.h>

#define SEARCH_DIMS_MAX   4
#define SEARCH_POINTS_MAX 64

struct search_point {
    double x[SEARCH_DIMS_MAX]; /* each from 0 to 1 */
    double score;
};

struct search {
    int32_t dims, count;
    double noise; /* standard deviation of a score, after normalisation */
    struct search_point points[SEARCH_POINTS_MAX];
    double factor[SEARCH_POINTS_MAX][SEARCH_POINTS_MAX]; /* Cholesky factor of the covariance */
    double weights[SEARCH_POINTS_MAX];
};

void search_init(struct search *search, int32_t dims, double noise);
/* Beyond SEARCH_POINTS_MAX points the rest is ignored. */
void search_add(struct search *search, const double x[SEARCH_DIMS_MAX], double score);
void search_next(struct search *search, double ret_x[SEARCH_DIMS_MAX]);
int32_t search_best(const struct search *search); /* its index; -1: none */

#endif
