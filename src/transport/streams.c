/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - see streams.h. */
#include "transport/streams.h"

#include <assert.h>

uint64_t stream_number(uint64_t base, uint64_t sequence, uint32_t channel)
{
    const uint64_t mask = (1ull << STREAM_SEQUENCE_BITS) - 1;
    assert((base & UINT32_MAX) == 0 && channel < 1u << STREAM_CHANNEL_BITS);
    return base | (sequence & mask) << STREAM_CHANNEL_BITS | channel;
}

static int32_t find(const struct streams *streams, uint64_t stream)
{
    for (int32_t i = 0; i < streams->count; i++)
        if (streams->open[i].first >> STREAM_LIFE_AT == stream >> STREAM_LIFE_AT)
            return i;
    return -1;
}

static void over_raise(struct streams *streams, uint64_t life)
{
    uint64_t over = life << STREAM_LIFE_AT;
    if (!streams->has_begun || (int64_t)(over - streams->over) > 0)
        streams->over = over;
    streams->has_begun = true;
}

void streams_open(struct streams *streams, int32_t slot, uint64_t first)
{
    int32_t at = find(streams, first);
    if (at < 0) {
        assert(streams->count < STREAM_LIVES_MAX);
        at = streams->count++;
        over_raise(streams, first >> STREAM_LIFE_AT);
    }
    streams->open[at].first = first;
    streams->open[at].slot = slot;
}

void streams_close(struct streams *streams, uint64_t first)
{
    int32_t at = find(streams, first);
    if (at < 0)
        return;
    streams->open[at] = streams->open[--streams->count];
    over_raise(streams, (first >> STREAM_LIFE_AT) + 1);
}

bool streams_is_over(const struct streams *streams, uint64_t stream)
{
    int32_t at = find(streams, stream);
    if (at >= 0) /* within one life the difference of the lower bits counts */
        return (int64_t)((stream - streams->open[at].first) << (64 - STREAM_LIFE_AT)) < 0;
    return streams->has_begun && (int64_t)(stream - streams->over) < 0;
}

int32_t streams_slot(const struct streams *streams, uint64_t stream)
{
    int32_t at = find(streams, stream);
    return at < 0 ? -1 : streams->open[at].slot;
}

uint64_t streams_first(const struct streams *streams, uint64_t stream)
{
    int32_t at = find(streams, stream);
    return at < 0 ? 0 : streams->open[at].first;
}
