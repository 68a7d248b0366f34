/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - how fast the reduction kernels are: GB/s of result by instruction set, dtype and op.
 *
 * A row is one shape of call: so many buffers summed into so many. "2>2" and "4>4" are in place,
 * as ranks on one host reduce each other's buffers; "2>1" is a += b. Columns are bytes of one
 * buffer: in the first cache, in the second, in memory. The figure is bytes of one buffer divided
 * by the time of one call, the median of several.
 *
 * Build: cc -O2 -std=gnu11 -Iinclude -Isrc bench/reduce.c src/reduce/[a-z]*.c -o bench_reduce
 * Use:   bench_reduce [milliseconds per figure, default 50]
 * Thread: one.  Start reading at main(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reduce/reduce.h"

#define BUFFERS_MAX 4
#define SAMPLES     5

static const size_t sizes[] = {16u << 10, 1u << 20, 64u << 20};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

struct shape {
    const char *name;
    int32_t sources, targets;
};

static const struct shape shapes[] = {{"2>1", 2, 1}, {"2>2", 2, 2}, {"4>4", 4, 4}};

struct row {
    const char *name;
    hvd_dtype_t dtype;
    hvd_reduce_t op;
    double postscale;
};

static const struct row rows[] = {
    {"float32 sum", HVD_FLOAT32, HVD_SUM, 1.0},   {"float32 average", HVD_FLOAT32, HVD_SUM, 0.5},
    {"float32 max", HVD_FLOAT32, HVD_MAX, 1.0},   {"float64 sum", HVD_FLOAT64, HVD_SUM, 1.0},
    {"float16 sum", HVD_FLOAT16, HVD_SUM, 1.0},   {"float16 max", HVD_FLOAT16, HVD_MAX, 1.0},
    {"bfloat16 sum", HVD_BFLOAT16, HVD_SUM, 1.0}, {"int32 sum", HVD_INT32, HVD_SUM, 1.0},
    {"int32 average", HVD_INT32, HVD_SUM, 0.5},   {"int64 product", HVD_INT64, HVD_PRODUCT, 1.0},
    {"uint8 min", HVD_UINT8, HVD_MIN, 1.0},       {"uint8 product", HVD_UINT8, HVD_PRODUCT, 1.0},
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double calls_per_s(enum reduce_isa isa, const struct reduce_job *job, double budget_s)
{
    const double start = now_s();
    long calls = 0;
    do {
        reduce_run_isa(isa, job);
        calls++;
    } while (now_s() - start < budget_s);
    return (double)calls / (now_s() - start);
}

static double measure(enum reduce_isa isa, const struct row *row, const struct shape *shape,
                      void *const *buffers, size_t bytes, double budget_s)
{
    static const size_t element_bytes[HVD_DTYPE_COUNT] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
    double samples[SAMPLES];
    const void *sources[BUFFERS_MAX];
    for (int i = 0; i < BUFFERS_MAX; i++)
        sources[i] = buffers[i];
    const struct reduce_job job = {
        .dtype = row->dtype,
        .op = row->op,
        .prescale = 1.0,
        .postscale = row->postscale,
        .sources = sources,
        .source_count = shape->sources,
        .targets = buffers,
        .target_count = shape->targets,
        .count = bytes / element_bytes[row->dtype],
    };

    reduce_run_isa(isa, &job);
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = calls_per_s(isa, &job, budget_s / SAMPLES);
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
    return samples[SAMPLES / 2] * (double)bytes / 1e9;
}

static void print_table(enum reduce_isa isa, void *const *buffers, double budget_s)
{
    printf("\n%-8s %-16s %-5s %10s %10s %10s   GB/s\n", "isa", "kernel", "shape", "16 KiB", "1 MiB",
           "64 MiB");
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            printf("%-8s %-16s %-5s", reduce_isa_name(isa), rows[r].name, shapes[s].name);
            for (size_t i = 0; i < SIZE_COUNT; i++)
                printf(" %10.2f", measure(isa, &rows[r], &shapes[s], buffers, sizes[i], budget_s));
            printf("\n");
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    const double budget_s = (argc > 1 ? atof(argv[1]) : 50.0) * 1e-3;
    void *buffers[BUFFERS_MAX] = {NULL};
    int result = 1;

    for (int i = 0; i < BUFFERS_MAX; i++) {
        buffers[i] = aligned_alloc(4096, sizes[SIZE_COUNT - 1]);
        if (!buffers[i])
            goto free_buffers;
        memset(buffers[i], 0, sizes[SIZE_COUNT - 1]); /* sums of zeros never leave the normals */
    }
    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++)
        if (reduce_has_isa((enum reduce_isa)isa))
            print_table((enum reduce_isa)isa, buffers, budget_s);
    result = 0;
free_buffers:
    for (int i = 0; i < BUFFERS_MAX; i++)
        free(buffers[i]);
    return result;
}
