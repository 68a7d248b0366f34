/* SPDX-License-Identifier: Apache-2.0 */
/* rabenseifner.c - reduce-scatter by halving, then allgather by doubling: 2 log2(N) rounds but only
 * 2 (N-1)/N S bytes. For sizes between recursive doubling and the ring.
 *
 * Round k of the first half: the ranks at distance 2^k share a region; the lower one keeps its
 * lower half and the higher one the upper half, each gives the other half away. After log2(N)
 * rounds each rank holds 1/N of the result; the rounds are then played back to front without
 * adding. Other than powers of two: struct fold in build.h.
 *
 * Invariant: every element is completed by one rank and copied from there, so all ranks end with
 * the same bits.  Thread: any (pure).  Start reading at build_rabenseifner(). */
#include "schedule/build.h"

#define LEVELS_MAX 32

struct level {
    struct slice keep, give;
    int32_t peer;
};

static struct level level_split(struct slice region, bool is_lower, size_t element_bytes)
{
    struct slice low = build_slice(region.count, 2, 0, element_bytes);
    struct slice high = build_slice(region.count, 2, 1, element_bytes);
    low.offset += region.offset;
    high.offset += region.offset;
    return is_lower ? (struct level){.keep = low, .give = high}
                    : (struct level){.keep = high, .give = low};
}

static void build_halving_doubling(struct build *b, const struct fold *fold)
{
    struct level levels[LEVELS_MAX];
    struct slice region = {b->base, b->count};
    int32_t depth = 0;
    for (uint32_t distance = 1; distance < fold->power && depth < LEVELS_MAX; distance *= 2) {
        bool is_lower = (fold->slot & distance) == 0;
        struct level *level = &levels[depth++];
        *level = level_split(region, is_lower, b->element_bytes);
        level->peer = build_fold_position(fold, fold->slot ^ distance);
        build_exchange_reduce(b, level->peer, level->give, level->peer, level->keep, is_lower,
                              distance == fold->power / 2);
        region = level->keep;
    }
    while (depth-- > 0)
        build_exchange(b, levels[depth].peer, levels[depth].keep, levels[depth].peer,
                       levels[depth].give);
}

void build_rabenseifner(struct build *b)
{
    struct fold fold;
    if (!build_fold(b, &fold))
        return;
    build_halving_doubling(b, &fold);
    build_unfold(b, &fold);
}
