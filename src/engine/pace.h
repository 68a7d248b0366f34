/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h - which rank holds the others up, and why: decides from what all ranks report about their
 * steps.
 *
 * A rank's time alone is the part of a step in which it has no op pending: it computes, or loads
 * data. A rank whose time alone exceeds that of the others submits late. A rank that the others
 * await while data moves, although its time alone is like theirs, transfers late.
 *
 * Decision: the mean of a rank's last samples exceeds the median of all ranks' means by 15 %, by 5
 * % of the step and by PACE_SIGMAS standard errors, and nearly every single sample exceeds it by 7
 * %. The noise is that of successive differences, so a rank that slows down does not hide itself;
 * samples beyond 1.5 times the rank's median count as that, so a pause does not name a rank.
 * A rank is named once, and again only after its excess has fallen below half of the limit.
 *
 * Pure: samples in, verdicts out; no clock, no messages.  Owner: meter.c.  Start reading at
 * pace_judge(). */
#ifndef HVD_ENGINE_PACE_H
#define HVD_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct os;

#define PACE_WINDOW  9  /* samples that a verdict needs */
#define PACE_HISTORY 36 /* samples that the noise is measured with */
#define PACE_SIGMAS  5.5

enum pace_cause { PACE_FINE, PACE_LATE_SUBMIT, PACE_LATE_TRANSFER };

struct pace_sample {     /* averages of one rank over some steps */
    double step_ns;      /* from step to step */
    double alone_ns;     /* of that, without an op pending */
    double awaits_ns;    /* of that, waiting for data of ... */
    int32_t awaits_rank; /* ... this rank; -1: none */
};

struct pace_series {
    double values[PACE_HISTORY]; /* ring */
    double mean, variance;       /* of the window; of single samples */
};

struct pace_rank {
    uint64_t count; /* samples so far */
    struct pace_series step, alone, awaited;
    double awaited_sum; /* reported by others since this rank's last sample */
    enum pace_cause told;
};

struct pace {
    const struct os *os;
    int32_t size;
    struct pace_rank *ranks;
    double *sorted; /* by rank: means */
};

struct pace_verdict {
    int32_t rank;
    enum pace_cause cause;     /* PACE_FINE: it has caught up */
    double own_ns, typical_ns; /* per step: its value and the median of all ranks */
    double step_ns;
};

bool pace_init(struct pace *pace, const struct os *os, int32_t size); /* false: no memory */
void pace_destroy(struct pace *pace);
void pace_take(struct pace *pace, int32_t rank, const struct pace_sample *sample);
/* Compares all ranks, about as often as one of them reports; calls `tell` for each rank of which
 * there is something new to say. */
void pace_judge(struct pace *pace, void (*tell)(void *ctx, const struct pace_verdict *verdict),
                void *ctx);
const char *pace_cause_name(enum pace_cause cause); /* "late submit" */

#endif
