/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - let malloc keep memory that is freed and allocated again in every training step.
 *
 * A framework allocates gradients anew in each step. They are copied into memory of hvd_alloc() and
 * freed, up to all of them at once, and glibc gives a large free top of the heap back to the
 * kernel: 25,000 page faults per step for 100 MB of gradients, which take longer than reducing
 * them. So the heap may keep as much as hvd_alloc() has handed out, up to HEAP_KEEP_MAX.
 *
 * Thread: any.  Owner: the world.  Changes nothing if the user has set limits of malloc, or if the
 * C library has no mallopt().  Start reading at heap_expect(). */
#ifndef HVD_API_HEAP_H
#define HVD_API_HEAP_H

#include <stdatomic.h>

#include "base/os.h"

#define HEAP_KEEP_MIN (64u << 20)
#define HEAP_KEEP_MAX (1u << 30)

struct heap {
    _Atomic uint64_t expected; /* bytes of hvd_alloc() so far */
};

/* `bytes` more come from hvd_alloc(). Returns what the heap keeps from now on; 0: unchanged. */
uint64_t heap_expect(struct heap *heap, const struct os *os, uint64_t bytes);

#endif
