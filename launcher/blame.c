/* SPDX-License-Identifier: Apache-2.0 */
/* blame.c - see blame.h. Thread: any.  Start reading at blame_choose(). */
#include "blame.h"

bool blame_is_own_end(const struct rank_run *rank, int64_t stopped_ns)
{
    return rank->is_ended && rank->ended_ns < stopped_ns;
}

static bool is_failure(const struct rank_run *rank, int64_t stopped_ns)
{
    return blame_is_own_end(rank, stopped_ns) && (rank->code != 0 || rank->signal != 0);
}

static int32_t first_failure(const struct rank_run *ranks, int32_t count, int64_t stopped_ns)
{
    int32_t first = -1;
    for (int32_t i = 0; i < count; i++)
        if (is_failure(&ranks[i], stopped_ns) &&
            (first < 0 || ranks[i].ended_ns < ranks[first].ended_ns))
            first = i;
    return first;
}

/* A chain longer than there are ranks is a circle. */
static int32_t chain_end(const struct rank_run *ranks, int32_t count, int32_t from)
{
    int32_t rank = from;
    for (int32_t steps = 0; steps < count; steps++) {
        if (ranks[rank].blamed == 0)
            return rank;
        rank = ranks[rank].blamed - 1;
    }
    return from;
}

bool blame_choose(const struct rank_run *ranks, int32_t count, int64_t stopped_ns,
                  struct blame *ret)
{
    int32_t failed = first_failure(ranks, count, stopped_ns);
    if (failed < 0)
        return false;
    int32_t culprit = chain_end(ranks, count, failed);
    *ret = (struct blame){.failed = failed,
                          .culprit = culprit,
                          .is_ended = blame_is_own_end(&ranks[culprit], stopped_ns)};
    return true;
}
