/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - creates and destroys a group that works in shared memory, and runs its steps.
 *
 * Nothing blocks: progress() checks whether the awaited wave has arrived, runs steps until the next
 * wait or until a step has used up its budget, and returns.
 *
 * Thread: token holder.  Owner: the native backend.  Invariant: when a collective completes, all
 * members have published its last wave and none still reads or writes another's buffers. Start
 * reading at host_coll_start(). */
#include "backend/native/host.h"

#include <string.h>

#define STAGE_UNIT_TWO  (128u << 10) /* of one share and chunk, for two members */
#define STAGE_UNIT_MORE (256u << 10)
#define STAGE_CHUNK_MAX (4u << 20) /* of all shares together, for many members */
#define STAGE_UNIT_MIN  (16u << 10)
#define CAUSE_AWAIT_NS  500000000
#define SHARE_LINE      OS_CACHE_LINE
#define SHARE_PAGE_FROM (64u << 10) /* shares at least this big begin on page borders */

/* --- create and destroy --- */

static bool is_ready_to_wake(const struct shm_waiter *waiter)
{
    const struct host_coll *h =
        (const struct host_coll *)(const void *)((const char *)waiter -
                                                 offsetof(struct host_coll, waiter));
    if (h->coll == NULL)
        return false;
    if (!h->is_waiting)
        return true;
    for (int32_t i = h->seen; i < h->size; i++)
        if (atomic_load(&h->members[i].board->line[h->wave & 1].phase) != h->wave)
            return false;
    return true;
}

static hvd_status_t members_open(struct host_coll *h, struct error *error)
{
    struct transport *t = shm_transport(h->shm);
    for (int32_t i = 0; i < h->size; i++) {
        struct host_member *m = &h->members[i];
        uint64_t bytes;
        m->rank = h->ranks[i];
        m->pid = shm_peer_pid(h->shm, m->rank);
        m->board = shm_board(h->shm, m->rank, h->set_id);
        m->segment = t->ops->arena(t, m->rank, &bytes);
        hvd_status_t status = i == h->self ? HVD_OK : shm_peer_error(h->shm, m->rank, error);
        if (status != HVD_OK)
            return status;
        if (m->board == NULL || m->segment == NULL)
            return error_set(error, HVD_ERR_LINK, "rank %d can't be reached by shared memory",
                             (int)m->rank);
    }
    return HVD_OK;
}

static bool arrays_create(struct host_coll *h, const struct group *group)
{
    size_t size = (size_t)h->size;
    h->ranks = os_alloc(h->os, size * sizeof *h->ranks);
    h->members = os_alloc(h->os, size * sizeof *h->members);
    h->in_walks = os_alloc(h->os, size * sizeof *h->in_walks);
    h->out_walks = os_alloc(h->os, size * sizeof *h->out_walks);
    h->prefix = os_alloc(h->os, (COLL_PARTS_MAX + 1) * sizeof *h->prefix);
    h->place_capacity = size * COLL_PARTS_MAX; /* untouched pages cost nothing */
    h->places = os_alloc(h->os, h->place_capacity * sizeof *h->places);
    if (h->ranks == NULL || h->members == NULL || h->in_walks == NULL || h->out_walks == NULL ||
        h->prefix == NULL || h->places == NULL)
        return false;
    memcpy(h->ranks, group->ranks, size * sizeof *h->ranks);
    return true;
}

/* Equal on all members. Long chunks need fewer waves, short ones stay in the cache. */
static uint64_t stage_unit_of(int32_t size)
{
    uint64_t unit = STAGE_CHUNK_MAX / (uint64_t)size / SHARE_LINE * SHARE_LINE;
    uint64_t most = size <= 2 ? STAGE_UNIT_TWO : STAGE_UNIT_MORE;
    if (unit > most)
        unit = most;
    return unit < STAGE_UNIT_MIN ? STAGE_UNIT_MIN : unit;
}

hvd_status_t host_coll_create(const struct os *os, const struct config *config, struct shm *shm,
                              const struct group *group, struct host_coll **ret,
                              struct error *error)
{
    *ret = NULL;
    if (group->size < 1 || group->size > HOST_MEMBERS_MAX || group->self < 0 ||
        group->self >= group->size)
        return error_set(error, HVD_ERR_LIMIT, "a group of %d ranks on one host; at most %d",
                         (int)group->size, HOST_MEMBERS_MAX);
    struct host_coll *h = os_alloc(os, sizeof *h);
    if (h == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a group");
    h->os = os;
    h->page = os->page_bytes(os->ctx);
    h->config = config;
    h->shm = shm;
    h->size = group->size;
    h->self = group->self;
    h->set_id = group->set_id;
    h->stage_unit = stage_unit_of(h->size);
    h->stage_bytes = 2 * h->stage_unit * (uint64_t)h->size;
    h->waiter.is_ready = is_ready_to_wake;
    shm_waiter_add(shm, &h->waiter);
    hvd_status_t status = HVD_OK;
    if (!arrays_create(h, group))
        status =
            error_set(error, HVD_ERR_NO_MEMORY, "no memory for a group of %d ranks", (int)h->size);
    if (status == HVD_OK)
        status = members_open(h, error);
    if (status == HVD_OK && os->random(os->ctx, &h->secret, sizeof h->secret) < 0)
        status = error_set(error, HVD_ERR_OS, "can't get random bytes");
    if (status != HVD_OK) {
        host_coll_destroy(h);
        return status;
    }
    *ret = h;
    return HVD_OK;
}

void host_coll_destroy(struct host_coll *h)
{
    if (h == NULL)
        return;
    const struct os *os = h->os;
    shm_waiter_remove(h->shm, &h->waiter);
    shm_heap_free(h->shm, h->stage);
    shm_heap_free(h->shm, h->adasum);
    void *const owned[] = {h->scratch,  h->places,  h->prefix, h->out_walks,
                           h->in_walks, h->members, h->ranks};
    os_free_each(os, owned, sizeof owned / sizeof *owned);
    os_free(os, h);
}

/* --- start --- */

static void prefix_fill(struct host_coll *h)
{
    const struct coll *coll = h->coll;
    h->prefix[0] = 0;
    for (int32_t part = 0; part < coll->part_count; part++)
        h->prefix[part + 1] = h->prefix[part] + coll->parts[part].count * h->element;
    h->total = h->prefix[coll->part_count];
    bool is_large = h->total >= (uint64_t)h->size * SHARE_PAGE_FROM;
    h->shares_align = is_large ? h->page : SHARE_LINE;
}

static hvd_status_t coll_check(const struct host_coll *h, const struct coll *coll,
                               struct error *error)
{
    bool is_reduction = coll->kind == HVD_ALLREDUCE || coll->kind == HVD_REDUCESCATTER;
    if (coll->kind != HVD_BARRIER &&
        (coll->part_count < 1 || coll->part_count > COLL_PARTS_MAX || coll->parts == NULL))
        return error_set(error, HVD_ERR_INVALID, "a collective of %d parts; 1 to %d are possible",
                         (int)coll->part_count, COLL_PARTS_MAX);
    if (coll->kind == HVD_BROADCAST && (coll->root < 0 || coll->root >= h->size))
        return error_set(error, HVD_ERR_INVALID, "root %d of a group of %d ranks", (int)coll->root,
                         (int)h->size);
    if ((coll->kind == HVD_ALLGATHER || coll->kind == HVD_REDUCESCATTER ||
         coll->kind == HVD_ALLTOALL) &&
        (coll->counts == NULL || (coll->kind == HVD_ALLTOALL && coll->recv_counts == NULL)))
        return error_set(error, HVD_ERR_INVALID, "the collective's counts are missing");
    if (coll->kind == HVD_ALLREDUCE && coll->reduce == HVD_ADASUM)
        return host_adasum_check(h, coll, error);
    if (is_reduction)
        return reduce_check(coll->dtype, coll->reduce, coll->prescale, coll->postscale) == HVD_OK
                   ? HVD_OK
                   : error_set(error, HVD_ERR_UNSUPPORTED, "%s can't be reduced like that",
                               hvd_dtype_name(coll->dtype));
    return HVD_OK;
}

/* A group of one: its output is its input. */
static hvd_status_t alone_step(struct host_coll *h, struct error *error)
{
    const struct coll *coll = h->coll;
    (void)error;
    bool is_reduction = coll->kind == HVD_ALLREDUCE || coll->kind == HVD_REDUCESCATTER;
    for (int32_t part = 0; part < coll->part_count; part++) {
        const struct coll_part *p = &coll->parts[part];
        size_t bytes = (size_t)(p->count * h->element);
        if (bytes == 0)
            continue;
        const void *sources[1] = {p->in};
        void *targets[1] = {p->out};
        struct reduce_job job = {.dtype = coll->dtype,
                                 .op = HVD_SUM,
                                 .prescale = coll->prescale,
                                 .postscale = coll->postscale,
                                 .sources = sources,
                                 .source_count = 1,
                                 .targets = targets,
                                 .target_count = 1,
                                 .count = (size_t)p->count};
        if (is_reduction)
            reduce_run(&job);
        else if (p->in != p->out)
            memmove(p->out, p->in, bytes);
    }
    return HVD_OK;
}

static hvd_status_t dispatch(struct host_coll *h, struct error *error)
{
    const struct coll *coll = h->coll;
    switch (coll->kind) {
    case HVD_BARRIER:
        h->step = host_done;
        host_publish_flags(h, 0);
        return HVD_OK;
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER:
        if (coll->reduce == HVD_ADASUM) {
            host_adasum_start(h);
            return HVD_OK;
        }
        if (host_is_small(h)) {
            host_small_start(h);
            return HVD_OK;
        }
        host_reduce_start(h);
        return HVD_OK;
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_ALLTOALL: return host_gather_start(h, error);
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    return error_set(error, HVD_ERR_UNSUPPORTED, "not a collective that moves data");
}

hvd_status_t host_coll_start(struct host_coll *h, const struct coll *coll, struct error *error)
{
    if (h->coll != NULL)
        return error_set(error, HVD_ERR_INTERNAL, "a collective of this group is in progress");
    hvd_status_t status = coll_check(h, coll, error);
    if (status != HVD_OK)
        return status;
    h->coll = coll;
    h->element = coll->kind == HVD_BARRIER ? 0 : hvd_dtype_bytes(coll->dtype);
    if (coll->kind != HVD_BARRIER)
        prefix_fill(h);
    if (h->size == 1 && coll->kind != HVD_BARRIER) {
        h->is_waiting = false;
        h->step = alone_step;
        return HVD_OK;
    }
    status = dispatch(h, error);
    if (status != HVD_OK)
        h->coll = NULL;
    return status;
}

/* --- progress --- */

static hvd_status_t coll_end(struct host_coll *h, hvd_status_t status)
{
    h->lost = status != HVD_OK ? h->coll : NULL;
    h->coll = NULL;
    h->is_waiting = false;
    h->failed_since_ns = 0;
    h->done_wave = h->wave;
    return status;
}

static hvd_status_t failed_elsewhere(const struct host_coll *h, struct error *error)
{
    for (int32_t i = 0; i < h->size; i++) {
        uint32_t flags;
        memcpy(&flags, h->members[i].board->line[h->wave & 1].inline_bytes, sizeof flags);
        if ((flags & HOST_FAILED) != 0)
            return error_set(error, HVD_ERR_ABORTED,
                             "rank %d could not continue the collective (no memory, or another "
                             "rank's memory became unreadable)",
                             (int)h->ranks[i]);
    }
    return error_set(error, HVD_ERR_ABORTED, "a rank could not continue the collective");
}

/* Usually the member gave up because of a death that we will detect too in a moment, and that is
 * the cause to report. */
static hvd_status_t failure_await(struct host_coll *h, struct error *error)
{
    hvd_status_t status = host_members_check(h, error);
    if (status != HVD_OK)
        return coll_end(h, status);
    if (os_now_ns(h->os) - h->failed_since_ns < CAUSE_AWAIT_NS)
        return HVD_IN_PROGRESS;
    return coll_end(h, failed_elsewhere(h, error));
}

hvd_status_t host_coll_progress(struct host_coll *h, bool *ret_moved, struct error *error)
{
    *ret_moved = false;
    if (h->coll == NULL)
        return HVD_OK;
    if (h->doom != NULL)
        return coll_end(h, error_set(error, HVD_ERR_LINK, "%s", h->doom));
    if (h->failed_since_ns != 0)
        return failure_await(h, error);
    for (;;) {
        if (h->is_waiting) {
            if (!host_arrived(h)) {
                hvd_status_t status = host_members_check(h, error);
                return status == HVD_OK ? HVD_IN_PROGRESS : coll_end(h, status);
            }
            h->is_waiting = false;
            *ret_moved = true;
            if (h->has_flags && (h->flags_any & HOST_FAILED) != 0) {
                h->failed_since_ns = os_now_ns(h->os);
                return failure_await(h, error);
            }
        }
        hvd_status_t status = h->step(h, error);
        *ret_moved = true;
        if (status != HVD_IN_PROGRESS)
            return coll_end(h, status);
        if (!h->is_waiting)
            return HVD_IN_PROGRESS;
    }
}

/* Others may be in the middle of writing to what we published, even ones that have been stopped and
 * are resumed in an hour. */
static void lost_detach(struct host_coll *h)
{
    const struct coll *lost = h->coll != NULL ? h->coll : h->lost;
    if (lost == NULL)
        return;
    for (int32_t i = 0; lost->kind == HVD_ALLREDUCE && i < lost->part_count; i++)
        shm_detach(h->shm, lost->parts[i].out, (size_t)lost->parts[i].count * h->element);
    if (h->stage != NULL)
        shm_detach(h->shm, h->stage, (size_t)h->stage_bytes);
    if (h->adasum != NULL)
        shm_detach(h->shm, h->adasum, (size_t)h->adasum_bytes);
    shm_heap_free(h->shm, h->stage);
    shm_heap_free(h->shm, h->adasum);
    h->stage = h->adasum = NULL;
    h->adasum_bytes = 0;
    h->lost = NULL;
}

const struct coll *host_coll_open_to_peers(const struct host_coll *h)
{
    return h->coll != NULL ? h->coll : h->lost;
}

void host_coll_doom(struct host_coll *h, const char *why)
{
    h->doom = why;
}

/* The first wave from now on must not use the line that slower members may still be reading: that
 * of the last completed collective. Its number is equal on all members. */
void host_coll_reset(struct host_coll *h, uint64_t base)
{
    if (base == BACKEND_BASE_LAST) {
        host_withdraw(h);
        lost_detach(h);
    }
    h->coll = NULL;
    h->is_waiting = false;
    h->is_voting = false;
    h->failed_since_ns = 0;
    uint64_t next = base + 1;
    if (((next ^ h->done_wave) & 1) == 0)
        next++;
    h->wave = next - 1;
    h->done_wave = h->wave;
}
