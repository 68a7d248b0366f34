/* SPDX-License-Identifier: Apache-2.0 */
/* meter.h - what a rank measures about itself at all times: ops, bytes, waits, steps, its time
 * alone; and the reports from which rank 0 names slow ranks.
 *
 * A step ends when a name of the global set runs again that has already run in it; batches run in
 * the same order on all ranks, so their steps are the same. The time alone is the time without an
 * op pending: the caller computes or loads data.
 *
 * Every METER_REPORT_NS at most, at the end of a step, a rank sends the averages of its steps since
 * the last report to rank 0, which compares all ranks (pace.h) and logs which one is slow.
 *
 * Cost: a few additions per op, one reading of the clock whenever nothing is pending any more.
 * Thread: token holder.  Owner: struct engine.  Blocks: never.  Start reading at meter_batch(). */
#ifndef HVD_ENGINE_METER_H
#define HVD_ENGINE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/pace.h"
#include "horovod/hvd.h"

#define METER_REPORT_NS 100000000LL
#define METER_AWAIT_NS  1000000LL /* between looks at which ranks a batch waits for */

struct engine;
struct entry;
struct op;
struct procset;
struct reader;
struct run;

struct meter_sums { /* since init; differences of two are averaged */
    uint64_t steps;
    int64_t step_ns, alone_ns;
};

struct meter {
    uint64_t ops[HVD_KIND_COUNT], bytes[HVD_KIND_COUNT];
    int64_t wait_ns, run_ns; /* sums over ops: submit to start, start to completion */
    int32_t pending;
    int64_t quiet_ns; /* since when nothing is pending; 0: nothing was submitted yet */
    uint64_t step;    /* number of the current one, from 1 on */
    int64_t step_begin_ns;
    int64_t last_step_ns, last_alone_ns; /* of the last complete step */
    int64_t alone_at_begin_ns;
    struct meter_sums sums, reported;
    int64_t reported_ns; /* when */
    int64_t looked_ns;   /* at the ranks that a batch waits for */
    int64_t *awaits_ns;  /* by world rank: how long this rank has waited for its data */
    int64_t *awaits_reported_ns;
    struct pace pace; /* rank 0 */
};

bool meter_init(struct engine *engine); /* false: no memory */
void meter_destroy(struct engine *engine);

/* The engine has seen a submitted op; it has completed, or failed. */
void meter_submitted(struct engine *engine, const struct op *op);
void meter_completed(struct engine *engine);
/* A batch begins; one of its ops has run; it waits for data of other ranks. */
void meter_batch(struct procset *set, const struct run *run);
void meter_ran(struct engine *engine, struct entry *entry, const struct op *op,
               const struct run *run);
void meter_waiting(struct procset *set);
/* A report of another rank; false: malformed. */
bool meter_message(struct engine *engine, int32_t peer, struct reader *r);

#endif
