/* SPDX-License-Identifier: Apache-2.0 */
/* sets.h - the table of process sets of an engine: which exist, adding and removing them by
 * agreement. Opening the first ones and querying them is in engine.h.
 *
 * Thread: token holder.  Ids are assigned in order of registration; freed ones are reused, first in
 * first out; every add has a new incarnation. Equal on all ranks because changes are batches of the
 * global set. */
#ifndef HVD_ENGINE_SETS_H
#define HVD_ENGINE_SETS_H

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct engine;

/* The number of the next set. */
int32_t sets_next_id(const struct engine *engine);
void sets_added(struct engine *engine, const struct batch *batch);
void sets_removed(struct engine *engine, int32_t id);
void sets_closed(struct engine *engine, const struct batch *batch);
/* Under the submit lock: this rank holds the set once less. false: it has not opened it. */
bool sets_hold_drop(struct engine *engine, int32_t id, uint32_t *ret_incarnation);
void sets_sweep(struct engine *engine); /* frees removed sets that are no longer in use */
void sets_destroy(struct engine *engine);

#endif
