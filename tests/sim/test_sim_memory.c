/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_memory.c - tensors in a kind of memory that the processor can't access
 * (tests/fake_memory.h): every collective, with host tensors between them, in plans, and with
 * failures, crashes and shutdowns while copies are running. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fake_memory.h"
#include "sim_world.h"

#define US        1000LL
#define MS        1000000LL
#define RANKS_MAX 4
#define FLOATS    48
#define SEEDS     (HVD_TEST_QUICK ? 4 : 20)

struct job {
    struct sim_world *world;
    struct config config;
    struct fake_memory fakes[RANKS_MAX];
    struct memory_kind *kinds[RANKS_MAX];
    int32_t ranks;
    uint64_t live_before;
};

static int64_t job_now(void *ctx)
{
    const struct job *job = ctx;
    return job->world != NULL ? sim_world_now_ns(job->world) : 0;
}

static void job_open_with(struct job *job, struct sim_world_options options, int64_t copy_max_ns,
                          double cycle_time_ms)
{
    struct error error = {0};
    uint64_t total;
    memset(job, 0, sizeof *job);
    os_host_alloc_counts(&job->live_before, &total);
    assert_int_equal(sim_world_config(os_host(), &job->config, NULL), HVD_OK);
    job->config.plan_warmup_steps = 2;
    job->config.slow_rank_check_disable = true; /* else plans send reports */
    if (cycle_time_ms > 0)
        job->config.cycle_time_ms = cycle_time_ms;
    job->ranks = options.ranks;
    for (int32_t r = 0; r < options.ranks; r++) {
        fake_open(&job->fakes[r], options.seed * 31 + (uint64_t)r, copy_max_ns, job_now, job);
        job->kinds[r] = &job->fakes[r].kind;
    }
    options.config = &job->config;
    options.memories = job->kinds;
    options.delay_max_ns = options.delay_max_ns != 0 ? options.delay_max_ns : 5000;
    job->world = sim_world_create(os_host(), &options, &error);
    assert_non_null(job->world);
}

static void job_open(struct job *job, struct sim_world_options options, int64_t copy_max_ns)
{
    job_open_with(job, options, copy_max_ns, 0);
}

/* Nothing was touched that should not be, nothing is left. */
static void job_close(struct job *job)
{
    uint64_t live, total;
    assert_null(sim_world_violation(job->world));
    sim_world_destroy(job->world);
    job->world = NULL;
    for (int32_t r = 0; r < job->ranks; r++) {
        assert_string_equal(job->fakes[r].violation, "");
        assert_int_equal(job->fakes[r].marks, 0);
        fake_close(job->kinds[r]);
    }
    os_host_alloc_counts(&live, &total);
    assert_true(live == job->live_before);
}

static void run_for(struct job *job, int64_t ns)
{
    int64_t end_ns = sim_world_now_ns(job->world) + ns;
    while (sim_world_step(job->world, end_ns)) {}
}

static struct engine *engine_of(struct job *job, int32_t rank)
{
    return sim_world_engine(job->world, rank);
}

/* ---- one tensor of one rank ---- */

struct tensor_case {
    struct job *job;
    int32_t rank, root, device;
    hvd_kind_t kind;
    bool is_host, is_in_place;
    int64_t rows; /* elements: one dimension */
    void *in, *out;
    float host_in[FLOATS], host_out[RANKS_MAX * FLOATS];
    struct ticket *ticket;
    struct fake_stream stream;
    bool is_ended;
};

static float value_of(int32_t rank, int64_t i)
{
    return (float)((rank + 1) * 100 + i % 13);
}

static void *result_alloc(void *arg, int32_t index, int32_t ndim, const int64_t *shape)
{
    struct tensor_case *t = arg;
    (void)index;
    assert_int_equal(ndim, 1);
    if (t->out != NULL)
        fake_free(t->job->kinds[t->rank], t->device,
                  t->out); /* of a planned batch that was cancelled */
    t->out = fake_alloc(t->job->kinds[t->rank], t->device, (size_t)shape[0] * sizeof(float));
    return t->out;
}

static void tensor_memory(struct tensor_case *t)
{
    struct job *job = t->job;
    size_t bytes = (size_t)t->rows * sizeof(float);
    for (int64_t i = 0; i < t->rows; i++)
        t->host_in[i] = value_of(t->rank, i);
    t->in = t->is_host ? (void *)t->host_in : fake_alloc(job->kinds[t->rank], t->device, bytes);
    t->out = NULL;
    if (t->kind == HVD_ALLREDUCE || t->kind == HVD_BROADCAST)
        t->out = t->is_in_place ? t->in
                 : t->is_host   ? (void *)t->host_out
                                : fake_alloc(job->kinds[t->rank], t->device, bytes);
}

/* What is on the device gets there only while the op waits, by the stream that it names. */
static void tensor_submit(struct tensor_case *t, const char *name, int64_t late_ns)
{
    struct job *job = t->job;
    struct error error = {0};
    tensor_memory(t);
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = t->kind,
                   .name = name,
                   .reduce = HVD_SUM,
                   .root = t->root,
                   .input = {t->in, &t->rows, 1, HVD_FLOAT32, t->is_host ? 0 : t->device},
                   .memory = t->is_host ? HVD_MEMORY_HOST : FAKE_KIND};
    op.output = op.input;
    op.output.data = t->out;
    if (!t->is_host) {
        op.alloc_result = t->out == NULL ? result_alloc : NULL;
        op.arg = t;
        op.stream = &t->stream;
        fake_put_later(&job->fakes[t->rank], &t->stream, t->in, t->host_in,
                       (size_t)t->rows * sizeof(float), late_ns);
    }
    t->is_ended = false;
    assert_int_equal(submit_ops(engine_of(job, t->rank), &op, 1, &t->ticket, &error), HVD_OK);
    sim_world_wake(job->world, t->rank, 0);
}

static int64_t gather_rows(int32_t rank)
{
    return rank * 3; /* rank 0 gives nothing */
}

static float sum_at(const struct job *job, int64_t i)
{
    float sum = 0;
    for (int32_t r = 0; r < job->ranks; r++)
        sum += value_of(r, i);
    return sum;
}

/* Element i of the result. */
static float expected(const struct tensor_case *t, int64_t i)
{
    const struct job *job = t->job;
    int64_t at = i;
    switch (t->kind) {
    case HVD_BROADCAST: return value_of(t->root, i);
    case HVD_ALLGATHER:
        for (int32_t r = 0; r < job->ranks; r++) {
            if (at < gather_rows(r))
                return value_of(r, at);
            at -= gather_rows(r);
        }
        return 0;
    case HVD_REDUCESCATTER: return sum_at(job, i + t->rank * (FLOATS / job->ranks));
    case HVD_ALLTOALL: {
        int64_t each = FLOATS / job->ranks;
        return value_of((int32_t)(i / each), i % each + t->rank * each);
    }
    case HVD_ALLREDUCE:
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    return sum_at(job, i);
}

static int64_t result_rows(const struct tensor_case *t)
{
    int64_t rows = 0;
    if (t->kind == HVD_REDUCESCATTER)
        return FLOATS / t->job->ranks;
    if (t->kind != HVD_ALLGATHER)
        return t->rows;
    for (int32_t r = 0; r < t->job->ranks; r++)
        rows += gather_rows(r);
    return rows;
}

/* The caller has its memory back with the end of the op, however that is: no copy is under way. */
static void tensor_is_free(struct tensor_case *t)
{
    struct fake_memory *fake = &t->job->fakes[t->rank];
    if (t->is_host)
        return;
    size_t bytes = (size_t)t->rows * sizeof(float);
    for (struct fake_move *move = fake->moves; move != NULL; move = move->next)
        if (move->mark != NULL) {
            const uint8_t *in = t->in, *to = move->to, *from = move->from;
            assert_false(from >= in && from < in + bytes);
            assert_false(to >= in && to < in + bytes);
            assert_true(t->out == NULL || to != t->out);
        }
}

static void tensor_free(struct tensor_case *t)
{
    struct memory_kind *m = t->job->kinds[t->rank];
    if (engine_of(t->job, t->rank) != NULL)
        ticket_release(engine_of(t->job, t->rank), t->ticket);
    if (t->is_host)
        return;
    if (t->out != t->in)
        fake_free(m, t->device, t->out);
    fake_free(m, t->device, t->in);
}

static void tensor_check(struct tensor_case *t)
{
    struct ticket_result result;
    assert_int_equal(ticket_status(t->ticket), HVD_OK);
    tensor_is_free(t);
    ticket_result(t->ticket, 0, &result);
    int64_t rows = result_rows(t);
    assert_int_equal(result.shape[0], rows);
    if (t->is_host)
        memcpy(t->host_out, result.out, (size_t)rows * sizeof(float));
    else
        fake_get(&t->job->fakes[t->rank], t->host_out, t->out, (size_t)rows * sizeof(float));
    for (int64_t i = 0; i < rows; i++)
        assert_true(t->host_out[i] == expected(t, i));
}

static struct tensor_case tensor_of(struct job *job, int32_t rank, hvd_kind_t kind)
{
    return (struct tensor_case){.job = job,
                                .rank = rank,
                                .kind = kind,
                                .root = job->ranks - 1,
                                .rows = kind == HVD_ALLGATHER ? gather_rows(rank) : FLOATS};
}

/* ---- tests ---- */

static const hvd_kind_t kinds[] = {HVD_ALLREDUCE, HVD_BROADCAST, HVD_ALLGATHER, HVD_REDUCESCATTER,
                                   HVD_ALLTOALL};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void all_kinds(struct job *job, uint64_t seed)
{
    struct tensor_case t[RANKS_MAX][KINDS];
    for (int k = 0; k < KINDS; k++)
        for (int32_t r = 0; r < job->ranks; r++) {
            char name[16];
            snprintf(name, sizeof name, "t%d", k);
            t[r][k] = tensor_of(job, r, kinds[k]);
            t[r][k].is_in_place = (seed + (uint64_t)k) % 2 == 0;
            t[r][k].device = (int32_t)(seed + (uint64_t)r) % FAKE_DEVICES; /* ranks may differ */
            tensor_submit(&t[r][k], name, (int64_t)((seed * 7 + (uint64_t)(r + k)) % 50) * 40 * US);
        }
    run_for(job, 500 * MS);
    for (int k = 0; k < KINDS; k++)
        for (int32_t r = 0; r < job->ranks; r++) {
            tensor_check(&t[r][k]);
            tensor_free(&t[r][k]);
        }
}

static void test_all_collectives(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job job;
        job_open(&job,
                 (struct sim_world_options){
                     .ranks = seed % 2 == 0 ? 2 : 3, .seed = seed, .is_in_sight = seed % 4 < 2},
                 200 * US);
        for (int turn = 0; turn < 5; turn++) /* the first in full, then by id, in sight by a plan */
            all_kinds(&job, seed + (uint64_t)turn / 4);
        job_close(&job);
    }
}

/* Host and device tensors of one set, submitted in another order on each rank. */
static void test_mixed(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    static struct tensor_case t[RANKS_MAX][COUNT];
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job job;
        job_open(&job,
                 (struct sim_world_options){
                     .ranks = 3, .seed = seed, .is_in_sight = seed % 2 == 0, .turn_max_ns = 20000},
                 100 * US);
        for (int turn = 0; turn < 4; turn++) {
            for (int32_t r = 0; r < 3; r++)
                for (int n = 0; n < COUNT; n++) {
                    char name[16];
                    int i = (n + r * 5 + turn) % COUNT;
                    snprintf(name, sizeof name, "m%d", i);
                    t[r][i] = tensor_of(&job, r, kinds[i % KINDS]);
                    t[r][i].is_host = i % 2 == 0;
                    t[r][i].device = i / 2 % FAKE_DEVICES;
                    tensor_submit(&t[r][i], name, i * 200 * US);
                }
            run_for(&job, 500 * MS);
            for (int32_t r = 0; r < 3; r++)
                for (int i = 0; i < COUNT; i++) {
                    tensor_check(&t[r][i]);
                    tensor_free(&t[r][i]);
                }
        }
        job_close(&job);
    }
}

/* What is ready together is fused, but never over two kinds of memory or two devices. */
static void test_fusion(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    struct job job;
    static struct tensor_case t[2][COUNT];
    job_open_with(&job, (struct sim_world_options){.ranks = 2, .seed = 3}, 10 * US, 5);
    for (int32_t r = 0; r < 2; r++)
        for (int i = 0; i < COUNT; i++) {
            char name[16];
            snprintf(name, sizeof name, "f%d", i);
            t[r][i] = tensor_of(&job, r, HVD_ALLREDUCE);
            t[r][i].is_host = i % 3 == 0;
            t[r][i].device = i % 3 == 1 && r == 1; /* they differ on one rank alone */
            tensor_submit(&t[r][i], name, 0);
        }
    run_for(&job, 500 * MS);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(engine_stats(engine_of(&job, r))->batches, 3);
        for (int i = 0; i < COUNT; i++) {
            tensor_check(&t[r][i]);
            tensor_free(&t[r][i]);
        }
    }
    job_close(&job);
}

static void test_mismatch(void **state)
{
    (void)state;
    struct job job;
    struct tensor_case t[3];
    job_open(&job, (struct sim_world_options){.ranks = 3, .seed = 1}, 100 * US);
    for (int turn = 0; turn < 3; turn++) {
        for (int32_t r = 0; r < 3; r++) {
            t[r] = tensor_of(&job, r, HVD_ALLREDUCE);
            t[r].is_host = turn == 1 && r == 1;
            tensor_submit(&t[r], "a", 0);
        }
        run_for(&job, 500 * MS);
        for (int32_t r = 0; r < 3; r++) {
            if (turn == 1) {
                assert_int_equal(ticket_status(t[r].ticket), HVD_ERR_MISMATCH);
                assert_non_null(strstr(ticket_error(t[r].ticket),
                                       "Mismatched ALLREDUCE CPU/GPU device selection"));
                tensor_is_free(&t[r]);
            } else {
                tensor_check(&t[r]);
            }
            tensor_free(&t[r]);
        }
    }
    job_close(&job);
}

/* A world of ranks that differ: rank 2 has no such memory, or asks for what is not there. */
static void test_refused(void **state)
{
    (void)state;
    struct job job;
    struct error error = {0};
    struct ticket *ticket = NULL;
    int64_t rows = 4;
    job_open(&job, (struct sim_world_options){.ranks = 2, .seed = 1}, 100 * US);
    void *far = fake_alloc(job.kinds[0], 0, 64);
    hvd_op_t good = {.struct_size = sizeof good,
                     .kind = HVD_ALLGATHER,
                     .input = {far, &rows, 1, HVD_FLOAT32, 0},
                     .alloc_result = result_alloc,
                     .memory = FAKE_KIND};
    hvd_op_t op = good;
    op.memory = FAKE_KIND + 1;
    assert_int_equal(submit_ops(engine_of(&job, 0), &op, 1, &ticket, &error), HVD_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "memory of kind 78, which is not there"));
    op = good, op.input.device = FAKE_DEVICES, error = (struct error){0};
    assert_int_equal(submit_ops(engine_of(&job, 0), &op, 1, &ticket, &error), HVD_ERR_INVALID);
    assert_non_null(strstr(error.text, "device 2 of fake memory, which has 2"));
    op = good, op.alloc_result = NULL, error = (struct error){0};
    assert_int_equal(submit_ops(engine_of(&job, 0), &op, 1, &ticket, &error), HVD_ERR_INVALID);
    assert_non_null(strstr(error.text, "needs alloc_result"));
    op = good, op.output = op.input, op.output.device = 1, error = (struct error){0};
    assert_int_equal(submit_ops(engine_of(&job, 0), &op, 1, &ticket, &error), HVD_ERR_INVALID);
    assert_non_null(strstr(error.text, "both must be on the same"));
    job_close(&job);
}

static void steps(struct job *job, int turns, int count)
{
    static struct tensor_case t[RANKS_MAX][8];
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < count; i++)
            for (int32_t r = 0; r < job->ranks; r++) {
                char name[16];
                snprintf(name, sizeof name, "g%d", i);
                t[r][i] = tensor_of(job, r, HVD_ALLREDUCE);
                t[r][i].is_host = i == 3;
                t[r][i].device = i % 2;
                t[r][i].is_in_place = true;
                tensor_submit(&t[r][i], name, 0);
            }
        run_for(job, 300 * MS);
        for (int i = 0; i < count; i++)
            for (int32_t r = 0; r < job->ranks; r++) {
                tensor_check(&t[r][i]);
                tensor_free(&t[r][i]);
            }
    }
}

/* A plan with device and host batches: no message, and copies of one batch during those of another.
 */
static void test_plan(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job job;
        job_open(&job, (struct sim_world_options){.ranks = 3, .seed = seed, .is_in_sight = true},
                 300 * US);
        steps(&job, 6, 6);
        uint64_t before = sim_net_messages(sim_world_net(job.world));
        uint64_t planned = engine_stats(engine_of(&job, 0))->batches_planned;
        assert_true(planned > 0);
        steps(&job, 5, 6);
        assert_true(sim_net_messages(sim_world_net(job.world)) == before);
        assert_true(engine_stats(engine_of(&job, 0))->batches_planned > planned);
        assert_int_equal(engine_stats(engine_of(&job, 0))->plan_breaks, 0);
        for (int32_t r = 0; r < 3; r++)
            assert_true(job.fakes[r].copying_max > 1);
        job_close(&job);
    }
}

/* One rank has begun a planned batch, copies under way; another can't follow. The batch never
 * happened, and comes again when its copies have ended. */
static void test_cancel(void **state)
{
    (void)state;
    int32_t under_way = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job job;
        struct tensor_case a[2], b[2];
        job_open(&job, (struct sim_world_options){.ranks = 2, .seed = seed, .is_in_sight = true},
                 (int64_t)(seed % 4) * 5 * MS + 1000);
        steps(&job, 6, 1);
        assert_true(engine_stats(engine_of(&job, 0))->batches_planned > 0);
        for (int32_t r = 0; r < 2; r++) {
            a[r] = tensor_of(&job, r, HVD_ALLREDUCE);
            b[r] = tensor_of(&job, r, HVD_ALLREDUCE);
        }
        tensor_submit(&a[0], "g0", (int64_t)(seed % 3) * MS);
        run_for(&job, MS / 2);
        tensor_submit(&b[1], "other", 0);
        run_for(&job, (int64_t)(seed % 7) * MS);
        under_way += job.fakes[0].copying > 0 && engine_stats(engine_of(&job, 0))->plan_breaks > 0;
        tensor_submit(&b[0], "other", 0);
        tensor_submit(&a[1], "g0", 0);
        run_for(&job, 1000 * MS);
        assert_int_equal(engine_stats(engine_of(&job, 0))->plan_breaks, 1);
        for (int32_t r = 0; r < 2; r++) {
            tensor_check(&a[r]);
            tensor_check(&b[r]);
            tensor_free(&a[r]);
            tensor_free(&b[r]);
        }
        steps(&job, 6, 2);
        job_close(&job);
    }
    assert_true(under_way > 0); /* the case that this is about has come */
}

/* A copy to the host fails on rank 1 alone: all ranks say so. A copy back fails there: rank 1 says
 * so, and so does everybody from then on. */
static void test_copy_fails_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job job;
        struct tensor_case t[3], more;
        struct error error = {0};
        bool is_in = seed % 2 == 0;
        job_open(&job,
                 (struct sim_world_options){.ranks = 3, .seed = seed, .is_in_sight = seed % 8 < 4},
                 200 * US);
        all_kinds(&job, seed);
        job.fakes[1].failure = seed % 4 < 2 ? FAKE_FAIL_BEGIN : FAKE_FAIL_END;
        job.fakes[1].fail_after = is_in ? 0 : 1;
        for (int32_t r = 0; r < 3; r++) {
            t[r] = tensor_of(&job, r, HVD_ALLREDUCE);
            tensor_submit(&t[r], "broken", 0);
        }
        run_for(&job, 1000 * MS);
        for (int32_t r = 0; r < 3; r++) {
            hvd_status_t status = ticket_status(t[r].ticket);
            assert_true(status == HVD_ERR_OS || (status == HVD_OK && !is_in && r != 1));
            tensor_is_free(&t[r]);
            if (status == HVD_OK)
                tensor_check(&t[r]);
            else
                assert_non_null(strstr(ticket_error(t[r].ticket),
                                       "rank 1 could not run ALLREDUCE broken: the fake device"));
            tensor_free(&t[r]);
            more = tensor_of(&job, r, HVD_ALLREDUCE);
            tensor_memory(&more);
            hvd_op_t op = {.struct_size = sizeof op,
                           .name = "more",
                           .input = {more.in, &more.rows, 1, HVD_FLOAT32, 0},
                           .output = {more.in, &more.rows, 1, HVD_FLOAT32, 0},
                           .memory = FAKE_KIND};
            assert_int_equal(submit_ops(engine_of(&job, r), &op, 1, &more.ticket, &error),
                             HVD_ERR_OS);
            assert_non_null(strstr(error.text, "rank 1 could not run"));
        }
        job_close(&job);
    }
}

/* No memory for the copies on one rank. */
static void test_no_stage(void **state)
{
    (void)state;
    struct job job;
    struct tensor_case t[2];
    job_open(&job, (struct sim_world_options){.ranks = 2, .seed = 1}, 10 * US);
    sim_world_poor(job.world, 1, 2, 0);
    for (int32_t r = 0; r < 2; r++) {
        t[r] = tensor_of(&job, r, HVD_ALLREDUCE);
        tensor_submit(&t[r], "a", 0);
    }
    run_for(&job, 500 * MS);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(ticket_status(t[r].ticket), HVD_ERR_NO_MEMORY);
        assert_non_null(strstr(ticket_error(t[r].ticket), "rank 1 could not run ALLREDUCE a: out"));
        tensor_free(&t[r]);
    }
    job_close(&job);
}

/* Steps until `ns` have passed; whatever ends meanwhile has its memory back. */
static void run_and_watch(struct job *job, struct tensor_case *t, int count, int64_t ns)
{
    int64_t end_ns = sim_world_now_ns(job->world) + ns;
    while (sim_world_step(job->world, end_ns))
        for (int i = 0; i < count; i++) {
            if (engine_of(job, t[i].rank) == NULL || t[i].is_ended ||
                ticket_status(t[i].ticket) == HVD_IN_PROGRESS)
                continue;
            t[i].is_ended = true;
            tensor_is_free(&t[i]);
        }
}

/* A rank crashes, at any moment of copies in, collective and copies out. */
static void test_crash(void **state)
{
    (void)state;
    int32_t failed = 0, well = 0;
    for (int64_t at_ns = 0; at_ns < 3 * MS; at_ns += HVD_TEST_QUICK ? 500 * US : 100 * US) {
        enum { COUNT = 6 };
        struct job job;
        static struct tensor_case t[3 * COUNT];
        job_open(&job,
                 (struct sim_world_options){.ranks = 3,
                                            .seed = (uint64_t)(at_ns / 1000),
                                            .delay_min_ns = 1000,
                                            .delay_max_ns = 50000,
                                            .is_in_sight = at_ns / (100 * US) % 2 == 0},
                 600 * US);
        for (int i = 0; i < 3 * COUNT; i++) {
            char name[16];
            snprintf(name, sizeof name, "c%d", i / 3);
            t[i] = tensor_of(&job, i % 3, kinds[i / 3 % KINDS]);
            t[i].device = i / 3 % FAKE_DEVICES;
            tensor_submit(&t[i], name, 0);
        }
        run_and_watch(&job, t, 3 * COUNT, at_ns);
        sim_world_crash(job.world, 2);
        run_and_watch(&job, t, 3 * COUNT, 2000 * MS);
        for (int i = 0; i < 3 * COUNT; i++) {
            if (t[i].rank != 2) {
                assert_true(t[i].is_ended);
                if (ticket_status(t[i].ticket) == HVD_OK)
                    tensor_check(&t[i]);
                else
                    assert_int_equal(ticket_status(t[i].ticket), HVD_ERR_PEER_DEAD);
                failed += ticket_status(t[i].ticket) != HVD_OK;
                well += ticket_status(t[i].ticket) == HVD_OK;
            }
            tensor_free(&t[i]);
        }
        job_close(&job);
    }
    assert_true(failed > 0 && well > 0);
}

/* Shutdown while copies are under way, asked by all or by one: over only when these have ended. */
static void test_shutdown(void **state)
{
    (void)state;
    int32_t under_way = 0;
    for (int64_t at_ns = 0; at_ns < 3 * MS; at_ns += HVD_TEST_QUICK ? 500 * US : 100 * US) {
        enum { COUNT = 5 };
        struct job job;
        static struct tensor_case t[2 * COUNT];
        bool by_force = at_ns / (100 * US) % 3 == 0;
        job_open(&job,
                 (struct sim_world_options){.ranks = 2,
                                            .seed = (uint64_t)(at_ns / 1000),
                                            .is_in_sight = at_ns / (100 * US) % 2 == 0},
                 900 * US);
        for (int i = 0; i < 2 * COUNT; i++) {
            char name[16];
            snprintf(name, sizeof name, "s%d", i / 2);
            t[i] = tensor_of(&job, i % 2, kinds[i / 2]);
            tensor_submit(&t[i], name, 0);
        }
        run_and_watch(&job, t, 2 * COUNT, at_ns);
        for (int32_t r = 0; r < 2; r++) {
            if (by_force)
                engine_stop(engine_of(&job, r), HVD_ERR_SHUTDOWN, ENGINE_SHUTDOWN_TEXT, false);
            else
                engine_shutdown_ask(engine_of(&job, r));
            sim_world_wake(job.world, r, 0);
            under_way += job.fakes[r].copying > 0;
            assert_true(job.fakes[r].copying == 0 || !engine_is_over(engine_of(&job, r)));
        }
        run_and_watch(&job, t, 2 * COUNT, 100 * MS);
        for (int i = 0; i < 2 * COUNT; i++) {
            hvd_status_t status = ticket_status(t[i].ticket);
            assert_true(t[i].is_ended && (status == HVD_OK || status == HVD_ERR_SHUTDOWN));
            if (status == HVD_OK)
                tensor_check(&t[i]);
        }
        for (int32_t r = 0; r < 2; r++)
            assert_true(engine_is_over(engine_of(&job, r)));
        for (int i = 0; i < 2 * COUNT; i++)
            tensor_free(&t[i]);
        job_close(&job);
    }
    assert_true(under_way > 0);
}

/* A rank has joined: it gives zeros, without memory of the kind. */
static void test_join(void **state)
{
    (void)state;
    struct job job;
    struct error error = {0};
    enum { COUNT = 6 };
    static struct tensor_case t[2 * COUNT];
    struct ticket *joins[3];
    job_open(&job, (struct sim_world_options){.ranks = 3, .seed = 1}, 200 * US);
    hvd_op_t join = {.struct_size = sizeof join, .kind = HVD_JOIN};
    assert_int_equal(submit_ops(engine_of(&job, 2), &join, 1, &joins[2], &error), HVD_OK);
    for (int i = 0; i < 2 * COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "j%d", i / 2);
        t[i] = tensor_of(&job, i % 2, HVD_ALLREDUCE);
        t[i].device = i / 2 % FAKE_DEVICES; /* so that there are several batches */
        t[i].is_host = i / 2 == 3;
        tensor_submit(&t[i], name, 0);
    }
    run_for(&job, 200 * MS);
    job.ranks = 2; /* the sum of so many */
    for (int i = 0; i < 2 * COUNT; i++)
        tensor_check(&t[i]);
    job.ranks = 3;
    for (int i = 0; i < 2 * COUNT; i++)
        tensor_free(&t[i]);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(submit_ops(engine_of(&job, r), &join, 1, &joins[r], &error), HVD_OK);
        sim_world_wake(job.world, r, 0);
    }
    run_for(&job, 200 * MS);
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(ticket_status(joins[r]), HVD_OK);
        ticket_release(engine_of(&job, r), joins[r]);
    }
    job_close(&job);
}

/* A process set is removed while copies are under way for it; its number comes back at once. */
static void test_set_removed(void **state)
{
    (void)state;
    for (int64_t at_ns = 0; at_ns < 2 * MS; at_ns += HVD_TEST_QUICK ? 400 * US : 100 * US) {
        struct job job;
        struct error error = {0};
        struct ticket *change[2][3];
        struct tensor_case t[2];
        job_open(&job, (struct sim_world_options){.ranks = 2, .seed = (uint64_t)at_ns}, 900 * US);
        for (int32_t r = 0; r < 2; r++) {
            assert_int_equal(
                submit_set_change(engine_of(&job, r), (int32_t[]){0}, 1, 0, &change[r][0], &error),
                HVD_OK);
            sim_world_wake(job.world, r, 0);
        }
        run_for(&job, 50 * MS);
        for (int32_t r = 0; r < 2; r++)
            assert_int_equal(ticket_answer(change[r][0]), 1);
        /* The set of rank 0 alone: its batches need nobody else. */
        t[0] = tensor_of(&job, 0, HVD_ALLREDUCE);
        tensor_memory(&t[0]);
        hvd_op_t op = {.struct_size = sizeof op,
                       .name = "alone",
                       .process_set = 1,
                       .reduce = HVD_SUM,
                       .input = {t[0].in, &t[0].rows, 1, HVD_FLOAT32, 0},
                       .output = {t[0].out, &t[0].rows, 1, HVD_FLOAT32, 0},
                       .memory = FAKE_KIND};
        assert_int_equal(submit_ops(engine_of(&job, 0), &op, 1, &t[0].ticket, &error), HVD_OK);
        sim_world_wake(job.world, 0, 0);
        run_and_watch(&job, t, 1, at_ns);
        for (int32_t r = 0; r < 2; r++) {
            assert_int_equal(
                submit_set_change(engine_of(&job, r), NULL, 0, 1, &change[r][1], &error), HVD_OK);
            sim_world_wake(job.world, r, 0);
        }
        run_and_watch(&job, t, 1, 50 * MS);
        hvd_status_t status = ticket_status(t[0].ticket);
        assert_true(t[0].is_ended && (status == HVD_OK || status == HVD_ERR_ABORTED));
        for (int32_t r = 0; r < 2; r++) {
            assert_int_equal(
                submit_set_change(engine_of(&job, r), (int32_t[]){0}, 1, 0, &change[r][2], &error),
                HVD_OK);
            sim_world_wake(job.world, r, 0);
        }
        run_for(&job, 50 * MS);
        for (int32_t r = 0; r < 2; r++)
            for (int i = 0; i < 3; i++) {
                assert_int_equal(ticket_status(change[r][i]), HVD_OK);
                ticket_release(engine_of(&job, r), change[r][i]);
            }
        tensor_free(&t[0]);
        job_close(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_collectives), cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_fusion),          cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_plan),
        cmocka_unit_test(test_cancel),          cmocka_unit_test(test_copy_fails_alone),
        cmocka_unit_test(test_no_stage),        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_shutdown),        cmocka_unit_test(test_join),
        cmocka_unit_test(test_set_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
