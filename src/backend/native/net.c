/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - collectives of any group over transports.
 *
 * start() lays the parts out in a WORK buffer, gets this rank's steps from src/schedule and enters
 * the first phase; progress() then moves the inputs in, runs the steps and moves the results out:
 *
 *       MOVE_IN -> RUN (or ADASUM) -> MOVE_OUT -> done
 *
 * Partial sums are sent in the tensor's type. The partial sums of a float16 average may then
 * overflow although the average is representable. Results are equal on all ranks, so all of them
 * see an infinite one and all run the collective again, with float32 on the wire. A reducescatter's
 * are not; it uses float32 from the start.
 *
 * A float32 sum may travel in a smaller type (coll->wire): then WORK has that type and the two
 * moves convert. In the two-level algorithm WORK remains float32, ranks of a machine add their
 * values as they are, and the wave steps convert between WORK and `travel` (net_wave.c).
 *
 * A single tensor is processed in its output, and so are several that are reduced in place and lie
 * one after the other in memory, as an optimizer's gradients do; others are packed. If some ranks
 * of the group share a machine (and not all do), allreduce uses the two-level algorithm in shared
 * memory, with WORK in the arena; all else runs flat over the routes.
 *
 * Thread: token holder.  Owner: struct backend_group.  Blocks: never.  Invariant: the same kinds of
 * steps in the same order on all ranks: every choice depends only on what is equal on all of them.
 * Start reading at net_coll_start(). */
#include "backend/native/net.h"

#include <string.h>

#define CHANNELS_MIN 4 /* so that one channel's reduction overlaps with another's transfer */
_Static_assert(NET_CHANNELS <= 1 << STREAM_CHANNEL_BITS, "channels fit their bits");

/* ---- streams ---- */

/* Each transport of the group learns that our streams are in use from now on, or that they have
 * ended. */
static void streams_tell(struct net_coll *n, bool is_over)
{
    struct transport *last = NULL;
    for (int32_t i = 0; i < n->size; i++) {
        struct transport *t = i != n->self ? n->routes.routes[n->ranks[i]] : NULL;
        if (t == NULL || t == last)
            continue;
        last = t; /* hearing it twice does no harm */
        if (is_over && t->ops->bulk_close != NULL)
            t->ops->bulk_close(t, n->stream_base);
        else if (!is_over && t->ops->bulk_open != NULL)
            t->ops->bulk_open(t, n->set_id, n->stream_base);
    }
    n->has_streams = !is_over;
}

static void streams_end(struct net_coll *n)
{
    if (n->has_streams)
        streams_tell(n, true);
}

static void streams_begin(struct net_coll *n, uint64_t base)
{
    base &= ~(uint64_t)UINT32_MAX;
    if (n->stream_base >> STREAM_LIFE_AT != base >> STREAM_LIFE_AT)
        streams_end(n);
    n->stream_base = base;
    n->sequence = 0;
    streams_tell(n, false);
}

/* ---- create and destroy ---- */

static hvd_status_t no_memory(struct error *error, int32_t size)
{
    return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a group of %d", size);
}

/* Are there several machines, one of which has several ranks? */
static bool has_machines(const struct group *group)
{
    const struct topology *t = &group->topology;
    return !group->is_one_host && t->host_count > 1 && t->host_count < group->size;
}

/* Do some but not all ranks share machines and memory, and are they few enough for one reduction?
 */
static bool has_useful_sight(const struct native_routes *routes, const struct group *group,
                             int32_t *tally)
{
    const struct topology *t = &group->topology;
    if (routes->shm == NULL || !has_machines(group))
        return false;
    for (int32_t i = 0; i < group->size; i++)
        if (++tally[t->host[i]] > REDUCE_SOURCES_MAX)
            return false;
    return true;
}

static hvd_status_t group_copy(struct net_coll *n, const struct config *config,
                               const struct group *group, struct error *error)
{
    size_t size = (size_t)group->size;
    n->ranks = os_alloc(n->os, size * sizeof *n->ranks);
    n->identity = os_alloc(n->os, size * sizeof *n->identity);
    n->hosts = os_alloc(n->os, size * sizeof *n->hosts);
    n->offsets = os_alloc(n->os, 4 * size * sizeof *n->offsets);
    n->part_at = os_alloc(n->os, COLL_PARTS_MAX * sizeof *n->part_at);
    if (n->ranks == NULL || n->identity == NULL || n->hosts == NULL || n->offsets == NULL ||
        n->part_at == NULL)
        return no_memory(error, group->size);
    n->counts = n->offsets + size;
    n->send_offsets = n->counts + size;
    n->send_counts = n->send_offsets + size;
    n->has_sight =
        config->hierarchical_allreduce && has_useful_sight(&n->routes, group, n->identity);
    bool has_leaders = config->hierarchical_allgather && has_machines(group);
    for (int32_t i = 0; i < group->size; i++) {
        n->ranks[i] = group->ranks[i];
        n->identity[i] = i;
        n->hosts[i] = n->has_sight || has_leaders ? group->topology.host[i] : i;
    }
    n->channels = group->topology.channels;
    n->flat = (struct topology){group->size, group->size, n->identity, 0, 0};
    struct topology machines = {group->size, group->topology.host_count, n->hosts, 0, 0};
    n->topology = n->has_sight ? machines : n->flat;
    n->gather = has_leaders ? machines : n->flat;
    return HVD_OK;
}

static hvd_status_t routes_check(const struct net_coll *n, struct error *error)
{
    for (int32_t i = 0; i < n->size; i++)
        if (i != n->self && n->routes.routes[n->ranks[i]] == NULL)
            return error_set(error, HVD_ERR_LINK, "there is no transport to rank %d", n->ranks[i]);
    return HVD_OK;
}

hvd_status_t net_coll_create(const struct os *os, const struct config *config,
                             const struct native_routes *routes, const struct group *group,
                             struct net_coll **ret, struct error *error)
{
    struct net_coll *n = os_alloc(os, sizeof *n);
    if (n == NULL)
        return no_memory(error, group->size);
    n->os = os;
    n->routes = *routes;
    n->set_id = group->set_id;
    n->size = group->size;
    n->self = group->self;
    schedule_init(&n->schedule, os);
    if (!schedule_algorithm_parse(config->algorithm, &n->forced))
        n->forced = SCHEDULE_AUTO;
    hvd_status_t status = group_copy(n, config, group, error);
    if (status == HVD_OK)
        status = routes_check(n, error);
    if (status == HVD_OK && n->has_sight)
        status = net_sight_create(n, group, error);
    if (status != HVD_OK) {
        net_coll_destroy(n);
        return status;
    }
    n->sight.phase = 1;
    *ret = n;
    return HVD_OK;
}

void net_coll_destroy(struct net_coll *n)
{
    if (n == NULL)
        return;
    streams_end(n);
    net_exec_destroy(n);
    net_sight_destroy(n);
    net_adasum_destroy(n);
    schedule_destroy(&n->schedule);
    if (n->arena != NULL)
        shm_heap_free(n->routes.shm, n->arena);
    os_free(n->os, n->memory);
    os_free(n->os, n->scratch);
    os_free(n->os, n->ranks);
    os_free(n->os, n->identity);
    os_free(n->os, n->hosts);
    os_free(n->os, n->offsets);
    os_free(n->os, n->part_at);
    os_free(n->os, n);
}

/* Ranks on this machine may be in the middle of writing to our WORK, even ones that have been
 * stopped and are resumed in an hour. */
static void lost_detach(struct net_coll *n)
{
    const struct coll *lost = net_coll_open_to_peers(n);
    if (lost == NULL)
        return;
    for (int32_t i = 0; i < lost->part_count; i++)
        shm_detach(n->routes.shm, lost->parts[i].out,
                   (size_t)lost->parts[i].count * hvd_dtype_bytes(lost->dtype));
    if (n->arena != NULL) {
        shm_detach(n->routes.shm, n->arena, n->arena_bytes);
        shm_heap_free(n->routes.shm, n->arena);
    }
    n->arena = NULL;
    n->arena_bytes = 0;
    n->lost = NULL;
}

const struct coll *net_coll_open_to_peers(const struct net_coll *n)
{
    const struct coll *coll = n->coll != NULL ? n->coll : n->lost;
    return n->has_sight && coll != NULL && coll->kind == HVD_ALLREDUCE ? coll : NULL;
}

void net_coll_doom(struct net_coll *n, const char *why)
{
    n->doom = why;
}

void net_coll_reset(struct net_coll *n, uint64_t base)
{
    /* The first new wave must not use the line that slower members may still be reading, that of
     * the last completed wave. */
    uint64_t last = n->sight.phase - 1, next = base + 1;
    /* the streams first: if a cancelled send must wait until its peer receives it (MPI), the peer,
     * which may be cancelling too, must know that it is to be discarded */
    if (base == BACKEND_BASE_LAST)
        streams_end(n);
    else
        streams_begin(n, base);
    net_exec_cancel(n);
    net_sight_cancel(n);
    if (base == BACKEND_BASE_LAST && n->has_sight) {
        net_sight_withdraw(n);
        lost_detach(n);
    }
    n->sight.phase = ((next ^ last) & 1) == 0 ? next + 1 : next;
    n->sight.wave_next = 0;
    n->phase = NET_IDLE;
    n->coll = NULL;
}

/* ---- laying out ---- */

static uint64_t blocks_lay_out(struct net_coll *n, size_t unit_bytes)
{
    uint64_t at = 0;
    for (int32_t i = 0; i < n->size; i++) {
        n->offsets[i] = at;
        n->counts[i] = 0;
        for (int32_t p = 0; p < n->coll->part_count; p++)
            n->counts[i] += net_piece_count(n, i, p) * unit_bytes;
        at += n->counts[i];
    }
    return at;
}

/* WORK in our own memory; in the arena if other ranks on the machine must access it. */
static hvd_status_t work_reserve(struct net_coll *n, bool in_arena, struct error *error)
{
    size_t bytes = (size_t)n->work_count * n->work_bytes;
    hvd_status_t status = HVD_OK;
    if (!in_arena) {
        status = net_reserve(n->os, &n->memory, &n->memory_bytes, bytes, error);
        n->work = n->memory;
        return status;
    }
    if (n->arena_bytes < bytes) {
        if (n->arena != NULL)
            shm_heap_free(n->routes.shm, n->arena);
        n->arena_bytes = 0;
        n->arena = shm_heap_alloc(n->routes.shm, bytes + bytes / 8);
        if (n->arena == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY,
                             "no room for %zu bytes in the arena; HOROVOD_ARENA_MAX sets its size",
                             bytes);
        n->arena_bytes = bytes + bytes / 8;
    }
    n->work = n->arena;
    return HVD_OK;
}

static enum schedule_algorithm algorithm_choose(const struct net_coll *n)
{
    uint64_t bytes = n->work_count * hvd_dtype_bytes(n->travel_dtype);
    enum schedule_algorithm chosen = schedule_select(bytes, &n->topology);
    switch (n->forced) {
    case SCHEDULE_RECURSIVE_DOUBLING:
    case SCHEDULE_RABENSEIFNER:
    case SCHEDULE_RING:
    case SCHEDULE_DOUBLE_TREE: return n->forced;
    case SCHEDULE_AUTO:
    case SCHEDULE_TWO_LEVEL:
    case SCHEDULE_ALGORITHM_COUNT: break;
    }
    return chosen;
}

static bool is_in_arena(const struct net_coll *n, const void *ptr, uint64_t count)
{
    return shm_offset(n->routes.shm, ptr, (size_t)count * n->element_bytes) != UINT64_MAX;
}

static hvd_status_t scaling_check(const struct net_coll *n, struct error *error)
{
    const struct coll *c = n->coll;
    bool is_adasum = c->reduce == HVD_ADASUM;
    hvd_status_t status =
        reduce_check(c->dtype, is_adasum ? HVD_SUM : c->reduce, c->prescale, c->postscale);
    if (status != HVD_OK)
        return error_set(error, status, "Reduction %d with these factors does not exist for %s.",
                         (int)c->reduce, hvd_dtype_name(c->dtype));
    return HVD_OK;
}

static hvd_status_t adasum_check(const struct net_coll *n, struct error *error)
{
    hvd_dtype_t dtype = n->coll->dtype;
    if ((n->size & (n->size - 1)) != 0)
        return error_set(error, HVD_ERR_UNSUPPORTED,
                         "Running Adasum with non-power of 2 ranks is not supported yet.");
    if (dtype != HVD_FLOAT16 && dtype != HVD_BFLOAT16 && dtype != HVD_FLOAT32 &&
        dtype != HVD_FLOAT64)
        return error_set(error, HVD_ERR_UNSUPPORTED, "Unsupported data type");
    return HVD_OK;
}

/* ---- starting each kind ---- */

static void work_type(struct net_coll *n, hvd_dtype_t dtype)
{
    n->work_dtype = dtype;
    n->work_bytes = hvd_dtype_bytes(dtype);
}

static void widen(struct net_coll *n)
{
    n->is_wide = true;
    n->is_narrow = false;
    n->travel_dtype = HVD_FLOAT32;
    work_type(n, HVD_FLOAT32);
}

/* An average of float16 values is in their range, but their sum may not be. So if the result is
 * scaled down, the final reductions divide by a power of two, which rounds nothing; all else is
 * applied to float32. */
static void factors_choose(struct net_coll *n)
{
    double postscale = n->coll->postscale;
    n->fold = n->is_narrow ? 1.0 : postscale;
    n->rest = n->is_narrow ? postscale : 1.0;
    for (int32_t k = 1; n->is_narrow && postscale > -1.0 && postscale < 1.0 && k < n->size;
         k *= 2) {
        n->fold *= 0.5;
        n->rest *= 2.0;
    }
}

/* Can the outputs serve as WORK? The answer may differ between ranks. */
static bool is_one_block(const struct net_coll *n)
{
    const struct coll_part *parts = n->coll->parts;
    const uint8_t *end = parts[0].out;
    for (int32_t p = 0; p < n->coll->part_count && n->coll->part_count > 1; p++) {
        if (parts[p].in != parts[p].out || parts[p].out != end)
            return false;
        end += parts[p].count * n->element_bytes;
    }
    return true;
}

static hvd_status_t allreduce_reserve(struct net_coll *n, bool is_two_level, struct error *error)
{
    const struct coll *c = n->coll;
    n->is_direct =
        is_one_block(n) && (!is_two_level || is_in_arena(n, c->parts[0].out, n->work_count));
    if (n->is_wide || (n->is_narrow && !is_two_level) ||
        (n->needs_width && c->parts[0].in == c->parts[0].out))
        n->is_direct = false; /* the inputs may be needed again, or WORK has another type */
    n->work = c->parts[0].out;
    n->travel = NULL;
    hvd_status_t status = n->is_direct ? HVD_OK : work_reserve(n, is_two_level, error);
    if (status != HVD_OK || !n->is_narrow || !is_two_level)
        return status;
    status = net_reserve(n->os, &n->memory, &n->memory_bytes,
                         (size_t)n->work_count * hvd_dtype_bytes(n->travel_dtype), error);
    n->travel = n->memory;
    return status;
}

static hvd_status_t start_allreduce(struct net_coll *n, struct error *error)
{
    const struct coll *c = n->coll;
    bool is_adasum = c->reduce == HVD_ADASUM;
    hvd_status_t status = is_adasum ? adasum_check(n, error) : HVD_OK;
    if (status == HVD_OK)
        status = scaling_check(n, error);
    if (status != HVD_OK)
        return status;
    n->work_count = 0;
    for (int32_t p = 0; p < c->part_count; p++)
        n->work_count += c->parts[p].count;
    enum schedule_algorithm algorithm = algorithm_choose(n);
    bool is_two_level = !is_adasum && algorithm == SCHEDULE_TWO_LEVEL;
    work_type(n, is_two_level && n->is_narrow ? c->dtype : n->travel_dtype);
    factors_choose(n);
    status = allreduce_reserve(n, is_two_level, error);
    if (status == HVD_OK && !is_adasum)
        status = schedule_allreduce(&n->schedule, algorithm, n->work_count,
                                    hvd_dtype_bytes(n->travel_dtype), n->self,
                                    is_two_level ? &n->topology : &n->flat, error);
    net_move_begin(n, 0, 1, 0, c->prescale);
    n->phase = NET_MOVE_IN;
    return status;
}

static hvd_status_t start_allgather(struct net_coll *n, struct error *error)
{
    const struct coll *c = n->coll;
    hvd_status_t status = HVD_OK;
    n->work_count = blocks_lay_out(n, n->element_bytes) / n->element_bytes;
    n->is_direct = c->part_count == 1;
    n->work = c->parts[0].out;
    if (!n->is_direct)
        status = work_reserve(n, false, error);
    if (status == HVD_OK)
        status =
            schedule_allgather(&n->schedule, n->offsets, n->counts, n->self, &n->gather, error);
    net_move_begin(n, n->self, n->self + 1, n->offsets[n->self] / n->element_bytes, 1.0);
    n->phase = NET_MOVE_IN;
    return status;
}

static hvd_status_t start_reducescatter(struct net_coll *n, struct error *error)
{
    hvd_status_t status = scaling_check(n, error);
    if (status != HVD_OK)
        return status;
    if (n->needs_width)
        widen(n);
    n->work_count = blocks_lay_out(n, 1);
    n->is_direct = false;
    status = work_reserve(n, false, error);
    if (status == HVD_OK)
        status =
            schedule_reducescatter(&n->schedule, n->offsets, n->counts, n->self, &n->flat, error);
    if (status == HVD_OK)
        status = net_reserve(n->os, &n->scratch, &n->scratch_bytes,
                             (size_t)n->schedule.scratch_count * n->work_bytes, error);
    net_move_begin(n, 0, n->size, 0, n->coll->prescale);
    n->phase = NET_MOVE_IN;
    return status;
}

static hvd_status_t start_broadcast(struct net_coll *n, struct error *error)
{
    const struct coll *c = n->coll;
    if (c->root < 0 || c->root >= n->size)
        return error_set(error, HVD_ERR_INVALID, "broadcast: root %d of %d", c->root, n->size);
    n->work_count = c->parts[0].count;
    n->is_direct = true;
    n->work = c->parts[0].out;
    net_move_begin(n, 0, n->self == c->root ? 1 : 0, 0, 1.0);
    n->phase = NET_MOVE_IN;
    return schedule_broadcast(&n->schedule, n->work_count, n->element_bytes, c->root, n->self,
                              &n->flat, error);
}

static hvd_status_t start_alltoall(struct net_coll *n, struct error *error)
{
    const struct coll *c = n->coll;
    uint64_t send_at = 0, recv_at = 0;
    for (int32_t i = 0; i < n->size; i++) {
        n->send_offsets[i] = send_at;
        n->send_counts[i] = c->counts[i] * n->element_bytes;
        n->offsets[i] = recv_at;
        n->counts[i] = c->recv_counts[i] * n->element_bytes;
        send_at += n->send_counts[i];
        recv_at += n->counts[i];
    }
    struct alltoall_shape shape = {n->send_offsets, n->send_counts, n->offsets, n->counts};
    n->is_direct = true;
    n->work = c->parts[0].out;
    n->work_count = recv_at / n->element_bytes;
    if (c->parts[0].in == c->parts[0].out && send_at > 0) {
        hvd_status_t status = net_reserve(n->os, &n->memory, &n->memory_bytes, send_at, error);
        if (status != HVD_OK)
            return status;
        memcpy(n->memory, c->parts[0].in, send_at);
    }
    n->phase = NET_RUN;
    return schedule_alltoall(&n->schedule, &shape, n->self, &n->flat, error);
}

static hvd_status_t start_barrier(struct net_coll *n, struct error *error)
{
    hvd_status_t status =
        net_reserve(n->os, &n->scratch, &n->scratch_bytes, SCHEDULE_BARRIER_COUNT, error);
    n->is_direct = true;
    n->phase = NET_RUN;
    return status == HVD_OK ? schedule_barrier(&n->schedule, n->self, &n->flat, error) : status;
}

/* ---- running ---- */

static hvd_status_t run_begin(struct net_coll *n, struct error *error)
{
    const struct coll *c = n->coll;
    bool is_bytes = false;
    const void *scratch = n->scratch;
    double postscale = c->postscale;
    n->phase = NET_RUN;
    switch (c->kind) {
    case HVD_ALLREDUCE:
        postscale = n->fold;
        if (c->reduce != HVD_ADASUM)
            break;
        n->phase = NET_ADASUM;
        return n->work_count == 0 ? HVD_OK : net_adasum_start(n, error);
    case HVD_ALLTOALL:
        is_bytes = true;
        scratch = c->parts[0].in == c->parts[0].out ? n->memory : c->parts[0].in;
        break;
    case HVD_ALLGATHER:
    case HVD_BARRIER: is_bytes = true; break;
    case HVD_REDUCESCATTER:
    case HVD_BROADCAST:
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    /* an alltoall's SCRATCH is only read */
    return net_exec_start(n, &n->schedule, n->travel != NULL ? n->travel : n->work,
                          (void *)(uintptr_t)scratch,
                          is_bytes ? 1 : hvd_dtype_bytes(n->travel_dtype), n->travel_dtype,
                          c->reduce, postscale, error);
}

static void out_begin(struct net_coll *n)
{
    const struct coll *c = n->coll;
    n->phase = NET_MOVE_OUT;
    switch (c->kind) {
    case HVD_ALLREDUCE:
        /* reductions have folded the factor in, or the wave steps; Adasum has none that is linear
         */
        net_move_begin(n, 0, 1, 0,
                       c->reduce == HVD_ADASUM             ? c->postscale
                       : n->is_narrow && n->travel == NULL ? n->rest
                                                           : 1.0);
        if (n->is_direct && c->reduce == HVD_ADASUM)
            return;
        break;
    case HVD_ALLGATHER: net_move_begin(n, 0, n->size, 0, 1.0); break;
    case HVD_REDUCESCATTER:
        net_move_begin(n, n->self, n->self + 1, n->offsets[n->self], 1.0);
        break;
    case HVD_BROADCAST:
    case HVD_ALLTOALL:
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    if (n->is_direct)
        n->phase = NET_DONE;
}

/* HVD_OK: everything is finite, or the collective starts again. */
static hvd_status_t check_progress(struct net_coll *n, struct error *error)
{
    uint64_t left = n->work_count - n->checked, most = NET_QUANTUM_BYTES / n->work_bytes;
    uint64_t count = left < most ? left : most;
    if (!reduce_is_finite(n->work_dtype, n->work + n->checked * n->work_bytes, count)) {
        n->sequence++;
        widen(n);
        return start_allreduce(n, error);
    }
    n->checked += count;
    if (n->checked < n->work_count)
        return HVD_IN_PROGRESS;
    out_begin(n);
    return HVD_OK;
}

static hvd_status_t start_kind(struct net_coll *n, struct error *error)
{
    switch (n->coll->kind) {
    case HVD_ALLREDUCE: return start_allreduce(n, error);
    case HVD_ALLGATHER: return start_allgather(n, error);
    case HVD_REDUCESCATTER: return start_reducescatter(n, error);
    case HVD_BROADCAST: return start_broadcast(n, error);
    case HVD_ALLTOALL: return start_alltoall(n, error);
    case HVD_BARRIER: return start_barrier(n, error);
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "kind %d is not a collective", (int)n->coll->kind);
}

/* A group of one: everything is a copy, scaled where the kind reduces. */
static hvd_status_t start_alone(struct net_coll *n, struct error *error)
{
    bool is_reducing = n->coll->kind == HVD_ALLREDUCE || n->coll->kind == HVD_REDUCESCATTER;
    hvd_status_t status = is_reducing ? scaling_check(n, error) : HVD_OK;
    if (status == HVD_OK && is_reducing && n->coll->reduce == HVD_ADASUM)
        status = adasum_check(n, error);
    n->phase = NET_DONE;
    if (n->coll->kind == HVD_BARRIER || status != HVD_OK)
        return status;
    net_move_begin(n, 0, 1, 0, 1.0);
    n->phase = NET_MOVE_IN;
    return status;
}

static void tune(struct net_coll *n, const struct coll *coll)
{
    int32_t channels = coll->channels > 0 ? coll->channels : n->channels;
    if (channels < CHANNELS_MIN)
        channels = CHANNELS_MIN;
    if (channels > SCHEDULE_CHANNELS_MAX)
        channels = SCHEDULE_CHANNELS_MAX;
    n->flat.channels = n->topology.channels = n->gather.channels = channels;
    n->flat.threshold_percent = n->topology.threshold_percent = coll->threshold_percent;
}

hvd_status_t net_coll_start(struct net_coll *n, const struct coll *coll, struct error *error)
{
    if (n->phase != NET_IDLE)
        return error_set(error, HVD_ERR_INTERNAL, "this group runs a collective already");
    if (coll->kind != HVD_BARRIER && (coll->part_count < 1 || coll->part_count > COLL_PARTS_MAX))
        return error_set(error, HVD_ERR_INVALID, "a collective of %d parts", coll->part_count);
    n->coll = coll;
    n->sequence++;
    tune(n, coll);
    n->element_bytes = coll->kind == HVD_BARRIER ? 1 : hvd_dtype_bytes(coll->dtype);
    n->work_dtype = n->travel_dtype = coll->dtype;
    n->work_bytes = n->element_bytes;
    n->travel = NULL;
    n->is_wide = false;
    n->is_narrow = coll->wire != HVD_WIRE_SAME && n->size > 1;
    if (n->is_narrow)
        n->travel_dtype = reduce_wire_dtype(coll->wire);
    n->needs_width = (coll->kind == HVD_ALLREDUCE || coll->kind == HVD_REDUCESCATTER) &&
                     n->size > 1 &&
                     (reduce_needs_width(coll->dtype, coll->reduce, coll->postscale) ||
                      (n->is_narrow && n->travel_dtype == HVD_FLOAT16));
    hvd_status_t status = n->size == 1 ? start_alone(n, error) : start_kind(n, error);
    if (status == HVD_OK && n->phase == NET_RUN)
        status = run_begin(n, error);
    if (status != HVD_OK) {
        n->phase = NET_IDLE;
        n->coll = NULL;
    }
    return status;
}

/* HVD_OK: this phase is over and n->phase is the next one. */
static hvd_status_t phase_progress(struct net_coll *n, bool *ret_moved, struct error *error)
{
    hvd_status_t status;
    switch (n->phase) {
    case NET_MOVE_IN:
        *ret_moved = true;
        if (n->size == 1) {
            if (!net_move_through(n))
                return HVD_IN_PROGRESS;
            n->phase = NET_DONE;
            return HVD_OK;
        }
        return net_move_in(n) ? run_begin(n, error) : HVD_IN_PROGRESS;
    case NET_RUN:
    case NET_ADASUM:
        status = HVD_OK;
        if (n->phase == NET_RUN)
            status = net_exec_progress(n, ret_moved, error);
        else if (n->work_count > 0)
            status = net_adasum_progress(n, ret_moved, error);
        if (status != HVD_OK)
            return status;
        net_sight_finish(n);
        n->checked = 0;
        if (n->needs_width && !n->is_wide)
            n->phase = NET_CHECK;
        else
            out_begin(n);
        return HVD_OK;
    case NET_CHECK: *ret_moved = true; return check_progress(n, error);
    case NET_MOVE_OUT:
        *ret_moved = true;
        if (!net_move_out(n))
            return HVD_IN_PROGRESS;
        n->phase = NET_DONE;
        return HVD_OK;
    case NET_IDLE:
    case NET_DONE: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "no collective is running");
}

hvd_status_t net_coll_progress(struct net_coll *n, bool *ret_moved, struct error *error)
{
    *ret_moved = false;
    while (n->phase != NET_DONE) {
        hvd_status_t status = n->doom == NULL ? phase_progress(n, ret_moved, error)
                                              : error_set(error, HVD_ERR_LINK, "%s", n->doom);
        if (status == HVD_IN_PROGRESS)
            return status;
        if (status == HVD_OK)
            continue;
        net_exec_cancel(n);
        net_sight_cancel(n);
        n->phase = NET_IDLE;
        n->lost = n->coll;
        n->coll = NULL;
        return status;
    }
    n->phase = NET_IDLE;
    n->lost = n->coll = NULL;
    return HVD_OK;
}
