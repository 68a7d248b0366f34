/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - how well do two hosts reach each other? Used by `horovodrun --doctor` through the
 * agents: one listens on its addresses, another dials them all, proves the key, and measures.
 *
 * Thread: the agent's; the listening side has one thread of its own until probe_destroy().
 * Start reading at probe_dial(). */
#ifndef HVD_LAUNCHER_PROBE_H
#define HVD_LAUNCHER_PROBE_H

#include "message.h"

struct probe_server;

/* SERVE: answers with SERVING and the addresses. */
void probe_serve(struct mem *m, struct link *l, struct reader *request, struct probe_server **ret);
/* DIAL: answers with MEASURED. Blocks for about a second. */
void probe_dial(struct mem *m, struct link *l, struct reader *request);
void probe_destroy(struct probe_server *p);

#endif
