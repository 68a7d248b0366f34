/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - the response cache of a coordinator: entries by name, in the order of use, and which of
 * them are forgotten when it is full.
 *
 * Thread: token holder of the set's lowest rank.  Owner: struct coordinator.
 * Start reading at cache_evict(). */
#include "engine/cache.h"

#include <assert.h>
#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/response.h"
#include "engine/timeline.h"

#define EVICT_LOOKS 8
#define EVICT_MAX   2

static void cache_unlink(struct coordinator *c, struct entry *entry)
{
    *(entry->older != NULL ? &entry->older->newer : &c->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &c->newest) = entry->older;
    entry->older = entry->newer = NULL;
}

void cache_link(struct coordinator *c, struct entry *entry)
{
    entry->older = c->newest;
    *(c->newest != NULL ? &c->newest->newer : &c->oldest) = entry;
    c->newest = entry;
}

void cache_use(struct coordinator *c, struct entry *entry)
{
    if (c->newest == entry || entry->is_transient || entry->is_forgotten)
        return;
    cache_unlink(c, entry);
    cache_link(c, entry);
}

void cache_forget(struct procset *set, struct entry *entry)
{
    struct coordinator *c = set->coordinator;
    struct entry *cached = map_remove(&c->entries, entry->name, entry->name_bytes);
    assert(cached == entry && !entry->is_forgotten && !entry->is_transient);
    cache_unlink(c, entry);
    entry->is_forgotten =
        true; /* announcements by this id that arrive before all ranks know are ignored */
    for (int32_t i = 0; entry->is_ready && i < c->ready_count; i++)
        if (c->ready[i] == entry) {
            entry->is_ready = false;
            c->ready_bytes -= entry->bytes;
            memmove(&c->ready[i], &c->ready[i + 1],
                    (size_t)(c->ready_count - i - 1) * sizeof(struct entry *));
            c->ready_count--;
            break;
        }
    if (entry->ready_count > 0)
        timeline_negotiate_end(set->engine->timeline, set->id, entry->name, entry->name_bytes);
    c->steps_equal = 0;
    c->window_count = 0;
    c->step++;
    struct writer *w = response_room(set, RESPONSE_ITEM_FIXED);
    put_u8(w, ITEM_FORGET);
    put_u32(w, entry->id);
}

/* The cache is full: forgets the least recently used entry. An entry in use counts as used: if the
 * oldest few are in use, probably all are, and the cache grows for a while. Two entries are
 * forgotten for each new one, so that it shrinks again. */
void cache_evict(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    int32_t gone = 0;
    for (int32_t i = 0; i < EVICT_LOOKS && gone < EVICT_MAX && c->oldest != NULL &&
                        (int64_t)c->entries.count >= set->engine->config->cache_capacity;
         i++) {
        struct entry *oldest = c->oldest;
        if (oldest->queued > 0 || oldest->ready_count > 0 || oldest->is_ready) {
            cache_use(c, oldest);
            continue;
        }
        cache_forget(set, oldest);
        gone++;
    }
    if (gone == 0 || c->is_evict_told)
        return;
    c->is_evict_told = true;
    LOG_AT(set->engine->log, LOG_WARNING,
           "The response cache is full (%lld entries) and begins to forget; a larger "
           "HOROVOD_CACHE_CAPACITY keeps negotiation cheap.",
           (long long)set->engine->config->cache_capacity);
}

void cache_clear(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    map_destroy(&c->entries);
    map_init(&c->entries, set->engine->os);
    c->oldest = c->newest = NULL;
}
