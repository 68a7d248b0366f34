/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - see meeting.h.
 *
 * An action may yield its event at once (connect does); events that actions yield are worked off in
 * a loop, never by recursion.  Start reading at meeting_progress(). */
#include "member/meeting.h"

#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

/* ---- the store ---- */

static void hang_up(struct meeting *m)
{
    if (m->client == NULL)
        return;
    m->os->poll_remove(m->os->ctx, m->poll_fd, store_client_poll_fd(m->client));
    store_client_close(m->client);
    m->client = NULL;
}

static hvd_status_t dial(struct meeting *m, struct error *error, bool *ret_is_final)
{
    char addresses[MEETING_ADDRESSES_MAX];
    uint8_t key[32];
    int64_t limit_ns = 0, until_ns = m->member.deadline_ns;
    hvd_status_t status = m->ops->find(m->ops->ctx, addresses, key, &limit_ns, error);
    *ret_is_final = status < 0;
    if (status != HVD_OK)
        return status;
    if (limit_ns > 0 && os_now_ns(m->os) + limit_ns < until_ns)
        until_ns = os_now_ns(m->os) + limit_ns;
    status = store_client_begin(m->os, addresses, key, m->index, until_ns, &m->client, error);
    bytes_wipe(key, sizeof key);
    *ret_is_final = status < 0;
    if (status != HVD_IN_PROGRESS)
        return status;
    int rc = m->os->poll_add(m->os->ctx, m->poll_fd, store_client_poll_fd(m->client), NULL, false);
    if (rc >= 0)
        return HVD_IN_PROGRESS;
    store_client_close(m->client);
    m->client = NULL;
    *ret_is_final = true;
    return error_set_os(error, rc, "the poller failed");
}

static hvd_status_t join(struct meeting *m, struct error *error)
{
    struct store_join q = {.scope = m->scope,
                           .worker = m->worker,
                           .life = m->member.life,
                           .epoch = m->member.least,
                           .index = m->index,
                           .count = m->count};
    store_generation_end(m->os, &m->generation);
    return store_client_begin_join(m->client, &q, m->member.deadline_ns, error);
}

static hvd_status_t exchange(struct meeting *m, struct error *error)
{
    const void *blob = NULL;
    size_t n = 0;
    const struct store_generation *g = &m->generation;
    hvd_status_t status = m->ops->introduce(m->ops->ctx, g, &blob, &n, error);
    return status == HVD_OK
               ? store_client_begin_exchange(m->client, m->scope, g->epoch, g->rank, g->size, blob,
                                             n, m->member.deadline_ns, error)
               : status;
}

static hvd_status_t connect_all(struct meeting *m, struct error *error)
{
    const struct store_generation *g = &m->generation;
    uint8_t *blobs = NULL;
    size_t *offsets = os_alloc(m->os, ((size_t)g->size + 1) * sizeof *offsets);
    if (offsets == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    hvd_status_t status = store_client_take_exchange(m->client, g->size, &blobs, offsets, error);
    if (status == HVD_OK)
        status = m->ops->connect(m->ops->ctx, g, blobs, offsets, error);
    os_free(m->os, blobs);
    os_free(m->os, offsets);
    return status;
}

/* ---- actions ---- */

/* The event that the action has yielded at once goes into *ret_event; false: none has. */
static bool perform(struct meeting *m, enum member_action action, struct member_event *ret_event)
{
    hvd_status_t status = HVD_OK;
    bool is_final = false;
    struct error trouble = {0};
    *ret_event = (struct member_event){.now_ns = os_now_ns(m->os)};
    switch (action) {
    case MEMBER_DIAL:
        status = dial(m, &trouble, &is_final);
        ret_event->kind = MEMBER_UNREACHED;
        break;
    case MEMBER_JOIN:
        status = join(m, &trouble);
        ret_event->kind = MEMBER_REFUSED;
        break;
    case MEMBER_EXCHANGE:
        status = exchange(m, &trouble);
        ret_event->kind = MEMBER_REFUSED;
        break;
    case MEMBER_CONNECT:
        status = connect_all(m, &trouble);
        ret_event->kind = status == HVD_OK ? MEMBER_LINKED : MEMBER_UNLINKED;
        break;
    case MEMBER_HANG_UP: hang_up(m); return false;
    case MEMBER_TEAR_DOWN: m->ops->tear_down(m->ops->ctx); return false;
    case MEMBER_REPORT: m->is_over = true; return false;
    }
    ret_event->now_ns = os_now_ns(m->os);
    ret_event->status = status;
    ret_event->is_final = is_final;
    if (status < 0)
        m->trouble = trouble;
    return status < 0 || status == HVD_AGAIN || action == MEMBER_CONNECT;
}

/* Only the last action of a step yields an event: the others are only of the kind that ends. */
static void step(struct meeting *m, struct member_event event)
{
    bool has_event = true;
    while (has_event) {
        struct member_actions actions;
        member_step(&m->member, &event, &actions);
        has_event = false;
        for (int i = 0; i < actions.count; i++)
            has_event = perform(m, actions.list[i], &event) || has_event;
    }
}

/* ---- events ---- */

/* What was asked of the store is done, well or not. */
static void answered(struct meeting *m, hvd_status_t status, const struct error *trouble)
{
    struct member_event e = {.now_ns = os_now_ns(m->os), .status = status};
    bool is_lost = store_client_is_lost(m->client) && status == HVD_ERR_LINK;
    if (status != HVD_OK)
        m->trouble = *trouble;
    if (m->member.state == MEMBER_DIALLING) {
        e.kind = status == HVD_OK ? MEMBER_REACHED : MEMBER_UNREACHED;
    } else if (status != HVD_OK) {
        e.kind = is_lost ? MEMBER_CLOSED : MEMBER_REFUSED;
    } else if (m->member.state == MEMBER_JOINING) {
        e.status = store_client_take_join(m->client, &m->generation, &m->trouble);
        e.kind = e.status == HVD_OK ? MEMBER_JOINED : MEMBER_REFUSED;
        e.epoch = m->generation.epoch;
    } else {
        e.kind = MEMBER_EXCHANGED;
    }
    step(m, e);
}

static void ask_store(struct meeting *m)
{
    struct error trouble = {0};
    while (m->client != NULL && !m->is_over) {
        hvd_status_t status = store_client_progress(m->client, &trouble);
        if (status == HVD_IN_PROGRESS)
            return;
        answered(m, status, &trouble);
        error_clear(&trouble);
    }
}

static hvd_status_t outcome(struct meeting *m, struct error *error)
{
    struct error text = m->trouble;
    if (m->member.state == MEMBER_RUNNING)
        return HVD_OK;
    return error_set(error, m->member.status, "%s",
                     text.text[0] != '\0' ? text.text : "the ranks did not meet in time");
}

hvd_status_t meeting_progress(struct meeting *m, struct error *error)
{
    int64_t now_ns = os_now_ns(m->os);
    bool was_dialling = m->member.state == MEMBER_DIALLING;
    ask_store(m);
    if (!m->is_over && now_ns >= member_next_ns(&m->member))
        step(m, (struct member_event){.kind = MEMBER_TIME, .now_ns = now_ns});
    if (!m->is_over)
        return HVD_IN_PROGRESS;
    if (was_dialling && m->member.status == HVD_ERR_TIMEOUT && m->ops->unfound != NULL) {
        struct error trouble = m->trouble;
        m->ops->unfound(m->ops->ctx, &trouble, &m->trouble);
    }
    return outcome(m, error);
}

int64_t meeting_next_ns(const struct meeting *m)
{
    int64_t next_ns = member_next_ns(&m->member);
    int64_t store_ns = m->client != NULL ? store_client_next_ns(m->client) : INT64_MAX;
    return store_ns < next_ns ? store_ns : next_ns;
}

/* ---- life ---- */

hvd_status_t meeting_init(struct meeting *m, const struct os *os, const struct meeting_ops *ops,
                          const char *scope, const char *worker, struct error *error)
{
    m->os = os;
    m->ops = ops;
    m->scope = scope;
    m->worker = worker;
    m->count = 1;
    m->poll_fd = os->poll_create(os->ctx);
    if (m->poll_fd < 0) {
        m->os = NULL;
        return error_set_os(error, m->poll_fd, "no poller");
    }
    return HVD_OK;
}

hvd_status_t meeting_begin(struct meeting *m, int64_t deadline_ns, struct error *error)
{
    uint64_t life = 0;
    int rc = m->os->random(m->os->ctx, &life, sizeof life);
    if (rc < 0)
        return error_set_os(error, rc, "no random bytes for a meeting");
    m->is_over = false;
    error_clear(&m->trouble);
    step(m, (struct member_event){.kind = MEMBER_ASKED,
                                  .now_ns = os_now_ns(m->os),
                                  .deadline_ns = deadline_ns,
                                  .life = life | 1});
    return HVD_OK;
}

hvd_status_t meeting_run(struct meeting *m, int64_t deadline_ns, struct error *error)
{
    hvd_status_t status = meeting_begin(m, deadline_ns, error);
    if (status != HVD_OK)
        return status;
    for (;;) {
        status = meeting_progress(m, error);
        if (status != HVD_IN_PROGRESS)
            return status;
        struct os_event event;
        int64_t left_ns = meeting_next_ns(m) - os_now_ns(m->os);
        m->os->poll_wait(m->os->ctx, m->poll_fd, &event, 1, left_ns > 0 ? left_ns : 0);
    }
}

void meeting_tell(struct meeting *m, enum member_event_kind kind, hvd_status_t status)
{
    step(m, (struct member_event){.kind = kind, .now_ns = os_now_ns(m->os), .status = status});
}

/* Nothing was asked of the store: what can be read is its end. */
bool meeting_is_abandoned(const struct meeting *m)
{
    struct os_event event;
    return m->client == NULL || m->os->poll_wait(m->os->ctx, m->poll_fd, &event, 1, 0) > 0;
}

void meeting_end(struct meeting *m)
{
    if (m->os == NULL)
        return;
    hang_up(m);
    m->os->close(m->os->ctx, m->poll_fd);
    store_generation_end(m->os, &m->generation);
    m->os = NULL;
}
