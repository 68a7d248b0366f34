/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - sealed frames of the control plane.
 *
 *     bytes  0  magic u32, version u8, type u8, flags u16, length u32, sequence u64, crc32c u32
 *           24  mac of 16 bytes over the first 20 and the payload
 *           40  payload, `length` bytes
 *
 * With a cipher the payload is AES-256-GCM and the mac is its tag; without one it is HMAC-SHA256,
 * cut. The checksum is over what is on the wire: it tells damage from forgery in the error's words,
 * and is never relied upon. One key and one sequence per direction: a frame that is repeated, left
 * out, reordered or turned back does not open.
 *
 * Thread: the link's owner.  Blocks: never.  Start reading at frame_open(). */
#ifndef HVD_WIRE_FRAME_H
#define HVD_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "wire/cipher.h"

#define FRAME_MAGIC        0x46445648u /* "HVDF" */
#define FRAME_VERSION      1u
#define FRAME_HEADER_BYTES 40u
#define FRAME_PAYLOAD_MAX  65536u
#define FRAME_MORE         1u /* flag: the message goes on in the next frame */

struct seal {
    const struct cipher *cipher; /* borrowed; NULL: authenticated, not encrypted */
    struct cipher_ctx *send_ctx, *recv_ctx;
    uint8_t send_key[32], recv_key[32]; /* of the HMAC; unused with a cipher */
    uint64_t send_sequence, recv_sequence;
};

/* From a handshake's link keys; `cipher` NULL for authentication only. */
hvd_status_t seal_begin(struct seal *seal, const struct cipher *cipher, const uint8_t send_key[32],
                        const uint8_t recv_key[32]);
void seal_end(struct seal *seal); /* wipes; safe on a zeroed one */

/* Writes FRAME_HEADER_BYTES + n bytes; n <= FRAME_PAYLOAD_MAX. */
hvd_status_t frame_seal(struct seal *seal, uint8_t type, uint16_t flags, const void *payload,
                        size_t n, uint8_t *ret_frame);
/* How many payload bytes follow this header. Only bounds are looked at: HVD_ERR_CORRUPT if it is no
 * frame or longer than FRAME_PAYLOAD_MAX. */
hvd_status_t frame_length(const uint8_t header[FRAME_HEADER_BYTES], uint32_t *ret_length,
                          struct error *error);
/* Verifies, decrypts in place. HVD_ERR_CORRUPT: close the link. */
hvd_status_t frame_open(struct seal *seal, const uint8_t header[FRAME_HEADER_BYTES],
                        uint8_t *payload, size_t n, uint8_t *ret_type, uint16_t *ret_flags,
                        struct error *error);

#endif
