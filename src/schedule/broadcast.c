/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast.c - one rank's data to all: a binomial tree for small sizes (log2(N) rounds), scatter
 * along the same tree and then a ring allgather for large ones (about 2 S bytes at any N).
 *
 * Ranks are counted from the root: v = (rank - root) mod N. In the tree v gets its data from v
 * without its lowest set bit and serves v + bit for the smaller bits; in the scatter it gets
 * blocks v .. v + bit - 1. In the ring the root only sends: it has everything.
 *
 * Thread: any (pure).  Start reading at schedule_broadcast(). */
#include "schedule/build.h"

#define SMALL_BYTES (64u << 10)

static int32_t rank_of(const struct build *b, int32_t root, uint32_t v)
{
    return (int32_t)((v + (uint32_t)root) % (uint32_t)b->size);
}

/* Blocks [first, first + blocks) of the scatter. */
static struct slice blocks_at(const struct build *b, uint32_t first, uint32_t blocks)
{
    uint32_t n = (uint32_t)b->size;
    uint32_t end = first + blocks < n ? first + blocks : n;
    struct slice low = build_slice(b->count, n, first, b->element_bytes);
    struct slice high = build_slice(b->count, n, end - 1, b->element_bytes);
    return (struct slice){b->base + low.offset, high.offset + high.count - low.offset};
}

static void build_down(struct build *b, int32_t root, uint32_t v, bool is_scatter)
{
    uint32_t n = (uint32_t)b->size, bit = 1;
    struct slice all = {b->base, b->count};
    while (bit < n && (v & bit) == 0)
        bit *= 2;
    if (v != 0)
        build_transfer(b, STEP_RECV, rank_of(b, root, v - bit),
                       is_scatter ? blocks_at(b, v, bit) : all, false);
    while (bit > 1) {
        bit /= 2;
        if (v + bit < n)
            build_transfer(b, STEP_SEND, rank_of(b, root, v + bit),
                           is_scatter ? blocks_at(b, v + bit, bit) : all, false);
    }
}

static void build_around(struct build *b, int32_t root, uint32_t v)
{
    uint32_t n = (uint32_t)b->size;
    int32_t next = rank_of(b, root, (v + 1) % n), last = rank_of(b, root, (v + n - 1) % n);
    for (uint32_t round = 0; round < n - 1; round++) {
        struct slice out = blocks_at(b, (v + n - round) % n, 1);
        struct slice in = blocks_at(b, (v + n - round - 1) % n, 1);
        if (v == n - 1)
            out.count = 0;
        if (v == 0)
            in.count = 0;
        build_exchange(b, next, out, last, in);
    }
}

hvd_status_t schedule_broadcast(struct schedule *s, uint64_t count, size_t element_bytes,
                                int32_t root, int32_t rank, const struct topology *topology,
                                struct error *error)
{
    int32_t n = topology->size;
    if (rank < 0 || rank >= n || root < 0 || root >= n || element_bytes == 0)
        return error_set(error, HVD_ERR_INVALID, "broadcast schedule: rank %d, root %d of %d", rank,
                         root, n);
    struct build b = {.s = s, .size = n, .rank = rank, .element_bytes = element_bytes};
    uint32_t v = (uint32_t)((rank - root + n) % n);
    uint64_t bytes = count * element_bytes;
    bool is_small = bytes <= SMALL_BYTES || n == 2;
    int32_t channels = is_small ? 1 : build_channel_count(bytes, topology->channels);

    build_begin(&b, 0, SCHEDULE_AUTO);
    for (int32_t c = 0; n > 1 && c < channels; c++) {
        struct slice slice = build_slice(count, (uint64_t)channels, (uint64_t)c, element_bytes);
        b.base = slice.offset;
        b.count = slice.count;
        b.channel = (uint16_t)c;
        build_down(&b, root, v, !is_small);
        if (!is_small)
            build_around(&b, root, v);
    }
    return build_end(&b, error);
}
