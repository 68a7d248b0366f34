/* SPDX-License-Identifier: Apache-2.0 */
/* raw_mpi.c - see raw_mpi.h. */
#include "raw_mpi.h"

#include <stdio.h>

bool raw_mpi_open(struct raw_mpi *raw, int32_t rank, int32_t size)
{
    const struct os *os = os_host();
    struct error error = {0};
    hvd_status_t status = mpi_lib_open(os, "", &raw->lib, &error);
    if (status == HVD_OK)
        status = mpi_lib_init(raw->lib, false, &error);
    if (status == HVD_OK)
        status = mpi_lib_comm_own(raw->lib, raw->lib->comm_world, &raw->comm, &error);
    raw->ops.lib = raw->lib;
    if (status == HVD_OK)
        status = mpi_coll_create(os, &raw->ops, raw->comm, size, rank, &raw->coll, &error);
    if (status != HVD_OK)
        fprintf(stderr, "bench: %s\n", error.text);
    return status == HVD_OK;
}

void raw_mpi_close(struct raw_mpi *raw)
{
    if (raw->coll == NULL)
        return;
    mpi_coll_destroy(raw->coll);
    mpi_ops_destroy(&raw->ops);
    raw->lib->abi->comm_free(raw->lib, &raw->comm);
    mpi_lib_close(raw->lib);
    raw->coll = NULL;
}

bool raw_mpi_allreduce(struct raw_mpi *raw, float *data, uint64_t count)
{
    struct error error = {0};
    struct coll_part part = {.in = data, .out = data, .count = count};
    struct coll coll = {.kind = HVD_ALLREDUCE,
                        .dtype = HVD_FLOAT32,
                        .reduce = HVD_SUM,
                        .prescale = 1.0,
                        .postscale = 1.0,
                        .parts = &part,
                        .part_count = 1};
    bool has_moved;
    hvd_status_t status = mpi_coll_start(raw->coll, &coll, &error);
    if (status == HVD_OK)
        do
            status = mpi_coll_progress(raw->coll, &has_moved, &error);
        while (status == HVD_IN_PROGRESS);
    if (status != HVD_OK)
        fprintf(stderr, "bench: %s\n", error.text);
    return status == HVD_OK;
}
