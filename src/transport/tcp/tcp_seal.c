/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_seal.c - sealing and opening the frames of one connection; see tcp_seal.h.
 *
 * A frame that is dropped before its first byte was sent may be sealed again under its number: no
 * peer has seen the first version. Once its first byte was sent, it keeps its number.
 *
 * Thread: token holder.  Invariant: a number is used for one sent frame per key. Start reading at
 * tcp_seal_frame(). */
#include "transport/tcp/tcp_seal.h"

#include <string.h>

#include "base/codec.h"
#include "base/sha256.h"

static struct cipher_ctx *open_direction(const struct cipher *cipher, const char *label,
                                         const uint8_t link_key[32], bool is_sealing)
{
    uint8_t key[CIPHER_KEY_BYTES];
    struct cipher_ctx *ctx = NULL;

    hkdf256(link_key, 32, NULL, 0, label, strlen(label), key, sizeof key);
    ctx = cipher_open(cipher, key, is_sealing);
    bytes_wipe(key, sizeof key);
    return ctx;
}

static void mac_direction(struct hmac256 *ret, const uint8_t link_key[32])
{
    static const char label[] = "horovod tcp 2: hmac-sha256";
    uint8_t key[SHA256_BYTES];

    hkdf256(link_key, 32, NULL, 0, label, sizeof label - 1, key, sizeof key);
    hmac256_init(ret, key, sizeof key);
    bytes_wipe(key, sizeof key);
}

hvd_status_t tcp_seal_begin(struct tcp_seal *seal, const struct cipher *cipher,
                            enum tcp_security security, const uint8_t send_key[32],
                            const uint8_t recv_key[32])
{
    const bool is_tls = security == TCP_SECURITY_TLS;
    const char *label = is_tls ? "horovod tcp 1: aes-256-gcm" : "horovod tcp 1: aes-256-gmac";

    memset(seal, 0, sizeof *seal);
    if (security == TCP_SECURITY_OFF)
        return HVD_OK;
    if (security == TCP_SECURITY_AUTH) {
        mac_direction(&seal->send_mac, send_key);
        mac_direction(&seal->recv_mac, recv_key);
        return HVD_OK;
    }
    seal->cipher = cipher;
    seal->is_encrypting = is_tls;
    seal->send = open_direction(cipher, label, send_key, true);
    seal->recv = open_direction(cipher, label, recv_key, false);
    if (seal->send != NULL && seal->recv != NULL)
        return HVD_OK;
    tcp_seal_end(seal);
    return HVD_ERR_NO_MEMORY;
}

void tcp_seal_end(struct tcp_seal *seal)
{
    if (seal == NULL)
        return;
    if (seal->cipher != NULL) {
        cipher_close(seal->cipher, seal->send);
        cipher_close(seal->cipher, seal->recv);
    }
    bytes_wipe(seal, sizeof *seal);
}

static void nonce_of(uint64_t number, uint8_t ret_nonce[CIPHER_NONCE_BYTES])
{
    struct writer w;

    writer_init(&w, ret_nonce, CIPHER_NONCE_BYTES);
    put_u32(&w, 0);
    put_u64(&w, number);
}

static bool mac_frame(const struct tcp_seal *seal, const uint8_t *head, size_t head_bytes,
                      const uint8_t *payload, size_t n, uint8_t ret_tag[TCP_TAG_BYTES])
{
    struct hmac256 mac = seal->send_mac;
    uint8_t whole[SHA256_BYTES];

    hmac256_update(&mac, head, head_bytes);
    hmac256_update(&mac, payload, n);
    hmac256_final(&mac, whole);
    memcpy(ret_tag, whole, TCP_TAG_BYTES);
    return true;
}

bool tcp_seal_frame(struct tcp_seal *seal, const uint8_t *head, size_t head_bytes,
                    const uint8_t *payload, size_t n, uint8_t *ret_payload,
                    uint8_t ret_tag[TCP_TAG_BYTES])
{
    const struct cipher *cipher = seal->cipher;
    uint8_t nonce[CIPHER_NONCE_BYTES];
    bool is_right = false;

    if (cipher == NULL)
        return mac_frame(seal, head, head_bytes, payload, n, ret_tag);
    nonce_of(seal->sent, nonce);
    is_right = cipher_begin(cipher, seal->send, nonce) &&
               cipher_header(cipher, seal->send, head, head_bytes);
    if (is_right && seal->is_encrypting)
        is_right = cipher_update(cipher, seal->send, payload, n, ret_payload);
    else if (is_right)
        is_right = cipher_header(cipher, seal->send, payload, n);
    return is_right && cipher_end_seal(cipher, seal->send, ret_tag);
}

void tcp_open_begin(struct tcp_seal *seal, const uint8_t *head, size_t head_bytes)
{
    uint8_t nonce[CIPHER_NONCE_BYTES];

    if (seal->cipher == NULL) {
        seal->opening = seal->recv_mac;
        hmac256_update(&seal->opening, head, head_bytes);
        return;
    }
    nonce_of(seal->received, nonce);
    seal->is_broken = !cipher_begin(seal->cipher, seal->recv, nonce) ||
                      !cipher_header(seal->cipher, seal->recv, head, head_bytes);
}

void tcp_open_update(struct tcp_seal *seal, uint8_t *bytes, size_t n)
{
    bool is_right = !seal->is_broken;

    if (seal->cipher == NULL) {
        hmac256_update(&seal->opening, bytes, n);
        return;
    }
    if (is_right && seal->is_encrypting)
        is_right = cipher_update(seal->cipher, seal->recv, bytes, n, bytes);
    else if (is_right)
        is_right = cipher_header(seal->cipher, seal->recv, bytes, n);
    seal->is_broken = !is_right;
}

bool tcp_open_end(struct tcp_seal *seal, const uint8_t tag[TCP_TAG_BYTES])
{
    uint8_t whole[SHA256_BYTES];

    if (seal->cipher == NULL) {
        hmac256_final(&seal->opening, whole);
        if (!bytes_equal(whole, tag, TCP_TAG_BYTES))
            return false;
    } else if (seal->is_broken || !cipher_end_unseal(seal->cipher, seal->recv, tag)) {
        return false;
    }
    seal->received++;
    return true;
}
