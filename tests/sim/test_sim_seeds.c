/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_seeds.c - random programs on simulated ranks: no rank waits forever, all agree, results
 * are right, with and without faults; equal seeds give equal runs.
 *
 * A failure prints the seed; `sim_soak --from SEED [--faults] --trace` replays it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "engine/engine.h"
#include "json.h"
#include "sim_run.h"

#if HVD_TEST_QUICK
#define SEEDS 40
#else
#define SEEDS 150
#endif
#define TWICE 10 /* every so manyth seed is run again */

static void run_seeds(const struct sim_program_options *base, int count)
{
    struct sim_program_options options = *base;
    for (int i = 1; i <= count; i++) {
        struct sim_report report, again;
        options.seed = (uint64_t)i;
        if (!sim_run_seed(os_host(), &options, &report))
            fail_msg("seed %d%s: %s", i, options.has_faults ? " with faults" : "", report.text);
        if (i % TWICE != 0)
            continue;
        assert_true(sim_run_seed(os_host(), &options, &again));
        assert_true(report.hash == again.hash);
        assert_true(report.end_ns == again.end_ns && report.messages == again.messages);
    }
}

static void test_without_faults(void **state)
{
    (void)state;
    run_seeds(&(struct sim_program_options){.sight = -1}, SEEDS);
}

static void test_with_faults(void **state)
{
    (void)state;
    run_seeds(&(struct sim_program_options){.sight = -1, .has_faults = true}, SEEDS);
}

struct looks {
    uint64_t all, whole; /* with a process set in it */
    char text[HVD_SNAPSHOT_MIN];
};

static void look(void *ctx, struct engine *engine, int64_t now_ns)
{
    struct looks *looks = ctx;
    struct json json;
    json_init(&json, looks->text, sizeof looks->text);
    json_open(&json, NULL, true);
    snapshot_write(engine, now_ns, true, &json);
    json_close(&json);
    if (!json_is_valid(looks->text))
        fail_msg("no JSON: %s", looks->text);
    looks->all++;
    looks->whole += strstr(looks->text, "\"process_sets\":[{\"id\":0") != NULL;
}

/* Looking at engines at random moments changes no outcome: the same seed gives the same run. */
static void test_looking_changes_nothing(void **state)
{
    (void)state;
    static struct looks looks;
    for (int i = 1; i <= SEEDS; i++) {
        struct sim_report report, looked;
        struct sim_program_options options = {
            .seed = (uint64_t)i, .sight = -1, .has_faults = i % 2 == 0};
        assert_true(sim_run_seed(os_host(), &options, &report));
        options.look = look;
        options.look_ctx = &looks;
        assert_true(sim_run_seed(os_host(), &options, &looked));
        assert_true(report.hash == looked.hash && report.end_ns == looked.end_ns);
        assert_true(report.messages == looked.messages && report.turns == looked.turns);
        assert_true(report.plan_breaks == looked.plan_breaks);
    }
    assert_true(looks.all > 1000 && looks.whole > 1000);
}

/* Seeds that found something: ranks stuck in a plan, slow to connect, frozen, in a join. */
static void test_found(void **state)
{
    (void)state;
    static const uint64_t found[] = {3, 30, 144, 297, 634, 738};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        struct sim_report report;
        struct sim_program_options options = {.seed = found[i], .sight = -1, .has_faults = true};
        if (!sim_run_seed(os_host(), &options, &report))
            fail_msg("seed %d with faults: %s", (int)found[i], report.text);
    }
}

static void test_seeds_differ(void **state)
{
    (void)state;
    struct sim_report one, two;
    struct sim_program_options options = {.seed = 11, .sight = -1};
    assert_true(sim_run_seed(os_host(), &options, &one));
    options.seed = 12;
    assert_true(sim_run_seed(os_host(), &options, &two));
    assert_true(one.hash != two.hash);
}

/* The checker itself: a program that expects otherwise than what happens must be told off. */
static void test_checker_sees(void **state)
{
    (void)state;
    struct sim_program_options options = {.seed = 3, .sight = 0};
    struct sim_report report;
    struct sim_program *program = sim_program_make(os_host(), &options);
    assert_non_null(program);
    program->calls[program->call_count - 1].expect = SIM_EXPECT_MISMATCH;
    assert_false(sim_run(os_host(), program, &report));
    assert_true(report.text[0] != '\0');
    sim_program_destroy(program);
}

/* One rank never comes to the last barrier: without a limit, that is a wait for ever. */
static void test_checker_sees_hang(void **state)
{
    (void)state;
    struct sim_program_options options = {.seed = 3, .sight = 0};
    struct sim_report report;
    struct sim_program *program = sim_program_make(os_host(), &options);
    assert_non_null(program);
    struct sim_script *script = &program->scripts[1];
    for (int32_t i = 0; i < script->count; i++)
        if (script->steps[i].kind == SIM_SUBMIT &&
            script->steps[i].argument == program->call_count - 1)
            script->steps[i] = (struct sim_step){.kind = SIM_COMPUTE, .argument = INT64_MAX / 2};
    assert_false(sim_run(os_host(), program, &report));
    assert_non_null(strstr(report.text, "wait for ever"));
    sim_program_destroy(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults),
        cmocka_unit_test(test_with_faults),
        cmocka_unit_test(test_looking_changes_nothing),
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_checker_sees),
        cmocka_unit_test(test_checker_sees_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
