/* SPDX-License-Identifier: Apache-2.0 */
/* host_small.c - reductions so small that every member computes the result itself.
 *
 * The input goes out with the wave: within the cache line of the phase word, or in the slot. One
 * wave, then everyone reduces all inputs in member order, so all get the same bits. No last wave is
 * needed: the slot is not written again before everybody has gone through another wave.
 *
 * Thread: token holder.  Start reading at host_small_start(). */
#include "backend/native/host.h"

#include <string.h>

#define SMALL_BYTES_FEW  (8u << 10) /* up to this many bytes for ... */
#define SMALL_FEW        8          /* ... this many members */
#define SMALL_BYTES_MANY (2u << 10)

bool host_is_small(const struct host_coll *h)
{
    return h->total <= (h->size <= SMALL_FEW ? SMALL_BYTES_FEW : SMALL_BYTES_MANY);
}

static hvd_status_t small_step(struct host_coll *h, struct error *error)
{
    (void)error;
    const struct coll *coll = h->coll;
    bool is_inline = h->total <= SHM_BOARD_INLINE;
    const void *sources[HOST_MEMBERS_MAX];
    struct host_walk walk =
        coll->kind == HVD_ALLREDUCE ? host_walk_all(h) : host_walk_share(h, h->self);
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
    const struct coll *coll = h->coll;
    bool is_inline = h->total <= SHM_BOARD_INLINE;
    uint8_t bytes[SHM_BOARD_INLINE];
    uint8_t *to = is_inline ? bytes : host_slot_next(h);
    for (int32_t part = 0; part < coll->part_count; part++) {
        size_t n = (size_t)(h->prefix[part + 1] - h->prefix[part]);
        if (n > 0)
            memcpy(to + h->prefix[part], coll->parts[part].in, n);
    }
    h->step = small_step;
    host_publish_bytes(h, bytes, is_inline ? (size_t)h->total : 0);
}
