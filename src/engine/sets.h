/* SPDX-License-Identifier: Apache-2.0 */
/* sets.h - the table of process sets of an engine: which exist, adding and removing them by
 * agreement.
 *
 * Thread: token holder.  Ids are given in order of registration; freed ones are used again, first
 * in first out; every add has a new incarnation. Equal on all ranks because changes are batches of
 * the global set. */
#ifndef HVD_ENGINE_SETS_H
#define HVD_ENGINE_SETS_H

#include "engine/engine.h"

void sets_added(struct engine *engine, const struct batch *batch);
void sets_removed(struct engine *engine, int32_t id);
void sets_destroy(struct engine *engine);
/* Sorted, no duplicate, all within the world? The text names the offender in the contract's words.
 */
hvd_status_t sets_check(const struct engine *engine, const int32_t *ranks, int32_t count,
                        struct error *error);
int32_t sets_find(const struct engine *engine, const int32_t *ranks, int32_t count); /* id or -1 */

#endif
