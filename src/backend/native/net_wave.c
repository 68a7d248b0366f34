/* SPDX-License-Identifier: Apache-2.0 */
/* net_wave.c - the wave steps of a schedule: ranks on one machine that map each other's WORK.
 *
 * Wave w of a collective is phase `sight.phase + w` on the boards of the process set. With wave 0 a
 * rank publishes where its WORK is in its segment; a peer's value is checked before it is used. All
 * ranks on the machine run the same waves, so their phases stay equal without messages.
 *
 * Thread: token holder.  Owner: struct net_coll.  Invariant: between waves the schedule lets only
 * one rank access an element (src/schedule/check.c proves it).  Start at net_wave_step(). */
#include <string.h>

#include "backend/native/net.h"

struct wave_word { /* beside the phase in the board's line */
    uint64_t offset, bytes;
};
_Static_assert(sizeof(struct wave_word) <= SHM_BOARD_INLINE, "fits beside the phase");

static struct shm_line *line_of(const struct net_coll *n, int32_t rank, uint64_t phase)
{
    return &shm_board(n->sight.shm, rank, n->set_id)->line[phase & 1];
}

void net_sight_withdraw(struct net_coll *n)
{
    for (uint64_t i = 0; i < 2; i++)
        atomic_store(&line_of(n, n->sight.ranks[n->sight.self], i)->phase, 0);
}

static bool is_published(const struct net_coll *n, uint64_t phase)
{
    for (int32_t i = 0; i < n->sight.count; i++)
        if (atomic_load(&line_of(n, n->sight.ranks[i], phase)->phase) != phase)
            return false;
    return true;
}

static bool waiter_is_ready(const struct shm_waiter *waiter)
{
    const struct net_coll *n =
        (const void *)((const char *)waiter - offsetof(struct net_coll, sight.waiter));
    return is_published(n, n->sight.waiting_phase);
}

void net_sight_cancel(struct net_coll *n)
{
    struct net_sight *sight = &n->sight;
    if (!sight->is_waiting)
        return;
    shm_waiter_remove(sight->shm, &sight->waiter);
    sight->is_waiting = false;
}

void net_sight_finish(struct net_coll *n)
{
    n->sight.phase += n->sight.wave_next;
    n->sight.wave_next = 0;
}

void net_sight_destroy(struct net_coll *n)
{
    net_sight_cancel(n);
    os_free(n->os, n->sight.ranks);
    os_free(n->os, n->sight.work);
    os_free(n->os, n->sight.sources);
}

hvd_status_t net_sight_create(struct net_coll *n, const struct group *group, struct error *error)
{
    struct net_sight *sight = &n->sight;
    int32_t host = group->topology.host[group->self];
    size_t size = (size_t)group->size;
    sight->shm = n->routes.shm;
    sight->waiter.is_ready = waiter_is_ready;
    sight->ranks = os_alloc(n->os, size * sizeof *sight->ranks);
    sight->work = os_alloc(n->os, size * sizeof *sight->work);
    sight->sources = os_alloc(n->os, size * sizeof *sight->sources);
    if (sight->ranks == NULL || sight->work == NULL || sight->sources == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a group of %d", group->size);
    for (int32_t i = 0; i < group->size; i++) {
        if (group->topology.host[i] != host)
            continue;
        if (shm_board(sight->shm, group->ranks[i], group->set_id) == NULL)
            return error_set(error, HVD_ERR_LINK,
                             "rank %d is on this host but its memory can't be reached",
                             group->ranks[i]);
        if (i == group->self)
            sight->self = sight->count;
        sight->ranks[sight->count++] = group->ranks[i];
    }
    return HVD_OK;
}

static hvd_status_t wave_publish(struct net_coll *n, const struct step *step, struct error *error)
{
    struct net_sight *sight = &n->sight;
    uint64_t phase = sight->phase + (uint64_t)step->wave;
    size_t bytes = n->work_count * n->work_bytes;
    struct wave_word word = {shm_offset(sight->shm, n->work, bytes), bytes};
    struct shm_line *line = line_of(n, sight->ranks[sight->self], phase);
    if (word.offset == UINT64_MAX)
        return error_set(error, HVD_ERR_INTERNAL, "a two-level buffer is not in the arena");
    memcpy(line->inline_bytes, &word, sizeof word);
    atomic_store(&line->phase, phase);
    sight->wave_next = (uint64_t)step->wave + 1;
    shm_notify_all(sight->shm, sight->ranks, sight->count);
    return HVD_OK;
}

static hvd_status_t peer_locate(struct net_coll *n, int32_t place, uint64_t phase,
                                struct error *error)
{
    struct net_sight *sight = &n->sight;
    int32_t rank = sight->ranks[place];
    struct transport *t = shm_transport(sight->shm);
    struct wave_word word;
    uint64_t arena_bytes;
    memcpy(&word, line_of(n, rank, phase)->inline_bytes, sizeof word);
    uint8_t *arena = t->ops->arena(t, rank, &arena_bytes);
    if (arena == NULL || word.bytes != n->work_count * n->work_bytes ||
        !shm_is_heap_range(sight->shm, rank, word.offset, word.bytes))
        return error_set(error,
                         shm_peer_fail(sight->shm, rank, HVD_ERR_CORRUPT,
                                       "published a buffer that is not in its arena"),
                         "rank %d published a buffer that is not in its arena", rank);
    sight->work[place] = arena + word.offset;
    return HVD_OK;
}

static hvd_status_t wave_await(struct net_coll *n, const struct step *step, bool *ret_moved,
                               struct error *error)
{
    struct net_sight *sight = &n->sight;
    uint64_t phase = sight->phase + (uint64_t)step->wave;
    for (int32_t i = 0; i < sight->count; i++) {
        if (atomic_load(&line_of(n, sight->ranks[i], phase)->phase) == phase)
            continue;
        hvd_status_t status = shm_peer_error(sight->shm, sight->ranks[i], error);
        if (status != HVD_OK)
            return status;
        sight->waiting_phase = phase;
        if (!sight->is_waiting)
            shm_waiter_add(sight->shm, &sight->waiter);
        sight->is_waiting = true;
        return HVD_IN_PROGRESS;
    }
    net_sight_cancel(n);
    *ret_moved = true;
    for (int32_t i = 0; step->wave == 0 && i < sight->count; i++) {
        hvd_status_t status = peer_locate(n, i, phase, error);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}

static uint8_t *travel_at(const struct net_coll *n, uint64_t element)
{
    return n->travel + (size_t)element * hvd_dtype_bytes(n->travel_dtype);
}

static void part_reduce(struct net_coll *n, const struct step *step, uint64_t first, uint64_t count)
{
    struct net_sight *sight = &n->sight;
    size_t at = (size_t)(step->offset + first) * n->work_bytes;
    void *target = n->work + at;
    for (int32_t i = 0; i < sight->count; i++)
        sight->sources[i] = i == sight->self ? n->work + at : sight->work[i] + at;
    struct reduce_job job = {.dtype = n->work_dtype,
                             .op = n->exec.reduce,
                             .prescale = 1.0,
                             .postscale = step->is_final ? n->exec.postscale : 1.0,
                             .sources = sight->sources,
                             .source_count = sight->count,
                             .targets = &target,
                             .target_count = 1,
                             .count = (size_t)count};
    reduce_run(&job);
    if (n->travel != NULL)
        reduce_narrow(n->travel_dtype, target, (size_t)count, 1.0,
                      travel_at(n, step->offset + first));
}

static void part_spread(struct net_coll *n, const struct step *step, uint64_t first, uint64_t count)
{
    size_t at = (size_t)(step->offset + first) * n->work_bytes;
    if (n->travel != NULL)
        reduce_widen(n->travel_dtype, travel_at(n, step->offset + first), (size_t)count, n->rest,
                     (float *)(void *)(n->work + at));
    for (int32_t i = 0; i < n->sight.count; i++)
        if (i != n->sight.self)
            memcpy(n->sight.work[i] + at, n->work + at, (size_t)count * n->work_bytes);
}

/* Works on the region piece by piece; progress() returns in between. */
static hvd_status_t wave_work(struct net_coll *n, const struct step *step, bool *ret_moved)
{
    struct net_exec *x = &n->exec;
    uint64_t piece = NET_SEGMENT_BYTES / n->work_bytes, budget = 4 * piece;
    while (x->wave_done < step->count && budget > 0) {
        uint64_t left = step->count - x->wave_done, count = left < piece ? left : piece;
        if (step->kind == STEP_SPREAD)
            part_spread(n, step, x->wave_done, count);
        else
            part_reduce(n, step, x->wave_done, count);
        x->wave_done += count;
        budget -= piece;
    }
    *ret_moved = true;
    return x->wave_done == step->count ? HVD_OK : HVD_IN_PROGRESS;
}

hvd_status_t net_wave_step(struct net_coll *n, const struct step *step, bool *ret_moved,
                           struct error *error)
{
    switch (step->kind) {
    case STEP_PUBLISH: *ret_moved = true; return wave_publish(n, step, error);
    case STEP_AWAIT: return wave_await(n, step, ret_moved, error);
    case STEP_REDUCE_HOST:
    case STEP_SPREAD: return wave_work(n, step, ret_moved);
    case STEP_SEND:
    case STEP_RECV:
    case STEP_RECV_REDUCE:
    case STEP_SEND_TEMP:
    case STEP_RECV_TEMP:
    case STEP_COPY_OUT:
    case STEP_COPY_IN:
    case STEP_REDUCE_IN: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "step %d is not for this executor", (int)step->kind);
}
