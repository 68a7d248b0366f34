/* SPDX-License-Identifier: Apache-2.0 */
/* test_tcp.c - the TCP transport over loopback: conformance, connecting, and everything that can be
 * wrong on a wire.
 *
 * Ranks are objects in this process, connected by threads, then driven in turn. A small proxy
 * between two of them flips bits. alarm() kills a test that hangs. Start reading at struct world.
 */
#define _GNU_SOURCE 1 /* memmem */

#include "transport_conformance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fault.h"
#include "transport/tcp/tcp_internal.h"
#include "transport_ends.h"
#include "unit_case.h"

#define RANKS_MAX  8
#define DEADLINE_S 600        /* ends a hang */
#define TURNS_MAX  40000000   /* alarm() comes first where nothing ever moves */
#define GIVE_UP_NS 2000000000 /* long enough for both to hear each other on a busy machine */

static const uint8_t job_key[32] = {7, 7, 7};

/* HOROVOD_SECURITY of the group of tests that runs; main() goes through all of them. */
static const char *level = "auth";

static bool is_sealed(void)
{
    return strcmp(level, "mac") == 0 || strcmp(level, "tls") == 0;
}

/* --- a world of ranks in one process --- */

struct rank {
    struct config config;
    struct tcp *tcp;
    struct endpoint all[RANKS_MAX]; /* as this rank sees it: a test may lie to one of them */
    bool wanted[RANKS_MAX];
    int32_t count;
    int poll_fd;
    const struct os *os;
    uint8_t key[32];
    uint64_t epoch;
    struct transport_events events;
    hvd_status_t status;
    struct error error;
    /* what it was told */
    uint32_t messages, downs;
    hvd_status_t down_status;
    char why[512];
};

struct world {
    struct rank ranks[RANKS_MAX];
    int32_t count;
    uint32_t idle_turns;
};

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct rank *rank = ctx;

    (void)peer;
    (void)bytes;
    (void)n;
    rank->messages++;
}

static void on_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct rank *rank = ctx;

    (void)peer;
    rank->downs++;
    rank->down_status = status;
    snprintf(rank->why, sizeof rank->why, "%s", why);
}

static struct world *world_new(int32_t count, int64_t flows)
{
    const struct os *os = os_host();
    struct world *world = calloc(1, sizeof *world);

    assert_non_null(world);
    world->count = count;
    for (int32_t i = 0; i < count; i++) {
        struct rank *rank = &world->ranks[i];

        rank->config.timeout_s = 20;
        rank->config.tcp_flows = flows;
        strcpy(rank->config.security, level);
        rank->count = count;
        rank->epoch = 3;
        rank->poll_fd = os->poll_create(os->ctx);
        rank->os = os;
        memcpy(rank->key, job_key, sizeof rank->key);
        rank->events =
            (struct transport_events){.ctx = rank, .message = on_message, .peer_down = on_down};
    }
    return world;
}

static struct tcp_offer offer_of(const struct endpoint *e)
{
    struct tcp_offer offer;

    assert_true(tcp_offer_get(e, &offer));
    return offer;
}

static void offer_change(struct endpoint *e, const struct tcp_offer *offer)
{
    e->offer_count = 0;
    e->bytes_used = 0;
    assert_int_equal(tcp_offer_put(e, offer, NULL), HVD_OK);
}

static void world_listen_at(struct world *world, bool is_single_host)
{
    struct endpoint self[RANKS_MAX] = {0};

    for (int32_t i = 0; i < world->count; i++) {
        struct rank *rank = &world->ranks[i];

        self[i].rank = i;
        snprintf(self[i].host_name, sizeof self[i].host_name, "host%d", i);
        assert_int_equal(tcp_create(os_host(), &rank->config, i, is_single_host, &self[i],
                                    &rank->tcp, &rank->error),
                         HVD_OK);
        assert_true(offer_of(&self[i]).address_count > 0);
        assert_int_not_equal(offer_of(&self[i]).port, 0);
    }
    for (int32_t i = 0; i < world->count; i++) {
        memcpy(world->ranks[i].all, self, sizeof self);
        for (int32_t j = 0; j < world->count; j++)
            world->ranks[i].wanted[j] = true;
    }
}

static void world_listen(struct world *world)
{
    world_listen_at(world, true);
}

static void *connect_rank(void *arg)
{
    struct rank *rank = arg;

    rank->status = tcp_connect(rank->tcp, rank->all, rank->count, rank->wanted, rank->key,
                               rank->epoch, rank->poll_fd, &rank->events, &rank->error);
    return NULL;
}

static void world_connect(struct world *world)
{
    ends_together(world->count, world->ranks, sizeof world->ranks[0], connect_rank);
}

static struct world *world_ready(int32_t count, int64_t flows)
{
    struct world *world = world_new(count, flows);

    world_listen(world);
    world_connect(world);
    for (int32_t i = 0; i < count; i++) {
        if (world->ranks[i].status != HVD_OK)
            fail_msg("rank %d: %s", i, world->ranks[i].error.text);
    }
    return world;
}

static void rank_destroy(struct rank *rank)
{
    if (rank->tcp != NULL)
        tcp_transport(rank->tcp)->ops->destroy(tcp_transport(rank->tcp));
    rank->tcp = NULL;
    if (rank->poll_fd >= 0)
        close(rank->poll_fd);
    rank->poll_fd = -1;
}

static void world_free(struct world *world)
{
    for (int32_t i = 0; i < world->count; i++)
        rank_destroy(&world->ranks[i]);
    free(world);
}

static struct transport *end_of(struct world *world, int32_t rank)
{
    return tcp_transport(world->ranks[rank].tcp);
}

static bool turn(struct world *world)
{
    bool is_moved = false;

    for (int32_t i = 0; i < world->count; i++) {
        struct rank *rank = &world->ranks[i];

        if (rank->tcp != NULL)
            is_moved |= end_of(world, i)->ops->progress(end_of(world, i), os_now_ns(os_host()));
    }
    world->idle_turns = is_moved ? 0 : world->idle_turns + 1;
    if (world->idle_turns > 1000)
        sched_yield(); /* the proxy may need our core */
    return is_moved;
}

static void await(struct world *world, const struct transport_req *req, hvd_status_t status)
{
    for (int i = 0; i < TURNS_MAX && req->status == HVD_IN_PROGRESS; i++)
        turn(world);
    assert_int_equal(req->status, status);
}

static void await_down(struct world *world, int32_t rank)
{
    for (int i = 0; i < TURNS_MAX && world->ranks[rank].downs == 0; i++)
        turn(world);
    assert_int_equal(world->ranks[rank].downs, 1);
}

static void post_send(struct world *world, int32_t from, int32_t to, uint64_t stream,
                      const void *bytes, size_t n, struct transport_req *req)
{
    struct transport *t = end_of(world, from);

    assert_int_equal(t->ops->bulk_send(t, to, stream, bytes, n, req), HVD_OK);
}

static void post_recv(struct world *world, int32_t to, int32_t from, uint64_t stream, void *bytes,
                      size_t n, struct transport_req *req)
{
    struct transport *t = end_of(world, to);

    assert_int_equal(t->ops->bulk_recv(t, from, stream, bytes, n, req), HVD_OK);
}

/* --- conformance --- */

static void pair_open_flows(struct conformance_pair *pair, int64_t flows)
{
    struct world *world = world_new(2, flows);

    world_listen(world);
    for (int i = 0; i < 2; i++)
        world->ranks[i].events = pair->events[i];
    world_connect(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world->ranks[i].status, HVD_OK);
        pair->end[i] = end_of(world, i);
        pair->rank[i] = i;
        pair->poll_fd[i] = world->ranks[i].poll_fd;
    }
    pair->ctx = world;
}

static void pair_open_1(struct conformance_pair *pair)
{
    pair_open_flows(pair, 1);
}

static void pair_open_3(struct conformance_pair *pair)
{
    pair_open_flows(pair, 3);
}

static void pair_close(struct conformance_pair *pair)
{
    world_free(pair->ctx);
}

static bool pair_turn(struct conformance_pair *pair, int end)
{
    struct world *world = pair->ctx;
    struct os_event event;
    const struct os *os = os_host();

    if (os->poll_wait(os->ctx, world->ranks[end].poll_fd, &event, 1, 0) == 1) {
        assert_ptr_equal(event.tag, world->ranks[end].tcp);
        tcp_event(world->ranks[end].tcp, &event);
    }
    return pair->end[end]->ops->progress(pair->end[end], os_now_ns(os));
}

static void pair_crash(struct conformance_pair *pair, int end)
{
    struct world *world = pair->ctx;

    rank_destroy(&world->ranks[end]);
    pair->end[end] = NULL;
}

static struct conformance one_flow = {pair_open_1, pair_close, pair_turn, pair_crash};
static struct conformance three_flows = {pair_open_3, pair_close, pair_turn, pair_crash};

/* --- traffic --- */

static void test_three_ranks(void **state)
{
    struct world *world = world_ready(3, 2);
    struct transport_req send[3][3], recv[3][3];
    uint32_t out[3][3], in[3][3];

    (void)state;
    for (int32_t i = 0; i < 3; i++) {
        struct transport *t = end_of(world, i);

        assert_false(t->ops->reaches(t, i));
        assert_int_equal(t->ops->message_send(t, i, "x", 1), HVD_ERR_INVALID);
        for (int32_t j = 0; j < 3; j++) {
            if (i == j)
                continue;
            assert_true(t->ops->reaches(t, j));
            out[i][j] = (uint32_t)(i * 10 + j);
            assert_int_equal(t->ops->message_send(t, j, "x", 1), HVD_OK);
            post_send(world, i, j, 5, &out[i][j], 4, &send[i][j]);
            post_recv(world, i, j, 5, &in[i][j], 4, &recv[i][j]);
        }
    }
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t j = 0; j < 3; j++) {
            if (i == j)
                continue;
            await(world, &send[i][j], HVD_OK);
            await(world, &recv[i][j], HVD_OK);
            assert_int_equal(in[i][j], j * 10 + i);
        }
        for (int turns = 0; turns < TURNS_MAX && world->ranks[i].messages < 2; turns++)
            turn(world);
        assert_int_equal(world->ranks[i].messages, 2);
    }
    world_free(world);
}

static void test_eight_mib_both_ways(void **state)
{
    enum { N = 8 << 20 };
    struct world *world = world_ready(2, 2);
    struct transport_req send[2], recv[2];
    uint8_t *out[2], *in[2];

    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        out[i] = malloc(N);
        in[i] = malloc(N);
        assert_non_null(out[i]);
        assert_non_null(in[i]);
        conformance_fill(out[i], N, (uint32_t)i);
        post_send(world, i, 1 - i, 0, out[i], N, &send[i]);
        post_recv(world, i, 1 - i, 0, in[i], N, &recv[i]);
    }
    for (int32_t i = 0; i < 2; i++) {
        await(world, &send[i], HVD_OK);
        await(world, &recv[i], HVD_OK);
    }
    for (int32_t i = 0; i < 2; i++)
        assert_memory_equal(in[i], out[1 - i], N);
    for (int32_t i = 0; i < 2; i++) {
        free(in[i]);
        free(out[i]);
    }
    world_free(world);
}

/* A receive posted while its transfer is half set aside goes on in place. */
static void test_receive_comes_late(void **state)
{
    enum { N = 3 << 20 };
    struct world *world = world_ready(2, 1);
    struct transport_req send, recv, other_send, other_recv;
    uint8_t *out = malloc(N), *in = calloc(1, N), small = 4, got = 0;

    (void)state;
    for (int early = 0; early < 12; early++) {
        conformance_fill(out, N, (uint32_t)early);
        memset(in, 0, N);
        post_send(world, 0, 1, 1, out, N, &send);
        post_send(world, 0, 1, 2, &small, 1, &other_send);
        post_recv(world, 1, 0, 2, &got, 1, &other_recv);
        for (int i = 0; i < early; i++)
            turn(world);
        post_recv(world, 1, 0, 1, in, N, &recv);
        await(world, &recv, HVD_OK);
        await(world, &send, HVD_OK);
        await(world, &other_recv, HVD_OK);
        await(world, &other_send, HVD_OK);
        assert_int_equal(got, 4);
        assert_memory_equal(in, out, N);
        assert_int_equal(world->ranks[1].tcp->aside_bytes, 0);
    }
    assert_int_equal(world->ranks[1].tcp->posted_count, 0);
    free(out);
    free(in);
    world_free(world);
}

/* Data that nobody waits for must not keep a sleeper awake. */
static void test_sleep_beside_unawaited_bulk(void **state)
{
    struct world *world = world_ready(2, 1);
    struct transport *t = end_of(world, 1);
    const struct os *os = os_host();
    struct transport_req send, recv;
    struct os_event event;
    uint8_t out[1000], in[1000];

    (void)state;
    memset(out, 3, sizeof out);
    post_send(world, 0, 1, 1, out, sizeof out, &send);
    await(world, &send, HVD_OK);
    for (int i = 0; i < TURNS_MAX && !world->ranks[1].tcp->peers[0]->flows[0].is_blocked; i++)
        turn(world);
    assert_true(world->ranks[1].tcp->peers[0]->flows[0].is_blocked);
    assert_true(t->ops->sleep_begin(t));
    assert_int_equal(os->poll_wait(os->ctx, world->ranks[1].poll_fd, &event, 1, 0), 0);
    t->ops->sleep_end(t);
    post_recv(world, 1, 0, 1, in, sizeof in, &recv);
    assert_false(t->ops->sleep_begin(t));
    t->ops->sleep_end(t);
    await(world, &recv, HVD_OK);
    assert_memory_equal(in, out, sizeof in);
    world_free(world);
}

static void test_cancel_half_sent(void **state)
{
    enum { N = 40 << 20 }; /* far more than sockets hold */
    struct world *world = world_ready(2, 1);
    uint8_t *in = malloc(N), word_out = 8, word_in = 0;

    (void)state;
    for (int turns = 1; turns < 4; turns++) {
        struct transport_req send, recv, next_send, next_recv;
        uint8_t *out = calloc(1, N);

        post_send(world, 0, 1, 1, out, N, &send);
        for (int i = 0; i < turns; i++)
            turn(world);
        post_recv(world, 1, 0, 1, in, N, &recv);
        for (int i = 0; i < turns; i++)
            turn(world);
        assert_int_equal(send.status, HVD_IN_PROGRESS);
        end_of(world, 0)->ops->bulk_cancel(end_of(world, 0), &send);
        assert_int_equal(send.status, HVD_ERR_ABORTED);
        free(out); /* ASan sees who still reads it */
        await(world, &recv, HVD_ERR_ABORTED);
        post_send(world, 0, 1, 2, &word_out, 1, &next_send);
        post_recv(world, 1, 0, 2, &word_in, 1, &next_recv);
        await(world, &next_recv, HVD_OK);
        await(world, &next_send, HVD_OK);
        assert_int_equal(word_in, 8);
    }
    free(in);
    world_free(world);
}

static void *alloc_nothing(void *ctx, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    return NULL;
}

/* No memory for the rest of the frame: the link is lost, with its cause, and nothing else happens
 * to the caller's memory. */
static void test_cancel_without_memory(void **state)
{
    enum { N = 16 << 20 };
    struct world *world = world_ready(2, 1);
    struct tcp *tcp = world->ranks[0].tcp;
    struct tcp_flow *flow = &tcp->peers[1]->flows[0];
    struct transport *t = end_of(world, 0);
    const struct os *os = t->os;
    struct os poor = *os;
    struct transport *other = end_of(world, 1);
    struct transport_req send, recv;
    uint8_t *out = calloc(1, N), *in = calloc(1, N);

    (void)state;
    poor.alloc = alloc_nothing;
    post_send(world, 0, 1, 1, out, N, &send);
    for (int i = 0; i < TURNS_MAX && !(flow->out.is_framed && flow->out.head_done > 0); i++)
        turn(world);
    for (int i = 0; i < 20; i++) /* nobody receives: the socket is full */
        turn(world);
    assert_true(flow->out.is_framed && flow->out.head_done > 0 && flow->out.head == &send);
    post_recv(world, 1, 0, 1, in, N, &recv);
    for (int i = 0; i < 50; i++) /* and now there is room again, which rank 0 does not know yet */
        other->ops->progress(other, os_now_ns(os));
    t->os = &poor;
    t->ops->bulk_cancel(t, &send);
    t->os = os;
    assert_int_equal(send.status, HVD_ERR_ABORTED);
    memset(out, 1, N);
    free(out); /* ASan sees who still reads it */
    await_down(world, 0);
    assert_int_equal(world->ranks[0].down_status, HVD_ERR_NO_MEMORY);
    assert_non_null(strstr(world->ranks[0].why, "no memory to cancel"));
    await_down(world, 1);
    for (size_t i = 0; i < N; i++) /* of what rank 1 has received, nothing was sent later */
        assert_int_equal(in[i], 0);
    free(in);
    world_free(world);
}

static uint64_t life(uint64_t number)
{
    return number << STREAM_LIFE_AT;
}

static void test_forget(void **state)
{
    struct world *world = world_ready(2, 1);
    struct transport *t = end_of(world, 1);
    struct transport_req send[3], recv;
    uint8_t *out = calloc(1, 1 << 20), in = 0;

    (void)state;
    t->ops->bulk_open(t, 1, life(1));
    post_send(world, 0, 1, life(1) + 10, out, 1 << 20, &send[0]);
    post_send(world, 0, 1, life(1) + 50, "m", 1, &send[1]);
    post_recv(world, 1, 0, life(1) + 50, &in, 1, &recv);
    await(world, &recv, HVD_OK);
    assert_true(world->ranks[1].tcp->aside_bytes > 1 << 20);
    t->ops->bulk_close(t, life(1));
    assert_int_equal(world->ranks[1].tcp->aside_bytes, 0);
    /* what comes later is thrown away without waiting for anything */
    post_send(world, 0, 1, life(1) + 11, out, 1 << 20, &send[2]);
    await(world, &send[2], HVD_OK);
    /* but not what comes for a life that has not begun here yet */
    post_send(world, 0, 1, life(2) + 11, "n", 1, &send[1]);
    await(world, &send[1], HVD_OK);
    t->ops->bulk_open(t, 1, life(2));
    post_recv(world, 1, 0, life(2) + 11, &in, 1, &recv);
    await(world, &recv, HVD_OK);
    assert_int_equal(in, 'n');
    assert_int_equal(world->ranks[1].tcp->aside_bytes, 0);
    free(out);
    world_free(world);
}

static void test_lengths_differ(void **state)
{
    struct world *world = world_ready(2, 1);
    struct transport_req send, recv;
    uint8_t bytes[64] = {0};

    (void)state;
    post_send(world, 0, 1, 1, bytes, 32, &send);
    post_recv(world, 1, 0, 1, bytes, 31, &recv);
    await(world, &recv, HVD_ERR_CORRUPT);
    await_down(world, 1);
    assert_non_null(strstr(world->ranks[1].why, "length"));
    await_down(world, 0);
    world_free(world);
}

/* A heartbeat goes out after a second without messages, and is heard. Time is what we say it is. */
static void test_heartbeats(void **state)
{
    struct world *world = world_ready(2, 1);
    struct transport *a = end_of(world, 0), *b = end_of(world, 1);
    int64_t now_ns = os_now_ns(os_host());
    int64_t heard_ns = 0;

    (void)state;
    assert_int_equal(tcp_last_heard_ns(world->ranks[1].tcp, 1), 0);
    for (int second = 1; second <= 3; second++) {
        now_ns += 1500000000;
        heard_ns = tcp_last_heard_ns(world->ranks[1].tcp, 0);
        for (int i = 0; i < TURNS_MAX && tcp_last_heard_ns(world->ranks[1].tcp, 0) == heard_ns;
             i++) {
            a->ops->progress(a, now_ns);
            b->ops->progress(b, now_ns + i * 10000);
        }
        assert_true(tcp_last_heard_ns(world->ranks[1].tcp, 0) >= now_ns);
    }
    assert_int_equal(world->ranks[1].messages, 0);
    assert_int_equal(world->ranks[1].downs, 0);
    world_free(world);
}

static void test_peer_gone_between_bulk(void **state)
{
    struct world *world = world_ready(3, 2);
    struct transport_req recv[4], send;
    uint8_t *bytes = calloc(5, 1 << 20);

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        post_recv(world, 0, 1, i, bytes + i, 1, &recv[i]);
    post_send(world, 0, 1, 7, bytes, 5 << 20, &send);
    turn(world);
    rank_destroy(&world->ranks[1]);
    await_down(world, 0);
    await_down(world, 2);
    assert_int_equal(world->ranks[0].down_status, HVD_ERR_PEER_DEAD);
    assert_non_null(strstr(world->ranks[0].why, "rank 1 on host1"));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(recv[i].status, HVD_ERR_PEER_DEAD);
    assert_int_equal(send.status, HVD_ERR_PEER_DEAD);
    assert_int_equal(world->ranks[0].tcp->posted_count, 0);
    post_send(world, 0, 2, 1, bytes, 10, &send); /* the others go on */
    post_recv(world, 2, 0, 1, bytes, 10, &recv[0]);
    await(world, &recv[0], HVD_OK);
    free(bytes);
    world_free(world);
}

/* --- connecting --- */

static void test_wrong_key(void **state)
{
    struct world *world = world_new(2, 1);

    (void)state;
    world_listen(world);
    world->ranks[1].key[0] ^= 1;
    world->ranks[0].config.timeout_s = world->ranks[1].config.timeout_s = 1;
    world->ranks[0].tcp->timeout_ns = world->ranks[1].tcp->timeout_ns = GIVE_UP_NS;
    world_connect(world);
    assert_int_equal(world->ranks[0].status, HVD_ERR_AUTH);
    assert_true(world->ranks[1].status == HVD_ERR_AUTH || world->ranks[1].status == HVD_ERR_LINK);
    assert_non_null(strstr(world->ranks[1].error.text, "rank 0 on host0"));
    assert_non_null(strstr(world->ranks[1].error.text, "127.0.0.1"));
    assert_non_null(strstr(world->ranks[0].error.text, "rank 1 on host1"));
    world_free(world);
}

static void test_stale_epoch(void **state)
{
    struct world *world = world_new(2, 1);

    (void)state;
    world_listen(world);
    world->ranks[1].epoch = 4;
    world->ranks[0].tcp->timeout_ns = world->ranks[1].tcp->timeout_ns = GIVE_UP_NS;
    world_connect(world);
    assert_int_equal(world->ranks[0].status, HVD_ERR_STALE);
    assert_int_equal(world->ranks[1].status, HVD_ERR_STALE);
    assert_non_null(strstr(world->ranks[1].error.text, "epoch"));
    world_free(world);
}

static void test_flow_counts_differ(void **state)
{
    struct world *world = world_new(2, 1);

    (void)state;
    world->ranks[1].config.tcp_flows = 2;
    world_listen(world);
    world->ranks[0].tcp->timeout_ns = world->ranks[1].tcp->timeout_ns = GIVE_UP_NS;
    world_connect(world);
    assert_true(world->ranks[0].status < 0);
    assert_true(world->ranks[1].status < 0);
    if (strstr(world->ranks[0].error.text, "HOROVOD_TCP_FLOWS") == NULL)
        fail_msg("%s", world->ranks[0].error.text);
    world_free(world);
}

static int dial(uint16_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

/* As many strangers as there are places, some silent, some loud; the job connects all the same. */
static void check_strangers(void **state)
{
    const bool is_loud = unit_case(state) != 0;
    struct world *world = world_new(2, 2);
    int fds[TCP_STRANGERS_MAX];
    uint8_t garbage[512];

    world_listen(world);
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)(i * 97);
    for (int i = 0; i < TCP_STRANGERS_MAX; i++) {
        fds[i] = dial(offer_of(&world->ranks[0].all[0]).port);
        if (is_loud && i % 3 == 0)
            assert_true(send(fds[i], garbage, sizeof garbage, MSG_NOSIGNAL) > 0);
        if (is_loud && i % 3 == 1)
            assert_true(send(fds[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) > 0);
    }
    world_connect(world);
    assert_int_equal(world->ranks[0].status, HVD_OK);
    assert_int_equal(world->ranks[1].status, HVD_OK);
    for (int i = 0; i < TCP_STRANGERS_MAX; i++)
        close(fds[i]);
    assert_int_equal(end_of(world, 1)->ops->message_send(end_of(world, 1), 0, "x", 1), HVD_OK);
    for (int i = 0; i < TURNS_MAX && world->ranks[0].messages == 0; i++)
        turn(world);
    assert_int_equal(world->ranks[0].messages, 1);
    assert_int_equal(world->ranks[0].downs, 0);
    world_free(world);
}

/* Verified hellos keep their places while more strangers come than there are places for; the job
 * connects after all of them. */
static void test_verified_is_not_evicted(void **state)
{
    enum { VERIFIED = 100, STRANGERS = 2 * TCP_STRANGERS_MAX };
    struct world *world = world_new(2, 2);
    struct handshake hello[VERIFIED];
    static int fds[VERIFIED + STRANGERS];
    const struct os *os = os_host();

    (void)state;
    world_listen(world);
    for (int i = 0; i < VERIFIED + STRANGERS; i++) {
        fds[i] = dial(offer_of(&world->ranks[0].all[0]).port);
        if (i >= VERIFIED)
            continue;
        assert_int_equal(handshake_begin(&hello[i], os, HANDSHAKE_TCP, true, job_key, 3, 1, 0,
                                         (uint32_t)world->ranks[0].tcp->security << 28 | 2 << 16),
                         HVD_OK);
        assert_int_equal(send(fds[i], hello[i].out, HANDSHAKE_BYTES, MSG_NOSIGNAL),
                         HANDSHAKE_BYTES);
    }
    world_connect(world);
    assert_int_equal(world->ranks[0].status, HVD_OK);
    assert_int_equal(world->ranks[1].status, HVD_OK);
    for (int i = 0; i < VERIFIED; i++) { /* each was answered: none was dropped for a stranger */
        uint8_t answer[HANDSHAKE_BYTES];

        assert_int_equal(recv(fds[i], answer, sizeof answer, MSG_WAITALL), HANDSHAKE_BYTES);
        handshake_end(&hello[i]);
    }
    for (int i = 0; i < VERIFIED + STRANGERS; i++)
        close(fds[i]);
    world_free(world);
}

/* Candidates that lead nowhere, and one where something else answers, lose against the right one.
 */
static void test_first_proven_address_wins(void **state)
{
    struct world *world = world_new(2, 2);
    struct endpoint *seen = NULL;
    uint8_t right[16], other[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2};
    uint8_t nowhere[16] = {[10] = 0xff, [11] = 0xff, [12] = 203, [14] = 113, [15] = 1};
    struct sockaddr_in sa = {.sin_family = AF_INET};
    const int one = 1, liar = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    world_listen(world);
    seen = &world->ranks[1].all[0];
    struct tcp_offer offer = offer_of(seen);
    memcpy(right, offer.addresses[0], 16);
    sa.sin_port = htons(offer.port);
    sa.sin_addr.s_addr = htonl(0x7f000002);
    setsockopt(liar, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(liar, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(liar, 8), 0); /* connects, and never says a word */
    offer.address_count = 3;
    memcpy(offer.addresses[0], nowhere, 16);
    memcpy(offer.addresses[1], other, 16);
    memcpy(offer.addresses[2], right, 16);
    offer_change(seen, &offer);
    world_connect(world);
    assert_int_equal(world->ranks[0].status, HVD_OK);
    assert_int_equal(world->ranks[1].status, HVD_OK);
    assert_int_equal(world->ranks[1].tcp->peers[0]->address_won, 2);
    close(liar);
    world_free(world);
}

/* As between hosts: every address of every interface is offered and dialed. */
static void test_all_interfaces(void **state)
{
    struct world *world = world_new(4, 2);

    (void)state;
    world_listen_at(world, false);
    world_connect(world);
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(world->ranks[i].status, HVD_OK);
    for (int32_t i = 1; i < 4; i++)
        assert_int_equal(end_of(world, i)->ops->message_send(end_of(world, i), 0, "x", 1), HVD_OK);
    for (int i = 0; i < TURNS_MAX && world->ranks[0].messages < 3; i++)
        turn(world);
    assert_int_equal(world->ranks[0].messages, 3);
    world_free(world);
}

static void test_which_addresses(void **state)
{
    struct config config = {.timeout_s = 1, .tcp_flows = 1};
    const struct os *os = os_host();
    struct endpoint self = {0};
    struct tcp *tcp = NULL;
    struct error error;

    (void)state;
    error_clear(&error);
    assert_int_equal(tcp_create(os, &config, 0, false, &self, &tcp, &error), HVD_OK);
    struct tcp_offer offer = offer_of(&self);
    assert_true(offer.address_count > 0);
    for (int i = 0; i < offer.address_count; i++) {
        static const uint8_t any4[16] = {[10] = 0xff, [11] = 0xff}, any6[16];

        assert_memory_not_equal(offer.addresses[i], any4, 16);
        assert_memory_not_equal(offer.addresses[i], any6, 16);
    }
    assert_true(tcp_address_is_loopback(offer.addresses[offer.address_count - 1]));
    assert_int_equal(tcp->listener_count, offer.address_count);
    for (int i = 0; i < tcp->listener_count; i++) {
        struct sockaddr_storage sa;
        socklen_t length = sizeof sa;
        uint8_t zero[16] = {0};

        assert_int_equal(getsockname(tcp->listeners[i].fd, (struct sockaddr *)&sa, &length), 0);
        if (sa.ss_family == AF_INET)
            assert_memory_not_equal(&((struct sockaddr_in *)(void *)&sa)->sin_addr, zero, 4);
        else
            assert_memory_not_equal(&((struct sockaddr_in6 *)(void *)&sa)->sin6_addr, zero, 16);
    }
    tcp_transport(tcp)->ops->destroy(tcp_transport(tcp));

    memset(&self, 0, sizeof self);
    strcpy(config.interfaces, "nosuch0, 127.0.0.1");
    assert_int_equal(tcp_create(os, &config, 0, false, &self, &tcp, &error), HVD_OK);
    assert_int_equal(offer_of(&self).address_count, 1);
    assert_true(tcp_address_is_loopback(offer_of(&self).addresses[0]));
    tcp_transport(tcp)->ops->destroy(tcp_transport(tcp));

    strcpy(config.interfaces, "nosuch0");
    assert_int_equal(tcp_create(os, &config, 0, false, &self, &tcp, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "nosuch0"));
    config.interfaces[0] = '\0';
    strcpy(config.security, "ssl");
    error_clear(&error);
    assert_int_equal(tcp_create(os, &config, 0, true, &self, &tcp, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "HOROVOD_SECURITY=ssl"));
}

/* Two ranks share a range of two ports; a third finds none. */
static void test_port_range(void **state)
{
    const struct os *os = os_host();
    struct config config = {.timeout_s = 5, .tcp_flows = 1, .port_range = "23481-23482"};
    struct endpoint self[3] = {{0}};
    struct tcp *tcp[3] = {NULL};
    struct error error;

    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(tcp_create(os, &config, i, true, &self[i], &tcp[i], &error), HVD_OK);
        assert_in_range(offer_of(&self[i]).port, 23481, 23482);
    }
    assert_int_not_equal(offer_of(&self[0]).port, offer_of(&self[1]).port);
    error_clear(&error);
    assert_int_equal(tcp_create(os, &config, 2, true, &self[2], &tcp[2], &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "HOROVOD_PORT_RANGE=23481-23482"));
    for (int32_t i = 0; i < 2; i++)
        tcp_transport(tcp[i])->ops->destroy(tcp_transport(tcp[i]));
    for (int i = 0; i < 6; i++) {
        static const char *const wrong[] = {"0", "5-4", "70000", "1-70000", "a-b", "1-"};

        strcpy(config.port_range, wrong[i]);
        error_clear(&error);
        assert_int_equal(tcp_create(os, &config, 2, true, &self[2], &tcp[2], &error),
                         HVD_ERR_CONFIG);
        assert_non_null(strstr(error.text, "no range of ports"));
    }
}

#define TAMPERED_BYTES 500

/* --- a proxy that listens, flips bits and repeats itself --- */

/* What a relay that knows the frames, but not the key, does to a control frame. It makes checksums
 * and numbers right again, so that only a seal can tell. */
enum tampering { HONEST, REWRITE, RETYPE, REPEAT, DROP, SWAP };

struct proxy {
    int listener;
    uint16_t port, target_port;
    atomic_bool is_over;
    atomic_size_t flip_at_least;   /* flip one bit in the next piece of so many bytes; 0: none */
    atomic_size_t repeat_at_least; /* send the next piece of so many bytes twice; 0: none */
    _Atomic(const char *) marker;  /* looked for in every piece */
    atomic_int markers_seen;
    _Atomic enum tampering tampering; /* with pieces of TAMPERED_BYTES of payload */
    atomic_int tampered;              /* pieces seen meanwhile */
    uint8_t held[TCP_CONTROL_HEAD + TCP_TAG_BYTES + TAMPERED_BYTES];
    pthread_t thread;
};

#define PROXY_LINKS 16

static void proxy_send(int to, const uint8_t *bytes, ssize_t n)
{
    for (ssize_t sent = 0; sent < n;) {
        const ssize_t now = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);

        if (now <= 0)
            return;
        sent += now;
    }
}

static size_t tag_bytes(void)
{
    return strcmp(level, "off") == 0 ? 0 : TCP_TAG_BYTES;
}

/* As the sender would have written it: number, checksum. */
static void control_mend(uint8_t *frame, int renumber)
{
    uint64_t number = 0;
    uint32_t crc = 0;

    memcpy(&number, frame + 20, sizeof number); /* little-endian, as this machine */
    number += (uint64_t)(int64_t)renumber;
    memcpy(frame + 20, &number, sizeof number);
    crc = crc32c(0, frame, 28);
    if (tag_bytes() == 0)
        crc = crc32c(crc, frame + TCP_CONTROL_HEAD, TAMPERED_BYTES);
    memcpy(frame + 28, &crc, sizeof crc);
}

/* The frame is to be sent on if it returns true. */
static bool proxy_tamper(struct proxy *proxy, uint8_t *frame, size_t n, int to)
{
    const int seen = atomic_fetch_add(&proxy->tampered, 1);

    switch (atomic_load(&proxy->tampering)) {
    case HONEST: break;
    case REWRITE: frame[TCP_CONTROL_HEAD + tag_bytes() + 3] ^= 1; break;
    case RETYPE: frame[5] = TCP_CONTROL_HEARTBEAT; break;
    case REPEAT:
        if (seen == 0)
            proxy_send(to, frame, (ssize_t)n);
        control_mend(frame, 1);
        return true;
    case DROP: control_mend(frame, -1); return seen > 0;
    case SWAP:
        if (seen == 0) {
            memcpy(proxy->held, frame, n);
            return false;
        }
        control_mend(frame, -1);
        proxy_send(to, frame, (ssize_t)n);
        memcpy(frame, proxy->held, n);
        control_mend(frame, 1);
        return true;
    }
    control_mend(frame, 0);
    return true;
}

static void proxy_forward(struct proxy *proxy, int from, int to, bool *is_open)
{
    static uint8_t bytes[1 << 16];
    const ssize_t n = recv(from, bytes, sizeof bytes, 0);
    const size_t least = atomic_load(&proxy->flip_at_least);

    if (n <= 0) {
        shutdown(to, SHUT_RDWR);
        *is_open = false;
        return;
    }
    if (least > 0 && (size_t)n >= least) {
        bytes[n - 7] ^= 0x10;
        atomic_store(&proxy->flip_at_least, 0);
    }
    if (atomic_load(&proxy->tampering) != HONEST &&
        (size_t)n == TCP_CONTROL_HEAD + tag_bytes() + TAMPERED_BYTES &&
        !proxy_tamper(proxy, bytes, (size_t)n, to))
        return;
    const char *marker = atomic_load(&proxy->marker);

    if (marker != NULL && memmem(bytes, (size_t)n, marker, strlen(marker)) != NULL)
        atomic_fetch_add(&proxy->markers_seen, 1);
    proxy_send(to, bytes, n);
    if (atomic_load(&proxy->repeat_at_least) > 0 &&
        (size_t)n >= atomic_load(&proxy->repeat_at_least)) {
        atomic_store(&proxy->repeat_at_least, 0);
        proxy_send(to, bytes, n);
    }
}

static void *proxy_run(void *arg)
{
    struct proxy *proxy = arg;
    struct pollfd fds[1 + 2 * PROXY_LINKS];
    bool is_open[PROXY_LINKS];
    nfds_t count = 1;

    fds[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    while (!atomic_load(&proxy->is_over)) {
        if (poll(fds, count, 20) <= 0)
            continue;
        for (nfds_t i = 1; i < count; i++) {
            if (is_open[(i - 1) / 2] && (fds[i].revents & (POLLIN | POLLHUP)) != 0)
                proxy_forward(proxy, fds[i].fd, fds[i % 2 == 1 ? i + 1 : i - 1].fd,
                              &is_open[(i - 1) / 2]);
            if (!is_open[(i - 1) / 2])
                fds[i].events = 0;
        }
        if ((fds[0].revents & POLLIN) != 0 && count < 1 + 2 * PROXY_LINKS) {
            is_open[(count - 1) / 2] = true;
            fds[count++] =
                (struct pollfd){.fd = accept(proxy->listener, NULL, NULL), .events = POLLIN};
            fds[count++] = (struct pollfd){.fd = dial(proxy->target_port), .events = POLLIN};
        }
    }
    for (nfds_t i = 1; i < count; i++)
        close(fds[i].fd);
    close(proxy->listener);
    return NULL;
}

static void proxy_start(struct proxy *proxy, uint16_t target_port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t length = sizeof sa;

    memset(proxy, 0, sizeof *proxy);
    proxy->target_port = target_port;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(proxy->listener, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(proxy->listener, 16), 0);
    assert_int_equal(getsockname(proxy->listener, (struct sockaddr *)&sa, &length), 0);
    proxy->port = ntohs(sa.sin_port);
    assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_run, proxy), 0);
}

static void proxy_stop(struct proxy *proxy)
{
    atomic_store(&proxy->is_over, true);
    pthread_join(proxy->thread, NULL);
}

static struct world *world_through(struct proxy *proxy)
{
    struct world *world = world_new(2, 1);
    struct endpoint *seen = &world->ranks[1].all[0];

    world_listen(world);
    struct tcp_offer offer = offer_of(seen);
    proxy_start(proxy, offer.port);
    offer.port = proxy->port;
    offer.address_count = 1; /* 127.0.0.1 */
    offer_change(seen, &offer);
    world_connect(world);
    assert_int_equal(world->ranks[0].status, HVD_OK);
    assert_int_equal(world->ranks[1].status, HVD_OK);
    return world;
}

static void test_flipped_bit_in_bulk(void **state)
{
    enum { N = 300000 };
    struct proxy proxy;
    struct world *world = world_through(&proxy);
    struct transport_req send, recv;
    uint8_t *out = calloc(1, N), *in = calloc(1, N);

    (void)state;
    for (int round = 0; round < 2; round++) {
        post_send(world, 1, 0, 1, out, N, &send);
        post_recv(world, 0, 1, 1, in, N, &recv);
        if (round == 0) {
            await(world, &recv, HVD_OK); /* the proxy is honest so far */
            await(world, &send, HVD_OK);
            atomic_store(&proxy.flip_at_least, 1000);
        }
    }
    if (strcmp(level, "off") == 0) { /* this is what it means */
        await(world, &recv, HVD_OK);
        await(world, &send, HVD_OK);
        assert_memory_not_equal(in, out, N);
        goto over;
    }
    await(world, &recv, HVD_ERR_CORRUPT);
    await_down(world, 0);
    assert_int_equal(world->ranks[0].down_status, HVD_ERR_CORRUPT);
    assert_non_null(strstr(world->ranks[0].why, is_sealed() ? "not authentic" : "checksum"));
    await_down(world, 1);
over:
    world_free(world);
    proxy_stop(&proxy);
    free(out);
    free(in);
}

static void test_flipped_bit_in_message(void **state)
{
    struct proxy proxy;
    struct world *world = world_through(&proxy);
    uint8_t bytes[500] = {0};

    (void)state;
    atomic_store(&proxy.flip_at_least, 500);
    assert_int_equal(end_of(world, 1)->ops->message_send(end_of(world, 1), 0, bytes, sizeof bytes),
                     HVD_OK);
    await_down(world, 0);
    assert_int_equal(world->ranks[0].down_status, HVD_ERR_CORRUPT);
    assert_int_equal(world->ranks[0].messages, 0);
    world_free(world);
    proxy_stop(&proxy);
}

/* A relay that changes, repeats, drops or reorders control frames, an ABORT for instance, is
 * noticed and named; with "off" nobody notices, which is what it means. */
static void check_tampering(enum tampering tampering)
{
    struct proxy proxy;
    struct world *world = world_through(&proxy);
    struct transport *t = end_of(world, 1);
    const uint8_t bytes[TAMPERED_BYTES] = {0};
    const bool is_off = strcmp(level, "off") == 0;
    const uint32_t expected = tampering == RETYPE                         ? 0
                              : tampering == REWRITE || tampering == DROP ? 1
                                                                          : 2;

    assert_int_equal(t->ops->message_send(t, 0, bytes, 1), HVD_OK);
    for (int i = 0; i < TURNS_MAX && world->ranks[0].messages == 0; i++)
        turn(world);
    assert_int_equal(world->ranks[0].messages, 1); /* honest so far */
    world->ranks[0].messages = 0;
    atomic_store(&proxy.tampering, tampering);
    for (int i = 0; i < (tampering == DROP || tampering == SWAP ? 2 : 1); i++) {
        assert_int_equal(t->ops->message_send(t, 0, bytes, sizeof bytes), HVD_OK);
        while (atomic_load(&proxy.tampered) <= i)
            sched_yield();
    }
    if (is_off) {
        for (int i = 0; i < TURNS_MAX && world->ranks[0].messages < expected; i++)
            turn(world);
        assert_int_equal(world->ranks[0].messages, expected);
        assert_int_equal(world->ranks[0].downs, 0);
    } else {
        await_down(world, 0);
        assert_int_equal(world->ranks[0].down_status, HVD_ERR_CORRUPT);
        assert_non_null(strstr(world->ranks[0].why, "not authentic"));
        assert_true(world->ranks[0].messages <= (tampering == REPEAT ? 1 : 0));
    }
    world_free(world);
    proxy_stop(&proxy);
}

static void test_tampering_with_control_frames(void **state)
{
    (void)state;
    check_tampering(REWRITE);
    check_tampering(RETYPE);
    check_tampering(REPEAT);
    check_tampering(DROP);
    check_tampering(SWAP);
}

/* What is on the wire can be read, or it can't. */
static void test_capture(void **state)
{
    static const char marker[] = "gradient of layer 7";
    enum { N = 300000 };
    struct proxy proxy;
    struct world *world = world_through(&proxy);
    struct transport *t = end_of(world, 1);
    struct transport_req send, recv;
    uint8_t *out = calloc(1, N), *in = calloc(1, N);

    (void)state;
    atomic_store(&proxy.marker, marker);
    for (size_t at = 0; at + sizeof marker < N; at += 50)
        memcpy(out + at, marker, sizeof marker);
    assert_int_equal(t->ops->message_send(t, 0, out, 500), HVD_OK);
    for (int i = 0; i < TURNS_MAX && world->ranks[0].messages == 0; i++)
        turn(world);
    assert_int_equal(world->ranks[0].messages, 1);
    assert_int_equal(atomic_load(&proxy.markers_seen), strcmp(level, "tls") == 0 ? 0 : 1);
    post_send(world, 1, 0, 1, out, N, &send);
    post_recv(world, 0, 1, 1, in, N, &recv);
    await(world, &recv, HVD_OK);
    await(world, &send, HVD_OK);
    assert_memory_equal(in, out, N);
    if (strcmp(level, "tls") == 0)
        assert_int_equal(atomic_load(&proxy.markers_seen), 0);
    else
        assert_true(atomic_load(&proxy.markers_seen) > 1);
    world_free(world);
    proxy_stop(&proxy);
    free(out);
    free(in);
}

/* A whole frame comes twice: only a seal can tell. */
static void test_repeated_bulk_frame(void **state)
{
    struct proxy proxy;
    struct world *world = world_through(&proxy);
    struct transport_req send, recv[2];
    uint8_t out[1000], in[2][1000];

    (void)state;
    memset(out, 9, sizeof out);
    post_recv(world, 0, 1, 1, in[0], sizeof out, &recv[0]);
    post_recv(world, 0, 1, 1, in[1], sizeof out, &recv[1]);
    atomic_store(&proxy.repeat_at_least, sizeof out);
    post_send(world, 1, 0, 1, out, sizeof out, &send);
    await(world, &recv[0], HVD_OK);
    await(world, &recv[1], is_sealed() ? HVD_ERR_CORRUPT : HVD_OK);
    world_free(world);
    proxy_stop(&proxy);
}

/* The same bytes on two connections, or sent twice on one, look different. */
static void test_no_two_seals_are_alike(void **state)
{
    struct cipher cipher;
    struct tcp_seal a, b;
    const uint8_t key[2][32] = {{1}, {2}}, head[TCP_BULK_HEAD] = {3};
    uint8_t plain[64] = {4}, sealed[3][64], tag[3][TCP_TAG_BYTES];

    (void)state;
    if (!cipher_load(os_host(), &cipher))
        skip();
    assert_int_equal(tcp_seal_begin(&a, &cipher, TCP_SECURITY_TLS, key[0], key[1]), HVD_OK);
    assert_int_equal(tcp_seal_begin(&b, &cipher, TCP_SECURITY_TLS, key[1], key[0]), HVD_OK);
    assert_true(tcp_seal_frame(&a, head, sizeof head, plain, 64, sealed[0], tag[0]));
    a.sent++;
    assert_true(tcp_seal_frame(&a, head, sizeof head, plain, 64, sealed[1], tag[1]));
    assert_true(tcp_seal_frame(&b, head, sizeof head, plain, 64, sealed[2], tag[2]));
    for (int i = 0; i < 3; i++) {
        assert_memory_not_equal(sealed[i], sealed[(i + 1) % 3], 64);
        assert_memory_not_equal(tag[i], tag[(i + 1) % 3], TCP_TAG_BYTES);
        assert_memory_not_equal(sealed[i], plain, 64);
    }
    tcp_open_begin(&b, head, sizeof head);
    tcp_open_update(&b, sealed[0], 20); /* in pieces, as it comes from a socket */
    tcp_open_update(&b, sealed[0] + 20, 44);
    assert_true(tcp_open_end(&b, tag[0]));
    assert_memory_equal(sealed[0], plain, 64);
    tcp_open_begin(&b, head, sizeof head - 1); /* the head is sealed as well */
    tcp_open_update(&b, sealed[1], 64);
    assert_false(tcp_open_end(&b, tag[1]));
    tcp_seal_end(&a);
    tcp_seal_end(&b);
    cipher_unload(&cipher);
}

static void test_levels_differ(void **state)
{
    struct cipher cipher;

    (void)state;
    if (!cipher_load(os_host(), &cipher))
        skip();
    cipher_unload(&cipher);
    struct world *world = world_new(2, 1);

    strcpy(world->ranks[1].config.security, "auth");
    strcpy(world->ranks[0].config.security, "tls");
    world_listen(world);
    for (int i = 0; i < 2; i++)
        world->ranks[i].tcp->timeout_ns = GIVE_UP_NS;
    world_connect(world);
    assert_int_equal(world->ranks[1].status, HVD_ERR_CONFIG);
    assert_non_null(strstr(world->ranks[1].error.text,
                           "ranks disagree on HOROVOD_SECURITY: tls there, auth here"));
    assert_int_not_equal(world->ranks[0].status, HVD_OK);
    world_free(world);
}

/* --- frames --- */

static void test_every_flipped_bit_of_a_control_frame(void **state)
{
    uint8_t bytes[TCP_CONTROL_HEAD + 20];
    const struct tcp_control_frame sent = {TCP_CONTROL_MESSAGE, 20, 9, 4};
    struct tcp_control_frame frame;

    (void)state;
    memset(bytes, 5, sizeof bytes);
    tcp_control_encode(&sent, bytes + TCP_CONTROL_HEAD, bytes);
    assert_int_equal(tcp_control_decode(bytes, sizeof bytes, 0, 9, 4, &frame, NULL), HVD_OK);
    assert_int_equal(frame.length, 20);
    for (size_t n = 0; n < sizeof bytes; n++)
        assert_int_equal(tcp_control_decode(bytes, n, 0, 9, 4, &frame, NULL), HVD_AGAIN);
    assert_int_equal(tcp_control_decode(bytes, sizeof bytes, 0, 10, 4, &frame, NULL),
                     HVD_ERR_STALE);
    assert_int_equal(tcp_control_decode(bytes, sizeof bytes, 0, 9, 5, &frame, NULL),
                     HVD_ERR_CORRUPT);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(tcp_control_decode(bytes, sizeof bytes, 0, 9, 4, &frame, NULL),
                             HVD_OK);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void test_every_flipped_bit_of_a_bulk_head(void **state)
{
    uint8_t head[TCP_BULK_HEAD];
    struct tcp_bulk_frame sent = {TCP_BULK_FIRST, 6, 100, 500, 9, 77}, frame;

    (void)state;
    tcp_bulk_encode(&sent, head);
    assert_int_equal(tcp_bulk_decode(head, 9, &frame, NULL), HVD_OK);
    assert_int_equal(frame.stream, 6);
    assert_int_equal(frame.left, 500);
    assert_int_equal(tcp_bulk_decode(head, 8, &frame, NULL), HVD_ERR_STALE);
    for (size_t bit = 0; bit < 8 * sizeof head; bit++) {
        head[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(tcp_bulk_decode(head, 9, &frame, NULL), HVD_ERR_CORRUPT);
        head[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    sent.length = TCP_SEGMENT_MAX + 1;
    sent.left = 1u << 30;
    tcp_bulk_encode(&sent, head);
    assert_int_equal(tcp_bulk_decode(head, 9, &frame, NULL), HVD_ERR_CORRUPT);
    sent.length = 501;
    sent.left = 500;
    tcp_bulk_encode(&sent, head);
    assert_int_equal(tcp_bulk_decode(head, 9, &frame, NULL), HVD_ERR_CORRUPT);
}

/* A rank with the right key but with a defect: frames that are sealed well and make no sense. */
static void test_sealed_nonsense(void **state)
{
    static const struct tcp_bulk_frame frames[] = {
        {TCP_BULK_MORE, 0, 4, 4, 3, 0},  {TCP_BULK_ABORT, 0, 0, 4, 3, 0},
        {TCP_BULK_FIRST, 1, 4, 4, 3, 0}, {TCP_BULK_FIRST, 0, 4, 4, 2, 0},
        {TCP_BULK_FIRST, 0, 4, 8, 3, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        struct world *world = world_ready(2, 2);
        struct tcp_peer *peer = world->ranks[1].tcp->peers[0];
        struct transport_req recv;
        uint8_t head[TCP_BULK_HEAD + TCP_TAG_BYTES] = {0}, bytes[8];
        const size_t head_bytes = TCP_BULK_HEAD + world->ranks[1].tcp->tag_bytes;

        post_recv(world, 0, 1, 0, bytes, 4, &recv);
        tcp_bulk_encode(&frames[i], head);
        assert_int_equal(send(peer->flows[0].conn.fd, head, head_bytes, MSG_NOSIGNAL), head_bytes);
        await_down(world, 0);
        assert_int_equal(world->ranks[0].down_status,
                         frames[i].epoch == 3 ? HVD_ERR_CORRUPT : HVD_ERR_STALE);
        assert_int_equal(recv.status, world->ranks[0].down_status);
        world_free(world);
    }
}

/* --- every system call of one rank fails once --- */

/* A send that has filled the socket is cancelled in the middle of a frame, whose rest is copied. */
static void torture_cancel(struct world *world)
{
    static uint8_t bytes[16 << 20];
    static uint8_t next_bytes[1000];
    struct transport_req req = {0}, next = {0};
    struct transport *a = end_of(world, 0);

    a->ops->bulk_send(a, 1, 5, bytes, sizeof bytes, &req);
    for (int i = 0; i < 100; i++)
        turn(world);
    a->ops->bulk_cancel(a, &req);
    a->ops->bulk_send(a, 1, 5, next_bytes, sizeof next_bytes, &next);
    for (int i = 0; i < 100; i++)
        turn(world);
    a->ops->bulk_cancel(a, &next);
    assert_true(req.status < 0 && next.status != HVD_IN_PROGRESS);
}

static void torture_traffic(struct world *world)
{
    static uint8_t bytes[4][300000];
    struct transport_req reqs[4] = {{0}};
    struct transport *a = end_of(world, 0), *b = end_of(world, 1);

    a->ops->bulk_send(a, 1, 1, bytes[0], sizeof bytes[0], &reqs[0]);
    a->ops->bulk_recv(a, 1, 2, bytes[1], sizeof bytes[1], &reqs[1]);
    b->ops->message_send(b, 0, bytes[0], 5000);
    b->ops->bulk_send(b, 0, 2, bytes[2], sizeof bytes[2], &reqs[2]);
    b->ops->bulk_recv(b, 0, 2, bytes[3], 1, &reqs[3]); /* nothing comes: stream 1 is set aside */
    for (int i = 0; i < 300; i++)
        turn(world);
    b->ops->bulk_cancel(b, &reqs[3]);
    b->ops->bulk_recv(b, 0, 1, bytes[3], sizeof bytes[3], &reqs[3]);
    for (int i = 0; i < TURNS_MAX; i++) {
        bool is_over = true;

        for (int r = 0; r < 4; r++)
            is_over &= reqs[r].status != HVD_IN_PROGRESS;
        if (is_over) {
            torture_cancel(world);
            return;
        }
        turn(world);
    }
    fail_msg("a request never ended");
}

/* How many calls were made that can fail. */
static uint64_t torture_once(uint64_t fail_at)
{
    struct fault_os *fault = fault_os_create(os_host(), fail_at);
    struct world *world = world_new(2, 1);
    struct endpoint self[2] = {0};
    struct rank *ranks = world->ranks;
    uint64_t calls = 0;

    assert_non_null(fault);
    ranks[1].os = fault_os_table(fault);
    for (int32_t i = 0; i < 2; i++) {
        struct rank *rank = &ranks[i];

        rank->status =
            tcp_create(rank->os, &rank->config, i, true, &self[i], &rank->tcp, &rank->error);
        if (rank->status != HVD_OK) {
            assert_int_equal(i, 1);
            assert_true(rank->error.text[0] != '\0');
            goto over;
        }
        rank->tcp->timeout_ns = fail_at == 0 ? 20000000000 : 100000000;
    }
    for (int32_t i = 0; i < 2; i++) {
        memcpy(ranks[i].all, self, sizeof self);
        ranks[i].wanted[0] = ranks[i].wanted[1] = true;
    }
    world_connect(world);
    for (int32_t i = 0; i < 2; i++) {
        if (ranks[i].status != HVD_OK) {
            assert_true(ranks[i].error.text[0] != '\0');
            goto over;
        }
    }
    torture_traffic(world);

over:
    calls = fault_os_calls(fault);
    world_free(world);
    fault_os_destroy(fault);
    return calls;
}

static void test_every_call_fails_once(void **state)
{
    uint64_t calls = 0;

    (void)state;
    calls = torture_once(0);
    assert_true(calls > 50);
    /* beyond connecting the calls repeat themselves: every poll and recv is like the last */
    for (uint64_t k = 1; k <= calls; k += k < 100 ? 1 : 29)
        torture_once(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_CASE(test_garbage_on_the_port, check_strangers, true),
        UNIT_CASE(test_silence_on_the_port, check_strangers, false),
        CONFORMANCE_TESTS(&one_flow),
        CONFORMANCE_TESTS(&three_flows),
        cmocka_unit_test(test_three_ranks),
        cmocka_unit_test(test_eight_mib_both_ways),
        cmocka_unit_test(test_receive_comes_late),
        cmocka_unit_test(test_sleep_beside_unawaited_bulk),
        cmocka_unit_test(test_cancel_half_sent),
        cmocka_unit_test(test_cancel_without_memory),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_lengths_differ),
        cmocka_unit_test(test_heartbeats),
        cmocka_unit_test(test_peer_gone_between_bulk),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_stale_epoch),
        cmocka_unit_test(test_flow_counts_differ),
        cmocka_unit_test(test_first_proven_address_wins),
        cmocka_unit_test(test_all_interfaces),
        cmocka_unit_test(test_which_addresses),
        cmocka_unit_test(test_port_range),
        cmocka_unit_test(test_flipped_bit_in_bulk),
        cmocka_unit_test(test_flipped_bit_in_message),
        cmocka_unit_test(test_tampering_with_control_frames),
        cmocka_unit_test(test_verified_is_not_evicted),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_repeated_bulk_frame),
        cmocka_unit_test(test_no_two_seals_are_alike),
        cmocka_unit_test(test_levels_differ),
        cmocka_unit_test(test_every_flipped_bit_of_a_control_frame),
        cmocka_unit_test(test_every_flipped_bit_of_a_bulk_head),
        cmocka_unit_test(test_sealed_nonsense),
        cmocka_unit_test(test_every_call_fails_once),
    };

    static const char *const levels[] = {"auth", "mac", "tls", "off"};
    struct cipher cipher;
    const bool has_cipher = cipher_load(os_host(), &cipher);
    int failed = 0;

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        level = levels[i];
        if (is_sealed() && !has_cipher) {
            printf("HOROVOD_SECURITY=%s: no libcrypto on this machine\n", level);
            continue;
        }
        alarm(DEADLINE_S);
        failed += cmocka_run_group_tests_name(level, tests, NULL, NULL);
    }
    cipher_unload(&cipher);
    return failed;
}
