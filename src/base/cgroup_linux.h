/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_linux.h - how many cores the control groups of this process allow it to use.
 *
 * Reads /proc/self/cgroup and the quota files of version 1 and 2 through `os`, so a test can supply
 * a fake tree. Thread: any.  Blocks: on small reads of kernel files.  Start reading at
 * cgroup_cpu_limit(). */
#ifndef HVD_BASE_CGROUP_LINUX_H
#define HVD_BASE_CGROUP_LINUX_H

#include "base/os.h"

/* Whole cores of the tightest quota on the way to the root, at least 1; 0 = no quota. */
int cgroup_cpu_limit(const struct os *os);

#endif
