/* SPDX-License-Identifier: Apache-2.0 */
/* tuner.h - which tunables to try next, and which to keep: scores in, proposals out.
 *
 *      warm-up    the start values; scores are discarded
 *      search     the start values, values known from an earlier job, four fixed points, then
 * points of search.h confirm    the best and the start values in turn, TUNER_ROUNDS times done the
 * best values if they won every round or all but one, and on average by more than the rounds
 * differ; else the start values
 *
 * So the values that stay are the start values unless others are better beyond the noise. Tunables
 * that the user has set are not varied.
 *
 * Pure.  Owner: autotune.c.  Start reading at tuner_take(). */
#ifndef HVD_ENGINE_TUNER_H
#define HVD_ENGINE_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/search.h"
#include "engine/tunables.h"

#define TUNER_ROUNDS 5

enum tuner_phase { TUNER_WARMUP, TUNER_SEARCH, TUNER_CONFIRM, TUNER_DONE };

struct tuner_options {
    struct tunables start;
    int32_t warmup_samples, search_samples;
    double noise;
    /* Which to vary. */
    bool has_fusion, has_cycle, has_flows, has_threshold;
};

struct tuner {
    struct tuner_options options;
    enum tuner_phase phase;
    struct search search;
    struct tunables tried[SEARCH_POINTS_MAX]; /* by point of the search */
    struct tunables now, best;
    struct tunables known; /* of an earlier job */
    bool has_known;
    int32_t samples;                /* in this phase */
    double rounds[2][TUNER_ROUNDS]; /* scores of the start values, of the best */
};

void tuner_init(struct tuner *tuner, const struct tuner_options *options);
/* During the warm-up: values that were best in an earlier job like this one. They are confirmed
 * without a search. */
void tuner_know(struct tuner *tuner, const struct tunables *known);
/* The score of the values in `now`; true: `now` has changed. */
bool tuner_take(struct tuner *tuner, double score);

#endif
