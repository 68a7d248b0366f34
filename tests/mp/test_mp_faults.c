/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_faults.c - what happens to the others when a rank dies, stops, leaves early, or does
 * something different: an error that names it, in time, and never a hang. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

static hvd_status_t allreduce(float *x, int64_t count, const char *name, hvd_handle_t *handle,
                              int64_t timeout_ms)
{
    hvd_op_t op;
    mp_op_floats(&op, name, x, &count);
    hvd_status_t status = hvd_submit(&op, handle);
    return status == HVD_OK ? hvd_wait(*handle, timeout_ms) : status;
}

static int body_killed(int rank, int size, void *arg)
{
    int victim = *(int *)arg % size;
    static float data[100000];
    hvd_handle_t handle = 0;
    for (int step = 0;; step++) {
        if (rank == victim && step == 20)
            raise(SIGKILL);
        hvd_status_t status =
            allreduce(data, step % 2 == 0 ? 10 : 100000, step % 2 == 0 ? "a" : "b", &handle, 20000);
        if (status == HVD_OK) {
            hvd_release(handle);
            continue;
        }
        MP_CHECK(rank != victim && step >= 18);
        MP_CHECK(status == HVD_ERR_PEER_DEAD);
        char expected[32];
        snprintf(expected, sizeof expected, "rank %d ", victim);
        char text[HVD_ERROR_MAX];
        snprintf(text, sizeof text, "%s", hvd_last_error());
        if (text[0] == '\0')
            snprintf(text, sizeof text, "%s", hvd_error(handle));
        MP_CHECK(strstr(text, expected) != NULL);
        /* and the next one fails at once, with the same cause */
        MP_CHECK(allreduce(data, 10, "c", &handle, 20000) == HVD_ERR_PEER_DEAD);
        return 0;
    }
}

static void test_killed(void **state)
{
    (void)state;
    int sizes[MP_RANKS_MAX], count = mp_sizes("2 3 4", sizes);
    for (int i = 0; i < count; i++)
        for (int victim = 0; victim<sizes[i]; victim += sizes[i]> 4 ? 5 : 1) {
            struct mp_options options = {.expected_signal_rank = victim};
            assert_int_equal(mp_run_with(sizes[i], body_killed, &victim, &options), 0);
        }
}

/* Rank 0 leaves because rank 2 has died; who waits for it in a set without rank 2 hears the cause.
 */
static int body_bystander(int rank, int size, void *arg)
{
    (void)arg;
    float x = 1.0f;
    int64_t one = 1;
    hvd_handle_t handle = 0;
    hvd_status_t first = allreduce(&x, 1, "all", &handle, 20000);
    MP_CHECK(first == HVD_OK || first == HVD_ERR_PEER_DEAD); /* rank 2 may be quicker than we are */
    hvd_release(handle);
    if (rank == 2)
        raise(SIGKILL);
    if (rank != 1) {
        MP_CHECK(allreduce(&x, 1, "again", &handle, 20000) == HVD_ERR_PEER_DEAD);
        return 0; /* and out */
    }
    hvd_op_t op;
    mp_op_floats(&op, "pair", &x, &one);
    op.process_set = 1;
    hvd_status_t status = hvd_submit(&op, &handle);
    status = status == HVD_OK ? hvd_wait(handle, 20000) : status;
    MP_CHECK(status == HVD_ERR_PEER_DEAD);
    MP_CHECK(strstr(hvd_last_error(), "rank 2 ") != NULL);
    MP_CHECK(strstr(hvd_last_error(), "(so rank 0 ") != NULL);
    (void)size;
    return 0;
}

static void test_bystander(void **state)
{
    (void)state;
    static const int32_t pair[] = {0, 1}, pair_size = 2;
    static const int32_t *const sets[] = {pair};
    struct mp_options options = {.process_sets = sets,
                                 .process_set_sizes = &pair_size,
                                 .process_set_count = 1,
                                 .expected_signal_rank = 2};
    for (int i = 0; i < 5; i++)
        assert_int_equal(mp_run_with(3, body_bystander, NULL, &options), 0);
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(mp_run_with(3, body_bystander, NULL, &options), 0);
    unsetenv("HOROVOD_SHM_DISABLE");
}

/* One rank leaves: the others' pending op ends with the shut-down error. */
static int body_early(int rank, int size, void *arg)
{
    (void)size;
    (void)arg;
    float x = 1.0f;
    hvd_handle_t handle = 0;
    MP_CHECK(allreduce(&x, 1, "both", &handle, 20000) == HVD_OK);
    hvd_release(handle);
    if (rank == 0)
        return 0;
    MP_CHECK(allreduce(&x, 1, "alone", &handle, 20000) == HVD_ERR_SHUTDOWN);
    MP_CHECK(hvd_is_initialized());
    MP_CHECK(hvd_size() == size);
    MP_CHECK(allreduce(&x, 1, "later", &handle, 20000) == HVD_ERR_SHUTDOWN);
    return 0;
}

static void test_early(void **state)
{
    (void)state;
    assert_int_equal(mp_run_sizes("2 3 4", body_early, NULL, NULL), 0);
}

/* A limit for the others' patience: the culprit is named. */
static int body_missing(int rank, int size, void *arg)
{
    (void)arg;
    float x = 1.0f;
    hvd_handle_t handle = 0;
    MP_CHECK(mp_init() == HVD_OK);
    while (rank == size - 1)
        pause(); /* until the others have ended; then the parent ends us */
    MP_CHECK(allreduce(&x, 1, "lonely", &handle, 20000) == HVD_ERR_PEER_HUNG);
    char expected[32];
    snprintf(expected, sizeof expected, "rank %d ", size - 1);
    MP_CHECK(strstr(hvd_error(handle), expected) != NULL);
    MP_CHECK(strstr(hvd_error(handle), "lonely") != NULL);
    return 0;
}

static void test_missing(void **state)
{
    (void)state;
    setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1", 1);
    setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2", 1);
    int sizes[MP_RANKS_MAX], count = mp_sizes("2 3", sizes);
    for (int i = 0; i < count; i++) {
        struct mp_options options = {.is_init_left = true, .expected_signal_rank = sizes[i] - 1};
        assert_int_equal(mp_run_with(sizes[i], body_missing, NULL, &options), 0);
    }
    unsetenv("HOROVOD_STALL_CHECK_TIME_SECONDS");
    unsetenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
}

/* A stopped rank: the others are told and, with a limit, end with its name. */
static int body_stopped(int rank, int size, void *arg)
{
    (void)arg;
    static float data[1000];
    hvd_handle_t handle = 0;
    MP_CHECK(mp_init() == HVD_OK);
    for (int step = 0;; step++) {
        if (rank == size - 1 && step == 10)
            raise(SIGSTOP);
        hvd_status_t status = allreduce(data, 1000, "step", &handle, 30000);
        if (status == HVD_OK) {
            hvd_release(handle);
            continue;
        }
        char expected[32], text[HVD_ERROR_MAX];
        snprintf(expected, sizeof expected, "rank %d ", size - 1);
        snprintf(text, sizeof text, "%s", hvd_error(handle));
        MP_CHECK(rank != size - 1 && status == HVD_ERR_PEER_HUNG);
        MP_CHECK(strstr(text, expected) != NULL && strstr(text, "step") != NULL);
        return 0;
    }
}

static void test_stopped(void **state)
{
    (void)state;
    setenv("HOROVOD_HUNG_WARN_SECONDS", "2", 1);
    setenv("HOROVOD_HUNG_ERROR_SECONDS", "3", 1);
    int sizes[MP_RANKS_MAX], count = mp_sizes("2 3", sizes);
    for (int i = 0; i < count; i++) {
        struct mp_options options = {.is_init_left = true, .expected_signal_rank = sizes[i] - 1};
        assert_int_equal(mp_run_with(sizes[i], body_stopped, NULL, &options), 0);
    }
    unsetenv("HOROVOD_HUNG_WARN_SECONDS");
    unsetenv("HOROVOD_HUNG_ERROR_SECONDS");
}

/* A child forked after init has no Horovod; the parent's goes on. */
static int body_fork(int rank, int size, void *arg)
{
    (void)arg;
    (void)rank;
    float x = 1.0f;
    hvd_handle_t handle = 0;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            bool is_fine = !hvd_is_initialized() && hvd_rank() == -1;
            hvd_shutdown();
            _exit(is_fine ? 0 : 1);
        }
        int status = 0;
        MP_CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                 WEXITSTATUS(status) == 0);
        x = 1.0f;
        MP_CHECK(allreduce(&x, 1, "still", &handle, 20000) == HVD_OK && x == (float)size);
        hvd_release(handle);
    }
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    assert_int_equal(mp_run_sizes("1 2 3", body_fork, NULL, NULL), 0);
}

/* A rank that dies while children of its live on, as workers of a data loader do: they must not
 * keep its connections open. */
struct orphans {
    int stay[2]; /* pipe: children live until its writing ends are closed */
    bool is_before_init;
};

static pid_t fork_child(const struct orphans *o)
{
    pid_t child = fork();
    char byte;
    if (child != 0)
        return child;
    bool is_fine = !hvd_is_initialized();
    close(o->stay[1]);
    while (read(o->stay[0], &byte, 1) > 0) {}
    _exit(is_fine ? 0 : 1);
}

static int body_orphans(int rank, int size, void *arg)
{
    const struct orphans *o = arg;
    static float data[30000];
    hvd_handle_t handle = 0;
    (void)size;
    bool is_victim = rank == 1;
    if (is_victim && o->is_before_init)
        MP_CHECK(fork_child(o) > 0);
    close(o->stay[1]);
    if (o->is_before_init)
        MP_CHECK(mp_init() == HVD_OK);
    for (int step = 0;; step++) {
        hvd_op_t op;
        int64_t count = step % 2 == 0 ? 10 : 30000;
        if (is_victim && step == 20)
            raise(SIGKILL);
        mp_op_floats(&op, step % 2 == 0 ? "a" : "b", data, &count);
        hvd_status_t status = hvd_submit(&op, &handle);
        if (is_victim && !o->is_before_init && step % 4 == 3)
            MP_CHECK(fork_child(o) > 0); /* the engine's thread is at work */
        status = status == HVD_OK ? hvd_wait(handle, 30000) : status;
        if (status == HVD_OK) {
            hvd_release(handle);
            continue;
        }
        MP_CHECK(!is_victim && step >= 18);
        MP_CHECK(status == HVD_ERR_PEER_DEAD);
        return 0;
    }
}

static void run_orphans(bool is_before_init)
{
    int sizes[MP_RANKS_MAX], count = mp_sizes("2 3", sizes);
    for (int i = 0; i < count; i++) {
        struct orphans o = {.is_before_init = is_before_init};
        struct mp_options options = {.expected_signal_rank = 1, .is_init_left = is_before_init};
        if (sizes[i] < 2)
            continue;
        assert_int_equal(pipe(o.stay), 0);
        assert_int_equal(mp_run_with(sizes[i], body_orphans, &o, &options), 0);
        close(o.stay[0]);
        close(o.stay[1]);
    }
}

static void test_orphans(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        run_orphans(k != 0);
        setenv("HOROVOD_SHM_DISABLE", "1", 1);
        run_orphans(k != 0);
        unsetenv("HOROVOD_SHM_DISABLE");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_bystander),
        cmocka_unit_test(test_early),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_fork),
        cmocka_unit_test(test_orphans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
