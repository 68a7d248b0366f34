/* SPDX-License-Identifier: Apache-2.0 */
/* one_shot.c - one host, small sizes: everyone copies its data to its slot, one wave, everyone
 * reduces all slots. One synchronisation instead of two, for P times the arithmetic.
 *
 * Invariant: there is no wave at the end, so an executor must use two SCRATCH areas by turns from
 * one collective to the next: by the time the second next one writes, every rank has published the
 * next one's wave and so is done reading. All ranks add in rank order: same bits.
 * Thread: any (pure).  Start reading at build_one_shot(). */
#include "schedule/build.h"

void build_one_shot(struct build *b)
{
    if (b->size < 2 || b->count == 0)
        return;
    b->s->scratch_count = b->count;
    build_push(b, (struct step){.kind = STEP_COPY_IN, .source = b->base, .count = b->count});
    build_wave(b, 0);
    build_push(
        b, (struct step){
               .kind = STEP_REDUCE_TEMP, .is_final = true, .offset = b->base, .count = b->count});
}
