/* SPDX-License-Identifier: Apache-2.0 */
/* sim_member.c - see sim_member.h.
 *
 * A process is a member and a program: it meets, works for a while, and meets again when something
 * broke or its life is over. Everything in progress is an event with a time; the loop takes the
 * earliest. Links are made by comparing keys and epochs of both ends, which is what the handshake
 * does. */
#include "sim_member.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "horovod/hvd.h"
#include "member/member.h"
#include "transport/sim/sim_net.h"
#include "wire/key.h"
#include "wire/store_table.h"

#define MS           1000000LL
#define SECOND       (1000 * MS)
#define PROCS_MAX    256
#define STARTS_MAX   44 /* of our own launcher */
#define MEMBERS_MAX  12
#define CONNS_MAX    8192
#define EVENTS_MAX   2048
#define EPOCHS_MAX   512
#define SCOPE        SIM_MEMBER_SCOPE
#define CHAOS_NS     (60 * SECOND)   /* faults until then */
#define SETTLE_NS    (400 * SECOND)  /* and then all processes must have found each other */
#define LONG_NS      (4000 * SECOND) /* with the caller's launcher, whose limits are longer */
#define MEET_NS      (30 * SECOND)
#define LINK_NS      (10 * SECOND) /* until a member that does not link is abandoned */
#define HUNG_NS      (10 * SECOND) /* until a silent peer counts as hung */
#define ATTEMPTS_MAX 20
#define LIVES        4 /* of each rank of a static job */

enum job_kind { JOB_DRIVEN, JOB_STATIC, JOB_SELF_SERVED };

enum event_kind {
    EVENT_ASK,      /* the program calls init */
    EVENT_REACHED,  /* a dial got through, or not */
    EVENT_REQUEST,  /* arrives at the store */
    EVENT_REPLY,    /* arrives at the process */
    EVENT_HUNG_UP,  /* the store sees the connection close */
    EVENT_CLOSED,   /* the process sees the connection close */
    EVENT_EXPIRE,   /* the store's time to answer is over */
    EVENT_TIME,     /* of the member */
    EVENT_LINKS,    /* how far are the links? */
    EVENT_BROKE,    /* a peer has exited */
    EVENT_DONE,     /* the program shuts down */
    EVENT_GIVEN_UP, /* the store closes the connection of a member that connects */
    EVENT_ENDED,    /* the launcher hears that the process has */
    EVENT_LAUNCHER,
    EVENT_CHAOS
};

struct event {
    int64_t at_ns;
    uint64_t order;
    enum event_kind kind;
    int proc, conn;
    int culprit;    /* BROKE */
    uint64_t epoch; /* LINKS, BROKE, DONE, GIVEN_UP: of which */
    struct reply *reply;
};

struct conn {
    struct waiter waiter; /* first: answer() leads here */
    struct trial *trial;
    int proc, store; /* store: which of the self-served ones */
    bool is_open;    /* at the store */
};

struct proc {
    bool is_alive, is_hung, is_left;
    int64_t awake_ns; /* of a hung one */
    char worker[STORE_WORKER_MAX + 1];
    int rank; /* of a static job */
    struct member member;
    int conn; /* -1: none */
    struct store_request request;
    char blob[96];
    uint64_t epoch; /* of list and key */
    uint8_t key[32];
    char list[MEMBERS_MAX][STORE_WORKER_MAX + 1];
    int count;
    uint64_t notice;    /* that its generation accounts for */
    int64_t linking_ns; /* since when */
    int attempts, lives;
    int code, signal; /* of its end */
    bool is_finished;
    bool is_silent; /* nobody reports its end */
};

struct generation { /* as it was decided, or as the first member saw it */
    int count;
    char list[MEMBERS_MAX][STORE_WORKER_MAX + 1];
    uint8_t key[32];
    bool has_key;
    bool is_finishing; /* its last collective has completed */
};

struct trial {
    const struct os *inner;
    struct os os;
    const struct sim_member_options *options;
    struct sim_member_report *report;
    enum job_kind kind;
    bool is_restarting; /* static: each life is another program, which knows no epoch */
    uint64_t random, order;
    int64_t now_ns, delay_ns;
    struct budget budget;
    struct table table;
    bool is_serving;
    int store; /* serial of the store that serves */
    uint8_t job_key[32];
    struct proc procs[PROCS_MAX];
    int proc_count, size_wanted;
    struct conn conns[CONNS_MAX];
    int conn_count;
    struct event events[EVENTS_MAX];
    int event_count;
    struct generation generations[EPOCHS_MAX];
    const struct sim_launcher *launcher; /* the caller's; NULL: ours */
    int64_t look_ns;                     /* when it is due to look */
    int64_t finish_ns;                   /* when the work is done */
    uint64_t notice;                     /* announced last */
    bool is_over;
    uint64_t epoch;                       /* the launcher's */
    uint64_t links[PROCS_MAX][PROCS_MAX]; /* epoch of the link between two; 0: none */
};

/* ---- small things ---- */

static uint64_t draw(struct trial *t, uint64_t below)
{
    return sim_splitmix(&t->random) % below;
}

static void *trial_alloc(void *ctx, size_t n)
{
    return os_alloc(((struct trial *)ctx)->inner, n);
}

static void *trial_resize(void *ctx, void *p, size_t n)
{
    const struct os *os = ((struct trial *)ctx)->inner;
    return os->resize(os->ctx, p, n);
}

static void trial_free(void *ctx, void *p)
{
    os_free(((struct trial *)ctx)->inner, p);
}

static int trial_random(void *ctx, void *ret_bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)ret_bytes)[i] = (uint8_t)draw(ctx, 256);
    return 0;
}

static void trace(struct trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void trace(struct trial *t, const char *format, ...)
{
    char line[400], text[300];
    va_list args;
    if (t->options->trace == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "%10.3f ms  %s", (double)t->now_ns / 1e6, text);
    t->options->trace(line);
}

static struct event *at(struct trial *t, int64_t at_ns, enum event_kind kind, int proc)
{
    static struct event lost;
    if (t->event_count == EVENTS_MAX) {
        sim_violate(&t->report->verdict, "too many events under way");
        return &lost;
    }
    struct event *e = &t->events[t->event_count++];
    *e = (struct event){
        .at_ns = at_ns, .order = t->order++, .kind = kind, .proc = proc, .conn = -1, .culprit = -1};
    return e;
}

/* The caller's launcher looks at everything, at the latest then. */
static void look_by(struct trial *t, int64_t at_ns)
{
    if (t->launcher == NULL || at_ns >= t->look_ns || t->is_over)
        return;
    t->look_ns = at_ns;
    at(t, at_ns, EVENT_LAUNCHER, -1);
}

static int64_t soon(struct trial *t)
{
    return t->now_ns + 1 + (int64_t)draw(t, (uint64_t)t->delay_ns);
}

static bool is_calm(const struct trial *t)
{
    return t->now_ns >= CHAOS_NS;
}

/* ---- the store ---- */

static void reply_send(struct conn *c, struct reply *reply)
{
    struct trial *t = c->trial;
    int conn = (int)(c - t->conns);
    if (reply == NULL) {
        sim_violate(&t->report->verdict, "the store had no memory");
        return;
    }
    struct event *e = at(t, soon(t), EVENT_REPLY, c->proc);
    e->conn = conn;
    e->reply = reply_ref(reply);
}

static void waiter_answered(struct waiter *waiter, struct reply *reply)
{
    reply_send((struct conn *)waiter, reply);
}

static void store_open(struct trial *t)
{
    table_init(&t->table, &t->budget);
    t->is_serving = true;
    t->store++;
}

static void conn_hang_up(struct trial *t, int conn)
{
    struct conn *c = &t->conns[conn];
    if (!c->is_open)
        return;
    c->is_open = false;
    table_forget(&t->table, &c->waiter);
    look_by(t, soon(t));
}

static void store_close(struct trial *t)
{
    if (!t->is_serving)
        return;
    for (int i = 0; i < t->conn_count; i++) {
        if (!t->conns[i].is_open)
            continue;
        conn_hang_up(t, i);
        at(t, soon(t), EVENT_CLOSED, t->conns[i].proc)->conn = i;
    }
    table_destroy(&t->table);
    t->is_serving = false;
}

static void store_serve(struct trial *t, int conn)
{
    struct conn *c = &t->conns[conn];
    struct proc *p = &t->procs[c->proc];
    if (!c->is_open)
        return;
    const struct store_request *q = &p->request;
    struct reply *reply = q->type == STORE_JOIN ? table_join(&t->table, q, &c->waiter)
                                                : table_exchange(&t->table, q, &c->waiter);
    look_by(t, soon(t));
    if (reply == NULL && c->waiter.scope != NULL) {
        at(t, t->now_ns + q->wait_ns, EVENT_EXPIRE, c->proc)->conn = conn;
        if (t->launcher == NULL &&
            c->waiter.kind == WAITER_JOIN) /* the launcher sees that a process wants another one */
            at(t, soon(t) + (int64_t)draw(t, 200) * MS, EVENT_LAUNCHER, -1);
        return;
    }
    reply_send(c, reply);
    reply_unref(reply);
}

static void store_expire(struct trial *t, int conn)
{
    struct conn *c = &t->conns[conn];
    if (!c->is_open || c->waiter.scope == NULL)
        return;
    struct reply *reply = table_missing(&t->table, &c->waiter);
    table_forget(&t->table, &c->waiter);
    reply_send(c, reply);
    reply_unref(reply);
}

/* ---- checks ---- */

static struct proc *proc_of(struct trial *t, const char *worker)
{
    for (int i = t->proc_count - 1; i >= 0; i--)
        if (strcmp(t->procs[i].worker, worker) == 0)
            return &t->procs[i];
    return NULL;
}

static void check_running(struct trial *t, const struct proc *p)
{
    struct generation *g = &t->generations[p->epoch % EPOCHS_MAX];
    bool is_listed = false;
    if (!g->has_key) {
        memcpy(g->key, p->key, sizeof g->key);
        g->has_key = true;
        if (t->kind != JOB_DRIVEN) {
            g->count = p->count;
            memcpy(g->list, p->list, sizeof g->list);
        }
        for (uint64_t i = 1; i < EPOCHS_MAX; i++)
            if (i != p->epoch && t->generations[i].has_key &&
                memcmp(t->generations[i].key, p->key, sizeof p->key) == 0)
                sim_violate(&t->report->verdict, "epochs %d and %d have one key", (int)i,
                            (int)p->epoch);
    }
    if (memcmp(g->key, p->key, sizeof p->key) != 0)
        sim_violate(&t->report->verdict, "worker %s has another key for epoch %d", p->worker,
                    (int)p->epoch);
    if (g->count != p->count)
        sim_violate(&t->report->verdict, "worker %s counts %d members in epoch %d, not %d",
                    p->worker, p->count, (int)p->epoch, g->count);
    for (int i = 0; i < p->count && i < g->count; i++) {
        if (strcmp(g->list[i], p->list[i]) != 0)
            sim_violate(&t->report->verdict, "worker %s: rank %d of epoch %d is %s, not %s",
                        p->worker, i, (int)p->epoch, p->list[i], g->list[i]);
        is_listed = is_listed || strcmp(p->list[i], p->worker) == 0;
    }
    if (!is_listed)
        sim_violate(&t->report->verdict, "worker %s runs in epoch %d, which does not list it",
                    p->worker, (int)p->epoch);
}

/* ---- a process ---- */

static void proc_event(struct trial *t, int i, struct member_event event);

static void proc_hang_up(struct trial *t, struct proc *p)
{
    if (p->conn >= 0)
        at(t, soon(t), EVENT_HUNG_UP, -1)->conn = p->conn;
    p->conn = -1;
}

/* A peer has ended or hangs: members of the same generation notice then. */
static void peers_notice(struct trial *t, int culprit, int64_t least_ns, uint64_t spread_ns)
{
    const struct proc *p = &t->procs[culprit];
    for (int k = 0; k < t->proc_count; k++) {
        if (k == culprit || !t->procs[k].is_alive || p->epoch == 0 || t->procs[k].epoch != p->epoch)
            continue;
        struct event *e =
            at(t, t->now_ns + 1 + least_ns + (int64_t)draw(t, spread_ns), EVENT_BROKE, k);
        e->epoch = p->epoch;
        e->culprit = culprit;
    }
}

static void proc_ends(struct trial *t, int i, bool is_crash)
{
    struct proc *p = &t->procs[i];
    if (!p->is_alive)
        return;
    trace(t, "%s ends%s", p->worker, is_crash ? " by a crash" : "");
    p->is_alive = false;
    t->report->crashes += is_crash;
    proc_hang_up(t, p);
    if (!p->is_finished)
        peers_notice(t, i, 200 * MS, (uint64_t)t->delay_ns);
    if (t->launcher != NULL)
        at(t, soon(t), EVENT_ENDED, i);
    else if (t->kind == JOB_DRIVEN)
        at(t, soon(t) + (int64_t)draw(t, 100) * MS, EVENT_LAUNCHER, -1);
}

static void proc_send(struct trial *t, struct proc *p)
{
    int64_t left_ns = p->member.deadline_ns - t->now_ns;
    p->request.wait_ns = left_ns - left_ns / 4;
    snprintf(p->request.scope, sizeof p->request.scope, SCOPE);
    at(t, soon(t), EVENT_REQUEST, (int)(p - t->procs))->conn = p->conn;
}

static void proc_join(struct trial *t, struct proc *p)
{
    memset(&p->request, 0, sizeof p->request);
    p->request.type = STORE_JOIN;
    memcpy(p->request.worker, p->worker, sizeof p->worker);
    p->request.life = p->member.life;
    p->request.epoch = p->member.least;
    p->request.index = t->kind == JOB_DRIVEN ? 0 : (uint32_t)p->rank;
    p->request.count = t->kind == JOB_DRIVEN ? 1 : (uint32_t)t->size_wanted;
    proc_send(t, p);
}

static void proc_exchange(struct trial *t, struct proc *p)
{
    uint32_t rank = 0;
    char blob[sizeof p->blob];
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->list[i], p->worker) == 0)
            rank = (uint32_t)i;
    memset(&p->request, 0, sizeof p->request);
    snprintf(blob, sizeof blob, "%s %llu", p->worker, (unsigned long long)p->member.life);
    memcpy(p->blob, blob, sizeof blob);
    p->request.type = STORE_EXCHANGE;
    p->request.epoch = p->epoch;
    p->request.index = rank;
    p->request.count = (uint32_t)p->count;
    p->request.blob = p->blob;
    p->request.blob_bytes = strlen(p->blob) + 1;
    proc_send(t, p);
}

static void proc_dial(struct trial *t, struct proc *p)
{
    if (t->conn_count == CONNS_MAX) {
        sim_violate(&t->report->verdict, "too many connections");
        return;
    }
    p->conn = t->conn_count++;
    t->conns[p->conn] = (struct conn){.trial = t, .proc = (int)(p - t->procs), .store = t->store};
    t->conns[p->conn].waiter.answer = waiter_answered;
    at(t, soon(t), EVENT_REACHED, (int)(p - t->procs))->conn = p->conn;
}

/* The attempt to meet is over. */
static void proc_report(struct trial *t, struct proc *p)
{
    int i = (int)(p - t->procs);
    switch (p->member.state) {
    case MEMBER_RUNNING:
        trace(t, "%s runs in epoch %d", p->worker, (int)p->epoch);
        t->report->runs++;
        p->attempts = 0;
        check_running(t, p);
        if (t->launcher != NULL) {
            int64_t done_ns = t->finish_ns > t->now_ns ? t->finish_ns : t->now_ns;
            if (p->notice < t->notice)
                done_ns = t->now_ns;
            at(t, done_ns + (int64_t)draw(t, 500) * MS, EVENT_DONE, i)->epoch = p->epoch;
        } else if (t->kind == JOB_DRIVEN &&
                   p->epoch < t->epoch) /* notices carry the epoch: none is late */
            at(t, soon(t), EVENT_BROKE, i)->epoch = p->epoch;
        if (t->kind != JOB_DRIVEN)
            at(t, t->now_ns + (int64_t)draw(t, 2000) * MS, EVENT_DONE, i)->epoch = p->epoch;
        return;
    case MEMBER_LEFT:
        trace(t, "%s is out: %s", p->worker, hvd_status_name(p->member.status));
        t->report->refused++;
        p->is_left = true;
        p->code = p->member.status == HVD_ERR_REMOVED ? 0 : 1;
        proc_ends(t, i, false);
        return;
    case MEMBER_BROKEN:
        trace(t, "%s broke: %s", p->worker, hvd_status_name(p->member.status));
        t->report->failed++;
        if (p->member.status == HVD_ERR_STALE)
            sim_violate(&t->report->verdict, "worker %s failed only because a generation was over",
                        p->worker);
        if (++p->attempts > ATTEMPTS_MAX)
            sim_violate(&t->report->verdict, "worker %s has failed %d times to meet", p->worker,
                        p->attempts);
        at(t, soon(t), EVENT_ASK, i);
        return;
    case MEMBER_IDLE:
    case MEMBER_DIALLING:
    case MEMBER_JOINING:
    case MEMBER_EXCHANGING:
    case MEMBER_CONNECTING:
        sim_violate(&t->report->verdict, "a report in the middle of a meeting");
        return;
    }
}

static void proc_act(struct trial *t, struct proc *p, enum member_action action)
{
    switch (action) {
    case MEMBER_DIAL: proc_dial(t, p); return;
    case MEMBER_JOIN: proc_join(t, p); return;
    case MEMBER_EXCHANGE: proc_exchange(t, p); return;
    case MEMBER_CONNECT:
        p->linking_ns = t->now_ns;
        at(t, soon(t), EVENT_LINKS, (int)(p - t->procs))->epoch = p->epoch;
        return;
    case MEMBER_HANG_UP: proc_hang_up(t, p); return;
    case MEMBER_TEAR_DOWN: return;
    case MEMBER_REPORT: proc_report(t, p); return;
    }
}

static void proc_event(struct trial *t, int i, struct member_event event)
{
    struct proc *p = &t->procs[i];
    struct member_actions actions;
    event.now_ns = t->now_ns;
    member_step(&p->member, &event, &actions);
    for (int k = 0; k < actions.count; k++)
        proc_act(t, p, actions.list[k]);
    int64_t next_ns = member_next_ns(&p->member);
    if (actions.count > 0 && next_ns != INT64_MAX)
        at(t, next_ns > t->now_ns ? next_ns : t->now_ns, EVENT_TIME, i);
}

static void proc_ask(struct trial *t, int i)
{
    struct proc *p = &t->procs[i];
    /* a static job has one life less on a rank that gives up when all others have finished */
    bool is_patient = is_calm(t) || t->kind != JOB_DRIVEN;
    int64_t limit_ns = is_patient ? MEET_NS : 2 * SECOND + (int64_t)draw(t, 20000) * MS;
    if (t->launcher != NULL) /* it decides how long anybody waits */
        limit_ns = 10 * LONG_NS;
    if (t->kind == JOB_SELF_SERVED && p->rank == 0 && !t->is_serving)
        store_open(t);
    proc_event(t, i,
               (struct member_event){.kind = MEMBER_ASKED,
                                     .life = draw(t, UINT64_MAX - 1) + 1,
                                     .deadline_ns = t->now_ns + limit_ns});
}

static int proc_add(struct trial *t, uint64_t least)
{
    int i = t->proc_count++;
    struct proc *p = &t->procs[i];
    *p = (struct proc){.is_alive = true, .rank = i, .conn = -1};
    snprintf(p->worker, sizeof p->worker, t->kind == JOB_DRIVEN ? "w%d" : "%d", i);
    member_init(&p->member, 0, least);
    p->member.may_return = t->kind == JOB_SELF_SERVED || draw(t, 2) == 0;
    p->member.may_redial = t->kind == JOB_SELF_SERVED || draw(t, 2) == 0;
    p->member.may_meet_again = t->kind == JOB_DRIVEN && draw(t, 2) == 0;
    at(t, t->now_ns + (int64_t)draw(t, 3000) * MS, EVENT_ASK, i);
    return i;
}

/* ---- what processes hear ---- */

static void joined(struct trial *t, int i, struct reader *r)
{
    struct proc *p = &t->procs[i];
    uint8_t salt[STORE_SALT_BYTES];
    p->epoch = get_u64(r);
    get_bytes(r, salt, sizeof salt);
    p->notice = get_u64(r);
    uint32_t count = get_u32(r);
    p->count = (int)(count > 0 ? count : (uint32_t)t->size_wanted);
    for (int k = 0; k < p->count && k < MEMBERS_MAX; k++) {
        if (count == 0) {
            snprintf(p->list[k], sizeof p->list[k], "%d", k);
            continue;
        }
        get_text(r, p->list[k], sizeof p->list[k]);
        for (int n = 0; n < 4; n++)
            get_u32(r);
    }
    if (!reader_done(r))
        sim_violate(&t->report->verdict, "a JOIN was answered by something malformed");
    key_derive(t->job_key, p->epoch, salt, p->key);
    proc_event(t, i, (struct member_event){.kind = MEMBER_JOINED, .epoch = p->epoch});
}

/* Each blob must be the one that the rank's process of this life has sent. */
static void exchanged(struct trial *t, int i, struct reader *r)
{
    struct proc *p = &t->procs[i];
    uint32_t lengths[MEMBERS_MAX];
    if (get_u32(r) != (uint32_t)p->count)
        sim_violate(&t->report->verdict, "an exchange of another size");
    for (int k = 0; k < p->count; k++)
        lengths[k] = get_u32(r);
    for (int k = 0; k < p->count; k++) {
        char blob[96] = "";
        size_t n = strlen(p->list[k]);
        get_bytes(r, blob, lengths[k] < sizeof blob ? lengths[k] : sizeof blob);
        if (strncmp(blob, p->list[k], n) != 0 || blob[n] != ' ')
            sim_violate(&t->report->verdict, "rank %d of epoch %d is %s, but brought \"%s\"", k,
                        (int)p->epoch, p->list[k], blob);
    }
    proc_event(t, i, (struct member_event){.kind = MEMBER_EXCHANGED});
}

static void replied(struct trial *t, int i, struct reply *reply)
{
    struct reader r;
    char text[HVD_ERROR_MAX];
    enum member_state state = t->procs[i].member.state;
    reader_init(&r, reply->message, reply->bytes);
    hvd_status_t status = (hvd_status_t)(int32_t)get_u32(&r);
    get_text(&r, text, sizeof text);
    if (status != HVD_OK) {
        trace(t, "%s is told: %s", t->procs[i].worker, text);
        proc_event(t, i, (struct member_event){.kind = MEMBER_REFUSED, .status = status});
    } else if (state == MEMBER_JOINING) {
        joined(t, i, &r);
    } else if (state == MEMBER_EXCHANGING) {
        exchanged(t, i, &r);
    } else {
        sim_violate(&t->report->verdict, "worker %s has an answer to nothing", t->procs[i].worker);
    }
}

/* HVD_OK: the handshake of both ends succeeds. HVD_IN_PROGRESS: the other has not arrived yet. */
static hvd_status_t link_state(const struct trial *t, const struct proc *p, const struct proc *peer)
{
    if (peer == NULL || !peer->is_alive)
        return HVD_ERR_PEER_DEAD;
    if (t->links[p - t->procs][peer - t->procs] == p->epoch)
        return HVD_OK;
    if (peer->epoch < p->epoch || peer->is_hung)
        return HVD_IN_PROGRESS;
    if (peer->epoch > p->epoch)
        return HVD_ERR_LINK;
    if (memcmp(peer->key, p->key, sizeof p->key) != 0)
        return HVD_ERR_AUTH;
    if (peer->member.state == MEMBER_CONNECTING || peer->member.state == MEMBER_RUNNING)
        return HVD_OK;
    return peer->member.state == MEMBER_EXCHANGING || peer->member.state == MEMBER_DIALLING ||
                   peer->member.state == MEMBER_JOINING
               ? HVD_IN_PROGRESS
               : HVD_ERR_LINK;
}

static void look_at_links(struct trial *t, int i, uint64_t epoch)
{
    struct proc *p = &t->procs[i];
    hvd_status_t worst = HVD_OK;
    if (p->member.state != MEMBER_CONNECTING || p->epoch != epoch)
        return;
    for (int k = 0; k < p->count && worst >= 0; k++) {
        struct proc *peer = proc_of(t, p->list[k]);
        hvd_status_t status = link_state(t, p, peer);
        if (status != HVD_OK)
            worst = status;
        else
            t->links[i][peer - t->procs] = t->links[peer - t->procs][i] = epoch;
    }
    if (worst == HVD_IN_PROGRESS && t->now_ns - p->linking_ns < LINK_NS) {
        at(t, soon(t) + 5 * MS, EVENT_LINKS, i)->epoch = epoch;
        return;
    }
    if (worst == HVD_IN_PROGRESS)
        worst = HVD_ERR_PEER_HUNG;
    proc_event(t, i,
               (struct member_event){.kind = worst == HVD_OK ? MEMBER_LINKED : MEMBER_UNLINKED,
                                     .status = worst});
}

static void reached(struct trial *t, int i, int conn)
{
    bool is_lost = !is_calm(t) && draw(t, 20) == 0;
    if (!t->is_serving || is_lost || t->conns[conn].store != t->store) {
        proc_event(t, i, (struct member_event){.kind = MEMBER_UNREACHED, .status = HVD_ERR_LINK});
        return;
    }
    t->conns[conn].is_open = true;
    if (!is_calm(t) && draw(t, 15) == 0)
        at(t, t->now_ns + (int64_t)draw(t, 2000) * MS, EVENT_CLOSED, i)->conn = conn;
    proc_event(t, i, (struct member_event){.kind = MEMBER_REACHED});
}

/* The last collective of the work completes: everybody takes part, or has done so. */
static bool can_finish(struct trial *t, const struct proc *p)
{
    struct generation *g = &t->generations[p->epoch];
    for (int i = 0; i < p->count && !g->is_finishing; i++) {
        const struct proc *peer = proc_of(t, p->list[i]);
        if (peer == NULL || !peer->is_alive || peer->is_hung || peer->epoch != p->epoch ||
            peer->member.state != MEMBER_RUNNING)
            return false;
    }
    g->is_finishing = true;
    return true;
}

/* Of a job with the caller's launcher: the work is done, or the members were told of a change. */
static void driven_done(struct trial *t, int i)
{
    struct proc *p = &t->procs[i];
    bool is_finished = t->now_ns >= t->finish_ns && can_finish(t, p);
    if (!is_finished && p->notice >= t->notice) {
        if (t->now_ns >= t->finish_ns)
            at(t, soon(t) + 100 * MS, EVENT_DONE, i)->epoch = p->epoch;
        return;
    }
    trace(t, "%s %s", p->worker, is_finished ? "has finished" : "shuts down");
    proc_event(t, i, (struct member_event){.kind = MEMBER_STOPPED});
    p->is_finished = is_finished;
    if (is_finished)
        proc_ends(t, i, false);
    else
        at(t, soon(t), EVENT_ASK, i);
}

/* One life of a static job is over; rank 0's own store is closed with it. */
static void life_done(struct trial *t, int i, uint64_t epoch)
{
    struct proc *p = &t->procs[i];
    if (p->member.state != MEMBER_RUNNING || p->epoch != epoch)
        return;
    if (t->launcher != NULL) {
        driven_done(t, i);
        return;
    }
    trace(t, "%s shuts down", p->worker);
    proc_event(t, i, (struct member_event){.kind = MEMBER_STOPPED});
    if (t->kind == JOB_SELF_SERVED && p->rank == 0)
        store_close(t);
    if (t->is_restarting) {
        struct member fresh = p->member;
        member_init(&p->member, 0, 0);
        p->member.may_return = fresh.may_return;
        p->member.may_redial = fresh.may_redial;
    }
    if (++p->lives < LIVES)
        at(t, soon(t) + (int64_t)draw(t, 500) * MS, EVENT_ASK, i);
}

/* ---- the launcher of a driven job ---- */

static int list_alive(struct trial *t, char list[MEMBERS_MAX][STORE_WORKER_MAX + 1])
{
    int count = 0;
    for (int i = 0; i < t->proc_count && count < MEMBERS_MAX; i++) /* oldest first */
        if (t->procs[i].is_alive && !t->procs[i].is_hung && count < t->size_wanted)
            memcpy(list[count++], t->procs[i].worker, sizeof list[0]);
    return count;
}

static void launcher_look(struct trial *t)
{
    struct store_member members[MEMBERS_MAX];
    char list[MEMBERS_MAX][STORE_WORKER_MAX + 1] = {{0}};
    int count = list_alive(t, list);
    const struct generation *last = &t->generations[t->epoch];
    while (count < t->size_wanted && t->proc_count < STARTS_MAX) {
        int i = proc_add(t, t->epoch + 1);
        memcpy(list[count++], t->procs[i].worker, sizeof list[0]);
    }
    bool is_wanted = last->count != count || memcmp(last->list, list, sizeof list) != 0;
    for (int i = 0; i < count; i++)
        is_wanted = is_wanted || table_is_waiting(&t->table, SCOPE, list[i]);
    if (count == 0 || !is_wanted)
        return;
    if (t->epoch + 1 >= EPOCHS_MAX) {
        sim_violate(&t->report->verdict, "too many generations");
        return;
    }
    memset(members, 0, sizeof members);
    t->epoch++;
    for (int i = 0; i < count; i++) {
        memcpy(members[i].worker, list[i], sizeof list[0]);
        members[i].place = (struct store_place){i, count, 0, 1};
    }
    t->generations[t->epoch].count = count;
    memcpy(t->generations[t->epoch].list, list, sizeof list);
    t->report->generations++;
    trace(t, "epoch %d: %d members, %s first", (int)t->epoch, count, list[0]);
    hvd_status_t status = table_generation(&t->table, SCOPE, t->epoch, members, (uint32_t)count, 0);
    if (status != HVD_OK)
        sim_violate(&t->report->verdict, "the store refused a generation");
    /* members of the last one are notified that it is over */
    for (int i = 0; i < t->proc_count; i++)
        if (t->procs[i].is_alive && t->procs[i].member.state == MEMBER_RUNNING)
            at(t, soon(t), EVENT_BROKE, i)->epoch = t->procs[i].epoch;
}

static void hang(struct trial *t, int i)
{
    struct proc *p = &t->procs[i];
    trace(t, "%s hangs", p->worker);
    t->report->hangs++;
    p->is_hung = true;
    p->awake_ns = t->now_ns + (int64_t)draw(t, 40000) * MS;
    peers_notice(t, i, HUNG_NS, 500 * MS);
}

static void chaos(struct trial *t)
{
    if (is_calm(t) || t->is_over)
        return;
    at(t, t->now_ns + (int64_t)draw(t, 4000) * MS, EVENT_CHAOS, -1);
    if (t->launcher != NULL) {
        t->launcher->chaos(t->launcher->ctx);
        look_by(t, soon(t));
        return;
    }
    if (t->kind != JOB_DRIVEN || t->proc_count == 0)
        return;
    int i = (int)draw(t, (uint64_t)t->proc_count);
    struct proc *p = &t->procs[i];
    uint64_t what = draw(t, 10);
    if (what < 2) { /* the wanted size changes */
        t->size_wanted = 1 + (int)draw(t, MEMBERS_MAX - 4);
        at(t, soon(t), EVENT_LAUNCHER, -1);
    } else if (p->is_alive && !p->is_hung && what < 6) {
        proc_ends(t, i, true);
    } else if (p->is_alive && !p->is_hung && what < 8) {
        hang(t, i);
        at(t, t->now_ns + HUNG_NS, EVENT_LAUNCHER, -1);
    } else if (p->is_alive && !p->is_hung) {
        proc_event(t, i, (struct member_event){.kind = MEMBER_LEAVE});
    }
}

/* ---- the caller's launcher ---- */

int sim_member_start(struct trial *t, const char *worker)
{
    if (t->proc_count == PROCS_MAX) {
        sim_violate(&t->report->verdict, "too many processes are started");
        return -1;
    }
    int i = proc_add(t, 0);
    struct proc *p = &t->procs[i];
    snprintf(p->worker, sizeof p->worker, "%s", worker);
    p->member.may_return = p->member.may_meet_again = true;
    trace(t, "%s is started", p->worker);
    return i;
}

void sim_member_kill(struct trial *t, int proc, int code, int signal, bool is_silent)
{
    struct proc *p = &t->procs[proc];
    if (!p->is_alive)
        return;
    p->code = code;
    p->signal = signal;
    p->is_silent = is_silent;
    proc_ends(t, proc, true);
}

void sim_member_hang(struct trial *t, int proc)
{
    if (t->procs[proc].is_alive && !t->procs[proc].is_hung)
        hang(t, proc);
}

bool sim_member_is_alive(const struct trial *t, int proc)
{
    return t->procs[proc].is_alive;
}

bool sim_member_is_meeting(const struct trial *t, int proc)
{
    return t->procs[proc].is_alive && member_is_meeting(&t->procs[proc].member);
}

void sim_member_generation(struct trial *t, uint64_t epoch, const struct store_member *members,
                           int count, uint64_t notice)
{
    if (epoch != t->epoch + 1 || epoch >= EPOCHS_MAX || count > MEMBERS_MAX) {
        sim_violate(&t->report->verdict, "epoch %d with %d members follows epoch %d", (int)epoch,
                    count, (int)t->epoch);
        return;
    }
    struct generation *g = &t->generations[epoch];
    t->epoch = epoch;
    g->count = count;
    for (int i = 0; i < count; i++)
        memcpy(g->list[i], members[i].worker, sizeof g->list[i]);
    t->report->generations++;
    trace(t, "epoch %d: %d members, %s first", (int)epoch, count, g->list[0]);
    if (table_generation(&t->table, SCOPE, epoch, members, (uint32_t)count, notice) != HVD_OK)
        sim_violate(&t->report->verdict, "the store refused a generation");
}

void sim_member_abandon(struct trial *t)
{
    if (!table_abandon(&t->table, SCOPE))
        return;
    for (int i = 0; i < t->proc_count; i++)
        if (t->procs[i].is_alive && t->procs[i].member.state == MEMBER_CONNECTING)
            at(t, soon(t), EVENT_GIVEN_UP, i)->epoch = t->procs[i].epoch;
}

void sim_member_notice(struct trial *t, uint64_t version)
{
    t->notice = version;
    for (int i = 0; i < t->proc_count; i++)
        if (t->procs[i].is_alive && t->procs[i].member.state == MEMBER_RUNNING)
            at(t, t->now_ns + (int64_t)draw(t, 500) * MS, EVENT_DONE, i)->epoch = t->procs[i].epoch;
}

void sim_member_finish_at(struct trial *t, int64_t at_ns)
{
    t->finish_ns = at_ns;
}

void sim_member_stop(struct trial *t)
{
    t->is_over = true;
}

int64_t sim_member_now(const struct trial *t)
{
    return t->now_ns;
}

uint64_t sim_member_draw(struct trial *t, uint64_t below)
{
    return draw(t, below);
}

struct sim_verdict *sim_member_verdict(struct trial *t)
{
    return &t->report->verdict;
}

void sim_member_trace(struct trial *t, const char *text)
{
    trace(t, "%s", text);
}

static void launcher_turn(struct trial *t)
{
    if (t->now_ns >= t->look_ns)
        t->look_ns = INT64_MAX;
    int64_t next_ns = t->launcher->turn(t->launcher->ctx, t->now_ns);
    if (next_ns <= t->now_ns)
        sim_violate(&t->report->verdict, "the launcher is due again before it has looked");
    if (next_ns != INT64_MAX)
        look_by(t, next_ns);
}

static void launcher_hears_end(struct trial *t, int i)
{
    const struct proc *p = &t->procs[i];
    if (!p->is_silent)
        t->launcher->ended(t->launcher->ctx, i, p->code, p->signal, p->is_finished);
    look_by(t, soon(t));
}

/* ---- the loop ---- */

static void broke(struct trial *t, int i, const struct event *e)
{
    struct proc *p = &t->procs[i];
    if (p->member.state != MEMBER_RUNNING || p->epoch != e->epoch)
        return;
    if (t->launcher != NULL) {
        t->launcher->broke(t->launcher->ctx, i, e->epoch, e->culprit);
        look_by(t, soon(t));
    }
    proc_event(t, i, (struct member_event){.kind = MEMBER_BROKE, .status = HVD_ERR_PEER_DEAD});
}

/* The store has closed the connection over which the member learns that its peers are not lost. */
static void given_up(struct trial *t, int i, uint64_t epoch)
{
    struct proc *p = &t->procs[i];
    if (p->member.state == MEMBER_CONNECTING && p->epoch == epoch)
        proc_event(t, i, (struct member_event){.kind = MEMBER_UNLINKED, .status = HVD_ERR_STALE});
}

static void handle_proc(struct trial *t, const struct event *e)
{
    int i = e->proc;
    struct proc *p = &t->procs[i];
    bool is_current = e->conn < 0 || e->conn == p->conn;
    if (!p->is_alive || !is_current)
        return;
    switch (e->kind) {
    case EVENT_ASK: proc_ask(t, i); return;
    case EVENT_REACHED: reached(t, i, e->conn); return;
    case EVENT_REPLY: replied(t, i, e->reply); return;
    case EVENT_CLOSED:
        proc_event(t, i, (struct member_event){.kind = MEMBER_CLOSED, .status = HVD_ERR_LINK});
        return;
    case EVENT_TIME: proc_event(t, i, (struct member_event){.kind = MEMBER_TIME}); return;
    case EVENT_LINKS: look_at_links(t, i, e->epoch); return;
    case EVENT_BROKE: broke(t, i, e); return;
    case EVENT_GIVEN_UP: given_up(t, i, e->epoch); return;
    case EVENT_DONE: life_done(t, i, e->epoch); return;
    case EVENT_REQUEST:
    case EVENT_EXPIRE:
    case EVENT_HUNG_UP:
    case EVENT_ENDED:
    case EVENT_LAUNCHER:
    case EVENT_CHAOS: return;
    }
}

static void handle(struct trial *t, const struct event *e)
{
    switch (e->kind) {
    case EVENT_REQUEST:
        /* A request that its sender has cancelled is still in transit, but its bytes are not: it
         * has a separate connection, which closes after it. */
        if (t->procs[e->proc].conn == e->conn)
            store_serve(t, e->conn);
        return;
    case EVENT_EXPIRE: store_expire(t, e->conn); return;
    case EVENT_HUNG_UP: conn_hang_up(t, e->conn); return;
    case EVENT_LAUNCHER:
        if (t->launcher != NULL)
            launcher_turn(t);
        else
            launcher_look(t);
        return;
    case EVENT_ENDED: launcher_hears_end(t, e->proc); return;
    case EVENT_CHAOS: chaos(t); return;
    case EVENT_CLOSED: conn_hang_up(t, e->conn); break;
    case EVENT_ASK:
    case EVENT_REACHED:
    case EVENT_REPLY:
    case EVENT_TIME:
    case EVENT_LINKS:
    case EVENT_BROKE:
    case EVENT_GIVEN_UP:
    case EVENT_DONE: break;
    }
    handle_proc(t, e);
}

static bool take_event(struct trial *t, struct event *ret)
{
    int first = 0;
    if (t->event_count == 0)
        return false;
    for (int i = 1; i < t->event_count; i++) {
        const struct event *a = &t->events[i], *b = &t->events[first];
        if (a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order))
            first = i;
    }
    *ret = t->events[first];
    t->events[first] = t->events[--t->event_count];
    return true;
}

/* A hung process does nothing until it wakes up; the world continues. */
static bool postpone(struct trial *t, const struct event *e)
{
    struct proc *p = e->proc >= 0 ? &t->procs[e->proc] : NULL;
    if (p == NULL || !p->is_hung || !p->is_alive || e->kind == EVENT_REQUEST ||
        e->kind == EVENT_EXPIRE)
        return false;
    if (t->now_ns >= p->awake_ns) {
        trace(t, "%s wakes up", p->worker);
        p->is_hung = false;
        if (p->epoch != 0 && p->epoch < t->epoch && t->generations[t->epoch].has_key &&
            memcmp(p->key, t->generations[t->epoch].key, sizeof p->key) == 0)
            sim_violate(&t->report->verdict,
                        "a worker of an old epoch has the key of the one that runs");
        return false;
    }
    struct event *later = at(t, p->awake_ns, e->kind, e->proc);
    later->conn = e->conn;
    later->epoch = e->epoch;
    later->culprit = e->culprit;
    later->reply = e->reply;
    return true;
}

static void check_deadlines(struct trial *t)
{
    for (int i = 0; i < t->proc_count; i++) {
        const struct proc *p = &t->procs[i];
        if (p->is_alive && !p->is_hung && member_is_meeting(&p->member) &&
            t->now_ns > p->member.deadline_ns + LINK_NS + SECOND &&
            t->now_ns > p->awake_ns + SECOND)
            sim_violate(&t->report->verdict, "worker %s meets for ever (state %d)", p->worker,
                        (int)p->member.state);
    }
}

static void check_end(struct trial *t)
{
    uint64_t epoch = t->epoch;
    int running = 0;
    for (int i = 0; i < t->proc_count; i++) {
        const struct proc *p = &t->procs[i];
        if (!p->is_alive)
            continue;
        if (t->kind != JOB_DRIVEN) {
            if (p->lives != LIVES)
                sim_violate(&t->report->verdict, "rank %d has had %d lives of %d", i, p->lives,
                            LIVES);
            continue;
        }
        if (p->member.state != MEMBER_RUNNING || p->epoch != epoch)
            sim_violate(&t->report->verdict, "in the end worker %s is in state %d, epoch %d of %d",
                        p->worker, (int)p->member.state, (int)p->epoch, (int)epoch);
        running++;
    }
    if (t->kind == JOB_DRIVEN && running != t->generations[epoch].count)
        sim_violate(&t->report->verdict, "%d workers run, epoch %d has %d", running, (int)epoch,
                    t->generations[epoch].count);
}

static void loop(struct trial *t)
{
    struct event e;
    bool was_calm = false;
    int64_t limit_ns = t->launcher != NULL ? LONG_NS : SETTLE_NS;
    while (t->report->verdict.is_ok && !t->is_over && take_event(t, &e)) {
        if (e.at_ns > limit_ns) {
            reply_unref(e.reply);
            continue;
        }
        t->now_ns = e.at_ns > t->now_ns ? e.at_ns : t->now_ns;
        if (!was_calm && is_calm(t) && t->kind == JOB_DRIVEN && t->launcher == NULL)
            at(t, t->now_ns + 60 * SECOND, EVENT_LAUNCHER, -1); /* with all processes awake */
        was_calm = is_calm(t);
        if (postpone(t, &e))
            continue;
        t->report->events++;
        t->report->hash =
            (t->report->hash ^ (uint64_t)e.kind ^ (uint64_t)e.at_ns) * UINT64_C(1099511628211);
        handle(t, &e);
        reply_unref(e.reply);
        check_deadlines(t);
    }
}

static void trial_begin(struct trial *t, const struct os *os)
{
    t->inner = os;
    t->os = (struct os){.ctx = t,
                        .alloc = trial_alloc,
                        .resize = trial_resize,
                        .free = trial_free,
                        .random = trial_random};
    t->budget = (struct budget){.os = &t->os, .max = 64u << 20};
    t->random = t->options->seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    t->kind = (enum job_kind)draw(t, 3);
    t->launcher = t->options->launcher;
    if (t->launcher != NULL)
        t->kind = JOB_DRIVEN;
    t->look_ns = INT64_MAX;
    t->is_restarting = t->kind == JOB_STATIC && draw(t, 2) == 0;
    t->delay_ns = MS << draw(t, 8);
    t->size_wanted = 1 + (int)draw(t, MEMBERS_MAX - 4);
    trial_random(t, t->job_key, sizeof t->job_key);
    if (t->kind != JOB_SELF_SERVED)
        store_open(t);
    if (t->kind == JOB_DRIVEN) {
        if (t->launcher != NULL)
            t->launcher->begin(t->launcher->ctx, t, &t->table);
        else
            launcher_look(t);
        look_by(t, t->now_ns + 1);
        at(t, (int64_t)draw(t, 6000) * MS, EVENT_CHAOS, -1);
        return;
    }
    for (int i = 0; i < t->size_wanted; i++)
        proc_add(t, 0);
}

static void trial_end(struct trial *t)
{
    for (int i = 0; i < t->event_count; i++)
        reply_unref(t->events[i].reply);
    t->event_count = 0;
    store_close(t);
    for (int i = 0; i < t->event_count; i++)
        reply_unref(t->events[i].reply);
    if (t->launcher != NULL)
        t->launcher->destroy(t->launcher->ctx);
    if (t->budget.used != 0)
        sim_violate(&t->report->verdict, "the store has kept %zu bytes", t->budget.used);
}

bool sim_member_run(const struct os *os, const struct sim_member_options *options,
                    struct sim_member_report *ret)
{
    struct trial *t = os_alloc(os, sizeof *t);
    *ret = (struct sim_member_report){.verdict.is_ok = t != NULL};
    if (t == NULL)
        return false;
    t->options = options;
    t->report = ret;
    trial_begin(t, os);
    loop(t);
    if (ret->verdict.is_ok && t->launcher != NULL)
        t->launcher->check(t->launcher->ctx);
    else if (ret->verdict.is_ok)
        check_end(t);
    ret->end_ns = t->now_ns;
    trial_end(t);
    if (!ret->verdict.is_ok)
        trace(t, "VIOLATION: %s", ret->verdict.text);
    os_free(os, t);
    return ret->verdict.is_ok;
}
