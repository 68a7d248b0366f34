/* SPDX-License-Identifier: Apache-2.0 */
/* negotiate.c - what agreement costs: a named op through the API against the backend driven by
 * hand.
 *
 * Two lives of the library in the same processes: one that negotiates every op (from the cache
 * after the first time), one in which the plan takes over. In each, side by side with the bare
 * backend: op           8 bytes, submit and wait step, tiny   161 tensors of 8 bytes submitted,
 * then waited for step, full   the 161 gradients of ResNet-50, 102 MB, in shared memory The bare
 * backend gets a step as one collective of 161 parts. Told are medians over rounds of the maximum
 * over ranks, the difference with its 95 % interval, and, from hvd_stats(), what rank 0 sent and
 * allocated meanwhile.
 *
 * Use: negotiate [--ranks N] [--rounds N] [--json FILE]
 * Thread: one per rank (and the library's).  Start reading at measure_life(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/meet.h"
#include "common/ranks.h"
#include "common/raw.h"
#include "common/stats.h"

#define TENSORS         161
#define OP_BATCH        200
#define WARM            12
#define TINY            2 /* elements of a tensor in the tiny step */
#define WAIT_MS         60000
#define ROWS_MAX        8
#define STEP_TINY_BATCH 20

struct options {
    int ranks, rounds;
    const char *json;
};

struct row {
    const char *life, *what;
    double api_us, raw_us;
    struct stats_interval added_us;
    double messages, allocations, batches, planned; /* per op or step */
};

struct bench {
    struct options options;
    struct meet *meet;
    struct raw raw;
    const char *life;
    uint32_t seed;
    int64_t counts[TENSORS];
    char names[2][TENSORS][32];
    float *tensors[TENSORS];     /* in our arena */
    float *raw_tensors[TENSORS]; /* in the bare backend's */
    int64_t elements;
    struct row rows[ROWS_MAX];
    size_t row_count;
};

struct work { /* one kind of thing to measure */
    const char *what;
    void (*api)(struct bench *b);
    void (*bare)(struct bench *b);
    int batch;
    bool is_full;
};

static void fail(const struct bench *b, const char *what)
{
    fprintf(stderr, "bench: rank %d: %s: %s\n", b->meet->rank, what, hvd_last_error());
    exit(1);
}

/* ---- the tensors of a step, in the order in which a backward pass makes them ---- */

static int add(int64_t *counts, int n, int64_t in, int64_t out, int64_t window)
{
    counts[n++] = in * out * window;
    counts[n++] = out;
    counts[n++] = out;
    return n;
}

static void resnet50(int64_t *ret_counts)
{
    static const int64_t widths[] = {64, 128, 256, 512}, blocks[] = {3, 4, 6, 3};
    int64_t forward[TENSORS], in = 64;
    int n = add(forward, 0, 3, 64, 49);
    for (int stage = 0; stage < 4; stage++)
        for (int64_t block = 0; block < blocks[stage]; block++) {
            int64_t width = widths[stage];
            n = add(forward, n, in, width, 1);
            n = add(forward, n, width, width, 9);
            n = add(forward, n, width, width * 4, 1);
            if (block == 0)
                n = add(forward, n, in, width * 4, 1);
            in = width * 4;
        }
    forward[n++] = 2048 * 1000;
    forward[n++] = 1000;
    for (int i = 0; i < TENSORS; i++)
        ret_counts[i] = forward[TENSORS - 1 - i];
}

static void fill(struct bench *b, float *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(b->meet->rank + 1);
}

static void check(struct bench *b, const float *data, int64_t count)
{
    float sum = (float)(b->meet->size * (b->meet->size + 1) / 2);
    for (int64_t i = 0; i < count; i++)
        if (data[i] != sum)
            fail(b, "wrong result");
}

/* ---- the things measured ---- */

static void op_api(struct bench *b)
{
    if (!ranks_allreduce("negotiate.op", b->tensors[0], TINY))
        fail(b, "op");
}

static void op_bare(struct bench *b)
{
    if (!raw_allreduce(&b->raw, b->raw_tensors[0], TINY))
        fail(b, "bare op");
}

static void step_api(struct bench *b, const int64_t *counts, char (*names)[32])
{
    hvd_handle_t handles[TENSORS];
    hvd_op_t op;
    hvd_op_init(&op, HVD_ALLREDUCE);
    for (int i = 0; i < TENSORS; i++) {
        op.name = names[i];
        op.input = (hvd_tensor_t){.data = b->tensors[i],
                                  .shape = &counts[i],
                                  .ndim = 1,
                                  .dtype = HVD_FLOAT32,
                                  .device = HVD_DEVICE_CPU};
        op.output = op.input;
        if (hvd_submit(&op, &handles[i]) != HVD_OK)
            fail(b, names[i]);
    }
    for (int i = 0; i < TENSORS; i++) {
        if (hvd_wait(handles[i], WAIT_MS) != HVD_OK)
            fail(b, names[i]);
        hvd_release(handles[i]);
    }
}

static void step_bare(struct bench *b, const int64_t *counts)
{
    struct coll_part parts[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        parts[i] = (struct coll_part){
            .in = b->raw_tensors[i], .out = b->raw_tensors[i], .count = (uint64_t)counts[i]};
    if (!raw_allreduce_parts(&b->raw, parts, TENSORS))
        fail(b, "bare step");
}

static const int64_t *tiny_counts(void)
{
    static int64_t counts[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        counts[i] = TINY;
    return counts;
}

static void tiny_api(struct bench *b)
{
    step_api(b, tiny_counts(), b->names[0]);
}

static void tiny_bare(struct bench *b)
{
    step_bare(b, tiny_counts());
}

static void full_api(struct bench *b)
{
    step_api(b, b->counts, b->names[1]);
}

static void full_bare(struct bench *b)
{
    step_bare(b, b->counts);
}

static const struct work works[] = {
    {"op, 8 bytes", op_api, op_bare, OP_BATCH, false},
    {"step of 161, tiny", tiny_api, tiny_bare, STEP_TINY_BATCH, false},
    {"step of 161, full", full_api, full_bare, 1, true}};

/* ---- measuring ---- */

static double measure(struct bench *b, const struct work *work, bool is_api)
{
    float **tensors = is_api ? b->tensors : b->raw_tensors;
    const int64_t *counts = work->is_full ? b->counts : tiny_counts();
    for (int i = 0; i < TENSORS; i++)
        fill(b, tensors[i], counts[i]);
    meet_barrier(b->meet);
    double began = now_s();
    for (int k = 0; k < work->batch; k++)
        (is_api ? work->api : work->bare)(b);
    double took = meet_max(b->meet, now_s() - began) / work->batch;
    if (work->is_full)
        for (int i = 0; i < TENSORS; i++)
            check(b, tensors[i], counts[i]);
    return took * 1e6;
}

static void measure_work(struct bench *b, const struct work *work)
{
    double api[STATS_SAMPLES_MAX], bare[STATS_SAMPLES_MAX];
    struct row *row = &b->rows[b->row_count++];
    hvd_stats_t first = {.struct_size = sizeof first}, last = {.struct_size = sizeof last};
    size_t rounds = (size_t)b->options.rounds;
    for (int i = 0; i < WARM; i++) {
        measure(b, work, true);
        measure(b, work, false);
    }
    hvd_stats(&first);
    for (size_t i = 0; i < rounds; i++) {
        bool is_first = stats_random(&b->seed) & 1;
        for (int k = 0; k < 2; k++) {
            bool is_api = (k == 0) == is_first;
            (is_api ? api : bare)[i] = measure(b, work, is_api);
        }
    }
    hvd_stats(&last);
    double times = (double)rounds * work->batch;
    *row = (struct row){.life = b->life,
                        .what = work->what,
                        .api_us = stats_quantile(api, rounds, 0.5),
                        .raw_us = stats_quantile(bare, rounds, 0.5),
                        .added_us = stats_difference(api, bare, rounds),
                        .messages = (double)(last.messages_sent - first.messages_sent) / times,
                        .allocations = (double)(last.allocations - first.allocations) / times,
                        .batches = (double)(last.batches - first.batches) / times,
                        .planned = (double)(last.batches_planned - first.batches_planned) / times};
    if (b->meet->rank == 0) {
        printf("%-11s %-18s %10.2f %10.2f %10.2f [%.2f to %.2f] %9.3f %7.3f %8.2f %8.2f\n",
               row->life, row->what, row->api_us, row->raw_us, row->added_us.median,
               row->added_us.low, row->added_us.high, row->messages, row->allocations, row->batches,
               row->planned);
        fflush(stdout);
    }
}

static void measure_life(struct bench *b, const struct ranks_job *job, bool is_planned)
{
    b->life = is_planned ? "planned" : "negotiated";
    setenv("HOROVOD_PLAN_DISABLE", is_planned ? "0" : "1", 1);
    if (!ranks_init(job, b->meet->rank, b->meet->size))
        exit(1);
    float *memory = hvd_alloc((size_t)b->elements * sizeof(float));
    if (memory == NULL)
        fail(b, "memory");
    for (int i = 0; i < TENSORS; i++) {
        b->tensors[i] = memory;
        memory += (b->counts[i] + 15) / 16 * 16;
    }
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++)
        measure_work(b, &works[i]);
    meet_barrier(b->meet);
    hvd_free(b->tensors[0]);
    hvd_shutdown();
}

/* ---- telling and life ---- */

static int json_write(const struct bench *b, double load)
{
    FILE *out = fopen(b->options.json, "w");
    if (out == NULL) {
        perror(b->options.json);
        return 1;
    }
    fprintf(out,
            "{\"bench\": \"negotiate\", \"ranks\": %d, \"cores\": %d, \"load_before\": %.2f,\n"
            " \"rows\": [\n",
            b->meet->size, meet_core_count(), load);
    for (size_t i = 0; i < b->row_count; i++) {
        const struct row *r = &b->rows[i];
        fprintf(out,
                "  {\"life\": \"%s\", \"what\": \"%s\", \"api_us\": %.3f, \"raw_us\": %.3f, "
                "\"added_us\": %.3f, \"low\": %.3f, \"high\": %.3f, \"messages\": %.4f, "
                "\"allocations\": %.4f, \"batches\": %.3f, \"planned\": %.3f}%s\n",
                r->life, r->what, r->api_us, r->raw_us, r->added_us.median, r->added_us.low,
                r->added_us.high, r->messages, r->allocations, r->batches, r->planned,
                i + 1 < b->row_count ? "," : "");
    }
    fprintf(out, " ]}\n");
    return fclose(out) == 0 ? 0 : 1;
}

static int body(struct meet *meet, const struct ranks_job *job, void *arg)
{
    static struct bench b;
    double load = stats_load();
    b.options = *(const struct options *)arg;
    b.meet = meet;
    b.seed = 99;
    resnet50(b.counts);
    for (int i = 0; i < TENSORS; i++) {
        b.elements += (b.counts[i] + 15) / 16 * 16;
        snprintf(b.names[0][i], sizeof b.names[0][i], "tiny.%d", i);
        snprintf(b.names[1][i], sizeof b.names[1][i], "grad.%d", i);
    }
    if (!raw_open(&b.raw, meet))
        return 1;
    float *memory = raw_alloc(&b.raw, (size_t)b.elements * sizeof(float));
    if (memory == NULL)
        return 1;
    for (int i = 0; i < TENSORS; i++) {
        b.raw_tensors[i] = memory;
        memory += (b.counts[i] + 15) / 16 * 16;
    }
    if (meet->rank == 0) {
        printf("Cost of agreement: %d ranks on %d cores%s, load average %.2f; microseconds\n",
               meet->size, meet_core_count(), meet->is_crowded ? " (OVERSUBSCRIBED)" : "", load);
        printf("%-11s %-18s %10s %10s %10s %-16s %9s %7s %8s %8s\n", "life", "what", "API", "bare",
               "added", "", "messages", "allocs", "batches", "planned");
    }
    measure_life(&b, job, false);
    measure_life(&b, job, true);
    raw_close(&b.raw);
    return meet->rank == 0 && b.options.json != NULL ? json_write(&b, load) : 0;
}

int main(int argc, char **argv)
{
    struct options options = {.ranks = 2, .rounds = 101};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--ranks") == 0)
            options.ranks = atoi(value);
        else if (strcmp(argv[i], "--rounds") == 0)
            options.rounds = atoi(value);
        else if (strcmp(argv[i], "--json") == 0)
            options.json = value;
        else
            options.ranks = 0;
    }
    if (options.ranks < 2 || options.ranks > MEET_RANKS_MAX || options.rounds < 3 ||
        options.rounds > STATS_SAMPLES_MAX) {
        fprintf(stderr, "use: %s [--ranks N] [--rounds N] [--json FILE]\n", argv[0]);
        return 2;
    }
    return ranks_run(options.ranks, body, &options) == 0 ? 0 : 1;
}
