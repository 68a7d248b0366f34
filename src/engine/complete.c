/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c - the last step of an op's way: status into the ticket, the name free again, waiters
 * and callbacks told. Callbacks are not called here but handed to the driver, which holds no lock
 * then.
 *
 * Thread: token holder.  Start reading at complete_op(). */
#include <string.h>

#include "engine/engine.h"
#include "engine/flight.h"

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

void complete_op(struct engine *engine, struct op *op, hvd_status_t status, const char *text)
{
    struct ticket *ticket = op->ticket;
    pending_unlink(op->set, op);
    if (status != HVD_OK) {
        flight_note(engine->flight, engine->now_ns, FLIGHT_ERROR, op->set->id, (int32_t)status,
                    op->tensor->name);
        record_error(engine, ticket, status, text);
    } else {
        flight_note(engine->flight, engine->now_ns, FLIGHT_DONE, op->set->id, op->kind,
                    op->tensor->name);
        engine->stats.ops_completed++;
        if (op->kind == HVD_ALLREDUCE)
            engine->stats.bytes_reduced +=
                (uint64_t)op->count * hvd_dtype_bytes((hvd_dtype_t)op->dtype);
    }
    submit_name_done(engine, op);
    atomic_fetch_sub(&engine->in_flight, 1);
    if (--ticket->remaining == 0)
        ticket_done(engine, ticket);
}

void complete_pending(struct procset *set, hvd_status_t status, const char *text)
{
    while (set->pending_head != NULL)
        complete_op(set->engine, set->pending_head, status, text);
    set->run.is_active = false;
}

struct ticket *engine_take_done(struct engine *engine)
{
    struct ticket *head = engine->done_head;
    engine->done_head = engine->done_tail = NULL;
    return head;
}
