/* SPDX-License-Identifier: Apache-2.0 */
/* response.c - the responses of a coordinator: items are collected into messages, which are sent
 * and applied locally one after the other, never nested.
 *
 * Thread: token holder of the set's lowest rank.  Owner: struct coordinator.  Blocks: never. Start
 * reading at response_room() and response_deliver(). */
#include "engine/response.h"

#include <assert.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/negotiate.h"

#define OUT_FULL   (128u << 10) /* a response this long takes no further item */
#define OUT_SPARES 2            /* buffers kept for the steady state */

static struct out_message *out_make(const struct os *os, size_t capacity)
{
    struct out_message *m = os_alloc(os, sizeof *m + capacity);
    if (m != NULL)
        m->capacity = capacity;
    return m;
}

/* Back to the spares, or freed; NULL is fine. */
static void out_give(struct coordinator *c, struct out_message *m)
{
    if (m == NULL)
        return;
    if (m->capacity != RESPONSE_BYTES || c->spare_count >= OUT_SPARES) {
        os_free(c->set->engine->os, m);
        return;
    }
    m->next = c->spare;
    c->spare = m;
    c->spare_count++;
}

static struct out_message *out_take(struct coordinator *c, size_t capacity)
{
    struct out_message *m = c->spare;
    if (capacity > RESPONSE_BYTES)
        return out_make(c->set->engine->os, capacity);
    if (m == NULL)
        return out_make(c->set->engine->os, RESPONSE_BYTES);
    c->spare = m->next;
    c->spare_count--;
    return m;
}

/* The message under construction is complete: it waits for its turn. */
static void out_seal(struct coordinator *c)
{
    struct out_message *m = c->current;
    if (m == NULL)
        return;
    assert(!c->out.bad && c->out.used > MESSAGE_HEAD_BYTES && c->out.used <= m->capacity);
    m->used = c->out.used;
    m->next = NULL;
    *(c->out_tail != NULL ? &c->out_tail->next : &c->out_head) = m;
    c->out_tail = m;
    c->current = NULL;
}

static void out_drop(struct coordinator *c)
{
    out_give(c, c->current);
    c->current = NULL;
    for (struct out_message *next; c->out_head != NULL; c->out_head = next) {
        next = c->out_head->next;
        out_give(c, c->out_head);
    }
    c->out_tail = NULL;
}

struct writer *response_room(struct procset *set, size_t bytes)
{
    struct coordinator *c = set->coordinator;
    if (c->current != NULL && c->out.used <= OUT_FULL && c->out.used + bytes <= c->out.capacity)
        return &c->out;
    out_seal(c);
    if (set->broken == HVD_OK)
        c->current = out_take(c, MESSAGE_HEAD_BYTES + bytes);
    if (c->current != NULL) {
        writer_init(&c->out, c->current->bytes, c->current->capacity);
        c->out.used = MESSAGE_HEAD_BYTES;
        return &c->out;
    }
    engine_no_memory(set->engine, "a response");
    out_drop(c);
    writer_init(&c->out, NULL, 0); /* takes nothing */
    return &c->out;
}

/* Sends the collected items, and those that applying them adds. */
void response_deliver(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    if (c->is_delivering)
        return;
    c->is_delivering = true;
    for (;;) {
        if (c->out_head == NULL)
            out_seal(c);
        struct out_message *m = c->out_head;
        if (m == NULL || set->broken != HVD_OK)
            break;
        c->out_head = m->next;
        if (c->out_head == NULL)
            c->out_tail = NULL;
        negotiate_respond(set, m->bytes, m->used);
        out_give(c, m);
    }
    if (set->broken != HVD_OK)
        out_drop(c);
    c->is_delivering = false;
}

void response_deliver_full(struct procset *set)
{
    if (set->coordinator->out_head != NULL)
        response_deliver(set);
}

bool response_create(struct coordinator *c)
{
    for (int i = 0; i < OUT_SPARES; i++)
        out_give(c, out_make(c->set->engine->os, RESPONSE_BYTES));
    return c->spare_count == OUT_SPARES;
}

void response_destroy(struct coordinator *c)
{
    out_drop(c);
    for (struct out_message *next; c->spare != NULL; c->spare = next) {
        next = c->spare->next;
        os_free(c->set->engine->os, c->spare);
    }
}
