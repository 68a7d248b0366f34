/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_coordinator.c - the coordinator under load and without memory: very many mismatches and
 * partly announced ids at once, every allocation of a rank failed in turn, a peer's bad splits.
 * Whatever happens, every op completes on every rank and an error names its root cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_private.h"
#include "sim_job.h"

#define MS 1000000LL
#if HVD_TEST_QUICK
#define MANY 20000
#else
#define MANY 100000
#endif
#define RANKS_MAX 3

static void submit_many(struct job *job, int32_t rank, struct ticket **tickets, float *data,
                        int64_t count)
{
    for (int i = 0; i < MANY; i++) {
        char name[24];
        snprintf(name, sizeof name, "tensor.%d", i);
        tickets[i] = job_try(job, rank, HVD_ALLREDUCE, name, data, count);
        assert_non_null(tickets[i]);
    }
}

static void expect_many(struct job *job, int32_t rank, struct ticket **tickets, int32_t state)
{
    for (int i = 0; i < MANY; i++) {
        if (state_of(tickets[i]) != state)
            fail_msg("rank %d: op %d is %d, not %d", rank, i, state_of(tickets[i]), state);
        if (state != HVD_OK)
            assert_non_null(strstr(ticket_error(tickets[i]), "tensor."));
        ticket_release(sim_world_engine(job->world, rank), tickets[i]);
    }
}

/* All responses together are many times what one message takes. The ranks differ in shape, and the
 * coordinator is the first to submit or the last. */
static void many_mismatches(int32_t first, bool is_cached)
{
    struct job job;
    float data[4] = {0};
    struct ticket **tickets[2];
    job_defaults(&job);
    job.config.cache_capacity = 4 * MANY;
    job.config.plan_disable = true;
    job_open(&job, os_host(), (struct sim_world_options){.ranks = 2, .seed = 1});
    for (int32_t r = 0; is_cached && r < 2; r++) {
        tickets[r] = calloc(MANY, sizeof(struct ticket *));
        submit_many(&job, r, tickets[r], data, 2);
    }
    job_run_for(&job, 1000 * MS);
    for (int32_t r = 0; is_cached && r < 2; r++) {
        expect_many(&job, r, tickets[r], HVD_OK);
        free(tickets[r]);
    }
    for (int32_t k = 0; k < 2; k++) {
        int32_t rank = k == 0 ? first : 1 - first;
        tickets[rank] = calloc(MANY, sizeof(struct ticket *));
        submit_many(&job, rank, tickets[rank], data, rank + 2);
        job_run_for(&job, 100 * MS);
    }
    job_run_for(&job, 1000 * MS);
    for (int32_t rank = 0; rank < 2; rank++) {
        expect_many(&job, rank, tickets[rank], HVD_ERR_MISMATCH);
        free(tickets[rank]);
    }
    struct ticket *a = job_try(&job, 0, HVD_ALLREDUCE, "after", data, 2);
    struct ticket *b = job_try(&job, 1, HVD_ALLREDUCE, "after", data + 2, 2);
    job_run_for(&job, 100 * MS);
    assert_int_equal(state_of(a), HVD_OK);
    assert_int_equal(state_of(b), HVD_OK);
    sim_world_destroy(job.world);
}

static void test_many_mismatches(void **state)
{
    (void)state;
    many_mismatches(0, false);
    many_mismatches(1, false);
}

/* The same names were cached before: the coordinator voids their ids while it applies. */
static void test_many_mismatches_cached(void **state)
{
    (void)state;
    many_mismatches(0, true);
    many_mismatches(1, true);
}

/* Ids that only some ranks have announced. Of three ranks the coordinator knows who is missing; of
 * four, one announces through another, and the stall check makes the ids void if it is one of
 * those, all at once: the ranks that had announced them announce in full, and nothing is lost when
 * the last rank comes. */
static void partly_announced(int32_t ranks, int32_t late, bool is_voided)
{
    struct job job;
    static float data[4][1];
    struct ticket **tickets[4];
    job_defaults(&job);
    job.config.cache_capacity = 4 * MANY;
    job.config.plan_disable = true;
    job.config.hung_warn_s = job.config.stall_check_time_s = 2;
    job_open(&job, os_host(), (struct sim_world_options){.ranks = ranks, .seed = 1});
    for (int32_t r = 0; r < ranks; r++) {
        tickets[r] = calloc(MANY, sizeof(struct ticket *));
        submit_many(&job, r, tickets[r], data[r], 1);
    }
    job_run_for(&job, 1000 * MS);
    for (int32_t r = 0; r < ranks; r++)
        expect_many(&job, r, tickets[r], HVD_OK);
    for (int32_t r = 0; r < ranks; r++)
        if (r != late)
            submit_many(&job, r, tickets[r], data[r], 1);
    uint64_t misses = engine_stats(sim_world_engine(job.world, 1))->cache_misses;
    job_run_for(&job, 5000 * MS);
    uint64_t again = engine_stats(sim_world_engine(job.world, 1))->cache_misses - misses;
    assert_true((again > 0) == is_voided);
    submit_many(&job, late, tickets[late], data[late], 1);
    job_run_for(&job, 2000 * MS);
    for (int32_t r = 0; r < ranks; r++) {
        expect_many(&job, r, tickets[r], HVD_OK);
        free(tickets[r]);
    }
    sim_world_destroy(job.world);
}

static void test_many_partly_announced(void **state)
{
    (void)state;
    partly_announced(3, 0, false);
    partly_announced(3, 2, false);
    partly_announced(4, 0, false);
    partly_announced(4, 3, true);
}

/* ---- without memory ---- */

struct failing {
    struct os os;
    int64_t left; /* allocations until one fails; below 0: none fails */
};

static void *failing_alloc(void *ctx, size_t bytes)
{
    struct failing *f = ctx;
    if (f->left >= 0 && f->left-- == 0)
        return NULL;
    return os_host()->alloc(os_host()->ctx, bytes);
}

static void *failing_resize(void *ctx, void *ptr, size_t bytes)
{
    struct failing *f = ctx;
    if (f->left >= 0 && f->left-- == 0)
        return NULL;
    return os_host()->resize(os_host()->ctx, ptr, bytes);
}

static void failing_free(void *ctx, void *ptr)
{
    (void)ctx;
    os_host()->free(os_host()->ctx, ptr);
}

/* One rank's engine fails its k-th allocation, the others have memory: all ops complete on all
 * ranks, and an error is about memory and names the rank. */
static bool run_without_memory(int32_t poor, int64_t k)
{
    struct job job;
    static float data[RANKS_MAX][8];
    struct ticket *tickets[RANKS_MAX][6];
    static const hvd_kind_t kinds[6] = {HVD_ALLGATHER, HVD_ALLREDUCE, HVD_ALLGATHER,
                                        HVD_BROADCAST, HVD_ALLREDUCE, HVD_ALLTOALL};
    bool has_failed = false;
    char want[32];
    struct failing f = {.os = *os_host(), .left = -1};
    f.os.ctx = &f;
    f.os.alloc = failing_alloc;
    f.os.resize = failing_resize;
    f.os.free = failing_free;
    job_defaults(&job);
    job_open(&job, os_host(), (struct sim_world_options){.ranks = RANKS_MAX, .seed = 1});
    for (int32_t r = 0; r < RANKS_MAX; r++)
        for (int i = 0; i < 6; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%d", i);
            int64_t count = kinds[i] == HVD_ALLTOALL ? 3 : i == 4 && r == 1 ? 5 : 4;
            tickets[r][i] = job_try(&job, r, kinds[i], name, data[r], count);
        }
    struct engine *engine = sim_world_engine(job.world, poor);
    const struct os *real = engine->os;
    struct os os = *real; /* the net's clock, our memory */
    os.alloc = failing_alloc;
    os.resize = failing_resize;
    os.free = failing_free;
    os.ctx = &f;
    os.now_ns = f.os.now_ns;
    f.os.ctx = &f;
    f.left = k;
    engine->os = &os;
    job_run_for(&job, 3000 * MS);
    bool has_run_out = f.left < 0;
    snprintf(want, sizeof want, "rank %d", poor);
    for (int32_t r = 0; r < RANKS_MAX; r++)
        for (int i = 0; i < 6; i++) {
            int32_t status = state_of(tickets[r][i]);
            if (status == HVD_IN_PROGRESS)
                fail_msg("allocation %lld of rank %d failed: rank %d waits for t%d", (long long)k,
                         poor, r, i);
            if (status == HVD_OK || (i == 4 && status == HVD_ERR_MISMATCH))
                continue;
            has_failed = true;
            const char *text = tickets[r][i]->error != NULL ? ticket_error(tickets[r][i]) : want;
            if (status != HVD_ERR_NO_MEMORY ||
                (strstr(text, "emory") == NULL && tickets[r][i]->error != NULL) ||
                strstr(text, want) == NULL)
                fail_msg("allocation %lld of rank %d failed: rank %d got %d, %s", (long long)k,
                         poor, r, status, text);
        }
    f.left = -1;
    engine->os = real;
    sim_world_destroy(job.world);
    (void)has_failed;
    return has_run_out;
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    for (int32_t poor = 0; poor < RANKS_MAX; poor++) {
        int64_t k = 0;
        while (run_without_memory(poor, k))
            k++;
        assert_true(k > 5); /* some failed */
    }
}

/* ---- splits ---- */

/* A rank gives a negative split, past its own checks: all get an error that names it. */
static void test_negative_split(void **state)
{
    (void)state;
    struct job job;
    float data[3][6] = {{0}};
    struct ticket *tickets[3];
    job_defaults(&job);
    job_open(&job, os_host(), (struct sim_world_options){.ranks = 3, .seed = 1});
    for (int32_t r = 0; r < 3; r++)
        tickets[r] = job_try(&job, r, HVD_ALLTOALL, "moved", data[r], 6);
    tickets[1]->ops[0]->splits[2] = -5;
    job_run_for(&job, 1000 * MS);
    for (int32_t r = 0; r < 3; r++) {
        assert_true(state_of(tickets[r]) < 0);
        assert_int_not_equal(state_of(tickets[r]), HVD_ERR_NO_MEMORY);
        assert_non_null(strstr(ticket_error(tickets[r]), "rank 1"));
        assert_non_null(strstr(ticket_error(tickets[r]), "-5"));
    }
    sim_world_destroy(job.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negative_split),
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_many_mismatches),
        cmocka_unit_test(test_many_mismatches_cached),
        cmocka_unit_test(test_many_partly_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
