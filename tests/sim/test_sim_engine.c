/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_engine.c - single situations of the engine on simulated ranks, most of them found by
 * seeds of the simulator: each has its own test, so that it stays fixed when programs change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim_job.h"

#define MS        1000000LL
#define RANKS_MAX 8
#define FLOATS    32

static void release(struct job *job, int32_t rank, struct ticket *ticket)
{
    ticket_release(sim_world_engine(job->world, rank), ticket);
}

static void fill(float *data, float value)
{
    for (int i = 0; i < FLOATS; i++)
        data[i] = value;
}

/* All ranks reduce `name`, and all get the sum. */
static void reduce_once(struct job *job, const char *name)
{
    float data[RANKS_MAX][FLOATS];
    struct ticket *tickets[RANKS_MAX];
    for (int32_t r = 0; r < job->ranks; r++) {
        fill(data[r], (float)(r + 1));
        tickets[r] = job_submit(job, r, HVD_ALLREDUCE, name, data[r], FLOATS);
    }
    job_run_for(job, 300 * MS);
    for (int32_t r = 0; r < job->ranks; r++) {
        assert_int_equal(state_of(tickets[r]), HVD_OK);
        assert_true(data[r][FLOATS - 1] == (float)(job->ranks * (job->ranks + 1) / 2));
        release(job, r, tickets[r]);
    }
}

/* What every rank has announced in full is ready; a full cache must not throw it away. */
static void test_small_cache_loses_nothing(void **state)
{
    (void)state;
    struct job job;
    float data[2][6][FLOATS] = {0};
    struct ticket *tickets[2][6];
    job_defaults(&job);
    job.config.cache_capacity = 1;
    job.config.cycle_time_ms = 5;
    job_open(&job, os_host(),
             (struct sim_world_options){.ranks = 2, .seed = 1, .delay_max_ns = 1000});
    for (int turn = 0; turn < 3; turn++) {
        for (int32_t r = 0; r < 2; r++)
            for (int i = 0; i < 6; i++) {
                char name[8];
                snprintf(name, sizeof name, "t%d", i);
                tickets[r][i] = job_submit(&job, r, HVD_ALLREDUCE, name, data[r][i], FLOATS);
            }
        job_run_for(&job, 1000 * MS);
        for (int32_t r = 0; r < 2; r++)
            for (int i = 0; i < 6; i++) {
                assert_int_equal(state_of(tickets[r][i]), HVD_OK);
                release(&job, r, tickets[r][i]);
            }
    }
    sim_world_destroy(job.world);
}

/* A join makes all ids void; what was ready but not yet handed out must not go with them. */
static void test_join_behind_ready(void **state)
{
    (void)state;
    struct job job;
    float data[3][FLOATS];
    struct ticket *tickets[3], *joins[3];
    job_defaults(&job);
    job.config.cycle_time_ms = 50;
    job_open(&job, os_host(),
             (struct sim_world_options){.ranks = 3, .seed = 1, .delay_max_ns = 1000});
    for (int32_t r = 0; r < 3; r++) {
        fill(data[r], 1);
        tickets[r] = job_submit(&job, r, HVD_ALLREDUCE, "a", data[r], FLOATS);
    }
    job_run_for(&job, 10 * MS);
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(state_of(tickets[r]), HVD_IN_PROGRESS);
        joins[r] = job_submit(&job, r, HVD_JOIN, NULL, NULL, 0);
    }
    job_run_for(&job, 1000 * MS);
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(state_of(tickets[r]), HVD_OK);
        assert_int_equal(state_of(joins[r]), HVD_OK);
        assert_true(data[r][0] == 3.0f);
        release(&job, r, tickets[r]);
        release(&job, r, joins[r]);
    }
    reduce_once(&job, "a");
    sim_world_destroy(job.world);
}

static void gather_once(struct job *job)
{
    float data[RANKS_MAX][FLOATS] = {0};
    struct ticket *tickets[RANKS_MAX];
    for (int32_t r = 0; r < job->ranks; r++)
        tickets[r] = job_submit(job, r, HVD_ALLGATHER, "g", data[r], 1);
    job_run_for(job, 100 * MS);
    for (int32_t r = 0; r < job->ranks; r++) {
        assert_int_equal(state_of(tickets[r]), HVD_OK);
        release(job, r, tickets[r]);
    }
}

/* One rank starts a planned batch, the other can't follow: it is cancelled and comes again. */
static void test_cancelled_plan_gives_memory_back(void **state)
{
    (void)state;
    struct job job;
    uint64_t live_before, live_after, total;
    float data[2][2][FLOATS] = {0};
    os_host_alloc_counts(&live_before, &total);
    job_defaults(&job);
    job.config.plan_warmup_steps = 2;
    job_open(&job, os_host(),
             (struct sim_world_options){
                 .ranks = 2, .seed = 1, .delay_max_ns = 1000, .is_in_sight = true});
    for (int i = 0; i < 6; i++)
        gather_once(&job);
    assert_true(engine_stats(sim_world_engine(job.world, 0))->batches_planned > 0);
    struct ticket *g0 = job_submit(&job, 0, HVD_ALLGATHER, "g", data[0][0], 1);
    job_run_for(&job, MS);
    struct ticket *a1 = job_submit(&job, 1, HVD_ALLREDUCE, "a", data[1][1], FLOATS);
    job_run_for(&job, 100 * MS);
    assert_int_equal(state_of(g0), HVD_IN_PROGRESS);
    struct ticket *a0 = job_submit(&job, 0, HVD_ALLREDUCE, "a", data[0][1], FLOATS);
    struct ticket *g1 = job_submit(&job, 1, HVD_ALLGATHER, "g", data[1][0], 1);
    job_run_for(&job, 1000 * MS);
    assert_int_equal(state_of(a0), HVD_OK);
    assert_int_equal(state_of(a1), HVD_OK);
    assert_int_equal(state_of(g0), HVD_OK);
    assert_int_equal(state_of(g1), HVD_OK);
    assert_int_equal(engine_stats(sim_world_engine(job.world, 0))->plan_breaks, 1);
    assert_null(sim_world_violation(job.world));
    release(&job, 0, g0);
    release(&job, 0, a0);
    release(&job, 1, g1);
    release(&job, 1, a1);
    sim_world_destroy(job.world);
    os_host_alloc_counts(&live_after, &total);
    assert_true(live_before == live_after);
}

/* Ranks leave a broken plan at different times; the first ones' new announcements make ids of the
 * plan void while the last one is still in it. */
static void test_plan_left_late(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct job job;
        float data[4][FLOATS] = {0};
        struct ticket *tickets[4];
        job_defaults(&job);
        job.config.plan_warmup_steps = 2;
        job_open(&job, os_host(),
                 (struct sim_world_options){.ranks = 4,
                                            .seed = seed,
                                            .delay_max_ns = 10000,
                                            .turn_max_ns = 500000,
                                            .is_in_sight = true});
        for (int i = 0; i < 6; i++)
            reduce_once(&job, "a");
        assert_true(engine_stats(sim_world_engine(job.world, 3))->batches_planned > 0);
        for (int32_t r = 0; r < 4; r++)
            tickets[r] = job_submit(&job, r, HVD_ALLREDUCE, "a", data[r], FLOATS / 2);
        job_run_for(&job, 1000 * MS);
        for (int32_t r = 0; r < 4; r++) {
            assert_int_equal(state_of(tickets[r]), HVD_OK);
            release(&job, r, tickets[r]);
        }
        assert_null(sim_world_violation(job.world));
        sim_world_destroy(job.world);
    }
}

static void test_planned_step_sends_nothing(void **state)
{
    (void)state;
    struct job job;
    job_defaults(&job);
    job.config.slow_rank_check_disable = true; /* else a report every 100 ms */
    job_open(&job, os_host(),
             (struct sim_world_options){
                 .ranks = 8, .seed = 1, .delay_max_ns = 1000, .is_in_sight = true});
    for (int i = 0; i < 10; i++)
        reduce_once(&job, "a");
    uint64_t before = sim_net_messages(sim_world_net(job.world));
    uint64_t planned = engine_stats(sim_world_engine(job.world, 0))->batches_planned;
    for (int i = 0; i < 100; i++)
        reduce_once(&job, "a");
    assert_true(sim_net_messages(sim_world_net(job.world)) == before);
    assert_true(engine_stats(sim_world_engine(job.world, 0))->batches_planned == planned + 100);
    sim_world_destroy(job.world);
}

/* Who has asked for shutdown is over also when the others can't agree any more. */
static void test_shutdown_asked_then_crash(void **state)
{
    (void)state;
    struct job job;
    job_defaults(&job);
    job_open(
        &job, os_host(),
        (struct sim_world_options){.ranks = 3, .seed = 1, .delay_min_ns = MS, .delay_max_ns = MS});
    job_run_for(&job, MS);
    engine_shutdown_ask(sim_world_engine(job.world, 1));
    sim_world_crash(job.world, 0);
    job_run_for(&job, 100 * MS);
    assert_true(engine_is_over(sim_world_engine(job.world, 1)));
    sim_world_destroy(job.world);
}

/* A survivor gets its memory back with the error: nothing may be read from or written to it any
 * more, whatever the others are still doing, and who gets a result gets the right one. */
static void test_memory_is_free_after_crash(void **state)
{
    (void)state;
    for (int64_t at_ns = 0; at_ns < 400000; at_ns += 10000) {
        enum { COUNT = 4096 };
        static float data[5][COUNT];
        struct job job;
        struct ticket *tickets[5];
        bool is_ended[5] = {false};
        job_defaults(&job);
        job_open(
            &job, os_host(),
            (struct sim_world_options){
                .ranks = 5, .seed = (uint64_t)at_ns, .delay_min_ns = 1000, .delay_max_ns = 100000});
        for (int32_t r = 0; r < 5; r++) {
            for (int i = 0; i < COUNT; i++)
                data[r][i] = 1;
            tickets[r] = job_submit(&job, r, HVD_ALLREDUCE, "a", data[r], COUNT);
            engine_wait_begin(sim_world_engine(job.world, r));
        }
        job_run_for(&job, at_ns);
        bool is_crashed = state_of(tickets[4]) == HVD_IN_PROGRESS;
        sim_world_crash(job.world, 4);
        while (sim_world_step(job.world, 1000 * MS))
            for (int32_t r = 0; r < 4; r++) {
                if (is_ended[r] || state_of(tickets[r]) == HVD_IN_PROGRESS)
                    continue;
                is_ended[r] = true;
                if (state_of(tickets[r]) == HVD_OK)
                    assert_true(data[r][0] == 5.0f && data[r][COUNT - 1] == 5.0f);
                for (int i = 0; i < COUNT; i++)
                    data[r][i] = -1000;
            }
        for (int32_t r = 0; r < 4; r++) {
            assert_true(is_ended[r]);
            if (is_crashed && state_of(tickets[r]) != HVD_OK) {
                assert_int_equal(state_of(tickets[r]), HVD_ERR_PEER_DEAD);
                assert_non_null(strstr(ticket_error(tickets[r]), "rank 4"));
            }
            for (int i = 0; i < COUNT; i++)
                assert_true(data[r][i] == -1000);
        }
        sim_world_destroy(job.world);
    }
}

static int32_t reduce_hanging(struct job *job, int32_t hung, int64_t after_ns)
{
    static float data[RANKS_MAX][FLOATS]; /* lent to the hung rank until the world ends */
    struct ticket *tickets[RANKS_MAX];
    char name[16];
    int32_t named = 0;
    for (int32_t r = 0; r < job->ranks; r++)
        tickets[r] = job_submit(job, r, HVD_ALLREDUCE, "a", data[r], FLOATS);
    job_run_for(job, after_ns);
    sim_world_hang(job->world, hung, true);
    job_run_for(job, 6000 * MS);
    snprintf(name, sizeof name, "rank %d", hung);
    for (int32_t r = 0; r < job->ranks; r++) {
        if (r == hung || state_of(tickets[r]) == HVD_OK)
            continue;
        assert_int_equal(state_of(tickets[r]), HVD_ERR_PEER_HUNG);
        assert_non_null(strstr(ticket_error(tickets[r]), name));
        named++;
    }
    return named;
}

/* A rank that hangs for good, also in the middle of a collective or of a plan, is named. */
static void test_hung_rank_is_named(void **state)
{
    (void)state;
    int32_t named = 0;
    for (int32_t i = 0; i < 48; i++) {
        struct job job;
        job_defaults(&job);
        job.config.hung_error_s = 3;
        job.config.plan_warmup_steps = 2;
        job_open(&job, os_host(),
                 (struct sim_world_options){.ranks = 4,
                                            .seed = (uint64_t)i,
                                            .delay_min_ns = MS / 10,
                                            .delay_max_ns = MS,
                                            .is_in_sight = i % 2 != 0});
        for (int k = 0; k < 6; k++)
            reduce_once(&job, "a");
        named += reduce_hanging(&job, i / 2 % 4, i / 8 * MS);
        sim_world_destroy(job.world);
    }
    assert_true(named > 20); /* the rest was over before */
}

/* A mismatch fails one op on all ranks, names them, and leaves no trace. */
static void test_mismatch_then_works(void **state)
{
    (void)state;
    struct job job;
    float data[4][FLOATS] = {0};
    struct ticket *tickets[4];
    job_defaults(&job);
    job_open(&job, os_host(),
             (struct sim_world_options){.ranks = 4, .seed = 1, .delay_max_ns = 1000});
    reduce_once(&job, "a");
    for (int32_t r = 0; r < 4; r++)
        tickets[r] = job_submit(&job, r, HVD_ALLREDUCE, "a", data[r], r == 2 ? FLOATS / 2 : FLOATS);
    job_run_for(&job, 1000 * MS);
    for (int32_t r = 0; r < 4; r++) {
        assert_int_equal(state_of(tickets[r]), HVD_ERR_MISMATCH);
        assert_non_null(strstr(ticket_error(tickets[r]), "tensor a"));
        assert_non_null(strstr(ticket_error(tickets[r]), "[32]"));
        assert_non_null(strstr(ticket_error(tickets[r]), "[16]"));
        release(&job, r, tickets[r]);
    }
    reduce_once(&job, "a");
    sim_world_destroy(job.world);
}

struct logged {
    size_t bytes;
    int32_t lines;
    char last[4096];
};

static void log_keep(void *arg, enum log_level level, const char *line)
{
    struct logged *logged = arg;
    (void)level;
    logged->bytes += strlen(line);
    logged->lines++;
    snprintf(logged->last, sizeof logged->last, "%s", line);
}

/* Very many tensors wait for a rank that is stuck: one report of bounded size for all of them. */
static void test_stall_report_is_bounded(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    static float data[1];
    static struct logged logged;
    struct job job;
    struct ticket *last = NULL;
    job_defaults(&job);
    job.config.stall_check_time_s = 2;
    job.config.stall_shutdown_time_s = 3;
    job_open(&job, os_host(),
             (struct sim_world_options){.ranks = 3,
                                        .seed = 1,
                                        .delay_max_ns = 1000,
                                        .is_in_sight = true,
                                        .log_sink = log_keep,
                                        .ctx = &logged});
    for (int32_t i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "gradient.%d", i);
        for (int32_t r = 0; r < 2; r++)
            last = job_submit(&job, r, HVD_ALLREDUCE, name, data, 1);
    }
    job_run_for(&job, 6000 * MS);
    assert_int_equal(state_of(last), HVD_ERR_PEER_HUNG);
    assert_true(logged.lines >= 2 && logged.lines < 8 && logged.bytes < 8192);
    assert_non_null(strstr(logged.last, "2!: [gradient."));
    assert_non_null(strstr(logged.last, " ... and 19994 more]"));
    sim_world_destroy(job.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_cache_loses_nothing),
        cmocka_unit_test(test_join_behind_ready),
        cmocka_unit_test(test_cancelled_plan_gives_memory_back),
        cmocka_unit_test(test_plan_left_late),
        cmocka_unit_test(test_planned_step_sends_nothing),
        cmocka_unit_test(test_shutdown_asked_then_crash),
        cmocka_unit_test(test_memory_is_free_after_crash),
        cmocka_unit_test(test_hung_rank_is_named),
        cmocka_unit_test(test_mismatch_then_works),
        cmocka_unit_test(test_stall_report_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
