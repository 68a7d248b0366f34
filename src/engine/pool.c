/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - ops and tickets come from chunks that are freed only at the end, so that a steady state
 * allocates nothing. All functions here are called under the submit lock.
 *
 * Start reading at pool_ticket_take(). */
#include "engine/pool.h"

#include <string.h>

#include "engine/engine_private.h"
#include "memory/memory.h"

#define CHUNK_ITEMS 64u

struct chunk {
    struct chunk *next;
};

static void *chunk_take(struct engine *engine, size_t item_bytes)
{
    struct chunk *chunk =
        os_alloc(engine->os, sizeof(struct chunk) + item_bytes * CHUNK_ITEMS + 64);
    if (chunk == NULL)
        return NULL;
    chunk->next = engine->chunks;
    engine->chunks = chunk;
    return (uint8_t *)chunk + 64;
}

struct op *pool_op_take(struct engine *engine)
{
    if (engine->free_ops == NULL) {
        struct op *items = chunk_take(engine, sizeof(struct op));
        if (items == NULL)
            return NULL;
        for (size_t i = 0; i < CHUNK_ITEMS; i++) {
            items[i].next = engine->free_ops;
            engine->free_ops = &items[i];
        }
    }
    struct op *op = engine->free_ops;
    engine->free_ops = op->next;
    memset(op, 0, sizeof *op);
    return op;
}

void pool_op_give(struct engine *engine, struct op *op)
{
    os_free(engine->os, op->splits);
    os_free(engine->os, op->recv_splits);
    if (op->mark != NULL)
        op->memory->ops->release(op->memory, op->mark);
    if (op->result != NULL)
        engine->options.result_free(engine->options.result_ctx, op->result);
    op->next = engine->free_ops;
    engine->free_ops = op;
}

static bool ticket_table_grow(struct engine *engine)
{
    size_t capacity = engine->ticket_capacity != 0 ? engine->ticket_capacity * 2 : 1024;
    struct ticket **table = os_alloc(engine->os, capacity * sizeof *table);
    if (table == NULL)
        return false;
    for (size_t i = 0; i < engine->ticket_capacity; i++)
        if (engine->tickets[i] != NULL)
            table[(uint64_t)engine->tickets[i]->handle & (capacity - 1)] = engine->tickets[i];
    os_free(engine->os, engine->tickets);
    engine->tickets = table;
    engine->ticket_capacity = capacity;
    return true;
}

/* Handles are numbers that only increase; a slot still used by an old handle means that the table
 * is too small for the handles in use: it grows until the new one fits. */
static bool ticket_number(struct engine *engine, struct ticket *ticket)
{
    hvd_handle_t handle = engine->next_handle + 1;
    while (engine->ticket_capacity == 0 ||
           engine->tickets[(uint64_t)handle & (engine->ticket_capacity - 1)] != NULL) {
        if (!ticket_table_grow(engine))
            return false;
    }
    engine->next_handle = handle;
    ticket->handle = handle;
    engine->tickets[(uint64_t)handle & (engine->ticket_capacity - 1)] = ticket;
    engine->ticket_count++;
    return true;
}

struct ticket *pool_ticket_take(struct engine *engine, int32_t count)
{
    if (engine->free_tickets == NULL) {
        struct ticket *items = chunk_take(engine, sizeof(struct ticket));
        if (items == NULL)
            return NULL;
        for (size_t i = 0; i < CHUNK_ITEMS; i++) {
            items[i].next = engine->free_tickets;
            engine->free_tickets = &items[i];
        }
    }
    struct ticket *ticket = engine->free_tickets;
    struct op **ops = NULL;
    if (count > 1) {
        ops = os_alloc(engine->os, (size_t)count * sizeof *ops);
        if (ops == NULL)
            return NULL;
    }
    engine->free_tickets = ticket->next;
    memset(ticket, 0, sizeof *ticket);
    ticket->ops = count > 1 ? ops : &ticket->one;
    ticket->count = ticket->remaining = count;
    atomic_store_explicit(&ticket->state, HVD_IN_PROGRESS, memory_order_relaxed);
    ticket->is_live = true;
    if (!ticket_number(engine, ticket)) {
        pool_ticket_give(engine, ticket);
        return NULL;
    }
    return ticket;
}

void pool_ticket_give(struct engine *engine, struct ticket *ticket)
{
    if (ticket->handle > 0 && engine->ticket_capacity != 0) {
        struct ticket **slot =
            &engine->tickets[(uint64_t)ticket->handle & (engine->ticket_capacity - 1)];
        if (*slot == ticket) {
            *slot = NULL;
            engine->ticket_count--;
        }
    }
    if (ticket->ops != &ticket->one)
        os_free(engine->os, ticket->ops);
    os_free(engine->os, ticket->error);
    ticket->error = NULL;
    ticket->ops = &ticket->one;
    ticket->is_live = false;
    ticket->next = engine->free_tickets;
    engine->free_tickets = ticket;
}

void pool_destroy(struct engine *engine)
{
    for (size_t i = 0; i < engine->ticket_capacity; i++) {
        struct ticket *ticket = engine->tickets[i];
        if (ticket == NULL)
            continue;
        for (int32_t k = 0; k < ticket->count; k++)
            if (ticket->ops[k] != NULL)
                pool_op_give(engine, ticket->ops[k]);
        pool_ticket_give(engine, ticket);
    }
    os_free(engine->os, engine->tickets);
    for (struct chunk *chunk = engine->chunks; chunk != NULL;) {
        struct chunk *next = chunk->next;
        os_free(engine->os, chunk);
        chunk = next;
    }
}
