/* SPDX-License-Identifier: Apache-2.0 */
/* rabenseifner.c - reduce-scatter by halving, then allgather by doubling: 2 log2(N) rounds but only
 * 2 (N-1)/N S bytes. For sizes between recursive doubling and the ring.
 *
 * Round k of the first half: the ranks at distance 2^k share a region; the lower one keeps its
 * lower half and the higher one the upper half, each gives the other half away. After log2(N)
 * rounds each rank holds 1/N of the result; the rounds are then played back to front without
 * adding. Other than powers of two: folded as in recursive_doubling.c.
 *
 * Invariant: every element is completed by one rank and copied from there, so all ranks end with
 * the same bits.  Thread: any (pure).  Start reading at build_rabenseifner(). */
#include "schedule/build.h"

#define LEVELS_MAX 32

struct level {
    struct slice keep, give;
    int32_t peer;
};

static int32_t position_of(uint32_t slot, uint32_t extra)
{
    return (int32_t)(slot < extra ? 2 * slot : slot + extra);
}

static struct level level_split(struct slice region, bool is_lower, size_t element_bytes)
{
    struct slice low = build_slice(region.count, 2, 0, element_bytes);
    struct slice high = build_slice(region.count, 2, 1, element_bytes);
    low.offset += region.offset;
    high.offset += region.offset;
    return is_lower ? (struct level){.keep = low, .give = high}
                    : (struct level){.keep = high, .give = low};
}

static void build_halving_doubling(struct build *b, uint32_t slot, uint32_t power, uint32_t extra)
{
    struct level levels[LEVELS_MAX];
    struct slice region = {b->base, b->count};
    int32_t depth = 0;
    for (uint32_t distance = 1; distance < power && depth < LEVELS_MAX; distance *= 2) {
        bool is_lower = (slot & distance) == 0;
        struct level *level = &levels[depth++];
        *level = level_split(region, is_lower, b->element_bytes);
        level->peer = position_of(slot ^ distance, extra);
        build_exchange_reduce(b, level->peer, level->give, level->peer, level->keep, is_lower,
                              distance == power / 2);
        region = level->keep;
    }
    while (depth-- > 0)
        build_exchange(b, levels[depth].peer, levels[depth].keep, levels[depth].peer,
                       levels[depth].give);
}

void build_rabenseifner(struct build *b)
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
    build_halving_doubling(b, is_paired ? rank / 2 : rank - extra, power, extra);
    if (is_paired)
        build_transfer(b, STEP_SEND, b->rank + 1, all, false);
}
