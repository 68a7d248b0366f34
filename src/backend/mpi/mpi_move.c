/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_move.c - windows of blocks between the tensors and our memory.
 *
 * A block belongs to one rank: for an allreduce or a broadcast all parts one after the other, else
 * rank i's piece of every part, one after the other. Prescale is applied when copying in, postscale
 * when copying out.
 *
 * Thread: token holder.  Blocks: never.  Start reading at move(). */
#include <string.h>

#include "backend/mpi/mpi_backend.h"
#include "reduce/reduce.h"

/* The position of a part's piece in a block. */
struct piece {
    uint64_t at, count; /* elements */
};

static struct piece piece_of(const struct mpi_coll *c, int32_t part, int32_t block, bool is_in)
{
    const struct coll *coll = c->coll;
    const uint64_t *counts = coll->counts + (size_t)part * (size_t)c->size;
    uint64_t at = 0;
    switch (coll->kind) {
    case HVD_ALLTOALL: counts = is_in ? coll->counts : coll->recv_counts; break;
    case HVD_ALLGATHER:
        if (is_in)
            return (struct piece){0, counts[block]};
        break;
    case HVD_REDUCESCATTER:
        if (!is_in)
            return (struct piece){0, counts[block]};
        break;
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: return (struct piece){0, coll->parts[part].count};
    }
    for (int32_t i = 0; i < block; i++)
        at += counts[i];
    return (struct piece){at, counts[block]};
}

static void copy(const struct mpi_coll *c, void *to, const void *from, uint64_t count, double scale)
{
    if (scale == 1.0) {
        memcpy(to, from, (size_t)count * c->element_bytes);
        return;
    }
    struct reduce_job job = {.dtype = c->coll->dtype,
                             .op = HVD_SUM,
                             .prescale = scale,
                             .postscale = 1.0,
                             .sources = &from,
                             .source_count = 1,
                             .targets = &to,
                             .target_count = 1,
                             .count = (size_t)count};
    reduce_run(&job);
}

static void copy_wide(void *to, const void *from, uint64_t count, bool is_in, double scale)
{
    if (is_in)
        reduce_widen(HVD_FLOAT16, from, (size_t)count, scale, to);
    else
        reduce_narrow(HVD_FLOAT16, from, (size_t)count, scale, to);
}

static void move(const struct mpi_coll *c, int32_t block, uint64_t from, uint64_t count,
                 uint8_t *work, bool is_in, double scale)
{
    const struct coll *coll = c->coll;
    for (int32_t p = 0; p < coll->part_count && count > 0; p++) {
        struct piece piece = piece_of(c, p, block, is_in);
        if (from >= piece.count) {
            from -= piece.count;
            continue;
        }
        uint64_t n = piece.count - from < count ? piece.count - from : count;
        size_t at = (size_t)(piece.at + from) * c->tensor_bytes;
        const void *source = is_in ? (const uint8_t *)coll->parts[p].in + at : work;
        void *target = is_in ? work : (uint8_t *)coll->parts[p].out + at;
        if (c->is_wide)
            copy_wide(target, source, n, is_in, scale);
        else
            copy(c, target, source, n, scale);
        work += n * c->element_bytes;
        count -= n;
        from = 0;
    }
}

static bool is_reducing(const struct mpi_coll *c)
{
    return c->coll->kind == HVD_ALLREDUCE || c->coll->kind == HVD_REDUCESCATTER;
}

void mpi_move_in(const struct mpi_coll *c, int32_t block, uint64_t from, uint64_t count,
                 uint8_t *to)
{
    move(c, block, from, count, to, true, is_reducing(c) ? c->coll->prescale : 1.0);
}

void mpi_move_out(const struct mpi_coll *c, int32_t block, uint64_t from, uint64_t count,
                  uint8_t *work)
{
    move(c, block, from, count, work, false, is_reducing(c) ? c->coll->postscale : 1.0);
}
