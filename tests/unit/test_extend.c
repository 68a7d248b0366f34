/* SPDX-License-Identifier: Apache-2.0 */
/* test_extend.c - structs of older and newer callers: what is accepted, extended and rejected, byte
 * by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/extend.h"

/* A struct that has grown twice, each time at its end. */
struct first {
    size_t struct_size;
    int32_t a;
};
struct second {
    size_t struct_size;
    int32_t a;
    int32_t b;
    double c;
};
struct third {
    size_t struct_size;
    int32_t a;
    int32_t b;
    double c;
    void *d, *e;
};

static const struct extend_kind kind = {"sample", offsetof(struct first, a) + sizeof(int32_t),
                                        sizeof(struct second)};

static void older_are_completed_with_zeros(void **state)
{
    (void)state;
    struct error error = {0};
    /* What lies behind an older caller's struct is not its own. */
    unsigned char memory[sizeof(struct second)];
    for (size_t size = kind.first_bytes; size <= kind.bytes; size++) {
        memset(memory, 0xee, sizeof memory);
        memcpy(memory, &size, sizeof size);
        assert_int_equal(extend_check(&kind, memory, size, &error), HVD_OK);
        struct second ours;
        memset(&ours, 0x55, sizeof ours);
        extend_copy(&kind, &ours, memory, size);
        assert_int_equal(ours.struct_size, sizeof ours);
        assert_memory_equal((char *)&ours + sizeof size, memory + sizeof size, size - sizeof size);
        for (size_t i = size; i < sizeof ours; i++)
            assert_int_equal(((unsigned char *)&ours)[i], 0);
    }
}

static void newer_are_accepted_if_they_ask_for_nothing_new(void **state)
{
    (void)state;
    struct error error = {0};
    struct third theirs = {.struct_size = sizeof theirs, .a = 1, .b = 2, .c = 3.0};
    struct second ours;
    assert_int_equal(extend_check(&kind, &theirs, theirs.struct_size, &error), HVD_OK);
    extend_copy(&kind, &ours, &theirs, theirs.struct_size);
    assert_int_equal(ours.struct_size, sizeof ours);
    assert_int_equal(ours.a, 1);
    assert_int_equal(ours.b, 2);
    assert_true(ours.c == 3.0);
    for (size_t i = sizeof ours; i < sizeof theirs; i++) {
        struct third asks = theirs;
        ((unsigned char *)&asks)[i] = 1;
        assert_int_equal(extend_check(&kind, &asks, asks.struct_size, &error), HVD_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "struct sample"));
        assert_non_null(strstr(error.text, "does not know"));
        error_clear(&error);
    }
}

static void sizes_that_were_never_set_are_refused(void **state)
{
    (void)state;
    struct error error = {0};
    struct third theirs = {0};
    const size_t bad[] = {0, 1, kind.first_bytes - 1, EXTEND_MAX + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(extend_check(&kind, &theirs, bad[i], &error), HVD_ERR_INVALID);
        assert_non_null(strstr(error.text, "struct_size of struct sample is "));
        error_clear(&error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_are_completed_with_zeros),
        cmocka_unit_test(newer_are_accepted_if_they_ask_for_nothing_new),
        cmocka_unit_test(sizes_that_were_never_set_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
