/* SPDX-License-Identifier: Apache-2.0 */
/* backends.h - the backends of this build, one row each, and the selection among them.
 *
 * To add one: a folder with a `struct backend_row`, and its line in backends.c. It must pass
 * tests/unit/backend_conformance.h. No other code names a backend.
 *
 * backends_create() combines the backends of a job into one: for each collective it selects the
 * one with the best score (backend_ops.score), by the group, the kind of collective, the kind of
 * memory and the bytes. A backend declines a collective by its score, and the next best gets it.
 * A job with one backend calls that one directly.
 *
 * Invariant: all members of a group select the same backend for the same collective. So a probe
 * within a job and a score depend only on what is equal on all ranks.
 *
 * Thread: token holder.  Start reading at backend_table. */
#ifndef HVD_BACKEND_BACKENDS_H
#define HVD_BACKEND_BACKENDS_H

#include "backend/backend.h"
#include "transport/transports.h"

#define BACKENDS_MAX 8

struct backend_place { /* the job a backend would work in */
    const struct os *os;
    const struct config *config; /* as all ranks agreed on it; kept */
    int32_t rank, size;          /* rank -1: no job; probes what this machine supports */
    /* By world rank, NULL for oneself; kept. Filled before the first group is opened. */
    struct transport *const *routes;
    struct transport *sight;   /* the one that shares memory with the ranks it links; NULL: none */
    const struct mpi_job *mpi; /* NULL: the ranks did not meet through MPI */
};

struct backend_row {
    const char *name;
    /* false: `ret_why` says why, in WHY_MAX bytes. Loads and opens nothing. */
    bool (*probe)(const struct backend_place *place, char *ret_why);
    /* backend_ops has the rest: score, groups, destroy. */
    hvd_status_t (*create)(const struct backend_place *place, struct backend **ret,
                           struct error *error);
};

/* All of them, terminated by NULL; groups are opened in this order, which is not a preference. */
extern const struct backend_row *const backend_table[];

/* A backend that combines all of `rows` that are usable here. */
hvd_status_t backends_create(const struct backend_row *const *rows,
                             const struct backend_place *place, struct backend **ret,
                             struct error *error);
/* Is there a row of this name (case-insensitive) that is not usable here? `ret_why` says why. */
bool backends_is_missing(const struct backend_row *const *rows, const struct backend_place *place,
                         const char *name, char ret_why[WHY_MAX]);
/* Which of `members` runs this? Equal scores: the first name in the alphabet. -1: none can.
 * is_open[i]: members[i] serves this group; NULL: all do. */
int32_t backends_choose(struct backend *const *members, const bool *is_open, int32_t count,
                        const struct group *group, const struct backend_ask *ask);
/* The description of a collective that is equal on all members. */
struct backend_ask backends_ask(const struct group *group, const struct coll *coll);

#endif
