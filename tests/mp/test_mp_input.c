/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_input.c - edge cases of what callers may pass: devices, outputs and flags that are
 * rejected, factors that are NaN, tensors without elements, memory with and without peers, and what
 * hvd_last_error() returns when. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

static hvd_status_t run(hvd_op_t *op, hvd_handle_t *handle)
{
    hvd_status_t status = hvd_submit(op, handle);
    return status == HVD_OK ? hvd_wait(*handle, 30000) : status;
}

static void refused(hvd_op_t *op, hvd_status_t status, const char *text)
{
    hvd_handle_t handle = 0;
    MP_CHECK(hvd_submit(op, &handle) == status);
    MP_CHECK(strstr(hvd_last_error(), text) != NULL);
    MP_CHECK(handle == 0);
}

static void works(int size)
{
    float x = 1.0f;
    int64_t one = 1;
    hvd_handle_t handle = 0;
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "works", &x, &one, 1, HVD_FLOAT32);
    MP_CHECK(run(&op, &handle) == HVD_OK && x == (float)size);
    hvd_release(handle);
}

static int body_refused(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    float x[6] = {0}, y[6];
    int64_t shape[] = {2, 3}, turned[] = {3, 2}, huge = (int64_t)size << 33;
    for (int kind = 0; kind < 2; kind++) {
        hvd_op_t op =
            mp_op_on(kind == 0 ? HVD_ALLREDUCE : HVD_BROADCAST, "bad", x, shape, 2, HVD_FLOAT32);
        op.output.data = y;
        op.input.device = 7;
        refused(&op, HVD_ERR_UNSUPPORTED, "input is on device 7");
        op.input.device = HVD_DEVICE_CPU;
        op.output.device = 1;
        refused(&op, HVD_ERR_UNSUPPORTED, "output is on device 1");
        op.output.device = HVD_DEVICE_CPU;
        op.memory = 9;
        refused(&op, HVD_ERR_UNSUPPORTED, "memory of kind 9, which is not there");
        op.memory = HVD_MEMORY_HOST;
        op.stream = x;
        refused(&op, HVD_ERR_INVALID, "has a stream");
        op.stream = NULL;
        op.output.shape = turned;
        refused(&op, HVD_ERR_INVALID, "shape [2, 3] needs an output of that shape, not [3, 2]");
        op.output.ndim = 1;
        refused(&op, HVD_ERR_INVALID, "not [3]");
        op.output.ndim = 99;
        refused(&op, HVD_ERR_INVALID, "needs an output of that shape");
        op.output = op.input;
        op.output.dtype = HVD_INT32;
        refused(&op, HVD_ERR_INVALID, "from float32 into int32");
        op.output = op.input;
        op.flags = 1u << 20;
        refused(&op, HVD_ERR_INVALID, "Unknown flags");
    }
    hvd_op_t op = mp_op_on(HVD_ALLTOALL, "wide", x, &huge, 1, HVD_UINT8);
    refused(&op, HVD_ERR_LIMIT, "8589934592 rows for each rank");
    works(size);
    return 0;
}

/* Everything that a submit checks, one by one: the call says it, and leaves no trace. */
static int body_checks(int rank, int size, void *arg)
{
    (void)arg;
    float x[4] = {0};
    int64_t two = 2, minus = -1, huge[] = {INT64_MAX, 2}, uneven = 2 * size + 1, each = size;
    int32_t splits[MP_RANKS_MAX + 1] = {0};
    char name[HVD_NAME_MAX + 1];
    hvd_op_t good = mp_op_on(HVD_ALLREDUCE, "checked", x, &two, 1, HVD_FLOAT32), op = good;
    op.struct_size = offsetof(hvd_op_t, arg);
    refused(&op, HVD_ERR_INVALID, "set it to sizeof the struct");
    op = good, op.kind = (hvd_kind_t)99;
    refused(&op, HVD_ERR_INVALID, "Unknown kind of operation: 99");
    op = good, op.input.dtype = (hvd_dtype_t)99;
    refused(&op, HVD_ERR_INVALID, "Unknown data type number 99");
    op = good, op.input.ndim = HVD_DIMS_MAX + 1;
    refused(&op, HVD_ERR_INVALID, "17 dimensions is not supported; the limit is 16");
    op = good, op.input.shape = &minus;
    refused(&op, HVD_ERR_INVALID, "negative or too large");
    op = good, op.input.shape = huge, op.input.ndim = 2;
    refused(&op, HVD_ERR_INVALID, "negative or too large");
    op = good, op.input.data = NULL;
    refused(&op, HVD_ERR_INVALID, "2 elements but no memory");
    op = good, op.output.data = NULL;
    refused(&op, HVD_ERR_INVALID, "Allreduce needs memory for its output");
    op = good, op.reduce = (hvd_reduce_t)77;
    refused(&op, HVD_ERR_UNSUPPORTED, "Reduction op type not supported.");
    op = good, op.process_set = 5;
    refused(&op, HVD_ERR_INVALID, "Allreduce: Process set provided does not exist");
    op.kind = HVD_REDUCESCATTER;
    refused(&op, HVD_ERR_INVALID, "Invalid process set id for this rank: 5");
    op = good, op.kind = HVD_BROADCAST, op.root = size;
    refused(&op, HVD_ERR_INVALID, "broadcast received invalid root rank");
    op = good, op.input.dtype = op.output.dtype = HVD_INT16, op.prescale = 2;
    refused(&op, HVD_ERR_UNSUPPORTED, "Scaling or averaging int16 tensors");
    op = good, op.kind = HVD_REDUCESCATTER, op.reduce = HVD_MAX;
    refused(&op, HVD_ERR_ABORTED, "Reducescatter currently only supports AVERAGE and SUM.");
    op.input.ndim = 0;
    refused(&op, HVD_ERR_INVALID, "Reducescatter does not support scalar inputs");
    op.kind = HVD_ALLTOALL;
    refused(&op, HVD_ERR_INVALID, "Alltoall does not support scalar inputs");
    op = mp_op_on(HVD_ALLTOALL, "split", x, &uneven, 1, HVD_UINT8);
    if (size > 1)
        refused(&op, HVD_ERR_INVALID, "splits not provided, but first dimension");
    op.input.shape = &each, op.splits = splits, op.splits_count = size + 1;
    refused(&op, HVD_ERR_INVALID, "Number of entries in splits does not equal number of workers.");
    op.splits_count = size, splits[0] = size + 1;
    refused(&op, HVD_ERR_INVALID, "Sum of splits entries is greater");
    splits[0] = -1;
    refused(&op, HVD_ERR_INVALID, "splits must not be negative, but entry 0 is -1");
    memset(name, 'n', HVD_NAME_MAX);
    name[HVD_NAME_MAX] = '\0';
    op = good, op.name = name;
    refused(&op, HVD_ERR_LIMIT, "longer than 1023 bytes");
    op = good, op.reduce = HVD_ADASUM;
    if ((size & (size - 1)) != 0)
        refused(&op, HVD_ERR_UNSUPPORTED, "non-power of 2 ranks");
    (void)rank;
    works(size);
    return 0;
}

static void on_end(void *arg, hvd_handle_t handle, hvd_status_t status)
{
    (void)handle;
    atomic_store((_Atomic int *)arg, status == HVD_OK ? 1 : -1);
}

static void *give_memory(void *arg, int32_t index, int32_t ndim, const int64_t *shape)
{
    (void)index;
    *(void **)arg = ndim == 1 ? malloc((size_t)shape[0] * sizeof(float)) : NULL;
    return *(void **)arg;
}

/* Names while they are taken, groups that fail as a whole, results in the caller's memory. */
static int body_ways(int rank, int size, void *arg)
{
    (void)arg;
    float x[2] = {1, 1}, all[MP_RANKS_MAX], *mine = NULL;
    int64_t one = 1;
    static _Atomic int told;
    hvd_handle_t handle = 0, other = 0;
    char own[16];
    snprintf(own, sizeof own, "own%d", rank);
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, size > 1 ? own : "own", x, &one, 1, HVD_FLOAT32);
    hvd_op_t pair[2] = {mp_op_on(HVD_ALLREDUCE, "twice", &x[0], &one, 1, HVD_FLOAT32),
                        mp_op_on(HVD_ALLREDUCE, "twice", &x[1], &one, 1, HVD_FLOAT32)};
    MP_CHECK(hvd_submit_group(pair, 2, &other) == HVD_ERR_DUPLICATE);
    MP_CHECK(hvd_submit_group(pair, 0, &other) == HVD_ERR_INVALID);
    pair[1].name = "once";
    MP_CHECK(hvd_submit_group(pair, 2, &other) == HVD_OK && hvd_wait(other, 30000) == HVD_OK);
    hvd_release(other);
    if (size > 1) {
        MP_CHECK(hvd_submit(&op, &handle) == HVD_OK); /* nobody else comes */
        MP_CHECK(hvd_submit(&op, &other) == HVD_ERR_DUPLICATE);
        MP_CHECK(strstr(hvd_last_error(), own) != NULL && hvd_poll(handle) == HVD_IN_PROGRESS);
    }
    for (int i = 0; i < 3; i++) { /* held until seen */
        hvd_op_t held = mp_op_on(HVD_ALLREDUCE, "held", x, &one, 1, HVD_FLOAT32);
        held.flags = HVD_OP_NAME_HOLD;
        MP_CHECK(run(&held, &handle) == HVD_OK);
        hvd_release(handle);
    }
    hvd_op_t gather = mp_op_on(HVD_ALLGATHER, "into", x, &one, 1, HVD_FLOAT32);
    x[0] = (float)rank;
    gather.output.data = all;
    MP_CHECK(run(&gather, &handle) == HVD_OK && all[size - 1] == (float)(size - 1));
    MP_CHECK(hvd_result_data(handle, 0) == NULL);
    hvd_release(handle);
    gather = mp_op_on(HVD_ALLGATHER, "given", x, &one, 1, HVD_FLOAT32);
    gather.alloc_result = give_memory;
    gather.arg = &mine;
    MP_CHECK(run(&gather, &handle) == HVD_OK && mine != NULL && mine[0] == 0);
    hvd_release(handle);
    free(mine);
    hvd_op_t scatter = mp_op_on(HVD_REDUCESCATTER, "mean", x, &one, 1, HVD_FLOAT32);
    scatter.reduce = HVD_AVERAGE;
    x[0] = 3;
    MP_CHECK(run(&scatter, &handle) == HVD_OK);
    if (rank == 0)
        MP_CHECK(((float *)hvd_result_data(handle, 0))[0] == 3);
    hvd_release(handle);
    hvd_op_t called = mp_op_on(HVD_ALLREDUCE, "called", x, &one, 1, HVD_FLOAT32);
    called.callback = on_end;
    called.arg = (void *)(uintptr_t)&told;
    called.flags = HVD_OP_AUTO_RELEASE;
    MP_CHECK(hvd_submit(&called, &handle) == HVD_OK);
    for (int i = 0; i < 30000 && atomic_load(&told) == 0; i++)
        usleep(1000);
    MP_CHECK(atomic_load(&told) == 1);
    works(size);
    return 0;
}

static int body_adasum(int rank, int size, void *arg)
{
    (void)arg;
    double same[3] = {1, 2, 3}, apart[MP_RANKS_MAX] = {0};
    int64_t three = 3, count = size;
    hvd_handle_t handle = 0;
    if ((size & (size - 1)) != 0)
        return 0;
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "same", same, &three, 1, HVD_FLOAT64);
    op.reduce = HVD_ADASUM;
    MP_CHECK(run(&op, &handle) == HVD_OK && fabs(same[2] - 3) < 1e-9); /* parallel: the mean */
    hvd_release(handle);
    apart[rank] = 2;
    op = mp_op_on(HVD_ALLREDUCE, "apart", apart, &count, 1, HVD_FLOAT64);
    op.reduce = HVD_ADASUM;
    MP_CHECK(run(&op, &handle) == HVD_OK); /* orthogonal: the sum */
    hvd_release(handle);
    for (int r = 0; r < size; r++)
        MP_CHECK(fabs(apart[r] - 2) < 1e-9);
    return 0;
}

/* Who and where, before and after init; sets asked about. */
static int body_questions(int rank, int size, void *arg)
{
    (void)arg;
    float x = 0;
    int64_t one = 1;
    int32_t number = -5, ids[HVD_PROCESS_SETS_MAX], ranks[MP_RANKS_MAX];
    hvd_handle_t handle = 0;
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "early", &x, &one, 1, HVD_FLOAT32);
    MP_CHECK(hvd_rank() == -1 && hvd_local_size() == -1 && hvd_is_homogeneous() == -1);
    MP_CHECK(hvd_submit(&op, &handle) == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(strcmp(hvd_last_error(), "Horovod has not been initialized; use hvd.init().") == 0);
    MP_CHECK(hvd_poll(1) == HVD_ERR_NOT_INITIALIZED && hvd_wait(1, 0) == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(hvd_process_set_size(0, &number) == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(hvd_process_set_add(ranks, 1, &number) == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(hvd_process_set_remove(1) == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(hvd_timeline_start("x", false) == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(hvd_timeline_stop() == HVD_ERR_NOT_INITIALIZED);
    MP_CHECK(hvd_process_set_count() == 0 && hvd_error(1)[0] == '\0');
    MP_CHECK(!hvd_is_shared(&x, 1) && hvd_result_rank(1) == -1);
    MP_CHECK(mp_init() == HVD_OK);
    MP_CHECK(hvd_local_rank() == rank && hvd_local_size() == size);
    MP_CHECK(hvd_cross_rank() == 0 && hvd_cross_size() == 1 && hvd_is_homogeneous() == 1);
    MP_CHECK(hvd_process_set_count() == 1);
    hvd_process_set_ids(ids);
    MP_CHECK(ids[0] == HVD_PROCESS_SET_GLOBAL);
    MP_CHECK(hvd_process_set_rank(0, &number) == HVD_OK && number == rank);
    MP_CHECK(hvd_process_set_size(0, &number) == HVD_OK && number == size);
    MP_CHECK(hvd_process_set_ranks(0, ranks) == HVD_OK && ranks[size - 1] == size - 1);
    MP_CHECK(hvd_process_set_size(77, &number) == HVD_ERR_INVALID);
    MP_CHECK(hvd_process_set_add(ranks, size, &number) == HVD_ERR_CONFIG);
    MP_CHECK(strstr(hvd_last_error(), "to allow adding process sets") != NULL);
    MP_CHECK(hvd_process_set_remove(1) == HVD_ERR_CONFIG);
    works(size);
    return 0;
}

/* A factor may be anything: what is no number agrees with itself, on its way through the cache and
 * the plan as well. */
static int body_factors(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    static const double factors[] = {NAN, INFINITY, -INFINITY, -0.0};
    for (int round = 0; round < 12; round++)
        for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
            float x[2] = {1.0f, 2.0f};
            int64_t two = 2;
            char name[16];
            hvd_handle_t handle = 0;
            snprintf(name, sizeof name, "factor%zu", i);
            hvd_op_t op = mp_op_on(HVD_ALLREDUCE, name, x, &two, 1, HVD_FLOAT32);
            op.prescale = factors[i];
            MP_CHECK(run(&op, &handle) == HVD_OK);
            hvd_release(handle);
            float wanted = (float)(factors[i] * 2.0 * size);
            MP_CHECK(isnan(factors[i]) ? isnan(x[1]) : x[1] == wanted);
        }
    works(size);
    return 0;
}

static int body_factors_differ(int rank, int size, void *arg)
{
    (void)arg;
    float x = 1.0f;
    int64_t one = 1;
    hvd_handle_t handle = 0;
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "differ", &x, &one, 1, HVD_FLOAT32);
    op.postscale = rank == 0 ? NAN : 1.0;
    MP_CHECK(run(&op, &handle) == (size > 1 ? HVD_ERR_MISMATCH : HVD_OK));
    if (size > 1)
        MP_CHECK(strstr(hvd_last_error(), "Mismatched prescale and/or postscale") != NULL);
    hvd_release(handle);
    works(size);
    return 0;
}

static int body_last_error(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    float x = 1.0f;
    int64_t one = 1, got[HVD_DIMS_MAX];
    int32_t ndim = 0, splits[MP_RANKS_MAX];
    hvd_handle_t handle = 0;
    hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "text", &x, &one, 1, HVD_FLOAT32);
    op.process_set = 99;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_ERR_INVALID && hvd_last_error()[0] != '\0');
    op.process_set = HVD_PROCESS_SET_GLOBAL;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK && hvd_last_error()[0] == '\0');
    MP_CHECK(hvd_poll(987654321) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "Handle 987654321 was not created") != NULL);
    MP_CHECK(hvd_wait(handle, 30000) == HVD_OK && hvd_last_error()[0] == '\0');
    MP_CHECK(hvd_result_splits(handle, 0, splits) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "not an alltoall") != NULL);
    MP_CHECK(hvd_result_shape(handle, 0, &ndim, got) == HVD_OK && hvd_last_error()[0] == '\0');
    MP_CHECK(hvd_result_shape(handle, 3, &ndim, got) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "has 1 results, not 3") != NULL);
    MP_CHECK(hvd_poll(handle) == HVD_OK && hvd_last_error()[0] == '\0');
    hvd_release(handle);
    hvd_release(handle); /* ignored */
    if (size > 1) {      /* nobody else takes part */
        char name[16];
        snprintf(name, sizeof name, "own%d", rank);
        op.name = name;
        MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
        MP_CHECK(hvd_wait(handle, 0) == HVD_ERR_TIMEOUT && hvd_wait(handle, 1) == HVD_ERR_TIMEOUT);
        MP_CHECK(strstr(hvd_last_error(), "has not ended within 1 ms") != NULL);
        MP_CHECK(hvd_result_shape(handle, 0, &ndim, got) == HVD_ERR_INVALID);
        MP_CHECK(strstr(hvd_last_error(), "has not ended yet") != NULL);
    }
    works(size); /* nobody leaves before all have looked */
    MP_CHECK(hvd_timeline_start("x", false) == HVD_ERR_CONFIG && hvd_last_error()[0] != '\0');
    MP_CHECK(hvd_timeline_start(NULL, false) == HVD_ERR_INVALID);
    MP_CHECK(hvd_timeline_stop() == HVD_OK && hvd_last_error()[0] == '\0');
    return 0;
}

/* ---- nothing ---- */

static void empty_op(hvd_kind_t kind, hvd_dtype_t dtype, const int64_t *shape, int32_t ndim,
                     const char *name)
{
    hvd_handle_t handle = 0;
    int64_t got[HVD_DIMS_MAX];
    int32_t got_ndim = -1;
    hvd_op_t op = mp_op_on(kind, name, NULL, shape, ndim, dtype);
    MP_CHECK(run(&op, &handle) == HVD_OK);
    MP_CHECK(hvd_result_shape(handle, 0, &got_ndim, got) == HVD_OK && got_ndim == ndim);
    int64_t count = 1;
    for (int32_t i = 0; i < ndim; i++)
        count *= got[i];
    MP_CHECK(count == 0);
    hvd_release(handle);
}

static int body_empty(int rank, int size, void *arg)
{
    (void)rank;
    (void)arg;
    static const hvd_kind_t kinds[] = {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL,
                                       HVD_REDUCESCATTER};
    static const int64_t shapes[][2] = {{0, 0}, {0, 3}};
    int64_t flat[2] = {size, 0};
    for (int dtype = 0; dtype < HVD_DTYPE_COUNT; dtype++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            char name[32];
            snprintf(name, sizeof name, "empty%zu.%d", k, dtype);
            for (int round = 0; round < 2; round++) {
                empty_op(kinds[k], (hvd_dtype_t)dtype, shapes[0], 1, name);
                empty_op(kinds[k], (hvd_dtype_t)dtype, shapes[1], 2, NULL);
                empty_op(kinds[k], (hvd_dtype_t)dtype, flat, 2, NULL);
            }
        }
    works(size);
    return 0;
}

/* Empty members of a group, and ranks that give nothing to a gather or an exchange. */
static int body_partly_empty(int rank, int size, void *arg)
{
    (void)arg;
    float x[3] = {1, 2, 3};
    int64_t none = 0, three = 3, rows = rank == 0 ? 2 : 0, got[HVD_DIMS_MAX];
    int32_t values[2] = {5, 6}, splits[MP_RANKS_MAX] = {0}, back[MP_RANKS_MAX], ndim;
    hvd_handle_t handle = 0;
    hvd_op_t group[3] = {mp_op_on(HVD_ALLREDUCE, "g0", NULL, &none, 1, HVD_FLOAT32),
                         mp_op_on(HVD_ALLREDUCE, "g1", x, &three, 1, HVD_FLOAT32),
                         mp_op_on(HVD_ALLREDUCE, "g2", NULL, &none, 1, HVD_FLOAT32)};
    MP_CHECK(hvd_submit_group(group, 3, &handle) == HVD_OK && hvd_wait(handle, 30000) == HVD_OK);
    MP_CHECK(x[2] == 3.0f * (float)size);
    hvd_release(handle);
    hvd_op_t gather = mp_op_on(HVD_ALLGATHER, "gather", values, &rows, 1, HVD_INT32);
    MP_CHECK(run(&gather, &handle) == HVD_OK);
    const int32_t *out = hvd_result_data(handle, 0);
    MP_CHECK(hvd_result_shape(handle, 0, &ndim, got) == HVD_OK && got[0] == 2);
    MP_CHECK(out[0] == 5 && out[1] == 6);
    hvd_release(handle);
    splits[size - 1] = (int32_t)rows; /* rank 0 gives all it has to the last */
    hvd_op_t exchange = mp_op_on(HVD_ALLTOALL, "exchange", values, &rows, 1, HVD_INT32);
    exchange.splits = splits;
    exchange.splits_count = size;
    MP_CHECK(run(&exchange, &handle) == HVD_OK);
    MP_CHECK(hvd_result_shape(handle, 0, &ndim, got) == HVD_OK);
    MP_CHECK(got[0] == (rank == size - 1 ? 2 : 0));
    MP_CHECK(hvd_result_splits(handle, 0, back) == HVD_OK && back[0] == got[0]);
    hvd_release(handle);
    return 0;
}

/* ---- memory ---- */

static void memory_use(int size)
{
    for (size_t bytes = 0; bytes < 100000; bytes = bytes * 3 + 1) {
        unsigned char *p = hvd_alloc(bytes);
        MP_CHECK(p != NULL && (uintptr_t)p % 64 == 0);
        for (size_t i = 0; i < bytes; i++)
            MP_CHECK(p[i] == 0);
        memset(p, 0xff, bytes);
        MP_CHECK(hvd_is_shared(p, bytes) == (size > 1 && getenv("HOROVOD_SHM_DISABLE") == NULL));
        hvd_free(p);
    }
}

static int body_memory(int rank, int size, void *arg)
{
    (void)arg;
    int on_stack = 0;
    MP_CHECK(hvd_alloc(8) == NULL);
    hvd_free(&on_stack);
    hvd_free(NULL);
    void *kept[3];
    for (int life = 0; life < 3; life++) {
        MP_CHECK(mp_init() == HVD_OK);
        memory_use(size);
        float *x = hvd_alloc(3 * sizeof *x);
        int64_t three = 3, rows = 1;
        hvd_handle_t handle = 0;
        x[2] = 1.0f;
        hvd_op_t op = mp_op_on(HVD_ALLREDUCE, "shared", x, &three, 1, HVD_FLOAT32);
        MP_CHECK(run(&op, &handle) == HVD_OK && x[2] == (float)size);
        hvd_release(handle);
        hvd_op_t gather = mp_op_on(HVD_ALLGATHER, "kept", x + 2, &rows, 1, HVD_FLOAT32);
        MP_CHECK(run(&gather, &handle) == HVD_OK);
        kept[life] = hvd_result_take(handle, 0);
        MP_CHECK(kept[life] != NULL && hvd_result_take(handle, 0) == NULL);
        hvd_release(handle);
        hvd_shutdown();
        if (rank % 2 == 0 || size > 1)
            hvd_free(x); /* gone with its world, or ordinary: safe either way */
        hvd_free(x);
    }
    for (int life = 0; life < 3; life++) {
        MP_CHECK(((float *)kept[life])[0] == (float)size);
        hvd_free(kept[life]);
        hvd_free(kept[life]);
    }
    return 0;
}

/* ---- cores ---- */

/* The cores of our thread with this name; 0: there is none. */
static int cores_of(const char *name, cpu_set_t *ret)
{
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;
    MP_CHECK(tasks != NULL);
    for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue;
        if (fgets(comm, sizeof comm, f) != NULL)
            comm[strcspn(comm, "\n")] = '\0';
        fclose(f);
        if (strcmp(comm, name) == 0) {
            found++;
            MP_CHECK(sched_getaffinity((pid_t)atoi(e->d_name), sizeof *ret, ret) == 0);
        }
    }
    closedir(tasks);
    return found;
}

static int body_cores(int rank, int size, void *arg)
{
    (void)arg;
    cpu_set_t ours, theirs;
    char list[256] = "";
    int cores[MP_RANKS_MAX] = {0}, count = 0;
    MP_CHECK(sched_getaffinity(0, sizeof ours, &ours) == 0);
    for (int i = 0; i < CPU_SETSIZE && count < size; i++)
        if (CPU_ISSET((size_t)i, &ours))
            cores[count++] = i;
    int usable = count;
    for (int i = 0; i < size; i++) {
        cores[i] = cores[i % usable];
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%d", i > 0 ? "," : "", cores[i]);
    }
    setenv("HOROVOD_THREAD_AFFINITY", list, 1);
    MP_CHECK(mp_init() == HVD_OK);
    works(size); /* which needs the thread, or at least time for it to begin */
    MP_CHECK(cores_of("horovod", &theirs) == 1);
    for (int tries = 0; CPU_COUNT(&theirs) != 1 && tries < 30000; tries++) {
        usleep(1000);
        MP_CHECK(cores_of("horovod", &theirs) == 1);
    }
    MP_CHECK(CPU_COUNT(&theirs) == 1 && CPU_ISSET((size_t)cores[rank], &theirs));
    MP_CHECK(sched_getaffinity(0, sizeof theirs, &theirs) == 0 && CPU_EQUAL(&ours, &theirs));
    return 0;
}

MP_TEST(refused, "1 2 3", NULL)
MP_TEST(checks, "1 2 3", NULL)
MP_TEST(ways, "1 2 3", NULL)
MP_TEST(adasum, "1 2 3", NULL)
MP_TEST(questions, "1 2 3", &mp_left)
MP_TEST(factors, "1 2 3", NULL)
MP_TEST(factors_differ, "1 2 3", NULL)
MP_TEST(last_error, "1 2 3", NULL)
MP_TEST(empty, "1 2 3", NULL)
MP_TEST(partly_empty, "1 2 3", NULL)
MP_TEST(memory, "1 2 3", &mp_left)
MP_TEST(cores, "1 2 3", &mp_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_ways),           cmocka_unit_test(test_adasum),
        cmocka_unit_test(test_questions),      cmocka_unit_test(test_factors),
        cmocka_unit_test(test_factors_differ), cmocka_unit_test(test_last_error),
        cmocka_unit_test(test_empty),          cmocka_unit_test(test_partly_empty),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_cores),
    };
    int failed;
    MP_RUN_BOTH_WAYS(tests, &failed);
    return failed;
}
