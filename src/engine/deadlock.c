/* SPDX-License-Identifier: Apache-2.0 */
/* deadlock.c - see deadlock.h. */
#include "engine/deadlock.h"

#include <stdio.h>
#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/negotiate.h"
#include "engine/plan.h"

#define SURE_NS 1000000000LL /* the proof holds for this long before the job is ended */

/* ---- this rank ---- */

void deadlock_claim(struct engine *engine, const struct ticket *const *tickets, int32_t count,
                    const char *where)
{
    struct deadlock_claim *claim = &engine->deadlock;
    pthread_mutex_lock(&engine->submit_lock);
    int64_t handles = engine->next_handle;
    pthread_mutex_unlock(&engine->submit_lock);
    for (int32_t i = 0; i < count; i++)
        if (ticket_status(tickets[i]) != HVD_IN_PROGRESS)
            return;
    if (claim->is_made && claim->completions == engine->completions && claim->handles == handles)
        return;
    *claim = (struct deadlock_claim){
        .is_made = true, .completions = engine->completions, .handles = handles};
    snprintf(claim->where, sizeof claim->where, "%s", where);
}

static bool is_claim_valid(struct engine *engine)
{
    const struct deadlock_claim *claim = &engine->deadlock;
    if (!claim->is_made || claim->completions != engine->completions)
        return false;
    pthread_mutex_lock(&engine->submit_lock);
    bool is_valid = claim->handles == engine->next_handle;
    pthread_mutex_unlock(&engine->submit_lock);
    return is_valid;
}

/* Everything that this rank has submitted is announced, and nothing is left to be done or sent. */
static bool is_quiet(const struct engine *engine, const struct procset *set)
{
    if (atomic_load(&engine->queued) > 0 || engine->outbox_waiting > 0 || plan_is_on(set) ||
        set->must_announce || set->batch_head != set->batch_tail ||
        set->run_head != set->run_tail || set->up_ready_count > 0 || set->up_request_count > 0 ||
        atomic_load(&engine->in_flight) != set->pending_count || set->pending_head == NULL)
        return false;
    for (const struct op *op = set->pending_head; op != NULL; op = op->next)
        if (op->state != OP_ANNOUNCED)
            return false;
    return true;
}

static void keep(struct procset *set, int32_t index, const struct deadlock_report *report)
{
    struct coordinator *c = set->coordinator;
    if (c->stuck == NULL)
        c->stuck = os_alloc(set->engine->os, (size_t)set->size * sizeof *c->stuck);
    if (c->stuck != NULL)
        c->stuck[index] = *report;
}

static void tell(struct engine *engine, struct procset *set)
{
    const struct deadlock_claim *claim = &engine->deadlock;
    struct deadlock_report report = {
        .is_made = true, .responses = set->responses, .generation = set->generation};
    snprintf(report.name, sizeof report.name, "%.127s", set->pending_head->tensor->name);
    snprintf(report.where, sizeof report.where, "%s", claim->where);
    if (set->coordinator != NULL) {
        keep(set, set->self, &report);
        return;
    }
    uint8_t bytes[4 + 8 + 4 + DEADLOCK_NAME_MAX + 4 + DEADLOCK_WHERE_MAX];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_u32(&w, (uint32_t)engine->rank);
    put_u64(&w, report.responses);
    put_text(&w, report.name);
    put_text(&w, report.where);
    negotiate_up(set, MESSAGE_STUCK, bytes, w.used);
}

static void report_self(struct engine *engine, struct procset *set)
{
    struct deadlock_claim *claim = &engine->deadlock;
    bool is_known = claim->is_told && claim->told_responses == set->responses &&
                    claim->told_generation == set->generation;
    if (is_known || !is_claim_valid(engine) || !is_quiet(engine, set))
        return;
    claim->is_told = true;
    claim->told_responses = set->responses;
    claim->told_generation = set->generation;
    tell(engine, set);
}

/* ---- the coordinator ---- */

bool deadlock_message(struct procset *set, int32_t child, struct reader *r)
{
    struct deadlock_report report = {.is_made = true, .generation = set->generation};
    int32_t rank = (int32_t)get_u32(r);
    report.responses = get_u64(r);
    get_text(r, report.name, sizeof report.name);
    get_text(r, report.where, sizeof report.where);
    int32_t index = reader_done(r) ? procset_index(set, rank) : -1;
    if (set->id != HVD_PROCESS_SET_GLOBAL || index < 0 || set->via[index] != child)
        return false;
    if (set->coordinator != NULL)
        keep(set, index, &report);
    return true;
}

static bool is_proven(struct engine *engine, const struct procset *set)
{
    const struct coordinator *c = set->coordinator;
    if (c->stuck == NULL || c->ready_count > 0 || c->current != NULL || c->out_head != NULL ||
        c->is_halting || !is_claim_valid(engine) || !is_quiet(engine, set))
        return false;
    for (int32_t i = 0; i < set->size; i++)
        if (!c->stuck[i].is_made || c->stuck[i].responses != set->responses ||
            c->stuck[i].generation != set->generation)
            return false;
    return true;
}

static bool is_same(const struct deadlock_report *a, const struct deadlock_report *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->where, b->where) == 0;
}

static int32_t group_size(const struct procset *set, int32_t index)
{
    const struct deadlock_report *all = set->coordinator->stuck;
    int32_t count = 0;
    for (int32_t i = 0; i < set->size; i++)
        count += is_same(&all[i], &all[index]);
    return count;
}

/* "ranks 1,2 wait for b at train.py:15 in main"; returns its length. */
static size_t group_text(const struct procset *set, int32_t first, char *ret, size_t bytes)
{
    const struct deadlock_report *all = set->coordinator->stuck;
    int32_t count = group_size(set, first), named = 0;
    size_t at = (size_t)snprintf(ret, bytes, "%s ", count == 1 ? "rank" : "ranks");
    for (int32_t i = first; i < set->size && at < bytes; i++) {
        if (!is_same(&all[i], &all[first]))
            continue;
        if (named++ == 8) {
            at += (size_t)snprintf(ret + at, bytes - at, " and %d more", count - 8);
            break;
        }
        at += (size_t)snprintf(ret + at, bytes - at, "%s%d", named > 1 ? "," : "", set->ranks[i]);
    }
    if (at < bytes)
        at += (size_t)snprintf(ret + at, bytes - at, " %s for %s%s%s",
                               count == 1 ? "waits" : "wait", all[first].name,
                               all[first].where[0] != '\0' ? " at " : "", all[first].where);
    return at < bytes ? at : 0;
}

static bool is_first_of_group(const struct procset *set, int32_t index)
{
    const struct deadlock_report *all = set->coordinator->stuck;
    for (int32_t i = 0; i < index; i++)
        if (is_same(&all[i], &all[index]))
            return false;
    return true;
}

/* A rank that waits for what the fewest others wait for; of several the first. */
static int32_t odd_one(const struct procset *set)
{
    const struct deadlock_report *all = set->coordinator->stuck;
    int32_t odd = 0, least = INT32_MAX;
    for (int32_t i = 0; i < set->size; i++) {
        int32_t count = 0;
        for (int32_t k = 0; k < set->size; k++)
            count += strcmp(all[i].name, all[k].name) == 0;
        if (count < least)
            odd = i;
        least = count < least ? count : least;
    }
    return set->ranks[odd];
}

static void end_job(struct engine *engine, const struct procset *set)
{
    static const char advice[] = ". Do all ranks run the same collectives, in the same order?";
    char text[HVD_ERROR_MAX];
    size_t at = (size_t)snprintf(text, sizeof text, "Deadlock: every rank waits for others: ");
    bool is_first = true;
    for (int32_t i = 0; i < set->size; i++) {
        char group[400];
        size_t n = is_first_of_group(set, i) ? group_text(set, i, group, sizeof group) : 0;
        if (n == 0)
            continue;
        if (at + n + sizeof advice + 32 > sizeof text) {
            at += (size_t)snprintf(text + at, sizeof text - at, "; and others");
            break;
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", is_first ? "" : "; ", group);
        is_first = false;
    }
    snprintf(text + at, sizeof text - at, "%s", advice);
    engine_blame(engine, odd_one(set));
    engine_stop(engine, HVD_ERR_PEER_HUNG, text, true);
}

static void judge(struct engine *engine, struct procset *set, int64_t now_ns)
{
    struct coordinator *c = set->coordinator;
    if (engine->config->stall_shutdown_time_s <= 0 || !is_proven(engine, set)) {
        c->stuck_since_ns = -1;
        return;
    }
    if (c->stuck_since_ns < 0)
        c->stuck_since_ns = now_ns;
    if (now_ns - c->stuck_since_ns >= SURE_NS)
        end_job(engine, set);
}

void deadlock_tick(struct engine *engine, int64_t now_ns)
{
    struct procset *set = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (set == NULL || set->broken != HVD_OK || engine->config->stall_check_disable ||
        !engine->deadlock.is_made || set->size == 1)
        return;
    report_self(engine, set);
    if (set->coordinator != NULL)
        judge(engine, set, now_ns);
}
