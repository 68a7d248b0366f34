/* SPDX-License-Identifier: Apache-2.0 */
/* survey.h - what all ranks of the job are doing, asked at once: for horovodrun --status (status.c)
 * and the dashboard (dashboard.c).
 *
 * Agents are asked as for a stall (MESSAGE_LOOK), and they ask the ranks (wire/ask.h). The launcher
 * never waits for them: a survey ends when all have answered, or after SURVEY_WAIT_NS. One survey
 * serves everybody who waits for it. Its answers stay until the next one begins.
 * Thread: the launcher's loop.  Owner: struct job.  Start reading at survey_want(). */
#ifndef HVD_LAUNCHER_SURVEY_H
#define HVD_LAUNCHER_SURVEY_H

#include <stdbool.h>
#include <stdint.h>

#include "mem.h"
#include "wire/ask.h"

#define SURVEY_ASKED   0x80000000u        /* marks the number of our questions to agents */
#define SURVEY_WAIT_NS (3 * 1000000000LL) /* for the agents */

struct host_run;
struct job;
struct reader;

struct survey_rank {
    bool has_answered, has_status;
    int32_t pid;
    char *state, *where, *inner, *inside;
    bool is_inside;
    struct ask_status status;
};

struct survey {
    uint32_t number;
    bool is_running, has_stacks;
    bool is_ready; /* it has ended in this round of the loop */
    int64_t until_ns;
    struct mem mem;
    int32_t count;
    struct survey_rank *ranks;
    int32_t *waiting; /* by rank: how many others have waited for it for a second or more */
    /* of the survey before: the counters, for rates */
    int64_t at_ns, before_ns;
    int32_t before_count;
    struct ask_status *before;
};

/* Begins one if none is running. With stacks: Python lines too, which costs each rank a signal. */
void survey_want(struct job *job, bool wants_stacks, int64_t now_ns);
void survey_tick(struct job *job, int64_t now_ns); /* once per round, before those who wait */
int64_t survey_next_ns(const struct job *job);     /* INT64_MAX: nothing is waited for */
/* LOOKED. False: not an answer to a question of ours, and nothing was read. */
bool survey_answer(struct job *job, const struct host_run *run, struct reader *r);
void survey_destroy(struct job *job);

/* What the rank reported in the survey before, and how long ago; NULL: nothing, or it has begun
 * anew since. */
const struct ask_status *survey_before(const struct survey *s, int32_t rank, double *ret_seconds);
/* The ranks that its op waits for, "1,3": only the coordinator may know them. */
const char *survey_missing(const struct survey *s, const struct ask_status *status);

#endif
