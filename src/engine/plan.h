/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - a recorded training step, executed again and again without any message.
 *
 * Thread: token holder.  Start reading at plan_op() and plan_progress(). */
#ifndef HVD_ENGINE_PLAN_H
#define HVD_ENGINE_PLAN_H

#include "base/status.h"
#include "engine/message.h"

struct batch;
struct op;
struct procset;

void plan_prepare(
    struct procset *set); /* a plan was announced: nothing is negotiated until it begins */
void plan_begin(struct procset *set, const struct batch *batch); /* ids with 0 between batches */
void plan_destroy(struct procset *set);
bool plan_op(struct procset *set, struct op *op); /* true: the op is part of the plan */
uint64_t plan_started(const struct procset *set); /* batches, since the plan began */
void plan_batch_moved(struct procset *set); /* the backend finished the oldest started batch */
bool plan_progress(struct procset *set);
hvd_status_t plan_message(struct procset *set, int32_t from, const struct message_head *head,
                          struct reader *r, struct error *error);
/* The same on a rank that relays it to the root: checked here because the sender is known. */
hvd_status_t plan_relay(struct procset *set, int32_t from, const struct message_head *head,
                        struct reader *r, const void *bytes, size_t n, struct error *error);
/* The state of a plan, for snapshots. */
struct plan_view {
    const char *state;          /* "running" */
    int32_t batches, position;  /* of a step; the one that is next */
    int32_t missing;            /* ops of the next batch that this rank has not submitted */
    uint64_t started, finished; /* batches since it began */
};
bool plan_look(const struct procset *set, struct plan_view *ret); /* false: there is none */
bool plan_is_on(const struct procset *set);
bool plan_is_ending(const struct procset *set); /* committed: other ranks may have left it */
bool plan_has_begun(const struct procset *set);
void plan_waiting(struct procset *set); /* a caller waits: can the plan complete its op? */
void plan_break(struct procset *set);
int64_t plan_deadline_ns(const struct procset *set);
void plan_tick(struct procset *set, int64_t now_ns);
void plan_stall_check(struct procset *set, int64_t now_ns); /* about twice a second */

#endif
