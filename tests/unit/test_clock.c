/* SPDX-License-Identifier: Apache-2.0 */
/* test_clock.c - the offset to rank 0's clock: the shortest round trip counts, and the true offset
 * is within the error that is stated, however lopsided the trips are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/clock.h"

#define TRUE_OFFSET_NS 123456789012LL

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* One question at `now`, answered after `there`, received `back` later. */
static bool round_trip(struct clock *clock, int64_t now, int64_t there, int64_t back)
{
    clock->sent_ns = now;
    return clock_take(clock, now + there + TRUE_OFFSET_NS, now + there + back);
}

static void test_within_error(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int run = 0; run < 1000; run++) {
        struct clock clock = {.best = {.error_ns = -1}, .rounds_left = CLOCK_ROUNDS};
        int64_t now = 1000000000, shortest = INT64_MAX;
        for (int i = 0; i < CLOCK_ROUNDS; i++) {
            int64_t there = (int64_t)(next_random(&seed) % 1000000) + 1;
            int64_t back = (int64_t)(next_random(&seed) % 1000000) + 1;
            shortest = there + back < shortest ? there + back : shortest;
            assert_int_equal(round_trip(&clock, now, there, back), i == CLOCK_ROUNDS - 1);
            now += 5000000;
        }
        int64_t wrong = clock.best.offset_ns - TRUE_OFFSET_NS;
        assert_true((wrong < 0 ? -wrong : wrong) <= clock.best.error_ns + 1);
        assert_int_equal(clock.best.error_ns, shortest / 2);
        assert_int_equal(clock.sent_ns, 0);
    }
}

/* A clock behind rank 0's, and an even trip: exact. */
static void test_exact(void **state)
{
    (void)state;
    struct clock clock = {.best = {.error_ns = -1}, .rounds_left = 1, .sent_ns = 5000};
    assert_true(clock_take(&clock, 6000, 9000));
    assert_int_equal(clock.best.offset_ns, -1000);
    assert_int_equal(clock.best.error_ns, 2000);
    assert_int_equal(clock.best.at_ns, 9000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_error),
        cmocka_unit_test(test_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
