/* SPDX-License-Identifier: Apache-2.0 */
/* store_roster.c - see store_roster.h. */
#include "wire/store_roster.h"

#include <stdio.h>
#include <string.h>

void roster_reset(struct roster *r, struct budget *budget)
{
    budget_give(budget, r->lives, r->count * sizeof *r->lives);
    budget_give(budget, r->members, r->count * sizeof *r->members);
    *r = (struct roster){.judge = r->judge, .is_driven = r->judge.ask != NULL};
}

/* On failure the roster is what it was. */
static bool roster_begin(struct roster *r, struct budget *budget, uint64_t epoch,
                         const struct store_member *members, uint32_t count, uint64_t notice)
{
    struct roster next = {.epoch = epoch,
                          .is_driven = members != NULL,
                          .count = count,
                          .notice = notice,
                          .judge = r->judge};
    next.lives = budget_take(budget, count * sizeof *next.lives);
    if (next.lives == NULL)
        return false;
    if (members != NULL)
        next.members = budget_take(budget, count * sizeof *next.members);
    if ((members != NULL && next.members == NULL) ||
        budget->os->random(budget->os->ctx, next.salt, sizeof next.salt) < 0) {
        roster_reset(&next, budget);
        return false;
    }
    if (members != NULL)
        memcpy(next.members, members, count * sizeof *members);
    roster_reset(r, budget);
    *r = next;
    return true;
}

static bool has_twice(const struct store_member *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(members[i].worker, members[k].worker) == 0)
                return true;
    return false;
}

hvd_status_t roster_drive(struct roster *r, struct budget *budget, uint64_t epoch,
                          const struct store_member *members, uint32_t count, uint64_t notice)
{
    if (epoch <= r->epoch || epoch > INT64_MAX || count < 1 || count > STORE_COUNT_MAX ||
        has_twice(members, count))
        return HVD_ERR_INVALID;
    return roster_begin(r, budget, epoch, members, count, notice) ? HVD_OK : HVD_ERR_LIMIT;
}

static enum roster_verdict join_driven(struct roster *r, const struct store_request *q, bool is_met,
                                       struct roster_refusal *ret_refusal)
{
    uint32_t i = 0;
    bool is_spare = q->epoch == STORE_EPOCH_ANY;
    if (r->judge.ask != NULL) {
        ret_refusal->status = r->judge.ask(r->judge.ctx, q->worker, ret_refusal->why);
        if (ret_refusal->status != HVD_OK)
            return ROSTER_OUT;
    }
    if (r->is_over || (q->epoch > r->epoch && !is_spare))
        return ROSTER_EARLY;
    while (i < r->count && strcmp(r->members[i].worker, q->worker) != 0)
        i++;
    if (i == r->count && (is_spare || r->judge.ask != NULL))
        return ROSTER_EARLY;
    if (i == r->count) {
        ret_refusal->status = HVD_ERR_STALE;
        snprintf(ret_refusal->why, sizeof ret_refusal->why, "it is not a member");
        return ROSTER_OUT;
    }
    if (is_met && r->lives[i] != q->life)
        return ROSTER_EARLY; /* they have met without this process: it is good for the next one */
    r->lives[i] = q->life;
    return ROSTER_IN;
}

static enum roster_verdict join_static(struct roster *r, struct budget *budget,
                                       const struct store_request *q, bool is_met)
{
    bool is_known = q->index < r->count && r->lives[q->index] == q->life;
    uint64_t least = q->epoch == STORE_EPOCH_ANY ? 0 : q->epoch;
    bool is_over = r->epoch == 0 || least > r->epoch || (is_met && !is_known);
    uint64_t next = least > r->epoch + 1 ? least : r->epoch + 1;
    if (is_over && !roster_begin(r, budget, next, NULL, q->count, 0))
        return ROSTER_FULL;
    if (q->index < r->count) /* else it counts more ranks than others; the exchange tells it so */
        r->lives[q->index] = q->life;
    return ROSTER_IN;
}

enum roster_verdict roster_join(struct roster *r, struct budget *budget,
                                const struct store_request *q, bool is_met,
                                struct roster_refusal *ret_refusal)
{
    return r->is_driven ? join_driven(r, q, is_met, ret_refusal)
                        : join_static(r, budget, q, is_met);
}

struct reply *roster_reply(const struct roster *r, struct budget *budget)
{
    size_t bytes = 8 + STORE_SALT_BYTES + 8 + 4;
    uint8_t *room;
    struct writer w;
    for (uint32_t i = 0; r->is_driven && i < r->count; i++)
        bytes += 4 + strlen(r->members[i].worker) + 16;
    struct reply *reply = reply_create(budget, bytes, &room);
    if (reply == NULL)
        return NULL;
    writer_init(&w, room, bytes);
    put_u64(&w, r->epoch);
    put_bytes(&w, r->salt, sizeof r->salt);
    put_u64(&w, r->notice);
    put_u32(&w, r->is_driven ? r->count : 0);
    for (uint32_t i = 0; r->is_driven && i < r->count; i++) {
        const struct store_place *p = &r->members[i].place;
        put_text(&w, r->members[i].worker);
        put_u32(&w, (uint32_t)p->local_rank);
        put_u32(&w, (uint32_t)p->local_size);
        put_u32(&w, (uint32_t)p->cross_rank);
        put_u32(&w, (uint32_t)p->cross_size);
    }
    return reply;
}
