/* SPDX-License-Identifier: Apache-2.0 */
/* host_staged.c - reductions of private memory, through staging in the arena, pipelined.
 *
 * Every share is cut into chunks. Chunk k of all shares is copied in by its owner (its own share
 * never is), reduced by the share's member, and copied out again, each one wave after the other:
 *
 *     wave k has arrived:   copy out chunk k - 1   (from the others' results)
 *                           reduce chunk k of my share, to my output and my result staging
 *                           copy in chunk k + 1
 *                           publish k + 1
 *
 * Both kinds of staging have two halves, used by turns: what step k reads was written in step
 * k - 1, and is written again in step k + 1, when all members have published k + 1. The chunk after
 * the last one only copies out, so the last result is taken before the collective ends, and all
 * reading of inputs has ended one wave earlier. Members in their arena skip the copies: they are
 * read and written directly.
 *
 * Thread: token holder.  Start reading at host_staged_step(). */
#include "backend/native/host.h"

#include <string.h>

static uint64_t half_bytes(const struct host_coll *h)
{
    return h->stage_unit * (uint64_t)h->size;
}

static uint8_t *stage_in(const struct host_coll *h, uint8_t *stage, uint64_t chunk, int32_t share)
{
    return stage + (chunk & 1) * half_bytes(h) + (uint64_t)share * h->stage_unit;
}

static uint8_t *stage_result(const struct host_coll *h, uint8_t *stage, uint64_t chunk)
{
    return stage + 2 * half_bytes(h) + (chunk & 1) * h->stage_unit;
}

static uint64_t chunk_bytes(const struct host_coll *h, const struct host_walk *walk)
{
    return walk->left < h->stage_unit ? walk->left : h->stage_unit;
}

void host_staged_copy_in(struct host_coll *h, uint64_t chunk)
{
    for (int32_t i = 0; i < h->size; i++) {
        if (i == h->self)
            continue;
        struct host_walk *walk = &h->in_walks[i];
        uint8_t *to = stage_in(h, h->stage, chunk, i);
        for (uint64_t left = chunk_bytes(h, walk); left > 0;) {
            uint64_t run = host_walk_run(h, walk, left);
            const uint8_t *from = h->coll->parts[walk->part].in;
            memcpy(to, from + walk->in_at, (size_t)run);
            host_walk_advance(walk, run);
            to += run;
            left -= run;
        }
    }
}

static void copy_out(struct host_coll *h, uint64_t chunk)
{
    for (int32_t n = 1; n < h->size; n++) {
        int32_t i = (h->self + n) % h->size; /* not all from the same one at once */
        struct host_walk *walk = &h->out_walks[i];
        const uint8_t *from = stage_result(h, h->members[i].stage, chunk);
        for (uint64_t left = chunk_bytes(h, walk); left > 0;) {
            uint64_t run = host_walk_run(h, walk, left);
            uint8_t *to = h->coll->parts[walk->part].out;
            memcpy(to + walk->out_at, from, (size_t)run);
            host_walk_advance(walk, run);
            from += run;
            left -= run;
        }
    }
}

/* Where the reduced bytes go: own output, outputs in arenas, results for private members. */
static int32_t targets_of(const struct host_coll *h, const struct host_walk *walk, uint8_t *result,
                          void **ret_targets)
{
    int32_t count = 0;
    bool has_private_peer = false;
    ret_targets[count++] = h->members[h->self].places[walk->part].out + walk->out_at;
    if (h->coll->kind == HVD_REDUCESCATTER)
        return count;
    for (int32_t i = 0; i < h->size; i++) {
        if (i == h->self)
            continue;
        if (h->members[i].is_arena)
            ret_targets[count++] = h->members[i].places[walk->part].out + walk->out_at;
        else
            has_private_peer = true;
    }
    if (has_private_peer)
        ret_targets[count++] = result;
    return count;
}

static void reduce_chunk(struct host_coll *h, uint64_t chunk)
{
    const void *sources[HOST_MEMBERS_MAX];
    void *targets[HOST_MEMBERS_MAX + 1];
    struct host_walk *walk = &h->own_walk;
    uint64_t at = 0;
    for (uint64_t left = chunk_bytes(h, walk); left > 0;) {
        uint64_t run = host_walk_run(h, walk, left < HOST_BLOCK_BYTES ? left : HOST_BLOCK_BYTES);
        for (int32_t i = 0; i < h->size; i++) {
            const struct host_member *m = &h->members[i];
            if (i == h->self || m->is_arena)
                sources[i] = m->places[walk->part].in + walk->in_at;
            else
                sources[i] = stage_in(h, m->stage, chunk, h->self) + at;
        }
        int32_t count = targets_of(h, walk, stage_result(h, h->stage, chunk) + at, targets);
        host_reduce_block(h, sources, targets, count, run);
        host_walk_advance(walk, run);
        at += run;
        left -= run;
    }
}

void host_staged_begin(struct host_coll *h)
{
    uint64_t longest = 0;
    for (int32_t i = 0; i < h->size; i++) {
        uint64_t bytes = host_share_bytes(h, i);
        longest = bytes > longest ? bytes : longest;
        h->out_walks[i] = host_walk_share(h, i);
    }
    h->chunk = 0;
    h->chunk_count = (longest + h->stage_unit - 1) / h->stage_unit;
}

hvd_status_t host_staged_step(struct host_coll *h, struct error *error)
{
    (void)error;
    bool is_private = !h->members[h->self].is_arena;
    bool takes_results = is_private && h->coll->kind == HVD_ALLREDUCE;
    uint64_t chunk = h->chunk++;
    if (chunk > 0)
        host_vote_count(h);
    if (chunk > 0 && takes_results)
        copy_out(h, chunk - 1);
    if (chunk == h->chunk_count) {
        host_reduce_measured(h);
        return HVD_OK;
    }
    reduce_chunk(h, chunk);
    if (is_private && chunk + 1 < h->chunk_count)
        host_staged_copy_in(h, chunk + 1);
    host_publish_flags(h, chunk == 0 ? host_vote(h) : 0);
    return HVD_IN_PROGRESS;
}
