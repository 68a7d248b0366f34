/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c - see heap.h. */
#include "api/heap.h"

#include <string.h>

#define BLOCKS_BYTES (64u << 10) /* fewer bytes at once are no gradients worth the call */

/* Parameters of glibc's mallopt(); not every C library has the header. */
enum { TRIM_THRESHOLD = -1, MMAP_THRESHOLD = -3 };
#define MMAP_THRESHOLD_MAX (32 << 20) /* glibc refuses more */

static bool is_users(const struct os *os)
{
    const char *tunables = os->env(os->ctx, "GLIBC_TUNABLES");
    return os->env(os->ctx, "MALLOC_TRIM_THRESHOLD_") != NULL ||
           os->env(os->ctx, "MALLOC_MMAP_THRESHOLD_") != NULL ||
           (tunables != NULL && (strstr(tunables, "malloc.trim_threshold") != NULL ||
                                 strstr(tunables, "malloc.mmap_threshold") != NULL));
}

uint64_t heap_expect(struct heap *heap, const struct os *os, uint64_t bytes)
{
    if (bytes < BLOCKS_BYTES || is_users(os))
        return 0;
    uint64_t all = atomic_fetch_add(&heap->expected, bytes) + bytes;
    uint64_t keep = HEAP_KEEP_MIN + (all < HEAP_KEEP_MAX ? all : HEAP_KEEP_MAX);
    if (keep > HEAP_KEEP_MAX)
        keep = HEAP_KEEP_MAX;
    int (*set)(int, int) = NULL;
    *(void **)&set = os->library_symbol(os->ctx, NULL, "mallopt");
    /* The first threshold too: below it, memory comes from the heap and can be kept. */
    if (set == NULL || set(MMAP_THRESHOLD, MMAP_THRESHOLD_MAX) == 0 ||
        set(TRIM_THRESHOLD, (int)keep) == 0)
        return 0;
    return keep;
}
