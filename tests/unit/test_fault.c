/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault.c - the fault-injecting os table: which call fails, once or permanently, what it
 * counts, and that calls that release something still work. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/fault.h"

/* Something with several resources; 0, or the errno of the call that failed. Leaves nothing open.
 */
static int scenario(const struct os *os)
{
    int rc = -ENOMEM;
    void *memory = os_alloc(os, 100);
    if (memory == NULL)
        return rc;
    int fd = os->memfd(os->ctx, "fault", 4096);
    if (fd < 0) {
        rc = fd;
        goto fail_free;
    }
    void *map = os->map(os->ctx, fd, 4096, -1);
    if (map == NULL)
        goto fail_close;
    int bell = os->bell_create(os->ctx);
    if (bell < 0) {
        rc = bell;
        goto fail_unmap;
    }
    rc = os->bell_ring(os->ctx, bell);
    os->close(os->ctx, bell);
fail_unmap:
    os->unmap(os->ctx, map, 4096);
fail_close:
    os->close(os->ctx, fd);
fail_free:
    os_free(os, memory);
    return rc;
}

static void every_call_in_turn(void **state)
{
    (void)state;
    struct fault_os *fault = fault_os_create(os_host(), 0);
    assert_non_null(fault);
    const struct os *os = fault_os_table(fault);
    uint64_t live, live_now, total;
    os_host_alloc_counts(&live, &total);
    assert_int_equal(scenario(os), 0);
    uint64_t calls = fault_os_calls(fault);
    assert_int_equal(calls, 5); /* alloc, memfd, map, bell_create, bell_ring */
    assert_int_equal(fault_os_failures(fault), 0);
    static const int expected[] = {-ENOMEM, -ENFILE, -ENOMEM, -EMFILE, -EIO};
    for (uint64_t k = 1; k <= calls; k++) {
        fault_os_arm(fault, k, false);
        assert_int_equal(scenario(os), expected[k - 1]);
        assert_int_equal(fault_os_failures(fault), 1);
        assert_int_equal(fault_os_calls(fault), k);
        os_host_alloc_counts(&live_now, &total);
        assert_int_equal(live_now, live);
    }
    fault_os_arm(fault, calls + 1, false);
    assert_int_equal(scenario(os), 0);
    assert_int_equal(fault_os_failures(fault), 0);
    fault_os_destroy(fault);
    fault_os_destroy(NULL);
}

static void once_or_for_good(void **state)
{
    (void)state;
    struct fault_os *fault = fault_os_create(os_host(), 2);
    const struct os *os = fault_os_table(fault);
    uint8_t byte;
    assert_int_equal(os->random(os->ctx, &byte, 1), 0);
    assert_int_equal(os->random(os->ctx, &byte, 1), -EIO);
    assert_int_equal(os->random(os->ctx, &byte, 1), 0);
    fault_os_arm(fault, 2, true);
    assert_int_equal(os->random(os->ctx, &byte, 1), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(os->random(os->ctx, &byte, 1), -EIO);
    assert_int_equal(fault_os_failures(fault), 3);
    fault_os_destroy(fault);
}

static void a_failed_call_did_not_happen(void **state)
{
    (void)state;
    struct fault_os *fault = fault_os_create(os_host(), 0);
    const struct os *os = fault_os_table(fault);
    int fd = os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
    assert_true(fd >= 0);
    uint64_t live, total, live_now, total_now;
    os_host_alloc_counts(&live, &total);
    fault_os_arm(fault, 1, true);
    assert_null(os_alloc(os, 10));
    assert_null(os->resize(os->ctx, NULL, 10));
    assert_int_equal(os->listen(os->ctx, fd, 1), -EADDRINUSE);
    assert_int_equal(os->recv(os->ctx, fd, NULL, 0), -ECONNRESET);
    os_host_alloc_counts(&live_now, &total_now);
    assert_true(live == live_now && total == total_now);
    assert_int_equal(os->close(os->ctx, fd), 0); /* releasing works all the same */
    assert_int_equal(os->close(os->ctx, fd), -EBADF);
    assert_true(os_now_ns(os) > 0);
    assert_true(os->cpu_count(os->ctx) >= 1);
    fault_os_destroy(fault);
}

static void no_call_is_missing(void **state)
{
    (void)state;
    struct fault_os *fault = fault_os_create(os_host(), 0);
    const char *at = (const char *)fault_os_table(fault);
    for (size_t i = 0; i < sizeof(struct os); i += sizeof(void *)) {
        void *entry;
        memcpy(&entry, at + i, sizeof entry);
        assert_non_null(entry);
    }
    fault_os_destroy(fault);
}

static void stacked_tables(void **state)
{
    (void)state;
    struct fault_os *outer_of_nothing = fault_os_create(os_host(), 1);
    assert_null(fault_os_create(fault_os_table(outer_of_nothing), 0)); /* its own memory fails */
    fault_os_destroy(outer_of_nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_in_turn),
        cmocka_unit_test(once_or_for_good),
        cmocka_unit_test(a_failed_call_did_not_happen),
        cmocka_unit_test(no_call_is_missing),
        cmocka_unit_test(stacked_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
