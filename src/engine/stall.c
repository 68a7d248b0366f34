/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c - who is missing? The coordinator looks through what waits and tells people: after
 * HOROVOD_HUNG_WARN_SECONDS one line, every HOROVOD_STALL_CHECK_TIME_SECONDS the list of missing
 * ranks with their tensors, and after a limit that was asked for the job ends with the culprit's
 * name.
 *
 * Ids that a part of the ranks announced are made void first, so that everybody announces in full
 * and the table shows who did not.
 *
 * Thread: coordinator's token holder, about once a second.  Start reading at coordinator_tick(). */
#include <stdio.h>
#include <string.h>

#include "engine/coordinator.h"

#define NAMES_MAX 6
#define TICK_NS   1000000000LL

static bool is_missing(const struct coordinator *c, const struct pending *p, int32_t rank)
{
    return (p->present[rank / 8] >> (rank % 8) & 1) == 0 && !c->joined[rank];
}

/* "rank 1 on host b, rank 3 on host b" */
static void missing_text(const struct coordinator *c, const struct pending *p, char *ret,
                         size_t bytes)
{
    size_t at = 0;
    int32_t told = 0, all = 0;
    ret[0] = '\0';
    for (int32_t i = 0; i < c->set->size; i++) {
        char name[160];
        if (!is_missing(c, p, i))
            continue;
        all++;
        if (told == NAMES_MAX || at >= bytes)
            continue;
        engine_peer_name(c->set->engine, c->set->ranks[i], name, sizeof name);
        int n = snprintf(ret + at, bytes - at, "%s%s", told > 0 ? ", " : "", name);
        at += n > 0 ? (size_t)n : 0;
        told++;
    }
    if (all > told && at < bytes)
        snprintf(ret + at, bytes - at, " and %d more", all - told);
}

static void warn_soon(struct coordinator *c, struct pending *p, double seconds)
{
    char missing[512];
    missing_text(c, p, missing, sizeof missing);
    LOG_AT(c->set->engine->log, LOG_WARNING,
           "%s: %d of %d ranks have submitted it; waiting %.0f s for %s.", p->name, p->count,
           c->set->size, seconds, missing);
}

/* One line per missing rank with what it has not submitted. Returns the number of tensors listed.
 */
static int32_t list_missing(struct coordinator *c, int64_t now_ns, int64_t older_ns, bool is_fatal,
                            char *ret, size_t bytes)
{
    size_t at = 0;
    int32_t listed = 0;
    ret[0] = '\0';
    for (int32_t rank = 0; rank < c->set->size && at < bytes; rank++) {
        int32_t names = 0;
        size_t cursor = 0;
        for (struct pending *p; (p = map_next(&c->pending, &cursor)) != NULL && at < bytes;) {
            if (now_ns - p->first_ns < older_ns || !is_missing(c, p, rank))
                continue;
            int n;
            if (names == 0)
                n = snprintf(ret + at, bytes - at, "\n%d%s: [%s", c->set->ranks[rank],
                             is_fatal ? "!" : "", p->name);
            else if (names < NAMES_MAX)
                n = snprintf(ret + at, bytes - at, ", %s", p->name);
            else
                n = names == NAMES_MAX ? snprintf(ret + at, bytes - at, " ...") : 0;
            at += n > 0 ? (size_t)n : 0;
            names++;
            listed++;
        }
        if (names > 0 && at < bytes)
            at += (size_t)snprintf(ret + at, bytes - at, "]");
    }
    return listed;
}

static void warn_list(struct coordinator *c, int64_t now_ns)
{
    const struct config *config = c->set->engine->config;
    char list[4096];
    if (list_missing(c, now_ns, config->stall_check_time_s * TICK_NS, false, list, sizeof list) > 0)
        LOG_AT(c->set->engine->log, LOG_WARNING,
               "Some ranks have submitted tensors for which others are missing for more than %lld "
               "seconds. The ranks "
               "may be running different code (a branch on rank()), have different numbers of "
               "batches, or one of them "
               "is stuck.\nMissing ranks:%s",
               (long long)config->stall_check_time_s, list);
}

/* The oldest thing that waits, if older than `limit_s` and a limit was set. */
static const struct pending *oldest_beyond(const struct coordinator *c, int64_t now_ns,
                                           int64_t limit_s)
{
    const struct pending *oldest = NULL;
    size_t cursor = 0;
    if (limit_s <= 0)
        return NULL;
    for (const struct pending *p; (p = map_next(&c->pending, &cursor)) != NULL;)
        if (now_ns - p->first_ns >= limit_s * TICK_NS &&
            (oldest == NULL || p->first_ns < oldest->first_ns))
            oldest = p;
    return oldest;
}

static bool end_job(struct coordinator *c, int64_t now_ns)
{
    const struct config *config = c->set->engine->config;
    struct engine *engine = c->set->engine;
    int64_t shutdown_s = config->stall_shutdown_time_s;
    if (shutdown_s > 0 && shutdown_s < config->stall_check_time_s)
        shutdown_s = 0;
    const struct pending *p = oldest_beyond(c, now_ns, shutdown_s);
    bool is_stall = p != NULL;
    if (p == NULL)
        p = oldest_beyond(c, now_ns, config->hung_error_s);
    if (p == NULL)
        return false;
    char missing[512], text[HVD_ERROR_MAX], list[4096];
    missing_text(c, p, missing, sizeof missing);
    list_missing(c, now_ns, (now_ns - p->first_ns), true, list, sizeof list);
    LOG_AT(engine->log, LOG_ERROR,
           "Tensors have waited beyond the limit; the job is shut down.\nMissing ranks:%s", list);
    snprintf(text, sizeof text, "%s waited %.1f s for %s, beyond %s=%lld.", p->name,
             (double)(now_ns - p->first_ns) / 1e9, missing,
             is_stall ? "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" : "HOROVOD_HUNG_ERROR_SECONDS",
             (long long)(is_stall ? shutdown_s : config->hung_error_s));
    engine_stop(engine, HVD_ERR_PEER_HUNG, text, true);
    return true;
}

/* Announced by id by some ranks only: ask for full announcements. */
static void uncover(struct procset *set, int64_t now_ns, int64_t limit_ns)
{
    struct coordinator *c = set->coordinator;
    size_t cursor = 0;
    for (struct entry *e; (e = map_next(&c->entries, &cursor)) != NULL;) {
        if (e->ready_count == 0 || e->ready_count == set->child_count + 1 || e->queued > 0 ||
            now_ns - e->first_ready_ns < limit_ns)
            continue;
        coordinator_forget(set, e);
        cursor = 0;
    }
}

void coordinator_tick(struct procset *set, int64_t now_ns)
{
    struct coordinator *c = set->coordinator;
    const struct config *config = set->engine->config;
    if (config->stall_check_disable || now_ns < c->stall_next_ns)
        return;
    c->stall_next_ns = now_ns + TICK_NS;
    int64_t warn_ns =
        (config->hung_warn_s > 0 ? config->hung_warn_s : config->stall_check_time_s) * TICK_NS;
    uncover(set, now_ns, warn_ns > TICK_NS ? warn_ns - TICK_NS : warn_ns);
    if (end_job(c, now_ns))
        return;
    bool is_list_due = false;
    size_t cursor = 0;
    for (struct pending *p; (p = map_next(&c->pending, &cursor)) != NULL;) {
        int64_t age_ns = now_ns - p->first_ns;
        if (config->hung_warn_s > 0 && p->told_ns == 0 && age_ns >= config->hung_warn_s * TICK_NS) {
            p->told_ns = now_ns;
            warn_soon(c, p, (double)age_ns / 1e9);
        }
        if (age_ns >= config->stall_check_time_s * TICK_NS &&
            now_ns - c->list_told_ns >= config->stall_check_time_s * TICK_NS)
            is_list_due = true;
    }
    if (is_list_due) {
        c->list_told_ns = now_ns;
        warn_list(c, now_ns);
    }
}
