/* SPDX-License-Identifier: Apache-2.0 */
/* host_walk.c - which bytes belong to which member.
 *
 * Reductions divide the work: a member reduces its share. In an allreduce it is a slice of the
 * concatenation of all parts, in a reducescatter the rows that the member receives. Gathers: a
 * member's gift is the part of its contribution that this member wants. Both are walked as runs
 * within one part, with the run's position in that part's input and output.
 *
 *      allreduce, 2 members, parts of 100 and 60 bytes:   share 0 = part 0 [0, 64)
 *      (borders are rounded down to 64 bytes)             share 1 = part 0 [64, 100), part 1 [0,
 * 60)
 *
 * Thread: token holder.  Invariant: every byte is in exactly one share; run borders are the same on
 * all members.  Start reading at host_walk_run(). */
#include <string.h>

#include "backend/native/host.h"

static uint64_t share_begin(const struct host_coll *h, int32_t member)
{
    if (member == h->size)
        return h->total;
    uint64_t size = (uint64_t)h->size, index = (uint64_t)member;
    uint64_t at = h->total / size * index + h->total % size * index / size;
    return at / h->shares_align * h->shares_align;
}

/* Bytes of `part` that belong to `member` by coll->counts, and where they begin in the whole. */
static uint64_t rows_of(const struct host_coll *h, int32_t part, int32_t member, uint64_t *ret_at)
{
    const uint64_t *counts = h->coll->counts + (size_t)part * (size_t)h->size;
    uint64_t at = 0;
    for (int32_t i = 0; i < member; i++)
        at += counts[i];
    *ret_at = at * h->element;
    return counts[member] * h->element;
}

uint64_t host_share_bytes(const struct host_coll *h, int32_t member)
{
    if (h->coll->kind != HVD_REDUCESCATTER)
        return share_begin(h, member + 1) - share_begin(h, member);
    uint64_t bytes = 0;
    for (int32_t part = 0; part < h->coll->part_count; part++)
        bytes += h->coll->counts[part * h->size + member] * h->element;
    return bytes;
}

/* --- entering parts --- */

static void enter_part(const struct host_coll *h, struct host_walk *walk)
{
    uint64_t at = 0;
    switch (h->coll->kind) {
    case HVD_REDUCESCATTER:
        walk->part_left = rows_of(h, walk->part, walk->member, &at);
        walk->in_at = at;
        walk->out_at = 0;
        return;
    case HVD_ALLGATHER:
        walk->part_left = rows_of(h, walk->part, walk->member, &at);
        walk->in_at = 0;
        walk->out_at = at;
        return;
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
    case HVD_ALLTOALL:
    case HVD_JOIN:
    case HVD_BARRIER:
    case HVD_KIND_COUNT: break;
    }
    walk->part_left = h->prefix[walk->part + 1] - h->prefix[walk->part];
    walk->in_at = walk->out_at = 0;
}

static void skip_empty_parts(const struct host_coll *h, struct host_walk *walk)
{
    while (walk->part_left == 0 && walk->left > 0 && walk->part + 1 < h->coll->part_count) {
        walk->part++;
        enter_part(h, walk);
    }
}

static struct host_walk walk_concatenation(const struct host_coll *h, uint64_t from, uint64_t to)
{
    int32_t low = 0;
    for (int32_t high = h->coll->part_count; high - low > 1;) {
        int32_t middle = low + (high - low) / 2;
        if (h->prefix[middle] <= from)
            low = middle;
        else
            high = middle;
    }
    uint64_t inside = from - h->prefix[low];
    return (struct host_walk){.part = low,
                              .left = to - from,
                              .in_at = inside,
                              .out_at = inside,
                              .part_left = h->prefix[low + 1] - from};
}

struct host_walk host_walk_all(const struct host_coll *h)
{
    struct host_walk walk = walk_concatenation(h, 0, h->total);
    walk.member = h->self;
    return walk;
}

struct host_walk host_walk_share(const struct host_coll *h, int32_t member)
{
    if (h->coll->kind != HVD_REDUCESCATTER) {
        struct host_walk walk =
            walk_concatenation(h, share_begin(h, member), share_begin(h, member + 1));
        walk.member = member;
        return walk;
    }
    struct host_walk walk = {.member = member, .left = host_share_bytes(h, member)};
    enter_part(h, &walk);
    return walk;
}

struct host_walk host_walk_gift(const struct host_coll *h, int32_t member)
{
    const struct coll *coll = h->coll;
    struct host_walk walk = {.member = member};
    if (coll->kind == HVD_ALLTOALL) {
        for (int32_t i = 0; i < member; i++)
            walk.out_at += coll->recv_counts[i] * h->element;
        walk.left = walk.part_left = coll->recv_counts[member] * h->element;
        walk.in_at = walk.pos = h->members[member].wanted_at;
        return walk;
    }
    walk.left = h->members[member].total;
    enter_part(h, &walk);
    return walk;
}

uint64_t host_walk_run(const struct host_coll *h, struct host_walk *walk, uint64_t max)
{
    skip_empty_parts(h, walk);
    uint64_t run = walk->part_left < walk->left ? walk->part_left : walk->left;
    return run < max ? run : max;
}

void host_walk_advance(struct host_walk *walk, uint64_t bytes)
{
    walk->pos += bytes;
    walk->left -= bytes;
    walk->in_at += bytes;
    walk->out_at += bytes;
    walk->part_left -= bytes;
}

void host_walk_copy_in(const struct host_coll *h, struct host_walk *walk, uint64_t bytes,
                       uint8_t *to)
{
    while (bytes > 0) {
        uint64_t run = host_walk_run(h, walk, bytes);
        const uint8_t *from = h->coll->parts[walk->part].in;
        memcpy(to, from + walk->in_at, (size_t)run);
        host_walk_advance(walk, run);
        to += run;
        bytes -= run;
    }
}
