/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - how a change of the tunables reaches all members of a set at the same point.
 *
 * Thread: token holder.  Start reading at tune_ask(). */
#ifndef HVD_ENGINE_TUNE_H
#define HVD_ENGINE_TUNE_H

#include "base/codec.h"
#include "base/status.h"
#include "engine/tunables.h"

struct batch;
struct config;
struct procset;

struct tunables tune_configured(const struct config *config); /* version 0 */
hvd_status_t tune_check(const struct tunables *tunables, struct error *error);
/* Root: requests a change of the set; replaces an earlier request that has not been sent yet. */
void tune_ask(struct procset *set, const struct tunables *tunables);
/* Root: puts the change into the response, or leaves the plan first. */
void tune_flush(struct procset *set);
/* Member: the item of a response. It waits in order among the batches. */
hvd_status_t tune_item(struct procset *set, struct reader *r, struct error *error);
void tune_take_effect(struct procset *set, const struct batch *batch);

#endif
