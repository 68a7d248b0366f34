/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_join.c - ranks that have run out of work, and process sets that are removed while ops are
 * in progress: joined ranks contribute zeros to every reduction, other collectives fail with a
 * clear error, all ranks learn which rank joined last; ops of a removed set fail, their handles
 * stay readable. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

#define COUNT 5

static hvd_status_t run(hvd_op_t *op, hvd_handle_t *handle)
{
    hvd_status_t status = hvd_submit(op, handle);
    return status == HVD_OK ? hvd_wait(*handle, 30000) : status;
}

static int join(void)
{
    hvd_op_t op;
    hvd_handle_t handle = 0;
    hvd_op_init(&op, HVD_JOIN);
    MP_CHECK(run(&op, &handle) == HVD_OK);
    int last = hvd_result_rank(handle);
    hvd_release(handle);
    return last;
}

/* Ranks `first` and up still work; every value is negative, so that the zeros of the others are the
 * greatest. */
static double expected(hvd_reduce_t reduce, int first, int size)
{
    double sum = 0, product = 1, least = 0;
    for (int r = 0; r < size; r++) {
        double value = r < first ? 0 : -(r + 1);
        sum += value;
        product *= value;
        least = value < least ? value : least;
    }
    switch (reduce) {
    case HVD_AVERAGE: return sum / size;
    case HVD_SUM: return sum;
    case HVD_MIN: return least;
    case HVD_MAX: return first > 0 ? 0 : -1;
    case HVD_PRODUCT: return product;
    case HVD_ADASUM:
    case HVD_REDUCE_COUNT: break;
    }
    return 0;
}

static void reduce_all(int rank, int size, int first)
{
    static const hvd_reduce_t reduces[] = {HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    for (size_t i = 0; i < sizeof reduces / sizeof reduces[0]; i++) {
        double x[COUNT];
        int64_t count = COUNT;
        char name[16];
        hvd_handle_t handle = 0;
        snprintf(name, sizeof name, "r%zu", i); /* cached from the second time on */
        for (int k = 0; k < COUNT; k++)
            x[k] = -(rank + 1);
        hvd_op_t op = mp_op_on(HVD_ALLREDUCE, name, x, &count, 1, HVD_FLOAT64);
        op.reduce = reduces[i];
        MP_CHECK(run(&op, &handle) == HVD_OK);
        hvd_release(handle);
        double wanted = expected(reduces[i], first, size);
        MP_CHECK(fabs(x[COUNT - 1] - wanted) <= 1e-12 * fabs(wanted));
    }
}

static void reduce_group(int rank, int size, int first)
{
    int32_t x[2] = {-(rank + 1), -(rank + 1)};
    int64_t one = 1;
    hvd_handle_t handle = 0;
    hvd_op_t ops[2] = {mp_op_on(HVD_ALLREDUCE, "g0", &x[0], &one, 1, HVD_INT32),
                       mp_op_on(HVD_ALLREDUCE, "g1", &x[1], &one, 1, HVD_INT32)};
    MP_CHECK(hvd_submit_group(ops, 2, &handle) == HVD_OK && hvd_wait(handle, 30000) == HVD_OK);
    hvd_release(handle);
    MP_CHECK(x[0] == (int32_t)expected(HVD_SUM, first, size) && x[1] == x[0]);
}

static void others_fail(int size)
{
    static const struct {
        hvd_kind_t kind;
        const char *text;
    } cases[] = {{HVD_ALLGATHER, "Allgather is not supported with Join at this time."},
                 {HVD_BROADCAST, "Broadcast is not supported with Join at this time."},
                 {HVD_ALLTOALL, "Alltoall is not supported with Join at this time."},
                 {HVD_REDUCESCATTER, "Reducescatter is not supported with Join at this time."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float x[MP_RANKS_MAX] = {0};
        int64_t count = size;
        hvd_handle_t handle = 0;
        char name[16];
        snprintf(name, sizeof name, "other%zu", i);
        hvd_op_t op = mp_op_on(cases[i].kind, name, x, &count, 1, HVD_FLOAT32);
        op.root = size - 1;
        MP_CHECK(run(&op, &handle) < 0);
        MP_CHECK(strstr(hvd_error(handle), cases[i].text) != NULL);
        hvd_release(handle);
    }
}

/* Rank r has r + 1 batches of work; three epochs of it. */
static int body_uneven(int rank, int size, void *arg)
{
    (void)arg;
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int step = 0; step <= rank; step++) {
            reduce_all(rank, size, step);
            reduce_group(rank, size, step);
            if (step > 0)
                others_fail(size);
        }
        MP_CHECK(join() == size - 1);
    }
    return 0;
}

/* What was submitted before the join and is still waiting then runs first. */
static int body_pending(int rank, int size, void *arg)
{
    (void)arg;
    for (int round = 0; round < 5; round++) {
        double x[8];
        int64_t one = 1;
        hvd_handle_t handles[8];
        for (int i = 0; i < 8; i++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", rank % 2 == 0 ? i : 7 - i);
            x[i] = 1;
            hvd_op_t op = mp_op_on(HVD_ALLREDUCE, name, &x[i], &one, 1, HVD_FLOAT64);
            MP_CHECK(hvd_submit(&op, &handles[i]) == HVD_OK);
        }
        int last = join();
        MP_CHECK(last >= 0 && last < size);
        for (int i = 0; i < 8; i++) {
            MP_CHECK(hvd_wait(handles[i], 30000) == HVD_OK && x[i] == (double)size);
            hvd_release(handles[i]);
        }
    }
    return 0;
}

/* ---- process sets ---- */

/* All but the last rank are in a set that goes while one of them waits in it. */
static int body_removed(int rank, int size, void *arg)
{
    (void)arg;
    setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    MP_CHECK(mp_init() == HVD_OK);
    if (size < 3)
        return 0;
    int32_t members[MP_RANKS_MAX], id = -1, splits[MP_RANKS_MAX], ndim;
    int64_t one = 1, each = size - 1, got[HVD_DIMS_MAX];
    for (int r = 0; r < size - 1; r++)
        members[r] = r;
    for (int round = 0; round < 6; round++) {
        float x = 1.0f, row[MP_RANKS_MAX] = {0};
        hvd_handle_t waiting = 0, ended = 0;
        MP_CHECK(hvd_process_set_add(members, size - 1, &id) == HVD_OK && id == 1);
        bool is_member = rank < size - 1;
        if (is_member) {
            hvd_op_t op = mp_op_on(HVD_ALLTOALL, "exchange", row, &each, 1, HVD_FLOAT32);
            op.process_set = id;
            MP_CHECK(run(&op, &ended) == HVD_OK);
        }
        if (is_member && rank != round % (size - 1)) { /* one is missing */
            hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "waiting", &x, &one, 1, HVD_FLOAT32);
            op.process_set = id;
            MP_CHECK(hvd_submit(&op, &waiting) == HVD_OK);
        }
        MP_CHECK(hvd_process_set_remove(id) == HVD_OK);
        if (waiting != 0) {
            MP_CHECK(hvd_wait(waiting, 30000) == HVD_ERR_ABORTED);
            MP_CHECK(strstr(hvd_last_error(), "Process set has been removed") != NULL);
            hvd_release(waiting);
        }
        if (is_member) { /* the set is no more; what came of it is */
            MP_CHECK(hvd_result_splits(ended, 0, splits) == HVD_OK && splits[size - 2] == 1);
            MP_CHECK(hvd_result_shape(ended, 0, &ndim, got) == HVD_OK && got[0] == size - 1);
            hvd_release(ended);
        }
        hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "all", &x, &one, 1, HVD_FLOAT32);
        hvd_handle_t handle = 0;
        x = 1.0f;
        MP_CHECK(run(&op, &handle) == HVD_OK && x == (float)size);
        hvd_release(handle);
    }
    return 0;
}

MP_TEST(uneven, "1 2 3 4", NULL)
MP_TEST(pending, "1 2 3 4", NULL)
MP_TEST(removed, "1 2 3 4", &mp_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_removed),
    };
    int failed;
    MP_RUN_BOTH_WAYS(tests, &failed);
    return failed;
}
