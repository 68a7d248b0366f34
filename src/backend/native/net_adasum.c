/* SPDX-License-Identifier: Apache-2.0 */
/* net_adasum.c - Adasum: a sum that looks at the angle between gradients. Two vectors combine to
 *
 *   (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b
 *
 * which is their sum if they are orthogonal and their average if they are parallel; pairs combine,
 * then pairs of pairs. The rule is applied to each part (tensor) on its own.
 *
 * Recursive vector halving, distance doubling: at level 1, 2, 4, ... rank r and r XOR level swap
 * halves of the region that they share, so that each combines one half. The scalar products of a
 * part need the pieces of all 2 * level ranks of the block: they are added up by a small allreduce
 * of three doubles per part. At the end the halves are gathered back, level by level.
 *
 * Thread: token holder.  Owner: struct net_coll.  Invariant: an element is computed by one rank and
 * copied from there: all ranks have the same bits.  Start reading at net_adasum_progress(). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/native/net.h"
#include "schedule/build.h"

/* A part's elements inside my half of the current level. */
struct span {
    uint64_t first, count; /* in WORK */
};

static struct span part_span(const struct net_coll *n, int32_t part, uint64_t part_at)
{
    const struct net_adasum *a = &n->adasum;
    uint64_t first = a->levels[a->depth].keep, end = first + a->levels[a->depth].keep_count;
    uint64_t part_end = part_at + n->coll->parts[part].count;
    if (first < part_at)
        first = part_at;
    if (end > part_end)
        end = part_end;
    return first < end ? (struct span){first, end - first} : (struct span){0, 0};
}

static bool is_upper(const struct net_coll *n)
{
    return ((uint32_t)n->self >> n->adasum.depth & 1) != 0;
}

static struct build schedule_begin(struct net_coll *n)
{
    struct build b = {
        .s = &n->schedule, .size = n->size, .rank = n->self, .element_bytes = n->element_bytes};
    build_begin(&b, 0, SCHEDULE_AUTO);
    return b;
}

static hvd_status_t exec_tensor(struct net_coll *n, const struct build *b, struct error *error)
{
    hvd_status_t status = build_end(b, error);
    if (status != HVD_OK)
        return status;
    return net_exec_start(n, &n->schedule, n->work, n->scratch, n->element_bytes, n->coll->dtype,
                          HVD_SUM, 1.0, error);
}

/* Swaps halves with the partner of this level: mine stays in WORK, its part of it in SCRATCH. */
static hvd_status_t level_swap(struct net_coll *n, struct error *error)
{
    struct net_adasum *a = &n->adasum;
    uint64_t first = 0, count = n->work_count;
    if (a->depth > 0) {
        first = a->levels[a->depth - 1].keep;
        count = a->levels[a->depth - 1].keep_count;
    }
    uint64_t half = count / 2, rest = count - half;
    bool is_up = is_upper(n);
    a->levels[a->depth].keep = is_up ? first + half : first;
    a->levels[a->depth].keep_count = is_up ? rest : half;
    a->levels[a->depth].give = is_up ? first : first + half;
    a->levels[a->depth].give_count = is_up ? half : rest;
    struct slice keep = {0, a->levels[a->depth].keep_count};
    struct slice give = {a->levels[a->depth].give, a->levels[a->depth].give_count};
    int32_t peer = n->self ^ (1 << a->depth);
    struct build b = schedule_begin(n);
    build_transfer(&b, STEP_SEND, peer, give, keep.count > 0);
    build_transfer(&b, STEP_RECV_TEMP, peer, keep, false);
    a->has_dots = false;
    return exec_tensor(n, &b, error);
}

/* My share of the scalar products of every part, then their sum over the block. */
static hvd_status_t level_dots(struct net_coll *n, struct error *error)
{
    struct net_adasum *a = &n->adasum;
    uint64_t part_at = 0;
    bool is_up = is_upper(n);
    for (int32_t p = 0; p < n->coll->part_count; p++) {
        struct span span = part_span(n, p, part_at);
        double *dots = a->dots + 3 * (size_t)p;
        const uint8_t *own = n->work + span.first * n->element_bytes;
        const uint8_t *other =
            n->scratch + (span.first - a->levels[a->depth].keep) * n->element_bytes;
        dots[0] = dots[1] = dots[2] = 0.0;
        if (span.count > 0)
            reduce_adasum_dots(n->coll->dtype, is_up ? other : own, is_up ? own : other,
                               (size_t)span.count, dots);
        part_at += n->coll->parts[p].count;
    }
    int32_t block = 2 << a->depth;
    struct build b = schedule_begin(n);
    b.members = n->identity + n->self / block * block;
    b.size = block;
    b.rank = n->self % block;
    b.count = 3 * (uint64_t)n->coll->part_count;
    b.element_bytes = sizeof(double);
    build_recursive_doubling(&b);
    a->has_dots = true;
    if (b.status != HVD_OK)
        return error_set(error, b.status, "no memory for a schedule");
    return net_exec_start(n, &n->schedule, a->dots, NULL, sizeof(double), HVD_FLOAT64, HVD_SUM, 1.0,
                          error);
}

static double coefficient(double dot, double square)
{
    return square < sqrt(DBL_MIN) ? 1.0 : 1.0 - dot / (2.0 * square);
}

static void level_combine(struct net_coll *n)
{
    struct net_adasum *a = &n->adasum;
    uint64_t part_at = 0;
    bool is_up = is_upper(n);
    for (int32_t p = 0; p < n->coll->part_count; p++) {
        struct span span = part_span(n, p, part_at);
        const double *dots = a->dots + 3 * (size_t)p;
        double lower = coefficient(dots[0], dots[1]), upper = coefficient(dots[0], dots[2]);
        part_at += n->coll->parts[p].count;
        if (span.count == 0)
            continue;
        reduce_adasum_combine(n->coll->dtype, n->work + span.first * n->element_bytes,
                              n->scratch +
                                  (span.first - a->levels[a->depth].keep) * n->element_bytes,
                              (size_t)span.count, is_up ? upper : lower, is_up ? lower : upper);
    }
}

static hvd_status_t gather(struct net_coll *n, struct error *error)
{
    struct net_adasum *a = &n->adasum;
    struct build b = schedule_begin(n);
    for (int32_t depth = a->level_count - 1; depth >= 0; depth--) {
        int32_t peer = n->self ^ (1 << depth);
        struct slice keep = {a->levels[depth].keep, a->levels[depth].keep_count};
        struct slice give = {a->levels[depth].give, a->levels[depth].give_count};
        build_exchange(&b, peer, keep, peer, give);
    }
    a->is_gathering = true;
    return exec_tensor(n, &b, error);
}

hvd_status_t net_adasum_start(struct net_coll *n, struct error *error)
{
    struct net_adasum *a = &n->adasum;
    size_t dots = 3 * (size_t)n->coll->part_count;
    if ((size_t)a->dot_capacity < dots) {
        os_free(n->os, a->dots);
        a->dot_capacity = 0;
        a->dots = os_alloc(n->os, dots * sizeof *a->dots);
        if (a->dots == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "no memory for Adasum");
        a->dot_capacity = (int32_t)dots;
    }
    a->depth = 0;
    a->is_gathering = false;
    for (a->level_count = 0; 1 << a->level_count < n->size; a->level_count++)
        ;
    hvd_status_t status = net_reserve(n->os, &n->scratch, &n->scratch_bytes,
                                      (size_t)n->work_count * n->element_bytes, error);
    return status == HVD_OK ? level_swap(n, error) : status;
}

hvd_status_t net_adasum_progress(struct net_coll *n, bool *ret_moved, struct error *error)
{
    struct net_adasum *a = &n->adasum;
    for (;;) {
        hvd_status_t status = net_exec_progress(n, ret_moved, error);
        if (status != HVD_OK || a->is_gathering)
            return status;
        *ret_moved = true;
        if (!a->has_dots) {
            status = level_dots(n, error);
        } else {
            level_combine(n);
            a->depth++;
            status = a->depth < a->level_count ? level_swap(n, error) : gather(n, error);
        }
        if (status != HVD_OK)
            return status;
    }
}

void net_adasum_destroy(struct net_coll *n)
{
    os_free(n->os, n->adasum.dots);
}
