/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_steady.c - the steady state of training: nothing is allocated, and with a plan no message
 * is sent. And many ranks on one machine: 16 through the collectives, more with HVD_TEST_RANKS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

#define TENSORS 30

static void step(int rank, int size, float *const *data, bool is_shared)
{
    hvd_handle_t handles[TENSORS];
    (void)is_shared;
    for (int t = 0; t < TENSORS; t++) {
        int64_t count = 7 + t * 211;
        char name[32];
        hvd_op_t op;
        for (int64_t i = 0; i < count; i++)
            data[t][i] = (float)(rank + 1);
        snprintf(name, sizeof name, "grad.%d", t);
        mp_op_floats(&op, name, data[t], &count);
        op.reduce = HVD_AVERAGE;
        op.flags = HVD_OP_NAME_HOLD;
        MP_CHECK(hvd_submit(&op, &handles[t]) == HVD_OK);
    }
    for (int t = 0; t < TENSORS; t++) {
        MP_CHECK(hvd_wait(handles[t], 30000) == HVD_OK);
        hvd_release(handles[t]);
        MP_CHECK(data[t][0] == (float)(size + 1) / 2.0f &&
                 data[t][6 + t * 211] == (float)(size + 1) / 2.0f);
    }
}

static int body_steady(int rank, int size, void *arg)
{
    bool is_shared = *(bool *)arg;
    float *data[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        size_t bytes = (size_t)(7 + t * 211) * sizeof(float);
        data[t] = is_shared ? hvd_alloc(bytes) : malloc(bytes);
        MP_CHECK(data[t] != NULL);
    }
    for (int i = 0; i < 40; i++)
        step(rank, size, data, is_shared);
    hvd_stats_t before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    bool is_planned = getenv("HOROVOD_PLAN_DISABLE") == NULL, is_shown = false;
    /* On a busy machine a rank may be away for so long that a plan is given up and made anew; only
     * a stretch without that is the steady state. All ranks run the same number of steps. */
    for (int round = 0; round < 8; round++) {
        hvd_stats(&before);
        for (int i = 0; i < 40; i++)
            step(rank, size, data, is_shared);
        hvd_stats(&after);
        if (is_shown || after.plan_starts != before.plan_starts ||
            after.plan_breaks != before.plan_breaks ||
            (is_planned && after.batches_planned == before.batches_planned))
            continue;
        is_shown = true;
        MP_CHECK(after.allocations == before.allocations);
        if (is_planned)
            MP_CHECK(after.messages_sent == before.messages_sent);
    }
    step(rank, size, data, is_shared); /* until it is done nobody can begin to leave */
    MP_CHECK(is_shown);
    return 0;
}

static void test_planned(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        bool is_shared = shared != 0;
        assert_int_equal(mp_run_sizes("2 3", body_steady, &is_shared, NULL), 0);
    }
}

static void test_negotiated(void **state)
{
    (void)state;
    bool is_shared = true;
    setenv("HOROVOD_PLAN_DISABLE", "1", 1);
    assert_int_equal(mp_run_sizes("2 3", body_steady, &is_shared, NULL), 0);
    unsetenv("HOROVOD_PLAN_DISABLE");
}

static int body_many(int rank, int size, void *arg)
{
    int rounds = *(int *)arg;
    float x;
    int64_t one = 1;
    for (int i = 0; i < rounds; i++) {
        hvd_op_t op;
        hvd_handle_t handle;
        x = (float)(rank + i);
        mp_op_floats(&op, i % 2 == 0 ? "even" : "odd", &x, &one);
        op.flags = HVD_OP_WAITED;
        MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
        MP_CHECK(hvd_wait(handle, 60000) == HVD_OK);
        hvd_release(handle);
        MP_CHECK(x == (float)(size * (size - 1) / 2 + size * i));
    }
    return 0;
}

static void test_many_ranks(void **state)
{
    (void)state;
    const char *ranks = getenv("HVD_TEST_RANKS");
    int rounds = ranks != NULL ? 1000 : 100;
    struct mp_options options = {.deadline_s = 300, .expected_signal_rank = -1};
    assert_int_equal(mp_run_with(ranks != NULL ? atoi(ranks) : 16, body_many, &rounds, &options),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned),
        cmocka_unit_test(test_negotiated),
        cmocka_unit_test(test_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
