/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_limits.c - a rank that is alive but submits nothing is reported and fails the job within
 * the limits of the stall check, whatever state the others are in: negotiating or inside a plan,
 * waiting, polling or joined, on the global set or another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/steps.h"

#define REPORT_MAX 65536

struct stuck {
    int rank;      /* the stuck one: index in its set; -1: the last */
    int set;       /* process set */
    int submitted; /* ops of the step that it submits before it is stuck */
    bool is_polling, is_plan, is_joining;
    int release[2]; /* pipe: one byte for each rank that has its error */
    int said[2];    /* pipe: what the ranks log */
};

static bool is_member(const struct stuck *s, int rank)
{
    return s->set == 0 || rank > 0; /* set 1: all but rank 0 */
}

static int first_of(const struct stuck *s)
{
    return s->set == 0 ? 0 : 1;
}

static int stuck_rank(const struct stuck *s, int size)
{
    return s->rank < 0 ? size - 1 : s->rank + first_of(s);
}

/* Inside a C function that knows nothing of Horovod, until all others have their error. */
static void be_stuck(struct stuck *s, int others)
{
    char byte;
    for (int i = 0; i < others; i++)
        MP_CHECK(read(s->release[0], &byte, 1) == 1);
}

/* One byte for each rank that waits for this one. */
static void release(struct stuck *s)
{
    ssize_t bytes = s->set == 0 ? 1 : 2;
    MP_CHECK(write(s->release[1], "xx", (size_t)bytes) == bytes);
}

static void join_early(const struct stuck *s)
{
    hvd_op_t op;
    hvd_handle_t handle = 0;
    hvd_op_init(&op, HVD_JOIN);
    op.process_set = s->set;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    MP_CHECK(hvd_wait(handle, 60000) == HVD_ERR_PEER_HUNG);
}

static int body_stuck(int rank, int size, void *arg)
{
    struct stuck *s = arg;
    float data[MP_OPS][MP_COUNT] = {{0}};
    char text[HVD_ERROR_MAX] = "", expected[32];
    hvd_status_t status = HVD_OK;
    hvd_stats_t stats = {.struct_size = sizeof stats};
    int victim = stuck_rank(s, size), others = size - first_of(s) - 1;
    int err = dup(STDERR_FILENO);
    dup2(s->said[1], STDERR_FILENO);
    MP_CHECK(mp_init() == HVD_OK);
    if (!is_member(s, rank)) {
        be_stuck(s, others); /* in another way: it has nothing to do with this set */
        return 0;
    }
    for (int k = 0; k < MP_STEPS; k++)
        MP_CHECK(mp_step(s->set, s->is_polling, data, MP_OPS, &status, text));
    hvd_stats(&stats);
    dup2(err, STDERR_FILENO);
    MP_CHECK((stats.batches_planned > 0) == s->is_plan);
    dup2(s->said[1], STDERR_FILENO);
    snprintf(expected, sizeof expected, "rank %d ", victim);
    if (rank == victim) {
        hvd_handle_t handle = 0;
        for (int i = 0; i < s->submitted; i++)
            MP_CHECK(mp_submit(data[i], s->set, i == 0 ? "grad.a" : "grad.b", &handle) == HVD_OK);
        be_stuck(s, others);
        status = mp_submit(data[2], s->set, "grad.c", &handle);
        status = status == HVD_OK ? hvd_wait(handle, 60000) : status;
        snprintf(text, sizeof text, "%s", hvd_last_error());
    } else if (s->is_joining && rank == first_of(s) + (victim == first_of(s))) {
        join_early(s);
        release(s);
        return 0;
    } else {
        mp_step(s->set, s->is_polling, data, MP_OPS, &status, text);
        release(s);
    }
    dup2(err, STDERR_FILENO);
    MP_CHECK(status == HVD_ERR_PEER_HUNG);
    if (strstr(text, expected) == NULL || strstr(text, "grad.") == NULL)
        fprintf(stderr, "rank %d: %s\n", rank, text);
    MP_CHECK(strstr(text, expected) != NULL && strstr(text, "grad.") != NULL);
    return 0;
}

/* Runs the job and returns what its ranks have logged. */
static const char *run_stuck(struct stuck *s, int size)
{
    static char report[REPORT_MAX];
    static int32_t but_first[MP_RANKS_MAX];
    const int32_t *sets[] = {but_first};
    int32_t count = size - 1;
    for (int32_t i = 0; i < count; i++)
        but_first[i] = i + 1;
    struct mp_options options = {.is_init_left = true,
                                 .expected_signal_rank = -1,
                                 .process_sets = sets,
                                 .process_set_sizes = &count,
                                 .process_set_count = s->set};
    assert_int_equal(pipe(s->release), 0);
    assert_int_equal(pipe(s->said), 0);
    setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1", 1);
    setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2", 1);
    int failed = mp_run_with(size, body_stuck, s, &options);
    unsetenv("HOROVOD_STALL_CHECK_TIME_SECONDS");
    unsetenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
    close(s->said[1]);
    fcntl(s->said[0], F_SETFL, O_NONBLOCK);
    ssize_t n = read(s->said[0], report, sizeof report - 1);
    report[n > 0 ? n : 0] = '\0';
    close(s->said[0]);
    close(s->release[0]);
    close(s->release[1]);
    if (failed != 0)
        print_message("%s\n", report);
    assert_int_equal(failed, 0);
    return report;
}

static void expect_report(struct stuck s, int size)
{
    char line[32];
    const char *report = run_stuck(&s, size);
    snprintf(line, sizeof line, "\n%d: [", stuck_rank(&s, size));
    if (strstr(report, "Missing ranks:") == NULL || strstr(report, line) == NULL)
        fail_msg("no warning that names rank %d: %s", stuck_rank(&s, size), report);
    snprintf(line, sizeof line, "\n%d!: [", stuck_rank(&s, size));
    assert_non_null(strstr(report, line));
}

static void test_stuck_in_a_plan(void **state)
{
    (void)state;
    expect_report((struct stuck){.rank = -1, .is_plan = true}, 2);
    expect_report((struct stuck){.rank = 0, .is_plan = true}, 3);
    expect_report((struct stuck){.rank = 1, .is_plan = true, .submitted = 1}, 4);
}

static void test_stuck_in_a_plan_nobody_waits(void **state)
{
    (void)state;
    expect_report((struct stuck){.rank = 0, .is_plan = true, .is_polling = true}, 2);
    expect_report((struct stuck){.rank = -1, .is_plan = true, .is_polling = true, .submitted = 2},
                  3);
}

static void test_stuck_in_a_set(void **state)
{
    (void)state;
    expect_report((struct stuck){.rank = 1, .set = 1, .is_plan = true}, 4);
    expect_report((struct stuck){.rank = 0, .set = 1, .is_plan = true, .is_polling = true}, 3);
}

static void test_stuck_while_others_have_joined(void **state)
{
    (void)state;
    expect_report((struct stuck){.rank = -1, .is_plan = true, .is_joining = true}, 3);
    expect_report((struct stuck){.rank = 0, .is_plan = true, .is_joining = true}, 3);
}

static void test_stuck_over_tcp(void **state)
{
    (void)state;
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    expect_report((struct stuck){.rank = -1}, 3);
    expect_report((struct stuck){.rank = 0, .submitted = 2}, 2);
    unsetenv("HOROVOD_SHM_DISABLE");
}

static void test_stuck_without_a_plan(void **state)
{
    (void)state;
    setenv("HOROVOD_PLAN_DISABLE", "1", 1);
    expect_report((struct stuck){.rank = -1}, 3);
    unsetenv("HOROVOD_PLAN_DISABLE");
}

/* The last rank joins and the others never do: those that have joined are not left alone. */
static int body_join(int rank, int size, void *arg)
{
    struct stuck *s = arg;
    char expected[32];
    hvd_op_t op;
    hvd_handle_t handle = 0;
    MP_CHECK(mp_init() == HVD_OK);
    if (rank == size - 1) {
        be_stuck(s, size - 1);
        return 0;
    }
    hvd_op_init(&op, HVD_JOIN);
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    MP_CHECK(hvd_wait(handle, 60000) == HVD_ERR_PEER_HUNG);
    snprintf(expected, sizeof expected, "rank %d ", size - 1);
    MP_CHECK(strstr(hvd_error(handle), expected) != NULL);
    MP_CHECK(strstr(hvd_error(handle), "join") != NULL);
    release(s);
    return 0;
}

static void test_joined_wait_for_a_stuck_rank(void **state)
{
    (void)state;
    struct stuck s = {0};
    struct mp_options options = {.is_init_left = true, .expected_signal_rank = -1};
    assert_int_equal(pipe(s.release), 0);
    setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1", 1);
    setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2", 1);
    assert_int_equal(mp_run_with(3, body_join, &s, &options), 0);
    unsetenv("HOROVOD_STALL_CHECK_TIME_SECONDS");
    unsetenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
    close(s.release[0]);
    close(s.release[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stuck_in_a_plan),
        cmocka_unit_test(test_stuck_in_a_plan_nobody_waits),
        cmocka_unit_test(test_stuck_in_a_set),
        cmocka_unit_test(test_stuck_while_others_have_joined),
        cmocka_unit_test(test_stuck_over_tcp),
        cmocka_unit_test(test_stuck_without_a_plan),
        cmocka_unit_test(test_joined_wait_for_a_stuck_rank),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
