/* SPDX-License-Identifier: Apache-2.0 */
/* test_map.c - the hash table against a plain array, its memory, and its hash. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/map.h"

#define KEYS 3000

static char keys[KEYS][24];
static int values[KEYS];

static int make_keys(void **state)
{
    (void)state;
    for (int i = 0; i < KEYS; i++)
        (void)snprintf(keys[i], sizeof keys[i], "grad.%d", i);
    return 0;
}

static void *get(const struct map *map, int i)
{
    return map_get(map, keys[i], strlen(keys[i]));
}

static int put(struct map *map, int i)
{
    return map_put(map, keys[i], strlen(keys[i]), &values[i]);
}

static void put_get_remove(void **state)
{
    (void)state;
    struct map map;
    map_init(&map, os_host());
    assert_null(get(&map, 0));
    assert_null(map_remove(&map, "x", 1));
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(put(&map, i), 0);
    assert_int_equal(map.count, KEYS);
    for (int i = 0; i < KEYS; i += 2)
        assert_ptr_equal(map_remove(&map, keys[i], strlen(keys[i])), &values[i]);
    for (int i = 0; i < KEYS; i++)
        assert_ptr_equal(get(&map, i), i % 2 == 0 ? NULL : &values[i]);
    assert_int_equal(map.count, KEYS / 2);
    map_destroy(&map);
    map_destroy(&map);
    assert_int_equal(map.count, 0);
}

static void put_replaces(void **state)
{
    (void)state;
    struct map map;
    map_init(&map, os_host());
    assert_int_equal(map_put(&map, "a", 1, &values[0]), 0);
    assert_int_equal(map_put(&map, "a", 1, &values[1]), 0);
    assert_int_equal(map.count, 1);
    assert_ptr_equal(map_get(&map, "a", 1), &values[1]);
    map_destroy(&map);
}

static void keys_are_bytes(void **state)
{
    (void)state;
    struct map map;
    map_init(&map, os_host());
    assert_int_equal(map_put(&map, "a\0b", 3, &values[0]), 0);
    assert_int_equal(map_put(&map, "a\0c", 3, &values[1]), 0);
    assert_int_equal(map_put(&map, "a", 1, &values[2]), 0);
    assert_int_equal(map_put(&map, NULL, 0, &values[3]), 0);
    assert_ptr_equal(map_get(&map, "a\0b", 3), &values[0]);
    assert_ptr_equal(map_get(&map, "a\0c", 3), &values[1]);
    assert_ptr_equal(map_get(&map, "a", 1), &values[2]);
    assert_ptr_equal(map_get(&map, "", 0), &values[3]);
    assert_null(map_get(&map, "a\0", 2));
    map_destroy(&map);
}

/* Random puts and removes, compared with an array after every step. */
static void same_as_array(void **state)
{
    (void)state;
    enum { SOME = 60 };
    bool is_in[SOME] = {false};
    struct map map;
    map_init(&map, os_host());
    uint32_t seed = 12345;
    for (int step = 0; step < 20000; step++) {
        seed = seed * 1664525u + 1013904223u;
        int i = (int)((seed >> 16) % SOME);
        if ((seed >> 8 & 1) != 0)
            assert_int_equal(put(&map, i), 0);
        else
            assert_ptr_equal(map_remove(&map, keys[i], strlen(keys[i])),
                             is_in[i] ? &values[i] : NULL);
        is_in[i] = (seed >> 8 & 1) != 0;
        for (int j = 0; j < SOME; j++)
            assert_ptr_equal(get(&map, j), is_in[j] ? &values[j] : NULL);
    }
    assert_true(map.capacity <= 128); /* removing leaves nothing behind that makes it grow */
    map_destroy(&map);
}

static void walk_sees_each_once(void **state)
{
    (void)state;
    static int seen[KEYS];
    memset(seen, 0, sizeof seen);
    struct map map;
    map_init(&map, os_host());
    size_t cursor = 0;
    assert_null(map_next(&map, &cursor));
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(put(&map, i), 0);
    cursor = 0;
    for (int *value; (value = map_next(&map, &cursor)) != NULL;)
        seen[value - values]++;
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(seen[i], 1);
    map_destroy(&map);
}

static void steady_state_allocates_nothing(void **state)
{
    (void)state;
    struct map map;
    map_init(&map, os_host());
    for (int i = 0; i < 100; i++)
        assert_int_equal(put(&map, i), 0);
    uint64_t live, before, after;
    os_host_alloc_counts(&live, &before);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 100; i++)
            assert_non_null(map_remove(&map, keys[i], strlen(keys[i])));
        for (int i = 0; i < 100; i++)
            assert_int_equal(put(&map, i), 0);
    }
    os_host_alloc_counts(&live, &after);
    assert_true(before == after);
    map_destroy(&map);
}

static void no_memory_keeps_what_is_there(void **state)
{
    (void)state;
    struct fault_os *fault = fault_os_create(os_host(), 2); /* the first growth past the start */
    assert_non_null(fault);
    struct map map;
    map_init(&map, fault_os_table(fault));
    int count = 0, rc = 0;
    while (count < KEYS && (rc = put(&map, count)) == 0)
        count++;
    assert_int_equal(rc, -ENOMEM);
    assert_true(count > 0);
    for (int i = 0; i < count; i++)
        assert_ptr_equal(get(&map, i), &values[i]);
    assert_null(get(&map, count));
    assert_int_equal(put(&map, count), 0); /* the failure was not lasting */
    assert_ptr_equal(get(&map, count), &values[count]);
    map_destroy(&map);
    fault_os_destroy(fault);
}

static void hash_spreads(void **state)
{
    (void)state;
    assert_true(hash_bytes("", 0) == hash_bytes(NULL, 0));
    assert_true(hash_bytes("a", 1) != hash_bytes("a\0", 2));
    int buckets[64] = {0};
    for (int i = 0; i < KEYS; i++)
        buckets[hash_bytes(keys[i], strlen(keys[i])) % 64]++;
    for (int i = 0; i < 64; i++)
        assert_in_range(buckets[i], KEYS / 64 / 2, KEYS / 64 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_get_remove),
        cmocka_unit_test(put_replaces),
        cmocka_unit_test(keys_are_bytes),
        cmocka_unit_test(same_as_array),
        cmocka_unit_test(walk_sees_each_once),
        cmocka_unit_test(steady_state_allocates_nothing),
        cmocka_unit_test(no_memory_keeps_what_is_there),
        cmocka_unit_test(hash_spreads),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
