/* SPDX-License-Identifier: Apache-2.0 */
/* finish.h - tell XLA that a collective has ended, from threads of our own.
 *
 * Completing a future may run the rest of the XLA program in the thread that completes it, so the
 * engine's thread must not do it. A thread is started when something has to be completed and none
 * is idle, up to FINISH_THREADS_MAX; a thread that has nothing to do for a while ends.
 *
 * Thread: any. Owner of an item: the queue, from finish_push() to its `run`. */
#ifndef HVD_BINDINGS_JAX_FINISH_H
#define HVD_BINDINGS_JAX_FINISH_H

enum { FINISH_THREADS_MAX = 4 };

struct finish_item {
    void (*run)(struct finish_item *item); /* called once, with no lock held; may free the item */
    struct finish_item *next;
};

void finish_push(struct finish_item *item);

#endif
