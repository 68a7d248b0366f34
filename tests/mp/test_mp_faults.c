/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_faults.c - what happens to the others when a rank dies, stops, leaves early, or does
 * something else than they do: an error that names it, in time, and never a hang. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

static hvd_status_t allreduce(float *x, int64_t count, const char *name, hvd_handle_t *handle,
                              int64_t timeout_ms)
{
    hvd_op_t op;
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = name;
    op.input = (hvd_tensor_t){
        .data = x, .shape = &count, .ndim = 1, .dtype = HVD_FLOAT32, .device = HVD_DEVICE_CPU};
    op.output = op.input;
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
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = "pair";
    op.process_set = 1;
    op.input = op.output = (hvd_tensor_t){
        .data = &x, .shape = &one, .ndim = 1, .dtype = HVD_FLOAT32, .device = HVD_DEVICE_CPU};
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
    if (rank == size - 1) {
        sleep(4);
        return 0;
    }
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
    struct mp_options options = {.is_init_left = true, .expected_signal_rank = -1};
    setenv("HOROVOD_HUNG_WARN_SECONDS", "1", 1);
    setenv("HOROVOD_HUNG_ERROR_SECONDS", "2", 1);
    assert_int_equal(mp_run_sizes("2 3", body_missing, NULL, &options), 0);
    unsetenv("HOROVOD_HUNG_WARN_SECONDS");
    unsetenv("HOROVOD_HUNG_ERROR_SECONDS");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_bystander),
        cmocka_unit_test(test_early),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
