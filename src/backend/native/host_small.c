/* SPDX-License-Identifier: Apache-2.0 */
/* host_small.c - reductions so small that every member computes the result itself.
 *
 * The input is published with the wave: within the cache line of the phase word, or in the slot.
 * After one wave every member reduces all inputs in member order, so all get the same bits. No last
 * wave is needed: the slot is not written again before all members have gone through another wave.
 *
 * From SMALL_ALWAYS on, buffers in arenas are reduced faster directly (half the cache lines are
 * transferred), so only private members put their input into the slot. If the members differ, every
 * member reduces from wherever the inputs are, but does not write its output until all have read.
 *
 * Thread: token holder.  Start reading at host_small_start(). */
#include "backend/native/host.h"

#include <string.h>

#define SMALL_BYTES_PAIR (2u << 10) /* beyond, two members are faster through staging */
#define SMALL_BYTES_FEW  (4u << 10) /* beyond, ... */
#define SMALL_FEW        8          /* ... up to this many are */
#define SMALL_BYTES_MANY (2u << 10)
#define SMALL_ALWAYS     (1u << 10)

_Static_assert(SMALL_BYTES_FEW <= HOST_SMALL_MAX, "results fit");
_Static_assert(SMALL_BYTES_FEW <= SHM_BOARD_SLOT, "inputs fit");

bool host_is_small(const struct host_coll *h)
{
    return h->total <= (h->size <= SMALL_FEW ? SMALL_ALWAYS : SMALL_BYTES_MANY);
}

bool host_fits_slot(const struct host_coll *h)
{
    if (h->size == 2)
        return h->total <= SMALL_BYTES_PAIR;
    return h->size <= SMALL_FEW && h->total <= SMALL_BYTES_FEW;
}

static struct host_walk own_part(const struct host_coll *h)
{
    return h->coll->kind == HVD_ALLREDUCE ? host_walk_all(h) : host_walk_share(h, h->self);
}

static void inputs_copy(const struct host_coll *h, uint8_t *to)
{
    for (int32_t part = 0; part < h->coll->part_count; part++) {
        size_t n = (size_t)(h->prefix[part + 1] - h->prefix[part]);
        if (n > 0)
            memcpy(to + h->prefix[part], h->coll->parts[part].in, n);
    }
}

static hvd_status_t small_step(struct host_coll *h, struct error *error)
{
    (void)error;
    const struct coll *coll = h->coll;
    bool is_inline = h->total <= SHM_BOARD_INLINE;
    const void *sources[HOST_MEMBERS_MAX];
    struct host_walk walk = own_part(h);
    while (walk.left > 0) {
        uint64_t run = host_walk_run(h, &walk, UINT64_MAX);
        uint64_t at = h->prefix[walk.part] + walk.in_at;
        for (int32_t i = 0; i < h->size; i++) {
            const struct shm_board *board = h->members[i].board;
            const uint8_t *base =
                is_inline ? board->line[h->wave & 1].inline_bytes : board->slot[h->wave & 1];
            sources[i] = base + at;
        }
        void *targets[1] = {(uint8_t *)coll->parts[walk.part].out + walk.out_at};
        host_reduce_block(h, sources, targets, 1, run);
        host_walk_advance(&walk, run);
    }
    return HVD_OK;
}

void host_small_start(struct host_coll *h)
{
    bool is_inline = h->total <= SHM_BOARD_INLINE;
    uint8_t bytes[SHM_BOARD_INLINE];
    inputs_copy(h, is_inline ? bytes : host_slot_next(h));
    h->step = small_step;
    host_publish_bytes(h, bytes, is_inline ? (size_t)h->total : 0);
}

/* --- some in slots, some in arenas --- */

void host_slot_fill(struct host_coll *h)
{
    inputs_copy(h, host_slot_next(h));
}

static hvd_status_t results_step(struct host_coll *h, struct error *error)
{
    (void)error;
    struct host_walk walk = own_part(h);
    while (walk.left > 0) {
        uint64_t run = host_walk_run(h, &walk, UINT64_MAX);
        memcpy((uint8_t *)h->coll->parts[walk.part].out + walk.out_at, h->small + walk.pos,
               (size_t)run);
        host_walk_advance(&walk, run);
    }
    return HVD_OK;
}

/* After the heads and places have been read. */
hvd_status_t host_small_mixed(struct host_coll *h)
{
    const void *sources[HOST_MEMBERS_MAX];
    bool any_arena = (h->flags_any & HOST_ARENA) != 0;
    struct host_walk walk = own_part(h);
    while (walk.left > 0) {
        uint64_t run = host_walk_run(h, &walk, UINT64_MAX);
        for (int32_t i = 0; i < h->size; i++) {
            const struct host_member *m = &h->members[i];
            sources[i] = m->is_arena ? m->places[walk.part].in + walk.in_at
                                     : host_slot(h, i) + h->prefix[walk.part] + walk.in_at;
        }
        uint8_t *out = (uint8_t *)h->coll->parts[walk.part].out + walk.out_at;
        void *targets[1] = {any_arena ? h->small + walk.pos : out};
        host_reduce_block(h, sources, targets, 1, run);
        host_walk_advance(&walk, run);
    }
    if (!any_arena)
        return HVD_OK;
    h->step = results_step;
    host_publish_flags(h, 0);
    return HVD_IN_PROGRESS;
}
