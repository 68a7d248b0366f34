/* SPDX-License-Identifier: Apache-2.0 */
/* sim_transport.c - the transport_ops of one simulated rank.
 *
 * A posted send and a posted receive of one stream are matched in order; their flight then takes a
 * delay and the time its bytes need. A random choice decides whether a small send completes at
 * once, like one that fits into a socket's buffer, or only after the receiver has it: callers must
 * handle both.
 *
 * Thread: one.  Owner: struct sim_net.  Blocks: never.  Start reading at sim_progress(). */
#include "transport/sim/sim_internal.h"

#include <stdio.h>
#include <string.h>

enum { MARK_SEND = 1, MARK_RECV = 2 };

static struct sim_node *node_of(const struct transport *t)
{
    return (struct sim_node *)(uintptr_t)t;
}

static bool is_peer(const struct sim_node *node, int32_t peer)
{
    return peer >= 0 && peer < node->net->options.ranks && peer != node->rank;
}

static bool sim_reaches(const struct transport *t, int32_t peer)
{
    const struct sim_node *node = node_of(t);

    if (!is_peer(node, peer) || node->is_closed)
        return false;
    return node->links == NULL || node->links[peer] == NULL || !node->links[peer]->is_told;
}

/* HVD_OK, or why nothing can be sent to or posted for this peer any more. */
static hvd_status_t peer_status(struct sim_node *node, int32_t peer, struct sim_link **ret_in)
{
    struct sim_link *in = NULL;

    if (!is_peer(node, peer))
        return HVD_ERR_INVALID;
    if (node->is_closed)
        return HVD_ERR_SHUTDOWN;
    in = sim_link_get(node->net, peer, node->rank);
    if (in == NULL)
        return HVD_ERR_NO_MEMORY;
    *ret_in = in;
    return in->is_told ? in->down_status : HVD_OK;
}

/* --- messages --- */

static hvd_status_t say_again(struct sim_node *node, int32_t peer)
{
    struct sim_item *item = sim_item_new(node->net, SIM_WAKE, peer, node->rank, 0);

    if (item == NULL)
        return HVD_ERR_NO_MEMORY;
    if (sim_schedule(node->net, item, node->net->now_ns + 1 + node->net->options.delay_max_ns) != 0)
        return HVD_ERR_NO_MEMORY;
    return HVD_AGAIN;
}

static hvd_status_t sim_message_send(struct transport *t, int32_t peer, const void *bytes, size_t n)
{
    struct sim_node *node = node_of(t);
    struct sim_net *net = node->net;
    struct sim_link *in = NULL, *out = NULL;
    struct sim_item *item = NULL;
    const hvd_status_t status = peer_status(node, peer, &in);
    int64_t time_ns = 0;

    if (status != HVD_OK)
        return status;
    if (n > TRANSPORT_MESSAGE_MAX)
        return HVD_ERR_INVALID;
    out = sim_link_get(net, node->rank, peer);
    if (out == NULL)
        return HVD_ERR_NO_MEMORY;
    if (out->messages >= SIM_MESSAGES_MAX)
        return say_again(node, peer);
    if (net->options.again_one_in > 0 && sim_net_random(net) % net->options.again_one_in == 0)
        return say_again(node, peer);
    item = sim_item_new(net, SIM_MESSAGE, node->rank, peer, n);
    if (item == NULL)
        return HVD_ERR_NO_MEMORY;
    if (n > 0)
        memcpy(item->payload, bytes, n);
    time_ns = net->now_ns + sim_delay_ns(net, node->rank, peer);
    if (time_ns < out->message_last_ns)
        time_ns = out->message_last_ns;
    if (sim_schedule(net, item, time_ns) != 0)
        return HVD_ERR_NO_MEMORY;
    out->message_last_ns = time_ns;
    out->messages++;
    net->messages++;
    node->messages++;
    node->bytes += n;
    return HVD_OK;
}

/* --- bulk --- */

void sim_transfer_free(struct sim_net *net, struct sim_transfer *transfer)
{
    os_free(net->os, transfer->copy);
    os_free(net->os, transfer);
}

void sim_flight_release(struct sim_net *net, struct sim_link *link, struct sim_transfer *flight)
{
    struct sim_transfer **at = &link->flights;

    if (!flight->is_matched || flight->items > 0 || flight->send != NULL || flight->recv != NULL)
        return;
    while (*at != flight)
        at = &(*at)->next;
    *at = flight->next;
    sim_transfer_free(net, flight);
}

static void req_begin(struct transport_req *req, int32_t peer, uint64_t stream, size_t n,
                      uint32_t mark)
{
    *req = (struct transport_req){.status = HVD_IN_PROGRESS, .mark = mark};
    req->peer = peer;
    req->stream = stream;
    req->bytes = n;
}

static void recv_append(struct sim_link *link, struct transport_req *req)
{
    struct transport_req **at = &link->recvs;

    while (*at != NULL)
        at = &(*at)->next;
    req->next = NULL;
    *at = req;
}

static void transfer_append(struct sim_transfer **at, struct sim_transfer *transfer)
{
    while (*at != NULL)
        at = &(*at)->next;
    transfer->next = NULL;
    *at = transfer;
}

/* A send and a receive match. Lengths that differ are a bug of the caller; both sides lose the
 * link, as they would with TCP. */
static void take_off(struct sim_net *net, struct sim_link *link, int32_t from, int32_t to,
                     struct sim_transfer *flight)
{
    const int64_t speed = net->options.bytes_per_us;
    int64_t time_ns = net->now_ns + sim_delay_ns(net, from, to);
    struct sim_item *item = NULL;

    flight->is_matched = true;
    transfer_append(&link->flights, flight);
    if (flight->bytes != flight->recv->bytes) {
        sim_link_cut(net, from, to, net->now_ns, HVD_ERR_CORRUPT);
        sim_link_cut(net, to, from, net->now_ns, HVD_ERR_CORRUPT);
        return;
    }
    if (time_ns < link->bulk_last_ns)
        time_ns = link->bulk_last_ns;
    if (speed > 0)
        time_ns += (int64_t)flight->bytes * 1000 / speed;
    item = sim_item_new(net, SIM_ARRIVAL, from, to, 0);
    if (item != NULL)
        item->flight = flight;
    if (item == NULL || sim_schedule(net, item, time_ns) != 0) {
        sim_link_cut(net, from, to, net->now_ns, HVD_ERR_NO_MEMORY);
        sim_link_cut(net, to, from, net->now_ns, HVD_ERR_NO_MEMORY);
        return;
    }
    flight->items++;
    link->bulk_last_ns = time_ns;
}

/* Nothing overtakes a send of its stream that has not been sent yet: that one may still be
 * cancelled. */
static bool wants_eager(struct sim_net *net, const struct sim_link *out, uint64_t stream, size_t n)
{
    bool is_wanted = n <= SIM_EAGER_BYTES_MAX && sim_net_random(net) % 2 == 0;
    for (const struct sim_transfer *s = out->sends; is_wanted && s != NULL; s = s->next)
        is_wanted = s->stream != stream || s->copy != NULL;
    return is_wanted;
}

/* The send is complete for its owner: the bytes are in our copy. */
static hvd_status_t send_eager(struct sim_node *node, int32_t peer, struct sim_transfer *transfer)
{
    struct sim_net *net = node->net;
    struct sim_item *item = sim_item_new(net, SIM_SEND_DONE, peer, node->rank, 0);

    if (item == NULL)
        return HVD_ERR_NO_MEMORY;
    transfer->copy = os_alloc(net->os, transfer->bytes + 1);
    if (transfer->copy == NULL) {
        sim_item_free(net, item);
        return HVD_ERR_NO_MEMORY;
    }
    if (transfer->bytes > 0)
        memcpy(transfer->copy, transfer->send->send, transfer->bytes);
    item->flight = transfer;
    if (sim_schedule(net, item, net->now_ns) != 0)
        return HVD_ERR_NO_MEMORY;
    transfer->items++;
    return HVD_OK;
}

static struct transport_req *recv_take(struct sim_link *link, uint64_t stream)
{
    for (struct transport_req **at = &link->recvs; *at != NULL; at = &(*at)->next) {
        struct transport_req *req = *at;

        if (req->stream != stream)
            continue;
        *at = req->next;
        return req;
    }
    return NULL;
}

static struct sim_transfer *send_take(struct sim_link *link, uint64_t stream)
{
    for (struct sim_transfer **at = &link->sends; *at != NULL; at = &(*at)->next) {
        struct sim_transfer *transfer = *at;

        if (transfer->stream != stream)
            continue;
        *at = transfer->next;
        return transfer;
    }
    return NULL;
}

static hvd_status_t sim_bulk_send(struct transport *t, int32_t peer, uint64_t stream,
                                  const void *bytes, size_t n, struct transport_req *req)
{
    struct sim_node *node = node_of(t);
    struct sim_net *net = node->net;
    struct sim_link *in = NULL, *out = NULL;
    struct sim_transfer *transfer = NULL;
    const hvd_status_t status = peer_status(node, peer, &in);

    req_begin(req, peer, stream, n, MARK_SEND);
    req->send = bytes;
    if (status != HVD_OK)
        return req->status = status;
    out = sim_link_get(net, node->rank, peer);
    transfer = os_alloc(net->os, sizeof *transfer);
    if (out == NULL || transfer == NULL)
        goto no_memory;
    transfer->send = req;
    transfer->bytes = n;
    transfer->stream = stream;
    if (wants_eager(net, out, stream, n) && send_eager(node, peer, transfer) != HVD_OK)
        goto no_memory;
    node->bytes += n;
    transfer->recv = recv_take(out, stream);
    if (transfer->recv == NULL)
        transfer_append(&out->sends, transfer);
    else
        take_off(net, out, node->rank, peer, transfer);
    return HVD_OK;

no_memory:
    if (transfer != NULL)
        sim_transfer_free(net, transfer);
    return req->status = HVD_ERR_NO_MEMORY;
}

static hvd_status_t sim_bulk_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                                  size_t n, struct transport_req *req)
{
    struct sim_node *node = node_of(t);
    struct sim_link *in = NULL;
    struct sim_transfer *transfer = NULL;
    const hvd_status_t status = peer_status(node, peer, &in);

    req_begin(req, peer, stream, n, MARK_RECV);
    req->recv = bytes;
    if (status != HVD_OK)
        return req->status = status;
    transfer = send_take(in, stream);
    if (transfer == NULL) {
        recv_append(in, req);
        return HVD_OK;
    }
    transfer->recv = req;
    take_off(node->net, in, peer, node->rank, transfer);
    return HVD_OK;
}

/* The sender's memory is about to be freed; data in transit behaves as if it had been sent before.
 */
static bool send_detach(struct sim_net *net, struct sim_transfer *transfer)
{
    if (transfer->copy == NULL && !transfer->has_data && transfer->bytes > 0) {
        transfer->copy = os_alloc(net->os, transfer->bytes);
        if (transfer->copy == NULL)
            return false;
        memcpy(transfer->copy, transfer->send->send, transfer->bytes);
    }
    transfer->send = NULL;
    return true;
}

static void cancel_send(struct sim_node *node, struct transport_req *req)
{
    struct sim_net *net = node->net;
    struct sim_link *out = sim_link_get(net, node->rank, req->peer);

    for (struct sim_transfer **at = &out->sends; *at != NULL; at = &(*at)->next) {
        struct sim_transfer *transfer = *at;

        if (transfer->send != req)
            continue;
        if (transfer->copy != NULL) { /* it was already sent; only its completion is dropped */
            transfer->send = NULL;
            return;
        }
        *at = transfer->next;
        sim_transfer_free(net, transfer);
        return;
    }
    for (struct sim_transfer *flight = out->flights; flight != NULL; flight = flight->next) {
        if (flight->send != req)
            continue;
        if (!send_detach(net, flight)) {
            flight->send = NULL;
            sim_link_cut(net, node->rank, req->peer, net->now_ns, HVD_ERR_NO_MEMORY);
            sim_link_cut(net, req->peer, node->rank, net->now_ns, HVD_ERR_NO_MEMORY);
        }
        sim_flight_release(net, out, flight);
        return;
    }
}

static void cancel_recv(struct sim_node *node, struct transport_req *req)
{
    struct sim_link *in = sim_link_get(node->net, req->peer, node->rank);

    for (struct transport_req **at = &in->recvs; *at != NULL; at = &(*at)->next) {
        if (*at == req) {
            *at = req->next;
            return;
        }
    }
    for (struct sim_transfer *flight = in->flights; flight != NULL; flight = flight->next) {
        if (flight->recv == req) {
            flight->recv = NULL;
            sim_flight_release(node->net, in, flight);
            return;
        }
    }
}

static void sim_bulk_cancel(struct transport *t, struct transport_req *req)
{
    struct sim_node *node = node_of(t);

    if (req->status != HVD_IN_PROGRESS)
        return;
    if (!node->is_closed && req->mark == MARK_RECV)
        cancel_recv(node, req);
    else if (!node->is_closed)
        cancel_send(node, req);
    req->status = HVD_ERR_ABORTED;
}

/* --- failures and closing --- */

/* Requests of one end of a direction are dropped without completion: their owner no longer exists.
 */
void sim_link_forget(struct sim_net *net, struct sim_link *link, bool is_sender)
{
    struct sim_transfer *next = NULL;
    struct sim_transfer **at = &link->sends;

    if (!is_sender)
        link->recvs = NULL;
    while (is_sender && *at != NULL) {
        struct sim_transfer *transfer = *at;

        transfer->send = NULL;
        if (transfer->copy != NULL) {
            at = &transfer->next;
            continue;
        }
        *at = transfer->next;
        sim_transfer_free(net, transfer);
    }
    for (struct sim_transfer *flight = link->flights; flight != NULL; flight = next) {
        next = flight->next;
        if (!is_sender) {
            flight->recv = NULL;
        } else {
            flight->send = NULL;
            if (flight->recv != NULL && flight->copy == NULL && !flight->has_data) {
                recv_append(link, flight->recv);
                flight->recv = NULL;
            }
        }
        sim_flight_release(net, link, flight);
    }
}

static void req_fail(struct transport_req *req, hvd_status_t status)
{
    if (req != NULL)
        req->status = status;
}

static void fail_requests(struct sim_node *node, int32_t peer, hvd_status_t status)
{
    struct sim_link *in = sim_link_get(node->net, peer, node->rank);
    struct sim_link *out = sim_link_get(node->net, node->rank, peer);
    struct sim_transfer *next = NULL;

    while (in->recvs != NULL) {
        struct transport_req *req = in->recvs;

        in->recvs = req->next;
        req_fail(req, status);
    }
    for (struct sim_transfer *flight = in->flights; flight != NULL; flight = next) {
        next = flight->next;
        req_fail(flight->recv, status);
        flight->recv = NULL;
        sim_flight_release(node->net, in, flight);
    }
    for (struct sim_transfer *flight = out != NULL ? out->flights : NULL; flight != NULL;
         flight = next) {
        next = flight->next;
        req_fail(flight->send, status);
        flight->send = NULL;
        sim_flight_release(node->net, out, flight);
    }
    for (struct sim_transfer *send = out != NULL ? out->sends : NULL; send != NULL;
         send = send->next)
        req_fail(send->send, status);
    if (out != NULL)
        sim_link_forget(node->net, out, true);
}

static void peer_down(struct sim_node *node, int32_t peer, hvd_status_t status)
{
    struct sim_link *in = sim_link_get(node->net, peer, node->rank);
    char why[96];

    in->is_told = true;
    in->down_status = status;
    fail_requests(node, peer, status);
    if (node->base.events.peer_down == NULL)
        return;
    snprintf(why, sizeof why, "rank %d: %s", peer,
             status == HVD_ERR_PEER_DEAD ? "closed the simulated link"
                                         : "the simulated link broke");
    node->base.events.peer_down(node->base.events.ctx, peer, status, why);
}

static void finish(struct transport_req **req)
{
    struct transport_req *done = *req;

    *req = NULL;
    if (done == NULL)
        return;
    done->done = done->bytes;
    done->status = HVD_OK;
}

static void flight_done(struct sim_node *node, struct sim_item *item)
{
    struct sim_net *net = node->net;
    struct sim_transfer *transfer = item->flight;
    const bool is_arrival = item->kind == SIM_ARRIVAL;
    struct sim_link *link =
        sim_link_get(net, is_arrival ? item->from : item->to, is_arrival ? item->to : item->from);

    transfer->items--;
    finish(is_arrival ? &transfer->recv : &transfer->send);
    sim_flight_release(net, link, transfer);
}

static void deliver(struct sim_node *node, struct sim_item *item)
{
    struct sim_link *link = NULL;

    switch (item->kind) {
    case SIM_MESSAGE:
        link = sim_link_get(node->net, item->from, item->to);
        link->messages--;
        if (!link->is_told && node->base.events.message != NULL)
            node->base.events.message(node->base.events.ctx, item->from, item->payload,
                                      item->bytes);
        break;
    case SIM_ARRIVAL:
    case SIM_SEND_DONE: flight_done(node, item); break;
    case SIM_DOWN: peer_down(node, item->from, item->status); break;
    case SIM_WAKE: break;
    }
    sim_item_free(node->net, item);
}

static bool sim_progress(struct transport *t, int64_t now_ns)
{
    struct sim_node *node = node_of(t);
    struct sim_item *item = NULL;
    bool is_moved = false;

    (void)now_ns; /* the net's clock is the only one */
    sim_settle(node->net);
    if (node->is_hung)
        return false;
    node->has_run = true;
    sim_due_unlist(node->net, node);
    while (!node->is_hung && (item = sim_due_pop(node)) != NULL) {
        deliver(node, item);
        is_moved = true;
    }
    return is_moved;
}

/* --- the rest of the table --- */

static bool sim_sleep_begin(struct transport *t)
{
    return !sim_net_is_due(node_of(t)->net, node_of(t)->rank);
}

static void sim_sleep_end(struct transport *t)
{
    (void)t;
}

static uint8_t *sim_arena(const struct transport *t, int32_t peer, uint64_t *ret_bytes)
{
    (void)t;
    (void)peer;
    *ret_bytes = 0;
    return NULL;
}

static void sim_notify(struct transport *t, int32_t peer)
{
    (void)t;
    (void)peer;
}

static void sim_counters(const struct transport *t, uint64_t *ret_messages, uint64_t *ret_bytes)
{
    *ret_messages = node_of(t)->messages;
    *ret_bytes = node_of(t)->bytes;
}

/* Heartbeats are not sent but computed: a rank is heard when it first runs, then at every full
 * second. */
static int64_t sim_last_heard_ns(struct transport *t, int32_t peer, int64_t now_ns)
{
    const struct sim_node *node = node_of(t);
    const bool is_hung = is_peer(node, peer) && node->net->nodes[peer].is_hung;
    const int64_t alive_ns = is_hung ? node->net->nodes[peer].hung_ns : now_ns;

    if (is_peer(node, peer) && !node->net->nodes[peer].has_run)
        return -1;
    return alive_ns - alive_ns % HEARTBEAT_NS + 1; /* 0 would be: not known */
}

/* The net owns the memory; to peers it looks like a process that exits in an orderly manner. */
static void sim_destroy(struct transport *t)
{
    struct sim_node *node = NULL;

    if (t == NULL || node_of(t)->is_closed)
        return;
    node = node_of(t);
    sim_net_hang(node->net, node->rank, false);
    sim_node_leave(node->net, node, false);
}

const struct transport_ops sim_transport_ops = {
    .version = TRANSPORT_VERSION,
    .name = "sim",
    .reaches = sim_reaches,
    .message_send = sim_message_send,
    .bulk_send = sim_bulk_send,
    .bulk_recv = sim_bulk_recv,
    .bulk_cancel = sim_bulk_cancel,
    .progress = sim_progress,
    .sleep_begin = sim_sleep_begin,
    .sleep_end = sim_sleep_end,
    .arena = sim_arena,
    .notify = sim_notify,
    .counters = sim_counters,
    .last_heard_ns = sim_last_heard_ns,
    .destroy = sim_destroy,
};
