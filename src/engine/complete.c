/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c - the last step of an op: its status goes into its ticket and its name is free again.
 * Tickets with a callback are collected; the driver takes them and runs complete_callbacks() after
 * it has released the token.
 *
 * Thread: token holder, except complete_callbacks().  Start reading at complete_op(). */
#include "engine/complete.h"

#include <assert.h>
#include <string.h>

#include "engine/direct.h"
#include "engine/engine_private.h"
#include "engine/flight.h"
#include "engine/submit.h"
#include "engine/timeline.h"

static void pending_unlink(struct procset *set, struct op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        set->pending_head = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    else
        set->pending_tail = op->prev;
    op->next = op->prev = NULL;
    set->pending_count--;
    assert(set->pending_count >= 0 && (set->pending_count == 0) == (set->pending_head == NULL));
    if (set->join_op == op)
        set->join_op = NULL;
}

static void record_error(struct engine *engine, struct ticket *ticket, hvd_status_t status,
                         const char *text)
{
    if (ticket->first_error != HVD_OK)
        return;
    ticket->first_error = status;
    ticket->error = os_alloc(engine->os, sizeof *ticket->error);
    if (ticket->error != NULL)
        error_set(ticket->error, status, "%s", text);
}

static void ticket_done(struct engine *engine, struct ticket *ticket)
{
    bool has_callback = ticket->ops[0]->callback != NULL;
    engine->completions++;
    atomic_store_explicit(&ticket->state, (int32_t)ticket->first_error, memory_order_release);
    if (!has_callback)
        return; /* from here on a waiter may release it */
    ticket->next = NULL;
    if (engine->done_tail != NULL)
        engine->done_tail->next = ticket;
    else
        engine->done_head = ticket;
    engine->done_tail = ticket;
}

/* An op without a batch leaves the bar of its negotiation open; the coordinator closes its own. */
static void trace_end(struct engine *engine, const struct op *op, hvd_status_t status)
{
    bool has_batch = op->kind < HVD_KIND_COUNT && op->kind != HVD_JOIN;
    bool is_direct = op->kind == KIND_SEND || op->kind == KIND_RECV;
    if (!is_direct && (status != HVD_OK || (!has_batch && op->set->coordinator == NULL)))
        timeline_negotiate_end(engine->timeline, op->set->id, op->tensor->name,
                               op->tensor->name_bytes);
}

void complete_op(struct engine *engine, struct op *op, hvd_status_t status, const char *text)
{
    struct ticket *ticket = op->ticket;
    assert(ticket->remaining > 0 && atomic_load(&engine->in_flight) > 0);
    assert(status != HVD_IN_PROGRESS);
    if (op->kind == KIND_SEND || op->kind == KIND_RECV) {
        direct_unlink(engine, op);
    } else {
        pending_unlink(op->set, op);
        meter_completed(engine);
    }
    if (status != HVD_OK) {
        flight_note(engine->flight, engine->now_ns, FLIGHT_ERROR, op->set->id, (int32_t)status,
                    &op->tensor->flight_name);
        record_error(engine, ticket, status, text);
    } else {
        flight_note(engine->flight, engine->now_ns, FLIGHT_DONE, op->set->id, op->kind,
                    &op->tensor->flight_name);
        engine->stats.ops_completed++;
        if (op->kind == HVD_ALLREDUCE)
            engine->stats.bytes_reduced +=
                (uint64_t)op->count * hvd_dtype_bytes((hvd_dtype_t)op->dtype);
    }
    if (timeline_is_on(engine->timeline))
        trace_end(engine, op, status);
    submit_name_done(engine, op);
    atomic_fetch_sub(&engine->in_flight, 1);
    if (--ticket->remaining == 0)
        ticket_done(engine, ticket);
}

void complete_pending(struct procset *set, hvd_status_t status, const char *text)
{
    struct op *next;
    for (struct op *op = set->pending_head; op != NULL; op = next) {
        next = op->next;
        if (!op->is_lent)
            complete_op(set->engine, op, status, text);
    }
}

struct ticket *complete_take(struct engine *engine)
{
    struct ticket *head = engine->done_head;
    engine->done_head = engine->done_tail = NULL;
    return head;
}

void complete_callbacks(struct engine *engine, struct ticket *done)
{
    while (done != NULL) {
        struct ticket *ticket = done;
        struct op *op = ticket->ops[0];
        bool is_released = (ticket->flags & HVD_OP_AUTO_RELEASE) != 0;
        done = ticket->next; /* the callback may release it */
        op->callback(op->arg, ticket->handle, ticket_status(ticket));
        if (is_released)
            ticket_release(engine, ticket);
    }
}
