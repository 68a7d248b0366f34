/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_output.c - splitting the output of ranks into whole prefixed lines, whatever the
 * pieces it arrives in. The sinks are temporary files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../../launcher/mem.c"
#include "../../launcher/output.c"

static struct mem mem;
static struct output output;
static FILE *files[2];

static int set_up(void **state)
{
    (void)state;
    mem_init(&mem, os_host());
    output_init(&output, os_host(), &mem, 12, false);
    for (int i = 0; i < 2; i++) {
        files[i] = tmpfile();
        assert_non_null(files[i]);
        sink_init(&output.sinks[i], fileno(files[i]), true);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    output_destroy(&output);
    mem_destroy(&mem);
    fclose(files[0]);
    fclose(files[1]);
    return 0;
}

static const char *written(int stream)
{
    char *text = mem_alloc(&mem, 1 << 16);
    output_flush(&output);
    ssize_t n = pread(fileno(files[stream - 1]), text, (1 << 16) - 1, 0);
    assert_true(n >= 0);
    return text;
}

static void feed(int32_t rank, int stream, const char *text)
{
    output_feed(&output, rank, stream, text, strlen(text));
}

static void test_pieces(void **state)
{
    (void)state;
    feed(3, 1, "he");
    feed(4, 1, "x\n");
    feed(3, 1, "llo\nwor");
    feed(3, 1, "ld");
    assert_string_equal(written(1), "[4]<stdout>:x\n[3]<stdout>:hello\n");
    output_finish_rank(&output, 3);
    assert_string_equal(written(1), "[4]<stdout>:x\n[3]<stdout>:hello\n[3]<stdout>:world");
    feed(5, 1, "next\n");
    assert_string_equal(written(1), "[4]<stdout>:x\n[3]<stdout>:hello\n[3]<stdout>:world\n"
                                    "[5]<stdout>:next\n");
}

static void test_streams_do_not_mix(void **state)
{
    (void)state;
    feed(0, 1, "a");
    feed(0, 2, "b\n");
    feed(0, 1, "c\n");
    assert_string_equal(written(1), "[0]<stdout>:ac\n");
    assert_string_equal(written(2), "[0]<stderr>:b\n");
}

/* Every way of cutting the text into two pieces gives the same. */
static void test_returns_in_any_pieces(void **state)
{
    (void)state;
    static const char text[] = "1%\r2%\rdone\r\n\nend\n";
    static const char want[] = "[0]<stdout>:1%\r[0]<stdout>:2%\r[0]<stdout>:done\r\n"
                               "[0]<stdout>:\n[0]<stdout>:end\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        tear_down(state);
        set_up(state);
        output_feed(&output, 0, 1, text, cut);
        output_feed(&output, 0, 1, text + cut, sizeof text - 1 - cut);
        assert_string_equal(written(1), want);
    }
}

static void test_long_line_in_pieces(void **state)
{
    (void)state;
    size_t n = OUTPUT_LINE_MAX / 2 + 100;
    char *big = mem_alloc(&mem, n + 1);
    memset(big, 'x', n);
    for (int i = 0; i < 4; i++)
        feed(0, 1, big);
    feed(0, 1, "\n");
    output_flush(&output);
    fseek(files[0], 0, SEEK_END);
    assert_int_equal(ftell(files[0]), 4 * (long)n + 1 + (long)strlen("[0]<stdout>:"));
}

static void count_line(void *arg, const char *line)
{
    char **last = arg;
    *last = mem_format(&mem, "%s%s|", *last, line);
}

static void test_tail(void **state)
{
    (void)state;
    char *seen = mem_copy(&mem, "");
    assert_false(output_has_tail(&output, 7));
    for (int i = 0; i < 100; i++)
        feed(7, 1 + i % 2, mem_format(&mem, "line %d\n", i));
    assert_true(output_has_tail(&output, 7));
    output_tail_each(&output, 7, count_line, &seen);
    assert_memory_equal(seen, "<stdout> line 80|<stderr> line 81|", 34);
    assert_non_null(strstr(seen, "<stderr> line 99|"));
    assert_null(strstr(seen, "line 79|"));
}

static void test_our_own_lines(void **state)
{
    (void)state;
    feed(0, 2, "half");
    output_say(&output, 2, "said %d", 5);
    output_finish_rank(&output, 0);
    output_say(&output, 2, "again");
    assert_string_equal(written(2), "said 5\n[0]<stderr>:half\nagain\n");
}

static void test_time(void **state)
{
    (void)state;
    output.wants_time = true;
    feed(0, 1, "x\n");
    const char *text = written(1);
    assert_int_equal(strlen(text), 24 + strlen("[0]<stdout>:x\n"));
    assert_string_equal(text + 24, "[0]<stdout>:x\n");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_pieces),
                                       CASE(test_streams_do_not_mix),
                                       CASE(test_returns_in_any_pieces),
                                       CASE(test_long_line_in_pieces),
                                       CASE(test_tail),
                                       CASE(test_our_own_lines),
                                       CASE(test_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
