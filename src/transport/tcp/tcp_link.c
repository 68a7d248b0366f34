/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_link.c - the control connection of one peer: whole messages, in order, and heartbeats.
 *
 * A message is sent straight from the caller's memory; what does not fit into the socket is queued
 * in a buffer allocated at connect time, and when that is full the caller gets HVD_AGAIN. Both
 * buffers restart at their beginning whenever they become empty, so that their size costs nothing
 * as long as messages are small.
 *
 * Thread: token holder.  Owner: struct tcp_peer.  Blocks: never. Invariant: the sequence of frames
 * per direction has no gap; a frame is delivered only after all of it was checked.  Start reading
 * at tcp_control_read(). */
#include "transport/tcp/tcp_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define READS_MAX 8 /* per call, so that one busy peer can't keep the others waiting */

hvd_status_t tcp_control_init(struct tcp_peer *peer)
{
    const struct os *os = peer->tcp->base.os;
    struct tcp_control *control = &peer->control;

    control->out = os_alloc(os, TCP_QUEUE_BYTES);
    control->in = os_alloc(os, TCP_INBOX_BYTES);
    if (control->out == NULL || control->in == NULL)
        return HVD_ERR_NO_MEMORY;
    /* number 0 was the OPEN frame */
    control->send_sequence = 1;
    control->recv_sequence = 1;
    return HVD_OK;
}

void tcp_control_end(struct tcp_peer *peer)
{
    const struct os *os = peer->tcp->base.os;

    os_free(os, peer->control.out);
    os_free(os, peer->control.in);
    peer->control.out = NULL;
    peer->control.in = NULL;
}

/* Makes room after the queued bytes; false: there is none. */
static bool queue_reserve(struct tcp_control *control, size_t n)
{
    const size_t queued = control->out_end - control->out_begin;

    if (TCP_QUEUE_BYTES - queued < n)
        return false;
    if (TCP_QUEUE_BYTES - control->out_end >= n)
        return true;
    memmove(control->out, control->out + control->out_begin, queued);
    control->out_begin = 0;
    control->out_end = queued;
    return true;
}

static void queue_add(struct tcp_control *control, const void *bytes, size_t n)
{
    memcpy(control->out + control->out_end, bytes, n);
    control->out_end += n;
}

/* Head, tag and payload into the queue, for which there is room: the payload has to be copied for
 * encryption anyway. */
static hvd_status_t send_encrypted(struct tcp_peer *peer, const uint8_t *head, const void *bytes,
                                   size_t n)
{
    struct tcp_control *control = &peer->control;
    struct tcp_seal *seal = &control->conn.seal;
    uint8_t *tag = control->out + control->out_end + TCP_CONTROL_HEAD;

    if (!tcp_seal_frame(seal, head, TCP_CONTROL_HEAD, bytes, n, tag + TCP_TAG_BYTES, tag)) {
        tcp_peer_fail(peer, HVD_ERR_LINK, "can't be sent to: libcrypto refused to seal a message");
        return peer->status;
    }
    seal->sent++;
    queue_add(control, head, TCP_CONTROL_HEAD);
    control->out_end += TCP_TAG_BYTES + n;
    tcp_control_write(peer);
    if (peer->status == HVD_OK && control->out_begin < control->out_end)
        tcp_conn_poll(&control->conn, true);
    return peer->status;
}

/* Sends what it can of head and payload and queues the rest, for which there is room. */
static hvd_status_t send_or_queue(struct tcp_peer *peer, uint8_t *head, size_t head_bytes,
                                  const void *bytes, size_t n)
{
    struct tcp_control *control = &peer->control;
    const struct os *os = peer->tcp->base.os;
    struct iovec iov[2] = {{head, head_bytes}, {(void *)(uintptr_t)bytes, n}};
    size_t sent = 0;

    if (control->out_begin == control->out_end) {
        const int64_t result = os->send(os->ctx, control->conn.fd, iov, n > 0 ? 2 : 1);

        if (result <= 0 && tcp_conn_io_error(&control->conn, result) != HVD_AGAIN)
            return peer->status;
        sent = result > 0 ? (size_t)result : 0;
    }
    if (sent == head_bytes + n)
        return HVD_OK;
    if (sent < head_bytes) {
        queue_add(control, head + sent, head_bytes - sent);
        sent = head_bytes;
    }
    if (n > 0)
        queue_add(control, (const uint8_t *)bytes + (sent - head_bytes), n - (sent - head_bytes));
    tcp_conn_poll(&control->conn, true);
    return HVD_OK;
}

/* With a tag the payload may stay where it is; with encryption it may not. */
static hvd_status_t send_sealed(struct tcp_peer *peer, uint8_t *head, const void *bytes, size_t n)
{
    struct tcp_seal *seal = &peer->control.conn.seal;

    if (seal->is_encrypting)
        return send_encrypted(peer, head, bytes, n);
    if (!tcp_seal_frame(seal, head, TCP_CONTROL_HEAD, bytes, n, NULL, head + TCP_CONTROL_HEAD)) {
        tcp_peer_fail(peer, HVD_ERR_LINK, "can't be sent to: libcrypto refused to seal a message");
        return peer->status;
    }
    seal->sent++;
    return send_or_queue(peer, head, TCP_CONTROL_HEAD + TCP_TAG_BYTES, bytes, n);
}

hvd_status_t tcp_control_send(struct tcp_peer *peer, enum tcp_control_type type, const void *bytes,
                              size_t n)
{
    struct tcp_control *control = &peer->control;
    const struct tcp_control_frame frame = {type, (uint32_t)n, peer->tcp->epoch,
                                            control->send_sequence};
    const uint32_t tag_bytes = peer->tcp->control_tag_bytes;
    const size_t bytes_total = TCP_CONTROL_HEAD + tag_bytes + n;
    uint8_t head[TCP_CONTROL_HEAD + TCP_TAG_BYTES];

    if (peer->status != HVD_OK)
        return peer->status;
    if (!queue_reserve(control, bytes_total)) {
        tcp_control_write(peer);
        if (peer->status != HVD_OK)
            return peer->status;
        if (!queue_reserve(control, bytes_total))
            return HVD_AGAIN;
    }
    tcp_control_encode(&frame, tag_bytes > 0 ? NULL : bytes, head);
    control->send_sequence++;
    control->sent_ns = peer->tcp->now_ns;
    if (tag_bytes > 0)
        return send_sealed(peer, head, bytes, n);
    return send_or_queue(peer, head, TCP_CONTROL_HEAD, bytes, n);
}

bool tcp_control_write(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;
    const struct os *os = peer->tcp->base.os;
    bool is_moved = false;

    while (control->conn.fd >= 0 && control->out_begin < control->out_end) {
        struct iovec iov = {control->out + control->out_begin,
                            control->out_end - control->out_begin};
        const int64_t n = os->send(os->ctx, control->conn.fd, &iov, 1);

        if (n <= 0) {
            tcp_conn_io_error(&control->conn, n);
            return is_moved;
        }
        control->out_begin += (size_t)n;
        is_moved = true;
    }
    control->out_begin = control->out_end = 0;
    if (control->conn.is_write_polled)
        tcp_conn_poll(&control->conn, false);
    return is_moved;
}

/* Decrypts the payload in place. */
static hvd_status_t open_frame(struct tcp_peer *peer, const struct tcp_control_frame *frame,
                               uint8_t *bytes, struct error *error)
{
    struct tcp_seal *seal = &peer->control.conn.seal;

    if (peer->tcp->control_tag_bytes == 0)
        return HVD_OK;
    tcp_open_begin(seal, bytes, TCP_CONTROL_HEAD);
    tcp_open_update(seal, bytes + TCP_CONTROL_HEAD + TCP_TAG_BYTES, frame->length);
    if (tcp_open_end(seal, bytes + TCP_CONTROL_HEAD))
        return HVD_OK;
    return error_set(error, HVD_ERR_CORRUPT,
                     "sent a control frame that is not authentic: it was changed on the way");
}

/* Delivers one frame from `bytes`; returns its size, or 0 if there is no complete one or the link
 * failed. */
static size_t deliver(struct tcp_peer *peer, uint8_t *bytes, size_t n)
{
    struct tcp *tcp = peer->tcp;
    const size_t payload_at = TCP_CONTROL_HEAD + tcp->control_tag_bytes;
    struct tcp_control_frame frame;
    struct error error;
    hvd_status_t status = HVD_OK;

    error_clear(&error);
    status = tcp_control_decode(bytes, n, tcp->control_tag_bytes, tcp->epoch,
                                peer->control.recv_sequence, &frame, &error);
    if (status == HVD_AGAIN)
        return 0;
    if (status == HVD_OK)
        status = open_frame(peer, &frame, bytes, &error);
    if (status != HVD_OK) {
        tcp_peer_fail(peer, status, error.text);
        tcp_conn_close(&peer->control.conn);
        return 0;
    }
    peer->control.recv_sequence++;
    switch (frame.type) {
    case TCP_CONTROL_OPEN:
        tcp_peer_fail(peer, HVD_ERR_CORRUPT, "sent a control frame out of order");
        tcp_conn_close(&peer->control.conn);
        return 0;
    case TCP_CONTROL_MESSAGE:
        if (tcp->base.events.message != NULL)
            tcp->base.events.message(tcp->base.events.ctx, peer->rank, bytes + payload_at,
                                     frame.length);
        break;
    case TCP_CONTROL_HEARTBEAT: break;
    }
    return payload_at + frame.length;
}

static void deliver_all(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;
    size_t at = 0, used = 0;

    while (control->conn.fd >= 0 && at < control->in_end) {
        used = deliver(peer, control->in + at, control->in_end - at);
        if (used == 0)
            break;
        at += used;
    }
    if (at > 0 && at < control->in_end)
        memmove(control->in, control->in + at, control->in_end - at);
    control->in_end -= at;
}

bool tcp_control_read(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;
    const struct os *os = peer->tcp->base.os;
    bool is_moved = false;

    for (int i = 0; i < READS_MAX && control->conn.fd >= 0; i++) {
        const size_t room = TCP_INBOX_BYTES - control->in_end;
        const int64_t n = os->recv(os->ctx, control->conn.fd, control->in + control->in_end, room);

        if (n <= 0) {
            tcp_conn_io_error(&control->conn, n);
            break;
        }
        is_moved = true;
        peer->heard_ns = peer->tcp->now_ns;
        control->in_end += (size_t)n;
        deliver_all(peer);
        if ((size_t)n < room)
            break;
    }
    return is_moved;
}
