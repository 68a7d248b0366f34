/* SPDX-License-Identifier: Apache-2.0 */
/* host_wave.c - waves, their heads, and the agreement about reading private memory.
 *
 * Wave k uses line and slot k & 1 of each board. What was written for wave k may be overwritten for
 * wave k + 2: by then all members have published k + 1 and so have finished with k.
 *
 * Reading a peer's private memory needs the kernel's permission and the right process id. So it is
 * tried once: each member publishes a secret word and its address, every member tries to read all
 * of them, and one vote against it decides for the group.
 *
 * Everything a peer publishes is copied and checked before it is used; invalid data marks the peer
 * down.
 *
 * Thread: token holder.  Start reading at host_publish_head(). */
#include "backend/native/host.h"

#include <string.h>
#include <sys/uio.h>

#define PLACE_PRIVATE (1ull << 63) /* the rest is an address of the member, not an offset */

/* --- publishing --- */

static void publish(struct host_coll *h, const void *bytes, size_t n)
{
    uint64_t wave = h->wave + 1;
    struct shm_line *line = &h->members[h->self].board->line[wave & 1];
    memcpy(line->inline_bytes, bytes, n);
    atomic_store(&line->phase, wave);
    h->wave = wave;
    h->seen = 0;
    h->is_waiting = true;
    shm_notify_all(h->shm, h->ranks, h->size);
}

void host_publish_bytes(struct host_coll *h, const void *bytes, size_t n)
{
    h->has_flags = false;
    publish(h, bytes, n);
}

void host_publish_flags(struct host_coll *h, uint32_t flags)
{
    h->has_flags = true;
    publish(h, &flags, sizeof flags);
}

uint8_t *host_slot_next(struct host_coll *h)
{
    return h->members[h->self].board->slot[(h->wave + 1) & 1];
}

const uint8_t *host_slot(const struct host_coll *h, int32_t member)
{
    return h->members[member].board->slot[h->wave & 1];
}

/* --- awaiting --- */

static void flags_gather(struct host_coll *h)
{
    h->flags_any = 0;
    h->flags_all = UINT32_MAX;
    for (int32_t i = 0; i < h->size; i++) {
        uint32_t flags;
        memcpy(&flags, h->members[i].board->line[h->wave & 1].inline_bytes, sizeof flags);
        h->flags_any |= flags;
        h->flags_all &= flags;
    }
}

/* Equality, not "at least": a member that was reset and has continued must not be mistaken for one
 * that has arrived here. */
bool host_arrived(struct host_coll *h)
{
    uint64_t wave = h->wave;
    for (; h->seen < h->size; h->seen++) {
        struct shm_line *line = &h->members[h->seen].board->line[wave & 1];
        if (atomic_load_explicit(&line->phase, memory_order_acquire) != wave)
            return false;
    }
    if (h->has_flags)
        flags_gather(h);
    return true;
}

bool host_coll_awaits(const struct host_coll *h, int32_t index)
{
    const struct shm_line *line = &h->members[index].board->line[h->wave & 1];
    return h->is_waiting && atomic_load_explicit(&line->phase, memory_order_relaxed) != h->wave;
}

hvd_status_t host_members_check(struct host_coll *h, struct error *error)
{
    uint32_t downs = shm_down_count(h->shm);
    if (downs == h->downs_seen)
        return HVD_OK;
    for (int32_t i = 0; i < h->size; i++) {
        if (i == h->self)
            continue;
        hvd_status_t status = shm_peer_error(h->shm, h->ranks[i], error);
        if (status != HVD_OK)
            return status;
    }
    h->downs_seen = downs;
    return HVD_OK;
}

hvd_status_t host_corrupt(struct host_coll *h, int32_t member, const char *what,
                          struct error *error)
{
    if (member == h->self)
        return error_set(error, HVD_ERR_INTERNAL, "this rank %s", what);
    shm_peer_fail(h->shm, h->ranks[member], HVD_ERR_CORRUPT, what);
    return shm_peer_error(h->shm, h->ranks[member], error);
}

/* Reports it to the others with the wave that they are about to await. */
hvd_status_t host_give_up(struct host_coll *h, hvd_status_t status)
{
    host_publish_flags(h, HOST_FAILED);
    return status;
}

/* The caller gets its memory back while others may still read it. They check our wave after
 * reading: if it is withdrawn, they know that the data they read may be invalid. */
void host_withdraw(struct host_coll *h)
{
    for (int i = 0; i < 2; i++)
        atomic_store(&h->members[h->self].board->line[i].phase, 0);
}

hvd_status_t host_done(struct host_coll *h, struct error *error)
{
    (void)h;
    (void)error;
    return HVD_OK;
}

/* --- places: where every member's parts are --- */

bool host_is_own_arena(struct host_coll *h)
{
    const struct coll *coll = h->coll;
    bool has_outputs = coll->kind == HVD_ALLREDUCE;
    for (int32_t part = 0; part < coll->part_count; part++) {
        const struct coll_part *p = &coll->parts[part];
        size_t bytes = (size_t)(h->prefix[part + 1] - h->prefix[part]);
        if (bytes == 0)
            continue;
        if (shm_offset(h->shm, p->in, bytes) == UINT64_MAX)
            return false;
        if (has_outputs && shm_offset(h->shm, p->out, bytes) == UINT64_MAX)
            return false;
    }
    return true;
}

static uint64_t place_encode(const struct host_coll *h, const void *ptr, size_t bytes,
                             bool is_arena)
{
    if (bytes == 0)
        return 0;
    return is_arena ? shm_offset(h->shm, ptr, bytes) : (uint64_t)(uintptr_t)ptr | PLACE_PRIVATE;
}

/* Into the slot of the next wave, if there are several parts. */
void host_places_write(struct host_coll *h, bool is_arena)
{
    if (h->coll->part_count == 1)
        return;
    uint8_t *slot = host_slot_next(h);
    for (int32_t part = 0; part < h->coll->part_count; part++) {
        const struct coll_part *p = &h->coll->parts[part];
        size_t bytes = (size_t)(h->prefix[part + 1] - h->prefix[part]);
        uint64_t place[2] = {place_encode(h, p->in, bytes, is_arena), 0};
        if (h->coll->kind == HVD_ALLREDUCE)
            place[1] = place_encode(h, p->out, bytes, is_arena);
        memcpy(slot + (size_t)part * sizeof place, place, sizeof place);
    }
}

static bool place_decode(const struct host_coll *h, int32_t member, uint64_t word, uint64_t bytes,
                         bool is_arena, uint8_t **ret)
{
    *ret = NULL;
    if (bytes == 0)
        return true;
    if (is_arena != ((word & PLACE_PRIVATE) == 0))
        return false;
    if (!is_arena) {
        *ret = (uint8_t *)(uintptr_t)(word & ~PLACE_PRIVATE);
        return true;
    }
    if (!shm_is_heap_range(h->shm, h->ranks[member], word, bytes))
        return false;
    *ret = h->members[member].segment + word;
    return true;
}

/* Bytes of the input of `part` on `member`. */
static uint64_t input_bytes(const struct host_coll *h, int32_t member, int32_t part)
{
    if (h->coll->kind == HVD_ALLGATHER)
        return h->coll->counts[part * h->size + member] * h->element;
    if (h->coll->kind == HVD_ALLTOALL)
        return h->members[member].total;
    return h->prefix[part + 1] - h->prefix[part];
}

static bool places_of(struct host_coll *h, int32_t index)
{
    struct host_member *m = &h->members[index];
    const uint8_t *slot = host_slot(h, index);
    bool has_outputs = h->coll->kind == HVD_ALLREDUCE;
    for (int32_t part = 0; part < h->coll->part_count; part++) {
        uint64_t place[2] = {m->head.in, m->head.out};
        if (h->coll->part_count > 1)
            memcpy(place, slot + (size_t)part * sizeof place, sizeof place);
        uint64_t bytes = input_bytes(h, index, part);
        struct host_place *p = &m->places[part];
        if (!place_decode(h, index, place[0], bytes, m->is_arena, &p->in) ||
            !place_decode(h, index, place[1], has_outputs ? bytes : 0, m->is_arena, &p->out))
            return false;
    }
    return true;
}

static void places_own(struct host_coll *h)
{
    for (int32_t part = 0; part < h->coll->part_count; part++) {
        const struct coll_part *p = &h->coll->parts[part];
        h->members[h->self].places[part] =
            (struct host_place){.in = (uint8_t *)(uintptr_t)p->in, .out = p->out};
    }
}

static bool places_reserve(struct host_coll *h)
{
    size_t parts = (size_t)h->coll->part_count;
    size_t need = parts * (size_t)h->size;
    if (need > h->place_capacity) {
        void *grown = h->os->resize(h->os->ctx, h->places, need * sizeof *h->places);
        if (grown == NULL)
            return false;
        h->places = grown;
        h->place_capacity = need;
    }
    for (int32_t i = 0; i < h->size; i++)
        h->members[i].places = h->places + (size_t)i * parts;
    return true;
}

hvd_status_t host_places_read(struct host_coll *h, struct error *error)
{
    if (!places_reserve(h))
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d parts",
                         (int)h->coll->part_count);
    for (int32_t i = 0; i < h->size; i++) {
        if (i == h->self)
            places_own(h);
        else if ((h->members[i].head.flags & HOST_IN_SLOT) == 0 && !places_of(h, i))
            return host_corrupt(h, i, "published buffers outside of its arena", error);
    }
    return HVD_OK;
}

/* --- heads --- */

/* FNV-1a over what must be equal everywhere. */
static uint32_t shape_of(const struct host_coll *h)
{
    const struct coll *coll = h->coll;
    uint64_t words[] = {(uint64_t)coll->kind,
                        (uint64_t)coll->dtype,
                        (uint64_t)coll->reduce,
                        (uint64_t)coll->part_count,
                        (uint64_t)coll->root,
                        coll->kind == HVD_ALLTOALL || coll->kind == HVD_ALLGATHER ? 0 : h->total};
    uint32_t hash = 2166136261u;
    const uint8_t *bytes = (const uint8_t *)words;
    for (size_t i = 0; i < sizeof words; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

void host_publish_head(struct host_coll *h, uint32_t flags)
{
    struct host_head head = {.flags = flags,
                             .shape = shape_of(h),
                             .secret_at = (uint64_t)(uintptr_t)&h->secret,
                             .secret = h->secret};
    if (h->stage != NULL)
        head.stage = shm_offset(h->shm, h->stage, (size_t)h->stage_bytes);
    const struct coll_part *p = &h->coll->parts[0];
    bool is_arena = (flags & HOST_ARENA) != 0;
    if (h->coll->part_count == 1 && (flags & HOST_IN_SLOT) == 0) {
        size_t bytes = (size_t)h->prefix[1];
        head.in = place_encode(h, p->in, bytes, is_arena);
        if (h->coll->kind == HVD_ALLREDUCE)
            head.out = place_encode(h, p->out, bytes, is_arena);
    }
    h->has_flags = true;
    publish(h, &head, sizeof head);
}

void host_publish_copy(struct host_coll *h, const uint8_t *copy)
{
    struct host_head head = {.flags = HOST_ARENA,
                             .shape = shape_of(h),
                             .in = shm_offset(h->shm, copy, (size_t)h->total)};
    h->has_flags = true;
    publish(h, &head, sizeof head);
}

static hvd_status_t head_read(struct host_coll *h, int32_t index, uint32_t shape,
                              struct error *error)
{
    struct host_member *m = &h->members[index];
    memcpy(&m->head, m->board->line[h->wave & 1].inline_bytes, sizeof m->head);
    m->is_arena = (m->head.flags & HOST_ARENA) != 0;
    m->stage = NULL;
    if (m->head.shape != shape)
        return error_set(error, HVD_ERR_MISMATCH, "rank %d runs another collective than this rank",
                         (int)h->ranks[index]);
    if ((m->head.flags & (HOST_ARENA | HOST_IN_SLOT)) == (HOST_ARENA | HOST_IN_SLOT))
        return host_corrupt(h, index, "published two places for one payload", error);
    if (m->head.stage == 0)
        return HVD_OK;
    if (!shm_is_heap_range(h->shm, h->ranks[index], m->head.stage, h->stage_bytes))
        return host_corrupt(h, index, "published staging outside of its arena", error);
    m->stage = m->segment + m->head.stage;
    return HVD_OK;
}

hvd_status_t host_heads_read(struct host_coll *h, struct error *error)
{
    uint32_t shape = shape_of(h);
    h->all_arena = true;
    h->any_private = false;
    for (int32_t i = 0; i < h->size; i++) {
        hvd_status_t status = head_read(h, i, shape, error);
        if (status != HVD_OK)
            return status;
        uint32_t flags = h->members[i].head.flags;
        h->all_arena &= (flags & HOST_ARENA) != 0;
        h->any_private |= (flags & (HOST_ARENA | HOST_IN_SLOT)) == 0;
    }
    return HVD_OK;
}

bool host_stage_reserve(struct host_coll *h)
{
    if (h->stage != NULL)
        return true;
    h->stage = shm_heap_alloc(h->shm, (size_t)h->stage_bytes);
    return h->stage != NULL;
}

/* --- may we read each other's memory? --- */

static bool secret_matches(struct host_coll *h, const struct host_member *m)
{
    uint64_t word = 0;
    struct iovec local = {.iov_base = &word, .iov_len = sizeof word};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)m->head.secret_at,
                           .iov_len = sizeof word};
    if (m->pid <= 0)
        return false;
    int64_t n = h->os->peer_read(h->os->ctx, m->pid, &local, 1, &remote, 1);
    return n == (int64_t)sizeof word && word == m->head.secret;
}

/* After the heads are read; whether there is a vote is equal on all members. */
void host_vote_prepare(struct host_coll *h)
{
    h->is_voting = h->any_private && h->read == HOST_READ_UNKNOWN;
}

uint32_t host_vote(struct host_coll *h)
{
    if (!h->is_voting || h->config->cma == 0)
        return 0;
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->self && !secret_matches(h, &h->members[i]))
            return 0;
    return HOST_CAN_READ | (h->config->cma > 0 ? (uint32_t)HOST_FORCE_READ : 0);
}

void host_vote_count(struct host_coll *h)
{
    if (!h->is_voting)
        return;
    h->is_voting = false;
    h->read = (h->flags_all & HOST_CAN_READ) != 0 ? HOST_READ_YES : HOST_READ_NO;
    h->is_read_forced = (h->flags_all & HOST_FORCE_READ) != 0;
}
