/* SPDX-License-Identifier: Apache-2.0 */
/* test_streams.c - which bulk streams have ended, and which have not begun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/streams.h"

static uint64_t at(uint64_t life, uint64_t turn, uint64_t sequence)
{
    return stream_number(life << 48 | turn << 32, sequence, 3);
}

static uint64_t base(uint64_t life, uint64_t turn)
{
    return life << 48 | turn << 32;
}

static void test_numbers_differ(void **state)
{
    (void)state;
    assert_true(at(1, 2, 3) != at(1, 2, 4));
    assert_true(at(1, 2, 3) != at(1, 3, 3));
    assert_true(at(1, 2, 3) != at(2, 2, 3));
    assert_true(stream_number(0, 5, 0) != stream_number(0, 5, 31));
    /* a sequence that wraps stays inside of its turn */
    assert_true(stream_number(base(1, 2), (1ull << STREAM_SEQUENCE_BITS) + 7, 0) ==
                stream_number(base(1, 2), 7, 0));
}

static void test_before_anything(void **state)
{
    (void)state;
    struct streams s = {0};
    assert_false(streams_is_over(&s, 0));
    assert_false(streams_is_over(&s, at(9, 9, 9)));
    assert_int_equal(streams_slot(&s, at(9, 9, 9)), -1);
}

static void test_lives(void **state)
{
    (void)state;
    struct streams s = {0};
    streams_open(&s, 0, base(1, 0));
    streams_open(&s, 7, base(4, 0)); /* lives 2 and 3 are of others */
    assert_int_equal(streams_slot(&s, at(4, 0, 1)), 7);
    assert_false(streams_is_over(&s, at(1, 0, 1)));
    assert_true(streams_is_over(&s, at(3, 0, 1)));
    assert_false(streams_is_over(&s, at(5, 0, 1))); /* we shall hear of it */
    streams_close(&s, base(4, 0));
    streams_close(&s, base(4, 0));
    assert_true(streams_is_over(&s, at(4, 0, 1)));
    assert_true(streams_is_over(&s, at(4, 60000, 1)));
    assert_false(streams_is_over(&s, at(5, 0, 1)));
    assert_false(streams_is_over(&s, at(1, 0, 1)));
    streams_open(&s, 7, base(5, 0));
    assert_true(streams_is_over(&s, at(4, 0, 1)));
    assert_false(streams_is_over(&s, at(5, 0, 1)));
}

static void test_turns(void **state)
{
    (void)state;
    struct streams s = {0};
    streams_open(&s, 0, base(1, 0));
    streams_open(&s, 1, base(2, 0));
    streams_open(&s, 0, base(1, 5)); /* goes on, below the newest life */
    assert_int_equal(s.count, 2);
    assert_true(streams_is_over(&s, at(1, 4, 100)));
    assert_false(streams_is_over(&s, at(1, 5, 0)));
    assert_false(streams_is_over(&s, at(1, 6, 0))); /* a peer is ahead */
    assert_false(streams_is_over(&s, at(2, 0, 0)));
}

static void test_numbers_wrap(void **state)
{
    (void)state;
    struct streams s = {0};
    streams_open(&s, 0, base(1, 0));
    for (uint64_t turn = 0; turn < 200000; turn += 7) {
        streams_open(&s, 0, base(1, turn & 0xffff));
        assert_false(streams_is_over(&s, at(1, turn & 0xffff, 0)));
        assert_false(streams_is_over(&s, at(1, (turn + 1) & 0xffff, 0)));
        if (turn > 0)
            assert_true(streams_is_over(&s, at(1, (turn - 1) & 0xffff, 1000)));
    }
    for (uint64_t life = 2; life < 200000; life++) {
        uint64_t number = life & 0xffff;
        if (number == 1)
            continue; /* is open */
        streams_open(&s, 1, base(number, 0));
        assert_false(streams_is_over(&s, at(number, 0, 0)));
        assert_true(number == 2 || streams_is_over(&s, at((number - 1) & 0xffff, 0, 0)));
        streams_close(&s, base(number, 0));
        assert_true(streams_is_over(&s, at(number, 0, 0)));
        assert_int_equal(s.count, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_differ), cmocka_unit_test(test_before_anything),
        cmocka_unit_test(test_lives),          cmocka_unit_test(test_turns),
        cmocka_unit_test(test_numbers_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
