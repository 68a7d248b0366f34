/* SPDX-License-Identifier: Apache-2.0 */
/* test_links.c - ranks link over the best transport that both have.
 *
 * A few ranks in one process, each with a separate table: fake rows, which record their arguments,
 * and in two tests the real ones. Adding a transport is a row: nothing else here knows their names.
 * Start reading at world_link(). */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/links.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

#define RANKS_MAX 4

/* ---- made-up transports ---- */

struct fake {
    struct transport base;
    bool wanted[RANKS_MAX];
    bool is_connected;
};

static int live; /* made and not destroyed */

static void fake_destroy(struct transport *t)
{
    live--;
    free(t);
}

static const struct transport_ops fake_ops = {.version = TRANSPORT_VERSION,
                                              .destroy = fake_destroy};

static hvd_status_t fake_make(const char *name, const char *address, struct endpoint *self,
                              struct transport **ret, struct error *error)
{
    struct fake *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->base.ops = &fake_ops;
    live++;
    *ret = &f->base;
    return endpoint_offer(self, name, address, strlen(address), error);
}

static hvd_status_t fake_connect(struct transport *t, const struct transport_meeting *m,
                                 const bool *wanted, struct error *error)
{
    struct fake *f = (struct fake *)t;
    (void)error;
    memcpy(f->wanted, wanted, (size_t)m->count * sizeof *wanted);
    f->is_connected = true;
    return HVD_OK;
}

static bool probe_yes(const struct transport_place *place, char *ret_why)
{
    (void)place, (void)ret_why;
    return true;
}

static bool probe_no(const struct transport_place *place, char *ret_why)
{
    (void)place;
    snprintf(ret_why, WHY_MAX, "This machine has no warp drive.");
    return false;
}

static bool enough_yes(const struct transport_place *place)
{
    (void)place;
    return true;
}

static bool offer_any(const uint8_t *bytes, size_t n)
{
    (void)bytes;
    return n < 8;
}

static hvd_status_t warp_open(const struct transport_place *place, struct endpoint *self,
                              struct transport **ret, struct error *error)
{
    (void)place;
    return fake_make("warp", "w", self, ret, error);
}

static hvd_status_t slow_open(const struct transport_place *place, struct endpoint *self,
                              struct transport **ret, struct error *error)
{
    (void)place;
    return fake_make("slow", "s", self, ret, error);
}

static hvd_status_t slug_open(const struct transport_place *place, struct endpoint *self,
                              struct transport **ret, struct error *error)
{
    (void)place;
    return fake_make("slug", "s", self, ret, error);
}

static hvd_status_t odd_open(const struct transport_place *place, struct endpoint *self,
                             struct transport **ret, struct error *error)
{
    (void)place;
    return fake_make("odd", "o", self, ret, error);
}

static int32_t score_200(const struct endpoint *a, const struct endpoint *b)
{
    assert_true(a->rank < b->rank); /* asked alike on both sides */
    return 200;
}

static int32_t score_5(const struct endpoint *a, const struct endpoint *b)
{
    (void)a, (void)b;
    return 5;
}

/* Only between ranks 1 and 2. */
static int32_t score_odd(const struct endpoint *a, const struct endpoint *b)
{
    return a->rank == 1 && b->rank == 2 ? 300 : -1;
}

static const struct transport_row warp = {.name = "warp",
                                          .probe = probe_yes,
                                          .open = warp_open,
                                          .is_offer = offer_any,
                                          .score = score_200,
                                          .connect = fake_connect};
static const struct transport_row no_warp = {.name = "warp",
                                             .probe = probe_no,
                                             .open = warp_open,
                                             .is_offer = offer_any,
                                             .score = score_200,
                                             .connect = fake_connect};
static const struct transport_row slow = {.name = "slow",
                                          .hint = "Buy a faster one.",
                                          .probe = probe_yes,
                                          .open = slow_open,
                                          .is_offer = offer_any,
                                          .score = score_5,
                                          .connect = fake_connect};
static const struct transport_row slug = {.name = "slug",
                                          .probe = probe_yes,
                                          .open = slug_open,
                                          .is_offer = offer_any,
                                          .score = score_5,
                                          .connect = fake_connect};
static const struct transport_row odd = {.name = "odd",
                                         .is_collective = true,
                                         .probe = probe_yes,
                                         .open = odd_open,
                                         .is_offer = offer_any,
                                         .score = score_odd,
                                         .connect = fake_connect};

/* ---- a world ---- */

struct rank {
    struct links links;
    struct config config;
    struct endpoint self, all[RANKS_MAX];
    const struct transport_row *const *rows;
    struct error error;
    hvd_status_t status;
    int poll_fd;
    int32_t index, count;
};

static struct rank ranks[RANKS_MAX];
static const struct log quiet = {.level = LOG_FATAL};

static void rank_open(int32_t i, int32_t count, const struct transport_row *const *rows,
                      bool is_one_host)
{
    struct rank *r = &ranks[i];
    struct transport_place place = {.os = os_host(),
                                    .config = &r->config,
                                    .rank = i,
                                    .size = count,
                                    .is_one_host = is_one_host};
    r->index = r->self.rank = i;
    r->count = count;
    r->rows = rows;
    r->config.timeout_s = 20;
    r->config.tcp_flows = 1;
    r->config.local_size = -1;
    r->config.arena_max_bytes = 64 << 20;
    r->self.pid = 100 + i;
    snprintf(r->self.host_name, sizeof r->self.host_name, "host%d", i);
    r->poll_fd = place.os->poll_create(place.os->ctx);
    r->status = links_open(&r->links, rows, &place, &quiet, &r->self, &r->error);
}

/* What the rendezvous does: everybody's endpoint, as bytes, to everybody. */
static void world_meet(int32_t count)
{
    static uint8_t wire[8192];
    for (int32_t i = 0; i < count; i++) {
        struct writer w;
        writer_init(&w, wire, sizeof wire);
        endpoint_put(&w, &ranks[i].self);
        for (int32_t k = 0; k < count; k++) {
            struct reader r;
            reader_init(&r, wire, w.used);
            assert_true(endpoint_get(&r, &ranks[k].all[i]));
        }
    }
}

static void ignore_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    (void)ctx, (void)peer, (void)bytes, (void)n;
}

static void ignore_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    (void)ctx, (void)peer, (void)status, (void)why;
}

static void *rank_link(void *arg)
{
    static const uint8_t key[32] = {3};
    static const struct transport_events events = {.message = ignore_message,
                                                   .peer_down = ignore_down};
    struct rank *r = arg;
    struct transport_meeting meeting = {.all = r->all,
                                        .count = r->count,
                                        .key = key,
                                        .epoch = 1,
                                        .poll_fd = r->poll_fd,
                                        .events = &events};
    if (r->status == HVD_OK)
        r->status = links_choose(&r->links, r->all, &r->error);
    if (r->status == HVD_OK)
        r->status = links_connect(&r->links, &meeting, &r->error);
    return NULL;
}

static void world_link(int32_t count)
{
    pthread_t threads[RANKS_MAX];
    world_meet(count);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rank_link, &ranks[i]), 0);
    for (int32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void world_open(int32_t count, const struct transport_row *const *const *rows,
                       bool is_one_host)
{
    memset(ranks, 0, sizeof ranks);
    for (int32_t i = 0; i < count; i++) {
        rank_open(i, count, rows[i], is_one_host);
        assert_int_equal(ranks[i].status, HVD_OK);
    }
}

static void world_close(int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        links_destroy(&ranks[i].links);
        links_destroy(&ranks[i].links); /* safe on what is closed */
        os_host()->close(os_host()->ctx, ranks[i].poll_fd);
    }
    assert_int_equal(live, 0);
}

static const char *by_what(int32_t from, int32_t to)
{
    const struct transport_row *row = ranks[from].links.chosen[to];
    return row != NULL ? row->name : "";
}

/* ---- tests ---- */

typedef const struct transport_row *const table[4];

/* Both have it: the better one wins, whatever the order of the table. */
static void test_better_wins(void **state)
{
    static table one = {&warp, &slow, NULL}, other = {&slow, &warp, NULL};
    const struct transport_row *const *rows[] = {one, other};
    struct transport *used[TRANSPORTS_MAX];
    (void)state;
    world_open(2, rows, false);
    world_link(2);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, HVD_OK);
        assert_string_equal(by_what(i, 1 - i), "warp");
        assert_string_equal(by_what(i, i), "");
        assert_int_equal(links_list(&ranks[i].links, used, TRANSPORTS_MAX), 1);
        assert_ptr_equal(used[0], ranks[i].links.routes[1 - i]);
        assert_true(((struct fake *)used[0])->wanted[1 - i]);
        assert_false(((struct fake *)used[0])->wanted[i]);
        assert_null(ranks[i].links.routes[i]);
    }
    world_close(2);
}

/* Rank 1's machine lacks it: its pairs fall to what both have, the others keep the better one. */
static void test_only_one_side_has_it(void **state)
{
    static table with = {&warp, &slow, NULL}, without = {&no_warp, &slow, NULL};
    const struct transport_row *const *rows[] = {with, without, with};
    (void)state;
    world_open(3, rows, false);
    assert_null(ranks[1].links.open[0]);
    assert_string_equal(ranks[1].links.why[0], "This machine has no warp drive.");
    world_link(3);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, HVD_OK);
        for (int32_t k = 0; k < 3; k++)
            if (i != k)
                assert_string_equal(by_what(i, k), i == 1 || k == 1 ? "slow" : "warp");
    }
    world_close(3);
}

/* A rank of another build offers what we never heard of: that is no error. */
static void test_unknown_name(void **state)
{
    static table newer = {&odd, &warp, &slow, NULL}, older = {&slow, NULL};
    const struct transport_row *const *rows[] = {older, newer};
    (void)state;
    world_open(2, rows, false);
    world_link(2);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, HVD_OK);
        assert_string_equal(by_what(i, 1 - i), "slow");
    }
    world_close(2);
}

/* Equal scores: both sides come to the same one. */
static void test_equal_scores(void **state)
{
    static table one = {&slug, &slow, NULL}, other = {&slow, &slug, NULL};
    const struct transport_row *const *rows[] = {one, other};
    (void)state;
    world_open(2, rows, false);
    world_link(2);
    for (int32_t i = 0; i < 2; i++)
        assert_string_equal(by_what(i, 1 - i), "slow");
    world_close(2);
}

/* One that needs all ranks is connected on all, also where it links nobody; or on none. */
static void test_collective(void **state)
{
    static table all = {&odd, &slow, NULL};
    const struct transport_row *const *rows[] = {all, all, all};
    struct transport *used[TRANSPORTS_MAX];
    (void)state;
    for (int32_t count = 2; count <= 3; count++) {
        world_open(count, rows, false);
        world_link(count);
        for (int32_t i = 0; i < count; i++) {
            assert_int_equal(((struct fake *)ranks[i].links.open[0])->is_connected, count == 3);
            bool is_linked = count == 3 && i > 0;
            assert_int_equal(links_list(&ranks[i].links, used, TRANSPORTS_MAX), 1 + is_linked);
        }
        if (count == 3) {
            assert_string_equal(by_what(1, 2), "odd");
            assert_string_equal(by_what(2, 1), "odd");
            assert_string_equal(by_what(0, 2), "slow");
        }
        world_close(count);
    }
}

/* Nothing that both have: the error says what each of them has, why not more, and what to do. */
static void test_nothing_in_common(void **state)
{
    static table one = {&no_warp, &slow, NULL}, other = {&warp, NULL};
    const struct transport_row *const *rows[] = {one, other};
    (void)state;
    world_open(2, rows, false);
    world_link(2);
    for (int32_t i = 0; i < 2; i++)
        assert_int_equal(ranks[i].status, HVD_ERR_LINK);
    const char *text = ranks[0].error.text;
    assert_non_null(strstr(text, "rank 1 (pid 101 on host1)"));
    assert_non_null(strstr(text, "offers slow, that one warp"));
    assert_non_null(strstr(text, "warp: This machine has no warp drive."));
    assert_non_null(strstr(text, "Buy a faster one."));
    world_close(2);
}

/* Rank 1 sends nonsense: every rank refuses it, and names it. */
static void test_malformed_offer(void **state)
{
    static table all = {&slow, NULL};
    const struct transport_row *const *rows[] = {all, all, all};
    (void)state;
    world_open(3, rows, false);
    ranks[1].self.offer_count = 0;
    endpoint_offer(&ranks[1].self, "slow", "far too long", 12, NULL);
    world_link(3);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, HVD_ERR_CORRUPT);
        assert_non_null(strstr(ranks[i].error.text, "Rank 1 on host1"));
        assert_non_null(strstr(ranks[i].error.text, "slow"));
    }
    world_close(3);
}

/* An endpoint of ours that came back with more than we offer is no reason to crash. */
static void test_offer_that_is_not_open(void **state)
{
    static table with = {&warp, &slow, NULL}, without = {&no_warp, &slow, NULL};
    const struct transport_row *const *rows[] = {without, with};
    (void)state;
    world_open(2, rows, false);
    endpoint_offer(&ranks[0].self, "warp", "w", 1, NULL);
    world_meet(2);
    rank_link(&ranks[0]);
    assert_int_equal(ranks[0].status, HVD_ERR_LINK);
    world_close(2);
}

/* What listens on the network stays closed where another is enough, wherever it is in the table. */
static void test_nothing_listens_without_need(void **state)
{
    static struct transport_row enough, listening;
    static const struct transport_row *const all[] = {&listening, &enough, NULL};
    const struct transport_row *const *rows[] = {all, all};
    (void)state;
    enough = slow;
    listening = warp;
    listening.is_exposed = true;
    for (int is_enough = 0; is_enough < 2; is_enough++) {
        enough.is_enough = is_enough ? enough_yes : NULL;
        world_open(2, rows, false);
        for (int32_t i = 0; i < 2; i++)
            assert_int_equal(ranks[i].links.open[0] == NULL, is_enough);
        world_link(2);
        assert_string_equal(by_what(0, 1), is_enough ? "slow" : "warp");
        world_close(2);
    }
}

/* Hosts are numbered by who shares memory with whom, and only if that is the link they have. */
static void test_hosts(void **state)
{
    static struct transport_row sight;
    static const struct transport_row *const all[] = {&sight, &warp, NULL};
    static const struct transport_row *const only[] = {&sight, NULL};
    const struct transport_row *const *both[] = {all, all, all, all};
    const struct transport_row *const *alone[] = {only, only, only, only};
    (void)state;
    sight = slow;
    sight.is_sight = true;
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        world_open(4, is_alone ? alone : both, false);
        for (int32_t i = 0; i < 4; i++)
            snprintf(ranks[i].self.host_id, sizeof ranks[i].self.host_id, "%s",
                     i % 2 == 0 ? "even" : "odd");
        world_link(4);
        for (int32_t i = 0; i < 4; i++)
            for (int32_t k = 0; k < 4; k++)
                assert_int_equal(ranks[i].links.host[k], is_alone ? k % 2 : k);
        world_close(4);
    }
}

/* ---- with the real ones ---- */

static void expect_link(int32_t from, int32_t to)
{
    struct transport *t = ranks[from].links.routes[to];
    assert_non_null(t);
    assert_true(t->ops->reaches(t, to));
}

/* A new row that one machine lacks: the real TCP links the two. */
static void test_fake_and_tcp(void **state)
{
    static table with = {&warp, &tcp_row, NULL}, without = {&no_warp, &tcp_row, NULL};
    const struct transport_row *const *rows[] = {with, without};
    (void)state;
    world_open(2, rows, true);
    world_link(2);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, HVD_OK);
        assert_string_equal(by_what(i, 1 - i), "tcp");
        expect_link(i, 1 - i);
    }
    world_close(2);
}

/* Rank 2 has no shared memory: the other two have it between them, and TCP links it with both. */
static void test_one_without_shm(void **state)
{
    static struct transport_row no_shm;
    static table with = {&shm_row, &tcp_row, NULL}, without = {&no_shm, &tcp_row, NULL};
    const struct transport_row *const *rows[] = {with, with, without};
    (void)state;
    no_shm = shm_row;
    no_shm.probe = probe_no;
    world_open(3, rows, false);
    world_link(3);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, HVD_OK);
        for (int32_t k = 0; k < 3; k++) {
            if (i == k)
                continue;
            assert_string_equal(by_what(i, k), i == 2 || k == 2 ? "tcp" : "shm");
            expect_link(i, k);
        }
        assert_int_equal(ranks[i].links.host[0], 0);
        assert_int_equal(ranks[i].links.host[1], 0);
        assert_int_equal(ranks[i].links.host[2], 1);
    }
    world_close(3);
}

/* A better row takes over within a machine: shared memory is not connected and not counted on. */
static void test_better_than_shm(void **state)
{
    static table all = {&shm_row, &warp, NULL};
    const struct transport_row *const *rows[] = {all, all};
    (void)state;
    world_open(2, rows, true);
    world_link(2);
    for (int32_t i = 0; i < 2; i++) {
        struct transport *shm = ranks[i].links.open[0];
        assert_int_equal(ranks[i].status, HVD_OK);
        assert_string_equal(by_what(i, 1 - i), "warp");
        assert_false(shm->ops->reaches(shm, 1 - i));
        assert_int_equal(ranks[i].links.host[1], 1);
    }
    world_close(2);
}

/* Rank 1 dies between the meeting and its links: the other's error names it. */
static void test_peer_never_connects(void **state)
{
    static table all = {&shm_row, NULL};
    const struct transport_row *const *rows[] = {all, all};
    (void)state;
    world_open(2, rows, true);
    ranks[0].config.timeout_s = 1;
    world_meet(2);
    rank_link(&ranks[0]);
    assert_int_equal(ranks[0].status, HVD_ERR_LINK);
    assert_non_null(strstr(ranks[0].error.text, "rank 1 (pid "));
    assert_non_null(strstr(ranks[0].error.text, "HOROVOD_SHM_DISABLE=1"));
    world_close(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_better_wins),
        cmocka_unit_test(test_only_one_side_has_it),
        cmocka_unit_test(test_unknown_name),
        cmocka_unit_test(test_equal_scores),
        cmocka_unit_test(test_collective),
        cmocka_unit_test(test_nothing_in_common),
        cmocka_unit_test(test_malformed_offer),
        cmocka_unit_test(test_offer_that_is_not_open),
        cmocka_unit_test(test_nothing_listens_without_need),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_fake_and_tcp),
        cmocka_unit_test(test_one_without_shm),
        cmocka_unit_test(test_better_than_shm),
        cmocka_unit_test(test_peer_never_connects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
