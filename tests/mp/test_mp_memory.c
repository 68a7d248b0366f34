/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_memory.c - when an op has failed the caller owns its memory: a rank that was stopped in
 * the middle of writing to it, and is resumed much later, changes nothing there.
 *
 * Rank 1 is stopped while it writes to the outputs of all, rank 2 is killed; rank 0 gets its error,
 * fills its output with a pattern, resumes rank 1 and waits until it has exited. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

#define COUNT   ((size_t)(HVD_TEST_QUICK ? 12 : 24) << 20) /* floats: rank 1 writes for a while */
#define PATTERN 7.0f
#define TRIALS  8

struct shared { /* by all ranks */
    _Atomic int pids[3];
    _Atomic bool was_stopped_in_the_middle;
};

static struct shared *shared;

static float *memory_make(bool is_registered)
{
    float *memory = NULL;
    if (!is_registered)
        return hvd_alloc(COUNT * sizeof(float));
    memory = aligned_alloc(4096, COUNT * sizeof(float));
    MP_CHECK(memory != NULL && hvd_register(memory, COUNT * sizeof(float)) == HVD_OK);
    return memory;
}

/* Rank 1 reduces the second third of all and writes it to everyone's output. */
static void stop_in_the_middle(const volatile float *out)
{
    const size_t first = COUNT / 3 + 4096, last = COUNT / 3 * 2 - 4096;
    while (out[first] == 1.0f)
        sched_yield();
    kill(atomic_load(&shared->pids[1]), SIGSTOP);
    if (out[last] == 1.0f)
        atomic_store(&shared->was_stopped_in_the_middle, true);
}

static int body(int rank, int size, void *arg)
{
    float *data = memory_make(*(bool *)arg);
    int64_t count = COUNT;
    hvd_handle_t handle = 0;
    hvd_op_t op;
    (void)size;
    MP_CHECK(data != NULL);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = 1.0f;
    atomic_store(&shared->pids[rank], getpid());
    mp_op_floats(&op, "a", data, &count);
    op.reduce = HVD_SUM;
    for (int i = 0; i < 3; i++)
        while (atomic_load(&shared->pids[i]) == 0)
            sched_yield();
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    if (rank != 0) {
        hvd_wait(handle, 30000);
        return 0;
    }
    stop_in_the_middle(data);
    kill(atomic_load(&shared->pids[2]), SIGKILL);
    hvd_status_t status = hvd_wait(handle, 30000);
    if (status == HVD_OK) /* rank 1 had done all of it */
        atomic_store(&shared->was_stopped_in_the_middle, false);
    MP_CHECK(status == HVD_OK || status == HVD_ERR_PEER_DEAD);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = PATTERN;
    kill(atomic_load(&shared->pids[1]), SIGCONT);
    while (kill(atomic_load(&shared->pids[1]), 0) == 0 || errno != ESRCH)
        sched_yield(); /* until it has ended and its parent knows */
    for (size_t i = 0; i < COUNT; i++)
        MP_CHECK(data[i] == PATTERN);
    return 0;
}

/* Stopping comes too late now and then; it must succeed once. */
static void run(bool is_registered)
{
    const struct os *os = os_host();
    struct mp_options options = {.expected_signal_rank = 2};
    bool has_shown = false;
    int fd = os->memfd(os->ctx, "shared", 4096);
    shared = os->map(os->ctx, fd, 4096, -1);
    os->close(os->ctx, fd);
    assert_non_null(shared);
    for (int i = 0; i < TRIALS && !has_shown; i++) {
        memset(shared, 0, sizeof *shared);
        assert_int_equal(mp_run_with(3, body, &is_registered, &options), 0);
        has_shown = atomic_load(&shared->was_stopped_in_the_middle);
    }
    os->unmap(os->ctx, shared, 4096);
    assert_true(has_shown);
}

static void test_allocated(void **state)
{
    (void)state;
    run(false);
}

static void test_registered(void **state)
{
    (void)state;
    run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocated),
        cmocka_unit_test(test_registered),
    };
    setenv("HOROVOD_LOG_LEVEL", "fatal", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
