/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_wire.c - allreduces of float32 that travel as float16 or bfloat16, among real processes
 * that share memory and among ones that do not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

#define COUNT 5000
#define STEPS 14 /* enough for a plan */

static bool has_network(void)
{
    return getenv("HOROVOD_SHM_DISABLE") != NULL;
}

static hvd_status_t finish(hvd_handle_t handle)
{
    hvd_status_t status = hvd_wait(handle, 30000);
    if (status == HVD_OK)
        hvd_release(handle);
    return status;
}

static hvd_handle_t begin(const char *name, float *data, int64_t count, hvd_reduce_t reduce,
                          hvd_wire_t wire)
{
    hvd_op_t op;
    hvd_handle_t handle = 0;
    mp_op_floats(&op, name, data, &count);
    op.reduce = reduce;
    op.wire = wire;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    return handle;
}

static void works(int size)
{
    float x = 1.0f;
    MP_CHECK(finish(begin("works", &x, 1, HVD_SUM, HVD_WIRE_SAME)) == HVD_OK);
    MP_CHECK(x == (float)size);
}

/* A number that needs 13 bits, and what a sum of `size` of them may be if they travel with 8. */
static void fill(float *x, int rank)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(rank + 1) * (1.0f + (float)(i % 3) / 4096.0f);
}

static void check(const float *x, int size, double factor, hvd_wire_t wire)
{
    bool has_rounded = false;
    for (int i = 0; i < COUNT; i++) {
        double want = size * (size + 1) / 2 * (1.0 + (double)(i % 3) / 4096.0) * factor;
        double error = fabs((double)x[i] - want) / want;
        has_rounded = has_rounded || error > 1e-6;
        MP_CHECK(error < (wire == HVD_WIRE_BFLOAT16 ? 0.01 : 0.002));
    }
    /* Between ranks that share memory nothing is converted. */
    if (wire == HVD_WIRE_SAME || size == 1)
        MP_CHECK(!has_rounded);
    else if (has_network())
        MP_CHECK(has_rounded);
    else if (getenv("HVD_TEST_LAUNCHED") == NULL)
        MP_CHECK(!has_rounded);
}

static uint64_t net_bytes(void)
{
    hvd_stats_t stats = {.struct_size = sizeof stats};
    hvd_stats(&stats);
    return stats.net_bytes;
}

/* All three together, in every step: they are never fused with each other, and a plan has them. */
static int body_mixed(int rank, int size, void *arg)
{
    static float x[3][COUNT];
    static const hvd_wire_t wires[] = {HVD_WIRE_SAME, HVD_WIRE_BFLOAT16, HVD_WIRE_FLOAT16};
    static const char *const names[] = {"plain", "bf16", "fp16"};
    (void)arg;
    for (int step = 0; step < STEPS; step++) {
        hvd_handle_t handles[3];
        for (int k = 0; k < 3; k++) {
            int i = (k + rank) % 3; /* ranks differ in their order */
            fill(x[i], rank);
            handles[i] = begin(names[i], x[i], COUNT, HVD_AVERAGE, wires[i]);
        }
        for (int i = 0; i < 3; i++) {
            MP_CHECK(finish(handles[i]) == HVD_OK);
            check(x[i], size, 1.0 / size, wires[i]);
        }
    }
    works(size);
    return 0;
}

/* One name that changes its type from step to step, alike on all ranks. */
static int body_changes(int rank, int size, void *arg)
{
    static float x[COUNT];
    (void)arg;
    for (int step = 0; step < STEPS; step++) {
        hvd_wire_t wire = (hvd_wire_t)(step / 2 % HVD_WIRE_COUNT);
        fill(x, rank);
        MP_CHECK(finish(begin("same", x, COUNT, HVD_SUM, wire)) == HVD_OK);
        check(x, size, 1.0, wire);
    }
    return 0;
}

static int body_bytes(int rank, int size, void *arg)
{
    static float x[COUNT * 20];
    uint64_t moved[2];
    (void)arg;
    works(size);
    for (int k = 0; k < 2; k++) {
        uint64_t before = net_bytes();
        for (int i = 0; i < COUNT * 20; i++)
            x[i] = (float)rank;
        hvd_wire_t wire = k == 0 ? HVD_WIRE_SAME : HVD_WIRE_BFLOAT16;
        MP_CHECK(finish(begin("bytes", x, COUNT * 20, HVD_SUM, wire)) == HVD_OK);
        moved[k] = net_bytes() - before;
    }
    if (has_network() && size > 1) /* frames and control messages are small */
        MP_CHECK(moved[1] < moved[0] * 55 / 100 && moved[1] > moved[0] * 45 / 100);
    return 0;
}

static int body_differ(int rank, int size, void *arg)
{
    static float x[COUNT];
    (void)arg;
    for (int round = 0; round < 3; round++) {
        fill(x, rank);
        hvd_wire_t wire = rank == size - 1 ? HVD_WIRE_BFLOAT16 : HVD_WIRE_SAME;
        hvd_handle_t handle = begin("differ", x, COUNT, HVD_SUM, wire);
        hvd_status_t status = hvd_wait(handle, 30000);
        MP_CHECK(status == (size > 1 ? HVD_ERR_MISMATCH : HVD_OK));
        if (size > 1) {
            MP_CHECK(strstr(hvd_error(handle), "Mismatched compression: One rank sends its values "
                                               "as ") != NULL);
            MP_CHECK(strstr(hvd_error(handle), "bfloat16") != NULL);
            MP_CHECK(strstr(hvd_error(handle), "rank") != NULL);
        }
        hvd_release(handle);
        works(size);
    }
    return 0;
}

static void refused(hvd_op_t *op, const char *text)
{
    hvd_handle_t handle = 0;
    MP_CHECK(hvd_submit(op, &handle) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), text) != NULL);
}

static int body_refused(int rank, int size, void *arg)
{
    double x[4] = {0};
    int64_t four = 4;
    static const char text[] = "Only an allreduce by SUM or AVERAGE of float32 can travel as ";
    (void)rank;
    (void)arg;
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "bad", x, &four, 1, HVD_FLOAT64);
    op.wire = HVD_WIRE_FLOAT16;
    refused(&op, text);
    op.input.dtype = op.output.dtype = HVD_FLOAT32;
    op.reduce = HVD_MAX;
    refused(&op, text);
    op.reduce = HVD_SUM;
    op.kind = HVD_BROADCAST;
    refused(&op, text);
    op.kind = HVD_ALLREDUCE;
    op.wire = HVD_WIRE_COUNT;
    refused(&op, "There is no wire type");
    op.wire = (hvd_wire_t)-1;
    refused(&op, "There is no wire type");
    works(size);
    return 0;
}

/* A rank that has joined takes part with zeros, in the type of the others. */
static int body_join(int rank, int size, void *arg)
{
    static float x[COUNT];
    (void)arg;
    hvd_op_t join;
    hvd_handle_t handle = 0;
    hvd_op_init(&join, HVD_JOIN);
    if (rank < size - 1)
        for (int step = 0; step < 3; step++) {
            fill(x, rank);
            MP_CHECK(finish(begin("short", x, COUNT, HVD_SUM, HVD_WIRE_BFLOAT16)) == HVD_OK);
            check(x, size - 1, 1.0, size > 2 || has_network() ? HVD_WIRE_BFLOAT16 : HVD_WIRE_SAME);
        }
    MP_CHECK(hvd_submit(&join, &handle) == HVD_OK);
    MP_CHECK(finish(handle) == HVD_OK);
    works(size);
    return 0;
}

MP_TEST(mixed, "1 2 3 4", NULL)
MP_TEST(changes, "1 2 3", NULL)
MP_TEST(bytes, "2 3", NULL)
MP_TEST(differ, "1 2 3", NULL)
MP_TEST(refused, "1 2", NULL)
MP_TEST(join, "3 4", NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),  cmocka_unit_test(test_changes), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_differ), cmocka_unit_test(test_refused), cmocka_unit_test(test_join),
    };
    int failed;
    MP_RUN_BOTH_WAYS(tests, &failed);
    return failed;
}
