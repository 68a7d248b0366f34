/* SPDX-License-Identifier: Apache-2.0 */
/* complete.h - the last step of an op: its status goes into its ticket. The functions that return
 * completed tickets are in engine.h.
 *
 * Thread: token holder. */
#ifndef HVD_ENGINE_COMPLETE_H
#define HVD_ENGINE_COMPLETE_H

#include "base/status.h"

struct engine;
struct op;
struct procset;

void complete_op(struct engine *engine, struct op *op, hvd_status_t status, const char *text);
/* All of them, except those whose memory is still being copied: stage.c completes these. */
void complete_pending(struct procset *set, hvd_status_t status, const char *text);

#endif
