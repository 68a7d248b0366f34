/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_frame.c - encoding and checking of frame headers; see tcp_frame.h for the layout.
 *
 * Lengths are checked before anything waits for or allocates that many bytes.
 *
 * Thread: any (pure).  Invariant: ret_frame is written only on success.  Start reading at
 * tcp_control_decode(). */
#include "transport/tcp/tcp_frame.h"

#include "base/codec.h"
#include "base/crc32c.h"
#include "transport/transport.h"

#define CONTROL_MAGIC  0x43445648u /* "HVDC" */
#define BULK_MAGIC     0x42445648u /* "HVDB" */
#define CONTROL_CRC_AT 28u
#define BULK_CRC_AT    40u

void tcp_control_encode(const struct tcp_control_frame *frame, const void *payload,
                        uint8_t ret_head[TCP_CONTROL_HEAD])
{
    struct writer w;
    uint32_t crc = 0;

    writer_init(&w, ret_head, TCP_CONTROL_HEAD);
    put_u32(&w, CONTROL_MAGIC);
    put_u8(&w, TCP_FRAME_VERSION);
    put_u8(&w, (uint8_t)frame->type);
    put_u16(&w, 0);
    put_u32(&w, frame->length);
    put_u64(&w, frame->epoch);
    put_u64(&w, frame->sequence);
    crc = crc32c(0, ret_head, CONTROL_CRC_AT);
    put_u32(&w, payload != NULL ? crc32c(crc, payload, frame->length) : crc);
}

static hvd_status_t check_start(struct reader *r, uint32_t magic, struct error *error)
{
    const uint32_t seen = get_u32(r);
    const uint8_t version = get_u8(r);

    if (seen != magic)
        return error_set(error, HVD_ERR_CORRUPT, "sent something that is not a frame (%08x)", seen);
    if (version != TCP_FRAME_VERSION)
        return error_set(error, HVD_ERR_CORRUPT, "sent a frame of version %u, we speak %u", version,
                         TCP_FRAME_VERSION);
    return HVD_OK;
}

static hvd_status_t check_epoch(uint64_t seen, uint64_t epoch, struct error *error)
{
    if (seen == epoch)
        return HVD_OK;
    return error_set(error, HVD_ERR_STALE, "sent a frame of epoch %llu, this is epoch %llu",
                     (unsigned long long)seen, (unsigned long long)epoch);
}

hvd_status_t tcp_control_decode(const uint8_t *bytes, size_t n, uint32_t tag_bytes, uint64_t epoch,
                                uint64_t sequence, struct tcp_control_frame *ret_frame,
                                struct error *error)
{
    struct reader r;
    struct tcp_control_frame frame;
    uint8_t type = 0;
    uint16_t zero = 0;
    uint32_t crc = 0;
    hvd_status_t status = HVD_OK;

    if (n < TCP_CONTROL_HEAD)
        return HVD_AGAIN;
    reader_init(&r, bytes, TCP_CONTROL_HEAD);
    status = check_start(&r, CONTROL_MAGIC, error);
    if (status != HVD_OK)
        return status;
    type = get_u8(&r);
    zero = get_u16(&r);
    frame.length = get_u32(&r);
    frame.epoch = get_u64(&r);
    frame.sequence = get_u64(&r);
    if (frame.length > TRANSPORT_MESSAGE_MAX)
        return error_set(error, HVD_ERR_CORRUPT, "sent a message of %u bytes, the limit is %u",
                         frame.length, TRANSPORT_MESSAGE_MAX);
    if (n - TCP_CONTROL_HEAD < (size_t)tag_bytes + frame.length)
        return HVD_AGAIN;
    crc = crc32c(0, bytes, CONTROL_CRC_AT);
    if (tag_bytes == 0)
        crc = crc32c(crc, bytes + TCP_CONTROL_HEAD, frame.length);
    if (crc != get_u32(&r))
        return error_set(error, HVD_ERR_CORRUPT, "sent a control frame with a wrong checksum");
    status = check_epoch(frame.epoch, epoch, error);
    if (status != HVD_OK)
        return status;
    if (type < TCP_CONTROL_OPEN || type > TCP_CONTROL_HEARTBEAT || zero != 0)
        return error_set(error, HVD_ERR_CORRUPT, "sent a control frame of unknown type %u", type);
    if (frame.sequence != sequence)
        return error_set(error, HVD_ERR_CORRUPT,
                         "sent control frame %llu where %llu was due: one was lost, repeated or "
                         "reordered on the way",
                         (unsigned long long)frame.sequence, (unsigned long long)sequence);
    frame.type = (enum tcp_control_type)type;
    *ret_frame = frame;
    return HVD_OK;
}

void tcp_bulk_encode(const struct tcp_bulk_frame *frame, uint8_t ret_head[TCP_BULK_HEAD])
{
    struct writer w;

    writer_init(&w, ret_head, TCP_BULK_HEAD);
    put_u32(&w, BULK_MAGIC);
    put_u8(&w, TCP_FRAME_VERSION);
    put_u8(&w, (uint8_t)frame->type);
    put_u16(&w, 0);
    put_u64(&w, frame->stream);
    put_u32(&w, frame->length);
    put_u64(&w, frame->left);
    put_u64(&w, frame->epoch);
    put_u32(&w, frame->crc);
    put_u32(&w, crc32c(0, ret_head, BULK_CRC_AT));
}

static bool is_bulk_length_right(const struct tcp_bulk_frame *frame)
{
    if (frame->length > TCP_SEGMENT_MAX || frame->length > frame->left)
        return false;
    if (frame->type == TCP_BULK_ABORT)
        return frame->length == 0;
    if (frame->type == TCP_BULK_MORE)
        return frame->length > 0;
    return frame->length > 0 || frame->left == 0;
}

hvd_status_t tcp_bulk_decode(const uint8_t head[TCP_BULK_HEAD], uint64_t epoch,
                             struct tcp_bulk_frame *ret_frame, struct error *error)
{
    struct reader r;
    struct tcp_bulk_frame frame;
    uint8_t type = 0;
    uint16_t zero = 0;
    hvd_status_t status = HVD_OK;

    reader_init(&r, head, TCP_BULK_HEAD);
    status = check_start(&r, BULK_MAGIC, error);
    if (status != HVD_OK)
        return status;
    type = get_u8(&r);
    zero = get_u16(&r);
    frame.stream = get_u64(&r);
    frame.length = get_u32(&r);
    frame.left = get_u64(&r);
    frame.epoch = get_u64(&r);
    frame.crc = get_u32(&r);
    if (get_u32(&r) != crc32c(0, head, BULK_CRC_AT))
        return error_set(error, HVD_ERR_CORRUPT, "sent a bulk frame with a wrong head checksum");
    status = check_epoch(frame.epoch, epoch, error);
    if (status != HVD_OK)
        return status;
    if (type < TCP_BULK_FIRST || type > TCP_BULK_ABORT || zero != 0)
        return error_set(error, HVD_ERR_CORRUPT, "sent a bulk frame of unknown type %u", type);
    frame.type = (enum tcp_bulk_type)type;
    if (!is_bulk_length_right(&frame))
        return error_set(error, HVD_ERR_CORRUPT, "sent a bulk frame of %u out of %llu bytes",
                         frame.length, (unsigned long long)frame.left);
    *ret_frame = frame;
    return HVD_OK;
}
