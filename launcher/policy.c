/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c - see policy.h. Events (policy_events.c) only note what happened; policy_turn() looks at
 * everything and acts, rule by rule, so that the order in which events arrive does not matter. The
 * rules about processes are in policy_staff.c, those about the next generation here. */
#include "policy.h"

#include <stdio.h>

#include "policy_private.h"

/* ---- the next generation ---- */

static bool comes_before(const struct policy *p, int32_t a, int32_t b)
{
    const struct policy_worker *x = &p->workers[a], *y = &p->workers[b];
    bool x_old = x->state == POLICY_MEMBER, y_old = y->state == POLICY_MEMBER;
    if (x_old != y_old)
        return x_old;
    if (x_old)
        return x->rank < y->rank;
    if (x->host != y->host)
        return p->hosts[x->host].order < p->hosts[y->host].order;
    return x->slot < y->slot;
}

static void candidate_add(struct policy *p, int32_t worker)
{
    p->next = policy_grow(p->mem, p->next, p->next_count, &p->next_room, sizeof *p->next);
    int32_t at = p->next_count++;
    for (; at > 0 && comes_before(p, worker, p->next[at - 1]); at--)
        p->next[at] = p->next[at - 1];
    p->next[at] = worker;
}

/* Who leaves but stays for one more generation, because nobody else has the state; or -1. */
static int32_t heir_maker(const struct policy *p, int32_t newcomers)
{
    int32_t best = -1;
    for (int32_t i = 0; i < p->worker_count && policy_stayer_count(p) == 0 && newcomers > 0; i++)
        if (p->workers[i].state == POLICY_MEMBER &&
            (best < 0 || p->workers[i].rank < p->workers[best].rank))
            best = i;
    return best;
}

static bool is_newcomer(const struct policy_worker *w)
{
    return w->state == POLICY_WAITING && !policy_is_spare(w) && !w->is_leaving;
}

/* Into p->next, in the order of their ranks to be. */
static void choose(struct policy *p)
{
    int32_t newcomers = 0;
    p->next_count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        newcomers += is_newcomer(&p->workers[i]);
    int32_t maker = heir_maker(p, newcomers);
    for (int32_t i = 0; i < p->worker_count; i++) {
        const struct policy_worker *w = &p->workers[i];
        bool is_member = w->state == POLICY_MEMBER && (!w->is_leaving || i == maker);
        if (is_member || is_newcomer(w))
            candidate_add(p, i);
    }
    if (p->next_count > p->options.max_np)
        p->next_count = p->options.max_np;
}

static void name(struct policy *p)
{
    bool has_leavers = false;
    char why[POLICY_WHY_MAX];
    for (int32_t i = 0; i < p->worker_count; i++) {
        p->workers[i].is_next = false;
        p->workers[i].blamed_ns = 0;
    }
    for (int32_t i = 0; i < p->next_count; i++)
        p->workers[p->next[i]].is_next = true;
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        snprintf(why, sizeof why, "%s", w->is_leaving ? w->why : "the job has become smaller");
        if (w->state == POLICY_MEMBER && !w->is_next)
            policy_release(p, i, why);
    }
    p->resets += p->epoch > 0;
    p->epoch++;
    if (p->member_room < p->next_count) {
        p->member_room = 2 * p->next_count;
        p->members = mem_alloc(p->mem, (size_t)p->member_room * sizeof *p->members);
    }
    p->member_count = p->next_count;
    for (int32_t i = 0; i < p->next_count; i++) {
        struct policy_worker *w = &p->workers[p->next[i]];
        p->members[i] = p->next[i];
        w->state = POLICY_MEMBER;
        w->rank = i;
        w->is_asking = w->has_arrived = w->has_reported = false;
        w->culprit = -1;
        w->unseen_ns = 0;
        w->member_ns = w->member_ns != 0 ? w->member_ns : p->now_ns;
        has_leavers = has_leavers || w->is_leaving;
    }
    p->is_met = p->is_broken = p->is_forced = false;
    p->named_ns = p->now_ns;
    p->short_ns = 0;
    p->ops->generation(p->ops->ctx);
    p->needs_review = true;
    p->is_removal_due = has_leavers;
}

static int32_t count_state(const struct policy *p, enum policy_state state)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += p->workers[i].state == state && !policy_is_spare(&p->workers[i]);
    return count;
}

static bool is_host_opening(const struct policy *p)
{
    for (int32_t i = 0; i < p->host_count; i++)
        if (p->hosts[i].state == POLICY_HOST_OPENING && policy_is_usable(p, &p->hosts[i]))
            return true;
    return false;
}

/* May anything still start, by itself and now or after a pause? */
static bool has_hope(const struct policy *p)
{
    if (!p->options.is_fixed)
        return true;
    for (int32_t i = 0; i < p->host_count; i++) {
        const struct policy_host *h = &p->hosts[i];
        if (!h->is_listed || h->is_given_up)
            continue;
        for (int32_t k = 0; k < h->listed_slots; k++)
            if (h->slots[k].worker < 0 && !h->slots[k].is_given_up && !h->slots[k].is_vacated &&
                (h->slots[k].crashes == 0 || p->has_seen_room))
                return true;
    }
    return count_state(p, POLICY_STARTING) > 0;
}

/* Fewer than are needed: how long already, and is there an end to it? */
static void wait_short(struct policy *p, int32_t have, const char *what)
{
    char text[POLICY_TEXT_MAX];
    if (p->short_ns == 0)
        p->short_ns = p->short_said_ns = p->now_ns;
    int64_t waited_s = (p->now_ns - p->short_ns) / NS_PER_S;
    if (p->now_ns >= p->short_ns + p->options.timeout_ns) {
        snprintf(text, sizeof text,
                 "After %lld s (--elastic-timeout) there are %d %s, and %d are needed%s.",
                 (long long)waited_s, have, what,
                 p->has_started ? p->options.min_np : p->options.np,
                 p->has_started ? " (--min-np)" : " (-np)");
        policy_stop_for(p, text);
    } else if (p->now_ns >= p->short_said_ns + SAY_EVERY_S * NS_PER_S) {
        p->short_said_ns = p->now_ns;
        snprintf(text, sizeof text, "waiting %lld s for enough %s: there are %d, and %d are needed",
                 (long long)waited_s, what, have,
                 p->has_started ? p->options.min_np : p->options.np);
        p->ops->say(p->ops->ctx, text);
    }
}

static void tend_first(struct policy *p)
{
    int32_t waiting = count_state(p, POLICY_WAITING), starting = count_state(p, POLICY_STARTING);
    bool is_some = waiting + starting > 0 || is_host_opening(p);
    if (!is_some && !p->has_seen_room && p->cause[0] != '\0') {
        policy_stop_for(p, "No worker has come as far as hvd.init().");
        return;
    }
    if (starting == 0 && waiting >= p->options.min_np && !is_host_opening(p)) {
        choose(p);
        name(p);
        return;
    }
    if (starting > 0 || is_host_opening(p)) {
        p->short_ns = 0;
        if (waiting == 0)
            p->room_ns = 0;
        else if (p->room_ns == 0)
            p->room_ns = p->now_ns;
        if (waiting == 0 || p->now_ns < p->room_ns + p->options.timeout_ns)
            return;
        if (waiting < p->options.min_np) {
            policy_stop_for(p, "Workers that were started have not called hvd.init() within "
                               "--elastic-timeout, and without them there are too few (--min-np).");
            return;
        }
        choose(p);
        name(p);
        return;
    }
    if (waiting + starting < p->options.min_np && !has_hope(p))
        policy_stop_for(p, "Too few workers can be started (--min-np).");
    else
        wait_short(p, waiting, "workers");
}

static void tend_next(struct policy *p)
{
    char text[POLICY_TEXT_MAX];
    int32_t members = 0, asking = 0;
    for (int32_t i = 0; i < p->worker_count; i++) {
        members += p->workers[i].state == POLICY_MEMBER;
        asking += p->workers[i].state == POLICY_MEMBER && p->workers[i].is_asking;
    }
    if (members == 0) {
        snprintf(text, sizeof text, "No worker of generation %llu is left that has the state.",
                 (unsigned long long)p->epoch);
        policy_stop_for(p, text);
        return;
    }
    if (!p->is_broken || asking < members)
        return;
    choose(p);
    if (p->next_count == 0 && policy_slot_sum(p) == 0) {
        policy_stop_for(p, "All workers have been asked to leave.");
        return;
    }
    if (p->next_count < p->options.min_np) {
        if (count_state(p, POLICY_STARTING) == 0 && !has_hope(p) && !is_host_opening(p)) {
            snprintf(text, sizeof text, "Only %d workers are left, %d are needed (--min-np).",
                     p->next_count, p->options.min_np);
            policy_stop_for(p, text);
        } else {
            wait_short(p, p->next_count, "workers");
        }
        return;
    }
    if (p->options.reset_limit >= 0 && p->resets >= p->options.reset_limit) {
        snprintf(text, sizeof text,
                 "Horovod was shutdown because number of resets during elastic job exceeded "
                 "limit: %d.",
                 p->options.reset_limit);
        policy_stop_for(p, text);
        return;
    }
    name(p);
}

/* Whoever waits and is wanted, or leaves, is announced, once. */
static void tend_room(struct policy *p)
{
    bool is_news = false;
    int32_t free = p->options.max_np;
    for (int32_t i = 0; i < p->worker_count; i++)
        free -= p->workers[i].state == POLICY_MEMBER && !p->workers[i].is_leaving;
    for (int32_t i = 0; i < p->worker_count; i++) {
        struct policy_worker *w = &p->workers[i];
        if (w->state != POLICY_WAITING || policy_is_spare(w) || w->is_announced || free <= 0)
            continue;
        w->is_announced = is_news = true;
    }
    /* The last ones that have the state stay until somebody can take it over. */
    bool is_removal = p->is_removal_due && (policy_stayer_count(p) > 0 || policy_slot_sum(p) == 0);
    if ((!is_news && !is_removal) || p->epoch == 0 || p->is_broken)
        return; /* members that come back anyway need no notice */
    p->notice.version++;
    if (is_news)
        p->notice.added_version = p->notice.version;
    if (is_removal) {
        p->notice.removed_version = p->notice.version;
        p->is_removal_due = false;
    }
    p->ops->announce(p->ops->ctx);
}

static void start_when_enough(struct policy *p)
{
    char text[POLICY_TEXT_MAX];
    int32_t slots = policy_slot_sum(p);
    if (slots >= p->options.np || slots >= p->options.max_np) {
        p->has_started = true;
        p->short_ns = 0;
        return;
    }
    if (p->options.is_fixed) {
        snprintf(text, sizeof text, "The hosts have %d slots, and %d are needed (-np).", slots,
                 p->options.np);
        policy_stop_for(p, text);
        return;
    }
    wait_short(p, slots, "slots");
}

void policy_turn(struct policy *p, int64_t now_ns)
{
    p->now_ns = now_ns;
    if (p->is_over)
        return;
    if (p->is_finishing) {
        policy_tend_finish(p);
    } else {
        if (!p->has_started)
            start_when_enough(p);
        policy_tend_members(p);
        policy_tend_hosts(p);
        if (p->has_started && !p->is_over)
            policy_tend_staff(p);
        if (p->has_started && !p->is_over && p->epoch == 0)
            tend_first(p);
        else if (p->has_started && !p->is_over)
            tend_next(p);
        if (!p->is_over)
            tend_room(p);
        policy_tend_ending(p);
    }
    if (p->needs_review) {
        p->needs_review = false;
        p->ops->review(p->ops->ctx);
    }
}

static void sooner(int64_t *at_ns, int64_t other_ns, int64_t now_ns)
{
    if (other_ns > now_ns && other_ns < *at_ns)
        *at_ns = other_ns;
}

int64_t policy_next_ns(const struct policy *p)
{
    int64_t at_ns = INT64_MAX;
    if (p->epoch == 0 && p->room_ns != 0)
        sooner(&at_ns, p->room_ns + p->options.timeout_ns, p->now_ns);
    if (p->is_broken)
        sooner(&at_ns, p->broken_ns + p->options.timeout_ns, p->now_ns);
    if (p->short_ns != 0) {
        sooner(&at_ns, p->short_ns + p->options.timeout_ns, p->now_ns);
        sooner(&at_ns, p->short_said_ns + SAY_EVERY_S * NS_PER_S, p->now_ns);
    }
    for (int32_t i = 0; i < p->worker_count; i++) {
        const struct policy_worker *w = &p->workers[i];
        if (w->state == POLICY_MEMBER)
            sooner(&at_ns, policy_member_limit_ns(p, w), p->now_ns);
        if ((w->state == POLICY_EVICTED || w->state == POLICY_REMOVED) && !w->is_halted)
            sooner(&at_ns, w->halt_at_ns, p->now_ns);
    }
    for (int32_t i = 0; i < p->host_count; i++) {
        const struct policy_host *h = &p->hosts[i];
        sooner(&at_ns, h->retry_ns, p->now_ns);
        sooner(&at_ns, h->spare_retry_ns, p->now_ns);
        sooner(&at_ns, h->cooldown.until_ns, p->now_ns);
        for (int32_t k = 0; k < h->slot_count; k++)
            sooner(&at_ns, h->slots[k].retry_ns, p->now_ns);
    }
    return at_ns;
}

/* ---- questions ---- */

hvd_status_t policy_judge(const struct policy *p, int32_t worker, char *ret_why, size_t bytes)
{
    if (worker < 0) {
        snprintf(ret_why, bytes, "it is not a worker of this job any more");
        return HVD_ERR_STALE;
    }
    const struct policy_worker *w = &p->workers[worker];
    if (w->state == POLICY_REMOVED || (p->is_finishing && w->state != POLICY_EVICTED)) {
        snprintf(ret_why, bytes, "%s", w->why[0] != '\0' ? w->why : "the job has finished");
        return HVD_ERR_REMOVED;
    }
    if (w->state != POLICY_EVICTED)
        return HVD_OK;
    snprintf(ret_why, bytes, "it was put out: %s", w->why);
    return HVD_ERR_STALE;
}

int32_t policy_local_rank(const struct policy *p, int32_t worker)
{
    const struct policy_worker *w = &p->workers[worker];
    return w->slot >= 0 ? w->slot : p->hosts[w->host].slot_count;
}

int32_t policy_local_size(const struct policy *p, int32_t host)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->member_count; i++)
        count += p->workers[p->members[i]].host == host;
    return count;
}

void policy_cross(const struct policy *p, int32_t worker, int32_t *ret_rank, int32_t *ret_size)
{
    const struct policy_worker *w = &p->workers[worker];
    *ret_rank = *ret_size = 0;
    for (int32_t i = 0; i < p->member_count; i++) {
        const struct policy_worker *other = &p->workers[p->members[i]];
        if (other->slot != w->slot)
            continue;
        *ret_rank += p->hosts[other->host].order < p->hosts[w->host].order;
        *ret_size += 1;
    }
}
