/* SPDX-License-Identifier: Apache-2.0 */
/* clash.h - calls in flight, so that both users of a name learn that it was used twice at once.
 *
 * A name stands for one tensor at a time. Two calls in flight under one name (a function called by
 * two threads, two nodes of a graph, two ops of an engine) start on each rank in an order of its
 * own, so a result would depend on that order. The library refuses the second call; the first may
 * have been combined with the other rank's second already, so it must fail as well.
 *
 * Thread: any. Owner of a flight: the call that holds it, from clash_enter() to clash_leave(). */
#ifndef HVD_BINDINGS_COMMON_CLASH_H
#define HVD_BINDINGS_COMMON_CLASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flight {
    const char *name; /* valid until clash_leave() */
    int32_t set;
    bool has_clashed;
    struct flight *next, *previous;
};

/* Before the call is submitted: it may complete before the submit returns. */
void clash_enter(struct flight *flight);

/* The library refused the call because its name is in use: the other users fail as well. */
void clash_report(struct flight *flight);

/* Returns whether another call wanted the name meanwhile. */
bool clash_leave(struct flight *flight);

/* What both calls fail with. */
void clash_describe(const struct flight *flight, char *ret_text, size_t bytes);

#endif
