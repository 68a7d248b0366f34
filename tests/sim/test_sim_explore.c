/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_explore.c - small worlds: every order of submits, messages, a crash and a timeout, up to
 * a number of states for each program (explore_soak has no such limit); and planted faults that the
 * explorer must find. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "explore_programs.h"

#if HVD_TEST_QUICK
#define STATES 100
#else
#define STATES 4000
#endif

static void print_line(const char *line)
{
    print_message("%s\n", line);
}

static void test_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < EXPLORE_PROGRAMS; i++) {
        struct explore_options options = explore_programs[i];
        struct explore_report report;
        options.states_max = STATES;
        options.trace = print_line;
        if (!sim_explore(os_host(), &options, &report))
            fail_msg("program %zu: %s", i, report.verdict.text);
        assert_true(report.is_complete || report.states >= STATES);
        assert_true(report.depth > 5);
    }
}

/* Without faults the walk of a small program is complete, whatever the limit. */
static void test_complete(void **state)
{
    (void)state;
    struct explore_options options = {.ranks = 2, .programs = {"ab", "ba"}};
    struct explore_report report;
    assert_true(sim_explore(os_host(), &options, &report));
    assert_true(report.is_complete);
    assert_true(report.states > 20);
}

/* A rank that submits something else than the others: the time limit ends it on all. */
static void test_missing(void **state)
{
    (void)state;
    struct explore_options options = {.ranks = 3, .programs = {"a", "a", "b"}};
    struct explore_report report;
    assert_true(sim_explore(os_host(), &options, &report));
    assert_true(report.is_complete);
}

static void expect_found(struct explore_options options, const char *text)
{
    struct explore_report report;
    options.states_max = 20000;
    assert_false(sim_explore(os_host(), &options, &report));
    if (strstr(report.verdict.text, text) == NULL)
        fail_msg("found otherwise: %s", report.verdict.text);
}

static void test_finds_lost_response(void **state)
{
    (void)state;
    expect_found((struct explore_options){.ranks = 2,
                                          .programs = {"abc", "abc"},
                                          .plant = EXPLORE_PLANT_LOSE},
                 "waits for ever");
}

static void test_finds_swapped_messages(void **state)
{
    (void)state;
    expect_found((struct explore_options){.ranks = 2,
                                          .programs = {"ab.A", "ab.A"},
                                          .plant = EXPLORE_PLANT_SWAP},
                 "");
}

/* A join that nobody answers is ended by the time limit. */
static void test_join_alone(void **state)
{
    (void)state;
    struct explore_options options = {.ranks = 2, .programs = {"aj", "a"}};
    struct explore_report report;
    if (!sim_explore(os_host(), &options, &report))
        fail_msg("%s", report.verdict.text);
    assert_true(report.is_complete);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_finds_lost_response),
        cmocka_unit_test(test_finds_swapped_messages),
        cmocka_unit_test(test_join_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
