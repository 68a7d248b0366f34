/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - ordinary memory that callers got from us and give back with hvd_free().
 *
 * Every such pointer is on record, so hvd_free() can tell it from memory in an arena that has gone
 * with its world, from a pointer that was freed before and from one that was never ours: those are
 * left alone instead of corrupting the heap.
 * Thread: any (a lock).  Owner: the instance.  Start reading at memory_lend(). */
#ifndef HVD_API_MEMORY_H
#define HVD_API_MEMORY_H

#include <pthread.h>

#include "base/map.h"
#include "base/os.h"

struct memory {
    const struct os *os;
    pthread_mutex_t lock;
    struct map lent; /* by address */
};

void memory_init(struct memory *memory, const struct os *os);
void memory_forked(struct memory *memory); /* in a forked child: the lock may have been held */
/* Zeroed, 64-byte aligned; NULL: there is none. */
void *memory_alloc(struct memory *memory, size_t bytes);
/* `ptr` of os->alloc now belongs to the caller. False: no memory for the record. */
bool memory_lend(struct memory *memory, void *ptr);
void memory_free(struct memory *memory, void *ptr); /* NULL and unknown pointers are left alone */

#endif
