/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - a recorded training step, executed again and again without any message: a batch starts
 * as soon as this rank has submitted its ops, and the data-ready flag of the collective is the
 * agreement.
 *
 * Anything that does not fit breaks the plan: an unknown name, another shape, a waiter whose op
 * can't come. Breaking is an agreement too. The rank that can't follow says BREAK; the coordinator
 * tells all to HALT; every rank starts no further batch and says how many it has started since the
 * plan began; the smallest of these numbers is the COMMIT. Batches below it were started by
 * everyone and are finished; of those at or above it somebody has not published its data, so no
 * rank can have changed an output: they are cancelled, their ops are pending again and are
 * negotiated afresh in the next generation.
 *
 *      rank 0  started 7 8 9 .        BREAK from rank 1: positions 10, 9, 10
 *      rank 1  started 7 8            COMMIT 9: batch 8 is finished by all,
 *      rank 2  started 7 8 9 .        batch 9 never happened
 *
 * Thread: token holder.  Owner: struct procset.  Start reading at plan_op() and plan_progress(). */
#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/timeline.h"

#define PLAN_PATIENCE_NS 1000000000 /* ops that wait in a plan nobody waits for */
#define PLAN_LONG        100        /* steps after which a plan was worth it */

enum plan_state {
    PLAN_ANNOUNCED, /* its place in the order has not come yet */
    PLAN_RUNNING,
    PLAN_HALTED,   /* position told, waiting for the commit */
    PLAN_COMMITTED /* finishing what everyone has started */
};

struct plan_batch {
    int32_t first, count; /* in ids */
    int32_t missing;      /* ops not yet submitted for the coming turn */
};

struct plan {
    enum plan_state state;
    uint32_t *ids;
    struct plan_batch *batches;
    int32_t batch_count, position; /* the next to start */
    uint64_t started, finished;    /* batches, since the plan began */
    uint64_t commit;
    uint32_t next_generation; /* the one that the commit began; another may have begun since */
    bool is_break_sent;
    bool has_begun; /* all that was agreed before it has been executed */
};

bool plan_is_on(const struct procset *set)
{
    return set->plan != NULL;
}

bool plan_has_begun(const struct procset *set)
{
    return set->plan != NULL && set->plan->has_begun;
}

void plan_destroy(struct procset *set)
{
    const struct os *os = set->engine->os;
    if (set->plan == NULL)
        return;
    os_free(os, set->plan->ids);
    os_free(os, set->plan->batches);
    os_free(os, set->plan);
    set->plan = NULL;
}

void plan_prepare(struct procset *set)
{
    plan_destroy(set);
    set->plan = os_alloc(set->engine->os, sizeof *set->plan);
    if (set->plan == NULL)
        engine_stop(set->engine, HVD_ERR_NO_MEMORY, "Out of memory for a plan.", true);
}

/* ---- beginning ---- */

static bool plan_lay_out(struct procset *set, const struct batch *batch)
{
    struct plan *plan = set->plan;
    const struct os *os = set->engine->os;
    plan->ids = os_alloc(os, (size_t)batch->count * sizeof *plan->ids);
    plan->batches = os_alloc(os, (size_t)batch->count * sizeof *plan->batches);
    if (plan->ids == NULL || plan->batches == NULL)
        return false;
    int32_t used = 0, first = 0;
    for (int32_t i = 0; i < batch->count; i++) {
        if (batch->ids[i] == 0) {
            if (used > first)
                plan->batches[plan->batch_count++] = (struct plan_batch){
                    .first = first, .count = used - first, .missing = used - first};
            first = used;
            continue;
        }
        struct entry *entry = procset_entry(set, batch->ids[i]);
        if (entry == NULL)
            return false;
        entry->plan_batch = plan->batch_count;
        entry->is_plan_ready = false;
        plan->ids[used++] = batch->ids[i];
    }
    return plan->batch_count > 0;
}

void plan_begin(struct procset *set, const struct batch *batch)
{
    struct plan *plan = set->plan;
    plan->has_begun = true;
    if (plan->state != PLAN_ANNOUNCED)
        return; /* broken before it began */
    if (!plan_lay_out(set, batch)) {
        engine_stop(set->engine, HVD_ERR_INTERNAL, "A plan could not be laid out.", true);
        return;
    }
    plan->state = PLAN_RUNNING;
    set->engine->stats.plan_starts++;
    flight_note(set->engine->flight, set->engine->now_ns, FLIGHT_PLAN_BEGIN, set->id,
                plan->batch_count, "");
    struct op *next;
    for (struct op *op = set->pending_head; op != NULL; op = next) {
        next = op->next;
        plan_op(set, op);
    }
}

/* ---- following ---- */

static bool op_fits(const struct op *op)
{
    const struct entry *e = op->tensor->entry;
    if (e == NULL || e->plan_batch < 0 || e->is_plan_ready || e->kind != op->kind ||
        e->dtype != op->dtype || e->reduce != op->reduce ||
        !factor_is_same(e->prescale, op->prescale) ||
        !factor_is_same(e->postscale, op->postscale) || e->root != op->root || e->ndim != op->ndim)
        return false;
    return memcmp(e->shape, op->shape, (size_t)e->ndim * sizeof e->shape[0]) == 0;
}

bool plan_op(struct procset *set, struct op *op)
{
    struct plan *plan = set->plan;
    if (plan->state != PLAN_RUNNING)
        return true; /* it stays pending until the plan has begun or ended */
    if (!op_fits(op)) {
        plan_break(set);
        return true;
    }
    struct entry *entry = op->tensor->entry;
    entry->is_plan_ready = true;
    plan->batches[entry->plan_batch].missing--;
    return true;
}

static bool start_next(struct procset *set)
{
    struct plan *plan = set->plan;
    struct plan_batch *b = &plan->batches[plan->position];
    if (b->missing > 0)
        return false;
    struct batch batch = {.kind = BATCH_RUN, .count = b->count, .ids = &plan->ids[b->first]};
    for (int32_t i = 0; i < b->count; i++) {
        struct entry *entry = procset_entry(set, batch.ids[i]);
        entry->is_plan_ready = false;
        entry->queued++;
        entry->tensor->op->state = OP_BATCHED;
    }
    if (plan->position == 0)
        timeline_cycle(set->engine->timeline);
    b->missing = b->count;
    plan->position = (plan->position + 1) % plan->batch_count;
    plan->started++;
    set->run.is_planned = true;
    set->engine->stats.batches_planned++;
    execute_begin(set, &batch);
    return true;
}

static void leave(struct procset *set)
{
    struct plan *plan = set->plan;
    if (set->run.is_active)
        execute_cancel(set);
    procset_rebase(set, plan->next_generation);
    for (int32_t i = 0; plan->ids != NULL && i < plan->batch_count; i++)
        for (int32_t k = 0; k < plan->batches[i].count; k++) {
            struct entry *entry = procset_entry(set, plan->ids[plan->batches[i].first + k]);
            if (entry == NULL)
                continue; /* a rank that has left already announced it otherwise */
            entry->plan_batch = -1;
            entry->is_plan_ready = false;
        }
    set->engine->stats.plan_breaks++;
    flight_note(set->engine->flight, set->engine->now_ns, FLIGHT_PLAN_BREAK, set->id,
                (int32_t)plan->started, "");
    if (set->coordinator != NULL) {
        struct coordinator *c = set->coordinator;
        bool was_long = plan->finished > (uint64_t)plan->batch_count * PLAN_LONG;
        c->steps_wanted = was_long ? set->engine->config->plan_warmup_steps : c->steps_wanted * 2;
        if (c->steps_wanted > 1000)
            c->steps_wanted = 1000;
    }
    plan_destroy(set);
    set->must_announce = true;
}

bool plan_progress(struct procset *set)
{
    bool has_moved = false;
    for (;;) {
        struct plan *plan = set->plan;
        if (plan == NULL || !plan->has_begun)
            return has_moved;
        if (plan->state == PLAN_COMMITTED && plan->finished >= plan->commit) {
            leave(set);
            return true;
        }
        if (set->run.is_active) {
            hvd_status_t status = execute_step(set, &has_moved);
            if (status == HVD_IN_PROGRESS)
                return has_moved;
            has_moved = true;
            if (set->plan != NULL)
                set->plan->finished++;
            continue;
        }
        if (plan->state != PLAN_RUNNING || set->broken != HVD_OK || !start_next(set))
            return has_moved;
        has_moved = true;
    }
}

/* ---- breaking ---- */

static void halt(struct procset *set);

void plan_break(struct procset *set)
{
    struct plan *plan = set->plan;
    if (plan == NULL || plan->is_break_sent)
        return;
    plan->is_break_sent = true;
    if (set->parent < 0)
        halt(set);
    else if (plan->state == PLAN_ANNOUNCED || plan->state == PLAN_RUNNING)
        negotiate_up(set, MESSAGE_BREAK, "", 0);
}

static void commit(struct procset *set, uint64_t number)
{
    struct plan *plan = set->plan;
    plan->commit = number;
    plan->state = PLAN_COMMITTED;
    negotiate_generation(set);
    plan->next_generation = set->generation;
}

static void position(struct procset *set, uint64_t number)
{
    struct coordinator *c = set->coordinator;
    if (!c->is_halting)
        return;
    if (c->positions == 0 || number < c->position_min)
        c->position_min = number;
    if (++c->positions < set->size)
        return;
    c->is_halting = false;
    uint8_t body[8];
    struct writer w;
    writer_init(&w, body, sizeof body);
    put_u64(&w, c->position_min);
    negotiate_down(set, MESSAGE_COMMIT, body, w.used);
    commit(set, c->position_min);
}

static void halt(struct procset *set)
{
    struct plan *plan = set->plan;
    if (plan->state != PLAN_ANNOUNCED && plan->state != PLAN_RUNNING)
        return;
    set->coordinator->is_halting = true;
    set->coordinator->positions = 0;
    negotiate_down(set, MESSAGE_HALT, "", 0);
    plan->state = PLAN_HALTED;
    position(set, plan->started);
}

void plan_message(struct procset *set, const struct message_head *head, struct reader *r)
{
    struct plan *plan = set->plan;
    if (plan == NULL || head->generation != set->generation)
        return;
    uint8_t body[8];
    struct writer w;
    uint64_t number;
    switch ((enum message_type)head->type) {
    case MESSAGE_BREAK:
        plan->is_break_sent = true;
        halt(set);
        return;
    case MESSAGE_HALT:
        plan->state = PLAN_HALTED;
        writer_init(&w, body, sizeof body);
        put_u64(&w, plan->started);
        negotiate_up(set, MESSAGE_POSITION, body, w.used);
        return;
    case MESSAGE_POSITION:
        number = get_u64(r);
        if (!r->bad)
            position(set, number);
        return;
    case MESSAGE_COMMIT:
        number = get_u64(r);
        if (!r->bad && number <= plan->started)
            commit(set, number);
        return;
    case MESSAGE_READY:
    case MESSAGE_REQUEST:
    case MESSAGE_NUDGE:
    case MESSAGE_RESPONSE:
    case MESSAGE_SHUTDOWN:
    case MESSAGE_ABORT:
    case MESSAGE_LEAVE: return;
    }
}

/* ---- a plan that does not deliver ---- */

static bool is_stuck(const struct procset *set)
{
    const struct plan *plan = set->plan;
    return plan != NULL && plan->state == PLAN_RUNNING && !set->run.is_active &&
           set->pending_count > 0 && plan->batches[plan->position].missing > 0;
}

void plan_waiting(struct procset *set)
{
    if (is_stuck(set))
        plan_break(set);
}

int64_t plan_deadline_ns(const struct procset *set)
{
    if (!is_stuck(set) || set->pending_head == NULL)
        return INT64_MAX;
    return set->pending_head->submit_ns + PLAN_PATIENCE_NS;
}

void plan_tick(struct procset *set, int64_t now_ns)
{
    if (now_ns >= plan_deadline_ns(set))
        plan_break(set);
}
