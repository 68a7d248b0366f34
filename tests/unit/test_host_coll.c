/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_coll.c - collectives in shared memory: every kind, type and operation, buffers in
 * arenas, private and mixed, read by the kernel or staged, against a reference and bit-identical on
 * all ranks; resets, deaths, mismatches and garbage.
 *
 * Ranks are forked processes (or threads, for the thread sanitizer). Each knows all ranks' inputs,
 * computes the expected result with the scalar kernels, and exits with 1 at the first wrong byte.
 * alarm() kills a test that hangs. Start reading at sweep(). */
#include "transport_conformance.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../sim/sim_adasum.h"
#include "backend/native/host.h"
#include "base/config.h"
#include "coll_values.h"
#include "transport_ends.h"

#define RANKS_MAX  16
#define DEADLINE_S 840 /* ends a hang */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s\n", (int)w->rank, __FILE__, __LINE__, #condition); \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* --- a world of forked ranks or threads --- */

struct meeting { /* in memory shared by all */
    struct endpoint all[RANKS_MAX];
    _Atomic int32_t arrived[8];
};

struct world {
    struct meeting *meeting;
    int32_t rank, size;
    struct config config;
    struct shm *shm;
    struct host_coll *h;
    int poll_fd;
    int32_t meetings;
    uint32_t random;
    int32_t sequence; /* number of the collective, for messages */
};

typedef void (*rank_fn)(struct world *w);

/* All ranks meet, without the code under test. */
static void meet(struct world *w)
{
    _Atomic int32_t *counter = &w->meeting->arrived[w->meetings++];
    atomic_fetch_add(counter, 1);
    while (atomic_load(counter) < w->size)
        sched_yield();
}

static void world_enter(struct world *w)
{
    const struct os *os = os_host();
    static const uint8_t key[32] = {9, 9};
    struct error error = {0};
    CHECK(shm_create(os, &w->config, w->rank, &w->meeting->all[w->rank], &w->shm, &error) ==
          HVD_OK);
    meet(w);
    struct endpoint all[RANKS_MAX];
    memcpy(all, w->meeting->all, sizeof all);
    w->poll_fd = os->poll_create(os->ctx);
    struct transport_events events = {.message = ends_ignore_message,
                                      .peer_down = ends_ignore_down};
    CHECK(shm_connect(w->shm, all, w->size, NULL, key, 1, w->poll_fd, &events, &error) == HVD_OK);
    int32_t ranks[RANKS_MAX];
    for (int32_t i = 0; i < w->size; i++)
        ranks[i] = i;
    struct group group = {.size = w->size, .self = w->rank, .ranks = ranks, .is_one_host = true};
    CHECK(host_coll_create(os, &w->config, w->shm, &group, &w->h, &error) == HVD_OK);
    w->random = 77;
}

static void world_leave(struct world *w)
{
    meet(w);
    host_coll_destroy(w->h);
    shm_transport(w->shm)->ops->destroy(shm_transport(w->shm));
    close(w->poll_fd);
}

static struct world world_of(struct meeting *meeting, int32_t rank, int32_t size, int64_t cma)
{
    struct world w = {.meeting = meeting, .rank = rank, .size = size};
    w.config.local_size = -1;
    w.config.timeout_s = 60;
    w.config.cma = cma;
    w.config.arena_max_bytes = 256 << 20;
    return w;
}

static struct meeting *meeting_create(void)
{
    void *memory = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* Runs `fn` on `size` forked ranks; `victim` is expected to be killed, -1: none. */
static void run_forked(int32_t size, int64_t cma, rank_fn fn, int32_t victim)
{
    struct meeting *meeting = meeting_create();
    pid_t pids[RANKS_MAX];
    for (int32_t i = 0; i < size; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] > 0)
            continue;
        alarm(DEADLINE_S);
        signal(SIGSEGV, SIG_DFL); /* the test runner would go on with the next test in this child */
        signal(SIGBUS, SIG_DFL);
        struct world w = world_of(meeting, i, size, cma);
        world_enter(&w);
        fn(&w);
        world_leave(&w);
        exit(0);
    }
    bool is_good = true;
    for (int32_t left = size; left > 0; left--) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        bool is_victim = victim >= 0 && pid == pids[victim];
        bool is_right = is_victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                  : WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!is_right && is_good) /* the others may wait for it for ever */
            for (int32_t i = 0; i < size; i++)
                kill(pids[i], SIGTERM);
        is_good &= is_right;
    }
    munmap(meeting, sizeof *meeting);
    assert_true(is_good);
}

struct thread_rank {
    struct world world;
    rank_fn fn;
};

static void *thread_main(void *arg)
{
    struct thread_rank *t = arg;
    world_enter(&t->world);
    t->fn(&t->world);
    world_leave(&t->world);
    return NULL;
}

static void run_threads(int32_t size, int64_t cma, rank_fn fn)
{
    struct meeting *meeting = meeting_create();
    static struct thread_rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    for (int32_t i = 0; i < size; i++) {
        ranks[i] = (struct thread_rank){.world = world_of(meeting, i, size, cma), .fn = fn};
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    munmap(meeting, sizeof *meeting);
}

/* --- driving --- */

static hvd_status_t drive(struct world *w, struct error *error)
{
    struct transport *t = shm_transport(w->shm);
    for (;;) {
        bool has_moved;
        hvd_status_t status = host_coll_progress(w->h, &has_moved, error);
        if (status != HVD_IN_PROGRESS)
            return status;
        if (!t->ops->progress(t, os_now_ns(t->os)) && !has_moved)
            sched_yield();
    }
}

static void run(struct world *w, const struct coll *coll)
{
    struct error error = {0};
    w->sequence++;
    hvd_status_t status = host_coll_start(w->h, coll, &error);
    if (status == HVD_OK)
        status = drive(w, &error);
    if (status != HVD_OK) {
        fprintf(stderr, "rank %d, collective %d: status %d: %s\n", (int)w->rank, (int)w->sequence,
                (int)status, error.text);
        _exit(1);
    }
}

/* --- buffers and contents --- */

enum memory { ARENA, PRIVATE, MIXED };

struct buffer {
    uint8_t *bytes;
    bool is_arena;
};

static struct buffer buffer_create(struct world *w, enum memory memory, size_t n, int32_t salt)
{
    struct buffer b = {.is_arena = memory == ARENA || (memory == MIXED && (w->rank + salt) % 2)};
    b.bytes = b.is_arena ? shm_heap_alloc(w->shm, n) : malloc(n + 1);
    CHECK(b.bytes != NULL);
    if (n > 0)
        memset(b.bytes, 0xcd, n);
    return b;
}

static void buffer_destroy(struct world *w, struct buffer *b)
{
    if (b->is_arena)
        shm_heap_free(w->shm, b->bytes);
    else
        free(b->bytes);
    b->bytes = NULL;
}

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Values that every rank can compute for every other. */
static void contents(hvd_dtype_t dtype, uint32_t seed, uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t r = mix(seed * 7919u + (uint32_t)i);
        float value = (float)((int32_t)(r % 2001) - 1000) / 128.0f;
        float *f32 = (float *)(void *)bytes;
        double *f64 = (double *)(void *)bytes;
        uint16_t *u16 = (uint16_t *)(void *)bytes;
        uint32_t *u32 = (uint32_t *)(void *)bytes;
        uint64_t *u64 = (uint64_t *)(void *)bytes;
        switch (dtype) {
        case HVD_UINT8:
        case HVD_INT8: bytes[i] = (uint8_t)r; break;
        case HVD_BOOL: bytes[i] = (uint8_t)(r & 1); break;
        case HVD_UINT16:
        case HVD_INT16: u16[i] = (uint16_t)r; break;
        case HVD_INT32: u32[i] = r; break;
        case HVD_INT64: u64[i] = (uint64_t)r << 20 | r; break;
        case HVD_FLOAT16: u16[i] = reduce_float_to_half(value); break;
        case HVD_BFLOAT16: u16[i] = reduce_float_to_bfloat(value); break;
        case HVD_FLOAT32: f32[i] = value * 1.001f; break;
        case HVD_FLOAT64: f64[i] = (double)value * 1.000001; break;
        case HVD_DTYPE_COUNT: break;
        }
    }
}

static void *scratch(struct world *w, uint64_t bytes)
{
    void *memory = malloc((size_t)bytes + 1);
    CHECK(memory != NULL);
    return memory;
}

static uint32_t seed_of(const struct world *w, int32_t rank, int32_t part)
{
    return (uint32_t)(w->sequence * 100000 + rank * 2000 + part);
}

/* What must come out of a reduction of `count` elements of `part`. */
static uint8_t *expected_reduction(struct world *w, const struct coll *coll, int32_t part,
                                   uint64_t count)
{
    size_t bytes = (size_t)count * hvd_dtype_bytes(coll->dtype);
    const void *sources[RANKS_MAX];
    void *targets[1] = {scratch(w, bytes)};
    for (int32_t i = 0; i < w->size; i++) {
        uint8_t *input = scratch(w, bytes);
        contents(coll->dtype, seed_of(w, i, part), input, count);
        sources[i] = input;
    }
    struct reduce_job job = {.dtype = coll->dtype,
                             .op = coll->reduce,
                             .prescale = coll->prescale,
                             .postscale = coll->postscale,
                             .sources = sources,
                             .source_count = w->size,
                             .targets = targets,
                             .target_count = 1,
                             .count = (size_t)count};
    reduce_run_isa(REDUCE_SCALAR, &job);
    for (int32_t i = 0; i < w->size; i++)
        free((void *)(uintptr_t)sources[i]);
    return targets[0];
}

static void compare(struct world *w, const void *got, const void *expected, uint64_t bytes,
                    const char *what, const struct coll *coll)
{
    if (bytes == 0 || memcmp(got, expected, (size_t)bytes) == 0)
        return;
    uint64_t at = 0;
    while (((const uint8_t *)got)[at] == ((const uint8_t *)expected)[at])
        at++;
    fprintf(stderr,
            "rank %d of %d, collective %d, %s, %s, op %d, %d parts: wrong at byte %llu of %llu\n",
            (int)w->rank, (int)w->size, (int)w->sequence, what, hvd_dtype_name(coll->dtype),
            (int)coll->reduce, (int)coll->part_count, (unsigned long long)at,
            (unsigned long long)bytes);
    _exit(1);
}

/* --- one collective of each kind, checked --- */

#define PARTS_MAX 400
struct parts {
    struct coll_part part[PARTS_MAX];
    struct buffer in[PARTS_MAX], out[PARTS_MAX];
};

static struct coll coll_of(hvd_kind_t kind, hvd_dtype_t dtype, const struct parts *parts,
                           int32_t count)
{
    return (struct coll){.kind = kind,
                         .dtype = dtype,
                         .reduce = HVD_SUM,
                         .prescale = 1.0,
                         .postscale = 1.0,
                         .parts = parts->part,
                         .part_count = count};
}

static void parts_destroy(struct world *w, struct parts *parts, int32_t count)
{
    for (int32_t p = 0; p < count; p++) {
        if (parts->out[p].bytes != parts->in[p].bytes)
            buffer_destroy(w, &parts->out[p]);
        buffer_destroy(w, &parts->in[p]);
    }
    free(parts);
}

struct reduction {
    hvd_dtype_t dtype;
    hvd_reduce_t op;
    double prescale, postscale;
    const uint64_t *counts;
    int32_t part_count;
    enum memory memory;
    bool is_in_place;
};

static void check_allreduce(struct world *w, const struct reduction *r)
{
    struct parts *parts = scratch(w, sizeof *parts);
    size_t element = hvd_dtype_bytes(r->dtype);
    int32_t number = w->sequence++; /* run() counts it; seeds are those of the new number */
    for (int32_t p = 0; p < r->part_count; p++) {
        size_t bytes = (size_t)r->counts[p] * element;
        parts->in[p] = buffer_create(w, r->memory, bytes, 0);
        parts->out[p] = r->is_in_place ? parts->in[p] : buffer_create(w, r->memory, bytes, 0);
        contents(r->dtype, seed_of(w, w->rank, p), parts->in[p].bytes, r->counts[p]);
        parts->part[p] = (struct coll_part){
            .in = parts->in[p].bytes, .out = parts->out[p].bytes, .count = r->counts[p]};
    }
    w->sequence = number;
    struct coll coll = coll_of(HVD_ALLREDUCE, r->dtype, parts, r->part_count);
    coll.reduce = r->op;
    coll.prescale = r->prescale;
    coll.postscale = r->postscale;
    run(w, &coll);
    for (int32_t p = 0; p < r->part_count; p++) {
        uint8_t *expected = expected_reduction(w, &coll, p, r->counts[p]);
        compare(w, parts->out[p].bytes, expected, r->counts[p] * element, "allreduce", &coll);
        free(expected);
    }
    parts_destroy(w, parts, r->part_count);
}

/* rows[p * size + i]: elements of part p for rank i. */
static void check_reducescatter(struct world *w, const struct reduction *r, const uint64_t *rows)
{
    struct parts *parts = scratch(w, sizeof *parts);
    size_t element = hvd_dtype_bytes(r->dtype);
    int32_t number = w->sequence++;
    for (int32_t p = 0; p < r->part_count; p++) {
        uint64_t all = 0;
        for (int32_t i = 0; i < w->size; i++)
            all += rows[p * w->size + i];
        parts->in[p] = buffer_create(w, r->memory, (size_t)all * element, 0);
        parts->out[p] =
            buffer_create(w, r->memory, (size_t)rows[p * w->size + w->rank] * element, 1);
        contents(r->dtype, seed_of(w, w->rank, p), parts->in[p].bytes, all);
        parts->part[p] =
            (struct coll_part){.in = parts->in[p].bytes, .out = parts->out[p].bytes, .count = all};
    }
    w->sequence = number;
    struct coll coll = coll_of(HVD_REDUCESCATTER, r->dtype, parts, r->part_count);
    coll.reduce = r->op;
    coll.prescale = r->prescale;
    coll.postscale = r->postscale;
    coll.counts = rows;
    run(w, &coll);
    for (int32_t p = 0; p < r->part_count; p++) {
        uint8_t *expected = expected_reduction(w, &coll, p, parts->part[p].count);
        uint64_t before = 0;
        for (int32_t i = 0; i < w->rank; i++)
            before += rows[p * w->size + i];
        compare(w, parts->out[p].bytes, expected + before * element,
                rows[p * w->size + w->rank] * element, "reducescatter", &coll);
        free(expected);
    }
    parts_destroy(w, parts, r->part_count);
}

static void check_allgather(struct world *w, hvd_dtype_t dtype, const uint64_t *rows,
                            int32_t part_count, enum memory memory)
{
    struct parts *parts = scratch(w, sizeof *parts);
    size_t element = hvd_dtype_bytes(dtype);
    int32_t number = w->sequence++;
    for (int32_t p = 0; p < part_count; p++) {
        uint64_t all = 0, mine = rows[p * w->size + w->rank];
        for (int32_t i = 0; i < w->size; i++)
            all += rows[p * w->size + i];
        parts->in[p] = buffer_create(w, memory, (size_t)mine * element, 0);
        parts->out[p] = buffer_create(w, memory, (size_t)all * element, 1);
        contents(dtype, seed_of(w, w->rank, p), parts->in[p].bytes, mine);
        parts->part[p] =
            (struct coll_part){.in = parts->in[p].bytes, .out = parts->out[p].bytes, .count = mine};
    }
    w->sequence = number;
    struct coll coll = coll_of(HVD_ALLGATHER, dtype, parts, part_count);
    coll.counts = rows;
    run(w, &coll);
    for (int32_t p = 0; p < part_count; p++) {
        uint64_t at = 0;
        for (int32_t i = 0; i < w->size; i++) {
            uint64_t n = rows[p * w->size + i];
            uint8_t *expected = scratch(w, n * element);
            contents(dtype, seed_of(w, i, p), expected, n);
            compare(w, parts->out[p].bytes + at, expected, n * element, "allgather", &coll);
            at += n * element;
            free(expected);
        }
    }
    parts_destroy(w, parts, part_count);
}

static void check_broadcast(struct world *w, hvd_dtype_t dtype, uint64_t count, int32_t root,
                            enum memory memory, bool is_in_place)
{
    struct parts *parts = scratch(w, sizeof *parts);
    size_t bytes = (size_t)count * hvd_dtype_bytes(dtype);
    int32_t number = w->sequence++;
    parts->in[0] = buffer_create(w, memory, bytes, 0);
    parts->out[0] = is_in_place ? parts->in[0] : buffer_create(w, memory, bytes, 1);
    uint8_t *expected = scratch(w, bytes);
    contents(dtype, seed_of(w, root, 0), expected, count);
    if (w->rank == root && bytes > 0)
        memcpy(parts->in[0].bytes, expected, bytes);
    parts->part[0] =
        (struct coll_part){.in = parts->in[0].bytes, .out = parts->out[0].bytes, .count = count};
    w->sequence = number;
    struct coll coll = coll_of(HVD_BROADCAST, dtype, parts, 1);
    coll.root = root;
    run(w, &coll);
    compare(w, parts->out[0].bytes, expected, bytes, "broadcast", &coll);
    free(expected);
    parts_destroy(w, parts, 1);
}

/* matrix[i * size + j]: elements from rank i to rank j. */
static void check_alltoall(struct world *w, hvd_dtype_t dtype, const uint64_t *matrix,
                           enum memory memory)
{
    struct parts *parts = scratch(w, sizeof *parts);
    size_t element = hvd_dtype_bytes(dtype);
    int32_t number = w->sequence++;
    uint64_t given = 0, taken = 0, recv[RANKS_MAX];
    for (int32_t i = 0; i < w->size; i++) {
        given += matrix[w->rank * w->size + i];
        recv[i] = matrix[i * w->size + w->rank];
        taken += recv[i];
    }
    parts->in[0] = buffer_create(w, memory, (size_t)given * element, 0);
    parts->out[0] = buffer_create(w, memory, (size_t)taken * element, 1);
    contents(dtype, seed_of(w, w->rank, 0), parts->in[0].bytes, given);
    parts->part[0] =
        (struct coll_part){.in = parts->in[0].bytes, .out = parts->out[0].bytes, .count = given};
    w->sequence = number;
    struct coll coll = coll_of(HVD_ALLTOALL, dtype, parts, 1);
    coll.counts = matrix + w->rank * w->size;
    coll.recv_counts = recv;
    run(w, &coll);
    uint64_t at = 0;
    for (int32_t i = 0; i < w->size; i++) {
        uint64_t all = 0, before = 0;
        for (int32_t j = 0; j < w->size; j++) {
            before += j < w->rank ? matrix[i * w->size + j] : 0;
            all += matrix[i * w->size + j];
        }
        uint8_t *expected = scratch(w, all * element);
        contents(dtype, seed_of(w, i, 0), expected, all);
        compare(w, parts->out[0].bytes + at, expected + before * element, recv[i] * element,
                "alltoall", &coll);
        at += recv[i] * element;
        free(expected);
    }
    parts_destroy(w, parts, 1);
}

static void check_barrier(struct world *w)
{
    struct coll coll = {.kind = HVD_BARRIER};
    run(w, &coll);
}

/* --- all kinds, types and sizes --- */

static const enum memory memories[] = {ARENA, PRIVATE, MIXED};

static void sweep_types(struct world *w)
{
    static const hvd_reduce_t ops[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const uint64_t counts[] = {3, 700, 9001};
    for (int dtype = 0; dtype < HVD_DTYPE_COUNT; dtype++) {
        for (size_t op = 0; op < 4; op++) {
            for (size_t c = 0; c < 3; c++) {
                enum memory memory = memories[((size_t)dtype + op + c) % 3];
                struct reduction r = {.dtype = (hvd_dtype_t)dtype,
                                      .op = ops[op],
                                      .prescale = 1.0,
                                      .postscale = 1.0,
                                      .counts = &counts[c],
                                      .part_count = 1,
                                      .memory = memory,
                                      .is_in_place = (op & 1) != 0};
                check_allreduce(w, &r);
                if (reduce_check(r.dtype, r.op, 0.5, 2.25) == HVD_OK) {
                    r.prescale = 0.5;
                    r.postscale = 2.25;
                    check_allreduce(w, &r);
                }
                uint64_t rows[RANKS_MAX];
                for (int32_t i = 0; i < w->size; i++)
                    rows[i] = (counts[c] + (uint64_t)i * 13) % (counts[c] + 1);
                check_reducescatter(w, &r, rows);
            }
        }
    }
}

static void sweep_sizes(struct world *w)
{
    static const uint64_t counts[] = {0, 1, 12, 13, 255, 1000, 2049, 16384, 20011, 100003, 300007};
    for (size_t m = 0; m < 3; m++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct reduction r = {.dtype = HVD_FLOAT32,
                                  .op = HVD_SUM,
                                  .prescale = 1.0,
                                  .postscale = 1.0 / w->size,
                                  .counts = &counts[c],
                                  .part_count = 1,
                                  .memory = memories[m],
                                  .is_in_place = true};
            check_allreduce(w, &r);
            r.is_in_place = false;
            check_allreduce(w, &r);
            check_broadcast(w, HVD_INT32, counts[c], (int32_t)c % w->size, memories[m], c & 1);
            uint64_t rows[RANKS_MAX], matrix[RANKS_MAX * RANKS_MAX];
            for (int32_t i = 0; i < w->size; i++) {
                rows[i] = (uint64_t)i == c % (uint64_t)w->size ? 0 : counts[c] / 4 + (uint64_t)i;
                for (int32_t j = 0; j < w->size; j++)
                    matrix[i * w->size + j] =
                        (counts[c] + (uint64_t)(i * 7 + j * 3)) / (uint64_t)(4 + (i + j) % 5);
            }
            check_reducescatter(w, &r, rows);
            check_allgather(w, HVD_FLOAT64, rows, 1, memories[m]);
            check_alltoall(w, HVD_INT16, matrix, memories[m]);
            check_barrier(w);
        }
    }
}

static uint32_t dice(struct world *w, uint32_t sides)
{
    w->random = w->random * 1664525u + 1013904223u;
    return (w->random >> 9) % sides;
}

static uint64_t dice_count(struct world *w, uint32_t order)
{
    switch (dice(w, 4)) {
    case 0: return dice(w, 16);
    case 1: return dice(w, 2000);
    case 2: return dice(w, 20000);
    }
    return dice(w, order);
}

static void random_rows(struct world *w, uint64_t *rows, int32_t count, uint32_t order)
{
    for (int32_t i = 0; i < count; i++)
        rows[i] = dice(w, 3) == 0 ? dice(w, order) : dice(w, 50);
}

static void random_reduction(struct world *w, bool is_scatter)
{
    static const hvd_reduce_t ops[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    uint64_t counts[PARTS_MAX];
    bool has_many = dice(w, 6) == 0;
    int32_t parts = has_many ? 2 + (int32_t)dice(w, 398) : 1 + (int32_t)dice(w, 5);
    for (int32_t p = 0; p < parts; p++)
        counts[p] = has_many ? dice(w, 900) : dice_count(w, 200000);
    struct reduction r = {.dtype = (hvd_dtype_t)dice(w, HVD_DTYPE_COUNT),
                          .op = ops[dice(w, 4)],
                          .prescale = 1.0,
                          .postscale = 1.0,
                          .counts = counts,
                          .part_count = parts,
                          .memory = memories[dice(w, 3)],
                          .is_in_place = dice(w, 2) != 0};
    if (reduce_check(r.dtype, r.op, 0.25, 3.0) == HVD_OK && dice(w, 2) == 0) {
        r.prescale = 0.25;
        r.postscale = 3.0;
    }
    if (!is_scatter) {
        check_allreduce(w, &r);
        return;
    }
    uint64_t *local = scratch(w, PARTS_MAX * RANKS_MAX * sizeof *local);
    random_rows(w, local, parts * w->size, has_many ? 60 : 30000);
    check_reducescatter(w, &r, local);
    free(local);
}

static void random_sequence(struct world *w, int32_t count)
{
    uint64_t *rows = scratch(w, PARTS_MAX * RANKS_MAX * sizeof *rows);
    for (int32_t n = 0; n < count; n++) {
        hvd_dtype_t dtype = (hvd_dtype_t)dice(w, HVD_DTYPE_COUNT);
        int32_t parts = 1 + (int32_t)dice(w, 4);
        switch (dice(w, 8)) {
        case 0: check_barrier(w); break;
        case 1:
            random_rows(w, rows, parts * w->size, 60000);
            check_allgather(w, dtype, rows, parts, memories[dice(w, 3)]);
            break;
        case 2:
            random_rows(w, rows, w->size * w->size, 60000);
            check_alltoall(w, dtype, rows, memories[dice(w, 3)]);
            break;
        case 3: {
            uint64_t elements = dice_count(w, 400000);
            int32_t root = (int32_t)dice(w, (uint32_t)w->size);
            check_broadcast(w, dtype, elements, root, memories[dice(w, 3)], dice(w, 2) != 0);
            break;
        }
        case 4: random_reduction(w, true); break;
        default: random_reduction(w, false); break;
        }
    }
    free(rows);
}

static void random_long(struct world *w)
{
    random_sequence(w, 35);
}
static void random_short(struct world *w)
{
    random_sequence(w, 25);
}

static void test_types(void **state)
{
    (void)state;
    run_forked(2, 0, sweep_types, -1);
    run_forked(3, 1, sweep_types, -1);
}

static void test_sizes(void **state)
{
    (void)state;
    run_forked(1, -1, sweep_sizes, -1);
    run_forked(2, 0, sweep_sizes, -1);
    run_forked(2, 1, sweep_sizes, -1);
    run_forked(4, -1, sweep_sizes, -1);
    run_forked(7, 0, sweep_sizes, -1);
}

static void test_random(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 4, 7, 8};
    for (size_t i = 0; i < 6; i++)
        for (int64_t cma = -1; cma <= 1; cma++)
            run_forked(sizes[i], cma, random_long, -1);
}

static void test_threads(void **state)
{
    (void)state;
    run_threads(2, 0, random_short);
    run_threads(3, 1, random_short);
}

/* The measured choice: enough large private collectives to go through all trials. */
static void trials(struct world *w)
{
    for (int32_t n = 0; n < 20; n++) {
        uint64_t counts[] = {n % 3 == 0 ? 500001 : 50001, 17};
        struct reduction r = {.dtype = HVD_FLOAT32,
                              .op = HVD_SUM,
                              .prescale = 1.0,
                              .postscale = 0.5,
                              .counts = counts,
                              .part_count = 2,
                              .memory = n % 5 == 0 ? MIXED : PRIVATE,
                              .is_in_place = (n & 1) != 0};
        check_allreduce(w, &r);
    }
    CHECK(w->h->read != HOST_READ_UNKNOWN);
    if (w->h->read == HOST_READ_YES)
        CHECK(w->h->classes[0][0].is_decided);
}

static void test_trials(void **state)
{
    (void)state;
    run_forked(2, -1, trials, -1);
    run_forked(4, -1, trials, -1);
}

/* --- Adasum --- */

static void check_adasum(struct world *w, hvd_dtype_t dtype, const uint64_t *counts,
                         int32_t part_count, enum memory memory, double tolerance)
{
    struct parts *parts = scratch(w, sizeof *parts);
    size_t element = hvd_dtype_bytes(dtype);
    int32_t number = w->sequence++;
    for (int32_t p = 0; p < part_count; p++) {
        parts->in[p] = buffer_create(w, memory, (size_t)counts[p] * element, 0);
        parts->out[p] = buffer_create(w, memory, (size_t)counts[p] * element, 1);
        contents(dtype, seed_of(w, w->rank, p), parts->in[p].bytes, counts[p]);
        parts->part[p] = (struct coll_part){
            .in = parts->in[p].bytes, .out = parts->out[p].bytes, .count = counts[p]};
    }
    w->sequence = number;
    struct coll coll = coll_of(HVD_ALLREDUCE, dtype, parts, part_count);
    coll.reduce = HVD_ADASUM;
    coll.prescale = 0.5;
    coll.postscale = 2.0;
    run(w, &coll);
    for (int32_t p = 0; p < part_count; p++) {
        uint64_t n = counts[p];
        double *tree[RANKS_MAX];
        uint8_t *raw = scratch(w, n * element);
        for (int32_t i = 0; i < w->size; i++) {
            tree[i] = scratch(w, n * sizeof(double));
            contents(dtype, seed_of(w, i, p), raw, n);
            for (uint64_t k = 0; k < n; k++)
                tree[i][k] = value_get(dtype, raw, k) * 0.5;
        }
        for (int32_t level = 1; level < w->size; level *= 2)
            for (int32_t i = 0; i < w->size; i += 2 * level)
                sim_adasum_pair(tree[i], tree[i + level], n);
        for (uint64_t k = 0; k < n; k++) {
            double got = value_get(dtype, parts->out[p].bytes, k);
            CHECK(fabs(got - tree[0][k] * 2.0) <= tolerance);
        }
        for (int32_t i = 0; i < w->size; i++)
            free(tree[i]);
        free(raw);
    }
    /* the same bits everywhere: MIN and MAX over ranks are equal */
    uint64_t bytes = counts[0] * element;
    struct coll_part least = {.in = parts->out[0].bytes, .out = scratch(w, bytes), .count = bytes};
    struct coll_part most = {.in = parts->out[0].bytes, .out = scratch(w, bytes), .count = bytes};
    struct coll same = coll_of(HVD_ALLREDUCE, HVD_UINT8, parts, 1);
    same.parts = &least;
    same.reduce = HVD_MIN;
    run(w, &same);
    same.parts = &most;
    same.reduce = HVD_MAX;
    run(w, &same);
    compare(w, least.out, most.out, bytes, "adasum agreement", &coll);
    free(least.out);
    free(most.out);
    parts_destroy(w, parts, part_count);
}

static void adasum_all(struct world *w)
{
    static const uint64_t counts[] = {1000, 0, 1, 777, 30001};
    for (size_t m = 0; m < 3; m++) {
        check_adasum(w, HVD_FLOAT32, counts, 5, memories[m], 2e-4);
        check_adasum(w, HVD_FLOAT64, counts, 5, memories[m], 1e-10);
        check_adasum(w, HVD_FLOAT16, counts, 4, memories[m], 0.1);
        check_adasum(w, HVD_BFLOAT16, counts, 4, memories[m], 0.8);
    }
    uint64_t many[PARTS_MAX];
    for (int32_t p = 0; p < PARTS_MAX; p++)
        many[p] = (uint64_t)(p % 37);
    check_adasum(w, HVD_FLOAT32, many, PARTS_MAX, PRIVATE, 2e-4);
}

static void adasum_refused(struct world *w)
{
    struct error error = {0};
    float value = 1;
    struct coll_part part = {.in = &value, .out = &value, .count = 1};
    struct coll coll = {.kind = HVD_ALLREDUCE,
                        .dtype = w->size == 3 ? HVD_FLOAT32 : HVD_INT32,
                        .reduce = HVD_ADASUM,
                        .prescale = 1,
                        .postscale = 1,
                        .parts = &part,
                        .part_count = 1};
    CHECK(host_coll_start(w->h, &coll, &error) == HVD_ERR_UNSUPPORTED);
    check_barrier(w); /* nothing was published */
}

static void test_adasum(void **state)
{
    (void)state;
    run_forked(1, -1, adasum_all, -1);
    run_forked(2, -1, adasum_all, -1);
    run_forked(4, -1, adasum_all, -1);
    run_forked(8, -1, adasum_all, -1);
    run_forked(2, -1, adasum_refused, -1);
    run_forked(3, -1, adasum_refused, -1);
}

/* --- broken plans --- */

/* All but the last rank start something, which is then given up; afterwards all goes on. */
static void resets(struct world *w)
{
    uint64_t base = 100;
    for (int32_t round = 0; round < 3; round++) {
        random_sequence(w, 3 + round);
        struct parts *parts = scratch(w, sizeof *parts);
        struct buffer in = buffer_create(w, memories[round], 400000, 0);
        struct buffer out = buffer_create(w, memories[round], 400000, 0);
        parts->part[0] =
            (struct coll_part){.in = in.bytes, .out = out.bytes, .count = round == 0 ? 2 : 100000};
        struct coll coll = coll_of(HVD_ALLREDUCE, HVD_FLOAT32, parts, 1);
        struct error error = {0};
        bool has_moved;
        if (w->rank != w->size - 1) {
            CHECK(host_coll_start(w->h, &coll, &error) == HVD_OK);
            for (int i = 0; i < 1000; i++)
                CHECK(host_coll_progress(w->h, &has_moved, &error) == HVD_IN_PROGRESS);
        }
        meet(w);
        for (size_t i = 0; i < 400000; i++)
            CHECK(out.bytes[i] == 0xcd);
        host_coll_reset(w->h, base);
        base += 1001; /* odd and even */
        buffer_destroy(w, &in);
        buffer_destroy(w, &out);
        free(parts);
    }
    random_sequence(w, 10);
}

static void test_reset(void **state)
{
    (void)state;
    run_forked(2, -1, resets, -1);
    run_forked(4, 1, resets, -1);
}

/* One member leaves for good when all others could still end well, and overwrites what it gave:
 * nobody may end with that. */
static void withdrawn(struct world *w)
{
    random_sequence(w, 3);
    const size_t bytes = 400000;
    struct parts *parts = scratch(w, sizeof *parts);
    struct buffer in = buffer_create(w, ARENA, bytes, 0), out = buffer_create(w, ARENA, bytes, 0);
    parts->part[0] = (struct coll_part){.in = in.bytes, .out = out.bytes, .count = bytes / 4};
    struct coll coll = coll_of(HVD_ALLREDUCE, HVD_FLOAT32, parts, 1);
    struct error error = {0};
    bool has_moved;
    uint64_t before = w->h->wave;
    CHECK(host_coll_start(w->h, &coll, &error) == HVD_OK);
    CHECK(w->h->wave == before + 1);
    meet(w); /* all know where everything is, nobody has read any */
    if (w->rank == 0) {
        while (w->h->wave < before + 2) /* until it has done its part and says so */
            CHECK(host_coll_progress(w->h, &has_moved, &error) == HVD_IN_PROGRESS);
        host_coll_reset(w->h, BACKEND_BASE_LAST);
        memset(in.bytes, 0, bytes);
    }
    meet(w);
    for (int i = 0; w->rank != 0 && i < 2000; i++)
        CHECK(host_coll_progress(w->h, &has_moved, &error) == HVD_IN_PROGRESS);
    meet(w);
    buffer_destroy(w, &in);
    buffer_destroy(w, &out);
    free(parts);
}

static void test_withdrawn(void **state)
{
    (void)state;
    run_forked(2, 0, withdrawn, -1);
    run_forked(4, 0, withdrawn, -1);
}

/* --- failures --- */

static void killed(struct world *w)
{
    random_sequence(w, 5);
    uint64_t count = 3000000;
    struct buffer in = buffer_create(w, w->rank == 0 ? ARENA : PRIVATE, (size_t)count * 4, 0);
    contents(HVD_FLOAT32, 1, in.bytes, count);
    struct coll_part part = {.in = in.bytes, .out = in.bytes, .count = count};
    struct coll coll = coll_of_one(HVD_FLOAT32, HVD_SUM, &part);
    struct error error = {0};
    hvd_status_t status = HVD_OK;
    for (int32_t n = 0; status == HVD_OK; n++) {
        status = host_coll_start(w->h, &coll, &error);
        if (w->rank == 1 && n == 2) { /* somewhere in the middle */
            bool has_moved;
            host_coll_progress(w->h, &has_moved, &error);
            kill(getpid(), SIGKILL);
        }
        if (status == HVD_OK)
            status = drive(w, &error);
    }
    CHECK(status == HVD_ERR_PEER_DEAD);
    CHECK(strstr(error.text, "rank 1 ") != NULL);
    CHECK(shm_is_peer_down(w->shm, 1));
    /* stay until the other survivor has seen it too, or it would take us for the dead one */
    _Atomic int32_t *counter = &w->meeting->arrived[w->meetings];
    atomic_fetch_add(counter, 1);
    while (atomic_load(counter) < w->size - 1)
        sched_yield();
    exit(0);
}

static void test_killed(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run_forked(3, 0, killed, 1);
    for (int i = 0; i < 5; i++)
        run_forked(3, 1, killed, 1);
}

static void mismatched(struct world *w)
{
    uint64_t count = w->rank == 0 ? 5000 : 6000;
    struct buffer in = buffer_create(w, PRIVATE, (size_t)count * 4, 0);
    struct coll_part part = {.in = in.bytes, .out = in.bytes, .count = count};
    struct coll coll = coll_of_one(HVD_INT32, HVD_SUM, &part);
    struct error error = {0};
    CHECK(host_coll_start(w->h, &coll, &error) == HVD_OK);
    CHECK(drive(w, &error) == HVD_ERR_MISMATCH);
    buffer_destroy(w, &in);
}

/* Rank 1 sends rows that rank 0 does not expect. */
static void mismatched_rows(struct world *w)
{
    uint64_t counts[2] = {3, 3}, recv[2] = {3, 3};
    if (w->rank == 1)
        counts[0] = 4;
    int32_t in[8] = {0}, out[8] = {0};
    struct coll_part part = {.in = in, .out = out, .count = counts[0] + counts[1]};
    struct coll coll = {.kind = HVD_ALLTOALL,
                        .dtype = HVD_INT32,
                        .parts = &part,
                        .part_count = 1,
                        .counts = counts,
                        .recv_counts = recv};
    struct error error = {0};
    CHECK(host_coll_start(w->h, &coll, &error) == HVD_OK);
    hvd_status_t status = drive(w, &error);
    CHECK(status == (w->rank == 0 ? HVD_ERR_MISMATCH : HVD_OK));
}

static void test_mismatch(void **state)
{
    (void)state;
    run_forked(2, -1, mismatched, -1);
    run_forked(2, -1, mismatched_rows, -1);
}

enum spoilt { SPOILT_IN, SPOILT_OUT, SPOILT_KIND, SPOILT_STAGE, SPOILT_SLOT, SPOILT_BOTH, SPOILTS };

static enum spoilt spoilt; /* by rank 1; set before the ranks are forked */

static void spoil(struct host_head *head)
{
    switch (spoilt) {
    case SPOILT_IN: head->in = 1ull << 50; return;
    case SPOILT_OUT: head->out = 8; return;
    case SPOILT_KIND: head->in |= 1ull << 63; return;
    case SPOILT_STAGE: head->stage = 0xfffffffffffffff0ull; return;
    case SPOILT_SLOT: head->flags = HOST_IN_SLOT; return;
    case SPOILT_BOTH: head->flags |= HOST_IN_SLOT; return;
    case SPOILTS: return;
    }
}

/* Rank 1 answers with rank 0's head, spoilt in one field. */
static void evil(struct world *w)
{
    uint64_t count = 50000;
    struct error error = {0};
    if (w->rank == 1) {
        struct shm_board *theirs = shm_board(w->shm, 0, 0), *own = shm_board(w->shm, 1, 0);
        while (atomic_load(&theirs->line[1].phase) != 1)
            sched_yield();
        struct host_head head;
        memcpy(&head, theirs->line[1].inline_bytes, sizeof head);
        spoil(&head);
        memcpy(own->line[1].inline_bytes, &head, sizeof head);
        atomic_store(&own->line[1].phase, 1);
        return;
    }
    struct buffer in = buffer_create(w, ARENA, (size_t)count * 4, 0);
    struct coll_part part = {.in = in.bytes, .out = in.bytes, .count = count};
    struct coll coll = coll_of_one(HVD_INT32, HVD_SUM, &part);
    CHECK(host_coll_start(w->h, &coll, &error) == HVD_OK);
    CHECK(drive(w, &error) == HVD_ERR_CORRUPT);
    CHECK(shm_is_peer_down(w->shm, 1));
    buffer_destroy(w, &in);
}

static void test_garbage(void **state)
{
    (void)state;
    for (spoilt = 0; spoilt < SPOILTS; spoilt++)
        run_forked(2, 0, evil, -1);
}

/* Waits are slept through; every wave must wake those who sleep. */
static void sleepy(struct world *w)
{
    struct transport *t = shm_transport(w->shm);
    const struct os *os = t->os;
    float value = 1;
    struct coll_part part = {.in = &value, .out = &value, .count = 1};
    struct coll coll = coll_of_one(HVD_FLOAT32, HVD_MAX, &part);
    struct error error = {0};
    for (int32_t n = 0; n < 500; n++) {
        CHECK(host_coll_start(w->h, &coll, &error) == HVD_OK);
        for (;;) {
            bool has_moved;
            hvd_status_t status = host_coll_progress(w->h, &has_moved, &error);
            if (status == HVD_OK)
                break;
            CHECK(status == HVD_IN_PROGRESS);
            if (t->ops->progress(t, os_now_ns(os)) || !t->ops->sleep_begin(t))
                continue;
            struct os_event event;
            CHECK(os->poll_wait(os->ctx, w->poll_fd, &event, 1, 20000000000) == 1);
            t->ops->sleep_end(t);
        }
    }
}

static void test_sleep(void **state)
{
    (void)state;
    run_forked(2, -1, sleepy, -1);
    run_forked(4, -1, sleepy, -1);
}

int main(void)
{
    alarm(DEADLINE_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_trials),  cmocka_unit_test(test_adasum),
        cmocka_unit_test(test_reset),   cmocka_unit_test(test_withdrawn),
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_garbage), cmocka_unit_test(test_sleep),
    };
    return cmocka_run_group_tests_name("host_coll", tests, NULL, NULL);
}
