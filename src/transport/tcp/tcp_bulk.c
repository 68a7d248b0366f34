/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_bulk.c - bulk flows: transfers straight from and to the caller's memory, CRC32C per segment.
 *
 * Sending: requests of a flow are sent one after the other, split into frames of at most
 * TCP_SEGMENT_MAX, each summed just before it is sent. Receiving: the header of a frame names its
 * stream; the payload is received right into the oldest posted receive of that stream, together
 * with the next header. Without one it stays in the socket, unless another stream of the flow is
 * awaited: then it is buffered. Example, both streams on one flow:
 *
 *      wire   A1 A2 B1        posted B        A1, A2 buffered, B1 received
 *                             then posted A   A1, A2 copied out of memory
 *
 * Cancel: a transfer that has not started is forgotten on that side alone. A send that has started
 * ends with an ABORT frame; the rest of a receive that has started is discarded. Data for a stream
 * that has ended (tcp_bulk_close()) is discarded too.
 *
 * With HOROVOD_SECURITY=mac or tls a tag replaces the checksum (tcp_seal.h); payload is encrypted
 * into a buffer of the flow, and decrypted where it was received, piece by piece.
 *
 * Thread: token holder.  Owner: struct tcp_peer.  Blocks: never. Invariant: a request completes
 * only after every segment's checksum or tag was verified. Start reading at tcp_flow_read(). */
#include "transport/tcp/tcp_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/crc32c.h"

#define FRAMES_MAX 8 /* per call, so that one flow can't keep the others waiting */

enum { MARK_SEND = 1, MARK_RECV = 2 };

static const struct os *os_of(const struct tcp_flow *flow)
{
    return flow->conn.peer->tcp->base.os;
}

static struct tcp_flow *flow_of(struct tcp_peer *peer, uint64_t stream)
{
    return &peer->flows[stream % (uint64_t)peer->tcp->flow_count];
}

static void req_end(struct tcp_flow *flow, struct transport_req *req, hvd_status_t status)
{
    flow->conn.peer->tcp->posted_count--;
    req->next = NULL;
    req->status = status;
}

static void req_append(struct transport_req **head, struct transport_req **tail,
                       struct transport_req *req)
{
    req->next = NULL;
    if (*head == NULL)
        *head = req;
    else
        (*tail)->next = req;
    *tail = req;
}

static bool req_remove(struct transport_req **head, struct transport_req **tail,
                       struct transport_req *req)
{
    struct transport_req *before = NULL;

    for (struct transport_req *r = *head; r != NULL; before = r, r = r->next) {
        if (r != req)
            continue;
        if (before == NULL)
            *head = r->next;
        else
            before->next = r->next;
        if (*tail == r)
            *tail = before;
        r->next = NULL;
        return true;
    }
    return false;
}

/* --- posting --- */

/* The flow of the stream; NULL: req->status says why there is none. */
static struct tcp_flow *post(struct tcp *tcp, int32_t rank, uint64_t stream, size_t n,
                             uint32_t mark, struct transport_req *req)
{
    struct tcp_peer *peer = tcp_peer_of(tcp, rank);

    *req = (struct transport_req){.status = HVD_IN_PROGRESS, .mark = mark};
    req->peer = rank;
    req->stream = stream;
    req->bytes = n;
    if (peer == NULL || peer->status != HVD_OK) {
        req->status = peer == NULL ? HVD_ERR_INVALID : peer->status;
        return NULL;
    }
    struct tcp_flow *flow = flow_of(peer, stream);
    tcp->posted_count++;
    tcp_conn_todo(&flow->conn);
    return flow;
}

hvd_status_t tcp_bulk_send(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                           size_t n, struct transport_req *req)
{
    struct tcp *tcp = (struct tcp *)t;
    struct tcp_flow *flow = post(tcp, peer, stream, n, MARK_SEND, req);

    if (flow == NULL)
        return req->status;
    tcp->bytes += n;
    req->send = bytes;
    req_append(&flow->out.head, &flow->out.tail, req);
    return HVD_OK;
}

hvd_status_t tcp_bulk_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                           size_t n, struct transport_req *req)
{
    struct tcp_flow *flow = post((struct tcp *)t, peer, stream, n, MARK_RECV, req);

    if (flow == NULL)
        return req->status;
    req->recv = bytes;
    req_append(&flow->in.posted, &flow->in.posted_last, req);
    return HVD_OK;
}

/* --- sending --- */

static uint32_t head_bytes(const struct tcp_flow *flow)
{
    return TCP_BULK_HEAD + flow->conn.peer->tcp->tag_bytes;
}

/* Head and payload of the frame are set; false: the peer was failed. */
static bool frame_seal_out(struct tcp_flow *flow)
{
    struct tcp_flow_out *out = &flow->out;
    struct tcp_seal *seal = &flow->conn.seal;

    if (flow->conn.peer->tcp->tag_bytes == 0)
        return true;
    if (!tcp_seal_frame(seal, out->frame_head, TCP_BULK_HEAD, out->payload, out->length,
                        out->encrypted, out->frame_head + TCP_BULK_HEAD)) {
        tcp_peer_fail(flow->conn.peer, HVD_ERR_LINK,
                      "can't be sent to: libcrypto refused to seal bulk data");
        return false;
    }
    if (seal->is_encrypting)
        out->payload = out->encrypted;
    return true;
}

static uint32_t segment_max(const struct tcp_flow *flow)
{
    return flow->conn.seal.is_encrypting ? TCP_ENCRYPT_MAX : TCP_SEGMENT_MAX;
}

static bool frame_begin_out(struct tcp_flow *flow)
{
    struct tcp_flow_out *out = &flow->out;
    struct transport_req *req = out->head;
    const size_t left = req->bytes - req->done;
    struct tcp_bulk_frame frame = {.stream = req->stream, .left = left};

    frame.type = req->done == 0 ? TCP_BULK_FIRST : TCP_BULK_MORE;
    frame.length = left < segment_max(flow) ? (uint32_t)left : segment_max(flow);
    frame.epoch = flow->conn.peer->tcp->epoch;
    out->payload = left > 0 ? req->send + req->done : out->frame_head;
    if (flow->conn.peer->tcp->security == TCP_SECURITY_AUTH && frame.length > 0)
        frame.crc = crc32c(0, out->payload, frame.length);
    tcp_bulk_encode(&frame, out->frame_head);
    out->head_done = out->done = 0;
    out->length = frame.length;
    out->is_framed = frame_seal_out(flow);
    return out->is_framed;
}

static bool frame_begin_abort(struct tcp_flow *flow)
{
    struct tcp_flow_out *out = &flow->out;
    const struct tcp_bulk_frame frame = {.type = TCP_BULK_ABORT,
                                         .stream = out->abort_stream,
                                         .left = out->abort_left,
                                         .epoch = flow->conn.peer->tcp->epoch};

    tcp_bulk_encode(&frame, out->frame_head);
    out->payload = out->frame_head;
    out->head_done = out->done = out->length = 0;
    out->is_abort_pending = false;
    out->is_cancelled = true;
    out->is_framed = frame_seal_out(flow);
    return out->is_framed;
}

static void frame_end_out(struct tcp_flow *flow)
{
    struct tcp_flow_out *out = &flow->out;
    struct transport_req *req = out->head;

    out->is_framed = false;
    flow->conn.seal.sent++;
    os_free(os_of(flow), out->rest);
    out->rest = NULL;
    if (out->is_cancelled) {
        out->is_cancelled = false;
        return;
    }
    req->done += out->length;
    if (req->done < req->bytes)
        return;
    req_remove(&out->head, &out->tail, req);
    req_end(flow, req, HVD_OK);
}

/* One send call; false: the socket is full, or closed. */
static bool frame_push(struct tcp_flow *flow)
{
    struct tcp_flow_out *out = &flow->out;
    const struct os *os = os_of(flow);
    const uint32_t head_left = head_bytes(flow) - out->head_done;
    struct iovec iov[2] = {
        {out->frame_head + out->head_done, head_left},
        {(void *)(uintptr_t)(out->payload + out->done), out->length - out->done}};
    const int skip = head_left == 0 ? 1 : 0;
    const int count = out->done < out->length ? 2 - skip : 1;
    int64_t n = os->send(os->ctx, flow->conn.fd, iov + skip, count);

    if (n <= 0) {
        if (tcp_conn_io_error(&flow->conn, n) == HVD_AGAIN && !flow->conn.is_write_polled)
            tcp_conn_poll(&flow->conn, true);
        return false;
    }
    if (n < (int64_t)head_left) {
        out->head_done += (uint32_t)n;
        return true;
    }
    out->head_done = head_bytes(flow);
    out->done += (uint32_t)(n - (int64_t)head_left);
    return true;
}

bool tcp_flow_write(struct tcp_flow *flow)
{
    struct tcp_flow_out *out = &flow->out;
    bool is_moved = false;

    for (int frames = 0; flow->conn.fd >= 0;) {
        if (!out->is_framed && !out->is_abort_pending) {
            if (out->head == NULL)
                break;
            if (frames++ >= FRAMES_MAX) {
                tcp_conn_todo(&flow->conn);
                return is_moved;
            }
        }
        if (!out->is_framed &&
            !(out->is_abort_pending ? frame_begin_abort(flow) : frame_begin_out(flow)))
            return is_moved;
        if (!frame_push(flow))
            return is_moved;
        is_moved = true;
        if (out->head_done == head_bytes(flow) && out->done == out->length)
            frame_end_out(flow);
    }
    if (flow->conn.fd >= 0 && flow->conn.is_write_polled)
        tcp_conn_poll(&flow->conn, false);
    return is_moved;
}

/* --- set aside --- */

static uint64_t aside_cost(size_t bytes)
{
    return sizeof(struct tcp_aside) + sizeof(struct tcp_chunk) + bytes;
}

static void aside_free(struct tcp_flow *flow, struct tcp_aside *aside)
{
    struct tcp *tcp = flow->conn.peer->tcp;

    while (aside->first != NULL) {
        struct tcp_chunk *chunk = aside->first;

        aside->first = chunk->next;
        tcp->aside_bytes -= aside_cost(chunk->capacity);
        os_free(tcp->base.os, chunk);
    }
    os_free(tcp->base.os, aside);
}

static void aside_remove(struct tcp_flow_in *in, struct tcp_aside *aside)
{
    struct tcp_aside *before = NULL;
    struct tcp_aside *a = in->asides;

    while (a != aside) {
        before = a;
        a = a->next;
    }
    if (before == NULL)
        in->asides = aside->next;
    else
        before->next = aside->next;
    if (in->asides_last == aside)
        in->asides_last = before;
}

/* Room for the current frame; false: over the limit for now, or the peer was failed. */
static bool aside_grow(struct tcp_flow *flow, struct tcp_aside *aside)
{
    struct tcp *tcp = flow->conn.peer->tcp;
    const uint32_t length = flow->in.frame.length;
    struct tcp_chunk *chunk = NULL;

    if (tcp->aside_bytes + aside_cost(length) > TCP_ASIDE_BYTES_MAX)
        return false;
    chunk = os_alloc(tcp->base.os, sizeof *chunk + length);
    if (chunk == NULL) {
        tcp_peer_fail(flow->conn.peer, HVD_ERR_NO_MEMORY, "no memory to set its data aside");
        return false;
    }
    chunk->capacity = length;
    tcp->aside_bytes += aside_cost(length);
    if (aside->last == NULL)
        aside->first = chunk;
    else
        aside->last->next = chunk;
    aside->last = chunk;
    return true;
}

static bool aside_begin(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    struct tcp_aside *aside = os_alloc(os_of(flow), sizeof *aside);

    if (aside == NULL) {
        tcp_peer_fail(flow->conn.peer, HVD_ERR_NO_MEMORY, "no memory to set its data aside");
        return false;
    }
    aside->stream = in->frame.stream;
    aside->total = in->frame.left;
    if (!aside_grow(flow, aside)) {
        os_free(os_of(flow), aside);
        return false;
    }
    if (in->asides == NULL)
        in->asides = aside;
    else
        in->asides_last->next = aside;
    in->asides_last = aside;
    in->aside = aside;
    return true;
}

static bool is_over(const struct tcp_flow *flow, uint64_t stream)
{
    return streams_is_over(&flow->conn.peer->tcp->streams, stream);
}

/* --- receiving --- */

static struct transport_req *posted_take(struct tcp_flow_in *in, uint64_t stream)
{
    for (struct transport_req *req = in->posted; req != NULL; req = req->next) {
        if (req->stream != stream)
            continue;
        req_remove(&in->posted, &in->posted_last, req);
        return req;
    }
    return NULL;
}

static void flow_corrupt(struct tcp_flow *flow, hvd_status_t status, const char *what)
{
    tcp_peer_fail(flow->conn.peer, status, what);
    tcp_conn_close(&flow->conn);
}

/* The lengths on both sides of a match are equal, or one side has a bug. */
static bool is_match_right(struct tcp_flow *flow, struct transport_req *req, uint64_t total)
{
    struct tcp_flow_in *in = &flow->in;

    if (req->bytes == total)
        return true;
    req->next = in->posted; /* put back, so that it fails with all the others */
    in->posted = req;
    if (in->posted_last == NULL)
        in->posted_last = req;
    flow_corrupt(flow, HVD_ERR_CORRUPT, "sent a transfer of another length than the receive has");
    return false;
}

/* An error if a decoded header is unexpected in the current state, or HVD_OK. */
static hvd_status_t frame_accept(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    const struct tcp_bulk_frame *frame = &in->frame;

    if (!in->is_transfer) {
        if (frame->type != TCP_BULK_FIRST)
            return HVD_ERR_CORRUPT;
        in->is_transfer = true;
        in->is_discarded = false;
        in->req = NULL;
        in->aside = NULL;
    } else if (frame->type == TCP_BULK_FIRST || frame->left != in->left ||
               (in->req != NULL && frame->stream != in->req->stream) ||
               (in->aside != NULL && frame->stream != in->aside->stream)) {
        return HVD_ERR_CORRUPT;
    }
    in->left = frame->left - frame->length;
    in->frame_done = 0;
    in->crc = 0;
    in->is_framed = true;
    in->is_placed = false;
    return HVD_OK;
}

/* Where does the payload of this frame go? False: nowhere yet. */
static bool frame_place(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    struct transport_req *req = NULL;

    if (in->req != NULL || in->is_discarded || in->is_placed || in->frame.type == TCP_BULK_ABORT)
        return true;
    if (in->aside != NULL) {
        in->is_placed = in->posted != NULL && aside_grow(flow, in->aside);
        return in->is_placed;
    }
    req = posted_take(in, in->frame.stream);
    if (req != NULL) {
        if (!is_match_right(flow, req, in->frame.left))
            return false;
        in->req = req;
        return true;
    }
    if (is_over(flow, in->frame.stream)) {
        in->is_discarded = true;
        return true;
    }
    in->is_placed = in->posted != NULL && aside_begin(flow);
    return in->is_placed;
}

static uint8_t *frame_target(struct tcp_flow *flow, size_t *ret_room)
{
    struct tcp_flow_in *in = &flow->in;
    const size_t want = in->frame.length - in->frame_done;

    *ret_room = want;
    if (in->req != NULL)
        return in->req->recv + in->req->done;
    if (in->aside != NULL)
        return in->aside->last->bytes + in->aside->last->used;
    if (want > TCP_SCRATCH_BYTES)
        *ret_room = TCP_SCRATCH_BYTES;
    return flow->conn.peer->tcp->scratch;
}

static void transfer_end(struct tcp_flow *flow, hvd_status_t status)
{
    struct tcp_flow_in *in = &flow->in;

    if (in->req != NULL)
        req_end(flow, in->req, status);
    if (in->aside != NULL && status != HVD_OK) {
        aside_remove(in, in->aside);
        aside_free(flow, in->aside);
    }
    in->req = NULL;
    in->aside = NULL;
    in->is_transfer = false;
    in->is_discarded = false;
}

static bool is_frame_authentic(struct tcp_flow *flow)
{
    return flow->conn.peer->tcp->tag_bytes == 0 || tcp_open_end(&flow->conn.seal, flow->in.tag);
}

static void frame_end_in(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;

    in->is_framed = false;
    if (!is_frame_authentic(flow)) {
        flow_corrupt(flow, HVD_ERR_CORRUPT, "sent bulk data that is not authentic");
        return;
    }
    if (in->frame.type == TCP_BULK_ABORT) {
        transfer_end(flow, HVD_ERR_ABORTED);
        return;
    }
    if (in->crc != in->frame.crc) {
        flow_corrupt(flow, HVD_ERR_CORRUPT, "sent bulk data with a wrong checksum");
        return;
    }
    if (in->left == 0)
        transfer_end(flow, HVD_OK);
}

/* `n` more bytes of the payload are at the address from frame_target(). */
static void frame_advance(struct tcp_flow *flow, uint8_t *bytes, size_t n)
{
    struct tcp_flow_in *in = &flow->in;

    switch (flow->conn.peer->tcp->security) {
    case TCP_SECURITY_AUTH: in->crc = crc32c(in->crc, bytes, n); break;
    case TCP_SECURITY_MAC:
    case TCP_SECURITY_TLS: tcp_open_update(&flow->conn.seal, bytes, n); break;
    case TCP_SECURITY_OFF: break;
    }
    in->frame_done += (uint32_t)n;
    if (in->req != NULL)
        in->req->done += n;
    else if (in->aside != NULL)
        in->aside->last->used += n;
}

static bool recv_head(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    const struct os *os = os_of(flow);
    const int64_t n = os->recv(os->ctx, flow->conn.fd, in->frame_head + in->head_done,
                               head_bytes(flow) - in->head_done);

    if (n <= 0) {
        tcp_conn_io_error(&flow->conn, n);
        return false;
    }
    in->head_done += (uint32_t)n;
    return in->head_done == head_bytes(flow);
}

/* Receives payload and, in the same call, the header of the next frame. False: no data.
 * *ret_is_more: the socket may have more. */
static bool recv_payload(struct tcp_flow *flow, bool *ret_is_more)
{
    struct tcp_flow_in *in = &flow->in;
    const struct os *os = os_of(flow);
    size_t room = 0;
    uint8_t *target = frame_target(flow, &room);
    const bool is_end = room == in->frame.length - in->frame_done;
    struct iovec iov[2] = {{target, room}, {in->frame_head, head_bytes(flow)}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = is_end ? 2 : 1};
    const int64_t n = os->recvmsg(os->ctx, flow->conn.fd, &msg);

    if (n <= 0) {
        tcp_conn_io_error(&flow->conn, n);
        return false;
    }
    *ret_is_more = (size_t)n >= room;
    if ((size_t)n <= room) {
        frame_advance(flow, target, (size_t)n);
        return true;
    }
    frame_advance(flow, target, room);
    in->head_done = (uint32_t)((size_t)n - room);
    return true;
}

static bool frame_begin_in(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    struct error error;
    hvd_status_t status = HVD_OK;

    error_clear(&error);
    status = tcp_bulk_decode(in->frame_head, flow->conn.peer->tcp->epoch, &in->frame, &error);
    in->head_done = 0;
    if (status == HVD_OK &&
        in->frame.stream % (uint64_t)flow->conn.peer->tcp->flow_count != flow->conn.flow - 1)
        status = error_set(&error, HVD_ERR_CORRUPT, "sent bulk data on the wrong flow");
    if (status == HVD_OK && frame_accept(flow) != HVD_OK)
        status = error_set(&error, HVD_ERR_CORRUPT, "sent bulk frames out of order");
    if (status == HVD_OK && flow->conn.peer->tcp->tag_bytes > 0) {
        memcpy(in->tag, in->frame_head + TCP_BULK_HEAD, TCP_TAG_BYTES);
        tcp_open_begin(&flow->conn.seal, in->frame_head, TCP_BULK_HEAD);
    }
    if (status == HVD_OK)
        return true;
    flow_corrupt(flow, status, error.text);
    return false;
}

bool tcp_flow_read(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    bool is_moved = false;

    for (int i = 0; i < 4 * FRAMES_MAX && flow->conn.fd >= 0; i++) {
        if (!in->is_framed) {
            if (in->head_done < head_bytes(flow) && !recv_head(flow))
                break;
            is_moved = true;
            flow->conn.peer->heard_ns = flow->conn.peer->tcp->now_ns;
            if (!frame_begin_in(flow))
                break;
        }
        flow->is_blocked = !frame_place(flow);
        if (flow->is_blocked)
            break;
        if (in->frame_done < in->frame.length) {
            bool is_more = false;

            if (!recv_payload(flow, &is_more))
                break;
            is_moved = true;
            if (!is_more)
                break;
        }
        if (flow->conn.fd >= 0 && in->frame_done == in->frame.length)
            frame_end_in(flow);
    }
    return is_moved;
}

/* --- late receives, cancel, forget --- */

/* Copies buffered data into the receive that was posted for it. */
static void aside_deliver(struct tcp_flow *flow, struct tcp_aside *aside, struct transport_req *req)
{
    struct tcp_flow_in *in = &flow->in;

    if (!is_match_right(flow, req, aside->total))
        return;
    for (const struct tcp_chunk *chunk = aside->first; chunk != NULL; chunk = chunk->next) {
        if (chunk->used > 0)
            memcpy(req->recv + req->done, chunk->bytes, chunk->used);
        req->done += chunk->used;
    }
    aside_remove(in, aside);
    if (aside == in->aside) {
        in->aside = NULL;
        in->req = req;
    } else {
        req_end(flow, req, HVD_OK);
    }
    aside_free(flow, aside);
}

static bool asides_match(struct tcp_flow *flow)
{
    struct tcp_aside *next = NULL;
    bool is_moved = false;

    for (struct tcp_aside *aside = flow->in.asides; aside != NULL && flow->conn.fd >= 0;
         aside = next) {
        struct transport_req *req = posted_take(&flow->in, aside->stream);

        next = aside->next;
        if (req == NULL)
            continue;
        aside_deliver(flow, aside, req);
        is_moved = true;
    }
    return is_moved;
}

bool tcp_flow_work(struct tcp_flow *flow)
{
    bool is_moved = asides_match(flow);

    if (flow->conn.fd >= 0 &&
        (flow->out.head != NULL || flow->out.is_framed || flow->out.is_abort_pending))
        is_moved |= tcp_flow_write(flow);
    if (flow->conn.fd >= 0 && (flow->is_blocked || flow->in.posted != NULL))
        is_moved |= tcp_flow_read(flow);
    if (flow->conn.fd >= 0 && !flow->is_blocked && !flow->conn.is_polled)
        tcp_conn_poll(&flow->conn, flow->conn.is_write_polled);
    return is_moved;
}

/* The current frame is finished from a copy; the caller may free its memory. */
static void cancel_sending(struct tcp_flow *flow, struct transport_req *req)
{
    struct tcp_flow_out *out = &flow->out;
    const uint32_t rest = out->length - out->done;
    const size_t behind = req->bytes - req->done - out->length;

    if (rest > 0) {
        out->rest = os_alloc(os_of(flow), rest);
        if (out->rest == NULL) { /* the frame can't be finished, so nothing can follow it */
            out->is_framed = false;
            flow_corrupt(flow, HVD_ERR_NO_MEMORY,
                         "can't be sent to: no memory to cancel a transfer");
            return;
        }
        memcpy(out->rest, out->payload + out->done, rest);
        out->payload = out->rest;
        out->length = rest;
        out->done = 0;
    }
    out->is_cancelled = true;
    if (behind > 0) {
        out->is_abort_pending = true;
        out->abort_stream = req->stream;
        out->abort_left = behind;
    }
}

static void cancel_send(struct tcp_flow *flow, struct transport_req *req)
{
    struct tcp_flow_out *out = &flow->out;

    if (req == out->head && out->is_framed && !out->is_cancelled && out->head_done > 0) {
        cancel_sending(flow, req);
    } else if (req == out->head && req->done > 0) { /* between two of its frames */
        out->is_framed = false;
        out->is_abort_pending = true;
        out->abort_stream = req->stream;
        out->abort_left = req->bytes - req->done;
    } else if (req == out->head && !out->is_cancelled) {
        out->is_framed = false;
    }
    req_remove(&out->head, &out->tail, req);
    tcp_conn_todo(&flow->conn);
}

void tcp_bulk_cancel(struct transport *t, struct transport_req *req)
{
    struct tcp_peer *peer = tcp_peer_of((struct tcp *)t, req->peer);
    struct tcp_flow *flow = NULL;

    if (peer == NULL || req->status != HVD_IN_PROGRESS)
        return;
    flow = flow_of(peer, req->stream);
    if (req->mark == MARK_SEND) {
        cancel_send(flow, req);
    } else if (flow->in.req == req) {
        flow->in.req = NULL;
        flow->in.is_discarded = true;
    } else {
        req_remove(&flow->in.posted, &flow->in.posted_last, req);
    }
    req_end(flow, req, HVD_ERR_ABORTED);
}

static void flow_forget(struct tcp_flow *flow)
{
    struct tcp_flow_in *in = &flow->in;
    struct tcp_aside *next = NULL;

    for (struct tcp_aside *aside = in->asides; aside != NULL; aside = next) {
        next = aside->next;
        if (!is_over(flow, aside->stream))
            continue;
        aside_remove(in, aside);
        if (aside == in->aside) {
            in->aside = NULL;
            in->is_discarded = true;
        }
        aside_free(flow, aside);
    }
    if (flow->is_blocked)
        tcp_conn_todo(&flow->conn);
}

/* Streams have ended: frees data buffered for them, and discards data that waits in a socket for a
 * receive that will never be posted. */
static void forget(struct tcp *tcp)
{
    for (int32_t rank = 0; rank < tcp->peer_count; rank++)
        for (int32_t i = 0; tcp->peers[rank] != NULL && i < tcp->flow_count; i++)
            flow_forget(&tcp->peers[rank]->flows[i]);
}

void tcp_bulk_open(struct transport *t, int32_t slot, uint64_t first)
{
    struct tcp *tcp = (struct tcp *)t;

    streams_open(&tcp->streams, slot, first);
    forget(tcp);
}

void tcp_bulk_close(struct transport *t, uint64_t first)
{
    struct tcp *tcp = (struct tcp *)t;

    streams_close(&tcp->streams, first);
    forget(tcp);
}

/* --- failures and closing --- */

static void fail_list(struct tcp_flow *flow, struct transport_req **head,
                      struct transport_req **tail, hvd_status_t status)
{
    while (*head != NULL) {
        struct transport_req *req = *head;

        *head = req->next;
        req_end(flow, req, status);
    }
    *tail = NULL;
}

void tcp_flow_fail(struct tcp_flow *flow, hvd_status_t status)
{
    if (flow->in.req != NULL)
        req_end(flow, flow->in.req, status);
    flow->in.req = NULL;
    flow->in.is_discarded = true;
    fail_list(flow, &flow->in.posted, &flow->in.posted_last, status);
    fail_list(flow, &flow->out.head, &flow->out.tail, status);
    flow->is_blocked = false;
}

void tcp_flow_end(struct tcp_flow *flow)
{
    os_free(os_of(flow), flow->out.rest);
    os_free(os_of(flow), flow->out.encrypted);
    flow->out.rest = NULL;
    flow->out.encrypted = NULL;
    flow->in.aside = NULL;
    while (flow->in.asides != NULL) {
        struct tcp_aside *aside = flow->in.asides;

        flow->in.asides = aside->next;
        aside_free(flow, aside);
    }
    flow->in.asides_last = NULL;
}
