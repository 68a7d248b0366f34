/* SPDX-License-Identifier: Apache-2.0 */
/* host_gather.c - broadcast, allgather and alltoall: every member copies what the others
 * contribute.
 *
 * A small contribution is in the member's slot; then one wave is enough. Otherwise the readers copy
 * it from its arena, or by the kernel from its private memory, or chunk by chunk from its staging,
 * and after a last wave no reader needs its memory any more. Members may differ: one wave can have
 * a contribution in a slot, one in an arena and one in staging.
 *
 * Thread: token holder.  Start reading at host_gather_start(). */
#include "backend/native/host.h"

#include <string.h>

#define REMOTE_RUNS 32

static uint64_t half_bytes(const struct host_coll *h)
{
    return h->stage_unit * (uint64_t)h->size;
}

/* An alltoall begins with a table of where each member's rows begin. */
static uint64_t payload_at(const struct host_coll *h)
{
    return h->coll->kind == HVD_ALLTOALL ? ((uint64_t)h->size + 1) * sizeof(uint64_t) : 0;
}

static bool fits_slot(const struct host_coll *h, uint64_t bytes)
{
    return bytes <= SHM_BOARD_SLOT - payload_at(h);
}

static bool is_in_slot(const struct host_member *m)
{
    return (m->head.flags & HOST_IN_SLOT) != 0;
}

static bool is_staged(const struct host_coll *h, const struct host_member *m)
{
    return !is_in_slot(m) && !m->is_arena && !h->is_read_mode;
}

/* --- how much each member contributes --- */

static void totals_fill(struct host_coll *h)
{
    const struct coll *coll = h->coll;
    for (int32_t i = 0; i < h->size; i++) {
        struct host_member *m = &h->members[i];
        m->total = 0;
        if (coll->kind == HVD_BROADCAST && i == coll->root)
            m->total = h->total;
        if (coll->kind == HVD_ALLGATHER)
            for (int32_t part = 0; part < coll->part_count; part++)
                m->total += coll->counts[part * h->size + i] * h->element;
    }
    if (coll->kind == HVD_ALLTOALL)
        h->members[h->self].total = h->total;
}

static hvd_status_t counts_check(const struct host_coll *h, struct error *error)
{
    const struct coll *coll = h->coll;
    uint64_t given = 0;
    if (coll->kind == HVD_BROADCAST)
        return HVD_OK;
    if (coll->kind == HVD_ALLTOALL)
        for (int32_t i = 0; i < h->size; i++)
            given += coll->counts[i] * h->element;
    else
        given = h->members[h->self].total;
    if (given != h->total)
        return error_set(error, HVD_ERR_INVALID, "the counts say %llu bytes, the tensors have %llu",
                         (unsigned long long)given, (unsigned long long)h->total);
    return HVD_OK;
}

static void table_write(struct host_coll *h)
{
    uint8_t *slot = host_slot_next(h);
    uint64_t at = 0;
    for (int32_t i = 0; i <= h->size; i++) {
        memcpy(slot + (size_t)i * sizeof at, &at, sizeof at);
        if (i < h->size)
            at += h->coll->counts[i] * h->element;
    }
}

static hvd_status_t table_read(struct host_coll *h, int32_t index, struct error *error)
{
    struct host_member *m = &h->members[index];
    const uint8_t *slot = host_slot(h, index);
    uint64_t mine[2], total;
    memcpy(mine, slot + (size_t)h->self * sizeof total, sizeof mine);
    memcpy(&total, slot + (size_t)h->size * sizeof total, sizeof total);
    if (mine[0] > mine[1] || mine[1] > total)
        return host_corrupt(h, index, "published an impossible table of rows", error);
    if (mine[1] - mine[0] != h->coll->recv_counts[index] * h->element)
        return error_set(error, HVD_ERR_MISMATCH,
                         "rank %d sends %llu bytes to this rank, which expects %llu",
                         (int)h->ranks[index], (unsigned long long)(mine[1] - mine[0]),
                         (unsigned long long)(h->coll->recv_counts[index] * h->element));
    m->wanted_at = mine[0];
    m->total = total;
    return HVD_OK;
}

/* --- giving --- */

static void slot_fill(struct host_coll *h)
{
    uint8_t *to = host_slot_next(h) + payload_at(h);
    for (int32_t part = 0; part < h->coll->part_count; part++) {
        size_t n = (size_t)(h->prefix[part + 1] - h->prefix[part]);
        if (n > 0)
            memcpy(to + h->prefix[part], h->coll->parts[part].in, n);
    }
}

static void stage_chunk(struct host_coll *h, uint64_t chunk)
{
    uint8_t *to = h->stage + (chunk & 1) * half_bytes(h);
    struct host_walk *walk = &h->stage_walk;
    host_walk_copy_in(h, walk, walk->left < half_bytes(h) ? walk->left : half_bytes(h), to);
}

/* --- taking --- */

/* Bytes of the walk that can be taken in this step. */
static uint64_t takeable(const struct host_coll *h, const struct host_walk *walk)
{
    if (walk->member == h->self || !is_staged(h, &h->members[walk->member]))
        return walk->left;
    uint64_t end = (h->chunk + 1) * half_bytes(h);
    if (walk->pos >= end)
        return 0;
    return walk->left < end - walk->pos ? walk->left : end - walk->pos;
}

static const uint8_t *source_of(const struct host_coll *h, const struct host_walk *walk)
{
    const struct host_member *m = &h->members[walk->member];
    if (walk->member != h->self && is_in_slot(m))
        return host_slot(h, walk->member) + payload_at(h) + walk->pos;
    if (walk->member != h->self && is_staged(h, m))
        return m->stage + (h->chunk & 1) * half_bytes(h) + (walk->pos - h->chunk * half_bytes(h));
    return m->places[walk->part].in + walk->in_at;
}

static hvd_status_t take_remote(struct host_coll *h, struct host_walk *walk, uint64_t max,
                                uint64_t *ret_done, struct error *error)
{
    uint8_t *to[REMOTE_RUNS], *from[REMOTE_RUNS];
    uint64_t bytes[REMOTE_RUNS];
    int32_t count = 0, member = walk->member;
    struct host_walk before = *walk;
    *ret_done = 0;
    while (walk->left > 0 && *ret_done < max && count < REMOTE_RUNS) {
        uint64_t run = host_walk_run(h, walk, max - *ret_done);
        to[count] = (uint8_t *)h->coll->parts[walk->part].out + walk->out_at;
        from[count] = h->members[member].places[walk->part].in + walk->in_at;
        bytes[count++] = run;
        host_walk_advance(walk, run);
        *ret_done += run;
    }
    hvd_status_t status = host_remote_read(h, member, to, from, bytes, count, error);
    if (status == HVD_AGAIN)
        *walk = before;
    return status;
}

static hvd_status_t take_some(struct host_coll *h, struct host_walk *walk, uint64_t max,
                              uint64_t *ret_done, struct error *error)
{
    const struct host_member *m = &h->members[walk->member];
    if (walk->member != h->self && !is_in_slot(m) && !m->is_arena && h->is_read_mode)
        return take_remote(h, walk, max, ret_done, error);
    uint64_t run = host_walk_run(h, walk, max);
    uint8_t *to = (uint8_t *)h->coll->parts[walk->part].out + walk->out_at;
    const uint8_t *from = source_of(h, walk);
    if (to != from)
        memmove(to, from, (size_t)run);
    host_walk_advance(walk, run);
    *ret_done = run;
    return HVD_OK;
}

static hvd_status_t take_all(struct host_coll *h, struct error *error)
{
    uint64_t budget = HOST_BUDGET_BYTES;
    while (h->cursor < h->size && budget > 0) {
        struct host_walk *walk = &h->out_walks[(h->self + h->cursor) % h->size];
        uint64_t max = takeable(h, walk), done;
        if (max == 0) {
            h->cursor++;
            continue;
        }
        hvd_status_t status = take_some(h, walk, max < budget ? max : budget, &done, error);
        if (status != HVD_OK)
            return status;
        budget = done < budget ? budget - done : 0;
    }
    return h->cursor < h->size ? HVD_IN_PROGRESS : HVD_OK;
}

/* --- steps --- */

static hvd_status_t end_step(struct host_coll *h, struct error *error)
{
    (void)error;
    host_vote_count(h);
    return HVD_OK;
}

static hvd_status_t gather_step(struct host_coll *h, struct error *error)
{
    if (h->chunk > 0)
        host_vote_count(h);
    hvd_status_t status = take_all(h, error);
    if (status == HVD_IN_PROGRESS || status == HVD_AGAIN)
        return HVD_IN_PROGRESS;
    if (status != HVD_OK)
        return host_give_up(h, status);
    if (!h->any_large)
        return HVD_OK;
    uint64_t chunk = h->chunk++;
    if (is_staged(h, &h->members[h->self]))
        stage_chunk(h, chunk + 1);
    h->cursor = 0;
    h->step = h->chunk < h->chunk_count ? gather_step : end_step;
    host_publish_flags(h, chunk == 0 ? host_vote(h) : 0);
    return HVD_IN_PROGRESS;
}

static hvd_status_t gifts_prepare(struct host_coll *h, struct error *error)
{
    h->any_large = false;
    h->chunk_count = 1;
    for (int32_t i = 0; i < h->size; i++) {
        struct host_member *m = &h->members[i];
        if (h->coll->kind == HVD_ALLTOALL) {
            hvd_status_t status = table_read(h, i, error);
            if (status != HVD_OK)
                return status;
        }
        if (is_in_slot(m) != fits_slot(h, m->total))
            return host_corrupt(h, i, "published another size than agreed", error);
        h->any_large |= !is_in_slot(m);
        if (!is_staged(h, m))
            continue;
        if (m->stage == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "rank %d has no arena memory for staging",
                             (int)h->ranks[i]);
        uint64_t chunks = (m->total + half_bytes(h) - 1) / half_bytes(h);
        h->chunk_count = chunks > h->chunk_count ? chunks : h->chunk_count;
    }
    return HVD_OK;
}

static hvd_status_t ready_step(struct host_coll *h, struct error *error)
{
    hvd_status_t status = host_heads_read(h, error);
    if (status == HVD_OK)
        status = gifts_prepare(h, error);
    if (status == HVD_OK)
        status = host_places_read(h, error);
    if (status != HVD_OK)
        return host_give_up(h, status);
    for (int32_t i = 0; i < h->size; i++)
        h->out_walks[i] = host_walk_gift(h, i);
    host_vote_prepare(h);
    h->chunk = 0;
    h->cursor = 0;
    h->step = gather_step;
    return gather_step(h, error);
}

hvd_status_t host_gather_start(struct host_coll *h, struct error *error)
{
    totals_fill(h);
    hvd_status_t status = counts_check(h, error);
    if (status != HVD_OK)
        return status;
    uint64_t given = h->members[h->self].total;
    uint32_t flags = 0;
    h->is_read_mode = h->read == HOST_READ_YES;
    if (h->coll->kind == HVD_ALLTOALL)
        table_write(h);
    if (fits_slot(h, given)) {
        flags = HOST_IN_SLOT;
        if (given > 0)
            slot_fill(h);
    } else {
        bool is_arena = host_is_own_arena(h);
        flags = is_arena ? (uint32_t)HOST_ARENA : 0;
        host_places_write(h, is_arena);
        if (!is_arena && !h->is_read_mode && host_stage_reserve(h)) {
            h->stage_walk = host_walk_all(h);
            stage_chunk(h, 0);
        }
    }
    h->step = ready_step;
    host_publish_head(h, flags);
    return HVD_OK;
}
