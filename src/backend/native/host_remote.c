/* SPDX-License-Identifier: Apache-2.0 */
/* host_remote.c - reductions of private memory that the kernel reads for us (process_vm_readv).
 *
 * Each member reads its share of the private inputs block by block into scratch that stays in its
 * cache, and reduces it into its own output (and into outputs that are in arenas). After a wave
 * every member reads the others' results straight into its own output. After a last wave no member
 * reads another's buffers any more.
 *
 * Thread: token holder.  Start reading at host_remote_step(). */
#include "backend/native/host.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define SCRATCH_BYTES     (512u << 10) /* of all members together */
#define SCRATCH_BLOCK_MAX (128u << 10)
#define SCRATCH_BLOCK_MIN (8u << 10)
#define RUNS_MAX          64 /* pieces of one call */
#define UNREADABLE_NS     500000000

bool host_remote_reserve(struct host_coll *h)
{
    if (h->scratch != NULL)
        return true;
    uint64_t block = SCRATCH_BYTES / (uint64_t)h->size / h->page * h->page;
    if (block > SCRATCH_BLOCK_MAX)
        block = SCRATCH_BLOCK_MAX;
    if (block < SCRATCH_BLOCK_MIN)
        block = SCRATCH_BLOCK_MIN;
    h->scratch = os_alloc(h->os, (size_t)(block * (uint64_t)h->size));
    h->scratch_block = block;
    return h->scratch != NULL;
}

/* A process that is being killed loses its memory some time before it exits, and then its death is
 * the cause to report; so the read is retried for a while. */
static hvd_status_t read_failed(struct host_coll *h, int32_t member, int neg_errno,
                                struct error *error)
{
    int32_t rank = h->ranks[member];
    if (neg_errno == -ESRCH)
        shm_peer_fail(h->shm, rank, HVD_ERR_PEER_DEAD, "died during a collective");
    hvd_status_t status = shm_peer_error(h->shm, rank, error);
    if (status != HVD_OK)
        return status;
    int64_t now_ns = os_now_ns(h->os);
    if (h->unread_since_ns == 0)
        h->unread_since_ns = now_ns;
    if (now_ns - h->unread_since_ns < UNREADABLE_NS)
        return HVD_AGAIN;
    return error_set_os(error, neg_errno, "can't read the memory of rank %d (pid %d)", (int)rank,
                        (int)h->members[member].pid);
}

hvd_status_t host_remote_read(struct host_coll *h, int32_t member, uint8_t *const *to,
                              uint8_t *const *from, const uint64_t *bytes, int32_t count,
                              struct error *error)
{
    struct iovec local[RUNS_MAX], remote[RUNS_MAX];
    uint64_t wanted = 0;
    for (int32_t i = 0; i < count; i++) {
        local[i] = (struct iovec){.iov_base = to[i], .iov_len = (size_t)bytes[i]};
        remote[i] = (struct iovec){.iov_base = from[i], .iov_len = (size_t)bytes[i]};
        wanted += bytes[i];
    }
    int64_t n = h->os->peer_read(h->os->ctx, h->members[member].pid, local, count, remote, count);
    if (n == (int64_t)wanted) {
        h->unread_since_ns = 0;
        return HVD_OK;
    }
    return read_failed(h, member, n < 0 ? (int)n : -EFAULT, error);
}

/* The runs of the next `bytes` of `walk`, at most RUNS_MAX; the walk is not moved. */
struct runs {
    int32_t count;
    int32_t part[RUNS_MAX];
    uint64_t in_at[RUNS_MAX], out_at[RUNS_MAX], bytes[RUNS_MAX];
    uint64_t total;
};

static void runs_collect(const struct host_coll *h, const struct host_walk *from, uint64_t bytes,
                         struct runs *ret)
{
    struct host_walk walk = *from;
    ret->count = 0;
    ret->total = 0;
    while (walk.left > 0 && ret->count < RUNS_MAX && ret->total < bytes) {
        uint64_t run = host_walk_run(h, &walk, bytes - ret->total);
        int32_t i = ret->count++;
        ret->part[i] = walk.part;
        ret->in_at[i] = walk.in_at;
        ret->out_at[i] = walk.out_at;
        ret->bytes[i] = run;
        ret->total += run;
        host_walk_advance(&walk, run);
    }
}

static void walk_skip(const struct host_coll *h, struct host_walk *walk, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t run = host_walk_run(h, walk, bytes);
        host_walk_advance(walk, run);
        bytes -= run;
    }
}

/* --- reducing my share --- */

static hvd_status_t inputs_fetch(struct host_coll *h, const struct runs *runs, struct error *error)
{
    uint8_t *to[RUNS_MAX], *from[RUNS_MAX];
    for (int32_t i = 0; i < h->size; i++) {
        const struct host_member *m = &h->members[i];
        if (i == h->self || m->is_arena)
            continue;
        uint8_t *at = h->scratch + (uint64_t)i * h->scratch_block;
        for (int32_t r = 0; r < runs->count; r++) {
            to[r] = at;
            from[r] = m->places[runs->part[r]].in + runs->in_at[r];
            at += runs->bytes[r];
        }
        hvd_status_t status = host_remote_read(h, i, to, from, runs->bytes, runs->count, error);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}

static void runs_reduce(struct host_coll *h, const struct runs *runs)
{
    const void *sources[HOST_MEMBERS_MAX];
    void *targets[HOST_MEMBERS_MAX];
    uint64_t at = 0;
    for (int32_t r = 0; r < runs->count; r++) {
        int32_t count = 0;
        for (int32_t i = 0; i < h->size; i++) {
            const struct host_member *m = &h->members[i];
            const struct host_place *place = &m->places[runs->part[r]];
            if (i == h->self || m->is_arena)
                sources[i] = place->in + runs->in_at[r];
            else
                sources[i] = h->scratch + (uint64_t)i * h->scratch_block + at;
            if (i == h->self || (m->is_arena && h->coll->kind == HVD_ALLREDUCE))
                targets[count++] = place->out + runs->out_at[r];
        }
        host_reduce_block(h, sources, targets, count, runs->bytes[r]);
        at += runs->bytes[r];
    }
}

/* --- taking the others' results --- */

static hvd_status_t results_take(struct host_coll *h, int32_t member, const struct runs *runs,
                                 struct error *error)
{
    uint8_t *to[RUNS_MAX], *from[RUNS_MAX];
    const struct host_member *m = &h->members[member];
    for (int32_t r = 0; r < runs->count; r++) {
        to[r] = (uint8_t *)h->coll->parts[runs->part[r]].out + runs->out_at[r];
        from[r] = m->places[runs->part[r]].out + runs->out_at[r];
        if (m->is_arena)
            memcpy(to[r], from[r], (size_t)runs->bytes[r]);
    }
    return m->is_arena ? HVD_OK
                       : host_remote_read(h, member, to, from, runs->bytes, runs->count, error);
}

static hvd_status_t end_step(struct host_coll *h, struct error *error)
{
    (void)error;
    host_reduce_measured(h);
    return HVD_OK;
}

static hvd_status_t results_step(struct host_coll *h, struct error *error)
{
    struct runs runs;
    for (uint64_t done = 0; h->cursor < h->size && done < HOST_BUDGET_BYTES;) {
        int32_t member = (h->self + h->cursor) % h->size;
        struct host_walk *walk = &h->out_walks[member];
        if (walk->left == 0) {
            h->cursor++;
            continue;
        }
        runs_collect(h, walk, HOST_BUDGET_BYTES - done, &runs);
        hvd_status_t status = results_take(h, member, &runs, error);
        if (status == HVD_AGAIN)
            return HVD_IN_PROGRESS;
        if (status != HVD_OK)
            return host_give_up(h, status);
        walk_skip(h, walk, runs.total);
        done += runs.total;
    }
    if (h->cursor < h->size)
        return HVD_IN_PROGRESS;
    h->step = end_step;
    host_publish_flags(h, 0);
    return HVD_IN_PROGRESS;
}

static void results_begin(struct host_coll *h)
{
    bool takes = h->coll->kind == HVD_ALLREDUCE && !h->members[h->self].is_arena;
    for (int32_t i = 0; i < h->size; i++) {
        h->out_walks[i] = host_walk_share(h, i);
        if (!takes || i == h->self)
            h->out_walks[i].left = 0;
    }
    h->cursor = 0;
    h->step = h->coll->kind == HVD_ALLREDUCE ? results_step : end_step;
}

hvd_status_t host_remote_step(struct host_coll *h, struct error *error)
{
    struct host_walk *walk = &h->own_walk;
    struct runs runs;
    for (uint64_t done = 0; walk->left > 0 && done < HOST_BUDGET_BYTES / 2;) {
        runs_collect(h, walk, h->scratch_block, &runs);
        hvd_status_t status = inputs_fetch(h, &runs, error);
        if (status == HVD_AGAIN)
            return HVD_IN_PROGRESS;
        if (status != HVD_OK)
            return host_give_up(h, status);
        runs_reduce(h, &runs);
        walk_skip(h, walk, runs.total);
        done += runs.total;
    }
    if (walk->left > 0)
        return HVD_IN_PROGRESS;
    results_begin(h);
    host_publish_flags(h, 0);
    return HVD_IN_PROGRESS;
}
