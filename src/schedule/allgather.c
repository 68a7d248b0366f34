/* SPDX-License-Identifier: Apache-2.0 */
/* allgather.c - every rank's part to all. A ring for large results; for small ones log2(N) rounds
 * in which rank r, having the d parts r .. r + d - 1 (mod N), sends them to rank r - d and receives
 * the next d parts from rank r + d (the scheme of Bruck et al., in place).
 *
 * Parts may have any size, including 0. Neighbouring parts that are adjacent in WORK are sent as
 * one transfer; both sides compute the same borders because both know all parts.
 *
 * Thread: any (pure).  Start reading at schedule_allgather(). */
#include "schedule/build.h"

#define SMALL_COUNT (64u << 10) /* elements of the whole result */

/* Emits `blocks` parts from `first` on as few transfers as their places in WORK allow, all open. */
static void build_run(struct build *b, enum step_kind kind, int32_t peer, const struct parts *p,
                      uint32_t first, uint32_t blocks)
{
    struct slice run = {0, 0};
    for (uint32_t i = 0; i < blocks; i++) {
        struct slice part = build_part_at(p, first + i);
        if (part.count == 0)
            continue;
        if (run.count > 0 && run.offset + run.count == part.offset) {
            run.count += part.count;
            continue;
        }
        build_transfer(b, kind, peer, run, true);
        run = part;
    }
    build_transfer(b, kind, peer, run, true);
}

static void build_doubling(struct build *b, const struct parts *p)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    for (uint32_t have = 1; have < n; have *= 2) {
        uint32_t blocks = have < n - have ? have : n - have;
        size_t from = b->s->step_count;
        build_run(b, STEP_SEND, (int32_t)((rank + n - have) % n), p, rank, blocks);
        build_run(b, STEP_RECV, (int32_t)((rank + have) % n), p, rank + have, blocks);
        build_close(b, from);
    }
}

static void build_around(struct build *b, const struct parts *p, uint64_t channel,
                         uint64_t channels)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    int32_t next = (int32_t)((rank + 1) % n), last = (int32_t)((rank + n - 1) % n);
    for (uint32_t round = 0; round < n - 1; round++) {
        struct slice out = build_part_at(p, rank + n - round),
                     in = build_part_at(p, rank + n - round - 1);
        struct slice out_cut = build_part_cut(out, channels, channel, b->element_bytes);
        struct slice in_cut = build_part_cut(in, channels, channel, b->element_bytes);
        build_exchange(b, next, out_cut, last, in_cut);
    }
}

hvd_status_t schedule_allgather(struct schedule *s, const uint64_t *offsets, const uint64_t *counts,
                                int32_t rank, const struct topology *topology, struct error *error)
{
    int32_t n = topology->size;
    if (rank < 0 || rank >= n)
        return error_set(error, HVD_ERR_INVALID, "allgather schedule: rank %d of %d", rank, n);
    struct build b = {.s = s, .size = n, .rank = rank, .element_bytes = 1};
    struct parts parts = {offsets, counts, (uint32_t)n};
    return build_parts(&b, &parts, SMALL_COUNT, build_doubling, build_around, topology->channels,
                       error);
}
