/* SPDX-License-Identifier: Apache-2.0 */
/* reducescatter.c - every rank ends with its part of the reduction. Small: everyone sends each part
 * straight to its owner, who adds when all have arrived: one latency. Large: a ring, in which part
 * i starts behind its owner, travels once around and is complete where it is wanted. Both move
 * (N-1)/N S bytes per rank.
 *
 * Invariant: the order of addition depends on nothing but the ranks.  Parts may have any size.
 * Thread: any (pure).  Start reading at schedule_reducescatter(). */
#include "schedule/build.h"

#define SMALL_COUNT (16u << 10) /* elements of the whole input */

struct parts {
    const uint64_t *offsets, *counts;
    uint32_t n;
};

static struct slice part_at(const struct parts *p, uint32_t index)
{
    return (struct slice){p->offsets[index % p->n], p->counts[index % p->n]};
}

/* Everything is under way at once; SCRATCH keeps what arrives, in the order it is added. */
static void build_straight(struct build *b, const struct parts *p)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    struct slice mine = part_at(p, rank);
    size_t from = b->s->step_count;
    for (uint32_t k = 1; k < n; k++)
        build_transfer(b, STEP_SEND, (int32_t)((rank + k) % n), part_at(p, rank + k), true);
    for (uint32_t k = 1; k < n; k++)
        build_transfer(b, STEP_RECV_TEMP, (int32_t)((rank + n - k) % n),
                       (struct slice){(k - 1) * mine.count, mine.count}, true);
    if (b->status == HVD_OK && b->s->step_count > from)
        b->s->steps[b->s->step_count - 1].is_open = false;
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
        struct slice out = part_at(p, rank + 2 * n - round - 1);
        struct slice in = part_at(p, rank + 2 * n - round - 2);
        struct slice out_cut = build_slice(out.count, channels, channel, 4);
        struct slice in_cut = build_slice(in.count, channels, channel, 4);
        out_cut.offset += out.offset;
        in_cut.offset += in.offset;
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
    uint64_t total = 0;
    for (int32_t i = 0; i < n; i++)
        total += counts[i];

    s->step_count = 0;
    s->scratch_count = 0;
    s->channels = 1;
    s->algorithm = SCHEDULE_AUTO;
    if (total <= SMALL_COUNT) {
        build_straight(&b, &parts);
    } else {
        int32_t channels = build_channel_count(total * 4, topology->channels);
        for (int32_t c = 0; c < channels; c++) {
            b.channel = (uint16_t)c;
            build_around(&b, &parts, (uint64_t)c, (uint64_t)channels);
        }
    }
    return b.status == HVD_OK ? HVD_OK : error_set(error, b.status, "no memory for a schedule");
}
