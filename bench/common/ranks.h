/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - ranks for benchmarks: forked here, or started by somebody else with this process
 * serving the rendezvous in a thread.
 * Start reading at ranks_run(). */
#ifndef HVD_BENCH_RANKS_H
#define HVD_BENCH_RANKS_H

#include "horovod/hvd.h"
#include "meet.h"

struct ranks_job { /* what a rank must know to join */
    uint8_t key[32];
    char address[256];
};

typedef int (*ranks_body)(struct meet *meet, const struct ranks_job *job, void *arg);

/* Forks `size` ranks and serves their rendezvous; returns how many ended badly. */
int ranks_run(int size, ranks_body body, void *arg);
/* The same with a rank that is meant to be killed; -1: none. */
int ranks_run_losing(int size, int victim, ranks_body body, void *arg);
/* All ranks on this host; tells on stderr why it failed. */
bool ranks_init(const struct ranks_job *job, int rank, int size);
/* Serves a new rendezvous until the process ends. */
bool ranks_serve(struct ranks_job *ret_job);

/* A waited-for allreduce (float32, sum, in place) through the public API. */
bool ranks_allreduce(const char *name, float *data, int64_t count);

#endif
