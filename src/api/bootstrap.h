/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap.h - who am I, and how do I find the others? One function, one table, each source a row.
 *
 * Jobs of MPI are mpi_world.h's, which is asked first; here are all others, and MPI's where there
 * is no library. In this order: explicit configuration, HOROVOD_* from our launcher, Open MPI, PMI
 * (MPICH, Intel MPI), Slurm, torchrun, else a world of one. A half-set source is an error that
 * names what is there and what is missing. Where there is no launcher of ours, rank 0 serves the
 * rendezvous: see `is_self_served`, and handover.h for how the others learn of it and of the key.
 *
 * Thread: the one inside hvd_init().  Start reading at bootstrap_find(). */
#ifndef HVD_API_BOOTSTRAP_H
#define HVD_API_BOOTSTRAP_H

#include "base/config.h"

struct bootstrap {
    const char *source; /* "horovodrun", "Open MPI", ... for people */
    int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    /* Comma list of addresses. "": a world of one, or known only from the handover. */
    char rendezvous[512];
    bool is_self_served;    /* rank 0 serves the rendezvous itself */
    bool is_rendezvous_own; /* HOROVOD_RENDEZVOUS said so: rank 0 listens exactly there */
    uint16_t port;      /* else, across hosts, rank 0 listens on its own addresses at this port */
    char identity[512]; /* tells this job from others of the same user; "": nothing does */
};

hvd_status_t bootstrap_find(const struct os *os, const struct config *config,
                            const hvd_config_t *explicit_config, struct bootstrap *ret,
                            struct error *error);

#endif
