/* SPDX-License-Identifier: Apache-2.0 */
/* test_settings_added.c - a new setting takes only a row: with the rows of settings_extra.def in
 * the table, and not a line more, all outputs show them. */
#define SETTINGS_EXTRA "settings_extra.def"
#include "settings_faces.h"

static void added_rows_are_there(void **state)
{
    struct faces *f = *state;
    assert_int_equal(faces_load(f, "HOROVOD_ADDED_COUNT", "7"), HVD_OK);
    assert_int_equal(f->config.added_count, 7);
    assert_true(f->config.added_ratio == 0.25);
    assert_int_equal(faces_load(f, "HOROVOD_ADDED_COUNT", "10"), HVD_OK);
    assert_string_equal(f->warning, "HOROVOD_ADDED_COUNT=10 is too large (allowed: 2 to 9) and "
                                    "counts as 9");
    assert_int_equal(faces_load(f, "HOROVOD_ADDED_WORD", "blue"), HVD_ERR_CONFIG);
    assert_string_equal(f->error.text, "Neither red nor green (HOROVOD_ADDED_WORD=blue)");
    assert_int_equal(faces_load(f, "HOROVOD_ADDED_CUONT", "1"), HVD_OK);
    assert_non_null(strstr(f->warning, "did you mean HOROVOD_ADDED_COUNT?"));
    char *words[] = {"horovodrun", "--added-folder", "d", "--added-c", "4", "--no-added-switch"};
    assert_int_equal(args_parse(&f->mem, 6, words, &f->args, &f->error), HVD_OK);
    assert_string_equal(f->args.added_folder, "d");
    assert_string_equal(faces_exported(f, "HOROVOD_ADDED_COUNT"), "4");
    assert_string_equal(faces_exported(f, "HOROVOD_ADDED_SWITCH"), "0");
}

static void added_rows_are_written(void **state)
{
    (void)state;
    char *page = faces_text(page_write), *words = faces_text(bash_cases);
    assert_non_null(strstr(page,
                           "| `HOROVOD_ADDED_COUNT` | whole number, 2 to 9 apples | `5` | "
                           "`--added-count` | `added.count` | job | an added whole number |"));
    assert_non_null(strstr(page, "accepted, but has no effect yet: an added switch (nothing reads "
                                 "it)"));
    assert_non_null(strstr(words, "--added-word)\n"));
    assert_non_null(strstr(words, "\"red green\""));
    free(page);
    free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {FACE(added_rows_are_there), FACE(added_rows_are_written),
                                       FACES};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
