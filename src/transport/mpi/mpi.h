/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - ranks of an MPI job: messages and bulk over MPI's own point-to-point calls.
 *
 * MPI brings what the cluster has (InfiniBand, Omni-Path, Slingshot, shared memory) and its
 * launcher has connected the ranks already, so there is nothing to dial and nothing to
 * authenticate. What MPI lacks is made here: a limit on unread messages, heartbeats (MPI does not
 * tell that a peer has died), words of goodbye, and withdrawing a transfer.
 *
 * MPI has no descriptor to sleep on: poll_ns() of the table tells how soon to look again.
 *
 * Thread: token holder; MPI's level decides who may be that.  Start reading at mpi_create(), then
 * mpi_message.c and mpi_bulk.c. */
#ifndef HVD_TRANSPORT_MPI_H
#define HVD_TRANSPORT_MPI_H

#include "transport/mpi/mpi_lib.h"
#include "transport/transport.h"

struct mpi; /* starts with struct transport */

/* Step 1. `comm` is a communicator of ours alone (mpi_lib_comm_own()), whose ranks are the world's.
 * It is freed with the transport, also if this fails. */
hvd_status_t mpi_create(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                        int32_t rank, int32_t size, struct mpi **ret, struct error *error);
/* Step 2: serves every rank r for which wanted[r] is true. */
void mpi_connect(struct mpi *mpi, const bool *wanted, const struct transport_events *events);
struct transport *mpi_transport(struct mpi *mpi);
/* Did a peer go without goodbye? Then MPI can't be finalized: it would wait for that peer. */
bool mpi_has_lost(const struct mpi *mpi);

#endif
