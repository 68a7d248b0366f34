/* SPDX-License-Identifier: Apache-2.0 */
/* sim_backend.h - a backend for ranks in one process that share memory, in virtual time.
 *
 * Replaces the native backend's half for one machine, with the same contract as seen from the
 * engine: starting publishes a rank's part, no output changes before every member of the group has
 * started, then all outputs are written at once. It is stricter than the real one can be: it
 * records a violation when members start different collectives, when a collective that has run is
 * cancelled, and when a rank starts again with a number that was used before.
 *
 * Thread: one.  Owner: struct sim_world.  Start reading at start() in sim_backend.c. */
#ifndef HVD_SIM_BACKEND_H
#define HVD_SIM_BACKEND_H

#include "backend/backend.h"

struct sim_board; /* shared by all ranks: what was published */

struct sim_board_events {
    void *ctx;
    void (*wake)(void *ctx, int32_t rank); /* a collective of this rank has taken place */
};

struct sim_board *sim_board_create(const struct os *os, const struct sim_board_events *events);
void sim_board_destroy(struct sim_board *board); /* after all backends; NULL is fine */
const char *sim_board_violation(const struct sim_board *board); /* NULL: none */

hvd_status_t sim_backend_create(const struct os *os, struct sim_board *board, int32_t rank,
                                struct backend **ret, struct error *error);

#endif
