/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - see memory.h. */
#include "api/memory.h"

#include <stdint.h>

#define ALIGNMENT 64u

struct loan {
    void *ptr;  /* what the caller has; the key */
    void *base; /* what the system gave */
};

void memory_init(struct memory *memory, const struct os *os)
{
    memory->os = os;
    pthread_mutex_init(&memory->lock, NULL);
    map_init(&memory->lent, os);
}

void memory_forked(struct memory *memory)
{
    pthread_mutex_init(&memory->lock, NULL);
}

static bool loan_put(struct memory *memory, void *ptr, void *base)
{
    struct loan *loan = os_alloc(memory->os, sizeof *loan);
    if (loan == NULL)
        return false;
    *loan = (struct loan){.ptr = ptr, .base = base};
    pthread_mutex_lock(&memory->lock);
    int rc = map_put(&memory->lent, &loan->ptr, sizeof loan->ptr, loan);
    pthread_mutex_unlock(&memory->lock);
    if (rc == 0)
        return true;
    os_free(memory->os, loan);
    return false;
}

void *memory_alloc(struct memory *memory, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    void *base = os_alloc(memory->os, bytes + ALIGNMENT);
    if (base == NULL)
        return NULL;
    uintptr_t at = ((uintptr_t)base + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (loan_put(memory, (void *)at, base))
        return (void *)at;
    os_free(memory->os, base);
    return NULL;
}

bool memory_lend(struct memory *memory, void *ptr)
{
    return loan_put(memory, ptr, ptr);
}

void memory_free(struct memory *memory, void *ptr)
{
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&memory->lock);
    struct loan *loan = map_remove(&memory->lent, &ptr, sizeof ptr);
    pthread_mutex_unlock(&memory->lock);
    if (loan == NULL)
        return;
    os_free(memory->os, loan->base);
    os_free(memory->os, loan);
}
