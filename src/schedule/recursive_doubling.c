/* SPDX-License-Identifier: Apache-2.0 */
/* recursive_doubling.c - in round k every rank swaps its whole region with the rank at distance
 * 2^k and both add: log2(N) rounds of S bytes. The best for small sizes, and for two ranks at any
 * size.
 *
 * Other than powers of two: struct fold in build.h.
 *
 *   N = 3:   1 -> 0      |  0 <-> 2   |  0 -> 1
 *            0: 0+1      |  (0+1)+2   |
 *
 * Invariant: at every meeting both sides add lower ranks' sum + higher ranks' sum in this order, so
 * all ranks end with the same bits.  Thread: any (pure).  Start at build_recursive_doubling(). */
#include "schedule/build.h"

void build_recursive_doubling(struct build *b)
{
    struct slice all = {b->base, b->count};
    struct fold fold;
    if (!build_fold(b, &fold))
        return;
    for (uint32_t distance = 1; distance < fold.power; distance *= 2) {
        uint32_t other = fold.slot ^ distance;
        int32_t peer = build_fold_position(&fold, other);
        build_exchange_reduce(b, peer, all, peer, all, fold.slot < other,
                              distance == fold.power / 2);
    }
    build_unfold(b, &fold);
}
