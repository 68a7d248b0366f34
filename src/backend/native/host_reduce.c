/* SPDX-License-Identifier: Apache-2.0 */
/* host_reduce.c - allreduce and reducescatter of any size: the choice of the method, and the best
 * one.
 *
 * If all members' buffers are in arenas the reduction is direct and in place: each member reads its
 * share from all inputs, reduces it once and writes it to all outputs. Two waves ("ready", "done"),
 * each input read once, each output written once: less memory traffic is impossible.
 *
 * Private buffers go through staging (host_staged.c) or are read by the kernel (host_remote.c).
 * Which is faster depends on machine and size, so the first few collectives of each order of size
 * alternate between both and member 0 publishes its measurements. One member computes each byte of
 * the result, so all get the same bits with either method.
 *
 * Thread: token holder.  Start reading at host_reduce_start(). */
#include "backend/native/host.h"

#define TRIAL_BYTES_MIN (128u << 10) /* below, staging needs only one chunk and always wins */
#define TRIALS          12u          /* alternating; the first of each method only warms up */
#define READ_GAIN       0.9          /* reading must be this much faster: a trial may be unlucky */

void host_reduce_block(struct host_coll *h, const void *const *sources, void *const *targets,
                       int32_t target_count, uint64_t bytes)
{
    const struct coll *coll = h->coll;
    struct reduce_job job = {.dtype = coll->dtype,
                             .op = coll->reduce,
                             .prescale = coll->prescale,
                             .postscale = coll->postscale,
                             .sources = sources,
                             .source_count = h->size,
                             .targets = targets,
                             .target_count = target_count,
                             .count = (size_t)bytes / h->element};
    reduce_run(&job);
}

/* --- direct --- */

static hvd_status_t direct_step(struct host_coll *h, struct error *error)
{
    (void)error;
    const void *sources[HOST_MEMBERS_MAX];
    void *targets[HOST_MEMBERS_MAX];
    bool is_allreduce = h->coll->kind == HVD_ALLREDUCE;
    struct host_walk *walk = &h->own_walk;
    for (uint64_t done = 0; walk->left > 0 && done < HOST_BUDGET_BYTES;) {
        uint64_t run = host_walk_run(h, walk, HOST_BLOCK_BYTES);
        for (int32_t i = 0; i < h->size; i++) {
            const struct host_place *place = &h->members[i].places[walk->part];
            sources[i] = place->in + walk->in_at;
            if (is_allreduce)
                targets[i] = place->out + walk->out_at;
        }
        if (!is_allreduce)
            targets[0] = h->members[h->self].places[walk->part].out + walk->out_at;
        host_reduce_block(h, sources, targets, is_allreduce ? h->size : 1, run);
        host_walk_advance(walk, run);
        done += run;
    }
    if (walk->left > 0)
        return HVD_IN_PROGRESS;
    h->step = host_done;
    host_publish_flags(h, 0);
    return HVD_IN_PROGRESS;
}

/* --- which way --- */

static struct host_class *class_of(struct host_coll *h)
{
    uint32_t order = 0;
    while (order + 1 < HOST_SIZE_CLASSES && (TRIAL_BYTES_MIN << (order + 1)) <= h->total)
        order++;
    return &h->classes[h->coll->kind == HVD_REDUCESCATTER][order];
}

static bool is_read_mode(struct host_coll *h)
{
    if (h->read != HOST_READ_YES)
        return false;
    if (h->is_read_forced)
        return true;
    if (h->total < TRIAL_BYTES_MIN)
        return false;
    const struct host_class *class = class_of(h);
    return class->is_decided ? class->is_read : class->trials < TRIALS && class->trials % 2 == 1;
}

static bool is_trial(const struct host_coll *h)
{
    return h->read == HOST_READ_YES && !h->is_read_forced && h->total >= TRIAL_BYTES_MIN;
}

/* Called when a collective with private memory completes on this member. */
void host_reduce_measured(struct host_coll *h)
{
    if (!is_trial(h))
        return;
    struct host_class *class = class_of(h);
    uint32_t trial = class->trials - 1; /* counted when it began */
    if (class->is_decided || trial < 2 || trial >= TRIALS)
        return;
    int64_t took_ns = os_now_ns(h->os) - h->began_ns;
    took_ns = (int64_t)((double)took_ns * 1048576.0 / (double)h->total);
    int64_t *best = &class->best_ns[h->is_read_mode];
    if (*best == 0 || took_ns < *best)
        *best = took_ns;
}

static uint32_t choice_flags(struct host_coll *h)
{
    if (!is_trial(h))
        return 0;
    const struct host_class *class = class_of(h);
    return (double)class->best_ns[1] < READ_GAIN * (double)class->best_ns[0]
               ? (uint32_t)HOST_CHOICE_READ
               : 0;
}

/* All members count trials alike; after the last one member 0's choice applies. */
static void trial_count(struct host_coll *h)
{
    if (!is_trial(h) || !h->any_private)
        return;
    struct host_class *class = class_of(h);
    if (!class->is_decided && class->trials >= TRIALS) {
        class->is_decided = true;
        class->is_read = (h->members[0].head.flags & HOST_CHOICE_READ) != 0;
    }
    class->trials++;
    h->began_ns = os_now_ns(h->os);
}

/* --- start --- */

/* Inputs are in the slot exactly if they fit and are not in an arena. */
static hvd_status_t slots_check(struct host_coll *h, struct error *error)
{
    bool fits = host_fits_slot(h);
    for (int32_t i = 0; i < h->size; i++) {
        const struct host_member *m = &h->members[i];
        bool is_in_slot = (m->head.flags & HOST_IN_SLOT) != 0;
        if (is_in_slot != (fits && !m->is_arena))
            return host_corrupt(h, i, "published its payload in an unexpected place", error);
    }
    return HVD_OK;
}

static hvd_status_t ready_step(struct host_coll *h, struct error *error)
{
    hvd_status_t status = host_heads_read(h, error);
    if (status == HVD_OK)
        status = slots_check(h, error);
    if (status == HVD_OK)
        status = host_places_read(h, error);
    if (status != HVD_OK)
        return host_give_up(h, status);
    h->own_walk = host_walk_share(h, h->self);
    if (h->all_arena) {
        h->step = direct_step;
        return direct_step(h, error);
    }
    if (host_fits_slot(h))
        return host_small_mixed(h);
    for (int32_t i = 0; i < h->size; i++)
        if (h->members[i].stage == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "rank %d has no arena memory for staging",
                             (int)h->ranks[i]);
    host_vote_prepare(h);
    trial_count(h);
    if (!h->is_read_mode) {
        host_staged_begin(h);
        h->step = host_staged_step;
        return host_staged_step(h, error);
    }
    h->step = host_remote_step;
    if (!host_remote_reserve(h))
        return host_give_up(
            h, error_set(error, HVD_ERR_NO_MEMORY, "no memory to read other ranks' buffers into"));
    h->cursor = 0;
    return host_remote_step(h, error);
}

void host_reduce_start(struct host_coll *h)
{
    bool is_arena = host_is_own_arena(h);
    h->step = ready_step;
    if (!is_arena && host_fits_slot(h)) {
        host_slot_fill(h);
        host_publish_head(h, HOST_IN_SLOT);
        return;
    }
    h->is_read_mode = is_read_mode(h);
    host_stage_reserve(h);
    host_places_write(h, is_arena);
    if (!is_arena && !h->is_read_mode && h->stage != NULL) {
        for (int32_t i = 0; i < h->size; i++)
            h->in_walks[i] = host_walk_share(h, i);
        host_staged_copy_in(h, 0);
    }
    host_publish_head(h, (is_arena ? (uint32_t)HOST_ARENA : 0) | choice_flags(h));
}
