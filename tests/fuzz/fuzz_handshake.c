/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_handshake.c - a handshake fed with arbitrary bytes in arbitrary pieces. The first byte picks
 * the side, and whether the first message gets a right MAC, so that the code after the MAC check is
 * reached too. A peer without the key is never accepted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/sha256.h"
#include "feed.h"
#include "wire/handshake.h"

#define MAC_AT 96

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static const uint8_t KEY[32] = {7, 7, 7};

static int64_t feed_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    struct feed *f = ctx;
    (void)fd;
    if (f->calls++ % 4 == 3)
        return f->calls % 8 == 0 ? -EAGAIN : -EINTR;
    return feed_take(f, ret_bytes, f->calls % 5 == 0 ? 1 : n);
}

static int64_t feed_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    (void)ctx;
    (void)fd;
    (void)count;
    return (int64_t)iov[0].iov_len;
}

static int feed_random(void *ctx, void *ret_bytes, size_t n)
{
    (void)ctx;
    memset(ret_bytes, 0x5a, n);
    return 0;
}

static void mac_correct(const struct handshake *h, uint8_t *message)
{
    static const char dialer[] = "horovod handshake 1: dialer hello";
    static const char listener[] = "horovod handshake 1: listener hello";
    struct hmac256 hmac;
    hmac256_init(&hmac, KEY, sizeof KEY);
    if (h->is_dialer)
        hmac256_update(&hmac, listener, sizeof listener);
    else
        hmac256_update(&hmac, dialer, sizeof dialer);
    hmac256_update(&hmac, h->transcript, sizeof h->transcript);
    hmac256_update(&hmac, message, MAC_AT);
    hmac256_final(&hmac, message + MAC_AT);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    uint8_t copy[1024];
    struct handshake h;
    if (size < 1 || size > sizeof copy)
        return 0;
    bool is_dialer = (input[0] & 1) != 0, is_corrected = (input[0] & 2) != 0;
    memcpy(copy, input + 1, size - 1);
    struct feed feed = {.bytes = copy, .size = size - 1};
    struct os os = {.ctx = &feed, .recv = feed_recv, .send = feed_send, .random = feed_random};
    handshake_begin(&h, &os, HANDSHAKE_TCP, is_dialer, KEY, 3, 0, (input[0] & 4) ? 1 : -1, 9);
    if (is_corrected && feed.size >= HANDSHAKE_BYTES)
        mac_correct(&h, copy);
    hvd_status_t status = HVD_IN_PROGRESS;
    for (int i = 0; i < 5000 && status == HVD_IN_PROGRESS; i++) {
        struct error error = {0};
        status = handshake_step(&h, &os, 0, &error);
        if (status < 0 && error.text[0] == '\0')
            abort(); /* every refusal says why */
    }
    /* a corrected hello convinces a dialer, whose peer then knows the key; nothing else may pass */
    if (status == HVD_OK && !(is_dialer && is_corrected))
        abort();
    handshake_end(&h);
    return 0;
}
