/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - the control messages of an engine: outgoing ones, with an outbox for those that do
 * not fit, and incoming ones, which go to their process set.
 *
 * Thread: token holder.  Owner: struct engine.  Blocks: never. Start reading at control_send() and
 * on_message(). */
#include "engine/control.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/direct.h"
#include "engine/engine_private.h"
#include "engine/flight.h"
#include "engine/meter.h"
#include "engine/negotiate.h"

#define EARLY_BYTES_MAX (16u << 20)

/* ---- out ---- */

static void outbox_put(struct engine *engine, int32_t world_rank, const void *bytes, size_t n)
{
    struct outbox *box = &engine->outboxes[world_rank];
    size_t need = box->used + n + 4;
    if (need > box->capacity) {
        size_t capacity = need * 2;
        uint8_t *grown = engine->os->resize(engine->os->ctx, box->bytes, capacity);
        if (grown == NULL) {
            engine_no_memory(engine, "control messages");
            return;
        }
        box->bytes = grown;
        box->capacity = capacity;
    }
    if (box->used == 0)
        engine->outbox_waiting++;
    uint32_t length = (uint32_t)n;
    memcpy(box->bytes + box->used, &length, 4);
    memcpy(box->bytes + box->used + 4, bytes, n);
    box->used += n + 4;
}

static void outbox_drain(struct engine *engine, int32_t world_rank)
{
    struct outbox *box = &engine->outboxes[world_rank];
    struct transport *t = engine->options.routes[world_rank];
    while (box->at < box->used) {
        uint32_t n;
        memcpy(&n, box->bytes + box->at, 4);
        if (t->ops->message_send(t, world_rank, box->bytes + box->at + 4, n) == HVD_AGAIN)
            return;
        box->at += n + 4u;
    }
    box->at = box->used = 0;
    engine->outbox_waiting--;
    assert(engine->outbox_waiting >= 0);
}

void control_send(struct engine *engine, int32_t world_rank, const void *bytes, size_t n)
{
    struct transport *t = engine->options.routes[world_rank];
    engine->stats.messages_sent++;
    if (t == NULL)
        return;
    engine->traffic[world_rank].sent++;
    engine->traffic[world_rank].sent_bytes += n;
    if (engine->outboxes[world_rank].used > 0 ||
        t->ops->message_send(t, world_rank, bytes, n) == HVD_AGAIN)
        outbox_put(engine, world_rank, bytes, n);
}

void control_drain(struct engine *engine)
{
    for (int32_t i = 0; engine->outbox_waiting > 0 && i < engine->size; i++)
        if (engine->outboxes[i].used > 0)
            outbox_drain(engine, i);
}

/* ---- in ---- */

static void dispatch(struct engine *engine, int32_t peer, const void *bytes, size_t n);

static void peer_left(struct engine *engine, int32_t peer)
{
    assert(peer != engine->rank);
    engine->left_count += engine->has_left[peer] == 0;
    if (engine->has_left[peer] == 0)
        engine->has_left[peer] = PEER_LEFT;
    assert(engine->left_count < engine->size);
}

/* A member may receive messages for a new process set from another member before it has opened the
 * set itself: such messages wait for their set. */
static void early_keep(struct engine *engine, int32_t peer, const void *bytes, size_t n)
{
    struct early *early =
        engine->early_bytes + n <= EARLY_BYTES_MAX ? os_alloc(engine->os, sizeof *early + n) : NULL;
    if (early == NULL) {
        engine_stop(engine, HVD_ERR_LIMIT,
                    "Too many messages for a process set that is not open yet.", true);
        return;
    }
    early->peer = peer;
    early->bytes = n;
    memcpy(early->message, bytes, n);
    engine->early_bytes += n;
    struct early **end = &engine->early;
    while (*end != NULL)
        end = &(*end)->next;
    *end = early;
}

void control_replay(struct engine *engine)
{
    struct early *early = engine->early;
    engine->early = NULL;
    engine->early_bytes = 0;
    while (early != NULL) {
        struct early *next = early->next;
        dispatch(engine, early->peer, early->message,
                 early->bytes); /* keeps it again if still too early */
        os_free(engine->os, early);
        early = next;
    }
}

/* A peer violates the protocol in a way that concerns no particular set: every set it belongs to
 * breaks. */
static void misbehaved(struct engine *engine, int32_t peer, const char *what)
{
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct error error;
        error_clear(&error);
        int32_t index = procset_index(engine->members[i], peer);
        if (index < 0)
            continue;
        negotiate_misbehaved(engine->members[i], index, &error, "%s", what);
        negotiate_set_broken(engine->members[i], error.status, error.text, true);
    }
}

/* Goodbye; with a cause if the peer leaves because something broke on it. */
static void on_leave(struct engine *engine, int32_t peer, struct reader *r)
{
    char text[HVD_ERROR_MAX];
    hvd_status_t status;
    peer_left(engine, peer);
    if (r->at == r->size)
        return;
    if (!engine_take_cause(engine, peer, r, &status, text)) {
        misbehaved(engine, peer, "left with a cause that can't be read");
        return;
    }
    for (int32_t i = 0; i < engine->member_count; i++)
        if (procset_index(engine->members[i], peer) >= 0)
            negotiate_set_broken(engine->members[i], status, text, true);
}

static void dispatch(struct engine *engine, int32_t peer, const void *bytes, size_t n)
{
    struct reader r;
    struct message_head head;
    reader_init(&r, bytes, n);
    if (!message_head_get(&r, &head)) {
        misbehaved(engine, peer, "sent a message that can't be read");
        return;
    }
    if (head.type == MESSAGE_LEAVE) {
        on_leave(engine, peer, &r);
        return;
    }
    if (head.type == MESSAGE_CLOCK || head.type == MESSAGE_PACE) {
        bool is_read = head.type == MESSAGE_CLOCK ? clock_message(engine, peer, &r)
                                                  : meter_message(engine, peer, &r);
        if (!is_read)
            misbehaved(engine, peer, "sent a report about its time that can't be read");
        return;
    }
    struct procset *set = engine->sets[head.set];
    const struct set_record *record = &engine->records[head.set];
    /* A peer may be ahead by the sets that this rank is about to open. */
    if (head.set != HVD_PROCESS_SET_GLOBAL &&
        head.incarnation - engine->next_incarnation < HVD_PROCESS_SETS_MAX) {
        early_keep(engine, peer, bytes, n);
        return;
    }
    if (head.incarnation == 0 || head.incarnation > record->incarnation) {
        misbehaved(engine, peer, "sent a message for a process set that never was");
        return;
    }
    if (set == NULL || set->incarnation != head.incarnation || set->broken != HVD_OK)
        return;
    int32_t index = procset_index(set, peer);
    if (direct_is_message(&head))
        direct_message(engine, peer, &head, &r);
    else if (index >= 0)
        negotiate_message(set, index, &head, &r, bytes, n);
    else
        misbehaved(engine, peer, "sent a message for a process set that it is not in");
}

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct engine *engine = ctx;
    engine->traffic[peer].received++;
    engine->traffic[peer].received_bytes += n;
    dispatch(engine, peer, bytes, n);
}

static void on_peer_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct engine *engine = ctx;
    char name[160], text[HVD_ERROR_MAX], op_text[320];
    bool is_expected = engine->has_left[peer] != 0 || engine->is_shutdown_told;
    engine->has_lost = engine->has_lost || !is_expected;
    peer_left(engine, peer);
    if (is_expected || atomic_load(&engine->is_stopped))
        return;
    flight_note_text(engine->flight, engine->now_ns, FLIGHT_PEER_DOWN, 0, peer, why);
    engine_peer_name(engine, peer, name, sizeof name);
    engine_blame(engine, peer);
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        if (set->broken != HVD_OK || procset_index(set, peer) < 0)
            continue;
        op_text[0] = '\0';
        if (set->pending_head != NULL)
            snprintf(op_text, sizeof op_text, " %.200s was waiting for %.1f s.",
                     set->pending_head->tensor->name,
                     (double)(engine->now_ns - set->pending_head->submit_ns) / 1e9);
        if (strncmp(why, "rank ", 5) == 0) /* names it already */
            snprintf(text, sizeof text, "%s.%s", why, op_text);
        else
            snprintf(text, sizeof text, "%s is gone: %s.%s", name, why, op_text);
        LOG_AT(engine->log, LOG_DEBUG, "%s", text);
        negotiate_set_broken(set, status, text, true);
    }
}

struct transport_events control_events(struct engine *engine)
{
    return (struct transport_events){
        .ctx = engine, .message = on_message, .peer_down = on_peer_down};
}

bool control_listen(struct engine *engine)
{
    bool has_moved = false;
    for (int32_t i = 0; i < engine->options.transport_count; i++) {
        struct transport *t = engine->options.transports[i];
        has_moved |= t->ops->progress(t, engine->now_ns);
    }
    return has_moved;
}

void control_destroy(struct engine *engine)
{
    for (int32_t i = 0; engine->outboxes != NULL && i < engine->size; i++)
        os_free(engine->os, engine->outboxes[i].bytes);
    os_free(engine->os, engine->outboxes);
    while (engine->early != NULL) {
        struct early *next = engine->early->next;
        os_free(engine->os, engine->early);
        engine->early = next;
    }
}
