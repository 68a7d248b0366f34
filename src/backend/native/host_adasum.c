/* SPDX-License-Identifier: Apache-2.0 */
/* host_adasum.c - adaptive summation, for a power of two of members.
 *
 * Two vectors a, b of one part become  (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b  (a factor is 1
 * if the norm is 0); members are paired like the leaves of a binary tree, per part:
 *
 *      level 0: (0,1) (2,3) (4,5) (6,7)     level 1: (0,2) (4,6)     level 2: (0,4)
 *
 * Every member copies its input, prescaled, into its arena. From then on each works on its share of
 * all vectors: partial dot products of a level are published with a wave, every member adds up all
 * members' partial sums in member order and combines its own share in place, in the memory of the
 * lower member of the pair. At the end member 0's memory contains the result, which all copy,
 * postscaled.
 *
 * Thread: token holder.  Invariant: a byte of any copy is accessed only by the member whose share
 * it is, until the last level's wave.  Start reading at host_adasum_start(). */
#include "backend/native/host.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define DOTS       3
#define DOTS_BYTES (DOTS * sizeof(double))
#define BATCH_MAX  (SHM_BOARD_SLOT / DOTS_BYTES)

hvd_status_t host_adasum_check(const struct host_coll *h, const struct coll *coll,
                               struct error *error)
{
    bool is_float = coll->dtype == HVD_FLOAT16 || coll->dtype == HVD_BFLOAT16 ||
                    coll->dtype == HVD_FLOAT32 || coll->dtype == HVD_FLOAT64;
    if (!is_float)
        return error_set(error, HVD_ERR_UNSUPPORTED, "Adasum needs a float type, not %s",
                         hvd_dtype_name(coll->dtype));
    if ((h->size & (h->size - 1)) != 0)
        return error_set(error, HVD_ERR_UNSUPPORTED, "Adasum needs a power of two of ranks, not %d",
                         (int)h->size);
    return HVD_OK;
}

static void scaled_copy(const struct coll *coll, const void *from, void *to, size_t count,
                        double factor)
{
    if (count > 0)
        reduce_copy(coll->dtype, from, to, count, factor);
}

/* The copy of `member`, of the concatenation of all parts. */
static uint8_t *copy_of(const struct host_coll *h, int32_t member)
{
    return h->members[member].segment + h->members[member].head.in;
}

/* --- one pair of vectors of one part --- */

struct pair {
    int32_t a, b;
    int32_t part;
    uint64_t at, bytes; /* my share of the part, in the concatenation */
};

static uint64_t pair_count(const struct host_coll *h)
{
    return (uint64_t)(h->size >> (h->level + 1));
}

static struct pair pair_of(const struct host_coll *h, uint64_t triple)
{
    int32_t parts = h->coll->part_count;
    struct pair pair = {.part = (int32_t)(triple % (uint64_t)parts)};
    pair.a = (int32_t)(triple / (uint64_t)parts) << (h->level + 1);
    pair.b = pair.a + (1 << h->level);
    uint64_t begin = h->own_walk.pos, end = begin + h->own_walk.left;
    uint64_t low = h->prefix[pair.part], high = h->prefix[pair.part + 1];
    low = low > begin ? low : begin;
    high = high < end ? high : end;
    pair.at = low;
    pair.bytes = high > low ? high - low : 0;
    return pair;
}

static void pair_dots(const struct host_coll *h, uint64_t triple, uint8_t *ret_dots)
{
    struct pair pair = pair_of(h, triple);
    double dots[DOTS] = {0};
    if (pair.bytes > 0)
        reduce_adasum_dots(h->coll->dtype, copy_of(h, pair.a) + pair.at,
                           copy_of(h, pair.b) + pair.at, (size_t)pair.bytes / h->element, dots);
    memcpy(ret_dots, dots, sizeof dots);
}

static void pair_combine(struct host_coll *h, uint64_t triple, uint64_t index)
{
    struct pair pair = pair_of(h, triple);
    double sums[DOTS] = {0};
    for (int32_t i = 0; i < h->size; i++) {
        double dots[DOTS];
        memcpy(dots, host_slot(h, i) + index * DOTS_BYTES, sizeof dots);
        for (int k = 0; k < DOTS; k++)
            sums[k] += dots[k];
    }
    double tiny = sqrt(DBL_MIN);
    double factor_a = sums[1] < tiny ? 1.0 : 1.0 - sums[0] / (2.0 * sums[1]);
    double factor_b = sums[2] < tiny ? 1.0 : 1.0 - sums[0] / (2.0 * sums[2]);
    if (pair.bytes > 0)
        reduce_adasum_combine(h->coll->dtype, copy_of(h, pair.a) + pair.at,
                              copy_of(h, pair.b) + pair.at, (size_t)pair.bytes / h->element,
                              factor_a, factor_b);
}

/* --- steps --- */

static hvd_status_t result_step(struct host_coll *h, struct error *error)
{
    (void)error;
    const struct coll *coll = h->coll;
    for (int32_t part = 0; part < coll->part_count; part++)
        scaled_copy(coll, copy_of(h, 0) + h->prefix[part], coll->parts[part].out,
                    (size_t)coll->parts[part].count, coll->postscale);
    h->step = host_done;
    host_publish_flags(h, 0);
    return HVD_IN_PROGRESS;
}

static hvd_status_t combine_step(struct host_coll *h, struct error *error);

/* Publishes the next batch of dot products, or after the last level a plain wave. */
static hvd_status_t batch_begin(struct host_coll *h)
{
    uint64_t triples = pair_count(h) * (uint64_t)h->coll->part_count;
    if (h->triple == triples) {
        h->level++;
        h->triple = 0;
        triples = pair_count(h) * (uint64_t)h->coll->part_count;
    }
    if (triples == 0) {
        h->step = result_step;
        host_publish_flags(h, 0);
        return HVD_IN_PROGRESS;
    }
    h->batch = triples - h->triple < BATCH_MAX ? triples - h->triple : BATCH_MAX;
    uint8_t *slot = host_slot_next(h);
    for (uint64_t i = 0; i < h->batch; i++)
        pair_dots(h, h->triple + i, slot + i * DOTS_BYTES);
    h->step = combine_step;
    host_publish_flags(h, 0);
    return HVD_IN_PROGRESS;
}

static hvd_status_t combine_step(struct host_coll *h, struct error *error)
{
    (void)error;
    for (uint64_t i = 0; i < h->batch; i++)
        pair_combine(h, h->triple + i, i);
    h->triple += h->batch;
    return batch_begin(h);
}

static hvd_status_t ready_step(struct host_coll *h, struct error *error)
{
    hvd_status_t status = host_heads_read(h, error);
    if (status != HVD_OK)
        return host_give_up(h, status);
    for (int32_t i = 0; i < h->size; i++)
        if (!shm_is_heap_range(h->shm, h->ranks[i], h->members[i].head.in, h->total))
            return host_give_up(
                h, host_corrupt(h, i, "published a vector outside of its arena", error));
    h->own_walk = host_walk_share(h, h->self);
    h->own_walk.pos = h->prefix[h->own_walk.part] + h->own_walk.in_at;
    h->level = 0;
    h->triple = 0;
    return batch_begin(h);
}

static bool copy_reserve(struct host_coll *h)
{
    uint64_t bytes = h->total > 0 ? h->total : 1;
    if (bytes <= h->adasum_bytes)
        return true;
    shm_heap_free(h->shm, h->adasum);
    h->adasum = shm_heap_alloc(h->shm, (size_t)bytes);
    h->adasum_bytes = h->adasum != NULL ? bytes : 0;
    return h->adasum != NULL;
}

void host_adasum_start(struct host_coll *h)
{
    const struct coll *coll = h->coll;
    h->step = ready_step;
    if (!copy_reserve(h)) {
        host_publish_flags(h, HOST_FAILED);
        return;
    }
    for (int32_t part = 0; part < coll->part_count; part++)
        scaled_copy(coll, coll->parts[part].in, h->adasum + h->prefix[part],
                    (size_t)coll->parts[part].count, coll->prescale);
    host_publish_copy(h, h->adasum);
}
