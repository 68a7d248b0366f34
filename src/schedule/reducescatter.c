/* SPDX-License-Identifier: Apache-2.0 */
/* reducescatter.c - every rank gets its part of the reduction. Small: every rank sends each part
 * straight to its owner, which adds when all have arrived: one latency. Large: a ring, in which
 * part i starts at the rank after its owner, goes once around and is complete at its owner. Both
 * move (N-1)/N S bytes per rank.
 *
 * Invariant: the order of addition depends only on the ranks.  Parts may have any size. Thread: any
 * (pure).  Start reading at schedule_reducescatter(). */
#include "schedule/build.h"

#define SMALL_COUNT (16u << 10) /* elements of the whole input */

/* Everything is in transit at once; SCRATCH keeps what arrives, in the order it is added. */
static void build_straight(struct build *b, const struct parts *p)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    struct slice mine = build_part_at(p, rank);
    size_t from = b->s->step_count;
    for (uint32_t k = 1; k < n; k++)
        build_transfer(b, STEP_SEND, (int32_t)((rank + k) % n), build_part_at(p, rank + k), true);
    for (uint32_t k = 1; k < n; k++)
        build_transfer(b, STEP_RECV_TEMP, (int32_t)((rank + n - k) % n),
                       (struct slice){(k - 1) * mine.count, mine.count}, true);
    build_close(b, from);
    b->s->scratch_count = (n - 1) * mine.count;
    for (uint32_t k = 1; k < n && mine.count > 0; k++)
        build_push(b, (struct step){.kind = STEP_REDUCE_IN,
                                    .is_final = k == n - 1,
                                    .offset = mine.offset,
                                    .count = mine.count,
                                    .source = (k - 1) * mine.count});
}

static void build_around(struct build *b, const struct parts *p, uint64_t channel,
                         uint64_t channels)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    int32_t next = (int32_t)((rank + 1) % n), last = (int32_t)((rank + n - 1) % n);
    for (uint32_t round = 0; round < n - 1; round++) {
        struct slice out = build_part_at(p, rank + 2 * n - round - 1);
        struct slice in = build_part_at(p, rank + 2 * n - round - 2);
        struct slice out_cut = build_part_cut(out, channels, channel, b->element_bytes);
        struct slice in_cut = build_part_cut(in, channels, channel, b->element_bytes);
        build_exchange_reduce(b, next, out_cut, last, in_cut, false, round == n - 2);
    }
}

hvd_status_t schedule_reducescatter(struct schedule *s, const uint64_t *offsets,
                                    const uint64_t *counts, int32_t rank,
                                    const struct topology *topology, struct error *error)
{
    int32_t n = topology->size;
    if (rank < 0 || rank >= n)
        return error_set(error, HVD_ERR_INVALID, "reducescatter schedule: rank %d of %d", rank, n);
    struct build b = {.s = s, .size = n, .rank = rank, .element_bytes = 4};
    struct parts parts = {offsets, counts, (uint32_t)n};
    return build_parts(&b, &parts, SMALL_COUNT, build_straight, build_around, topology->channels,
                       error);
}
