/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - sealing and opening frames; see frame.h for the layout.
 *
 * The nonce of the cipher is the frame's number in its direction (each direction has a key of its
 * own, made afresh for every link), so none is ever used twice. The receiver counts for itself and
 * takes nothing from the header for it.
 *
 * Thread: the link's owner.  Invariant: after a failed frame_open() the seal opens nothing more in
 * practice, since its sequence stands still; callers close.  Start reading at frame_open(). */
#include "wire/frame.h"

#include <string.h>

#include "base/codec.h"
#include "base/crc32c.h"
#include "base/sha256.h"

#define CRC_AT    20u
#define MAC_AT    24u
#define MAC_BYTES 16u

struct fields {
    uint32_t magic, length, crc;
    uint8_t version, type;
    uint16_t flags;
    uint64_t sequence;
};

static void derive(const uint8_t link_key[32], const char *label, uint8_t ret_key[32])
{
    hkdf256(link_key, 32, NULL, 0, label, strlen(label), ret_key, 32);
}

hvd_status_t seal_begin(struct seal *seal, const struct cipher *cipher, const uint8_t send_key[32],
                        const uint8_t recv_key[32])
{
    memset(seal, 0, sizeof *seal);
    const char *label = cipher ? "horovod frame 1: aes-256-gcm" : "horovod frame 1: hmac-sha256";
    derive(send_key, label, seal->send_key);
    derive(recv_key, label, seal->recv_key);
    if (cipher == NULL)
        return HVD_OK;
    seal->cipher = cipher;
    seal->send_ctx = cipher_open(cipher, seal->send_key, true);
    seal->recv_ctx = cipher_open(cipher, seal->recv_key, false);
    bytes_wipe(seal->send_key, sizeof seal->send_key);
    bytes_wipe(seal->recv_key, sizeof seal->recv_key);
    if (seal->send_ctx != NULL && seal->recv_ctx != NULL)
        return HVD_OK;
    seal_end(seal);
    return HVD_ERR_NO_MEMORY;
}

void seal_end(struct seal *seal)
{
    if (seal == NULL)
        return;
    if (seal->cipher != NULL) {
        cipher_close(seal->cipher, seal->send_ctx);
        cipher_close(seal->cipher, seal->recv_ctx);
    }
    bytes_wipe(seal, sizeof *seal);
}

static void fields_write(uint8_t *ret_header, const struct fields *f)
{
    struct writer w;
    writer_init(&w, ret_header, MAC_AT);
    put_u32(&w, f->magic);
    put_u8(&w, f->version);
    put_u8(&w, f->type);
    put_u16(&w, f->flags);
    put_u32(&w, f->length);
    put_u64(&w, f->sequence);
    put_u32(&w, f->crc);
}

static void fields_read(const uint8_t *header, struct fields *ret)
{
    struct reader r;
    reader_init(&r, header, MAC_AT);
    ret->magic = get_u32(&r);
    ret->version = get_u8(&r);
    ret->type = get_u8(&r);
    ret->flags = get_u16(&r);
    ret->length = get_u32(&r);
    ret->sequence = get_u64(&r);
    ret->crc = get_u32(&r);
}

static void nonce_write(uint64_t sequence, uint8_t ret_nonce[CIPHER_NONCE_BYTES])
{
    struct writer w;
    writer_init(&w, ret_nonce, CIPHER_NONCE_BYTES);
    put_u32(&w, 0); /* the direction is in the key */
    put_u64(&w, sequence);
}

static uint32_t checksum(const uint8_t *header, const uint8_t *payload, size_t n)
{
    return crc32c(crc32c(0, header, CRC_AT), payload, n);
}

static void hmac_cut(const uint8_t key[32], const uint8_t *header, const uint8_t *payload, size_t n,
                     uint8_t ret_mac[MAC_BYTES])
{
    struct hmac256 hmac;
    uint8_t mac[SHA256_BYTES];
    hmac256_init(&hmac, key, 32);
    hmac256_update(&hmac, header, CRC_AT);
    hmac256_update(&hmac, payload, n);
    hmac256_final(&hmac, mac);
    memcpy(ret_mac, mac, MAC_BYTES);
    bytes_wipe(&hmac, sizeof hmac);
}

hvd_status_t frame_seal(struct seal *seal, uint8_t type, uint16_t flags, const void *payload,
                        size_t n, uint8_t *ret_frame)
{
    struct fields f = {.magic = FRAME_MAGIC,
                       .version = FRAME_VERSION,
                       .type = type,
                       .flags = flags,
                       .length = (uint32_t)n,
                       .sequence = seal->send_sequence};
    uint8_t *body = ret_frame + FRAME_HEADER_BYTES, *mac = ret_frame + MAC_AT;
    if (n > FRAME_PAYLOAD_MAX)
        return HVD_ERR_LIMIT;
    if (n > 0)
        memcpy(body, payload, n);
    fields_write(ret_frame, &f);
    if (seal->cipher != NULL) {
        uint8_t nonce[CIPHER_NONCE_BYTES];
        nonce_write(f.sequence, nonce);
        if (!cipher_seal(seal->cipher, seal->send_ctx, nonce, ret_frame, CRC_AT, body, n, mac))
            return HVD_ERR_INTERNAL;
    } else {
        hmac_cut(seal->send_key, ret_frame, body, n, mac);
    }
    f.crc = checksum(ret_frame, body, n);
    fields_write(ret_frame, &f);
    seal->send_sequence++;
    return HVD_OK;
}

hvd_status_t frame_length(const uint8_t header[FRAME_HEADER_BYTES], uint32_t *ret_length,
                          struct error *error)
{
    struct fields f;
    fields_read(header, &f);
    if (f.magic != FRAME_MAGIC || f.version != FRAME_VERSION)
        return error_set(error, HVD_ERR_CORRUPT, "these bytes are no frame of ours");
    if (f.length > FRAME_PAYLOAD_MAX)
        return error_set(error, HVD_ERR_CORRUPT, "a frame announced %u bytes, %u are allowed",
                         f.length, FRAME_PAYLOAD_MAX);
    *ret_length = f.length;
    return HVD_OK;
}

static bool is_authentic(const struct seal *seal, const uint8_t *header, uint8_t *payload, size_t n)
{
    uint8_t mac[MAC_BYTES], nonce[CIPHER_NONCE_BYTES];
    if (seal->cipher != NULL) {
        nonce_write(seal->recv_sequence, nonce);
        return cipher_unseal(seal->cipher, seal->recv_ctx, nonce, header, CRC_AT, payload, n,
                             header + MAC_AT);
    }
    hmac_cut(seal->recv_key, header, payload, n, mac);
    return bytes_equal(mac, header + MAC_AT, MAC_BYTES);
}

hvd_status_t frame_open(struct seal *seal, const uint8_t header[FRAME_HEADER_BYTES],
                        uint8_t *payload, size_t n, uint8_t *ret_type, uint16_t *ret_flags,
                        struct error *error)
{
    struct fields f;
    uint32_t crc = checksum(header, payload, n);
    bool is_right = is_authentic(seal, header, payload, n);
    fields_read(header, &f);
    if (f.crc != crc)
        return error_set(error, HVD_ERR_CORRUPT, "a frame was damaged on the way (checksum)");
    if (!is_right)
        return error_set(error, HVD_ERR_CORRUPT,
                         "a frame is not authentic (forged, repeated or out of order)");
    if (f.sequence != seal->recv_sequence || f.length != n)
        return error_set(error, HVD_ERR_CORRUPT, "frame %llu came where %llu was due",
                         (unsigned long long)f.sequence, (unsigned long long)seal->recv_sequence);
    seal->recv_sequence++;
    *ret_type = f.type;
    *ret_flags = f.flags;
    return HVD_OK;
}
