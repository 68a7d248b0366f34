/* SPDX-License-Identifier: Apache-2.0 */
/* doing.c - what a rank is doing, in one record for horovodrun --status: the batch in execution, or
 * the op that waits longest, and the ranks that it waits for. snapshot.c writes all of it.
 *
 * Thread: token holder; without the token only what is atomic. No side effects.
 * Start reading at doing_read(). */
#include <stdio.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/snapshot.h"
#include "engine/waits.h"
#include "wire/ask.h"

#define LOOKS_MAX 4096 /* ops of other ranks that are searched */

/* "1,3,..."; what does not fit is left out. */
static void rank_add(char *text, size_t bytes, int32_t rank)
{
    size_t used = strlen(text);
    if (used + 16 < bytes)
        snprintf(text + used, bytes - used, "%s%d", used > 0 ? "," : "", rank);
    else if (used + 5 < bytes && text[used - 1] != '.')
        snprintf(text + used, bytes - used, ",...");
}

static void name_set(struct ask_status *ret, const char *name, const char *doing, int64_t ns)
{
    snprintf(ret->op, sizeof ret->op, "%.*s", (int)sizeof ret->op - 1, name);
    snprintf(ret->doing, sizeof ret->doing, "%s", doing);
    ret->op_ns = ns > 0 ? ns : 0;
}

static void wait_set(struct ask_status *ret, const struct procset *set, const struct wait *w)
{
    for (int32_t i = 0; i < set->size; i++) {
        enum waits_word word = waits_member(set, w, i);
        if (word == WAITS_MISSING || word == WAITS_UNSURE)
            rank_add(ret->missing, sizeof ret->missing, set->ranks[i]);
    }
}

/* The backend has one batch at a time: the first that moves. */
static bool run_read(const struct procset *set, int64_t now_ns, struct ask_status *ret)
{
    const struct backend *backend = set->engine->backend;
    for (uint32_t n = set->run_head; n != set->run_tail; n++) {
        const struct run *run = &set->runs[n % PROCSET_RUNS];
        if (run->state != RUN_MOVING || set->broken != HVD_OK)
            continue;
        name_set(ret, run->entries[0]->name, "running", now_ns - run->start_ns);
        for (int32_t i = 0; i < set->size && backend->ops->awaits != NULL; i++)
            if (i != set->self && backend->ops->awaits(set->backend_group, i))
                rank_add(ret->missing, sizeof ret->missing, set->ranks[i]);
        return true;
    }
    return false;
}

static bool op_read(const struct procset *set, int64_t now_ns, struct ask_status *ret)
{
    const struct op *op = set->pending_head;
    struct wait w;
    if (op == NULL)
        return false;
    name_set(ret, op->tensor->name, snapshot_op_state(set, op), now_ns - op->submit_ns);
    if (op->state == OP_ANNOUNCED && waits_of_op(set, op, &w))
        wait_set(ret, set, &w);
    return true;
}

/* Nothing of this rank is pending: do others wait for it? */
static void others_read(const struct procset *set, int64_t now_ns, struct ask_status *ret)
{
    size_t cursor = 0;
    struct wait w;
    for (int looks = 0; looks < LOOKS_MAX && waits_next(set, &cursor, &w); looks++) {
        if (waits_member(set, &w, set->self) != WAITS_MISSING || now_ns - w.since_ns < ret->op_ns)
            continue;
        name_set(ret, w.name, "not submitted", now_ns - w.since_ns);
        ret->missing[0] = '\0';
        wait_set(ret, set, &w);
    }
}

static void sets_read(const struct engine *engine, int64_t now_ns, struct ask_status *ret)
{
    for (int32_t i = 0; i < engine->member_count; i++)
        if (run_read(engine->members[i], now_ns, ret))
            return;
    for (int32_t i = 0; i < engine->member_count; i++)
        if (op_read(engine->members[i], now_ns, ret))
            return;
    for (int32_t i = 0; i < engine->member_count; i++)
        if (engine->members[i]->child_count > 0)
            others_read(engine->members[i], now_ns, ret);
}

/* ---- what it has measured ---- */

static int64_t peer_weight(const struct ask_peer *p)
{
    return p->awaits_ns + p->send_ns + p->receive_ns;
}

/* Keeps the heaviest, the heaviest first. */
static void peer_add(struct ask_status *ret, const struct ask_peer *peer)
{
    int32_t at = ret->peer_count < ASK_PEERS_MAX ? ret->peer_count++ : ASK_PEERS_MAX;
    for (; at > 0 && peer_weight(&ret->peers[at - 1]) < peer_weight(peer); at--)
        if (at < ASK_PEERS_MAX)
            ret->peers[at] = ret->peers[at - 1];
    if (at < ASK_PEERS_MAX)
        ret->peers[at] = *peer;
}

static void peers_read(const struct engine *engine, struct ask_status *ret)
{
    const struct backend *backend = engine->backend;
    for (int32_t i = 0; i < engine->size; i++) {
        struct backend_load sent = {0}, received = {0};
        if (backend->ops->load != NULL)
            backend->ops->load(backend, i, &sent, &received);
        struct ask_peer peer = {.rank = i,
                                .awaits_ns = engine->meter.awaits_ns[i],
                                .sent_bytes = sent.bytes,
                                .received_bytes = received.bytes,
                                .send_ns = sent.ns,
                                .receive_ns = received.ns};
        if (peer_weight(&peer) > 0)
            peer_add(ret, &peer);
    }
}

static void slow_read(const struct pace *pace, struct ask_status *ret)
{
    for (int32_t i = 0; pace->ranks != NULL && i < pace->size; i++) {
        size_t used = strlen(ret->slow);
        if (pace->ranks[i].told != PACE_FINE && used + 40 < sizeof ret->slow)
            snprintf(ret->slow + used, sizeof ret->slow - used, "%s%d %s", used > 0 ? "," : "", i,
                     pace_cause_name(pace->ranks[i].told));
    }
}

static void measures_read(const struct engine *engine, struct ask_status *ret)
{
    const struct meter *m = &engine->meter;
    ret->steps_ns = m->sums.step_ns > 0 ? m->sums.step_ns : 0;
    ret->alone_ns = m->sums.alone_ns > 0 ? m->sums.alone_ns : 0;
    for (int kind = 0; kind < HVD_KIND_COUNT; kind++)
        ret->op_bytes += m->bytes[kind];
    slow_read(&m->pace, ret);
    peers_read(engine, ret);
}

void doing_read(struct engine *engine, int64_t now_ns, bool has_token, struct ask_status *ret)
{
    const struct meter *m = &engine->meter;
    *ret = (struct ask_status){.rank = engine->rank, .size = engine->size};
    ret->in_flight = (int32_t)atomic_load(&engine->in_flight);
    if (!has_token) {
        snprintf(ret->state, sizeof ret->state, "%s",
                 atomic_load(&engine->is_stopped) ? "stopped" : "busy");
        return;
    }
    snprintf(ret->state, sizeof ret->state, "%s", snapshot_state(engine));
    if (engine->cause != HVD_OK)
        snprintf(ret->cause, sizeof ret->cause, "%.*s", (int)sizeof ret->cause - 1,
                 engine->cause_text);
    ret->steps = m->sums.steps;
    ret->step_ns = m->last_step_ns > 0 ? m->last_step_ns : 0;
    if (ret->steps > 0 && now_ns > m->step_begin_ns)
        ret->since_ns = now_ns - m->step_begin_ns;
    measures_read(engine, ret);
    sets_read(engine, now_ns, ret);
}
