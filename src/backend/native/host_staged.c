/* SPDX-License-Identifier: Apache-2.0 */
/* host_staged.c - reductions of private memory, through staging in the arena, pipelined.
 *
 * Every share is split into chunks. Chunk k of all shares is copied in by its owner (its own share
 * never is), reduced in place by the share's member, and copied out again by its owner, each one
 * wave after the other:
 *
 *      wave k has arrived:   copy out chunk k - 1   (others have reduced it in my staging)
 *                            reduce chunk k of my share, to my output and into others' staging
 *                            copy in chunk k + 1
 *                            publish k + 1
 *
 * The result is written to where the input was read: a cache line is then transferred twice, with
 * separate staging for results four times, and that is most of the time. Staging has two
 * alternating halves: a half is copied in only after its results were copied out, and read and
 * written by others only between two waves. The chunk after the last one only copies out, so after
 * the last wave no member accesses another's memory. Members with buffers in their arena skip the
 * copies: they are read and written directly.
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
        host_walk_copy_in(h, walk, chunk_bytes(h, walk), stage_in(h, h->stage, chunk, i));
    }
}

static void copy_out(struct host_coll *h, uint64_t chunk)
{
    for (int32_t n = 1; n < h->size; n++) {
        int32_t i = (h->self + n) % h->size;
        struct host_walk *walk = &h->out_walks[i];
        const uint8_t *from = stage_in(h, h->stage, chunk, i);
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

/* Sources, and targets of the result: own output, others' outputs in arenas or the staging that was
 * read. */
static int32_t ends_of(const struct host_coll *h, uint64_t chunk, uint64_t at,
                       const void **ret_sources, void **ret_targets)
{
    const struct host_walk *walk = &h->own_walk;
    bool is_allreduce = h->coll->kind == HVD_ALLREDUCE;
    int32_t count = 0;
    ret_targets[count++] = h->members[h->self].places[walk->part].out + walk->out_at;
    for (int32_t i = 0; i < h->size; i++) {
        const struct host_member *m = &h->members[i];
        bool is_direct = i == h->self || m->is_arena;
        uint8_t *staged = is_direct ? NULL : stage_in(h, m->stage, chunk, h->self) + at;
        ret_sources[i] = is_direct ? m->places[walk->part].in + walk->in_at : staged;
        if (i != h->self && is_allreduce)
            ret_targets[count++] = is_direct ? m->places[walk->part].out + walk->out_at : staged;
    }
    return count;
}

static void reduce_chunk(struct host_coll *h, uint64_t chunk)
{
    const void *sources[HOST_MEMBERS_MAX];
    void *targets[HOST_MEMBERS_MAX];
    struct host_walk *walk = &h->own_walk;
    uint64_t at = 0;
    for (uint64_t left = chunk_bytes(h, walk); left > 0;) {
        uint64_t run = host_walk_run(h, walk, left < HOST_BLOCK_BYTES ? left : HOST_BLOCK_BYTES);
        int32_t count = ends_of(h, chunk, at, sources, targets);
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
