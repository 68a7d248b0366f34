/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_net.c - the simulated network: order, matching, faults, and one run per seed.
 *
 * Start reading at struct world: a few ranks with their logs. */
#include "transport_conformance.h"

#include <stdio.h>

#include "base/os.h"
#include "transport/sim/sim_net.h"

#define RANKS_MAX 512
#define FOREVER   (sim_net_now_ns(w->net) + 1000000000000)

struct rank {
    struct world *world;
    int32_t rank;
    struct transport *t;
    uint32_t next_from[8]; /* next number expected from each of the first ranks */
    uint32_t received, downs, down_from;
    hvd_status_t down_status;
};

struct world {
    struct sim_net *net;
    struct rank ranks[RANKS_MAX];
    uint64_t trace; /* hash over everything that happened and when */
};

static void trace(struct world *w, uint64_t a, uint64_t b)
{
    w->trace = (w->trace ^ a) * 0x100000001b3u;
    w->trace = (w->trace ^ b) * 0x100000001b3u;
    w->trace = (w->trace ^ (uint64_t)sim_net_now_ns(w->net)) * 0x100000001b3u;
}

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct rank *r = ctx;
    uint32_t number = 0;

    assert_true(n >= sizeof number);
    memcpy(&number, bytes, sizeof number);
    if (peer < 8) {
        assert_int_equal(number, r->next_from[peer]);
        r->next_from[peer]++;
    }
    r->received++;
    trace(r->world, (uint64_t)r->rank << 32 | (uint32_t)peer, number);
}

static void on_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct rank *r = ctx;

    assert_non_null(why);
    r->downs++;
    r->down_from = (uint32_t)peer;
    r->down_status = status;
    trace(r->world, (uint64_t)r->rank, (uint64_t)peer + 1000000);
}

static struct world *world_new(const struct sim_net_options *options)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->net = sim_net_create(os_host(), options);
    assert_non_null(w->net);
    for (int32_t i = 0; i < options->ranks; i++) {
        struct transport_events events = {
            .ctx = &w->ranks[i], .message = on_message, .peer_down = on_down};

        w->ranks[i].world = w;
        w->ranks[i].rank = i;
        w->ranks[i].t = sim_net_open(w->net, i, &events);
        assert_non_null(w->ranks[i].t);
    }
    return w;
}

static void world_free(struct world *w)
{
    sim_net_destroy(w->net);
    free(w);
}

static void run(struct world *w, int64_t limit_ns)
{
    int32_t rank = 0;

    do {
        while ((rank = sim_net_due_rank(w->net)) >= 0) {
            struct transport *t = w->ranks[rank].t;

            assert_true(sim_net_is_due(w->net, rank));
            assert_true(t->ops->progress(t, sim_net_now_ns(w->net)));
        }
    } while (sim_net_advance(w->net, limit_ns));
}

static hvd_status_t say(struct world *w, int32_t from, int32_t to, uint32_t number)
{
    struct transport *t = w->ranks[from].t;

    return t->ops->message_send(t, to, &number, sizeof number);
}

static hvd_status_t post_send(struct world *w, int32_t from, int32_t to, uint64_t stream,
                              const void *bytes, size_t n, struct transport_req *req)
{
    return w->ranks[from].t->ops->bulk_send(w->ranks[from].t, to, stream, bytes, n, req);
}

static hvd_status_t post_recv(struct world *w, int32_t to, int32_t from, uint64_t stream,
                              void *bytes, size_t n, struct transport_req *req)
{
    return w->ranks[to].t->ops->bulk_recv(w->ranks[to].t, from, stream, bytes, n, req);
}

static struct sim_net_options small(uint64_t seed, int32_t ranks)
{
    return (struct sim_net_options){.seed = seed,
                                    .ranks = ranks,
                                    .delay_min_ns = 1000,
                                    .delay_max_ns = 50000,
                                    .bytes_per_us = 1000};
}

static void test_messages_keep_order_per_peer(void **state)
{
    const struct sim_net_options options = small(1, 4);
    struct world *w = world_new(&options);

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        for (int32_t from = 0; from < 4; from++) {
            for (int32_t to = 0; to < 4; to++) {
                if (from != to)
                    assert_int_equal(say(w, from, to, i), HVD_OK);
            }
        }
    }
    run(w, FOREVER);
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(w->ranks[i].received, 600);
    assert_int_equal(sim_net_messages(w->net), 2400);
    world_free(w);
}

static void test_time_stops_at_the_limit(void **state)
{
    struct sim_net_options options = small(2, 2);
    struct world *w = NULL;

    (void)state;
    options.delay_min_ns = options.delay_max_ns = 500;
    w = world_new(&options);
    assert_int_equal(say(w, 0, 1, 0), HVD_OK);
    assert_false(sim_net_advance(w->net, 499));
    assert_int_equal(sim_net_now_ns(w->net), 499);
    assert_false(sim_net_is_due(w->net, 1));
    assert_true(sim_net_advance(w->net, 10000));
    assert_int_equal(sim_net_now_ns(w->net), 500);
    assert_true(sim_net_is_due(w->net, 1));
    assert_false(sim_net_is_due(w->net, 0));
    assert_int_equal(w->ranks[1].received, 0);
    run(w, FOREVER);
    assert_int_equal(w->ranks[1].received, 1);
    world_free(w);
}

static void fill(uint8_t *bytes, size_t n, uint32_t salt)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * 31 + salt + (i >> 8));
}

static void test_bulk_sizes_and_streams(void **state)
{
    static const size_t sizes[] = {0, 1, 3, 4097, 65536, 65537, 1000001};
    const struct sim_net_options options = small(3, 2);
    struct world *w = world_new(&options);
    struct transport_req sends[7][2], recvs[7][2];
    uint8_t *in[7][2], *out[7][2];

    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        for (uint32_t d = 0; d < 2; d++) {
            out[i][d] = malloc(sizes[i] + 1);
            in[i][d] = calloc(1, sizes[i] + 1);
            fill(out[i][d], sizes[i], i * 2 + d);
        }
    }
    for (uint32_t i = 0; i < 7; i++) { /* sends in one order, receives in the other */
        for (uint32_t d = 0; d < 2; d++)
            assert_int_equal(
                post_send(w, (int32_t)d, 1 - (int32_t)d, i, out[i][d], sizes[i], &sends[i][d]),
                HVD_OK);
    }
    run(w, 1000000);
    for (uint32_t i = 7; i-- > 0;) {
        for (uint32_t d = 0; d < 2; d++)
            assert_int_equal(
                post_recv(w, 1 - (int32_t)d, (int32_t)d, i, in[i][d], sizes[i], &recvs[i][d]),
                HVD_OK);
    }
    run(w, FOREVER);
    for (uint32_t i = 0; i < 7; i++) {
        for (uint32_t d = 0; d < 2; d++) {
            assert_int_equal(sends[i][d].status, HVD_OK);
            assert_int_equal(recvs[i][d].status, HVD_OK);
            assert_memory_equal(in[i][d], out[i][d], sizes[i] + 0);
            free(in[i][d]);
            free(out[i][d]);
        }
    }
    world_free(w);
}

static void test_bulk_order_within_a_stream(void **state)
{
    const struct sim_net_options options = small(4, 2);
    struct world *w = world_new(&options);
    struct transport_req sends[50], recvs[50];
    uint32_t out[50], in[50];

    (void)state;
    for (uint32_t i = 0; i < 50; i++) {
        out[i] = i;
        if (i % 2 == 0)
            assert_int_equal(post_recv(w, 1, 0, 7, &in[i], 4, &recvs[i]), HVD_OK);
        assert_int_equal(post_send(w, 0, 1, 7, &out[i], 4, &sends[i]), HVD_OK);
        if (i % 2 == 1)
            assert_int_equal(post_recv(w, 1, 0, 7, &in[i], 4, &recvs[i]), HVD_OK);
    }
    run(w, FOREVER);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(in[i], i);
        assert_int_equal(sends[i].status, HVD_OK);
        assert_int_equal(recvs[i].status, HVD_OK);
    }
    world_free(w);
}

static void test_bulk_waits_for_its_receive(void **state)
{
    struct sim_net_options options = small(5, 2);
    struct world *w = NULL;
    uint8_t *big = calloc(2, 100000);
    struct transport_req send, recv;

    (void)state;
    options.delay_min_ns = options.delay_max_ns = 10;
    w = world_new(&options);
    assert_int_equal(post_send(w, 0, 1, 1, big, 100000, &send), HVD_OK);
    run(w, 1000000000);
    assert_int_equal(send.status, HVD_IN_PROGRESS);
    assert_int_equal(post_recv(w, 1, 0, 1, big + 100000, 100000, &recv), HVD_OK);
    run(w, sim_net_now_ns(w->net) + 100009); /* 100000 bytes at 1000 per us take 100 us */
    assert_int_equal(recv.status, HVD_IN_PROGRESS);
    run(w, FOREVER);
    assert_int_equal(recv.status, HVD_OK);
    assert_int_equal(send.status, HVD_OK);
    world_free(w);
    free(big);
}

static void test_cancel(void **state)
{
    const struct sim_net_options options = small(6, 2);

    (void)state;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct sim_net_options o = options;
        struct world *w = NULL;
        struct transport_req send[2], recv[2];
        uint8_t *out = malloc(100), *in = malloc(100), last_out = 9, last_in = 0;

        o.seed = seed;
        w = world_new(&o);
        memset(out, 1, 100);
        /* both ends posted, both given up; then the memory is gone (ASan watches) */
        assert_int_equal(post_send(w, 0, 1, 1, out, 100, &send[0]), HVD_OK);
        assert_int_equal(post_recv(w, 1, 0, 1, in, 100, &recv[0]), HVD_OK);
        if (seed % 2 == 0)
            run(w, 20000);
        w->ranks[0].t->ops->bulk_cancel(w->ranks[0].t, &send[0]);
        w->ranks[1].t->ops->bulk_cancel(w->ranks[1].t, &recv[0]);
        assert_true(send[0].status == HVD_OK || send[0].status == HVD_ERR_ABORTED);
        free(out);
        free(in);
        /* a receive that nothing met is as if never posted */
        assert_int_equal(post_recv(w, 1, 0, 2, NULL, 0, &recv[0]), HVD_OK);
        w->ranks[1].t->ops->bulk_cancel(w->ranks[1].t, &recv[0]);
        assert_int_equal(post_send(w, 0, 1, 2, &last_out, 1, &send[1]), HVD_OK);
        assert_int_equal(post_recv(w, 1, 0, 2, &last_in, 1, &recv[1]), HVD_OK);
        run(w, FOREVER);
        assert_int_equal(recv[1].status, HVD_OK);
        assert_int_equal(last_in, 9);
        world_free(w);
    }
}

static void test_crash(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const struct sim_net_options options = small(seed, 5);
        struct world *w = world_new(&options);
        struct transport_req own[2], peers[4];
        uint8_t *own_bytes = calloc(1, 200000), *bytes = calloc(4, 100000);

        assert_int_equal(post_send(w, 2, 0, 1, own_bytes, 100000, &own[0]), HVD_OK);
        assert_int_equal(post_recv(w, 2, 1, 1, own_bytes + 100000, 100000, &own[1]), HVD_OK);
        assert_int_equal(post_recv(w, 0, 2, 1, bytes, 100000, &peers[0]), HVD_OK);
        assert_int_equal(post_send(w, 1, 2, 1, bytes + 100000, 100000, &peers[1]), HVD_OK);
        assert_int_equal(post_recv(w, 3, 2, 9, bytes + 200000, 10, &peers[2]), HVD_OK);
        assert_int_equal(post_send(w, 4, 2, 9, bytes + 300000, 100000, &peers[3]), HVD_OK);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(say(w, 2, 0, i), HVD_OK);
        run(w, (int64_t)(seed % 3) * 15000);
        sim_net_crash(w->net, 2);
        free(own_bytes); /* the net may not touch it any more */
        run(w, FOREVER);
        for (int32_t i = 0; i < 5; i++) {
            if (i == 2)
                continue;
            assert_int_equal(w->ranks[i].downs, 1);
            assert_int_equal(w->ranks[i].down_from, 2);
            assert_int_equal(w->ranks[i].down_status, HVD_ERR_PEER_DEAD);
            assert_int_equal(say(w, i, 2, 0), HVD_ERR_PEER_DEAD);
            assert_int_equal(post_recv(w, i, 2, 3, bytes, 1, &peers[0]), HVD_ERR_PEER_DEAD);
        }
        for (int i = 1; i < 4; i++)
            assert_int_equal(peers[i].status, HVD_ERR_PEER_DEAD);
        assert_int_equal(w->ranks[2].downs, 0);
        assert_int_equal(say(w, 0, 1, 0), HVD_OK);
        run(w, FOREVER);
        assert_int_equal(w->ranks[1].received, 1);
        w->ranks[2].t->ops->destroy(w->ranks[2].t);
        world_free(w);
        free(bytes);
    }
}

static void test_clean_close_delivers_first(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        const struct sim_net_options options = small(seed, 2);
        struct world *w = world_new(&options);

        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(say(w, 0, 1, i), HVD_OK);
        w->ranks[0].t->ops->destroy(w->ranks[0].t);
        run(w, FOREVER);
        assert_int_equal(w->ranks[1].received, 20);
        assert_int_equal(w->ranks[1].downs, 1);
        world_free(w);
    }
}

static void test_hang_freezes_and_releases(void **state)
{
    const struct sim_net_options options = small(8, 3);
    struct world *w = world_new(&options);
    struct transport_req send, recv;
    uint8_t out[100], in[100] = {0};

    (void)state;
    memset(out, 5, sizeof out);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(say(w, 0, 1, i), HVD_OK);
        assert_int_equal(say(w, 1, 2, i), HVD_OK);
    }
    assert_int_equal(post_send(w, 0, 1, 1, out, 100, &send), HVD_OK);
    assert_int_equal(post_recv(w, 1, 0, 1, in, 100, &recv), HVD_OK);
    sim_net_hang(w->net, 1, true);
    run(w, 1000000);
    assert_int_equal(w->ranks[1].received, 0);
    assert_int_equal(w->ranks[2].received, 0);
    assert_int_equal(recv.status, HVD_IN_PROGRESS);
    for (uint32_t i = 10; i < 20; i++)
        assert_int_equal(say(w, 0, 1, i), HVD_OK);
    run(w, 2000000);
    sim_net_hang(w->net, 1, false);
    assert_int_equal(say(w, 0, 1, 20), HVD_OK);
    run(w, FOREVER);
    assert_int_equal(w->ranks[1].received, 21); /* on_message checks the order */
    assert_int_equal(w->ranks[2].received, 10);
    assert_int_equal(recv.status, HVD_OK);
    assert_int_equal(send.status, HVD_OK);
    assert_memory_equal(in, out, sizeof in);
    world_free(w);
}

static void test_full_link_says_again_and_wakes(void **state)
{
    const struct sim_net_options options = small(9, 2);
    struct world *w = world_new(&options);
    uint32_t sent = 0;

    (void)state;
    sim_net_hang(w->net, 1, true);
    while (say(w, 0, 1, sent) == HVD_OK)
        sent++;
    assert_int_equal(say(w, 0, 1, sent), HVD_AGAIN);
    assert_true(sent >= 1000);
    sim_net_hang(w->net, 1, false);
    assert_true(sim_net_advance(w->net, FOREVER));
    run(w, FOREVER);
    assert_int_equal(w->ranks[1].received, sent);
    assert_int_equal(say(w, 0, 1, sent), HVD_OK);
    world_free(w);
}

static void test_length_mismatch_breaks_the_link(void **state)
{
    const struct sim_net_options options = small(10, 2);
    struct world *w = world_new(&options);
    struct transport_req send, recv;
    uint8_t bytes[16] = {0};

    (void)state;
    assert_int_equal(post_send(w, 0, 1, 1, bytes, 8, &send), HVD_OK);
    assert_int_equal(post_recv(w, 1, 0, 1, bytes + 8, 7, &recv), HVD_OK);
    run(w, FOREVER);
    assert_int_equal(recv.status, HVD_ERR_CORRUPT);
    assert_int_equal(w->ranks[0].downs, 1);
    assert_int_equal(w->ranks[1].downs, 1);
    world_free(w);
}

/* Random traffic with faults; the trace must be a function of the seed alone. */
static uint64_t chaos(uint64_t seed)
{
    struct sim_net_options options = small(seed, 2 + (int32_t)(seed % 7));
    struct world *w = NULL;
    struct transport_req *reqs = calloc(128, sizeof *reqs);
    uint8_t *bytes = calloc(128, 64);
    uint32_t numbers[16][16] = {{0}};
    uint64_t result = 0;

    options.again_one_in = 16;
    w = world_new(&options);
    for (uint32_t i = 0; i < 64; i++) {
        const uint64_t r = sim_net_random(w->net);
        const int32_t from = (int32_t)(r % (uint64_t)options.ranks);
        const int32_t to = (from + 1) % options.ranks;

        post_send(w, from, to, (uint32_t)(r >> 40) % 3, bytes + 64 * i, 32, &reqs[2 * i]);
        post_recv(w, to, from, (uint32_t)(r >> 40) % 3, bytes + 64 * i + 32, 32, &reqs[2 * i + 1]);
        if (say(w, from, to, numbers[from][to]) == HVD_OK)
            numbers[from][to]++;
        if (i % 8 == 7)
            run(w, sim_net_now_ns(w->net) + 20000);
        if (i == 20)
            sim_net_hang(w->net, 0, true);
        if (i == 40)
            sim_net_crash(w->net, (int32_t)(r >> 50) % options.ranks);
        if (i == 50)
            sim_net_hang(w->net, 0, false);
    }
    run(w, FOREVER);
    result = w->trace;
    world_free(w);
    free(reqs);
    free(bytes);
    return result;
}

static void test_same_seed_same_run(void **state)
{
    uint32_t different = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        const uint64_t first = chaos(seed);

        assert_int_equal(first, chaos(seed));
        different += first != chaos(seed + 1);
    }
    assert_true(different > 490);
}

static void test_clock_and_random_are_virtual(void **state)
{
    const struct sim_net_options options = small(11, 2);
    struct world *a = world_new(&options), *b = world_new(&options);
    const struct os *os = sim_net_os(a->net);
    uint8_t x[16], y[16];
    void *memory = NULL;

    (void)state;
    sim_net_advance(a->net, 12345);
    assert_int_equal(os_now_ns(os), 12345);
    assert_int_equal(os->random(os->ctx, x, sizeof x), 0);
    assert_int_equal(sim_net_os(b->net)->random(sim_net_os(b->net)->ctx, y, sizeof y), 0);
    assert_memory_equal(x, y, sizeof x);
    memory = os_alloc(os, 100);
    assert_non_null(memory);
    os_free(os, memory);
    world_free(a);
    world_free(b);
}

static void test_many_ranks_to_one_and_back(void **state)
{
    const struct sim_net_options options = small(12, RANKS_MAX);
    struct world *w = world_new(&options);

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        for (int32_t r = 1; r < RANKS_MAX; r++) {
            assert_int_equal(say(w, r, 0, i), HVD_OK);
            assert_int_equal(say(w, 0, r, i), HVD_OK);
        }
    }
    run(w, FOREVER);
    assert_int_equal(w->ranks[0].received, 200 * (RANKS_MAX - 1));
    assert_int_equal(w->ranks[511].received, 200);
    world_free(w);
}

static void test_bad_arguments(void **state)
{
    struct sim_net_options options = small(13, 2);
    struct world *w = world_new(&options);
    struct transport_events events = {0};
    uint32_t number = 0;

    (void)state;
    assert_null(sim_net_open(w->net, 0, &events));
    assert_null(sim_net_open(w->net, 2, &events));
    assert_int_equal(say(w, 0, 0, 0), HVD_ERR_INVALID);
    assert_int_equal(say(w, 0, 2, 0), HVD_ERR_INVALID);
    assert_int_equal(
        w->ranks[0].t->ops->message_send(w->ranks[0].t, 1, &number, TRANSPORT_MESSAGE_MAX + 1u),
        HVD_ERR_INVALID);
    world_free(w);
    options.ranks = 0;
    assert_null(sim_net_create(os_host(), &options));
    sim_net_destroy(NULL);
}

/* --- conformance; all but sleeping, for which there is no poller --- */

static void pair_open(struct conformance_pair *pair)
{
    const struct sim_net_options options = small(14, 2);
    struct sim_net *net = sim_net_create(os_host(), &options);

    assert_non_null(net);
    for (int32_t i = 0; i < 2; i++) {
        pair->end[i] = sim_net_open(net, i, &pair->events[i]);
        pair->rank[i] = i;
    }
    pair->ctx = net;
}

static void pair_close(struct conformance_pair *pair)
{
    sim_net_destroy(pair->ctx);
}

static bool pair_turn(struct conformance_pair *pair, int end)
{
    struct sim_net *net = pair->ctx;

    sim_net_advance(net, sim_net_now_ns(net) + 10000);
    return pair->end[end]->ops->progress(pair->end[end], sim_net_now_ns(net));
}

/* A crash loses what is on its way; what has arrived stays. */
static void pair_crash(struct conformance_pair *pair, int end)
{
    struct sim_net *net = pair->ctx;

    while (sim_net_advance(net, sim_net_now_ns(net) + 1000000)) {}
    sim_net_crash(net, end);
    pair->end[end] = NULL;
}

static struct conformance conformance = {pair_open, pair_close, pair_turn, pair_crash};

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(conformance_order, &conformance),
        cmocka_unit_test_prestate(conformance_size_limit, &conformance),
        cmocka_unit_test_prestate(conformance_backpressure, &conformance),
        cmocka_unit_test_prestate(conformance_bulk_sizes, &conformance),
        cmocka_unit_test_prestate(conformance_streams, &conformance),
        cmocka_unit_test_prestate(conformance_unposted, &conformance),
        cmocka_unit_test_prestate(conformance_cancel, &conformance),
        cmocka_unit_test_prestate(conformance_peer_down, &conformance),
        cmocka_unit_test(test_messages_keep_order_per_peer),
        cmocka_unit_test(test_time_stops_at_the_limit),
        cmocka_unit_test(test_bulk_sizes_and_streams),
        cmocka_unit_test(test_bulk_order_within_a_stream),
        cmocka_unit_test(test_bulk_waits_for_its_receive),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_clean_close_delivers_first),
        cmocka_unit_test(test_hang_freezes_and_releases),
        cmocka_unit_test(test_full_link_says_again_and_wakes),
        cmocka_unit_test(test_length_mismatch_breaks_the_link),
        cmocka_unit_test(test_same_seed_same_run),
        cmocka_unit_test(test_clock_and_random_are_virtual),
        cmocka_unit_test(test_many_ranks_to_one_and_back),
        cmocka_unit_test(test_bad_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
