/* SPDX-License-Identifier: Apache-2.0 */
/* host_coll.c - how fast ranks on one host reduce: microseconds and GB/s of allreduce by size.
 *
 * Forks the ranks, connects them by shared memory and runs float32 averages in place: buffers in
 * the arena, private and staged, private and read by the kernel. "warm" is a batch back to back
 * with untouched buffers, divided by its length. "dirty" writes all inputs anew before each call,
 * meets, and takes the slowest rank's time; the median of all calls. GB/s is bytes of one buffer
 * divided by the dirty time (the warm time below 64 KiB). The first line is the time to connect.
 *
 * Use:   host_coll [ranks, default 2] [milliseconds per figure, default 200] [largest MiB, 64]
 * Thread: one per process.  Start reading at rank_main(). */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/native/native.h"
#include "transport/shm/shm.h"

#define RANKS_MAX   256
#define CALLS_MAX   1000
#define WAYS        3
#define SPIN_TURNS  20000
#define YIELD_TURNS 30 /* when ranks outnumber cores */

enum way { WAY_ARENA, WAY_STAGED, WAY_READ };
static const char *const way_names[WAYS] = {"arena", "private, staged", "private, read"};

struct board { /* memory shared by all ranks */
    struct endpoint all[RANKS_MAX];
    _Atomic int32_t arrived;
    _Atomic int32_t failed;
    int64_t connect_ns[RANKS_MAX];
    int64_t warm_ns[RANKS_MAX];
    int64_t dirty_ns[RANKS_MAX][CALLS_MAX];
};

struct rank {
    struct board *board;
    int32_t index, count;
    int64_t figure_ns;
    size_t bytes_max;
    struct config config;
    struct shm *shm;
    struct group group;
    int32_t ranks[RANKS_MAX];
    struct host_coll *h;
    bool is_crowded;
    int32_t meetings;
};

static void die(const struct rank *rank, const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", (int)rank->index, what, why);
    atomic_store(&rank->board->failed, 1);
    exit(1);
}

static void meet(struct rank *rank)
{
    int32_t wanted = ++rank->meetings * rank->count;
    atomic_fetch_add(&rank->board->arrived, 1);
    while (atomic_load(&rank->board->arrived) < wanted && !atomic_load(&rank->board->failed))
        sched_yield();
}

static void run(struct rank *rank, const struct coll *coll)
{
    struct error error = {0};
    struct transport *t = shm_transport(rank->shm);
    hvd_status_t status = host_coll_start(rank->h, coll, &error);
    if (status == HVD_OK)
        status = HVD_IN_PROGRESS;
    for (int turns = 0; status == HVD_IN_PROGRESS; turns++) {
        bool has_moved;
        status = host_coll_progress(rank->h, &has_moved, &error);
        if (has_moved || status != HVD_IN_PROGRESS) {
            turns = 0;
            continue;
        }
        if (turns % 1000 == 999)
            t->ops->progress(t, os_now_ns(t->os));
        if (turns > (rank->is_crowded ? YIELD_TURNS : SPIN_TURNS))
            sched_yield();
    }
    if (status != HVD_OK)
        die(rank, "allreduce", error.text);
}

static void barrier(struct rank *rank)
{
    struct coll coll = {.kind = HVD_BARRIER};
    run(rank, &coll);
}

static void fill(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value + (float)(i & 255);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t slowest(const struct board *board, int32_t count, int call)
{
    int64_t most = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t ns = call < 0 ? board->warm_ns[i] : board->dirty_ns[i][call];
        most = ns > most ? ns : most;
    }
    return most;
}

static void print_row(const struct rank *rank, size_t bytes, int64_t warm_calls, int dirty_calls)
{
    static int64_t times[CALLS_MAX];
    double warm_us = (double)slowest(rank->board, rank->count, -1) / (double)warm_calls / 1e3;
    for (int i = 0; i < dirty_calls; i++)
        times[i] = slowest(rank->board, rank->count, i);
    qsort(times, (size_t)dirty_calls, sizeof times[0], by_value);
    double dirty_us = (double)times[dirty_calls / 2] / 1e3;
    double us = bytes < 64u << 10 ? warm_us : dirty_us;
    printf("%10zu %12.2f %12.2f %10.2f\n", bytes, warm_us, dirty_us, (double)bytes / us / 1e3);
    fflush(stdout);
}

static void measure(struct rank *rank, float *values, size_t bytes)
{
    const struct os *os = os_host();
    struct coll_part part = {.in = values, .out = values, .count = bytes / sizeof(float)};
    struct coll coll = {.kind = HVD_ALLREDUCE,
                        .dtype = HVD_FLOAT32,
                        .reduce = HVD_SUM,
                        .prescale = 1.0,
                        .postscale = 1.0 / rank->count,
                        .parts = &part,
                        .part_count = 1};
    fill(values, part.count, (float)rank->index);
    for (int i = 0; i < 10; i++) /* settles what is measured and chosen at first use */
        run(rank, &coll);
    /* the number of calls must be equal everywhere: by a nominal rate */
    int64_t nominal_ns = 1000 + (int64_t)(bytes / 4) * rank->count / 2;
    int64_t warm = rank->figure_ns / nominal_ns + 3;
    int dirty = (int)(warm < CALLS_MAX ? warm : CALLS_MAX);
    barrier(rank);
    int64_t began = os_now_ns(os);
    for (int64_t i = 0; i < warm; i++)
        run(rank, &coll);
    rank->board->warm_ns[rank->index] = os_now_ns(os) - began;
    for (int i = 0; i < dirty; i++) {
        fill(values, part.count, (float)(rank->index + i));
        barrier(rank);
        began = os_now_ns(os);
        run(rank, &coll);
        rank->board->dirty_ns[rank->index][i] = os_now_ns(os) - began;
    }
    float expected = (float)(dirty - 1) + (float)(rank->count - 1) / 2.0f;
    if (part.count > 0 && (values[0] < expected - 0.01f || values[0] > expected + 0.01f))
        die(rank, "allreduce", "wrong result");
    barrier(rank);
    if (rank->index == 0)
        print_row(rank, bytes, warm, dirty);
    barrier(rank);
}

static void group_open(struct rank *rank, enum way way)
{
    struct error error = {0};
    rank->config.cma = way == WAY_READ ? 1 : 0;
    rank->group.set_id = (int32_t)way;
    if (host_coll_create(os_host(), &rank->config, rank->shm, &rank->group, &rank->h, &error) !=
        HVD_OK)
        die(rank, "group", error.text);
}

static void way_run(struct rank *rank, enum way way)
{
    group_open(rank, way);
    float *values = way == WAY_ARENA ? shm_heap_alloc(rank->shm, rank->bytes_max)
                                     : aligned_alloc(4096, rank->bytes_max);
    if (values == NULL)
        die(rank, "memory", "none");
    memset(values, 0, rank->bytes_max);
    if (rank->index == 0)
        printf("%s, %d ranks\n%10s %12s %12s %10s\n", way_names[way], (int)rank->count, "bytes",
               "warm us", "dirty us", "GB/s");
    for (size_t bytes = 8; bytes <= rank->bytes_max; bytes *= bytes < 1024 ? 8 : 4)
        measure(rank, values, bytes);
    meet(rank);
    host_coll_destroy(rank->h);
    if (way == WAY_ARENA)
        shm_heap_free(rank->shm, values);
    else
        free(values);
}

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    (void)ctx, (void)peer, (void)bytes, (void)n;
}
static void on_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    (void)peer, (void)status;
    struct rank *rank = ctx;
    if (!atomic_load(&rank->board->failed))
        die(rank, "peer", why);
}

static void connect_all(struct rank *rank)
{
    const struct os *os = os_host();
    static const uint8_t key[32] = {1};
    static struct endpoint all[RANKS_MAX];
    struct error error = {0};
    if (shm_create(os, &rank->config, rank->index, &rank->board->all[rank->index], &rank->shm,
                   &error) != HVD_OK)
        die(rank, "create", error.text);
    meet(rank);
    memcpy(all, rank->board->all, sizeof all);
    struct transport_events events = {.ctx = rank, .message = on_message, .peer_down = on_down};
    int64_t began = os_now_ns(os);
    if (shm_connect(rank->shm, all, rank->count, NULL, key, 0, os->poll_create(os->ctx), &events,
                    &error) != HVD_OK)
        die(rank, "connect", error.text);
    rank->board->connect_ns[rank->index] = os_now_ns(os) - began;
    struct transport *t = shm_transport(rank->shm);
    for (int32_t i = 0; i < rank->count; i++)
        if (i != rank->index && !t->ops->reaches(t, i))
            die(rank, "connect", "a rank is not reached");
    meet(rank);
}

static void rank_main(struct rank *rank)
{
    connect_all(rank);
    if (rank->index == 0) {
        int64_t most = 0;
        for (int32_t i = 0; i < rank->count; i++)
            most = rank->board->connect_ns[i] > most ? rank->board->connect_ns[i] : most;
        printf("connected %d ranks in %.1f ms\n", (int)rank->count, (double)most / 1e6);
    }
    for (int32_t i = 0; i < rank->count; i++)
        rank->ranks[i] = i;
    rank->group = (struct group){
        .size = rank->count, .self = rank->index, .ranks = rank->ranks, .is_one_host = true};
    rank->is_crowded = rank->count > os_host()->cpu_count(os_host()->ctx);
    for (int way = 0; way < WAYS && rank->bytes_max > 0; way++)
        way_run(rank, (enum way)way);
    meet(rank);
}

int main(int argc, char **argv)
{
    int32_t count = argc > 1 ? atoi(argv[1]) : 2;
    int milliseconds = argc > 2 ? atoi(argv[2]) : 200;
    size_t mebibytes = argc > 3 ? (size_t)atoi(argv[3]) : 64;
    if (count < 1 || count > RANKS_MAX || milliseconds < 1) {
        fprintf(stderr, "use: host_coll [ranks] [milliseconds] [largest MiB, 0: only connect]\n");
        return 2;
    }
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    for (int32_t i = 0; i < count; i++) {
        if (fork() != 0)
            continue;
        static struct rank rank;
        rank = (struct rank){.board = board,
                             .index = i,
                             .count = count,
                             .figure_ns = (int64_t)milliseconds * 1000000,
                             .bytes_max = mebibytes << 20};
        rank.config.timeout_s = 60;
        rank.config.local_size = count;
        rank_main(&rank);
        exit(0);
    }
    int is_bad = 0;
    for (int status; wait(&status) > 0;)
        is_bad |= status;
    return is_bad != 0;
}
