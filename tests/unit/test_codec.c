/* SPDX-License-Identifier: Apache-2.0 */
/* test_codec.c - round trips, byte order, and every way to run out of room or bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/codec.h"

static void put_all(struct writer *w)
{
    put_u8(w, 0xab);
    put_u16(w, 0x1234);
    put_u32(w, 0xdeadbeef);
    put_u64(w, 0x0102030405060708u);
    put_i64(w, INT64_MIN);
    put_f64(w, -0.5);
    put_bytes(w, "raw", 3);
    put_blob(w, "bl\0b", 4);
    put_text(w, "text");
    put_text(w, "");
}

static void round_trip(void **state)
{
    (void)state;
    uint8_t bytes[128];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_all(&w);
    assert_false(w.bad);

    struct reader r;
    reader_init(&r, bytes, w.used);
    assert_int_equal(get_u8(&r), 0xab);
    assert_int_equal(get_u16(&r), 0x1234);
    assert_int_equal(get_u32(&r), 0xdeadbeef);
    assert_true(get_u64(&r) == 0x0102030405060708u);
    assert_true(get_i64(&r) == INT64_MIN);
    assert_true(get_f64(&r) == -0.5);
    char raw[3];
    get_bytes(&r, raw, sizeof raw);
    assert_memory_equal(raw, "raw", 3);
    size_t n = 0;
    const void *blob = get_blob(&r, 4, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(blob, "bl\0b", 4);
    char text[5];
    get_text(&r, text, sizeof text);
    assert_string_equal(text, "text");
    assert_false(reader_done(&r));
    get_text(&r, text, 1);
    assert_string_equal(text, "");
    assert_true(reader_done(&r));
}

static void byte_order_is_little(void **state)
{
    (void)state;
    uint8_t bytes[14];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_u16(&w, 0x0201);
    put_u32(&w, 0x06050403);
    put_u64(&w, 0x0e0d0c0b0a090807u);
    for (uint8_t i = 0; i < 14; i++)
        assert_int_equal(bytes[i], i + 1);
}

static void special_floats_survive(void **state)
{
    (void)state;
    uint8_t bytes[16];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_f64(&w, (double)NAN);
    put_f64(&w, (double)-INFINITY);
    struct reader r;
    reader_init(&r, bytes, w.used);
    assert_true(isnan(get_f64(&r)));
    double v = get_f64(&r);
    assert_true(isinf(v) && v < 0);
}

/* Whatever the room, a writer never writes past it, and knows when something did not fit. */
static void every_capacity(void **state)
{
    (void)state;
    uint8_t whole[128];
    struct writer w;
    writer_init(&w, whole, sizeof whole);
    put_all(&w);
    size_t needed = w.used;
    for (size_t capacity = 0; capacity <= needed; capacity++) {
        uint8_t bytes[128];
        memset(bytes, 0x5a, sizeof bytes);
        writer_init(&w, bytes, capacity);
        put_all(&w);
        assert_int_equal(w.bad, capacity < needed);
        assert_true(w.used <= capacity);
        assert_memory_equal(bytes, whole, w.used);
        for (size_t i = capacity; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], 0x5a);
    }
}

static void writer_stays_bad(void **state)
{
    (void)state;
    uint8_t bytes[4];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_u64(&w, 1);
    assert_true(w.bad);
    put_u8(&w, 1);
    put_blob(&w, NULL, 0);
    assert_true(w.bad);
    assert_int_equal(w.used, 0);
}

static void reader_stays_bad_and_gives_zeros(void **state)
{
    (void)state;
    static const uint8_t bytes[3] = {1, 2, 3};
    struct reader r;
    reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(get_u32(&r), 0);
    assert_true(r.bad);
    assert_int_equal(get_u8(&r), 0);
    uint8_t out[2] = {9, 9};
    get_bytes(&r, out, 2);
    assert_int_equal(out[0] + out[1], 0);
    char text[4] = "abc";
    get_text(&r, text, sizeof text);
    assert_string_equal(text, "");
    size_t n = 7;
    assert_null(get_blob(&r, 100, &n));
    assert_int_equal(n, 0);
    assert_false(reader_done(&r));
}

static void blob_limits(void **state)
{
    (void)state;
    uint8_t bytes[16];
    struct writer w;
    struct reader r;
    size_t n = 7;
    writer_init(&w, bytes, sizeof bytes);
    put_blob(&w, "abcd", 4);
    reader_init(&r, bytes, w.used);
    assert_null(get_blob(&r, 3, &n)); /* longer than the caller allows */
    assert_true(r.bad);
    assert_int_equal(n, 0);

    writer_init(&w, bytes, sizeof bytes);
    put_u32(&w, UINT32_MAX); /* longer than the message */
    reader_init(&r, bytes, w.used);
    assert_null(get_blob(&r, SIZE_MAX, &n));
    assert_true(r.bad);

    writer_init(&w, bytes, sizeof bytes);
    put_blob(&w, NULL, 0);
    reader_init(&r, bytes, w.used);
    assert_non_null(get_blob(&r, 0, &n));
    assert_true(reader_done(&r));
}

static void text_limits(void **state)
{
    (void)state;
    uint8_t bytes[16];
    char text[8];
    struct writer w;
    struct reader r;
    writer_init(&w, bytes, sizeof bytes);
    put_text(&w, "abcd");
    reader_init(&r, bytes, w.used);
    get_text(&r, text, 4); /* no room for the NUL */
    assert_true(r.bad);
    assert_string_equal(text, "");

    reader_init(&r, bytes, w.used);
    get_text(&r, NULL, 0);
    assert_true(r.bad);

    writer_init(&w, bytes, sizeof bytes);
    put_blob(&w, "a\0b", 3);
    reader_init(&r, bytes, w.used);
    get_text(&r, text, sizeof text);
    assert_true(r.bad);
    assert_string_equal(text, "");
}

static void empty_message(void **state)
{
    (void)state;
    struct reader r;
    reader_init(&r, NULL, 0);
    assert_true(reader_done(&r));
    get_bytes(&r, NULL, 0);
    assert_true(reader_done(&r));
    (void)get_u8(&r);
    assert_true(r.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(byte_order_is_little),
        cmocka_unit_test(special_floats_survive),
        cmocka_unit_test(every_capacity),
        cmocka_unit_test(writer_stays_bad),
        cmocka_unit_test(reader_stays_bad_and_gives_zeros),
        cmocka_unit_test(blob_limits),
        cmocka_unit_test(text_limits),
        cmocka_unit_test(empty_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
