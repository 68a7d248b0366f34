/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_basic.c - real ranks through the public C API: every collective, in order, against the
 * expected result, on several numbers of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

static float value_of(int rank, int64_t i)
{
    return (float)((rank + 1) * ((i % 7) + 1));
}

static hvd_status_t run(hvd_op_t *op, hvd_handle_t *handle)
{
    hvd_status_t status = hvd_submit(op, handle);
    return status == HVD_OK ? hvd_wait(*handle, 30000) : status;
}

static hvd_status_t allreduce(float *data, int64_t count, const char *name, hvd_reduce_t reduce)
{
    hvd_op_t op;
    hvd_handle_t handle;
    mp_op_floats(&op, name, data, &count);
    op.reduce = reduce;
    op.flags = HVD_OP_WAITED;
    hvd_status_t status = run(&op, &handle);
    if (status == HVD_OK)
        hvd_release(handle);
    return status;
}

static void check_allreduce(int rank, int size, int64_t count, const char *name)
{
    float *data = malloc((size_t)(count > 0 ? count : 1) * sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = value_of(rank, i);
    MP_CHECK(allreduce(data, count, name, HVD_SUM) == HVD_OK);
    float ranks = (float)(size * (size + 1) / 2);
    for (int64_t i = 0; i < count; i++)
        MP_CHECK(data[i] == ranks * (float)((i % 7) + 1));
    free(data);
}

static int body_allreduce(int rank, int size, void *arg)
{
    (void)arg;
    static const int64_t counts[] = {0, 1, 3, 12, 100, 2000, 50000, 1000003};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            char name[32];
            snprintf(name, sizeof name, "t%zu", i);
            check_allreduce(rank, size, counts[i], name);
            check_allreduce(rank, size, counts[i], NULL);
        }
    return 0;
}

static int body_allgather(int rank, int size, void *arg)
{
    (void)arg;
    int64_t shape[2] = {rank + 1, 3};
    int32_t *in = malloc((size_t)(shape[0] * 3) * sizeof *in);
    for (int64_t i = 0; i < shape[0] * 3; i++)
        in[i] = rank * 1000 + (int32_t)i;
    for (int round = 0; round < 3; round++) {
        hvd_op_t op;
        hvd_handle_t handle;
        hvd_op_init(&op, HVD_ALLGATHER);
        op.name = "gather";
        op.input = (hvd_tensor_t){
            .data = in, .shape = shape, .ndim = 2, .dtype = HVD_INT32, .device = HVD_DEVICE_CPU};
        MP_CHECK(run(&op, &handle) == HVD_OK);
        int32_t ndim;
        int64_t got[HVD_DIMS_MAX];
        MP_CHECK(hvd_result_shape(handle, 0, &ndim, got) == HVD_OK && ndim == 2);
        MP_CHECK(got[0] == size * (size + 1) / 2 && got[1] == 3);
        const int32_t *out = hvd_result_data(handle, 0);
        int64_t at = 0;
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < (r + 1) * 3; i++)
                MP_CHECK(out[at++] == r * 1000 + i);
        hvd_release(handle);
    }
    free(in);
    return 0;
}

static int body_broadcast(int rank, int size, void *arg)
{
    (void)arg;
    int64_t count = 70001;
    double *data = malloc((size_t)count * sizeof *data);
    for (int root = 0; root < size; root++) {
        for (int64_t i = 0; i < count; i++)
            data[i] = rank == root ? (double)(root * 10 + i) : -1.0;
        hvd_op_t op;
        hvd_handle_t handle;
        char name[32];
        snprintf(name, sizeof name, "b%d", root);
        hvd_op_init(&op, HVD_BROADCAST);
        op.name = name;
        op.root = root;
        op.input = (hvd_tensor_t){.data = data,
                                  .shape = &count,
                                  .ndim = 1,
                                  .dtype = HVD_FLOAT64,
                                  .device = HVD_DEVICE_CPU};
        op.output = op.input;
        MP_CHECK(run(&op, &handle) == HVD_OK);
        hvd_release(handle);
        for (int64_t i = 0; i < count; i++)
            MP_CHECK(data[i] == (double)(root * 10 + i));
    }
    free(data);
    return 0;
}

static int body_alltoall(int rank, int size, void *arg)
{
    (void)arg;
    int32_t splits[MP_RANKS_MAX], received[MP_RANKS_MAX];
    int64_t rows = 0;
    for (int i = 0; i < size; i++) {
        splits[i] = (rank + i) % 3;
        rows += splits[i];
    }
    int64_t shape[2] = {rows + 1, 2}; /* one row more than the splits ask for */
    int64_t *in = calloc((size_t)(rows + 1) * 2, sizeof *in);
    int64_t at = 0;
    for (int i = 0; i < size; i++)
        for (int k = 0; k < splits[i] * 2; k++)
            in[at++] = rank * 100 + i;
    for (int round = 0; round < 2; round++) {
        hvd_op_t op;
        hvd_handle_t handle;
        hvd_op_init(&op, HVD_ALLTOALL);
        op.name = "a2a";
        op.splits = splits;
        op.splits_count = size;
        op.input = (hvd_tensor_t){
            .data = in, .shape = shape, .ndim = 2, .dtype = HVD_INT64, .device = HVD_DEVICE_CPU};
        MP_CHECK(run(&op, &handle) == HVD_OK);
        MP_CHECK(hvd_result_splits(handle, 0, received) == HVD_OK);
        const int64_t *out = hvd_result_data(handle, 0);
        at = 0;
        for (int r = 0; r < size; r++) {
            MP_CHECK(received[r] == (r + rank) % 3);
            for (int k = 0; k < received[r] * 2; k++)
                MP_CHECK(out[at++] == r * 100 + rank);
        }
        hvd_release(handle);
    }
    free(in);
    return 0;
}

static int body_reducescatter(int rank, int size, void *arg)
{
    (void)arg;
    int64_t shape[2] = {7, 5};
    float in[35];
    for (int i = 0; i < 35; i++)
        in[i] = (float)(i * (rank + 1));
    hvd_op_t op;
    hvd_handle_t handle;
    hvd_op_init(&op, HVD_REDUCESCATTER);
    op.name = "rs";
    op.input = (hvd_tensor_t){
        .data = in, .shape = shape, .ndim = 2, .dtype = HVD_FLOAT32, .device = HVD_DEVICE_CPU};
    MP_CHECK(run(&op, &handle) == HVD_OK);
    int32_t ndim;
    int64_t got[HVD_DIMS_MAX];
    MP_CHECK(hvd_result_shape(handle, 0, &ndim, got) == HVD_OK);
    int64_t mine = 7 / size + (rank < 7 % size ? 1 : 0), first = 0;
    for (int r = 0; r < rank; r++)
        first += 7 / size + (r < 7 % size ? 1 : 0);
    MP_CHECK(got[0] == mine);
    const float *out = hvd_result_data(handle, 0);
    float ranks = (float)(size * (size + 1) / 2);
    for (int64_t i = 0; i < mine * 5; i++)
        MP_CHECK(out[i] == (float)(first * 5 + i) * ranks);
    hvd_release(handle);
    return 0;
}

static int body_mismatch(int rank, int size, void *arg)
{
    (void)arg;
    float data[8] = {0};
    for (int round = 0; round < 3; round++) {
        hvd_status_t status = allreduce(data, rank == 0 ? 4 : 8, "odd", HVD_SUM);
        MP_CHECK(size == 1 ? status == HVD_OK : status == HVD_ERR_MISMATCH);
        check_allreduce(rank, size, 10, "even");
    }
    return 0;
}

static int body_join(int rank, int size, void *arg)
{
    (void)arg;
    for (int step = 0; step < 3 + rank; step++) {
        float x = 1.0f;
        MP_CHECK(allreduce(&x, 1, "joined", HVD_SUM) == HVD_OK);
        int present = 0;
        for (int r = 0; r < size; r++)
            present += step < 3 + r;
        MP_CHECK(x == (float)present);
    }
    hvd_op_t op;
    hvd_handle_t handle;
    hvd_op_init(&op, HVD_JOIN);
    MP_CHECK(run(&op, &handle) == HVD_OK);
    MP_CHECK(hvd_result_rank(handle) == size - 1);
    hvd_release(handle);
    check_allreduce(rank, size, 10, "after");
    return 0;
}

static int body_barrier(int rank, int size, void *arg)
{
    (void)rank;
    (void)size;
    (void)arg;
    for (int i = 0; i < 100; i++) {
        hvd_op_t op;
        hvd_handle_t handle;
        hvd_op_init(&op, HVD_BARRIER);
        MP_CHECK(run(&op, &handle) == HVD_OK);
        hvd_release(handle);
    }
    return 0;
}

#define STEP_TENSORS 40

/* Many steps of the same named tensors: the plan takes over, breaks at a stranger, and takes over
 * again. */
static int body_steps(int rank, int size, void *arg)
{
    (void)arg;
    static float data[STEP_TENSORS][600];
    for (int step = 0; step < 200; step++) {
        hvd_handle_t handles[STEP_TENSORS];
        for (int t = 0; t < STEP_TENSORS; t++) {
            int64_t count = 1 + t * 15;
            for (int64_t i = 0; i < count; i++)
                data[t][i] = value_of(rank, i + step);
            hvd_op_t op;
            char name[32];
            snprintf(name, sizeof name, "grad.%d", t);
            mp_op_floats(&op, name, data[t], &count);
            MP_CHECK(hvd_submit(&op, &handles[t]) == HVD_OK);
        }
        for (int t = 0; t < STEP_TENSORS; t++) {
            MP_CHECK(hvd_wait(handles[t], 30000) == HVD_OK);
            hvd_release(handles[t]);
            for (int64_t i = 0; i < 1 + t * 15; i++)
                MP_CHECK(data[t][i] ==
                         (float)(size * (size + 1) / 2) * (float)(((i + step) % 7) + 1));
        }
        if (step % 50 == 49)
            check_allreduce(rank, size, 10, "stranger");
    }
    hvd_stats_t stats = {.struct_size = sizeof stats};
    hvd_stats(&stats);
    /* Plans are for one host, and not for MPI's collectives. */
    bool can_plan = size > 1 && getenv("HOROVOD_SHM_DISABLE") == NULL &&
                    getenv("HOROVOD_CPU_OPERATIONS") == NULL;
    MP_CHECK(!can_plan || stats.plan_starts >= 2);
    MP_CHECK(!can_plan || stats.batches_planned > 0);
    return 0;
}

static int body_reinit(int rank, int size, void *arg)
{
    (void)arg;
    for (int life = 0; life < 10; life++) {
        MP_CHECK(mp_init() == HVD_OK);
        check_allreduce(rank, size, 100, "life");
        hvd_shutdown();
    }
    return 0;
}

static int body_sets(int rank, int size, void *arg)
{
    (void)arg;
    int32_t evens[MP_RANKS_MAX], count = 0, id = -1;
    for (int r = 0; r < size; r += 2)
        evens[count++] = r;
    setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    MP_CHECK(mp_init() == HVD_OK);
    for (int round = 0; round < 5; round++) {
        hvd_status_t status = hvd_process_set_add(evens, count, &id);
        if (size == 1) {
            MP_CHECK(status != HVD_OK); /* equals the global set */
            return 0;
        }
        MP_CHECK(status == HVD_OK && id == 1);
        float x = 1.0f;
        int64_t one = 1;
        hvd_op_t op;
        hvd_handle_t handle;
        mp_op_floats(&op, "in_set", &x, &one);
        op.process_set = id;
        if (rank % 2 == 0) {
            MP_CHECK(run(&op, &handle) == HVD_OK);
            hvd_release(handle);
            MP_CHECK(x == (float)count);
        } else {
            MP_CHECK(hvd_submit(&op, &handle) == HVD_ERR_INVALID);
        }
        MP_CHECK(hvd_process_set_remove(id) == HVD_OK);
        MP_CHECK(hvd_submit(&op, &handle) == HVD_ERR_INVALID);
    }
    return 0;
}

/* What a careless caller may hand over is refused by the call itself, and the next op works. */
static int body_careless(int rank, int size, void *arg)
{
    (void)arg;
    float x[4] = {0};
    int64_t one = 1;
    int32_t ranks[] = {0}, id;
    hvd_op_t op;
    hvd_handle_t handle = 0;
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = "careless";
    op.input = (hvd_tensor_t){.data = x, .ndim = 1, .dtype = HVD_FLOAT32, .device = -1};
    op.output = op.input;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "no shape") != NULL);
    op.input.shape = op.output.shape = &one;
    MP_CHECK(hvd_submit(&op, NULL) == HVD_ERR_INVALID);
    MP_CHECK(hvd_submit(NULL, &handle) == HVD_ERR_INVALID);
    MP_CHECK(hvd_submit_group(NULL, 3, &handle) == HVD_ERR_INVALID);
    op.kind = HVD_ALLTOALL;
    op.splits_count = size;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_ERR_INVALID);
    MP_CHECK(hvd_process_set_add(NULL, 1, &id) == HVD_ERR_INVALID);
    MP_CHECK(hvd_process_set_add(ranks, 1, NULL) == HVD_ERR_INVALID);
    check_allreduce(rank, size, 10, "careless");
    return 0;
}

static void run_all(mp_body body, const struct mp_options *options)
{
    assert_int_equal(mp_run_sizes("1 2 3 4", body, NULL, options), 0);
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        run_all(body_##name, NULL);                                                                \
    }
TEST(allreduce)
TEST(careless)
TEST(allgather)
TEST(broadcast)
TEST(alltoall)
TEST(reducescatter)
TEST(mismatch)
TEST(join)
TEST(barrier)
TEST(steps)

static void test_reinit(void **state)
{
    (void)state;
    run_all(body_reinit, &mp_left);
}

static void test_sets(void **state)
{
    (void)state;
    run_all(body_sets, &mp_left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce),     cmocka_unit_test(test_allgather),
        cmocka_unit_test(test_broadcast),     cmocka_unit_test(test_alltoall),
        cmocka_unit_test(test_reducescatter), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_join),          cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_steps),         cmocka_unit_test(test_reinit),
        cmocka_unit_test(test_sets),          cmocka_unit_test(test_careless),
    };
    int failed;
    MP_RUN_BOTH_WAYS(tests, &failed);
    return failed;
}
