/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - a hash table from byte strings to pointers; open addressing, keys owned by the caller
 * (they must outlive their entry). Allocates only when it grows. Thread: the owner's.  Start at
 * map_put(). */
#ifndef HVD_BASE_MAP_H
#define HVD_BASE_MAP_H
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"

struct map_slot {
    const void *key; /* NULL: free */
    size_t key_bytes;
    uint64_t hash;
    void *value;
};
struct map {
    const struct os *os;
    struct map_slot *slots;
    size_t capacity, count; /* capacity: power of two, or 0 */
};
void map_init(struct map *map, const struct os *os);
void map_destroy(struct map *map); /* values are not touched */
void *map_get(const struct map *map, const void *key, size_t key_bytes); /* NULL: absent */
int map_put(struct map *map, const void *key, size_t key_bytes,
            void *value);                                             /* replaces; -ENOMEM */
void *map_remove(struct map *map, const void *key, size_t key_bytes); /* the old value or NULL */
/* Iterates over all entries in unspecified order: start with *cursor = 0; returns NULL at the end.
 */
void *map_next(const struct map *map, size_t *cursor);
uint64_t hash_bytes(const void *bytes, size_t n);
#endif
