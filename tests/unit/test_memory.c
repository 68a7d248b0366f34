/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - the table of memory kinds, and the conformance of the host's and of the tests'
 * fake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_memory.h"
#include "memory_conformance.h"

static void test_table(void **state)
{
    (void)state;
    struct memory_kind *opened[MEMORY_KINDS_MAX];
    int32_t count = 0;
    assert_ptr_equal(memory_kinds[0], &memory_host);
    assert_int_equal(memory_host.kind, HVD_MEMORY_HOST);
    for (; memory_kinds[count] != NULL; count++) {
        assert_int_equal(memory_kinds[count]->version, MEMORY_VERSION);
        for (int32_t i = 0; i < count; i++)
            assert_int_not_equal(memory_kinds[i]->kind, memory_kinds[count]->kind);
    }
    assert_true(count <= MEMORY_KINDS_MAX);
    int32_t open_count = memory_open(os_host(), opened);
    assert_true(open_count < count); /* host memory needs nobody to reach it */
    for (int32_t i = 0; i < open_count; i++)
        assert_false(opened[i]->ops->is_host_visible);
    memory_close(opened, open_count);
}

static void test_host(void **state)
{
    (void)state;
    struct error error = {0};
    struct memory_kind *m = NULL;
    struct memory_mark *mark = NULL;
    int stream;
    assert_int_equal(memory_host.open(os_host(), &m, &error), HVD_OK);
    memory_conformance(&(struct memory_subject){.m = m});
    assert_int_equal(m->ops->record(m, 0, &stream, &mark, &error), HVD_ERR_INVALID);
    m->ops->close(m);
}

static int64_t clock_ns(void *ctx)
{
    return *(int64_t *)ctx;
}

static void clock_pass(void *ctx)
{
    *(int64_t *)ctx += 7;
}

static void test_fake(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int64_t now_ns = 0;
        struct fake_memory fake;
        fake_open(&fake, seed, 1000, clock_ns, &now_ns);
        memory_conformance(
            &(struct memory_subject){.m = &fake.kind, .pass = clock_pass, .ctx = &now_ns});
        assert_string_equal(fake.violation, "");
        assert_int_equal(fake.marks, 0);
        assert_true(fake.copying_max > 1);
        fake_close(&fake.kind);
    }
}

/* The fake is worth something only if its memory can't be reached, and if it notices what is wrong.
 */
static void test_fake_is_strict(void **state)
{
    (void)state;
    int64_t now_ns = 0;
    struct fake_memory fake;
    struct error error = {0};
    struct memory_mark *mark = NULL;
    uint8_t in[16] = {1}, out[16];
    int pipes[2];
    fake_open(&fake, 1, 1000, clock_ns, &now_ns);
    uint8_t *far = fake_alloc(&fake.kind, 1, sizeof in);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(pipes[1], far, 1), -1);
    assert_int_equal(errno, EFAULT);
    close(pipes[0]);
    close(pipes[1]);
    struct memory_copy there = {.to = far, .from = in, .bytes = sizeof in};
    assert_int_equal(fake_copy(&fake.kind, 1, MEMORY_FROM_HOST, &there, 1, &mark, &error), HVD_OK);
    assert_int_equal(fake_reached(&fake.kind, mark, &error), HVD_IN_PROGRESS);
    assert_true(fake_is_busy(&fake, far, 1));
    fake_get(&fake, out, far, sizeof out);
    assert_int_equal(out[0], 0); /* it gets there at the end */
    now_ns += 2000;
    assert_int_equal(fake_reached(&fake.kind, mark, &error), HVD_OK);
    fake_get(&fake, out, far, sizeof out);
    assert_int_equal(out[0], 1);
    fake_release(&fake.kind, mark);
    assert_string_equal(fake.violation, "");
    assert_int_equal(fake_copy(&fake.kind, 0, MEMORY_FROM_HOST, &there, 1, &mark, &error), HVD_OK);
    assert_non_null(strstr(fake.violation, "not on device 0"));
    fake_free(&fake.kind, 1, far);
    assert_non_null(strstr(fake.violation, "freed during a copy"));
    fake_release(&fake.kind, mark);
    fake_close(&fake.kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_fake),
        cmocka_unit_test(test_fake_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
