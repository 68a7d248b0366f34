/* SPDX-License-Identifier: Apache-2.0 */
/* stall.h - which ranks are missing?
 *
 * Thread: token holder. */
#ifndef HVD_ENGINE_STALL_H
#define HVD_ENGINE_STALL_H

#include <stdint.h>

struct config;
struct procset;

void stall_tick(struct procset *set, int64_t now_ns); /* root, about twice a second */
/* Ops that have waited this long are announced in full, so that they can be reported; INT64_MAX:
 * never */
int64_t stall_uncover_ns(const struct config *config);

#endif
