/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_register.c - a caller's own buffers in the arena: contents survive registering,
 * collectives and unregistering, ranks with and without registered memory work together, unsuitable
 * memory is rejected, and shutdown unregisters everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "mp/mp.h"

#define PAGE  4096u
#define COUNT (256u << 10)
#define BYTES (COUNT * sizeof(float))

static float *buffer_make(int rank)
{
    float *data = aligned_alloc(PAGE, BYTES);
    MP_CHECK(data != NULL);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = (float)(i % 1000) + (float)rank;
    return data;
}

static bool buffer_holds(const float *data, float factor, float extra)
{
    for (size_t i = 0; i < COUNT; i++)
        if (data[i] != (float)(i % 1000) * factor + extra)
            return false;
    return true;
}

static void allreduce(const char *name, float *data, int64_t count)
{
    hvd_op_t op;
    hvd_handle_t handle;
    mp_op_floats(&op, name, data, &count);
    MP_CHECK(hvd_submit(&op, &handle) == HVD_OK);
    MP_CHECK(hvd_wait(handle, 30000) == HVD_OK);
    hvd_release(handle);
}

/* `mask`: which ranks register. */
static int body_reduce(int rank, int size, void *arg)
{
    bool is_mine = (*(unsigned *)arg >> rank & 1) != 0;
    float ranks_sum = (float)(size * (size - 1)) / 2.0f;
    float *data = buffer_make(rank);
    MP_CHECK(!hvd_is_shared(data, BYTES));
    if (is_mine)
        MP_CHECK(hvd_register(data, BYTES) == HVD_OK);
    MP_CHECK(hvd_is_shared(data, BYTES) == is_mine);
    MP_CHECK(buffer_holds(data, 1.0f, (float)rank));
    allreduce("whole", data, COUNT);
    MP_CHECK(buffer_holds(data, (float)size, ranks_sum));
    for (size_t i = 0; i < COUNT; i++)
        data[i] = (float)(i % 1000) + (float)rank;
    allreduce("inner", data + 100, COUNT - 300); /* not the whole buffer, not on a page border */
    MP_CHECK(data[99] == 99.0f + (float)rank &&
             data[COUNT - 200] == (float)((COUNT - 200) % 1000) + (float)rank);
    MP_CHECK(data[100] == 100.0f * (float)size + ranks_sum);
    if (is_mine) {
        data[7] = 0.5f;
        MP_CHECK(hvd_unregister(data) == HVD_OK);
        MP_CHECK(!hvd_is_shared(data, BYTES) && data[7] == 0.5f);
        MP_CHECK(data[100] == 100.0f * (float)size + ranks_sum);
    }
    allreduce("after", data, COUNT);
    free(data);
    return 0;
}

static void test_reduce(void **state)
{
    (void)state;
    int sizes[MP_RANKS_MAX], count = mp_sizes("2 3 4", sizes);
    for (int i = 0; i < count; i++) {
        unsigned end = 1u << sizes[i], step = sizes[i] < 4 ? 1 : end / 3;
        for (unsigned mask = 1; mask < end; mask += step)
            assert_int_equal(mp_run(sizes[i], body_reduce, &mask), 0);
    }
}

static int body_life(int rank, int size, void *arg)
{
    (void)arg;
    float *data = buffer_make(rank), *other = buffer_make(rank);
    for (int i = 0; i < 20; i++) { /* the room comes back */
        MP_CHECK(hvd_register(data, BYTES) == HVD_OK);
        MP_CHECK(hvd_unregister(data) == HVD_OK);
    }
    MP_CHECK(hvd_register(other, BYTES) == HVD_OK);
    MP_CHECK(hvd_register(data, BYTES) == HVD_OK);
    allreduce("life", data, COUNT);
    hvd_shutdown();
    MP_CHECK(buffer_holds(data, (float)size, (float)(size * (size - 1)) / 2.0f));
    data[0] = 3.0f;
    MP_CHECK(buffer_holds(other, 1.0f, (float)rank));
    MP_CHECK(hvd_register(data, BYTES) == HVD_ERR_NOT_INITIALIZED);
    free(data); /* malloc may unmap it: by now it is private again */
    free(other);
    return 0;
}

static void test_life(void **state)
{
    (void)state;
    assert_int_equal(mp_run(2, body_life, NULL), 0);
}

static int body_refused(int rank, int size, void *arg)
{
    (void)size;
    (void)arg;
    float *data = buffer_make(rank);
    uint8_t *byte = (uint8_t *)data;
    MP_CHECK(hvd_register(NULL, BYTES) == HVD_ERR_INVALID);
    MP_CHECK(hvd_register(data, 0) == HVD_ERR_INVALID);
    MP_CHECK(hvd_register(data, SIZE_MAX - PAGE + 1) == HVD_ERR_INVALID);
    MP_CHECK(hvd_register(byte + 64, PAGE) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "4096") != NULL);
    MP_CHECK(hvd_register(data, PAGE + 4) == HVD_ERR_INVALID);
    MP_CHECK(hvd_unregister(data) == HVD_ERR_INVALID);
    MP_CHECK(hvd_register(data, BYTES) == HVD_OK);
    MP_CHECK(hvd_register(data, BYTES) == HVD_ERR_INVALID);
    MP_CHECK(strstr(hvd_last_error(), "already") != NULL);
    MP_CHECK(hvd_register(byte + PAGE, PAGE) == HVD_ERR_INVALID);
    MP_CHECK(hvd_unregister(byte + PAGE) == HVD_ERR_INVALID);
    MP_CHECK(hvd_unregister(data) == HVD_OK);
    /* Not ours to replace: shared, read-only, unmapped, partly unmapped, an arena's. */
    uint8_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MP_CHECK(hvd_register(shared, PAGE) == HVD_ERR_INVALID);
    uint8_t *pages =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MP_CHECK(mprotect(pages, PAGE, PROT_READ) == 0);
    MP_CHECK(hvd_register(pages, 2 * PAGE) == HVD_ERR_INVALID);
    MP_CHECK(munmap(pages + 2 * PAGE, PAGE) == 0);
    MP_CHECK(hvd_register(pages + PAGE, 2 * PAGE) == HVD_ERR_INVALID);
    MP_CHECK(hvd_register(pages + PAGE, PAGE) == HVD_OK);
    uint8_t *arena = hvd_alloc(PAGE);
    MP_CHECK(arena != NULL && hvd_register(arena, PAGE) == HVD_ERR_INVALID);
    hvd_free(arena);
    allreduce("next", data, COUNT); /* nothing was harmed */
    free(data);
    return 0;
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(mp_run(2, body_refused, NULL), 0);
}

static int body_alone(int rank, int size, void *arg)
{
    (void)size;
    (void)arg;
    float *data = buffer_make(rank);
    MP_CHECK(hvd_register(data, BYTES) == HVD_OK);
    allreduce("alone", data, COUNT);
    MP_CHECK(hvd_unregister(data) == HVD_OK);
    MP_CHECK(buffer_holds(data, 1.0f, 0.0f));
    free(data);
    return 0;
}

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(mp_run(1, body_alone, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reduce), cmocka_unit_test(test_life),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
