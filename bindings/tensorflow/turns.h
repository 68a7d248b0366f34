/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h - calls that share a name take turns.
 *
 * A name stands for one tensor at a time. Eager ops are all named after their op, and a node in a
 * loop may be started again before it has ended, so such calls wait for the one before them. Two
 * different nodes of a graph with one name are a mistake of the user's, and are told so.
 *
 * Thread: any. The lock is held while an op is submitted: an op that ends at the same time either
 * has freed its name before, or finds the waiting call afterwards. */
#ifndef HVD_BINDINGS_TENSORFLOW_TURNS_H
#define HVD_BINDINGS_TENSORFLOW_TURNS_H

#include "horovod/hvd.h"

/* First member of a call. */
struct turn {
    const void *owner; /* calls with equal owner and set share a name */
    int32_t set;
    struct turn *next, *previous;
};

/* Submits by `submit(arg)`. OK: it is in flight. IN_PROGRESS: it waits, and turns_end() of another
 * will give it back. Else the error of the submit. */
hvd_status_t turns_submit(struct turn *turn, hvd_status_t (*submit)(void *), void *arg);

/* The call has ended, or was refused when it tried (then it is not in flight). Gives the waiting
 * call to be submitted now, or NULL. */
struct turn *turns_end(struct turn *turn, bool was_in_flight);

#endif
