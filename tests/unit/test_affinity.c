/* SPDX-License-Identifier: Apache-2.0 */
/* test_affinity.c - which core a rank takes from HOROVOD_THREAD_AFFINITY, the message for an
 * invalid list, and that a thread is really pinned. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/affinity.h"
#include "base/os.h"

static void lists(void **state)
{
    static const struct {
        const char *list;
        int32_t rank, size, core;
        const char *why; /* part of it; NULL: taken; "": nothing asked for */
    } cases[] = {
        {"3", 0, 1, 3, NULL},
        {"4,5,6", 1, 3, 5, NULL},
        {" 4 , 5 ,6 ", 2, 2, 6, NULL},
        {"0,1,2,3", 1, 2, 1, NULL}, /* more than needed */
        {"", 0, 1, 0, ""},
        {"0", 0, 2, 0, "names 1 cores, but 2 ranks"},
        {"0,x", 0, 2, 0, "entry 1 is not the number of a core"},
        {"0,,1", 0, 2, 0, "entry 1 is not"},
        {"0,1,", 0, 2, 0, "entry 2 is not"},
        {"-1,0", 0, 2, 0, "entry 0 is not"},
        {"1.5", 0, 1, 0, "entry 0 is not"},
        {"99999999999", 0, 1, 0, "entry 0 is not"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[256];
        int32_t core = -7;
        bool is_given =
            affinity_core(cases[i].list, cases[i].rank, cases[i].size, &core, why, sizeof why);
        assert_int_equal(is_given, cases[i].why == NULL);
        assert_int_equal(core, is_given ? cases[i].core : -7);
        if (is_given || *cases[i].why == '\0')
            assert_string_equal(why, "");
        else
            assert_non_null(strstr(why, cases[i].why));
    }
}

struct pinned {
    int core, status, outside;
    cpu_set_t set;
};

static void *pin(void *arg)
{
    struct pinned *p = arg;
    const struct os *os = os_host();
    p->status = os->thread_pin(os->ctx, p->core);
    p->outside = os->thread_pin(os->ctx, 65000);
    if (sched_getaffinity(0, sizeof p->set, &p->set) != 0)
        CPU_ZERO(&p->set);
    return NULL;
}

static void a_thread_alone_is_pinned(void **state)
{
    (void)state;
    const struct os *os = os_host();
    cpu_set_t before, after;
    void *thread = NULL;
    struct pinned p = {0};
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET((size_t)p.core, &before))
        p.core++;
    assert_int_equal(os->thread_start(os->ctx, pin, &p, "pinned", &thread), 0);
    assert_int_equal(os->thread_join(os->ctx, thread), 0);
    assert_int_equal(p.status, 0);
    assert_true(p.outside < 0);
    assert_true(CPU_COUNT(&p.set) == 1 && CPU_ISSET((size_t)p.core, &p.set));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_true(os->thread_pin(os->ctx, -1) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(a_thread_alone_is_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
