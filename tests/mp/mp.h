/* SPDX-License-Identifier: Apache-2.0 */
/* mp.h - real processes for tests: the parent serves the rendezvous, each child is a rank that
 * calls hvd_init() with an explicit configuration and then the test's body. Every run has a
 * deadline. */
#ifndef HVD_TESTS_MP_H
#define HVD_TESTS_MP_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "horovod/hvd.h"
#include "one_machine.h"
#include "wire/store.h"

#define MP_RANKS_MAX  256
#define MP_DEADLINE_S 240 /* ends a hang; a healthy run on a busy machine takes far less */
#define MP_CHECK(condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s is false (%s)\n", hvd_rank(), __FILE__, __LINE__,  \
                    #condition, hvd_last_error());                                                 \
            fflush(stderr);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* An op on one tensor; in place where the result has the shape of the input. */
static inline hvd_op_t mp_op_on(hvd_kind_t kind, const char *name, void *data, const int64_t *shape,
                                int32_t ndim, hvd_dtype_t dtype)
{
    hvd_op_t op;
    hvd_op_init(&op, kind);
    op.name = name;
    op.input = (hvd_tensor_t){
        .data = data, .shape = shape, .ndim = ndim, .dtype = dtype, .device = HVD_DEVICE_CPU};
    if (kind == HVD_ALLREDUCE || kind == HVD_BROADCAST)
        op.output = op.input;
    return op;
}

/* An allreduce of `*count` floats in place. */
static inline void mp_op_floats(hvd_op_t *ret, const char *name, float *data, const int64_t *count)
{
    *ret = mp_op_on(HVD_ALLREDUCE, name, data, count, 1, HVD_FLOAT32);
}

typedef int (*mp_body)(int rank, int size, void *arg); /* exit code of the rank */

struct mp_options {
    int deadline_s;    /* 0: MP_DEADLINE_S */
    bool is_init_left; /* the body calls hvd_init() itself */
    const int32_t *const *process_sets;
    const int32_t *process_set_sizes;
    int process_set_count;
    int expected_signal_rank; /* this rank may be killed; -1: none */
};

/* The test calls hvd_init() itself. */
static const struct mp_options mp_left
    __attribute__((unused)) = {.is_init_left = true, .expected_signal_rank = -1};

/* test_x() of a file with cmocka: body_x() on so many ranks. */
#define MP_TEST(name, sizes, options)                                                              \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        assert_int_equal(mp_run_sizes(sizes, body_##name, NULL, options), 0);                      \
    }

/* For main() of such a file: all tests by shared memory, then by TCP. */
#define MP_RUN_BOTH_WAYS(tests, ret_failed)                                                        \
    do {                                                                                           \
        *(ret_failed) = cmocka_run_group_tests_name("shared memory", tests, NULL, NULL);           \
        setenv("HOROVOD_SHM_DISABLE", "1", 1);                                                     \
        *(ret_failed) += cmocka_run_group_tests_name("tcp", tests, NULL, NULL);                    \
    } while (0)

struct mp_child_config {
    hvd_config_t config;
    uint8_t key[32];
    char address[256];
};

static struct mp_child_config mp_child;

static inline hvd_status_t mp_init(void)
{
    return hvd_init(&mp_child.config);
}

static inline void mp_child_run(int rank, int size, mp_body body, void *arg,
                                const struct mp_options *options)
{
    mp_child.config =
        one_machine_config(rank, size, mp_child.address, mp_child.key, sizeof mp_child.key);
    if (options != NULL) {
        mp_child.config.process_sets = options->process_sets;
        mp_child.config.process_set_sizes = options->process_set_sizes;
        mp_child.config.process_set_count = options->process_set_count;
    }
    if (options == NULL || !options->is_init_left) {
        hvd_status_t status = mp_init();
        if (status != HVD_OK) {
            fprintf(stderr, "rank %d: init failed: %s\n", rank, hvd_last_error());
            _exit(3);
        }
    }
    int code = body(rank, size, arg);
    hvd_shutdown();
    fflush(stdout);
    _exit(code);
}

/* ---- under somebody else's launcher ----
 * With HVD_TEST_LAUNCHED set this process is a rank already, started by mpirun or srun: bodies run
 * in it one after the other, and only on the number of ranks that there are. */

static inline int mp_launched(const char *open_mpi, const char *pmi, const char *slurm)
{
    const char *names[] = {open_mpi, pmi, slurm};
    for (int i = 0; i < 3; i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return -1;
}

static inline int mp_run_here(int size, mp_body body, void *arg, const struct mp_options *options)
{
    int rank = mp_launched("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID");
    if (mp_launched("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS") != size)
        return 0;
    mp_child.config = (hvd_config_t){.struct_size = sizeof(hvd_config_t)};
    if (options != NULL) {
        mp_child.config.process_sets = options->process_sets;
        mp_child.config.process_set_sizes = options->process_set_sizes;
        mp_child.config.process_set_count = options->process_set_count;
    }
    alarm((unsigned)(options != NULL && options->deadline_s > 0 ? options->deadline_s
                                                                : MP_DEADLINE_S));
    if ((options == NULL || !options->is_init_left) && mp_init() != HVD_OK) {
        fprintf(stderr, "rank %d: init failed: %s\n", rank, hvd_last_error());
        return 1;
    }
    int code = body(rank, size, arg);
    hvd_shutdown();
    alarm(0);
    return code != 0;
}

/* Returns 0 when every rank ended with 0. */
static inline int mp_run_with(int size, mp_body body, void *arg, const struct mp_options *options)
{
    const struct os *os = os_host();
    struct error error = {0};
    struct store_server *server = NULL;
    pid_t pids[MP_RANKS_MAX];
    char name[64];
    int failed = 0, left = size;
    int expected = options != NULL ? options->expected_signal_rank : -1;
    static int run_count;
    if (getenv("HVD_TEST_LAUNCHED") != NULL)
        return mp_run_here(size, body, arg, options);
    os->random(os->ctx, mp_child.key, sizeof mp_child.key);
    snprintf(name, sizeof name, "unix:horovod-test-%d-%d", (int)getpid(), run_count++);
    if (store_server_create(os, name, mp_child.key, &server, mp_child.address, &error) != HVD_OK) {
        fprintf(stderr, "store: %s\n", error.text);
        return 1;
    }
    fflush(NULL);
    for (int rank = 0; rank < size; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            mp_child_run(rank, size, body, arg, options);
    }
    int64_t deadline_ns =
        os_now_ns(os) +
        (options != NULL && options->deadline_s > 0 ? options->deadline_s : MP_DEADLINE_S) *
            1000000000LL;
    while (left > 0) {
        struct pollfd p = {.fd = store_server_poll_fd(server), .events = POLLIN};
        poll(&p, 1, 5);
        store_server_progress(server, os_now_ns(os));
        for (int rank = 0; rank < size; rank++) {
            int status = 0;
            if (pids[rank] <= 0 || waitpid(pids[rank], &status, WNOHANG) <= 0)
                continue;
            pids[rank] = 0;
            left--;
            if (rank == expected)
                continue;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "rank %d of %d ended with %s %d\n", rank, size,
                        WIFEXITED(status) ? "code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
                failed++;
            }
        }
        if (left == 1 && expected >= 0 && pids[expected] > 0)
            kill(pids[expected], SIGKILL); /* all others have ended: it need not go on */
        if (os_now_ns(os) > deadline_ns) {
            fprintf(stderr, "%d of %d ranks have not ended in time\n", left, size);
            failed++;
            for (int rank = 0; rank < size; rank++)
                if (pids[rank] > 0)
                    kill(pids[rank], getenv("MP_ABORT") != NULL ? SIGABRT : SIGKILL);
            while (left > 0) {
                if (wait(NULL) <= 0)
                    break;
                left--;
            }
        }
    }
    store_server_destroy(server);
    return failed;
}

static inline int mp_run(int size, mp_body body, void *arg)
{
    return mp_run_with(size, body, arg, NULL);
}

/* Numbers of ranks to run on: `fallback` ("1 2 3 4"), or what HVD_TEST_SIZES says. Gives how many.
 */
static inline int mp_sizes(const char *fallback, int ret[MP_RANKS_MAX])
{
    int count = 0;
    const char *sizes = getenv("HVD_TEST_SIZES");
    if (sizes == NULL || sizes[0] == '\0')
        sizes = fallback;
    for (char *end = NULL; *sizes != '\0' && count < MP_RANKS_MAX;
         sizes = end + strspn(end, " ,")) {
        long size = strtol(sizes, &end, 10);
        if (end == sizes || size < 1 || size > MP_RANKS_MAX)
            abort();
        ret[count++] = (int)size;
    }
    return count;
}

/* Gives the number of failures. */
static inline int mp_run_sizes(const char *fallback, mp_body body, void *arg,
                               const struct mp_options *options)
{
    int sizes[MP_RANKS_MAX], failed = 0, count = mp_sizes(fallback, sizes);
    for (int i = 0; i < count; i++)
        failed += mp_run_with(sizes[i], body, arg, options);
    return failed;
}

#endif
