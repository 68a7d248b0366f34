/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap.h - this process's rank and size, and the rendezvous. One function, one table, each
 * source a row.
 *
 * mpi_world.h, which is tried first, handles MPI jobs; this file handles all others, and MPI jobs
 * without a library. In this order: explicit configuration, HOROVOD_* from horovodrun, Open MPI,
 * PMI (MPICH, Intel MPI), Slurm, torchrun, else a world of one. An incomplete source is an error
 * that names what is set and what is missing. If horovodrun did not start the job, rank 0 serves
 * the rendezvous: see `is_self_served`, and handover.h for how the others find it and the key.
 *
 * Thread: the one inside hvd_init().  Start reading at bootstrap_find(). */
#ifndef HVD_API_BOOTSTRAP_H
#define HVD_API_BOOTSTRAP_H

#include "base/config.h"

struct bootstrap {
    const char *source; /* "horovodrun", "Open MPI", ... for messages */
    int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    /* Comma list of addresses. "": a world of one, or known only from the handover. */
    char rendezvous[512];
    bool is_self_served;    /* rank 0 serves the rendezvous itself */
    bool is_rendezvous_own; /* set by HOROVOD_RENDEZVOUS: rank 0 listens exactly there */
    uint16_t port; /* else, across machines, rank 0 listens on its own addresses at this port */
    char identity[512]; /* distinguishes this job from others of the same user; "": unknown */
};

hvd_status_t bootstrap_find(const struct os *os, const struct config *config,
                            const hvd_config_t *explicit_config, struct bootstrap *ret,
                            struct error *error);

#endif
