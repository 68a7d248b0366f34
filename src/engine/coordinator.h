/* SPDX-License-Identifier: Apache-2.0 */
/* coordinator.h - the root's half of the negotiation: its state, which response.c, cache.c,
 * learn.c, plan.c and stall.c share, and the functions that negotiate.c calls.
 *
 * Thread: token holder.  Owner: struct procset. */
#ifndef HVD_ENGINE_COORDINATOR_H
#define HVD_ENGINE_COORDINATOR_H

#include "base/map.h"
#include "engine/deadlock.h"
#include "engine/engine.h"
#include "engine/message.h"
#include "engine/procset.h"

/* A name that some ranks have announced in full. */
struct pending {
    struct request request; /* of the first rank; name and payload are copies */
    char *name;
    uint8_t *present; /* bitmap of ranks */
    uint8_t *odd;     /* bitmap of ranks whose request does not match the first */
    int32_t odd_count;
    int32_t count;
    int64_t *dim0;       /* allgather: rows of each rank */
    uint32_t devices;    /* of all ranks, folded into a number; 0: host memory */
    uint8_t *payload;    /* process set changes */
    struct error *error; /* the first mismatch */
    int64_t first_ns;    /* when the first rank submitted it */
    uint64_t number;     /* in the order of the first announcements */
};

/* A response under construction or being delivered: room for the header, then items. */
struct out_message {
    struct out_message *next;
    size_t capacity, used;
    uint8_t bytes[];
};

struct coordinator {
    struct procset *set;
    struct map pending;            /* name -> struct pending */
    uint64_t pending_number;       /* of the next one */
    struct map entries;            /* name -> struct entry that is cached */
    struct map passing;            /* name -> ready struct entry that is not cached */
    struct entry *oldest, *newest; /* of those that are cached, by last use */
    uint32_t next_id;

    /* Responses are sent and applied one after the other, never nested: items that applying one
     * produces are collected after it. */
    struct out_message *current;             /* the one that `out` writes, NULL: none yet */
    struct out_message *out_head, *out_tail; /* complete, in order */
    struct out_message *spare;
    int32_t spare_count;
    struct writer out;
    bool is_delivering;
    int32_t *made; /* by member: pending names that this rank was the first to announce */

    struct entry **ready; /* in the order they became ready */
    struct batch_item *items;
    int32_t ready_count, ready_capacity;
    uint64_t ready_bytes;
    int64_t ready_first_ns;

    uint8_t *joined;
    int32_t joined_count, last_joined;
    bool is_joining; /* from the first join to the end of the last: nothing is cached */

    /* learn.c: a step is a run of entries without repetition */
    uint64_t step;
    uint32_t *window; /* ids of this step, 0 after each batch */
    size_t window_count, window_capacity;
    int32_t window_entries, window_known; /* entries in it; of those, seen in the step before */
    int32_t last_entries;
    int64_t steps_equal, steps_wanted;
    bool is_window_odd; /* contains something a plan can't */

    /* leaving a plan (plan.c) */
    int32_t positions;
    uint8_t *positioned; /* by member: it has reported its position */
    uint64_t position_min;
    int32_t position_rank; /* index of the member that reported it */
    bool is_halting;

    /* tune.c */
    struct tunables tune_wanted; /* if is_tuning */
    bool is_tuning;

    bool is_shutdown, is_shutdown_sent, is_evict_told;
    int32_t shutdown_rank; /* the rank that asked first */
    char shutdown_words[ENGINE_WORDS_MAX];

    /* stall.c */
    int64_t list_told_ns;
    int64_t looked_ns, looked_since_ns; /* the last report to the launcher: when, about what */
    uint32_t batches_seen;              /* the set's batch_tail at the last check */
    int64_t moved_ns;                   /* when it had changed, or the last rank joined */

    /* deadlock.c */
    struct deadlock_report *stuck; /* by member; NULL: no rank has reported */
    int64_t stuck_since_ns;        /* since when no rank can continue; -1: some can */
};

hvd_status_t coordinator_create(struct procset *set, struct coordinator **ret);
void coordinator_destroy(struct coordinator *c);
hvd_status_t coordinator_request(struct procset *set, const struct request *request,
                                 struct error *error);
hvd_status_t coordinator_ready(struct procset *set, struct entry *entry, struct error *error);
void coordinator_flush(struct procset *set, bool is_forced);
int64_t coordinator_deadline_ns(const struct procset *set);
void coordinator_generation(
    struct procset *set); /* a new one has begun: forget what was announced */
/* The world rank that asked, and why; "": it has not said. */
void coordinator_shutdown(struct procset *set, int32_t rank, const char *words);

#endif
