/* SPDX-License-Identifier: Apache-2.0 */
/* movement.h - the bytes of an in-place allreduce in shared memory, moved without any agreement.
 *
 * Each rank reads its slice of all buffers, adds, and writes the slice to all: S bytes read and S
 * written per rank, in blocks as the backend does it, and no flag is awaited. No in-place allreduce
 * in shared memory can be faster than this, so it is the limit that a share is printed of. The loop
 * is its own, so that a slow kernel of ours would not lower the bar.
 * Thread: one per rank.  Start reading at movement_run(). */
#ifndef HVD_BENCH_MOVEMENT_H
#define HVD_BENCH_MOVEMENT_H

#include <stddef.h>

#define MOVEMENT_RANKS_MAX   64
#define MOVEMENT_BLOCK_BYTES (32u << 10)

/* `buffers[i]` is rank i's buffer of `count` elements; sums into all of them this rank's slice. */
void movement_run(float *const *buffers, int ranks, int self, size_t count);

#endif
