/* SPDX-License-Identifier: Apache-2.0 */
/* autotune.h - HOROVOD_AUTOTUNE: rank 0 scores the steps of the job, lets tuner.h choose the next
 * tunables, and has all ranks change to them (tune.h).
 *
 * A score is what was allreduced per microsecond, over `steps per sample` steps; the median of
 * AUTOTUNE_SCORES of them is a sample. After a change, as many steps are not scored: the plan has
 * to be learned again. When the tuner is done, the job stays at its values and nothing is left to
 * do.
 *
 * Thread: token holder of rank 0.  Owner: struct engine.  Blocks: never.  Start reading at
 * autotune_step(). */
#ifndef HVD_ENGINE_AUTOTUNE_H
#define HVD_ENGINE_AUTOTUNE_H

#include <stdbool.h>

#define AUTOTUNE_SCORES 5

struct autotune;
struct engine;

bool autotune_init(struct engine *engine); /* false: no memory */
void autotune_destroy(struct engine *engine);
void autotune_step(struct engine *engine); /* a step has ended */

#endif
