/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_policy.c - elastic jobs in virtual time: the launcher's real policy (policy.h), the real
 * table of the store and the real state machine of each member, while workers are killed, crash,
 * hang and leave, and while hosts come, go and fail, also while others meet.
 *
 * Checked: a generation has between min_np and max_np members, none of them twice, none that was
 * put out before; survivors keep their order and their slots and come before newcomers; a host has
 * no more workers than slots (and spares); no worker that never hung is put out; no process is
 * counted on that a host lost; every job ends, for a reason that is true; no wait lasts forever.
 * sim_member.h checks that members of a generation agree on it.
 *
 *     test_sim_policy                       some seeds; a failure prints its seed
 *     test_sim_policy --seeds 10000         so many, from --from (default 1), with totals
 *     test_sim_policy --from 4711 --trace   one, with every event
 *
 * Start reading at main(). */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy.h"
#include "sim_member.h"

#define MS          1000000LL
#define S           (1000 * MS)
#define HOSTS_MAX   4
#define WORKERS_MAX 64
#define PROCS_MAX   256
#define TWICE       50 /* every so manyth seed is run again */
#if HVD_TEST_QUICK
#define SEEDS 200
#else
#define SEEDS 2000
#endif

/* A process, as the one who started it knows it. */
struct record {
    int32_t host, worker;
    bool is_known; /* the policy has not heard of its end */
    bool was_hung, was_killed;
    bool was_in_room;
    bool is_out;        /* evicted, or told to exit: never again a member */
    bool has_failed;    /* by itself, while it was a member */
    uint64_t epoch;     /* the last generation it was named for */
    int32_t rank, slot; /* there */
};

struct machine {
    int64_t up_ns; /* when its agent is up; 0: it does not start */
    bool will_fail;
    int32_t slots; /* 0: not listed */
};

struct totals {
    uint64_t finished, failed, resets, evicted, leaves, host_failures;
};

struct office {
    struct trial *trial;
    struct table *table;
    struct mem mem;
    struct policy policy;
    struct policy_ops ops;
    int64_t now_ns;
    struct machine machines[HOSTS_MAX];
    int procs[WORKERS_MAX]; /* of the policy's workers; -1: none */
    struct record records[PROCS_MAX];
    int proc_count;
    int finished;
    bool is_stopped;
    struct totals *totals;
};

static uint64_t draw(struct office *o, uint64_t below)
{
    return sim_member_draw(o->trial, below);
}

static void violate(struct office *o, const char *what, int32_t number)
{
    sim_violate(sim_member_verdict(o->trial), "%s (%d)", what, (int)number);
}

static void worker_name(const struct policy *p, int32_t worker, char ret[STORE_WORKER_MAX + 1])
{
    snprintf(ret, STORE_WORKER_MAX + 1, "%d.%u", p->workers[worker].host, p->workers[worker].index);
}

static struct record *record_of(struct office *o, int32_t worker)
{
    return &o->records[o->procs[worker]];
}

/* ---- what the policy asks for ---- */

static void op_open_host(void *ctx, int32_t host)
{
    struct office *o = ctx;
    o->machines[host].up_ns = o->now_ns + 1 + (int64_t)draw(o, 800) * MS;
    o->machines[host].will_fail = o->now_ns < 60 * S && draw(o, 8) == 0;
}

static void op_close_host(void *ctx, int32_t host)
{
    struct office *o = ctx;
    o->machines[host].up_ns = 0;
    for (int i = 0; i < o->proc_count; i++)
        if (o->records[i].host == host && sim_member_is_alive(o->trial, i))
            violate(o, "a host is closed while a worker of it lives", i);
}

static void op_spawn(void *ctx, int32_t worker)
{
    struct office *o = ctx;
    const struct policy_worker *w = &o->policy.workers[worker];
    char name[STORE_WORKER_MAX + 1];
    worker_name(&o->policy, worker, name);
    int proc = sim_member_start(o->trial, name);
    if (worker >= WORKERS_MAX || proc < 0) {
        violate(o, "too many workers", worker);
        return;
    }
    if (o->policy.hosts[w->host].state != POLICY_HOST_UP)
        violate(o, "a worker is started on a host that is not up", w->host);
    o->procs[worker] = proc;
    o->records[proc] = (struct record){
        .host = w->host, .worker = worker, .is_known = true, .rank = -1, .slot = w->slot};
    o->proc_count = proc + 1;
}

static void op_halt(void *ctx, int32_t worker)
{
    struct office *o = ctx;
    sim_member_kill(o->trial, o->procs[worker], 0, SIGKILL, false);
}

static void op_review(void *ctx)
{
    struct office *o = ctx;
    table_review(o->table, SIM_MEMBER_SCOPE);
}

static void op_announce(void *ctx)
{
    struct office *o = ctx;
    sim_member_notice(o->trial, o->policy.notice.version);
}

/* Members of the last generation that are in this one: in their order, with their slots, first. */
static void check_order(struct office *o)
{
    const struct policy *p = &o->policy;
    int32_t last_rank = -1;
    bool has_new = false;
    for (int32_t i = 0; i < p->member_count; i++) {
        const struct record *r = record_of(o, p->members[i]);
        bool is_old = p->epoch > 1 && r->epoch == p->epoch - 1;
        if (is_old && (r->rank <= last_rank || has_new))
            violate(o, "a survivor has lost its place; its rank is now", i);
        if (is_old && p->workers[p->members[i]].slot != r->slot)
            violate(o, "a survivor has another slot; rank", i);
        if (!is_old && r->epoch != 0)
            violate(o, "a worker is back that had missed a generation; rank", i);
        last_rank = is_old ? r->rank : last_rank;
        has_new = has_new || !is_old;
    }
    if (p->epoch > 1 && last_rank < 0)
        violate(o, "no member has the state; epoch", (int32_t)p->epoch);
}

static void op_generation(void *ctx)
{
    struct office *o = ctx;
    const struct policy *p = &o->policy;
    struct store_member members[WORKERS_MAX];
    memset(members, 0, sizeof members);
    if (p->member_count < p->options.min_np || p->member_count > p->options.max_np)
        violate(o, "a generation of a size that was not asked for", p->member_count);
    check_order(o);
    for (int32_t i = 0; i < p->member_count; i++) {
        struct record *r = record_of(o, p->members[i]);
        const struct policy_worker *w = &p->workers[p->members[i]];
        if (!r->is_known || r->is_out)
            violate(o, "a worker that has ended or was put out is a member; rank", i);
        worker_name(p, p->members[i], members[i].worker);
        if (table_standing(o->table, SIM_MEMBER_SCOPE, members[i].worker) != STORE_WAITING)
            violate(o, "a member has not asked; rank", i);
        for (int32_t k = 0; k < i; k++)
            if (p->members[k] == p->members[i] || (p->workers[p->members[k]].host == w->host &&
                                                   p->workers[p->members[k]].slot == w->slot))
                violate(o, "a worker or a slot has two ranks; the second is", i);
        members[i].place.local_rank = policy_local_rank(p, p->members[i]);
        members[i].place.local_size = policy_local_size(p, w->host);
        policy_cross(p, p->members[i], &members[i].place.cross_rank, &members[i].place.cross_size);
        r->epoch = p->epoch;
        r->rank = i;
        r->slot = w->slot;
    }
    o->totals->resets += p->epoch > 1;
    sim_member_generation(o->trial, p->epoch, members, p->member_count, p->notice.version);
}

static void op_say(void *ctx, const char *text)
{
    struct office *o = ctx;
    sim_member_trace(o->trial, text);
}

static double op_chance(void *ctx)
{
    return (double)draw(ctx, 1000) / 1000.0;
}

/* ---- the end ---- */

/* Workers that are there, or will be, and are wanted. */
static int32_t staff_known(struct office *o, bool in_room)
{
    int32_t count = 0;
    for (int i = 0; i < o->proc_count; i++) {
        const struct record *r = &o->records[i];
        const struct policy_worker *w = &o->policy.workers[r->worker];
        if (!r->is_known || r->is_out || o->procs[r->worker] != i || w->slot < 0 || w->is_leaving)
            continue;
        count += !in_room || w->state == POLICY_WAITING || w->is_asking;
    }
    return count;
}

static bool has_failed_last(const struct office *o)
{
    for (int i = 0; i < o->proc_count; i++)
        if (o->records[i].has_failed && o->records[i].epoch == o->policy.epoch)
            return true;
    return false;
}

static int32_t members_known(const struct office *o)
{
    int32_t count = 0;
    for (int i = 0; i < o->proc_count; i++)
        count += o->records[i].is_known && !o->records[i].is_out &&
                 o->records[i].epoch == o->policy.epoch;
    return count;
}

/* Has each member been killed, or hung? */
static bool are_all_lost(const struct office *o)
{
    for (int i = 0; i < o->proc_count; i++)
        if (o->records[i].epoch == o->policy.epoch && !o->records[i].was_killed &&
            !o->records[i].was_hung)
            return false;
    return true;
}

static bool says(const struct office *o, const char *part)
{
    return strstr(o->policy.end_text, part) != NULL;
}

/* Is what the job ends with true? */
static bool is_true_failure(struct office *o)
{
    const struct policy *p = &o->policy;
    if (says(o, "failed while others finished"))
        return o->finished > 0 && has_failed_last(o);
    if (o->finished > 0)
        return false;
    if (says(o, "is left that has the state"))
        return p->epoch > 0 && members_known(o) == 0 && are_all_lost(o);
    if (says(o, "have been asked to leave"))
        return staff_known(o, false) == 0;
    if (says(o, "exceeded limit"))
        return p->resets == p->options.reset_limit;
    if (says(o, "slots, and"))
        return p->epoch == 0 && o->proc_count == 0;
    if (says(o, "No worker has come as far"))
        return p->epoch == 0 && !p->has_seen_room;
    return (says(o, "workers, and") || says(o, "workers are left") || says(o, "too few") ||
            says(o, "Too few")) &&
           staff_known(o, true) < p->options.min_np;
}

/* A host that is left alone for a while takes its members with it, but never the last ones. */
static void note_cooled(struct office *o, struct record *r)
{
    const struct policy *p = &o->policy;
    for (int32_t i = 0; i < p->worker_count; i++)
        r->was_killed = r->was_killed || p->workers[i].state == POLICY_MEMBER;
}

static void note_out(struct office *o)
{
    const struct policy *p = &o->policy;
    for (int32_t i = 0; i < p->worker_count; i++) {
        const struct policy_worker *w = &p->workers[i];
        if (w->state != POLICY_EVICTED && w->state != POLICY_REMOVED)
            continue;
        struct record *r = record_of(o, i);
        if (w->state == POLICY_EVICTED && !r->is_out) {
            o->totals->evicted++;
            if (!r->was_hung && !p->options.has_cooldown)
                violate(o, "a worker that never hung is put out", i);
            note_cooled(o, r);
        }
        r->is_out = true;
    }
}

static void op_stop(void *ctx)
{
    struct office *o = ctx;
    const struct policy *p = &o->policy;
    note_out(o);
    if (o->is_stopped)
        violate(o, "the job ends twice", p->end_code);
    o->is_stopped = true;
    sim_member_trace(o->trial, p->end_code == 0 ? "the job has succeeded" : p->end_text);
    if (p->end_code == 0 ? o->finished == 0 || has_failed_last(o) : !is_true_failure(o))
        sim_violate(sim_member_verdict(o->trial), "the job ends with code %d and \"%.600s\"",
                    p->end_code, p->end_text);
    o->totals->finished += p->end_code == 0;
    o->totals->failed += p->end_code != 0;
    sim_member_stop(o->trial);
}

/* ---- what the launcher does ---- */

static hvd_status_t judge(void *ctx, const char *worker, char ret_why[STORE_WHY_MAX])
{
    struct office *o = ctx;
    char name[STORE_WORKER_MAX + 1];
    for (int32_t i = 0; i < o->policy.worker_count; i++) {
        worker_name(&o->policy, i, name);
        if (o->policy.workers[i].state != POLICY_NONE && strcmp(name, worker) == 0)
            return policy_judge(&o->policy, i, ret_why, STORE_WHY_MAX);
    }
    return policy_judge(&o->policy, -1, ret_why, STORE_WHY_MAX);
}

static void look_at_store(struct office *o)
{
    struct policy *p = &o->policy;
    bool is_met = false;
    if (table_epoch(o->table, SIM_MEMBER_SCOPE, &is_met) == p->epoch && is_met && p->epoch > 0)
        policy_met(p);
    for (int32_t i = 0; i < p->worker_count; i++) {
        char name[STORE_WORKER_MAX + 1];
        if (p->workers[i].state == POLICY_NONE)
            continue;
        worker_name(p, i, name);
        enum store_standing standing = table_standing(o->table, SIM_MEMBER_SCOPE, name);
        policy_worker_seen(p, i, standing == STORE_WAITING, standing == STORE_ARRIVED);
        record_of(o, i)->was_in_room = record_of(o, i)->was_in_room || standing == STORE_WAITING;
    }
}

static void look_at_hosts(struct office *o)
{
    for (int32_t i = 0; i < o->policy.host_count; i++) {
        struct machine *m = &o->machines[i];
        if (m->up_ns == 0 || o->now_ns < m->up_ns)
            continue;
        m->up_ns = 0;
        if (m->will_fail)
            policy_host_down(&o->policy, i, "it can't be reached");
        else
            policy_host_up(&o->policy, i);
    }
}

static void trace_workers(struct office *o)
{
    char text[200];
    for (int32_t i = 0; i < o->policy.worker_count; i++) {
        const struct policy_worker *w = &o->policy.workers[i];
        snprintf(text, sizeof text,
                 "worker %d.%u: state %d, slot %d of %d, rank %d, is_asking %d, is_leaving %d",
                 w->host, w->index, (int)w->state, w->slot, o->policy.hosts[w->host].listed_slots,
                 w->rank, w->is_asking, w->is_leaving);
        if (w->state != POLICY_NONE)
            sim_member_trace(o->trial, text);
    }
}

static void check_state(struct office *o)
{
    const struct policy *p = &o->policy;
    int32_t on[HOSTS_MAX] = {0}, staff = 0, spares = 0, slots = 0;
    note_out(o);
    for (int32_t i = 0; i < p->worker_count; i++) {
        const struct policy_worker *w = &p->workers[i];
        if (w->state == POLICY_NONE || w->state > POLICY_MEMBER || w->is_leaving)
            continue;
        on[w->host] += w->slot >= 0;
        staff += w->slot >= 0;
        spares += w->slot < 0;
    }
    for (int32_t i = 0; i < HOSTS_MAX; i++) {
        slots += o->machines[i].slots;
        if (on[i] > o->machines[i].slots + p->options.spares)
            violate(o, "more workers than slots on a host", i);
    }
    if (staff > slots || staff > p->options.max_np)
        violate(o, "more workers than slots", staff);
    if (spares > p->options.spares + staff)
        violate(o, "too many spares", spares);
    if (p->options.reset_limit >= 0 && p->resets > p->options.reset_limit)
        violate(o, "more resets than allowed", p->resets);
    if (!sim_member_verdict(o->trial)->is_ok)
        trace_workers(o);
}

static int64_t turn(void *ctx, int64_t now_ns)
{
    struct office *o = ctx;
    o->now_ns = o->policy.now_ns = now_ns;
    if (o->is_stopped)
        return INT64_MAX;
    look_at_hosts(o);
    look_at_store(o);
    policy_turn(&o->policy, now_ns);
    if (o->policy.is_broken)
        sim_member_abandon(o->trial);
    look_at_store(o);
    if (!o->is_stopped)
        check_state(o);
    int64_t next_ns = policy_next_ns(&o->policy);
    for (int i = 0; i < HOSTS_MAX; i++)
        if (o->machines[i].up_ns > now_ns && o->machines[i].up_ns < next_ns)
            next_ns = o->machines[i].up_ns;
    return next_ns;
}

static void set_time(struct office *o)
{
    o->now_ns = o->policy.now_ns = sim_member_now(o->trial);
}

static void ended(void *ctx, int proc, int code, int signal_number, bool is_finished)
{
    struct office *o = ctx;
    struct record *r = &o->records[proc];
    struct policy_end end = {.code = code, .signal = signal_number, .text = "ended"};
    if (!r->is_known || o->is_stopped)
        return;
    const struct policy_worker *w = &o->policy.workers[r->worker];
    bool is_member = w->state == POLICY_MEMBER && !w->is_leaving;
    bool is_outside = signal_number == SIGKILL || signal_number == SIGTERM;
    set_time(o);
    r->is_known = false;
    r->has_failed = is_member && !is_outside && code + signal_number != 0;
    o->finished += is_finished;
    policy_worker_ended(&o->policy, r->worker, &end);
    note_out(o);
}

static void broke(void *ctx, int proc, uint64_t epoch, int culprit)
{
    struct office *o = ctx;
    int32_t rank =
        culprit >= 0 && o->records[culprit].epoch == epoch ? o->records[culprit].rank : -1;
    set_time(o);
    if (o->records[proc].is_known && !o->is_stopped)
        policy_worker_broke(&o->policy, o->records[proc].worker, epoch, rank, "it is lost");
}

/* ---- faults ---- */

static void list_hosts(struct office *o)
{
    static const char *const names[HOSTS_MAX] = {"a", "b", "c", "d"};
    struct policy_listed list[HOSTS_MAX];
    int32_t count = 0, first = (int32_t)draw(o, HOSTS_MAX);
    for (int32_t i = 0; i < HOSTS_MAX; i++) {
        int32_t at = (first + i) % HOSTS_MAX;
        if (i == 0 || draw(o, 2) == 0)
            list[count++] = (struct policy_listed){names[at], (int32_t)(1 + draw(o, 3))};
    }
    policy_hosts(&o->policy, list, count);
    for (int32_t i = 0; i < o->policy.host_count; i++) {
        o->machines[i].slots = 0;
        for (int32_t k = 0; k < count; k++)
            if (strcmp(o->policy.hosts[i].name, list[k].name) == 0)
                o->machines[i].slots = list[k].slots;
    }
}

/* A machine is lost with everything on it; the launcher sees that its agent is gone. */
static void fail_host(struct office *o, int32_t host)
{
    if (o->policy.hosts[host].state == POLICY_HOST_CLOSED)
        return;
    o->machines[host].up_ns = 0;
    o->totals->host_failures++;
    for (int i = 0; i < o->proc_count; i++)
        if (o->records[i].host == host) {
            o->records[i].is_known = false;
            o->records[i].was_killed = true;
            sim_member_kill(o->trial, i, 0, SIGKILL, true);
        }
    policy_host_down(&o->policy, host, "its agent has ended");
}

/* A process that lives, one that meets if there is one and `is_meeting`; -1: none. */
static int victim(struct office *o, bool is_meeting)
{
    int found[PROCS_MAX], count = 0;
    for (int i = 0; i < o->proc_count; i++)
        if (sim_member_is_alive(o->trial, i) && (!is_meeting || sim_member_is_meeting(o->trial, i)))
            found[count++] = i;
    return count > 0 ? found[draw(o, (uint64_t)count)] : -1;
}

static void chaos(void *ctx)
{
    struct office *o = ctx;
    uint64_t what = draw(o, 20);
    set_time(o);
    int proc = victim(o, draw(o, 2) == 0);
    if (o->is_stopped || proc < 0)
        return;
    o->records[proc].was_killed = o->records[proc].was_killed || what < 8;
    if (what < 6) {
        sim_member_kill(o->trial, proc, 0, SIGKILL, false);
    } else if (what < 8) {
        sim_member_kill(o->trial, proc, 3, 0, false);
    } else if (what < 11) {
        o->records[proc].was_hung = true;
        sim_member_hang(o->trial, proc);
    } else if (what < 12 && o->records[proc].is_known) {
        o->totals->leaves++;
        policy_worker_leaves(&o->policy, o->records[proc].worker);
    } else if (what < 15 && !o->policy.options.is_fixed) {
        list_hosts(o);
    } else if (what == 15) {
        fail_host(o, (int32_t)draw(o, (uint64_t)o->policy.host_count));
    }
}

/* ---- one trial ---- */

static void begin(void *ctx, struct trial *t, struct table *table)
{
    struct office *o = ctx;
    const struct store_judge asked = {.ctx = o, .ask = judge};
    o->trial = t;
    o->table = table;
    struct policy_options p = {.timeout_ns = (20 + (int64_t)draw(o, 100)) * S,
                               .silent_ns = (2 + (int64_t)draw(o, 9)) * S,
                               .regroup_ns = 60 * S,
                               .blame_ns = 500 * MS,
                               .halt_ns = 3 * S,
                               .cooldown_low_s = 1,
                               .cooldown_high_s = 20};
    p.min_np = (int32_t)(1 + draw(o, 3));
    p.np = p.min_np + (int32_t)draw(o, 2);
    p.max_np = p.np + (int32_t)draw(o, 5);
    p.spares = (int32_t)draw(o, 3);
    p.is_fixed = draw(o, 3) == 0;
    p.has_cooldown = draw(o, 3) == 0;
    p.reset_limit = draw(o, 8) == 0 ? (int32_t)draw(o, 6) : -1;
    mem_init(&o->mem, os_host());
    o->ops = (struct policy_ops){.ctx = o,
                                 .open_host = op_open_host,
                                 .close_host = op_close_host,
                                 .spawn = op_spawn,
                                 .halt = op_halt,
                                 .review = op_review,
                                 .announce = op_announce,
                                 .generation = op_generation,
                                 .stop = op_stop,
                                 .say = op_say,
                                 .chance = op_chance};
    policy_init(&o->policy, &o->mem, &o->ops, &p, 0);
    if (table_judge(table, SIM_MEMBER_SCOPE, &asked) != HVD_OK)
        violate(o, "the store has no judge", 0);
    list_hosts(o);
    sim_member_finish_at(t, (int64_t)(draw(o, 4) == 0 ? draw(o, 60) : 60 + draw(o, 60)) * S);
}

static void check(void *ctx)
{
    struct office *o = ctx;
    const struct policy *p = &o->policy;
    if (!o->is_stopped)
        sim_violate(sim_member_verdict(o->trial),
                    "the job never ends: epoch %d, %d members, is_broken %d, %d in the room",
                    (int)p->epoch, p->member_count, p->is_broken, staff_known(o, true));
}

static void destroy(void *ctx)
{
    struct office *o = ctx;
    mem_destroy(&o->mem);
}

static bool run_seed(uint64_t seed, void (*trace)(const char *), struct totals *totals,
                     struct sim_member_report *ret)
{
    static struct office o;
    memset(&o, 0, sizeof o);
    o.totals = totals;
    struct sim_launcher launcher = {.ctx = &o,
                                    .begin = begin,
                                    .turn = turn,
                                    .broke = broke,
                                    .ended = ended,
                                    .chaos = chaos,
                                    .check = check,
                                    .destroy = destroy};
    struct sim_member_options options = {.seed = seed, .launcher = &launcher, .trace = trace};
    return sim_member_run(os_host(), &options, ret);
}

static void print_line(const char *line)
{
    puts(line);
}

/* The seeds that failed are printed; how many there were. */
static uint64_t run_seeds(uint64_t from, uint64_t seeds, bool is_tracing, struct totals *ret,
                          struct sim_member_report *ret_sum)
{
    struct sim_member_report report, again;
    uint64_t failed = 0;
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        bool is_ok = run_seed(seed, is_tracing ? print_line : NULL, ret, &report);
        ret_sum->generations += report.generations;
        ret_sum->runs += report.runs;
        ret_sum->crashes += report.crashes;
        ret_sum->hangs += report.hangs;
        ret_sum->refused += report.refused;
        ret_sum->end_ns += report.end_ns;
        if (is_ok && seed % TWICE == 0) {
            struct totals ignored = {0};
            is_ok = run_seed(seed, NULL, &ignored, &again) && again.hash == report.hash;
            if (!is_ok)
                snprintf(report.verdict.text, sizeof report.verdict.text, "two runs differ");
        }
        if (is_ok)
            continue;
        failed++;
        printf("seed %" PRIu64 ": %s\n    replay: test_sim_policy --from %" PRIu64 " --trace\n",
               seed, report.verdict.text, seed);
    }
    return failed;
}

static void test_seeds(void **state)
{
    (void)state;
    struct totals totals = {0};
    struct sim_member_report sum = {0};
    assert_int_equal(run_seeds(1, SEEDS, false, &totals, &sum), 0);
    /* all of it has happened, or the seeds show nothing */
    assert_true(sum.runs > SEEDS && sum.crashes > 2 * SEEDS && sum.hangs > SEEDS / 4);
    assert_true(totals.finished > SEEDS / 4 && totals.failed > SEEDS / 20);
    assert_true(totals.resets > SEEDS && totals.evicted > SEEDS / 20);
    assert_true(totals.leaves > SEEDS / 8 && totals.host_failures > SEEDS / 20);
}

static int usage(void)
{
    fprintf(stderr, "usage: test_sim_policy [--seeds N] [--from N] [--trace]\n");
    return 2;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};
    struct totals totals = {0};
    struct sim_member_report sum = {0};
    uint64_t from = 1, seeds = 1;
    bool is_tracing = false;
    if (argc == 1)
        return cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0)
            is_tracing = true;
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            seeds = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--from") == 0 && i + 1 < argc)
            from = strtoull(argv[++i], NULL, 10);
        else
            return usage();
    }
    uint64_t failed = run_seeds(from, seeds, is_tracing, &totals, &sum);
    printf("%" PRIu64 " seeds, %" PRIu64 " failed: %" PRIu64 " jobs succeeded and %" PRIu64
           " ended with an error; %" PRIu64 " generations, %" PRIu64 " entries into one, %" PRIu64
           " crashes and kills, %" PRIu64 " hangs, %" PRIu64 " evictions, %" PRIu64
           " asked to leave, %" PRIu64 " hosts lost, %.0f virtual seconds\n",
           seeds, failed, totals.finished, totals.failed, sum.generations, sum.runs, sum.crashes,
           sum.hangs, totals.evicted, totals.leaves, totals.host_failures,
           (double)sum.end_ns / 1e9);
    return failed == 0 ? 0 : 1;
}
