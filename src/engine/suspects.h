/* SPDX-License-Identifier: Apache-2.0 */
/* suspects.h - the stall report for the launcher (engine_options.stalled): which op waits, which
 * ranks have submitted it, and for each missing rank how far behind it is and what it has submitted
 * instead.
 *
 * Thread: token holder.  Start reading at suspects_missing(). */
#ifndef HVD_ENGINE_SUSPECTS_H
#define HVD_ENGINE_SUSPECTS_H

#include <stdint.h>

struct procset;
struct wait;

/* Coordinator: `oldest` has waited beyond the limit. */
void suspects_missing(const struct procset *set, const struct wait *oldest, int64_t now_ns);
/* Any rank, with an op pending: nothing is heard of this world rank. */
void suspects_silent(const struct procset *set, int32_t world_rank, int64_t now_ns);

#endif
