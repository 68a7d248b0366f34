/* SPDX-License-Identifier: Apache-2.0 */
/* coordinator.h - the state of a set's root, shared by coordinator.c (collect, compare, batch),
 * learn.c (recognise repeating steps) and stall.c (who is missing).
 *
 * Thread: token holder.  Owner: struct procset. */
#ifndef HVD_ENGINE_COORDINATOR_H
#define HVD_ENGINE_COORDINATOR_H

#include "engine/engine.h"

/* A name that some ranks have announced in full. */
struct pending {
    struct request request; /* of the first rank; name and payload are ours */
    char *name;
    uint8_t *present; /* bitmap of ranks */
    int32_t count;
    int64_t *dim0;       /* allgather: rows of each rank */
    uint8_t *payload;    /* process set changes */
    struct error *error; /* what was found wrong first */
    int64_t first_ns;
    int64_t told_ns; /* when a person was last told that it waits */
};

struct coordinator {
    struct procset *set;
    struct map pending;            /* name -> struct pending */
    struct map entries;            /* name -> struct entry that is cached */
    struct entry *oldest, *newest; /* of them, by last use */
    uint32_t next_id;

    uint8_t *buffers[2]; /* responses under construction, by turns */
    int current;
    struct writer out;

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
    uint32_t *window; /* ids of this step, 0 behind each batch */
    size_t window_count, window_capacity;
    int32_t window_entries, window_known; /* entries in it; of those, seen in the step before */
    int32_t last_entries;
    int64_t steps_equal, steps_wanted;
    bool is_window_odd; /* holds something a plan can't */

    /* leaving a plan (plan.c) */
    int32_t positions;
    uint64_t position_min;
    bool is_halting;

    bool is_shutdown, is_shutdown_sent, is_evict_told;
    int32_t shutdown_rank; /* who asked first */
    int64_t stall_next_ns, list_told_ns;
};

void coordinator_forget(struct procset *set, struct entry *entry); /* an id becomes void for all */
void learn_batch(struct procset *set, const uint32_t *ids, int32_t count);
/* A step has just repeated often enough and the next begins: puts a plan into the response. */
bool learn_plan(struct procset *set);

#endif
