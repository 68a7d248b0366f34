/* SPDX-License-Identifier: Apache-2.0 */
/* memory_conformance.h - what every kind of memory must do (memory/memory.h). A test of a kind
 * opens it and calls memory_conformance(). */
#ifndef HVD_TESTS_MEMORY_CONFORMANCE_H
#define HVD_TESTS_MEMORY_CONFORMANCE_H

#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/memory.h"

#define CONFORM_LOOKS 1000000 /* a copy that takes more has not ended at all */

struct memory_subject {
    struct memory_kind *m;
    void (*pass)(void *ctx); /* time goes on; NULL: by itself */
    void *ctx;
};

static hvd_status_t conform_wait(const struct memory_subject *s, struct memory_mark *mark)
{
    struct error error = {0};
    hvd_status_t status = HVD_IN_PROGRESS;
    for (int i = 0; i < CONFORM_LOOKS && status == HVD_IN_PROGRESS; i++) {
        status = s->m->ops->reached(s->m, mark, &error);
        if (status == HVD_IN_PROGRESS && s->pass != NULL)
            s->pass(s->ctx);
    }
    return status;
}

static void conform_row(const struct memory_subject *s)
{
    const struct memory_ops *ops = s->m->ops;
    struct error error = {0};
    assert_int_equal(ops->version, MEMORY_VERSION);
    assert_true(ops->name != NULL && ops->name[0] != '\0');
    assert_true(ops->kind >= 0 && ops->kind <= UINT8_MAX); /* it travels in one byte */
    assert_true(ops->probe != NULL && ops->open != NULL && ops->close != NULL);
    assert_true(ops->alloc != NULL && ops->free != NULL && ops->record != NULL);
    assert_true(ops->copy != NULL && ops->reached != NULL && ops->release != NULL);
    assert_int_equal(ops->probe(s->m->os, &error), HVD_OK);
    assert_true(ops->device_count(s->m) >= 1);
    ops->free(s->m, 0, NULL);
    assert_true(ops->release(s->m, NULL));
}

static void conform_fill(uint8_t *bytes, size_t n, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * 31 + salt);
}

/* Bytes of any length and alignment come back as they went. */
static void conform_round_trip(const struct memory_subject *s, int32_t device)
{
    static const size_t sizes[] = {1, 7, 64, 4096, 4097, 100000};
    enum { MOST = 100000 };
    static uint8_t in[MOST], out[MOST];
    const struct memory_ops *ops = s->m->ops;
    struct error error = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct memory_mark *mark = NULL;
        uint8_t *far = ops->alloc(s->m, device, sizes[i] + 3);
        assert_non_null(far);
        conform_fill(in, sizes[i], (unsigned)i);
        memset(out, 0, sizeof out);
        struct memory_copy there = {.to = far + 3, .from = in, .bytes = sizes[i]};
        struct memory_copy back = {.to = out, .from = far + 3, .bytes = sizes[i]};
        assert_int_equal(ops->copy(s->m, device, MEMORY_FROM_HOST, &there, 1, &mark, &error),
                         HVD_OK);
        assert_int_equal(conform_wait(s, mark), HVD_OK);
        assert_int_equal(conform_wait(s, mark), HVD_OK); /* and it stays so */
        assert_true(ops->release(s->m, mark));
        assert_int_equal(ops->copy(s->m, device, MEMORY_TO_HOST, &back, 1, &mark, &error), HVD_OK);
        assert_int_equal(conform_wait(s, mark), HVD_OK);
        assert_true(ops->release(s->m, mark));
        assert_memory_equal(in, out, sizes[i]);
        ops->free(s->m, device, far);
    }
}

/* Many pieces in one call, several calls under way, each after a place in a stream. */
static void conform_many(const struct memory_subject *s)
{
    enum { CALLS = 5, PIECES = 16, BYTES = 96 };
    static uint8_t in[CALLS][PIECES][BYTES], out[CALLS][PIECES][BYTES];
    const struct memory_ops *ops = s->m->ops;
    struct error error = {0};
    struct memory_mark *marks[CALLS], *place = NULL;
    uint8_t *far = ops->alloc(s->m, 0, sizeof in);
    assert_non_null(far);
    assert_int_equal(ops->record(s->m, 0, NULL, &place, &error), HVD_OK);
    conform_fill(&in[0][0][0], sizeof in, 5);
    for (int direction = 0; direction < 2; direction++) {
        bool is_there = direction == 0;
        for (int c = 0; c < CALLS; c++) {
            struct memory_copy pieces[PIECES];
            for (int i = 0; i < PIECES; i++) {
                uint8_t *at = far + (size_t)(c * PIECES + i) * BYTES;
                pieces[i] = (struct memory_copy){.to = is_there ? at : out[c][i],
                                                 .from = is_there ? in[c][i] : at,
                                                 .bytes = BYTES,
                                                 .after = place};
            }
            assert_int_equal(ops->copy(s->m, 0, is_there ? MEMORY_FROM_HOST : MEMORY_TO_HOST,
                                       pieces, PIECES, &marks[c], &error),
                             HVD_OK);
            memset(pieces, 0, sizeof pieces); /* read during the call only */
        }
        for (int c = CALLS - 1; c >= 0; c--) {
            assert_int_equal(conform_wait(s, marks[c]), HVD_OK);
            assert_true(ops->release(s->m, marks[c]));
        }
    }
    assert_int_equal(conform_wait(s, place), HVD_OK);
    assert_true(ops->release(s->m, place));
    assert_memory_equal(in, out, sizeof in);
    ops->free(s->m, 0, far);
}

/* A mark may be forgotten before it is reached; if that stops nothing, memory must stay. */
static void conform_forgotten(const struct memory_subject *s)
{
    const struct memory_ops *ops = s->m->ops;
    struct error error = {0};
    struct memory_mark *mark = NULL;
    static uint8_t in[512];
    void *far = ops->alloc(s->m, 0, sizeof in);
    assert_non_null(far);
    struct memory_copy there = {.to = far, .from = in, .bytes = sizeof in};
    assert_int_equal(ops->copy(s->m, 0, MEMORY_FROM_HOST, &there, 1, &mark, &error), HVD_OK);
    if (ops->release(s->m, mark))
        ops->free(s->m, 0, far);
}

static void memory_conformance(const struct memory_subject *s)
{
    conform_row(s);
    for (int32_t device = 0; device < s->m->ops->device_count(s->m); device++)
        conform_round_trip(s, device);
    conform_many(s);
    conform_forgotten(s);
}

#endif
