/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - an `os` table that forwards every call, and fails the k-th one that may fail.
 *
 * For torture tests: run a scenario once with fail_at = 0, query how many calls were made, then run
 * it again with fail_at = 1, 2, ... up to that count and check that each run produces a clean
 * error and no leak. Calls that release something (free, close, unmap, unlink, thread_join,
 * poll_remove, futex_wake, library_close) are forwarded and never fail, as their callers could not
 * handle it. Thread: any (the count is atomic).  Owner: the test.  Start reading at
 * fault_os_create(). */
#ifndef HVD_BASE_FAULT_H
#define HVD_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"

struct fault_os;

/* fail_at: 1 = the first fallible call, 0 = none. `inner` must outlive it. NULL: no memory. */
struct fault_os *fault_os_create(const struct os *inner, uint64_t fail_at);
void fault_os_destroy(struct fault_os *fault); /* NULL is fine */
const struct os *fault_os_table(const struct fault_os *fault);
/* Counts from 0 again; with `is_lasting` every call from the k-th on fails, not just that one. */
void fault_os_arm(struct fault_os *fault, uint64_t fail_at, bool is_lasting);
uint64_t fault_os_calls(const struct fault_os *fault);    /* fallible ones so far */
uint64_t fault_os_failures(const struct fault_os *fault); /* those that were made to fail */

#endif
