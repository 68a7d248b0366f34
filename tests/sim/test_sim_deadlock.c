/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_deadlock.c - ranks that wait for each other end with an error that names all of them,
 * and ranks that only wait for a slow message never do: every rank claims to wait at every turn, on
 * trees of several levels, with messages that take longer than the engine takes to be sure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_private.h"
#include "sim_job.h"

#define MS        1000000LL
#define RANKS_MAX 8
#define OPS       4
#define STEPS     12
#if HVD_TEST_QUICK
#define SEEDS 10
#else
#define SEEDS 150
#endif

struct bed {
    struct job job;
    float data[RANKS_MAX][OPS][4];
    struct ticket *tickets[RANKS_MAX][OPS];
    int counts[RANKS_MAX];
    uint64_t random;
    int steps[RANKS_MAX];
    bool is_wrong;
};

static void on_turn(void *ctx, int32_t rank);

static void open_bed(struct bed *bed, int32_t ranks, int32_t hosts, uint64_t seed, int64_t delay_ns,
                     bool is_programmed)
{
    memset(bed, 0, sizeof *bed);
    bed->random = seed;
    job_defaults(&bed->job);
    bed->job.config.hung_error_s = bed->job.config.hung_warn_s = 0;
    bed->job.config.plan_warmup_steps = 2;
    job_open(&bed->job, os_host(),
             (struct sim_world_options){.ranks = ranks,
                                        .hosts = hosts,
                                        .seed = seed,
                                        .delay_max_ns = delay_ns,
                                        .turn = is_programmed ? on_turn : NULL,
                                        .ctx = bed});
}

static struct engine *engine_of(struct bed *bed, int32_t rank)
{
    return sim_world_engine(bed->job.world, rank);
}

static void submit(struct bed *bed, int32_t rank, hvd_kind_t kind, const char *name)
{
    int k = bed->counts[rank]++;
    bed->tickets[rank][k] = job_submit(&bed->job, rank, kind, name, bed->data[rank][k], 4);
}

/* As a process whose threads wait for all of them. */
static void claim(struct bed *bed, int32_t rank, const char *where)
{
    deadlock_claim(engine_of(bed, rank), (const struct ticket *const *)bed->tickets[rank],
                   bed->counts[rank], where);
}

static void claim_all(struct bed *bed)
{
    for (int32_t r = 0; r < bed->job.ranks; r++) {
        char where[32];
        snprintf(where, sizeof where, "train.py:%d in step", 10 + r);
        claim(bed, r, where);
    }
}

static void expect_all(struct bed *bed, int32_t status)
{
    for (int32_t r = 0; r < bed->job.ranks; r++)
        for (int k = 0; k < bed->counts[r]; k++)
            if (state_of(bed->tickets[r][k]) != status)
                fail_msg("rank %d, op %d: %d (%s)", r, k, state_of(bed->tickets[r][k]),
                         ticket_error(bed->tickets[r][k]));
}

/* ---- deadlocks ---- */

static void rank_alone(int32_t ranks, int32_t hosts, int32_t odd)
{
    struct bed bed;
    char part[64];
    open_bed(&bed, ranks, hosts, 3, 20 * MS, false);
    for (int32_t r = 0; r < ranks; r++)
        submit(&bed, r, HVD_ALLREDUCE, r == odd ? "extra" : "after");
    job_run_for(&bed.job, 300 * MS);
    claim_all(&bed);
    expect_all(&bed, HVD_IN_PROGRESS);
    job_run_for(&bed.job, 5000 * MS);
    expect_all(&bed, HVD_ERR_PEER_HUNG);
    const char *text = ticket_error(bed.tickets[ranks - 1][0]);
    snprintf(part, sizeof part, "rank %d waits for extra at train.py:%d in step", odd, 10 + odd);
    assert_non_null(strstr(text, part));
    assert_non_null(strstr(text, " for after at train.py:"));
    for (int32_t r = 0; r < ranks; r++)
        assert_int_equal(engine_of(&bed, r)->culprit, r == odd ? -1 : odd);
    sim_world_destroy(bed.job.world);
}

static void test_rank_alone(void **state)
{
    (void)state;
    rank_alone(3, 1, 0);
    rank_alone(3, 1, 2);
    rank_alone(8, 8, 5);
    rank_alone(8, 3, 7);
}

/* Both ops are cached: they are announced by id, which does not name the ranks. */
static void test_other_order(void **state)
{
    struct bed bed;
    (void)state;
    open_bed(&bed, 4, 4, 1, MS, false);
    for (int round = 0; round < 3; round++) {
        for (int32_t r = 0; r < 4; r++) {
            submit(&bed, r, HVD_ALLREDUCE, "a");
            submit(&bed, r, HVD_ALLREDUCE, "b");
        }
        job_run_for(&bed.job, 500 * MS);
        expect_all(&bed, HVD_OK);
        for (int32_t r = 0; r < 4; r++) {
            for (int k = 0; k < 2; k++)
                ticket_release(engine_of(&bed, r), bed.tickets[r][k]);
            bed.counts[r] = 0;
        }
    }
    for (int32_t r = 0; r < 4; r++)
        submit(&bed, r, HVD_ALLREDUCE, r == 1 ? "b" : "a");
    job_run_for(&bed.job, 1000 * MS);
    claim_all(&bed);
    job_run_for(&bed.job, 8000 * MS);
    expect_all(&bed, HVD_ERR_PEER_HUNG);
    sim_world_destroy(bed.job.world);
}

/* A rank that has joined waits too; what the two others wait for is not the same. */
static void test_joined_rank(void **state)
{
    struct bed bed;
    (void)state;
    open_bed(&bed, 3, 1, 1, MS, false);
    submit(&bed, 0, HVD_JOIN, NULL);
    submit(&bed, 1, HVD_ALLREDUCE, "a");
    submit(&bed, 2, HVD_ALLREDUCE, "b");
    job_run_for(&bed.job, 300 * MS);
    claim_all(&bed);
    job_run_for(&bed.job, 5000 * MS);
    expect_all(&bed, HVD_ERR_PEER_HUNG);
    sim_world_destroy(bed.job.world);
}

/* ---- no deadlocks ---- */

static void test_one_rank_works(void **state)
{
    struct bed bed;
    (void)state;
    for (int32_t busy = 0; busy < 3; busy++) {
        open_bed(&bed, 3, 3, 1, MS, false);
        for (int32_t r = 0; r < 3; r++)
            submit(&bed, r, HVD_ALLREDUCE, r == busy ? "other" : "late");
        job_run_for(&bed.job, 100 * MS);
        for (int32_t r = 0; r < 3; r++)
            if (r != busy)
                claim(&bed, r, "");
        job_run_for(&bed.job, 20000 * MS); /* the busy one has two threads */
        expect_all(&bed, HVD_IN_PROGRESS);
        submit(&bed, busy, HVD_ALLREDUCE, "late");
        for (int32_t r = 0; r < 3; r++)
            if (r != busy)
                submit(&bed, r, HVD_ALLREDUCE, "other");
        job_run_for(&bed.job, 1000 * MS);
        expect_all(&bed, HVD_OK);
        sim_world_destroy(bed.job.world);
    }
}

/* A claim ends with the next submit, and does not come back by itself. */
static void test_claim_ends(void **state)
{
    struct bed bed;
    (void)state;
    open_bed(&bed, 2, 1, 1, MS, false);
    submit(&bed, 0, HVD_ALLREDUCE, "a");
    submit(&bed, 1, HVD_ALLREDUCE, "b");
    job_run_for(&bed.job, 100 * MS);
    claim_all(&bed);
    submit(&bed, 1, HVD_ALLREDUCE, "c");
    job_run_for(&bed.job, 20000 * MS);
    expect_all(&bed, HVD_IN_PROGRESS);
    sim_world_destroy(bed.job.world);
}

/* The user wants to wait for ever, or wants no check. */
static void test_switched_off(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct bed bed;
        open_bed(&bed, 2, 1, 1, MS, false);
        for (int32_t r = 0; r < 2; r++) {
            struct config *config = (struct config *)(uintptr_t)engine_of(&bed, r)->config;
            config->stall_check_disable = i == 0;
            config->stall_shutdown_time_s = i == 0 ? 1800 : 0;
        }
        submit(&bed, 0, HVD_ALLREDUCE, "a");
        submit(&bed, 1, HVD_ALLREDUCE, "b");
        job_run_for(&bed.job, 100 * MS);
        claim_all(&bed);
        job_run_for(&bed.job, 20000 * MS);
        expect_all(&bed, HVD_IN_PROGRESS);
        sim_world_destroy(bed.job.world);
    }
}

/* ---- healthy programs that claim whenever they can ---- */

static uint32_t draw(struct bed *bed, uint32_t below)
{
    bed->random = bed->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(bed->random >> 33) % below;
}

/* All ops of a step, in another order on each rank. */
static void submit_step(struct bed *bed, int32_t rank)
{
    int first = (int)draw(bed, OPS);
    bed->counts[rank] = 0;
    for (int k = 0; k < OPS; k++) {
        char name[32];
        int op = (first + k) % OPS;
        snprintf(name, sizeof name, op == 0 ? "once.%d.%d" : "op.%d", op, bed->steps[rank]);
        submit(bed, rank, HVD_ALLREDUCE, name);
    }
}

static void on_turn(void *ctx, int32_t rank)
{
    struct bed *bed = ctx;
    int open = 0;
    for (int k = 0; k < bed->counts[rank]; k++) {
        int32_t status = state_of(bed->tickets[rank][k]);
        bed->is_wrong = bed->is_wrong || status < 0;
        open += status == HVD_IN_PROGRESS;
    }
    if (open == bed->counts[rank] && open > 0)
        claim(bed, rank, "");
    if (open > 0 || bed->steps[rank] == STEPS || bed->is_wrong)
        return;
    for (int k = 0; k < bed->counts[rank]; k++)
        ticket_release(engine_of(bed, rank), bed->tickets[rank][k]);
    bed->counts[rank] = 0;
    if (bed->steps[rank]++ < STEPS - 1)
        submit_step(bed, rank);
}

static void test_healthy_never_ends(void **state)
{
    static const int64_t delays_ms[] = {1, 300, 900, 2500};
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct bed bed;
        int32_t ranks = 2 + (int32_t)(seed % (RANKS_MAX - 1)), hosts = 1 + (int32_t)(seed % 4);
        open_bed(&bed, ranks, hosts < ranks ? hosts : ranks, seed, delays_ms[seed / 7 % 4] * MS,
                 true);
        for (int32_t r = 0; r < ranks; r++)
            submit_step(&bed, r);
        job_run_for(&bed.job, 600000 * MS);
        for (int32_t r = 0; r < ranks; r++)
            if (bed.is_wrong || bed.steps[r] != STEPS)
                fail_msg("seed %d, rank %d: step %d: %s", (int)seed, r, bed.steps[r],
                         bed.counts[r] > 0 ? ticket_error(bed.tickets[r][0]) : "");
        sim_world_destroy(bed.job.world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_alone),         cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_joined_rank),        cmocka_unit_test(test_one_rank_works),
        cmocka_unit_test(test_claim_ends),         cmocka_unit_test(test_switched_off),
        cmocka_unit_test(test_healthy_never_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
