/* SPDX-License-Identifier: Apache-2.0 */
/* test_ask.c - records between a rank and its agent: round trip, odd texts, bytes that are not a
 * record; and the socket: who may be at the other end, and paths that do not fit. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/ask.h"

static const struct ask_status full = {.rank = 3,
                                       .size = 70000,
                                       .epoch = 1ull << 40,
                                       .state = "running",
                                       .cause = "rank 2 is gone",
                                       .busy_ns = 5,
                                       .steps = 1ull << 50,
                                       .step_ns = 12,
                                       .since_ns = 13,
                                       .in_flight = 7,
                                       .op = "allreduce.grad\n",
                                       .doing = "announced",
                                       .op_ns = 14,
                                       .missing = "1,2",
                                       .steps_ns = 15,
                                       .alone_ns = 16,
                                       .op_bytes = 17,
                                       .user_ns = 23,
                                       .system_ns = 24,
                                       .slow = "2 late submit",
                                       .peer_count = 2,
                                       .peers = {{1, 18, 19, 20, 21, 22}, {69999, 1, 2, 3, 4, 5}}};

static void status_round_trip(void **state)
{
    uint8_t bytes[ASK_STATUS_MAX];
    struct ask_status out;
    (void)state;
    size_t n = ask_status_put(&full, bytes);
    assert_true(n > 0);
    assert_true(ask_status_get(bytes, n, &out));
    assert_true(out.rank == 3 && out.size == 70000 && out.epoch == full.epoch);
    assert_true(out.steps == full.steps && out.step_ns == 12 && out.since_ns == 13);
    assert_true(out.in_flight == 7 && out.op_ns == 14 && out.busy_ns == 5);
    assert_string_equal(out.state, "running");
    assert_string_equal(out.cause, full.cause);
    assert_string_equal(out.op, "allreduce.grad ");
    assert_string_equal(out.doing, "announced");
    assert_string_equal(out.missing, "1,2");
    assert_true(out.steps_ns == 15 && out.alone_ns == 16 && out.op_bytes == 17);
    assert_true(out.user_ns == 23 && out.system_ns == 24);
    assert_string_equal(out.slow, "2 late submit");
    assert_int_equal(out.peer_count, 2);
    assert_memory_equal(out.peers, full.peers, 2 * sizeof *full.peers);
}

static void longest_status(void **state)
{
    uint8_t bytes[ASK_STATUS_MAX];
    struct ask_status in = {.size = 1}, out;
    (void)state;
    memset(in.state, 'a', sizeof in.state - 1);
    memset(in.cause, 'b', sizeof in.cause - 1);
    memset(in.op, 'c', sizeof in.op - 1);
    memset(in.doing, 'd', sizeof in.doing - 1);
    memset(in.missing, '1', sizeof in.missing - 1);
    memset(in.slow, '1', sizeof in.slow - 1);
    in.peer_count = ASK_PEERS_MAX;
    for (int i = 0; i < ASK_PEERS_MAX; i++)
        in.peers[i] = (struct ask_peer){0, i, 1, 2, 3, 4};
    size_t n = ask_status_put(&in, bytes);
    assert_true(n > 0 && ask_status_get(bytes, n, &out));
    assert_string_equal(out.cause, in.cause);
    assert_string_equal(out.missing, in.missing);
    assert_string_equal(out.slow, in.slow);
    assert_true(out.peers[ASK_PEERS_MAX - 1].awaits_ns == ASK_PEERS_MAX - 1);
}

static void bad_peers(void **state)
{
    static const struct ask_peer bad[] = {{.rank = -1}, {.rank = 70000}, {.receive_ns = -1}};
    uint8_t bytes[ASK_STATUS_MAX];
    struct ask_status out;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ask_status in = full;
        in.peers[1] = bad[i];
        assert_false(ask_status_get(bytes, ask_status_put(&in, bytes), &out));
    }
    struct ask_status in = full;
    in.peer_count = -1;
    assert_false(ask_status_get(bytes, ask_status_put(&in, bytes), &out));
    in.peer_count = ASK_PEERS_MAX + 1;
    assert_false(ask_status_get(bytes, ask_status_put(&in, bytes), &out));
}

static void not_a_status(void **state)
{
    uint8_t bytes[ASK_STATUS_MAX] = {0};
    struct ask_status out;
    (void)state;
    assert_false(ask_status_get(bytes, 0, &out));
    assert_false(ask_status_get(bytes, sizeof bytes, &out));
    size_t n = ask_status_put(&full, bytes);
    for (size_t shorter = 0; shorter < n; shorter++)
        assert_false(ask_status_get(bytes, shorter, &out));
    assert_false(ask_status_get(bytes, n + 1, &out));
    bytes[11] = 0xff; /* a negative rank */
    assert_false(ask_status_get(bytes, n, &out));
    ask_status_put(&full, bytes);
    bytes[27] = 0xff; /* a text beyond the end */
    assert_false(ask_status_get(bytes, n, &out));
}

static void end_round_trip(void **state)
{
    uint8_t bytes[ASK_END_MAX];
    struct ask_end in = {.epoch = 4, .rank = 2, .text = "was killed by signal 9 (SIGKILL)"}, out;
    (void)state;
    size_t n = ask_end_put(&in, bytes);
    assert_true(ask_end_get(bytes, n, &out));
    assert_true(out.epoch == 4 && out.rank == 2);
    assert_string_equal(out.text, in.text);
    assert_false(ask_end_get(bytes, n - 1, &out));
    bytes[0] ^= 1;
    assert_false(ask_end_get(bytes, n, &out));
}

static void sockets(void **state)
{
    const struct os *os = os_host();
    char folder[] = "/tmp/hvd-ask-XXXXXX", path[64], longer[200];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    assert_int_equal(ask_connect(os, path), -ENOENT);
    int listener = ask_listen(os, path);
    assert_true(listener >= 0);
    int fd = ask_connect(os, path);
    assert_true(fd >= 0);
    os->close(os->ctx, fd);
    int again = ask_listen(os, path); /* of a process that died, or of the last generation */
    assert_true(again >= 0);
    os->close(os->ctx, listener);
    os->close(os->ctx, again);
    assert_int_equal(ask_connect(os, path), -ECONNREFUSED);
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(ask_listen(os, longer), -ENAMETOOLONG);
    assert_int_equal(ask_connect(os, longer), -ENAMETOOLONG);
    assert_int_equal(ask_connect(os, ""), -ENAMETOOLONG);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_round_trip), cmocka_unit_test(longest_status),
        cmocka_unit_test(not_a_status),      cmocka_unit_test(bad_peers),
        cmocka_unit_test(end_round_trip),    cmocka_unit_test(sockets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
