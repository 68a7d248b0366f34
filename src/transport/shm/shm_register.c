/* SPDX-License-Identifier: Apache-2.0 */
/* shm_register.c - makes a caller's own buffer part of the arena, at its present address.
 *
 * Its pages are copied into an extent of the heap and the extent is then mapped over them: from now
 * on peers access it at the extent's offset, the caller through its old pointer, and a collective
 * copies nothing. Only whole pages of private anonymous memory can be registered; other data in a
 * page (malloc's bookkeeping, a neighbour's data) may be written by another thread between the copy
 * and the mapping, so partial pages are rejected.
 *
 * Thread: any (the heap's lock).  Owner: struct shm.  Invariant: ranges are sorted by address and
 * do not overlap. Start reading at shm_register(). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "transport/shm/shm_internal.h"

#define FIRST_RANGES 16u

/* --- is it memory that may be replaced? --- */

static hvd_status_t memory_check(const struct os *os, const void *ptr, uint64_t bytes,
                                 struct error *error)
{
    bool is_private = false;
    char what[160];
    int rc = machine_memory_check(os, ptr, bytes, &is_private, what, sizeof what);
    if (rc < 0)
        return error_set_os(error, rc, "can't find out what memory lies at %p", ptr);
    if (is_private)
        return HVD_OK;
    return error_set(error, HVD_ERR_INVALID,
                     "%p to %p can't be registered: only private, writable, anonymous memory can "
                     "(malloc, aligned_alloc, mmap), but there is %s",
                     ptr, (void *)((uintptr_t)ptr + bytes),
                     what[0] != '\0' ? what : "nothing mapped");
}

static hvd_status_t range_check(const struct shm *shm, const void *ptr, uint64_t bytes,
                                struct error *error)
{
    if (ptr == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)ptr)
        return error_set(error, HVD_ERR_INVALID, "%llu bytes at %p are no buffer to register",
                         (unsigned long long)bytes, ptr);
    if ((uintptr_t)ptr % shm->page == 0 && bytes % shm->page == 0)
        return HVD_OK;
    return error_set(error, HVD_ERR_INVALID,
                     "%llu bytes at %p can't be registered: address and length must be multiples "
                     "of %u. aligned_alloc(%u, ...) gives such memory, hvd_alloc() memory that "
                     "needs no registering",
                     (unsigned long long)bytes, ptr, (unsigned)shm->page, (unsigned)shm->page);
}

/* --- the table; the lock is held --- */

/* The first range that ends after `at`. */
static size_t range_find(const struct shm_heap *heap, uintptr_t at)
{
    size_t low = 0;
    for (size_t high = heap->range_count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (heap->ranges[middle].at + heap->ranges[middle].bytes <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool range_reserve(struct shm *shm)
{
    struct shm_heap *heap = &shm->heap;
    const struct os *os = shm->base.os;
    if (heap->range_count < heap->range_capacity)
        return true;
    size_t capacity = heap->range_capacity == 0 ? FIRST_RANGES : heap->range_capacity * 2;
    void *ranges = os->resize(os->ctx, heap->ranges, capacity * sizeof *heap->ranges);
    if (ranges == NULL)
        return false;
    heap->ranges = ranges;
    heap->range_capacity = capacity;
    return true;
}

static void range_insert(struct shm_heap *heap, size_t index, struct heap_range range)
{
    memmove(&heap->ranges[index + 1], &heap->ranges[index],
            (heap->range_count - index) * sizeof range);
    heap->ranges[index] = range;
    heap->range_count++;
}

static hvd_status_t share(struct shm *shm, uint8_t *ptr, uint64_t bytes, struct error *error)
{
    const struct os *os = shm->base.os;
    struct shm_heap *heap = &shm->heap;
    size_t index = range_find(heap, (uintptr_t)ptr);
    if (index < heap->range_count && heap->ranges[index].at < (uintptr_t)ptr + bytes)
        return error_set(error, HVD_ERR_INVALID, "%p is registered already: %llu bytes at %p", ptr,
                         (unsigned long long)heap->ranges[index].bytes,
                         (void *)heap->ranges[index].at);
    uint64_t offset = UINT64_MAX;
    if (range_reserve(shm))
        offset = shm_extent_take(shm, bytes);
    if (offset == UINT64_MAX)
        return error_set(error, HVD_ERR_NO_MEMORY,
                         "the arena has no room for %llu more bytes; HOROVOD_ARENA_MAX is "
                         "its size",
                         (unsigned long long)bytes);
    memcpy(shm->segment + offset, ptr, bytes);
    int rc = os->share(os->ctx, ptr, bytes, shm->segment_fd, offset);
    if (rc < 0) {
        shm_extent_give(shm, offset);
        return error_set_os(error, rc, "can't map %llu bytes at %p", (unsigned long long)bytes,
                            ptr);
    }
    range_insert(heap, index,
                 (struct heap_range){.at = (uintptr_t)ptr, .bytes = bytes, .offset = offset});
    atomic_store_explicit(&heap->has_ranges, true, memory_order_release);
    return HVD_OK;
}

/* --- the door --- */

hvd_status_t shm_register(struct shm *shm, void *ptr, uint64_t bytes, struct error *error)
{
    hvd_status_t status = range_check(shm, ptr, bytes, error);
    if (status != HVD_OK)
        return status;
    if (shm_offset(shm, ptr, 1) == UINT64_MAX) { /* otherwise there is a better message below */
        status = memory_check(shm->base.os, ptr, bytes, error);
        if (status != HVD_OK)
            return status;
    } else if (shm_heap_offset(shm, ptr, 1) != UINT64_MAX) {
        return error_set(error, HVD_ERR_INVALID,
                         "%p is memory of hvd_alloc(): peers can reach it as it is", ptr);
    }
    pthread_mutex_lock(&shm->heap.lock);
    status = share(shm, ptr, bytes, error);
    pthread_mutex_unlock(&shm->heap.lock);
    return status;
}

static hvd_status_t unshare(struct shm *shm, size_t index, struct error *error)
{
    const struct os *os = shm->base.os;
    struct shm_heap *heap = &shm->heap;
    struct heap_range range = heap->ranges[index];
    int rc = os->unshare(os->ctx, (void *)range.at, range.bytes);
    if (rc < 0)
        return error_set_os(error, rc, "can't make %llu bytes at %p private again",
                            (unsigned long long)range.bytes, (void *)range.at);
    heap->range_count--;
    memmove(&heap->ranges[index], &heap->ranges[index + 1],
            (heap->range_count - index) * sizeof range);
    shm_extent_give(shm, range.offset);
    return HVD_OK;
}

hvd_status_t shm_unregister(struct shm *shm, void *ptr, struct error *error)
{
    struct shm_heap *heap = &shm->heap;
    pthread_mutex_lock(&heap->lock);
    size_t index = range_find(heap, (uintptr_t)ptr);
    hvd_status_t status;
    if (index == heap->range_count || heap->ranges[index].at != (uintptr_t)ptr)
        status = error_set(error, HVD_ERR_INVALID, "no buffer was registered at %p", ptr);
    else
        status = unshare(shm, index, error);
    pthread_mutex_unlock(&heap->lock);
    return status;
}

uint64_t shm_range_offset(struct shm *shm, const void *ptr, size_t bytes)
{
    struct shm_heap *heap = &shm->heap;
    uint64_t offset = UINT64_MAX;
    pthread_mutex_lock(&heap->lock);
    size_t index = range_find(heap, (uintptr_t)ptr);
    if (index < heap->range_count && heap->ranges[index].at <= (uintptr_t)ptr) {
        const struct heap_range *range = &heap->ranges[index];
        uint64_t skip = (uintptr_t)ptr - range->at;
        if (bytes <= range->bytes - skip && !range->is_retired)
            offset = range->offset + skip;
    }
    pthread_mutex_unlock(&heap->lock);
    return offset;
}

bool shm_range_detach(struct shm *shm, const void *ptr, size_t bytes)
{
    struct shm_heap *heap = &shm->heap;
    const struct os *os = shm->base.os;
    bool is_done = true;
    pthread_mutex_lock(&heap->lock);
    size_t index = range_find(heap, (uintptr_t)ptr);
    if (index < heap->range_count && heap->ranges[index].at <= (uintptr_t)ptr) {
        struct heap_range *range = &heap->ranges[index];
        uint64_t first = ((uintptr_t)ptr - range->at) / shm->page * shm->page;
        uint64_t end = (uintptr_t)ptr - range->at + bytes;
        end = end < range->bytes ? (end + shm->page - 1) / shm->page * shm->page : range->bytes;
        is_done = os->detach(os->ctx, (void *)(range->at + first), end - first, shm->segment_fd,
                             range->offset + first) == 0;
        range->is_retired = true;
        shm_extent_retire(shm, range->offset);
    }
    pthread_mutex_unlock(&heap->lock);
    return is_done;
}

/* What can't be made private again stays mapped: the caller may still use it, and the segment's
 * pages live as long as something maps them. */
void shm_unregister_all(struct shm *shm)
{
    struct shm_heap *heap = &shm->heap;
    const struct os *os = shm->base.os;
    for (size_t i = 0; i < heap->range_count; i++)
        if (os->unshare(os->ctx, (void *)heap->ranges[i].at, heap->ranges[i].bytes) == 0)
            shm_extent_give(shm, heap->ranges[i].offset);
    os_free(os, heap->ranges);
    heap->ranges = NULL;
    heap->range_count = heap->range_capacity = 0;
}
