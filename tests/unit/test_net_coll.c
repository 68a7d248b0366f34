/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_coll.c - collectives of many ranks in one process: net_coll over a transport of queues
 * that delivers in a seeded random order, compared with a plain reference.
 *
 * The queues complete a transfer in one of three orders, at random: both ends at once, the receiver
 * first (the sender's memory stays in use), or the sender first (its bytes are buffered). The
 * two-level tests put real shared memory between the ranks of a simulated machine. Start reading at
 * run(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../sim/sim_adasum.h"
#include "backend/native/native.h"
#include "backend/native/net.h"
#include "base/fault.h"
#include "coll_values.h"
#include "transport/shm/shm.h"
#include "transport_ends.h"

#define RANKS_MAX 16
#define QUEUES    32 /* channels of a stream number */
#define TURNS_MAX 4000000

/* ---- a transport of queues ---- */

struct parcel {
    struct parcel *next;
    struct transport_req *req; /* NULL: complete already */
    uint64_t stream;
    size_t bytes;
    const uint8_t *send;
    uint8_t *recv, *copy;
};

struct queue {
    struct parcel *sends, *recvs; /* oldest first */
    bool is_listed;
};

struct world;
struct fake {
    struct transport base;
    struct world *world;
    int32_t rank;
};

struct world {
    int32_t size;
    uint64_t random;
    struct fake fakes[RANKS_MAX];
    struct queue queues[RANKS_MAX][RANKS_MAX][QUEUES];
    struct queue *listed[RANKS_MAX * RANKS_MAX * QUEUES];
    size_t listed_count;
    struct transport_req *late[4096]; /* sends whose data has arrived but that go on */
    size_t late_count;
    uint64_t bytes_sent[RANKS_MAX];
    int32_t broken_rank; /* transfers with it fail; -1: none */
    struct transport *routes[RANKS_MAX][RANKS_MAX];
    struct net_coll *colls[RANKS_MAX];
    struct shm *shm[RANKS_MAX];
    int poll_fds[RANKS_MAX];
};

static uint64_t next_random(struct world *w)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return w->random >> 33;
}

static hvd_status_t post(struct transport *t, int32_t peer, uint64_t stream, const void *send,
                         void *recv, size_t n, struct transport_req *req)
{
    struct fake *f = (struct fake *)(void *)t;
    struct world *w = f->world;
    int32_t from = send != NULL ? f->rank : peer, to = send != NULL ? peer : f->rank;
    assert_true(peer >= 0 && peer < w->size && peer != f->rank);
    if (w->broken_rank == peer || w->broken_rank == f->rank)
        return HVD_ERR_PEER_DEAD;
    struct queue *q = &w->queues[from][to][stream % QUEUES];
    struct parcel *p = calloc(1, sizeof *p);
    assert_non_null(p);
    *p = (struct parcel){.req = req, .stream = stream, .bytes = n, .send = send, .recv = recv};
    req->status = HVD_IN_PROGRESS;
    struct parcel **end = send != NULL ? &q->sends : &q->recvs;
    while (*end != NULL)
        end = &(*end)->next;
    *end = p;
    if (send != NULL)
        w->bytes_sent[f->rank] += n;
    if (send != NULL && next_random(w) % 3 == 0) {
        p->copy = malloc(n + 1);
        assert_non_null(p->copy);
        memcpy(p->copy, send, n);
        p->req = NULL;
        req->status = HVD_OK;
    }
    if (!q->is_listed)
        w->listed[w->listed_count++] = q;
    q->is_listed = true;
    return HVD_OK;
}

static hvd_status_t fake_send(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                              size_t n, struct transport_req *req)
{
    return post(t, peer, stream, bytes, NULL, n, req);
}

static hvd_status_t fake_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                              size_t n, struct transport_req *req)
{
    return post(t, peer, stream, NULL, bytes, n, req);
}

static void list_drop(struct parcel **list, const struct transport_req *req)
{
    while (*list != NULL) {
        struct parcel *p = *list;
        if (p->req != req) {
            list = &p->next;
            continue;
        }
        *list = p->next;
        free(p->copy);
        free(p);
    }
}

/* Nothing overtakes a send that has not left: what was queued after it has not left either. */
static void sends_drop(struct parcel **list, const struct transport_req *req)
{
    bool is_found = false;
    while (*list != NULL) {
        struct parcel *p = *list;
        is_found = is_found || p->req == req;
        if (p->req != req && !(is_found && p->req == NULL)) {
            list = &p->next;
            continue;
        }
        *list = p->next;
        free(p->copy);
        free(p);
    }
}

static void fake_cancel(struct transport *t, struct transport_req *req)
{
    struct world *w = ((struct fake *)(void *)t)->world;
    for (size_t i = 0; i < w->listed_count; i++) {
        sends_drop(&w->listed[i]->sends, req);
        list_drop(&w->listed[i]->recvs, req);
    }
    for (size_t i = 0; i < w->late_count; i++)
        if (w->late[i] == req)
            w->late[i--] = w->late[--w->late_count];
    req->status = HVD_ERR_ABORTED;
}

static const struct transport_ops fake_ops = {.version = TRANSPORT_VERSION,
                                              .name = "queues",
                                              .bulk_send = fake_send,
                                              .bulk_recv = fake_recv,
                                              .bulk_cancel = fake_cancel};

/* The first send and the first receive of one stream. */
static bool find_pair(struct queue *q, struct parcel ***ret_send, struct parcel ***ret_recv)
{
    for (struct parcel **s = &q->sends; *s != NULL; s = &(*s)->next)
        for (struct parcel **r = &q->recvs; *r != NULL; r = &(*r)->next)
            if ((*s)->stream == (*r)->stream) {
                *ret_send = s;
                *ret_recv = r;
                return true;
            }
    return false;
}

static void deliver(struct world *w, struct queue *q)
{
    struct parcel **at_send, **at_recv;
    if (!find_pair(q, &at_send, &at_recv))
        return;
    struct parcel *s = *at_send, *r = *at_recv;
    assert_int_equal(s->bytes, r->bytes);
    memcpy(r->recv, s->copy != NULL ? s->copy : s->send, r->bytes);
    r->req->status = HVD_OK;
    if (s->req != NULL && next_random(w) % 2 == 0 && w->late_count < 4096)
        w->late[w->late_count++] = s->req;
    else if (s->req != NULL)
        s->req->status = HVD_OK;
    *at_send = s->next;
    *at_recv = r->next;
    free(s->copy);
    free(s);
    free(r);
}

static void transport_turn(struct world *w)
{
    for (int i = 0; i < 8 && w->listed_count > 0; i++) {
        size_t at = next_random(w) % w->listed_count;
        struct queue *q = w->listed[at];
        deliver(w, q);
        if (q->sends == NULL && q->recvs == NULL) {
            q->is_listed = false;
            w->listed[at] = w->listed[--w->listed_count];
        }
    }
    if (w->late_count > 0) {
        size_t at = next_random(w) % w->late_count;
        w->late[at]->status = HVD_OK;
        w->late[at] = w->late[--w->late_count];
    }
    for (int32_t i = 0; i < w->size; i++)
        if (w->shm[i] != NULL)
            shm_transport(w->shm[i])->ops->progress(shm_transport(w->shm[i]), 0);
}

/* ---- a world of ranks ---- */

struct world_options {
    const char *algorithm;
    const int32_t *host;      /* NULL: flat */
    const int32_t *pretended; /* what the group is told instead of `host` */
    int32_t host_count;
    int32_t set_id;
    bool is_flat, has_leaders; /* the settings of the hierarchy */
};

struct joiner {
    struct shm *shm;
    struct endpoint *all;
    int32_t count;
    int poll_fd;
    hvd_status_t status;
};

static void *join_host(void *arg)
{
    static const uint8_t key[32] = {9};
    static const struct transport_events events = {.message = ends_ignore_message,
                                                   .peer_down = ends_ignore_down};
    struct joiner *j = arg;
    struct error error = {0};
    j->status = shm_connect(j->shm, j->all, j->count, NULL, key, 1, j->poll_fd, &events, &error);
    return NULL;
}

/* Real shared memory for the ranks that `host` puts together. */
static void world_share(struct world *w, const struct config *config, const int32_t *host)
{
    static struct endpoint all[RANKS_MAX];
    struct joiner joiners[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    const struct os *os = os_host();
    memset(all, 0, sizeof all);
    for (int32_t i = 0; i < w->size; i++) {
        assert_int_equal(shm_create(os, config, i, &all[i], &w->shm[i], NULL), HVD_OK);
        snprintf(all[i].host_id, sizeof all[i].host_id, "host-%d", host[i]);
        w->poll_fds[i] = os->poll_create(os->ctx);
    }
    for (int32_t i = 0; i < w->size; i++) {
        joiners[i] = (struct joiner){w->shm[i], all, w->size, w->poll_fds[i], HVD_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, join_host, &joiners[i]), 0);
    }
    for (int32_t i = 0; i < w->size; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(joiners[i].status, HVD_OK);
    }
    for (int32_t i = 0; i < w->size; i++)
        for (int32_t j = 0; j < w->size; j++)
            if (i != j && host[i] == host[j])
                w->routes[i][j] = shm_transport(w->shm[i]);
}

static struct world *world_open(int32_t size, uint64_t seed, const struct world_options *options)
{
    static const int32_t ranks[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct world *w = calloc(1, sizeof *w);
    struct config config = {.local_size = -1,
                            .timeout_s = 20,
                            .arena_max_bytes = 64 << 20,
                            .hierarchical_allreduce = !options->is_flat,
                            .hierarchical_allgather = options->has_leaders};
    assert_non_null(w);
    w->size = size;
    w->random = seed * 77 + 5;
    w->broken_rank = -1;
    if (options->algorithm != NULL)
        snprintf(config.algorithm, sizeof config.algorithm, "%s", options->algorithm);
    for (int32_t i = 0; i < size; i++) {
        w->fakes[i] = (struct fake){{.ops = &fake_ops, .os = os_host()}, w, i};
        for (int32_t j = 0; j < size; j++)
            w->routes[i][j] = i == j ? NULL : &w->fakes[i].base;
    }
    const int32_t *told = options->pretended != NULL ? options->pretended : options->host;
    if (options->host != NULL)
        world_share(w, &config, options->host);
    for (int32_t i = 0; i < size; i++) {
        struct error error = {0};
        struct native_routes routes = {w->routes[i], size, i, w->shm[i], NULL};
        struct group group = {.set_id = options->set_id,
                              .size = size,
                              .self = i,
                              .ranks = ranks,
                              .topology = {.size = size,
                                           .host_count = told != NULL ? options->host_count : size,
                                           .host = told != NULL ? told : ranks,
                                           .channels = 1}};
        if (net_coll_create(os_host(), &config, &routes, &group, &w->colls[i], &error) != HVD_OK)
            fail_msg("%s", error.text);
    }
    return w;
}

static void world_close(struct world *w)
{
    for (int32_t i = 0; i < w->size; i++) {
        net_coll_destroy(w->colls[i]);
        if (w->shm[i] != NULL) {
            shm_transport(w->shm[i])->ops->destroy(shm_transport(w->shm[i]));
            close(w->poll_fds[i]);
        }
    }
    for (size_t i = 0; i < w->listed_count; i++) {
        assert_null(w->listed[i]->sends);
        assert_null(w->listed[i]->recvs);
    }
    free(w);
}

/* Starts everywhere at its own time and drives until all have ended. */
static void run(struct world *w, const struct coll *colls)
{
    bool has_started[RANKS_MAX] = {0}, has_ended[RANKS_MAX] = {0};
    int32_t left = w->size;
    for (int64_t turn = 0; left > 0; turn++) {
        int32_t rank = (int32_t)(next_random(w) % (uint64_t)w->size);
        struct error error = {0};
        bool has_moved;
        if (turn > TURNS_MAX)
            fail_msg("no end after %d turns", TURNS_MAX);
        transport_turn(w);
        if (has_ended[rank])
            continue;
        hvd_status_t status;
        if (!has_started[rank]) {
            status = net_coll_start(w->colls[rank], &colls[rank], &error);
            has_started[rank] = true;
            if (status != HVD_OK)
                fail_msg("start: %s", error.text);
        }
        status = net_coll_progress(w->colls[rank], &has_moved, &error);
        if (status < 0)
            fail_msg("progress: %s", error.text);
        if (status != HVD_OK)
            continue;
        has_ended[rank] = true;
        left--;
    }
    while (w->listed_count > 0 || w->late_count > 0)
        transport_turn(w);
}

/* ---- values ---- */

/* Small whole numbers: exact in every type whatever the order. */
static double value(hvd_dtype_t dtype, hvd_reduce_t op, int32_t rank, int32_t part, uint64_t i)
{
    uint64_t x = (uint64_t)rank * 3 + (uint64_t)part * 11 + i * 5;
    if (dtype == HVD_BOOL)
        return (double)(x % 3 == 0);
    if (op == HVD_PRODUCT)
        return x % 5 == 0 ? 2 : 1;
    return (double)(x % (dtype == HVD_INT8 || dtype == HVD_UINT8 ? 3 : 7));
}

static double combine(hvd_dtype_t dtype, hvd_reduce_t op, double a, double b)
{
    bool is_bool = dtype == HVD_BOOL;
    switch (op) {
    case HVD_AVERAGE:
    case HVD_ADASUM:
    case HVD_SUM: return is_bool ? (double)(a != 0 || b != 0) : a + b;
    case HVD_MIN: return a < b ? a : b;
    case HVD_MAX: return a > b ? a : b;
    case HVD_PRODUCT: return is_bool ? (double)(a != 0 && b != 0) : a * b;
    case HVD_REDUCE_COUNT: break;
    }
    return 0;
}

static bool is_whole(hvd_dtype_t dtype)
{
    return dtype != HVD_FLOAT16 && dtype != HVD_BFLOAT16 && dtype != HVD_FLOAT32 &&
           dtype != HVD_FLOAT64;
}

static double scaled(hvd_dtype_t dtype, double v, double factor)
{
    return factor != 1.0 && is_whole(dtype) ? trunc(v * factor) : v * factor;
}

struct reduction {
    hvd_dtype_t dtype;
    hvd_reduce_t op;
    double prescale, postscale;
    int32_t size;
};

static double reduced(const struct reduction *r, int32_t part, uint64_t i)
{
    double sum = scaled(r->dtype, value(r->dtype, r->op, 0, part, i), r->prescale);
    for (int32_t rank = 1; rank < r->size; rank++)
        sum = combine(r->dtype, r->op, sum,
                      scaled(r->dtype, value(r->dtype, r->op, rank, part, i), r->prescale));
    return scaled(r->dtype, sum, r->postscale);
}

/* ---- tensors of all ranks ---- */

#define PARTS_MAX 5

struct tensors {
    int32_t size, part_count;
    size_t element_bytes;
    struct coll_part parts[RANKS_MAX][PARTS_MAX];
    struct coll colls[RANKS_MAX];
};

static void *memory(uint64_t count, size_t element_bytes)
{
    void *p = calloc(count + 1, element_bytes);
    assert_non_null(p);
    return p;
}

static void tensors_free(struct tensors *t)
{
    for (int32_t r = 0; r < t->size; r++) {
        for (int32_t p = 0; p < t->part_count; p++) {
            if (t->parts[r][p].out != t->parts[r][p].in)
                free(t->parts[r][p].out);
            free((void *)(uintptr_t)t->parts[r][p].in);
        }
    }
}

static void tensor_make(struct tensors *t, int32_t rank, int32_t part, uint64_t in_count,
                        uint64_t out_count, bool in_place)
{
    struct coll_part *p = &t->parts[rank][part];
    p->in = memory(in_count > out_count ? in_count : out_count, t->element_bytes);
    p->out = in_place ? (void *)(uintptr_t)p->in : memory(out_count, t->element_bytes);
    p->count = in_count;
}

static void colls_make(struct tensors *t, hvd_kind_t kind, const struct reduction *r)
{
    for (int32_t i = 0; i < t->size; i++)
        t->colls[i] = (struct coll){.kind = kind,
                                    .dtype = r->dtype,
                                    .reduce = r->op,
                                    .prescale = r->prescale,
                                    .postscale = r->postscale,
                                    .parts = t->parts[i],
                                    .part_count = t->part_count};
}

static void tensors_init(struct tensors *t, int32_t size, int32_t part_count, hvd_dtype_t dtype)
{
    memset(t, 0, sizeof *t);
    t->size = size;
    t->part_count = part_count;
    t->element_bytes = hvd_dtype_bytes(dtype);
}

/* ---- allreduce ---- */

static void allreduce_check(struct world *w, const struct reduction *r, const uint64_t *counts,
                            int32_t part_count, bool in_place)
{
    static struct tensors t;
    tensors_init(&t, w->size, part_count, r->dtype);
    for (int32_t rank = 0; rank < w->size; rank++)
        for (int32_t p = 0; p < part_count; p++) {
            tensor_make(&t, rank, p, counts[p], counts[p], in_place);
            for (uint64_t i = 0; i < counts[p]; i++)
                value_set(r->dtype, (void *)(uintptr_t)t.parts[rank][p].in, i,
                          value(r->dtype, r->op, rank, p, i));
        }
    colls_make(&t, HVD_ALLREDUCE, r);
    run(w, t.colls);
    for (int32_t p = 0; p < part_count; p++)
        for (uint64_t i = 0; i < counts[p]; i++) {
            double want = reduced(r, p, i);
            for (int32_t rank = 0; rank < w->size; rank++) {
                double got = value_get(r->dtype, t.parts[rank][p].out, i);
                if (got != want)
                    fail_msg("%s op %d, %d ranks, rank %d part %d [%llu of %llu]: %g, not %g",
                             hvd_dtype_name(r->dtype), (int)r->op, w->size, rank, p,
                             (unsigned long long)i, (unsigned long long)counts[p], got, want);
            }
        }
    tensors_free(&t);
}

static const int32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void test_allreduce_types(void **state)
{
    static const uint64_t one[] = {37}, fused[] = {5, 0, 130, 1};
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], s, &(struct world_options){0});
        for (int d = 0; d < HVD_DTYPE_COUNT; d++)
            for (int op = HVD_SUM; op <= HVD_PRODUCT; op++) {
                struct reduction r = {(hvd_dtype_t)d, (hvd_reduce_t)op, 1.0, 1.0, sizes[s]};
                if (op == HVD_ADASUM || reduce_check(r.dtype, r.op, 1.0, 1.0) != HVD_OK)
                    continue;
                allreduce_check(w, &r, one, 1, d % 2 == 0);
                allreduce_check(w, &r, fused, 4, d % 2 == 1);
                r.prescale = 2.0;
                r.postscale = 0.5;
                if (op == HVD_PRODUCT || reduce_check(r.dtype, r.op, 2.0, 0.5) != HVD_OK)
                    continue;
                allreduce_check(w, &r, one, 1, d % 2 == 1);
                allreduce_check(w, &r, fused, 4, d % 2 == 0);
            }
        world_close(w);
    }
}

static void test_allreduce_sizes(void **state)
{
    static const char *const algorithms[] = {NULL, "recursive_doubling", "rabenseifner", "ring",
                                             "double_tree"};
    static const uint64_t counts[] = {0, 1, 2, 7, 16, 1000, 100003, 700001};
    (void)state;
    for (size_t a = 0; a < 5; a++)
        for (size_t s = 0; s < SIZES; s++) {
            struct world_options options = {.algorithm = algorithms[a], .set_id = 3};
            struct world *w = world_open(sizes[s], 100 * a + s, &options);
            struct reduction r = {HVD_FLOAT32, HVD_SUM, 1.0, 0.5, sizes[s]};
            for (size_t c = 0; c < 8; c++)
                if (counts[c] < 100000 || sizes[s] == 2 || sizes[s] == 3 || sizes[s] == 8)
                    allreduce_check(w, &r, &counts[c], 1, c % 2 == 0);
            world_close(w);
        }
}

/* Floats of all magnitudes: close to the reference, and the same bits on every rank. */
/* Parts that lie one after the other are reduced where they are; not all ranks need to have them
 * so.
 */
static void test_neighbours(void **state)
{
    (void)state;
    enum { PARTS = 3, BYTES = 4 };
    static const uint64_t counts[PARTS] = {1000, 3, 40000};
    static struct coll_part parts[RANKS_MAX][PARTS];
    struct coll colls[RANKS_MAX];
    for (size_t s = 1; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], 500 + s, &(struct world_options){0});
        float *blocks[RANKS_MAX];
        for (int32_t rank = 0; rank < w->size; rank++) {
            bool is_apart = rank % 3 == 1;
            float *at = blocks[rank] = memory(41003 + 2, BYTES);
            for (int32_t p = 0; p < PARTS; p++) {
                parts[rank][p] = (struct coll_part){at, at, counts[p]};
                for (uint64_t i = 0; i < counts[p]; i++)
                    at[i] = (float)(rank + 1) * (float)(i % 100 + (uint64_t)p);
                at += counts[p] + (is_apart ? 1 : 0);
            }
            colls[rank] = (struct coll){.kind = HVD_ALLREDUCE,
                                        .dtype = HVD_FLOAT32,
                                        .reduce = HVD_SUM,
                                        .prescale = 2.0,
                                        .postscale = 1.0,
                                        .parts = parts[rank],
                                        .part_count = PARTS};
        }
        run(w, colls);
        float ranks = (float)(w->size * (w->size + 1));
        for (int32_t rank = 0; rank < w->size; rank++) {
            for (int32_t p = 0; p < PARTS; p++)
                for (uint64_t i = 0; i < counts[p]; i++)
                    assert_true(((float *)parts[rank][p].out)[i] ==
                                ranks * (float)(i % 100 + (uint64_t)p));
            assert_int_equal(w->colls[rank]->memory_bytes > 0, rank % 3 == 1);
            free(blocks[rank]);
        }
        world_close(w);
    }
}

static void test_allreduce_bits(void **state)
{
    static const char *const algorithms[] = {"recursive_doubling", "rabenseifner", "ring",
                                             "double_tree"};
    static const hvd_dtype_t dtypes[] = {HVD_FLOAT32, HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT64};
    static struct tensors t;
    const uint64_t count = 1237;
    (void)state;
    for (size_t a = 0; a < 4; a++)
        for (size_t s = 1; s < SIZES; s++) {
            struct world *w =
                world_open(sizes[s], a + s, &(struct world_options){.algorithm = algorithms[a]});
            hvd_dtype_t dtype = dtypes[(a + s) % 4];
            struct reduction r = {dtype, HVD_SUM, 1.0, 1.0 / sizes[s], sizes[s]};
            tensors_init(&t, w->size, 1, dtype);
            for (int32_t rank = 0; rank < w->size; rank++) {
                tensor_make(&t, rank, 0, count, count, false);
                for (uint64_t i = 0; i < count; i++)
                    value_set(dtype, (void *)(uintptr_t)t.parts[rank][0].in, i,
                              ((double)next_random(w) / 2147483648.0 - 0.5) *
                                  (double)(1u << i % 7));
            }
            colls_make(&t, HVD_ALLREDUCE, &r);
            run(w, t.colls);
            for (uint64_t i = 0; i < count; i++) {
                double sum = 0;
                for (int32_t rank = 0; rank < w->size; rank++)
                    sum += value_get(dtype, t.parts[rank][0].in, i);
                assert_true(fabs(value_get(dtype, t.parts[0][0].out, i) - sum / w->size) < 1.0);
            }
            for (int32_t rank = 1; rank < w->size; rank++)
                assert_memory_equal(t.parts[rank][0].out, t.parts[0][0].out,
                                    count * t.element_bytes);
            tensors_free(&t);
            world_close(w);
        }
}

/* ---- two levels ---- */

static uint64_t bytes_sent(struct world *w)
{
    uint64_t sent = 0;
    for (int32_t rank = 0; rank < w->size; rank++)
        sent += w->bytes_sent[rank];
    return sent;
}

static void two_level_check(const int32_t *host, int32_t size, int32_t hosts, uint64_t seed)
{
    static const uint64_t fused[] = {5, 0, 13000, 1}, one[] = {70001};
    struct world_options options = {.host = host, .host_count = hosts, .set_id = 1};
    struct world *w = world_open(size, seed, &options);
    struct reduction r = {HVD_FLOAT32, HVD_SUM, 1.0, 0.5, size};
    struct reduction m = {HVD_INT64, HVD_MAX, 1.0, 1.0, size};
    for (int i = 0; i < 3; i++) {
        allreduce_check(w, &r, fused, 4, false);
        allreduce_check(w, &m, fused + 2, 1, true);
        memset(w->bytes_sent, 0, sizeof w->bytes_sent);
        allreduce_check(w, &r, one, 1, i == 1);
        if (hosts == 2)
            assert_int_equal(bytes_sent(w), 2 * one[0] * 4);
        if (i == 1)
            for (int32_t rank = 0; rank < size; rank++)
                net_coll_reset(w->colls[rank], 1ull << 32);
    }
    world_close(w);
}

static void test_two_level(void **state)
{
    static const int32_t even[] = {0, 0, 1, 1}, uneven[] = {0, 1, 1, 1, 2, 2, 2, 2, 2};
    static const int32_t turns[] = {0, 1, 2, 0, 1, 2, 0, 1}, lone[] = {0, 0, 0, 1};
    (void)state;
    two_level_check(even, 4, 2, 1);
    two_level_check(uneven, 9, 3, 2);
    two_level_check(turns, 8, 3, 3);
    two_level_check(lone, 4, 2, 4);
}

/* HOROVOD_HIERARCHICAL_ALLREDUCE=0: each rank takes part by itself, and more crosses the line. */
static void test_no_two_level(void **state)
{
    static const int32_t host[] = {0, 1, 0, 1};
    static const uint64_t counts[] = {70001};
    struct world_options options = {.host = host, .host_count = 2, .set_id = 1, .is_flat = true};
    struct reduction r = {HVD_FLOAT32, HVD_SUM, 1.0, 0.5, 4};
    (void)state;
    struct world *w = world_open(4, 1, &options);
    allreduce_check(w, &r, counts, 1, false);
    assert_true(bytes_sent(w) > 2 * counts[0] * sizeof(float));
    world_close(w);
}

/* What was left over on its way is nobody's. */
static void world_forget(struct world *w)
{
    for (size_t i = 0; i < w->listed_count; i++)
        for (int side = 0; side < 2; side++) {
            struct parcel **list = side == 0 ? &w->listed[i]->sends : &w->listed[i]->recvs;
            while (*list != NULL) {
                struct parcel *p = *list;
                *list = p->next;
                free(p->copy);
                free(p);
            }
        }
}

/* Rank 0 gives up after `turns`; its output is its caller's then, whatever the others still do. */
static void two_level_give_up(const int32_t *host, int32_t size, int64_t turns)
{
    enum { COUNT = 200000 };
    struct world_options options = {.host = host, .host_count = 2, .set_id = 1};
    struct world *w = world_open(size, (uint64_t)turns, &options);
    struct coll_part parts[RANKS_MAX];
    struct coll colls[RANKS_MAX];
    struct error error = {0};
    bool has_ended[RANKS_MAX] = {0}, has_moved;
    for (int32_t r = 0; r < size; r++) {
        float *data = shm_heap_alloc(w->shm[r], COUNT * sizeof *data);
        assert_non_null(data);
        for (int i = 0; i < COUNT; i++)
            data[i] = 1.0f;
        parts[r] = (struct coll_part){data, data, COUNT};
        colls[r] = coll_of_one(HVD_FLOAT32, HVD_SUM, &parts[r]);
        assert_int_equal(net_coll_start(w->colls[r], &colls[r], &error), HVD_OK);
    }
    float *out = parts[0].out;
    for (int64_t turn = 0; turn < turns + 2000; turn++) {
        int32_t r = (int32_t)(next_random(w) % (uint64_t)size);
        transport_turn(w);
        if (turn == turns) {
            if (!has_ended[0])
                net_coll_reset(w->colls[0], BACKEND_BASE_LAST);
            has_ended[0] = true;
            for (int i = 0; i < COUNT; i++)
                out[i] = -1.0f;
        }
        if (!has_ended[r])
            has_ended[r] = net_coll_progress(w->colls[r], &has_moved, &error) != HVD_IN_PROGRESS;
    }
    for (int i = 0; i < COUNT; i++)
        assert_true(out[i] == -1.0f);
    for (int32_t r = 0; r < size; r++) {
        net_coll_reset(w->colls[r], BACKEND_BASE_LAST);
        shm_heap_free(w->shm[r], parts[r].out);
    }
    world_forget(w);
    world_close(w);
}

static void test_two_level_memory(void **state)
{
    static const int32_t even[] = {0, 0, 1, 1}, lone[] = {0, 0, 0, 1};
    (void)state;
    for (int64_t turns = 1; turns < 200; turns += HVD_TEST_QUICK ? 41 : 9) {
        two_level_give_up(even, 4, turns);
        two_level_give_up(lone, 4, turns);
    }
}

/* ---- a set that is removed with a collective under way, and comes again under its id ---- */

static void again_start(struct world *w, int32_t rank, struct coll *coll, float value)
{
    struct error error = {0};
    float *data = coll->parts[0].out;
    for (uint64_t i = 0; i < coll->parts[0].count; i++)
        data[i] = value;
    assert_int_equal(net_coll_start(w->colls[rank], coll, &error), HVD_OK);
}

/* Every rank works on it for a random while and then gives it up. */
static void again_give_up(struct world *w, bool *has_ended)
{
    struct error error = {0};
    bool has_moved;
    int64_t most = (int64_t)(next_random(w) % 400);
    for (int64_t turn = 0; turn < most; turn++) {
        int32_t r = (int32_t)(next_random(w) % (uint64_t)w->size);
        transport_turn(w);
        if (has_ended[r])
            continue;
        has_ended[r] = next_random(w) % 64 == 0 ||
                       net_coll_progress(w->colls[r], &has_moved, &error) != HVD_IN_PROGRESS;
        if (has_ended[r])
            net_coll_reset(w->colls[r], BACKEND_BASE_LAST);
    }
    for (int32_t r = 0; r < w->size; r++)
        if (!has_ended[r])
            net_coll_reset(w->colls[r], BACKEND_BASE_LAST);
}

static void again_check(const int32_t *host, int32_t size, uint64_t seed)
{
    struct world_options options = {.host = host, .host_count = host != NULL ? 2 : 0, .set_id = 1};
    struct world *w = world_open(size, seed, &options);
    struct coll_part parts[RANKS_MAX];
    struct coll colls[RANKS_MAX];
    uint64_t count = 1 + next_random(w) % 90000; /* the same in each life: lengths tell nothing */
    for (int32_t r = 0; r < size; r++) {
        float *data = memory(count, sizeof *data);
        parts[r] = (struct coll_part){data, data, count};
        colls[r] = coll_of_one(HVD_FLOAT32, HVD_SUM, &parts[r]);
    }
    for (uint64_t life = 1; life < 8; life++) {
        float value = (float)life;
        bool has_ended[RANKS_MAX] = {0}, has_moved;
        struct error error = {0};
        int32_t left = size;
        for (int32_t r = 0; r < size; r++) {
            net_coll_reset(w->colls[r], life << 48);
            again_start(w, r, &colls[r], value);
        }
        if (life % 2 != 0) {
            again_give_up(w, has_ended);
            continue;
        }
        for (int64_t turn = 0; left > 0; turn++) {
            int32_t r = (int32_t)(next_random(w) % (uint64_t)size);
            assert_true(turn < TURNS_MAX);
            transport_turn(w);
            if (has_ended[r])
                continue;
            hvd_status_t status = net_coll_progress(w->colls[r], &has_moved, &error);
            if (status == HVD_IN_PROGRESS)
                continue;
            assert_int_equal(status, HVD_OK);
            has_ended[r] = true;
            left--;
        }
        for (int32_t r = 0; r < size; r++)
            for (uint64_t i = 0; i < count; i++)
                assert_true(((float *)parts[r].out)[i] == value * (float)size);
    }
    for (int32_t r = 0; r < size; r++)
        free(parts[r].out);
    world_forget(w);
    world_close(w);
}

static void test_again(void **state)
{
    static const int32_t even[] = {0, 0, 1, 1}, lone[] = {0, 0, 0, 1};
    (void)state;
    for (uint64_t seed = 1; seed <= (HVD_TEST_QUICK ? 4 : 30); seed++) {
        again_check(NULL, 3, seed);
        again_check(even, 4, seed);
        again_check(lone, 4, seed);
    }
}

/* ---- averages of float16 that only fit while they are averages ---- */

#define HALF_COUNT 1500

/* What element `i` is on rank `r`; rows: all as large as can be, opposite signs, the smallest there
 * is, ordinary numbers, some that are infinite or no number at all. */
static uint16_t half_input(int row, int32_t rank, int i)
{
    switch (row) {
    case 0: return reduce_float_to_half(60000.0f);
    case 1: return 0x7bff; /* 65504, the largest */
    case 2: return rank % 2 == 0 ? 0x7bff : 0xfbff;
    case 3: return 0x0001; /* 2^-24, the smallest */
    case 4: return reduce_float_to_half((float)(rank + i % 64));
    default: return i == 7 && rank == 1 ? 0x7c00 : i == 9 ? 0x7e00 : 0x7bff;
    }
}

static void half_check(struct world *w, int row, hvd_kind_t kind, bool is_in_place, int parts)
{
    static uint16_t in[RANKS_MAX][2][HALF_COUNT], out[RANKS_MAX][2][HALF_COUNT];
    struct coll_part part[RANKS_MAX][2];
    struct coll colls[RANKS_MAX];
    uint64_t counts[2 * RANKS_MAX];
    bool is_all = kind == HVD_ALLREDUCE;
    uint64_t share = HALF_COUNT / (uint64_t)w->size;
    for (int i = 0; i < 2 * w->size; i++)
        counts[i] = share;
    for (int32_t r = 0; r < w->size; r++) {
        for (int p = 0; p < parts; p++) {
            for (int i = 0; i < HALF_COUNT; i++)
                in[r][p][i] = half_input(row, r, i);
            part[r][p] = (struct coll_part){in[r][p], is_in_place ? in[r][p] : out[r][p],
                                            is_all ? HALF_COUNT : share * (uint64_t)w->size};
        }
        colls[r] = (struct coll){.kind = kind,
                                 .dtype = HVD_FLOAT16,
                                 .reduce = HVD_SUM,
                                 .prescale = 1.0,
                                 .postscale = 1.0 / w->size,
                                 .parts = part[r],
                                 .part_count = parts,
                                 .counts = counts};
    }
    run(w, colls);
    for (int32_t r = 0; r < w->size; r++)
        for (int p = 0; p < parts; p++)
            for (uint64_t i = 0; i < (is_all ? HALF_COUNT : share); i++) {
                uint16_t got = (is_in_place ? in[r][p] : out[r][p])[i], expected = 0;
                int at = (int)(is_all ? i : i + (uint64_t)r * share);
                uint16_t each[RANKS_MAX];
                const void *sources[RANKS_MAX];
                void *target = &expected;
                for (int32_t k = 0; k < w->size; k++) {
                    each[k] = half_input(row, k, at);
                    sources[k] = &each[k];
                }
                struct reduce_job job = {HVD_FLOAT16, HVD_SUM, 1.0, 1.0 / w->size, sources, w->size,
                                         &target,     1,       1};
                reduce_run(&job); /* as in shared memory: all at once */
                if (isnan(reduce_half_to_float(expected)))
                    assert_true(isnan(reduce_half_to_float(got)));
                else
                    assert_int_equal(got, expected);
            }
}

static void half_checks(struct world *w)
{
    for (int row = 0; row < 6; row++) {
        half_check(w, row, HVD_ALLREDUCE, false, 1);
        half_check(w, row, HVD_ALLREDUCE, true, 1);
        half_check(w, row, HVD_ALLREDUCE, true, 2);
        half_check(w, row, HVD_REDUCESCATTER, false, 2);
    }
}

static void test_half_averages(void **state)
{
    static const char *const algorithms[] = {NULL, "recursive_doubling", "rabenseifner", "ring",
                                             "double_tree"};
    static const int32_t half_sizes[] = {2, 3, 5, 16}, host[] = {0, 0, 1, 1, 1};
    (void)state;
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++)
        for (size_t s = 0; s < sizeof half_sizes / sizeof half_sizes[0]; s++) {
            struct world_options options = {.algorithm = algorithms[a], .set_id = 3};
            struct world *w = world_open(half_sizes[s], a * 7 + s, &options);
            half_checks(w);
            world_close(w);
        }
    struct world_options options = {.host = host, .host_count = 2, .set_id = 1};
    struct world *w = world_open(5, 3, &options);
    half_checks(w);
    world_close(w);
}

/* ---- float32 that travels in a smaller type ---- */

struct wire_case {
    hvd_wire_t wire;
    double prescale, postscale;
    float (*value)(int32_t rank, uint64_t i);
    double error_most; /* relative to the largest magnitude that is added */
};

static float wire_whole(int32_t rank, uint64_t i)
{
    return (float)((uint64_t)rank + i % 5); /* sums of up to 9 ranks have few bits */
}

static float wire_any(int32_t rank, uint64_t i)
{
    uint64_t x = ((uint64_t)rank * 1000003 + i + 1) * 6364136223846793005ull;
    return ((float)(x >> 40) / 16777216.0f - 0.5f) * (float)(1u << i % 7);
}

static float wire_tiny(int32_t rank, uint64_t i)
{
    return wire_any(rank, i) * 1e-7f; /* subnormal as float16, and 0 once divided */
}

static float wire_large(int32_t rank, uint64_t i)
{
    return wire_any(rank, i) * 2000.0f; /* up to 64000: sums leave the range of float16 */
}

static float wire_huge(int32_t rank, uint64_t i)
{
    return wire_any(rank, i) * 1e30f;
}

/* Ranks of one machine add their float32; the sum has few bits although its terms do not. */
static float wire_pairs(int32_t rank, uint64_t i)
{
    return rank % 2 == 0 ? 256.5f + (float)(i % 3) : -256.0f;
}

static void wire_check(struct world *w, const struct wire_case *c, const uint64_t *counts,
                       int32_t part_count, bool in_place)
{
    static struct tensors t;
    struct reduction r = {HVD_FLOAT32, HVD_SUM, c->prescale, c->postscale, w->size};
    tensors_init(&t, w->size, part_count, HVD_FLOAT32);
    for (int32_t rank = 0; rank < w->size; rank++)
        for (int32_t p = 0; p < part_count; p++) {
            tensor_make(&t, rank, p, counts[p], counts[p], in_place);
            for (uint64_t i = 0; i < counts[p]; i++)
                ((float *)(uintptr_t)t.parts[rank][p].in)[i] = c->value(rank, i);
        }
    colls_make(&t, HVD_ALLREDUCE, &r);
    for (int32_t rank = 0; rank < w->size; rank++)
        t.colls[rank].wire = c->wire;
    run(w, t.colls);
    for (int32_t p = 0; p < part_count; p++) {
        for (int32_t rank = 1; rank < w->size; rank++)
            assert_memory_equal(t.parts[rank][p].out, t.parts[0][p].out, counts[p] * sizeof(float));
        for (uint64_t i = 0; i < counts[p]; i++) {
            double sum = 0, most = 0;
            for (int32_t rank = 0; rank < w->size; rank++) {
                sum += (double)c->value(rank, i);
                most += fabs((double)c->value(rank, i));
            }
            double factor = c->prescale * c->postscale;
            double got = (double)((const float *)t.parts[0][p].out)[i];
            if (!(fabs(got - sum * factor) <= c->error_most * fabs(most * factor)))
                fail_msg("wire %d, %d ranks, part %d [%llu]: %g, not %g", (int)c->wire, w->size, p,
                         (unsigned long long)i, got, sum * factor);
        }
    }
    tensors_free(&t);
}

static void wire_checks(struct world *w)
{
    static const uint64_t fused[] = {5, 0, 1300, 1}, one[] = {7001};
    /* Each value is rounded once and each sum at most once per hop: 9 hops of 2^-9 or 2^-12. */
    static const double bf16 = 10.0 / 512, fp16 = 10.0 / 4096, wide = 1e-6;
    const double average = 1.0 / w->size;
    const struct wire_case cases[] = {
        {HVD_WIRE_BFLOAT16, 1.0, 1.0, wire_whole, 0.0},
        {HVD_WIRE_FLOAT16, 1.0, 1.0, wire_whole, 0.0},
        {HVD_WIRE_BFLOAT16, 1.0, average, wire_any, bf16},
        {HVD_WIRE_FLOAT16, 1.0, average, wire_any, fp16},
        {HVD_WIRE_BFLOAT16, 0.5, 3.0, wire_huge, bf16},
        {HVD_WIRE_BFLOAT16, 1.0, average, wire_tiny, bf16},
        /* the factors keep it in range, as a user of float16 intends */
        {HVD_WIRE_FLOAT16, 1e7, 1e-7 * average, wire_tiny, fp16},
        {HVD_WIRE_FLOAT16, 1e-3, 1e3, wire_large, fp16},
        {HVD_WIRE_FLOAT16, 1.0, average, wire_large, fp16},
        {HVD_WIRE_FLOAT16, 1.0, 1.0, wire_large, fp16},
        /* no value fits: travels as float32 */
        {HVD_WIRE_FLOAT16, 1.0, 1.0, wire_huge, wide},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wire_check(w, &cases[i], one, 1, i % 2 == 0);
        wire_check(w, &cases[i], fused, 4, i % 2 == 1);
        wire_check(w, &cases[i], one, 1, i % 2 == 1);
    }
}

static uint64_t wire_bytes(struct world *w, const struct wire_case *c, uint64_t count)
{
    memset(w->bytes_sent, 0, sizeof w->bytes_sent);
    wire_check(w, c, &count, 1, false);
    return bytes_sent(w);
}

static void test_wire(void **state)
{
    static const char *const algorithms[] = {NULL, "recursive_doubling", "rabenseifner", "ring",
                                             "double_tree"};
    const struct wire_case plain = {HVD_WIRE_SAME, 1.0, 1.0, wire_whole, 0.0};
    const struct wire_case narrow = {HVD_WIRE_BFLOAT16, 1.0, 1.0, wire_whole, 0.0};
    (void)state;
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++)
        for (int32_t size = 1; size <= (HVD_TEST_QUICK ? 4 : 9); size++) {
            struct world_options options = {.algorithm = algorithms[a], .set_id = 3};
            struct world *w = world_open(size, a * 7 + (uint64_t)size, &options);
            /* alone, nothing travels and nothing is rounded */
            if (size > 1)
                wire_checks(w);
            else
                wire_check(w, &(struct wire_case){HVD_WIRE_BFLOAT16, 1.0, 0.5, wire_any, 0.0},
                           &(uint64_t){77}, 1, false);
            if (algorithms[a] != NULL)
                assert_int_equal(wire_bytes(w, &plain, 30000), 2 * wire_bytes(w, &narrow, 30000));
            world_close(w);
        }
}

static void test_wire_two_level(void **state)
{
    static const int32_t even[] = {0, 0, 1, 1}, uneven[] = {0, 0, 1, 1, 1, 1, 2, 2};
    const struct wire_case plain = {HVD_WIRE_SAME, 1.0, 0.25, wire_pairs, 0.0};
    struct wire_case narrow = {HVD_WIRE_BFLOAT16, 1.0, 0.25, wire_pairs, 0.0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world_options options = {
            .host = i == 0 ? even : uneven, .host_count = i == 0 ? 2 : 3, .set_id = 1};
        struct world *w = world_open(i == 0 ? 4 : 8, 5, &options);
        uint64_t all = wire_bytes(w, &plain, 70000);
        assert_int_equal(all, 2 * wire_bytes(w, &narrow, 70000));
        narrow.wire = HVD_WIRE_FLOAT16;
        assert_int_equal(all, 2 * wire_bytes(w, &narrow, 70000));
        narrow.wire = HVD_WIRE_BFLOAT16;
        wire_checks(w);
        world_close(w);
    }
}

/* ---- real shared memory, one thread per rank ---- */

struct player {
    struct world *w;
    int32_t rank;
    int failures;
};

static int play_one(struct player *player, const struct coll *coll)
{
    struct transport *t = shm_transport(player->w->shm[player->rank]);
    struct net_coll *n = player->w->colls[player->rank];
    struct error error = {0};
    bool has_moved;
    hvd_status_t status = net_coll_start(n, coll, &error);
    while (status == HVD_OK || status == HVD_IN_PROGRESS) {
        t->ops->progress(t, os_now_ns(os_host()));
        status = net_coll_progress(n, &has_moved, &error);
        if (status == HVD_OK)
            return 0;
        if (!has_moved)
            os_host()->yield(os_host()->ctx);
    }
    return 1;
}

#define PLAY_COUNT 90001

/* An allreduce by both levels, then an allgather and a broadcast over the bulk rings. */
static void *play(void *arg)
{
    struct player *player = arg;
    int32_t size = player->w->size, rank = player->rank;
    float *in = memory(PLAY_COUNT, sizeof *in), *out = memory(PLAY_COUNT, sizeof *out);
    float *all = memory((uint64_t)size * 100, sizeof *all);
    uint64_t counts[RANKS_MAX];
    for (int32_t i = 0; i < size; i++)
        counts[i] = 100;
    for (int turn = 0; turn < 20; turn++) {
        uint64_t count = turn % 2 == 0 ? PLAY_COUNT : 11;
        struct coll_part part = {in, out, count}, piece = {in, all, 100};
        struct coll reduce = {HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, 1,    0.5, 0, 0,
                              &part,         1,           NULL,    NULL, 0,   0, 0};
        struct coll gather = {HVD_ALLGATHER, HVD_FLOAT32, HVD_SUM, 1,    1, 0, 0,
                              &piece,        1,           counts,  NULL, 0, 0, 0};
        struct coll cast = {HVD_BROADCAST, HVD_FLOAT32, HVD_SUM, 1,    1, turn % size, 0,
                            &part,         1,           NULL,    NULL, 0, 0,           0};
        for (uint64_t i = 0; i < count; i++)
            in[i] = (float)((uint64_t)rank + i % 50 + (uint64_t)turn);
        player->failures += play_one(player, &reduce);
        for (uint64_t i = 0; i < count; i++) {
            float want = 0;
            for (int32_t r = 0; r < size; r++)
                want += (float)((uint64_t)r + i % 50 + (uint64_t)turn);
            player->failures += out[i] != 0.5f * want;
        }
        player->failures += play_one(player, &cast);
        for (uint64_t i = 0; i < count; i++)
            player->failures +=
                out[i] != (float)((uint64_t)(turn % size) + i % 50 + (uint64_t)turn);
        player->failures += play_one(player, &gather);
        for (uint64_t i = 0; i < count && i < 11; i++)
            player->failures += all[(size - 1) * 100 + (int32_t)i] !=
                                (float)((uint64_t)(size - 1) + i % 50 + (uint64_t)turn);
    }
    free(in);
    free(out);
    free(all);
    return NULL;
}

static void test_threads(void **state)
{
    static const int32_t together[] = {0, 0, 0, 0}, pretended[] = {0, 1, 0, 1};
    struct player players[4];
    pthread_t threads[4];
    (void)state;
    struct world_options options = {
        .host = together, .pretended = pretended, .host_count = 2, .set_id = 2};
    struct world *w = world_open(4, 1, &options);
    for (int32_t i = 0; i < 4; i++) {
        players[i] = (struct player){w, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, play, &players[i]), 0);
    }
    for (int32_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(players[i].failures, 0);
    }
    world_close(w);
}

/* ---- the other kinds ---- */

static void allgather_check(struct world *w, hvd_dtype_t dtype, uint64_t unit, int32_t part_count,
                            bool in_place)
{
    static struct tensors t;
    static uint64_t counts[PARTS_MAX * RANKS_MAX];
    struct reduction r = {dtype, HVD_SUM, 1.0, 1.0, w->size};
    tensors_init(&t, w->size, part_count, dtype);
    for (int32_t p = 0; p < part_count; p++) {
        uint64_t total = 0;
        for (int32_t i = 0; i < w->size; i++) {
            counts[p * w->size + i] = (uint64_t)((i + p) % 3) * unit + (i == p ? 1 : 0);
            total += counts[p * w->size + i];
        }
        uint64_t at = 0;
        for (int32_t i = 0; i < w->size; i++) {
            uint64_t mine = counts[p * w->size + i];
            tensor_make(&t, i, p, mine, total, false);
            if (in_place) {
                /* the input stands already where it goes */
                free((void *)(uintptr_t)t.parts[i][p].in);
                t.parts[i][p].in = (uint8_t *)t.parts[i][p].out + at * t.element_bytes;
            }
            for (uint64_t k = 0; k < mine; k++)
                value_set(dtype, (void *)(uintptr_t)t.parts[i][p].in, k,
                          value(dtype, HVD_SUM, i, p, k));
            at += mine;
        }
    }
    colls_make(&t, HVD_ALLGATHER, &r);
    for (int32_t i = 0; i < w->size; i++)
        t.colls[i].counts = counts;
    run(w, t.colls);
    for (int32_t rank = 0; rank < w->size; rank++)
        for (int32_t p = 0; p < part_count; p++) {
            uint64_t at = 0;
            for (int32_t i = 0; i < w->size; i++)
                for (uint64_t k = 0; k < counts[p * w->size + i]; k++)
                    assert_true(value_get(dtype, t.parts[rank][p].out, at++) ==
                                value(dtype, HVD_SUM, i, p, k));
        }
    for (int32_t i = 0; in_place && i < w->size; i++)
        for (int32_t p = 0; p < part_count; p++)
            t.parts[i][p].in = t.parts[i][p].out;
    tensors_free(&t);
}

static void test_allgather(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], 40 + s, &(struct world_options){0});
        for (int d = 0; d < HVD_DTYPE_COUNT; d++) {
            allgather_check(w, (hvd_dtype_t)d, 0, 1, false);
            allgather_check(w, (hvd_dtype_t)d, 3, 1, d % 2 == 0);
            allgather_check(w, (hvd_dtype_t)d, 5, 3, false);
        }
        allgather_check(w, HVD_FLOAT32, 30011, 1, true);
        allgather_check(w, HVD_FLOAT16, 30011, 2, false);
        world_close(w);
    }
}

/* HOROVOD_HIERARCHICAL_ALLGATHER=1: every byte crosses the line between two machines once. */
static void test_allgather_leaders(void **state)
{
    static const int32_t even[] = {0, 0, 1, 1}, uneven[] = {0, 1, 1, 1, 2, 2, 2, 2, 2};
    struct world_options options = {.host = even, .host_count = 2, .set_id = 1};
    uint64_t sent[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        options.has_leaders = i == 1;
        struct world *w = world_open(4, 1, &options);
        allgather_check(w, HVD_FLOAT32, 3, 1, false);
        sent[i] = bytes_sent(w);
        allgather_check(w, HVD_INT8, 0, 1, false);
        allgather_check(w, HVD_FLOAT16, 30011, 2, true);
        world_close(w);
    }
    assert_int_equal(sent[1], (1 + 3 + 6) * sizeof(float));
    assert_true(sent[0] > sent[1]);
    options = (struct world_options){
        .host = uneven, .host_count = 3, .set_id = 1, .is_flat = true, .has_leaders = true};
    struct world *w = world_open(9, 2, &options);
    for (uint64_t unit = 0; unit < 5; unit++)
        allgather_check(w, HVD_FLOAT64, unit, 1 + (int32_t)unit % 3, unit % 2 == 0);
    world_close(w);
}

static void broadcast_check(struct world *w, hvd_dtype_t dtype, uint64_t count, int32_t root,
                            bool in_place)
{
    static struct tensors t;
    struct reduction r = {dtype, HVD_SUM, 1.0, 1.0, w->size};
    tensors_init(&t, w->size, 1, dtype);
    for (int32_t i = 0; i < w->size; i++) {
        tensor_make(&t, i, 0, count, count, in_place);
        for (uint64_t k = 0; k < count; k++)
            value_set(dtype, (void *)(uintptr_t)t.parts[i][0].in, k,
                      value(dtype, HVD_SUM, i, 0, k));
    }
    colls_make(&t, HVD_BROADCAST, &r);
    for (int32_t i = 0; i < w->size; i++)
        t.colls[i].root = root;
    run(w, t.colls);
    for (int32_t i = 0; i < w->size; i++)
        for (uint64_t k = 0; k < count; k++)
            assert_true(value_get(dtype, t.parts[i][0].out, k) ==
                        value(dtype, HVD_SUM, root, 0, k));
    tensors_free(&t);
}

static void test_broadcast(void **state)
{
    static const uint64_t counts[] = {0, 1, 17, 40009, 300007};
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], 60 + s, &(struct world_options){0});
        for (int32_t root = 0; root < sizes[s]; root += 2)
            for (size_t c = 0; c < 5; c++)
                if (c < 4 || root == 2)
                    broadcast_check(w, c % 2 == 0 ? HVD_FLOAT32 : HVD_INT16, counts[c], root,
                                    root % 4 == 0);
        for (int d = 0; d < HVD_DTYPE_COUNT; d++)
            broadcast_check(w, (hvd_dtype_t)d, 5, sizes[s] - 1, false);
        world_close(w);
    }
}

static uint64_t gift(int32_t from, int32_t to, uint64_t unit)
{
    return (uint64_t)((from * 3 + to) % 4) * unit;
}

static void alltoall_check(struct world *w, hvd_dtype_t dtype, uint64_t unit)
{
    static struct tensors t;
    static uint64_t send[RANKS_MAX][RANKS_MAX], recv[RANKS_MAX][RANKS_MAX];
    struct reduction r = {dtype, HVD_SUM, 1.0, 1.0, w->size};
    tensors_init(&t, w->size, 1, dtype);
    for (int32_t i = 0; i < w->size; i++) {
        uint64_t out = 0, in = 0, at = 0;
        for (int32_t j = 0; j < w->size; j++) {
            send[i][j] = gift(i, j, unit);
            recv[i][j] = gift(j, i, unit);
            out += send[i][j];
            in += recv[i][j];
        }
        tensor_make(&t, i, 0, out, in, false);
        for (int32_t j = 0; j < w->size; j++)
            for (uint64_t k = 0; k < send[i][j]; k++)
                value_set(dtype, (void *)(uintptr_t)t.parts[i][0].in, at++,
                          value(dtype, HVD_SUM, i, j, k));
    }
    colls_make(&t, HVD_ALLTOALL, &r);
    for (int32_t i = 0; i < w->size; i++) {
        t.colls[i].counts = send[i];
        t.colls[i].recv_counts = recv[i];
    }
    run(w, t.colls);
    for (int32_t i = 0; i < w->size; i++) {
        uint64_t at = 0;
        for (int32_t j = 0; j < w->size; j++)
            for (uint64_t k = 0; k < recv[i][j]; k++)
                assert_true(value_get(dtype, t.parts[i][0].out, at++) ==
                            value(dtype, HVD_SUM, j, i, k));
    }
    tensors_free(&t);
}

static void test_alltoall(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], 80 + s, &(struct world_options){0});
        for (int d = 0; d < HVD_DTYPE_COUNT; d++) {
            alltoall_check(w, (hvd_dtype_t)d, 1);
            alltoall_check(w, (hvd_dtype_t)d, 0);
            alltoall_check(w, (hvd_dtype_t)d, 7);
        }
        if (sizes[s] < 6)
            alltoall_check(w, HVD_FLOAT32, 90001);
        world_close(w);
    }
}

static void reducescatter_check(struct world *w, const struct reduction *r, uint64_t unit,
                                int32_t part_count)
{
    static struct tensors t;
    static uint64_t counts[PARTS_MAX * RANKS_MAX];
    tensors_init(&t, w->size, part_count, r->dtype);
    for (int32_t p = 0; p < part_count; p++) {
        uint64_t total = 0;
        for (int32_t i = 0; i < w->size; i++) {
            counts[p * w->size + i] = (uint64_t)((i + p) % 3) * unit + (i == p ? 1 : 0);
            total += counts[p * w->size + i];
        }
        for (int32_t i = 0; i < w->size; i++) {
            tensor_make(&t, i, p, total, counts[p * w->size + i], false);
            for (uint64_t k = 0; k < total; k++)
                value_set(r->dtype, (void *)(uintptr_t)t.parts[i][p].in, k,
                          value(r->dtype, r->op, i, p, k));
        }
    }
    colls_make(&t, HVD_REDUCESCATTER, r);
    for (int32_t i = 0; i < w->size; i++)
        t.colls[i].counts = counts;
    run(w, t.colls);
    for (int32_t p = 0; p < part_count; p++) {
        uint64_t at = 0;
        for (int32_t i = 0; i < w->size; i++)
            for (uint64_t k = 0; k < counts[p * w->size + i]; k++)
                assert_true(value_get(r->dtype, t.parts[i][p].out, k) == reduced(r, p, at++));
        for (int32_t i = 0; i < w->size; i++)
            for (uint64_t k = 0; k < at; k++)
                assert_true(value_get(r->dtype, t.parts[i][p].in, k) ==
                            value(r->dtype, r->op, i, p, k));
    }
    tensors_free(&t);
}

static void test_reducescatter(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], 120 + s, &(struct world_options){0});
        for (int d = 0; d < HVD_DTYPE_COUNT; d++)
            for (int op = HVD_SUM; op <= HVD_PRODUCT; op++) {
                struct reduction r = {(hvd_dtype_t)d, (hvd_reduce_t)op, 1.0, 1.0, sizes[s]};
                if (op == HVD_ADASUM || reduce_check(r.dtype, r.op, 1.0, 1.0) != HVD_OK)
                    continue;
                reducescatter_check(w, &r, 3, 1);
                reducescatter_check(w, &r, 2, 3);
            }
        struct reduction large = {HVD_FLOAT32, HVD_SUM, 2.0, 0.25, sizes[s]};
        reducescatter_check(w, &large, 9001, 2);
        if (sizes[s] < 6)
            reducescatter_check(w, &large, 200003, 1);
        world_close(w);
    }
}

/* Nobody leaves a barrier before all have entered. */
static void test_barrier(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        struct world *w = world_open(sizes[s], 150 + s, &(struct world_options){0});
        struct coll coll = {.kind = HVD_BARRIER};
        struct coll all[RANKS_MAX];
        struct error error = {0};
        int32_t late = sizes[s] - 1;
        bool has_moved;
        for (int32_t i = 0; i < late; i++)
            assert_int_equal(net_coll_start(w->colls[i], &coll, &error), HVD_OK);
        for (int turn = 0; turn < 2000; turn++) {
            transport_turn(w);
            for (int32_t i = 0; i < late; i++)
                assert_int_equal(net_coll_progress(w->colls[i], &has_moved, &error),
                                 HVD_IN_PROGRESS);
        }
        assert_int_equal(net_coll_start(w->colls[late], &coll, &error), HVD_OK);
        for (int32_t left = sizes[s], ended = 0; left > 0;) {
            transport_turn(w);
            for (int32_t i = 0; i < sizes[s]; i++)
                if ((ended >> i & 1) == 0 &&
                    net_coll_progress(w->colls[i], &has_moved, &error) == HVD_OK) {
                    ended |= 1 << i;
                    left--;
                }
        }
        for (int32_t i = 0; i < sizes[s]; i++)
            all[i] = coll;
        run(w, all);
        world_close(w);
    }
}

/* ---- Adasum ---- */

/* The rule for whole vectors, pair by pair. */
static void adasum_reference(double *vectors, int32_t size, uint64_t count)
{
    for (int32_t step = 1; step < size; step *= 2)
        for (int32_t r = 0; r < size; r += 2 * step) {
            double *a = vectors + (uint64_t)r * count;
            sim_adasum_pair(a, a + (uint64_t)step * count, count);
        }
}

static void adasum_check(struct world *w, hvd_dtype_t dtype, const uint64_t *counts,
                         int32_t part_count, double tolerance)
{
    static struct tensors t;
    struct reduction r = {dtype, HVD_ADASUM, 2.0, 0.5, w->size};
    tensors_init(&t, w->size, part_count, dtype);
    for (int32_t i = 0; i < w->size; i++)
        for (int32_t p = 0; p < part_count; p++) {
            tensor_make(&t, i, p, counts[p], counts[p], i % 2 == 0 && part_count == 1);
            for (uint64_t k = 0; k < counts[p]; k++)
                value_set(dtype, (void *)(uintptr_t)t.parts[i][p].in, k,
                          (double)next_random(w) / 2147483648.0 - 0.25);
        }
    colls_make(&t, HVD_ALLREDUCE, &r);
    double *vectors[PARTS_MAX];
    for (int32_t p = 0; p < part_count; p++) {
        vectors[p] = memory((uint64_t)w->size * counts[p], sizeof(double));
        for (int32_t i = 0; i < w->size; i++)
            for (uint64_t k = 0; k < counts[p]; k++)
                vectors[p][(uint64_t)i * counts[p] + k] =
                    2.0 * value_get(dtype, t.parts[i][p].in, k);
        adasum_reference(vectors[p], w->size, counts[p]);
    }
    run(w, t.colls);
    for (int32_t p = 0; p < part_count; p++) {
        for (uint64_t k = 0; k < counts[p]; k++)
            assert_true(fabs(value_get(dtype, t.parts[0][p].out, k) - 0.5 * vectors[p][k]) <
                        tolerance);
        for (int32_t i = 1; i < w->size; i++)
            assert_memory_equal(t.parts[i][p].out, t.parts[0][p].out, counts[p] * t.element_bytes);
        free(vectors[p]);
    }
    tensors_free(&t);
}

static void test_adasum(void **state)
{
    static const uint64_t one[] = {1001}, fused[] = {3, 0, 257, 1, 40}, tiny[] = {1};
    static const int32_t powers[] = {1, 2, 4, 8, 16};
    (void)state;
    for (size_t s = 0; s < 5; s++) {
        struct world *w = world_open(powers[s], 200 + s, &(struct world_options){0});
        adasum_check(w, HVD_FLOAT64, one, 1, 1e-9);
        adasum_check(w, HVD_FLOAT64, fused, 5, 1e-9);
        adasum_check(w, HVD_FLOAT32, fused, 5, 1e-3);
        adasum_check(w, HVD_FLOAT32, tiny, 1, 1e-3);
        adasum_check(w, HVD_FLOAT16, one, 1, 0.1);
        adasum_check(w, HVD_BFLOAT16, fused, 5, 0.5);
        world_close(w);
    }
}

static void test_adasum_refusals(void **state)
{
    float in[2] = {1, 2}, out[2];
    struct coll_part part = {in, out, 2};
    struct coll coll = coll_of_one(HVD_FLOAT32, HVD_ADASUM, &part);
    struct error error = {0};
    (void)state;
    struct world *w = world_open(3, 1, &(struct world_options){0});
    assert_int_equal(net_coll_start(w->colls[0], &coll, &error), HVD_ERR_UNSUPPORTED);
    assert_string_equal(error.text,
                        "Running Adasum with non-power of 2 ranks is not supported yet.");
    world_close(w);
    w = world_open(2, 1, &(struct world_options){0});
    coll.dtype = HVD_INT32;
    error_clear(&error);
    assert_int_equal(net_coll_start(w->colls[0], &coll, &error), HVD_ERR_UNSUPPORTED);
    coll.reduce = HVD_SUM;
    coll.dtype = HVD_BOOL;
    coll.postscale = 0.5;
    error_clear(&error);
    assert_int_equal(net_coll_start(w->colls[0], &coll, &error), HVD_ERR_UNSUPPORTED);
    world_close(w);
}

/* ---- trouble ---- */

/* A collective that not all have begun is given up; what was under way must not meet the next. */
static void test_reset(void **state)
{
    static const uint64_t counts[] = {100003};
    static struct tensors t;
    (void)state;
    for (int32_t size = 2; size <= 5; size++) {
        struct world *w = world_open(size, 300, &(struct world_options){.algorithm = "ring"});
        struct reduction r = {HVD_FLOAT32, HVD_SUM, 1.0, 1.0, size};
        for (uint64_t generation = 1; generation <= 3; generation++) {
            struct error error = {0};
            bool has_moved;
            tensors_init(&t, size, 1, HVD_FLOAT32);
            for (int32_t i = 0; i < size; i++)
                tensor_make(&t, i, 0, counts[0], counts[0], false);
            colls_make(&t, HVD_ALLREDUCE, &r);
            for (int32_t i = 0; i < size - 1; i++) {
                assert_int_equal(net_coll_start(w->colls[i], &t.colls[i], &error), HVD_OK);
                for (int k = 0; k < 10; k++) {
                    transport_turn(w);
                    assert_int_equal(net_coll_progress(w->colls[i], &has_moved, &error),
                                     HVD_IN_PROGRESS);
                }
            }
            for (int32_t i = 0; i < size; i++)
                net_coll_reset(w->colls[i], generation << 32);
            /* what a transport had buffered of it never gets a receiver */
            for (size_t i = 0; i < w->listed_count; i++)
                list_drop(&w->listed[i]->sends, NULL);
            tensors_free(&t);
            allreduce_check(w, &r, counts, 1, false);
        }
        world_close(w);
    }
}

static void test_dead_peer(void **state)
{
    float in[64] = {0}, out[64];
    struct coll_part part = {in, out, 64};
    struct coll coll = coll_of_one(HVD_FLOAT32, HVD_SUM, &part);
    struct error error = {0};
    bool has_moved;
    (void)state;
    struct world *w = world_open(2, 1, &(struct world_options){0});
    w->broken_rank = 1;
    assert_int_equal(net_coll_start(w->colls[0], &coll, &error), HVD_OK);
    assert_int_equal(net_coll_progress(w->colls[0], &has_moved, &error), HVD_ERR_PEER_DEAD);
    assert_non_null(strstr(error.text, "rank 1"));
    world_close(w);
}

/* One rank from creation to its first transfers; returns the first error. */
static hvd_status_t begin_alone(struct world *w, const struct os *os, const struct coll *coll)
{
    static const int32_t ranks[] = {0, 1};
    struct config config = {.local_size = -1};
    struct native_routes routes = {w->routes[0], 2, 0, NULL, NULL};
    struct group group = {.size = 2,
                          .ranks = ranks,
                          .topology = {.size = 2, .host_count = 2, .host = ranks, .channels = 1}};
    struct net_coll *n = NULL;
    struct error error = {0};
    bool has_moved;
    hvd_status_t status = net_coll_create(os, &config, &routes, &group, &n, &error);
    if (status != HVD_OK)
        return status;
    status = net_coll_start(n, coll, &error);
    for (int i = 0; i < 3 && status >= 0; i++)
        status = net_coll_progress(n, &has_moved, &error);
    net_coll_destroy(n);
    while (w->late_count > 0)
        transport_turn(w);
    for (size_t i = 0; i < w->listed_count; i++)
        list_drop(&w->listed[i]->sends, NULL);
    return status;
}

/* Every allocation fails once: a clean error each time, nothing left behind. */
static void test_no_memory(void **state)
{
    static const hvd_kind_t kinds[] = {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_REDUCESCATTER,
                                       HVD_ALLTOALL,  HVD_BARRIER,   HVD_ALLREDUCE};
    float in[64] = {0}, out[2][64];
    uint64_t counts[4] = {16, 16, 16, 16};
    struct coll_part parts[2] = {{in, out[0], 32}, {in + 32, out[1], 32}};
    (void)state;
    struct world *w = world_open(2, 1, &(struct world_options){0});
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct coll coll = {kinds[k],
                            HVD_FLOAT32,
                            k == 5 ? HVD_ADASUM : HVD_SUM,
                            1,
                            0.5,
                            0,
                            0,
                            parts,
                            2,
                            counts,
                            counts,
                            0,
                            0,
                            0};
        for (uint64_t fail_at = 1;; fail_at++) {
            struct fault_os *fault = fault_os_create(os_host(), fail_at);
            assert_non_null(fault);
            hvd_status_t status = begin_alone(w, fault_os_table(fault), &coll);
            bool has_failed = fault_os_failures(fault) > 0;
            fault_os_destroy(fault);
            assert_int_equal(status, has_failed ? HVD_ERR_NO_MEMORY : HVD_IN_PROGRESS);
            if (!has_failed)
                break;
            assert_true(fail_at < 100);
        }
    }
    world_close(w);
}

/* Once warm, nothing is allocated. */
static void test_no_allocation(void **state)
{
    static const uint64_t counts[] = {5000, 77};
    (void)state;
    struct world *w = world_open(4, 9, &(struct world_options){0});
    struct reduction r = {HVD_FLOAT32, HVD_SUM, 1.0, 0.25, 4};
    uint64_t live, before, after;
    allreduce_check(w, &r, counts, 2, false);
    os_host_alloc_counts(&live, &before);
    for (int i = 0; i < 5; i++)
        allreduce_check(w, &r, counts, 2, false);
    os_host_alloc_counts(&live, &after);
    assert_int_equal(before, after);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_types),  cmocka_unit_test(test_allreduce_sizes),
        cmocka_unit_test(test_allreduce_bits),   cmocka_unit_test(test_two_level),
        cmocka_unit_test(test_no_two_level),     cmocka_unit_test(test_allgather_leaders),
        cmocka_unit_test(test_two_level_memory), cmocka_unit_test(test_again),
        cmocka_unit_test(test_half_averages),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allgather),        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_alltoall),         cmocka_unit_test(test_reducescatter),
        cmocka_unit_test(test_barrier),          cmocka_unit_test(test_adasum),
        cmocka_unit_test(test_adasum_refusals),  cmocka_unit_test(test_reset),
        cmocka_unit_test(test_dead_peer),        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_no_memory),        cmocka_unit_test(test_wire),
        cmocka_unit_test(test_neighbours),       cmocka_unit_test(test_wire_two_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
