/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_frame.h - the wire format: headers of control and bulk frames, little-endian.
 *
 *     control   0 magic u32, version u8, type u8, zero u16, length u32, epoch u64, sequence u64,
 *              28 crc32c u32 of the 28 bytes before it and the payload
 *              32 payload, `length` <= TRANSPORT_MESSAGE_MAX
 *     bulk      0 magic u32, version u8, type u8, zero u16, stream u64, length u32, left u64,
 *              28 epoch u64, crc32c u32 of the payload, crc32c u32 of the 40 bytes before it
 *              44 payload, `length` <= TCP_SEGMENT_MAX
 *
 * A sealed frame (tcp_seal.h) has its tag of 16 bytes between header and payload. Its checksums
 * cover the header only: one of the payload would leak information about it. Control frames are
 * sealed unless HOROVOD_SECURITY=off, bulk frames if it is mac or tls.
 *
 * A bulk header has its own checksum because its stream decides which memory the payload goes to.
 * `left` is what is left of the transfer, including this frame. A frame is not used until its
 * checksums, epoch and order are verified; any mismatch closes the link.
 *
 * Thread: any (pure).  Start reading at tcp_control_decode(). */
#ifndef HVD_TRANSPORT_TCP_FRAME_H
#define HVD_TRANSPORT_TCP_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TCP_FRAME_VERSION 2u
#define TCP_CONTROL_HEAD  32u
#define TCP_BULK_HEAD     44u
#define TCP_SEGMENT_MAX   (256u << 10)

enum tcp_control_type {
    TCP_CONTROL_OPEN = 1, /* first frame of every connection, both ways: this one is kept */
    TCP_CONTROL_MESSAGE = 2,
    TCP_CONTROL_HEARTBEAT = 3
};

enum tcp_bulk_type {
    TCP_BULK_FIRST = 1, /* begins a transfer of `left` bytes */
    TCP_BULK_MORE = 2,
    TCP_BULK_ABORT = 3 /* the transfer is aborted here; no payload */
};

struct tcp_control_frame {
    enum tcp_control_type type;
    uint32_t length;
    uint64_t epoch, sequence;
};

struct tcp_bulk_frame {
    enum tcp_bulk_type type;
    uint64_t stream;
    uint32_t length;
    uint64_t left, epoch;
    uint32_t crc; /* of the payload */
};

/* `payload` NULL: for a sealed frame. */
void tcp_control_encode(const struct tcp_control_frame *frame, const void *payload,
                        uint8_t ret_head[TCP_CONTROL_HEAD]);
/* HVD_AGAIN: the frame is not complete in these n bytes. HVD_ERR_CORRUPT, HVD_ERR_STALE: close.
 * tag_bytes > 0: a sealed frame; everything except the tag is checked. */
hvd_status_t tcp_control_decode(const uint8_t *bytes, size_t n, uint32_t tag_bytes, uint64_t epoch,
                                uint64_t sequence, struct tcp_control_frame *ret_frame,
                                struct error *error);

void tcp_bulk_encode(const struct tcp_bulk_frame *frame, uint8_t ret_head[TCP_BULK_HEAD]);
hvd_status_t tcp_bulk_decode(const uint8_t head[TCP_BULK_HEAD], uint64_t epoch,
                             struct tcp_bulk_frame *ret_frame, struct error *error);

#endif
