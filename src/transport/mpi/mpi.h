/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - ranks of an MPI job: messages and bulk over MPI's own point-to-point calls.
 *
 * MPI supports the cluster's networks (InfiniBand, Omni-Path, Slingshot, shared memory) and its
 * launcher has already connected the ranks, so there is nothing to dial and nothing to
 * authenticate. This folder adds what MPI lacks: a limit on unread messages, heartbeats (MPI does
 * not report that a peer has died), goodbye messages, and cancelling a transfer.
 *
 * MPI has no descriptor to sleep on: poll_ns() of the table returns how soon to poll again.
 *
 * Thread: token holder; MPI's thread level limits which thread that may be.  Start reading at
 * mpi_create(), then mpi_message.c and mpi_bulk.c. */
#ifndef HVD_TRANSPORT_MPI_H
#define HVD_TRANSPORT_MPI_H

#include "base/config.h"
#include "transport/mpi/mpi_lib.h"
#include "transport/transports.h"

struct mpi; /* starts with struct transport */

extern const struct transport_row mpi_row; /* mpi_row.c; its offer is empty */

/* Step 1, local. */
hvd_status_t mpi_create(const struct os *os, const struct config *config, const struct mpi_job *job,
                        int32_t rank, int32_t size, struct mpi **ret, struct error *error);
/* Step 2: creates a communicator from the job's and links to every rank r for which wanted[r] is
 * true. All ranks of the job must call it, also those that want no peer. */
hvd_status_t mpi_connect(struct mpi *mpi, const bool *wanted, const struct transport_events *events,
                         struct error *error);
struct transport *mpi_transport(struct mpi *mpi);
/* Did a peer leave without a goodbye? Then MPI can't be finalized: it would wait for that peer. */
bool mpi_has_lost(const struct mpi *mpi);

#endif
