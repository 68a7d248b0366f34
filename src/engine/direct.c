/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - see direct.h. */
#include "engine/direct.h"

#include <stdio.h>
#include <string.h>

#include "engine/complete.h"
#include "engine/control.h"
#include "engine/engine_private.h"
#include "engine/negotiate.h"

#define PIECE_HEAD_BYTES (MESSAGE_HEAD_BYTES + 8u + 4u)

/* ---- the list of what has not ended ---- */

static void link_op(struct direct *d, struct op *op)
{
    op->prev = d->tail;
    op->next = NULL;
    if (d->tail != NULL)
        d->tail->next = op;
    else
        d->head = op;
    d->tail = op;
}

void direct_unlink(struct engine *engine, struct op *op)
{
    struct direct *d = &engine->direct;
    if (op->kind == KIND_SEND && op->state == OP_BATCHED)
        d->moving_count--;
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        d->head = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    else
        d->tail = op->prev;
    op->next = op->prev = NULL;
}

static struct op *find(const struct direct *d, uint8_t kind, uint8_t state, int32_t peer,
                       uint64_t number)
{
    for (struct op *op = d->head; op != NULL; op = op->next)
        if (op->kind == kind && op->state == state && op->peer == peer && op->number == number)
            return op;
    return NULL;
}

/* ---- sending ---- */

static void begin(const struct engine *engine, struct writer *w, enum message_type type,
                  uint64_t number)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    struct message_head head = {.type = (uint8_t)type,
                                .set = HVD_PROCESS_SET_GLOBAL,
                                .incarnation = global->incarnation,
                                .generation = global->generation};
    message_head_put(w, &head);
    put_u64(w, number);
}

static void send_offer(struct engine *engine, const struct op *op)
{
    uint8_t bytes[MESSAGE_HEAD_BYTES + 4 * 8];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    begin(engine, &w, MESSAGE_OFFER, op->number);
    put_u64(&w, op->channel);
    put_u64(&w, op->tag);
    put_u64(&w, (uint64_t)op->count);
    control_send(engine, op->peer, bytes, w.used);
}

/* `bytes`: what the receive has room for. The sender compares. */
static void send_take(struct engine *engine, int32_t peer, uint64_t number, uint64_t room)
{
    uint8_t bytes[MESSAGE_HEAD_BYTES + 2 * 8];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    begin(engine, &w, MESSAGE_TAKE, number);
    put_u64(&w, room);
    control_send(engine, peer, bytes, w.used);
}

static void send_piece(struct engine *engine, struct op *op)
{
    struct writer w;
    uint64_t left = (uint64_t)op->count - op->moved;
    size_t n = left < DIRECT_PIECE_BYTES ? (size_t)left : DIRECT_PIECE_BYTES;
    writer_init(&w, engine->direct.piece, PIECE_HEAD_BYTES + DIRECT_PIECE_BYTES);
    begin(engine, &w, MESSAGE_PIECE, op->number);
    put_blob(&w, (const uint8_t *)op->in + op->moved, n);
    control_send(engine, op->peer, engine->direct.piece, w.used);
    op->moved += n;
}

bool direct_progress(struct engine *engine)
{
    struct direct *d = &engine->direct;
    bool has_moved = false;
    struct op *next;
    for (struct op *op = d->head; op != NULL && d->moving_count > 0; op = next) {
        next = op->next;
        if (op->kind != KIND_SEND || op->state != OP_BATCHED)
            continue;
        while (op->moved < (uint64_t)op->count && engine->outboxes[op->peer].used == 0) {
            send_piece(engine, op);
            has_moved = true;
        }
        if (op->moved == (uint64_t)op->count)
            complete_op(engine, op, HVD_OK, "");
    }
    return has_moved;
}

/* ---- matching ---- */

static void length_text(const struct engine *engine, int32_t sender, uint64_t sent,
                        int32_t receiver, uint64_t room, char *ret, size_t bytes)
{
    char a[160], b[160];
    engine_peer_name(engine, sender, a, sizeof a);
    engine_peer_name(engine, receiver, b, sizeof b);
    snprintf(ret, bytes,
             "%s sent a message of %llu bytes, but %s receives one of %llu: the tensors of a send "
             "and its receive must have as many bytes.",
             a, (unsigned long long)sent, b, (unsigned long long)room);
}

static void take(struct engine *engine, struct op *op, const struct direct_offer *offer)
{
    op->peer = offer->peer;
    op->number = offer->number;
    op->ticket->answer = offer->peer;
    send_take(engine, offer->peer, offer->number, (uint64_t)op->count);
    if ((uint64_t)op->count != offer->bytes) {
        char text[HVD_ERROR_MAX];
        length_text(engine, offer->peer, offer->bytes, engine->rank, (uint64_t)op->count, text,
                    sizeof text);
        complete_op(engine, op, HVD_ERR_MISMATCH, text);
        return;
    }
    op->state = OP_BATCHED;
    if (op->count == 0)
        complete_op(engine, op, HVD_OK, "");
}

static bool fits(const struct op *op, const struct direct_offer *offer)
{
    return op->channel == offer->channel && op->tag == offer->tag &&
           (op->peer == offer->peer || op->peer == HVD_ANY_RANK);
}

static void take_kept(struct engine *engine, struct op *op)
{
    struct direct *d = &engine->direct;
    struct direct_offer *before = NULL;
    for (struct direct_offer *offer = d->offers; offer != NULL;
         before = offer, offer = offer->next) {
        if (!fits(op, offer))
            continue;
        if (before != NULL)
            before->next = offer->next;
        else
            d->offers = offer->next;
        if (d->offers_tail == offer)
            d->offers_tail = before;
        d->offer_count--;
        take(engine, op, offer);
        os_free(engine->os, offer);
        return;
    }
}

void direct_op(struct engine *engine, struct op *op)
{
    struct direct *d = &engine->direct;
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    op->state = OP_HELD;
    link_op(d, op);
    if (global->broken != HVD_OK) {
        complete_op(engine, op, global->broken, global->broken_text);
        return;
    }
    if (op->kind == KIND_RECV) {
        take_kept(engine, op);
        return;
    }
    if (d->piece == NULL)
        d->piece = os_alloc(engine->os, PIECE_HEAD_BYTES + DIRECT_PIECE_BYTES);
    if (d->piece == NULL) {
        complete_op(engine, op, HVD_ERR_NO_MEMORY, "Out of memory for a message to another rank.");
        return;
    }
    op->number = ++d->next_number;
    send_offer(engine, op);
}

/* ---- messages ---- */

bool direct_is_message(const struct message_head *head)
{
    return head->type == MESSAGE_OFFER || head->type == MESSAGE_TAKE || head->type == MESSAGE_PIECE;
}

static hvd_status_t on_offer(struct engine *engine, int32_t peer, uint64_t number, struct reader *r,
                             struct error *error)
{
    struct direct *d = &engine->direct;
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    struct direct_offer offer = {.peer = peer, .number = number};
    offer.channel = get_u64(r);
    offer.tag = get_u64(r);
    offer.bytes = get_u64(r);
    if (!reader_done(r) || offer.bytes > INT64_MAX || d->offer_count >= DIRECT_OFFERS_MAX)
        return negotiate_misbehaved(global, peer, error, "offered a message that can't be read");
    for (struct op *op = d->head; op != NULL; op = op->next)
        if (op->kind == KIND_RECV && op->state == OP_HELD && fits(op, &offer)) {
            take(engine, op, &offer);
            return HVD_OK;
        }
    struct direct_offer *kept = os_alloc(engine->os, sizeof *kept);
    if (kept == NULL)
        return procset_no_memory(global, error, "the offer of a message");
    *kept = offer;
    if (d->offers_tail != NULL)
        d->offers_tail->next = kept;
    else
        d->offers = kept;
    d->offers_tail = kept;
    d->offer_count++;
    return HVD_OK;
}

static hvd_status_t on_take(struct engine *engine, int32_t peer, uint64_t number, struct reader *r,
                            struct error *error)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    uint64_t room = get_u64(r);
    struct op *op = find(&engine->direct, KIND_SEND, OP_HELD, peer, number);
    if (!reader_done(r) || op == NULL)
        return negotiate_misbehaved(global, peer, error,
                                    "took message %llu, which was not offered to it",
                                    (unsigned long long)number);
    if (room != (uint64_t)op->count) {
        char text[HVD_ERROR_MAX];
        length_text(engine, engine->rank, (uint64_t)op->count, peer, room, text, sizeof text);
        complete_op(engine, op, HVD_ERR_MISMATCH, text);
        return HVD_OK;
    }
    op->state = OP_BATCHED;
    engine->direct.moving_count++;
    return HVD_OK;
}

static hvd_status_t on_piece(struct engine *engine, int32_t peer, uint64_t number, struct reader *r,
                             struct error *error)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    size_t n = 0;
    const void *bytes = get_blob(r, DIRECT_PIECE_BYTES, &n);
    struct op *op = find(&engine->direct, KIND_RECV, OP_BATCHED, peer, number);
    if (!reader_done(r) || op == NULL || n == 0 || n > (uint64_t)op->count - op->moved)
        return negotiate_misbehaved(global, peer, error,
                                    "sent a piece of message %llu, which was not taken from it",
                                    (unsigned long long)number);
    memcpy((uint8_t *)op->out + op->moved, bytes, n);
    op->moved += n;
    if (op->moved == (uint64_t)op->count)
        complete_op(engine, op, HVD_OK, "");
    return HVD_OK;
}

void direct_message(struct engine *engine, int32_t peer, const struct message_head *head,
                    struct reader *r)
{
    struct error error;
    error_clear(&error);
    hvd_status_t status = HVD_OK;
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    uint64_t number = get_u64(r);
    if (head->set != HVD_PROCESS_SET_GLOBAL)
        status = negotiate_misbehaved(global, peer, &error,
                                      "sent a message to a rank by way of a process set");
    else if (head->type == MESSAGE_OFFER)
        status = on_offer(engine, peer, number, r, &error);
    else if (head->type == MESSAGE_TAKE)
        status = on_take(engine, peer, number, r, &error);
    else
        status = on_piece(engine, peer, number, r, &error);
    if (status != HVD_OK)
        negotiate_set_broken(global, status, error.text, true);
}

/* ---- the end ---- */

void direct_fail(struct engine *engine, hvd_status_t status, const char *text)
{
    while (engine->direct.head != NULL)
        complete_op(engine, engine->direct.head, status, text);
}

void direct_missing(const struct engine *engine, const struct ticket *ticket, int64_t now_ns,
                    char *ret, size_t bytes)
{
    char name[160];
    ret[0] = '\0';
    for (const struct op *op = engine->direct.head; op != NULL; op = op->next) {
        if (op->ticket != ticket)
            continue;
        bool is_send = op->kind == KIND_SEND;
        snprintf(name, sizeof name, "any rank");
        if (op->peer != HVD_ANY_RANK)
            engine_peer_name(engine, op->peer, name, sizeof name);
        snprintf(ret, bytes, "A message of %lld bytes with tag %llu has waited %.1f s for %s to %s",
                 (long long)op->count, (unsigned long long)op->tag,
                 (double)(now_ns - op->submit_ns) / 1e9, name,
                 op->state == OP_BATCHED ? "go on"
                 : is_send               ? "receive it"
                                         : "send it");
        return;
    }
}

void direct_destroy(struct engine *engine)
{
    struct direct *d = &engine->direct;
    while (d->offers != NULL) {
        struct direct_offer *next = d->offers->next;
        os_free(engine->os, d->offers);
        d->offers = next;
    }
    os_free(engine->os, d->piece);
    *d = (struct direct){0};
}
