/* SPDX-License-Identifier: Apache-2.0 */
/* affinity.h - which core HOROVOD_THREAD_AFFINITY requests.
 *
 * The value is a comma list with at least one core per rank on this machine; this rank's entry is
 * the one at the index of its local rank. A request that can't be met is logged in one line and the
 * thread stays unpinned: it never fails a job.
 * Thread: any; pure.  Start reading at affinity_core(). */
#ifndef HVD_API_AFFINITY_H
#define HVD_API_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True: `ret_core` is the core to use. False: none was requested (`ret_why` is ""), or the list is
 * invalid and `ret_why` says why and what would be valid. */
bool affinity_core(const char *list, int32_t local_rank, int32_t local_size, int32_t *ret_core,
                   char *ret_why, size_t bytes);

#endif
