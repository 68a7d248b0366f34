/* SPDX-License-Identifier: Apache-2.0 */
/* test_backends.c - which backend runs a collective: fake rows, which record their arguments.
 * Adding a backend is a row: nothing else here knows their names. Start reading at world_open(). */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>
#include <string.h>

#include "backend/backends.h"

enum { GPU = 1 }; /* a kind of memory */
#define LARGE (1u << 20)

/* ---- made-up backends ---- */

struct fake {
    struct backend base;
    int starts, progresses, resets, opens, closes, destroys;
    uint64_t base_told;
    hvd_status_t open_status; /* what group_open() says */
};

static struct fake plain, device, bulk;

static struct fake *of(struct backend *b)
{
    return (struct fake *)b;
}

static hvd_status_t group_open(struct backend *b, const struct group *group,
                               struct backend_group **ret, struct error *error)
{
    (void)group;
    if (of(b)->open_status != HVD_OK)
        return error_set(error, of(b)->open_status, "no group for %s", b->ops->name);
    of(b)->opens++;
    *ret = (struct backend_group *)b;
    return HVD_OK;
}

static void group_close(struct backend *b, struct backend_group *g)
{
    assert_ptr_equal(b, g);
    of(b)->closes++;
}

static hvd_status_t start(struct backend *b, struct backend_group *g, const struct coll *coll,
                          struct error *error)
{
    (void)coll, (void)error;
    assert_ptr_equal(b, g);
    of(b)->starts++;
    return HVD_OK;
}

static hvd_status_t progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                             struct error *error)
{
    (void)error;
    assert_ptr_equal(b, g);
    of(b)->progresses++;
    *ret_moved = true;
    return HVD_OK;
}

static void reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    assert_ptr_equal(b, g);
    of(b)->resets++;
    of(b)->base_told = base;
}

static const char *activity(const struct backend_group *g, hvd_kind_t kind)
{
    (void)kind;
    return ((const struct fake *)g)->base.ops->name;
}

static void destroy(struct backend *b)
{
    of(b)->destroys++;
}

static int64_t poll_ns(struct backend *b)
{
    return b == &device.base ? 70 : 50;
}

/* Everything in the host's memory. */
static int32_t plain_score(const struct backend *b, const struct group *g,
                           const struct backend_ask *ask)
{
    (void)b, (void)g;
    return ask->memory == 0 ? 10 : -1;
}

/* Reductions in a device's memory, for more than one rank. */
static int32_t device_score(const struct backend *b, const struct group *g,
                            const struct backend_ask *ask)
{
    (void)b;
    return ask->memory == GPU && ask->kind == HVD_ALLREDUCE && ask->reduce != HVD_ADASUM &&
                   g->size > 1
               ? 100
               : -1;
}

/* What is large, wherever it is. */
static int32_t bulk_score(const struct backend *b, const struct group *g,
                          const struct backend_ask *ask)
{
    (void)b, (void)g;
    return ask->bytes >= LARGE ? 50 : -1;
}

#define OPS(title, its_score, its_poll)                                                            \
    {                                                                                              \
        .version = BACKEND_VERSION, .name = title, .score = its_score, .group_open = group_open,   \
        .group_close = group_close, .start = start, .progress = progress, .reset = reset,          \
        .activity = activity, .destroy = destroy, .poll_ns = its_poll                              \
    }
static const struct backend_ops plain_ops = OPS("plain", plain_score, NULL);
static const struct backend_ops device_ops = OPS("device", device_score, poll_ns);
static const struct backend_ops bulk_ops = OPS("bulk", bulk_score, poll_ns);

static hvd_status_t make(struct fake *f, const struct backend_ops *ops, struct backend **ret)
{
    f->base.ops = ops;
    f->base.os = os_host();
    *ret = &f->base;
    return HVD_OK;
}

static hvd_status_t plain_create(const struct backend_place *place, struct backend **ret,
                                 struct error *error)
{
    (void)place, (void)error;
    return make(&plain, &plain_ops, ret);
}

static hvd_status_t device_create(const struct backend_place *place, struct backend **ret,
                                  struct error *error)
{
    (void)place, (void)error;
    device.base.is_final = true;
    return make(&device, &device_ops, ret);
}

static hvd_status_t bulk_create(const struct backend_place *place, struct backend **ret,
                                struct error *error)
{
    (void)place, (void)error;
    bulk.base.is_one_thread = true;
    return make(&bulk, &bulk_ops, ret);
}

static hvd_status_t broken_create(const struct backend_place *place, struct backend **ret,
                                  struct error *error)
{
    (void)place, (void)ret;
    return error_set(error, HVD_ERR_OS, "the device is on fire");
}

static bool probe_yes(const struct backend_place *place, char *ret_why)
{
    (void)place, (void)ret_why;
    return true;
}

static bool probe_no(const struct backend_place *place, char *ret_why)
{
    (void)place;
    snprintf(ret_why, WHY_MAX, "There is no device.");
    return false;
}

static const struct backend_row plain_row = {"plain", probe_yes, plain_create};
static const struct backend_row device_row = {"device", probe_yes, device_create};
static const struct backend_row no_device_row = {"device", probe_no, device_create};
static const struct backend_row bulk_row = {"bulk", probe_yes, bulk_create};
static const struct backend_row broken_row = {"broken", probe_yes, broken_create};

/* ---- a rank ---- */

static const int32_t ranks[] = {0, 1, 2};
static const struct group group = {.size = 3, .ranks = ranks};
static const struct backend_place place = {.rank = 0, .size = 3};

static struct backend *open_rows(const struct backend_row *const *rows)
{
    struct backend_place here = place;
    struct backend *b = NULL;
    here.os = os_host();
    memset(&plain, 0, sizeof plain);
    memset(&device, 0, sizeof device);
    memset(&bulk, 0, sizeof bulk);
    assert_int_equal(backends_create(rows, &here, &b, NULL), HVD_OK);
    return b;
}

/* Who gets it? "" if it is refused. */
static const char *winner(struct backend *b, struct backend_group *g, const struct coll *coll)
{
    struct error error = {0};
    bool has_moved = false;
    struct fake *all[] = {&plain, &device, &bulk};
    for (int i = 0; i < 3; i++)
        all[i]->starts = all[i]->progresses = 0;
    hvd_status_t status = b->ops->start(b, g, coll, &error);
    if (status != HVD_OK) {
        assert_int_equal(status, HVD_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "memory of kind"));
        return "";
    }
    assert_int_equal(b->ops->progress(b, g, &has_moved, &error), HVD_OK);
    assert_true(has_moved);
    for (int i = 0; i < 3; i++)
        if (all[i]->starts > 0) {
            assert_int_equal(plain.starts + device.starts + bulk.starts, 1);
            assert_int_equal(all[i]->progresses, 1); /* goes on where it began */
            return all[i]->base.ops->name;
        }
    return "";
}

static const struct backend_row *const three[] = {&plain_row, &device_row, &bulk_row, NULL};

/* ---- tests ---- */

static void test_scores(void **state)
{
    static const struct {
        hvd_kind_t kind;
        hvd_reduce_t reduce;
        int32_t memory;
        uint64_t count;
        const char *winner;
    } cases[] = {
        {HVD_ALLREDUCE, HVD_SUM, 0, 4, "plain"},
        {HVD_ALLREDUCE, HVD_SUM, 0, LARGE / 8, "plain"},
        {HVD_ALLREDUCE, HVD_SUM, 0, LARGE / 4, "bulk"},
        {HVD_ALLREDUCE, HVD_SUM, GPU, 4, "device"},
        {HVD_ALLREDUCE, HVD_SUM, GPU, LARGE / 4, "device"},
        {HVD_ALLREDUCE, HVD_ADASUM, GPU, 4, ""},
        {HVD_ALLREDUCE, HVD_ADASUM, GPU, LARGE / 4, "bulk"},
        {HVD_BROADCAST, HVD_SUM, GPU, 4, ""},
        {HVD_BROADCAST, HVD_SUM, 0, LARGE, "bulk"},
    };
    struct backend_group *g = NULL;
    struct backend *b = open_rows(three);
    (void)state;
    assert_int_equal(b->ops->group_open(b, &group, &g, NULL), HVD_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct coll_part part = {.count = cases[i].count};
        struct coll coll = {.kind = cases[i].kind,
                            .dtype = HVD_FLOAT32,
                            .reduce = cases[i].reduce,
                            .memory = cases[i].memory,
                            .parts = &part,
                            .part_count = 1};
        assert_string_equal(winner(b, g, &coll), cases[i].winner);
    }
    assert_string_equal(b->ops->activity(g, HVD_ALLREDUCE), "plain");
    assert_true(b->is_final && b->is_one_thread); /* what any of them is, the whole is */
    assert_int_equal(b->ops->poll_ns(b), 50);
    b->ops->reset(b, g, 99);
    struct fake *all[] = {&plain, &device, &bulk};
    b->ops->group_close(b, g);
    b->ops->destroy(b);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all[i]->resets, 1);
        assert_int_equal(all[i]->base_told, 99);
        assert_int_equal(all[i]->closes, 1);
        assert_int_equal(all[i]->destroys, 1);
    }
}

/* Members have different parts of it in hand, and ask the same. */
static void test_ask_is_equal_on_all(void **state)
{
    static const uint64_t counts[] = {1, 20, 300};
    (void)state;
    for (int32_t self = 0; self < 3; self++) {
        struct group g = group;
        struct coll_part part = {.count = counts[self]};
        struct coll coll = {.kind = HVD_ALLGATHER,
                            .dtype = HVD_FLOAT64,
                            .parts = &part,
                            .part_count = 1,
                            .counts = counts};
        g.self = self;
        assert_int_equal(backends_ask(&g, &coll).bytes, 321 * 8);
        part.count = 321;
        coll.kind = HVD_REDUCESCATTER;
        assert_int_equal(backends_ask(&g, &coll).bytes, 321 * 8);
        part.count = counts[self];
        coll.kind = HVD_ALLTOALL;
        assert_int_equal(backends_ask(&g, &coll).bytes, 0);
    }
}

/* The probe fails: the row is left out, and whoever asks hears why. */
static void test_probe_fails(void **state)
{
    static const struct backend_row *const rows[] = {&no_device_row, &plain_row, NULL};
    static const struct backend_row *const none[] = {&no_device_row, NULL};
    struct backend_place here = place;
    struct backend *b = open_rows(rows), *nothing = NULL;
    struct error error = {0};
    char why[WHY_MAX] = "";
    (void)state;
    assert_ptr_equal(b, &plain.base); /* the only one: itself, nothing in between */
    assert_int_equal(device.opens, 0);
    assert_true(backends_is_missing(rows, &here, "DEVICE", why));
    assert_string_equal(why, "There is no device.");
    assert_false(backends_is_missing(rows, &here, "plain", why));
    assert_false(backends_is_missing(rows, &here, "gloo", why));
    here.os = os_host();
    assert_int_equal(backends_create(none, &here, &nothing, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "There is no device."));
}

/* One that can't be made ends the start; what was made before it is destroyed. */
static void test_create_fails(void **state)
{
    static const struct backend_row *const rows[] = {&plain_row, &broken_row, NULL};
    struct backend_place here = place;
    struct backend *b = NULL;
    struct error error = {0};
    (void)state;
    here.os = os_host();
    memset(&plain, 0, sizeof plain);
    assert_int_equal(backends_create(rows, &here, &b, &error), HVD_ERR_OS);
    assert_non_null(strstr(error.text, "on fire"));
    assert_int_equal(plain.destroys, 1);
}

/* A member that does not serve a group is not asked; another failure is the whole group's. */
static void test_groups(void **state)
{
    struct coll_part part = {.count = 4};
    struct coll coll = {.kind = HVD_ALLREDUCE,
                        .dtype = HVD_FLOAT32,
                        .reduce = HVD_SUM,
                        .memory = GPU,
                        .parts = &part,
                        .part_count = 1};
    struct backend_group *g = NULL;
    struct error error = {0};
    struct backend *b = open_rows(three);
    (void)state;
    device.open_status = HVD_ERR_UNSUPPORTED;
    assert_int_equal(b->ops->group_open(b, &group, &g, &error), HVD_OK);
    assert_string_equal(winner(b, g, &coll), "");
    coll.memory = 0;
    assert_string_equal(winner(b, g, &coll), "plain");
    b->ops->reset(b, g, 1);
    b->ops->group_close(b, g);
    assert_int_equal(device.resets + device.closes, 0);
    assert_int_equal(plain.closes, 1);
    bulk.open_status = HVD_ERR_LINK;
    assert_int_equal(b->ops->group_open(b, &group, &g, &error), HVD_ERR_LINK);
    assert_non_null(strstr(error.text, "no group for bulk"));
    assert_int_equal(plain.closes, 2);
    b->ops->destroy(b);
}

/* Equal scores: the same one, whatever the order of the table. */
static void test_equal_scores(void **state)
{
    struct backend *one[] = {&plain.base, &bulk.base}, *other[] = {&bulk.base, &plain.base};
    static const struct backend_ops a_ops = OPS("a", plain_score, NULL);
    static const struct backend_ops b_ops = OPS("b", plain_score, NULL);
    struct backend_ask ask = {.kind = HVD_ALLREDUCE};
    (void)state;
    plain.base.ops = &b_ops;
    bulk.base.ops = &a_ops;
    assert_ptr_equal(one[backends_choose(one, NULL, 2, &group, &ask)], &bulk.base);
    assert_ptr_equal(other[backends_choose(other, NULL, 2, &group, &ask)], &bulk.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),      cmocka_unit_test(test_ask_is_equal_on_all),
        cmocka_unit_test(test_probe_fails), cmocka_unit_test(test_create_fails),
        cmocka_unit_test(test_groups),      cmocka_unit_test(test_equal_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
