/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - how well do two hosts reach each other? Used by `horovodrun --doctor` through the
 * agents: one listens on all its addresses, another dials each of them, proves the job key, and
 * measures the round trip and the rate on the first that answered.
 *
 * Thread: probe_dial() is the agent's and blocks it for some seconds at the most; the listening
 * side has one thread of its own until probe_destroy().  Start reading at probe_dial(). */
#ifndef HVD_LAUNCHER_PROBE_H
#define HVD_LAUNCHER_PROBE_H

#include "message.h"

struct probe_server;

/* SERVE (key): answers SERVING (text: the addresses, comma separated). */
void probe_serve(struct mem *m, struct link *l, struct reader *request, struct probe_server **ret);
/* DIAL (key, text: addresses): answers MEASURED (text: reachable ones, text: the others, f64 round
 * trip in us, f64 bytes per second, u32 the largest packet from here to there, u32 from there to
 * here; 0: not known). A rate of 0 with an address that was reached: bulk data does not get
 * through. */
void probe_dial(struct mem *m, struct link *l, struct reader *request);
void probe_destroy(struct probe_server *p);

#endif
