/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - what the algorithm files share: appending steps, splitting a region into slices, and
 * the entry point of each algorithm.
 *
 * An algorithm emits one rank's steps for the region [base, base + count) of WORK on one channel
 * (`struct build`). Its ranks are positions 0 .. size - 1 of a sub-group; `members` translates them
 * to indices of the whole group, so that the two-level algorithm can run any flat one among the
 * owners of a lane. `status` keeps the first failure; further emits are harmless.
 *
 * Thread: any (pure).  Owner: the caller's stack.  Start reading at build_push(). */
#ifndef HVD_SCHEDULE_BUILD_H
#define HVD_SCHEDULE_BUILD_H

#include "schedule/schedule.h"

/* Below this size a channel does not get its own flow. */
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

/* [0, count) in nearly equal parts; boundaries on whole cache lines if the parts are large enough.
 */
struct partition {
    uint64_t count, parts;
    uint64_t grain, each, extra; /* units of `grain` elements: `each` per part, one more for the
                                    first `extra` parts; the last part also takes the remainder */
};

/* Every rank's part of WORK. */
struct parts {
    const uint64_t *offsets, *counts;
    uint32_t n;
};

/* Ranks that are not a power of two, N = p + e with p the power below: the first 2e ranks form e
 * pairs; the odd one of a pair gives its data to the even one, sits out, and gets the result at the
 * end. The p that go on have the slots 0 .. p - 1. */
struct fold {
    uint32_t power, extra, slot;
    bool is_paired;
};

typedef void (*build_flat_t)(struct build *b);
/* Steps for all parts at once, and those of one of several channels. */
typedef void (*build_small_t)(struct build *b, const struct parts *p);
typedef void (*build_cut_t)(struct build *b, const struct parts *p, uint64_t channel,
                            uint64_t channels);

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
/* A transfer of [offset, +count) with a position; an empty one emits nothing. */
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
/* false: no more steps are needed of this rank. */
bool build_fold(struct build *b, struct fold *ret);
void build_unfold(struct build *b, const struct fold *fold);
static inline int32_t build_fold_position(const struct fold *fold, uint32_t slot)
{
    return (int32_t)(slot < fold->extra ? 2 * slot : slot + fold->extra);
}

static inline struct slice build_part_at(const struct parts *p, uint32_t index)
{
    return (struct slice){p->offsets[index % p->n], p->counts[index % p->n]};
}

/* The slice of `part` that travels on one of `channels`. */
struct slice build_part_cut(struct slice part, uint64_t channels, uint64_t channel,
                            size_t element_bytes);
/* The schedule of a collective on parts: `small` up to `small_count` elements in all, else `cut`
 * once per channel. */
hvd_status_t build_parts(struct build *b, const struct parts *p, uint64_t small_count,
                         build_small_t small, build_cut_t cut, int32_t channels_wanted,
                         struct error *error);
/* The schedule of `b` is empty, with scratch for `scratch_count` elements. */
void build_begin(struct build *b, uint64_t scratch_count, enum schedule_algorithm algorithm);
hvd_status_t build_end(const struct build *b, struct error *error);
/* The last of the steps since `from` closes the open ones before it. */
void build_close(struct build *b, size_t from);

void build_recursive_doubling(struct build *b);
void build_rabenseifner(struct build *b);
void build_ring(struct build *b);
void build_double_tree(struct build *b); /* uses channels 0 and 1 */
void build_two_level(struct build *b, const struct topology *topology);
/* The flat algorithm `algorithm` on b's region with as many channels as it can use. */
void build_network(struct build *b, enum schedule_algorithm algorithm, int32_t channels);
/* The row for `hosts` ranks that are connected only by the network. */
enum schedule_algorithm select_network(uint64_t bytes, int32_t hosts);
uint64_t select_scaled(uint64_t bytes, const struct topology *topology);

#endif
