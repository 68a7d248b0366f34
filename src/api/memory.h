/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - ordinary memory that callers got from the library and free with hvd_free().
 *
 * Every such pointer is recorded, so hvd_free() can distinguish it from memory in the arena of a
 * world that no longer exists, from a pointer that was freed before and from one that the library
 * does not own: it ignores those instead of corrupting the heap.
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
/* Zeroed, 64-byte aligned; NULL: no memory. */
void *memory_alloc(struct memory *memory, size_t bytes);
/* The caller now owns `ptr`, from os->alloc. False: no memory for the record. */
bool memory_lend(struct memory *memory, void *ptr);
void memory_free(struct memory *memory, void *ptr); /* ignores NULL and unknown pointers */

#endif
