/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - what the algorithm files share: appending steps, cutting a region into slices, and the
 * entry of each algorithm.
 *
 * An algorithm emits one rank's steps for the region [base, base + count) of WORK on one channel
 * (`struct build`). Its ranks are positions 0 .. size - 1 of a sub-group; `members` translates them
 * to indices of the whole group, so that the two-level algorithm can run any flat one among the
 * owners of a lane. The first failure sticks in `status`; emitting goes on harmlessly.
 *
 * Thread: any (pure).  Owner: the caller's stack.  Start reading at build_push(). */
#ifndef HVD_SCHEDULE_BUILD_H
#define HVD_SCHEDULE_BUILD_H

#include "schedule/schedule.h"

/* Below this a channel is not worth its own flow. */
#define BUILD_CHANNEL_BYTES_MIN (512u << 10)

struct build {
    struct schedule *s;
    const int32_t *members; /* NULL: positions are group indices */
    int32_t size, rank;     /* positions */
    uint64_t base, count;
    size_t element_bytes;
    uint16_t channel;
    hvd_status_t status;
};

struct slice {
    uint64_t offset, count;
};

/* [0, count) in nearly equal parts; borders on whole cache lines where the parts are large enough
 * for that. */
struct partition {
    uint64_t count, parts;
    uint64_t grain, each, extra; /* units of `grain` elements: `each` per part, one more for the
                                    first `extra` parts; the last part also takes the remainder */
};

typedef void (*build_flat_t)(struct build *b);

struct partition build_partition(uint64_t count, uint64_t parts, size_t element_bytes);
static inline struct slice build_part(const struct partition *p, uint64_t index)
{
    uint64_t first = index * p->each + (index < p->extra ? index : p->extra);
    uint64_t units = p->each + (index < p->extra ? 1 : 0);
    struct slice slice = {first * p->grain, units * p->grain};
    if (index == p->parts - 1)
        slice.count = p->count - slice.offset;
    return slice;
}

struct slice build_slice(uint64_t count, uint64_t parts, uint64_t index, size_t element_bytes);
int32_t build_peer(const struct build *b, int32_t position);
void build_push(struct build *b, struct step step);
/* A transfer of [offset, +count) with a position; nothing is emitted for no elements. */
void build_transfer(struct build *b, enum step_kind kind, int32_t position, struct slice region,
                    bool is_open);
void build_reduce(struct build *b, int32_t position, struct slice region, bool is_left,
                  bool is_final);
/* Send one region and receive another at once. */
void build_exchange(struct build *b, int32_t to, struct slice out, int32_t from, struct slice in);
void build_exchange_reduce(struct build *b, int32_t to, struct slice out, int32_t from,
                           struct slice in, bool is_left, bool is_final);
void build_wave(struct build *b, int32_t wave); /* publish and await */
/* Runs `flat` once per channel, each on its slice of b's region. */
void build_channels(struct build *b, build_flat_t flat, int32_t channels);
int32_t build_channel_count(uint64_t bytes, int32_t wanted);
uint32_t build_power_below(uint32_t n); /* largest power of two <= n; n > 0 */

void build_recursive_doubling(struct build *b);
void build_rabenseifner(struct build *b);
void build_ring(struct build *b);
void build_double_tree(struct build *b); /* uses channels 0 and 1 */
void build_direct(struct build *b);
void build_one_shot(struct build *b);
void build_staged(struct build *b);
void build_two_level(struct build *b, const struct topology *topology);
/* The flat algorithm `algorithm` on b's region with as many channels as it can use. */
void build_network(struct build *b, enum schedule_algorithm algorithm, int32_t channels);
/* The row for `hosts` ranks that only the network joins. */
enum schedule_algorithm select_network(uint64_t bytes, int32_t hosts);

#endif
