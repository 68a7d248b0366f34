/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm.c - the shared memory transport: conformance, connecting many ranks, the heap, garbage
 * in a peer's segment, death of a process, sleeping.
 *
 * Ranks are objects in this process, connected by threads, or forked processes if a death has to be
 * real. alarm() kills a test that hangs. */
#define _GNU_SOURCE 1 /* memfd_create */

#include "transport_conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "other_user.h"
#include "transport/shm/shm_internal.h"
#include "transport_ends.h"
#include "unit_case.h"

#define RANKS_MAX  32
#define DEADLINE_S 600 /* ends a hang */

static const uint8_t job_key[32] = {1, 2, 3};

static struct config test_config(void)
{
    struct config config = {.local_size = -1, .timeout_s = 20, .cma = -1};
    config.arena_max_bytes = 64 << 20;
    return config;
}

/* --- a world of ranks in one process --- */

struct rank {
    struct config config;
    struct shm *shm;
    struct endpoint *all;
    int32_t index, count;
    int poll_fd;
    uint8_t key[32];
    uint64_t epoch;
    struct transport_events events;
    hvd_status_t status;
    struct error error;
};

struct world {
    struct rank ranks[RANKS_MAX];
    struct endpoint all[RANKS_MAX];
    int32_t count;
};

static void *connect_rank(void *arg)
{
    struct rank *rank = arg;
    rank->status = shm_connect(rank->shm, rank->all, rank->count, NULL, rank->key, rank->epoch,
                               rank->poll_fd, &rank->events, &rank->error);
    return NULL;
}

static void world_create(struct world *world, int32_t count)
{
    const struct os *os = os_host();
    memset(world, 0, sizeof *world);
    world->count = count;
    for (int32_t i = 0; i < count; i++) {
        struct rank *rank = &world->ranks[i];
        rank->config = test_config();
        rank->index = i;
        rank->count = count;
        rank->all = world->all;
        rank->poll_fd = os->poll_create(os->ctx);
        memcpy(rank->key, job_key, sizeof rank->key);
        rank->events = (struct transport_events){.message = ends_ignore_message,
                                                 .peer_down = ends_ignore_down};
        assert_int_equal(shm_create(os, &rank->config, i, &world->all[i], &rank->shm, &rank->error),
                         HVD_OK);
    }
}

/* The name of a rank's Unix socket; valid until the next call. */
static const char *socket_of(const struct endpoint *e)
{
    static char name[SHM_NAME_MAX];
    size_t n;
    const uint8_t *bytes = endpoint_find(e, "shm", &n);
    assert_non_null(bytes);
    assert_true(n < sizeof name);
    memcpy(name, bytes, n);
    name[n] = '\0';
    return name;
}

static void world_connect(struct world *world)
{
    ends_together(world->count, world->ranks, sizeof world->ranks[0], connect_rank);
}

static void rank_destroy(struct rank *rank)
{
    const struct os *os = os_host();
    if (rank->shm != NULL)
        shm_transport(rank->shm)->ops->destroy(shm_transport(rank->shm));
    rank->shm = NULL;
    if (rank->poll_fd >= 0)
        os->close(os->ctx, rank->poll_fd);
    rank->poll_fd = -1;
}

static void world_destroy(struct world *world)
{
    for (int32_t i = 0; i < world->count; i++)
        rank_destroy(&world->ranks[i]);
}

static bool rank_turn(struct rank *rank)
{
    struct transport *t = shm_transport(rank->shm);
    return t->ops->progress(t, os_now_ns(t->os));
}

/* --- conformance --- */

static void pair_open(struct conformance_pair *pair)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world_create(world, 2);
    for (int i = 0; i < 2; i++)
        world->ranks[i].events = pair->events[i];
    world_connect(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world->ranks[i].status, HVD_OK);
        pair->end[i] = shm_transport(world->ranks[i].shm);
        pair->rank[i] = i;
        pair->poll_fd[i] = world->ranks[i].poll_fd;
    }
    pair->ctx = world;
}

static void pair_close(struct conformance_pair *pair)
{
    world_destroy(pair->ctx);
    free(pair->ctx);
}

static bool pair_turn(struct conformance_pair *pair, int end)
{
    struct world *world = pair->ctx;
    return rank_turn(&world->ranks[end]);
}

static void pair_crash(struct conformance_pair *pair, int end)
{
    struct world *world = pair->ctx;
    rank_destroy(&world->ranks[end]);
    pair->end[end] = NULL;
}

static struct conformance conformance_shm = {
    .open = pair_open, .close = pair_close, .turn = pair_turn, .crash = pair_crash};

/* --- connecting --- */

static void test_many_ranks(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 16);
    world_connect(&world);
    for (int32_t i = 0; i < world.count; i++) {
        assert_int_equal(world.ranks[i].status, HVD_OK);
        struct transport *t = shm_transport(world.ranks[i].shm);
        for (int32_t j = 0; j < world.count; j++) {
            assert_int_equal(t->ops->reaches(t, j), i != j);
            uint64_t bytes;
            assert_non_null(t->ops->arena(t, j, &bytes));
            assert_true(bytes > 64u << 20);
            assert_int_equal(shm_peer_pid(world.ranks[i].shm, j), getpid());
        }
        assert_false(t->ops->reaches(t, 99));
        assert_false(t->ops->reaches(t, -1));
    }
    world_destroy(&world);
}

/* No two arenas as one rank sees them share the address bits that caches look at. */
static void test_arenas_do_not_compete(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 16);
    world_connect(&world);
    for (int32_t i = 0; i < world.count; i++) {
        struct transport *t = shm_transport(world.ranks[i].shm);
        bool is_taken[OS_COLORS] = {false};
        for (int32_t j = 0; j < world.count; j++) {
            uint64_t bytes;
            uintptr_t at = (uintptr_t)t->ops->arena(t, j, &bytes);
            assert_int_equal(at % (2u << 20), 0);
            assert_false(is_taken[(at >> 21) % OS_COLORS]);
            is_taken[(at >> 21) % OS_COLORS] = true;
        }
    }
    world_destroy(&world);
}

static void test_other_host_is_left_out(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 3);
    snprintf(world.all[1].host_id, sizeof world.all[1].host_id, "elsewhere");
    world_connect(&world);
    struct transport *t = shm_transport(world.ranks[0].shm);
    assert_false(t->ops->reaches(t, 1));
    assert_true(t->ops->reaches(t, 2));
    uint64_t bytes;
    assert_null(t->ops->arena(t, 1, &bytes));
    assert_null(shm_board(world.ranks[0].shm, 1, 0));
    assert_int_equal(world.ranks[1].status, HVD_OK);
    world_destroy(&world);
}

enum { WRONG_KEY, WRONG_EPOCH };

static void check_wrong(void **state)
{
    static struct world world;
    world_create(&world, 3);
    for (int32_t i = 0; i < 3; i++)
        world.ranks[i].config.timeout_s = 1;
    if (unit_case(state) == WRONG_KEY)
        world.ranks[1].key[0] ^= 1;
    else
        world.ranks[1].epoch = 7;
    world_connect(&world);
    for (int32_t i = 0; i < 3; i++) {
        struct transport *t = shm_transport(world.ranks[i].shm);
        assert_int_equal(world.ranks[i].status, HVD_OK);
        for (int32_t j = 0; j < 3; j++)
            assert_int_equal(t->ops->reaches(t, j), i != j && i != 1 && j != 1);
    }
    world_destroy(&world);
}

/* Before the ranks connect and while they do, another user does what it can. */
static void check_other_user(void **state)
{
    static struct world world;
    world_create(&world, 4);
    pid_t pid = other_user_start(socket_of(&world.all[0]), unit_case(state) == OTHER_FLOOD);
    if (pid == 0) {
        world_destroy(&world);
        skip();
    }
    assert_true(pid > 0);
    world_connect(&world);
    other_user_stop(pid);
    for (int32_t i = 0; i < world.count; i++) {
        struct transport *t = shm_transport(world.ranks[i].shm);
        assert_int_equal(world.ranks[i].status, HVD_OK);
        for (int32_t j = 0; j < world.count; j++)
            assert_int_equal(t->ops->reaches(t, j), i != j);
    }
    world_destroy(&world);
}

/* Idle connections of our own user take no place from ranks, and the error names the cause. */
static void test_idle_of_own_user(void **state)
{
    (void)state;
    static struct world world;
    enum { IDLE = 300 };
    int fds[IDLE];
    world_create(&world, 3);
    for (int i = 0; i < IDLE; i++)
        fds[i] = other_user_dial(socket_of(&world.all[0]), SOCK_NONBLOCK);
    world_connect(&world);
    for (int32_t i = 0; i < world.count; i++) {
        struct transport *t = shm_transport(world.ranks[i].shm);
        for (int32_t j = 0; j < world.count; j++)
            assert_int_equal(t->ops->reaches(t, j), i != j);
    }
    for (int i = 0; i < IDLE; i++)
        close(fds[i]);
    world_destroy(&world);
}

static void test_error_names_strangers(void **state)
{
    (void)state;
    static struct world world;
    struct error error = {0};
    world_create(&world, 2);
    world.ranks[0].config.timeout_s = 1;
    pid_t pid = other_user_start(socket_of(&world.all[0]), false);
    if (pid == 0) {
        world_destroy(&world);
        skip();
    }
    connect_rank(&world.ranks[0]); /* rank 1 never comes */
    other_user_stop(pid);
    assert_int_equal(shm_peer_error(world.ranks[0].shm, 1, &error), HVD_ERR_LINK);
    assert_non_null(strstr(error.text, "connections of other users were refused"));
    world_destroy(&world);
}

/* --- a peer that hands over memory it can take back --- */

struct rogue_intro { /* as in shm_connect.c */
    uint64_t magic;
    uint32_t layout;
    int32_t rank;
    uint64_t bytes;
    uint32_t local_count, local;
};

enum arena_fault { ARENA_SHORT, ARENA_UNSEALED, ARENA_NO_MEMFD };

struct rogue {
    const char *name;
    enum arena_fault fault;
};

static int rogue_arena(enum arena_fault fault, uint64_t bytes)
{
    if (fault == ARENA_NO_MEMFD)
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    int fd = memfd_create("rogue", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, fault == ARENA_SHORT ? 4096 : (off_t)bytes), 0);
    if (fault == ARENA_SHORT)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}

/* Rank 1 of two: it has the key, introduces itself and then takes its memory away. */
static void *rogue_main(void *arg)
{
    const struct rogue *rogue = arg;
    const struct os *os = os_host();
    struct handshake h;
    struct rogue_intro intro = {SHM_MAGIC, SHM_LAYOUT, 1, SHM_HEAP_AT + (64 << 20), 2, 1};
    int fd = other_user_dial(rogue->name, 0), arena = rogue_arena(rogue->fault, intro.bytes);
    int fds[2] = {arena, os->bell_create(os->ctx)};
    char byte;
    assert_int_equal(handshake_begin(&h, os, HANDSHAKE_SHM, true, job_key, 0, 1, 0, 0), HVD_OK);
    assert_int_equal(handshake_step(&h, os, fd, NULL), HVD_OK);
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof fds)] = {0};
    struct iovec iov = {&intro, sizeof intro};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(head), fds, sizeof fds);
    assert_int_equal(sendmsg(fd, &msg, 0), sizeof intro);
    (void)send(fd, "K", 1, MSG_NOSIGNAL); /* "accepted"; we may be refused already */
    if (rogue->fault == ARENA_UNSEALED)
        assert_int_equal(ftruncate(arena, 0), 0);
    while (recv(fd, &byte, 1, 0) > 0) {}
    handshake_end(&h);
    close(fd);
    close(fds[0]);
    close(fds[1]);
    return NULL;
}

static void test_arena_that_can_shrink_is_refused(void **state)
{
    (void)state;
    for (enum arena_fault fault = ARENA_SHORT; fault <= ARENA_NO_MEMFD; fault++) {
        static struct world world;
        struct rogue rogue = {.fault = fault};
        pthread_t thread;
        world_create(&world, 2);
        rogue.name = socket_of(&world.all[0]);
        assert_int_equal(pthread_create(&thread, NULL, rogue_main, &rogue), 0);
        connect_rank(&world.ranks[0]);
        struct transport *t = shm_transport(world.ranks[0].shm);
        assert_int_equal(world.ranks[0].status, HVD_OK);
        assert_false(t->ops->reaches(t, 1));
        rank_destroy(&world.ranks[0]);
        pthread_join(thread, NULL);
        world_destroy(&world);
    }
}

static void test_destroy_half_built(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 2);
    world_destroy(&world); /* never connected */
    struct transport_ops const *ops;
    world_create(&world, 1);
    world_connect(&world);
    ops = shm_transport(world.ranks[0].shm)->ops;
    ops->destroy(NULL);
    assert_int_equal(world.ranks[0].status, HVD_OK);
    world_destroy(&world);
}

/* --- heap --- */

static void test_heap(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 1);
    struct shm *shm = world.ranks[0].shm;
    enum { SLOTS = 200 };
    static uint8_t *blocks[SLOTS];
    static size_t sizes[SLOTS];
    memset(blocks, 0, sizeof blocks);
    uint32_t random = 12345;
    for (uint32_t round = 0; round < 6000; round++) {
        random = random * 1664525u + 1013904223u;
        uint32_t i = (random >> 8) % SLOTS;
        if (blocks[i] != NULL) {
            for (size_t k = 0; k < sizes[i]; k += 61)
                assert_int_equal(blocks[i][k], (uint8_t)i);
            shm_heap_free(shm, blocks[i]);
            blocks[i] = NULL;
            continue;
        }
        sizes[i] = (random >> 20) % 4 == 0 ? (random >> 4) % 200000 : (random >> 4) % 3000;
        blocks[i] = shm_heap_alloc(shm, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % (sizes[i] > 2048 ? 4096 : 64), 0);
        assert_int_not_equal(shm_offset(shm, blocks[i], sizes[i]), UINT64_MAX);
        for (size_t k = 0; k < sizes[i]; k++)
            if (blocks[i][k] != 0)
                fail_msg("block of %zu bytes is not zero at %zu", sizes[i], k);
        memset(blocks[i], (int)(uint8_t)i, sizes[i]);
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        shm_heap_free(shm, blocks[i]);
    /* everything is one piece again */
    void *all = shm_heap_alloc(shm, 64u << 20);
    assert_non_null(all);
    assert_null(shm_heap_alloc(shm, 1));
    assert_null(shm_heap_alloc(shm, (size_t)1 << 62));
    shm_heap_free(shm, all);
    shm_heap_free(shm, NULL);
    shm_heap_free(shm, &world);
    assert_int_equal(shm_offset(shm, &world, 1), UINT64_MAX);
    assert_int_equal(shm_offset(shm, shm->segment, 1), UINT64_MAX);
    uint8_t *end = shm->segment + shm->bytes;
    assert_int_equal(shm_offset(shm, end - 4, 5), UINT64_MAX);
    assert_int_equal(shm_offset(shm, end - 4, 4), shm->bytes - 4);
    assert_true(shm_is_heap_range(shm, 0, shm->bytes - 4, 4));
    assert_false(shm_is_heap_range(shm, 0, shm->bytes - 4, 5));
    assert_false(shm_is_heap_range(shm, 0, UINT64_MAX, 2));
    assert_false(shm_is_heap_range(shm, 0, 0, 1));
    world_destroy(&world);
}

/* Memory that nobody freed can be used after the transport's end, and peers no longer see it. */
/* Memory that peers must not reach any more: what they write goes nowhere, and its place in the
 * segment is not used again. */
static void test_detach(void **state)
{
    (void)state;
    static struct world world;
    enum { COUNT = 4 };
    static const size_t sizes[COUNT] = {100, 2000, 5000, 3u << 20};
    uint8_t *neighbours[COUNT];
    uint64_t arena_bytes;
    world_create(&world, 2);
    world_connect(&world);
    struct shm *shm = world.ranks[0].shm;
    struct transport *peer = shm_transport(world.ranks[1].shm);
    uint8_t *seen = peer->ops->arena(peer, 0, &arena_bytes);
    assert_non_null(seen);
    for (size_t i = 0; i < COUNT; i++) {
        uint8_t *block = shm_heap_alloc(shm, sizes[i]);
        neighbours[i] = shm_heap_alloc(shm, sizes[i]);
        assert_true(block != NULL && neighbours[i] != NULL);
        uint64_t offset = shm_offset(shm, block, sizes[i]);
        memset(block, 1, sizes[i]);
        memset(neighbours[i], 2, sizes[i]);
        assert_int_equal(seen[offset + sizes[i] - 1], 1);
        assert_true(shm_detach(shm, block, sizes[i]));
        assert_true(shm_offset(shm, block, sizes[i]) == UINT64_MAX);
        memset(seen + offset, 99, sizes[i]); /* a peer that was stopped goes on */
        for (size_t k = 0; k < sizes[i]; k++)
            assert_true(block[k] == 1 && neighbours[i][k] == 2);
        shm_heap_free(shm, block);
        uint8_t *next = shm_heap_alloc(shm, sizes[i]);
        assert_non_null(next);
        uint64_t next_offset = shm_offset(shm, next, sizes[i]);
        assert_true(next_offset != UINT64_MAX);
        assert_true(next_offset + sizes[i] <= offset || offset + sizes[i] <= next_offset);
        memset(seen + offset, 98, sizes[i]);
        assert_int_equal(next[0], 0);
        next[0] = 5;
        assert_int_equal(seen[next_offset], 5);
        shm_heap_free(shm, next);
    }
    uint8_t own[100] = {3};
    assert_true(shm_detach(shm, own, sizeof own)); /* private memory: nothing to do */
    assert_int_equal(own[0], 3);
    for (size_t i = 0; i < COUNT; i++)
        shm_heap_free(shm, neighbours[i]);
    world_destroy(&world);
}

static void test_heap_outlives(void **state)
{
    (void)state;
    static struct world world;
    enum { COUNT = 4 };
    static const size_t sizes[COUNT] = {100, 5000, 3u << 20, 64};
    uint8_t *blocks[COUNT], *between[COUNT];
    world_create(&world, 2);
    world_connect(&world);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = shm_heap_alloc(world.ranks[0].shm, sizes[i]);
        between[i] = shm_heap_alloc(world.ranks[0].shm, 10000);
        assert_non_null(blocks[i]);
        assert_non_null(between[i]);
        conformance_fill(blocks[i], sizes[i], (uint32_t)i);
    }
    for (size_t i = 0; i < COUNT; i++)
        shm_heap_free(world.ranks[0].shm, between[i]);
    world_destroy(&world);
    for (size_t i = 0; i < COUNT; i++) {
        static uint8_t expected[3u << 20];
        conformance_fill(expected, sizes[i], (uint32_t)i);
        assert_memory_equal(blocks[i], expected, sizes[i]);
        memset(blocks[i], 0x33, sizes[i]);
        /* Its pages are there, those of the freed blocks are not. */
        unsigned char resident;
        assert_int_equal(
            mincore((void *)((uintptr_t)blocks[i] & ~(uintptr_t)4095), 4096, &resident), 0);
        assert_int_equal(mincore(between[i], 4096, &resident), -1);
    }
    /* Large ones are whole pages of their own: the process may give them back. */
    assert_int_equal(munmap(blocks[2], sizes[2]), 0);
}

static void *heap_user(void *arg)
{
    struct shm *shm = arg;
    for (uint32_t i = 0; i < 2000; i++) {
        size_t n = 1 + (i * 7919u) % 9000;
        uint8_t *p = shm_heap_alloc(shm, n);
        if (p == NULL || p[0] != 0 || p[n - 1] != 0)
            return arg;
        memset(p, 0x5a, n);
        shm_heap_free(shm, p);
    }
    return NULL;
}

static void test_heap_threads(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, heap_user, world.ranks[0].shm), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    world_destroy(&world);
}

static void test_arena_is_shared(void **state)
{
    (void)state;
    static struct world world;
    world_create(&world, 2);
    world_connect(&world);
    uint8_t *mine = shm_heap_alloc(world.ranks[0].shm, 100000);
    assert_non_null(mine);
    conformance_fill(mine, 100000, 4);
    uint64_t offset = shm_offset(world.ranks[0].shm, mine, 100000);
    struct transport *t = shm_transport(world.ranks[1].shm);
    uint64_t bytes;
    uint8_t *theirs = t->ops->arena(t, 0, &bytes);
    assert_true(offset + 100000 <= bytes);
    conformance_expect(theirs + offset, 100000, 4);
    world_destroy(&world);
}

/* --- garbage --- */

struct garbage_log {
    int downs;
    hvd_status_t status;
    char why[256];
};

static void garbage_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct garbage_log *log = ctx;
    (void)peer;
    log->downs++;
    log->status = status;
    snprintf(log->why, sizeof log->why, "%s", why);
}

/* Two connected ranks; what rank 0 is told goes to the log. */
static struct shm *garbage_world(struct world *world, struct garbage_log *log)
{
    world_create(world, 2);
    world->ranks[0].events.peer_down = garbage_down;
    world->ranks[0].events.ctx = log;
    world_connect(world);
    return world->ranks[0].shm;
}

static void garbage_case(void (*spoil)(struct shm_rings *rings, uint32_t random), uint32_t random)
{
    static struct world world;
    struct garbage_log log = {0};
    struct shm *shm = garbage_world(&world, &log);
    struct transport *t = shm_transport(shm);
    static uint8_t bytes[1000];
    struct transport_req recv;
    assert_int_equal(t->ops->bulk_recv(t, 1, 1, bytes, sizeof bytes, &recv), HVD_OK);
    struct shm_rings *rings = (struct shm_rings *)(void *)(shm->segment + SHM_RINGS_AT) + 1;
    spoil(rings, random);
    atomic_fetch_or(&shm->header->attention[0], ~0ull);
    for (int i = 0; i < 10; i++)
        rank_turn(&world.ranks[0]);
    assert_int_equal(log.downs, 1);
    assert_int_equal(log.status, HVD_ERR_CORRUPT);
    assert_non_null(strstr(log.why, "rank 1"));
    assert_int_equal(recv.status, HVD_ERR_CORRUPT);
    assert_true(shm_is_peer_down(shm, 1));
    struct error error = {0};
    assert_int_equal(shm_peer_error(shm, 1, &error), HVD_ERR_CORRUPT);
    world_destroy(&world);
}

static void spoil_head(struct shm_rings *rings, uint32_t random)
{
    atomic_store(&rings->message.head, (1ull << 40) + random);
}
static void spoil_head_unaligned(struct shm_rings *rings, uint32_t random)
{
    atomic_store(&rings->bulk.head, 33 + random % 7);
}
static void spoil_record(struct shm_rings *rings, uint32_t random)
{
    uint32_t record[4] = {random | 0x10000, random, 0, 0};
    memcpy(rings->message_bytes, record, sizeof record);
    atomic_store(&rings->message.head, 4096);
}
static void spoil_kind(struct shm_rings *rings, uint32_t random)
{
    uint32_t record[4] = {16, 77 + random, 0, 0};
    memcpy(rings->message_bytes, record, sizeof record);
    atomic_store(&rings->message.head, 32);
}
static void spoil_total(struct shm_rings *rings, uint32_t random)
{
    uint32_t record[4] = {16, 1, 0xfffffff0u - random % 100, 0};
    memcpy(rings->message_bytes, record, sizeof record);
    atomic_store(&rings->message.head, 32);
}
static void spoil_fragment_size(struct shm_rings *rings, uint32_t random)
{
    uint32_t fragment[4] = {0, 0x80000000u + random, 0, 0};
    memcpy(rings->bulk_bytes, fragment, sizeof fragment);
    atomic_store(&rings->bulk.head, 2048);
}
static void spoil_fragment_offset(struct shm_rings *rings, uint32_t random)
{
    uint32_t fragment[4] = {0, 16, 5000 + random, 0};
    memcpy(rings->bulk_bytes, fragment, sizeof fragment);
    atomic_store(&rings->bulk.head, 32);
}
static void spoil_fragment_past_end(struct shm_rings *rings, uint32_t random)
{
    uint32_t fragment[4] = {0, 1001 + random % 1000, 0, 0};
    memcpy(rings->bulk_bytes, fragment, sizeof fragment);
    atomic_store(&rings->bulk.head, 4096);
}

/* The first ticket is announced before the garbage is read: tickets start at 0. */
static void test_garbage(void **state)
{
    (void)state;
    for (uint32_t random = 0; random < 3; random++) {
        garbage_case(spoil_head, random);
        garbage_case(spoil_head_unaligned, random);
        garbage_case(spoil_record, random);
        garbage_case(spoil_kind, random);
        garbage_case(spoil_total, random);
        garbage_case(spoil_fragment_size, random);
    }
}

static void garbage_fragment(void (*spoil)(struct shm_rings *rings, uint32_t random))
{
    static struct world world;
    struct garbage_log log = {0};
    struct shm *shm = garbage_world(&world, &log);
    struct transport *t = shm_transport(shm);
    static uint8_t bytes[1016];
    memset(bytes, 0x11, sizeof bytes);
    struct transport_req recv;
    assert_int_equal(t->ops->bulk_recv(t, 1, 1, bytes, 1000, &recv), HVD_OK);
    rank_turn(&world.ranks[0]);
    struct shm_rings *rings = (struct shm_rings *)(void *)(shm->segment + SHM_RINGS_AT) + 1;
    spoil(rings, 3);
    atomic_fetch_or(&shm->header->attention[0], ~0ull);
    rank_turn(&world.ranks[0]);
    assert_int_equal(log.status, HVD_ERR_CORRUPT);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0x11);
    world_destroy(&world);
}

static void test_garbage_fragments(void **state)
{
    (void)state;
    garbage_fragment(spoil_fragment_offset);
    garbage_fragment(spoil_fragment_past_end);
}

/* Whatever a peer writes into its rings, we stay in our own memory (run under ASAN). */
static void test_garbage_random(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int round = 0; round < 40; round++) {
        static struct world world;
        world_create(&world, 2);
        world_connect(&world);
        struct shm *shm = world.ranks[0].shm;
        struct transport *t = shm_transport(shm);
        uint8_t *bytes = malloc(777);
        assert_non_null(bytes);
        struct transport_req recv;
        t->ops->bulk_recv(t, 1, 1, bytes, 777, &recv);
        struct shm_rings *rings = (struct shm_rings *)(void *)(shm->segment + SHM_RINGS_AT) + 1;
        for (size_t i = 0; i < 8192; i++) {
            random = random * 1664525u + 1013904223u;
            bool is_small = (random >> 28) < 9;
            rings->message_bytes[i] = i % 4 != 0 && is_small ? 0 : (uint8_t)((random >> 20) % 33);
            rings->bulk_bytes[i] = i % 4 != 0 && is_small ? 0 : (uint8_t)((random >> 12) % 33);
        }
        atomic_store(&rings->message.head, 4096);
        atomic_store(&rings->bulk.head, 4096);
        atomic_fetch_or(&shm->header->attention[0], ~0ull);
        for (int i = 0; i < 5; i++)
            rank_turn(&world.ranks[0]);
        free(bytes);
        world_destroy(&world);
    }
}

/* --- two threads, each driving its end, sleeping in between --- */

struct sleeper {
    struct rank *rank;
    uint32_t seen, wanted;
    bool is_bad;
};

static void sleeper_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct sleeper *s = ctx;
    uint32_t value;
    (void)peer;
    if (n != sizeof value) {
        s->is_bad = true;
        return;
    }
    memcpy(&value, bytes, n);
    if (value != s->seen)
        s->is_bad = true;
    s->seen++;
}

static void *sleeper_run(void *arg)
{
    struct sleeper *s = arg;
    struct transport *t = shm_transport(s->rank->shm);
    const struct os *os = t->os;
    uint32_t sent = 0;
    while (!s->is_bad && (s->seen < s->wanted || sent < s->wanted)) {
        bool has_moved = t->ops->progress(t, os_now_ns(os));
        /* ping-pong: rank 0 begins */
        if (sent < s->wanted && sent < s->seen + (s->rank->index == 0 ? 1 : 0)) {
            if (t->ops->message_send(t, 1 - s->rank->index, &sent, sizeof sent) == HVD_OK) {
                sent++;
                continue;
            }
        }
        if (!has_moved && t->ops->sleep_begin(t)) {
            struct os_event event;
            if (os->poll_wait(os->ctx, s->rank->poll_fd, &event, 1, 10000000000) != 1)
                s->is_bad = true; /* a lost wake-up */
            t->ops->sleep_end(t);
        }
    }
    return NULL;
}

static void test_sleep_never_lost(void **state)
{
    (void)state;
    static struct world world;
    static struct sleeper sleepers[2];
    world_create(&world, 2);
    for (int i = 0; i < 2; i++) {
        sleepers[i] = (struct sleeper){.rank = &world.ranks[i], .wanted = 3000};
        world.ranks[i].events.message = sleeper_message;
        world.ranks[i].events.ctx = &sleepers[i];
    }
    world_connect(&world);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sleeper_run, &sleepers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_false(sleepers[i].is_bad);
        assert_int_equal(sleepers[i].seen, 3000);
    }
    world_destroy(&world);
}

/* --- death of a process --- */

struct death_log {
    int downs;
    hvd_status_t status;
    char why[256];
};

static void death_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct death_log *log = ctx;
    if (peer != 1)
        return;
    log->downs++;
    log->status = status;
    snprintf(log->why, sizeof log->why, "%s", why);
}

/* The child is rank 1; it keeps a grandchild that holds its socket if `has_heir`. */
static void child_run(int to_parent, int from_parent, bool has_heir)
{
    struct endpoint all[2];
    memset(all, 0, sizeof all);
    struct config config = test_config();
    struct shm *shm;
    if (shm_create(os_host(), &config, 1, &all[1], &shm, NULL) != HVD_OK)
        _exit(2);
    if (write(to_parent, &all[1], sizeof all[1]) != sizeof all[1] ||
        read(from_parent, &all[0], sizeof all[0]) != sizeof all[0])
        _exit(3);
    struct transport_events events = {.message = ends_ignore_message,
                                      .peer_down = ends_ignore_down};
    int poll_fd = os_host()->poll_create(os_host()->ctx);
    if (shm_connect(shm, all, 2, NULL, job_key, 0, poll_fd, &events, NULL) != HVD_OK)
        _exit(4);
    if (has_heir && fork() == 0) {
        close(1); /* whoever reads our output must not wait for it */
        close(2);
        char byte;
        alarm(100);
        (void)!read(from_parent, &byte, 1); /* until the parent has seen enough */
        _exit(0);
    }
    if (write(to_parent, "", 1) != 1)
        _exit(5);
    pause();
    _exit(0);
}

/* Emulators of a processor do not implement it; without it the heir hides the death. */
static bool has_peer_read(const struct os *os)
{
    char from = 1, to = 0;
    struct iovec local = {.iov_base = &to, .iov_len = 1},
                 remote = {.iov_base = &from, .iov_len = 1};
    return os->peer_read(os->ctx, getpid(), &local, 1, &remote, 1) == 1;
}

static void check_death(void **state)
{
    bool has_heir = unit_case(state) != 0;
    int up[2], down[2];
    char byte;
    if (has_heir && !has_peer_read(os_host()))
        skip();
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(up[0]);
        close(down[1]);
        child_run(up[1], down[0], has_heir);
    }
    close(up[1]);
    close(down[0]);
    struct endpoint all[2];
    memset(all, 0, sizeof all);
    struct config config = test_config();
    struct shm *shm;
    const struct os *os = os_host();
    assert_int_equal(shm_create(os, &config, 0, &all[0], &shm, NULL), HVD_OK);
    assert_int_equal(read(up[0], &all[1], sizeof all[1]), sizeof all[1]);
    assert_int_equal(write(down[1], &all[0], sizeof all[0]), sizeof all[0]);
    struct death_log log = {0};
    struct transport_events events = {
        .ctx = &log, .message = ends_ignore_message, .peer_down = death_down};
    int poll_fd = os->poll_create(os->ctx);
    assert_int_equal(shm_connect(shm, all, 2, NULL, job_key, 0, poll_fd, &events, NULL), HVD_OK);
    struct transport *t = shm_transport(shm);
    assert_true(t->ops->reaches(t, 1));
    assert_int_equal(shm_peer_pid(shm, 1), child);
    for (int i = 0; i < 20; i++)
        t->ops->progress(t, os_now_ns(os));
    assert_int_equal(log.downs, 0);
    assert_int_equal(read(up[0], &byte, 1), 1); /* the heir, if any, is there */
    kill(child, SIGKILL);
    int64_t deadline = os_now_ns(os) + 60000000000;
    while (log.downs == 0 && os_now_ns(os) < deadline) {
        t->ops->progress(t, os_now_ns(os));
        sched_yield();
    }
    assert_int_equal(log.downs, 1);
    assert_int_equal(log.status, HVD_ERR_PEER_DEAD);
    char expected[64];
    snprintf(expected, sizeof expected, "rank 1 (pid %d", (int)child);
    assert_non_null(strstr(log.why, expected));
    waitpid(child, NULL, 0);
    t->ops->destroy(t);
    os->close(os->ctx, poll_fd);
    close(up[0]);
    close(down[1]);
}

int main(void)
{
    alarm(DEADLINE_S);
    const struct CMUnitTest tests[] = {
        UNIT_CASE(test_death, check_death, false),
        UNIT_CASE(test_death_with_heir, check_death, true),
        OTHER_USER_TESTS(check_other_user),
        UNIT_CASE(test_wrong_key, check_wrong, WRONG_KEY),
        UNIT_CASE(test_wrong_epoch, check_wrong, WRONG_EPOCH),
        CONFORMANCE_TESTS(&conformance_shm),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_arenas_do_not_compete),
        cmocka_unit_test(test_other_host_is_left_out),
        cmocka_unit_test(test_idle_of_own_user),
        cmocka_unit_test(test_error_names_strangers),
        cmocka_unit_test(test_arena_that_can_shrink_is_refused),
        cmocka_unit_test(test_destroy_half_built),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_heap_threads),
        cmocka_unit_test(test_detach),
        cmocka_unit_test(test_heap_outlives),
        cmocka_unit_test(test_arena_is_shared),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_garbage_fragments),
        cmocka_unit_test(test_garbage_random),
        cmocka_unit_test(test_sleep_never_lost),
    };
    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
