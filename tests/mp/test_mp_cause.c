/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_cause.c - one of many ranks dies: every survivor's error names it, not one of those that
 * left because of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mp/steps.h"

#if HVD_TEST_QUICK
#define MANY 16
#else
#define MANY 64
#endif

/* One rank dies; every other one names it, though most see others leave at the same time. */
static int body_first_cause(int rank, int size, void *arg)
{
    float data[MP_OPS][MP_COUNT] = {{0}};
    char text[HVD_ERROR_MAX] = "", expected[32];
    hvd_status_t status = HVD_OK;
    int victim = *(int *)arg;
    for (int k = 0; mp_step(0, false, data, MP_OPS, &status, text); k++)
        if (rank == victim && k == MP_STEPS)
            raise(SIGKILL);
    snprintf(expected, sizeof expected, "rank %d ", victim);
    if (text[0] == '\0')
        snprintf(text, sizeof text, "%s", hvd_last_error());
    const char *named = strstr(text, "rank ");
    if (named == NULL || strncmp(named, expected, strlen(expected)) != 0)
        fprintf(stderr, "rank %d: %s\n", rank, text);
    MP_CHECK(named != NULL && strncmp(named, expected, strlen(expected)) == 0);
    if (rank % 3 == 0)
        _exit(0); /* without a word */
    (void)size;
    return 0;
}

static void test_first_cause_of_many(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int victim = (i * 29 + 11) % MANY;
        struct mp_options options = {.deadline_s = 180, .expected_signal_rank = victim};
        if (i % 2 == 1)
            setenv("HOROVOD_SHM_DISABLE", "1", 1);
        assert_int_equal(mp_run_with(MANY, body_first_cause, &victim, &options), 0);
        unsetenv("HOROVOD_SHM_DISABLE");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_cause_of_many),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
