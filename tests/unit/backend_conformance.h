/* SPDX-License-Identifier: Apache-2.0 */
/* backend_conformance.h - what every backend must do, run on a few ranks of one process and
 * compared with a plain reference.
 *
 * A test file for one backend fills a struct backend_conformance and lists
 * BACKEND_CONFORMANCE_TESTS(&it) in its cmocka array. Ranks start at different turns and are driven
 * in an order that looks random, so that some are late and some far ahead; nothing depends on time.
 * Values are small whole numbers: sums are exact in any order.
 *
 * Start reading at struct backend_conformance. */
#ifndef HVD_TESTS_BACKEND_CONFORMANCE_H
#define HVD_TESTS_BACKEND_CONFORMANCE_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
/* clang-format on */

#include "backend/backends.h"

#define CONFORM_RANKS 4
#define CONFORM_PARTS 3
#define CONFORM_TURNS 4000000

struct conform_world {
    int32_t size;
    struct backend *backend[CONFORM_RANKS];
    struct backend_group *group[CONFORM_RANKS];
    struct group told[CONFORM_RANKS]; /* what the group was opened with */
    uint64_t random;
    void *ctx; /* the factory's */
};

struct backend_conformance {
    /* Backends and one open group of all `size` ranks; fills all fields. */
    void (*open)(struct conform_world *w, int32_t size);
    void (*close)(struct conform_world *w);
    /* Moves what lies below the backend of this rank; may be NULL. */
    void (*turn)(struct conform_world *w, int32_t rank);
};

/* --- one collective on all ranks --- */

struct conform_scene {
    struct coll coll[CONFORM_RANKS];
    struct coll_part parts[CONFORM_RANKS][CONFORM_PARTS];
    uint64_t counts[CONFORM_RANKS][CONFORM_PARTS * CONFORM_RANKS];
    uint64_t recv_counts[CONFORM_RANKS][CONFORM_RANKS];
    int64_t *in[CONFORM_RANKS][CONFORM_PARTS], *out[CONFORM_RANKS][CONFORM_PARTS];
};

static inline int64_t conform_value(int32_t rank, int32_t part, uint64_t i)
{
    return (int64_t)(i * 7 + (uint64_t)part * 3) % 11 + 10 * rank - 4;
}

static inline struct conform_scene *conform_scene(const struct conform_world *w, hvd_kind_t kind,
                                                  hvd_reduce_t reduce, int32_t parts)
{
    struct conform_scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (int32_t r = 0; r < w->size; r++)
        s->coll[r] = (struct coll){.kind = kind,
                                   .dtype = HVD_INT64,
                                   .reduce = reduce,
                                   .prescale = 1.0,
                                   .postscale = 1.0,
                                   .parts = s->parts[r],
                                   .part_count = parts,
                                   .counts = s->counts[r],
                                   .recv_counts = s->recv_counts[r]};
    return s;
}

static inline void conform_part(struct conform_scene *s, int32_t r, int32_t p, uint64_t in,
                                uint64_t out, bool is_in_place)
{
    s->in[r][p] = calloc(in + 1, sizeof(int64_t));
    s->out[r][p] = is_in_place ? s->in[r][p] : calloc(out + 1, sizeof(int64_t));
    assert_non_null(s->in[r][p]);
    assert_non_null(s->out[r][p]);
    for (uint64_t i = 0; i < in; i++)
        s->in[r][p][i] = conform_value(r, p, i);
    s->out[r][p][out] = -77; /* behind the end */
    s->parts[r][p] = (struct coll_part){.in = s->in[r][p], .out = s->out[r][p], .count = in};
}

static inline void conform_free(struct conform_scene *s)
{
    for (int r = 0; r < CONFORM_RANKS; r++)
        for (int p = 0; p < CONFORM_PARTS; p++) {
            if (s->out[r][p] != s->in[r][p])
                free(s->out[r][p]);
            free(s->in[r][p]);
        }
    free(s);
}

static inline uint64_t conform_random(struct conform_world *w)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return w->random >> 33;
}

static inline void conform_run(const struct backend_conformance *c, struct conform_world *w,
                               const struct conform_scene *s)
{
    enum { WAITS, RUNS, DONE } state[CONFORM_RANKS] = {WAITS};
    int32_t left = w->size;
    for (int turn = 0; left > 0 && turn < CONFORM_TURNS; turn++) {
        int32_t r = (int32_t)(conform_random(w) % (uint64_t)w->size);
        struct backend *b = w->backend[r];
        struct error error = {0};
        bool has_moved = false;
        if (c->turn != NULL)
            c->turn(w, r);
        if (state[r] == WAITS && conform_random(w) % 16 == 0) {
            if (b->ops->start(b, w->group[r], &s->coll[r], &error) != HVD_OK)
                fail_msg("rank %d could not start: %s", r, error.text);
            state[r] = RUNS;
        } else if (state[r] == RUNS) {
            hvd_status_t status = b->ops->progress(b, w->group[r], &has_moved, &error);
            if (status < 0)
                fail_msg("rank %d failed: %s", r, error.text);
            state[r] = status == HVD_IN_PROGRESS ? RUNS : DONE;
            left -= state[r] == DONE;
        }
    }
    assert_int_equal(left, 0);
}

static inline void conform_open(const struct backend_conformance *c, struct conform_world *w,
                                int32_t size)
{
    memset(w, 0, sizeof *w);
    w->size = size;
    w->random = 4711 + (uint64_t)size;
    c->open(w, size);
    for (int32_t r = 0; r < size; r++) /* as the engine does before the first one */
        w->backend[r]->ops->reset(w->backend[r], w->group[r], 1ull << 48);
}

/* --- the suite --- */

static inline int64_t conform_reduced(const struct conform_world *w, hvd_reduce_t op, int32_t part,
                                      uint64_t i)
{
    int64_t all = conform_value(0, part, i);
    for (int32_t r = 1; r < w->size; r++) {
        int64_t v = conform_value(r, part, i);
        switch (op) {
        case HVD_MIN: all = v < all ? v : all; break;
        case HVD_MAX: all = v > all ? v : all; break;
        case HVD_PRODUCT: all *= v; break;
        case HVD_SUM:
        case HVD_AVERAGE:
        case HVD_ADASUM:
        case HVD_REDUCE_COUNT: all += v; break;
        }
    }
    return all;
}

static inline void conform_allreduce(const struct backend_conformance *c, struct conform_world *w,
                                     hvd_reduce_t op, const uint64_t *counts, int32_t parts,
                                     bool is_in_place)
{
    struct conform_scene *s = conform_scene(w, HVD_ALLREDUCE, op, parts);
    for (int32_t r = 0; r < w->size; r++)
        for (int32_t p = 0; p < parts; p++)
            conform_part(s, r, p, counts[p], counts[p], is_in_place);
    conform_run(c, w, s);
    for (int32_t r = 0; r < w->size; r++)
        for (int32_t p = 0; p < parts; p++) {
            for (uint64_t i = 0; i < counts[p]; i++) {
                assert_true(s->out[r][p][i] == conform_reduced(w, op, p, i));
                assert_true(is_in_place || s->in[r][p][i] == conform_value(r, p, i));
            }
            assert_int_equal(s->out[r][p][counts[p]], -77);
        }
    conform_free(s);
}

static inline void backend_conform_allreduce(void **state)
{
    static const hvd_reduce_t ops[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const uint64_t counts[] = {7, 0, 1000};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    for (int32_t size = 2; size <= CONFORM_RANKS; size++) {
        conform_open(c, &w, size);
        for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
            for (int in_place = 0; in_place < 2; in_place++)
                conform_allreduce(c, &w, ops[i], counts, 3, in_place != 0);
        c->close(&w);
    }
}

/* Longer than any window, ring or slot. */
static inline void backend_conform_large(void **state)
{
    static const uint64_t counts[] = {600001, 3, 70000};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    conform_open(c, &w, 3);
    conform_allreduce(c, &w, HVD_SUM, counts, 3, true);
    conform_allreduce(c, &w, HVD_SUM, counts, 1, false);
    c->close(&w);
}

static inline void backend_conform_allgather(void **state)
{
    static const uint64_t counts[2][CONFORM_RANKS] = {{5, 0, 70000, 2}, {1, 3, 0, 0}};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    for (int32_t size = 2; size <= CONFORM_RANKS; size++) {
        conform_open(c, &w, size);
        struct conform_scene *s = conform_scene(&w, HVD_ALLGATHER, HVD_SUM, 2);
        uint64_t total[2] = {0};
        for (int32_t p = 0; p < 2; p++)
            for (int32_t r = 0; r < size; r++)
                total[p] += counts[p][r];
        for (int32_t r = 0; r < size; r++)
            for (int32_t p = 0; p < 2; p++) {
                conform_part(s, r, p, counts[p][r], total[p], false);
                memcpy(&s->counts[r][p * size], counts[p], (size_t)size * sizeof(uint64_t));
            }
        conform_run(c, &w, s);
        for (int32_t r = 0; r < size; r++)
            for (int32_t p = 0; p < 2; p++) {
                const int64_t *at = s->out[r][p];
                for (int32_t k = 0; k < size; k++)
                    for (uint64_t i = 0; i < counts[p][k]; i++)
                        assert_true(*at++ == conform_value(k, p, i));
                assert_int_equal(*at, -77);
            }
        conform_free(s);
        c->close(&w);
    }
}

static inline void backend_conform_broadcast(void **state)
{
    static const uint64_t counts[] = {1, 5000, 200000};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    conform_open(c, &w, CONFORM_RANKS);
    for (int32_t root = 0; root < w.size; root++) {
        uint64_t count = counts[root % 3];
        struct conform_scene *s = conform_scene(&w, HVD_BROADCAST, HVD_SUM, 1);
        for (int32_t r = 0; r < w.size; r++) {
            conform_part(s, r, 0, count, count, true);
            s->coll[r].root = root;
        }
        conform_run(c, &w, s);
        for (int32_t r = 0; r < w.size; r++)
            for (uint64_t i = 0; i < count; i++)
                assert_true(s->out[r][0][i] == conform_value(root, 0, i));
        conform_free(s);
    }
    c->close(&w);
}

static inline void backend_conform_reducescatter(void **state)
{
    static const uint64_t counts[CONFORM_RANKS] = {3, 0, 40000, 8};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    for (int32_t size = 2; size <= CONFORM_RANKS; size++) {
        uint64_t all = 0, at = 0;
        conform_open(c, &w, size);
        struct conform_scene *s = conform_scene(&w, HVD_REDUCESCATTER, HVD_SUM, 1);
        for (int32_t r = 0; r < size; r++)
            all += counts[r];
        for (int32_t r = 0; r < size; r++) {
            conform_part(s, r, 0, all, counts[r], false);
            memcpy(s->counts[r], counts, (size_t)size * sizeof(uint64_t));
        }
        conform_run(c, &w, s);
        for (int32_t r = 0; r < size; r++) {
            for (uint64_t i = 0; i < counts[r]; i++, at++)
                assert_true(s->out[r][0][i] == conform_reduced(&w, HVD_SUM, 0, at));
            assert_int_equal(s->out[r][0][counts[r]], -77);
        }
        conform_free(s);
        c->close(&w);
    }
}

/* Rank r gives r + 2 k rows to rank k, and with `is_large` many to the last one. */
static inline uint64_t conform_gift(const struct conform_world *w, int32_t r, int32_t k,
                                    bool is_large)
{
    return (uint64_t)(r + 2 * k) + (is_large && k == w->size - 1 ? 60000 : 0);
}

static inline void backend_conform_alltoall(void **state)
{
    const struct backend_conformance *c = *state;
    struct conform_world w;
    for (int large = 0; large < 2; large++) {
        conform_open(c, &w, 3);
        struct conform_scene *s = conform_scene(&w, HVD_ALLTOALL, HVD_SUM, 1);
        for (int32_t r = 0; r < w.size; r++) {
            uint64_t in = 0, out = 0;
            for (int32_t k = 0; k < w.size; k++) {
                in += s->counts[r][k] = conform_gift(&w, r, k, large != 0);
                out += s->recv_counts[r][k] = conform_gift(&w, k, r, large != 0);
            }
            conform_part(s, r, 0, in, out, false);
        }
        conform_run(c, &w, s);
        for (int32_t r = 0; r < w.size; r++) {
            const int64_t *got = s->out[r][0];
            for (int32_t k = 0; k < w.size; k++) {
                uint64_t at = 0;
                for (int32_t i = 0; i < r; i++)
                    at += conform_gift(&w, k, i, large != 0);
                for (uint64_t i = 0; i < conform_gift(&w, k, r, large != 0); i++)
                    assert_true(*got++ == conform_value(k, 0, at + i));
            }
            assert_int_equal(*got, -77);
        }
        conform_free(s);
        c->close(&w);
    }
}

static inline void backend_conform_scale(void **state)
{
    const struct backend_conformance *c = *state;
    struct conform_world w;
    conform_open(c, &w, 3);
    struct conform_scene *s = conform_scene(&w, HVD_ALLREDUCE, HVD_SUM, 1);
    for (int32_t r = 0; r < w.size; r++) {
        conform_part(s, r, 0, 100, 100, false);
        for (int i = 0; i < 100; i++)
            ((double *)s->in[r][0])[i] = 4 * i + r;
        s->coll[r].dtype = HVD_FLOAT64;
        s->coll[r].prescale = 0.5;
        s->coll[r].postscale = 4.0;
    }
    conform_run(c, &w, s);
    for (int32_t r = 0; r < w.size; r++)
        for (int i = 0; i < 100; i++)
            assert_true(((double *)s->out[r][0])[i] == 2.0 * (3 * 4 * i + 3));
    conform_free(s);
    c->close(&w);
}

/* A score is the same on every member; what it declines is refused, and the group lives on. */
static inline void backend_conform_score(void **state)
{
    static const uint64_t counts[] = {9};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    int32_t accepted = 0;
    conform_open(c, &w, 2);
    assert_true(strlen(w.backend[0]->ops->name) > 0);
    for (int kind = 0; kind < HVD_KIND_COUNT; kind++)
        for (int reduce = 0; reduce < HVD_REDUCE_COUNT; reduce++)
            for (int32_t memory = 0; memory < 4; memory++) {
                bool is_narrow = memory == 3 && kind == HVD_ALLREDUCE && reduce == HVD_SUM;
                struct backend_ask ask = {.kind = (hvd_kind_t)kind,
                                          .dtype = HVD_FLOAT32,
                                          .reduce = (hvd_reduce_t)reduce,
                                          .memory = is_narrow ? 0 : memory,
                                          .wire = is_narrow ? HVD_WIRE_BFLOAT16 : HVD_WIRE_SAME,
                                          .bytes = 64};
                const struct backend_ops *ops = w.backend[0]->ops;
                assert_non_null(ops->score);
                int32_t score = ops->score(w.backend[0], &w.told[0], &ask);
                assert_int_equal(score, ops->score(w.backend[1], &w.told[1], &ask));
                accepted += score >= 0;
                if (score >= 0 || kind == HVD_BARRIER || kind == HVD_JOIN)
                    continue;
                struct conform_scene *s =
                    conform_scene(&w, (hvd_kind_t)kind, (hvd_reduce_t)reduce, 1);
                struct error error = {0};
                for (int32_t r = 0; r < 2; r++) {
                    conform_part(s, r, 0, 4, 4, false);
                    s->coll[r].memory = ask.memory;
                    s->coll[r].wire = ask.wire;
                    assert_int_equal(ops->start(w.backend[r], w.group[r], &s->coll[r], &error),
                                     HVD_ERR_UNSUPPORTED);
                    assert_true(error.text[0] != '\0');
                }
                conform_free(s);
            }
    assert_true(accepted > 0);
    conform_allreduce(c, &w, HVD_SUM, counts, 1, true);
    for (int kind = 0; kind < HVD_KIND_COUNT; kind++)
        assert_non_null(w.backend[0]->ops->activity(w.group[0], (hvd_kind_t)kind));
    c->close(&w);
}

/* Between two collectives the numbers may begin anew: a set was joined, a plan was broken. */
static inline void backend_conform_reset(void **state)
{
    static const uint64_t counts[] = {500};
    const struct backend_conformance *c = *state;
    struct conform_world w;
    conform_open(c, &w, 3);
    for (uint64_t turn = 1; turn < 5; turn++) {
        conform_allreduce(c, &w, HVD_SUM, counts, 1, turn % 2 == 0);
        for (int32_t r = 0; r < w.size; r++)
            w.backend[r]->ops->reset(w.backend[r], w.group[r], 1ull << 48 | turn << 32);
    }
    conform_allreduce(c, &w, HVD_MAX, counts, 1, true);
    c->close(&w);
}

#define BACKEND_CONFORMANCE_TEST(test, it)                                                         \
    {                                                                                              \
#test, test, NULL, NULL, (void *)(uintptr_t)(it)                                           \
    }
#define BACKEND_CONFORMANCE_TESTS(it)                                                              \
    BACKEND_CONFORMANCE_TEST(backend_conform_allreduce, it),                                       \
        BACKEND_CONFORMANCE_TEST(backend_conform_large, it),                                       \
        BACKEND_CONFORMANCE_TEST(backend_conform_allgather, it),                                   \
        BACKEND_CONFORMANCE_TEST(backend_conform_broadcast, it),                                   \
        BACKEND_CONFORMANCE_TEST(backend_conform_reducescatter, it),                               \
        BACKEND_CONFORMANCE_TEST(backend_conform_alltoall, it),                                    \
        BACKEND_CONFORMANCE_TEST(backend_conform_scale, it),                                       \
        BACKEND_CONFORMANCE_TEST(backend_conform_score, it),                                       \
        BACKEND_CONFORMANCE_TEST(backend_conform_reset, it)

#endif
