/* SPDX-License-Identifier: Apache-2.0 */
/* test_timeline.c - the trace is well-formed after every event, complete after stop, and can be
 * started again; a directory that vanishes does not matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/timeline.h"
#include "json.h"

static char folder[64];

static void path_of(char *ret, size_t n, const char *name)
{
    snprintf(ret, n, "%s/%s", folder, name);
}

static void one_tensor(struct timeline *t, const char *name)
{
    size_t n = strlen(name);
    timeline_negotiate_begin(t, 0, name, n, "NEGOTIATE_ALLREDUCE");
    timeline_rank_ready(t, 0, name, n, 1);
    timeline_rank_ready(t, 0, name, n, 0);
    timeline_negotiate_end(t, 0, name, n);
    timeline_begin(t, 0, name, n, "ALLREDUCE");
    timeline_end_args(t, 0, name, n, "float32", "[2, 3]");
}

static void test_whole_at_all_times(void **state)
{
    (void)state;
    struct timeline *t = timeline_create(os_host(), NULL);
    struct error error = {0};
    char path[128];
    path_of(path, sizeof path, "a.json");
    assert_int_equal(timeline_start(t, path, true, &error), HVD_OK);
    assert_true(timeline_is_on(t));
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor \"%d\\", i % 40);
        one_tensor(t, name);
        timeline_cycle(t);
        if (i % 30 != 0)
            continue;
        usleep(2000); /* a reader comes at any time */
        char *text = json_file_text(path);
        assert_non_null(text);
        assert_null(json_trace_check(text, true));
        free(text);
    }
    timeline_stop(t);
    timeline_stop(t);
    assert_false(timeline_is_on(t));
    char *text = json_file_text(path);
    assert_null(json_trace_check(text, false));
    assert_int_equal(json_count(text, "\"NEGOTIATE_ALLREDUCE\""), 300);
    assert_int_equal(json_count(text, "\"ph\": \"B\""), 600);
    assert_int_equal(json_count(text, "\"ph\": \"E\""), 600);
    assert_int_equal(json_count(text, "\"ph\": \"X\""), 600);
    assert_int_equal(json_count(text, "CYCLE_START"), 300);
    assert_int_equal(json_count(text, "start_time_since_epoch_in_micros"), 1);
    assert_int_equal(json_count(text, "process_sort_index"), 41);
    assert_int_equal(json_count(text, "\"dtype\": \"float32\", \"shape\": \"[2, 3]\""), 300);
    free(text);
    timeline_destroy(t);
}

static void test_again(void **state)
{
    (void)state;
    struct timeline *t = timeline_create(os_host(), NULL);
    struct error error = {0};
    for (int i = 0; i < 5; i++) {
        char path[128], name[16];
        snprintf(name, sizeof name, "again%d.json", i);
        path_of(path, sizeof path, name);
        assert_int_equal(timeline_start(t, path, false, &error), HVD_OK);
        assert_int_equal(timeline_start(t, path, false, &error),
                         HVD_OK); /* the same: nothing happens */
        one_tensor(t, "x");
        timeline_cycle(t);
        if (i % 2 == 0)
            timeline_stop(t); /* else the next start switches */
    }
    timeline_destroy(t);
    for (int i = 0; i < 5; i++) {
        char path[128], name[16];
        snprintf(name, sizeof name, "again%d.json", i);
        path_of(path, sizeof path, name);
        char *text = json_file_text(path);
        assert_null(json_trace_check(text, false));
        assert_int_equal(json_count(text, "\"pid\": 1,"), 5);
        assert_int_equal(json_count(text, "CYCLE_START"), 0);
        free(text);
    }
}

static char *traced(struct timeline *t, const char *name)
{
    char path[128];
    timeline_stop(t);
    path_of(path, sizeof path, name);
    char *text = json_file_text(path);
    assert_non_null(text);
    assert_null(json_trace_check(text, false));
    return text;
}

static struct timeline *trace_start(struct timeline *t, const char *name)
{
    struct error error = {0};
    char path[128];
    path_of(path, sizeof path, name);
    t = t != NULL ? t : timeline_create(os_host(), NULL);
    assert_int_equal(timeline_start(t, path, false, &error), HVD_OK);
    return t;
}

/* Started in the middle of things and stopped in the middle of others. */
static void test_balanced(void **state)
{
    (void)state;
    struct timeline *t = trace_start(NULL, "middle.json");
    timeline_rank_ready(t, 0, "a", 1, 1); /* its beginning was not seen */
    timeline_negotiate_end(t, 0, "a", 1);
    timeline_end(t, 0, "b", 1);
    timeline_end_args(t, 0, "b", 1, "float32", "[1]");
    one_tensor(t, "a");
    timeline_negotiate_begin(t, 0, "c", 1, "NEGOTIATE_ALLREDUCE");
    timeline_negotiate_begin(t, 0, "c", 1, "NEGOTIATE_ALLREDUCE"); /* announced anew */
    timeline_begin(t, 0, "d", 1, "ALLREDUCE");
    timeline_begin(t, 0, "d", 1, "GLOO_ALLREDUCE");
    char *text = traced(t, "middle.json");
    assert_int_equal(json_count(text, "\"ph\": \"B\""), 5);
    assert_int_equal(json_count(text, "\"ph\": \"E\""), 5);
    assert_int_equal(json_count(text, "\"ph\": \"X\""), 2);
    free(text);
    /* What was open belongs to the file that is closed. */
    trace_start(t, "next.json");
    timeline_end(t, 0, "d", 1);
    timeline_negotiate_end(t, 0, "c", 1);
    text = traced(t, "next.json");
    assert_int_equal(json_count(text, "\"ph\": \"E\""), 0);
    free(text);
    timeline_destroy(t);
}

/* Others begin the next step while this rank is still at the last one: the bars do not cross. */
static void test_next_step_waits(void **state)
{
    (void)state;
    struct timeline *t = trace_start(NULL, "cross.json");
    timeline_begin(t, 0, "a", 1, "ALLREDUCE");
    timeline_negotiate_begin(t, 0, "a", 1, "NEGOTIATE_ALLREDUCE");
    timeline_end_args(t, 0, "a", 1, "int8", "[]");
    timeline_negotiate_end(t, 0, "a", 1);
    char *text = traced(t, "cross.json");
    const char *end = strstr(text, "\"args\": {\"dtype\": \"int8\"");
    assert_non_null(end);
    assert_non_null(strstr(end, "NEGOTIATE_ALLREDUCE"));
    free(text);
    timeline_destroy(t);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"caf\xc3\xa9", "bad\xff\xc3",      "\xed\xa0\x80",
                                        "a\tb\x01",    "\xf0\x9f\x8e\x89", "\xc0\x80 \xe2\x82"};
    struct timeline *t = trace_start(NULL, "names.json");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        one_tensor(t, names[i]);
    timeline_begin(t, 0, "x", 1, "ALLREDUCE");
    timeline_begin(t, 3, "x", 1, "ALLREDUCE"); /* another tensor */
    timeline_end(t, 3, "x", 1);
    timeline_end(t, 0, "x", 1);
    char *text = traced(t, "names.json");
    assert_int_equal(json_count(text, "caf\xc3\xa9"), 1);
    assert_int_equal(json_count(text, "bad\\ufffd\\ufffd"), 1);
    assert_int_equal(json_count(text, "\"x\""), 1);
    assert_int_equal(json_count(text, "\"x (process set 3)\""), 1);
    free(text);
    timeline_destroy(t);
}

static void test_bad_path(void **state)
{
    (void)state;
    struct log quiet = {.level = LOG_FATAL};
    struct timeline *t = timeline_create(os_host(), &quiet);
    struct error error = {0};
    assert_int_equal(timeline_start(t, "/nonexistent/x.json", false, &error), HVD_ERR_OS);
    assert_non_null(strstr(error.text, "/nonexistent/x.json"));
    assert_false(timeline_is_on(t));
    one_tensor(t, "x");
    char path[128];
    path_of(path, sizeof path, "gone.json");
    error_clear(&error);
    assert_int_equal(timeline_start(t, path, false, &error), HVD_OK);
    unlink(path);
    one_tensor(t, "x");
    timeline_destroy(t);
    timeline_destroy(NULL);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/horovod-test-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_at_all_times),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_balanced),
        cmocka_unit_test(test_next_step_waits),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_path),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? 1 : failed;
}
