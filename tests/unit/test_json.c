/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - the JSON writer: always valid, whatever the input and however small the buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "json.h"

static void write_some(struct json *json)
{
    if (!json_open(json, NULL, true))
        return;
    json_text(json, "a", "plain");
    json_int(json, "b", INT64_MIN);
    json_uint(json, "c", UINT64_MAX);
    if (json_open(json, "d", false)) {
        for (int i = 0; i < 3; i++) {
            struct json_mark mark = json_try(json);
            if (json_open(json, NULL, true)) {
                json_seconds(json, "x", 1500000000LL * i);
                json_bool(json, "y", i == 1);
                json_close(json);
            }
            json_tried(json, &mark);
        }
        json_close(json);
    }
    json_text(json, "e", "\"\\\n\t\x01\x7f");
    json_close(json);
}

static void test_whole(void **state)
{
    (void)state;
    char text[512];
    struct json json;
    json_init(&json, text, sizeof text);
    write_some(&json);
    assert_false(json.is_cut);
    assert_int_equal(json.used, strlen(text));
    assert_string_equal(text, "{\"a\":\"plain\",\"b\":-9223372036854775808,"
                              "\"c\":18446744073709551615,\"d\":[{\"x\":0.000000,\"y\":false},"
                              "{\"x\":1.500000,\"y\":true},{\"x\":3.000000,\"y\":false}],"
                              "\"e\":\"\\\"\\\\\\u000a\\u0009\\u0001\x7f\"}");
}

/* At every size the text is valid and inside of its buffer; what is cut is said. */
static void test_every_size(void **state)
{
    (void)state;
    for (size_t size = 1; size < 300; size++) {
        char *text = malloc(size); /* of its own, so that the sanitizer sees its end */
        struct json json;
        json_init(&json, text, size);
        write_some(&json);
        assert_true(json.used < size && text[json.used] == '\0');
        if (size >= 3)
            assert_true(json_is_valid(text));
        else
            assert_string_equal(text, "");
        if (strstr(text, "\"e\"") == NULL)
            assert_true(json.is_cut);
        free(text);
    }
}

/* An item is there wholly or not at all. */
static void test_try(void **state)
{
    (void)state;
    char text[64];
    struct json json;
    json_init(&json, text, 24);
    assert_true(json_open(&json, NULL, false));
    struct json_mark mark = json_try(&json);
    json_text(&json, NULL, "fits");
    assert_true(json_tried(&json, &mark));
    mark = json_try(&json);
    json_text(&json, NULL, "too");
    json_text(&json, NULL, "much for it");
    assert_false(json_tried(&json, &mark));
    json_close(&json);
    assert_string_equal(text, "[\"fits\"]");
    assert_false(json.is_cut); /* whoever tries counts what he leaves out */
}

static void test_limit(void **state)
{
    (void)state;
    char text[64];
    struct json json;
    json_init(&json, text, sizeof text);
    json_open(&json, NULL, false);
    size_t limit = json_limit(&json, 8);
    json_int(&json, NULL, 1234);
    json_int(&json, NULL, 5678);
    assert_true(json.is_cut);
    json_unlimit(&json, limit);
    json_int(&json, NULL, 9);
    json_close(&json);
    assert_string_equal(text, "[1234,9]");
}

/* Any bytes become a valid string: quotes, newlines, what is no UTF-8, a character cut in two. */
static void test_any_bytes(void **state)
{
    (void)state;
    char text[4096], bytes[256];
    struct json json;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        size_t n = (size_t)(rand() % 250);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(1 + rand() % 255);
        bytes[n] = '\0';
        json_init(&json, text, sizeof text);
        json_open(&json, NULL, true);
        json_text_part(&json, "k", bytes, (size_t)(rand() % 260));
        json_close(&json);
        assert_true(json_is_valid(text));
    }
    json_init(&json, text, sizeof text);
    json_open(&json, NULL, false);
    json_text(&json, NULL, "\xc3\xa4\xff\xed\xa0\x80");
    json_text_part(&json, NULL, "x\xc3\xa4", 2);
    json_close(&json);
    assert_string_equal(text, "[\"\xc3\xa4\\ufffd\\ufffd\\ufffd\\ufffd\",\"x\"]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole), cmocka_unit_test(test_every_size), cmocka_unit_test(test_try),
        cmocka_unit_test(test_limit), cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
