/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - the bandwidth-optimal ring: 2 (N-1) rounds, each of S/N bytes to one neighbour.
 *
 * Three ranks, blocks a b c; digits are the ranks whose data a block holds:
 *
 *            rank 0            rank 1            rank 2
 *   start    a0  b0  c0        a1  b1  c1        a2  b2  c2
 *   round 1  0 sends a to 1    1 sends b to 2    2 sends c to 0      (receiver adds)
 *            a0  b0  c20       a01 b1  c1        a2  b12 c2
 *   round 2  0 sends c to 1    1 sends a to 2    2 sends b to 0
 *            a0  b120 c20      a01 b1  c201      a012 b12 c2         one complete block each
 *   rounds 3 and 4: the complete blocks travel once around
 *
 * With several channels each has its own slice of the region and every other one runs the other
 * way round, so that both directions of the links are used alike and one channel's reduction hides
 * behind another's transfer.
 *
 * Invariant: one rank completes a block, the others copy it: same bits everywhere.
 * Thread: any (pure).  Start reading at build_ring(). */
#include "schedule/build.h"

struct ring {
    struct partition blocks;
    uint64_t base;
    int32_t size;
};

/* Block `index`, counted around the ring; -size <= index <= size. */
static inline struct slice ring_block(const struct ring *ring, int32_t index)
{
    if (index < 0)
        index += ring->size;
    if (index >= ring->size)
        index -= ring->size;
    struct slice slice = build_part(&ring->blocks, (uint64_t)index);
    slice.offset += ring->base;
    return slice;
}

void build_ring(struct build *b)
{
    int32_t n = b->size;
    if (n < 2)
        return;
    bool is_reverse = b->channel % 2 == 1;
    int32_t place = is_reverse ? n - 1 - b->rank : b->rank;
    int32_t next = is_reverse ? (b->rank + n - 1) % n : (b->rank + 1) % n;
    int32_t last = is_reverse ? (b->rank + 1) % n : (b->rank + n - 1) % n;
    struct ring ring = {build_partition(b->count, (uint64_t)n, b->element_bytes), b->base, n};

    for (int32_t round = 0; round < n - 1; round++) {
        struct slice out = ring_block(&ring, place - round);
        struct slice in = ring_block(&ring, place - round - 1);
        if (out.count + in.count > 0)
            build_exchange_reduce(b, next, out, last, in, false, round == n - 2);
    }
    for (int32_t round = 0; round < n - 1; round++) {
        struct slice out = ring_block(&ring, place + 1 - round);
        struct slice in = ring_block(&ring, place - round);
        if (out.count + in.count > 0)
            build_exchange(b, next, out, last, in);
    }
}
