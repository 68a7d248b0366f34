/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_message.c - messages between launcher and agent over a real pipe: whole, in single
 * bytes, after noise, and malformed. */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../launcher/mem.c"
#include "../../launcher/message.c"

static struct mem mem;
static struct link out, in;
static int pipe_fds[2];

static int set_up(void **state)
{
    (void)state;
    mem_init(&mem, os_host());
    assert_int_equal(pipe(pipe_fds), 0);
    link_init(&out, os_host(), -1, pipe_fds[1], false);
    link_init(&in, os_host(), pipe_fds[0], -1, true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    link_destroy(&out);
    link_destroy(&in);
    mem_destroy(&mem);
    return 0;
}

static void send_example(void)
{
    struct list list = {0};
    list_add(&mem, &list, mem_copy(&mem, "A=1"));
    list_add(&mem, &list, mem_copy(&mem, ""));
    message_begin(&out, MESSAGE_EXIT);
    message_u32(&out, 7);
    message_text(&out, "hello");
    message_list(&out, &list);
    message_f64(&out, 2.5);
    message_end(&out);
}

static void expect_example(void)
{
    enum message_type type = MESSAGE_PING;
    struct reader r;
    struct list list = {0};
    assert_int_equal(link_next(&in, &type, &r), HVD_OK);
    assert_int_equal(type, MESSAGE_EXIT);
    assert_int_equal(get_u32(&r), 7);
    assert_string_equal(message_get_text(&mem, &r), "hello");
    message_get_list(&mem, &r, &list);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[0], "A=1");
    assert_true(get_f64(&r) == 2.5);
    assert_true(reader_done(&r));
}

static void test_behind_noise(void **state)
{
    (void)state;
    enum message_type type = MESSAGE_PING;
    struct reader r;
    message_raw(&out, "Welcome!\nHOROVODRUN-AGENT\n" MESSAGE_GREETING,
                26 + sizeof MESSAGE_GREETING - 1);
    send_example();
    send_example();
    assert_int_equal(link_flush(&out), HVD_OK);
    assert_int_equal(link_fill(&in), HVD_OK);
    expect_example();
    expect_example();
    assert_int_equal(link_next(&in, &type, &r), HVD_AGAIN);
    assert_int_equal(bytes_used(&in.noise), 26);
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    enum message_type type = MESSAGE_PING;
    struct reader r;
    message_raw(&out, "x" MESSAGE_GREETING, sizeof MESSAGE_GREETING);
    send_example();
    size_t n = bytes_used(&out.out);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(write(pipe_fds[1], bytes_at(&out.out) + i, 1), 1);
        assert_int_equal(link_fill(&in), HVD_OK);
        if (i + 1 < n)
            assert_int_equal(link_next(&in, &type, &r), HVD_AGAIN);
    }
    bytes_drop(&out.out, n);
    expect_example();
}

static void test_malformed(void **state)
{
    (void)state;
    enum message_type type = MESSAGE_PING;
    struct reader r;
    static const uint8_t too_long[] = {0xff, 0xff, 0xff, 0x7f, 1}, empty[] = {0, 0, 0, 0, 0};
    in.is_synced = true;
    bytes_add(in.os, &in.in, too_long, sizeof too_long);
    assert_int_equal(link_next(&in, &type, &r), HVD_ERR_CORRUPT);
    bytes_drop(&in.in, bytes_used(&in.in));
    bytes_add(in.os, &in.in, empty, sizeof empty);
    assert_int_equal(link_next(&in, &type, &r), HVD_ERR_CORRUPT);
}

static void test_bad_list_stops(void **state)
{
    (void)state;
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff},
                         longer[] = {2, 0, 0, 0, 9, 0, 0, 0, 'x'};
    struct reader r;
    struct list list = {0};
    reader_init(&r, huge, sizeof huge);
    message_get_list(&mem, &r, &list);
    assert_true(r.bad && list.count == 0);
    reader_init(&r, longer, sizeof longer);
    message_get_list(&mem, &r, &list);
    assert_true(r.bad);
}

static void test_endless_noise_is_refused(void **state)
{
    (void)state;
    enum message_type type = MESSAGE_PING;
    struct reader r;
    uint8_t *noise = mem_alloc(&mem, MESSAGE_NOISE_MAX + 100);
    bytes_add(in.os, &in.in, noise, MESSAGE_NOISE_MAX + 100);
    assert_int_equal(link_next(&in, &type, &r), HVD_ERR_CORRUPT);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_behind_noise), CASE(test_byte_by_byte),
                                       CASE(test_malformed), CASE(test_bad_list_stops),
                                       CASE(test_endless_noise_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
