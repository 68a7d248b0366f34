/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - a hash table from byte strings to pointers.
 *
 * Thread: the owner's.  Blocks: never.  Allocates: only when it grows. Open addressing with linear
 * probing. Removing moves later entries of the run back instead of leaving a tombstone, so that a
 * table that is filled and emptied repeatedly stays fast and never grows past its peak. Invariant:
 * every entry is between its home slot and the next free one; at least a quarter of the slots is
 * free, so every probe terminates.  Start reading at map_put(). */
#include "base/map.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define MAP_CAPACITY_MIN 16

static uint64_t hash_word(const uint8_t *at)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

/* Two rounds of multiply and fold: each input bit reaches both halves of the word. */
static uint64_t hash_mix(uint64_t v)
{
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    v ^= v >> 29;
    return v;
}

uint64_t hash_bytes(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint64_t h = hash_mix((uint64_t)n + 0x51ed270b27b4a7c5u);
    for (; n >= 8; n -= 8, at += 8)
        h = hash_mix(h ^ hash_word(at));
    uint8_t tail[8] = {0};
    if (n > 0)
        memcpy(tail, at, n);
    return hash_mix(h ^ hash_word(tail));
}

void map_init(struct map *map, const struct os *os)
{
    *map = (struct map){.os = os};
}

void map_destroy(struct map *map)
{
    if (map == NULL || map->slots == NULL)
        return;
    os_free(map->os, map->slots);
    *map = (struct map){.os = map->os};
}

static bool slot_matches(const struct map_slot *slot, const void *key, size_t key_bytes,
                         uint64_t hash)
{
    return slot->hash == hash && slot->key_bytes == key_bytes &&
           (key_bytes == 0 || memcmp(slot->key, key, key_bytes) == 0);
}

/* The slot of the key, or the free one where it would go. Needs capacity > 0. */
static struct map_slot *map_find(const struct map *map, const void *key, size_t key_bytes,
                                 uint64_t hash)
{
    size_t mask = map->capacity - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct map_slot *slot = &map->slots[i];
        if (slot->key == NULL || slot_matches(slot, key, key_bytes, hash))
            return slot;
    }
}

void *map_get(const struct map *map, const void *key, size_t key_bytes)
{
    if (map->count == 0)
        return NULL;
    const struct map_slot *slot = map_find(map, key, key_bytes, hash_bytes(key, key_bytes));
    return slot->key == NULL ? NULL : slot->value;
}

static int map_grow(struct map *map)
{
    size_t capacity = map->capacity == 0 ? MAP_CAPACITY_MIN : map->capacity * 2;
    if (capacity > SIZE_MAX / 2 / sizeof(struct map_slot))
        return -ENOMEM;
    struct map grown = {.os = map->os, .capacity = capacity, .count = map->count};
    grown.slots = os_alloc(map->os, capacity * sizeof(struct map_slot));
    if (grown.slots == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < map->capacity; i++) {
        const struct map_slot *slot = &map->slots[i];
        if (slot->key != NULL)
            *map_find(&grown, slot->key, slot->key_bytes, slot->hash) = *slot;
    }
    if (map->slots != NULL)
        os_free(map->os, map->slots);
    *map = grown;
    return 0;
}

int map_put(struct map *map, const void *key, size_t key_bytes, void *value)
{
    if (key == NULL)
        key = ""; /* an empty key still occupies its slot */
    uint64_t hash = hash_bytes(key, key_bytes);
    if (map->capacity > 0) {
        struct map_slot *slot = map_find(map, key, key_bytes, hash);
        if (slot->key != NULL) {
            slot->key = key;
            slot->value = value;
            return 0;
        }
    }
    if (map->count + 1 > map->capacity / 4 * 3) {
        int rc = map_grow(map);
        if (rc < 0)
            return rc;
    }
    struct map_slot *slot = map_find(map, key, key_bytes, hash);
    *slot = (struct map_slot){.key = key, .key_bytes = key_bytes, .hash = hash, .value = value};
    map->count++;
    return 0;
}

/* Refills the hole at index `hole` with entries of the same run that may legally move there. */
static void map_close_hole(struct map *map, size_t hole)
{
    size_t mask = map->capacity - 1;
    for (size_t i = (hole + 1) & mask; map->slots[i].key != NULL; i = (i + 1) & mask) {
        size_t home = (size_t)map->slots[i].hash & mask;
        size_t distance_home = (i - home) & mask;
        size_t distance_hole = (i - hole) & mask;
        if (distance_home >= distance_hole) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct map_slot){0};
}

void *map_remove(struct map *map, const void *key, size_t key_bytes)
{
    if (map->count == 0)
        return NULL;
    struct map_slot *slot = map_find(map, key, key_bytes, hash_bytes(key, key_bytes));
    if (slot->key == NULL)
        return NULL;
    void *value = slot->value;
    map_close_hole(map, (size_t)(slot - map->slots));
    map->count--;
    return value;
}

void *map_next(const struct map *map, size_t *cursor)
{
    while (*cursor < map->capacity) {
        const struct map_slot *slot = &map->slots[(*cursor)++];
        if (slot->key != NULL)
            return slot->value;
    }
    return NULL;
}
