/* SPDX-License-Identifier: Apache-2.0 */
/* test_timeline.c - the trace is well-formed after every event, complete after stop, and can be
 * started again; a directory that vanishes does not matter. */
#include <pthread.h>
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

/* ---- a file system that does not answer ---- */

struct stuck { /* a real os whose open or pwrite waits until it is let go */
    struct os os;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_open_stuck, is_write_stuck;
    int waiting;
};

static void stuck_wait(struct stuck *k, const bool *is_stuck)
{
    pthread_mutex_lock(&k->lock);
    k->waiting += *is_stuck;
    pthread_cond_broadcast(&k->cond);
    while (*is_stuck)
        pthread_cond_wait(&k->cond, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

static struct stuck stuck = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static int stuck_create(void *ctx, const char *path, unsigned mode)
{
    stuck_wait(&stuck, &stuck.is_open_stuck);
    return os_host()->create(ctx, path, mode);
}

static int64_t stuck_pwrite(void *ctx, int fd, const void *bytes, size_t n, int64_t offset)
{
    stuck_wait(&stuck, &stuck.is_write_stuck);
    return os_host()->pwrite(ctx, fd, bytes, n, offset);
}

static void stuck_set(bool *is_stuck, bool value)
{
    pthread_mutex_lock(&stuck.lock);
    *is_stuck = value;
    stuck.waiting = 0;
    pthread_cond_broadcast(&stuck.cond);
    pthread_mutex_unlock(&stuck.lock);
}

static void stuck_until_waiting(void)
{
    pthread_mutex_lock(&stuck.lock);
    while (stuck.waiting == 0)
        pthread_cond_wait(&stuck.cond, &stuck.lock);
    pthread_mutex_unlock(&stuck.lock);
}

/* Made once, before the first thread: a writer that was given up may read it in the next test. */
static int stuck_os_make(void **state)
{
    (void)state;
    stuck.os = *os_host();
    stuck.os.create = stuck_create;
    stuck.os.pwrite = stuck_pwrite;
    return 0;
}

static char log_text[4096];

static void log_keep(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static unsigned long long dropped_in(const char *text)
{
    unsigned long long sum = 0, one = 0;
    for (const char *at = text; (at = strstr(at, "DROPPED_EVENTS")) != NULL; at++) {
        const char *count = strstr(at, "\"count\": ");
        assert_non_null(count);
        assert_int_equal(sscanf(count, "\"count\": %llu", &one), 1);
        sum += one;
    }
    return sum;
}

/* The same as json_trace_check() line by line: that one takes minutes for a file of this size when
 * a sanitizer looks at every string call. Returns the number of bars, -1: not balanced. */
static int balanced_bars(const char *text)
{
    static int depth[4096];
    int bars = 0;
    size_t n = strlen(text);
    const char *end = text + n;
    memset(depth, 0, sizeof depth);
    if (n < 4 || text[0] != '[' || memcmp(end - 3, "\n]\n", 3) != 0)
        return -1;
    for (const char *line = text + 2; line < end - 3;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        bool is_begin = memcmp(line, "{\"ph\": \"B\"", 10) == 0;
        bool is_end = memcmp(line, "{\"ph\": \"E\"", 10) == 0;
        const char *at = stop;
        while ((is_begin || is_end) && at > line && memcmp(at, "\"pid\": ", 7) != 0)
            at--;
        int pid = is_begin || is_end ? atoi(at + 7) : 0;
        if (stop[-1] != '}' && memcmp(stop - 2, "},", 2) != 0)
            return -1;
        if (pid < 0 || pid >= 4096 || (is_end && --depth[pid] < 0))
            return -1;
        depth[pid] += is_begin;
        bars += is_begin;
        line = stop + 1;
    }
    for (int i = 0; i < 4096; i++)
        if (depth[i] != 0)
            return -1;
    return bars;
}

/* More events than the ring takes while nothing can be written: whoever reports them goes on, what
 * found no room is counted, and the file is whole and balanced when the disk answers again. */
static void test_full_ring_drops(void **state)
{
    (void)state;
    struct log log = {.level = LOG_WARNING, .sink = log_keep, .rank = -1};
    struct timeline *t = timeline_create(&stuck.os, &log);
    struct error error = {0};
    char path[128];
    const unsigned long long tensors = 40000, outer = 100;
    log_text[0] = '\0';
    path_of(path, sizeof path, "stuck.json");
    assert_int_equal(timeline_start(t, path, true, &error), HVD_OK);
    stuck_set(&stuck.is_write_stuck, true);
    for (unsigned long long i = 0; i < outer; i++) { /* open while the others come and go */
        char name[32];
        snprintf(name, sizeof name, "outer %llu", i);
        timeline_begin(t, 0, name, strlen(name), "ALLREDUCE");
    }
    for (unsigned long long i = 0; i < tensors; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor %llu", i % 3000);
        one_tensor(t, name);
        if (i == tensors / 2) { /* some find room again in between */
            stuck_until_waiting();
            stuck_set(&stuck.is_write_stuck, false);
            stuck_set(&stuck.is_write_stuck, true);
        }
    }
    stuck_set(&stuck.is_write_stuck, false);
    timeline_stop(t);
    char *text = json_file_text(path);
    assert_non_null(text);
#if !HVD_TEST_QUICK
    assert_null(json_trace_check(text, false));
#endif
    int begun = balanced_bars(text);
    assert_true(begun > 0);
    unsigned long long dropped = dropped_in(text);
    assert_true(dropped > 0);
    assert_true((unsigned long long)begun < tensors * 2 + outer);
    char want[64];
    snprintf(want, sizeof want, "%llu events of the timeline", dropped);
    if (strstr(log_text, want) == NULL)
        fail_msg("the file says %llu, the log: %s", dropped, log_text);
    assert_non_null(strstr(log_text, "can't be written as fast"));
    free(text);
    timeline_destroy(t);
}

/* The disk never answers: stopping gives up, and the writer cleans up behind itself when it may. */
static void test_stop_does_not_hang(void **state)
{
    (void)state;
    struct log log = {.level = LOG_WARNING, .sink = log_keep, .rank = -1};
    struct timeline *t = timeline_create(&stuck.os, &log);
    struct error error = {0};
    char path[128];
    log_text[0] = '\0';
    path_of(path, sizeof path, "never.json");
    assert_int_equal(timeline_start(t, path, false, &error), HVD_OK);
    stuck_set(&stuck.is_write_stuck, true);
    one_tensor(t, "x");
    stuck_until_waiting();
    one_tensor(t, "y");
    timeline_destroy(t);
    assert_non_null(strstr(log_text, "does not answer"));
    stuck_set(&stuck.is_write_stuck, false);
}

static void test_start_does_not_hang(void **state)
{
    (void)state;
    struct timeline *t = timeline_create(&stuck.os, NULL);
    struct error error = {0};
    char path[128];
    path_of(path, sizeof path, "unopened.json");
    stuck_set(&stuck.is_open_stuck, true);
    assert_int_equal(timeline_start(t, path, false, &error), HVD_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "does not answer"));
    assert_false(timeline_is_on(t));
    stuck_set(&stuck.is_open_stuck, false);
    one_tensor(t, "x");
    struct error second = {0};
    path_of(path, sizeof path, "opened.json");
    assert_int_equal(timeline_start(t, path, false, &second), HVD_OK);
    timeline_destroy(t);
}

/* A pipe that nobody reads. */
static void test_pipe(void **state)
{
    (void)state;
    struct timeline *t = timeline_create(os_host(), NULL);
    struct error error = {0};
    char path[128];
    path_of(path, sizeof path, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(timeline_start(t, path, false, &error), HVD_ERR_OS);
    assert_false(timeline_is_on(t));
    one_tensor(t, "x");
    timeline_destroy(t);
}

/* Where others can write, somebody has put a link in the place of the trace. */
static void test_planted_link(void **state)
{
    (void)state;
    char shared[96], path[128], victim[128];
    struct error error = {0};
    if (geteuid() != 0)
        skip();
    path_of(shared, sizeof shared, "shared");
    path_of(victim, sizeof victim, "victim");
    snprintf(path, sizeof path, "%s/trace.json", shared);
    assert_int_equal(mkdir(shared, 0777), 0);
    assert_int_equal(chmod(shared, 01777), 0);
    FILE *file = fopen(victim, "w");
    fputs("precious", file);
    fclose(file);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(lchown(path, 65534, 65534), 0);
    struct log quiet = {.level = LOG_FATAL};
    struct timeline *t = timeline_create(os_host(), &quiet);
    assert_int_not_equal(timeline_start(t, path, false, &error), HVD_OK);
    assert_non_null(strstr(error.text, "another user's file is not written to"));
    timeline_destroy(t);
    struct stat st;
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_size, strlen("precious"));
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
        cmocka_unit_test(test_full_ring_drops),
        cmocka_unit_test(test_stop_does_not_hang),
        cmocka_unit_test(test_start_does_not_hang),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_bad_path),
        cmocka_unit_test(test_planted_link),
    };
    int failed = cmocka_run_group_tests(tests, stuck_os_make, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? 1 : failed;
}
