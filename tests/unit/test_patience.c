/* SPDX-License-Identifier: Apache-2.0 */
/* test_patience.c - a waiting thread spins, yields and then sleeps; if others need the core it
 * yields only once. The clock and the yield are fake, so nothing here depends on time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/patience.h"

struct clock {
    int64_t now_ns;
    int64_t yield_ns; /* what a yield takes */
    int32_t yields;
};

static int64_t clock_now(void *ctx)
{
    struct clock *c = ctx;
    return c->now_ns += 100;
}

static void clock_yield(void *ctx)
{
    struct clock *c = ctx;
    c->now_ns += c->yield_ns;
    c->yields++;
}

static const struct patience_limits limits = {.spin_ns = 5000, .yield_count = 50};

/* Waits until it is time to sleep; returns how long that took. */
static int64_t wait_out(struct clock *c)
{
    struct os os = {.ctx = c, .now_ns = clock_now, .yield = clock_yield};
    struct patience p = {0};
    int64_t start_ns = c->now_ns;
    while (patience_wait(&p, &limits, &os))
        assert_true(c->yields <= limits.yield_count);
    return c->now_ns - start_ns;
}

static void test_core_is_free(void **state)
{
    (void)state;
    struct clock c = {.now_ns = 1, .yield_ns = 300};
    assert_true(wait_out(&c) >= limits.spin_ns);
    assert_int_equal(c.yields, limits.yield_count);
}

static void test_core_is_needed(void **state)
{
    (void)state;
    struct clock c = {.now_ns = 1, .yield_ns = 35000000};
    assert_true(wait_out(&c) < 2 * c.yield_ns);
    assert_int_equal(c.yields, 1);
}

static void test_something_moves(void **state)
{
    (void)state;
    struct clock c = {.now_ns = 1, .yield_ns = 35000000};
    struct os os = {.ctx = &c, .now_ns = clock_now, .yield = clock_yield};
    struct patience p = {0};
    while (patience_wait(&p, &limits, &os))
        ;
    p = (struct patience){0};
    assert_true(patience_wait(&p, &limits, &os)); /* spins again */
    assert_int_equal(c.yields, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_is_free),
        cmocka_unit_test(test_core_is_needed),
        cmocka_unit_test(test_something_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
