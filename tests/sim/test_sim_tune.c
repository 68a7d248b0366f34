/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_tune.c - rank 0 tunes at random while random programs run, with and without faults:
 * every member of a set changes to the same values after the same batch (sim_run.c checks it), in
 * plans too, and nothing else about the runs changes.
 *
 * A failure prints the seed and how often rank 0 tunes. `sim_soak --tune [--faults]` tries more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim_job.h"
#include "sim_run.h"
#include "sim_world.h"

#if HVD_TEST_QUICK
#define SEEDS 40
#else
#define SEEDS 200
#endif

struct sums {
    uint64_t tunings, tuned_alike, plan_starts, plan_breaks;
};

static struct sums run_seeds(struct sim_program_options options)
{
    static const uint32_t one_in[] = {20, 3, 100};
    struct sums sums = {0};
    for (int i = 1; i <= SEEDS; i++) {
        struct sim_report report, again;
        options.seed = (uint64_t)i;
        options.tune_one_in = one_in[i % 3];
        if (!sim_run_seed(os_host(), &options, &report))
            fail_msg("seed %d, one in %u: %s", i, options.tune_one_in, report.text);
        sums.tunings += report.tunings;
        sums.tuned_alike += report.tuned_alike;
        sums.plan_starts += report.plan_starts;
        sums.plan_breaks += report.plan_breaks;
        if (i % 20 != 0)
            continue;
        assert_true(sim_run_seed(os_host(), &options, &again));
        assert_true(report.hash == again.hash);
    }
    assert_true(sums.tunings > SEEDS && sums.tuned_alike > sums.tunings);
    return sums;
}

static void test_without_faults(void **state)
{
    (void)state;
    run_seeds((struct sim_program_options){.sight = 0});
}

static void test_with_faults(void **state)
{
    (void)state;
    run_seeds((struct sim_program_options){.sight = 0, .has_faults = true});
}

/* One machine: plans start, and a change of the tunables ends them. */
static void test_plans(void **state)
{
    (void)state;
    struct sums sums = run_seeds((struct sim_program_options){.sight = 1});
    assert_true(sums.plan_starts > 0 && sums.plan_breaks > 0);
    run_seeds((struct sim_program_options){.sight = 1, .has_faults = true});
}

static void test_joins_and_new_sets(void **state)
{
    (void)state;
    run_seeds((struct sim_program_options){.sight = -1, .has_races = true});
}

/* ---- the autotuner ---- */

static void step(struct job *job)
{
    static float data[3][2][8];
    struct ticket *tickets[3][2];
    for (int32_t r = 0; r < 3; r++)
        for (int i = 0; i < 2; i++)
            tickets[r][i] = job_submit(job, r, HVD_ALLREDUCE, i == 0 ? "a" : "b", data[r][i], 8);
    job_run_for(job, 300000000);
    for (int32_t r = 0; r < 3; r++)
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ticket_status(tickets[r][i]), HVD_OK);
            ticket_seen(sim_world_engine(job->world, r), tickets[r][i]);
            ticket_release(sim_world_engine(job->world, r), tickets[r][i]);
        }
}

/* It tries values on all ranks, with plans and without, ends, and all ranks end with the same. */
static void test_autotune(void **state)
{
    (void)state;
    for (int sight = 0; sight < 2; sight++) {
        struct job job;
        job_defaults(&job);
        job.config.autotune = true;
        job.config.autotune_warmup_samples = 1;
        job.config.autotune_steps_per_sample = 1;
        job.config.autotune_bayes_opt_max_samples = 3;
        job_open(&job, os_host(),
                 (struct sim_world_options){
                     .ranks = 3, .seed = 1, .delay_max_ns = 1000, .is_in_sight = sight != 0});
        for (int i = 0; i < 300; i++)
            step(&job);
        struct tunables first = *engine_tunables(sim_world_engine(job.world, 0));
        assert_in_range(first.version, 4, 4 + 2 * 5);
        for (int i = 0; i < 20; i++)
            step(&job);
        for (int32_t r = 0; r < 3; r++)
            assert_memory_equal(&first, engine_tunables(sim_world_engine(job.world, r)),
                                sizeof first);
        assert_null(sim_world_violation(job.world));
        sim_world_destroy(job.world);
    }
}

/* ---- what is refused ---- */

struct seen {
    uint64_t version[2];
    int64_t flows[2];
};

static void on_tuned(void *ctx, int32_t rank, int32_t set, const struct tunables *t,
                     uint64_t position)
{
    struct seen *seen = ctx;
    assert_int_equal(set, 0);
    assert_int_equal(position, 0);
    assert_true(t->version > seen->version[rank]);
    seen->version[rank] = t->version;
    seen->flows[rank] = t->flows;
}

static void test_asking(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct error error = {0};
    struct sim_world_options options = {
        .seed = 1, .ranks = 2, .delay_max_ns = 1000, .tuned = on_tuned, .ctx = &seen};
    struct sim_world *world = sim_world_create(os_host(), &options, &error);
    assert_non_null(world);
    struct engine *first = sim_world_engine(world, 0);
    struct tunables t = *engine_tunables(first);
    assert_int_equal(t.version, 0);
    assert_int_equal(t.flows, 4);
    assert_int_equal(engine_tune(sim_world_engine(world, 1), &t, &error), HVD_ERR_INVALID);
    assert_string_equal(error.text, "Only rank 0 can tune, not rank 1.");
    static const struct tunables bad[] = {
        {.fusion_threshold_bytes = -1, .flows = 1, .threshold_percent = 1},
        {.cycle_time_ns = -1, .flows = 1, .threshold_percent = 1},
        {.spin_ns = -2, .flows = 1, .threshold_percent = 1},
        {.flows = 0, .threshold_percent = 1},
        {.flows = 33, .threshold_percent = 1},
        {.flows = 1, .threshold_percent = 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error_clear(&error);
        assert_int_equal(engine_tune(first, &bad[i], &error), HVD_ERR_INVALID);
        assert_non_null(strstr(error.text, "can't be"));
    }
    t.flows = 7;
    t.version = 1234; /* is given, not taken */
    assert_int_equal(engine_tune(first, &t, &error), HVD_OK);
    assert_int_equal(engine_tunables(first)->flows, 4); /* not before its place has come */
    sim_world_wake(world, 0, 0);
    while (sim_world_step(world, 1000000000) && seen.version[1] == 0)
        continue;
    assert_true(seen.version[0] == 1 && seen.version[1] == 1);
    assert_true(seen.flows[0] == 7 && seen.flows[1] == 7);
    assert_int_equal(engine_tunables(sim_world_engine(world, 1))->flows, 7);
    sim_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults), cmocka_unit_test(test_with_faults),
        cmocka_unit_test(test_plans),          cmocka_unit_test(test_joins_and_new_sets),
        cmocka_unit_test(test_autotune),       cmocka_unit_test(test_asking)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
