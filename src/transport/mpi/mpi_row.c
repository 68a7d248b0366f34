/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_row.c - MPI as a row of transport_table. MPI's launcher has connected the ranks, so it offers
 * no address; it is open on all ranks of a job that met through MPI, and on none of any other.
 *
 * Thread: the one inside hvd_init().  Start reading at mpi_row. */
#include <stdio.h>

#include "transport/mpi/mpi_internal.h"

#define SCORE 50 /* MPI knows the cluster's network; within a machine shared memory is better */

static bool mpi_probe(const struct transport_place *place, char *ret_why)
{
    if (place->mpi != NULL)
        return true;
    if (place->rank < 0 && mpi_lib_probe(place->os, place->config->mpi_library, NULL, 0))
        return true;
    snprintf(ret_why, WHY_MAX, "%s",
             place->rank < 0
                 ? "No MPI library was found. Install one, or set HOROVOD_MPI_LIBRARY to its file."
                 : "The ranks of this job did not meet by way of MPI.");
    return false;
}

static hvd_status_t mpi_row_open(const struct transport_place *place, struct endpoint *self,
                                 struct transport **ret, struct error *error)
{
    struct mpi *mpi = NULL;
    hvd_status_t status = endpoint_offer(self, mpi_row.name, NULL, 0, error);
    if (status == HVD_OK)
        status =
            mpi_create(place->os, place->config, place->mpi, place->rank, place->size, &mpi, error);
    if (status == HVD_OK)
        *ret = &mpi->transport;
    return status;
}

static bool mpi_is_offer(const uint8_t *bytes, size_t n)
{
    (void)bytes;
    return n == 0;
}

static int32_t mpi_score(const struct endpoint *a, const struct endpoint *b)
{
    (void)a, (void)b;
    return SCORE;
}

static hvd_status_t mpi_row_connect(struct transport *t, const struct transport_meeting *m,
                                    const bool *wanted, struct error *error)
{
    return mpi_connect((struct mpi *)t, wanted, m->events, error);
}

const struct transport_row mpi_row = {
    .name = "mpi",
    .is_collective = true,
    .probe = mpi_probe,
    .is_enough = transports_always,
    .open = mpi_row_open,
    .is_offer = mpi_is_offer,
    .score = mpi_score,
    .connect = mpi_row_connect,
};
