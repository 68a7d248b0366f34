/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_member.c - processes that join, leave, crash and hang while others meet: members agree,
 * no process of an old generation gets in, none waits forever; equal seeds give equal runs.
 *
 * A failure prints its seed; HVD_SIM_SEED=seed runs that one alone and prints every event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim_member.h"

#if HVD_TEST_QUICK
#define SEEDS 200
#else
#define SEEDS 4000
#endif
#define TWICE 50 /* every so manyth seed is run again */

static void print_line(const char *line)
{
    puts(line);
}

static void test_seeds(void **state)
{
    (void)state;
    struct sim_member_report report, again, sum = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_member_options options = {.seed = seed};
        if (!sim_member_run(os_host(), &options, &report))
            fail_msg("seed %d: %s", (int)seed, report.verdict.text);
        sum.generations += report.generations;
        sum.runs += report.runs;
        sum.crashes += report.crashes;
        sum.hangs += report.hangs;
        sum.refused += report.refused;
        sum.failed += report.failed;
        if (seed % TWICE != 0)
            continue;
        assert_true(sim_member_run(os_host(), &options, &again));
        assert_true(report.hash == again.hash && report.end_ns == again.end_ns);
    }
    /* all of it has happened, or the seeds show nothing */
    assert_true(sum.generations > SEEDS && sum.runs > SEEDS && sum.crashes > SEEDS / 2);
    assert_true(sum.hangs > SEEDS / 4 && sum.refused > SEEDS / 8 && sum.failed > SEEDS / 8);
}

static void test_one(void **state)
{
    (void)state;
    const char *seed = getenv("HVD_SIM_SEED");
    struct sim_member_report report;
    struct sim_member_options options = {.seed = seed != NULL ? strtoull(seed, NULL, 10) : 1,
                                         .trace = seed != NULL ? print_line : NULL};
    if (!sim_member_run(os_host(), &options, &report))
        fail_msg("seed %d: %s", (int)options.seed, report.verdict.text);
    assert_true(report.events > 0);
}

int main(void)
{
    const struct CMUnitTest one[] = {cmocka_unit_test(test_one)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_seeds)};
    if (getenv("HVD_SIM_SEED") != NULL)
        return cmocka_run_group_tests(one, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
