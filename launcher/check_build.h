/* SPDX-License-Identifier: Apache-2.0 */
/* check_build.h - `horovodrun --check-build`: what is usable on this machine now.
 * Thread: one.  Start reading at check_build_run(). */
#ifndef HVD_LAUNCHER_CHECK_BUILD_H
#define HVD_LAUNCHER_CHECK_BUILD_H

#include "args.h"

int check_build_run(struct mem *m, const struct os *os, const struct args *args);

#endif
