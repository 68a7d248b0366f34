/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - host memory that replaces tensors that the processor cannot access: inputs are
 * copied to it, the collective runs on it, results are copied from it.
 *
 * Copies are started and polled, never waited for. While they are running, the ops of the batch
 * are lent (op.is_lent) and must not be completed.
 *
 * Thread: token holder.  Owner: struct run.  Start reading at stage_in(). */
#ifndef HVD_ENGINE_STAGE_H
#define HVD_ENGINE_STAGE_H

#include <stdbool.h>

#include "base/status.h"

struct op;
struct procset;
struct run;

/* Does the batch that is laid out in `run` have a tensor that must be copied? */
bool stage_is_needed(const struct run *run);
/* Places the parts in the stage and starts to copy the inputs to it. Errors of all functions here
 * affect this rank only. */
hvd_status_t stage_in(struct procset *set, struct run *run, struct error *error);
/* Places the part of an alltoall, after the size of its result is known. */
hvd_status_t stage_rows(struct procset *set, struct run *run, struct error *error);
hvd_status_t stage_out(struct procset *set, struct run *run, struct error *error); /* results */
/* HVD_OK: all copies have finished; HVD_IN_PROGRESS; or an error, after which none is running. */
hvd_status_t stage_poll(struct run *run, struct error *error);
struct op *stage_op(const struct run *run, int32_t i); /* of part i, while lent; NULL: joined */
void stage_destroy(struct procset *set, struct run *run);

#endif
