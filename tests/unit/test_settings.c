/* SPDX-License-Identifier: Apache-2.0 */
/* test_settings.c - every row of the table appears in every output (settings_faces.h). The test
 * lint.settings checks that the files written by tools/gen_settings.c are not stale; the Python
 * side is in tests/python/runner/test_settings.py. */
#include "settings_faces.h"

int main(void)
{
    const struct CMUnitTest tests[] = {FACES};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
