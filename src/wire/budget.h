/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h - memory with a ceiling: every byte a peer can make us keep is counted before it is
 * allocated, so that the store is full before the process is.
 *
 * Thread: the owner's.  Invariant: `used` is the sum of what was taken and not given back. */
#ifndef HVD_WIRE_BUDGET_H
#define HVD_WIRE_BUDGET_H

#include "base/os.h"

struct budget {
    const struct os *os;
    size_t used, max;
};

/* Zeroed memory, or NULL when the ceiling or the system says no. */
static inline void *budget_take(struct budget *b, size_t n)
{
    if (n > b->max || b->used > b->max - n)
        return NULL;
    void *p = os_alloc(b->os, n);
    if (p != NULL)
        b->used += n;
    return p;
}

/* The same for what must not fail because others filled the store: a short answer. */
static inline void *budget_take_small(struct budget *b, size_t n)
{
    void *p = os_alloc(b->os, n);
    if (p != NULL)
        b->used += n;
    return p;
}

static inline void *budget_grow(struct budget *b, void *p, size_t from, size_t to)
{
    size_t more = to - from;
    if (more > b->max || b->used > b->max - more)
        return NULL;
    void *q = b->os->resize(b->os->ctx, p, to);
    if (q != NULL)
        b->used += more;
    return q;
}

static inline void budget_give(struct budget *b, void *p, size_t n)
{
    if (p == NULL)
        return;
    b->used -= n;
    os_free(b->os, p);
}

#endif
