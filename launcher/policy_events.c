/* SPDX-License-Identifier: Apache-2.0 */
/* policy_events.c - what happens outside: hosts come and go, workers wait, report, leave and end.
 * Events only note what happened; policy_turn() acts. See policy.h. */
#include "policy.h"

#include <signal.h>
#include <stdio.h>

#include "policy_private.h"

/* ---- events: hosts ---- */

static void host_shrink(struct policy *p, int32_t host, int32_t slots)
{
    char why[POLICY_WHY_MAX];
    const struct policy_host *h = &p->hosts[host];
    snprintf(why, sizeof why, "host %s %s", h->name,
             slots == 0 ? "is no longer available" : "has fewer slots now");
    for (int32_t i = 0; i < p->worker_count; i++) {
        const struct policy_worker *w = &p->workers[i];
        if (policy_is_live(w) && w->host == host && (w->slot >= slots || slots == 0))
            policy_leave(p, i, why);
    }
}

/* Back before its workers had left: they stay. */
static void host_returns(struct policy *p, int32_t host, int32_t slots)
{
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        if (w->state == POLICY_MEMBER && w->host == host && !w->is_polite && w->slot < slots)
            w->is_leaving = false;
    }
    for (int32_t k = 0; k < p->hosts[host].slot_count; k++)
        p->hosts[host].slots[k].is_vacated = p->hosts[host].slots[k].is_given_up = false;
}

/* Does nobody miss it? Those that have no part in the job yet, then those outside of slots. */
static bool is_surplus(const struct policy *p, const struct policy_worker *w, bool are_members)
{
    if (!policy_is_live(w) || policy_is_spare(w) || w->is_leaving)
        return false;
    return are_members ? w->slot >= p->hosts[w->host].listed_slots : w->state != POLICY_MEMBER;
}

/* A host that was replaced is back, or one is not listed any more whose slots were filled by spares
 * of others: there are more workers than places, and as many leave. */
static void release_surplus(struct policy *p)
{
    int32_t places = 0, staff = policy_staff_count(p);
    for (int32_t i = 0; i < p->host_count; i++)
        places += p->hosts[i].is_listed ? p->hosts[i].listed_slots : 0;
    places = places < p->options.max_np ? places : p->options.max_np;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = p->worker_count - 1; i >= 0 && staff > places; i--) {
            if (!is_surplus(p, &p->workers[i], pass == 1))
                continue;
            policy_leave(p, i, "there are enough workers without it");
            staff--;
        }
}

static int32_t host_add(struct policy *p, const char *name)
{
    p->hosts = policy_grow(p->mem, p->hosts, p->host_count, &p->host_room, sizeof *p->hosts);
    struct policy_host *h = &p->hosts[p->host_count];
    *h = (struct policy_host){0};
    snprintf(h->name, sizeof h->name, "%s", name);
    return p->host_count++;
}

void policy_hosts(struct policy *p, const struct policy_listed *list, int32_t count)
{
    for (int32_t i = 0; i < p->host_count; i++)
        p->hosts[i].is_seen = false;
    for (int32_t i = 0; i < count; i++) {
        int32_t at = policy_host_find(p, list[i].name);
        if (at < 0)
            at = host_add(p, list[i].name);
        struct policy_host *h = &p->hosts[at];
        if (h->is_seen)
            continue;
        bool was_listed = h->is_listed;
        int32_t before = was_listed ? h->listed_slots : 0;
        h->is_seen = h->is_listed = true;
        if (!was_listed) {
            h->order = p->order_next++;
            h->is_given_up = false;
            h->failures = h->spare_crashes = 0;
            h->retry_ns = 0;
        }
        policy_slots_extend(p, h, list[i].slots);
        h->listed_slots = list[i].slots;
        if (list[i].slots != before)
            host_returns(p, at, list[i].slots);
        if (list[i].slots < before)
            host_shrink(p, at, list[i].slots);
    }
    for (int32_t i = 0; i < p->host_count; i++) {
        struct policy_host *h = &p->hosts[i];
        if (!h->is_listed || h->is_seen)
            continue;
        h->is_listed = false;
        host_shrink(p, i, 0);
    }
    release_surplus(p);
}

void policy_host_up(struct policy *p, int32_t host)
{
    p->hosts[host].state = POLICY_HOST_UP;
}

static int64_t delay_ns(int32_t crashes)
{
    int64_t seconds = crashes < 2 ? 0 : POLICY_DELAY_S;
    for (int32_t i = 2; i < crashes && seconds < POLICY_DELAY_MAX; i++)
        seconds *= 2;
    return (seconds < POLICY_DELAY_MAX ? seconds : POLICY_DELAY_MAX) * NS_PER_S;
}

/* `is_member`: of the generation that stands; its failure says more than that of a newcomer. */
void policy_note_cause(struct policy *p, int code, bool is_victim, bool is_member, const char *text)
{
    bool is_first = p->cause[0] == '\0' || (p->cause_epoch != p->epoch && p->is_met);
    bool is_better = p->is_cause_victim && !is_victim && p->cause_epoch == p->epoch;
    is_better = is_better || (is_member && !p->is_cause_member && p->cause_epoch == p->epoch);
    if (!is_first && !is_better)
        return;
    snprintf(p->cause, sizeof p->cause, "%s", text);
    p->cause_code = code;
    p->is_cause_victim = is_victim;
    p->cause_epoch = p->epoch;
    p->is_cause_member = is_member;
    p->cause_count++;
}

void policy_host_down(struct policy *p, int32_t host, const char *text)
{
    char whole[POLICY_TEXT_MAX];
    struct policy_host *h = &p->hosts[host];
    bool was_wanted = h->is_listed;
    h->state = POLICY_HOST_CLOSED;
    snprintf(whole, sizeof whole, "host %s: %s", h->name, text);
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        if (w->state == POLICY_NONE || w->host != host)
            continue;
        if (w->state == POLICY_MEMBER)
            policy_break_generation(p, true);
        policy_slot_leave(p, w);
        w->state = POLICY_NONE;
        p->needs_review = true;
    }
    if (!was_wanted)
        return;
    policy_note_cause(p, 1, false, false, whole);
    h->failures++;
    h->retry_ns = p->now_ns + delay_ns(h->failures + 1);
    if (p->options.has_cooldown)
        cooldown_begin(&h->cooldown, p->now_ns, p->options.cooldown_low_s,
                       p->options.cooldown_high_s, p->ops->chance(p->ops->ctx));
    h->is_given_up = h->failures >= POLICY_CRASH_MAX && !p->options.has_cooldown;
    p->ops->say(p->ops->ctx, whole);
}

/* ---- events: workers ---- */

void policy_worker_seen(struct policy *p, int32_t worker, bool is_waiting, bool has_arrived)
{
    struct policy_worker *w = &p->workers[worker];
    switch (w->state) {
    case POLICY_STARTING:
        if (!is_waiting)
            return;
        w->state = POLICY_WAITING;
        p->has_seen_room = true;
        p->hosts[w->host].failures = 0; /* the host works */
        if (policy_is_spare(w))
            p->hosts[w->host].spare_crashes = 0;
        return;
    case POLICY_WAITING:
        if (!is_waiting) /* its connection was lost; it comes again, or its end is reported */
            w->state = POLICY_STARTING;
        return;
    case POLICY_MEMBER:
        w->has_arrived = w->has_arrived || has_arrived;
        if (is_waiting && !w->is_asking)
            policy_break_generation(p, false);
        if (!is_waiting && w->is_asking) /* its connection was lost, or it has ended */
            w->unseen_ns = p->now_ns;
        w->is_asking = is_waiting;
        return;
    case POLICY_NONE:
    case POLICY_EVICTED:
    case POLICY_REMOVED: return;
    }
}

void policy_met(struct policy *p)
{
    if (p->is_met)
        return;
    p->is_met = true;
    for (int32_t i = 0; i < p->member_count; i++) {
        struct policy_worker *w = &p->workers[p->members[i]];
        if (w->state == POLICY_MEMBER && w->rank == i)
            w->has_arrived = true;
    }
}

void policy_worker_broke(struct policy *p, int32_t worker, uint64_t epoch, int32_t culprit,
                         const char *text)
{
    struct policy_worker *w = &p->workers[worker];
    if (w->state != POLICY_MEMBER || epoch != p->epoch)
        return;
    w->has_reported = true;
    policy_break_generation(p, true);
    if (culprit < 0 || culprit >= p->member_count)
        return;
    int32_t blamed = p->members[culprit];
    struct policy_worker *c = &p->workers[blamed];
    w->culprit = blamed;
    if (c->state != POLICY_MEMBER || c->rank != culprit || blamed == worker || c->blamed_ns != 0)
        return;
    c->blamed_ns = p->now_ns;
    snprintf(c->why, sizeof c->why, "rank %d reported: %s", w->rank, text);
}

void policy_worker_leaves(struct policy *p, int32_t worker)
{
    struct policy_worker *w = &p->workers[worker];
    if (!policy_is_live(w))
        return;
    w->is_polite = true;
    if (w->slot >= 0)
        p->hosts[w->host].slots[w->slot].is_vacated = true;
    policy_leave(p, worker, "it has asked to leave");
}

static int32_t usable_hosts(const struct policy *p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->host_count; i++)
        count += policy_is_usable(p, &p->hosts[i]);
    return count;
}

/* Is the state on this host only? */
static bool holds_state(const struct policy *p, int32_t host)
{
    int32_t here = 0, elsewhere = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        if (p->workers[i].state == POLICY_MEMBER)
            *(p->workers[i].host == host ? &here : &elsewhere) += 1;
    return here > 0 && elsewhere == 0;
}

/* The contract's blacklist: nothing of the host is used for a while. Not of the only host that can
 * go on: without it the job would be lost. */
static void host_cool(struct policy *p, int32_t host)
{
    struct policy_host *h = &p->hosts[host];
    char text[POLICY_TEXT_MAX];
    if (!p->options.has_cooldown || usable_hosts(p) < 2 || !policy_is_usable(p, h) ||
        holds_state(p, host))
        return;
    cooldown_begin(&h->cooldown, p->now_ns, p->options.cooldown_low_s, p->options.cooldown_high_s,
                   p->ops->chance(p->ops->ctx));
    for (int32_t k = 0; k < h->slot_count; k++)
        h->slots[k].crashes = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        if (policy_is_live(&p->workers[i]) && p->workers[i].host == host)
            policy_evict(p, i, true, "its host has failed and is left alone for a while");
    snprintf(text, sizeof text,
             "host %s has failed; it is left alone for %lld s (--blacklist-cooldown-range)",
             h->name, (long long)((h->cooldown.until_ns - p->now_ns) / NS_PER_S));
    p->ops->say(p->ops->ctx, text);
}

/* Somebody else's doing, or its own? */
static bool is_outside(const struct policy_end *end)
{
    return (end->signal == SIGKILL || end->signal == SIGTERM) && !end->is_oom;
}

static bool is_quick(const struct policy *p, const struct policy_worker *w,
                     const struct policy_end *end)
{
    if (w->member_ns == 0)
        return w->state == POLICY_STARTING || !is_outside(end);
    return !is_outside(end) && p->now_ns - w->member_ns < POLICY_QUICK_S * NS_PER_S;
}

static void count_crash(struct policy *p, const struct policy_worker *w, bool is_quick_one)
{
    char text[POLICY_TEXT_MAX];
    struct policy_host *h = &p->hosts[w->host];
    int32_t *crashes = policy_is_spare(w) ? &h->spare_crashes : &h->slots[w->slot].crashes;
    int64_t *retry_ns = policy_is_spare(w) ? &h->spare_retry_ns : &h->slots[w->slot].retry_ns;
    *crashes = is_quick_one ? *crashes + 1 : 0;
    *retry_ns = p->now_ns + delay_ns(*crashes);
    if (*crashes < POLICY_CRASH_MAX)
        return;
    if (policy_is_spare(w)) {
        *retry_ns = INT64_MAX;
        snprintf(text, sizeof text,
                 "host %s: its spare has failed %d times in a row; none is "
                 "started there any more",
                 h->name, POLICY_CRASH_MAX);
    } else {
        h->slots[w->slot].is_given_up = true;
        snprintf(text, sizeof text,
                 "host %s: slot %d has failed %d times in a row and is not used "
                 "any more. The last time: %.500s",
                 h->name, w->slot, POLICY_CRASH_MAX, p->last_end);
    }
    p->ops->say(p->ops->ctx, text);
}

static void worker_failed(struct policy *p, int32_t worker, const struct policy_end *end)
{
    struct policy_worker *w = &p->workers[worker];
    char text[POLICY_TEXT_MAX], who[64];
    bool is_victim = w->has_reported && w->culprit >= 0;
    bool is_member = w->state == POLICY_MEMBER || (p->epoch == 0 && !policy_is_spare(w));
    if (w->rank >= 0)
        snprintf(who, sizeof who, "rank %d", w->rank);
    else
        snprintf(who, sizeof who, policy_is_spare(w) ? "a spare" : "a new worker");
    snprintf(text, sizeof text, "%s on %s (worker %d.%u) %s", who, p->hosts[w->host].name, w->host,
             w->index, end->text);
    snprintf(p->last_end, sizeof p->last_end, "%s", text);
    policy_note_cause(p, end->signal != 0 ? SIGNAL_BASE + end->signal : end->code, is_victim,
                      is_member, text);
    if (is_member && !is_outside(end))
        p->failed_epoch = p->epoch + 1;
    p->ops->say(p->ops->ctx, text);
    if (w->state == POLICY_MEMBER)
        policy_break_generation(p, true);
    if (!is_victim) {
        count_crash(p, w, is_quick(p, w, end));
        policy_slot_leave(p, w);
        w->state = POLICY_NONE;
        host_cool(p, w->host);
    }
}

/* The others have ended already, or were never there. */
static bool is_last_member(const struct policy *p, int32_t worker)
{
    int32_t members = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        members += p->workers[i].state == POLICY_MEMBER;
    return members == 1 && p->workers[worker].state == POLICY_MEMBER;
}

void policy_worker_ended(struct policy *p, int32_t worker, const struct policy_end *end)
{
    struct policy_worker *w = &p->workers[worker];
    bool is_good = end->code == 0 && end->signal == 0;
    if (w->state == POLICY_NONE)
        return;
    /* One that is to leave, but keeps the state until there is an heir, may finish before that. */
    if (policy_is_live(w) && is_good && (!w->is_leaving || is_last_member(p, worker)))
        p->is_finishing = true;
    else if (policy_is_live(w) && !w->is_leaving)
        worker_failed(p, worker, end);
    else if (w->state == POLICY_MEMBER)
        policy_break_generation(p, true);
    policy_slot_leave(p, w);
    w->state = POLICY_NONE;
    p->needs_review = true;
}
