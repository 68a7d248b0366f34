/* SPDX-License-Identifier: Apache-2.0 */
/* recursive_doubling.c - in round k every rank swaps its whole region with the rank at distance
 * 2^k and both add: log2(N) rounds of S bytes. The best for small sizes, and for two ranks at any
 * size.
 *
 * Other than powers of two: N = p + e with p the power below. The first 2e ranks form e pairs; the
 * odd one of a pair gives its data to the even one, sits out, and gets the result at the end.
 *
 *   N = 3:   1 -> 0      |  0 <-> 2   |  0 -> 1
 *            0: 0+1      |  (0+1)+2   |
 *
 * Invariant: at every meeting both sides add lower ranks' sum + higher ranks' sum in this order, so
 * all ranks end with the same bits.  Thread: any (pure).  Start at build_recursive_doubling(). */
#include "schedule/build.h"

static int32_t position_of(uint32_t slot, uint32_t extra)
{
    return (int32_t)(slot < extra ? 2 * slot : slot + extra);
}

void build_recursive_doubling(struct build *b)
{
    uint32_t power = build_power_below((uint32_t)b->size), extra = (uint32_t)b->size - power;
    uint32_t rank = (uint32_t)b->rank;
    struct slice all = {b->base, b->count};
    bool is_paired = rank < 2 * extra;

    if (b->size < 2)
        return;
    if (is_paired && rank % 2 == 1) {
        build_transfer(b, STEP_SEND, b->rank - 1, all, false);
        build_transfer(b, STEP_RECV, b->rank - 1, all, false);
        return;
    }
    if (is_paired)
        build_reduce(b, b->rank + 1, all, true, false);
    uint32_t slot = is_paired ? rank / 2 : rank - extra;
    for (uint32_t distance = 1; distance < power; distance *= 2) {
        uint32_t other = slot ^ distance;
        int32_t peer = position_of(other, extra);
        build_exchange_reduce(b, peer, all, peer, all, slot < other, distance == power / 2);
    }
    if (is_paired)
        build_transfer(b, STEP_SEND, b->rank + 1, all, false);
}
