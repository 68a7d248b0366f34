/* SPDX-License-Identifier: Apache-2.0 */
/* test_probe.c - hvd_probe(): every row of both tables, and why one is not usable. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "horovod/hvd.h"

#define MORE_BYTES 40 /* of a later hvd.h */

static bool find(const char *kind, const char *name, hvd_probe_t *ret)
{
    for (int32_t i = 0;; i++) {
        *ret = (hvd_probe_t){.struct_size = sizeof *ret};
        if (!hvd_probe(i, ret))
            return false;
        assert_true(ret->is_usable == (ret->why[0] == '\0'));
        if (strcmp(ret->kind, kind) == 0 && strcmp(ret->name, name) == 0)
            return true;
    }
}

static void test_rows(void **state)
{
    static const char *const rows[][2] = {{"transport", "shm"},
                                          {"transport", "tcp"},
                                          {"transport", "mpi"},
                                          {"backend", "native"},
                                          {"backend", "mpi"}};
    hvd_probe_t p = {.struct_size = sizeof p};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(find(rows[i][0], rows[i][1], &p));
    assert_false(find("transport", "carrier pigeon", &p));
    assert_false(hvd_probe(-1, &p));
    assert_false(hvd_probe(1000, &p));
}

static void test_reasons(void **state)
{
    hvd_probe_t p;
    (void)state;
    assert_true(find("transport", "shm", &p) && p.is_usable);
    setenv("HOROVOD_SHM_DISABLE", "1", 1);
    setenv("HOROVOD_MPI_LIBRARY", "/nosuch/libmpi.so", 1);
    assert_true(find("transport", "shm", &p) && !p.is_usable);
    assert_non_null(strstr(p.why, "HOROVOD_SHM_DISABLE"));
    assert_true(find("transport", "mpi", &p) && !p.is_usable);
    assert_true(find("backend", "mpi", &p) && !p.is_usable);
    assert_non_null(strstr(p.why, "HOROVOD_MPI_LIBRARY"));
    unsetenv("HOROVOD_SHM_DISABLE");
    unsetenv("HOROVOD_MPI_LIBRARY");
    setenv("HOROVOD_CONTROLLER", "carrier pigeon", 1); /* nothing works with this */
    assert_true(find("backend", "native", &p) && !p.is_usable);
    assert_non_null(strstr(p.why, "pigeon"));
    unsetenv("HOROVOD_CONTROLLER");
}

/* hvd_init() reads the key and wipes it where it lies; whoever only asks leaves it. */
static void test_key_stays(void **state)
{
    static const char key[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    hvd_probe_t p = {.struct_size = sizeof p};
    (void)state;
    setenv("HOROVOD_KEY", key, 1);
    assert_true(hvd_probe(0, &p));
    assert_string_equal(getenv("HOROVOD_KEY"), key);
    unsetenv("HOROVOD_KEY");
}

static void test_sizes(void **state)
{
    struct {
        hvd_probe_t known;
        unsigned char more[MORE_BYTES];
    } p;
    (void)state;
    for (size_t bytes = sizeof(size_t); bytes <= sizeof p; bytes++) {
        memset(&p, 0xee, sizeof p);
        p.known.struct_size = bytes;
        assert_true(hvd_probe(0, &p.known));
        assert_int_equal(p.known.struct_size, bytes);
        for (size_t i = bytes; i < sizeof p; i++)
            assert_int_equal(((unsigned char *)&p)[i], 0xee);
        for (size_t i = sizeof p.known; i < bytes; i++)
            assert_int_equal(((unsigned char *)&p)[i], 0);
    }
    p.known.struct_size = 0; /* it has no room for an answer */
    assert_false(hvd_probe(0, &p.known));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_key_stays),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
