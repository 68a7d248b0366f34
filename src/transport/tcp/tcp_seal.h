/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_seal.h - authenticates and encrypts the frames of a link: HOROVOD_SECURITY=auth (control
 * frames authenticated), mac (all frames authenticated) and tls (all frames authenticated and
 * encrypted).
 *
 * `auth` is HMAC-SHA256 truncated to 16 bytes, over header and payload; the header contains the
 * frame's number. The other two are AES-256-GCM of the system's libcrypto: `tls` encrypts the
 * payload and authenticates the header with it, `mac` authenticates header and payload and leaves
 * them readable; the nonce is the number of the frame, counted by both sides and never sent. The
 * 16-byte tag is between header and payload and replaces the payload's checksum. Each direction of
 * each connection has a separate key from that connection's handshake, so a frame that is repeated,
 * left out, reordered, reflected or moved to another connection fails authentication.
 *
 * Thread: token holder.  Owner: struct tcp_conn.  Blocks: never.  Start at tcp_seal_frame(). */
#ifndef HVD_TRANSPORT_TCP_SEAL_H
#define HVD_TRANSPORT_TCP_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"
#include "wire/cipher.h"

#define TCP_TAG_BYTES CIPHER_TAG_BYTES

/* The numbers are sent in the handshake, so that ranks that disagree do not connect. */
enum tcp_security {
    TCP_SECURITY_AUTH = 0, /* handshake, sealed control frames, checksums of bulk data */
    TCP_SECURITY_MAC = 1,
    TCP_SECURITY_TLS = 2,
    TCP_SECURITY_OFF = 3 /* handshake, checksums of control frames, none of bulk data */
};

struct tcp_seal { /* zeroed: frames are not sealed */
    const struct cipher *cipher;
    bool is_encrypting;
    bool is_broken; /* a step failed: the frame being opened is not authentic */
    struct cipher_ctx *send, *recv;
    struct hmac256 send_mac, recv_mac; /* AUTH: states that have absorbed the key */
    struct hmac256 opening;            /* AUTH: of the frame being opened */
    uint64_t sent, received;           /* frames */
};

/* From the link keys of the handshake; nothing to do for OFF. */
hvd_status_t tcp_seal_begin(struct tcp_seal *seal, const struct cipher *cipher,
                            enum tcp_security security, const uint8_t send_key[32],
                            const uint8_t recv_key[32]);
void tcp_seal_end(struct tcp_seal *seal); /* wipes the keys; safe on a zeroed one */

/* Seals frame number seal->sent, which the caller increments once the frame can't be withdrawn.
 * ret_payload: the encrypted bytes, if the seal encrypts. */
bool tcp_seal_frame(struct tcp_seal *seal, const uint8_t *head, size_t head_bytes,
                    const uint8_t *payload, size_t n, uint8_t *ret_payload,
                    uint8_t ret_tag[TCP_TAG_BYTES]);

/* Opens a frame piece by piece as the payload arrives; pieces are decrypted in place. The payload
 * must not be used before tcp_open_end() returns true. */
void tcp_open_begin(struct tcp_seal *seal, const uint8_t *head, size_t head_bytes);
void tcp_open_update(struct tcp_seal *seal, uint8_t *bytes, size_t n);
bool tcp_open_end(struct tcp_seal *seal, const uint8_t tag[TCP_TAG_BYTES]);

#endif
