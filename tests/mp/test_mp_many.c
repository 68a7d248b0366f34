/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_many.c - very many ops outstanding at once: more than the response cache has room for and
 * more ids than the table begins with. Every result is checked, and the cache shrinks again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/mp.h"

#define OPS    40000
#define ROUNDS 2

static void submit(int rank, int i, float *data, hvd_handle_t *ret_handle)
{
    int64_t count = 1;
    char name[32];
    hvd_op_t op;
    data[i] = (float)(i + rank);
    snprintf(name, sizeof name, "many.%d", i);
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = name;
    op.input = (hvd_tensor_t){
        .data = &data[i], .shape = &count, .ndim = 1, .dtype = HVD_FLOAT32, .device = -1};
    op.output = op.input;
    MP_CHECK(hvd_submit(&op, ret_handle) == HVD_OK);
}

static int body_many(int rank, int size, void *arg)
{
    (void)arg;
    float *data = calloc(OPS, sizeof *data);
    hvd_handle_t *handles = calloc(OPS, sizeof *handles);
    MP_CHECK(data != NULL && handles != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        /* The ranks begin at different places: hardly any op is ready before all are announced. */
        for (int k = 0; k < OPS; k++) {
            int i = (k + rank * OPS / size) % OPS;
            submit(rank, i, data, &handles[i]);
        }
        for (int i = 0; i < OPS; i++) {
            MP_CHECK(hvd_wait(handles[i], 60000) == HVD_OK);
            hvd_release(handles[i]);
            MP_CHECK(data[i] == (float)(i * size + size * (size - 1) / 2));
        }
    }
    free(handles);
    free(data);
    return 0;
}

static void test_many(void **state)
{
    (void)state;
    assert_int_equal(
        mp_run_with(2, body_many, NULL,
                    &(struct mp_options){.deadline_s = 200, .expected_signal_rank = -1}),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
