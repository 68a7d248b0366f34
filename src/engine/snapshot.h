/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h - the parts of a snapshot (engine.h) that the metrics contain too.
 *
 * Thread: token holder. */
#ifndef HVD_ENGINE_SNAPSHOT_H
#define HVD_ENGINE_SNAPSHOT_H

struct engine;
struct json;

void snapshot_counters(struct json *json, const struct engine *engine); /* into an open object */
/* What each transport has moved, of all peers: payload and messages. */
void snapshot_transports(struct json *json, const struct engine *engine);

struct op;
struct procset;
/* Also in doing.c. */
const char *snapshot_state(const struct engine *engine);
const char *snapshot_op_state(const struct procset *set, const struct op *op);

#endif
