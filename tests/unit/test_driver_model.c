/* SPDX-License-Identifier: Apache-2.0 */
/* test_driver_model.c - the sleeping and waking of src/api/driver.c as a small model, in which
 * every interleaving is tried: no thread sleeps long while there is something to do.
 *
 * Four of five threads take single steps in any order, each step one access of the driver to shared
 * state: the background thread (background()), a caller that submits and waits (driver_wait()), one
 * that submits and returns (driver_submitted()), one that takes the token only to read
 * (driver_look_begin()), and a peer that sends something and rings if requested. Short sleeps (at
 * most a few milliseconds by the clock: grace, ops in flight, a token that is taken) may end at any
 * time; the long ones (a second) only by a bell or a wake-up. A state in which nothing can happen
 * although work is left is a lost wake-up. Memory is sequentially consistent here, as it is in the
 * driver by its seq_cst accesses and two fences.
 *
 * Covered: is_idle, is_grace, turn, sleepers, waiters, queued, in_flight, token, arming. Not
 * covered: callbacks, passing the token on between turns, time limits of waits, transports that do
 * not ring, shutdown. The steps are a copy of the driver's: change both together. Each mutation
 * below removes one precaution, and the model must then find the lost wake-up: so it can fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum mutation {
    MUTATION_NONE,
    MUTATION_NO_RECHECK,    /* background() does not look at `queued` again before it sleeps */
    MUTATION_NO_RING,       /* driver_submitted() does not ring */
    MUTATION_NO_TURN_WAKE,  /* a completion wakes nobody */
    MUTATION_SEEN_LATE,     /* a waiter reads `turn` only when it goes to sleep */
    MUTATION_READ_TWICE,    /* background() reads `in_flight` again for is_idle */
    MUTATION_NO_HINT,       /* background() does not wake a waiter that found the token taken */
    MUTATION_LEAVE_QUIETLY, /* a waiter that leaves does not look at the queue */
    MUTATION_LOOK_QUIETLY   /* driver_look_end() does not wake who found the token taken */
};

enum { BACK, WAITER, CALLER, PEER, LOOKER, THREADS };

struct state {
    uint8_t at[THREADS];
    uint8_t token;     /* 0: free, else holder + 1 */
    uint8_t queued;    /* ops submitted, not seen by the engine */
    uint8_t in_flight; /* ops submitted, not complete */
    uint8_t waiting;   /* ops that need the peer's message and have been seen */
    uint8_t message;   /* of the peer, not yet taken */
    uint8_t arrived;   /* taken */
    uint8_t turn, seen[2], sleepers, waiters;
    uint8_t is_idle, is_grace, is_armed, bell, is_quiet, is_long, is_helped_lately;
    uint8_t is_waiter_quiet, has_sleepers, has_back_sleepers, is_busy;
    uint8_t is_done;      /* the waiter's op */
    uint8_t is_asleep[2]; /* on `turn`: BACK, WAITER */
    uint8_t is_polling;   /* BACK, on the poller */
};

#define SLOTS (1u << 22)

struct model {
    enum mutation mutation;
    struct state *states; /* to visit, and visited */
    uint32_t *slots;      /* hash table of numbers + 1 */
    uint32_t count, next;
    uint32_t lost, ended;
};

static uint64_t hash_of(const struct state *s)
{
    const uint8_t *bytes = (const uint8_t *)s;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *s; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash ^ hash >> 29;
}

static void put(struct model *m, const struct state *s)
{
    uint32_t slot = (uint32_t)hash_of(s) & (SLOTS - 1);
    for (; m->slots[slot] != 0; slot = (slot + 1) & (SLOTS - 1))
        if (memcmp(&m->states[m->slots[slot] - 1], s, sizeof *s) == 0)
            return;
    assert_true(m->count < SLOTS / 2);
    m->states[m->count++] = *s;
    m->slots[slot] = m->count;
}

/* ---- what the driver's functions do ---- */

/* engine_progress() and what turn() does after it. */
static void turn_take(const struct model *m, struct state *s)
{
    uint8_t before = s->in_flight;
    s->waiting = (uint8_t)(s->waiting + s->queued);
    s->queued = 0;
    s->arrived |= s->message;
    s->message = 0;
    if (!s->arrived || s->waiting == 0)
        return;
    s->in_flight = (uint8_t)(s->in_flight - s->waiting);
    s->waiting = 0;
    s->is_done = s->at[WAITER] > 1;
    if (before == s->in_flight || m->mutation == MUTATION_NO_TURN_WAKE)
        return;
    s->turn++;
    s->is_asleep[BACK] = s->is_asleep[WAITER] = 0;
}

static bool arm(struct state *s)
{
    s->is_armed = 1;
    return s->message == 0 && s->queued == 0;
}

static void turn_wake(struct state *s)
{
    s->turn++;
    s->is_asleep[BACK] = s->is_asleep[WAITER] = 0;
}

static void ring(struct state *s)
{
    s->bell = 1;
}

/* ---- the threads: one step each; false: can't go on ---- */

static bool step_caller(const struct model *m, struct state *s)
{
    switch (s->at[CALLER]) {
    case 0:
        s->in_flight++;
        s->queued++;
        s->at[CALLER] = 1;
        return true;
    case 1: /* driver_submitted() */
        if (s->is_idle && m->mutation != MUTATION_NO_RING) {
            s->is_idle = 0;
            ring(s);
        }
        s->at[CALLER] = 2;
        return true;
    default: return false;
    }
}

static bool step_peer(struct state *s)
{
    switch (s->at[PEER]) {
    case 0:
        s->message = 1;
        s->at[PEER] = 1;
        return true;
    case 1: /* looks whether it shall ring */
        if (s->is_armed)
            ring(s);
        s->at[PEER] = 2;
        return true;
    default: return false;
    }
}

/* Finding the token taken it tries again; what it sees changes nothing. */
static bool step_looker(const struct model *m, struct state *s)
{
    switch (s->at[LOOKER]) {
    case 0:
        if (s->token != 0)
            return false;
        s->token = LOOKER + 1;
        s->at[LOOKER] = 1;
        return true;
    case 1:
        s->token = 0;
        s->at[LOOKER] = 2;
        return true;
    case 2:
        if (m->mutation != MUTATION_LOOK_QUIETLY)
            turn_wake(s);
        s->at[LOOKER] = 3;
        return true;
    default: return false;
    }
}

static bool step_waiter(const struct model *m, struct state *s)
{
    switch (s->at[WAITER]) {
    case 0:
        s->in_flight++;
        s->queued++;
        s->at[WAITER] = 2;
        return true;
    case 2:
        s->waiters = 1;
        s->at[WAITER] = 3;
        return true;
    case 3:
        s->seen[WAITER] = s->turn;
        s->at[WAITER] = s->is_done ? 9 : 4;
        return true;
    case 4:
        s->at[WAITER] = s->token == 0 ? 5 : 7;
        if (s->token == 0)
            s->token = WAITER + 1;
        return true;
    case 5: /* drive(): until patience runs out, which may be at once */
        s->is_armed = 0;
        turn_take(m, s);
        s->seen[WAITER] = s->turn;
        s->at[WAITER] = 6;
        return true;
    case 6: /* give_back() */
        s->is_helped_lately = 1;
        s->at[WAITER] = s->is_grace && s->in_flight == 0 ? 11 : 12;
        return true;
    case 11: /* the background thread looks again by itself */
        s->token = 0;
        s->has_sleepers = s->sleepers > 0;
        s->at[WAITER] = 14;
        return true;
    case 12:
        s->is_waiter_quiet = arm(s);
        s->has_sleepers = s->sleepers > 0;
        s->token = 0;
        s->at[WAITER] = 13;
        return true;
    case 13:
        if (!s->is_waiter_quiet || (s->in_flight > 0 && s->is_idle)) {
            s->is_idle = s->is_waiter_quiet ? 0 : s->is_idle;
            ring(s);
        }
        s->at[WAITER] = 14;
        return true;
    case 14:
        if (s->has_sleepers)
            turn_wake(s);
        s->at[WAITER] = 7;
        return true;
    case 7: /* turn_sleep() */
        if (s->is_done) {
            s->at[WAITER] = 9;
            return true;
        }
        if (m->mutation == MUTATION_SEEN_LATE)
            s->seen[WAITER] = s->turn;
        s->sleepers++;
        s->is_asleep[WAITER] = s->seen[WAITER] == s->turn; /* the futex compares */
        s->at[WAITER] = 8;
        return true;
    case 8:
        if (s->is_asleep[WAITER])
            return false; /* a long sleep */
        s->sleepers--;
        s->at[WAITER] = 3;
        return true;
    case 9:
        s->waiters = 0;
        s->at[WAITER] = 15;
        return true;
    case 15: /* the background thread may have relied on this one */
        if (s->queued > 0 && s->is_idle && m->mutation != MUTATION_LEAVE_QUIETLY) {
            s->is_idle = 0;
            ring(s);
        }
        s->at[WAITER] = 10;
        return true;
    default: return false;
    }
}

/* In background(), after work(). Where the clock decides on `is_grace` both ways are tried. */
static void back_arm(struct state *s, bool is_grace)
{
    is_grace = is_grace && s->in_flight == 0;
    s->is_quiet = is_grace || arm(s);
    s->is_long = s->is_quiet && !is_grace && s->in_flight == 0;
    s->is_busy = s->in_flight > 0;
    s->is_grace = is_grace;
    s->at[BACK] = 7;
}

static bool step_back(const struct model *m, struct state *s)
{
    switch (s->at[BACK]) {
    case 0:
        s->seen[BACK] = s->turn;
        s->at[BACK] = s->token == 0 ? 1 : 6;
        if (s->token == 0)
            s->token = BACK + 1;
        return true;
    case 1: /* work() */
        s->is_armed = 0;
        turn_take(m, s);
        s->at[BACK] = 2;
        return true;
    case 2: back_arm(s, false); return true;
    case 7:
        s->has_back_sleepers = s->sleepers > 0;
        if (s->is_quiet && (!s->is_busy || (m->mutation == MUTATION_READ_TWICE && !s->in_flight)))
            s->is_idle = m->mutation != MUTATION_READ_TWICE || s->in_flight == 0;
        s->at[BACK] = 8;
        return true;
    case 8:
        s->token = 0;
        s->at[BACK] = 3;
        return true;
    case 3:
        if (s->has_back_sleepers && s->waiters > 0 && !s->is_quiet)
            turn_wake(s);
        s->at[BACK] = 4;
        return true;
    case 4: /* looks once more, then sleeps on the poller */
        if (m->mutation != MUTATION_NO_RECHECK && s->queued > 0 && s->waiters == 0)
            s->is_quiet = 0;
        if (m->mutation != MUTATION_NO_HINT && s->queued > 0 && s->waiters > 0)
            turn_wake(s);
        s->is_polling = s->is_quiet;
        s->at[BACK] = 5;
        return true;
    case 5:
        if (s->is_polling && s->is_long && !s->bell)
            return false;
        s->is_polling = s->bell = s->is_idle = s->is_grace = 0;
        s->at[BACK] = 0;
        return true;
    case 6: /* the token is taken: a short sleep */ s->at[BACK] = 0; return true;
    default: return false;
    }
}

/* ---- all orders ---- */

static void visit(struct model *m, const struct state *s)
{
    bool has_next = false;
    for (int thread = 0; thread < THREADS; thread++) {
        struct state next = *s;
        bool is_on = thread == BACK     ? step_back(m, &next)
                     : thread == WAITER ? step_waiter(m, &next)
                     : thread == CALLER ? step_caller(m, &next)
                     : thread == LOOKER ? step_looker(m, &next)
                                        : step_peer(&next);
        has_next |= is_on;
        if (is_on)
            put(m, &next);
    }
    if (s->at[BACK] == 2 && s->is_helped_lately) { /* the clock may also say: grace */
        struct state next = *s;
        next.is_helped_lately = 0;
        back_arm(&next, true);
        put(m, &next);
    }
    if (has_next)
        return;
    m->ended++;
    m->lost += s->in_flight > 0 || s->at[WAITER] != 10;
}

/* Of the one who submits and the one who looks only one is there: else there are too many states.
 */
static uint32_t explore(enum mutation mutation, bool has_looker, uint32_t *ret_states)
{
    struct model m = {.mutation = mutation};
    struct state start;
    memset(&start, 0, sizeof start);
    if (has_looker)
        start.at[CALLER] = 2;
    else
        start.at[LOOKER] = 3;
    m.states = malloc(SLOTS / 2 * sizeof *m.states);
    m.slots = calloc(SLOTS, sizeof *m.slots);
    assert_non_null(m.states);
    assert_non_null(m.slots);
    put(&m, &start);
    while (m.next < m.count) {
        struct state s = m.states[m.next++];
        visit(&m, &s);
    }
    *ret_states = m.count;
    assert_true(m.ended > 0);
    free(m.states);
    free(m.slots);
    return m.lost;
}

static void test_no_wake_up_is_lost(void **state)
{
    (void)state;
    uint32_t states = 0;
    for (int has_looker = 0; has_looker < 2; has_looker++) {
        assert_int_equal(explore(MUTATION_NONE, has_looker != 0, &states), 0);
        print_message("%u states\n", states);
        assert_true(states > 1000);
    }
}

static void test_model_finds_mutations(void **state)
{
    (void)state;
    uint32_t states = 0;
    for (int i = MUTATION_NO_RECHECK; i <= MUTATION_LOOK_QUIETLY; i++) {
        uint32_t lost = explore((enum mutation)i, i == MUTATION_LOOK_QUIETLY, &states);
        print_message("mutation %d: %u lost of %u states\n", i, lost, states);
        assert_true(lost > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_wake_up_is_lost),
        cmocka_unit_test(test_model_finds_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
