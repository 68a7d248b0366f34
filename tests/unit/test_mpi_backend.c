/* SPDX-License-Identifier: Apache-2.0 */
/* test_mpi_backend.c - the MPI backend over a fake MPI, many ranks in one process, compared with a
 * plain reference.
 *
 * The fake library has only what the backend calls. A collective runs when the last rank has posted
 * it, and every rank must have posted the same one; a request is done some turns later.
 * tests/python/mpi tests the real libraries. Start reading at run(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/mpi/mpi_backend.h"
#include "backend_conformance.h"
#include "coll_values.h"

#define RANKS_MAX  5
#define POSTS_MAX  4096
#define OWN_FIRST  100
#define OWN_MAX    64
#define TURNS_MAX  100000
#define WINDOW     (4u << 20)
#define PARTS_MAX  3
#define ERROR_CODE 17

enum post_kind { POST_ALLREDUCE, POST_BCAST, POST_ALLGATHER, POST_SCATTER, POST_ALLTOALL };

struct post {
    enum post_kind kind;
    const void *in;
    void *out;
    int count, root;
    const int *counts, *at, *in_counts, *in_at;
    mpi_handle_t type, op;
};

struct rank {
    struct mpi_lib lib; /* first */
    int self;
    struct post posts[POSTS_MAX];
    int post_count;
    struct backend *backend;
    struct backend_group *group;
};

static struct {
    int size;
    int ran; /* collectives that have run */
    int late[RANKS_MAX];
    uint64_t random;
    struct rank ranks[RANKS_MAX];
    mpi_reduce_fn own[OWN_MAX];
    int own_count, own_live, comm_live;
    int fail_at, calls; /* the k-th call that may fail */
    int fallback_starts, fallback_resets, fallback_opens, fallback_closes, fallback_destroys;
} w;

static int in_place_mark;
static const struct os *world_os; /* NULL: os_host() */

/* ---- the pretended library ---- */

static struct rank *rank_of(const struct mpi_lib *lib)
{
    return (struct rank *)(uintptr_t)lib;
}

static int call_code(void)
{
    return ++w.calls == w.fail_at ? ERROR_CODE : 0;
}

static int posted(const struct mpi_lib *lib, const struct post *p, mpi_handle_t *ret)
{
    struct rank *r = rank_of(lib);
    int code = call_code();
    if (code != 0)
        return code;
    assert_true(r->post_count < POSTS_MAX);
    r->posts[r->post_count++] = *p;
    *ret = (mpi_handle_t)r->post_count; /* its number and 1 */
    return 0;
}

static int fake_iallreduce(const struct mpi_lib *lib, const void *in, void *out, int count,
                           mpi_handle_t type, mpi_handle_t op, mpi_handle_t comm, mpi_handle_t *ret)
{
    assert_int_equal(comm, 7);
    assert_true(count > 0);
    struct post p = {
        .kind = POST_ALLREDUCE, .in = in, .out = out, .count = count, .type = type, .op = op};
    return posted(lib, &p, ret);
}

static int fake_ibcast(const struct mpi_lib *lib, void *bytes, int count, mpi_handle_t type,
                       int root, mpi_handle_t comm, mpi_handle_t *ret)
{
    assert_int_equal(comm, 7);
    struct post p = {.kind = POST_BCAST, .out = bytes, .count = count, .type = type, .root = root};
    return posted(lib, &p, ret);
}

static int fake_iallgatherv(const struct mpi_lib *lib, const void *in, int in_count,
                            mpi_handle_t in_type, void *out, const int *counts, const int *at,
                            mpi_handle_t type, mpi_handle_t comm, mpi_handle_t *ret)
{
    (void)in_count, (void)in_type;
    assert_int_equal(comm, 7);
    assert_ptr_equal(in, &in_place_mark);
    struct post p = {.kind = POST_ALLGATHER, .out = out, .counts = counts, .at = at, .type = type};
    return posted(lib, &p, ret);
}

static int fake_ireduce_scatter(const struct mpi_lib *lib, const void *in, void *out,
                                const int *counts, mpi_handle_t type, mpi_handle_t op,
                                mpi_handle_t comm, mpi_handle_t *ret)
{
    assert_int_equal(comm, 7);
    struct post p = {
        .kind = POST_SCATTER, .in = in, .out = out, .counts = counts, .type = type, .op = op};
    return posted(lib, &p, ret);
}

static int fake_ialltoallv(const struct mpi_lib *lib, const void *in, const int *in_counts,
                           const int *in_at, mpi_handle_t in_type, void *out, const int *counts,
                           const int *at, mpi_handle_t type, mpi_handle_t comm, mpi_handle_t *ret)
{
    (void)in_type;
    assert_int_equal(comm, 7);
    struct post p = {.kind = POST_ALLTOALL,
                     .in = in,
                     .out = out,
                     .in_counts = in_counts,
                     .in_at = in_at,
                     .counts = counts,
                     .at = at,
                     .type = type};
    return posted(lib, &p, ret);
}

static const hvd_dtype_t dtypes[MPI_TYPE_COUNT] = {
    [MPI_TYPE_BYTE] = HVD_UINT8,      [MPI_TYPE_UINT8] = HVD_UINT8,
    [MPI_TYPE_INT8] = HVD_INT8,       [MPI_TYPE_UINT16] = HVD_UINT16,
    [MPI_TYPE_INT16] = HVD_INT16,     [MPI_TYPE_INT32] = HVD_INT32,
    [MPI_TYPE_INT64] = HVD_INT64,     [MPI_TYPE_FLOAT32] = HVD_FLOAT32,
    [MPI_TYPE_FLOAT64] = HVD_FLOAT64, [MPI_TYPE_BOOL] = HVD_BOOL};
static const hvd_reduce_t reduces[MPI_OPERATION_COUNT] = {[MPI_OPERATION_SUM] = HVD_SUM,
                                                          [MPI_OPERATION_MIN] = HVD_MIN,
                                                          [MPI_OPERATION_MAX] = HVD_MAX,
                                                          [MPI_OPERATION_PRODUCT] = HVD_PRODUCT};

static void apply(const struct post *p, const void *in, void *inout, int count)
{
    mpi_handle_t type = p->type;
    if (p->op >= OWN_FIRST) {
        w.own[p->op - OWN_FIRST]((void *)(uintptr_t)in, inout, &count, &type);
        return;
    }
    const void *sources[2] = {in, inout};
    struct reduce_job job = {.dtype = dtypes[p->type - 1],
                             .op = reduces[p->op - 1],
                             .prescale = 1,
                             .postscale = 1,
                             .sources = sources,
                             .source_count = 2,
                             .targets = &inout,
                             .target_count = 1,
                             .count = (size_t)count};
    reduce_run(&job);
}

static void run_reduction(struct post **p, int total)
{
    size_t bytes = (size_t)total * hvd_dtype_bytes(dtypes[p[0]->type - 1]);
    uint8_t *sum = malloc(bytes + 1);
    for (int i = 0; i < w.size; i++) {
        const void *in = p[i]->in == &in_place_mark ? p[i]->out : p[i]->in;
        assert_true(p[i]->type == p[0]->type && p[i]->op == p[0]->op);
        if (i == 0)
            memcpy(sum, in, bytes);
        else
            apply(p[0], in, sum, total);
    }
    const uint8_t *at = sum;
    for (int i = 0; i < w.size; i++) {
        if (p[i]->kind == POST_ALLREDUCE) {
            memcpy(p[i]->out, sum, bytes);
            continue;
        }
        size_t n = (size_t)p[0]->counts[i] * hvd_dtype_bytes(dtypes[p[0]->type - 1]);
        memcpy(p[i]->out, at, n);
        at += n;
    }
    free(sum);
}

static void run_one(struct post **p)
{
    int total = 0;
    for (int i = 0; i < w.size; i++)
        assert_int_equal(p[i]->kind, p[0]->kind);
    switch (p[0]->kind) {
    case POST_ALLREDUCE:
        for (int i = 0; i < w.size; i++)
            assert_int_equal(p[i]->count, p[0]->count);
        run_reduction(p, p[0]->count);
        return;
    case POST_SCATTER:
        for (int i = 0; i < w.size; i++) {
            assert_memory_equal(p[i]->counts, p[0]->counts, (size_t)w.size * sizeof(int));
            total += p[0]->counts[i];
        }
        run_reduction(p, total);
        return;
    case POST_BCAST:
        for (int i = 0; i < w.size; i++) {
            assert_true(p[i]->root == p[0]->root && p[i]->count == p[0]->count);
            if (i != p[0]->root)
                memcpy(p[i]->out, p[p[0]->root]->out, (size_t)p[0]->count);
        }
        return;
    case POST_ALLGATHER:
        for (int i = 0; i < w.size; i++)
            for (int k = 0; k < w.size; k++) {
                assert_int_equal(p[i]->counts[k], p[k]->counts[k]);
                if (i != k)
                    memcpy((uint8_t *)p[i]->out + p[i]->at[k], (uint8_t *)p[k]->out + p[k]->at[k],
                           (size_t)p[k]->counts[k]);
            }
        return;
    case POST_ALLTOALL:
        for (int i = 0; i < w.size; i++)
            for (int k = 0; k < w.size; k++) {
                assert_int_equal(p[i]->counts[k], p[k]->in_counts[i]);
                memcpy((uint8_t *)p[i]->out + p[i]->at[k],
                       (const uint8_t *)p[k]->in + p[k]->in_at[i], (size_t)p[i]->counts[k]);
            }
        return;
    }
}

static void run_ready(void)
{
    for (;;) {
        struct post *p[RANKS_MAX] = {0};
        for (int i = 0; i < w.size; i++) {
            if (w.ranks[i].post_count <= w.ran)
                return;
            p[i] = &w.ranks[i].posts[w.ran];
        }
        run_one(p);
        w.ran++;
    }
}

static int fake_test(const struct mpi_lib *lib, mpi_handle_t *request, mpi_handle_t type,
                     bool *ret_done, struct mpi_status *ret_status)
{
    (void)lib, (void)type, (void)ret_status;
    int code = call_code();
    if (code != 0)
        return code;
    run_ready();
    w.random = w.random * 6364136223846793005ull + 1442695040888963407ull;
    *ret_done = (int)*request <= w.ran && (w.random >> 40) % 3 != 0;
    if (*ret_done)
        *request = lib->request_null;
    return 0;
}

static int fake_comm_create_group(const struct mpi_lib *lib, mpi_handle_t comm, const int *ranks,
                                  int count, int tag, mpi_handle_t *ret)
{
    (void)lib, (void)tag;
    int code = call_code();
    assert_int_equal(comm, 3);
    for (int i = 0; i < count; i++)
        assert_int_equal(ranks[i], i);
    if (code == 0) {
        *ret = 7;
        w.comm_live++;
    }
    return code;
}

static int fake_comm_free(const struct mpi_lib *lib, mpi_handle_t *comm)
{
    *comm = lib->comm_null;
    w.comm_live--;
    return 0;
}

static int fake_errors_return(const struct mpi_lib *lib, mpi_handle_t comm)
{
    (void)lib, (void)comm;
    return call_code();
}

static int fake_op_create(const struct mpi_lib *lib, mpi_reduce_fn fn, bool is_commutative,
                          mpi_handle_t *ret)
{
    (void)lib;
    int code = call_code();
    assert_true(is_commutative);
    if (code != 0)
        return code;
    assert_true(w.own_count < OWN_MAX);
    /* The same function has the same handle on all pretended ranks. */
    int at = 0;
    while (at < w.own_count && w.own[at] != fn)
        at++;
    w.own[at] = fn;
    w.own_count = at == w.own_count ? at + 1 : w.own_count;
    w.own_live++;
    *ret = (mpi_handle_t)(OWN_FIRST + at);
    return 0;
}

static int fake_op_free(const struct mpi_lib *lib, mpi_handle_t *op)
{
    (void)lib;
    *op = 0;
    w.own_live--;
    return 0;
}

static int fake_error_string(const struct mpi_lib *lib, int code, char *ret_text)
{
    (void)lib;
    snprintf(ret_text, MPI_TEXT_MAX, "trouble %d", code);
    return 0;
}

static const struct mpi_abi fake_abi = {.iallreduce = fake_iallreduce,
                                        .ibcast = fake_ibcast,
                                        .iallgatherv = fake_iallgatherv,
                                        .ireduce_scatter = fake_ireduce_scatter,
                                        .ialltoallv = fake_ialltoallv,
                                        .test = fake_test,
                                        .comm_create_group = fake_comm_create_group,
                                        .comm_free = fake_comm_free,
                                        .comm_errors_return = fake_errors_return,
                                        .op_create = fake_op_create,
                                        .op_free = fake_op_free,
                                        .error_string = fake_error_string};

/* ---- another backend, which counts: it has what MPI declines ---- */

static hvd_status_t fallback_open(struct backend *b, const struct group *g,
                                  struct backend_group **ret, struct error *error)
{
    (void)b, (void)g, (void)error;
    w.fallback_opens++;
    *ret = (struct backend_group *)&w;
    return HVD_OK;
}
static void fallback_close(struct backend *b, struct backend_group *g)
{
    (void)b, (void)g;
    w.fallback_closes++;
}
static hvd_status_t fallback_start(struct backend *b, struct backend_group *g, const struct coll *c,
                                   struct error *error)
{
    (void)b, (void)g, (void)c, (void)error;
    w.fallback_starts++;
    return HVD_OK;
}
static hvd_status_t fallback_progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                                      struct error *error)
{
    (void)b, (void)g, (void)error;
    *ret_moved = true;
    return HVD_OK;
}
static void fallback_reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    (void)b, (void)g, (void)base;
    w.fallback_resets++;
}
static void fallback_destroy(struct backend *b)
{
    (void)b;
    w.fallback_destroys++;
}
static const struct backend_ops fallback_ops = {.version = BACKEND_VERSION,
                                                .name = "counting",
                                                .group_open = fallback_open,
                                                .group_close = fallback_close,
                                                .start = fallback_start,
                                                .progress = fallback_progress,
                                                .reset = fallback_reset,
                                                .destroy = fallback_destroy};
static struct backend fallback = {.ops = &fallback_ops};

static bool fallback_probe(const struct backend_place *place, char *ret_why)
{
    (void)place, (void)ret_why;
    return true;
}
static hvd_status_t fallback_create(const struct backend_place *place, struct backend **ret,
                                    struct error *error)
{
    (void)place, (void)error;
    *ret = &fallback;
    return HVD_OK;
}
static const struct backend_row fallback_row = {
    .name = "counting", .probe = fallback_probe, .create = fallback_create};

/* ---- a world ---- */

static void lib_fill(struct mpi_lib *lib)
{
    *lib = (struct mpi_lib){.os = os_host(), .abi = &fake_abi, .in_place = &in_place_mark};
    snprintf(lib->version, sizeof lib->version, "Pretended MPI 1.0");
    for (int i = 0; i < MPI_TYPE_COUNT; i++)
        lib->types[i] = (mpi_handle_t)(i + 1);
    for (int i = 0; i < MPI_OPERATION_COUNT; i++)
        lib->ops[i] = (mpi_handle_t)(i + 1);
}

static bool is_alone; /* no other backend beside MPI's */

static hvd_status_t rank_open(int self, struct error *error)
{
    static const struct backend_row *const both[] = {&fallback_row, &mpi_backend_row, NULL};
    static const struct backend_row *const alone[] = {&mpi_backend_row, NULL};
    static const struct config config = {.cpu_operations = "mpi"};
    static const int32_t ranks[RANKS_MAX] = {0, 1, 2, 3, 4};
    struct rank *r = &w.ranks[self];
    struct group group = {.set_id = 0, .size = w.size, .self = self, .ranks = ranks};
    lib_fill(&r->lib);
    r->self = self;
    struct mpi_job job = {.lib = &r->lib, .comm = 3};
    struct backend_place place = {.os = world_os != NULL ? world_os : os_host(),
                                  .config = &config,
                                  .rank = self,
                                  .size = w.size,
                                  .mpi = &job};
    assert_int_equal(backends_create(is_alone ? alone : both, &place, &r->backend, error), HVD_OK);
    assert_true(r->backend->is_final); /* MPI's collectives can't be withdrawn */
    return r->backend->ops->group_open(r->backend, &group, &r->group, error);
}

static void world_open(int size)
{
    struct error error = {0};
    memset(&w, 0, sizeof w);
    w.size = size;
    w.random = 12345;
    for (int i = 0; i < size; i++)
        assert_int_equal(rank_open(i, &error), HVD_OK);
}

static void world_close(void)
{
    for (int i = 0; i < w.size; i++) {
        struct rank *r = &w.ranks[i];
        r->backend->ops->group_close(r->backend, r->group);
        r->backend->ops->destroy(r->backend);
    }
    assert_int_equal(w.own_live, 0);
    assert_int_equal(w.fallback_closes, w.fallback_opens);
    assert_int_equal(w.fallback_destroys, is_alone ? 0 : w.size);
}

/* ---- the conformance suite ---- */

static void conform_open_mpi(struct conform_world *world, int32_t size)
{
    static const int32_t ranks[RANKS_MAX] = {0, 1, 2, 3, 4};
    is_alone = true;
    world_open(size);
    for (int32_t i = 0; i < size; i++) {
        world->backend[i] = w.ranks[i].backend;
        world->group[i] = w.ranks[i].group;
        world->told[i] = (struct group){.size = size, .self = i, .ranks = ranks};
        assert_string_equal(world->backend[i]->ops->name, "mpi");
    }
}

static void conform_close_mpi(struct conform_world *world)
{
    (void)world;
    world_close();
    is_alone = false;
}

static const struct backend_conformance mpi_world = {conform_open_mpi, conform_close_mpi, NULL};

/* ---- one collective on all ranks ---- */

struct scene {
    struct coll coll[RANKS_MAX];
    struct coll_part parts[RANKS_MAX][PARTS_MAX];
    uint64_t counts[RANKS_MAX][PARTS_MAX * RANKS_MAX], recv_counts[RANKS_MAX][RANKS_MAX];
    void *in[RANKS_MAX][PARTS_MAX], *out[RANKS_MAX][PARTS_MAX];
};

static hvd_status_t scene_run(struct scene *s)
{
    hvd_status_t status[RANKS_MAX], first = HVD_OK;
    struct error error = {0};
    int left = w.size;
    for (int i = 0; i < w.size; i++) {
        struct rank *r = &w.ranks[i];
        status[i] = r->backend->ops->start(r->backend, r->group, &s->coll[i], &error);
        if (status[i] == HVD_OK)
            status[i] = HVD_IN_PROGRESS;
        else
            left--;
    }
    for (int turn = 0; left > 0 && turn < TURNS_MAX; turn++) {
        int i = turn % w.size;
        struct rank *r = &w.ranks[i];
        bool has_moved;
        if (status[i] != HVD_IN_PROGRESS)
            continue;
        status[i] = r->backend->ops->progress(r->backend, r->group, &has_moved, &error);
        if (status[i] != HVD_IN_PROGRESS)
            left--;
        if (status[i] < 0) /* the others would wait for ever: the engine resets them */
            break;
    }
    for (int i = 0; i < w.size; i++)
        first = first == HVD_OK || status[i] < 0 ? status[i] : first;
    if (first < 0)
        assert_non_null(strstr(error.text, "trouble 17 (Pretended MPI 1.0"));
    return first;
}

static void scene_free(struct scene *s)
{
    for (int i = 0; i < RANKS_MAX; i++)
        for (int p = 0; p < PARTS_MAX; p++) {
            if (s->out[i][p] != s->in[i][p])
                free(s->out[i][p]);
            free(s->in[i][p]);
        }
    free(s);
}

static void part_make(struct scene *s, int rank, int part, uint64_t in, uint64_t out,
                      size_t element_bytes, bool is_in_place)
{
    s->in[rank][part] = calloc(in + 1, element_bytes);
    s->out[rank][part] = is_in_place ? s->in[rank][part] : calloc(out + 1, element_bytes);
    s->parts[rank][part] =
        (struct coll_part){.in = s->in[rank][part], .out = s->out[rank][part], .count = in};
}

static struct scene *scene_make(hvd_kind_t kind, hvd_dtype_t dtype, hvd_reduce_t reduce, int parts)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < w.size; i++)
        s->coll[i] = (struct coll){.kind = kind,
                                   .dtype = dtype,
                                   .reduce = reduce,
                                   .prescale = 1.0,
                                   .postscale = 1.0,
                                   .parts = s->parts[i],
                                   .part_count = parts,
                                   .counts = s->counts[i],
                                   .recv_counts = s->recv_counts[i]};
    return s;
}

/* ---- values: small whole numbers, so that sums are exact in every type ---- */

static double value_of(int rank, int part, uint64_t i)
{
    return (double)((uint64_t)(rank + part) + i % 5) / 1.0;
}

static double joined(hvd_dtype_t dtype, hvd_reduce_t op, int part, uint64_t i)
{
    double all = 0;
    for (int r = 0; r < w.size; r++) {
        double one = value_of(r, part, i);
        one = dtype == HVD_BOOL ? (one != 0) : one;
        if (r == 0)
            all = one;
        else if (op == HVD_SUM)
            all += one;
        else if (op == HVD_MIN)
            all = one < all ? one : all;
        else if (op == HVD_MAX)
            all = one > all ? one : all;
        else
            all *= one;
    }
    if (dtype == HVD_BOOL)
        return all != 0;
    /* A product may wrap around in the small types. */
    uint8_t space[8];
    bool is_small = dtype == HVD_UINT8 || dtype == HVD_INT8;
    if (is_small) {
        ((int32_t *)(void *)space)[0] = (int32_t)all;
        return dtype == HVD_UINT8 ? (uint8_t)(int32_t)all : (int8_t)(int32_t)all;
    }
    return all;
}

static void check_allreduce(hvd_dtype_t dtype, hvd_reduce_t op, const uint64_t *counts, int parts,
                            bool is_in_place)
{
    struct scene *s = scene_make(HVD_ALLREDUCE, dtype, op, parts);
    for (int r = 0; r < w.size; r++)
        for (int p = 0; p < parts; p++) {
            part_make(s, r, p, counts[p], counts[p], hvd_dtype_bytes(dtype), is_in_place);
            for (uint64_t i = 0; i < counts[p]; i++)
                value_set(dtype, s->in[r][p], i, value_of(r, p, i));
        }
    assert_int_equal(scene_run(s), HVD_OK);
    for (int r = 0; r < w.size; r++)
        for (int p = 0; p < parts; p++)
            for (uint64_t i = 0; i < counts[p]; i++)
                assert_true(value_get(dtype, s->out[r][p], i) == joined(dtype, op, p, i));
    scene_free(s);
}

/* ---- tests ---- */

static void test_allreduce(void **state)
{
    static const hvd_reduce_t ops[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const uint64_t small[] = {7, 0, 1};
    (void)state;
    for (int size = 2; size <= RANKS_MAX; size++) {
        world_open(size);
        for (int d = 0; d < HVD_DTYPE_COUNT; d++)
            for (size_t o = 0; o < 4; o++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    bool is_half = d == HVD_BFLOAT16 || d == HVD_FLOAT16;
                    if (is_half && ops[o] == HVD_PRODUCT && size > 3)
                        continue; /* not exact */
                    check_allreduce((hvd_dtype_t)d, ops[o], small, PARTS_MAX, in_place != 0);
                }
        assert_int_equal(w.fallback_starts, 0);
        world_close();
        assert_int_equal(w.comm_live, 0);
    }
}

static void test_windows(void **state)
{
    static const uint64_t bytes[] = {3 * WINDOW + 5, 1, WINDOW - 1};
    static const uint64_t floats[] = {WINDOW / 4 - 1, WINDOW / 2 + 3, 2};
    static const uint64_t exact[] = {WINDOW / 8 * 2};
    static const uint64_t none[] = {0, 0};
    (void)state;
    world_open(2);
    check_allreduce(HVD_UINT8, HVD_MAX, bytes, 3, false);
    assert_int_equal(w.ran, 5);
    check_allreduce(HVD_FLOAT32, HVD_SUM, floats, 3, true);
    check_allreduce(HVD_FLOAT64, HVD_SUM, exact, 1, true);
    int before = w.ran;
    check_allreduce(HVD_FLOAT32, HVD_SUM, none, 2, true);
    assert_int_equal(w.ran, before);
    world_close();
}

static void test_scales(void **state)
{
    struct scene *s;
    (void)state;
    world_open(3);
    s = scene_make(HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, 1);
    for (int r = 0; r < w.size; r++) {
        part_make(s, r, 0, 10, 10, 4, false);
        for (uint64_t i = 0; i < 10; i++)
            value_set(HVD_FLOAT32, s->in[r][0], i, value_of(r, 0, i));
        s->coll[r].prescale = 0.5;
        s->coll[r].postscale = 4.0;
    }
    assert_int_equal(scene_run(s), HVD_OK);
    for (uint64_t i = 0; i < 10; i++) {
        assert_true(value_get(HVD_FLOAT32, s->out[1][0], i) ==
                    2 * joined(HVD_FLOAT32, HVD_SUM, 0, i));
        assert_true(value_get(HVD_FLOAT32, s->in[1][0], i) == value_of(1, 0, i)); /* inputs stay */
    }
    scene_free(s);
    /* No scaling exists for bool: nothing is posted. */
    s = scene_make(HVD_ALLREDUCE, HVD_BOOL, HVD_SUM, 1);
    struct error error = {0};
    part_make(s, 0, 0, 1, 1, 1, true);
    s->coll[0].prescale = 0.5;
    struct rank *r = &w.ranks[0];
    assert_int_equal(r->backend->ops->start(r->backend, r->group, &s->coll[0], &error),
                     HVD_ERR_UNSUPPORTED);
    scene_free(s);
    world_close();
}

/* Sums of float16 that overflow, averages that do not. */
static void test_half_averages(void **state)
{
    static const double values[] = {60000.0, 65504.0, -65504.0, 5.9604644775390625e-08, 0.125};
    (void)state;
    for (int size = 2; size <= RANKS_MAX; size++)
        for (int in_place = 0; in_place < 2; in_place++) {
            world_open(size);
            struct scene *s = scene_make(HVD_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 1);
            for (int r = 0; r < size; r++) {
                part_make(s, r, 0, 5, 5, 2, in_place != 0);
                for (uint64_t i = 0; i < 5; i++)
                    value_set(HVD_FLOAT16, s->in[r][0], i, values[i]);
                s->coll[r].postscale = 1.0 / size;
            }
            assert_int_equal(scene_run(s), HVD_OK);
            for (int r = 0; r < size; r++)
                for (uint64_t i = 0; i < 5; i++)
                    assert_true(value_get(HVD_FLOAT16, s->out[r][0], i) == values[i]);
            scene_free(s);
            world_close();
        }
}

static void test_nan(void **state)
{
    static const hvd_dtype_t kinds[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};
    (void)state;
    world_open(2);
    for (size_t k = 0; k < 4; k++)
        for (int op = HVD_MIN; op <= HVD_MAX; op++)
            for (int where = 0; where < 2; where++) {
                struct scene *s = scene_make(HVD_ALLREDUCE, kinds[k], (hvd_reduce_t)op, 1);
                for (int r = 0; r < 2; r++) {
                    part_make(s, r, 0, 1, 1, hvd_dtype_bytes(kinds[k]), true);
                    value_set(kinds[k], s->in[r][0], 0, r == where ? (double)NAN : 1.0);
                }
                assert_int_equal(scene_run(s), HVD_OK);
                assert_true(isnan(value_get(kinds[k], s->out[0][0], 0)));
                assert_true(isnan(value_get(kinds[k], s->out[1][0], 0)));
                scene_free(s);
            }
    world_close();
}

static void test_broadcast(void **state)
{
    (void)state;
    world_open(3);
    for (int root = 0; root < 3; root++) {
        uint64_t count = root == 2 ? WINDOW / 2 + 7 : (uint64_t)(root * 5);
        struct scene *s = scene_make(HVD_BROADCAST, HVD_INT32, HVD_SUM, 1);
        for (int r = 0; r < w.size; r++) {
            part_make(s, r, 0, count, count, 4, r != 1);
            s->coll[r].root = root;
            for (uint64_t i = 0; i < count; i++)
                value_set(HVD_INT32, s->in[r][0], i, value_of(r, 0, i));
        }
        assert_int_equal(scene_run(s), HVD_OK);
        for (int r = 0; r < w.size; r++)
            for (uint64_t i = 0; i < count; i++)
                assert_true(value_get(HVD_INT32, s->out[r][0], i) == value_of(root, 0, i));
        scene_free(s);
    }
    world_close();
}

/* Tells rank r how many elements of part p each rank has; returns how many there are in all. */
static uint64_t counts_tell(struct scene *s, int r, int p, const uint64_t *counts)
{
    uint64_t all = 0;
    for (int k = 0; k < w.size; k++) {
        s->counts[r][p * w.size + k] = counts[k];
        all += counts[k];
    }
    return all;
}

/* Rank r gives counts[p][r] elements to part p: value 100 r + 10 p + a place. */
static void check_allgather(const uint64_t counts[][RANKS_MAX], int parts)
{
    struct scene *s = scene_make(HVD_ALLGATHER, HVD_INT16, HVD_SUM, parts);
    for (int r = 0; r < w.size; r++)
        for (int p = 0; p < parts; p++) {
            uint64_t all = counts_tell(s, r, p, counts[p]);
            part_make(s, r, p, counts[p][r], all, 2, false);
            for (uint64_t i = 0; i < counts[p][r]; i++)
                value_set(HVD_INT16, s->in[r][p], i, 100 * r + 10 * p + (double)(i % 7));
        }
    assert_int_equal(scene_run(s), HVD_OK);
    for (int r = 0; r < w.size; r++)
        for (int p = 0; p < parts; p++) {
            uint64_t at = 0;
            for (int k = 0; k < w.size; k++)
                for (uint64_t i = 0; i < counts[p][k]; i++)
                    assert_true(value_get(HVD_INT16, s->out[r][p], at++) ==
                                100 * k + 10 * p + (double)(i % 7));
        }
    scene_free(s);
}

static void test_allgather(void **state)
{
    static const uint64_t small[2][RANKS_MAX] = {{3, 0, 5}, {1, 2, 0}};
    static const uint64_t large[2][RANKS_MAX] = {{1, WINDOW, 0}, {WINDOW / 2 + 1, 3, 9}};
    static const uint64_t none[1][RANKS_MAX] = {{0, 0, 0}};
    (void)state;
    world_open(3);
    check_allgather(small, 2);
    check_allgather(large, 2);
    check_allgather(none, 1);
    world_close();
}

static void check_reducescatter(const uint64_t counts[][RANKS_MAX], int parts)
{
    struct scene *s = scene_make(HVD_REDUCESCATTER, HVD_FLOAT32, HVD_SUM, parts);
    for (int r = 0; r < w.size; r++)
        for (int p = 0; p < parts; p++) {
            uint64_t all = counts_tell(s, r, p, counts[p]);
            part_make(s, r, p, all, counts[p][r], 4, false);
            for (uint64_t i = 0; i < all; i++)
                value_set(HVD_FLOAT32, s->in[r][p], i, value_of(r, p, i));
            s->coll[r].postscale = 0.5;
        }
    assert_int_equal(scene_run(s), HVD_OK);
    for (int p = 0; p < parts; p++) {
        uint64_t at = 0;
        for (int r = 0; r < w.size; r++)
            for (uint64_t i = 0; i < counts[p][r]; i++, at++)
                assert_true(value_get(HVD_FLOAT32, s->out[r][p], i) ==
                            joined(HVD_FLOAT32, HVD_SUM, p, at) / 2);
    }
    scene_free(s);
}

static void test_reducescatter(void **state)
{
    static const uint64_t small[2][RANKS_MAX] = {{3, 0, 5}, {1, 2, 0}};
    static const uint64_t large[1][RANKS_MAX] = {{WINDOW / 4, WINDOW / 4 + 3, 1}};
    (void)state;
    world_open(3);
    check_reducescatter(small, 2);
    check_reducescatter(large, 1);
    world_close();
}

/* Rank r sends base + r + 2 k elements to rank k. */
static void check_alltoall(uint64_t base, bool is_empty)
{
    struct scene *s = scene_make(HVD_ALLTOALL, HVD_INT32, HVD_SUM, 1);
    for (int r = 0; r < w.size; r++) {
        uint64_t out = 0, in = 0, at = 0;
        for (int k = 0; k < w.size; k++) {
            s->counts[r][k] = is_empty ? 0 : base + (uint64_t)(r + 2 * k);
            s->recv_counts[r][k] = is_empty ? 0 : base + (uint64_t)(k + 2 * r);
            in += s->counts[r][k];
            out += s->recv_counts[r][k];
        }
        part_make(s, r, 0, in, out, 4, false);
        for (int k = 0; k < w.size; k++)
            for (uint64_t i = 0; i < s->counts[r][k]; i++)
                value_set(HVD_INT32, s->in[r][0], at++, 1000 * r + 100 * k + (double)(i % 90));
    }
    assert_int_equal(scene_run(s), HVD_OK);
    for (int r = 0; r < w.size; r++) {
        uint64_t at = 0;
        for (int k = 0; k < w.size; k++)
            for (uint64_t i = 0; i < s->recv_counts[r][k]; i++)
                assert_true(value_get(HVD_INT32, s->out[r][0], at++) ==
                            1000 * k + 100 * r + (double)(i % 90));
    }
    scene_free(s);
}

static void test_alltoall(void **state)
{
    (void)state;
    world_open(3);
    check_alltoall(2, false);
    check_alltoall(WINDOW / 12, false); /* some ranks need one window, others two */
    check_alltoall(0, true);
    world_close();
}

static void test_fallback(void **state)
{
    static const struct {
        int size;
        bool is_mpi;
    } cases[] = {{1, false}, {2, true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_open(cases[i].size);
        assert_int_equal(w.comm_live, cases[i].is_mpi ? w.size : 0);
        struct scene *s = scene_make(HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, 1);
        for (int r = 0; r < w.size; r++)
            part_make(s, r, 0, 4, 4, 4, true);
        assert_int_equal(scene_run(s), HVD_OK);
        assert_int_equal(w.fallback_starts, cases[i].is_mpi ? 0 : w.size);
        w.fallback_starts = 0;
        for (int r = 0; r < w.size; r++)
            s->coll[r].reduce = HVD_ADASUM;
        assert_int_equal(scene_run(s), HVD_OK);
        assert_int_equal(w.fallback_starts, w.size);
        scene_free(s);
        world_close();
    }
}

/* ---- memory that outlives its group ---- */

#define KEPT_MAX 256
static void *kept[KEPT_MAX];
static int kept_count;

static void *keeping_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    assert_true(kept_count < KEPT_MAX);
    return kept[kept_count++] = calloc(1, bytes);
}

static void keeping_free(void *ctx, void *ptr)
{
    (void)ctx;
    for (int i = 0; i < kept_count; i++)
        if (kept[i] == ptr)
            kept[i] = NULL;
    free(ptr);
}

static void keeping_begin(struct os *os)
{
    os->alloc = keeping_alloc;
    os->free = keeping_free;
    kept_count = 0;
}

/* How many were left; they are freed. */
static int keeping_end(void)
{
    int left = 0;
    for (int i = 0; i < kept_count; i++) {
        left += kept[i] != NULL;
        free(kept[i]);
    }
    kept_count = 0;
    return left;
}

/* A collective that is given up while MPI works on it: the tensors are free, our memory stays. */
static void test_given_up(void **state)
{
    struct os os = *os_host();
    struct error error = {0};
    bool has_moved;
    (void)state;
    keeping_begin(&os);
    world_open(2);
    struct rank *r = &w.ranks[0];
    struct mpi_coll *c = NULL;
    struct mpi_ops ops = {.lib = &r->lib};
    assert_int_equal(mpi_coll_create(&os, &ops, 7, 2, 0, &c, &error), HVD_OK);
    struct scene *s = scene_make(HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, 1);
    part_make(s, 0, 0, 100, 100, 4, true);
    assert_int_equal(mpi_coll_start(c, &s->coll[0], &error), HVD_OK);
    assert_int_equal(mpi_coll_progress(c, &has_moved, &error), HVD_IN_PROGRESS);
    const uint8_t *used = r->posts[0].out;
    assert_true(used < (uint8_t *)s->in[0][0] || used >= (uint8_t *)s->in[0][0] + 400);
    mpi_coll_give_up(c);
    assert_int_equal(mpi_coll_start(c, &s->coll[0], &error), HVD_ERR_LINK);
    assert_non_null(strstr(error.text, "given up"));
    mpi_coll_destroy(c);
    assert_true(keeping_end() > 0);
    scene_free(s);
    world_close();
    /* Nothing under way: giving up costs nothing. */
    world_open(2);
    for (int i = 0; i < 2; i++)
        w.ranks[i].backend->ops->reset(w.ranks[i].backend, w.ranks[i].group, 5);
    assert_int_equal(w.fallback_resets, 2);
    static const uint64_t counts[] = {3};
    check_allreduce(HVD_FLOAT32, HVD_SUM, counts, 1, true);
    world_close();
}

/* Each call of MPI fails once. */
static void test_errors(void **state)
{
    static const hvd_kind_t kinds[] = {HVD_ALLREDUCE, HVD_ALLTOALL, HVD_ALLGATHER, HVD_BROADCAST,
                                       HVD_REDUCESCATTER};
    struct os os = *os_host();
    (void)state;
    world_os = &os;
    for (size_t k = 0; k < 5; k++)
        for (int fail_at = 1; fail_at < 6; fail_at++) {
            keeping_begin(&os);
            world_open(2);
            struct scene *s = scene_make(kinds[k], HVD_BFLOAT16, HVD_SUM, 1);
            for (int r = 0; r < 2; r++) {
                for (int i = 0; i < 2; i++)
                    s->counts[r][i] = s->recv_counts[r][i] = 2;
                part_make(s, r, 0, kinds[k] == HVD_ALLGATHER ? 2 : 4, 4, 2, false);
            }
            w.calls = 0;
            w.fail_at = fail_at;
            hvd_status_t status = scene_run(s);
            assert_true(status == HVD_ERR_LINK || (status == HVD_OK && w.calls < fail_at));
            scene_free(s);
            world_close();
            assert_true((keeping_end() > 0) == (w.comm_live > 0)); /* what MPI may still use */
        }
    world_os = NULL;
    /* Making a group. */
    for (int fail_at = 1; fail_at <= 2; fail_at++) {
        struct error error = {0};
        memset(&w, 0, sizeof w);
        w.size = 2;
        w.fail_at = fail_at;
        assert_int_equal(rank_open(0, &error), HVD_ERR_LINK);
        assert_int_equal(w.fallback_closes, 1);
        assert_int_equal(w.comm_live, 0);
        w.ranks[0].backend->ops->destroy(w.ranks[0].backend);
    }
}

static void test_names(void **state)
{
    static const struct {
        hvd_kind_t kind;
        const char *name;
    } cases[] = {{HVD_ALLREDUCE, "MPI_ALLREDUCE"}, {HVD_BROADCAST, "MPI_BCAST"}};
    (void)state;
    world_open(2);
    for (size_t i = 0; i < 2; i++) {
        const struct backend_ops *ops = w.ranks[0].backend->ops;
        assert_string_equal(ops->activity(w.ranks[0].group, cases[i].kind), cases[i].name);
    }
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce), cmocka_unit_test(test_windows),
        cmocka_unit_test(test_scales),    cmocka_unit_test(test_half_averages),
        cmocka_unit_test(test_nan),       cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_allgather), cmocka_unit_test(test_reducescatter),
        cmocka_unit_test(test_alltoall),  cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_given_up),  cmocka_unit_test(test_errors),
        cmocka_unit_test(test_names),     BACKEND_CONFORMANCE_TESTS(&mpi_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
