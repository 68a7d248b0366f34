/* SPDX-License-Identifier: Apache-2.0 */
/* test_log.c - levels, the form of a line, where it goes, and that it is one write. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

struct caught {
    int count;
    enum log_level level;
    char line[8192];
};

static void catch_line(void *arg, enum log_level level, const char *line)
{
    struct caught *caught = arg;
    caught->count++;
    caught->level = level;
    (void)snprintf(caught->line, sizeof caught->line, "%s", line);
}

static void levels_parse(void **state)
{
    (void)state;
    static const char *const names[] = {"trace", "Debug", "INFO", "warning", "error", "fatal"};
    for (int i = 0; i < 6; i++) {
        enum log_level level = LOG_TRACE;
        assert_true(log_level_parse(names[i], &level));
        assert_int_equal(level, i);
    }
    enum log_level level = LOG_ERROR;
    assert_false(log_level_parse("warn", &level));
    assert_false(log_level_parse("", &level));
    assert_int_equal(level, LOG_ERROR);
}

static void line_without_time(void **state)
{
    (void)state;
    struct caught caught = {0};
    struct log log = {
        .level = LOG_INFO, .hide_time = true, .rank = 3, .sink = catch_line, .sink_arg = &caught};
    log_write(&log, LOG_WARNING, "/a/b/engine.c", 42, "tensor %s", "t1");
    assert_string_equal(caught.line, "[W engine.c:42] [3]: tensor t1");
    assert_int_equal(caught.level, LOG_WARNING);
    log.rank = -1;
    log_write(&log, LOG_FATAL, "plain.c", 1, "x");
    assert_string_equal(caught.line, "[F plain.c:1] x");
}

static void line_with_time(void **state)
{
    (void)state;
    struct caught caught = {0};
    struct log log = {.level = LOG_TRACE, .rank = 0, .sink = catch_line, .sink_arg = &caught};
    log_write(&log, LOG_DEBUG, "x/y.c", 7, "text");
    int year, month, day, hour, minute, second, n = 0;
    char micros[16];
    assert_int_equal(sscanf(caught.line, "[%4d-%2d-%2d %2d:%2d:%2d.%6[0-9]: D y.c:7] [0]: text%n",
                            &year, &month, &day, &hour, &minute, &second, micros, &n),
                     7);
    assert_int_equal(n, strlen(caught.line));
    assert_int_equal(strlen(micros), 6);
    assert_true(year >= 2024 && month >= 1 && month <= 12 && day >= 1 && day <= 31);
}

static void lower_levels_are_dropped(void **state)
{
    (void)state;
    struct caught caught = {0};
    struct log log = {.level = LOG_WARNING, .rank = 0, .sink = catch_line, .sink_arg = &caught};
    const struct log *none = NULL;
    LOG_AT(&log, LOG_INFO, "no");
    log_write(&log, LOG_INFO, "f", 1, "no");
    LOG_AT(none, LOG_FATAL, "no");
    assert_int_equal(caught.count, 0);
    LOG_AT(&log, LOG_WARNING, "yes %d", 1);
    assert_int_equal(caught.count, 1);
    assert_non_null(strstr(caught.line, "W test_log.c:"));
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    static char text[10000];
    memset(text, 'x', sizeof text - 1);
    struct caught caught = {0};
    struct log log = {
        .level = LOG_TRACE, .hide_time = true, .rank = 1, .sink = catch_line, .sink_arg = &caught};
    log_write(&log, LOG_ERROR, "f.c", 1, "%s", text);
    size_t n = strlen(caught.line);
    assert_int_equal(n, 4094); /* with newline within a pipe's atomic 4096 */
    assert_string_equal(caught.line + n - 4, "x...");
}

/* Runs log_write() with descriptor `fd` replaced by a pipe and gives what arrived. */
static size_t through_pipe(int fd, enum log_level level, char *ret_text, size_t bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[0], F_SETFL, O_NONBLOCK) >= 0);
    (void)fflush(NULL);
    int saved = dup(fd);
    assert_true(saved >= 0 && dup2(ends[1], fd) == fd);
    struct log log = {.level = LOG_TRACE, .hide_time = true, .rank = 2};
    log_write(&log, level, "f.c", 5, "hello");
    assert_true(dup2(saved, fd) == fd);
    ssize_t n = read(ends[0], ret_text, bytes - 1);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    ret_text[n < 0 ? 0 : n] = '\0';
    return n < 0 ? 0 : (size_t)n;
}

static void terminal_by_level(void **state)
{
    (void)state;
    char text[256];
    assert_true(through_pipe(1, LOG_INFO, text, sizeof text) > 0);
    assert_string_equal(text, "[I f.c:5] [2]: hello\n");
    assert_true(through_pipe(2, LOG_WARNING, text, sizeof text) > 0);
    assert_string_equal(text, "[W f.c:5] [2]: hello\n");
    assert_int_equal(through_pipe(2, LOG_TRACE, text, sizeof text), 0);
    assert_int_equal(through_pipe(1, LOG_ERROR, text, sizeof text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_parse),       cmocka_unit_test(line_without_time),
        cmocka_unit_test(line_with_time),     cmocka_unit_test(lower_levels_are_dropped),
        cmocka_unit_test(long_lines_are_cut), cmocka_unit_test(terminal_by_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
