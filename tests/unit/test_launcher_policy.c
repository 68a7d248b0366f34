/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_policy.c - who is in an elastic job: the rules one by one, and random histories in
 * which workers come, go, crash and hang while the others meet. No process is started. */
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

#define S         1000000000LL
#define MS        1000000LL
#define PROCS_MAX 64
#define HOSTS_MAX 4
#define STEPS     400
#define SEEDS     3000

/* What a worker's process does; numbered as the policy's workers are. */
struct proc {
    bool is_alive, is_hung;
    bool is_in_room;
    uint64_t epoch; /* the generation it is in; 0: none */
    uint32_t index;
    int32_t host;
};

struct bed {
    struct mem mem;
    struct policy policy;
    struct policy_ops ops;
    struct proc procs[PROCS_MAX];
    int64_t now_ns;
    bool is_stopped;
    int spawns, halts, announces, generations;
    char said[2048];
    uint64_t random;
};

static uint64_t draw(struct bed *b, uint64_t below)
{
    b->random = b->random * 6364136223846793005ull + 1442695040888963407ull;
    return (b->random >> 33) % below;
}

static void op_open_host(void *ctx, int32_t host)
{
    struct bed *b = ctx;
    policy_host_up(&b->policy, host);
}

static void op_close_host(void *ctx, int32_t host)
{
    struct bed *b = ctx;
    for (int i = 0; i < PROCS_MAX; i++)
        assert_false(b->procs[i].is_alive && b->procs[i].host == host);
}

static void op_spawn(void *ctx, int32_t worker)
{
    struct bed *b = ctx;
    assert_in_range(worker, 0, PROCS_MAX - 1);
    assert_false(b->procs[worker].is_alive);
    b->procs[worker] = (struct proc){.is_alive = true,
                                     .index = b->policy.workers[worker].index,
                                     .host = b->policy.workers[worker].host};
    b->spawns++;
}

static void op_halt(void *ctx, int32_t worker)
{
    struct bed *b = ctx;
    assert_true(b->procs[worker].is_alive);
    b->halts++;
}

/* The store asks again about everybody who waits. */
static void op_review(void *ctx)
{
    (void)ctx;
}

static void op_announce(void *ctx)
{
    struct bed *b = ctx;
    b->announces++;
}

static void op_generation(void *ctx)
{
    struct bed *b = ctx;
    const struct policy *p = &b->policy;
    b->generations++;
    assert_in_range(p->member_count, p->options.min_np, p->options.max_np);
    for (int32_t i = 0; i < p->member_count; i++) {
        struct proc *proc = &b->procs[p->members[i]];
        assert_true(proc->is_alive);   /* nobody who has ended is counted on */
        assert_true(proc->is_in_room); /* nor who has not asked */
        assert_true(p->epoch > proc->epoch);
        assert_int_equal(p->workers[p->members[i]].rank, i);
        for (int32_t k = 0; k < i; k++)
            assert_true(p->members[k] != p->members[i]);
        proc->is_in_room = false;
        proc->epoch = p->epoch;
    }
}

static void op_stop(void *ctx)
{
    struct bed *b = ctx;
    assert_false(b->is_stopped);
    b->is_stopped = true;
}

static void op_say(void *ctx, const char *text)
{
    struct bed *b = ctx;
    snprintf(b->said, sizeof b->said, "%s", text);
}

static double op_chance(void *ctx)
{
    (void)ctx;
    return 0.5;
}

static struct policy_options usual(int32_t np, int32_t min_np)
{
    return (struct policy_options){.np = np,
                                   .min_np = min_np,
                                   .max_np = 1000,
                                   .reset_limit = -1,
                                   .is_fixed = true,
                                   .timeout_ns = 600 * S,
                                   .silent_ns = 10 * S,
                                   .regroup_ns = 60 * S,
                                   .blame_ns = 500 * MS,
                                   .halt_ns = 3 * S};
}

static void bed_open(struct bed *b, struct policy_options options)
{
    memset(b, 0, sizeof *b);
    mem_init(&b->mem, os_host());
    b->now_ns = 1000 * S;
    b->ops = (struct policy_ops){b,       op_open_host, op_close_host, op_spawn,
                                 op_halt, op_review,    op_announce,   op_generation,
                                 op_stop, op_say,       op_chance};
    policy_init(&b->policy, &b->mem, &b->ops, &options, b->now_ns);
}

static void bed_close(struct bed *b)
{
    mem_destroy(&b->mem);
}

static void turn(struct bed *b)
{
    for (int32_t i = 0; i < b->policy.worker_count; i++)
        if (b->procs[i].is_alive)
            policy_worker_seen(&b->policy, i, b->procs[i].is_in_room,
                               b->procs[i].epoch == b->policy.epoch);
    policy_turn(&b->policy, b->now_ns);
}

static void turn_at(struct bed *b, int64_t after_ns)
{
    b->now_ns += after_ns;
    b->policy.now_ns = b->now_ns;
    turn(b);
}

static void list(struct bed *b, const char *first, int32_t slots, const char *second,
                 int32_t more_slots)
{
    struct policy_listed hosts[2] = {{first, slots}, {second, more_slots}};
    policy_hosts(&b->policy, hosts, second != NULL ? 2 : 1);
    turn(b);
    turn(b);
}

static void ask(struct bed *b, int32_t worker)
{
    b->procs[worker].is_in_room = true;
    turn(b);
}

static void end(struct bed *b, int32_t worker, int code, int signal)
{
    struct policy_end how = {.code = code, .signal = signal, .text = "ended"};
    b->procs[worker].is_alive = false;
    policy_worker_ended(&b->policy, worker, &how);
    turn(b);
}

static void all_meet(struct bed *b, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        ask(b, i);
    assert_int_equal(b->policy.epoch, 1);
    assert_int_equal(b->policy.member_count, count);
    policy_met(&b->policy);
}

/* All slots are on host a, and every worker is in the first generation. */
static void meet_on_a(struct bed *b, struct policy_options options)
{
    bed_open(b, options);
    list(b, "a", options.np, NULL, 0);
    all_meet(b, options.np);
}

/* Every test below opens this one; it is closed for them. */
static int setup(void **state)
{
    static struct bed bed;
    *state = &bed;
    return 0;
}

static int teardown(void **state)
{
    bed_close(*state);
    return 0;
}

/* ---- one by one ---- */

static void first_waits_for_all(void **state)
{
    struct bed *b = *state;
    bed_open(b, usual(3, 2));
    list(b, "a", 2, "b", 1);
    assert_int_equal(b->spawns, 3);
    ask(b, 2);
    ask(b, 0);
    assert_int_equal(b->generations, 0);
    ask(b, 1);
    assert_int_equal(b->generations, 1);
    assert_int_equal(b->policy.members[2], 2); /* in the order of hosts and slots */
    int32_t rank = 0, size = 0;
    policy_cross(&b->policy, 2, &rank, &size);
    assert_int_equal(rank, 1);
    assert_int_equal(size, 2);
}

static void survivors_first(void **state)
{
    struct bed *b = *state;
    meet_on_a(b, usual(4, 2));
    end(b, 0, 0, SIGKILL);
    assert_int_equal(b->spawns, 5); /* in its slot, at once */
    int32_t newcomer = policy_find(&b->policy, 0, 4);
    ask(b, 1);
    ask(b, 2);
    assert_int_equal(b->generations, 1);
    ask(b, 3);
    assert_int_equal(b->generations, 2); /* nobody waits for who still starts */
    assert_int_equal(b->policy.member_count, 3);
    assert_int_equal(b->policy.members[0], 1);
    policy_met(&b->policy);
    assert_int_equal(b->announces, 0);
    ask(b, newcomer);
    assert_int_equal(b->announces, 1);
    assert_true(b->policy.notice.added_version == 1 && b->policy.notice.removed_version == 0);
    for (int32_t i = 1; i < 4; i++)
        ask(b, i);
    assert_int_equal(b->policy.member_count, 4);
    assert_int_equal(b->policy.members[3], newcomer);
    assert_int_equal(policy_local_rank(&b->policy, newcomer), 0);
}

static void blamed_is_put_out(void **state)
{
    struct bed *b = *state;
    char why[256];
    meet_on_a(b, usual(3, 2));
    policy_worker_broke(&b->policy, 0, 1, 2, "rank 2 is hung");
    policy_worker_broke(&b->policy, 1, 1, 2, "rank 2 is hung");
    ask(b, 0);
    ask(b, 1);
    assert_int_equal(b->generations, 1); /* it may come, or end, by itself */
    turn_at(b, 600 * MS);
    assert_int_equal(b->generations, 2);
    assert_int_equal(b->policy.member_count, 2);
    assert_int_equal(policy_judge(&b->policy, 2, why, sizeof why), HVD_ERR_STALE);
    assert_non_null(strstr(why, "rank 2 is hung"));
    assert_int_equal(b->halts, 0);
    turn_at(b, 3 * S);
    assert_int_equal(b->halts, 1);
}

/* Whoever asks lives, whatever the others say of it. */
static void blamed_but_asks(void **state)
{
    struct bed *b = *state;
    meet_on_a(b, usual(3, 2));
    policy_worker_broke(&b->policy, 0, 1, 2, "rank 2 has left");
    ask(b, 2);
    turn_at(b, 2 * S);
    ask(b, 0);
    policy_worker_broke(&b->policy, 1, 7, 0, "of another time");
    ask(b, 1);
    assert_int_equal(b->policy.member_count, 3);
    assert_int_equal(b->generations, 2);
}

static void silent_is_put_out(void **state)
{
    struct bed *b = *state;
    meet_on_a(b, usual(3, 1));
    end(b, 0, 0, SIGKILL);
    policy_worker_broke(&b->policy, 1, 1, 0, "rank 0 died"); /* alive, but busy */
    turn_at(b, 11 * S);
    assert_int_equal(b->policy.workers[1].state, POLICY_MEMBER);
    assert_int_equal(b->policy.workers[2].state, POLICY_EVICTED);
    turn_at(b, 60 * S);
    assert_int_equal(b->policy.workers[1].state, POLICY_MEMBER); /* nobody else has the state */
    turn_at(b, 600 * S);
    assert_true(b->is_stopped); /* nobody is left */
}

/* Survivors wait for more workers, longer than a silent member is waited for. One whose connection
 * is lost then has its time again to dial, or to be reported. */
static void lost_in_the_room(void **state)
{
    struct bed *b = *state;
    meet_on_a(b, usual(3, 3));
    end(b, 2, 0, SIGKILL);
    ask(b, 0);
    ask(b, 1);
    turn_at(b, 100 * S);
    b->procs[1].is_in_room = false;
    turn(b);
    assert_int_equal(b->policy.workers[1].state, POLICY_MEMBER);
    assert_true(policy_next_ns(&b->policy) <= b->now_ns + 10 * S);
    turn_at(b, 9 * S);
    assert_int_equal(b->policy.workers[1].state, POLICY_MEMBER);
    turn_at(b, 2 * S);
    assert_int_equal(b->policy.workers[1].state, POLICY_EVICTED);
}

static void not_met_is_put_out(void **state)
{
    struct bed *b = *state;
    bed_open(b, usual(2, 1));
    list(b, "a", 2, NULL, 0);
    ask(b, 0);
    ask(b, 1);
    b->procs[1].epoch = 0; /* let in, but does not bring its addresses */
    turn_at(b, 11 * S);
    assert_int_equal(b->policy.workers[1].state, POLICY_EVICTED);
    assert_int_equal(b->halts, 1);
}

static void spare_takes_over(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 2);
    o.spares = 1;
    bed_open(b, o);
    list(b, "a", 2, NULL, 0);
    assert_int_equal(b->spawns, 3);
    all_meet(b, 2);
    ask(b, 2);
    assert_int_equal(b->announces, 0); /* it is no newcomer */
    end(b, 0, 1, 0);
    assert_int_equal(b->spawns, 4); /* the next spare, not a replacement */
    ask(b, 1);
    assert_int_equal(b->policy.member_count, 2);
    assert_int_equal(b->policy.members[1], 2);
}

static int32_t staff_on(const struct bed *b, int32_t host)
{
    int32_t count = 0;
    for (int32_t i = 0; i < b->policy.worker_count; i++) {
        const struct policy_worker *w = &b->policy.workers[i];
        count += w->host == host && w->slot >= 0 && w->state >= POLICY_STARTING &&
                 w->state <= POLICY_MEMBER;
    }
    return count;
}

/* Everybody who lives is in the room, until nothing happens any more. */
static void all_ask(struct bed *b)
{
    for (int turns = 0; turns < 10; turns++) {
        for (int32_t i = 0; i < b->policy.worker_count; i++)
            if (b->procs[i].is_alive && (b->policy.is_broken || b->procs[i].epoch == 0))
                b->procs[i].is_in_room = true;
        turn(b);
    }
}

/* A spare that fills a slot of another host: the job does not grow, and the next spare is started
 * where there is room, so that no host ends up with everybody. */
static void spare_of_another_host(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(4, 2);
    o.spares = 1;
    bed_open(b, o);
    list(b, "a", 2, "b", 2);
    all_ask(b);
    for (int i = 0; i < 20; i++) {
        int32_t victim = 0; /* always of the first host that has one */
        while (!b->procs[victim].is_alive || b->policy.workers[victim].state != POLICY_MEMBER ||
               b->policy.workers[victim].host != i / 10)
            victim++;
        b->now_ns += 20 * S;
        b->policy.now_ns = b->now_ns;
        end(b, victim, 0, SIGKILL);
        all_ask(b);
        assert_false(b->is_stopped);
        assert_int_equal(staff_on(b, 0) + staff_on(b, 1), 4);
        assert_in_range(staff_on(b, 0), 1, 3);
    }
    list(b, "a", 2, NULL, 0); /* whoever is not in a slot of the host leaves, too */
    for (int32_t i = 0; i < b->policy.worker_count; i++)
        b->procs[i].is_in_room = b->procs[i].is_alive;
    turn(b);
    assert_in_range(b->policy.member_count, 1, 2);
}

/* A host is away and back before its workers have left; those that replace them do not stay. */
static void replaced_host_returns(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 1);
    o.max_np = 2;
    o.is_fixed = false;
    bed_open(b, o);
    list(b, "a", 2, NULL, 0);
    all_meet(b, 2);
    list(b, "b", 2, NULL, 0);
    assert_int_equal(b->spawns, 4);
    list(b, "a", 2, "b", 2);
    assert_int_equal(staff_on(b, 0), 2);
    assert_int_equal(staff_on(b, 1), 0);
}

static void late_spare_takes_over(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 2);
    o.spares = 1;
    meet_on_a(b, o);
    end(b, 0, 0, SIGKILL); /* a replacement is started; the spare was not in the room */
    ask(b, 1);
    ask(b, 2);
    assert_int_equal(b->generations, 2);
    assert_int_equal(b->policy.members[1], 2);
    assert_int_equal(b->spawns, 4);
}

static void hosts_leave(void **state)
{
    struct bed *b = *state;
    char why[256];
    struct policy_options o = usual(2, 1);
    o.is_fixed = false;
    bed_open(b, o);
    list(b, "a", 1, "b", 1);
    all_meet(b, 2);
    list(b, "b", 1, NULL, 0);
    assert_true(b->policy.notice.removed_version == 1);
    assert_int_equal(policy_judge(&b->policy, 0, why, sizeof why), HVD_OK);
    ask(b, 0);
    assert_int_equal(b->generations, 1);
    ask(b, 1);
    assert_int_equal(b->policy.member_count, 1);
    assert_int_equal(policy_judge(&b->policy, 0, why, sizeof why), HVD_ERR_REMOVED);
    assert_non_null(strstr(why, "host a is no longer available"));
    end(b, 0, 0, 0);
    assert_false(b->policy.is_finishing); /* who was told to leave has not finished the job */
    assert_int_equal(b->policy.hosts[0].state, POLICY_HOST_CLOSED);
}

static void state_is_handed_over(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 1);
    o.is_fixed = false;
    meet_on_a(b, o);
    list(b, "b", 1, NULL, 0);
    assert_int_equal(b->announces, 0); /* not before there is an heir */
    ask(b, 2);
    assert_int_equal(b->announces, 1);
    ask(b, 0);
    ask(b, 1);
    assert_int_equal(b->policy.member_count, 2);
    assert_int_equal(b->policy.members[0], 0);
    assert_int_equal(b->policy.members[1], 2);
    policy_met(&b->policy);
    turn(b);
    assert_int_equal(b->announces, 2);
    ask(b, 0);
    ask(b, 2);
    assert_int_equal(b->policy.member_count, 1);
    assert_int_equal(b->policy.members[0], 2);
}

/* A host that is lost now and then, and works in between, is never given up. */
static void host_comes_back(void **state)
{
    struct bed *b = *state;
    bed_open(b, usual(2, 1));
    list(b, "a", 1, "b", 1);
    all_meet(b, 2);
    for (uint32_t i = 0; i < 2 * POLICY_CRASH_MAX; i++) {
        b->procs[policy_find(&b->policy, 1, i)].is_alive = false;
        policy_host_down(&b->policy, 1, "the connection to its agent was lost");
        ask(b, 0);
        assert_int_equal(b->policy.member_count, 1);
        policy_met(&b->policy);
        turn_at(b, 9 * S); /* the longest pause before it is tried again is 8 s */
        turn(b);
        assert_int_equal(b->spawns, 3 + (int)i);
        ask(b, policy_find(&b->policy, 1, i + 1));
        ask(b, 0);
        assert_int_equal(b->policy.member_count, 2);
        policy_met(&b->policy);
    }
}

/* The last members are to leave, and finish before anybody is there who could take over. */
static void leavers_finish(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 1);
    o.is_fixed = false;
    meet_on_a(b, o);
    list(b, "b", 1, NULL, 0);
    end(b, 0, 0, 0);
    assert_false(b->policy.is_finishing);
    end(b, 1, 0, 0);
    assert_true(b->policy.is_finishing);
    end(b, 2, 0, 0); /* the newcomer was told to exit */
    assert_true(b->is_stopped);
    assert_int_equal(b->policy.end_code, 0);
}

static void cooldown_applies(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(4, 2);
    o.has_cooldown = true;
    o.cooldown_low_s = 10;
    o.cooldown_high_s = 100;
    bed_open(b, o);
    list(b, "a", 2, "b", 2);
    all_meet(b, 4);
    end(b, 2, 1, 0);
    assert_int_equal(b->policy.workers[3].state, POLICY_EVICTED); /* the whole host */
    assert_int_equal(b->spawns, 4);
    ask(b, 0);
    ask(b, 1);
    assert_int_equal(b->policy.member_count, 2);
    end(b, 3, 0, SIGKILL);
    turn_at(b, 24 * S); /* 10 * 2^1 + 0.5 * 10 */
    assert_int_equal(b->spawns, 4);
    turn_at(b, 2 * S);
    assert_int_equal(b->spawns, 6);
    end(b, 0, 1, 0); /* the only host that works is never left alone */
    end(b, 1, 0, SIGKILL);
    assert_true(b->is_stopped);
}

/* A spare, or a newcomer, fails on the host that has all members: they are not given up for it. */
static void cooldown_spares_the_state(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 1);
    o.has_cooldown = true;
    o.cooldown_low_s = 10;
    o.cooldown_high_s = 100;
    o.max_np = 2;
    o.spares = 1;
    bed_open(b, o);
    list(b, "a", 2, "b", 1);
    all_meet(b, 2);
    end(b, 1, 1, 0);
    assert_int_equal(b->policy.workers[0].state, POLICY_MEMBER);
    ask(b, 0);
    assert_int_equal(b->generations, 2);
    assert_false(b->is_stopped);
}

static void crash_loop_ends(void **state)
{
    struct bed *b = *state;
    bed_open(b, usual(2, 2));
    list(b, "a", 2, NULL, 0);
    ask(b, 0);
    for (int i = 0; i < POLICY_CRASH_MAX && !b->is_stopped; i++) {
        turn_at(b, 30 * S);
        end(b, policy_find(&b->policy, 0, (uint32_t)(i + 1)), 3, 0);
    }
    assert_true(b->is_stopped);
    assert_int_equal(b->policy.end_code, 3);
    assert_non_null(strstr(b->policy.end_text, "Too few workers can be started"));
}

/* A machine from which processes are killed, again and again, is not a crash loop. */
static void kills_never_end_it(void **state)
{
    struct bed *b = *state;
    meet_on_a(b, usual(2, 1));
    for (int i = 0; i < 2000; i++) {
        int32_t victim = b->policy.members[b->policy.member_count - 1];
        b->now_ns += 500 * MS;
        end(b, victim, 0, SIGKILL);
        ask(b, b->policy.members[0]);
        for (int32_t k = 0; k < b->policy.worker_count; k++)
            if (b->policy.workers[k].state == POLICY_STARTING)
                ask(b, k);
        ask(b, b->policy.members[0]);
        assert_int_equal(b->policy.member_count, 2);
        assert_false(b->is_stopped);
    }
    assert_in_range(b->policy.worker_count, 2, 4); /* entries are used again */
}

static void too_few(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(4, 3);
    o.is_fixed = false;
    bed_open(b, o);
    list(b, "a", 3, NULL, 0);
    turn_at(b, 599 * S);
    assert_false(b->is_stopped);
    turn_at(b, 2 * S);
    assert_true(b->is_stopped);
    assert_non_null(strstr(b->policy.end_text, "there are 3 slots, and 4 are needed (-np)"));
}

static void success_ends_it(void **state)
{
    struct bed *b = *state;
    char why[256];
    meet_on_a(b, usual(3, 1));
    end(b, 2, 0, SIGKILL);
    end(b, 0, 0, 0);
    assert_false(b->is_stopped);
    assert_int_equal(policy_judge(&b->policy, 1, why, sizeof why), HVD_ERR_REMOVED);
    assert_int_equal(b->halts, 1); /* the replacement, which has just been started */
    end(b, 1, 0, 0);
    end(b, policy_find(&b->policy, 0, 3), 0, SIGKILL);
    assert_true(b->is_stopped);
    assert_int_equal(b->policy.end_code, 0);
}

static void reset_limit(void **state)
{
    struct bed *b = *state;
    struct policy_options o = usual(2, 1);
    o.reset_limit = 1;
    meet_on_a(b, o);
    end(b, 1, 9, 0);
    ask(b, 0);
    assert_int_equal(b->generations, 2);
    ask(b, 0);
    assert_true(b->is_stopped);
    assert_int_equal(b->policy.end_code, 9);
    assert_non_null(strstr(b->policy.end_text, "exceeded limit: 1"));
}

/* ---- random histories ---- */

static void random_hosts(struct bed *b)
{
    static const char *const names[HOSTS_MAX] = {"a", "b", "c", "d"};
    struct policy_listed hosts[HOSTS_MAX];
    int32_t count = 0;
    for (int i = 0; i < HOSTS_MAX; i++)
        if (i == 0 || draw(b, 2) == 0)
            hosts[count++] = (struct policy_listed){names[i], (int32_t)(1 + draw(b, 3))};
    policy_hosts(&b->policy, hosts, count);
}

/* One thing happens to one process. */
static void random_event(struct bed *b, int32_t i)
{
    struct proc *proc = &b->procs[i];
    const struct policy *p = &b->policy;
    struct policy_end how = {.text = "ended"};
    char why[256];
    if (!proc->is_alive)
        return;
    hvd_status_t judged = policy_judge(p, i, why, sizeof why);
    switch (draw(b, 12)) {
    case 0:
        how.signal = SIGKILL;
        proc->is_alive = false;
        policy_worker_ended(&b->policy, i, &how);
        return;
    case 1: proc->is_hung = draw(b, 4) == 0; return;
    case 2:
        if (proc->epoch == p->epoch && p->member_count > 0)
            policy_worker_broke(&b->policy, i, p->epoch,
                                (int32_t)draw(b, (uint64_t)p->member_count), "why");
        return;
    case 3:
        if (draw(b, 10) == 0)
            policy_worker_leaves(&b->policy, i);
        return;
    default: break;
    }
    if (proc->is_hung)
        return;
    if (judged != HVD_OK) { /* it is told when it asks */
        how.code = judged == HVD_ERR_REMOVED ? 0 : 7;
        proc->is_alive = proc->is_in_room = false;
        policy_worker_ended(&b->policy, i, &how);
        return;
    }
    if (proc->epoch == 0 || p->is_broken || (p->notice.version > 0 && draw(b, 4) == 0))
        proc->is_in_room = true;
}

/* Time goes on and nobody does anything any more but what is expected of it: there must be an
 * end to every wait. */
static bool settles(struct bed *b)
{
    for (int i = 0; i < 2000 && !b->is_stopped; i++) {
        int64_t next_ns = policy_next_ns(&b->policy);
        for (int32_t k = 0; k < b->policy.worker_count; k++) {
            struct proc *proc = &b->procs[k];
            char why[256];
            bool is_over = b->policy.workers[k].is_halted ||
                           policy_judge(&b->policy, k, why, sizeof why) != HVD_OK;
            if (proc->is_alive && is_over) {
                struct policy_end how = {.signal = SIGKILL, .text = "ended"};
                proc->is_alive = proc->is_in_room = false;
                policy_worker_ended(&b->policy, k, &how);
            } else if (proc->is_alive && !proc->is_hung &&
                       (proc->epoch == 0 || b->policy.is_broken)) {
                proc->is_in_room = true;
            }
        }
        turn(b);
        bool is_quiet = b->policy.epoch > 0 && !b->policy.is_broken;
        for (int32_t k = 0; k < b->policy.member_count; k++) {
            const struct proc *proc = &b->procs[b->policy.members[k]];
            is_quiet = is_quiet && proc->is_alive && proc->epoch == b->policy.epoch;
        }
        if (is_quiet)
            return true;
        if (next_ns != INT64_MAX && next_ns > b->now_ns)
            b->now_ns = next_ns;
    }
    return b->is_stopped;
}

static void history(uint64_t seed)
{
    struct bed b;
    struct policy_options o = usual(2, 1);
    bed_open(&b, o);
    b.random = seed * 2654435761u + 1;
    o.min_np = (int32_t)(1 + draw(&b, 2));
    o.max_np = (int32_t)(2 + draw(&b, 7));
    o.np = o.min_np;
    o.spares = (int32_t)draw(&b, 3);
    o.is_fixed = draw(&b, 2) == 0;
    o.has_cooldown = draw(&b, 3) == 0;
    o.cooldown_low_s = 1;
    o.cooldown_high_s = 20;
    b.policy.options = o;
    random_hosts(&b);
    for (int i = 0; i < STEPS && !b.is_stopped; i++) {
        b.now_ns += (int64_t)draw(&b, 300) * MS;
        b.policy.now_ns = b.now_ns;
        if (!o.is_fixed && draw(&b, 40) == 0)
            random_hosts(&b);
        if (b.policy.worker_count > 0)
            random_event(&b, (int32_t)draw(&b, (uint64_t)b.policy.worker_count));
        turn(&b);
        if (b.policy.epoch > 0 && draw(&b, 3) == 0 && !b.policy.is_broken)
            policy_met(&b.policy);
    }
    if (!b.is_stopped && !settles(&b))
        fail_msg("seed %llu: nothing comes of it; epoch %llu, %d workers, is_broken %d",
                 (unsigned long long)seed, (unsigned long long)b.policy.epoch,
                 b.policy.worker_count, b.policy.is_broken);
    bed_close(&b);
}

static void random_histories(void **state)
{
    (void)state;
    const char *only = getenv("HVD_TEST_SEED");
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        history(only != NULL ? strtoull(only, NULL, 10) : seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(first_waits_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(survivors_first, setup, teardown),
        cmocka_unit_test_setup_teardown(blamed_is_put_out, setup, teardown),
        cmocka_unit_test_setup_teardown(blamed_but_asks, setup, teardown),
        cmocka_unit_test_setup_teardown(silent_is_put_out, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_in_the_room, setup, teardown),
        cmocka_unit_test_setup_teardown(not_met_is_put_out, setup, teardown),
        cmocka_unit_test_setup_teardown(spare_takes_over, setup, teardown),
        cmocka_unit_test_setup_teardown(spare_of_another_host, setup, teardown),
        cmocka_unit_test_setup_teardown(late_spare_takes_over, setup, teardown),
        cmocka_unit_test_setup_teardown(hosts_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(replaced_host_returns, setup, teardown),
        cmocka_unit_test_setup_teardown(state_is_handed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(host_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(leavers_finish, setup, teardown),
        cmocka_unit_test_setup_teardown(cooldown_applies, setup, teardown),
        cmocka_unit_test_setup_teardown(cooldown_spares_the_state, setup, teardown),
        cmocka_unit_test_setup_teardown(crash_loop_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(kills_never_end_it, setup, teardown),
        cmocka_unit_test_setup_teardown(too_few, setup, teardown),
        cmocka_unit_test_setup_teardown(success_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(reset_limit, setup, teardown),
        cmocka_unit_test(random_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
