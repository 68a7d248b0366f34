/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the life of a schedule and the pieces that all algorithms are built from.
 *
 * Thread: any (pure).  Owner: the caller.  Invariant: memory is kept between builds, so a schedule
 * that is built again and again for the same sizes allocates nothing.  Start at build_push(). */
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
