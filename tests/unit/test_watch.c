/* SPDX-License-Identifier: Apache-2.0 */
/* test_watch.c - the thread that answers the agent, in a world of one rank: requests that are cut
 * off, too long or unknown, clients that say nothing or never read, many at once, reports of ends,
 * and a stop while a client is connected. After each of them it still answers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/watch.h"
#include "api/world.h"
#include "wire/ask.h"

#define CLIENTS   24 /* more than its queue has places for */
#define KEPT      64 /* reports that it keeps */
#define PATIENCE  20 /* seconds */
#define LONG_SIZE 4000

struct fixture {
    char folder[64], path[80];
    struct mpi_process process;
    struct tenure tenure;
    struct world *world;
};

static int open_world(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct error error = {0};
    assert_non_null(f);
    snprintf(f->folder, sizeof f->folder, "/tmp/hvd-watch-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/rank", f->folder);
    setenv("HOROVOD_STATUS_SOCKET", f->path, 1);
    if (world_create(os_host(), NULL, &f->tenure, &f->process, &f->world, &error) != HVD_OK)
        fail_msg("%s", error.text);
    assert_non_null(f->world->watch);
    *state = f;
    return 0;
}

static int close_world(void **state)
{
    struct fixture *f = *state;
    world_destroy(f->world);
    unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

/* ---- a client ---- */

static int dial(const struct fixture *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PATIENCE};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", f->path);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void tell(int fd, const void *bytes, size_t n)
{
    (void)!send(fd, bytes, n, MSG_NOSIGNAL); /* it may have closed the connection already */
}

/* Everything until the other side closes; a connection that is never closed fails the test. */
static size_t hear(int fd, uint8_t *ret, size_t bytes)
{
    size_t used = 0;
    for (;;) {
        ssize_t n = recv(fd, ret + used, bytes - used, 0);
        if (n < 0) /* it was closed with bytes that nobody had read */
            assert_int_equal(errno, ECONNRESET);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    return used;
}

static void expect_status(int fd)
{
    uint8_t bytes[ASK_STATUS_MAX + 1];
    struct ask_status status;
    size_t n = hear(fd, bytes, sizeof bytes);
    assert_true(ask_status_get(bytes, n, &status));
    assert_int_equal(status.rank, 0);
    assert_int_equal(status.size, 1);
    assert_string_equal(status.state, "running");
    assert_true(status.user_ns >= 0 && status.system_ns >= 0);
}

static void ask(const struct fixture *f)
{
    int fd = dial(f);
    tell(fd, "s", 1);
    expect_status(fd);
}

/* Sends these bytes and nothing more; returns when it has dealt with them. */
static void send_all(const struct fixture *f, const void *bytes, size_t n)
{
    uint8_t answer[ASK_STATUS_MAX + 1];
    int fd = dial(f);
    tell(fd, bytes, n);
    shutdown(fd, SHUT_WR);
    assert_int_equal(hear(fd, answer, sizeof answer), 0);
}

static size_t end_make(uint64_t epoch, int32_t rank, const char *text, uint8_t *ret)
{
    struct ask_end end = {.epoch = epoch, .rank = rank};
    snprintf(end.text, sizeof end.text, "%s", text);
    ret[0] = ASK_END;
    return 1 + ask_end_put(&end, ret + 1);
}

static bool has_end(const struct fixture *f, int32_t rank, char text[256])
{
    return watch_end_of(f->world, rank, 0, text, 256);
}

/* ---- what it answers ---- */

static void answers(void **state)
{
    ask(*state);
    ask(*state);
}

static void odd_requests(void **state)
{
    const struct fixture *f = *state;
    uint8_t record[2 + ASK_END_MAX], longer[LONG_SIZE];
    char text[256];
    size_t n = end_make(0, 1, "was killed", record);
    memset(longer, 'e', sizeof longer);
    send_all(f, "", 0);
    send_all(f, "x", 1);
    send_all(f, "\0\0\0", 3);
    send_all(f, "e", 1);
    for (size_t cut = 2; cut < n; cut++)
        send_all(f, record, cut);
    record[n] = 0; /* a byte too many */
    send_all(f, record, n + 1);
    send_all(f, longer, sizeof longer);
    send_all(f, longer, 1 + ASK_END_MAX);
    send_all(f, longer, 2 + ASK_END_MAX);
    assert_false(has_end(f, 1, text));
    ask(f);
    int fd = dial(f);
    memset(longer, 's', sizeof longer); /* what follows the question is not read */
    tell(fd, longer, sizeof longer);
    uint8_t answer[ASK_STATUS_MAX + 1];
    hear(fd, answer, sizeof answer);
    ask(f);
}

/* A client that says nothing is cut off; one that never reads its answer holds nobody up. */
static void slow_clients(void **state)
{
    const struct fixture *f = *state;
    int silent = dial(f), deaf = dial(f), half = dial(f);
    uint8_t record[1 + ASK_END_MAX], answer[ASK_STATUS_MAX + 1];
    char text[256];
    tell(deaf, "s", 1);
    tell(half, record, end_make(0, 1, "was killed", record) - 1);
    ask(f);
    assert_int_equal(hear(silent, answer, sizeof answer), 0);
    assert_int_equal(hear(half, answer, sizeof answer), 0);
    assert_false(has_end(f, 1, text));
    close(deaf);
    ask(f);
}

static void many_at_once(void **state)
{
    const struct fixture *f = *state;
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = dial(f);
        tell(fds[i], "s", 1);
    }
    for (int i = CLIENTS - 1; i >= 0; i--)
        if (i % 3 == 0)
            close(fds[i]); /* before its answer, or after */
        else
            expect_status(fds[i]);
    ask(f);
}

/* ---- reports of ends ---- */

static void ends(void **state)
{
    const struct fixture *f = *state;
    uint8_t record[1 + ASK_END_MAX], answer[8];
    char text[256];
    size_t n = end_make(0, 1, "was killed by signal 9 (SIGKILL)\n", record);
    int fd = dial(f);
    for (size_t i = 0; i < n; i++)
        tell(fd, record + i, 1); /* byte by byte */
    shutdown(fd, SHUT_WR);
    assert_int_equal(hear(fd, answer, sizeof answer), 0);
    assert_true(has_end(f, 1, text));
    assert_string_equal(text, "was killed by signal 9 (SIGKILL) ");
    assert_false(has_end(f, 2, text));

    send_all(f, record, end_make(0, INT32_MAX, "is no rank of ours", record));
    send_all(f, record, end_make(0, -1, "is no rank", record));
    send_all(f, record, end_make(f->world->epoch + 1, 3, "of another generation", record));
    send_all(f, record, end_make(f->world->epoch, 4, "of this one", record));
    send_all(f, record, end_make(0, 1, "a second report", record));
    assert_true(has_end(f, INT32_MAX, text));
    assert_false(has_end(f, -1, text));
    assert_false(has_end(f, 3, text));
    assert_true(has_end(f, 4, text));
    assert_true(has_end(f, 1, text)); /* the first one counts */
    assert_string_equal(text, "was killed by signal 9 (SIGKILL) ");
    ask(f);
}

static void more_ends_than_are_kept(void **state)
{
    const struct fixture *f = *state;
    uint8_t record[1 + ASK_END_MAX];
    char text[256];
    for (int32_t rank = 0; rank < KEPT + 10; rank++)
        send_all(f, record, end_make(0, rank, "exited", record));
    for (int32_t rank = 0; rank < KEPT + 10; rank++)
        assert_int_equal(has_end(f, rank, text), rank < KEPT);
    /* It is full: nobody waits for a report that can't come. */
    assert_false(watch_end_of(f->world, KEPT, INT64_MAX / 2, text, sizeof text));
    ask(f);
}

/* ---- stopping ---- */

static void stops_with_clients(void **state)
{
    struct fixture *f = *state;
    struct error error = {0};
    uint8_t answer[ASK_STATUS_MAX + 1];
    int silent = dial(f), queued = dial(f);
    tell(queued, "s", 1);
    world_destroy(f->world);
    f->world = NULL;
    hear(silent, answer, sizeof answer);
    hear(queued, answer, sizeof answer);
    if (world_create(os_host(), NULL, &f->tenure, &f->process, &f->world, &error) != HVD_OK)
        fail_msg("%s", error.text);
    ask(f); /* at the same path */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers, open_world, close_world),
        cmocka_unit_test_setup_teardown(odd_requests, open_world, close_world),
        cmocka_unit_test_setup_teardown(slow_clients, open_world, close_world),
        cmocka_unit_test_setup_teardown(many_at_once, open_world, close_world),
        cmocka_unit_test_setup_teardown(ends, open_world, close_world),
        cmocka_unit_test_setup_teardown(more_ends_than_are_kept, open_world, close_world),
        cmocka_unit_test_setup_teardown(stops_with_clients, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
