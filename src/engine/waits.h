/* SPDX-License-Identifier: Apache-2.0 */
/* waits.h - which ops some ranks of a set have announced and others have not: since when, and which
 * ranks are missing. The stall report, error texts and the snapshot all use these functions.
 *
 * They have no side effects. A rank knows what was announced through it: for an op announced in
 * full, the coordinator knows the missing ranks; for one announced by id, every rank of the tree
 * knows which of its children are missing. A child without ranks below it is the missing one; if a
 * child relays for others, one of those may be missing instead, which only that child knows. So the
 * coordinator of a set on one machine, or with one rank per machine and at most three machines,
 * knows all; otherwise the snapshots of all ranks together do.
 *
 * Thread: token holder.  Start reading at waits_next() and waits_member(). */
#ifndef HVD_ENGINE_WAITS_H
#define HVD_ENGINE_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry;
struct op;
struct pending;
struct procset;

#define WAITS_JOIN_NAME "join"

struct wait {                      /* both NULL: the join */
    const struct pending *pending; /* announced in full */
    const struct entry *entry;     /* announced by id */
    const char *name;
    int64_t since_ns; /* when the first rank submitted it, as far as this rank knows */
    uint64_t number;  /* pending: orders those of one millisecond */
};

enum waits_word {
    WAITS_PRESENT, /* has announced it, or has joined and need not */
    WAITS_MISSING,
    WAITS_UNSURE, /* a child that relays for others is missing: it, or one below it */
    WAITS_UNKNOWN /* does not announce through this rank */
};

/* Iterates over everything that waits for announcements here, the join last. Begin with cursor 0;
 * false: no more. Between calls, only what it has returned may be forgotten. */
bool waits_next(const struct procset *set, size_t *cursor, struct wait *ret);
/* The wait that this rank's own op is part of; false: nothing is known here about other ranks. */
bool waits_of_op(const struct procset *set, const struct op *op, struct wait *ret);
enum waits_word waits_member(const struct procset *set, const struct wait *wait, int32_t index);
bool waits_is_before(const struct wait *a, const struct wait *b); /* in order of submission */
bool waits_is_exact(const struct procset *set, const struct wait *wait); /* no WAITS_UNSURE */
int32_t waits_first_missing(const struct procset *set, const struct wait *wait); /* -1: none */
/* "rank 1 on host b, rank 3 on host b and 4 more"; "": none, or not known. */
void waits_text(const struct procset *set, const struct wait *wait, char *ret, size_t bytes);

#endif
