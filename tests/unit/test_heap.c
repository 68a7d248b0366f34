/* SPDX-License-Identifier: Apache-2.0 */
/* What malloc keeps follows the memory that hvd_alloc() hands out, unless the user has decided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>

#include <cmocka.h>

#include "api/heap.h"

#define MIB (1ull << 20)

struct fixture {
    const char *name, *value; /* the one environment variable */
    bool has_mallopt;
    int trim, mmap;
};

static struct fixture *the_fixture; /* mallopt() has no context */

static const char *env(void *ctx, const char *name)
{
    const struct fixture *f = ctx;
    return f->name != NULL && strcmp(name, f->name) == 0 ? f->value : NULL;
}

static int mallopt_seen(int parameter, int value)
{
    if (parameter == -1)
        the_fixture->trim = value;
    if (parameter == -3)
        the_fixture->mmap = value;
    return value <= 1 << 30;
}

static void *symbol(void *ctx, void *library, const char *name)
{
    const struct fixture *f = ctx;
    int (*function)(int, int) = mallopt_seen;
    void *ret = NULL;
    assert_null(library);
    assert_string_equal(name, "mallopt");
    memcpy(&ret, &function, sizeof ret);
    return f->has_mallopt ? ret : NULL;
}

static struct os os_make(struct fixture *f)
{
    struct os os = *os_host();
    os.ctx = f;
    os.env = env;
    os.library_symbol = symbol;
    the_fixture = f;
    return os;
}

static void test_grows_with_what_is_expected(void **state)
{
    (void)state;
    struct fixture f = {.has_mallopt = true};
    struct os os = os_make(&f);
    struct heap heap = {0};
    assert_int_equal(heap_expect(&heap, &os, 100 * MIB), 164 * MIB);
    assert_int_equal(f.trim, 164 * MIB);
    assert_int_equal(f.mmap, 32 * MIB);
    assert_int_equal(heap_expect(&heap, &os, 10 * MIB), 174 * MIB);
    assert_int_equal(heap_expect(&heap, &os, 100), 0); /* too few to matter */
    assert_int_equal(f.trim, 174 * MIB);
    assert_int_equal(heap_expect(&heap, &os, UINT64_MAX / 2), HEAP_KEEP_MAX);
    assert_int_equal(f.trim, HEAP_KEEP_MAX);
}

static void test_user_decides(void **state)
{
    (void)state;
    static const char *const settings[][2] = {
        {"MALLOC_TRIM_THRESHOLD_", "131072"},
        {"MALLOC_MMAP_THRESHOLD_", "131072"},
        {"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=1"},
        {"GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1"}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct fixture f = {settings[i][0], settings[i][1], .has_mallopt = true};
        struct os os = os_make(&f);
        struct heap heap = {0};
        assert_int_equal(heap_expect(&heap, &os, 100 * MIB), 0);
        assert_int_equal(f.trim, 0);
    }
    /* what horovodrun sets is not a limit */
    struct fixture f = {"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", .has_mallopt = true};
    struct os os = os_make(&f);
    struct heap heap = {0};
    assert_int_equal(heap_expect(&heap, &os, 100 * MIB), 164 * MIB);
}

static void test_other_c_libraries(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct os os = os_make(&f);
    struct heap heap = {0};
    assert_int_equal(heap_expect(&heap, &os, 100 * MIB), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_with_what_is_expected),
        cmocka_unit_test(test_user_decides),
        cmocka_unit_test(test_other_c_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
