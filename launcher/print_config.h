/* SPDX-License-Identifier: Apache-2.0 */
/* print_config.h - `horovodrun --print-config`: every setting, its value, and where it came from.
 * Thread: one.  Start reading at print_config_run(). */
#ifndef HVD_LAUNCHER_PRINT_CONFIG_H
#define HVD_LAUNCHER_PRINT_CONFIG_H

#include "args.h"

int print_config_run(struct mem *m, const struct os *os, const struct args *args);

#endif
