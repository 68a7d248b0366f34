/* SPDX-License-Identifier: Apache-2.0 */
/* deadlock.h - proves that no rank can continue, and ends the job then instead of at the time limit
 * of the stall check.
 *
 * A caller declares that its process does nothing but wait for ops (hvd_only_waits()). The claim
 * holds until one of the rank's handles completes or something is submitted. A rank with a claim
 * whose ops are all announced in the global set, and that has neither a batch to run nor a message
 * to send, reports STUCK to the coordinator, with the number of responses that it has applied.
 *
 *      rank 0: waits for a --STUCK(7)--> coordinator: I have sent 7 responses, nothing is ready,
 *      rank 1: waits for b --STUCK(7)-->              and all ranks are STUCK(7): deadlock
 *
 * Why that is a proof: announcements and STUCK travel the same links in order, and a rank that
 * relays STUCK sends its own announcements first. So the coordinator has all announcements. A rank
 * that has applied all responses gets nothing new, so its claim still holds. Then no rank submits
 * anything before an op completes, and no op completes before a rank submits something.
 *
 * Not decided here: ops of other sets, messages between two ranks, plans. A rank that has one of
 * these pending is not STUCK, and the time limits apply. Thread: token holder.
 * Start reading at deadlock_tick(). */
#ifndef HVD_ENGINE_DEADLOCK_H
#define HVD_ENGINE_DEADLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/codec.h"
#include "base/status.h"

#define DEADLOCK_WHERE_MAX 128u
#define DEADLOCK_NAME_MAX  128u

struct engine;
struct procset;

struct deadlock_claim { /* of this rank */
    bool is_made;
    uint64_t completions; /* of the engine when it was made */
    int64_t handles;      /* the same: submitted */
    char where[DEADLOCK_WHERE_MAX];
    bool is_told; /* STUCK was sent, with these numbers */
    uint64_t told_responses;
    uint32_t told_generation;
};

struct deadlock_report { /* coordinator: of each member */
    bool is_made;
    uint64_t responses;
    uint32_t generation;
    char name[DEADLOCK_NAME_MAX], where[DEADLOCK_WHERE_MAX];
};

void deadlock_tick(struct engine *engine, int64_t now_ns);
/* Message STUCK of a rank below: kept by the coordinator. false: malformed. */
bool deadlock_message(struct procset *set, int32_t child, struct reader *r);

#endif
