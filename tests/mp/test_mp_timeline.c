/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_timeline.c - traces of real ranks: started and stopped in the middle of negotiations,
 * with process sets, joins, errors and planned steps. Every one must be valid and balanced, and
 * contain the phase names that users' tools expect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "json.h"
#include "mp/mp.h"

static char folder[64];

static hvd_status_t run(hvd_kind_t kind, const char *name, int64_t count, int32_t set)
{
    float data[64] = {0};
    hvd_handle_t handle = 0;
    hvd_op_t op = mp_op_on(kind, name, data, &count, 1, HVD_FLOAT32);
    op.process_set = set;
    hvd_status_t status = hvd_submit(&op, &handle);
    status = status == HVD_OK ? hvd_wait(handle, 30000) : status;
    hvd_release(handle);
    return status;
}

static void trace(int number, bool has_cycles)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d.json", folder, number);
    MP_CHECK(hvd_timeline_start(path, has_cycles) == HVD_OK);
}

/* The trace, which only rank 0 has. */
static char *trace_text(int number, bool is_open)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d.json", folder, number);
    char *text = json_file_text(path);
    MP_CHECK(text != NULL);
    const char *trouble = json_trace_check(text, is_open);
    if (trouble != NULL)
        fprintf(stderr, "%s: %s\n%s", path, trouble, text);
    MP_CHECK(trouble == NULL);
    return text;
}

static int body_phases(int rank, int size, void *arg)
{
    (void)arg;
    setenv("HOROVOD_TIMELINE", "DYNAMIC", 1);
    MP_CHECK(mp_init() == HVD_OK);
    trace(1, true);
    MP_CHECK(run(HVD_BARRIER, NULL, 1, 0) == HVD_OK); /* from here on rank 0 is tracing */
    MP_CHECK(run(HVD_BARRIER, NULL, 1, 0) == HVD_OK);
    MP_CHECK(run(HVD_ALLREDUCE, "sum", 50, 0) == HVD_OK);
    MP_CHECK(run(HVD_ALLGATHER, "gather", 2, 0) == HVD_OK);
    MP_CHECK(run(HVD_BROADCAST, "cast", 2, 0) == HVD_OK);
    MP_CHECK(run(HVD_ALLTOALL, "exchange", size, 0) == HVD_OK);
    MP_CHECK(run(HVD_REDUCESCATTER, "scatter", size, 0) == HVD_OK);
    MP_CHECK(run(HVD_ALLREDUCE, "wrong", rank + 1, 0) == (size > 1 ? HVD_ERR_MISMATCH : HVD_OK));
    MP_CHECK(run(HVD_JOIN, NULL, 1, 0) == HVD_OK);
    MP_CHECK(hvd_timeline_stop() == HVD_OK);
    if (rank != 0)
        return 0;
    char *text = trace_text(1, false);
    static const char *const phases[] = {"NEGOTIATE_ALLREDUCE",
                                         "NEGOTIATE_ALLGATHER",
                                         "NEGOTIATE_BROADCAST",
                                         "NEGOTIATE_ALLTOALL",
                                         "NEGOTIATE_BARRIER",
                                         "NEGOTIATE_REDUCESCATTER",
                                         "NEGOTIATE_JOIN",
                                         "ALLREDUCE",
                                         "ALLGATHER",
                                         "BROADCAST",
                                         "ALLTOALL",
                                         "REDUCESCATTER",
                                         "BARRIER",
                                         "GLOO_ALLREDUCE",
                                         "GLOO_ALLGATHER",
                                         "GLOO_BCAST",
                                         "MPI_ALLTOALL",
                                         "GLOO_REDUCESCATTER",
                                         "CYCLE_START"};
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        char quoted[48];
        snprintf(quoted, sizeof quoted, "\"name\": \"%s\"", phases[i]);
        if (json_count(text, quoted) == 0)
            fprintf(stderr, "no %s in\n%s", phases[i], text);
        MP_CHECK(json_count(text, quoted) > 0);
    }
    MP_CHECK(json_count(text, "\"name\": \"ERROR\"") == (size > 1 ? 1 : 0));
    MP_CHECK(json_count(text, "\"args\": {\"dtype\": \"float32\", \"shape\": \"[50]\"}") == 1);
    free(text);
    return 0;
}

/* Traces begin and end wherever they may while ops run. */
static int body_anywhere(int rank, int size, void *arg)
{
    (void)arg;
    setenv("HOROVOD_TIMELINE", "DYNAMIC", 1);
    MP_CHECK(mp_init() == HVD_OK);
    for (int round = 0; round < 30; round++) {
        float data[8][4];
        int64_t four = 4;
        hvd_handle_t handles[8];
        for (int i = 0; i < 8; i++) {
            char name[16];
            int k = rank % 2 == 0 ? i : 7 - i; /* so that negotiations are open for a while */
            snprintf(name, sizeof name, "t%d", k);
            hvd_op_t op = mp_op_on(HVD_ALLREDUCE, name, data[k], &four, 1, HVD_FLOAT32);
            MP_CHECK(hvd_submit(&op, &handles[i]) == HVD_OK);
            if (i == round % 8) {
                trace(100 + round, round % 2 == 0); /* another name: switches */
                if (rank == 0)
                    free(trace_text(100 + round, true));
            }
        }
        if (round % 3 == 0)
            MP_CHECK(hvd_timeline_stop() == HVD_OK);
        for (int i = 0; i < 8; i++) {
            MP_CHECK(hvd_wait(handles[i], 30000) == HVD_OK);
            hvd_release(handles[i]);
        }
        if (round % 7 == 6)
            MP_CHECK(run(HVD_JOIN, NULL, 1, 0) == HVD_OK);
    }
    MP_CHECK(hvd_timeline_stop() == HVD_OK);
    MP_CHECK(run(HVD_BARRIER, NULL, 1, 0) == HVD_OK);
    for (int round = 0; rank == 0 && round < 30; round++)
        free(trace_text(100 + round, false));
    (void)size;
    return 0;
}

/* Two sets may use one name at a time; a trace tells them apart. */
static int body_sets(int rank, int size, void *arg)
{
    (void)arg;
    int32_t first[2] = {0, 1}, id = -1;
    setenv("HOROVOD_TIMELINE", "DYNAMIC", 1);
    setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    MP_CHECK(mp_init() == HVD_OK);
    if (size < 3)
        return 0;
    trace(2, false);
    MP_CHECK(hvd_process_set_add(first, 2, &id) == HVD_OK);
    for (int i = 0; i < 10; i++) {
        if (rank < 2)
            MP_CHECK(run(HVD_ALLREDUCE, "same", 2, id) == HVD_OK);
        MP_CHECK(run(HVD_ALLREDUCE, "same", 2, 0) == HVD_OK);
    }
    MP_CHECK(hvd_process_set_remove(id) == HVD_OK);
    MP_CHECK(hvd_timeline_stop() == HVD_OK);
    if (rank != 0)
        return 0;
    char *text = trace_text(2, false);
    MP_CHECK(json_count(text, "\"name\": \"same\"") == 1);
    MP_CHECK(json_count(text, "\"name\": \"same (process set 1)\"") == 1);
    MP_CHECK(json_count(text, "\"name\": \"ALLREDUCE\"") == 20);
    free(text);
    return 0;
}

/* A job that breaks leaves a trace that can be read. */
static int body_broken(int rank, int size, void *arg)
{
    (void)arg;
    char path[128];
    snprintf(path, sizeof path, "%s/3.json", folder);
    setenv("HOROVOD_TIMELINE", path, 1);
    MP_CHECK(mp_init() == HVD_OK);
    if (size == 1)
        return 0;
    for (int step = 0;; step++) {
        if (rank == size - 1 && step == 5)
            raise(SIGKILL);
        if (run(HVD_ALLREDUCE, "step", 8, 0) != HVD_OK)
            break;
    }
    hvd_shutdown();
    if (rank == 0)
        free(trace_text(3, false));
    return 0;
}

static char *rank_text(int number, int rank)
{
    char path[128];
    snprintf(path, sizeof path, rank == 0 ? "%s/%d.json" : "%s/%d.json.rank%d", folder, number,
             rank);
    char *text = json_file_text(path);
    MP_CHECK(text != NULL);
    MP_CHECK(json_trace_check(text, false) == NULL);
    return text;
}

/* Every rank has a trace with its own submits, the same batches, and a clock; rank 1 is slow. */
static int body_ranks(int rank, int size, void *arg)
{
    (void)arg;
    char path[128], who[64];
    snprintf(path, sizeof path, "%s/%d.json", folder, 40 + size);
    setenv("HOROVOD_TIMELINE", path, 1);
    setenv("HOROVOD_TIMELINE_ALL_RANKS", "1", 1);
    MP_CHECK(mp_init() == HVD_OK);
    for (int step = 0; step < 60; step++) { /* the plan takes over on the way */
        if (rank == 1)
            usleep(2000);
        MP_CHECK(run(HVD_ALLREDUCE, "step", 8, 0) == HVD_OK);
    }
    MP_CHECK(run(HVD_ALLREDUCE, "wrong", rank + 1, 0) == (size > 1 ? HVD_ERR_MISMATCH : HVD_OK));
    MP_CHECK(run(HVD_JOIN, NULL, 1, 0) == HVD_OK);
    hvd_shutdown();
    char *text = rank_text(40 + size, rank);
    snprintf(who, sizeof who, "\"args\": {\"rank\": %d, \"size\": %d, ", rank, size);
    MP_CHECK(json_count(text, who) == 1);
    MP_CHECK(json_count(text, "\"name\": \"horovod_clock\"") == (rank > 0 ? 1 : 0));
    MP_CHECK(json_count(text, "\"name\": \"SUBMIT\"") == 62);
    MP_CHECK(json_count(text, "\"name\": \"NEGOTIATE_JOIN\"") == 1);
    for (int batch = 1; batch <= 60; batch++) {
        snprintf(who, sizeof who, "{\"batch\": %d}}", batch);
        MP_CHECK(json_count(text, who) >= 1); /* twice: a plan was left in the middle of it */
    }
    free(text);
    return 0;
}

MP_TEST(ranks, "1 2 3", &mp_left)
MP_TEST(phases, "1 2 3", &mp_left)
MP_TEST(anywhere, "1 2 3", &mp_left)
MP_TEST(sets, "1 2 3", &mp_left)

static void test_broken(void **state)
{
    (void)state;
    int sizes[MP_RANKS_MAX], count = mp_sizes("2 3", sizes);
    for (int i = 0; i < count; i++) {
        struct mp_options options = {.is_init_left = true, .expected_signal_rank = sizes[i] - 1};
        assert_int_equal(mp_run_with(sizes[i], body_broken, NULL, &options), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases), cmocka_unit_test(test_anywhere), cmocka_unit_test(test_sets),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_ranks),
    };
    snprintf(folder, sizeof folder, "/tmp/horovod-test-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? 1 : failed;
}
