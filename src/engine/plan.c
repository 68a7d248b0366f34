/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - a recorded training step, executed again and again without any message: a batch starts
 * as soon as this rank has submitted its ops, and the data-ready flag of the collective is the
 * agreement.
 *
 * Any deviation breaks the plan: an unknown name, another shape, a waiter whose op the plan can't
 * run. Breaking needs agreement too. The rank that can't follow sends BREAK; the coordinator sends
 * HALT to all; every rank starts no further batch and reports how many it has started since the
 * plan began; the smallest of these numbers is the COMMIT. Batches below it were started by all
 * ranks and are finished; for those at or above it some rank has not published its data, so no rank
 * can have changed an output: they are cancelled, their ops are pending again and are negotiated in
 * the next generation.
 *
 *      rank 0  started 7 8 9 .        BREAK from rank 1: positions 10, 9, 10
 *      rank 1  started 7 8            COMMIT 9: batch 8 is finished by all,
 *      rank 2  started 7 8 9 .        batch 9 never happened
 *
 * Thread: token holder.  Owner: struct procset.  Start reading at plan_op() and plan_progress(). */
#include "engine/plan.h"

#include <assert.h>
#include <string.h>

#include "engine/control.h"
#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/execute.h"
#include "engine/flight.h"
#include "engine/negotiate.h"
#include "engine/stall.h"
#include "engine/timeline.h"

#define PLAN_PATIENCE_NS 1000000000 /* for ops in a plan that no caller waits for */
#define PLAN_LONG        100        /* steps after which a plan was worth it */

enum plan_state {
    PLAN_ANNOUNCED, /* its position in the order is not reached yet */
    PLAN_RUNNING,
    PLAN_HALTED,   /* position reported, waiting for the commit */
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
    uint64_t started, finished;    /* batches, since the plan began; finished by the backend */
    uint64_t commit;
    uint32_t next_generation; /* the one that the commit began; another may have begun since */
    bool is_break_sent;
    bool has_begun; /* everything agreed before it has been executed */
};

static const char *state_name(enum plan_state state)
{
    switch (state) {
    case PLAN_ANNOUNCED: return "announced";
    case PLAN_RUNNING: return "running";
    case PLAN_HALTED: return "halted";
    case PLAN_COMMITTED: return "ending";
    }
    return "?";
}

bool plan_look(const struct procset *set, struct plan_view *ret)
{
    const struct plan *plan = set->plan;
    if (plan == NULL)
        return false;
    *ret = (struct plan_view){.state = state_name(plan->state),
                              .batches = plan->batch_count,
                              .position = plan->position,
                              .started = plan->started,
                              .finished = plan->finished};
    if (plan->batch_count > 0)
        ret->missing = plan->batches[plan->position].missing;
    return true;
}

bool plan_is_on(const struct procset *set)
{
    return set->plan != NULL;
}

bool plan_is_ending(const struct procset *set)
{
    return set->plan != NULL && set->plan->state == PLAN_COMMITTED;
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
        engine_no_memory(set->engine, "a plan");
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
        engine_no_memory(set->engine, "a plan");
        return;
    }
    plan->state = PLAN_RUNNING;
    set->engine->stats.plan_starts++;
    flight_note_text(set->engine->flight, set->engine->now_ns, FLIGHT_PLAN_BEGIN, set->id,
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
    if (e == NULL || e->plan_batch < 0 || e->is_plan_ready || !procset_entry_fits(e, op))
        return false;
    return e->ndim == 0 || e->shape[0] == op->shape[0];
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
    assert(plan->batches[entry->plan_batch].missing >= 0);
    return true;
}

static bool start_next(struct procset *set)
{
    struct plan *plan = set->plan;
    struct plan_batch *b = &plan->batches[plan->position];
    if (b->missing > 0 || !execute_has_room(set, plan->ids[b->first]))
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
    set->engine->stats.batches_planned++;
    execute_begin(set, &batch, true);
    return true;
}

uint64_t plan_started(const struct procset *set)
{
    return set->plan->started;
}

void plan_batch_moved(struct procset *set)
{
    assert(set->plan != NULL && set->plan->finished < set->plan->started);
    set->plan->finished++;
}

static void leave(struct procset *set)
{
    struct plan *plan = set->plan;
    assert(plan->state == PLAN_COMMITTED && plan->started >= plan->commit);
    execute_cancel(set);
    procset_rebase(set, plan->next_generation);
    set->order += plan->commit;
    for (int32_t i = 0; plan->ids != NULL && i < plan->batch_count; i++)
        for (int32_t k = 0; k < plan->batches[i].count; k++) {
            struct entry *entry = procset_entry(set, plan->ids[plan->batches[i].first + k]);
            if (entry == NULL)
                continue; /* a rank that has already left announced it differently */
            entry->plan_batch = -1;
            entry->is_plan_ready = false;
        }
    set->engine->stats.plan_breaks++;
    flight_note_text(set->engine->flight, set->engine->now_ns, FLIGHT_PLAN_BREAK, set->id,
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
        bool has_changed = execute_is_active(set) && execute_step(set, &has_moved);
        if (!has_changed &&
            (plan->state != PLAN_RUNNING || set->broken != HVD_OK || !start_next(set)))
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

static void position(struct procset *set, int32_t index, uint64_t number)
{
    struct coordinator *c = set->coordinator;
    c->positioned[index] = 1;
    if (c->positions == 0 || number < c->position_min) {
        c->position_min = number;
        c->position_rank = index;
    }
    if (++c->positions < set->size)
        return;
    c->is_halting = false;
    uint8_t body[12];
    struct writer w;
    writer_init(&w, body, sizeof body);
    put_u64(&w, c->position_min);
    put_u32(&w, (uint32_t)c->position_rank);
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
    memset(set->coordinator->positioned, 0, (size_t)set->size);
    negotiate_down(set, MESSAGE_HALT, "", 0);
    plan->state = PLAN_HALTED;
    position(set, set->self, plan->started);
}

static void position_tell(struct procset *set)
{
    uint8_t body[12];
    struct writer w;
    writer_init(&w, body, sizeof body);
    put_u64(&w, set->plan->started);
    put_u32(&w, (uint32_t)set->self);
    negotiate_up(set, MESSAGE_POSITION, body, w.used);
}

/* A batch that this rank has finished was started by all. */
static hvd_status_t position_check(const struct procset *set, uint64_t number, int32_t index,
                                   struct error *error)
{
    const struct plan *plan = set->plan;
    if (number >= plan->finished)
        return HVD_OK;
    return negotiate_misbehaved(
        set, index, error, "started %llu batches of a plan, of which rank %d has finished %llu",
        (unsigned long long)number, set->engine->rank, (unsigned long long)plan->finished);
}

static bool position_get(const struct procset *set, int32_t from, struct reader *r,
                         uint64_t *ret_number, int32_t *ret_index)
{
    *ret_number = get_u64(r);
    *ret_index = (int32_t)get_u32(r);
    return reader_done(r) && *ret_index >= 0 && *ret_index < set->size &&
           (from < 0 || set->via[*ret_index] == set->via[from]);
}

static hvd_status_t on_position(struct procset *set, int32_t from, struct reader *r,
                                struct error *error)
{
    uint64_t number;
    int32_t index;
    if (!position_get(set, from, r, &number, &index))
        return negotiate_misbehaved(set, from, error, "told a position that can't be read");
    if (!set->coordinator->is_halting || set->coordinator->positioned[index])
        return negotiate_misbehaved(set, index, error,
                                    "told its position in a plan without being asked");
    hvd_status_t status = position_check(set, number, index, error);
    if (status == HVD_OK)
        position(set, index, number);
    return status;
}

/* The number of batches that all have started is at least what this rank has finished, and at most
 * what it has started. */
static hvd_status_t on_commit(struct procset *set, int32_t from, struct reader *r,
                              struct error *error)
{
    const struct plan *plan = set->plan;
    uint64_t number;
    int32_t index;
    if (!position_get(set, -1, r, &number, &index) || plan->state != PLAN_HALTED ||
        number > plan->started)
        return negotiate_misbehaved(set, from, error, "ended a plan where this rank can't");
    hvd_status_t status = position_check(set, number, index, error);
    if (status == HVD_OK)
        commit(set, number);
    return status;
}

hvd_status_t plan_relay(struct procset *set, int32_t from, const struct message_head *head,
                        struct reader *r, const void *bytes, size_t n, struct error *error)
{
    const struct plan *plan = set->plan;
    uint64_t number;
    int32_t index;
    if (head->type == MESSAGE_BREAK && !reader_done(r))
        return negotiate_misbehaved(set, from, error, "broke a plan with something behind it");
    if (head->type == MESSAGE_POSITION &&
        (plan == NULL || plan->state != PLAN_HALTED || head->generation != set->generation ||
         !position_get(set, from, r, &number, &index)))
        return negotiate_misbehaved(set, from, error,
                                    "told its position in a plan without being asked");
    control_send(set->engine, set->ranks[set->parent], bytes, n);
    return HVD_OK;
}

/* It may have crossed the halt or the commit. */
static hvd_status_t on_break(struct procset *set, int32_t from, bool is_current, struct reader *r,
                             struct error *error)
{
    if (!reader_done(r))
        return negotiate_misbehaved(set, from, error, "broke a plan with something behind it");
    if (!is_current)
        return HVD_OK;
    set->plan->is_break_sent = true;
    halt(set);
    return HVD_OK;
}

static hvd_status_t on_halt(struct procset *set, int32_t from, bool is_current, struct reader *r,
                            struct error *error)
{
    struct plan *plan = set->plan;
    if (!is_current || !reader_done(r) ||
        (plan->state != PLAN_ANNOUNCED && plan->state != PLAN_RUNNING))
        return negotiate_misbehaved(set, from, error, "halted a plan that does not run");
    plan->state = PLAN_HALTED;
    position_tell(set);
    return HVD_OK;
}

hvd_status_t plan_message(struct procset *set, int32_t from, const struct message_head *head,
                          struct reader *r, struct error *error)
{
    bool is_current = set->plan != NULL && head->generation == set->generation;
    if (head->type == MESSAGE_BREAK)
        return on_break(set, from, is_current, r, error);
    if (head->type == MESSAGE_HALT)
        return on_halt(set, from, is_current, r, error);
    if (head->type == MESSAGE_POSITION && !is_current)
        return negotiate_misbehaved(set, from, error, "told its position in no plan");
    if (head->type == MESSAGE_POSITION)
        return on_position(set, from, r, error);
    if (head->type == MESSAGE_COMMIT && !is_current)
        return negotiate_misbehaved(set, from, error, "ended a plan that does not run");
    if (head->type == MESSAGE_COMMIT)
        return on_commit(set, from, r, error);
    return HVD_OK;
}

/* ---- a plan that does not deliver ---- */

static bool is_stuck(const struct procset *set)
{
    const struct plan *plan = set->plan;
    return plan != NULL && plan->state == PLAN_RUNNING && !execute_is_active(set) &&
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

/* A batch of the plan waits for a missing rank: only the coordinator can determine which one it is,
 * and only by negotiating. */
void plan_stall_check(struct procset *set, int64_t now_ns)
{
    if (set->plan != NULL && set->plan->state == PLAN_RUNNING && set->pending_head != NULL &&
        now_ns - set->pending_head->submit_ns >= stall_uncover_ns(set->engine->config))
        plan_break(set);
}
