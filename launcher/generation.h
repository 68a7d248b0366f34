/* SPDX-License-Identifier: Apache-2.0 */
/* generation.h - one generation of a job: which ranks it has, which worker on which host each of
 * them is, and how each of them ended.
 *
 * A worker is one process that an agent starts; its number at that agent is never used again, so
 * (host, number) names it for as long as the job lasts, whatever its rank. A static job has one
 * generation here, and the store counts how often its ranks meet. Where the launcher decides who is
 * a member, generation_replace() makes the next one, and generation_members() tells the store.
 *
 * Pure. Thread: the launcher's loop.  Owner: struct job.  Start reading at generation_init(). */
#ifndef HVD_LAUNCHER_GENERATION_H
#define HVD_LAUNCHER_GENERATION_H

#include "blame.h"
#include "hosts.h"
#include "mem.h"
#include "wire/store.h"

enum generation_state {
    GENERATION_PLANNED, /* nothing of it was started */
    GENERATION_STARTED, /* the agents were told; its ranks start and meet */
    GENERATION_OVER     /* ended, or followed by another */
};

struct seat {
    int32_t run;    /* index of the host in job->runs; -1: none yet */
    uint32_t index; /* number of the worker at that host's agent */
};

struct generation {
    uint64_t epoch; /* 0: a static job, the store counts */
    enum generation_state state;
    int32_t count;
    struct slot *slots;     /* by rank: its place */
    struct seat *seats;     /* by rank: its worker */
    struct rank_run *ranks; /* by rank: how it ended, and whom it blames */
};

/* `slots` stays the caller's. */
void generation_init(struct mem *m, struct generation *g, struct slot *slots, int32_t count);
void generation_seat(struct generation *g, int32_t rank, int32_t run, uint32_t index);
/* The rank of that worker; -1: not a member. */
int32_t generation_rank(const struct generation *g, int32_t run, uint32_t index);
/* "2.7": worker 7 of the third host. ret_name holds STORE_WORKER_MAX + 1 bytes. */
void generation_worker(const struct generation *g, int32_t rank, char *ret_name);
/* The next generation: all places are the same, and `rank` is another worker of its host. */
void generation_replace(struct mem *m, struct generation *g, int32_t rank, uint32_t index,
                        struct generation *ret);
/* For store_server_generation(); count entries in the arena. */
struct store_member *generation_members(struct mem *m, const struct generation *g);

#endif
