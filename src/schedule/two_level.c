/* SPDX-License-Identifier: Apache-2.0 */
/* two_level.c - several ranks per machine: reduce in shared memory, allreduce between machines,
 * spread in shared memory. The network carries 2 (H-1)/H S bytes per machine, not per rank.
 *
 * The region is split into lanes; the l-th rank of every machine owns lane l. Machines may differ
 * in their number of ranks: there are at most as many lanes as the smallest machine has ranks, and
 * the ranks beyond own nothing (their data is still included).
 *
 *       wave 0                 every input is in place
 *       owner of lane l        WORK[lane l] of all ranks on the machine -> mine
 *       owners of lane l       flat allreduce of WORK[lane l] between the machines
 *       owner of lane l        spreads WORK[lane l] to all ranks on the machine
 *       wave 1                 every lane has arrived
 *
 * Invariant: between the waves only its owner accesses lane l of every WORK on the machine. Thread:
 * any (pure).  Start reading at build_two_level(). */
#include <string.h>

#include "schedule/build.h"

#define LANE_BYTES_MIN (16u << 10)

/* Counts my host's ranks before me, and the ranks of the smallest host. `counts` is zeroed. */
static int32_t host_smallest(const struct topology *topology, int32_t *counts)
{
    int32_t least = topology->size;
    for (int32_t i = 0; i < topology->size; i++)
        counts[topology->host[i]]++;
    for (int32_t h = 0; h < topology->host_count; h++)
        if (counts[h] < least)
            least = counts[h];
    return least;
}

static int32_t host_place(const struct topology *topology, int32_t rank)
{
    int32_t place = 0;
    for (int32_t i = 0; i < rank; i++)
        if (topology->host[i] == topology->host[rank])
            place++;
    return place;
}

/* members[h] = the rank with `place` on host h; counts is used as a tally per host. */
static void lane_members(const struct topology *topology, int32_t place, int32_t *members,
                         int32_t *counts)
{
    memset(counts, 0, (size_t)topology->host_count * sizeof *counts);
    for (int32_t i = 0; i < topology->size; i++) {
        int32_t host = topology->host[i];
        if (counts[host]++ == place)
            members[host] = i;
    }
}

static bool members_reserve(struct schedule *s, int32_t count)
{
    if (s->member_capacity >= count)
        return true;
    int32_t *members = s->os->resize(s->os->ctx, s->members, (size_t)count * sizeof *members);
    if (members == NULL)
        return false;
    s->members = members;
    s->member_capacity = count;
    return true;
}

static int32_t lane_count(const struct build *b, int32_t most)
{
    uint64_t useful = b->count * b->element_bytes / LANE_BYTES_MIN;
    if (useful < 1)
        useful = 1;
    return useful < (uint64_t)most ? (int32_t)useful : most;
}

static void build_lane(struct build *b, const struct topology *topology, struct slice lane,
                       int32_t channels)
{
    bool is_only_host = topology->host_count == 1;
    struct build inner = *b;
    inner.members = b->s->members;
    inner.size = topology->host_count;
    inner.rank = topology->host[b->rank];
    inner.base = lane.offset;
    inner.count = lane.count;
    build_push(b, (struct step){.kind = STEP_REDUCE_HOST,
                                .is_final = is_only_host,
                                .offset = lane.offset,
                                .count = lane.count});
    inner.status = b->status;
    build_network(
        &inner, select_network(select_scaled(lane.count * b->element_bytes, topology), inner.size),
        channels);
    b->status = inner.status;
    build_push(b, (struct step){.kind = STEP_SPREAD, .offset = lane.offset, .count = lane.count});
}

void build_two_level(struct build *b, const struct topology *topology)
{
    if (b->size < 2 || b->count == 0)
        return;
    if (!members_reserve(b->s, 2 * topology->host_count)) {
        b->status = HVD_ERR_NO_MEMORY;
        return;
    }
    int32_t *members = b->s->members, *counts = members + topology->host_count;
    memset(counts, 0, (size_t)topology->host_count * sizeof *counts);
    int32_t lanes = lane_count(b, host_smallest(topology, counts));
    int32_t place = host_place(topology, b->rank);
    lane_members(topology, place, members, counts);

    build_wave(b, 0);
    if (place < lanes) {
        struct slice lane =
            build_slice(b->count, (uint64_t)lanes, (uint64_t)place, b->element_bytes);
        lane.offset += b->base;
        if (lane.count > 0)
            build_lane(b, topology, lane, topology->channels / lanes);
    }
    build_wave(b, 1);
}
