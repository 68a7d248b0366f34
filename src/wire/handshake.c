/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - mutual challenge and response; see handshake.h for the promise.
 *
 *     dialer                                     listener
 *     HELLO  fields, nonce, mac        ------->  refuses silently without a right mac
 *            right mac, peer, epoch?   <-------  HELLO  fields, nonce, mac over both hellos
 *     PROOF  mac over both hellos      ------->  proven
 *
 * A message is 32 bytes of fields, a nonce of 32, 32 of zero, a MAC of 32. Only the first message
 * can be sent again by a stranger who recorded it; the answer then depends on a fresh nonce, and
 * the proof for it cannot be made without the key. A listener of another epoch still answers, so
 * that the dialer learns why, and then gives up.
 *
 * Thread: the link's owner.  Invariant: link keys exist only in state DONE.  Start at
 * handshake_step(). */
#include "wire/handshake.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/codec.h"
#include "base/sha256.h"
#include "wire/stream.h"

#define HELLO_MAGIC   0x48445648u /* "HVDH" */
#define MAC_AT        96          /* everything before it is under the MAC */
#define RESERVED_SIZE 32

enum { STATE_SEND_HELLO, STATE_AWAIT_HELLO, STATE_SEND_PROOF, STATE_AWAIT_PROOF, STATE_DONE };
enum { STATE_REFUSE_STALE = 16, STATE_FAILED };

enum message_type { MESSAGE_HELLO_DIALER = 1, MESSAGE_HELLO_LISTENER = 2, MESSAGE_PROOF = 3 };

struct hello {
    uint32_t magic;
    uint8_t version, type, purpose, reserved;
    uint64_t epoch;
    int32_t self_rank, peer_rank;
    uint32_t word;
    uint32_t padding;
};

static const char *label_of(enum message_type type)
{
    switch (type) {
    case MESSAGE_HELLO_DIALER: return "horovod handshake 1: dialer hello";
    case MESSAGE_HELLO_LISTENER: return "horovod handshake 1: listener hello";
    case MESSAGE_PROOF: return "horovod handshake 1: dialer proof";
    }
    return "";
}

static void message_mac(const uint8_t key[32], enum message_type type, const uint8_t before[32],
                        const uint8_t *message, uint8_t ret_mac[SHA256_BYTES])
{
    struct hmac256 hmac;
    const char *label = label_of(type);
    hmac256_init(&hmac, key, 32);
    hmac256_update(&hmac, label, strlen(label) + 1);
    hmac256_update(&hmac, before, 32);
    hmac256_update(&hmac, message, MAC_AT);
    hmac256_final(&hmac, ret_mac);
    bytes_wipe(&hmac, sizeof hmac);
}

/* The transcript grows by one whole hello, MAC included; in the end it is a hash of both. */
static void transcript_add(struct handshake *h, const uint8_t *message)
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, h->transcript, sizeof h->transcript);
    sha256_update(&sha, message, HANDSHAKE_BYTES);
    sha256_final(&sha, h->transcript);
}

static void message_write(struct handshake *h, enum message_type type)
{
    static const uint8_t zero[32] = {0};
    struct writer w;
    bool is_proof = type == MESSAGE_PROOF;
    writer_init(&w, h->out, sizeof h->out);
    put_u32(&w, HELLO_MAGIC);
    put_u8(&w, HANDSHAKE_VERSION);
    put_u8(&w, (uint8_t)type);
    put_u8(&w, (uint8_t)h->purpose);
    put_u8(&w, 0);
    put_u64(&w, h->epoch);
    put_u32(&w, (uint32_t)h->self_rank);
    put_u32(&w, (uint32_t)h->peer_rank);
    put_u32(&w, h->word);
    put_u32(&w, 0);
    put_bytes(&w, is_proof ? zero : h->nonce, 32);
    put_bytes(&w, zero, RESERVED_SIZE);
    message_mac(h->key, type, h->transcript, h->out, h->out + MAC_AT);
    if (!is_proof)
        transcript_add(h, h->out);
    h->out_size = HANDSHAKE_BYTES;
    h->out_done = 0;
}

hvd_status_t handshake_begin(struct handshake *h, const struct os *os,
                             enum handshake_purpose purpose, bool is_dialer, const uint8_t key[32],
                             uint64_t epoch, int32_t self_rank, int32_t peer_rank, uint32_t word)
{
    memset(h, 0, sizeof *h);
    h->state = STATE_FAILED;
    if (os->random(os->ctx, h->nonce, sizeof h->nonce) < 0)
        return HVD_ERR_OS;
    memcpy(h->key, key, sizeof h->key);
    h->purpose = purpose;
    h->is_dialer = is_dialer;
    h->epoch = epoch;
    h->self_rank = self_rank;
    h->peer_rank = peer_rank;
    h->word = word;
    h->state = is_dialer ? STATE_SEND_HELLO : STATE_AWAIT_HELLO;
    if (is_dialer)
        message_write(h, MESSAGE_HELLO_DIALER);
    return HVD_OK;
}

bool handshake_wants_write(const struct handshake *h)
{
    return h->out_done < h->out_size;
}

bool handshake_is_hello_verified(const struct handshake *h)
{
    return !h->is_dialer && h->state != STATE_AWAIT_HELLO && h->state != STATE_FAILED;
}

bool handshake_is_idle(const struct handshake *h)
{
    return h->in_done == 0;
}

bool handshake_is_same_hello(const struct handshake *a, const struct handshake *b)
{
    return handshake_is_hello_verified(a) && handshake_is_hello_verified(b) &&
           memcmp(a->peer_nonce, b->peer_nonce, sizeof a->peer_nonce) == 0;
}

void handshake_end(struct handshake *h)
{
    if (h == NULL)
        return;
    bytes_wipe(h, sizeof *h);
    h->state = STATE_FAILED;
}

static hvd_status_t fail_io(int neg_errno, struct error *error)
{
    if (neg_errno == -ECONNRESET || neg_errno == -EPIPE)
        return error_set(error, HVD_ERR_LINK,
                         "the peer closed the connection during the handshake (another job's key, "
                         "or not a Horovod process)");
    return error_set(error, HVD_ERR_LINK, "connection failed during the handshake: %s",
                     strerror(-neg_errno));
}

/* HVD_OK: all sent. */
static hvd_status_t flush(struct handshake *h, const struct os *os, int fd, struct error *error)
{
    int rc = stream_send(os, fd, h->out, h->out_size, &h->out_done);
    if (rc != 0)
        return rc == -EAGAIN ? HVD_IN_PROGRESS : fail_io(rc, error);
    return HVD_OK;
}

/* HVD_OK: one whole message is in h->in. */
static hvd_status_t fill(struct handshake *h, const struct os *os, int fd, struct error *error)
{
    int rc = stream_recv(os, fd, h->in, HANDSHAKE_BYTES, &h->in_done);
    if (rc != 0)
        return rc == -EAGAIN ? HVD_IN_PROGRESS : fail_io(rc, error);
    h->in_done = 0;
    return HVD_OK;
}

static void hello_read(const uint8_t *message, struct hello *ret, uint8_t ret_nonce[32])
{
    struct reader r;
    reader_init(&r, message, HANDSHAKE_BYTES);
    ret->magic = get_u32(&r);
    ret->version = get_u8(&r);
    ret->type = get_u8(&r);
    ret->purpose = get_u8(&r);
    ret->reserved = get_u8(&r);
    ret->epoch = get_u64(&r);
    ret->self_rank = (int32_t)get_u32(&r);
    ret->peer_rank = (int32_t)get_u32(&r);
    ret->word = get_u32(&r);
    ret->padding = get_u32(&r);
    get_bytes(&r, ret_nonce, 32);
}

/* Magic and version come before the MAC on purpose: they only choose the words of the refusal. */
static hvd_status_t message_verify(const struct handshake *h, enum message_type type,
                                   struct error *error)
{
    uint8_t mac[SHA256_BYTES];
    struct reader r;
    reader_init(&r, h->in, HANDSHAKE_BYTES);
    if (get_u32(&r) != HELLO_MAGIC)
        return error_set(error, HVD_ERR_AUTH, "the peer does not speak Horovod's handshake");
    uint8_t version = get_u8(&r);
    if (version != HANDSHAKE_VERSION)
        return error_set(error, HVD_ERR_AUTH, "the peer speaks handshake version %u, we speak %u",
                         version, HANDSHAKE_VERSION);
    message_mac(h->key, type, h->transcript, h->in, mac);
    if (!bytes_equal(mac, h->in + MAC_AT, sizeof mac))
        return error_set(error, HVD_ERR_AUTH,
                         "the peer could not prove the job key (other job, or a forged, repeated "
                         "or reflected message)");
    if (get_u8(&r) != (uint8_t)type)
        return error_set(error, HVD_ERR_AUTH, "handshake message out of order");
    return HVD_OK;
}

static hvd_status_t hello_check(const struct handshake *h, const struct hello *peer,
                                struct error *error)
{
    if (peer->purpose != (uint8_t)h->purpose)
        return error_set(error, HVD_ERR_AUTH, "the peer wants a link of kind %u, this is kind %u",
                         peer->purpose, (unsigned)h->purpose);
    if (h->peer_rank != HANDSHAKE_ANY_RANK && peer->self_rank != h->peer_rank)
        return error_set(error, HVD_ERR_AUTH, "expected rank %d, rank %d answered", h->peer_rank,
                         peer->self_rank);
    if (peer->peer_rank != HANDSHAKE_ANY_RANK && peer->peer_rank != h->self_rank)
        return error_set(error, HVD_ERR_AUTH, "rank %d looked for rank %d, this is rank %d",
                         peer->self_rank, peer->peer_rank, h->self_rank);
    return HVD_OK;
}

static bool is_same_epoch(const struct handshake *h)
{
    return h->epoch == h->peer_epoch || h->epoch == HANDSHAKE_ANY_EPOCH ||
           h->peer_epoch == HANDSHAKE_ANY_EPOCH;
}

static hvd_status_t fail_stale(const struct handshake *h, struct error *error)
{
    return error_set(error, HVD_ERR_STALE, "rank %d is in epoch %llu, this is epoch %llu",
                     h->peer_rank, (unsigned long long)h->peer_epoch, (unsigned long long)h->epoch);
}

/* Verifies the peer's hello; what it says becomes ours only when all of it is right. */
static hvd_status_t hello_take(struct handshake *h, enum message_type type, struct error *error)
{
    struct hello peer;
    uint8_t peer_nonce[32];
    hvd_status_t status = message_verify(h, type, error);
    if (status != HVD_OK)
        return status;
    hello_read(h->in, &peer, peer_nonce);
    status = hello_check(h, &peer, error);
    if (status != HVD_OK)
        return status;
    transcript_add(h, h->in);
    memcpy(h->peer_nonce, peer_nonce, sizeof h->peer_nonce);
    h->peer_rank = peer.self_rank;
    h->peer_word = peer.word;
    h->peer_epoch = peer.epoch;
    return HVD_OK;
}

static void finish(struct handshake *h)
{
    static const char to_listener[] = "horovod link 1: dialer to listener";
    static const char to_dialer[] = "horovod link 1: listener to dialer";
    uint8_t *forward = h->is_dialer ? h->send_key : h->recv_key;
    uint8_t *backward = h->is_dialer ? h->recv_key : h->send_key;
    hkdf256(h->key, 32, h->transcript, 32, to_listener, sizeof to_listener - 1, forward, 32);
    hkdf256(h->key, 32, h->transcript, 32, to_dialer, sizeof to_dialer - 1, backward, 32);
    h->state = STATE_DONE;
}

static hvd_status_t on_message(struct handshake *h, struct error *error)
{
    hvd_status_t status;
    if (h->state == STATE_AWAIT_PROOF) {
        status = message_verify(h, MESSAGE_PROOF, error);
        if (status == HVD_OK)
            finish(h);
        return status;
    }
    status = hello_take(h, h->is_dialer ? MESSAGE_HELLO_LISTENER : MESSAGE_HELLO_DIALER, error);
    if (status != HVD_OK)
        return status;
    if (h->is_dialer) {
        if (!is_same_epoch(h))
            return fail_stale(h, error);
        message_write(h, MESSAGE_PROOF);
        h->state = STATE_SEND_PROOF;
        return HVD_OK;
    }
    message_write(h, MESSAGE_HELLO_LISTENER);
    h->state = is_same_epoch(h) ? STATE_SEND_HELLO : STATE_REFUSE_STALE;
    return HVD_OK;
}

/* The message in h->out has left. */
static hvd_status_t on_flushed(struct handshake *h, struct error *error)
{
    if (h->state == STATE_REFUSE_STALE)
        return fail_stale(h, error);
    if (h->state == STATE_SEND_PROOF)
        finish(h);
    else
        h->state = h->is_dialer ? STATE_AWAIT_HELLO : STATE_AWAIT_PROOF;
    return HVD_OK;
}

static bool is_sending(const struct handshake *h)
{
    return h->state == STATE_SEND_HELLO || h->state == STATE_SEND_PROOF ||
           h->state == STATE_REFUSE_STALE;
}

hvd_status_t handshake_step(struct handshake *h, const struct os *os, int fd, struct error *error)
{
    if (h->state == STATE_FAILED)
        return error_set(error, HVD_ERR_AUTH, "the handshake on this link has already failed");
    while (h->state != STATE_DONE) {
        bool sends = is_sending(h);
        hvd_status_t status = sends ? flush(h, os, fd, error) : fill(h, os, fd, error);
        if (status == HVD_IN_PROGRESS)
            return status;
        if (status == HVD_OK)
            status = sends ? on_flushed(h, error) : on_message(h, error);
        if (status != HVD_OK) {
            h->state = STATE_FAILED;
            return status;
        }
    }
    return HVD_OK;
}
