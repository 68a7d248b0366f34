/* SPDX-License-Identifier: Apache-2.0 */
/* member.c - see member.h: one function per state.
 *
 * An event that a state does not expect is late news of something given up: it is ignored. */
#include "member/member.h"

#include <assert.h>
#include <string.h>

void member_init(struct member *m, uint64_t epoch, uint64_t least)
{
    memset(m, 0, sizeof *m);
    m->epoch = epoch;
    m->least = least > epoch + 1 ? least : epoch + 1;
    m->wake_ns = m->deadline_ns = INT64_MAX;
}

bool member_is_meeting(const struct member *m)
{
    return m->state >= MEMBER_DIALLING && m->state <= MEMBER_CONNECTING;
}

int64_t member_next_ns(const struct member *m)
{
    if (!member_is_meeting(m))
        return INT64_MAX;
    return m->state == MEMBER_DIALLING && m->wake_ns < m->deadline_ns ? m->wake_ns : m->deadline_ns;
}

static void act(struct member_actions *a, enum member_action action)
{
    assert(a->count < MEMBER_ACTIONS_MAX);
    a->list[a->count++] = action;
}

static void fail(struct member *m, hvd_status_t status, struct member_actions *a)
{
    if (m->state == MEMBER_CONNECTING)
        act(a, MEMBER_TEAR_DOWN);
    m->state = MEMBER_BROKEN;
    m->status = status;
    act(a, MEMBER_HANG_UP);
    act(a, MEMBER_REPORT);
}

static void dial(struct member *m, struct member_actions *a)
{
    m->state = MEMBER_DIALLING;
    m->wake_ns = INT64_MAX;
    act(a, MEMBER_DIAL);
}

static void look_again_later(struct member *m, int64_t now_ns, struct member_actions *a)
{
    m->state = MEMBER_DIALLING;
    m->wake_ns = now_ns + MEMBER_PAUSE_NS;
    act(a, MEMBER_HANG_UP);
}

static void on_closed(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (m->may_return)
        look_again_later(m, e->now_ns, a);
    else
        fail(m, e->status, a);
}

/* Out for good: nobody counts on us any more. */
static void leave(struct member *m, hvd_status_t status, struct member_actions *a)
{
    if (m->state == MEMBER_CONNECTING || m->state == MEMBER_RUNNING || m->state == MEMBER_BROKEN)
        act(a, MEMBER_TEAR_DOWN);
    m->state = MEMBER_LEFT;
    m->status = status;
    act(a, MEMBER_HANG_UP);
    act(a, MEMBER_REPORT);
}

static void meet(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (m->state == MEMBER_RUNNING || m->state == MEMBER_BROKEN)
        act(a, MEMBER_TEAR_DOWN);
    m->life = e->life;
    m->deadline_ns = e->deadline_ns;
    m->refused_epoch = 0;
    m->status = HVD_OK;
    dial(m, a);
}

/* ---- one function per state ---- */

static void in_dialling(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (e->kind == MEMBER_REACHED) {
        m->state = MEMBER_JOINING;
        act(a, MEMBER_JOIN);
    } else if (e->kind == MEMBER_UNREACHED) {
        if (m->may_redial && !e->is_final)
            look_again_later(m, e->now_ns, a);
        else
            fail(m, e->status, a);
    } else if (e->kind == MEMBER_TIME && e->now_ns >= m->wake_ns) {
        dial(m, a);
    }
}

static void in_joining(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (e->kind == MEMBER_JOINED && e->epoch == m->refused_epoch) {
        fail(m, HVD_ERR_STALE, a); /* in, but its exchange refuses us: no more of this */
    } else if (e->kind == MEMBER_JOINED && (e->epoch >= m->least || m->least == MEMBER_EPOCH_ANY)) {
        m->joined = e->epoch;
        m->state = MEMBER_EXCHANGING;
        act(a, MEMBER_EXCHANGE);
    } else if (e->kind == MEMBER_JOINED) {
        fail(m, HVD_ERR_CORRUPT, a);
    } else if (e->kind == MEMBER_REFUSED &&
               (e->status == HVD_ERR_STALE || e->status == HVD_ERR_REMOVED)) {
        leave(m, e->status, a);
    } else if (e->kind == MEMBER_REFUSED) {
        fail(m, e->status, a);
    } else if (e->kind == MEMBER_CLOSED) {
        on_closed(m, e, a);
    }
}

static void in_exchanging(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (e->kind == MEMBER_EXCHANGED) {
        m->epoch = m->joined; /* it has met: whatever follows is another generation */
        m->least = m->epoch + 1;
        m->state = MEMBER_CONNECTING;
        act(a, MEMBER_CONNECT);
    } else if (e->kind == MEMBER_REFUSED && e->status == HVD_ERR_STALE) {
        m->refused_epoch = m->joined; /* the generation is over before it began: on to the next */
        m->state = MEMBER_JOINING;
        act(a, MEMBER_JOIN);
    } else if (e->kind == MEMBER_REFUSED) {
        fail(m, e->status, a);
    } else if (e->kind == MEMBER_CLOSED) {
        on_closed(m, e, a);
    }
}

/* Another generation may do better; a wrong configuration stays wrong. */
static bool may_pass(hvd_status_t status)
{
    switch (status) {
    case HVD_ERR_TIMEOUT:
    case HVD_ERR_LINK:
    case HVD_ERR_AUTH:
    case HVD_ERR_STALE:
    case HVD_ERR_PEER_DEAD:
    case HVD_ERR_PEER_HUNG:
    case HVD_ERR_SHUTDOWN: return true;
    default: return false;
    }
}

static void in_connecting(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (e->kind == MEMBER_LINKED) {
        m->state = MEMBER_RUNNING;
        act(a, MEMBER_HANG_UP);
        act(a, MEMBER_REPORT);
    } else if (e->kind == MEMBER_UNLINKED && m->may_meet_again && may_pass(e->status)) {
        act(a, MEMBER_TEAR_DOWN);
        act(a, MEMBER_HANG_UP);
        dial(m, a);
    } else if (e->kind == MEMBER_UNLINKED) {
        fail(m, e->status, a);
    }
}

static void in_running(struct member *m, const struct member_event *e, struct member_actions *a)
{
    if (e->kind == MEMBER_BROKE) {
        m->state = MEMBER_BROKEN;
        m->status = e->status;
        act(a, MEMBER_REPORT);
    } else if (e->kind == MEMBER_STOPPED) {
        m->state = MEMBER_IDLE;
        act(a, MEMBER_TEAR_DOWN);
    }
}

void member_step(struct member *m, const struct member_event *e, struct member_actions *ret)
{
    ret->count = 0;
    if (m->state == MEMBER_LEFT)
        return;
    if (e->kind == MEMBER_LEAVE) {
        leave(m, HVD_ERR_SHUTDOWN, ret);
        return;
    }
    if (e->kind == MEMBER_TIME && member_is_meeting(m) && e->now_ns >= m->deadline_ns) {
        fail(m, HVD_ERR_TIMEOUT, ret);
        return;
    }
    if (e->kind == MEMBER_ASKED) {
        if (!member_is_meeting(m))
            meet(m, e, ret);
        return;
    }
    switch (m->state) {
    case MEMBER_DIALLING: in_dialling(m, e, ret); return;
    case MEMBER_JOINING: in_joining(m, e, ret); return;
    case MEMBER_EXCHANGING: in_exchanging(m, e, ret); return;
    case MEMBER_CONNECTING: in_connecting(m, e, ret); return;
    case MEMBER_RUNNING: in_running(m, e, ret); return;
    case MEMBER_IDLE:
    case MEMBER_BROKEN:
    case MEMBER_LEFT: return;
    }
}
