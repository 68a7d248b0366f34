/* SPDX-License-Identifier: Apache-2.0 */
/* learn.c - recognises training steps that repeat. The coordinator watches the batches it sends
 * out. A step is a run of entries without repetition; an entry that the step already contains ends
 * it and begins the next. After `steps_wanted` steps with the same entries a plan is proposed, made
 * of the batches of the last one, in their order.
 *
 * Batches are used as they were, never merged: tensors that came in separate batches may depend on
 * each other.
 *
 * Thread: coordinator's token holder.  Start reading at learn_batch(). */
#include "engine/learn.h"

#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/negotiate.h"
#include "engine/response.h"

static bool is_plannable(const struct entry *e)
{
    if (e->is_transient || e->is_forgotten)
        return false;
    switch ((hvd_kind_t)e->kind) {
    case HVD_ALLREDUCE: return e->reduce != HVD_ADASUM;
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_REDUCESCATTER: return true;
    case HVD_ALLTOALL: /* its sizes must be exchanged */
    case HVD_BARRIER:  /* its agreement is all there is to it */
    case HVD_JOIN:
    case HVD_KIND_COUNT: return false;
    }
    return false;
}

static void window_begin(struct coordinator *c)
{
    c->step++;
    c->window_count = 0;
    c->window_entries = c->window_known = 0;
    c->is_window_odd = false;
}

static void window_end(struct coordinator *c)
{
    bool is_equal = c->window_entries > 0 && c->window_entries == c->last_entries &&
                    c->window_known == c->window_entries && !c->is_window_odd;
    c->steps_equal = is_equal ? c->steps_equal + 1 : 0;
    c->last_entries = c->window_entries;
}

static bool window_put(struct coordinator *c, uint32_t id)
{
    if (c->window_count == c->window_capacity) {
        const struct os *os = c->set->engine->os;
        size_t capacity = c->window_capacity != 0 ? c->window_capacity * 2 : 512;
        uint32_t *window = os->resize(os->ctx, c->window, capacity * sizeof *window);
        if (window == NULL)
            return false;
        c->window = window;
        c->window_capacity = capacity;
    }
    c->window[c->window_count++] = id;
    return true;
}

void learn_restart(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    window_begin(c);
    c->last_entries = 0;
    c->steps_equal = 0;
    c->steps_wanted = set->engine->config->plan_warmup_steps;
}

void learn_batch(struct procset *set, const uint32_t *ids, int32_t count)
{
    struct coordinator *c = set->coordinator;
    if (set->engine->config->plan_disable)
        return;
    for (int32_t i = 0; i < count; i++)
        if (procset_entry(set, ids[i])->step_seen == c->step && c->window_entries > 0) {
            window_end(c);
            window_begin(c);
            break;
        }
    for (int32_t i = 0; i < count; i++) {
        struct entry *e = procset_entry(set, ids[i]);
        c->window_entries++;
        c->window_known += e->step_seen + 1 == c->step;
        c->is_window_odd = c->is_window_odd || !is_plannable(e) || !window_put(c, ids[i]);
        e->step_seen = c->step;
    }
    if (!window_put(c, 0))
        c->is_window_odd = true;
}

/* The current step is complete if it already contains the next entry to be sent. */
static bool is_step_complete(const struct coordinator *c)
{
    return c->window_entries > 0 && c->ready_count > 0 && c->ready[0]->step_seen == c->step;
}

bool learn_plan(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    const struct engine *engine = set->engine;
    if (engine->config->plan_disable || !set->group.is_one_host || set->size < 2 || c->is_shutdown)
        return false;
    if (!is_step_complete(c) || c->steps_equal + 1 < c->steps_wanted || c->pending.count > 0 ||
        c->joined_count > 0)
        return false;
    if (c->is_window_odd || c->window_known != c->window_entries ||
        c->window_entries != c->last_entries)
        return false;
    size_t bytes = c->window_count * 4 + 64;
    if (bytes + MESSAGE_HEAD_BYTES > RESPONSE_BYTES)
        return false;
    struct writer *w = response_room(set, bytes);
    put_u8(w, ITEM_PLAN);
    put_u32(w, (uint32_t)c->window_count);
    for (size_t i = 0; i < c->window_count; i++)
        put_u32(w, c->window[i]);
    return true;
}
