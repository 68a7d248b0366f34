/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - see mem.h. Blocks of the arena are chained and never moved, so pointers into it stay
 * valid until mem_destroy(). Thread: the owner's.  Start reading at mem_alloc(). */
#include "mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"

#define MEM_BLOCK_BYTES 16384u
#define MEM_ALIGN       16u

struct mem_block {
    struct mem_block *next;
    size_t used, capacity;
    _Alignas(MEM_ALIGN) uint8_t data[];
};

static _Noreturn void no_memory(void)
{
    static const char text[] = "horovodrun: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(1);
}

void mem_init(struct mem *m, const struct os *os)
{
    m->os = os;
    m->blocks = NULL;
}

void mem_destroy(struct mem *m)
{
    while (m != NULL && m->blocks != NULL) {
        struct mem_block *next = m->blocks->next;
        bytes_wipe(m->blocks, sizeof *m->blocks + m->blocks->capacity); /* keys among it */
        os_free(m->os, m->blocks);
        m->blocks = next;
    }
}

void *mem_alloc(struct mem *m, size_t n)
{
    if (n > SIZE_MAX / 2)
        no_memory();
    n = (n + MEM_ALIGN - 1) & ~(size_t)(MEM_ALIGN - 1);
    struct mem_block *block = m->blocks;
    if (block == NULL || block->capacity - block->used < n) {
        size_t capacity = n > MEM_BLOCK_BYTES ? n : MEM_BLOCK_BYTES;
        block = os_alloc(m->os, sizeof *block + capacity);
        if (block == NULL)
            no_memory();
        block->capacity = capacity;
        block->next = m->blocks;
        m->blocks = block;
    }
    void *at = block->data + block->used;
    block->used += n;
    return at;
}

char *mem_copy_n(struct mem *m, const char *text, size_t n)
{
    char *copy = mem_alloc(m, n + 1);
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *mem_copy(struct mem *m, const char *text)
{
    return mem_copy_n(m, text, strlen(text));
}

char *mem_format(struct mem *m, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = mem_alloc(m, n < 0 ? 1 : (size_t)n + 1);
    if (n > 0)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void list_add(struct mem *m, struct list *list, char *item)
{
    if (list->count + 2 > list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        char **items = mem_alloc(m, capacity * sizeof *items);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    list->items[list->count] = NULL;
}

static size_t list_find(const struct list *list, const char *name, size_t n)
{
    size_t i = 0;
    while (i < list->count && !(strncmp(list->items[i], name, n) == 0 && list->items[i][n] == '='))
        i++;
    return i;
}

void list_put(struct mem *m, struct list *list, char *item)
{
    size_t at = list_find(list, item, strcspn(item, "="));
    if (at < list->count)
        list->items[at] = item;
    else
        list_add(m, list, item);
}

void list_set(struct mem *m, struct list *list, const char *name, const char *value)
{
    list_put(m, list, mem_format(m, "%s=%s", name, value));
}

void list_unset(struct list *list, const char *name)
{
    size_t at = list_find(list, name, strlen(name));
    if (at == list->count)
        return;
    memmove(&list->items[at], &list->items[at + 1], (list->count - at) * sizeof *list->items);
    list->count--;
}

const char *list_get(const struct list *list, const char *name)
{
    size_t at = list_find(list, name, strlen(name));
    return at < list->count ? list->items[at] + strlen(name) + 1 : NULL;
}

size_t bytes_used(const struct bytes *b)
{
    return b->end - b->start;
}

const uint8_t *bytes_at(const struct bytes *b)
{
    return b->data == NULL ? (const uint8_t *)"" : b->data + b->start;
}

static void bytes_discard(const struct os *os, struct bytes *b)
{
    if (b->data == NULL)
        return;
    bytes_wipe(b->data, b->capacity);
    os_free(os, b->data);
}

uint8_t *bytes_room(const struct os *os, struct bytes *b, size_t n)
{
    if (b->start > 0 && b->capacity - b->end < n) {
        memmove(b->data, b->data + b->start, bytes_used(b));
        b->end -= b->start;
        b->start = 0;
    }
    if (b->data == NULL || b->capacity - b->end < n) {
        if (n > SIZE_MAX / 4 || b->capacity > SIZE_MAX / 4)
            no_memory();
        size_t capacity = 2 * b->capacity + n;
        uint8_t *data = os_alloc(os, capacity);
        if (data == NULL)
            no_memory();
        if (b->data != NULL)
            memcpy(data, b->data, b->end);
        bytes_discard(os,
                      b); /* not resize(): messages hold keys, which a copy would leave behind */
        b->data = data;
        b->capacity = capacity;
    }
    return b->data + b->end;
}

void bytes_grew(struct bytes *b, size_t n)
{
    b->end += n;
}

void bytes_add(const struct os *os, struct bytes *b, const void *data, size_t n)
{
    if (n == 0)
        return;
    memcpy(bytes_room(os, b, n), data, n);
    bytes_grew(b, n);
}

void bytes_drop(struct bytes *b, size_t n)
{
    b->start += n;
    if (b->start == b->end)
        b->start = b->end = 0;
}

void bytes_free(const struct os *os, struct bytes *b)
{
    bytes_discard(os, b);
    *b = (struct bytes){0};
}
