/* SPDX-License-Identifier: Apache-2.0 */
/* test_pace.c - slow ranks are named within ten steps, with the cause, and noise names none:
 * 10,000 steps of several kinds of noise, with several numbers of ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/os.h"
#include "engine/pace.h"

#define ALONE_NS 100e6
#define MOVE_NS  20e6
#define RANKS    16

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

enum noise { EVEN, HEAVY, SLUGGISH, PAUSES };

struct scene {
    int32_t size;
    enum noise noise;
    double sigma;
    double drift[RANKS];
};

/* A factor around 1 by which a rank's time in a step varies. */
static double factor(struct scene *s, int32_t rank)
{
    switch (s->noise) {
    case EVEN: return 1 + s->sigma * normal();
    case HEAVY: return exp(s->sigma * normal() * (uniform() < 0.1 ? 4 : 1));
    case SLUGGISH:
        s->drift[rank] = 0.5 * s->drift[rank] + s->sigma * 0.87 * normal();
        return 1 + s->drift[rank];
    case PAUSES: return (1 + s->sigma * normal()) * (uniform() < 0.02 ? 8 : 1);
    }
    return 1;
}

struct told {
    struct pace_verdict *last;
    int count;
};

static void on_verdict(void *ctx, const struct pace_verdict *verdict)
{
    struct told *told = ctx;
    *told->last = *verdict;
    told->count++;
}

/* One step of all ranks: all of them take as long as the slowest. Returns the verdicts. */
static int step(struct pace *pace, struct scene *s, int32_t slow, double by, int32_t link,
                struct pace_verdict *ret)
{
    double alone[RANKS], longest = 0;
    for (int32_t i = 0; i < s->size; i++) {
        alone[i] = fmax(ALONE_NS * factor(s, i) * (i == slow ? 1 + by : 1), 1e6);
        longest = fmax(longest, alone[i]);
    }
    for (int32_t i = 0; i < s->size; i++) {
        double move_ns = MOVE_NS * fmax(0.1, 1 + 0.2 * normal()) + (link >= 0 ? by * ALONE_NS : 0);
        int32_t other = link >= 0 && i != link ? link : (int32_t)(uniform() * s->size);
        struct pace_sample sample = {.step_ns = longest + move_ns,
                                     .alone_ns = alone[i],
                                     .awaits_ns = i == link ? MOVE_NS : move_ns,
                                     .awaits_rank = other};
        pace_take(pace, i, &sample);
    }
    struct told told = {.last = ret};
    pace_judge(pace, on_verdict, &told);
    return told.count;
}

static const int32_t sizes[] = {2, 3, 4, 16};

static void test_no_false_alarm(void **state)
{
    (void)state;
    static const struct {
        enum noise noise;
        double sigma;
    } kinds[] = {{EVEN, 0.01}, {EVEN, 0.05},     {EVEN, 0.2},      {HEAVY, 0.05},
                 {HEAVY, 0.1}, {SLUGGISH, 0.03}, {SLUGGISH, 0.05}, {PAUSES, 0.05}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            struct scene s = {.size = sizes[n], .noise = kinds[k].noise, .sigma = kinds[k].sigma};
            struct pace pace;
            struct pace_verdict verdict;
            seed = k * 100 + n + 1;
            assert_true(pace_init(&pace, os_host(), s.size));
            for (int i = 0; i < 10000; i++)
                if (step(&pace, &s, -1, 0, -1, &verdict) > 0)
                    fail_msg("noise %d, sigma %.2f, %d ranks: step %d names rank %d (%s)",
                             (int)s.noise, s.sigma, s.size, i, verdict.rank,
                             pace_cause_name(verdict.cause));
            pace_destroy(&pace);
        }
}

/* After 100 even steps a rank becomes slow, then fast again. Returns the steps until it is named,
 * or 0. */
static int steps_until_named(int32_t size, double sigma, double by, bool is_link)
{
    struct scene s = {.size = size, .noise = EVEN, .sigma = sigma};
    struct pace pace;
    struct pace_verdict v = {0};
    int32_t slow = size - 1;
    int named = 0;
    assert_true(pace_init(&pace, os_host(), size));
    for (int i = 0; i < 100; i++)
        assert_int_equal(step(&pace, &s, -1, 0, -1, &v), 0);
    for (int i = 1; i <= 40 && named == 0; i++)
        if (step(&pace, &s, is_link ? -1 : slow, by, is_link ? slow : -1, &v) > 0) {
            assert_int_equal(v.rank, slow);
            assert_int_equal(v.cause, is_link ? PACE_LATE_TRANSFER : PACE_LATE_SUBMIT);
            assert_true(v.own_ns > v.typical_ns);
            named = i;
        }
    for (int i = 0; i < 100 && named > 0; i++) /* named once */
        assert_int_equal(step(&pace, &s, is_link ? -1 : slow, by, is_link ? slow : -1, &v), 0);
    int cleared = 0;
    for (int i = 0; i < 40 && named > 0; i++)
        cleared += step(&pace, &s, -1, 0, -1, &v);
    assert_int_equal(cleared, named > 0 ? 1 : 0);
    assert_true(named == 0 || v.cause == PACE_FINE);
    pace_destroy(&pace);
    return named;
}

static void test_slow_rank(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int run = 1; run <= 50; run++) {
            seed = (uint64_t)run * 977 + n;
            int steps = steps_until_named(sizes[n], 0.02, 0.2, false);
            assert_in_range(steps, 1, 10);
            steps = steps_until_named(sizes[n], 0.02, 0.5, false);
            assert_in_range(steps, 1, 10);
        }
}

static void test_slow_link(void **state)
{
    (void)state;
    for (size_t n = 1; n < sizeof sizes / sizeof *sizes; n++)
        for (int run = 1; run <= 20; run++) {
            seed = (uint64_t)run * 31 + n;
            int steps = steps_until_named(sizes[n], 0.02, 0.5, true);
            assert_in_range(steps, 1, 12); /* the sums of a rank lag by a sample */
        }
}

/* A little slower than the limit, or a part of the step that is too small to matter: silence. */
static void test_not_worth_it(void **state)
{
    (void)state;
    for (int run = 1; run <= 20; run++) {
        seed = (uint64_t)run;
        assert_int_equal(steps_until_named(4, 0.01, 0.08, false), 0);
    }
    struct pace pace;
    struct pace_verdict v;
    assert_true(pace_init(&pace, os_host(), 2));
    struct told told = {.last = &v};
    for (int i = 0; i < 200; i++) {
        for (int32_t r = 0; r < 2; r++) {
            struct pace_sample sample = {
                .step_ns = 100e6, .alone_ns = r == 1 ? 2e6 : 1e6, .awaits_rank = -1};
            pace_take(&pace, r, &sample);
        }
        pace_judge(&pace, on_verdict, &told);
    }
    assert_int_equal(told.count, 0);
    pace_destroy(&pace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_false_alarm),
        cmocka_unit_test(test_slow_rank),
        cmocka_unit_test(test_slow_link),
        cmocka_unit_test(test_not_worth_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
