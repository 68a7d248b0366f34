/* SPDX-License-Identifier: Apache-2.0 */
/* look.h - the verdict on a hang, printed once: which op waits, where the ranks that wait for it
 * stand, and what the missing ones are doing instead.
 *
 * A rank reports a stall through its agent (CAUSE_STALL to CAUSE_LOOK, wire/cause.h). The launcher
 * then asks the agents what the ranks are doing (MESSAGE_LOOK; inspect.h), and prints when all have
 * answered or a time limit has passed. Several ranks may report the same stall: the first counts.
 * Thread: the launcher's loop.  Owner: struct job.  Start reading at look_cause(). */
#ifndef HVD_LAUNCHER_LOOK_H
#define HVD_LAUNCHER_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct cause;
struct host_run;
struct job;
struct rank_run;
struct reader;

void look_cause(struct job *job, const struct cause *cause); /* CAUSE_STALL to CAUSE_LOOK */
void look_answer(struct job *job, const struct host_run *run, struct reader *r);
void look_tick(struct job *job, int64_t now_ns); /* INT64_MAX: prints what is known by now */
int64_t look_next_ns(const struct job *job);     /* INT64_MAX: nothing is waited for */
void look_destroy(struct job *job);

/* Ranks of a static or an elastic job, also for status.c: how many, and which worker each is. */
int32_t look_size(const struct job *job);
bool look_seat(const struct job *job, int32_t rank, struct host_run **ret_run, uint32_t *ret_index);
const struct rank_run *look_end(const struct job *job, int32_t rank); /* NULL: it has not ended */

#endif
