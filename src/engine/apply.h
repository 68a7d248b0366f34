/* SPDX-License-Identifier: Apache-2.0 */
/* apply.h - applies the coordinator's decisions on a member.
 *
 * Thread: token holder.  Start reading at apply_items(). */
#ifndef HVD_ENGINE_APPLY_H
#define HVD_ENGINE_APPLY_H

#include <stddef.h>

#include "base/status.h"

struct procset;

/* Executes the items of a response, in order. */
hvd_status_t apply_items(struct procset *set, const void *items, size_t n, struct error *error);

#endif
