/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_blame.c - which rank failed first, whatever the order in which ranks exit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../launcher/blame.c"

#define RANKS 4
#define NEVER INT64_MAX

static struct rank_run ranks[RANKS];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++)
        ranks[i] = (struct rank_run){0};
    return 0;
}

static void ended(int rank, int code, int64_t at_ns)
{
    ranks[rank].is_ended = true;
    ranks[rank].code = code;
    ranks[rank].ended_ns = at_ns;
}

static void blames(int rank, int culprit)
{
    ranks[rank].blamed = culprit + 1;
}

static void expect(int64_t stopped_ns, int32_t failed, int32_t culprit, bool is_ended)
{
    struct blame b;
    assert_true(blame_choose(ranks, RANKS, stopped_ns, &b));
    assert_int_equal(b.failed, failed);
    assert_int_equal(b.culprit, culprit);
    assert_int_equal(b.is_ended, is_ended);
}

static void nobody_failed(void **state)
{
    struct blame b;
    (void)state;
    assert_false(blame_choose(ranks, RANKS, NEVER, &b));
    ended(2, 0, 5);
    blames(1, 2); /* it may still catch the error and end well */
    assert_false(blame_choose(ranks, RANKS, NEVER, &b));
}

static void first_end_without_blame(void **state)
{
    (void)state;
    ended(3, 1, 20);
    ended(1, 5, 10);
    expect(NEVER, 1, 1, true);
}

static void signals_are_failures(void **state)
{
    (void)state;
    ended(2, 0, 7);
    ranks[2].signal = 9;
    expect(NEVER, 2, 2, true);
}

static void victim_exits_first(void **state)
{
    (void)state;
    blames(0, 2);
    ended(0, 1, 10);
    expect(NEVER, 0, 2, false);
    ended(2, 3, 30);
    expect(NEVER, 0, 2, true);
}

static void chain_of_blame(void **state)
{
    (void)state;
    blames(0, 1);
    blames(1, 3);
    ended(0, 1, 10);
    ended(1, 1, 11);
    expect(NEVER, 0, 3, false);
    ended(3, 0, 9); /* finished while the others needed it */
    expect(NEVER, 0, 3, true);
}

static void circle_of_blame(void **state)
{
    (void)state;
    blames(0, 1);
    blames(1, 2);
    blames(2, 1);
    ended(1, 1, 8);
    ended(0, 1, 9);
    expect(NEVER, 1, 1, true);
    ended(0, 1, 7); /* before the two: nothing better is known */
    expect(NEVER, 0, 0, true);
}

static void ends_that_the_launcher_made(void **state)
{
    struct blame b;
    (void)state;
    ended(1, 143, 50);
    assert_false(blame_choose(ranks, RANKS, 50, &b));
    blames(0, 1);
    ended(0, 4, 20);
    expect(50, 0, 1, false); /* stopped by us: its own end is not known */
}

static void earlier_end_that_arrives_later(void **state)
{
    (void)state;
    ended(0, 1, 20);
    expect(30, 0, 0, true);
    ended(2, 7, 10);
    expect(30, 2, 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nobody_failed, set_up),
        cmocka_unit_test_setup(first_end_without_blame, set_up),
        cmocka_unit_test_setup(signals_are_failures, set_up),
        cmocka_unit_test_setup(victim_exits_first, set_up),
        cmocka_unit_test_setup(chain_of_blame, set_up),
        cmocka_unit_test_setup(circle_of_blame, set_up),
        cmocka_unit_test_setup(ends_that_the_launcher_made, set_up),
        cmocka_unit_test_setup(earlier_end_that_arrives_later, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
