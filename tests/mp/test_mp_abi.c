/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_abi.c - programs built with another header: zero-filled structs mean the defaults,
 * structs of other sizes are accepted or rejected with a reason, and the layout of the first header
 * is unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

/* The first header's layout, on machines of 64 bits. Fields may only be added behind these. */
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(hvd_tensor_t) == 32, "part of other structs: it can't grow");
_Static_assert(offsetof(hvd_op_t, name) == 16, "");
_Static_assert(offsetof(hvd_op_t, prescale) == 32, "");
_Static_assert(offsetof(hvd_op_t, input) == 56, "");
_Static_assert(offsetof(hvd_op_t, output) == 88, "");
_Static_assert(offsetof(hvd_op_t, splits) == 120, "");
_Static_assert(offsetof(hvd_op_t, arg) == 152, "");
_Static_assert(offsetof(hvd_op_t, memory) == 160, "");
_Static_assert(offsetof(hvd_op_t, stream) == 168, "");
_Static_assert(offsetof(hvd_op_t, wire) == 176, "");
_Static_assert(offsetof(hvd_config_t, rendezvous) == 32, "");
_Static_assert(offsetof(hvd_config_t, mpi_comm_count) == 112, "");
_Static_assert(offsetof(hvd_stats_t, sleeps) == 112, "");
#endif

#define NEW_BYTES 24 /* of fields that a later header may have */

struct newer_op {
    hvd_op_t known;
    unsigned char more[NEW_BYTES];
};

static void sum_is(const hvd_op_t *ops, size_t count, int size, float *x)
{
    hvd_handle_t handle = 0;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(hvd_rank() + 1);
    MP_CHECK(hvd_submit_group(ops, count, &handle) == HVD_OK);
    MP_CHECK(hvd_wait(handle, -1) == HVD_OK);
    for (size_t i = 0; i < count; i++)
        MP_CHECK(x[i] == (float)(size * (size + 1)) / 2);
    hvd_release(handle);
}

static void refused(const hvd_op_t *ops, size_t count, hvd_status_t status, const char *text)
{
    hvd_handle_t handle = 0;
    MP_CHECK(hvd_submit_group(ops, count, &handle) == status);
    MP_CHECK(strstr(hvd_last_error(), text) != NULL);
    MP_CHECK(handle == 0);
}

/* No field but the tensor: the average of all ranks, unscaled, in host memory. */
static int body_zero_filled(int rank, int size, void *arg)
{
    (void)arg;
    float x[2] = {(float)rank, 4.0f};
    int64_t two = 2;
    hvd_handle_t handle = 0;
    hvd_op_t op = {0};
    op.struct_size = sizeof op;
    op.input.data = op.output.data = x;
    op.input.shape = &two;
    op.input.ndim = 1;
    op.input.dtype = HVD_FLOAT32;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK && hvd_wait(handle, -1) == HVD_OK);
    hvd_release(handle);
    MP_CHECK(x[0] == (float)(size - 1) / 2 && x[1] == 4.0f);
    for (int kind = 0; kind < HVD_KIND_COUNT; kind++) {
        int64_t rows = size;
        float in[MP_RANKS_MAX] = {0};
        hvd_op_t each = {.struct_size = sizeof each, .kind = (hvd_kind_t)kind};
        each.input = (hvd_tensor_t){.data = in, .shape = &rows, .ndim = 1, .dtype = HVD_FLOAT32};
        each.output = each.input;
        if (kind != HVD_ALLREDUCE && kind != HVD_BROADCAST)
            each.output.data = NULL;
        MP_CHECK(hvd_submit(&each, &handle) == HVD_OK && hvd_wait(handle, -1) == HVD_OK);
        hvd_release(handle);
    }
    return 0;
}

/* A factor of zero is legal, and is asked for. One factor given, the other left out: it counts 1.
 */
static int body_scales(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    static const struct {
        double prescale, postscale;
        uint32_t flags;
        float each;
    } rows[] = {
        {0, 0, 0, 1},
        {0.5, 0, 0, 0.5},
        {0, 0.5, 0, 0.5},
        {0, 1, HVD_OP_SCALE_EXACT, 0},
        {1, 0, HVD_OP_SCALE_EXACT, 0},
        {1, 1, HVD_OP_SCALE_EXACT, 1},
        {2, 0.25, HVD_OP_SCALE_EXACT, 0.5},
    };
    int64_t one = 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float x = 1.0f;
        hvd_handle_t handle = 0;
        hvd_op_t op = {.struct_size = sizeof op,
                       .name = "scaled",
                       .reduce = HVD_SUM,
                       .flags = rows[i].flags,
                       .prescale = rows[i].prescale,
                       .postscale = rows[i].postscale};
        op.input = op.output =
            (hvd_tensor_t){.data = &x, .shape = &one, .ndim = 1, .dtype = HVD_FLOAT32};
        MP_CHECK(hvd_submit(&op, &handle) == HVD_OK && hvd_wait(handle, -1) == HVD_OK);
        MP_CHECK(x == rows[i].each * (float)size);
        hvd_release(handle);
    }
    return 0;
}

static int body_op_sizes(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    float x[3];
    int64_t one = 1;
    struct newer_op ops[3];
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < 3; i++) {
        hvd_op_init_sized(&ops[i].known, sizeof ops[i], HVD_ALLREDUCE);
        MP_CHECK(ops[i].known.struct_size == sizeof ops[i]);
        ops[i].known.input = (hvd_tensor_t){
            .data = &x[i], .shape = &one, .ndim = 1, .dtype = HVD_FLOAT32, .device = -1};
        ops[i].known.output = ops[i].known.input;
    }
    for (int step = 0; step < 8; step++) { /* of which the later ones are a plan */
        sum_is(&ops[0].known, 1, size, x);
        sum_is(&ops[0].known, 3, size, x);
    }
    ops[2].more[NEW_BYTES - 1] = 1;
    refused(&ops[0].known, 3, HVD_ERR_UNSUPPORTED, "struct hvd_op has 208 bytes and sets a field");
    ops[2].more[NEW_BYTES - 1] = 0;
    ops[1].known.struct_size = sizeof(hvd_op_t);
    refused(&ops[0].known, 3, HVD_ERR_INVALID, "member 1 of the group is 184");
    hvd_op_t mixed[2] = {ops[0].known, ops[1].known};
    mixed[0].struct_size = sizeof mixed[0];
    mixed[1].struct_size = sizeof mixed[1] + 8;
    refused(mixed, 2, HVD_ERR_INVALID, "member 1 of the group is 192");
    const size_t bad[] = {0, 8, offsetof(hvd_op_t, memory) - 1, (size_t)1 << 40, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ops[0].known.struct_size = bad[i];
        refused(&ops[0].known, 1, HVD_ERR_INVALID, "set it to sizeof the struct");
    }
    ops[0].known.struct_size = sizeof(hvd_op_t);
    sum_is(&ops[0].known, 1, size, x);
    /* The function of programs that were linked before there was a macro. */
    hvd_op_t old;
    (hvd_op_init)(&old, HVD_ALLREDUCE);
    old.input = old.output = ops[0].known.input;
    sum_is(&old, 1, size, x);
    return 0;
}

static int body_config_sizes(int rank, int size, void *arg)
{
    (void)arg;
    struct {
        hvd_config_t known;
        unsigned char more[NEW_BYTES];
    } config = {.known = mp_child.config};
    const size_t bad[] = {0, sizeof(size_t), 64, (size_t)1 << 20};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config.known.struct_size = bad[i];
        MP_CHECK(hvd_init(&config.known) == HVD_ERR_INVALID);
        MP_CHECK(strstr(hvd_last_error(), "struct_size of struct hvd_config is ") != NULL);
        MP_CHECK(!hvd_is_initialized());
    }
    config.known.struct_size = sizeof config;
    config.more[0] = 1;
    MP_CHECK(hvd_init(&config.known) == HVD_ERR_UNSUPPORTED);
    MP_CHECK(strstr(hvd_last_error(), "struct hvd_config has ") != NULL);
    config.more[0] = 0;
    MP_CHECK(hvd_init(&config.known) == HVD_OK);
    MP_CHECK(hvd_rank() == rank && hvd_size() == size);
    return 0;
}

/* Not a byte more is written than the caller has, and not one less. */
static int body_stats_sizes(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    struct {
        hvd_stats_t known;
        unsigned char more[NEW_BYTES];
    } stats;
    float x;
    int64_t one = 1;
    hvd_op_t op = {.struct_size = sizeof op, .reduce = HVD_SUM};
    op.input = op.output =
        (hvd_tensor_t){.data = &x, .shape = &one, .ndim = 1, .dtype = HVD_FLOAT32};
    sum_is(&op, 1, size, &x);
    for (size_t bytes = sizeof(size_t); bytes <= sizeof stats; bytes++) {
        memset(&stats, 0xee, sizeof stats);
        stats.known.struct_size = bytes;
        hvd_stats(&stats.known);
        MP_CHECK(stats.known.struct_size == bytes);
        if (bytes >= offsetof(hvd_stats_t, batches))
            MP_CHECK(stats.known.ops_completed == 1);
        for (size_t i = sizeof stats.known; i < sizeof stats; i++)
            MP_CHECK(((unsigned char *)&stats)[i] == (i < bytes ? 0 : 0xee));
        for (size_t i = bytes; i < sizeof stats.known; i++)
            MP_CHECK(((unsigned char *)&stats)[i] == 0xee);
    }
    stats.known.struct_size = 0;
    hvd_stats(&stats.known);
    MP_CHECK(stats.known.ops_completed == 1 && stats.known.struct_size == 0);
    return 0;
}

static void test_zero_filled(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        assert_int_equal(mp_run(size, body_zero_filled, NULL), 0);
}

static void test_scales(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        assert_int_equal(mp_run(size, body_scales, NULL), 0);
}

static void test_op_sizes(void **state)
{
    (void)state;
    for (int size = 1; size <= 2; size++)
        assert_int_equal(mp_run(size, body_op_sizes, NULL), 0);
}

static void test_config_sizes(void **state)
{
    (void)state;
    const struct mp_options options = {.is_init_left = true, .expected_signal_rank = -1};
    for (int size = 1; size <= 2; size++)
        assert_int_equal(mp_run_with(size, body_config_sizes, NULL, &options), 0);
}

static void test_stats_sizes(void **state)
{
    (void)state;
    for (int size = 1; size <= 2; size++)
        assert_int_equal(mp_run(size, body_stats_sizes, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_filled), cmocka_unit_test(test_scales),
        cmocka_unit_test(test_op_sizes),    cmocka_unit_test(test_config_sizes),
        cmocka_unit_test(test_stats_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
