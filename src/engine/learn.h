/* SPDX-License-Identifier: Apache-2.0 */
/* learn.h - recognises training steps that repeat.
 *
 * Thread: token holder of the set's lowest rank.  Start reading at learn_batch(). */
#ifndef HVD_ENGINE_LEARN_H
#define HVD_ENGINE_LEARN_H

#include <stdbool.h>
#include <stdint.h>

struct procset;

void learn_batch(struct procset *set, const uint32_t *ids, int32_t count); /* was sent out */
/* A step has just repeated often enough and the next begins: puts a plan into the response. */
bool learn_plan(struct procset *set);
/* What was learned is void: batches are formed differently from here on. */
void learn_restart(struct procset *set);

#endif
