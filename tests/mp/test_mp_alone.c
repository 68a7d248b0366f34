/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_alone.c - one rank alone fails in a collective that all have agreed to run, and sets are
 * removed and added again with ops in flight: over TCP, where only the stream numbers separate the
 * transfers of two collectives, and over shared memory.
 *
 * Every rank has the right numbers or an error that names the culprit; no rank waits forever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "api/world.h"
#include "mp/mp.h"

#define COUNT    50000 /* floats of one tensor: the packing buffer is larger than anything else */
#define TENSORS  2
#define LIMIT_MS 20000
#define ROUNDS   (HVD_TEST_QUICK ? 6 : 20)

/* ---- no memory for what is large, on one rank ---- */

static size_t poor_bytes = SIZE_MAX;

static void *poor_alloc(void *ctx, size_t bytes)
{
    return bytes >= poor_bytes ? NULL : os_host()->alloc(ctx, bytes);
}

struct trial {
    struct world *world;
    float data[2][TENSORS][COUNT + 1]; /* of two batches; apart, else they need no packing */
    struct ticket *tickets[2];
    struct error refused[2]; /* a submit that came too late */
};

static void submit(struct trial *t, int batch, hvd_kind_t kind, float value)
{
    static char names[2][TENSORS][16];
    int64_t count = COUNT;
    hvd_op_t ops[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        for (int k = 0; k < COUNT; k++)
            t->data[batch][i][k] = value;
        snprintf(names[batch][i], sizeof names[batch][i], "t%d.%d", batch, i);
        hvd_op_init(&ops[i], kind);
        ops[i].name = names[batch][i];
        ops[i].reduce = HVD_SUM;
        ops[i].input = (hvd_tensor_t){.data = t->data[batch][i],
                                      .shape = &count,
                                      .ndim = 1,
                                      .dtype = HVD_FLOAT32,
                                      .device = HVD_DEVICE_CPU};
        if (kind == HVD_ALLREDUCE)
            ops[i].output = ops[i].input;
    }
    if (submit_ops(t->world->engine, ops, TENSORS, &t->tickets[batch], &t->refused[batch]) !=
        HVD_OK)
        return;
    driver_submitted(&t->world->driver, false);
}

static hvd_status_t await(struct trial *t, int batch, char text[HVD_ERROR_MAX])
{
    struct ticket *ticket = t->tickets[batch];
    if (ticket == NULL) {
        snprintf(text, HVD_ERROR_MAX, "%s", t->refused[batch].text);
        return t->refused[batch].status;
    }
    MP_CHECK(driver_wait(&t->world->driver, ticket, LIMIT_MS) == HVD_OK);
    hvd_status_t status = ticket_status(ticket);
    snprintf(text, HVD_ERROR_MAX, "%s", ticket_error(ticket));
    return status;
}

/* Rank 1 has no memory for the first of two batches that are both under way. */
static int body_alone(int rank, int size, void *arg)
{
    static struct trial t;
    static struct os os;
    hvd_kind_t kind = *(hvd_kind_t *)arg;
    struct mpi_process process = {0};
    struct error error = {0};
    char text[HVD_ERROR_MAX], again[HVD_ERROR_MAX];
    os = *os_host();
    os.alloc = poor_alloc;
    struct tenure tenure = {0};
    MP_CHECK(world_create(&os, &mp_child.config, &tenure, &process, &t.world, &error) == HVD_OK);
    if (rank == 1)
        poor_bytes = COUNT * sizeof(float);
    submit(&t, 0, kind, 1.0f);
    submit(&t, 1, kind, 100.0f);
    hvd_status_t first = await(&t, 0, text), second = await(&t, 1, again);
    MP_CHECK(first == HVD_ERR_NO_MEMORY && second == HVD_ERR_NO_MEMORY);
    MP_CHECK(strstr(text, "rank 1") != NULL && strstr(again, "rank 1") != NULL);
    MP_CHECK(strstr(text, "t0.0") != NULL);
    for (int i = 0; i < 2; i++)
        if (t.tickets[i] != NULL)
            ticket_release(t.world->engine, t.tickets[i]);
    poor_bytes = SIZE_MAX;
    world_destroy(t.world);
    (void)size;
    return 0;
}

static void run_alone(hvd_kind_t kind)
{
    struct mp_options options = {.is_init_left = true, .expected_signal_rank = -1};
    for (int size = 2; size <= 4; size++)
        assert_int_equal(mp_run_with(size, body_alone, &kind, &options), 0);
}

static void test_alone_tcp(void **state)
{
    (void)state;
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    run_alone(HVD_ALLREDUCE);
    run_alone(HVD_ALLGATHER);
    unsetenv("HOROVOD_SHM_DISABLE");
}

static void test_alone_shared(void **state)
{
    (void)state;
    run_alone(HVD_ALLGATHER); /* an allreduce needs no large memory there */
}

/* ---- sets that come and go with ops in flight ---- */

#define SET_COUNT 70000

static hvd_handle_t submit_on(int32_t set, const char *name, float *data, float value)
{
    int64_t count = SET_COUNT;
    hvd_handle_t handle = 0;
    hvd_op_t op;
    for (int i = 0; i < SET_COUNT; i++)
        data[i] = value;
    mp_op_floats(&op, name, data, &count);
    op.reduce = HVD_SUM;
    op.process_set = set;
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    return handle;
}

/* The right sum, or the error of a set that is gone; then the memory is ours. */
static void end_on(hvd_handle_t handle, float *data, float sum, bool is_removed)
{
    hvd_status_t status = hvd_wait(handle, LIMIT_MS);
    if (is_removed && status == HVD_ERR_ABORTED) {
        MP_CHECK(strstr(hvd_error(handle), "removed") != NULL);
    } else {
        MP_CHECK(status == HVD_OK);
        for (int i = 0; i < SET_COUNT; i++)
            MP_CHECK(data[i] == sum);
    }
    for (int i = 0; i < SET_COUNT; i++)
        data[i] = -1.0f;
    hvd_release(handle);
}

#define SET_OPS 6

/* All but rank 0, which coordinates adding and removing, work on the set; a different one of them
 * is late each time, so that it finds less of its work done when the set goes. */
static int body_again(int rank, int size, void *arg)
{
    static float data[SET_OPS][SET_COUNT];
    static const char *const names[SET_OPS] = {"a", "b", "c", "d", "e", "f"};
    bool is_arena = *(bool *)arg;
    float *memory[SET_OPS];
    int32_t ranks[MP_RANKS_MAX], set = -1;
    for (int i = 0; i < SET_OPS; i++) {
        memory[i] = is_arena ? hvd_alloc(sizeof data[0]) : data[i];
        MP_CHECK(memory[i] != NULL);
    }
    for (int i = 0; i < size - 1; i++)
        ranks[i] = i + 1;
    for (int round = 0; round < ROUNDS; round++) {
        float value = (float)(round + 1), sum = (float)(size - 1) * value;
        hvd_handle_t handles[SET_OPS] = {0};
        MP_CHECK(hvd_process_set_add(ranks, size - 1, &set) == HVD_OK);
        if (rank > 0) {
            handles[0] = submit_on(set, "a", memory[0], value);
            end_on(handles[0], memory[0], sum, false);
        }
        for (int i = 0; i < SET_OPS && rank > 0; i++) {
            struct timespec late = {.tv_nsec = (round % 5) * 500000L};
            if (rank == 1 + round % (size - 1))
                nanosleep(&late, NULL);
            handles[i] = submit_on(set, names[i], memory[i], (float)(i + 1) * value);
        }
        MP_CHECK(hvd_process_set_remove(set) == HVD_OK);
        for (int i = 0; i < SET_OPS && rank > 0; i++)
            end_on(handles[i], memory[i], (float)(i + 1) * sum, true);
        for (int i = 0; i < SET_COUNT && rank > 0; i++) /* nobody wrote there since */
            MP_CHECK(memory[0][i] == -1.0f);
    }
    for (int i = 0; i < SET_OPS && is_arena; i++)
        hvd_free(memory[i]);
    return 0;
}

static void run_again(bool is_arena)
{
    struct mp_options options = {.deadline_s = 100, .expected_signal_rank = -1};
    assert_int_equal(mp_run_with(3, body_again, &is_arena, &options), 0);
    assert_int_equal(mp_run_with(4, body_again, &is_arena, &options), 0);
}

static void test_again_tcp(void **state)
{
    (void)state;
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    run_again(false);
    unsetenv("HOROVOD_SHM_DISABLE");
}

static void test_again_shared(void **state)
{
    (void)state;
    run_again(false);
    run_again(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_tcp),
        cmocka_unit_test(test_alone_shared),
        cmocka_unit_test(test_again_tcp),
        cmocka_unit_test(test_again_shared),
    };
    setenv("HOROVOD_LOG_LEVEL", "fatal", 1);
    setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
