/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap.h - who am I, and how do I find the others? One function, one table, each source a row.
 *
 * In this order: explicit configuration, HOROVOD_* from our launcher, Open MPI, PMIx, PMI (MPICH,
 * Intel MPI), Slurm, torchrun, else a world of one. A half-set source is an error that names what
 * is there and what is missing. Where there is no launcher, rank 0 serves the rendezvous (see
 * `is_self_served`).
 *
 * Thread: the one inside hvd_init().  Start reading at bootstrap_find(). */
#ifndef HVD_API_BOOTSTRAP_H
#define HVD_API_BOOTSTRAP_H

#include "base/config.h"

struct bootstrap {
    const char *source; /* "horovodrun", "Open MPI", ... for people */
    int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    char rendezvous[512]; /* comma list of addresses; "" in a world of one */
    bool is_self_served;  /* rank 0 serves `rendezvous` itself */
    char job[128];        /* what distinguishes this job from others of the same user */
};

hvd_status_t bootstrap_find(const struct os *os, const struct config *config,
                            const hvd_config_t *explicit_config, struct bootstrap *ret,
                            struct error *error);

#endif
