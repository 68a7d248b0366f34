/* SPDX-License-Identifier: Apache-2.0 */
/* suspects.c - see suspects.h. */
#include "engine/suspects.h"

#include <stdio.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/waits.h"

#define MS_NS       1000000LL
#define RANKS_BYTES 384
#define MISSING_MAX 64 /* ranks that a report names */

static void tell(const struct procset *set, const struct engine_stall *stall)
{
    const struct engine_options *options = &set->engine->options;
    options->stalled(options->stalled_ctx, stall);
}

static bool is_waiting(const struct procset *set, const struct wait *w, int32_t index)
{
    return waits_member(set, w, index) == WAITS_PRESENT && !set->coordinator->joined[index];
}

static bool is_missing(const struct procset *set, const struct wait *w, int32_t index)
{
    return waits_member(set, w, index) == WAITS_MISSING;
}

/* "0-2,5" of the world ranks that have submitted it, as many as fit. */
static void ranks_text(const struct procset *set, const struct wait *w, char ret[RANKS_BYTES])
{
    size_t at = 0;
    ret[0] = '\0';
    for (int32_t i = 0; i < set->size && at + 32 < RANKS_BYTES; i++) {
        int32_t last = i;
        if (!is_waiting(set, w, i))
            continue;
        while (last + 1 < set->size && set->ranks[last + 1] == set->ranks[last] + 1 &&
               is_waiting(set, w, last + 1))
            last++;
        const char *comma = at > 0 ? "," : "";
        int n = last > i ? snprintf(ret + at, RANKS_BYTES - at, "%s%d-%d", comma, set->ranks[i],
                                    set->ranks[last])
                         : snprintf(ret + at, RANKS_BYTES - at, "%s%d", comma, set->ranks[i]);
        at += n > 0 ? (size_t)n : 0;
        i = last;
    }
}

struct count {
    int64_t count;
    struct wait first;
};

static void count_add(struct count *count, const struct wait *w)
{
    if (count->count++ == 0 || waits_is_before(w, &count->first))
        count->first = *w;
}

/* Does a rank that waits for `oldest` miss `w`? */
static bool is_missed_by_waiters(const struct procset *set, const struct wait *oldest,
                                 const struct wait *w)
{
    for (int32_t i = 0; i < set->size; i++)
        if (is_waiting(set, oldest, i) && is_missing(set, w, i))
            return true;
    return false;
}

static void tell_rank(const struct procset *set, const struct wait *oldest, int32_t index)
{
    struct count behind = {0}, ahead = {0};
    size_t cursor = 0;
    for (struct wait w; waits_next(set, &cursor, &w);) {
        if (is_missing(set, &w, index))
            count_add(&behind, &w);
        else if (is_waiting(set, &w, index) && is_missed_by_waiters(set, oldest, &w))
            count_add(&ahead, &w);
    }
    tell(set, &(struct engine_stall){.kind = STALL_MISSING,
                                     .rank = set->ranks[index],
                                     .count = behind.count,
                                     .text = behind.first.name});
    if (ahead.count > 0)
        tell(set, &(struct engine_stall){.kind = STALL_AHEAD,
                                         .rank = set->ranks[index],
                                         .count = ahead.count,
                                         .text = ahead.first.name});
}

void suspects_missing(const struct procset *set, const struct wait *oldest, int64_t now_ns)
{
    char ranks[RANKS_BYTES];
    int64_t all = 0;
    size_t cursor = 0;
    int32_t told = 0;
    for (struct wait w; waits_next(set, &cursor, &w);)
        all++;
    tell(set, &(struct engine_stall){.kind = STALL_OP,
                                     .count = all,
                                     .waited_ms = (now_ns - oldest->since_ns) / MS_NS,
                                     .text = oldest->name});
    ranks_text(set, oldest, ranks);
    tell(set, &(struct engine_stall){.kind = STALL_WAITS, .text = ranks});
    for (int32_t i = 0; i < set->size && told < MISSING_MAX; i++) {
        if (!is_missing(set, oldest, i))
            continue;
        tell_rank(set, oldest, i);
        told++;
    }
    tell(set, &(struct engine_stall){.kind = STALL_END, .text = ""});
}

void suspects_silent(const struct procset *set, int32_t world_rank, int64_t now_ns)
{
    const struct op *op = set->pending_head;
    char self[16];
    if (set->engine->options.stalled == NULL)
        return;
    snprintf(self, sizeof self, "%d", set->engine->rank);
    tell(set, &(struct engine_stall){.kind = STALL_OP,
                                     .count = set->pending_count,
                                     .waited_ms = (now_ns - op->submit_ns) / MS_NS,
                                     .text = op->tensor->name});
    tell(set, &(struct engine_stall){.kind = STALL_WAITS, .text = self});
    tell(set, &(struct engine_stall){
                  .kind = STALL_MISSING, .rank = world_rank, .count = -1, .text = ""});
    tell(set, &(struct engine_stall){.kind = STALL_END, .text = ""});
}
