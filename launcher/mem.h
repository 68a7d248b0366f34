/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - the launcher's memory: an arena for what lives as long as the program, and growable byte
 * buffers for what flows through it.
 *
 * Out of memory ends the program with one line: its agents then see their pipes close and stop the
 * job, exactly as after kill -9, so no caller has to carry that case.
 * Thread: the owner's.  Start reading at mem_alloc(). */
#ifndef HVD_LAUNCHER_MEM_H
#define HVD_LAUNCHER_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/os.h"

struct mem_block;
struct mem {
    const struct os *os;
    struct mem_block *blocks; /* newest first */
};

/* A NULL-terminated list of strings in an arena. */
struct list {
    char **items;
    size_t count, capacity;
};

struct bytes {
    uint8_t *data; /* NULL while empty for the first time */
    size_t start, end, capacity;
};

void mem_init(struct mem *m, const struct os *os);
void mem_destroy(struct mem *m);
void *mem_alloc(struct mem *m, size_t n); /* zeroed, never NULL */
char *mem_copy(struct mem *m, const char *text);
char *mem_copy_n(struct mem *m, const char *text, size_t n);
char *mem_format(struct mem *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

void list_add(struct mem *m, struct list *list, char *item);
/* For a list of NAME=VALUE: replaces the entry of that name, or adds one. */
void list_set(struct mem *m, struct list *list, const char *name, const char *value);
void list_put(struct mem *m, struct list *list, char *item); /* the same, item is NAME=VALUE */
void list_unset(struct list *list, const char *name);
const char *list_get(const struct list *list, const char *name); /* NULL: absent */

size_t bytes_used(const struct bytes *b);
const uint8_t *bytes_at(const struct bytes *b);
void bytes_add(const struct os *os, struct bytes *b, const void *data, size_t n);
/* Room for n more bytes at the end; the caller writes there and then calls bytes_grew(). */
uint8_t *bytes_room(const struct os *os, struct bytes *b, size_t n);
void bytes_grew(struct bytes *b, size_t n);
void bytes_drop(struct bytes *b, size_t n); /* from the front */
void bytes_free(const struct os *os, struct bytes *b);

#endif
