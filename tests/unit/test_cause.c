/* SPDX-License-Identifier: Apache-2.0 */
/* test_cause.c - the record by which a rank reports why its job broke: round trip, long and odd
 * texts, bytes that are not a record, and what the pipe may be. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/cause.h"

static char folder[64], path[96];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hvd-cause-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/cause", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void round_trip(void **state)
{
    struct cause in = {.kind = CAUSE_WORDS,
                       .epoch = 1ull << 40,
                       .worker = "3.17",
                       .rank = 70000,
                       .culprit = -1,
                       .count = -1,
                       .waited_ms = 1ll << 40,
                       .text = "rank 2 is gone"},
                 out;
    uint8_t record[CAUSE_BYTES];
    (void)state;
    cause_encode(&in, record);
    assert_true(cause_decode(record, &out));
    assert_int_equal(out.rank, 70000);
    assert_int_equal(out.culprit, -1);
    assert_string_equal(out.text, in.text);
    assert_int_equal(out.kind, CAUSE_WORDS);
    assert_true(out.count == -1 && out.waited_ms == in.waited_ms);
    assert_true(out.epoch == in.epoch);
    assert_string_equal(out.worker, "3.17");
}

static void longest_text(void **state)
{
    struct cause in = {.rank = 1, .culprit = 2}, out;
    uint8_t record[CAUSE_BYTES];
    (void)state;
    memset(in.text, 'x', sizeof in.text - 1);
    memset(in.worker, 'w', sizeof in.worker - 1);
    in.text[3] = '\n';
    cause_encode(&in, record);
    assert_true(cause_decode(record, &out));
    assert_int_equal(strlen(out.text), CAUSE_TEXT_MAX - 1);
    assert_int_equal(out.text[3], ' ');
}

static void not_a_record(void **state)
{
    struct cause in = {.rank = 1, .culprit = 2, .text = "why"}, out;
    uint8_t record[CAUSE_BYTES];
    (void)state;
    memset(record, 0, sizeof record);
    assert_false(cause_decode(record, &out));
    for (size_t i = 0; i < 8; i++) {
        cause_encode(&in, record);
        record[i] ^= 1;
        assert_false(cause_decode(record, &out));
    }
    cause_encode(&in, record);
    record[23] = 0xff; /* a negative rank */
    assert_false(cause_decode(record, &out));
    cause_encode(&in, record);
    record[45] = 0xff; /* a worker beyond the end */
    assert_false(cause_decode(record, &out));
    cause_encode(&in, record);
    record[49] = 0xff; /* a text beyond the end */
    assert_false(cause_decode(record, &out));
    cause_encode(&in, record);
    record[8] = CAUSE_SUMMARY + 1; /* of a kind that there is not */
    assert_false(cause_decode(record, &out));
}

static void records_of_many_stay_whole(void **state)
{
    const struct os *os = os_host();
    uint8_t record[CAUSE_BYTES];
    struct cause out;
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    int end = open(path, O_RDWR | O_NONBLOCK);
    int first = cause_open(os, path), second = cause_open(os, path);
    assert_true(end >= 0 && first >= 0 && second >= 0);
    int sent = 0;
    for (; sent < 1000; sent++) /* more than there is room for: lost, not waited for */
        cause_send(os, sent % 2 == 0 ? first : second,
                   &(struct cause){.rank = sent, .culprit = 7, .text = "why"});
    int got = 0;
    for (; read(end, record, sizeof record) == (ssize_t)sizeof record; got++) {
        assert_true(cause_decode(record, &out));
        assert_int_equal(out.rank, got);
    }
    assert_in_range(got, 100, sent - 1);
    close(end);
    os->close(os->ctx, first);
    cause_send(os, second, &(struct cause){.rank = 1, .text = "nobody reads"}); /* no SIGPIPE */
    os->close(os->ctx, second);
    cause_send(os, -1, &(struct cause){.rank = 1, .text = "nobody asked"});
}

static void what_is_no_pipe(void **state)
{
    const struct os *os = os_host();
    char text[8] = "";
    (void)state;
    assert_true(cause_open(os, "") < 0);
    assert_int_equal(cause_open(os, path), -ENOENT);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "precious", 8), 8);
    close(fd);
    assert_int_equal(cause_open(os, path), -ESPIPE);
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, 8), 8);
    assert_memory_equal(text, "precious", 8);
    close(fd);
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(cause_open(os, path), -ELOOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(longest_text),
        cmocka_unit_test(not_a_record),
        cmocka_unit_test_setup_teardown(records_of_many_stay_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_pipe, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
