/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - a collective algorithm is data: a pure function (collective, element count, rank,
 * topology) gives an array of steps; backend/native/net_exec.c runs them over transports, check.c
 * proves them. One file per algorithm, select.c chooses. Groups whose ranks all share memory do not
 * run schedules: backend/native/host*.c serves them (docs/decisions/0019-one-machine.md).
 *
 * A schedule works on one rank's WORK buffer of `count` elements, which contains the input at the
 * start and the result at the end, and a scratch buffer. Offsets and lengths are in elements.
 *
 * Order: steps of one channel run one after the other; channels are independent of each other. The
 * wave steps (PUBLISH and below) are ordered with everything: they start when all steps before them
 * are complete, and no later step starts before they are. Between two wave steps the steps of a
 * channel are contiguous. A run of steps with `is_open` set is posted together with the step after
 * it (send and receive at once); later steps of the channel start when all of them are complete.
 * Within such a run a RECV_REDUCE stores only after a SEND of the same region was sent.
 *
 * A SEND and the RECV that it matches have the same channel and count and are matched in order per
 * (sender, receiver, channel); a SEND may wait until its RECV is posted. Empty transfers are
 * omitted on both sides.
 *
 * Thread: any (pure).  Start reading at schedule_allreduce() in select.c. */
#ifndef HVD_SCHEDULE_SCHEDULE_H
#define HVD_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

enum step_kind {
    STEP_SEND,        /* WORK[offset, +count) to peer */
    STEP_RECV,        /* from peer into WORK[offset, +count) */
    STEP_RECV_REDUCE, /* from peer; WORK[offset, +count) = peer's op own, or own op peer if is_left
                       */
    STEP_SEND_TEMP,   /* SCRATCH[offset, +count) to peer */
    STEP_RECV_TEMP,   /* from peer into SCRATCH[offset, +count) */
    STEP_COPY_OUT,    /* WORK[offset, +count) = SCRATCH[source, +count) */
    STEP_COPY_IN,     /* SCRATCH[offset, +count) = WORK[source, +count) */
    STEP_REDUCE_IN,   /* WORK[offset, +count) = SCRATCH[source, +count) op own, or the other way
                         round if is_left */
    /* waves among the ranks on one machine, which map each other's WORK */
    STEP_PUBLISH,     /* my part of wave `wave` is in place */
    STEP_AWAIT,       /* until every rank on my machine has published wave `wave` */
    STEP_REDUCE_HOST, /* WORK[offset, +count) of all ranks on my machine reduced in rank order,
                         stored to mine */
    STEP_SPREAD       /* my WORK[offset, +count) copied to the WORK of all ranks on my machine */
};

struct step {
    enum step_kind kind;
    int32_t peer; /* index in the group, not world rank */
    uint16_t channel;
    bool is_left; /* RECV_REDUCE: own operand first */
    bool is_open;
    bool is_final; /* a reduction that completes its elements: postscale may be folded in here */
    int32_t wave;
    uint64_t offset, count, source;
};

struct topology {
    int32_t size; /* ranks in the group */
    int32_t host_count;
    const int32_t *host;       /* machine of rank i, 0 .. host_count - 1, numbered by first rank */
    int32_t channels;          /* wanted: flows or lanes; 1 .. SCHEDULE_CHANNELS_MAX */
    int32_t threshold_percent; /* of the sizes at which the algorithm changes; 0: 100 */
};
#define SCHEDULE_CHANNELS_MAX 16

enum schedule_algorithm {
    SCHEDULE_AUTO,
    SCHEDULE_RECURSIVE_DOUBLING,
    SCHEDULE_RABENSEIFNER,
    SCHEDULE_RING, /* multi-channel */
    SCHEDULE_DOUBLE_TREE,
    SCHEDULE_TWO_LEVEL, /* machine x network */
    SCHEDULE_ALGORITHM_COUNT
};

struct schedule {
    const struct os *os;
    enum schedule_algorithm algorithm;
    struct step *steps;
    size_t step_count, step_capacity;
    uint64_t scratch_count; /* elements of SCRATCH needed */
    int32_t channels;       /* used: 1 .. SCHEDULE_CHANNELS_MAX */
    int32_t *members;       /* builder's own: ranks of a sub-group */
    int32_t member_capacity;
};

void schedule_init(struct schedule *s, const struct os *os);
void schedule_destroy(struct schedule *s);

/* Allreduce of `count` elements of `element_bytes` for `rank` of the group. Reuses `s`'s memory.
 * AUTO chooses by size and topology; the choice depends only on arguments that are equal on all
 * ranks. */
hvd_status_t schedule_allreduce(struct schedule *s, enum schedule_algorithm algorithm,
                                uint64_t count, size_t element_bytes, int32_t rank,
                                const struct topology *topology, struct error *error);
enum schedule_algorithm schedule_select(uint64_t bytes, const struct topology *topology);
const char *schedule_algorithm_name(enum schedule_algorithm algorithm);
bool schedule_algorithm_parse(const char *name, enum schedule_algorithm *ret);

/* Broadcast of `count` elements from `root` (binomial for small, scatter + ring allgather for
 * large). */
hvd_status_t schedule_broadcast(struct schedule *s, uint64_t count, size_t element_bytes,
                                int32_t root, int32_t rank, const struct topology *topology,
                                struct error *error);
/* WORK contains the whole result; rank i's part is [offsets[i], +counts[i]). At the start each
 * rank's own part is in place. */
hvd_status_t schedule_allgather(struct schedule *s, const uint64_t *offsets, const uint64_t *counts,
                                int32_t rank, const struct topology *topology, struct error *error);
/* WORK contains the whole input; at the end [offsets[rank], +counts[rank]) is the reduction. */
hvd_status_t schedule_reducescatter(struct schedule *s, const uint64_t *offsets,
                                    const uint64_t *counts, int32_t rank,
                                    const struct topology *topology, struct error *error);

/* SCRATCH contains the whole input, the part for rank i at [send_offsets[i], +send_counts[i]); WORK
 * gets the part from rank i at [recv_offsets[i], +recv_counts[i]). SCRATCH is only read. */
struct alltoall_shape {
    const uint64_t *send_offsets, *send_counts, *recv_offsets, *recv_counts;
};
hvd_status_t schedule_alltoall(struct schedule *s, const struct alltoall_shape *shape, int32_t rank,
                               const struct topology *topology, struct error *error);
/* Completes on no rank before it has begun on all. SCRATCH: SCHEDULE_BARRIER_COUNT elements of any
 * content. */
#define SCHEDULE_BARRIER_COUNT 33
hvd_status_t schedule_barrier(struct schedule *s, int32_t rank, const struct topology *topology,
                              struct error *error);

/* Proves an allreduce schedule: runs all ranks' schedules symbolically, in several interleavings,
 * and checks that every element of every rank's result contains every rank's contribution exactly
 * once, that sends and receives match, and that no step reads what another may still be writing. */
hvd_status_t schedule_check(enum schedule_algorithm algorithm, uint64_t count,
                            const struct topology *topology, struct error *error);

#endif
