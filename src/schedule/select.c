/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - which algorithm for which size and topology: one table, first matching row wins.
 *
 * The thresholds follow the alpha-beta model: recursive doubling costs log2(N) S bytes but few
 * rounds, the others 2 (N-1)/N S bytes; with 30 us per round and 1.2 GB/s per flow they break even
 * at 144 KB for 4 ranks, 86 KB for 8 and 54 KB for 64. Two ranks swap whole buffers at every size:
 * one round and no byte more than the minimum.
 *
 * Invariant: the choice depends only on what is equal on all ranks. Thread: any (pure).  Start
 * reading at network_rows[]. */
#include <stdint.h>
#include <string.h>

#include "schedule/build.h"

#define KIB  1024ull
#define MIB  (1024ull * KIB)
#define ANY  UINT64_MAX
#define MANY INT32_MAX

struct row {
    int32_t ranks_max;    /* of the network group */
    bool is_power_of_two; /* only then */
    uint64_t bytes_max;
    enum schedule_algorithm algorithm;
};

/* One rank per host, or one lane of the two-level algorithm. */
static const struct row network_rows[] = {
    {2, false, ANY, SCHEDULE_RECURSIVE_DOUBLING},
    {4, false, 128 * KIB, SCHEDULE_RECURSIVE_DOUBLING},
    {16, false, 80 * KIB, SCHEDULE_RECURSIVE_DOUBLING},
    {MANY, false, 48 * KIB, SCHEDULE_RECURSIVE_DOUBLING},
    {MANY, true, 4 * MIB, SCHEDULE_RABENSEIFNER},
    {8, false, ANY, SCHEDULE_RING},
    {32, false, 1 * MIB, SCHEDULE_RABENSEIFNER},
    {32, false, ANY, SCHEDULE_RING},
    {MANY, false, 16 * MIB, SCHEDULE_DOUBLE_TREE},
    {MANY, false, ANY, SCHEDULE_RING},
};

static const char *const names[SCHEDULE_ALGORITHM_COUNT] = {
    [SCHEDULE_AUTO] = "auto",
    [SCHEDULE_RECURSIVE_DOUBLING] = "recursive_doubling",
    [SCHEDULE_RABENSEIFNER] = "rabenseifner",
    [SCHEDULE_RING] = "ring",
    [SCHEDULE_DOUBLE_TREE] = "double_tree",
    [SCHEDULE_TWO_LEVEL] = "two_level",
};

enum schedule_algorithm select_network(uint64_t bytes, int32_t ranks)
{
    bool is_power = (ranks & (ranks - 1)) == 0;
    const struct row *row = network_rows;
    while (ranks > row->ranks_max || bytes > row->bytes_max || (!is_power && row->is_power_of_two))
        row++; /* the last one takes all */
    return row->algorithm;
}

/* Sizes as the rows see them: with thresholds at 200 % a tensor counts half. */
uint64_t select_scaled(uint64_t bytes, const struct topology *topology)
{
    uint64_t percent = (uint64_t)topology->threshold_percent;
    if (percent == 0 || percent == 100)
        return bytes;
    return bytes / percent * 100 + bytes % percent * 100 / percent;
}

enum schedule_algorithm schedule_select(uint64_t bytes, const struct topology *topology)
{
    if (topology->host_count < topology->size)
        return SCHEDULE_TWO_LEVEL;
    return select_network(select_scaled(bytes, topology), topology->size);
}

const char *schedule_algorithm_name(enum schedule_algorithm algorithm)
{
    if ((unsigned)algorithm >= SCHEDULE_ALGORITHM_COUNT)
        return "unknown";
    return names[algorithm];
}

bool schedule_algorithm_parse(const char *name, enum schedule_algorithm *ret)
{
    for (int i = 0; i < SCHEDULE_ALGORITHM_COUNT; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *ret = (enum schedule_algorithm)i;
        return true;
    }
    return false;
}

void build_network(struct build *b, enum schedule_algorithm algorithm, int32_t channels)
{
    int32_t used = build_channel_count(b->count * b->element_bytes, channels);
    switch (algorithm) {
    case SCHEDULE_RECURSIVE_DOUBLING: build_channels(b, build_recursive_doubling, used); return;
    case SCHEDULE_RABENSEIFNER: build_channels(b, build_rabenseifner, used); return;
    case SCHEDULE_RING: build_channels(b, build_ring, used); return;
    case SCHEDULE_DOUBLE_TREE: build_double_tree(b); return;
    case SCHEDULE_AUTO:
    case SCHEDULE_TWO_LEVEL:
    case SCHEDULE_ALGORITHM_COUNT: break;
    }
    b->status = HVD_ERR_INTERNAL;
}

hvd_status_t schedule_allreduce(struct schedule *s, enum schedule_algorithm algorithm,
                                uint64_t count, size_t element_bytes, int32_t rank,
                                const struct topology *topology, struct error *error)
{
    if (rank < 0 || rank >= topology->size || element_bytes == 0)
        return error_set(error, HVD_ERR_INVALID, "allreduce schedule: rank %d of %d", rank,
                         topology->size);
    if (algorithm == SCHEDULE_AUTO)
        algorithm = schedule_select(count * element_bytes, topology);
    struct build b = {.s = s,
                      .size = topology->size,
                      .rank = rank,
                      .count = count,
                      .element_bytes = element_bytes};
    build_begin(&b, 0, algorithm);
    if (algorithm == SCHEDULE_TWO_LEVEL)
        build_two_level(&b, topology);
    else
        build_network(&b, algorithm, topology->channels);
    if (b.status == HVD_ERR_INTERNAL)
        return error_set(error, HVD_ERR_INTERNAL, "no such allreduce algorithm: %d",
                         (int)algorithm);
    return build_end(&b, error);
}
