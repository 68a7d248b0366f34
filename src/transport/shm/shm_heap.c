/* SPDX-License-Identifier: Apache-2.0 */
/* shm_heap.c - memory in this rank's segment that peers can access.
 *
 * All bookkeeping is private, so a peer that writes out of bounds can corrupt data but not the
 * heap. Extents cover the heap without gaps, in a sorted array: first fit, neighbours merged when
 * freed. Blocks up to HEAP_SMALL_MAX come from slabs of equal blocks, which are extents too. Large
 * freed extents return their pages to the system and so are zero again; smaller ones keep them and
 * are cleared when taken.
 *
 * Thread: any (one lock).  Owner: struct shm.  Start reading at shm_heap_alloc(). */
#include <errno.h>
#include <string.h>

#include "transport/shm/shm_internal.h"

#define HEAP_SMALL_MAX 2048u
#define HEAP_DISCARD_BYTES                                                                         \
    (1ull << 20) /* faulting pages in again costs more than clearing them                          \
                  */
#define HEAP_FIRST_EXTENTS 64u

static bool extents_reserve(struct shm *shm, size_t more)
{
    struct shm_heap *heap = &shm->heap;
    if (heap->count + more <= heap->capacity)
        return true;
    size_t capacity = heap->capacity == 0 ? HEAP_FIRST_EXTENTS : heap->capacity * 2;
    const struct os *os = shm->base.os;
    void *extents = os->resize(os->ctx, heap->extents, capacity * sizeof *heap->extents);
    if (extents == NULL)
        return false;
    heap->extents = extents;
    heap->capacity = capacity;
    return true;
}

static void extent_insert(struct shm_heap *heap, size_t index, struct heap_extent extent)
{
    memmove(&heap->extents[index + 1], &heap->extents[index],
            (heap->count - index) * sizeof extent);
    heap->extents[index] = extent;
    heap->count++;
}

static void extent_remove(struct shm_heap *heap, size_t index)
{
    heap->count--;
    memmove(&heap->extents[index], &heap->extents[index + 1],
            (heap->count - index) * sizeof heap->extents[0]);
}

/* The extent that holds offset `at`. */
static size_t extent_find(const struct shm_heap *heap, uint64_t at)
{
    size_t low = 0;
    for (size_t high = heap->count; high - low > 1;) {
        size_t middle = low + (high - low) / 2;
        if (heap->extents[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Takes `bytes` (whole pages); NULL: no room. The result is valid until the array changes. */
static struct heap_extent *extent_take(struct shm *shm, uint64_t bytes)
{
    struct shm_heap *heap = &shm->heap;
    if (!extents_reserve(shm, 1))
        return NULL;
    for (size_t i = 0; i < heap->count; i++) {
        struct heap_extent *extent = &heap->extents[i];
        if (extent->is_used || extent->is_retired || extent->bytes < bytes)
            continue;
        if (extent->bytes > bytes) {
            struct heap_extent rest = *extent;
            rest.at += bytes;
            rest.bytes -= bytes;
            extent->bytes = bytes;
            extent_insert(heap, i + 1, rest);
        }
        heap->extents[i].is_used = true;
        return &heap->extents[i];
    }
    return NULL;
}

static bool can_merge(const struct heap_extent *a, const struct heap_extent *b)
{
    return !a->is_used && !b->is_used && !a->is_retired && !b->is_retired &&
           a->is_dirty == b->is_dirty;
}

static void extent_give(struct shm *shm, size_t index)
{
    struct shm_heap *heap = &shm->heap;
    const struct os *os = shm->base.os;
    struct heap_extent *extent = &heap->extents[index];
    extent->is_used = false;
    extent->slab = NULL;
    extent->is_dirty = true;
    if (extent->is_retired) { /* only its memory is released, not its offset */
        if (os->share(os->ctx, shm->segment + extent->at, extent->bytes, shm->segment_fd,
                      extent->at) == 0)
            (void)os->discard(os->ctx, shm->segment_fd, extent->at, extent->bytes);
        return;
    }
    if (extent->bytes >= HEAP_DISCARD_BYTES &&
        os->discard(os->ctx, shm->segment_fd, extent->at, extent->bytes) == 0)
        extent->is_dirty = false;
    if (index + 1 < heap->count && can_merge(extent, &heap->extents[index + 1])) {
        extent->bytes += heap->extents[index + 1].bytes;
        extent_remove(heap, index + 1);
    }
    if (index > 0 && can_merge(&heap->extents[index - 1], &heap->extents[index])) {
        heap->extents[index - 1].bytes += heap->extents[index].bytes;
        extent_remove(heap, index);
    }
}

/* Clean and dirty neighbours are not merged; when nothing fits, merge them. */
static void extents_merge_all(struct shm *shm)
{
    struct shm_heap *heap = &shm->heap;
    for (size_t i = 0; i + 1 < heap->count;) {
        struct heap_extent *extent = &heap->extents[i];
        const struct heap_extent *next = &heap->extents[i + 1];
        if (extent->is_used || next->is_used || extent->is_retired || next->is_retired) {
            i++;
            continue;
        }
        const struct os *os = shm->base.os;
        struct heap_extent *dirty = extent->is_dirty ? extent : &heap->extents[i + 1];
        if (dirty->is_dirty && os->discard(os->ctx, shm->segment_fd, dirty->at, dirty->bytes) == 0)
            dirty->is_dirty = false;
        extent->is_dirty |= heap->extents[i + 1].is_dirty;
        extent->bytes += heap->extents[i + 1].bytes;
        extent_remove(heap, i + 1);
    }
}

static struct heap_extent *extent_take_hard(struct shm *shm, uint64_t bytes)
{
    struct heap_extent *extent = extent_take(shm, bytes);
    if (extent != NULL)
        return extent;
    extents_merge_all(shm);
    return extent_take(shm, bytes);
}

static void *large_alloc(struct shm *shm, uint64_t bytes)
{
    uint64_t whole = (bytes + shm->page - 1) / shm->page * shm->page;
    struct heap_extent *extent = extent_take_hard(shm, whole);
    if (extent == NULL)
        return NULL;
    uint8_t *ptr = shm->segment + extent->at;
    if (extent->is_dirty)
        memset(ptr, 0, whole);
    return ptr;
}

uint64_t shm_extent_take(struct shm *shm, uint64_t bytes)
{
    struct heap_extent *extent = extent_take_hard(shm, bytes);
    return extent == NULL ? UINT64_MAX : extent->at;
}

void shm_extent_give(struct shm *shm, uint64_t offset)
{
    extent_give(shm, extent_find(&shm->heap, offset));
}

/* --- small blocks --- */

static uint32_t class_of(size_t bytes)
{
    uint32_t class = 0;
    while ((64u << class) < bytes)
        class ++;
    return class;
}

static struct heap_slab *slab_create(struct shm *shm, uint32_t class)
{
    const struct os *os = shm->base.os;
    struct heap_slab *slab = os_alloc(os, sizeof *slab);
    if (slab == NULL)
        return NULL;
    uint8_t *ptr = large_alloc(shm, HEAP_SLAB_BYTES);
    if (ptr == NULL) {
        os_free(os, slab);
        return NULL;
    }
    slab->at = (uint64_t)(ptr - shm->segment);
    slab->unit = 64u << class;
    slab->count = HEAP_SLAB_BYTES / slab->unit;
    for (uint32_t i = 0; i < slab->count; i++)
        slab->free_bits[i / 64] |= 1ull << (i % 64);
    shm->heap.extents[extent_find(&shm->heap, slab->at)].slab = slab;
    slab->next = shm->heap.slabs[class];
    shm->heap.slabs[class] = slab;
    return slab;
}

static void *slab_take(struct shm *shm, struct heap_slab *slab)
{
    for (uint32_t word = 0; word < HEAP_SLAB_BYTES / 64 / 64; word++) {
        uint64_t bits = slab->free_bits[word];
        if (bits == 0)
            continue;
        uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
        slab->free_bits[word] = bits & (bits - 1);
        slab->used++;
        uint8_t *ptr = shm->segment + slab->at + (uint64_t)index * slab->unit;
        return memset(ptr, 0, slab->unit);
    }
    return NULL;
}

static void *small_alloc(struct shm *shm, size_t bytes)
{
    uint32_t class = class_of(bytes);
    struct heap_slab *slab = shm->heap.slabs[class];
    while (slab != NULL && (slab->is_retired || slab->used == slab->count))
        slab = slab->next;
    if (slab == NULL)
        slab = slab_create(shm, class);
    return slab == NULL ? NULL : slab_take(shm, slab);
}

static void slab_give(struct shm *shm, size_t index, uint64_t at)
{
    struct heap_slab *slab = shm->heap.extents[index].slab;
    uint64_t offset = at - slab->at;
    uint32_t unit = (uint32_t)(offset / slab->unit);
    uint64_t bit = 1ull << (unit % 64);
    if (offset % slab->unit != 0 || (slab->free_bits[unit / 64] & bit) != 0)
        return;
    slab->free_bits[unit / 64] |= bit;
    slab->used--;
    if (slab->used > 0)
        return;
    struct heap_slab **link = &shm->heap.slabs[class_of(slab->unit)];
    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    os_free(shm->base.os, slab);
    extent_give(shm, index);
}

/* --- the door --- */

void *shm_heap_alloc(struct shm *shm, size_t bytes)
{
    if (bytes > shm->bytes)
        return NULL;
    if (bytes == 0)
        bytes = 1;
    pthread_mutex_lock(&shm->heap.lock);
    void *ptr = bytes <= HEAP_SMALL_MAX ? small_alloc(shm, bytes) : large_alloc(shm, bytes);
    pthread_mutex_unlock(&shm->heap.lock);
    return ptr;
}

void shm_heap_free(struct shm *shm, void *ptr)
{
    if (ptr == NULL || shm_heap_offset(shm, ptr, 1) == UINT64_MAX)
        return;
    uint64_t at = (uint64_t)((uint8_t *)ptr - shm->segment);
    pthread_mutex_lock(&shm->heap.lock);
    size_t index = extent_find(&shm->heap, at);
    struct heap_extent *extent = &shm->heap.extents[index];
    if (extent->is_used && extent->slab != NULL)
        slab_give(shm, index, at);
    else if (extent->is_used && extent->at == at)
        extent_give(shm, index);
    pthread_mutex_unlock(&shm->heap.lock);
}

uint64_t shm_heap_offset(const struct shm *shm, const void *ptr, size_t bytes)
{
    uintptr_t first = (uintptr_t)(shm->segment + SHM_HEAP_AT);
    uintptr_t end = (uintptr_t)(shm->segment + shm->bytes);
    uintptr_t at = (uintptr_t)ptr;
    if (at < first || at > end || bytes > end - at)
        return UINT64_MAX;
    return (uint64_t)(at - (uintptr_t)shm->segment);
}

/* --- memory that peers must no longer access --- */

static bool is_retired(struct shm *shm, uint64_t offset)
{
    if (!atomic_load_explicit(&shm->heap.has_retired, memory_order_acquire))
        return false;
    pthread_mutex_lock(&shm->heap.lock);
    bool is_found = shm->heap.extents[extent_find(&shm->heap, offset)].is_retired;
    pthread_mutex_unlock(&shm->heap.lock);
    return is_found;
}

void shm_extent_retire(struct shm *shm, uint64_t offset)
{
    struct heap_extent *extent = &shm->heap.extents[extent_find(&shm->heap, offset)];
    extent->is_retired = true;
    if (extent->slab != NULL)
        extent->slab->is_retired = true;
    atomic_store_explicit(&shm->heap.has_retired, true, memory_order_release);
}

bool shm_detach(struct shm *shm, void *ptr, size_t bytes)
{
    const struct os *os = shm->base.os;
    uint64_t offset = shm_heap_offset(shm, ptr, bytes);
    if (bytes == 0)
        return true;
    if (offset == UINT64_MAX)
        return shm_range_detach(shm, ptr, bytes);
    uint64_t first = offset / shm->page * shm->page;
    uint64_t end = (offset + bytes + shm->page - 1) / shm->page * shm->page;
    pthread_mutex_lock(&shm->heap.lock);
    bool is_done =
        os->detach(os->ctx, shm->segment + first, end - first, shm->segment_fd, first) == 0;
    shm_extent_retire(shm, offset); /* in any case: nothing new is to be put there */
    pthread_mutex_unlock(&shm->heap.lock);
    return is_done;
}

uint64_t shm_offset(struct shm *shm, const void *ptr, size_t bytes)
{
    uint64_t offset = shm_heap_offset(shm, ptr, bytes);
    if (offset != UINT64_MAX)
        return is_retired(shm, offset) ? UINT64_MAX : offset;
    if (!atomic_load_explicit(&shm->heap.has_ranges, memory_order_acquire))
        return UINT64_MAX;
    return shm_range_offset(shm, ptr, bytes);
}

bool shm_is_heap_range(const struct shm *shm, int32_t rank, uint64_t offset, uint64_t bytes)
{
    uint64_t total;
    if (shm->base.ops->arena(&shm->base, rank, &total) == NULL)
        return false;
    return offset >= SHM_HEAP_AT && offset <= total && bytes <= total - offset;
}

int shm_heap_init(struct shm *shm)
{
    struct shm_heap *heap = &shm->heap;
    if (!extents_reserve(shm, 1))
        return -ENOMEM;
    if (pthread_mutex_init(&heap->lock, NULL) != 0)
        return -ENOMEM;
    heap->is_ready = true;
    extent_insert(heap, 0,
                  (struct heap_extent){.at = SHM_HEAP_AT, .bytes = shm->bytes - SHM_HEAP_AT});
    return 0;
}

/* A caller may use its memory long after shutdown, for instance a gradient: blocks still in use
 * become private in place, or at worst stay shared, and are left to the process. */
void shm_segment_unmap(struct shm *shm)
{
    const struct os *os = shm->base.os;
    uint64_t done = 0;
    if (shm->segment == NULL)
        return;
    for (size_t i = 0; i < shm->heap.count; i++) {
        const struct heap_extent *extent = &shm->heap.extents[i];
        if (!extent->is_used)
            continue;
        if (extent->at > done)
            os->unmap(os->ctx, shm->segment + done, extent->at - done);
        (void)os->unshare(os->ctx, shm->segment + extent->at, extent->bytes);
        done = extent->at + extent->bytes;
    }
    if (done < shm->bytes)
        os->unmap(os->ctx, shm->segment + done, shm->bytes - done);
    shm->segment = NULL;
}

void shm_heap_destroy(struct shm *shm)
{
    struct shm_heap *heap = &shm->heap;
    const struct os *os = shm->base.os;
    for (uint32_t class = 0; class < HEAP_CLASSES; class ++) {
        for (struct heap_slab *slab = heap->slabs[class], *next; slab != NULL; slab = next) {
            next = slab->next;
            os_free(os, slab);
        }
    }
    os_free(os, heap->extents);
    if (heap->is_ready)
        pthread_mutex_destroy(&heap->lock);
    heap->is_ready = false;
}
