/* SPDX-License-Identifier: Apache-2.0 */
/* unit_case.h - one body as several tests: each has its own name and a number that the body reads.
 *
 *     static void check_key(void **state) { ... unit_case(state) ... }
 *     const struct CMUnitTest tests[] = {UNIT_CASE(test_short, check_key, 8), ...};
 *
 * Include it after cmocka.h. */
#ifndef HVD_TESTS_UNIT_CASE_H
#define HVD_TESTS_UNIT_CASE_H

#include <stdint.h>

#define UNIT_CASE(name, body, number)                                                              \
    {                                                                                              \
#name, body, NULL, NULL, (void *)(intptr_t)(number)                                        \
    }

static inline intptr_t unit_case(void **state)
{
    return (intptr_t)*state;
}

#endif
