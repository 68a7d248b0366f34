/* SPDX-License-Identifier: Apache-2.0 */
/* test_tuner.c - the tuner finds better values where there are any, returns to the start values
 * where there are none, always ends, and leaves alone what it may not vary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/tuner.h"

#define MB 1048576.0

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 0.5) / 9007199254740992.0;
}

static double noise(double sigma)
{
    return 1 + sigma * sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

struct hill { /* scores fall with the distance from a best point */
    double fusion_mb, cycle_ms, width, height;
};

static double score_of(const struct hill *hill, const struct tunables *t)
{
    double fusion = ((double)t->fusion_threshold_bytes / MB - hill->fusion_mb) / 64;
    double cycle = log((double)t->cycle_time_ns / 1e6 / hill->cycle_ms) / log(100);
    double distance = (fusion * fusion + cycle * cycle) / (hill->width * hill->width);
    return 100 * (1 + hill->height * exp(-distance));
}

static struct tuner_options options_of(void)
{
    return (struct tuner_options){.start = {.fusion_threshold_bytes = 128 << 20,
                                            .cycle_time_ns = 1000000,
                                            .spin_ns = -1,
                                            .flows = 4,
                                            .threshold_percent = 100},
                                  .warmup_samples = 3,
                                  .search_samples = 20,
                                  .noise = 0.8,
                                  .has_fusion = true,
                                  .has_cycle = true};
}

/* Returns how many samples it took. */
static int run(struct tuner *tuner, const struct hill *hill, double sigma)
{
    int samples = 0;
    for (; tuner->phase != TUNER_DONE; samples++) {
        assert_true(samples < 1000);
        struct tunables before = tuner->now;
        if (!tuner_take(tuner, score_of(hill, &tuner->now) * noise(sigma)))
            assert_memory_equal(&before, &tuner->now, sizeof before);
    }
    assert_false(tuner_take(tuner, 1));
    return samples;
}

static void test_finds_better(void **state)
{
    (void)state;
    struct tuner tuner;
    struct tuner_options options = options_of();
    double found = 0;
    for (int i = 1; i <= 40; i++) {
        seed = (uint64_t)i;
        struct hill hill = {.fusion_mb = 4 + 40 * uniform(),
                            .cycle_ms = 2 + 20 * uniform(),
                            .width = 0.5,
                            .height = 1};
        tuner_init(&tuner, &options);
        int samples = run(&tuner, &hill, 0.02);
        assert_in_range(samples, 3 + 21, 3 + 21 + 2 * TUNER_ROUNDS);
        assert_true(score_of(&hill, &tuner.now) >= score_of(&hill, &options.start));
        found += (score_of(&hill, &tuner.now) / 100 - 1) / 40;
    }
    assert_true(found > 0.9); /* of the 1 that is there to be found, on average */
}

/* Nothing to gain, only noise: back to the start, or at least not below it. */
static void test_returns_to_start(void **state)
{
    (void)state;
    struct tuner tuner;
    struct tuner_options options = options_of();
    int changed = 0;
    for (int i = 1; i <= 200; i++) {
        seed = (uint64_t)i;
        struct hill flat = {.fusion_mb = 1, .cycle_ms = 1, .width = 1, .height = 0};
        tuner_init(&tuner, &options);
        run(&tuner, &flat, 0.05);
        changed += tuner.now.cycle_time_ns != options.start.cycle_time_ns;
    }
    assert_true(changed < 30); /* equally good, so harmless */
    for (int i = 1; i <= 200; i++) {
        seed = (uint64_t)i;
        /* The start values are far better than everything else. */
        struct hill hill = {.fusion_mb = 128, .cycle_ms = 1, .width = 0.3, .height = 0.5};
        tuner_init(&tuner, &options);
        run(&tuner, &hill, 0.05);
        assert_true(score_of(&hill, &tuner.now) > 0.95 * score_of(&hill, &options.start));
    }
}

static void test_varies_what_it_may(void **state)
{
    (void)state;
    struct tuner tuner;
    struct tuner_options options = options_of();
    struct hill hill = {.fusion_mb = 8, .cycle_ms = 10, .width = 0.5, .height = 1};
    options.has_fusion = false;
    tuner_init(&tuner, &options);
    while (tuner.phase != TUNER_DONE) {
        assert_int_equal(tuner.now.fusion_threshold_bytes, options.start.fusion_threshold_bytes);
        assert_true(tuner.now.flows == 4 && tuner.now.threshold_percent == 100);
        tuner_take(&tuner, score_of(&hill, &tuner.now));
    }
    options.has_cycle = false; /* nothing is left */
    tuner_init(&tuner, &options);
    assert_int_equal(tuner.phase, TUNER_DONE);
    options = options_of();
    options.has_flows = options.has_threshold = true;
    tuner_init(&tuner, &options);
    while (tuner.phase != TUNER_DONE) {
        assert_in_range(tuner.now.fusion_threshold_bytes, 0, 128 << 20);
        assert_in_range(tuner.now.cycle_time_ns, 1000000, 100000000);
        assert_in_range(tuner.now.flows, 1, 8);
        assert_in_range(tuner.now.threshold_percent, 25, 400);
        tuner_take(&tuner, tuner.now.flows == 1 ? 2 : 1);
    }
    assert_int_equal(tuner.now.flows, 1);
}

/* Values of an earlier job are confirmed without a search, and refused if they are worse. */
static void test_known(void **state)
{
    (void)state;
    struct tuner tuner;
    struct tuner_options options = options_of();
    struct hill hill = {.fusion_mb = 8, .cycle_ms = 10, .width = 0.5, .height = 1};
    struct tunables good = options.start, bad = options.start;
    good.fusion_threshold_bytes = 8 << 20;
    good.cycle_time_ns = 10000000;
    bad.cycle_time_ns = 100000000;
    seed = 1;
    tuner_init(&tuner, &options);
    tuner_know(&tuner, &good);
    assert_int_equal(run(&tuner, &hill, 0.02), 3 + 1 + 2 * TUNER_ROUNDS);
    assert_int_equal(tuner.now.cycle_time_ns, good.cycle_time_ns);
    hill = (struct hill){.fusion_mb = 128, .cycle_ms = 1, .width = 0.5, .height = 1};
    tuner_init(&tuner, &options);
    tuner_know(&tuner, &bad);
    run(&tuner, &hill, 0.02);
    assert_int_equal(tuner.now.cycle_time_ns, options.start.cycle_time_ns);
}

/* Scores that mean nothing still end it. */
static void test_odd_scores(void **state)
{
    (void)state;
    static const double scores[] = {0, 1e300, 1e-300};
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) {
        struct tuner tuner;
        struct tuner_options options = options_of();
        int samples = 0;
        options.search_samples = 1000000; /* more than fit */
        tuner_init(&tuner, &options);
        for (; tuner.phase != TUNER_DONE; samples++)
            tuner_take(&tuner, scores[i]);
        assert_in_range(samples, 1, 3 + SEARCH_POINTS_MAX + 2 * TUNER_ROUNDS);
        assert_int_equal(tuner.now.cycle_time_ns, options.start.cycle_time_ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_better),       cmocka_unit_test(test_returns_to_start),
        cmocka_unit_test(test_varies_what_it_may), cmocka_unit_test(test_known),
        cmocka_unit_test(test_odd_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
