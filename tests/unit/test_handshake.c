/* SPDX-License-Identifier: Apache-2.0 */
/* test_handshake.c - the handshake over socket pairs: right key, wrong key, recorded bytes sent
 * again, reflection, truncation, other epochs and ranks, and one byte at a time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"
#include "wire/handshake.h"

static const uint8_t KEY[32] = {1, 2, 3, 4, 5, 6, 7, 8};
static const uint8_t OTHER_KEY[32] = {9, 2, 3, 4, 5, 6, 7, 8};

struct pair {
    const struct os *os;
    struct handshake dialer, listener;
    hvd_status_t dialer_status, listener_status;
    struct error dialer_error, listener_error;
    int fds[2]; /* dialer, listener */
};

static void pair_begin(struct pair *p)
{
    memset(p, 0, sizeof *p);
    p->os = os_host();
    p->dialer_status = p->listener_status = HVD_IN_PROGRESS;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fds), 0);
    assert_int_equal(handshake_begin(&p->dialer, p->os, HANDSHAKE_TCP, true, KEY, 7, 1, 0, 11),
                     HVD_OK);
    assert_int_equal(handshake_begin(&p->listener, p->os, HANDSHAKE_TCP, false, KEY, 7, 0,
                                     HANDSHAKE_ANY_RANK, 22),
                     HVD_OK);
}

static void redo_dialer(struct pair *p, enum handshake_purpose purpose, const uint8_t *key,
                        uint64_t epoch, int32_t self, int32_t peer)
{
    handshake_end(&p->dialer);
    assert_int_equal(handshake_begin(&p->dialer, p->os, purpose, true, key, epoch, self, peer, 11),
                     HVD_OK);
}

/* Steps both sides; a side that fails closes its socket, as every caller does. */
static void pair_run(struct pair *p)
{
    for (int i = 0; i < 1000; i++) {
        if (p->dialer_status == HVD_IN_PROGRESS) {
            p->dialer_status = handshake_step(&p->dialer, p->os, p->fds[0], &p->dialer_error);
            if (p->dialer_status < 0)
                shutdown(p->fds[0], SHUT_RDWR);
        }
        if (p->listener_status == HVD_IN_PROGRESS) {
            p->listener_status = handshake_step(&p->listener, p->os, p->fds[1], &p->listener_error);
            if (p->listener_status < 0)
                shutdown(p->fds[1], SHUT_RDWR);
        }
        if (p->dialer_status != HVD_IN_PROGRESS && p->listener_status != HVD_IN_PROGRESS)
            return;
    }
}

static void pair_end(struct pair *p)
{
    handshake_end(&p->dialer);
    handshake_end(&p->listener);
    close(p->fds[0]);
    close(p->fds[1]);
}

static void expect_success(struct pair *p)
{
    static const uint8_t zero[32] = {0};
    assert_int_equal(p->dialer_status, HVD_OK);
    assert_int_equal(p->listener_status, HVD_OK);
    assert_memory_equal(p->dialer.send_key, p->listener.recv_key, 32);
    assert_memory_equal(p->dialer.recv_key, p->listener.send_key, 32);
    assert_memory_not_equal(p->dialer.send_key, p->dialer.recv_key, 32);
    assert_memory_not_equal(p->dialer.send_key, zero, 32);
    assert_int_equal(p->dialer.peer_rank, 0);
    assert_int_equal(p->listener.peer_rank, 1);
    assert_int_equal(p->dialer.peer_word, 22);
    assert_int_equal(p->listener.peer_word, 11);
    assert_false(handshake_wants_write(&p->dialer));
    assert_false(handshake_wants_write(&p->listener));
}

static void test_success(void **state)
{
    (void)state;
    struct pair p, q;
    pair_begin(&p);
    assert_true(handshake_wants_write(&p.dialer));
    assert_false(handshake_wants_write(&p.listener));
    pair_run(&p);
    expect_success(&p);
    /* a second link of the same ranks has other keys */
    pair_begin(&q);
    pair_run(&q);
    expect_success(&q);
    assert_memory_not_equal(p.dialer.send_key, q.dialer.send_key, 32);
    pair_end(&p);
    pair_end(&q);
}

static void test_end_wipes(void **state)
{
    (void)state;
    static const uint8_t zero[32] = {0};
    struct pair p;
    pair_begin(&p);
    pair_run(&p);
    struct error error = {0};
    handshake_end(&p.dialer);
    assert_memory_equal(p.dialer.key, zero, 32);
    assert_memory_equal(p.dialer.send_key, zero, 32);
    assert_memory_equal(p.dialer.recv_key, zero, 32);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], &error), HVD_ERR_AUTH);
    handshake_end(NULL);
    pair_end(&p);
}

static void test_nothing_read_behind(void **state)
{
    (void)state;
    struct pair p;
    char text[8];
    pair_begin(&p);
    while (p.dialer_status == HVD_IN_PROGRESS) {
        p.dialer_status = handshake_step(&p.dialer, p.os, p.fds[0], NULL);
        if (p.dialer_status == HVD_OK)
            assert_int_equal(write(p.fds[0], "frame", 5), 5);
        p.listener_status = handshake_step(&p.listener, p.os, p.fds[1], NULL);
    }
    expect_success(&p);
    assert_int_equal(read(p.fds[1], text, sizeof text), 5);
    assert_memory_equal(text, "frame", 5);
    pair_end(&p);
}

static void test_wrong_key(void **state)
{
    (void)state;
    struct pair p;
    pair_begin(&p);
    redo_dialer(&p, HANDSHAKE_TCP, OTHER_KEY, 7, 1, 0);
    pair_run(&p);
    assert_int_equal(p.listener_status, HVD_ERR_AUTH);
    assert_int_equal(p.dialer_status, HVD_ERR_LINK);
    assert_non_null(strstr(p.listener_error.text, "job key"));
    assert_non_null(strstr(p.dialer_error.text, "another job's key"));
    pair_end(&p);
}

/* A listener without the key that answers anyway does not convince the dialer. */
static void test_wrong_key_listener(void **state)
{
    (void)state;
    struct pair p;
    uint8_t answer[HANDSHAKE_BYTES], hello[HANDSHAKE_BYTES];
    pair_begin(&p);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(read(p.fds[1], hello, sizeof hello), sizeof hello);
    memcpy(answer, hello, sizeof answer);
    answer[5] = 2; /* a listener's hello by its type, with a MAC that cannot be right */
    assert_int_equal(write(p.fds[1], answer, sizeof answer), sizeof answer);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], &p.dialer_error), HVD_ERR_AUTH);
    pair_end(&p);
}

static void test_stale_epoch(void **state)
{
    (void)state;
    struct pair p;
    pair_begin(&p);
    redo_dialer(&p, HANDSHAKE_TCP, KEY, 6, 1, 0);
    pair_run(&p);
    assert_int_equal(p.dialer_status, HVD_ERR_STALE);
    assert_int_equal(p.listener_status, HVD_ERR_STALE);
    assert_string_equal(p.dialer_error.text, "rank 0 is in epoch 7, this is epoch 6");
    assert_string_equal(p.listener_error.text, "rank 1 is in epoch 6, this is epoch 7");
    pair_end(&p);
}

static void test_any_epoch(void **state)
{
    (void)state;
    struct pair p;
    pair_begin(&p);
    handshake_end(&p.listener);
    assert_int_equal(handshake_begin(&p.listener, p.os, HANDSHAKE_TCP, false, KEY,
                                     HANDSHAKE_ANY_EPOCH, 0, HANDSHAKE_ANY_RANK, 22),
                     HVD_OK);
    pair_run(&p);
    expect_success(&p);
    pair_end(&p);
}

static void test_wrong_peer(void **state)
{
    (void)state;
    struct pair p;
    pair_begin(&p); /* looks for rank 3 at rank 0's address */
    redo_dialer(&p, HANDSHAKE_TCP, KEY, 7, 1, 3);
    pair_run(&p);
    assert_int_equal(p.listener_status, HVD_ERR_AUTH);
    assert_string_equal(p.listener_error.text, "rank 1 looked for rank 3, this is rank 0");
    pair_end(&p);

    pair_begin(&p); /* a link of another kind */
    redo_dialer(&p, HANDSHAKE_STORE, KEY, 7, 1, 0);
    pair_run(&p);
    assert_int_equal(p.listener_status, HVD_ERR_AUTH);
    pair_end(&p);

    pair_begin(&p); /* the listener waits for rank 2 only */
    p.listener.peer_rank = 2;
    pair_run(&p);
    assert_int_equal(p.listener_status, HVD_ERR_AUTH);
    assert_string_equal(p.listener_error.text, "expected rank 2, rank 1 answered");
    pair_end(&p);
}

static void test_reflection(void **state)
{
    (void)state;
    struct pair p;
    uint8_t bytes[HANDSHAKE_BYTES];
    pair_begin(&p);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(read(p.fds[1], bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(write(p.fds[1], bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], &p.dialer_error), HVD_ERR_AUTH);
    /* and it stays failed */
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], NULL), HVD_ERR_AUTH);
    pair_end(&p);
}

/* Two dialers joined back to back, as a man in the middle could: neither is convinced. */
static void test_two_dialers(void **state)
{
    (void)state;
    struct pair p;
    pair_begin(&p);
    handshake_end(&p.listener);
    assert_int_equal(
        handshake_begin(&p.listener, p.os, HANDSHAKE_TCP, true, KEY, 7, 0, HANDSHAKE_ANY_RANK, 22),
        HVD_OK);
    pair_run(&p);
    assert_true(p.dialer_status < 0);
    assert_true(p.listener_status < 0);
    pair_end(&p);
}

/* Everything a real dialer sent, sent again to the same listener key: refused at the proof. */
static void test_replay(void **state)
{
    (void)state;
    struct pair p, q;
    uint8_t recorded[2 * HANDSHAKE_BYTES];
    pair_begin(&p);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(recv(p.fds[1], recorded, HANDSHAKE_BYTES, MSG_PEEK), HANDSHAKE_BYTES);
    assert_int_equal(handshake_step(&p.listener, p.os, p.fds[1], NULL), HVD_IN_PROGRESS);
    assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], NULL), HVD_OK);
    assert_int_equal(recv(p.fds[1], recorded + HANDSHAKE_BYTES, HANDSHAKE_BYTES, MSG_PEEK),
                     HANDSHAKE_BYTES);
    assert_int_equal(handshake_step(&p.listener, p.os, p.fds[1], NULL), HVD_OK);

    pair_begin(&q);
    assert_int_equal(write(q.fds[0], recorded, sizeof recorded), sizeof recorded);
    assert_int_equal(handshake_step(&q.listener, q.os, q.fds[1], &q.listener_error), HVD_ERR_AUTH);
    pair_end(&p);
    pair_end(&q);
}

static void test_truncated(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < HANDSHAKE_BYTES; cut += 9) {
        struct pair p;
        uint8_t bytes[HANDSHAKE_BYTES];
        pair_begin(&p);
        assert_int_equal(handshake_step(&p.dialer, p.os, p.fds[0], NULL), HVD_IN_PROGRESS);
        assert_int_equal(read(p.fds[1], bytes, sizeof bytes), sizeof bytes);
        assert_int_equal(write(p.fds[0], bytes, cut), cut);
        shutdown(p.fds[0], SHUT_WR);
        /* the socket pair delivers what was written, then the end */
        assert_int_equal(handshake_step(&p.listener, p.os, p.fds[1], &p.listener_error),
                         HVD_ERR_LINK);
        pair_end(&p);
    }
}

/* No single damaged byte of any of the three messages goes unnoticed. */
static void test_every_byte_matters(void **state)
{
    (void)state;
    for (int message = 0; message < 3; message++) {
        for (size_t at = 0; at < HANDSHAKE_BYTES; at++) {
            struct pair p;
            uint8_t bytes[HANDSHAKE_BYTES];
            pair_begin(&p);
            for (int i = 0; i <= message; i++) {
                bool is_from_dialer = i != 1;
                struct handshake *h = is_from_dialer ? &p.dialer : &p.listener;
                int from = p.fds[is_from_dialer ? 0 : 1], to = p.fds[is_from_dialer ? 1 : 0];
                assert_true(handshake_step(h, p.os, from, NULL) >= 0);
                if (i < message)
                    continue;
                assert_int_equal(read(to, bytes, sizeof bytes), sizeof bytes);
                bytes[at] ^= 0x20;
                assert_int_equal(write(from, bytes, sizeof bytes), sizeof bytes);
                h = is_from_dialer ? &p.listener : &p.dialer;
                assert_int_equal(handshake_step(h, p.os, to, NULL), HVD_ERR_AUTH);
            }
            pair_end(&p);
        }
    }
}

/* An os whose sockets move one byte per call and then say "not now". */
struct trickle {
    struct os os;
    const struct os *real;
    unsigned calls[2][64]; /* by direction and descriptor, so that the two sides do not resonate */
};

static int64_t trickle_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    struct trickle *t = ctx;
    struct iovec one = {iov[0].iov_base, 1};
    (void)count;
    unsigned call = t->calls[0][fd & 63]++ % 3;
    if (call != 0)
        return call == 1 ? -EAGAIN : -EINTR;
    return t->real->send(t->real->ctx, fd, &one, 1);
}

static int64_t trickle_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    struct trickle *t = ctx;
    (void)n;
    unsigned call = t->calls[1][fd & 63]++ % 3;
    if (call != 0)
        return call == 1 ? -EAGAIN : -EINTR;
    return t->real->recv(t->real->ctx, fd, ret_bytes, 1);
}

static void test_one_byte_at_a_time(void **state)
{
    (void)state;
    struct pair p;
    struct trickle t = {.os = *os_host(), .real = os_host()};
    pair_begin(&p);
    t.os.ctx = &t;
    t.os.send = trickle_send;
    t.os.recv = trickle_recv;
    p.os = &t.os;
    pair_run(&p);
    expect_success(&p);
    pair_end(&p);
}

static int no_random(void *ctx, void *ret_bytes, size_t n)
{
    (void)ctx;
    (void)ret_bytes;
    (void)n;
    return -EIO;
}

static void test_no_random(void **state)
{
    (void)state;
    struct handshake h;
    struct os os = *os_host();
    os.random = no_random;
    assert_int_equal(handshake_begin(&h, &os, HANDSHAKE_TCP, true, KEY, 0, 0, 1, 0), HVD_ERR_OS);
    assert_int_equal(handshake_step(&h, &os, -1, NULL), HVD_ERR_AUTH);
    handshake_end(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_success),
        cmocka_unit_test(test_end_wipes),
        cmocka_unit_test(test_nothing_read_behind),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_wrong_key_listener),
        cmocka_unit_test(test_stale_epoch),
        cmocka_unit_test(test_any_epoch),
        cmocka_unit_test(test_wrong_peer),
        cmocka_unit_test(test_reflection),
        cmocka_unit_test(test_two_dialers),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_every_byte_matters),
        cmocka_unit_test(test_one_byte_at_a_time),
        cmocka_unit_test(test_no_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
