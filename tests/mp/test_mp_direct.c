/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_direct.c - messages from one rank to another, and process sets that members open without
 * the others: real ranks through the public C API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

#define BYTES_MAX 300007

static hvd_handle_t begin(bool is_send, int peer, uint64_t channel, uint64_t tag, void *data,
                          size_t bytes)
{
    hvd_handle_t handle = 0;
    hvd_message_t m = {.struct_size = sizeof m,
                       .peer = peer,
                       .channel = channel,
                       .tag = tag,
                       .data = data,
                       .bytes = bytes};
    MP_CHECK((is_send ? hvd_send : hvd_recv)(&m, &handle) == HVD_OK);
    return handle;
}

static void end(hvd_handle_t handle)
{
    MP_CHECK(hvd_wait(handle, 60000) == HVD_OK);
    hvd_release(handle);
}

static void sum_of(int32_t set, int32_t expected)
{
    int32_t value = 1;
    int64_t one = 1;
    hvd_handle_t handle;
    hvd_op_t op;
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = "sum";
    op.process_set = set;
    op.input = (hvd_tensor_t){.data = &value, .shape = &one, .ndim = 1, .dtype = HVD_INT32};
    op.output = op.input;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    end(handle);
    MP_CHECK(value == expected);
}

/* A rank that shuts down ends the job of all: nobody leaves before the others are done. */
static int done(int size)
{
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    return 0;
}

static int body_ring(int rank, int size, void *arg)
{
    (void)arg;
    static const size_t counts[] = {0, 1, 65535, 65536, 65537, BYTES_MAX};
    static uint8_t sent[BYTES_MAX], got[BYTES_MAX];
    int after = (rank + 1) % size, before = (rank + size - 1) % size;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (size_t k = 0; k < counts[i]; k++)
            sent[k] = (uint8_t)(k * 7 + (size_t)rank);
        memset(got, 0, sizeof got);
        hvd_handle_t out = begin(true, after, 1, i, sent, counts[i]);
        hvd_handle_t in = begin(false, before, 1, i, got, counts[i]);
        MP_CHECK(hvd_wait(in, 60000) == HVD_OK);
        MP_CHECK(hvd_result_rank(in) == before);
        hvd_release(in);
        end(out);
        for (size_t k = 0; k < counts[i]; k++)
            MP_CHECK(got[k] == (uint8_t)(k * 7 + (size_t)before));
    }
    return done(size);
}

/* Tags and channels are matched whatever the order, and messages of one tag keep theirs. */
static int body_order(int rank, int size, void *arg)
{
    (void)arg;
    enum { COUNT = 200 };
    static int32_t values[COUNT];
    hvd_handle_t handles[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int at = rank == 0 ? i : (i % 2 == 0 ? COUNT - 2 - i : i); /* odd ones in order */
        values[at] = rank == 0 ? at : -1;
        uint64_t tag = at % 2 == 0 ? (uint64_t)at : 1000;
        handles[at] = rank < 2 ? begin(rank == 0, 1 - rank, 7 + (uint64_t)(at % 4 == 0), tag,
                                       &values[at], sizeof values[at])
                               : 0;
    }
    for (int i = 0; rank < 2 && i < COUNT; i++) {
        end(handles[i]);
        MP_CHECK(values[i] == i);
    }
    return done(size);
}

static int body_any(int rank, int size, void *arg)
{
    (void)arg;
    int32_t value = rank;
    if (rank != 0) {
        end(begin(true, 0, 3, 5, &value, sizeof value));
        return done(size);
    }
    bool seen[MP_RANKS_MAX] = {false};
    for (int i = 1; i < size; i++) {
        hvd_handle_t in = begin(false, HVD_ANY_RANK, 3, 5, &value, sizeof value);
        MP_CHECK(hvd_wait(in, 60000) == HVD_OK);
        MP_CHECK(hvd_result_rank(in) == value && value > 0 && !seen[value]);
        seen[value] = true;
        hvd_release(in);
    }
    return done(size);
}

static int body_errors(int rank, int size, void *arg)
{
    (void)arg;
    uint8_t bytes[16] = {0};
    hvd_handle_t handle = 0;
    hvd_message_t m = {.struct_size = sizeof m, .peer = rank, .data = bytes, .bytes = 1};
    MP_CHECK(hvd_send(&m, &handle) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "itself") != NULL);
    m.peer = size;
    MP_CHECK(hvd_recv(&m, &handle) == HVD_ERR_INVALID);
    m.peer = HVD_ANY_RANK;
    MP_CHECK(hvd_send(&m, &handle) == HVD_ERR_INVALID);
    m.peer = (rank + 1) % size;
    m.data = NULL;
    MP_CHECK(hvd_send(&m, &handle) == HVD_ERR_INVALID);
    if (rank > 1)
        return done(size);
    /* Lengths differ: both fail, with both in the text, and the job goes on. */
    handle = begin(rank == 0, 1 - rank, 9, 1, bytes, rank == 0 ? 8 : 16);
    MP_CHECK(hvd_wait(handle, 60000) == HVD_ERR_MISMATCH);
    MP_CHECK(strstr(hvd_error(handle), "8 bytes") != NULL);
    hvd_release(handle);
    /* A partner that is late is named. */
    if (rank == 0) {
        handle = begin(false, 1, 9, 2, bytes, 4);
        MP_CHECK(hvd_wait(handle, 50) == HVD_ERR_TIMEOUT);
        MP_CHECK(strstr(hvd_last_error(), "rank 1") != NULL);
        end(begin(true, 1, 9, 3, bytes, 1));
        end(handle);
    } else {
        end(begin(false, 0, 9, 3, bytes, 1));
        end(begin(true, 0, 9, 2, bytes, 4));
    }
    return done(size);
}

/* Members open all pairs in different orders; the others never ask. */
static int body_open(int rank, int size, void *arg)
{
    (void)arg;
    int32_t again = -1;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < size; i++) {
            int other = rank % 2 == 0 ? i : size - 1 - i;
            int32_t pair[2] = {other < rank ? other : rank, other < rank ? rank : other};
            int32_t id = -1, count = 0;
            if (other == rank)
                continue;
            MP_CHECK(hvd_process_set_open(pair, 2, &id) == HVD_OK);
            MP_CHECK(hvd_process_set_size(id, &count) == HVD_OK && count == 2);
            if (round == 0)
                continue;
            MP_CHECK(hvd_process_set_open(pair, 2, &again) == HVD_OK && again == id);
        }
    for (int a = 0; a < size; a++) /* in one order: these wait for each other */
        for (int b = a + 1; b < size; b++) {
            int32_t pair[2] = {a, b}, id = -1;
            if (rank != a && rank != b)
                continue;
            MP_CHECK(hvd_process_set_open(pair, 2, &id) == HVD_OK);
            sum_of(id, 2);
        }
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    int32_t twice[2] = {0, 0};
    MP_CHECK(hvd_process_set_open(twice, 2, &again) == HVD_ERR_INVALID);
    return 0;
}

/* More sets than can exist at once, each closed after its use; ranks close at different times. */
static int body_close(int rank, int size, void *arg)
{
    (void)arg;
    int32_t id = -1, again = -1;
    for (int i = 0; i < 2 * HVD_PROCESS_SETS_MAX; i++) {
        int first = i % (size - 1);
        int32_t pair[2] = {first, first + 1 + i % (size - 1 - first)};
        if (rank != pair[0] && rank != pair[1])
            continue;
        MP_CHECK(hvd_process_set_open(pair, 2, &id) == HVD_OK);
        if (i % 3 == rank % 3) { /* held twice: the first close changes nothing */
            MP_CHECK(hvd_process_set_open(pair, 2, &again) == HVD_OK && again == id);
            MP_CHECK(hvd_process_set_close(id) == HVD_OK);
        }
        sum_of(id, 2);
        if (i % 5 == 0)
            sum_of(id, 2);
        MP_CHECK(hvd_process_set_close(id) == HVD_OK);
    }
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    MP_CHECK(hvd_process_set_count() == 1);
    MP_CHECK(hvd_process_set_close(id) == HVD_ERR_INVALID);
    MP_CHECK(hvd_process_set_close(-1) == HVD_ERR_INVALID);
    MP_CHECK(hvd_process_set_close(HVD_PROCESS_SETS_MAX) == HVD_ERR_INVALID);
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    if (size == 2)
        return 0;
    /* A set that was added stays when the rank that also opened it closes it. */
    int32_t pair[2] = {0, 1};
    MP_CHECK(hvd_process_set_add(pair, 2, &id) == HVD_OK);
    MP_CHECK(hvd_process_set_open(pair, 2, &again) == HVD_OK && again == id);
    MP_CHECK(hvd_process_set_close(id) == HVD_OK);
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    MP_CHECK(hvd_process_set_count() == 2);
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    return 0;
}

/* One member opens and closes a set that the other has not opened yet. */
static int body_close_early(int rank, int size, void *arg)
{
    (void)arg;
    int32_t pair[2] = {0, size - 1}, id = -1;
    if (rank == 0) {
        MP_CHECK(hvd_process_set_open(pair, 2, &id) == HVD_OK);
        MP_CHECK(hvd_process_set_close(id) == HVD_OK);
    }
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    MP_CHECK(hvd_process_set_count() == 1);
    sum_of(HVD_PROCESS_SET_GLOBAL, size); /* all have counted */
    if (rank == 0 || rank == size - 1) {
        MP_CHECK(hvd_process_set_open(pair, 2, &id) == HVD_OK);
        sum_of(id, 2);
        MP_CHECK(hvd_process_set_close(id) == HVD_OK);
    }
    sum_of(HVD_PROCESS_SET_GLOBAL, size);
    MP_CHECK(hvd_process_set_count() == 1);
    return 0;
}

/* Sets that one rank opens while all others run a step that repeats, by a plan. */
static int body_open_beside_a_plan(int rank, int size, void *arg)
{
    (void)arg;
    for (int i = 0; i < 400; i++) {
        int32_t pair[2] = {0, 1 + i / 100 % (size - 1)}, id = -1;
        if (i % 100 == 50 && rank == 0)
            MP_CHECK(hvd_process_set_open(pair, 2, &id) == HVD_OK);
        sum_of(HVD_PROCESS_SET_GLOBAL, size);
    }
    return 0;
}

/* Whoever waits for a message of a rank that dies hears of it. */
static int body_death(int rank, int size, void *arg)
{
    (void)size, (void)arg;
    uint8_t byte = 0, word = 0;
    if (rank == 1) { /* dies when both others wait for it */
        end(begin(false, 0, 1, 2, &byte, 1));
        end(begin(false, 2, 1, 2, &byte, 1));
        raise(SIGKILL);
    }
    hvd_handle_t handle = begin(false, 1, 1, 1, &byte, 1);
    end(begin(true, 1, 1, 2, &word, 1));
    MP_CHECK(hvd_wait(handle, 60000) == HVD_ERR_PEER_DEAD);
    MP_CHECK(strstr(hvd_error(handle), "rank 1") != NULL);
    hvd_release(handle);
    return 0;
}

static void run_both_ways(int ranks, mp_body body)
{
    unsetenv("HOROVOD_SHM_DISABLE");
    assert_int_equal(mp_run(ranks, body, NULL), 0);
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    assert_int_equal(mp_run(ranks, body, NULL), 0);
    unsetenv("HOROVOD_SHM_DISABLE");
}

static void test_ring(void **state)
{
    (void)state;
    run_both_ways(2, body_ring);
    run_both_ways(5, body_ring);
}

static void test_close(void **state)
{
    (void)state;
    setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    run_both_ways(2, body_close);
    run_both_ways(4, body_close);
    run_both_ways(3, body_close_early);
    unsetenv("HOROVOD_DYNAMIC_PROCESS_SETS");
}

static void test_order(void **state)
{
    (void)state;
    run_both_ways(3, body_order);
}

static void test_any(void **state)
{
    (void)state;
    run_both_ways(4, body_any);
}

static void test_errors(void **state)
{
    (void)state;
    run_both_ways(3, body_errors);
}

static void test_open(void **state)
{
    (void)state;
    run_both_ways(2, body_open);
    run_both_ways(5, body_open);
}

static void test_open_beside_a_plan(void **state)
{
    (void)state;
    run_both_ways(3, body_open_beside_a_plan);
}

static void test_death(void **state)
{
    (void)state;
    struct mp_options options = {.expected_signal_rank = 1};
    assert_int_equal(mp_run_with(3, body_death, NULL, &options), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_beside_a_plan),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
