/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - the response cache of a coordinator: entries by name, in the order of use.
 *
 * Thread: token holder of the set's lowest rank. */
#ifndef HVD_ENGINE_CACHE_H
#define HVD_ENGINE_CACHE_H

struct coordinator;
struct entry;
struct procset;

void cache_link(struct coordinator *c, struct entry *entry); /* as the most recently used */
void cache_use(struct coordinator *c, struct entry *entry);
void cache_evict(struct procset *set); /* it is full: forgets the least recently used entry */
void cache_forget(struct procset *set, struct entry *entry); /* voids an id on all ranks */
void cache_clear(struct procset *set);                       /* forgets all entries, by a reset */

#endif
