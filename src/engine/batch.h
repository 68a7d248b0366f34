/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - tensor fusion: which ready ops are executed together.
 *
 * Thread: token holder.  Start reading at batch_fuse(). */
#ifndef HVD_ENGINE_BATCH_H
#define HVD_ENGINE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct entry;
struct procset;

struct batch_item {
    struct entry *entry;
    bool is_taken;
};
/* Groups ready entries greedily, with look-ahead, into batches; calls `emit` for each. */
void batch_fuse(const struct procset *set, struct batch_item *items, int32_t count,
                void (*emit)(void *arg, const uint32_t *ids, int32_t count), void *arg);
/* Can these entries run as one collective? Validates a coordinator's batches. */
bool batch_is_sane(const struct procset *set, const uint32_t *ids, int32_t count);

#endif
