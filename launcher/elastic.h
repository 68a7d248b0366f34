/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.h - jobs whose workers come and go (--min-np, --max-np, --host-discovery-script, ...).
 *
 * policy.h decides; this carries it out with the fleet's agents and the store, and tells it what
 * they report. supervise.c's loop drives both.
 * Thread: the launcher's loop.  Owner: struct job.  Start reading at elastic_turn(). */
#ifndef HVD_LAUNCHER_ELASTIC_H
#define HVD_LAUNCHER_ELASTIC_H

#include "job.h"
#include "wire/cause.h"

hvd_status_t elastic_check(const struct args *args, struct error *error);
int elastic_run(struct job *job); /* the exit code */

/* ---- for supervise.c ---- */
void elastic_start(struct job *job);
void elastic_turn(struct job *job, int64_t now_ns);
int64_t elastic_next_ns(const struct job *job);
void elastic_read_discovery(struct job *job);
bool elastic_reaped(struct job *job, pid_t pid, int code); /* false: an agent's process, not ours */
void elastic_report(struct job *job);

/* ---- for fleet.c: what agents report of workers, by their number there ---- */
/* Its entry in job->output; -1: unknown. */
int32_t elastic_find(const struct job *job, const struct host_run *run, uint32_t index);
void elastic_ended(struct job *job, const struct host_run *run, uint32_t index,
                   const struct rank_run *end);
void elastic_unstarted(struct job *job, const struct host_run *run, uint32_t index,
                       const char *why);
void elastic_cause(struct job *job, const struct host_run *run, const struct cause *cause);
int32_t elastic_size(const struct job *job); /* ranks of the generation that stands */
/* The worker that has this rank; false: none. */
bool elastic_seat(const struct job *job, int32_t rank, struct host_run **ret_run,
                  uint32_t *ret_index);

#endif
