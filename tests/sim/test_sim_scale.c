/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_scale.c - 512 ranks in one process agree on 200 tensors and reduce them: first unknown
 * to all ranks, then from the response cache. Prints the number of control messages.
 *
 * test_sim_scale N does the same with N ranks, for the table in docs/benchmarks.md. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim_world.h"

#define RANKS_MAX 512
#define TENSORS   200
#define ELEMENTS  4
#define MS        1000000LL

static int32_t ranks = HVD_TEST_QUICK ? 64 : RANKS_MAX;

struct scale_step {
    float *data; /* ranks x TENSORS x ELEMENTS */
    struct ticket *tickets[RANKS_MAX];
};

static void submit_all(struct sim_world *world, struct scale_step *step, int32_t rank)
{
    static char names[TENSORS][16];
    static hvd_op_t ops[TENSORS];
    int64_t shape = ELEMENTS;
    struct error error = {0};
    for (int i = 0; i < TENSORS; i++) {
        float *data = step->data + ((size_t)rank * TENSORS + (size_t)i) * ELEMENTS;
        for (int k = 0; k < ELEMENTS; k++)
            data[k] = (float)(rank % 4 + i);
        snprintf(names[i], sizeof names[i], "tensor.%d", i);
        ops[i] = (hvd_op_t){.struct_size = sizeof ops[i],
                            .kind = HVD_ALLREDUCE,
                            .name = names[i],
                            .reduce = HVD_SUM,
                            .prescale = 1,
                            .postscale = 1,
                            .input = {data, &shape, 1, HVD_FLOAT32, HVD_DEVICE_CPU},
                            .output = {data, &shape, 1, HVD_FLOAT32, HVD_DEVICE_CPU}};
    }
    struct engine *engine = sim_world_engine(world, rank);
    assert_int_equal(submit_ops(engine, ops, TENSORS, &step->tickets[rank], &error), HVD_OK);
    sim_world_wake(world, rank, 0);
}

static void check_all(struct sim_world *world, struct scale_step *step)
{
    float sum = 0;
    for (int32_t r = 0; r < ranks; r++)
        sum += (float)(r % 4);
    for (int32_t r = 0; r < ranks; r++) {
        assert_int_equal(ticket_status(step->tickets[r]), HVD_OK);
        for (int i = 0; i < TENSORS * ELEMENTS; i++) {
            float got = step->data[(size_t)r * TENSORS * ELEMENTS + (size_t)i];
            assert_true(got == sum + (float)(ranks * (i / ELEMENTS)));
        }
        ticket_release(sim_world_engine(world, r), step->tickets[r]);
    }
}

/* Messages of one step per rank, on average. */
static double step_run(struct sim_world *world, struct scale_step *step, const char *title)
{
    uint64_t before = sim_net_messages(sim_world_net(world)), most = 0;
    uint64_t sent[RANKS_MAX];
    int64_t start_ns = sim_world_now_ns(world), end_ns = start_ns;
    for (int32_t r = 0; r < ranks; r++) {
        sent[r] = engine_stats(sim_world_engine(world, r))->messages_sent;
        submit_all(world, step, r);
    }
    for (int32_t r = 0; r < ranks; r++)
        while (ticket_status(step->tickets[r]) == HVD_IN_PROGRESS) {
            assert_true(sim_world_step(world, start_ns + 10000 * MS));
            end_ns = sim_world_now_ns(world);
        }
    for (int32_t r = 0; r < ranks; r++) {
        uint64_t own = engine_stats(sim_world_engine(world, r))->messages_sent - sent[r];
        most = own > most ? own : most;
    }
    double mean = (double)(sim_net_messages(sim_world_net(world)) - before) / ranks;
    print_message("%d ranks, %d tensors, %s: %.2f messages per rank (most: %" PRIu64
                  "), %.2f virtual ms\n",
                  ranks, TENSORS, title, mean, most, (double)(end_ns - start_ns) / 1e6);
    check_all(world, step);
    return mean;
}

static void negotiate(int32_t hosts)
{
    struct error error = {0};
    struct scale_step step = {.data =
                                  test_calloc((size_t)ranks * TENSORS * ELEMENTS, sizeof(float))};
    struct sim_world_options options = {
        .seed = 1, .ranks = ranks, .hosts = hosts, .delay_min_ns = 10000, .delay_max_ns = 50000};
    struct sim_world *world = sim_world_create(os_host(), &options, &error);
    assert_non_null(world);
    step_run(world, &step, "unknown");
    double cached = step_run(world, &step, "cached");
    cached += step_run(world, &step, "cached");
    assert_true(cached <= 8.0); /* news up, answer down, with little to spare; not one per tensor */
    sim_world_destroy(world);
    test_free(step.data);
}

static void test_one_rank_per_host(void **state)
{
    (void)state;
    negotiate(ranks);
}

static void test_eight_ranks_per_host(void **state)
{
    (void)state;
    negotiate(ranks < 8 ? 1 : ranks / 8);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        ranks = atoi(argv[1]);
    assert_in_range(ranks, 2, RANKS_MAX);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_per_host),
        cmocka_unit_test(test_eight_ranks_per_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
