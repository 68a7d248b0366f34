/* SPDX-License-Identifier: Apache-2.0 */
/* shm_ring.c - messages and bulk between two ranks: per direction one ring for messages and one for
 * bulk, both in the receiver's segment; one writer, one reader, no locks.
 *
 * Bulk data is only written for a receive that the other side has announced (a credit, sent through
 * the message ring, with a ticket), so no stream ever waits for another and no data arrives without
 * a receive. A cancelled receive is announced too; fragments with an unknown ticket are dropped.
 * Fragments carry their offset: a send that had to restart begins again at offset 0.
 *
 *      receiver                               sender
 *      bulk_recv(stream 3) --- CREDIT 17, stream 3, n bytes --->   matched with bulk_send(stream 3)
 *                          <-- ticket 17, offset 0, bytes ------
 *                          <-- ticket 17, offset 32 Ki, bytes --   ...
 *
 * A writer sets its bit in the other's attention word; a writer without room sets want_room and
 * gets such a bit back. So an idle progress() reads one word for 64 peers.
 *
 * Thread: token holder.  Invariant: `at` of each end is private; the other's position is checked
 * against it on every read.  Start reading at shm_peer_progress(). */
#include <string.h>

#include "transport/shm/shm_internal.h"

#define RECORD_ALIGN 16u

enum record_kind { RECORD_MESSAGE = 1, RECORD_CREDIT = 2, RECORD_CANCEL = 3 };

struct record { /* in the message ring */
    uint32_t bytes;
    uint32_t kind;
    uint32_t left; /* bytes of this message that follow in later records */
    uint32_t spare;
};
struct credit_record {
    uint64_t stream, bytes;
    uint32_t ticket, spare;
};
struct fragment { /* in the bulk ring */
    uint32_t ticket, bytes;
    uint64_t offset;
};

/* transport_req.mark; transport_req.crc holds the ticket */
enum req_mark { REQ_NEW = 0, REQ_MATCHED = 1 };

static uint32_t padded(size_t bytes)
{
    return (uint32_t)((bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN);
}

static hvd_status_t corrupt(struct shm *shm, struct shm_peer *peer, const char *what)
{
    return shm_peer_fail(shm, peer->rank, HVD_ERR_CORRUPT, what);
}

/* --- one end of a ring --- */

static void ring_put(struct ring_end *ring, const void *bytes, size_t n)
{
    uint32_t at = (uint32_t)(ring->at & (ring->size - 1));
    size_t first = ring->size - at < n ? ring->size - at : n;
    if (first > 0)
        memcpy(ring->bytes + at, bytes, first);
    if (n > first)
        memcpy(ring->bytes, (const uint8_t *)bytes + first, n - first);
    ring->at += padded(n);
}

static void ring_get(struct ring_end *ring, void *ret_bytes, size_t n)
{
    uint32_t at = (uint32_t)(ring->at & (ring->size - 1));
    size_t first = ring->size - at < n ? ring->size - at : n;
    if (first > 0)
        memcpy(ret_bytes, ring->bytes + at, first);
    if (n > first)
        memcpy((uint8_t *)ret_bytes + first, ring->bytes, n - first);
    ring->at += padded(n);
}

/* Bytes that can be written now; false: the peer's position is invalid. */
static bool ring_room(struct ring_end *ring, uint32_t *ret_room)
{
    uint64_t tail = atomic_load(&ring->words->tail);
    uint64_t used = ring->at - tail;
    if (used > ring->size || tail % RECORD_ALIGN != 0)
        return false;
    *ret_room = ring->size - (uint32_t)used;
    return true;
}

static bool ring_filled(struct ring_end *ring, uint32_t *ret_filled)
{
    uint64_t head = atomic_load_explicit(&ring->words->head, memory_order_acquire);
    uint64_t filled = head - ring->at;
    if (filled > ring->size || head % RECORD_ALIGN != 0)
        return false;
    *ret_filled = (uint32_t)filled;
    return true;
}

static void ring_publish_head(struct shm *shm, struct shm_peer *peer, struct ring_end *ring)
{
    atomic_store_explicit(&ring->words->head, ring->at, memory_order_release);
    shm_attention(shm, peer);
}

static void ring_publish_tail(struct shm *shm, struct shm_peer *peer, struct ring_end *ring)
{
    atomic_store(&ring->words->tail, ring->at);
    if (atomic_load(&ring->words->want_room) != 0 &&
        atomic_exchange(&ring->words->want_room, 0) != 0)
        shm_attention(shm, peer);
}

/* Is there room for `need`? If not, the receiver notifies us when it has read something. */
static bool ring_reserve(struct shm *shm, struct shm_peer *peer, struct ring_end *ring,
                         uint32_t need)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t room;
        if (!ring_room(ring, &room)) {
            corrupt(shm, peer, "has an impossible ring position");
            return false;
        }
        if (room >= need)
            return true;
        if (attempt == 0)
            atomic_store(&ring->words->want_room, 1);
    }
    return false;
}

/* --- lists of requests --- */

static void list_init(struct req_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void list_append(struct req_list *list, struct transport_req *req)
{
    req->next = NULL;
    *list->last = req;
    list->last = &req->next;
}

static bool list_remove(struct req_list *list, struct transport_req *req)
{
    for (struct transport_req **link = &list->first; *link != NULL; link = &(*link)->next) {
        if (*link != req)
            continue;
        *link = req->next;
        if (req->next == NULL)
            list->last = link;
        return true;
    }
    return false;
}

static void list_fail(struct req_list *list, hvd_status_t status)
{
    for (struct transport_req *req = list->first, *next; req != NULL; req = next) {
        next = req->next;
        req->status = status;
    }
    list_init(list);
}

/* --- messages out --- */

static bool record_put(struct shm *shm, struct shm_peer *peer, enum record_kind kind,
                       const void *bytes, size_t n, size_t left)
{
    struct ring_end *ring = &peer->message_out;
    if (!ring_reserve(shm, peer, ring, (uint32_t)sizeof(struct record) + padded(n)))
        return false;
    struct record record = {.bytes = (uint32_t)n, .kind = (uint32_t)kind, .left = (uint32_t)left};
    ring_put(ring, &record, sizeof record);
    ring_put(ring, bytes, n);
    ring_publish_head(shm, peer, ring);
    return true;
}

static bool outbox_flush(struct shm *shm, struct shm_peer *peer)
{
    struct shm_outbox *box = &peer->outbox;
    bool has_moved = false;
    while (box->sent < box->size) {
        size_t n = box->size - box->sent;
        if (n > SHM_MESSAGE_WHOLE)
            n = SHM_MESSAGE_WHOLE;
        if (!record_put(shm, peer, RECORD_MESSAGE, box->bytes + box->sent, n,
                        box->size - box->sent - n))
            return has_moved;
        box->sent += n;
        has_moved = true;
    }
    return has_moved;
}

static bool buffer_reserve(const struct os *os, uint8_t **bytes, size_t *capacity, size_t n)
{
    if (n <= *capacity)
        return true;
    uint8_t *grown = os->resize(os->ctx, *bytes, n);
    if (grown == NULL)
        return false;
    *bytes = grown;
    *capacity = n;
    return true;
}

hvd_status_t shm_message_send(struct transport *t, int32_t rank, const void *bytes, size_t n)
{
    struct shm *shm = (struct shm *)t;
    struct shm_peer *peer = shm_peer_of(shm, rank);
    if (peer == NULL)
        return HVD_ERR_LINK;
    if (!peer->is_up)
        return peer->down.status != HVD_OK ? peer->down.status : HVD_ERR_LINK;
    if (n > TRANSPORT_MESSAGE_MAX)
        return HVD_ERR_LIMIT;
    struct shm_outbox *box = &peer->outbox;
    if (box->sent < box->size)
        return HVD_AGAIN;
    if (n <= SHM_MESSAGE_WHOLE) {
        if (!record_put(shm, peer, RECORD_MESSAGE, bytes, n, 0))
            return peer->is_up ? HVD_AGAIN : peer->down.status;
    } else {
        if (!buffer_reserve(t->os, &box->bytes, &box->capacity, n))
            return HVD_ERR_NO_MEMORY;
        memcpy(box->bytes, bytes, n);
        box->size = n;
        box->sent = 0;
        outbox_flush(shm, peer);
    }
    shm->messages++;
    shm->moved_bytes += n;
    return HVD_OK;
}

/* --- credits: receives announced to the sender --- */

static struct transport_req *req_of_ticket(const struct req_list *list, uint32_t ticket)
{
    for (struct transport_req *req = list->first; req != NULL; req = req->next)
        if (req->mark == REQ_MATCHED && req->crc == ticket)
            return req;
    return NULL;
}

static bool credits_flush(struct shm *shm, struct shm_peer *peer)
{
    bool has_moved = false;
    while (peer->cancel_count > 0) {
        uint32_t ticket = peer->cancels[peer->cancel_count - 1];
        if (!record_put(shm, peer, RECORD_CANCEL, &ticket, sizeof ticket, 0))
            return has_moved;
        peer->cancel_count--;
        has_moved = true;
    }
    for (struct transport_req *req = peer->recvs.first; req != NULL; req = req->next) {
        if (req->mark != REQ_NEW)
            continue;
        struct credit_record credit = {
            .ticket = peer->next_ticket, .stream = req->stream, .bytes = req->bytes};
        if (!record_put(shm, peer, RECORD_CREDIT, &credit, sizeof credit, 0))
            return has_moved;
        req->crc = peer->next_ticket++;
        req->mark = REQ_MATCHED;
        has_moved = true;
    }
    return has_moved;
}

static bool sizes_match(struct shm *shm, struct shm_peer *peer, const struct transport_req *send,
                        uint64_t bytes)
{
    if (send->bytes == bytes)
        return true;
    corrupt(shm, peer, "expects another length than we send");
    return false;
}

static void credit_match(struct transport_req *send, uint32_t ticket)
{
    send->crc = ticket;
    send->mark = REQ_MATCHED;
    send->done = 0;
}

static bool credit_keep(struct shm *shm, struct shm_peer *peer, uint32_t ticket, uint64_t stream,
                        uint64_t bytes)
{
    if (peer->credit_count >= SHM_CREDITS_MAX) {
        corrupt(shm, peer, "announced too many transfers");
        return false;
    }
    struct shm_credit *kept = os_alloc(shm->base.os, sizeof *kept);
    if (kept == NULL) {
        shm_peer_fail(shm, peer->rank, HVD_ERR_NO_MEMORY, "announced a transfer: no memory");
        return false;
    }
    struct shm_credit **link = &peer->credits; /* oldest ticket first */
    while (*link != NULL && (int32_t)((*link)->ticket - ticket) < 0)
        link = &(*link)->next;
    *kept = (struct shm_credit){.ticket = ticket, .stream = stream, .bytes = bytes, .next = *link};
    *link = kept;
    peer->credit_count++;
    return true;
}

static void credit_drop(struct shm *shm, struct shm_peer *peer, struct shm_credit **link)
{
    struct shm_credit *credit = *link;
    *link = credit->next;
    peer->credit_count--;
    os_free(shm->base.os, credit);
}

/* Assigns to `send` the oldest kept credit of its stream, if there is one. */
static bool credit_find(struct shm *shm, struct shm_peer *peer, struct transport_req *send)
{
    for (struct shm_credit **link = &peer->credits; *link != NULL; link = &(*link)->next) {
        if ((*link)->stream != send->stream)
            continue;
        if (!sizes_match(shm, peer, send, (*link)->bytes))
            return false;
        credit_match(send, (*link)->ticket);
        credit_drop(shm, peer, link);
        return true;
    }
    return true;
}

static bool credit_arrived(struct shm *shm, struct shm_peer *peer, const struct credit_record *c)
{
    for (struct transport_req *req = peer->sends.first; req != NULL; req = req->next) {
        if (req->mark != REQ_NEW || req->stream != c->stream)
            continue;
        if (!sizes_match(shm, peer, req, c->bytes))
            return false;
        credit_match(req, c->ticket);
        return true;
    }
    return credit_keep(shm, peer, c->ticket, c->stream, c->bytes);
}

static void cancel_arrived(struct shm *shm, struct shm_peer *peer, uint32_t ticket)
{
    struct transport_req *req = req_of_ticket(&peer->sends, ticket);
    if (req != NULL) {
        req->mark = REQ_NEW;
        credit_find(shm, peer, req);
        return;
    }
    for (struct shm_credit **link = &peer->credits; *link != NULL; link = &(*link)->next) {
        if ((*link)->ticket == ticket) {
            credit_drop(shm, peer, link);
            return;
        }
    }
}

/* --- messages in --- */

static bool fragment_arrived(struct shm *shm, struct shm_peer *peer, const struct record *record)
{
    struct shm_assembly *a = &peer->assembly;
    if (a->total == 0) {
        size_t total = (size_t)record->bytes + record->left;
        if (total > TRANSPORT_MESSAGE_MAX)
            return corrupt(shm, peer, "sent a message over the limit") == HVD_OK;
        if (!buffer_reserve(shm->base.os, &a->bytes, &a->capacity, total)) {
            shm_peer_fail(shm, peer->rank, HVD_ERR_NO_MEMORY, "sent a message: no memory for it");
            return false;
        }
        a->total = total;
        a->size = 0;
    }
    if (record->bytes == 0 || a->size + record->bytes + record->left != a->total)
        return corrupt(shm, peer, "sent a message in pieces that do not fit") == HVD_OK;
    ring_get(&peer->message_in, a->bytes + a->size, record->bytes);
    a->size += record->bytes;
    return true;
}

static void deliver(struct shm *shm, struct shm_peer *peer, const void *bytes, size_t n)
{
    shm->base.events.message(shm->base.events.ctx, peer->rank, bytes, n);
}

static bool message_arrived(struct shm *shm, struct shm_peer *peer, const struct record *record)
{
    struct shm_assembly *a = &peer->assembly;
    if (a->total == 0 && record->left == 0) {
        if (record->bytes > SHM_MESSAGE_WHOLE)
            return corrupt(shm, peer, "sent a message over the limit") == HVD_OK;
        ring_get(&peer->message_in, shm->inbox, record->bytes);
        ring_publish_tail(shm, peer, &peer->message_in);
        deliver(shm, peer, shm->inbox, record->bytes);
        return true;
    }
    if (!fragment_arrived(shm, peer, record))
        return false;
    ring_publish_tail(shm, peer, &peer->message_in);
    if (a->size == a->total) {
        size_t n = a->total;
        a->total = 0;
        deliver(shm, peer, a->bytes, n);
    }
    return true;
}

static bool record_arrived(struct shm *shm, struct shm_peer *peer, const struct record *record)
{
    struct ring_end *ring = &peer->message_in;
    struct credit_record credit;
    uint32_t ticket;
    switch (record->kind) {
    case RECORD_MESSAGE: return message_arrived(shm, peer, record);
    case RECORD_CREDIT:
        if (record->bytes != sizeof credit)
            break;
        ring_get(ring, &credit, sizeof credit);
        ring_publish_tail(shm, peer, ring);
        return credit_arrived(shm, peer, &credit);
    case RECORD_CANCEL:
        if (record->bytes != sizeof ticket)
            break;
        ring_get(ring, &ticket, sizeof ticket);
        ring_publish_tail(shm, peer, ring);
        cancel_arrived(shm, peer, ticket);
        return true;
    }
    corrupt(shm, peer, "sent a record of unknown kind");
    return false;
}

static bool messages_read(struct shm *shm, struct shm_peer *peer)
{
    struct ring_end *ring = &peer->message_in;
    uint32_t filled;
    if (!ring_filled(ring, &filled)) {
        corrupt(shm, peer, "has an impossible ring position");
        return true;
    }
    bool has_moved = filled > 0;
    uint64_t end = ring->at + filled;
    while (peer->is_up && ring->at != end) {
        struct record record;
        uint64_t left = end - ring->at;
        ring_get(ring, &record, sizeof record);
        if (left < sizeof record || left - sizeof record < padded(record.bytes) ||
            record.bytes > SHM_MESSAGE_RING) {
            corrupt(shm, peer, "sent a record that does not fit its ring");
            return true;
        }
        if (!record_arrived(shm, peer, &record))
            return true;
    }
    return has_moved;
}

/* --- bulk --- */

static void bulk_skip(struct ring_end *ring, uint32_t bytes)
{
    ring->at += padded(bytes);
}

static bool bulk_fragment(struct shm *shm, struct shm_peer *peer, const struct fragment *fragment)
{
    struct ring_end *ring = &peer->bulk_in;
    struct transport_req *req = req_of_ticket(&peer->recvs, fragment->ticket);
    if (req == NULL) {
        bulk_skip(ring, fragment->bytes);
        return true;
    }
    if (fragment->offset == 0)
        req->done = 0;
    if (fragment->offset != req->done || fragment->bytes > req->bytes - req->done) {
        corrupt(shm, peer, "sent bulk bytes outside of what was asked for");
        return false;
    }
    ring_get(ring, req->recv + req->done, fragment->bytes);
    req->done += fragment->bytes;
    if (req->done == req->bytes) {
        list_remove(&peer->recvs, req);
        req->status = HVD_OK;
    }
    return true;
}

static bool bulk_read(struct shm *shm, struct shm_peer *peer)
{
    struct ring_end *ring = &peer->bulk_in;
    bool has_moved = false;
    for (;;) {
        uint32_t filled;
        if (!ring_filled(ring, &filled)) {
            corrupt(shm, peer, "has an impossible ring position");
            return true;
        }
        if (filled == 0)
            return has_moved;
        struct fragment fragment;
        ring_get(ring, &fragment, sizeof fragment);
        if (filled < sizeof fragment || fragment.bytes > SHM_BULK_FRAGMENT ||
            filled - sizeof fragment < padded(fragment.bytes)) {
            corrupt(shm, peer, "sent a bulk fragment that does not fit its ring");
            return true;
        }
        if (!bulk_fragment(shm, peer, &fragment))
            return true;
        ring_publish_tail(shm, peer, ring);
        has_moved = true;
    }
}

static bool send_pump(struct shm *shm, struct shm_peer *peer, struct transport_req *req)
{
    struct ring_end *ring = &peer->bulk_out;
    do {
        size_t n = req->bytes - req->done;
        if (n > SHM_BULK_FRAGMENT)
            n = SHM_BULK_FRAGMENT;
        struct fragment fragment = {.ticket = req->crc, .bytes = (uint32_t)n, .offset = req->done};
        if (!ring_reserve(shm, peer, ring, (uint32_t)sizeof fragment + padded(n)))
            return false;
        ring_put(ring, &fragment, sizeof fragment);
        ring_put(ring, req->send + req->done, n);
        ring_publish_head(shm, peer, ring);
        req->done += n;
        shm->moved_bytes += n;
    } while (req->done < req->bytes);
    return true;
}

static bool sends_pump(struct shm *shm, struct shm_peer *peer)
{
    bool has_moved = false;
    for (struct transport_req *req = peer->sends.first, *next; req != NULL; req = next) {
        next = req->next;
        if (req->mark != REQ_MATCHED)
            continue;
        size_t before = req->done;
        if (!send_pump(shm, peer, req))
            return has_moved || req->done != before;
        list_remove(&peer->sends, req);
        req->status = HVD_OK;
        has_moved = true;
    }
    return has_moved;
}

static hvd_status_t req_post(struct shm *shm, int32_t rank, bool is_send, struct transport_req *req)
{
    struct shm_peer *peer = shm_peer_of(shm, rank);
    req->status = HVD_IN_PROGRESS;
    if (peer == NULL)
        return req->status = HVD_ERR_LINK;
    req->peer = peer->rank;
    if (!peer->is_up)
        return req->status = peer->down.status != HVD_OK ? peer->down.status : HVD_ERR_LINK;
    if (is_send && !credit_find(shm, peer, req))
        return req->status = peer->down.status;
    list_append(is_send ? &peer->sends : &peer->recvs, req);
    shm_todo(shm, peer);
    return HVD_OK;
}

hvd_status_t shm_bulk_send(struct transport *t, int32_t rank, uint64_t stream, const void *bytes,
                           size_t n, struct transport_req *req)
{
    *req = (struct transport_req){.send = bytes, .bytes = n, .stream = stream};
    return req_post((struct shm *)t, rank, true, req);
}

hvd_status_t shm_bulk_recv(struct transport *t, int32_t rank, uint64_t stream, void *bytes,
                           size_t n, struct transport_req *req)
{
    *req = (struct transport_req){.recv = bytes, .bytes = n, .stream = stream};
    return req_post((struct shm *)t, rank, false, req);
}

static void cancel_remember(struct shm *shm, struct shm_peer *peer, uint32_t ticket)
{
    const struct os *os = shm->base.os;
    if (peer->cancel_count == peer->cancel_capacity) {
        uint32_t capacity = peer->cancel_capacity == 0 ? 16 : peer->cancel_capacity * 2;
        uint32_t *grown = os->resize(os->ctx, peer->cancels, capacity * sizeof *grown);
        if (grown == NULL)
            return; /* the peer keeps a credit that is never used */
        peer->cancels = grown;
        peer->cancel_capacity = capacity;
    }
    peer->cancels[peer->cancel_count++] = ticket;
    shm_todo(shm, peer);
}

void shm_bulk_cancel(struct transport *t, struct transport_req *req)
{
    struct shm *shm = (struct shm *)t;
    struct shm_peer *peer = shm_peer_of(shm, req->peer);
    if (peer == NULL || req->status != HVD_IN_PROGRESS)
        return;
    req->status = HVD_ERR_ABORTED;
    if (list_remove(&peer->recvs, req)) {
        if (req->mark == REQ_MATCHED)
            cancel_remember(shm, peer, req->crc);
    } else if (list_remove(&peer->sends, req) && req->mark == REQ_MATCHED) {
        credit_keep(shm, peer, req->crc, req->stream, req->bytes);
    }
}

/* --- all of it --- */

bool shm_peer_progress(struct shm *shm, struct shm_peer *peer)
{
    bool has_moved = messages_read(shm, peer);
    if (peer->is_up)
        has_moved |= bulk_read(shm, peer);
    if (peer->is_up)
        has_moved |= credits_flush(shm, peer);
    if (peer->is_up)
        has_moved |= outbox_flush(shm, peer);
    if (peer->is_up)
        has_moved |= sends_pump(shm, peer);
    return has_moved;
}

void shm_peer_release(struct shm *shm, struct shm_peer *peer, hvd_status_t status)
{
    if (peer->sends.last != NULL)
        list_fail(&peer->sends, status);
    if (peer->recvs.last != NULL)
        list_fail(&peer->recvs, status);
    while (peer->credits != NULL)
        credit_drop(shm, peer, &peer->credits);
    peer->cancel_count = 0;
    peer->outbox.size = peer->outbox.sent = 0;
}

static struct ring_end ring_open(struct shm_ring_words *words, uint8_t *bytes, uint32_t size)
{
    return (struct ring_end){.words = words, .bytes = bytes, .size = size};
}

void shm_peer_attach(struct shm *shm, struct shm_peer *peer)
{
    struct shm_rings *in = (struct shm_rings *)(void *)(shm->segment + SHM_RINGS_AT);
    struct shm_rings *out = (struct shm_rings *)(void *)(peer->segment + SHM_RINGS_AT);
    in += peer->local;
    out += shm->local;
    peer->message_in = ring_open(&in->message, in->message_bytes, SHM_MESSAGE_RING);
    peer->bulk_in = ring_open(&in->bulk, in->bulk_bytes, SHM_BULK_RING);
    peer->message_out = ring_open(&out->message, out->message_bytes, SHM_MESSAGE_RING);
    peer->bulk_out = ring_open(&out->bulk, out->bulk_bytes, SHM_BULK_RING);
    list_init(&peer->sends);
    list_init(&peer->recvs);
}
