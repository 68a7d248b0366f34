/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka.h - the part of cmocka's interface that our tests use, for cross builds.
 *
 * Debian has cmocka for the machine one builds on only, so tests for another processor are compiled
 * with this header in its place. A failed assertion prints where and what and leaves the test by a
 * long jump; the group's result is the number of tests that failed.
 *
 * Thread: the one that runs the tests.  Start reading at cmocka_run(). */
#ifndef HVD_TESTS_CROSS_CMOCKA_H
#define HVD_TESTS_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uintmax_t LargestIntegralType;

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state);
    int (*teardown_func)(void **state);
    void *initial_state;
};

/* Every test is one source file beside helpers that include this header too: weak symbols are what
 * they have in common. */
__attribute__((weak)) jmp_buf *cmocka_leave;
__attribute__((weak)) const char *cmocka_filter;

enum { CMOCKA_FAILED = 1, CMOCKA_SKIPPED = 2 };

static inline _Noreturn void cmocka_end(int how)
{
    if (cmocka_leave == NULL)
        abort();
    longjmp(*cmocka_leave, how);
}

static inline _Noreturn __attribute__((format(printf, 3, 4))) void
cmocka_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    cmocka_end(CMOCKA_FAILED);
}

static inline __attribute__((format(printf, 1, 2))) void print_message(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

static inline void cmocka_check(int is_true, const char *what, const char *file, int line)
{
    if (!is_true)
        cmocka_fail(file, line, "not so: %s", what);
}

static inline void cmocka_equal(uintmax_t a, uintmax_t b, int is_wanted, const char *what,
                                const char *file, int line)
{
    if ((a == b) != (is_wanted != 0))
        cmocka_fail(file, line, "%s: 0x%jx and 0x%jx", what, a, b);
}

static inline void cmocka_text(const char *a, const char *b, int is_wanted, const char *file,
                               int line)
{
    if ((strcmp(a, b) == 0) != (is_wanted != 0))
        cmocka_fail(file, line, "\"%s\" and \"%s\"", a, b);
}

static inline void cmocka_bytes(const void *a, const void *b, size_t n, int is_wanted,
                                const char *file, int line)
{
    const uint8_t *x = a, *y = b;
    size_t i = 0;
    while (i < n && x[i] == y[i])
        i++;
    if ((i == n) != (is_wanted != 0))
        cmocka_fail(file, line, "%zu bytes: they first differ at %zu", n, i);
}

#define assert_true(c)     cmocka_check((c) ? 1 : 0, #c, __FILE__, __LINE__)
#define assert_false(c)    cmocka_check((c) ? 0 : 1, "!(" #c ")", __FILE__, __LINE__)
#define assert_non_null(p) cmocka_check((p) != NULL, #p " is set", __FILE__, __LINE__)
#define assert_null(p)     cmocka_check((p) == NULL, #p " is NULL", __FILE__, __LINE__)
#define CMOCKA_EQUAL(a, b, wanted)                                                                 \
    cmocka_equal((uintmax_t)(a), (uintmax_t)(b), wanted, #a " against " #b, __FILE__, __LINE__)
#define assert_int_equal(a, b)     CMOCKA_EQUAL(a, b, 1)
#define assert_int_not_equal(a, b) CMOCKA_EQUAL(a, b, 0)
#define assert_ptr_equal(a, b)     CMOCKA_EQUAL((uintptr_t)(a), (uintptr_t)(b), 1)
#define assert_ptr_not_equal(a, b) CMOCKA_EQUAL((uintptr_t)(a), (uintptr_t)(b), 0)
#define assert_in_range(v, low, high)                                                              \
    cmocka_check((uintmax_t)(v) >= (uintmax_t)(low) && (uintmax_t)(v) <= (uintmax_t)(high),        \
                 #v " in range", __FILE__, __LINE__)
#define assert_string_equal(a, b)        cmocka_text(a, b, 1, __FILE__, __LINE__)
#define assert_string_not_equal(a, b)    cmocka_text(a, b, 0, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n)     cmocka_bytes(a, b, n, 1, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, n) cmocka_bytes(a, b, n, 0, __FILE__, __LINE__)
#define fail_msg(...)                    cmocka_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail()                           cmocka_fail(__FILE__, __LINE__, "fail()")
#define skip()                           cmocka_end(CMOCKA_SKIPPED)
#define test_calloc                      calloc
#define test_free                        free

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f, NULL, NULL, NULL                                                                    \
    }
#define cmocka_unit_test_prestate(f, state)                                                        \
    {                                                                                              \
#f, f, NULL, NULL, state                                                                   \
    }
#define cmocka_unit_test_setup(f, setup)                                                           \
    {                                                                                              \
#f, f, setup, NULL, NULL                                                                   \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                        \
    {                                                                                              \
#f, f, setup, teardown, NULL                                                               \
    }

static inline void cmocka_set_test_filter(const char *name)
{
    cmocka_filter = name;
}

static inline int cmocka_one(const struct CMUnitTest *test, void *group_state)
{
    jmp_buf here;
    void *state = test->initial_state != NULL ? test->initial_state : group_state;
    volatile int how = 0;
    printf("[ RUN      ] %s\n", test->name);
    fflush(stdout);
    cmocka_leave = &here;
    how = setjmp(here);
    if (how == 0) {
        if (test->setup_func != NULL && test->setup_func(&state) != 0)
            how = CMOCKA_FAILED;
        else
            test->test_func(&state);
    }
    cmocka_leave = NULL;
    if (test->teardown_func != NULL && test->teardown_func(&state) != 0)
        how = CMOCKA_FAILED;
    printf("[ %s ] %s\n",
           how == 0                ? "      OK"
           : how == CMOCKA_SKIPPED ? " SKIPPED"
                                   : "  FAILED",
           test->name);
    return how == CMOCKA_FAILED;
}

static inline int cmocka_run(const struct CMUnitTest *tests, size_t count,
                             int (*setup)(void **state), int (*teardown)(void **state))
{
    int failed = 0;
    void *state = NULL;
    if (setup != NULL && setup(&state) != 0)
        return (int)count;
    for (size_t i = 0; i < count; i++)
        if (cmocka_filter == NULL || strcmp(cmocka_filter, tests[i].name) == 0)
            failed += cmocka_one(&tests[i], state);
    if (teardown != NULL && teardown(&state) != 0)
        failed++;
    printf("[ %d FAILED ]\n", failed);
    return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cmocka_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    cmocka_run_group_tests(tests, setup, teardown)

#endif
