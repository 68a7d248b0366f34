/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h - runs the batches of a set, in the agreed order.
 *
 * Thread: token holder.  Blocks: never.  Start reading at execute_progress(). */
#ifndef HVD_ENGINE_EXECUTE_H
#define HVD_ENGINE_EXECUTE_H

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct procset;

bool execute_progress(struct procset *set); /* runs the set's batches; true if anything happened */
/* May a batch whose first id is this one start now? */
bool execute_has_room(struct procset *set, uint32_t first_id);
void execute_begin(struct procset *set, const struct batch *batch, bool is_planned);
/* true: a batch has advanced, so that something else may be possible now. */
bool execute_step(struct procset *set, bool *ret_moved);
bool execute_is_active(const struct procset *set);  /* a batch is in execution */
bool execute_is_copying(const struct procset *set); /* from or to memory of another kind */
void execute_cancel(struct procset *set); /* of a plan: ops that have not moved are pending again */
void execute_abort(struct procset *set);  /* before its ops fail */

#endif
