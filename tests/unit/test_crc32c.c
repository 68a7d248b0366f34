/* SPDX-License-Identifier: Apache-2.0 */
/* test_crc32c.c - published vectors, and the fast path against the table and a bit-wise reference.
 * Vectors: RFC 3720 B.4 and the usual check value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"

#define BYTES 20000

static uint8_t bytes[BYTES + 16];

static int make_bytes(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (size_t i = 0; i < sizeof bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
    return 0;
}

static uint32_t crc_bitwise(uint32_t crc, const uint8_t *at, size_t n)
{
    uint32_t s = ~crc;
    for (size_t i = 0; i < n; i++) {
        s ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            s = s >> 1 ^ (s & 1 ? 0x82f63b78u : 0);
    }
    return ~s;
}

static void vectors(void **state)
{
    (void)state;
    uint8_t block[32];
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c_portable(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, NULL, 0), 0);
    memset(block, 0, 32);
    assert_int_equal(crc32c(0, block, 32), 0x8a9136aa);
    memset(block, 0xff, 32);
    assert_int_equal(crc32c(0, block, 32), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++)
        block[i] = i;
    assert_int_equal(crc32c(0, block, 32), 0x46dd794e);
    for (uint8_t i = 0; i < 32; i++)
        block[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(0, block, 32), 0x113fdb5c);
}

static void table_is_right(void **state)
{
    (void)state;
    for (size_t n = 0; n < 70; n++)
        assert_int_equal(crc32c_portable(0, bytes, n), crc_bitwise(0, bytes, n));
    assert_int_equal(crc32c_portable(5, bytes, BYTES), crc_bitwise(5, bytes, BYTES));
    for (int value = 0; value < 256; value++) { /* each table entry at each position of a word */
        for (int at = 0; at < 8; at++) {
            uint8_t word[8] = {0};
            word[at] = (uint8_t)value;
            assert_int_equal(crc32c_portable(0, word, 8), crc_bitwise(0, word, 8));
        }
    }
}

/* Lengths around every block size of the quick way, at every alignment. */
static void quick_is_the_same(void **state)
{
    (void)state;
    static const size_t around[] = {0, 8, 64, 384, 768, 3072, 3456, 6144, 9216};
    for (size_t k = 0; k < sizeof around / sizeof around[0]; k++) {
        for (size_t n = around[k] > 9 ? around[k] - 9 : 0; n < around[k] + 10; n++) {
            for (size_t shift = 0; shift < 8; shift++)
                assert_int_equal(crc32c(99, bytes + shift, n),
                                 crc32c_portable(99, bytes + shift, n));
        }
    }
    assert_int_equal(crc32c(0, bytes, BYTES), crc32c_portable(0, bytes, BYTES));
}

static void goes_on_from_the_last_value(void **state)
{
    (void)state;
    uint32_t whole = crc32c(0, bytes, BYTES);
    for (size_t cut = 0; cut <= BYTES; cut += 777)
        assert_int_equal(crc32c(crc32c(0, bytes, cut), bytes + cut, BYTES - cut), whole);
}

static void copy_copies_and_sums(void **state)
{
    (void)state;
    static uint8_t out[BYTES + 16];
    for (size_t n = 0; n <= BYTES; n += n < 800 ? 1 : 611) {
        memset(out, 0x5a, sizeof out);
        assert_int_equal(crc32c_copy(3, out + 1, bytes + 5, n), crc32c_portable(3, bytes + 5, n));
        assert_memory_equal(out + 1, bytes + 5, n);
        assert_int_equal(out[0], 0x5a);
        assert_int_equal(out[n + 1], 0x5a);
    }
    assert_int_equal(crc32c_copy(3, NULL, NULL, 0), 3);
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint32_t whole = crc32c(0, bytes, 4000);
    for (size_t bit = 0; bit < 4000 * 8; bit += 61) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(crc32c(0, bytes, 4000), whole);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(table_is_right),
        cmocka_unit_test(quick_is_the_same),
        cmocka_unit_test(goes_on_from_the_last_value),
        cmocka_unit_test(copy_copies_and_sums),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, make_bytes, NULL);
}
