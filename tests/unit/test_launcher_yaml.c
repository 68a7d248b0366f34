/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_yaml.c - what the config file parser accepts, and what it rejects with which line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../launcher/mem.c"
#include "../../launcher/yaml.c"

#include "launcher_mem.h"

/* "section.key=value;" for each scalar. */
static const char *shown(const struct yaml *yaml)
{
    char *text = mem_copy(&mem, "");
    for (size_t i = 0; i < yaml->count; i++) {
        const struct yaml_entry *e = &yaml->entries[i];
        if (!e->is_section)
            text = mem_format(&mem, "%s%s%s%s=%s;", text, e->section == NULL ? "" : e->section,
                              e->section == NULL ? "" : ".", e->key,
                              e->value == NULL ? "(null)" : e->value);
    }
    return text;
}

static void test_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", ""},
        {"# only a comment\n\n   \n", ""},
        {"a: 1\n", "a=1;"},
        {"a: 1", "a=1;"},
        {"a:\n  b: 1\n  c: x y # z\nd: 2\n", "a.b=1;a.c=x y;d=2;"},
        {"a:\r\n    b: 1\r\n", "a.b=1;"},
        {"---\na: 1\n...\nwhatever [\n", "a=1;"},
        {"\xef\xbb\xbf"
         "a: 1\n",
         "a=1;"},
        {"a: 'it''s # x'  # c\n", "a=it's # x;"},
        {"a: \"t\\tq\\\"\\u00e9\\x41\"\n", "a=t\tq\"\xc3\xa9"
                                           "A;"},
        {"'a': \"\"\n", "a=;"},
        {"a: ~\nb: null\nc:\n", "a=(null);b=(null);c=(null);"},
        {"a: x#y\nb: http://h:1/p\n", "a=x#y;b=http://h:1/p;"},
        {"a:\n  # c\n\n  b: 1\n# c\n  c: 2\n", "a.b=1;a.c=2;"},
        {"a:   # section\n  b: -1.5e3\n", "a.b=-1.5e3;"},
        {"a:\n  x: 1\nb:\n    x: 2\n", "a.x=1;b.x=2;"},
        {"a: '~'\n", "a=~;"},
        {"a: {b: 1, c: x y , 'd' : \"q,}\"} # z\ne: 2\n", "a.b=1;a.c=x y;a.d=q,};e=2;"},
        {"a: {}\nb: {c: , d: ~, e: 1,}\n", "b.c=(null);b.d=(null);b.e=1;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct yaml yaml;
        error_clear(&error);
        yaml_read(&mem, "f", rows[i].text, strlen(rows[i].text), &yaml, &error);
        assert_string_equal(error.text, "");
        assert_string_equal(shown(&yaml), rows[i].want);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"a: [1]\n", "f:1: only plain"},
        {"a: {b: {c: 1}}\n", "f:1: only plain"},
        {"a: {b: [1]}\n", "f:1: only plain"},
        {"a: {b: 1\n", "f:1: brace is not closed"},
        {"a: {b: 1} c\n", "f:1: text behind the brace"},
        {"a: {b: 'x' y}\n", "f:1: expected , or }"},
        {"a: {b: 1, b: 2}\n", "f:1: key is given twice"},
        {"a: {b: 1}\n  c: 2\n", "f:2: unexpected indentation"},
        {"a:\n  b: {c: 1}\n", "f:2: only plain"},
        {"a: &x 1\n", "f:1: only plain"},
        {"a: !!str 1\n", "f:1: only plain"},
        {"a: |\n  x\n", "f:1: only plain"},
        {"- a\n", "f:1: lists"},
        {"a:\n  - b\n", "f:2: lists"},
        {"a:\n\tb: 1\n", "f:2: a tab"},
        {"a: 1\n  b: 2\n", "f:2: unexpected indentation"},
        {"a:\n  b:\n    c: 1\n", "f:3: unexpected indentation"},
        {"a:\n  b: 1\n   c: 2\n", "f:3: unexpected indentation"},
        {"  a: 1\n", "f:1: unexpected indentation"},
        {"a: 1\na: 2\n", "f:2: key is given twice: 'a'"},
        {"a: 'x\n", "f:1: quote is not closed"},
        {"a: \"\\q\"\n", "f:1: unknown escape"},
        {"a: \"\\x00\"\n", "f:1: unknown escape"},
        {"a: 'x' y\n", "f:1: text behind the value"},
        {"a: b: c\n", "f:1: a second colon"},
        {"a:b\n", "f:1: expected a blank"},
        {"a\n", "f:1: expected a colon"},
        {"? a\n", "f:1: expected `key: value`"},
        {"a: 1\n---\nb: 2\n", "f:2: only one document"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct yaml yaml;
        error_clear(&error);
        assert_int_equal(yaml_read(&mem, "f", rows[i].text, strlen(rows[i].text), &yaml, &error),
                         HVD_ERR_INVALID);
        assert_memory_equal(error.text, rows[i].error, strlen(rows[i].error));
    }
}

static void test_zero_byte(void **state)
{
    (void)state;
    struct yaml yaml;
    error_clear(&error);
    assert_int_equal(yaml_read(&mem, "f", "a: 1\0b\n", 7, &yaml, &error), HVD_ERR_INVALID);
}

static void test_booleans(void **state)
{
    (void)state;
    bool value = false;
    struct yaml_entry entry = {.value = "Yes"};
    assert_true(yaml_bool(&entry, &value) && value);
    entry.value = "OFF";
    assert_true(yaml_bool(&entry, &value) && !value);
    entry.value = "1";
    assert_false(yaml_bool(&entry, &value));
    entry = (struct yaml_entry){.value = "true", .is_quoted = true};
    assert_false(yaml_bool(&entry, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_zero_byte),
                                       cmocka_unit_test(test_booleans)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
