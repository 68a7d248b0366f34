/* SPDX-License-Identifier: Apache-2.0 */
/* test_status.c - error records, status classes and names, dtype sizes and names. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static const struct {
    hvd_status_t status;
    hvd_status_class_t class;
} classes[] = {
    {HVD_OK, HVD_CLASS_OK},
    {HVD_IN_PROGRESS, HVD_CLASS_IN_PROGRESS},
    {HVD_AGAIN, HVD_CLASS_IN_PROGRESS},
    {HVD_ERR_INVALID, HVD_CLASS_INVALID_ARGUMENT},
    {HVD_ERR_DUPLICATE, HVD_CLASS_INVALID_ARGUMENT},
    {HVD_ERR_LIMIT, HVD_CLASS_INVALID_ARGUMENT},
    {HVD_ERR_CONFIG, HVD_CLASS_INVALID_ARGUMENT},
    {HVD_ERR_MISMATCH, HVD_CLASS_PRECONDITION},
    {HVD_ERR_NOT_INITIALIZED, HVD_CLASS_PRECONDITION},
    {HVD_ERR_ABORTED, HVD_CLASS_ABORTED},
    {HVD_ERR_UNSUPPORTED, HVD_CLASS_UNKNOWN},
    {HVD_ERR_NO_MEMORY, HVD_CLASS_UNKNOWN},
    {HVD_ERR_TIMEOUT, HVD_CLASS_UNKNOWN},
    {HVD_ERR_OS, HVD_CLASS_UNKNOWN},
    {HVD_ERR_LINK, HVD_CLASS_UNKNOWN},
    {HVD_ERR_AUTH, HVD_CLASS_UNKNOWN},
    {HVD_ERR_CORRUPT, HVD_CLASS_UNKNOWN},
    {HVD_ERR_STALE, HVD_CLASS_UNKNOWN},
    {HVD_ERR_PEER_DEAD, HVD_CLASS_UNKNOWN},
    {HVD_ERR_PEER_HUNG, HVD_CLASS_UNKNOWN},
    {HVD_ERR_SHUTDOWN, HVD_CLASS_UNKNOWN},
    {HVD_ERR_INTERNAL, HVD_CLASS_UNKNOWN},
};
#define CLASS_COUNT (sizeof classes / sizeof classes[0])

static void first_cause_stays(void **state)
{
    (void)state;
    struct error error;
    error_clear(&error);
    assert_int_equal(error.status, HVD_OK);
    assert_string_equal(error.text, "");
    assert_int_equal(error_set(&error, HVD_ERR_LINK, "rank %d", 3), HVD_ERR_LINK);
    assert_int_equal(error_set(&error, HVD_ERR_INTERNAL, "later"), HVD_ERR_INTERNAL);
    assert_int_equal(error_set_os(&error, -EIO, "later"), HVD_ERR_OS);
    assert_int_equal(error.status, HVD_ERR_LINK);
    assert_string_equal(error.text, "rank 3");
    error_clear(&error);
    assert_int_equal(error.status, HVD_OK);
    assert_string_equal(error.text, "");
}

static void no_record_is_fine(void **state)
{
    (void)state;
    error_clear(NULL);
    assert_int_equal(error_set(NULL, HVD_ERR_LIMIT, "x"), HVD_ERR_LIMIT);
    assert_int_equal(error_set_os(NULL, -EIO, "x"), HVD_ERR_OS);
}

static void success_is_not_recorded(void **state)
{
    (void)state;
    struct error error;
    error_clear(&error);
    assert_int_equal(error_set(&error, HVD_OK, "fine"), HVD_OK);
    assert_string_equal(error.text, "");
}

static void os_cause_is_behind_the_text(void **state)
{
    (void)state;
    struct error error;
    error_clear(&error);
    assert_int_equal(error_set_os(&error, -ENOENT, "open %s", "/x"), HVD_ERR_OS);
    assert_int_equal(error.status, HVD_ERR_OS);
    assert_string_equal(error.text, "open /x: No such file or directory");
}

static void long_texts_are_cut_but_keep_the_cause(void **state)
{
    (void)state;
    char text[2 * HVD_ERROR_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct error error;
    error_clear(&error);
    (void)error_set(&error, HVD_ERR_INVALID, "%s", text);
    assert_int_equal(strlen(error.text), HVD_ERROR_MAX - 1);
    error_clear(&error);
    (void)error_set_os(&error, -ENOENT, "%s", text);
    assert_true(strlen(error.text) < HVD_ERROR_MAX);
    assert_non_null(strstr(error.text, "x: No such file or directory"));
}

static void appends_whole_texts(void **state)
{
    (void)state;
    struct error error = {0};
    char text[HVD_ERROR_MAX];
    error_append(&error, "nothing has failed");
    assert_string_equal(error.text, "");
    (void)error_set(&error, HVD_ERR_PEER_DEAD, "rank 1 died.");
    error_append(&error, " It was killed.");
    assert_string_equal(error.text, "rank 1 died. It was killed.");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_append(&error, text);
    assert_string_equal(error.text, "rank 1 died. It was killed.");
    assert_int_equal(error.status, HVD_ERR_PEER_DEAD);
}

static void every_status_has_class_and_own_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLASS_COUNT; i++) {
        assert_int_equal(hvd_status_class(classes[i].status), classes[i].class);
        const char *name = hvd_status_name(classes[i].status);
        assert_string_not_equal(name, "unknown status");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(name, hvd_status_name(classes[j].status));
    }
    assert_string_equal(hvd_status_name(HVD_ERR_PEER_DEAD), "peer dead");
    assert_string_equal(hvd_status_name(HVD_ERR_MISMATCH), "mismatch");
    assert_string_equal(hvd_status_name((hvd_status_t)-99), "unknown status");
    assert_int_equal(hvd_status_class((hvd_status_t)-99), HVD_CLASS_UNKNOWN);
}

static void dtypes(void **state)
{
    (void)state;
    static const size_t bytes[HVD_DTYPE_COUNT] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
    static const char *const names[HVD_DTYPE_COUNT] = {"uint8",   "int8",  "uint16",  "int16",
                                                       "int32",   "int64", "float16", "float32",
                                                       "float64", "bool",  "bfloat16"};
    for (int i = 0; i < HVD_DTYPE_COUNT; i++) {
        assert_int_equal(hvd_dtype_bytes((hvd_dtype_t)i), bytes[i]);
        assert_string_equal(hvd_dtype_name((hvd_dtype_t)i), names[i]);
    }
    assert_int_equal(hvd_dtype_bytes(HVD_DTYPE_COUNT), 0);
    assert_string_equal(hvd_dtype_name((hvd_dtype_t)77), "unknown dtype");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_cause_stays),
        cmocka_unit_test(no_record_is_fine),
        cmocka_unit_test(success_is_not_recorded),
        cmocka_unit_test(os_cause_is_behind_the_text),
        cmocka_unit_test(long_texts_are_cut_but_keep_the_cause),
        cmocka_unit_test(every_status_has_class_and_own_name),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(appends_whole_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
