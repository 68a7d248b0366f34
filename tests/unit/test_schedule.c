/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - proves every schedule for every rank count from 1 to 1024, and that the prover
 * rejects broken ones.
 *
 * Rank counts up to FULL_RANKS are tried with many element counts, machine layouts and
 * interleavings; above, each algorithm is proved once or twice for each rank count. Start at
 * flat_all_sizes(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedule/check.h"

#define RANKS_MAX  1024
#define FULL_RANKS 40
#define SMALL      4u         /* element_bytes: the short paths */
#define LARGE      (1u << 20) /* the long paths: several channels, chunks, lanes */

/* Sanitizers slow this down several times and find nothing new at every single rank count. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SLOW 1
#endif
#endif
#ifndef IS_SLOW
#define IS_SLOW 0
#endif

static int32_t one_host[RANKS_MAX];
static int32_t own_host[RANKS_MAX];

static void layouts_init(void)
{
    for (int32_t i = 0; i < RANKS_MAX; i++)
        own_host[i] = i;
}

static bool is_left_out(int32_t n)
{
    return IS_SLOW && n > FULL_RANKS && n % 13 != 0 && (n & (n - 1)) != 0;
}

static struct topology topology_of(int32_t size, int32_t hosts, const int32_t *host,
                                   int32_t channels)
{
    return (struct topology){.size = size, .host_count = hosts, .host = host, .channels = channels};
}

static void prove(enum schedule_algorithm algorithm, uint64_t count, size_t element_bytes,
                  int32_t seeds, const struct topology *topology)
{
    struct error error = {0};
    hvd_status_t status =
        schedule_check_sized(os_host(), algorithm, count, element_bytes, seeds, topology, &error);
    if (status != HVD_OK)
        fail_msg("%s, %d ranks on %d hosts, %llu elements of %zu bytes: %s",
                 schedule_algorithm_name(algorithm), topology->size, topology->host_count,
                 (unsigned long long)count, element_bytes, error.text);
}

static void prove_small_group(enum schedule_algorithm algorithm, const struct topology *topology)
{
    uint64_t n = (uint64_t)topology->size;
    const uint64_t counts[] = {0, 1, 2, n - 1, n, n + 1, 3 * n + 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        prove(algorithm, counts[i], SMALL, 1, topology);
        prove(algorithm, counts[i], LARGE, 2, topology);
    }
}

static void flat_all_sizes(enum schedule_algorithm algorithm)
{
    for (int32_t n = 1; n <= RANKS_MAX; n++) {
        struct topology topology = topology_of(n, n, own_host, 1 + n % 4);
        if (is_left_out(n))
            continue;
        if (n <= FULL_RANKS) {
            prove_small_group(algorithm, &topology);
            continue;
        }
        prove(algorithm, 3, SMALL, 1, &topology);
        if (n % 16 == 1 || (n & (n - 1)) == 0)
            prove(algorithm, 13, LARGE, 1, &topology);
    }
}

static void test_recursive_doubling(void **state)
{
    (void)state;
    flat_all_sizes(SCHEDULE_RECURSIVE_DOUBLING);
}

static void test_rabenseifner(void **state)
{
    (void)state;
    flat_all_sizes(SCHEDULE_RABENSEIFNER);
    for (int32_t n = FULL_RANKS; n <= RANKS_MAX; n += 61) {
        struct topology topology = topology_of(n, n, own_host, 2);
        prove(SCHEDULE_RABENSEIFNER, (uint64_t)n + 7, SMALL, 1, &topology);
    }
}

static void test_double_tree(void **state)
{
    (void)state;
    flat_all_sizes(SCHEDULE_DOUBLE_TREE);
}

static void test_ring(void **state)
{
    (void)state;
    flat_all_sizes(SCHEDULE_RING);
    /* every block in use: quadratic in steps, so a choice of rank counts */
    static const int32_t sizes[] = {64, 65, 100, 127, 128, 200, 257, 512, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !(IS_SLOW && sizes[i] > 300); i++) {
        struct topology topology = topology_of(sizes[i], sizes[i], own_host, 1);
        prove(SCHEDULE_RING, (uint64_t)sizes[i] + 1, SMALL, 1, &topology);
    }
    struct topology two_ways = topology_of(96, 96, own_host, 16);
    prove(SCHEDULE_RING, 2000, LARGE, 1, &two_ways);
}

/* Host layouts of n ranks; false when there is no such layout. */
static bool layout_make(int32_t which, int32_t n, int32_t *host, int32_t *ret_hosts)
{
    int32_t hosts = 0, left = 0;
    for (int32_t i = 0; i < n; i++) {
        switch (which) {
        case 0: host[i] = i < (n + 1) / 2 ? 0 : 1; break; /* two hosts */
        case 1: host[i] = i / 4; break;                   /* four per host */
        case 2: host[i] = i % ((n + 2) / 3); break;       /* dealt out in turns */
        case 3:                                           /* 1, 2, 3, ... per host */
            if (left == 0)
                left = ++hosts;
            left--;
            host[i] = hosts - 1;
            break;
        case 4: host[i] = i == 0 ? 0 : 1; break; /* one alone */
        case 5: host[i] = 0; break;              /* one host */
        case 6: host[i] = i; break;              /* one each */
        default: return false;
        }
    }
    *ret_hosts = 0;
    for (int32_t i = 0; i < n; i++)
        if (host[i] >= *ret_hosts)
            *ret_hosts = host[i] + 1;
    return true;
}

static void test_two_level(void **state)
{
    static int32_t host[RANKS_MAX];
    int32_t hosts;
    (void)state;
    for (int32_t n = 1; n <= RANKS_MAX; n++) {
        for (int32_t which = 0; layout_make(which, n, host, &hosts); which++) {
            struct topology topology = topology_of(n, hosts, host, 4);
            if (is_left_out(n))
                continue;
            if (n <= FULL_RANKS / 2) {
                prove_small_group(SCHEDULE_TWO_LEVEL, &topology);
                prove(SCHEDULE_AUTO, (uint64_t)n + 3, LARGE, 1, &topology);
            } else if (which == n % 7) {
                prove(SCHEDULE_TWO_LEVEL, 2, SMALL, 1, &topology);
                prove(SCHEDULE_AUTO, hosts == 1 ? 1 : 9, n % 8 == 0 ? LARGE : SMALL, 1, &topology);
            }
        }
    }
}

static void test_check_entry(void **state)
{
    struct error error = {0};
    int32_t host[12];
    int32_t hosts;
    (void)state;
    assert_true(layout_make(3, 12, host, &hosts));
    struct topology topology = topology_of(12, hosts, host, 3);
    assert_int_equal(schedule_check(SCHEDULE_AUTO, 25, &topology, &error), HVD_OK);
}

/* Bytes that host `h` sends to other hosts. */
static uint64_t host_sends(const struct topology *topology, int32_t h, uint64_t count,
                           size_t element_bytes)
{
    struct schedule s;
    uint64_t elements = 0;
    schedule_init(&s, os_host());
    for (int32_t rank = 0; rank < topology->size; rank++) {
        if (topology->host[rank] != h)
            continue;
        assert_int_equal(
            schedule_allreduce(&s, SCHEDULE_AUTO, count, element_bytes, rank, topology, NULL),
            HVD_OK);
        for (size_t i = 0; i < s.step_count; i++)
            if (s.steps[i].kind == STEP_SEND && topology->host[s.steps[i].peer] != h)
                elements += s.steps[i].count;
    }
    schedule_destroy(&s);
    return elements * element_bytes;
}

static void test_network_bytes(void **state)
{
    static int32_t host[64];
    (void)state;
    for (int32_t per_host = 1; per_host <= 4; per_host++) {
        for (int32_t hosts = 2; hosts <= 16; hosts++) {
            for (int32_t i = 0; i < hosts * per_host; i++)
                host[i] = i / per_host;
            struct topology topology = topology_of(hosts * per_host, hosts, host, 4);
            uint64_t count = 720720ull * 64, bytes = count * 4, sum = 0;
            for (int32_t h = 0; h < hosts; h++)
                sum += host_sends(&topology, h, count, 4);
            assert_int_equal(sum, 2 * (uint64_t)(hosts - 1) * bytes);
        }
    }
}

static void test_select(void **state)
{
    (void)state;
    struct topology two = topology_of(2, 2, own_host, 1);
    struct topology many = topology_of(64, 64, own_host, 1), odd = topology_of(6, 6, own_host, 1);
    assert_int_equal(schedule_select(64 << 20, &two), SCHEDULE_RECURSIVE_DOUBLING);
    assert_int_equal(schedule_select(1024, &many), SCHEDULE_RECURSIVE_DOUBLING);
    assert_int_equal(schedule_select(1 << 20, &many), SCHEDULE_RABENSEIFNER);
    assert_int_equal(schedule_select(64 << 20, &many), SCHEDULE_RING);
    assert_int_equal(schedule_select(64 << 20, &odd), SCHEDULE_RING);
    int32_t host[4] = {0, 0, 1, 1};
    struct topology mixed = topology_of(4, 2, host, 1);
    assert_int_equal(schedule_select(64 << 20, &mixed), SCHEDULE_TWO_LEVEL);
    for (int i = 0; i < SCHEDULE_ALGORITHM_COUNT; i++) {
        enum schedule_algorithm got;
        assert_true(
            schedule_algorithm_parse(schedule_algorithm_name((enum schedule_algorithm)i), &got));
        assert_int_equal((int)got, i);
    }
    enum schedule_algorithm none;
    assert_false(schedule_algorithm_parse("no such", &none));
}

/* ---- the other collectives ---- */

struct parts {
    uint64_t offsets[RANKS_MAX], counts[RANKS_MAX], total;
};

/* Uneven parts, some of them empty; `is_apart` leaves holes between them. */
static void parts_make(struct parts *parts, int32_t n, uint64_t each, bool is_apart)
{
    parts->total = 0;
    for (int32_t i = 0; i < n; i++) {
        parts->counts[i] = (uint64_t)(i % 3) * each + (i % 5 == 1 ? 1 : 0);
        parts->offsets[i] = parts->total;
        parts->total += parts->counts[i] + (is_apart && i % 2 == 0 ? 1 : 0);
    }
}

static void build_other(struct schedule *s, enum proof_goal goal, const struct proof *proof,
                        size_t element_bytes, int32_t rank)
{
    struct error error = {0};
    hvd_status_t status = HVD_ERR_INTERNAL;
    switch (goal) {
    case PROOF_BROADCAST:
        status = schedule_broadcast(s, proof->count, element_bytes, proof->root, rank,
                                    proof->topology, &error);
        break;
    case PROOF_ALLGATHER:
        status =
            schedule_allgather(s, proof->offsets, proof->counts, rank, proof->topology, &error);
        break;
    case PROOF_REDUCESCATTER:
        status =
            schedule_reducescatter(s, proof->offsets, proof->counts, rank, proof->topology, &error);
        break;
    case PROOF_ALLREDUCE: break;
    }
    if (status != HVD_OK)
        fail_msg("%s", error.text);
}

static void prove_other(struct proof *proof, size_t element_bytes)
{
    static struct schedule all[64];
    struct error error = {0};
    int32_t n = proof->topology->size;
    for (int32_t rank = 0; rank < n; rank++) {
        schedule_init(&all[rank], os_host());
        build_other(&all[rank], proof->goal, proof, element_bytes, rank);
    }
    proof->schedules = all;
    proof->rounds = 2;
    for (uint64_t seed = 0; seed < 2; seed++) {
        proof->seed = seed + 77;
        if (schedule_prove(os_host(), proof, &error) != HVD_OK)
            fail_msg("collective %d, %d ranks, %llu elements: %s", (int)proof->goal, n,
                     (unsigned long long)proof->count, error.text);
    }
    for (int32_t rank = 0; rank < n; rank++)
        schedule_destroy(&all[rank]);
}

static void test_broadcast(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 64; n++) {
        struct topology topology = topology_of(n, n, own_host, 1 + n % 4);
        uint64_t counts[] = {0, 1, (uint64_t)n, 150};
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct proof proof = {.goal = PROOF_BROADCAST,
                                  .topology = &topology,
                                  .count = counts[i],
                                  .root = (n * 3 / 4) % n};
            prove_other(&proof, SMALL);
            prove_other(&proof, LARGE);
        }
    }
}

static void prove_parts(enum proof_goal goal, const struct topology *topology,
                        const struct parts *parts)
{
    struct proof proof = {.goal = goal,
                          .topology = topology,
                          .count = parts->total,
                          .offsets = parts->offsets,
                          .counts = parts->counts};
    prove_other(&proof, SMALL);
}

/* Uneven parts of every size; the largest take long, so only some groups have them. */
static void prove_uneven(enum proof_goal goal, uint64_t large, bool is_apart)
{
    static struct parts parts;
    for (int32_t n = 1; n <= 64; n++) {
        struct topology topology = topology_of(n, n, own_host, 1 + n % 4);
        for (uint64_t i = 0; i < 4; i++) {
            if (i == 3 && n > 6 && n % 31 != 0)
                continue;
            parts_make(&parts, n, i < 3 ? i : large / (uint64_t)n + 1, is_apart && i != 3);
            prove_parts(goal, &topology, &parts);
        }
    }
}

static void test_allgather(void **state)
{
    (void)state;
    prove_uneven(PROOF_ALLGATHER, 70000, false);
}

/* The first rank of each machine gathers for it; machines of all shapes. */
static void test_allgather_machines(void **state)
{
    static struct parts parts;
    static int32_t host[RANKS_MAX];
    int32_t hosts;
    (void)state;
    for (int32_t n = 2; n <= 16; n++)
        for (int32_t which = 0; layout_make(which, n, host, &hosts); which++)
            for (uint64_t each = 0; each < 3; each++) {
                struct topology topology = topology_of(n, hosts, host, 2);
                parts_make(&parts, n, each, false);
                prove_parts(PROOF_ALLGATHER, &topology, &parts);
            }
}

/* Parts that do not stand in rank order travel one by one. */
static void test_allgather_scattered(void **state)
{
    static struct parts parts;
    (void)state;
    for (int32_t n = 2; n <= 16; n++) {
        struct topology topology = topology_of(n, n, own_host, 1);
        parts.total = 2 * (uint64_t)n;
        for (int32_t i = 0; i < n; i++) {
            parts.counts[i] = 2;
            parts.offsets[i] = 2 * (uint64_t)((i % 2 == 0 ? n - 1 - i / 2 : i / 2));
        }
        prove_parts(PROOF_ALLGATHER, &topology, &parts);
    }
}

static void test_reducescatter(void **state)
{
    (void)state;
    prove_uneven(PROOF_REDUCESCATTER, 18000, true);
}

/* ---- alltoall and barrier: sums cannot show these, so the steps are looked at ---- */

static uint64_t gift(int32_t from, int32_t to)
{
    return (uint64_t)((from * 5 + to) % 3);
}

/* Every pair's transfer is there once on both sides, in the same order of channels; and the prover
 * finds no deadlock (the goal is trivially met: a broadcast of nothing). */
static void test_alltoall(void **state)
{
    static uint64_t at[4][64];
    static struct schedule all[64];
    (void)state;
    for (int32_t n = 1; n <= 64; n++) {
        struct topology topology = topology_of(n, n, own_host, 1);
        uint64_t count = 2 * (uint64_t)n;
        for (int32_t rank = 0; rank < n; rank++) {
            struct error error = {0};
            for (int32_t i = 0; i < n; i++) {
                at[0][i] = at[2][i] = 2 * (uint64_t)i;
                at[1][i] = gift(rank, i);
                at[3][i] = gift(i, rank);
            }
            struct alltoall_shape shape = {at[0], at[1], at[2], at[3]};
            schedule_init(&all[rank], os_host());
            assert_int_equal(schedule_alltoall(&all[rank], &shape, rank, &topology, &error),
                             HVD_OK);
            uint64_t sent = 0, wanted = 0;
            for (size_t i = 0; i < all[rank].step_count; i++)
                if (all[rank].steps[i].kind == STEP_SEND_TEMP)
                    sent += all[rank].steps[i].count;
            for (int32_t i = 0; i < n; i++)
                wanted += i == rank ? 0 : gift(rank, i);
            assert_int_equal(sent, wanted);
        }
        static const uint64_t nothing[64];
        struct error error = {0};
        struct proof proof = {.goal = PROOF_REDUCESCATTER,
                              .topology = &topology,
                              .schedules = all,
                              .count = count,
                              .offsets = nothing,
                              .counts = nothing,
                              .seed = 5,
                              .rounds = 2};
        if (schedule_prove(os_host(), &proof, &error) != HVD_OK)
            fail_msg("alltoall, %d ranks: %s", n, error.text);
        for (int32_t rank = 0; rank < n; rank++)
            schedule_destroy(&all[rank]);
    }
}

/* After the last round everybody has heard of everybody. */
static void test_barrier(void **state)
{
    static struct schedule all[64];
    (void)state;
    for (int32_t n = 1; n <= 64; n++) {
        struct topology topology = topology_of(n, n, own_host, 1);
        uint64_t known[64], next[64];
        size_t rounds = 0;
        for (int32_t rank = 0; rank < n; rank++) {
            schedule_init(&all[rank], os_host());
            assert_int_equal(schedule_barrier(&all[rank], rank, &topology, NULL), HVD_OK);
            known[rank] = 1ull << rank;
            rounds = all[rank].step_count / 2;
        }
        for (size_t round = 0; round < rounds; round++) {
            for (int32_t rank = 0; rank < n; rank++)
                next[rank] = known[rank] | known[all[rank].steps[2 * round + 1].peer];
            memcpy(known, next, sizeof known);
        }
        for (int32_t rank = 0; rank < n; rank++) {
            assert_true(known[rank] == (n == 64 ? UINT64_MAX : (1ull << n) - 1));
            schedule_destroy(&all[rank]);
        }
    }
}

/* ---- broken schedules ---- */

enum mutation { DROP, DUPLICATE, MISDIRECT, SHIFT, SHORTEN, TWICE_FINAL, OTHER_CHANNEL, MUTATIONS };

static struct schedule mutants[RANKS_MAX];

static bool is_transfer_step(const struct step *step)
{
    return step->kind <= STEP_RECV_TEMP;
}

/* Applies one mutation to one step; false when it would change nothing that matters. */
static bool mutate(struct schedule *s, size_t at, enum mutation mutation, int32_t size,
                   uint64_t count)
{
    struct step *step = &s->steps[at];
    switch (mutation) {
    case DROP:
        memmove(step, step + 1, (s->step_count - at - 1) * sizeof *step);
        s->step_count--;
        return true;
    case DUPLICATE:
        /* waiting, copying or computing anew from slots does no harm */
        if (step->kind == STEP_AWAIT || step->kind == STEP_COPY_IN || step->kind == STEP_COPY_OUT ||
            step->kind == STEP_SPREAD)
            return false;
        s->steps = os_host()->resize(os_host()->ctx, s->steps, (s->step_count + 1) * sizeof *step);
        assert_non_null(s->steps);
        memmove(s->steps + at + 1, s->steps + at, (s->step_count - at) * sizeof *step);
        s->step_count++;
        return true;
    case MISDIRECT: step->peer = (step->peer + 1) % size; return is_transfer_step(step) && size > 1;
    case SHIFT:
        step->offset = step->offset + step->count < count ? step->offset + 1 : step->offset - 1;
        return step->kind != STEP_PUBLISH && step->kind != STEP_AWAIT && step->count > 0 &&
               step->count < count;
    case SHORTEN: step->count--; return step->kind != STEP_PUBLISH && step->kind != STEP_AWAIT;
    case TWICE_FINAL:
        step->is_final = !step->is_final;
        return step->kind == STEP_RECV_REDUCE || step->kind == STEP_REDUCE_HOST;
    case OTHER_CHANNEL:
        step->channel = (uint16_t)(step->channel ^ 1);
        return is_transfer_step(step);
    case MUTATIONS: break;
    }
    return false;
}

static void mutants_build(enum schedule_algorithm algorithm, uint64_t count,
                          const struct topology *topology)
{
    /* two-level: large, or there is one lane only, whose owner need not wait at the end */
    size_t element_bytes = algorithm == SCHEDULE_TWO_LEVEL ? LARGE : SMALL;
    for (int32_t rank = 0; rank < topology->size; rank++) {
        schedule_init(&mutants[rank], os_host());
        assert_int_equal(schedule_allreduce(&mutants[rank], algorithm, count, element_bytes, rank,
                                            topology, NULL),
                         HVD_OK);
    }
}

static void mutants_free(int32_t size)
{
    for (int32_t rank = 0; rank < size; rank++)
        schedule_destroy(&mutants[rank]);
}

static bool is_refused(uint64_t count, const struct topology *topology)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct error error = {0};
        struct proof proof = {.goal = PROOF_ALLREDUCE,
                              .topology = topology,
                              .schedules = mutants,
                              .count = count,
                              .seed = seed,
                              .rounds = PROOF_ROUNDS_MAX};
        hvd_status_t status = schedule_prove(os_host(), &proof, &error);
        if (status != HVD_OK) {
            assert_int_equal(status, HVD_ERR_INTERNAL);
            assert_true(error.text[0] != '\0');
            return true;
        }
    }
    return false;
}

/* Every single broken step of every rank must be noticed. */
static void refuse_all(enum schedule_algorithm algorithm, uint64_t count,
                       const struct topology *topology)
{
    int32_t n = topology->size;
    for (int32_t rank = 0; rank < n; rank++) {
        mutants_build(algorithm, count, topology);
        size_t steps = mutants[rank].step_count;
        mutants_free(n);
        for (size_t at = 0; at < steps; at++) {
            for (int m = 0; m < MUTATIONS; m++) {
                mutants_build(algorithm, count, topology);
                if (mutate(&mutants[rank], at, (enum mutation)m, n, count) &&
                    !is_refused(count, topology))
                    fail_msg("%s, %d ranks: mutation %d of step %zu of rank %d was not noticed",
                             schedule_algorithm_name(algorithm), n, m, at, rank);
                mutants_free(n);
            }
        }
    }
}

static void test_mutants_flat(void **state)
{
    static const enum schedule_algorithm algorithms[] = {
        SCHEDULE_RECURSIVE_DOUBLING, SCHEDULE_RABENSEIFNER, SCHEDULE_RING, SCHEDULE_DOUBLE_TREE};
    (void)state;
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        for (int32_t n = 3; n <= 7; n += 2) {
            struct topology topology = topology_of(n, n, own_host, 1);
            refuse_all(algorithms[i], 16, &topology);
        }
    }
}

static void test_mutants_host(void **state)
{
    /* hosts of equal size: a rank that owns no lane need not await the first wave */
    static const int32_t host[] = {0, 0, 1, 1, 2, 2};
    (void)state;
    struct topology mixed = topology_of(6, 3, host, 1);
    refuse_all(SCHEDULE_TWO_LEVEL, 9, &mixed);
}

/* Sends that wait for their receives before these are posted stand still for ever. */
static void test_closed_ring_deadlocks(void **state)
{
    (void)state;
    struct topology topology = topology_of(5, 5, own_host, 1);
    mutants_build(SCHEDULE_RING, 10, &topology);
    for (int32_t rank = 0; rank < 5; rank++)
        for (size_t i = 0; i < mutants[rank].step_count; i++)
            mutants[rank].steps[i].is_open = false;
    assert_true(is_refused(10, &topology));
    mutants_free(5);
}

/* One rank adding in the other order gives other bits for floats. */
static void test_other_order_refused(void **state)
{
    (void)state;
    struct topology topology = topology_of(4, 4, own_host, 1);
    mutants_build(SCHEDULE_RECURSIVE_DOUBLING, 2, &topology);
    assert_int_equal(mutants[2].steps[1].kind, STEP_RECV_REDUCE);
    mutants[2].steps[1].is_left = !mutants[2].steps[1].is_left;
    assert_true(is_refused(2, &topology));
    mutants_free(4);
}

/* Without its first wave the two-level algorithm reads inputs that are not there yet. */
static void test_missing_wave_refused(void **state)
{
    (void)state;
    struct topology topology = topology_of(3, 1, one_host, 1);
    mutants_build(SCHEDULE_TWO_LEVEL, 6, &topology);
    for (int32_t rank = 0; rank < 3; rank++) {
        struct schedule *s = &mutants[rank];
        memmove(s->steps, s->steps + 2, (s->step_count - 2) * sizeof *s->steps);
        s->step_count -= 2;
        for (size_t i = 0; i < s->step_count; i++)
            s->steps[i].wave = 0;
    }
    assert_true(is_refused(6, &topology));
    mutants_free(3);
}

static void test_bounds_and_reuse(void **state)
{
    (void)state;
    struct topology topology = topology_of(4, 4, own_host, 1);
    struct schedule s;
    struct error error = {0};
    schedule_init(&s, os_host());
    assert_int_equal(schedule_allreduce(&s, SCHEDULE_RING, 8, 4, 4, &topology, &error),
                     HVD_ERR_INVALID);
    assert_int_equal(schedule_allreduce(&s, SCHEDULE_RING, 8, 4, 3, &topology, NULL), HVD_OK);
    size_t capacity = s.step_capacity;
    assert_int_equal(schedule_allreduce(&s, SCHEDULE_RING, 9, 4, 2, &topology, NULL), HVD_OK);
    assert_int_equal(s.step_capacity, capacity);
    schedule_destroy(&s);
    schedule_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recursive_doubling),
        cmocka_unit_test(test_rabenseifner),
        cmocka_unit_test(test_double_tree),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_two_level),
        cmocka_unit_test(test_check_entry),
        cmocka_unit_test(test_network_bytes),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_allgather),
        cmocka_unit_test(test_allgather_machines),
        cmocka_unit_test(test_allgather_scattered),
        cmocka_unit_test(test_reducescatter),
        cmocka_unit_test(test_alltoall),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_mutants_flat),
        cmocka_unit_test(test_mutants_host),
        cmocka_unit_test(test_closed_ring_deadlocks),
        cmocka_unit_test(test_other_order_refused),
        cmocka_unit_test(test_missing_wave_refused),
        cmocka_unit_test(test_bounds_and_reuse),
    };
    layouts_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
