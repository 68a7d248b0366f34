/* SPDX-License-Identifier: Apache-2.0 */
/* raw.h - the native backend driven by hand: its collectives in shared memory without API, engine,
 * negotiation or threads. What remains is what moving the bytes costs.
 *
 * It opens shared segments of its own, beside those of hvd_init().
 * Thread: one per rank.  Owner: the program.  Start reading at raw_allreduce(). */
#ifndef HVD_BENCH_RAW_H
#define HVD_BENCH_RAW_H

#include "backend/backend.h"
#include "meet.h"

struct raw {
    struct config config;
    struct shm *shm;
    struct host_coll *host;
    int poll_fd;
    bool is_crowded;
    int32_t self, size;
};

bool raw_open(struct raw *raw, struct meet *meet); /* collective; false: told on stderr */
void raw_close(struct raw *raw);                   /* safe on a half-open one */
void *raw_alloc(struct raw *raw, size_t bytes);    /* in this rank's arena; until raw_close() */
/* Where the memory that `peer` got by the same sequence of raw_alloc() calls is seen from here. */
float *raw_peer(struct raw *raw, int32_t peer, const void *mine);
bool raw_allreduce(struct raw *raw, float *data, uint64_t count); /* sum, in place */
bool raw_allreduce_parts(struct raw *raw, const struct coll_part *parts, int32_t count);

#endif
