/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h - the user's trace: Chrome trace JSON of rank 0, valid after every event, written by a
 * thread of its own from a ring. The phase names are the steps of the straight line, so a trace is
 * a map of the source.
 *
 * Events per tensor: NEGOTIATE_<KIND> with a tick per rank, then <KIND>, within it activities.
 * Invariant: a trace is balanced. What began before it was started is left out, what is open when
 * it is stopped is closed, and a negotiation that begins while the tensor's last batch still runs
 * here is shown from that batch's end on. Thread: begin/end by the token holder; start and stop by
 * any.  The writer thread only drains the ring. Start reading at event() in timeline.c. */
#ifndef HVD_ENGINE_TIMELINE_H
#define HVD_ENGINE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"

struct timeline;

struct timeline *timeline_create(const struct os *os, const struct log *log);
void timeline_destroy(struct timeline *t); /* stops and joins; NULL is fine */
/* Opens `path` (another one than now open: switches); returns when it is open. Failure to open is
 * logged and returned, the job goes on. */
hvd_status_t timeline_start(struct timeline *t, const char *path, bool is_marking_cycles,
                            struct error *error);
void timeline_stop(struct timeline *t);        /* returns when all is on disk; may be repeated */
bool timeline_is_on(const struct timeline *t); /* cheap: one load */

/* All below do nothing when off. A tensor is its process set and its full name (not
 * NUL-terminated). */
void timeline_negotiate_begin(struct timeline *t, int32_t set, const char *tensor, size_t n,
                              const char *activity);
void timeline_rank_ready(struct timeline *t, int32_t set, const char *tensor, size_t n,
                         int32_t rank);
void timeline_negotiate_end(struct timeline *t, int32_t set, const char *tensor, size_t n);
/* The top-level bar, and within it activities. */
void timeline_begin(struct timeline *t, int32_t set, const char *tensor, size_t n,
                    const char *activity);
void timeline_end(struct timeline *t, int32_t set, const char *tensor, size_t n);
/* The end of the top-level bar, with args {"dtype": ..., "shape": ...}. */
void timeline_end_args(struct timeline *t, int32_t set, const char *tensor, size_t n,
                       const char *dtype, const char *shape);
void timeline_cycle(struct timeline *t); /* CYCLE_START marker, if asked for */

#endif
