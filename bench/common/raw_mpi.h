/* SPDX-License-Identifier: Apache-2.0 */
/* raw_mpi.h - the MPI backend driven by hand, on the MPI library that is in the process: packing,
 * windows and MPI's non-blocking collectives without API, engine, negotiation or threads.
 *
 * Thread: one per rank.  Owner: the program.  Start reading at raw_mpi_allreduce(). */
#ifndef HVD_BENCH_RAW_MPI_H
#define HVD_BENCH_RAW_MPI_H

#include "backend/mpi/mpi_backend.h"

struct raw_mpi {
    struct mpi_lib *lib;
    mpi_handle_t comm;
    struct mpi_ops ops;
    struct mpi_coll *coll;
};

bool raw_mpi_open(struct raw_mpi *raw, int32_t rank, int32_t size); /* false: told on stderr */
void raw_mpi_close(struct raw_mpi *raw);                            /* before MPI is finalized */
bool raw_mpi_allreduce(struct raw_mpi *raw, float *data, uint64_t count); /* sum, in place */

#endif
