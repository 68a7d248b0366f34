/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.c - the object behind a handle: finding it, reading the results of its ops, releasing it.
 *
 * Thread: any; changes of the tables are under the submit lock.  Owner: struct engine's pools.
 * Start reading at ticket_find(). */
#include <string.h>

#include "engine/engine_private.h"
#include "engine/pool.h"
#include "engine/submit.h"

struct ticket *ticket_find(struct engine *engine, hvd_handle_t handle)
{
    struct ticket *ticket = NULL;
    pthread_mutex_lock(&engine->submit_lock);
    if (handle > 0 && engine->ticket_capacity != 0)
        ticket = engine->tickets[(uint64_t)handle & (engine->ticket_capacity - 1)];
    if (ticket != NULL && ticket->handle != handle)
        ticket = NULL;
    pthread_mutex_unlock(&engine->submit_lock);
    return ticket;
}

hvd_handle_t ticket_handle(const struct ticket *ticket)
{
    return ticket->handle;
}

hvd_status_t ticket_status(const struct ticket *ticket)
{
    return (hvd_status_t)atomic_load_explicit(&ticket->state, memory_order_acquire);
}

/* Without memory for the text, use the name of the status. */
const char *ticket_error(const struct ticket *ticket)
{
    hvd_status_t status = ticket_status(ticket);
    if (status == HVD_OK || status == HVD_IN_PROGRESS)
        return "";
    return ticket->error != NULL ? ticket->error->text : hvd_status_name(status);
}

/* A thread may be reading the text: it sees the old one until the last byte is written. */
void ticket_error_add(struct ticket *ticket, const char *text)
{
    if (ticket->error == NULL || atomic_exchange(&ticket->is_error_added, true))
        return;
    char *end = ticket->error->text + strlen(ticket->error->text);
    size_t room = (size_t)(ticket->error->text + sizeof ticket->error->text - end);
    if (strlen(text) >= room || text[0] == '\0')
        return;
    memcpy(end + 1, text + 1, strlen(text));
    *(volatile char *)end = text[0];
}

int32_t ticket_op_count(const struct ticket *ticket)
{
    return ticket->count;
}

int32_t ticket_answer(const struct ticket *ticket)
{
    return ticket->answer;
}

void ticket_result(const struct ticket *ticket, int32_t index, struct ticket_result *ret)
{
    const struct op *op = ticket->ops[index];
    *ret = (struct ticket_result){.ndim = op->ndim,
                                  .out = op->out,
                                  .made = op->result,
                                  .recv_splits = op->recv_splits,
                                  .recv_count = op->recv_splits != NULL ? op->set_size : 0};
    memcpy(ret->shape, op->shape, sizeof op->shape);
    if (op->ndim > 0 &&
        (op->kind == HVD_ALLGATHER || op->kind == HVD_ALLTOALL || op->kind == HVD_REDUCESCATTER))
        ret->shape[0] = op->result_dim0;
}

void ticket_result_taken(struct ticket *ticket, int32_t index)
{
    ticket->ops[index]->result = NULL;
}

static void names_free(struct engine *engine, struct ticket *ticket)
{
    if (!ticket->is_name_held)
        return;
    ticket->is_name_held = false;
    for (int32_t i = 0; i < ticket->count; i++) {
        struct op *o = ticket->ops[i];
        if (o->tensor == NULL || o->tensor->hold != ticket)
            continue;
        o->tensor->hold = NULL;
        submit_tensor_drop(engine, o->set, o->tensor);
        o->tensor = NULL;
    }
}

void ticket_seen(struct engine *engine, struct ticket *ticket)
{
    if (!ticket->is_name_held)
        return;
    pthread_mutex_lock(&engine->submit_lock);
    names_free(engine, ticket);
    pthread_mutex_unlock(&engine->submit_lock);
}

void ticket_release(struct engine *engine, struct ticket *ticket)
{
    pthread_mutex_lock(&engine->submit_lock);
    names_free(engine, ticket);
    for (int32_t i = 0; i < ticket->count; i++)
        pool_op_give(engine, ticket->ops[i]);
    pool_ticket_give(engine, ticket);
    pthread_mutex_unlock(&engine->submit_lock);
}
