/* SPDX-License-Identifier: Apache-2.0 */
/* transport_conformance.h - what every transport must do, run against a pair of connected ends.
 *
 * A test file for one transport fills a struct conformance and lists CONFORMANCE_TESTS(&it) in its
 * cmocka array. Both ends are in one process and are driven in turn, so everything is
 * deterministic. Nothing here measures time; a lost message shows as an exceeded number of turns.
 *
 * Start reading at struct conformance. */
#ifndef HVD_TESTS_TRANSPORT_CONFORMANCE_H
#define HVD_TESTS_TRANSPORT_CONFORMANCE_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
/* clang-format on */

#include "transport/transport.h"

#define CONFORMANCE_TURNS 200000

struct conformance_log { /* what one end was told */
    uint8_t *bytes;      /* all messages, one behind the other */
    size_t used, capacity;
    size_t sizes[8192];
    size_t count;
    int downs;
    hvd_status_t down_status;
    int32_t wrong_peer;
};

struct conformance_pair {
    struct transport *end[2];
    int32_t rank[2]; /* of each end */
    int poll_fd[2];
    struct conformance_log log[2];
    struct transport_events events[2]; /* ready to be handed to the transport */
    void *ctx;                         /* the factory's */
};

struct conformance {
    void (*open)(struct conformance_pair *pair);
    void (*close)(struct conformance_pair *pair);
    /* One turn of one end: polls what the transport wants polled, then progress(). */
    bool (*turn)(struct conformance_pair *pair, int end);
    /* The end vanishes as if its process had died; sets pair->end[end] to NULL. */
    void (*crash)(struct conformance_pair *pair, int end);
};

/* --- recording --- */

static inline void conformance_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct conformance_log *log = ctx;
    if (peer != log->wrong_peer)
        log->wrong_peer = INT32_MIN;
    assert_true(log->count < sizeof log->sizes / sizeof log->sizes[0]);
    while (log->used + n > log->capacity) {
        log->capacity = log->capacity == 0 ? 1u << 16 : log->capacity * 2;
        log->bytes = realloc(log->bytes, log->capacity);
        assert_non_null(log->bytes);
    }
    if (n > 0)
        memcpy(log->bytes + log->used, bytes, n);
    log->used += n;
    log->sizes[log->count++] = n;
}

static inline void conformance_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct conformance_log *log = ctx;
    (void)peer;
    assert_non_null(why);
    assert_true(strlen(why) > 0);
    log->downs++;
    log->down_status = status;
}

static inline void conformance_open(const struct conformance *c, struct conformance_pair *pair)
{
    memset(pair, 0, sizeof *pair);
    for (int i = 0; i < 2; i++)
        pair->events[i] = (struct transport_events){
            .ctx = &pair->log[i], .message = conformance_message, .peer_down = conformance_down};
    c->open(pair);
    for (int i = 0; i < 2; i++) {
        assert_non_null(pair->end[i]);
        pair->log[i].wrong_peer = pair->rank[1 - i];
        assert_true(pair->end[i]->ops->reaches(pair->end[i], pair->rank[1 - i]));
    }
}

static inline void conformance_close(const struct conformance *c, struct conformance_pair *pair)
{
    c->close(pair);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(pair->log[i].wrong_peer, INT32_MIN);
        free(pair->log[i].bytes);
    }
}

static inline uint8_t conformance_byte(uint32_t seed, size_t i)
{
    return (uint8_t)((seed * 2654435761u + (uint32_t)i * 40503u) >> 13);
}

static inline void conformance_fill(uint8_t *bytes, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = conformance_byte(seed, i);
}

static inline void conformance_expect(const uint8_t *bytes, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != conformance_byte(seed, i))
            fail_msg("byte %zu of %zu (seed %u) is wrong", i, n, (unsigned)seed);
}

static inline void conformance_send(const struct conformance *c, struct conformance_pair *pair,
                                    int from, const void *bytes, size_t n)
{
    struct transport *t = pair->end[from];
    for (int turn = 0; turn < CONFORMANCE_TURNS; turn++) {
        hvd_status_t status = t->ops->message_send(t, pair->rank[1 - from], bytes, n);
        if (status == HVD_OK)
            return;
        assert_int_equal(status, HVD_AGAIN);
        c->turn(pair, 0);
        c->turn(pair, 1);
    }
    fail_msg("a message was never taken");
}

static inline void conformance_await_messages(const struct conformance *c,
                                              struct conformance_pair *pair, int end, size_t count)
{
    for (int turn = 0; turn < CONFORMANCE_TURNS && pair->log[end].count < count; turn++) {
        c->turn(pair, 0);
        c->turn(pair, 1);
    }
    assert_int_equal(pair->log[end].count, count);
}

static inline void conformance_await_req(const struct conformance *c, struct conformance_pair *pair,
                                         struct transport_req *req, hvd_status_t status)
{
    for (int turn = 0; turn < CONFORMANCE_TURNS && req->status == HVD_IN_PROGRESS; turn++) {
        for (int i = 0; i < 2; i++)
            if (pair->end[i] != NULL)
                c->turn(pair, i);
    }
    assert_int_equal(req->status, status);
}

/* --- the tests --- */

static inline void conformance_order(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    static uint8_t bytes[5000];
    const size_t count = 2000;
    for (size_t i = 0; i < count; i++) {
        for (int from = 0; from < 2; from++) {
            size_t n = (i * 37 + (size_t)from) % sizeof bytes;
            conformance_fill(bytes, n, (uint32_t)(i * 2) + (uint32_t)from);
            conformance_send(c, &pair, from, bytes, n);
        }
    }
    for (int to = 0; to < 2; to++) {
        conformance_await_messages(c, &pair, to, count);
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            size_t n = (i * 37 + (size_t)(1 - to)) % sizeof bytes;
            assert_int_equal(pair.log[to].sizes[i], n);
            conformance_expect(pair.log[to].bytes + at, n, (uint32_t)(i * 2) + (uint32_t)(1 - to));
            at += n;
        }
    }
    uint64_t messages, moved;
    pair.end[0]->ops->counters(pair.end[0], &messages, &moved);
    assert_true(messages >= count);
    assert_true(moved > 0);
    conformance_close(c, &pair);
}

static inline void conformance_size_limit(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    const size_t n = TRANSPORT_MESSAGE_MAX;
    uint8_t *bytes = malloc(n + 1);
    assert_non_null(bytes);
    conformance_fill(bytes, n + 1, 5);
    hvd_status_t status = pair.end[0]->ops->message_send(pair.end[0], pair.rank[1], bytes, n + 1);
    assert_true(status < 0);
    conformance_send(c, &pair, 0, bytes, n);
    conformance_send(c, &pair, 0, bytes, 3);
    conformance_send(c, &pair, 0, bytes, n - 1);
    conformance_send(c, &pair, 0, bytes, 0);
    conformance_await_messages(c, &pair, 1, 4);
    assert_int_equal(pair.log[1].sizes[0], n);
    assert_int_equal(pair.log[1].sizes[1], 3);
    assert_int_equal(pair.log[1].sizes[2], n - 1);
    assert_int_equal(pair.log[1].sizes[3], 0);
    conformance_expect(pair.log[1].bytes, n, 5);
    conformance_expect(pair.log[1].bytes + n, 3, 5);
    conformance_expect(pair.log[1].bytes + n + 3, n - 1, 5);
    free(bytes);
    conformance_close(c, &pair);
}

/* A receiver that does nothing must make the sender wait, and lose nothing. */
static inline void conformance_backpressure(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    static uint8_t bytes[16000];
    size_t sent = 0;
    int refused = 0;
    while (sent < 8000 && refused < 100) {
        conformance_fill(bytes, sizeof bytes, (uint32_t)sent);
        hvd_status_t status =
            pair.end[0]->ops->message_send(pair.end[0], pair.rank[1], bytes, sizeof bytes);
        if (status == HVD_OK) {
            sent++;
        } else {
            assert_int_equal(status, HVD_AGAIN);
            refused++;
            c->turn(&pair, 0);
        }
    }
    assert_int_equal(refused, 100);
    conformance_await_messages(c, &pair, 1, sent);
    for (size_t i = 0; i < sent; i++)
        conformance_expect(pair.log[1].bytes + i * sizeof bytes, sizeof bytes, (uint32_t)i);
    conformance_send(c, &pair, 0, bytes, 1);
    conformance_await_messages(c, &pair, 1, sent + 1);
    conformance_close(c, &pair);
}

static inline void conformance_bulk_sizes(void **state)
{
    const struct conformance *c = *state;
    static const size_t sizes[] = {0,    1,     7,     15,    16,     17,       4095,
                                   4096, 32767, 32768, 65537, 300001, 1u << 20, (1u << 20) + 3,
                                   0,    5};
    struct conformance_pair pair;
    conformance_open(c, &pair);
    const size_t max = (1u << 20) + 3;
    uint8_t *out[2], *in[2];
    for (int i = 0; i < 2; i++) {
        out[i] = malloc(max);
        in[i] = malloc(max);
        assert_non_null(out[i]);
        assert_non_null(in[i]);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct transport_req send[2], recv[2];
        for (int i = 0; i < 2; i++) {
            conformance_fill(out[i], sizes[s], (uint32_t)(s * 2) + (uint32_t)i);
            memset(in[i], 0xee, max);
        }
        for (int i = 0; i < 2; i++) { /* one side sends first, the other receives first */
            struct transport *t = pair.end[i];
            const struct transport_ops *ops = t->ops;
            int32_t to = pair.rank[1 - i];
            if (i == 0)
                assert_int_equal(ops->bulk_send(t, to, 3, out[i], sizes[s], &send[i]), HVD_OK);
            assert_int_equal(ops->bulk_recv(t, to, 3, in[i], sizes[s], &recv[i]), HVD_OK);
            if (i == 1)
                assert_int_equal(ops->bulk_send(t, to, 3, out[i], sizes[s], &send[i]), HVD_OK);
        }
        for (int i = 0; i < 2; i++) {
            conformance_await_req(c, &pair, &send[i], HVD_OK);
            conformance_await_req(c, &pair, &recv[i], HVD_OK);
        }
        for (int i = 0; i < 2; i++) {
            conformance_expect(in[i], sizes[s], (uint32_t)(s * 2) + (uint32_t)(1 - i));
            if (sizes[s] < max)
                assert_int_equal(in[i][sizes[s]], 0xee);
        }
    }
    for (int i = 0; i < 2; i++) {
        free(out[i]);
        free(in[i]);
    }
    conformance_close(c, &pair);
}

/* Many streams, receives posted in another order than sends, several in flight per stream. */
static inline void conformance_streams(void **state)
{
    enum { STREAMS = 24, DEPTH = 4, BYTES = 20011 };
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    static uint8_t out[STREAMS][DEPTH][BYTES], in[STREAMS][DEPTH][BYTES];
    static struct transport_req send[STREAMS][DEPTH], recv[STREAMS][DEPTH];
    struct transport *a = pair.end[0], *b = pair.end[1];
    for (uint32_t s = 0; s < STREAMS; s++) {
        for (uint32_t d = 0; d < DEPTH; d++) {
            size_t n = BYTES - s - d;
            conformance_fill(out[s][d], n, s * 100 + d);
            assert_int_equal(a->ops->bulk_send(a, pair.rank[1], s, out[s][d], n, &send[s][d]),
                             HVD_OK);
        }
        c->turn(&pair, (int)(s & 1));
    }
    for (uint32_t s = STREAMS; s-- > 0;) {
        for (uint32_t d = 0; d < DEPTH; d++) {
            size_t n = BYTES - s - d;
            assert_int_equal(b->ops->bulk_recv(b, pair.rank[0], s, in[s][d], n, &recv[s][d]),
                             HVD_OK);
        }
        c->turn(&pair, (int)(s & 1));
        conformance_send(c, &pair, 0, &s, sizeof s);
    }
    for (uint32_t s = 0; s < STREAMS; s++) {
        for (uint32_t d = 0; d < DEPTH; d++) {
            conformance_await_req(c, &pair, &recv[s][d], HVD_OK);
            conformance_await_req(c, &pair, &send[s][d], HVD_OK);
            conformance_expect(in[s][d], BYTES - s - d, s * 100 + d);
        }
    }
    conformance_await_messages(c, &pair, 1, STREAMS);
    conformance_close(c, &pair);
}

/* A send that nobody receives yet holds up neither other streams nor messages. */
static inline void conformance_unposted(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    const size_t n = 600000;
    uint8_t *out = malloc(n), *in = calloc(1, n), *other = calloc(1, n);
    assert_non_null(out);
    assert_non_null(in);
    assert_non_null(other);
    conformance_fill(out, n, 9);
    struct transport *a = pair.end[0], *b = pair.end[1];
    struct transport_req held, held_recv, send, recv;
    assert_int_equal(a->ops->bulk_send(a, pair.rank[1], 1, out, n, &held), HVD_OK);
    for (uint32_t round = 0; round < 5; round++) {
        memset(in, 0, n);
        assert_int_equal(a->ops->bulk_send(a, pair.rank[1], 2, out, n, &send), HVD_OK);
        assert_int_equal(b->ops->bulk_recv(b, pair.rank[0], 2, in, n, &recv), HVD_OK);
        conformance_await_req(c, &pair, &recv, HVD_OK);
        conformance_await_req(c, &pair, &send, HVD_OK);
        conformance_expect(in, n, 9);
        conformance_send(c, &pair, 0, &round, sizeof round);
        conformance_await_messages(c, &pair, 1, round + 1);
    }
    assert_int_equal(b->ops->bulk_recv(b, pair.rank[0], 1, other, n, &held_recv), HVD_OK);
    conformance_await_req(c, &pair, &held_recv, HVD_OK);
    conformance_await_req(c, &pair, &held, HVD_OK);
    conformance_expect(other, n, 9);
    free(out);
    free(in);
    free(other);
    conformance_close(c, &pair);
}

/* After a cancel the memory is ours again, and the link goes on. */
static inline void conformance_cancel(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    enum { N = 200000 };
    static uint8_t out[N], in[N], fresh[N];
    struct transport *a = pair.end[0], *b = pair.end[1];
    conformance_fill(out, N, 1);
    for (int turns = 0; turns < 4; turns++) {
        uint64_t stream = 50 + (uint64_t)turns;
        struct transport_req send, recv;
        assert_int_equal(b->ops->bulk_recv(b, pair.rank[0], stream, in, N, &recv), HVD_OK);
        for (int i = 0; i < turns; i++) {
            c->turn(&pair, 1);
            c->turn(&pair, 0);
        }
        assert_int_equal(a->ops->bulk_send(a, pair.rank[1], stream, out, N, &send), HVD_OK);
        if (turns >= 2)
            c->turn(&pair, 0); /* a part of it is on its way */
        b->ops->bulk_cancel(b, &recv);
        a->ops->bulk_cancel(a, &send);
        assert_int_not_equal(recv.status, HVD_IN_PROGRESS);
        assert_int_not_equal(send.status, HVD_IN_PROGRESS);
        memset(in, 0xaa, N);
        memset(&recv, 0xaa, sizeof recv);
        assert_int_equal(b->ops->bulk_recv(b, pair.rank[0], 99, fresh, N, &recv), HVD_OK);
        assert_int_equal(a->ops->bulk_send(a, pair.rank[1], 99, out, N, &send), HVD_OK);
        conformance_await_req(c, &pair, &recv, HVD_OK);
        conformance_await_req(c, &pair, &send, HVD_OK);
        conformance_expect(fresh, N, 1);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(in[i], 0xaa);
    }
    assert_int_equal(pair.log[0].downs + pair.log[1].downs, 0);
    conformance_close(c, &pair);
}

static inline void conformance_peer_down(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    static uint8_t bytes[4000000];
    struct transport *a = pair.end[0];
    struct transport_req send, recv, late;
    assert_int_equal(a->ops->bulk_recv(a, pair.rank[1], 1, bytes, sizeof bytes, &recv), HVD_OK);
    assert_int_equal(a->ops->bulk_send(a, pair.rank[1], 2, bytes, sizeof bytes, &send), HVD_OK);
    conformance_send(c, &pair, 1, "last words", 10);
    c->turn(&pair, 1);
    c->crash(&pair, 1);
    for (int turn = 0; turn < CONFORMANCE_TURNS && pair.log[0].downs == 0; turn++)
        c->turn(&pair, 0);
    assert_int_equal(pair.log[0].downs, 1);
    assert_true(pair.log[0].down_status < 0);
    assert_int_equal(pair.log[0].count, 1);
    assert_memory_equal(pair.log[0].bytes, "last words", 10);
    conformance_await_req(c, &pair, &recv, pair.log[0].down_status);
    conformance_await_req(c, &pair, &send, pair.log[0].down_status);
    assert_false(a->ops->reaches(a, pair.rank[1]));
    assert_true(a->ops->message_send(a, pair.rank[1], "x", 1) < 0);
    assert_true(a->ops->bulk_recv(a, pair.rank[1], 4, bytes, 1, &late) < 0);
    assert_true(a->ops->bulk_send(a, pair.rank[1], 4, bytes, 1, &late) < 0);
    for (int turn = 0; turn < 100; turn++)
        c->turn(&pair, 0);
    assert_int_equal(pair.log[0].downs, 1);
    conformance_close(c, &pair);
}

/* Whoever sleeps is woken through its poller by a message, by bulk, and not before. */
static inline void conformance_sleep(void **state)
{
    const struct conformance *c = *state;
    struct conformance_pair pair;
    conformance_open(c, &pair);
    struct transport *a = pair.end[0], *b = pair.end[1];
    const struct os *os = b->os;
    for (uint32_t round = 0; round < 20; round++) {
        bool is_asleep = false;
        for (int turn = 0; turn < CONFORMANCE_TURNS && !is_asleep; turn++) {
            while (c->turn(&pair, 1)) {}
            is_asleep = b->ops->sleep_begin(b);
        }
        assert_true(is_asleep);
        struct os_event event;
        conformance_send(c, &pair, 0, &round, sizeof round);
        c->turn(&pair, 0);
        assert_int_equal(os->poll_wait(os->ctx, pair.poll_fd[1], &event, 1, 10000000000), 1);
        b->ops->sleep_end(b);
        conformance_await_messages(c, &pair, 1, round + 1);
    }
    /* something is there already: no sleep, or a poller that is ready at once */
    conformance_send(c, &pair, 0, "x", 1);
    c->turn(&pair, 0);
    if (b->ops->sleep_begin(b)) {
        struct os_event event;
        assert_int_equal(os->poll_wait(os->ctx, pair.poll_fd[1], &event, 1, 10000000000), 1);
        b->ops->sleep_end(b);
    }
    conformance_await_messages(c, &pair, 1, 21);
    (void)a;
    conformance_close(c, &pair);
}

#define CONFORMANCE_TESTS(c)                                                                       \
    cmocka_unit_test_prestate(conformance_order, (c)),                                             \
        cmocka_unit_test_prestate(conformance_size_limit, (c)),                                    \
        cmocka_unit_test_prestate(conformance_backpressure, (c)),                                  \
        cmocka_unit_test_prestate(conformance_bulk_sizes, (c)),                                    \
        cmocka_unit_test_prestate(conformance_streams, (c)),                                       \
        cmocka_unit_test_prestate(conformance_unposted, (c)),                                      \
        cmocka_unit_test_prestate(conformance_cancel, (c)),                                        \
        cmocka_unit_test_prestate(conformance_peer_down, (c)),                                     \
        cmocka_unit_test_prestate(conformance_sleep, (c))

#endif
