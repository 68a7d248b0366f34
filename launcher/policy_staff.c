/* SPDX-License-Identifier: Apache-2.0 */
/* policy_staff.c - the rules about processes: how a job ends, which members are evicted, which
 * slots and spares are filled. policy_turn() applies them. See policy_private.h. */
#include "policy_private.h"

#include <stdio.h>

/* ---- rules ---- */

void policy_tend_ending(struct policy *p)
{
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        bool is_ending = w->state == POLICY_EVICTED || w->state == POLICY_REMOVED;
        if (!is_ending || w->is_halted || p->now_ns < w->halt_at_ns)
            continue;
        w->is_halted = true;
        p->ops->halt(p->ops->ctx, i);
    }
}

/* A worker has ended well: who is not at work any more is not needed, the others come to their own
 * end. */
void policy_tend_finish(struct policy *p)
{
    int32_t live = 0;
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        if (policy_is_live(w) && (w->state != POLICY_MEMBER || w->is_asking))
            policy_release(p, i, "the job has finished");
        live += w->state != POLICY_NONE;
    }
    policy_tend_ending(p);
    if (live > 0)
        return;
    if (p->failed_epoch == p->epoch + 1)
        policy_stop_for(p, "A worker of the last generation failed while others finished.");
    else
        policy_stop(p, 0, "");
}

static int64_t later(int64_t a_ns, int64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* One that was in the room and whose connection was lost has the whole time again: it dials at
 * once, or its end is reported. */
int64_t policy_member_limit_ns(const struct policy *p, const struct policy_worker *w)
{
    int64_t limit_ns = INT64_MAX;
    if (w->blamed_ns != 0 && !w->is_asking)
        limit_ns = later(w->blamed_ns, w->unseen_ns) + p->options.blame_ns;
    if (p->is_broken && !w->is_asking) {
        bool is_silent = p->is_forced && !w->has_reported;
        int64_t at_ns = later(p->broken_ns, w->unseen_ns) +
                        (is_silent ? p->options.silent_ns : p->options.regroup_ns);
        limit_ns = at_ns < limit_ns ? at_ns : limit_ns;
    }
    if (!p->is_met && !w->has_arrived && !w->is_asking &&
        p->named_ns + p->options.silent_ns < limit_ns)
        limit_ns = p->named_ns + p->options.silent_ns;
    return limit_ns;
}

static int32_t member_count(const struct policy *p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += p->workers[i].state == POLICY_MEMBER;
    return count;
}

void policy_tend_members(struct policy *p)
{
    char text[POLICY_TEXT_MAX], why[POLICY_WHY_MAX];
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        if (w->state != POLICY_MEMBER || p->now_ns < policy_member_limit_ns(p, w))
            continue;
        /* the last one that has the state is not given up so soon */
        if (member_count(p) == 1 && p->now_ns < p->broken_ns + p->options.timeout_ns)
            continue;
        if (w->blamed_ns != 0)
            snprintf(why, sizeof why, "%s", w->why);
        else
            snprintf(why, sizeof why, "it did not come back when the others met again");
        snprintf(text, sizeof text, "rank %d on %s (worker %d.%u) is put out: %s", w->rank,
                 p->hosts[w->host].name, w->host, w->index, why);
        policy_note_cause(p, 1, false, true, text);
        p->ops->say(p->ops->ctx, text);
        policy_evict(p, i, w->blamed_ns == 0, why);
    }
}

void policy_tend_hosts(struct policy *p)
{
    for (int32_t i = 0; i < p->host_count; i++) {
        struct policy_host *h = &p->hosts[i];
        bool is_wanted = policy_is_usable(p, h) && p->has_started;
        int32_t held = 0;
        for (int32_t k = 0; k < p->worker_count; k++)
            held += p->workers[k].state != POLICY_NONE && p->workers[k].host == i;
        if (is_wanted && h->state == POLICY_HOST_CLOSED && p->now_ns >= h->retry_ns) {
            h->state = POLICY_HOST_OPENING;
            p->ops->open_host(p->ops->ctx, i);
        } else if (!h->is_listed && h->state != POLICY_HOST_CLOSED && held == 0) {
            h->state = POLICY_HOST_CLOSED;
            p->ops->close_host(p->ops->ctx, i);
        }
    }
}

/* The hosts in the order in which they were found; `after`: an order. -1: no more. */
static int32_t host_after(const struct policy *p, int32_t after)
{
    int32_t best = -1;
    for (int32_t i = 0; i < p->host_count; i++)
        if (policy_is_usable(p, &p->hosts[i]) && p->hosts[i].order > after &&
            (best < 0 || p->hosts[i].order < p->hosts[best].order))
            best = i;
    return best;
}

/* A spare in the room, of this host; -1 as host: of any. */
static int32_t spare_find(const struct policy *p, int32_t host)
{
    for (int32_t i = 0; i < p->worker_count; i++)
        if (p->workers[i].state == POLICY_WAITING && policy_is_spare(&p->workers[i]) &&
            !p->workers[i].is_leaving && (host < 0 || p->workers[i].host == host))
            return i;
    return -1;
}

static bool spare_take(struct policy *p, int32_t host, int32_t slot)
{
    int32_t worker = spare_find(p, host);
    if (worker < 0)
        worker = spare_find(p, -1);
    if (worker < 0)
        return false;
    struct policy_worker *w = &p->workers[worker];
    struct policy_host *h = &p->hosts[w->host];
    if (w->host != host) {
        for (slot = 0; slot < h->slot_count && h->slots[slot].worker >= 0; slot++) {}
        policy_slots_extend(p, h, slot + 1);
    }
    w->slot = slot;
    p->hosts[w->host].slots[slot].worker = worker;
    return true;
}

static bool slot_may_start(const struct policy *p, const struct policy_slot *slot)
{
    if (slot->worker >= 0 || slot->is_given_up || slot->is_vacated || p->now_ns < slot->retry_ns)
        return false;
    return slot->crashes == 0 || p->has_seen_room;
}

/* A slot that is to be filled has its worker, or gets one: a spare that waits, else a new one. A
 * spare of another host fills a slot without being in it: hosts are counted, not slots. */
static void fill_slots(struct policy *p)
{
    int32_t need = policy_slot_sum(p) - policy_staff_count(p);
    for (int32_t host = host_after(p, -1); host >= 0 && need > 0;
         host = host_after(p, p->hosts[host].order))
        for (int32_t k = 0; k < p->hosts[host].listed_slots && need > 0; k++) {
            const struct policy_slot *slot = &p->hosts[host].slots[k];
            if (slot->worker >= 0 || slot->is_given_up || slot->is_vacated ||
                policy_staff_on(p, host) >= policy_host_slots(&p->hosts[host]))
                continue;
            if (p->epoch > 0 && spare_take(p, host, k)) {
                need--;
                continue;
            }
            if (p->hosts[host].state != POLICY_HOST_UP || !slot_may_start(p, slot))
                continue;
            policy_worker_new(p, host, k);
            need--;
        }
}

/* Slots that nobody is in, less the spares there: below 0 on a host that has more than it lists. */
static int32_t host_room(const struct policy *p, int32_t host)
{
    return p->hosts[host].listed_slots - policy_live_on(p, host, false) -
           policy_live_on(p, host, true);
}

/* A spare starts where there is most room: one that has filled a slot of another host leaves that
 * free, and the next spare is there, so that no host ends up with everybody. */
static void fill_spares(struct policy *p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += policy_is_live(&p->workers[i]) && policy_is_spare(&p->workers[i]);
    for (; count < p->options.spares; count++) {
        int32_t best = -1;
        for (int32_t host = host_after(p, -1); host >= 0;
             host = host_after(p, p->hosts[host].order)) {
            const struct policy_host *h = &p->hosts[host];
            if (h->state != POLICY_HOST_UP || p->now_ns < h->spare_retry_ns ||
                (h->spare_crashes > 0 && !p->has_seen_room) ||
                host_room(p, host) <= -p->options.spares)
                continue;
            if (best < 0 || host_room(p, host) > host_room(p, best))
                best = host;
        }
        if (best < 0)
            return;
        policy_worker_new(p, best, -1);
    }
}

/* A spare in the room is better than a worker that still starts: they change places. */
static void promote_spares(struct policy *p)
{
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        if (w->state != POLICY_STARTING || policy_is_spare(w) || w->is_leaving)
            continue;
        int32_t host = w->host, slot = w->slot;
        if (spare_find(p, -1) < 0)
            return;
        policy_slot_leave(p, w);
        w->slot = -1;
        spare_take(p, host, slot);
    }
}

void policy_tend_staff(struct policy *p)
{
    if (p->epoch > 0)
        promote_spares(p);
    fill_slots(p);
    fill_spares(p);
}
