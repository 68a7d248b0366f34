/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - creating and destroying a schedule, and the building blocks of all algorithms.
 *
 * Thread: any (pure).  Owner: the caller.  Invariant: memory is kept between builds, so a schedule
 * that is built repeatedly for the same sizes allocates nothing.  Start at build_push(). */
#include <string.h>

#include "schedule/build.h"

#define CACHE_LINE_BYTES 64u

void schedule_init(struct schedule *s, const struct os *os)
{
    memset(s, 0, sizeof *s);
    s->os = os;
}

void schedule_destroy(struct schedule *s)
{
    if (s == NULL || s->os == NULL)
        return;
    os_free(s->os, s->steps);
    os_free(s->os, s->members);
    schedule_init(s, s->os);
}

struct partition build_partition(uint64_t count, uint64_t parts, size_t element_bytes)
{
    uint64_t grain = element_bytes < CACHE_LINE_BYTES ? CACHE_LINE_BYTES / element_bytes : 1;
    if (count / parts < 4 * grain)
        grain = 1;
    uint64_t units = count / grain;
    return (struct partition){count, parts, grain, units / parts, units % parts};
}

struct slice build_slice(uint64_t count, uint64_t parts, uint64_t index, size_t element_bytes)
{
    struct partition partition = build_partition(count, parts, element_bytes);
    return build_part(&partition, index);
}

int32_t build_peer(const struct build *b, int32_t position)
{
    return b->members == NULL ? position : b->members[position];
}

static bool build_grow(struct build *b)
{
    struct schedule *s = b->s;
    size_t capacity = s->step_capacity == 0 ? 64 : s->step_capacity * 2;
    struct step *steps = s->os->resize(s->os->ctx, s->steps, capacity * sizeof *steps);
    if (steps == NULL) {
        b->status = HVD_ERR_NO_MEMORY;
        return false;
    }
    s->steps = steps;
    s->step_capacity = capacity;
    return true;
}

void build_push(struct build *b, struct step step)
{
    struct schedule *s = b->s;
    if (b->status != HVD_OK)
        return;
    if (s->step_count == s->step_capacity && !build_grow(b))
        return;
    step.channel = b->channel;
    if (s->channels <= b->channel)
        s->channels = b->channel + 1;
    s->steps[s->step_count++] = step;
}

void build_transfer(struct build *b, enum step_kind kind, int32_t position, struct slice region,
                    bool is_open)
{
    if (region.count == 0)
        return;
    build_push(b, (struct step){.kind = kind,
                                .peer = build_peer(b, position),
                                .is_open = is_open,
                                .offset = region.offset,
                                .count = region.count});
}

void build_reduce(struct build *b, int32_t position, struct slice region, bool is_left,
                  bool is_final)
{
    if (region.count == 0)
        return;
    build_push(b, (struct step){.kind = STEP_RECV_REDUCE,
                                .peer = build_peer(b, position),
                                .is_left = is_left,
                                .is_final = is_final,
                                .offset = region.offset,
                                .count = region.count});
}

void build_exchange(struct build *b, int32_t to, struct slice out, int32_t from, struct slice in)
{
    build_transfer(b, STEP_SEND, to, out, in.count > 0);
    build_transfer(b, STEP_RECV, from, in, false);
}

void build_exchange_reduce(struct build *b, int32_t to, struct slice out, int32_t from,
                           struct slice in, bool is_left, bool is_final)
{
    build_transfer(b, STEP_SEND, to, out, in.count > 0);
    build_reduce(b, from, in, is_left, is_final);
}

void build_wave(struct build *b, int32_t wave)
{
    build_push(b, (struct step){.kind = STEP_PUBLISH, .wave = wave});
    build_push(b, (struct step){.kind = STEP_AWAIT, .wave = wave});
}

void build_channels(struct build *b, build_flat_t flat, int32_t channels)
{
    struct build whole = *b;
    for (int32_t c = 0; c < channels; c++) {
        struct slice slice =
            build_slice(whole.count, (uint64_t)channels, (uint64_t)c, whole.element_bytes);
        b->base = whole.base + slice.offset;
        b->count = slice.count;
        b->channel = (uint16_t)(whole.channel + c);
        flat(b);
    }
    b->base = whole.base;
    b->count = whole.count;
    b->channel = whole.channel;
}

int32_t build_channel_count(uint64_t bytes, int32_t wanted)
{
    uint64_t useful = bytes / BUILD_CHANNEL_BYTES_MIN;
    int32_t most = wanted < SCHEDULE_CHANNELS_MAX ? wanted : SCHEDULE_CHANNELS_MAX;
    if (useful <= 1 || most <= 1)
        return 1;
    return useful < (uint64_t)most ? (int32_t)useful : most;
}

uint32_t build_power_below(uint32_t n)
{
    uint32_t power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

/* --- ranks that are not a power of two --- */

bool build_fold(struct build *b, struct fold *ret)
{
    uint32_t power = build_power_below((uint32_t)b->size), extra = (uint32_t)b->size - power;
    uint32_t rank = (uint32_t)b->rank;
    struct slice all = {b->base, b->count};
    bool is_paired = rank < 2 * extra;

    if (b->size < 2)
        return false;
    if (is_paired && rank % 2 == 1) {
        build_transfer(b, STEP_SEND, b->rank - 1, all, false);
        build_transfer(b, STEP_RECV, b->rank - 1, all, false);
        return false;
    }
    if (is_paired)
        build_reduce(b, b->rank + 1, all, true, false);
    *ret = (struct fold){power, extra, is_paired ? rank / 2 : rank - extra, is_paired};
    return true;
}

void build_unfold(struct build *b, const struct fold *fold)
{
    if (fold->is_paired)
        build_transfer(b, STEP_SEND, b->rank + 1, (struct slice){b->base, b->count}, false);
}

/* --- a whole schedule --- */

void build_begin(struct build *b, uint64_t scratch_count, enum schedule_algorithm algorithm)
{
    b->s->step_count = 0;
    b->s->scratch_count = scratch_count;
    b->s->channels = 1;
    b->s->algorithm = algorithm;
}

hvd_status_t build_end(const struct build *b, struct error *error)
{
    return b->status == HVD_OK ? HVD_OK : error_set(error, b->status, "no memory for a schedule");
}

void build_close(struct build *b, size_t from)
{
    if (b->status == HVD_OK && b->s->step_count > from)
        b->s->steps[b->s->step_count - 1].is_open = false;
}

struct slice build_part_cut(struct slice part, uint64_t channels, uint64_t channel,
                            size_t element_bytes)
{
    struct slice cut = build_slice(part.count, channels, channel, element_bytes);
    cut.offset += part.offset;
    return cut;
}

hvd_status_t build_parts(struct build *b, const struct parts *p, uint64_t small_count,
                         build_small_t small, build_cut_t cut, int32_t channels_wanted,
                         struct error *error)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < p->n; i++)
        total += p->counts[i];

    build_begin(b, 0, SCHEDULE_AUTO);
    if (total <= small_count) {
        small(b, p);
        return build_end(b, error);
    }
    int32_t channels = build_channel_count(total * b->element_bytes, channels_wanted);
    for (int32_t c = 0; c < channels; c++) {
        b->channel = (uint16_t)c;
        cut(b, p, (uint64_t)c, (uint64_t)channels);
    }
    return build_end(b, error);
}
