/* SPDX-License-Identifier: Apache-2.0 */
/* policy_state.c - the tables of workers, hosts and slots, and what happens to a worker: it is
 * made, evicted, released, or leaves. See policy_private.h. */
#include "policy_private.h"

#include <stdio.h>
#include <string.h>

/* ---- tables ---- */

void *policy_grow(struct mem *m, void *items, int32_t count, int32_t *room, size_t bytes)
{
    if (count < *room)
        return items;
    int32_t wanted = *room > 0 ? 2 * *room : 8;
    void *grown = mem_alloc(m, (size_t)wanted * bytes);
    if (count > 0)
        memcpy(grown, items, (size_t)count * bytes);
    *room = wanted;
    return grown;
}

void policy_init(struct policy *p, struct mem *mem, const struct policy_ops *ops,
                 const struct policy_options *options, int64_t now_ns)
{
    *p = (struct policy){.mem = mem, .ops = ops, .options = *options, .now_ns = now_ns};
}

bool policy_is_live(const struct policy_worker *w)
{
    return w->state == POLICY_STARTING || w->state == POLICY_WAITING || w->state == POLICY_MEMBER;
}

bool policy_is_spare(const struct policy_worker *w)
{
    return w->slot < 0;
}

int32_t policy_find(const struct policy *p, int32_t host, uint32_t index)
{
    for (int32_t i = 0; i < p->worker_count; i++)
        if (p->workers[i].state != POLICY_NONE && p->workers[i].host == host &&
            p->workers[i].index == index)
            return i;
    return -1;
}

int32_t policy_host_find(const struct policy *p, const char *name)
{
    for (int32_t i = 0; i < p->host_count; i++)
        if (strcmp(p->hosts[i].name, name) == 0)
            return i;
    return -1;
}

void policy_slots_extend(struct policy *p, struct policy_host *h, int32_t count)
{
    while (h->slot_count < count) {
        h->slots = policy_grow(p->mem, h->slots, h->slot_count, &h->slot_room, sizeof *h->slots);
        h->slots[h->slot_count++] = (struct policy_slot){.worker = -1};
    }
}

int32_t policy_live_on(const struct policy *p, int32_t host, bool spares)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += policy_is_live(&p->workers[i]) && p->workers[i].host == host &&
                 policy_is_spare(&p->workers[i]) == spares;
    return count;
}

int32_t policy_staff_on(const struct policy *p, int32_t host)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += policy_is_live(&p->workers[i]) && !policy_is_spare(&p->workers[i]) &&
                 !p->workers[i].is_leaving && (host < 0 || p->workers[i].host == host);
    return count;
}

int32_t policy_staff_count(const struct policy *p)
{
    return policy_staff_on(p, -1);
}

bool policy_is_usable(const struct policy *p, const struct policy_host *h)
{
    return h->is_listed && !h->is_given_up && !cooldown_is_on(&h->cooldown, p->now_ns);
}

int32_t policy_host_slots(const struct policy_host *h)
{
    int32_t count = 0;
    for (int32_t k = 0; k < h->listed_slots; k++)
        count += !h->slots[k].is_given_up && !h->slots[k].is_vacated;
    return count;
}

int32_t policy_slot_sum(const struct policy *p)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < p->host_count; i++)
        sum += policy_is_usable(p, &p->hosts[i]) ? policy_host_slots(&p->hosts[i]) : 0;
    return sum < p->options.max_np ? (int32_t)sum : p->options.max_np;
}

/* ---- ending ---- */

void policy_stop(struct policy *p, int code, const char *text)
{
    if (p->is_over)
        return;
    p->is_over = true;
    p->end_code = code;
    snprintf(p->end_text, sizeof p->end_text, "%s", text);
    p->ops->stop(p->ops->ctx);
}

/* With the first failure, whose code the job then has. */
void policy_stop_for(struct policy *p, const char *text)
{
    char whole[2 * POLICY_TEXT_MAX];
    snprintf(whole, sizeof whole, "%.900s%s%s", text,
             p->cause[0] != '\0' ? " The first failure was: " : "", p->cause);
    policy_stop(p, p->cause_code != 0 ? p->cause_code : 1, whole);
}

/* ---- workers ---- */

void policy_break_generation(struct policy *p, bool is_forced)
{
    if (p->epoch == 0)
        return;
    if (!p->is_broken || (is_forced && !p->is_forced))
        p->broken_ns = p->now_ns;
    p->is_broken = true;
    p->is_forced = p->is_forced || is_forced;
}

void policy_slot_leave(struct policy *p, const struct policy_worker *w)
{
    if (w->slot >= 0 && w->slot < p->hosts[w->host].slot_count) {
        struct policy_slot *slot = &p->hosts[w->host].slots[w->slot];
        if (slot->worker == (int32_t)(w - p->workers))
            slot->worker = -1;
    }
}

/* Out for ever. What it held is free at once; it ends by itself or is ended. */
void policy_evict(struct policy *p, int32_t worker, bool is_at_once, const char *why)
{
    struct policy_worker *w = &p->workers[worker];
    if (w->state == POLICY_MEMBER)
        policy_break_generation(p, true);
    policy_slot_leave(p, w);
    w->state = POLICY_EVICTED;
    snprintf(w->why, sizeof w->why, "%s", why);
    w->halt_at_ns = is_at_once ? p->now_ns : p->now_ns + p->options.halt_ns;
    p->needs_review = true;
}

/* It is told to exit, when it asks. */
void policy_release(struct policy *p, int32_t worker, const char *why)
{
    struct policy_worker *w = &p->workers[worker];
    policy_slot_leave(p, w);
    w->halt_at_ns = w->state == POLICY_STARTING ? p->now_ns : p->now_ns + p->options.halt_ns;
    w->state = POLICY_REMOVED;
    snprintf(w->why, sizeof w->why, "%s", why);
    p->needs_review = true;
}

int32_t policy_stayer_count(const struct policy *p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += p->workers[i].state == POLICY_MEMBER && !p->workers[i].is_leaving;
    return count;
}

void policy_leave(struct policy *p, int32_t worker, const char *why)
{
    struct policy_worker *w = &p->workers[worker];
    if (w->is_leaving || !policy_is_live(w))
        return;
    w->is_leaving = true;
    snprintf(w->why, sizeof w->why, "%s", why);
    if (w->state != POLICY_MEMBER) {
        policy_release(p, worker, why);
        return;
    }
    p->is_removal_due = true;
}

int32_t policy_worker_new(struct policy *p, int32_t host, int32_t slot)
{
    int32_t i = 0;
    while (i < p->worker_count && p->workers[i].state != POLICY_NONE)
        i++;
    if (i == p->worker_count) {
        p->workers =
            policy_grow(p->mem, p->workers, p->worker_count, &p->worker_room, sizeof *p->workers);
        p->worker_count++;
    }
    p->workers[i] = (struct policy_worker){.state = POLICY_STARTING,
                                           .host = host,
                                           .index = p->hosts[host].next_index++,
                                           .slot = slot,
                                           .rank = -1,
                                           .culprit = -1,
                                           .started_ns = p->now_ns,
                                           .halt_at_ns = INT64_MAX};
    if (slot >= 0)
        p->hosts[host].slots[slot].worker = i;
    p->ops->spawn(p->ops->ctx, i);
    return i;
}
