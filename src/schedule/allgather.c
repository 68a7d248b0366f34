/* SPDX-License-Identifier: Apache-2.0 */
/* allgather.c - every rank's part to all. A ring for large results; for small ones log2(N) rounds
 * in which rank r, having the d parts r .. r + d - 1 (mod N), sends them to rank r - d and receives
 * the next d parts from rank r + d (the scheme of Bruck et al., in place).
 *
 * Parts may have any size, none included. Neighbouring parts that are adjacent in WORK travel as
 * one transfer; both sides find the same borders because both know all parts.
 *
 * Thread: any (pure).  Start reading at schedule_allgather(). */
#include "schedule/build.h"

#define SMALL_COUNT (64u << 10) /* elements of the whole result */

struct parts {
    const uint64_t *offsets, *counts;
    uint32_t n;
};

static struct slice part_at(const struct parts *p, uint32_t index)
{
    return (struct slice){p->offsets[index % p->n], p->counts[index % p->n]};
}

/* Emits `blocks` parts from `first` on as few transfers as their places in WORK allow, all open. */
static void build_run(struct build *b, enum step_kind kind, int32_t peer, const struct parts *p,
                      uint32_t first, uint32_t blocks)
{
    struct slice run = {0, 0};
    for (uint32_t i = 0; i < blocks; i++) {
        struct slice part = part_at(p, first + i);
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

static void build_close(struct build *b, size_t from)
{
    if (b->status == HVD_OK && b->s->step_count > from)
        b->s->steps[b->s->step_count - 1].is_open = false;
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
        struct slice out = part_at(p, rank + n - round), in = part_at(p, rank + n - round - 1);
        struct slice out_cut = build_slice(out.count, channels, channel, 1);
        struct slice in_cut = build_slice(in.count, channels, channel, 1);
        out_cut.offset += out.offset;
        in_cut.offset += in.offset;
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
    uint64_t total = 0;
    for (int32_t i = 0; i < n; i++)
        total += counts[i];

    s->step_count = 0;
    s->scratch_count = 0;
    s->channels = 1;
    s->algorithm = SCHEDULE_AUTO;
    if (total <= SMALL_COUNT) {
        build_doubling(&b, &parts);
    } else {
        int32_t channels = build_channel_count(total, topology->channels);
        for (int32_t c = 0; c < channels; c++) {
            b.channel = (uint16_t)c;
            build_around(&b, &parts, (uint64_t)c, (uint64_t)channels);
        }
    }
    return b.status == HVD_OK ? HVD_OK : error_set(error, b.status, "no memory for a schedule");
}
