/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_message.c - control messages: what is written is read back, what is out of bounds is
 * rejected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/message.h"

static struct request sample(void)
{
    struct request q = {.name = "grad.1",
                        .name_bytes = 6,
                        .kind = HVD_ALLREDUCE,
                        .dtype = HVD_FLOAT32,
                        .reduce = HVD_SUM,
                        .rank = 2,
                        .device = HVD_DEVICE_CPU,
                        .wire = HVD_WIRE_BFLOAT16,
                        .group = 77,
                        .prescale = 0.5,
                        .postscale = 2.0,
                        .ndim = 2,
                        .shape = {3, 4}};
    return q;
}

static size_t encode(const struct request *q, uint8_t *bytes, size_t n)
{
    struct writer w;
    writer_init(&w, bytes, n);
    message_request_put(&w, q);
    assert_false(w.bad);
    return w.used;
}

static bool decode(const uint8_t *bytes, size_t n, struct request *ret)
{
    struct reader r;
    reader_init(&r, bytes, n);
    return message_request_get(&r, 4, ret) && reader_done(&r);
}

static void test_round_trip(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct request q = sample(), got;
    size_t n = encode(&q, bytes, sizeof bytes);
    assert_true(decode(bytes, n, &got));
    assert_int_equal(got.name_bytes, 6);
    assert_memory_equal(got.name, "grad.1", 6);
    assert_int_equal(got.rank, 2);
    assert_int_equal(got.wire, HVD_WIRE_BFLOAT16);
    assert_int_equal(got.group, 77);
    assert_true(got.prescale == 0.5 && got.postscale == 2.0);
    assert_int_equal(got.ndim, 2);
    assert_int_equal(got.shape[1], 4);
    for (size_t cut = 0; cut < n; cut++)
        assert_false(decode(bytes, cut, &got));
}

static void test_refused(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct request got;
    struct request bad[12];
    for (int i = 0; i < 12; i++)
        bad[i] = sample();
    bad[0].rank = 4;
    bad[1].rank = -1;
    bad[2].kind = HVD_KIND_COUNT;
    bad[3].dtype = HVD_DTYPE_COUNT;
    bad[4].reduce = HVD_REDUCE_COUNT;
    bad[5].shape[0] = -1;
    bad[6].shape[0] = bad[6].shape[1] = INT64_C(1) << 40;
    bad[7].kind = HVD_BROADCAST;
    bad[7].root = 4;
    bad[8].wire = HVD_WIRE_COUNT;
    bad[9].dtype = HVD_FLOAT64;
    bad[10].reduce = HVD_MAX;
    bad[11].kind = HVD_REDUCESCATTER;
    for (int i = 0; i < 12; i++)
        assert_false(decode(bytes, encode(&bad[i], bytes, sizeof bytes), &got));
    struct request nameless = sample();
    nameless.name_bytes = 0;
    assert_false(decode(bytes, encode(&nameless, bytes, sizeof bytes), &got));
}

static void test_head(void **state)
{
    (void)state;
    uint8_t bytes[16];
    struct writer w;
    struct reader r;
    struct message_head head = {.type = MESSAGE_READY,
                                .flags = 1,
                                .set = 3,
                                .incarnation = 9,
                                .generation = 11},
                        got;
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    reader_init(&r, bytes, w.used);
    assert_true(message_head_get(&r, &got));
    assert_int_equal(got.generation, 11);
    bytes[0] = 0;
    reader_init(&r, bytes, w.used);
    assert_false(message_head_get(&r, &got));
    bytes[0] = MESSAGE_READY;
    bytes[3] = 0xff; /* a set number beyond the table */
    reader_init(&r, bytes, w.used);
    assert_false(message_head_get(&r, &got));
}

static void test_shapes(void **state)
{
    (void)state;
    int64_t count;
    char text[32];
    assert_true(shape_elements(0, NULL, &count) && count == 1);
    assert_true(shape_elements(2, (int64_t[]){0, 5}, &count) && count == 0);
    assert_false(shape_elements(HVD_DIMS_MAX + 1, NULL, &count));
    shape_format(0, NULL, text, sizeof text);
    assert_string_equal(text, "[]");
    shape_format(2, (int64_t[]){2, 3}, text, sizeof text);
    assert_string_equal(text, "[2, 3]");
    shape_format(2, (int64_t[]){1234567, 3}, text, 8);
    assert_int_equal(strlen(text), 7);
    assert_string_equal(kind_name(HVD_ALLREDUCE, HVD_ADASUM), "ADASUM");
    assert_string_equal(kind_negotiate_name(HVD_ALLGATHER, 0), "NEGOTIATE_ALLGATHER");
}

/* One table: every kind has all of its names, and what goes into a message names no other kind. */
static void test_kinds(void **state)
{
    (void)state;
    for (uint8_t kind = 0; kind < HVD_KIND_COUNT; kind++) {
        assert_non_null(kind_title(kind));
        assert_int_equal(strlen(kind_prefix(kind)), strlen(kind_title(kind)));
        assert_string_equal(kind_title(kind) + 1, kind_prefix(kind) + 1);
        assert_int_equal(strlen(kind_name(kind, HVD_SUM)), strlen(kind_title(kind)));
        assert_string_equal(kind_negotiate_name(kind, HVD_SUM) + strlen("NEGOTIATE_"),
                            kind_name(kind, HVD_SUM));
    }
    assert_string_equal(kind_name(KIND_SET_ADD, 0), "PROCESS_SET");
    assert_string_equal(kind_name(KIND_SET_CLOSE, 0), "PROCESS_SET");
    assert_false(kind_is_set_change(HVD_ALLREDUCE));
    assert_string_equal(kind_name(255, 0), "UNKNOWN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_head),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
