/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h - the user's trace: Chrome trace JSON of rank 0, valid after every event, written by a
 * separate thread from a ring. The phase names are the steps of an op through the engine, so a
 * trace is a map of the source.
 *
 * Events per tensor: NEGOTIATE_<KIND> with a tick per rank, then <KIND>, within it activities.
 * A trace of one of many ranks (timeline_identify) also says which rank it is, when each op was
 * submitted, the number of its batch, equal on all ranks, and how far its clock is from rank 0's:
 * horovod-timeline merges such traces.
 * Invariant: a trace is balanced. Bars that began before the trace are omitted, bars that are open
 * when it stops are closed, and a negotiation that begins while the tensor's last batch still runs
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
/* Opens `path` (switches if another one is open); returns when it is open, or with an error if it
 * can't be opened or its file system does not respond for 5 s. The error is logged and the job
 * continues. */
hvd_status_t timeline_start(struct timeline *t, const char *path, bool is_marking_cycles,
                            struct error *error);
/* Returns when everything is on disk, or after 5 s if the file system does not respond; may be
 * repeated. */
void timeline_stop(struct timeline *t);
bool timeline_is_on(const struct timeline *t); /* cheap: one load */
/* Before the first start: the traces are those of one of `size` ranks that all write one. */
void timeline_identify(struct timeline *t, int32_t rank, int32_t size, const char *host);
/* The name of a rank's trace: `path` for rank 0, else path.rankN; false: it is too long. */
bool timeline_path(const char *path, int32_t rank, char *ret_path, size_t bytes);

/* The functions below do nothing when off and never wait: events that do not fit are dropped and
 * counted. A tensor is its process set and its full name (not NUL-terminated). */
/* This rank has submitted an op: its negotiation begins here, if another rank's has not begun it.
 */
void timeline_submit(struct timeline *t, int32_t set, const char *tensor, size_t n,
                     const char *activity, int64_t submit_ns);
void timeline_negotiate_begin(struct timeline *t, int32_t set, const char *tensor, size_t n,
                              const char *activity);
void timeline_rank_ready(struct timeline *t, int32_t set, const char *tensor, size_t n,
                         int32_t rank);
void timeline_negotiate_end(struct timeline *t, int32_t set, const char *tensor, size_t n);
/* The top-level bar, with the number of the batch, and within it activities. */
void timeline_batch(struct timeline *t, int32_t set, const char *tensor, size_t n,
                    const char *activity, uint64_t number);
void timeline_begin(struct timeline *t, int32_t set, const char *tensor, size_t n,
                    const char *activity);
void timeline_end(struct timeline *t, int32_t set, const char *tensor, size_t n);
/* The end of the top-level bar, with args {"dtype": ..., "shape": ...}. */
void timeline_end_args(struct timeline *t, int32_t set, const char *tensor, size_t n,
                       const char *dtype, const char *shape);
/* At this rank's time `at_ns`, rank 0's clock was ahead by `offset_ns`, give or take `error_ns`. */
void timeline_clock(struct timeline *t, int64_t at_ns, int64_t offset_ns, int64_t error_ns);
void timeline_cycle(struct timeline *t); /* CYCLE_START marker, if requested */

#endif
