/* SPDX-License-Identifier: Apache-2.0 */
/* limit.c - how fast this machine can move the bytes of an in-place allreduce in shared memory.
 *
 * P processes, each with a buffer that all see; each reads its slice of all buffers, adds, and
 * writes it to all, with no agreement whatever (common/movement.h). bench/allreduce measures the
 * same between its other measurements; this program gives the figures alone, and needs no MPI.
 *
 * Use: limit [ranks, default 2 and 4] [milliseconds per size, default 500]
 * Thread: one per rank.  Start reading at measure_size(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/meet.h"
#include "common/movement.h"
#include "common/ranks.h"
#include "common/stats.h"

#define BYTES_MAX  (64u << 20)
#define ROUNDS_MIN 9
#define ROUNDS_MAX 201
#define BATCH_MAX  64
#define RING_BYTES (512u << 10)

static const size_t sizes[] = {64u << 10, 256u << 10, 1u << 20, 4u << 20,
                               8u << 20,  16u << 20,  64u << 20};

struct limit {
    float *buffers[MOVEMENT_RANKS_MAX]; /* shared by all ranks */
    double budget_s;
};

static double measure(struct meet *meet, const struct limit *limit, size_t bytes, int batch)
{
    size_t count = bytes / sizeof(float);
    float *mine = limit->buffers[meet->rank];
    for (size_t i = 0; i < count * (size_t)batch; i++)
        mine[i] = (float)(meet->rank + (int)(i & 255));
    meet_barrier(meet);
    double began = now_s();
    for (int k = 0; k < batch; k++) {
        float *at[MOVEMENT_RANKS_MAX];
        for (int i = 0; i < meet->size; i++)
            at[i] = limit->buffers[i] + (size_t)k * count;
        movement_run(at, meet->size, meet->rank, count);
    }
    return meet_max(meet, now_s() - began) / batch;
}

static void measure_size(struct meet *meet, const struct limit *limit, size_t bytes)
{
    double seconds[ROUNDS_MAX];
    size_t rounds = 0;
    int batch = bytes < RING_BYTES ? (int)(RING_BYTES / bytes) : 1;
    batch = batch > BATCH_MAX ? BATCH_MAX : batch;
    for (int i = 0; i < 3; i++)
        measure(meet, limit, bytes, batch);
    double began = now_s();
    while (rounds < ROUNDS_MAX) {
        seconds[rounds++] = measure(meet, limit, bytes, batch);
        double spent = meet_max(meet, now_s() - began);
        if (spent > limit->budget_s && rounds >= ROUNDS_MIN)
            break;
    }
    double median = stats_quantile(seconds, rounds, 0.5);
    if (meet->rank == 0)
        printf("%6d %10zu %12.1f %10.2f %14.2f\n", meet->size, bytes, median * 1e6,
               (double)bytes / median / 1e9,
               2.0 * (double)bytes * (double)meet->size / median / 1e9);
}

static int body(struct meet *meet, const struct ranks_job *job, void *arg)
{
    (void)job;
    memset(((struct limit *)arg)->buffers[meet->rank], 0, BYTES_MAX);
    meet_barrier(meet);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure_size(meet, arg, sizes[i]);
    return 0;
}

static int run(int ranks, double budget_s)
{
    struct limit limit = {.budget_s = budget_s};
    for (int i = 0; i < ranks; i++) {
        limit.buffers[i] =
            mmap(NULL, BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (limit.buffers[i] == MAP_FAILED) {
            perror("limit");
            return 1;
        }
    }
    int failed = ranks_run(ranks, body, &limit);
    for (int i = 0; i < ranks; i++)
        munmap(limit.buffers[i], BYTES_MAX);
    return failed;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0;
    double budget_s = (argc > 2 ? atof(argv[2]) : 500.0) * 1e-3;
    if (argc > 1 && (ranks < 1 || ranks > MOVEMENT_RANKS_MAX)) {
        fprintf(stderr, "use: %s [ranks] [milliseconds per size]\n", argv[0]);
        return 2;
    }
    printf("The same bytes without agreement: %d cores, load average %.2f\n", meet_core_count(),
           stats_load());
    printf("%6s %10s %12s %10s %14s\n", "ranks", "bytes", "us", "GB/s", "memory GB/s");
    if (ranks > 0)
        return run(ranks, budget_s) == 0 ? 0 : 1;
    return run(2, budget_s) + run(4, budget_s) == 0 ? 0 : 1;
}
