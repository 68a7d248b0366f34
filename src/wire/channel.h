/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - whole messages over one socket: handshake first, then sealed frames, cut and put
 * together again. Non-blocking; both sides of the store use it.
 *
 * One message is on its way per direction. A message is at most message_max bytes; its memory, like
 * that of the frame in the making, comes out of the owner's budget and is given back when the
 * message has been taken. Before the handshake succeeds nothing is allocated.
 *
 * Thread: the owner's.  Blocks: never.  Start reading at channel_recv(). */
#ifndef HVD_WIRE_CHANNEL_H
#define HVD_WIRE_CHANNEL_H

#include "wire/budget.h"
#include "wire/frame.h"
#include "wire/handshake.h"

#define CHANNEL_WORD_AES256GCM 1u /* bit of the handshake's word: can encrypt */

struct channel {
    const struct os *os;
    struct budget *budget;
    const struct cipher *cipher; /* used if both sides said so under the handshake's MAC */
    int fd;
    bool is_proven, is_encrypted;
    struct handshake handshake; /* until is_proven */
    struct seal seal;           /* from then on */
    size_t message_max;

    uint8_t rx_header[FRAME_HEADER_BYTES];
    uint32_t rx_header_done, rx_body_bytes, rx_body_done;
    uint8_t *rx_body; /* rx_body_bytes long */
    uint8_t *rx_message;
    size_t rx_message_bytes, rx_message_capacity;
    uint8_t rx_type;
    bool rx_has_begun;
    bool rx_is_over_budget; /* the message was read to its end and dropped */

    const uint8_t *tx_message; /* borrowed */
    size_t tx_message_bytes, tx_message_done;
    uint8_t *tx_frame;
    size_t tx_frame_capacity, tx_frame_bytes, tx_frame_done;
    uint8_t tx_type;
    bool tx_is_active;
};

struct channel_identity {
    const uint8_t *key; /* 32 bytes */
    uint64_t epoch;
    int32_t rank;
    bool is_dialer;
};

/* Takes over `fd`. `cipher` NULL or not loaded: authentication only. */
hvd_status_t channel_begin(struct channel *c, const struct os *os, struct budget *budget, int fd,
                           const struct channel_identity *self, const struct cipher *cipher,
                           size_t message_max);
/* HVD_OK: the key is proven and frames may flow. */
hvd_status_t channel_handshake(struct channel *c, struct error *error);
/* Starts a message; `bytes` must stay until channel_flush() says HVD_OK or channel_end(). */
void channel_send(struct channel *c, uint8_t type, const void *bytes, size_t n);
hvd_status_t channel_flush(struct channel *c, struct error *error);
/* HVD_OK: rx_message (rx_message_bytes, rx_type) is a whole message; channel_take() frees it. */
hvd_status_t channel_recv(struct channel *c, struct error *error);
void channel_take(struct channel *c);
/* While an answer is due the peer has nothing to say. HVD_IN_PROGRESS: silent, as it should be. */
hvd_status_t channel_expect_silence(struct channel *c, struct error *error);
bool channel_wants_write(const struct channel *c);
void channel_end(struct channel *c); /* closes the socket, frees, wipes; safe on a zeroed one */

#endif
