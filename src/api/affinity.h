/* SPDX-License-Identifier: Apache-2.0 */
/* affinity.h - which core HOROVOD_THREAD_AFFINITY asks for.
 *
 * The value is a comma list with at least one core per rank of this host; the entry with the number
 * of our local rank is ours. What cannot be done is told in one line and the thread stays free: a
 * wish about cores never ends a job.
 * Thread: any; pure.  Start reading at affinity_core(). */
#ifndef HVD_API_AFFINITY_H
#define HVD_API_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True: `ret_core` is the core to use. False: none was asked for (`ret_why` is ""), or the list is
 * no good and `ret_why` says why and what would be. */
bool affinity_core(const char *list, int32_t local_rank, int32_t local_size, int32_t *ret_core,
                   char *ret_why, size_t bytes);

#endif
