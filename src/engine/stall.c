/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c - which ranks are missing? The coordinator checks what waits and reports: every
 * HOROVOD_STALL_CHECK_TIME_SECONDS the missing ranks with their first few tensors, and after
 * HOROVOD_STALL_SHUTDOWN_TIME_SECONDS the job fails with the names of the missing ranks.
 *
 * waits.c determines the missing ranks. If a child in the tree relays for others, an announcement
 * by id does not show which of them is missing. So there, ops that have waited for almost that long
 * are announced in full: their ids are voided. And a plan is broken (plan.c), since nothing is
 * announced in it. Full announcements carry how long each op has waited, so the limits count from
 * its submission.
 *
 * The launcher gets a report too (suspects.c), and some time to look at the ranks before the job is
 * shut down.
 *
 * Ranks that have joined wait for the others' joins. Those waits begin with the last batch.
 *
 * Thread: coordinator's token holder, about twice a second.  Start reading at stall_tick(). */
#include "engine/stall.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/cache.h"
#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/suspects.h"
#include "engine/waits.h"

#define NAMES_MAX   6    /* of tensors per rank */
#define UNCOVER_MAX 1024 /* ids made void at once */
#define SECOND_NS   1000000000LL
#define LIST_BYTES  3400            /* with the rest, a line of the log */
#define LOOK_NS     (2 * SECOND_NS) /* for the launcher to see what the ranks are doing */

int64_t stall_uncover_ns(const struct config *config)
{
    if (config->stall_check_disable)
        return INT64_MAX;
    int64_t limit_ns = (config->stall_check_time_s - 1) * SECOND_NS;
    return limit_ns > SECOND_NS / 2 ? limit_ns : SECOND_NS / 2;
}

/* ---- what waits ---- */

/* What can be reported: for waits that are not exact, uncover() makes the missing ranks known. */
static bool wait_next(const struct coordinator *c, size_t *cursor, struct wait *ret)
{
    while (waits_next(c->set, cursor, ret))
        if (waits_is_exact(c->set, ret))
            return true;
    return false;
}

static bool is_missing(const struct coordinator *c, const struct wait *w, int32_t index)
{
    return waits_member(c->set, w, index) == WAITS_MISSING;
}

/* The oldest wait; false: nothing waits. */
static bool wait_oldest(const struct coordinator *c, struct wait *ret)
{
    bool has_any = false;
    size_t cursor = 0;
    for (struct wait w; wait_next(c, &cursor, &w);) {
        if (has_any && !waits_is_before(&w, ret))
            continue;
        *ret = w;
        has_any = true;
    }
    return has_any;
}

/* ---- reporting ---- */

struct missing { /* of one rank */
    int64_t count;
    const char *names[NAMES_MAX];
};

/* What each rank is missing, of waits older than `older_ns`; returns the number of tensors. */
static int64_t missing_count(const struct coordinator *c, int64_t now_ns, int64_t older_ns,
                             struct missing *ret)
{
    int64_t all = 0;
    size_t cursor = 0;
    for (struct wait w; wait_next(c, &cursor, &w);) {
        if (now_ns - w.since_ns < older_ns)
            continue;
        all++;
        for (int32_t i = 0; i < c->set->size; i++) {
            if (!is_missing(c, &w, i))
                continue;
            if (ret[i].count < NAMES_MAX)
                ret[i].names[ret[i].count] = w.name;
            ret[i].count++;
        }
    }
    return all;
}

/* "\n1: [a, b ... and 7 more]"; returns its length, 0: does not fit. */
static size_t missing_line(const struct missing *m, int32_t rank, bool is_fatal, char *ret,
                           size_t bytes)
{
    char line[1024];
    int64_t named = m->count < NAMES_MAX ? m->count : NAMES_MAX;
    size_t at = (size_t)snprintf(line, sizeof line, "\n%d%s: [", rank, is_fatal ? "!" : "");
    for (int64_t i = 0; i < named; i++)
        at += (size_t)snprintf(line + at, sizeof line - at, "%s%.120s", i > 0 ? ", " : "",
                               m->names[i]);
    if (m->count > named)
        at += (size_t)snprintf(line + at, sizeof line - at, " ... and %lld more",
                               (long long)(m->count - named));
    at += (size_t)snprintf(line + at, sizeof line - at, "]");
    assert(at < sizeof line); /* six names of 120 and three numbers */
    if (at >= bytes)
        return 0;
    memcpy(ret, line, at + 1);
    return at;
}

/* One line per missing rank with the tensors it has not submitted, as many as fit. Returns the
 * number of tensors, 0: nothing has waited that long (or no memory for the report). */
static int64_t list_missing(const struct coordinator *c, int64_t now_ns, int64_t older_ns,
                            bool is_fatal, char *ret, size_t bytes)
{
    const struct os *os = c->set->engine->os;
    const size_t tail = 64;
    size_t at = 0;
    int32_t left_out = 0;
    ret[0] = '\0';
    struct missing *missing = os_alloc(os, (size_t)c->set->size * sizeof *missing);
    if (missing == NULL)
        return 0;
    int64_t all = missing_count(c, now_ns, older_ns, missing);
    for (int32_t i = 0; i < c->set->size; i++) {
        if (missing[i].count == 0)
            continue;
        size_t n = left_out > 0 ? 0
                                : missing_line(&missing[i], c->set->ranks[i], is_fatal, ret + at,
                                               bytes - at - tail);
        at += n;
        left_out += n == 0;
    }
    if (left_out > 0)
        snprintf(ret + at, tail, "\n... and %d more ranks", left_out);
    os_free(os, missing);
    return all;
}

static void warn_list(struct coordinator *c, int64_t now_ns)
{
    const struct config *config = c->set->engine->config;
    char list[LIST_BYTES];
    int64_t all =
        list_missing(c, now_ns, config->stall_check_time_s * SECOND_NS, false, list, sizeof list);
    if (all > 0)
        LOG_AT(c->set->engine->log, LOG_WARNING,
               "Some ranks have submitted tensors (%lld of them) for which others are missing for "
               "more than %lld seconds. The ranks may be running different code (a branch on "
               "rank()), have different numbers of batches, or one of them is stuck.\nMissing "
               "ranks:%s",
               (long long)all, (long long)config->stall_check_time_s, list);
}

/* For the launcher, once for each wait: the log repeats what it said. */
static void report(struct coordinator *c, const struct wait *oldest, int64_t now_ns)
{
    if (c->set->engine->options.stalled == NULL || oldest->since_ns == c->looked_since_ns)
        return;
    c->looked_since_ns = oldest->since_ns;
    c->looked_ns = now_ns;
    suspects_missing(c->set, oldest, now_ns);
}

static void end_job(struct coordinator *c, const struct wait *w, int64_t now_ns)
{
    struct engine *engine = c->set->engine;
    int64_t shutdown_s = engine->config->stall_shutdown_time_s;
    if (shutdown_s <= 0 || now_ns - w->since_ns < shutdown_s * SECOND_NS)
        return;
    if (w->since_ns == c->looked_since_ns && now_ns - c->looked_ns < LOOK_NS)
        return;
    char missing[512], text[HVD_ERROR_MAX], list[LIST_BYTES];
    waits_text(c->set, w, missing, sizeof missing);
    list_missing(c, now_ns, shutdown_s * SECOND_NS, true, list, sizeof list);
    LOG_AT(engine->log, LOG_ERROR,
           "Tensors have waited beyond the limit; the job is shut down.\nMissing ranks:%s", list);
    snprintf(text, sizeof text,
             "%.300s waited %.1f s for %s, beyond HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=%lld.",
             w->name, (double)(now_ns - w->since_ns) / 1e9, missing, (long long)shutdown_s);
    engine_blame(engine, waits_first_missing(c->set, w));
    engine_stop(engine, HVD_ERR_PEER_HUNG, text, true);
}

/* ---- looking ---- */

/* Announced by id by some ranks only, and not all missing ones are known here: requests full
 * announcements, some at a time. */
static void uncover(struct procset *set, int64_t now_ns)
{
    int64_t limit_ns = stall_uncover_ns(set->engine->config);
    size_t cursor = 0;
    int32_t uncovered = 0;
    for (struct wait w; uncovered < UNCOVER_MAX && waits_next(set, &cursor, &w);) {
        if (w.entry == NULL || w.entry->is_transient || now_ns - w.since_ns < limit_ns ||
            waits_is_exact(set, &w))
            continue;
        cache_forget(set, procset_entry(set, w.entry->id));
        uncovered++;
    }
}

static void note_batches(struct coordinator *c, int64_t now_ns)
{
    bool has_join = c->joined_count > 0 && c->joined_count < c->set->size;
    if (c->set->batch_tail == c->batches_seen && has_join)
        return;
    c->batches_seen = c->set->batch_tail;
    c->moved_ns = now_ns;
}

void stall_tick(struct procset *set, int64_t now_ns)
{
    struct coordinator *c = set->coordinator;
    const struct config *config = set->engine->config;
    struct wait oldest;
    if (config->stall_check_disable)
        return;
    note_batches(c, now_ns);
    uncover(set, now_ns);
    if (!wait_oldest(c, &oldest))
        return;
    int64_t check_ns = config->stall_check_time_s * SECOND_NS;
    if (now_ns - oldest.since_ns >= check_ns && now_ns - c->list_told_ns >= check_ns) {
        c->list_told_ns = now_ns;
        warn_list(c, now_ns);
        report(c, &oldest, now_ns);
    }
    end_job(c, &oldest, now_ns);
}
