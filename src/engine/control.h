/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - the control messages of an engine, to and from its transports.
 *
 * Thread: token holder.  Start reading at control_send(). */
#ifndef HVD_ENGINE_CONTROL_H
#define HVD_ENGINE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

void control_send(struct engine *engine, int32_t world_rank, const void *bytes, size_t n);
void control_drain(struct engine *engine); /* sends messages that did not fit before */
/* Handles messages from the transports; true if there were any. Sets may be broken afterwards. */
bool control_listen(struct engine *engine);
void control_replay(struct engine *engine); /* a set was opened: handles messages kept for it */
void control_destroy(struct engine *engine);

#endif
