/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h - how a world finds its other ranks: member/meeting.h with the store of horovodrun, or
 * with one that rank 0 serves itself (and, if no key was given, handover.h).
 *
 * Thread: the one inside hvd_init(); a store that rank 0 serves has a separate thread.
 * Start reading at meet_run(). */
#ifndef HVD_API_MEET_H
#define HVD_API_MEET_H

#include "api/world.h"
#include "transport/endpoint.h"
#include "wire/key.h"

#define MEET_SCOPE "world"

/* Serves the rendezvous if this rank has to; `self` has the addresses of its transports. */
hvd_status_t meet_serve(struct world *world, const struct endpoint *self, struct error *error);
/* Returns when all ranks are connected, or on failure. Only introduce and connect of `ops` are
 * used; their ctx is the world. `least`: HOROVOD_EPOCH. */
hvd_status_t meet_run(struct world *world, const struct tenure *tenure, uint64_t least,
                      const struct meeting_ops *ops, struct error *error);
/* Does an elastic launcher decide who is in the world? */
bool meet_is_elastic(const struct world *world);
/* Takes epoch and key, and rank and size if the store decides them, from the generation. */
void meet_enter(struct world *world, const struct store_generation *g);

#endif
