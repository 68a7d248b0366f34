/* SPDX-License-Identifier: Apache-2.0 */
/* net_layout.c - where the pieces of a fused collective are in WORK, and moving them there and
 * back.
 *
 * WORK is ordered by rank first, then by part: rank 0's piece of part 0, of part 1, ..., rank 1's
 * piece of part 0, ... so that what one rank contributes or receives is contiguous. An allreduce
 * has one piece per part, as if of one rank. One mover walks over the pieces in this order in all
 * cases: the position in WORK is contiguous; the position in each tensor is kept per part.
 *
 * Thread: token holder.  Owner: struct net_coll.  Invariant: scaling and conversion happen in the
 * pass that copies, never in a separate one unless input and WORK are the same memory. Start
 * reading at net_move_in(). */
#include <string.h>

#include "backend/native/net.h"

enum direction { DIRECTION_IN, DIRECTION_OUT, DIRECTION_THROUGH };

hvd_status_t net_reserve(const struct os *os, uint8_t **memory, size_t *capacity, size_t bytes,
                         struct error *error)
{
    if (*capacity >= bytes)
        return HVD_OK;
    size_t wanted = bytes + bytes / 8 + 4096;
    os_free(os, *memory);
    *capacity = 0;
    *memory = os_alloc(os, wanted);
    if (*memory == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a buffer of %zu bytes", wanted);
    *capacity = wanted;
    return HVD_OK;
}

uint64_t net_piece_count(const struct net_coll *n, int32_t rank, int32_t part)
{
    const struct coll *coll = n->coll;
    if (coll->kind == HVD_ALLGATHER || coll->kind == HVD_REDUCESCATTER)
        return coll->counts[(size_t)part * (size_t)n->size + (size_t)rank];
    return coll->parts[part].count;
}

void net_move_begin(struct net_coll *n, int32_t rank, int32_t rank_end, uint64_t work_at,
                    double scale)
{
    n->mover = (struct net_mover){.rank = rank, .rank_end = rank_end, .work_at = work_at};
    n->move_scale = scale;
    memset(n->part_at, 0, (size_t)n->coll->part_count * sizeof *n->part_at);
}

static void move_elements(const struct net_coll *n, const void *from, void *to, uint64_t count,
                          double prescale, double postscale)
{
    if (prescale == 1.0 && postscale == 1.0) {
        if (from != to)
            memcpy(to, from, count * n->element_bytes);
        return;
    }
    struct reduce_job job = {.dtype = n->coll->dtype,
                             .op = HVD_SUM,
                             .prescale = prescale,
                             .postscale = postscale,
                             .sources = &from,
                             .source_count = 1,
                             .targets = &to,
                             .target_count = 1,
                             .count = count};
    reduce_run(&job);
}

/* Between float32 and a type of 16 bits. */
static void convert(hvd_dtype_t from_dtype, const void *from, hvd_dtype_t to_dtype, void *to,
                    uint64_t count, double factor)
{
    if (to_dtype == HVD_FLOAT32)
        reduce_widen(from_dtype, from, count, factor, to);
    else
        reduce_narrow(to_dtype, from, count, factor, to);
}

static void move_piece(const struct net_coll *n, enum direction direction, uint64_t count)
{
    const struct net_mover *m = &n->mover;
    const struct coll_part *part = &n->coll->parts[m->part];
    size_t tensor_at = (n->part_at[m->part] + m->piece_done) * n->element_bytes;
    const uint8_t *in = (const uint8_t *)part->in + tensor_at;
    uint8_t *out = (uint8_t *)part->out + tensor_at;
    uint8_t *work = n->work + (m->work_at + m->piece_done) * n->work_bytes;
    switch (direction) {
    case DIRECTION_IN:
        if (n->work_dtype == n->coll->dtype)
            move_elements(n, in, work, count, n->move_scale, 1.0);
        else
            convert(n->coll->dtype, in, n->work_dtype, work, count, n->move_scale);
        return;
    case DIRECTION_OUT:
        if (n->work_dtype == n->coll->dtype)
            move_elements(n, work, out, count, 1.0, n->move_scale);
        else
            convert(n->work_dtype, work, n->coll->dtype, out, count, n->move_scale);
        return;
    case DIRECTION_THROUGH:
        if (n->coll->kind == HVD_ALLREDUCE || n->coll->kind == HVD_REDUCESCATTER)
            move_elements(n, in, out, count, n->coll->prescale, n->coll->postscale);
        else
            move_elements(n, in, out, count, 1.0, 1.0);
        return;
    }
}

static void next_piece(struct net_coll *n, uint64_t count)
{
    struct net_mover *m = &n->mover;
    n->part_at[m->part] += count;
    m->work_at += count;
    m->piece_done = 0;
    if (++m->part < n->coll->part_count)
        return;
    m->part = 0;
    m->rank++;
}

static bool move(struct net_coll *n, enum direction direction)
{
    struct net_mover *m = &n->mover;
    uint64_t budget = NET_QUANTUM_BYTES / n->element_bytes;
    while (m->rank < m->rank_end) {
        uint64_t count = net_piece_count(n, m->rank, m->part), left = count - m->piece_done;
        if (left > budget) {
            move_piece(n, direction, budget);
            m->piece_done += budget;
            return false;
        }
        if (left > 0)
            move_piece(n, direction, left);
        budget -= left;
        next_piece(n, count);
    }
    return true;
}

bool net_move_in(struct net_coll *n)
{
    return move(n, DIRECTION_IN);
}

bool net_move_out(struct net_coll *n)
{
    return move(n, DIRECTION_OUT);
}

bool net_move_through(struct net_coll *n)
{
    return move(n, DIRECTION_THROUGH);
}
