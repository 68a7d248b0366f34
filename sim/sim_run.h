/* SPDX-License-Identifier: Apache-2.0 */
/* sim_run.h - runs a program in a simulated world and checks what every rank saw.
 *
 * Checked: every ticket of a living rank completes, and the run with it, within a bounded virtual
 * time after the last event; all ranks on which a call completed agree on the outcome; a result
 * without error equals the reference bit by bit; errors have the class that fits the fault and name
 * the rank; memory of a completed op is no longer written; nothing is left allocated; each callback
 * is called once; all members of a set change their tunables after the same batch, to the same
 * values, in order. A call that a fault of the job interrupts may succeed on some ranks and fail
 * with that fault on others: those are counted as splits.
 *
 * Thread: one.  Start reading at sim_run() in sim_run.c. */
#ifndef HVD_SIM_RUN_H
#define HVD_SIM_RUN_H

#include "sim_program.h"

struct sim_report {
    bool is_ok;
    char text[768]; /* what was violated */
    uint64_t hash;  /* of everything that happened: equal seeds give equal hashes */
    int64_t end_ns; /* virtual */
    uint64_t turns; /* engine_progress() calls */
    uint64_t messages, calls_ended, calls_failed, splits;
    uint64_t batches, batches_planned, plan_starts, plan_breaks;
    uint64_t tunings, tuned_alike; /* requested; seen by a rank as an earlier one has seen it */
    int32_t ranks;
    bool is_in_sight;
};

/* true: nothing was violated; `ret` is filled in any case. */
bool sim_run(const struct os *os, const struct sim_program *program, struct sim_report *ret);
bool sim_run_seed(const struct os *os, const struct sim_program_options *options,
                  struct sim_report *ret);

#endif
