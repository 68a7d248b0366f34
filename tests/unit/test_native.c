/* SPDX-License-Identifier: Apache-2.0 */
/* test_native.c - the native backend and the conformance suite: by schedules over a simulated
 * network, in shared memory, and both together.
 *
 * All ranks are in this process. test_net_coll.c and test_host_coll.c test each half in more depth.
 * Start reading at open_any(). */
#include "backend_conformance.h"

#include <pthread.h>
#include <stdio.h>

#include "backend/native/native.h"
#include "transport/shm/shm.h"
#include "transport/sim/sim_net.h"

struct ground {
    struct config config;
    struct sim_net *net;
    struct transport *sim[CONFORM_RANKS], *shm[CONFORM_RANKS];
    struct transport *routes[CONFORM_RANKS][CONFORM_RANKS];
    struct endpoint all[CONFORM_RANKS];
    int poll_fd[CONFORM_RANKS];
};

static const int32_t ranks[CONFORM_RANKS] = {0, 1, 2, 3};

static void ignore_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    (void)ctx, (void)peer, (void)bytes, (void)n;
}

static void ignore_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    (void)ctx, (void)peer, (void)status;
    fail_msg("a peer is down: %s", why);
}

static const struct transport_events events = {.message = ignore_message, .peer_down = ignore_down};

/* --- shared memory among all, or among the ranks of a host --- */

struct joiner {
    struct ground *g;
    int32_t rank, size;
    hvd_status_t status;
};

static void *join_host(void *arg)
{
    static const uint8_t key[32] = {5};
    struct joiner *j = arg;
    j->status = shm_connect(shm_of(j->g->shm[j->rank]), j->g->all, j->size, NULL, key, 1,
                            j->g->poll_fd[j->rank], &events, NULL);
    return NULL;
}

static void share(struct ground *g, int32_t size, const int32_t *host)
{
    struct joiner joiners[CONFORM_RANKS];
    pthread_t threads[CONFORM_RANKS];
    const struct os *os = os_host();
    for (int32_t i = 0; i < size; i++) {
        struct shm *shm = NULL;
        assert_int_equal(shm_create(os, &g->config, i, &g->all[i], &shm, NULL), HVD_OK);
        g->shm[i] = shm_transport(shm);
        snprintf(g->all[i].host_id, sizeof g->all[i].host_id, "host-%d", host[i]);
        g->poll_fd[i] = os->poll_create(os->ctx);
        joiners[i] = (struct joiner){g, i, size, HVD_OK};
    }
    for (int32_t i = 0; i < size; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, join_host, &joiners[i]), 0);
    for (int32_t i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(joiners[i].status, HVD_OK);
    }
    for (int32_t i = 0; i < size; i++)
        for (int32_t k = 0; k < size; k++)
            if (i != k && host[i] == host[k])
                g->routes[i][k] = g->shm[i];
}

/* --- the factory --- */

static void open_any(struct conform_world *w, int32_t size, const int32_t *host, int32_t hosts)
{
    static const struct backend_row *const rows[] = {&native_row, NULL};
    struct ground *g = calloc(1, sizeof *g);
    struct sim_net_options options = {
        .seed = 7, .ranks = size, .delay_min_ns = 1000, .delay_max_ns = 9000};
    assert_non_null(g);
    w->ctx = g;
    g->config = (struct config){.local_size = -1,
                                .timeout_s = 20,
                                .arena_max_bytes = 64 << 20,
                                .cma = 1,
                                .hierarchical_allreduce = true};
    g->net = sim_net_create(os_host(), &options);
    assert_non_null(g->net);
    for (int32_t i = 0; i < size; i++) {
        g->sim[i] = sim_net_open(g->net, i, &events);
        for (int32_t k = 0; k < size; k++)
            g->routes[i][k] = i != k ? g->sim[i] : NULL;
    }
    if (hosts < size)
        share(g, size, host);
    for (int32_t i = 0; i < size; i++) {
        struct backend_place place = {.os = os_host(),
                                      .config = &g->config,
                                      .rank = i,
                                      .size = size,
                                      .routes = g->routes[i],
                                      .sight = g->shm[i]};
        struct error error = {0};
        w->told[i] = (struct group){
            .size = size,
            .self = i,
            .ranks = ranks,
            .topology = {.size = size, .host_count = hosts, .host = host, .channels = 1},
            .is_one_host = hosts == 1};
        assert_int_equal(backends_create(rows, &place, &w->backend[i], &error), HVD_OK);
        assert_string_equal(w->backend[i]->ops->name, "native"); /* itself: nothing in between */
        if (w->backend[i]->ops->group_open(w->backend[i], &w->told[i], &w->group[i], &error) !=
            HVD_OK)
            fail_msg("%s", error.text);
    }
}

static void open_net(struct conform_world *w, int32_t size)
{
    open_any(w, size, ranks, size);
}

static void open_sight(struct conform_world *w, int32_t size)
{
    static const int32_t host[CONFORM_RANKS] = {0};
    open_any(w, size, host, 1);
}

/* Ranks 0 and 1 share memory, the rest are alone. */
static void open_mixed(struct conform_world *w, int32_t size)
{
    static const int32_t host[CONFORM_RANKS] = {0, 0, 1, 2};
    open_any(w, size, host, size - 1);
}

static void turn_any(struct conform_world *w, int32_t rank)
{
    struct ground *g = w->ctx;
    if (!sim_net_is_due(g->net, rank))
        sim_net_advance(g->net, sim_net_now_ns(g->net) + 1000);
    g->sim[rank]->ops->progress(g->sim[rank], sim_net_now_ns(g->net));
    if (g->shm[rank] != NULL)
        g->shm[rank]->ops->progress(g->shm[rank], sim_net_now_ns(g->net));
}

static void close_any(struct conform_world *w)
{
    struct ground *g = w->ctx;
    for (int32_t i = 0; i < w->size; i++) {
        w->backend[i]->ops->group_close(w->backend[i], w->group[i]);
        w->backend[i]->ops->destroy(w->backend[i]);
    }
    for (int32_t i = 0; i < w->size; i++)
        if (g->shm[i] != NULL) {
            g->shm[i]->ops->destroy(g->shm[i]);
            os_host()->close(os_host()->ctx, g->poll_fd[i]);
        }
    sim_net_destroy(g->net);
    free(g);
}

static const struct backend_conformance net = {open_net, close_any, turn_any};
static const struct backend_conformance sight = {open_sight, close_any, turn_any};
static const struct backend_conformance mixed = {open_mixed, close_any, turn_any};

int main(void)
{
    const struct CMUnitTest tests[] = {
        BACKEND_CONFORMANCE_TESTS(&net),
        BACKEND_CONFORMANCE_TESTS(&sight),
        BACKEND_CONFORMANCE_TESTS(&mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
