/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_seal.h - frames of a link under a key: HOROVOD_SECURITY=mac (authentic) and tls (authentic
 * and unreadable).
 *
 * Both are AES-256-GCM of the system's libcrypto: `tls` encrypts the payload and authenticates the
 * head with it, `mac` authenticates head and payload and leaves them readable. The tag of 16 bytes
 * stands between head and payload and takes the place of the payload's checksum. Each direction of
 * each connection has a key of its own out of that connection's handshake, and the nonce is the
 * number of the frame, counted by both sides and never sent: what is repeated, left out, reordered,
 * turned back or moved to another connection does not open.
 *
 * Thread: token holder.  Owner: struct tcp_conn.  Blocks: never.  Start at tcp_seal_frame(). */
#ifndef HVD_TRANSPORT_TCP_SEAL_H
#define HVD_TRANSPORT_TCP_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "wire/cipher.h"

#define TCP_TAG_BYTES CIPHER_TAG_BYTES

/* The numbers are told in the handshake, so that ranks that disagree do not connect. */
enum tcp_security {
    TCP_SECURITY_AUTH = 0, /* handshake, then checksums */
    TCP_SECURITY_MAC = 1,
    TCP_SECURITY_TLS = 2,
    TCP_SECURITY_OFF = 3 /* handshake, then no checksum of bulk data */
};

struct tcp_seal { /* zeroed: frames are not sealed */
    const struct cipher *cipher;
    bool is_encrypting;
    bool is_broken; /* a step failed: what is being opened is not authentic */
    struct cipher_ctx *send, *recv;
    uint64_t sent, received; /* frames */
};

/* From the link keys of the handshake; nothing to do for AUTH and OFF. */
hvd_status_t tcp_seal_begin(struct tcp_seal *seal, const struct cipher *cipher,
                            enum tcp_security security, const uint8_t send_key[32],
                            const uint8_t recv_key[32]);
void tcp_seal_end(struct tcp_seal *seal); /* wipes the keys; safe on a zeroed one */

/* Seals frame number seal->sent, which the caller counts up when the frame can't be taken back.
 * ret_payload: the encrypted bytes, if the seal encrypts. */
bool tcp_seal_frame(struct tcp_seal *seal, const uint8_t *head, size_t head_bytes,
                    const uint8_t *payload, size_t n, uint8_t *ret_payload,
                    uint8_t ret_tag[TCP_TAG_BYTES]);

/* Opening, piece by piece as the payload comes; pieces are decrypted in place. Nothing of it may be
 * acted upon before tcp_open_end() says true. */
void tcp_open_begin(struct tcp_seal *seal, const uint8_t *head, size_t head_bytes);
void tcp_open_update(struct tcp_seal *seal, uint8_t *bytes, size_t n);
bool tcp_open_end(struct tcp_seal *seal, const uint8_t tag[TCP_TAG_BYTES]);

#endif
