/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - which algorithm for which size and shape: one table, first matching row wins.
 *
 * The thresholds follow the alpha-beta model: recursive doubling pays log2(N) S bytes but few
 * rounds, the others 2 (N-1)/N S bytes; with 30 us per round and 1.2 GB/s per flow they meet at
 * 144 KB for 4 ranks, 86 KB for 8 and 54 KB for 64. Two ranks swap whole buffers at every size: one
 * round and no byte more than the minimum.
 *
 * Invariant: the choice depends only on what is equal on all ranks.
 * Thread: any (pure).  Start reading at host_rows[] and network_rows[]. */
#include <stdint.h>
#include <string.h>

#include "schedule/build.h"

#define KIB  1024ull
#define MIB  (1024ull * KIB)
#define ANY  UINT64_MAX
#define MANY INT32_MAX

struct row {
    int32_t ranks_max;    /* on the one host, or of the network group */
    bool is_power_of_two; /* only then */
    uint64_t bytes_max;
    enum schedule_algorithm algorithm;
};

/* All ranks on one host, in sight of each other. */
static const struct row host_rows[] = {
    {8, false, 8 * KIB, SCHEDULE_ONE_SHOT},
    {MANY, false, 2 * KIB, SCHEDULE_ONE_SHOT},
    {MANY, false, ANY, SCHEDULE_DIRECT},
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
    [SCHEDULE_DIRECT] = "direct",
    [SCHEDULE_ONE_SHOT] = "one_shot",
    [SCHEDULE_STAGED] = "staged",
    [SCHEDULE_RECURSIVE_DOUBLING] = "recursive_doubling",
    [SCHEDULE_RABENSEIFNER] = "rabenseifner",
    [SCHEDULE_RING] = "ring",
    [SCHEDULE_DOUBLE_TREE] = "double_tree",
    [SCHEDULE_TWO_LEVEL] = "two_level",
};

static enum schedule_algorithm row_find(const struct row *rows, size_t count, uint64_t bytes,
                                        int32_t ranks)
{
    bool is_power = (ranks & (ranks - 1)) == 0;
    for (size_t i = 0; i < count; i++)
        if (ranks <= rows[i].ranks_max && bytes <= rows[i].bytes_max &&
            (is_power || !rows[i].is_power_of_two))
            return rows[i].algorithm;
    return SCHEDULE_RING;
}

enum schedule_algorithm select_network(uint64_t bytes, int32_t hosts)
{
    return row_find(network_rows, sizeof network_rows / sizeof network_rows[0], bytes, hosts);
}

enum schedule_algorithm schedule_select(uint64_t bytes, const struct topology *topology)
{
    if (topology->host_count == 1)
        return row_find(host_rows, sizeof host_rows / sizeof host_rows[0], bytes, topology->size);
    if (topology->host_count < topology->size)
        return SCHEDULE_TWO_LEVEL;
    return select_network(bytes, topology->size);
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
    case SCHEDULE_DIRECT:
    case SCHEDULE_ONE_SHOT:
    case SCHEDULE_STAGED:
    case SCHEDULE_TWO_LEVEL:
    case SCHEDULE_ALGORITHM_COUNT: break;
    }
    b->status = HVD_ERR_INTERNAL;
}

static bool is_one_host_only(enum schedule_algorithm algorithm)
{
    return algorithm == SCHEDULE_DIRECT || algorithm == SCHEDULE_ONE_SHOT ||
           algorithm == SCHEDULE_STAGED;
}

static void build_allreduce(struct build *b, enum schedule_algorithm algorithm,
                            const struct topology *topology)
{
    switch (algorithm) {
    case SCHEDULE_DIRECT: build_direct(b); return;
    case SCHEDULE_ONE_SHOT: build_one_shot(b); return;
    case SCHEDULE_STAGED: build_staged(b); return;
    case SCHEDULE_TWO_LEVEL: build_two_level(b, topology); return;
    case SCHEDULE_AUTO:
    case SCHEDULE_RECURSIVE_DOUBLING:
    case SCHEDULE_RABENSEIFNER:
    case SCHEDULE_RING:
    case SCHEDULE_DOUBLE_TREE:
    case SCHEDULE_ALGORITHM_COUNT: build_network(b, algorithm, topology->channels); return;
    }
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
    if (is_one_host_only(algorithm) && topology->host_count > 1)
        return error_set(error, HVD_ERR_UNSUPPORTED,
                         "Allreduce algorithm %s works on one host only, not on %d.",
                         schedule_algorithm_name(algorithm), topology->host_count);
    struct build b = {.s = s,
                      .size = topology->size,
                      .rank = rank,
                      .count = count,
                      .element_bytes = element_bytes};
    s->step_count = 0;
    s->scratch_count = 0;
    s->channels = 1;
    s->algorithm = algorithm;
    build_allreduce(&b, algorithm, topology);
    if (b.status == HVD_ERR_INTERNAL)
        return error_set(error, HVD_ERR_INTERNAL, "no such allreduce algorithm: %d",
                         (int)algorithm);
    return b.status == HVD_OK ? HVD_OK : error_set(error, b.status, "no memory for a schedule");
}
