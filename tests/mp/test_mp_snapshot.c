/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_snapshot.c - hvd_snapshot(): the late rank is named while everything continues, whatever
 * state the others are in; no side effects; works with a stuck thread; bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "json.h"
#include "mp/steps.h"

#define LOOKS_MAX 20000 /* of one millisecond: what must show does so long before */

static char text[HVD_SNAPSHOT_BYTES];

static const char *look(void)
{
    size_t n = hvd_snapshot(text, sizeof text);
    MP_CHECK(n > 0 && n == strlen(text));
    MP_CHECK(json_is_valid(text));
    return text;
}

/* Looks until `what` shows behind `where`. */
static void look_for(const char *where, const char *what)
{
    for (int i = 0; i < LOOKS_MAX; i++) {
        const char *at = strstr(look(), where);
        if (at != NULL && strstr(at, what) != NULL)
            return;
        usleep(1000);
    }
    fprintf(stderr, "rank %d does not see %s behind %s in:\n%s\n", hvd_rank(), what, where, text);
    MP_CHECK(false);
}

struct late {
    int rank; /* the late one */
    int set;  /* process set */
    bool is_plan, is_joining;
    int go[2]; /* pipe: the late rank may go on */
};

static void wait_for_go(struct late *l)
{
    char byte;
    MP_CHECK(read(l->go[0], &byte, 1) == 1);
}

static void go_on(struct late *l)
{
    MP_CHECK(write(l->go[1], "x", 1) == 1);
}

static int coordinator_of(const struct late *l)
{
    return l->set == 0 ? 0 : 1; /* set 1: all but rank 0 */
}

/* The coordinator sees who is missing; in a plan the batch that waits shows it, on every rank. */
static void see_missing(const struct late *l)
{
    char missing[64];
    snprintf(missing, sizeof missing, l->is_plan ? "\"awaits\":[%d]" : "\"missing\":[%d]", l->rank);
    if (l->is_plan)
        look_for("\"plan\":{\"state\":\"running\"", missing);
    else if (l->rank == coordinator_of(l))
        look_for("\"others\":[{\"name\":\"grad.a\"", missing);
    else
        look_for("\"name\":\"grad.a\",\"kind\":\"allreduce\",\"bytes\":256", missing);
}

/* Nobody shuts down before all are done. */
static int meet(void)
{
    hvd_op_t op;
    hvd_handle_t handle = 0;
    hvd_op_init(&op, HVD_BARRIER);
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK && hvd_wait(handle, -1) == HVD_OK);
    return 0;
}

static int body_late(int rank, int size, void *arg)
{
    struct late *l = arg;
    float data[MP_OPS][MP_COUNT] = {{0}};
    char error[HVD_ERROR_MAX] = "";
    hvd_status_t status = HVD_OK;
    hvd_handle_t handle = 0;
    hvd_stats_t stats = {.struct_size = sizeof stats};
    if (l->set != 0 && rank == 0)
        return meet();
    for (int k = 0; k < (l->is_plan ? MP_STEPS : 2); k++)
        MP_CHECK(mp_step(l->set, false, data, MP_OPS, &status, error));
    hvd_stats(&stats);
    uint64_t breaks = stats.plan_breaks;
    MP_CHECK((stats.batches_planned > 0) == l->is_plan);
    for (int i = 0; i < MP_COUNT; i++)
        data[0][i] = 1;
    if (rank == l->rank)
        wait_for_go(l);
    if (l->is_plan) { /* no wait: that asks for the rest of the step and breaks the plan */
        hvd_handle_t handles[MP_OPS];
        static const char *const names[MP_OPS] = {"grad.a", "grad.b", "grad.c"};
        for (int i = 0; i < MP_OPS; i++)
            MP_CHECK(mp_submit(data[i], l->set, names[i], &handles[i]) == HVD_OK);
        if (rank == coordinator_of(l)) {
            see_missing(l);
            go_on(l);
        }
        for (int i = 0; i < MP_OPS; i++)
            MP_CHECK(hvd_wait(handles[i], -1) == HVD_OK);
        hvd_stats(&stats);
        MP_CHECK(stats.plan_breaks == breaks); /* before others can shut down: they need us below */
        MP_CHECK(strstr(look(), "\"plan\":{\"state\":\"running\",\"batches\":") != NULL);
        MP_CHECK(mp_step(l->set, false, data, MP_OPS, &status, error));
        return 0;
    }
    if (rank == coordinator_of(l) && rank != l->rank) {
        MP_CHECK(mp_submit(data[0], l->set, "grad.a", &handle) == HVD_OK);
        see_missing(l);
        /* So does the text of a wait that is over. */
        char name[16];
        snprintf(name, sizeof name, "rank %d ", l->rank);
        MP_CHECK(hvd_wait(handle, 20) == HVD_ERR_TIMEOUT);
        MP_CHECK(strstr(hvd_last_error(), "grad.a has waited") != NULL);
        MP_CHECK(strstr(hvd_last_error(), name) != NULL);
        go_on(l);
    } else {
        MP_CHECK(mp_submit(data[0], l->set, "grad.a", &handle) == HVD_OK);
    }
    MP_CHECK(hvd_wait(handle, -1) == HVD_OK);
    MP_CHECK(data[0][0] == (float)(size - (l->set != 0)));
    return meet();
}

/* The coordinator itself is late: it sees what the others wait for, then submits. */
static int body_coordinator_late(int rank, int size, void *arg)
{
    struct late *l = arg;
    float data[MP_OPS][MP_COUNT] = {{0}};
    char error[HVD_ERROR_MAX] = "";
    hvd_status_t status = HVD_OK;
    hvd_handle_t handle = 0;
    for (int k = 0; k < 2; k++)
        MP_CHECK(mp_step(0, false, data, MP_OPS, &status, error));
    if (rank == 0)
        see_missing(l);
    MP_CHECK(mp_submit(data[0], 0, "grad.a", &handle) == HVD_OK);
    MP_CHECK(hvd_wait(handle, -1) == HVD_OK);
    (void)size;
    return 0;
}

/* Rank 1 has joined and is missing nowhere; rank 2 is late. */
static int body_joined(int rank, int size, void *arg)
{
    struct late *l = arg;
    float data[MP_COUNT] = {0};
    hvd_handle_t handle = 0, join = 0;
    hvd_op_t op;
    hvd_op_init(&op, HVD_JOIN);
    if (rank == 2)
        wait_for_go(l);
    if (rank != 1) {
        MP_CHECK(mp_submit(data, 0, "grad.a", &handle) == HVD_OK);
        if (rank == 0) {
            look_for("\"joined\":[1]", "\"missing\":[2]");
            go_on(l);
        }
        MP_CHECK(hvd_wait(handle, -1) == HVD_OK);
    }
    MP_CHECK(hvd_submit(&op, &join) == HVD_OK);
    MP_CHECK(hvd_wait(join, -1) == HVD_OK);
    (void)size;
    return 0;
}

static void run_late(struct late l, mp_body body, int size, const struct mp_options *options)
{
    assert_int_equal(pipe(l.go), 0);
    assert_int_equal(mp_run_with(size, body, &l, options), 0);
    close(l.go[0]);
    close(l.go[1]);
}

static void test_late(void **state)
{
    (void)state;
    run_late((struct late){.rank = 2}, body_late, 4, NULL);
    run_late((struct late){.rank = 0}, body_coordinator_late, 3, NULL);
}

/* No wait and no limit of the stall check: nothing but looking could break the plan. */
static void test_late_in_plan(void **state)
{
    (void)state;
    run_late((struct late){.rank = 2, .is_plan = true}, body_late, 3, NULL);
}

static void test_late_joined(void **state)
{
    (void)state;
    run_late((struct late){.rank = 2}, body_joined, 3, NULL);
}

static void test_late_in_set(void **state)
{
    (void)state;
    static const int32_t members[] = {1, 2, 3};
    const int32_t *sets[] = {members};
    const int32_t sizes[] = {3};
    struct mp_options options = {.process_sets = sets,
                                 .process_set_sizes = sizes,
                                 .process_set_count = 1,
                                 .expected_signal_rank = -1};
    run_late((struct late){.rank = 3, .set = 1}, body_late, 4, &options);
}

/* ---- a loop that looks ---- */

static _Atomic bool is_over;
static _Atomic int looks;

static void *looker(void *arg)
{
    char *buffer = malloc(HVD_SNAPSHOT_BYTES);
    (void)arg;
    while (!atomic_load(&is_over)) {
        size_t n = hvd_snapshot(buffer, HVD_SNAPSHOT_BYTES);
        MP_CHECK(n > 0 && json_is_valid(buffer));
        atomic_fetch_add(&looks, 1);
    }
    free(buffer);
    return NULL;
}

static int body_loop(int rank, int size, void *arg)
{
    float data[MP_OPS][MP_COUNT];
    char error[HVD_ERROR_MAX] = "";
    hvd_status_t status = HVD_OK;
    hvd_stats_t stats = {.struct_size = sizeof stats};
    pthread_t thread;
    MP_CHECK(pthread_create(&thread, NULL, looker, NULL) == 0);
    for (int k = 0;; k++) {
        for (int i = 0; i < MP_OPS; i++)
            for (int j = 0; j < MP_COUNT; j++)
                data[i][j] = (float)(rank + i + k % 7);
        /* All ranks take the same number of steps: the first one decides. */
        data[2][0] = rank == 0 && k + 1 >= 300 && atomic_load(&looks) >= 20 ? 1.0f : 0.0f;
        MP_CHECK(mp_step(0, false, data, MP_OPS, &status, error));
        for (int j = 0; j < MP_COUNT; j++)
            MP_CHECK(data[0][j] == (float)(size * (size - 1) / 2 + size * (k % 7)));
        if (k == 250) {
            hvd_stats(&stats);
            MP_CHECK((stats.plan_starts == 1) == (arg != NULL) && stats.plan_breaks == 0);
        }
        if (data[2][0] > 0)
            break;
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    return 0;
}

static void test_loop(void **state)
{
    (void)state;
    int plans = 1; /* within one host only */
    assert_int_equal(mp_run(4, body_loop, &plans), 0);
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    assert_int_equal(mp_run(2, body_loop, NULL), 0);
    unsetenv("HOROVOD_SHM_DISABLE");
}

/* ---- a thread that is stuck ---- */

struct gate {
    _Atomic bool is_in, may_go;
    float memory[4 * MP_COUNT];
};

/* Memory for a result, from a function that does not come back: the token is held. */
static void *alloc_slowly(void *arg, int32_t index, int32_t ndim, const int64_t *shape)
{
    struct gate *gate = arg;
    (void)index, (void)ndim, (void)shape;
    atomic_store(&gate->is_in, true);
    while (!atomic_load(&gate->may_go))
        usleep(1000);
    return gate->memory;
}

static int body_stuck(int rank, int size, void *arg)
{
    static struct gate gate;
    float data[MP_COUNT] = {0};
    int64_t count = MP_COUNT;
    hvd_handle_t handle = 0, next = 0;
    hvd_op_t op;
    (void)arg;
    hvd_op_init(&op, HVD_ALLGATHER);
    op.name = "gather";
    op.input = (hvd_tensor_t){.data = data, .shape = &count, .ndim = 1, .dtype = HVD_FLOAT32};
    op.alloc_result = alloc_slowly;
    op.arg = &gate;
    if (rank != 0)
        atomic_store(&gate.may_go, true);
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    if (rank == 0) {
        while (!atomic_load(&gate.is_in))
            usleep(1000);
        MP_CHECK(mp_submit(data, 0, "behind \"it\"\n", &next) == HVD_OK);
        look();
        MP_CHECK(strstr(text, "\"state\":\"busy\"") != NULL && strstr(text, "\"busy_s\":") != NULL);
        MP_CHECK(strstr(text, "\"name\":\"behind \\\"it\\\"\\u000a\"") != NULL);
        MP_CHECK(strstr(text, "\"state\":\"queued\"") != NULL);
        MP_CHECK(strstr(text, "\"event\":\"batch\"") != NULL);
        atomic_store(&gate.may_go, true);
    } else {
        MP_CHECK(mp_submit(data, 0, "behind \"it\"\n", &next) == HVD_OK);
    }
    MP_CHECK(hvd_wait(handle, -1) == HVD_OK && hvd_wait(next, -1) == HVD_OK);
    MP_CHECK(strstr(look(), "\"state\":\"running\"") != NULL);
    (void)size;
    return meet();
}

static void test_stuck(void **state)
{
    (void)state;
    assert_int_equal(mp_run(2, body_stuck, NULL), 0);
}

/* ---- bounds, and the states of a life ---- */

#if HVD_TEST_QUICK
#define MANY 5000
#else
#define MANY 100000
#endif

static int body_many(int rank, int size, void *arg)
{
    static const char *const odd[] = {"quote \"", "line\n", "byte \xff\xfe", "slash \\"};
    static float data[1];
    int64_t count = 1;
    (void)size, (void)arg;
    MP_CHECK(strstr(look(), "\"state\":\"running\"") != NULL);
    if (rank != 0) { /* never submits; ends when rank 0 does */
        for (int i = 0; i < LOOKS_MAX && strstr(look(), "\"state\":\"broken\"") == NULL; i++)
            usleep(1000);
        MP_CHECK(strstr(text, "\"rank\":0") != NULL && strstr(text, "\"cause\":{") != NULL);
        return 0;
    }
    for (int i = 0; i < MANY; i++) {
        char name[1100];
        hvd_handle_t handle = 0;
        hvd_op_t op;
        snprintf(name, sizeof name, "%s %d", odd[i % 4], i);
        if (i == 10) { /* as long as a name may be, and each byte has an escape */
            memset(name, 1, HVD_NAME_MAX - 1);
            name[HVD_NAME_MAX - 1] = '\0';
        }
        hvd_op_init(&op, HVD_ALLREDUCE);
        op.name = name;
        op.input = op.output =
            (hvd_tensor_t){.data = data, .shape = &count, .ndim = 1, .dtype = HVD_FLOAT32};
        MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    }
    char pending[64];
    snprintf(pending, sizeof pending, "\"pending\":%d,", MANY);
    look_for(pending, "\"missing\":[1]");
    snprintf(pending, sizeof pending, "\"ops_left_out\":%d", MANY - 64);
    look_for("\"name\":\"byte \\ufffd\\ufffd 2\"", pending);
    look_for("\"events\":[{", "\"events_left_out\":");
    /* In a small buffer less of it, and still valid. */
    for (size_t bytes = HVD_SNAPSHOT_MIN; bytes < sizeof text; bytes += 7777) {
        char *small = malloc(bytes);
        MP_CHECK(hvd_snapshot(small, bytes) > 0 && json_is_valid(small));
        MP_CHECK(strstr(small, "_left_out\":") != NULL);
        free(small);
    }
    MP_CHECK(hvd_snapshot(text, HVD_SNAPSHOT_MIN - 1) == 0);
    kill(getpid(), SIGKILL);
    return 1;
}

static void test_many(void **state)
{
    (void)state;
    struct mp_options options = {.expected_signal_rank = 0};
    assert_int_equal(mp_run_with(2, body_many, NULL, &options), 0);
}

static int body_life(int rank, int size, void *arg)
{
    (void)size, (void)arg;
    MP_CHECK(strstr(look(), "\"state\":\"not initialised\"") != NULL);
    MP_CHECK(mp_init() == HVD_OK);
    char who[64];
    snprintf(who, sizeof who, "\"rank\":%d,\"size\":%d,", rank, size);
    MP_CHECK(strstr(look(), who) != NULL && strstr(text, "\"version\":1,") != NULL);
    MP_CHECK(strstr(text, "\"links\":[{\"rank\":") != NULL);
    hvd_shutdown();
    MP_CHECK(strstr(look(), "\"state\":\"not initialised\"") != NULL);
    return 0;
}

static void test_life(void **state)
{
    (void)state;
    struct mp_options options = {.is_init_left = true, .expected_signal_rank = -1};
    assert_int_equal(mp_run_with(2, body_life, NULL, &options), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),        cmocka_unit_test(test_late_in_plan),
        cmocka_unit_test(test_late_joined), cmocka_unit_test(test_late_in_set),
        cmocka_unit_test(test_loop),        cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_many),        cmocka_unit_test(test_life),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
