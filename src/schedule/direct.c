/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - one host, every rank sees every WORK: rank i reduces slice i of all of them in one
 * pass and stores it to all of them. Two bytes of memory traffic per byte of result: the minimum.
 *
 * Invariant: slice i is touched by rank i alone between the two waves, so readers and writers never
 * meet; one rank computes each element, so all have the same bits.
 * Thread: any (pure).  Start reading at build_direct(). */
#include "schedule/build.h"

void build_direct(struct build *b)
{
    if (b->size < 2 || b->count == 0)
        return;
    struct slice mine =
        build_slice(b->count, (uint64_t)b->size, (uint64_t)b->rank, b->element_bytes);
    build_wave(b, 0);
    if (mine.count > 0)
        build_push(b, (struct step){.kind = STEP_REDUCE_ALL,
                                    .is_final = true,
                                    .offset = b->base + mine.offset,
                                    .count = mine.count});
    build_wave(b, 1);
}
