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

static char folder[64];

static void path_of(char *ret, size_t n, const char *name)
{
    snprintf(ret, n, "%s/%s", folder, name);
}

static char *file_text(const char *path)
{
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return NULL;
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* Enough of JSON to tell a whole array of flat objects from a torn one. */
static bool is_whole(const char *text)
{
    int depth = 0;
    bool is_quoted = false;
    const char *last = text;
    for (const char *c = text; *c != '\0'; c++) {
        if (is_quoted) {
            if (*c == '\\')
                c++;
            else if (*c == '"')
                is_quoted = false;
            continue;
        }
        if (*c == '"')
            is_quoted = true;
        if (*c == '{' || *c == '[')
            depth++;
        if (*c == '}' || *c == ']')
            depth--;
        if (*c != '\n')
            last = c;
    }
    return text[0] == '[' && depth == 0 && !is_quoted && *last == ']';
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

static void one_tensor(struct timeline *t, const char *name)
{
    size_t n = strlen(name);
    timeline_begin(t, name, n, "NEGOTIATE_ALLREDUCE");
    timeline_rank_ready(t, name, n, 1);
    timeline_rank_ready(t, name, n, 0);
    timeline_end(t, name, n);
    timeline_begin(t, name, n, "ALLREDUCE");
    timeline_end_args(t, name, n, "float32", "[2, 3]");
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
        char *text = file_text(path);
        assert_non_null(text);
        assert_true(is_whole(text));
        free(text);
    }
    timeline_stop(t);
    timeline_stop(t);
    assert_false(timeline_is_on(t));
    char *text = file_text(path);
    assert_true(is_whole(text));
    assert_int_equal(count_of(text, "\"NEGOTIATE_ALLREDUCE\""), 300);
    assert_int_equal(count_of(text, "\"ph\": \"B\""), 600);
    assert_int_equal(count_of(text, "\"ph\": \"E\""), 600);
    assert_int_equal(count_of(text, "\"ph\": \"X\""), 600);
    assert_int_equal(count_of(text, "CYCLE_START"), 300);
    assert_int_equal(count_of(text, "start_time_since_epoch_in_micros"), 1);
    assert_int_equal(count_of(text, "process_sort_index"), 41);
    assert_int_equal(count_of(text, "\"dtype\": \"float32\", \"shape\": \"[2, 3]\""), 300);
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
        char *text = file_text(path);
        assert_true(is_whole(text));
        assert_int_equal(count_of(text, "\"pid\": 1,"), 5);
        assert_int_equal(count_of(text, "CYCLE_START"), 0);
        free(text);
    }
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
        cmocka_unit_test(test_bad_path),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? 1 : failed;
}
