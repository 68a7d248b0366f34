/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - messages in frames over a socket; see channel.h.
 *
 * Thread: the owner's.  Owner: a store connection or client.  Invariant: a byte of a message is
 * looked at only after the frame that carried it was opened.  Start reading at channel_recv(). */
#include "wire/channel.h"

#include <errno.h>
#include <string.h>

#include "base/sha256.h"
#include "wire/stream.h"

#define FRAMES_PER_CALL 64 /* then others get their turn */
#define MESSAGE_FIRST   512u

hvd_status_t channel_begin(struct channel *c, const struct os *os, struct budget *budget, int fd,
                           const struct channel_identity *self, const struct cipher *cipher,
                           size_t message_max)
{
    memset(c, 0, sizeof *c);
    c->os = os;
    c->budget = budget;
    c->fd = fd;
    c->message_max = message_max;
    c->cipher = cipher != NULL && cipher->library != NULL ? cipher : NULL;
    return handshake_begin(&c->handshake, os, HANDSHAKE_STORE, self->is_dialer, self->key,
                           self->epoch, self->rank, HANDSHAKE_ANY_RANK,
                           c->cipher != NULL ? CHANNEL_WORD_AES256GCM : 0);
}

hvd_status_t channel_handshake(struct channel *c, struct error *error)
{
    hvd_status_t status = handshake_step(&c->handshake, c->os, c->fd, error);
    if (status != HVD_OK)
        return status;
    uint32_t both = c->handshake.word & c->handshake.peer_word;
    c->is_encrypted = (both & CHANNEL_WORD_AES256GCM) != 0;
    status = seal_begin(&c->seal, c->is_encrypted ? c->cipher : NULL, c->handshake.send_key,
                        c->handshake.recv_key);
    handshake_end(&c->handshake);
    if (status != HVD_OK)
        return error_set(error, status, "no memory for the link's cipher");
    c->is_proven = true;
    return HVD_OK;
}

static void tx_frame_give(struct channel *c)
{
    budget_give(c->budget, c->tx_frame, c->tx_frame_capacity);
    c->tx_frame = NULL;
    c->tx_frame_capacity = c->tx_frame_bytes = c->tx_frame_done = 0;
}

static void rx_body_give(struct channel *c)
{
    budget_give(c->budget, c->rx_body, c->rx_body_bytes);
    c->rx_body = NULL;
    c->rx_body_bytes = c->rx_body_done = 0;
}

void channel_send(struct channel *c, uint8_t type, const void *bytes, size_t n)
{
    c->tx_type = type;
    c->tx_message = bytes;
    c->tx_message_bytes = n;
    c->tx_message_done = 0;
    c->tx_is_active = true;
}

bool channel_wants_write(const struct channel *c)
{
    return c->is_proven ? c->tx_is_active : handshake_wants_write(&c->handshake);
}

/* Seals the next piece of the message into tx_frame, which is as large as the first piece. */
static hvd_status_t tx_frame_next(struct channel *c, struct error *error)
{
    size_t left = c->tx_message_bytes - c->tx_message_done;
    size_t n = left < FRAME_PAYLOAD_MAX ? left : FRAME_PAYLOAD_MAX;
    if (c->tx_frame == NULL) {
        c->tx_frame = budget_take_small(c->budget, FRAME_HEADER_BYTES + n);
        if (c->tx_frame == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a frame");
        c->tx_frame_capacity = FRAME_HEADER_BYTES + n;
    }
    hvd_status_t status =
        frame_seal(&c->seal, c->tx_type, n < left ? FRAME_MORE : 0,
                   n > 0 ? c->tx_message + c->tx_message_done : NULL, n, c->tx_frame);
    if (status != HVD_OK)
        return error_set(error, status, "a frame could not be sealed");
    c->tx_message_done += n;
    c->tx_frame_bytes = FRAME_HEADER_BYTES + n;
    c->tx_frame_done = 0;
    return HVD_OK;
}

static hvd_status_t fail_io(int neg_errno, struct error *error)
{
    if (neg_errno == -ECONNRESET || neg_errno == -EPIPE)
        return error_set(error, HVD_ERR_LINK, "the connection was closed by the other side");
    return error_set(error, HVD_ERR_LINK, "the connection failed: %s", strerror(-neg_errno));
}

hvd_status_t channel_flush(struct channel *c, struct error *error)
{
    while (c->tx_is_active) {
        if (c->tx_frame_done == c->tx_frame_bytes) {
            if (c->tx_frame_bytes > 0 && c->tx_message_done == c->tx_message_bytes) {
                c->tx_is_active = false;
                break;
            }
            hvd_status_t status = tx_frame_next(c, error);
            if (status != HVD_OK)
                return status;
        }
        int rc = stream_send(c->os, c->fd, c->tx_frame, c->tx_frame_bytes, &c->tx_frame_done);
        if (rc != 0)
            return rc == -EAGAIN ? HVD_IN_PROGRESS : fail_io(rc, error);
    }
    tx_frame_give(c);
    return HVD_OK;
}

/* Reads until *done == want. */
static hvd_status_t fill(struct channel *c, uint8_t *bytes, uint32_t *done, uint32_t want,
                         struct error *error)
{
    size_t at = *done;
    int rc = stream_recv(c->os, c->fd, bytes, want, &at);
    *done = (uint32_t)at;
    if (rc != 0)
        return rc == -EAGAIN ? HVD_IN_PROGRESS : fail_io(rc, error);
    return HVD_OK;
}

static void rx_message_drop(struct channel *c)
{
    budget_give(c->budget, c->rx_message, c->rx_message_capacity);
    c->rx_message = NULL;
    c->rx_message_bytes = c->rx_message_capacity = 0;
}

static bool rx_message_reserve(struct channel *c, size_t need)
{
    size_t capacity = c->rx_message_capacity > 0 ? c->rx_message_capacity : MESSAGE_FIRST;
    if (need <= c->rx_message_capacity)
        return true;
    while (capacity < need)
        capacity *= 2;
    if (capacity > c->message_max)
        capacity = c->message_max;
    uint8_t *grown = budget_grow(c->budget, c->rx_message, c->rx_message_capacity, capacity);
    if (grown == NULL)
        return false;
    c->rx_message = grown;
    c->rx_message_capacity = capacity;
    return true;
}

/* Adds an opened frame's payload to the message. */
static hvd_status_t rx_append(struct channel *c, uint8_t type, struct error *error)
{
    size_t n = c->rx_body_bytes;
    if (c->rx_has_begun && type != c->rx_type)
        return error_set(error, HVD_ERR_CORRUPT, "a message changed its type half way");
    c->rx_has_begun = true;
    c->rx_type = type;
    if (n > c->message_max - c->rx_message_bytes)
        return error_set(error, HVD_ERR_CORRUPT, "a message is longer than %zu bytes",
                         c->message_max);
    if (c->rx_is_over_budget || n == 0)
        return HVD_OK;
    if (!rx_message_reserve(c, c->rx_message_bytes + n)) {
        rx_message_drop(c);
        c->rx_is_over_budget = true;
        return HVD_OK;
    }
    memcpy(c->rx_message + c->rx_message_bytes, c->rx_body, n);
    c->rx_message_bytes += n;
    return HVD_OK;
}

/* HVD_OK: one frame was added; *ret_is_last tells whether it ended the message. */
static hvd_status_t rx_frame(struct channel *c, bool *ret_is_last, struct error *error)
{
    uint8_t type;
    uint16_t flags;
    hvd_status_t status = fill(c, c->rx_header, &c->rx_header_done, FRAME_HEADER_BYTES, error);
    if (status != HVD_OK)
        return status;
    if (c->rx_body == NULL) {
        uint32_t length;
        status = frame_length(c->rx_header, &length, error);
        if (status != HVD_OK)
            return status;
        if (length > 0 && (c->rx_body = budget_take_small(c->budget, length)) == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a frame");
        c->rx_body_bytes = length;
    }
    status = fill(c, c->rx_body, &c->rx_body_done, c->rx_body_bytes, error);
    if (status != HVD_OK)
        return status;
    status = frame_open(&c->seal, c->rx_header, c->rx_body, c->rx_body_bytes, &type, &flags, error);
    if (status != HVD_OK)
        return status;
    if ((flags & ~FRAME_MORE) != 0)
        return error_set(error, HVD_ERR_CORRUPT, "a frame has unknown flags");
    status = rx_append(c, type, error);
    rx_body_give(c);
    c->rx_header_done = 0;
    *ret_is_last = (flags & FRAME_MORE) == 0;
    return status;
}

hvd_status_t channel_recv(struct channel *c, struct error *error)
{
    for (int i = 0; i < FRAMES_PER_CALL; i++) {
        bool is_last = false;
        hvd_status_t status = rx_frame(c, &is_last, error);
        if (status != HVD_OK)
            return status;
        if (is_last)
            return HVD_OK;
    }
    return HVD_IN_PROGRESS;
}

void channel_take(struct channel *c)
{
    rx_message_drop(c);
    c->rx_has_begun = false;
    c->rx_is_over_budget = false;
}

hvd_status_t channel_expect_silence(struct channel *c, struct error *error)
{
    uint8_t byte;
    int64_t n = c->os->recv(c->os->ctx, c->fd, &byte, 1);
    if (n == -EAGAIN || n == -EINTR)
        return HVD_IN_PROGRESS;
    if (n <= 0)
        return fail_io(n == 0 ? -ECONNRESET : (int)n, error);
    return error_set(error, HVD_ERR_CORRUPT, "a request came before the last one was answered");
}

void channel_end(struct channel *c)
{
    if (c == NULL || c->os == NULL)
        return;
    handshake_end(&c->handshake);
    seal_end(&c->seal);
    tx_frame_give(c);
    rx_body_give(c);
    rx_message_drop(c);
    if (c->fd >= 0)
        c->os->close(c->os->ctx, c->fd);
    bytes_wipe(c, sizeof *c);
    c->fd = -1;
}
