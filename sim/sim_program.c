/* SPDX-License-Identifier: Apache-2.0 */
/* sim_program.c - see sim_program.h.
 *
 * A program is a sequence of phases that all ranks go through: loops over some calls (as in
 * training), uneven loops that end in a join, sets that are added and removed, sets that are
 * removed with ops in flight and added again, barriers, submits that must be rejected. Faults are
 * steps put into the finished script of one rank.  Start reading at sim_program_make(). */
#include "sim_program.h"

#include <stdio.h>
#include <string.h>

#include "sim_world.h"

#define SHAPES_MAX 10 /* distinct calls of a program, to be repeated */
#define MS         1000000LL

struct maker {
    struct sim_program *p;
    uint64_t random;
    int32_t shape_count;
    struct sim_call shapes[SHAPES_MAX]; /* the first of each kind of call, repeated in loops */
    int32_t last[SHAPES_MAX];           /* its last call, -1 = none */
    bool is_set_live[SIM_SETS_MAX];
    int32_t calls_left;
    bool has_races;
};

uint64_t sim_hash(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c159e3779b9u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t draw(struct maker *m)
{
    m->random += 0x9e3779b97f4a7c15u;
    return sim_hash(m->random, 1);
}

static int32_t pick(struct maker *m, int32_t from, int32_t to) /* both included */
{
    return from + (int32_t)(draw(m) % (uint64_t)(to - from + 1));
}

static bool one_in(struct maker *m, int32_t n)
{
    return draw(m) % (uint64_t)n == 0;
}

/* ---- growing tables ---- */

static void *grow(struct sim_program *p, void *table, int32_t *capacity, size_t item)
{
    int32_t wanted = *capacity != 0 ? *capacity * 2 : 64;
    void *grown = p->os->resize(p->os->ctx, table, (size_t)wanted * item);
    if (grown == NULL) {
        p->has_failed = true;
        return table;
    }
    *capacity = wanted;
    return grown;
}

static void put_step(struct maker *m, int32_t rank, enum sim_step_kind kind, int64_t argument)
{
    struct sim_script *s = &m->p->scripts[rank];
    if (s->count == s->capacity)
        s->steps = grow(m->p, s->steps, &s->capacity, sizeof *s->steps);
    if (!m->p->has_failed)
        s->steps[s->count++] = (struct sim_step){.kind = kind, .argument = argument};
}

static void put_all(struct maker *m, enum sim_step_kind kind, int64_t argument)
{
    for (int32_t r = 0; r < m->p->ranks; r++)
        put_step(m, r, kind, argument);
}

static int32_t put_call(struct maker *m, const struct sim_call *call)
{
    struct sim_program *p = m->p;
    if (p->call_count == p->call_capacity)
        p->calls = grow(p, p->calls, &p->call_capacity, sizeof *p->calls);
    if (p->has_failed)
        return 0;
    p->calls[p->call_count] = *call;
    m->calls_left--;
    return p->call_count++;
}

/* ---- the world ---- */

static void make_config(struct maker *m)
{
    static const double cycles_ms[] = {0, 0.1, 1, 5};
    static const int64_t thresholds[] = {0, 64, 1024, 64 << 20};
    static const int64_t capacities[] = {0, 1, 2, 5, 1024, 1024, 1024};
    struct config *c = &m->p->config;
    c->cycle_time_ms = cycles_ms[draw(m) % 4];
    c->fusion_threshold_bytes = thresholds[draw(m) % 4];
    c->cache_capacity = capacities[draw(m) % 7];
    c->plan_warmup_steps = pick(m, 1, 3);
    c->disable_group_fusion = one_in(m, 4);
}

static void make_world(struct maker *m, const struct sim_program_options *options)
{
    static const int64_t delays_ns[] = {0, 1000, 20000, 300000, 3 * MS};
    struct sim_program *p = m->p;
    int32_t kind = pick(m, 0, 99);
    int32_t low = kind < 50 ? 2 : kind < 80 ? 5 : kind < 95 ? 10 : 21;
    int32_t high = kind < 50 ? 4 : kind < 80 ? 9 : kind < 95 ? 20 : SIM_RANKS_MAX;
    p->ranks = options->ranks > 0 ? options->ranks : pick(m, low, high);
    bool is_in_sight = one_in(m, 2);
    p->is_in_sight = options->sight >= 0 ? options->sight > 0 : is_in_sight;
    p->hosts = pick(m, 1, p->ranks);
    p->delay_max_ns = delays_ns[draw(m) % 5];
    p->delay_min_ns = p->delay_max_ns / pick(m, 1, 10);
    p->bytes_per_us = one_in(m, 2) ? 0 : pick(m, 100, 10000);
    p->turn_max_ns = one_in(m, 2) ? 0 : p->delay_max_ns / 2 + pick(m, 1, 20000);
    p->again_one_in = one_in(m, 3) ? (uint32_t)pick(m, 2, 50) : 0;
    m->calls_left = p->ranks <= 9 ? 220 : p->ranks <= 20 ? 100 : 40;
    for (int32_t r = 0; r < p->ranks; r++)
        p->scripts[r].is_polling = one_in(m, 5);
    make_config(m);
}

static void make_set(struct maker *m, int32_t set, int32_t count)
{
    struct sim_program *p = m->p;
    struct sim_set *s = &p->sets[set];
    s->count = 0;
    s->members = 0;
    for (int32_t r = 0; r < p->ranks && s->count < count; r++) {
        int32_t left = p->ranks - r;
        if (pick(m, 1, left) > count - s->count)
            continue;
        s->ranks[s->count++] = r;
        s->members |= 1ull << r;
    }
}

/* Static sets with equal ranks would become one; here every set differs from all before it. */
static bool is_new_set(const struct sim_program *p, int32_t set)
{
    for (int32_t i = 0; i < set; i++)
        if (p->sets[i].members == p->sets[set].members)
            return false;
    return true;
}

static bool add_set(struct maker *m)
{
    struct sim_program *p = m->p;
    if (p->set_count == SIM_SETS_MAX || p->ranks < 2)
        return false;
    for (int tries = 0; tries < 5; tries++) {
        make_set(m, p->set_count, pick(m, 1, p->ranks));
        if (!is_new_set(p, p->set_count))
            continue;
        m->is_set_live[p->set_count++] = true;
        return true;
    }
    return false;
}

static void make_sets(struct maker *m)
{
    make_set(m, 0, m->p->ranks);
    m->is_set_live[0] = true;
    m->p->set_count = 1;
    for (int32_t wanted = pick(m, 0, 3); wanted > 0; wanted--)
        add_set(m);
    m->p->static_count = m->p->set_count - 1;
}

/* ---- ops ---- */

static hvd_reduce_t pick_reduce(struct maker *m, hvd_dtype_t dtype)
{
    static const hvd_reduce_t all[] = {HVD_SUM, HVD_SUM, HVD_AVERAGE,
                                       HVD_MIN, HVD_MAX, HVD_PRODUCT};
    hvd_reduce_t reduce = all[draw(m) % 6];
    bool is_scalable = dtype != HVD_BOOL && dtype != HVD_INT16 && dtype != HVD_UINT16;
    return reduce == HVD_AVERAGE && !is_scalable ? HVD_SUM : reduce;
}

static void pick_shape(struct maker *m, struct sim_spec *s)
{
    bool needs_rows =
        s->kind == HVD_ALLGATHER || s->kind == HVD_ALLTOALL || s->kind == HVD_REDUCESCATTER;
    s->ndim = pick(m, needs_rows ? 1 : 0, 3);
    for (int32_t i = 0; i < s->ndim; i++)
        s->shape[i] = one_in(m, 12) ? 0 : pick(m, 1, i == 0 ? 20 : 4);
    if (s->ndim > 0 && one_in(m, 15))
        s->shape[0] = pick(m, 1, m->p->ranks <= 4 ? 30000 : m->p->ranks <= 9 ? 4000 : 300);
}

static bool is_floating(hvd_dtype_t dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64 ||
           dtype == HVD_BFLOAT16;
}

static void pick_scale(struct maker *m, struct sim_spec *s)
{
    static const double factors[] = {0.5, 2.0, 1.0, 1.0};
    bool is_float = s->dtype == HVD_FLOAT16 || s->dtype == HVD_FLOAT32 || s->dtype == HVD_FLOAT64 ||
                    s->dtype == HVD_BFLOAT16;
    s->prescale = s->postscale = 1.0;
    if (!is_float || s->reduce == HVD_PRODUCT || !one_in(m, 3))
        return;
    s->prescale = factors[draw(m) % 4];
    s->postscale = factors[draw(m) % 4];
}

/* The values of the simulator are so small that their sums are exact in every type. */
static bool can_be_narrow(const struct sim_spec *s)
{
    return s->kind == HVD_ALLREDUCE && s->dtype == HVD_FLOAT32 && s->reduce == HVD_SUM;
}

static void make_spec(struct maker *m, struct sim_spec *s, hvd_kind_t kind, int32_t set)
{
    int32_t size = m->p->sets[set].count;
    memset(s, 0, sizeof *s);
    s->kind = kind;
    s->dtype = (hvd_dtype_t)(draw(m) % HVD_DTYPE_COUNT);
    s->reduce = kind == HVD_REDUCESCATTER ? HVD_SUM : pick_reduce(m, s->dtype);
    if (kind == HVD_ALLREDUCE && set == 0 && (size & (size - 1)) == 0 && !m->p->is_in_sight &&
        one_in(m, 6)) {
        s->reduce = HVD_ADASUM;
        s->dtype = one_in(m, 2) ? HVD_FLOAT32 : HVD_FLOAT64;
    }
    pick_shape(m, s);
    pick_scale(m, s);
    if (s->reduce == HVD_ADASUM)
        s->prescale = s->postscale = 1.0;
    if (can_be_narrow(s) && one_in(m, 2))
        s->wire = one_in(m, 2) ? HVD_WIRE_FLOAT16 : HVD_WIRE_BFLOAT16;
    s->root = pick(m, 0, size - 1);
    s->is_in_place = one_in(m, 2);
}

static hvd_kind_t pick_kind(struct maker *m)
{
    static const hvd_kind_t kinds[] = {HVD_ALLREDUCE,    HVD_ALLREDUCE, HVD_ALLREDUCE,
                                       HVD_ALLGATHER,    HVD_BROADCAST, HVD_ALLTOALL,
                                       HVD_REDUCESCATTER};
    return kinds[draw(m) % 7];
}

static int32_t pick_set(struct maker *m)
{
    for (;;) {
        int32_t set = one_in(m, 2) ? 0 : pick(m, 0, m->p->set_count - 1);
        if (m->is_set_live[set])
            return set;
    }
}

static void make_shape(struct maker *m)
{
    struct sim_program *p = m->p;
    int32_t index = m->shape_count;
    struct sim_call *call = &m->shapes[index];
    hvd_kind_t kind = pick_kind(m);
    bool is_auto = one_in(m, 6);
    *call = (struct sim_call){.set = pick_set(m), .spec = p->spec_count, .odd_rank = -1};
    call->count = one_in(m, 3) ? pick(m, 2, SIM_GROUP_MAX) : 1;
    call->flags = one_in(m, 4) ? HVD_OP_NAME_HOLD : 0;
    call->has_callback = one_in(m, 4);
    call->submitters = p->sets[call->set].members;
    for (int32_t i = 0; i < call->count; i++) {
        if (p->spec_count == p->spec_capacity)
            p->specs = grow(p, p->specs, &p->spec_capacity, sizeof *p->specs);
        if (p->has_failed)
            return;
        struct sim_spec *s = &p->specs[p->spec_count++];
        make_spec(m, s, kind, call->set);
        if (!is_auto)
            snprintf(s->name, sizeof s->name, "tensor.%d.%d", index, i);
    }
    m->last[index] = -1;
    m->shape_count++;
}

static bool is_auto_named(const struct maker *m, int32_t shape)
{
    return m->p->specs[m->shapes[shape].spec].name[0] == '\0';
}

/* ---- odd ranks ---- */

static enum sim_odd pick_odd(struct maker *m, const struct sim_spec *s)
{
    switch (draw(m) % 5) {
    case 0: return SIM_ODD_DTYPE;
    case 1:
        if (s->kind == HVD_BROADCAST)
            return SIM_ODD_ROOT;
        if (s->kind == HVD_ALLREDUCE && s->reduce != HVD_ADASUM)
            return SIM_ODD_REDUCE;
        break;
    case 2:
        if (s->kind == HVD_ALLREDUCE && s->reduce != HVD_ADASUM && is_floating(s->dtype))
            return SIM_ODD_SCALE;
        break;
    case 3:
        if (can_be_narrow(s))
            return SIM_ODD_WIRE;
        break;
    default:
        if (s->kind == HVD_ALLREDUCE && s->reduce != HVD_ADASUM)
            return SIM_ODD_KIND;
    }
    return SIM_ODD_SHAPE;
}

static void make_odd(struct maker *m, struct sim_call *call)
{
    const struct sim_set *set = &m->p->sets[call->set];
    if (set->count < 2)
        return;
    call->odd_rank = set->ranks[draw(m) % (uint64_t)set->count];
    call->odd_op = pick(m, 0, call->count - 1);
    call->odd = pick_odd(m, &m->p->specs[call->spec + call->odd_op]);
    call->expect = SIM_EXPECT_MISMATCH;
}

/* ---- phases ---- */

static void maybe_compute(struct maker *m, int32_t rank)
{
    int32_t dice = pick(m, 0, 99);
    if (dice < 15)
        put_step(m, rank, SIM_COMPUTE, pick(m, 1, 200000));
    else if (dice == 99)
        put_step(m, rank, SIM_COMPUTE, pick(m, 1, 400) * MS);
}

/* A name may be used again only when its last op is complete. */
static void submit(struct maker *m, int32_t rank, int32_t call, int32_t before)
{
    if (before >= 0 && (m->p->calls[before].submitters >> rank & 1) != 0)
        put_step(m, rank, SIM_WAIT, before);
    put_step(m, rank, SIM_SUBMIT, call);
}

static int32_t choose_shapes(struct maker *m, bool is_shuffled, int32_t *ret)
{
    int32_t count = 0;
    for (int32_t i = 0; i < m->shape_count; i++)
        if (m->is_set_live[m->shapes[i].set] && !one_in(m, 3) &&
            !(is_shuffled && is_auto_named(m, i)))
            ret[count++] = i;
    return count;
}

static void shuffle(struct maker *m, int32_t *items, int32_t count)
{
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t k = pick(m, 0, i), item = items[i];
        items[i] = items[k];
        items[k] = item;
    }
}

struct turn {                  /* one pass through a loop */
    int32_t calls[SHAPES_MAX]; /* by place */
    int32_t before[SHAPES_MAX];
    int32_t count;
};

static void turn_shuffled(struct maker *m, const struct turn *t)
{
    int32_t order[SHAPES_MAX];
    for (int32_t i = 0; i < t->count; i++)
        order[i] = i;
    for (int32_t r = 0; r < m->p->ranks; r++) {
        shuffle(m, order, t->count);
        for (int32_t i = 0; i < t->count; i++)
            if ((m->p->calls[t->calls[order[i]]].submitters >> r & 1) != 0) {
                maybe_compute(m, r);
                submit(m, r, t->calls[order[i]], t->before[order[i]]);
            }
        put_step(m, r, SIM_WAIT_ALL, 0);
    }
}

/* habit 0: waits for each; 1: for all at the end; 2: never; 3: for the previous one */
static void turn_ordered(struct maker *m, const struct turn *t, const int32_t *habits)
{
    for (int32_t r = 0; r < m->p->ranks; r++) {
        int32_t previous = -1;
        for (int32_t i = 0; i < t->count; i++) {
            if ((m->p->calls[t->calls[i]].submitters >> r & 1) == 0)
                continue;
            maybe_compute(m, r);
            submit(m, r, t->calls[i], t->before[i]);
            if (habits[r] == 0)
                put_step(m, r, SIM_WAIT, t->calls[i]);
            if (habits[r] == 3 && previous >= 0)
                put_step(m, r, SIM_WAIT, previous);
            previous = t->calls[i];
        }
        if (habits[r] == 1)
            put_step(m, r, SIM_WAIT_ALL, 0);
    }
}

static void pick_habits(struct maker *m, int32_t *ret)
{
    int32_t common = pick(m, 0, 3);
    bool is_common = !one_in(m, 3);
    for (int32_t r = 0; r < m->p->ranks; r++)
        ret[r] = is_common ? common : pick(m, 0, 3);
}

static void phase_loop(struct maker *m)
{
    int32_t chosen[SHAPES_MAX], habits[SIM_RANKS_MAX];
    bool is_shuffled = one_in(m, 3);
    int32_t count = choose_shapes(m, is_shuffled, chosen);
    int32_t turns = one_in(m, 2) ? pick(m, 1, 4) : pick(m, 5, 20);
    int32_t odd_turn = one_in(m, 2) ? pick(m, 0, turns - 1) : -1;
    pick_habits(m, habits);
    for (int32_t k = 0; k < turns && count > 0 && m->calls_left > count; k++) {
        struct turn t = {.count = count};
        int32_t odd = k == odd_turn ? pick(m, 0, count - 1) : -1;
        for (int32_t i = 0; i < count; i++) {
            struct sim_call call = m->shapes[chosen[i]];
            if (i == odd && !is_auto_named(m, chosen[i]))
                make_odd(m, &call);
            t.before[i] = m->last[chosen[i]];
            t.calls[i] = m->last[chosen[i]] = put_call(m, &call);
        }
        if (is_shuffled)
            turn_shuffled(m, &t);
        else
            turn_ordered(m, &t, habits);
    }
}

static void phase_barrier(struct maker *m, int32_t set)
{
    struct sim_program *p = m->p;
    if (p->spec_count == p->spec_capacity)
        p->specs = grow(p, p->specs, &p->spec_capacity, sizeof *p->specs);
    if (p->has_failed)
        return;
    p->specs[p->spec_count] = (struct sim_spec){.name = "barrier.noname", .kind = HVD_BARRIER};
    struct sim_call call = {.set = set,
                            .spec = p->spec_count++,
                            .count = 1,
                            .submitters = p->sets[set].members,
                            .odd_rank = -1};
    int32_t id = put_call(m, &call);
    for (int32_t i = 0; i < p->sets[set].count; i++) {
        put_step(m, p->sets[set].ranks[i], SIM_SUBMIT, id);
        put_step(m, p->sets[set].ranks[i], SIM_WAIT, id);
    }
}

static void phase_set_add(struct maker *m)
{
    if (!add_set(m))
        return;
    int32_t set = m->p->set_count - 1;
    m->p->sets[set].is_dynamic = true;
    put_all(m, SIM_SET_ADD, set);
    if (!m->has_races)
        phase_barrier(m, 0);
    for (int i = 0; i < 2 && m->shape_count < SHAPES_MAX; i++)
        make_shape(m);
}

static void phase_set_remove(struct maker *m)
{
    int32_t set = pick(m, 0, m->p->set_count - 1);
    if (set == 0 || !m->is_set_live[set])
        return;
    m->is_set_live[set] = false;
    put_all(m, SIM_WAIT_ALL, 0);
    put_all(m, SIM_SET_REMOVE, set);
}

/* ---- a set that is removed with ops in flight, and added again under the same id ---- */

#define AGAIN_CALLS 3

static int32_t again_spec(struct maker *m, int32_t set, int32_t number)
{
    struct sim_program *p = m->p;
    if (p->spec_count == p->spec_capacity)
        p->specs = grow(p, p->specs, &p->spec_capacity, sizeof *p->specs);
    if (p->has_failed)
        return 0;
    struct sim_spec *s = &p->specs[p->spec_count];
    make_spec(m, s, pick_kind(m), set);
    if (s->ndim > 0 && one_in(m, 2)) /* long enough to be in progress for a while */
        s->shape[0] = pick(m, 1, p->ranks <= 4 ? 20000 : p->ranks <= 9 ? 4000 : 300);
    snprintf(s->name, sizeof s->name, "again.%d.%d", set, number);
    return p->spec_count++;
}

static void again_calls(struct maker *m, int32_t set, const int32_t *specs, enum sim_expect expect)
{
    const struct sim_set *s = &m->p->sets[set];
    for (int32_t i = 0; i < AGAIN_CALLS && m->calls_left > 0; i++) {
        struct sim_call call = {.set = set,
                                .spec = specs[i],
                                .count = 1,
                                .submitters = s->members,
                                .expect = expect,
                                .odd_rank = -1};
        int32_t id = put_call(m, &call);
        for (int32_t k = 0; k < s->count; k++) {
            maybe_compute(m, s->ranks[k]);
            put_step(m, s->ranks[k], SIM_SUBMIT, id);
        }
    }
}

/* The same ranks under another place in the table of sets. */
static int32_t again_copy(struct maker *m, int32_t set)
{
    int32_t copy = m->p->set_count++;
    m->p->sets[copy] = m->p->sets[set];
    m->p->sets[copy].is_dynamic = true;
    m->is_set_live[set] = false;
    m->is_set_live[copy] = true;
    return copy;
}

static void phase_set_again(struct maker *m)
{
    int32_t set = pick(m, 0, m->p->set_count - 1), specs[AGAIN_CALLS];
    if (set == 0 || !m->is_set_live[set])
        return;
    for (int32_t i = 0; i < AGAIN_CALLS; i++)
        specs[i] = again_spec(m, set, i);
    put_all(m, SIM_WAIT_ALL, 0);
    for (int32_t k = pick(m, 1, 4); k > 0 && m->p->set_count < SIM_SETS_MAX; k--) {
        again_calls(m, set, specs, SIM_EXPECT_REMOVED);
        put_all(m, SIM_SET_REMOVE, set);
        set = again_copy(m, set);
        put_all(m, SIM_SET_ADD, set);
        if (!m->has_races)
            phase_barrier(m, 0);
    }
    again_calls(m, set, specs, SIM_EXPECT_OK);
    put_all(m, SIM_WAIT_ALL, 0);
}

/* Ops in progress on the set when a rank joins succeed or fail, depending on which rank is faster.
 */
static void join_overtakes(struct maker *m, int32_t set)
{
    for (int32_t i = 0; i < m->p->call_count; i++) {
        struct sim_call *call = &m->p->calls[i];
        if (call->set == set && call->expect == SIM_EXPECT_OK &&
            m->p->specs[call->spec].kind != HVD_ALLREDUCE &&
            m->p->specs[call->spec].kind != HVD_BARRIER)
            call->expect = SIM_EXPECT_EITHER;
    }
}

static void join_turn(struct maker *m, int32_t set, int32_t k, const int32_t *turns,
                      const int32_t *habits)
{
    struct turn t = {0};
    uint64_t submitters = 0;
    for (int32_t i = 0; i < m->p->sets[set].count; i++)
        if (turns[m->p->sets[set].ranks[i]] > k)
            submitters |= 1ull << m->p->sets[set].ranks[i];
    for (int32_t i = 0; i < m->shape_count && submitters != 0; i++) {
        struct sim_call call = m->shapes[i];
        const struct sim_spec *s = &m->p->specs[call.spec];
        bool is_reduction = s->kind == HVD_ALLREDUCE;
        if (call.set != set || is_auto_named(m, i) || s->reduce == HVD_ADASUM || m->calls_left <= 0)
            continue;
        if (!is_reduction && !one_in(m, 4))
            continue;
        call.submitters = submitters;
        if (!is_reduction)
            call.expect =
                submitters == m->p->sets[set].members ? SIM_EXPECT_EITHER : SIM_EXPECT_MISMATCH;
        t.before[t.count] = m->last[i];
        t.calls[t.count++] = m->last[i] = put_call(m, &call);
    }
    turn_ordered(m, &t, habits);
}

static void phase_join(struct maker *m)
{
    int32_t turns[SIM_RANKS_MAX], habits[SIM_RANKS_MAX], most = 0, set = pick_set(m);
    const struct sim_set *s = &m->p->sets[set];
    for (int32_t r = 0; r < m->p->ranks; r++) {
        turns[r] = pick(m, 0, 5);
        most = turns[r] > most ? turns[r] : most;
    }
    pick_habits(m, habits);
    if (m->has_races)
        join_overtakes(m, set);
    for (int32_t k = 0; k < most; k++)
        join_turn(m, set, k, turns, habits);
    for (int32_t i = 0; i < s->count; i++) {
        struct sim_script *script = &m->p->scripts[s->ranks[i]];
        if (!m->has_races)
            put_step(m, s->ranks[i], SIM_WAIT_ALL, 0);
        put_step(m, s->ranks[i], SIM_JOIN, set);
        if (!m->p->has_failed)
            script->steps[script->count - 1].argument2 = m->p->join_count;
    }
    m->p->join_count++;
}

static void phase_probe(struct maker *m)
{
    int32_t rank = pick(m, 0, m->p->ranks - 1);
    put_step(m, rank, SIM_PROBE, pick(m, 0, SIM_PROBE_COUNT - 1));
}

static void make_phases(struct maker *m)
{
    for (int32_t wanted = pick(m, 2, 8); wanted > 0 && m->calls_left > 0; wanted--) {
        switch (pick(m, 0, 12)) {
        case 0: phase_barrier(m, pick_set(m)); break;
        case 1: phase_set_add(m); break;
        case 2: phase_set_remove(m); break;
        case 3: phase_join(m); break;
        case 4: phase_probe(m); break;
        case 5: phase_set_again(m); break;
        default: phase_loop(m); break;
        }
    }
    put_all(m, SIM_WAIT_ALL, 0);
    phase_barrier(m, 0);
    put_all(m, SIM_LEAVE, 0);
}

/* ---- faults ---- */

static void insert_step(struct maker *m, int32_t rank, struct sim_step step)
{
    struct sim_script *s = &m->p->scripts[rank];
    int32_t at = pick(m, 0, s->count - 1);
    put_step(m, rank, SIM_LEAVE, 0); /* makes room */
    if (m->p->has_failed)
        return;
    memmove(&s->steps[at + 1], &s->steps[at], (size_t)(s->count - 1 - at) * sizeof *s->steps);
    s->steps[at] = step;
}

static void fault_other_name(struct maker *m)
{
    if (m->p->call_count == 0)
        return;
    struct sim_call *call = &m->p->calls[pick(m, 0, m->p->call_count - 1)];
    const struct sim_set *set = &m->p->sets[call->set];
    if (set->count < 2 || m->p->specs[call->spec].name[0] == '\0' ||
        m->p->specs[call->spec].kind == HVD_BARRIER || call->odd != SIM_ODD_NONE ||
        call->expect == SIM_EXPECT_REMOVED || call->submitters != set->members)
        return;
    call->odd = SIM_ODD_NAME;
    call->odd_rank = set->ranks[draw(m) % (uint64_t)set->count];
    m->p->config.stall_check_time_s = 1;
    m->p->config.stall_shutdown_time_s = 3;
    m->p->terminal |= SIM_TERMINAL_NAME;
}

static void make_fault(struct maker *m)
{
    struct sim_program *p = m->p;
    int32_t rank = pick(m, 0, p->ranks - 1);
    int64_t after_ns = one_in(m, 3) ? 0 : pick(m, 0, 3000000);
    switch (pick(m, 0, 8)) {
    case 0:
    case 1:
        insert_step(m, rank, (struct sim_step){.kind = SIM_CRASH, .argument = after_ns});
        p->crashing |= 1ull << rank;
        p->terminal |= SIM_TERMINAL_CRASH;
        return;
    case 2:
    case 3:
        insert_step(m, rank,
                    (struct sim_step){.kind = SIM_HANG,
                                      .argument = after_ns,
                                      .argument2 = (one_in(m, 2) ? 1 : 100) * pick(m, 1, 50) * MS});
        p->stopping |= 1ull << rank;
        return;
    case 4:
        insert_step(m, rank, (struct sim_step){.kind = SIM_SLOW, .argument = pick(m, 1, 2000000)});
        return;
    case 5:
        insert_step(m, rank, (struct sim_step){.kind = SIM_LEAVE});
        p->terminal |= SIM_TERMINAL_LEAVE;
        return;
    case 6:
    case 7:
        insert_step(m, rank,
                    (struct sim_step){.kind = SIM_POOR,
                                      .argument = pick(m, 0, SIM_POOR_COUNT - 1),
                                      .argument2 = one_in(m, 2) ? 0 : pick(m, 0, 20)});
        p->poor |= 1ull << rank;
        p->terminal |= SIM_TERMINAL_POOR;
        return;
    default: fault_other_name(m); return;
    }
}

/* A rank is stuck in its own code: the limits of the stall check stop the job. */
static void fault_stuck(struct maker *m)
{
    struct sim_program *p = m->p;
    int32_t rank = pick(m, 0, p->ranks - 1);
    p->config.stall_check_time_s = pick(m, 1, 4);
    p->config.stall_shutdown_time_s = p->config.stall_check_time_s + pick(m, 0, 4);
    p->stuck |= 1ull << rank;
    p->stuck_limit_ns = p->config.stall_shutdown_time_s * 1000 * MS;
    p->terminal |= SIM_TERMINAL_STUCK;
    insert_step(m, rank, (struct sim_step){.kind = SIM_STUCK});
}

/* Stopped for longer than the limit. */
static void fault_stopped(struct maker *m)
{
    int32_t rank = pick(m, 0, m->p->ranks - 1);
    m->p->config.hung_error_s = pick(m, 2, 12);
    m->p->stop_limit_ns = m->p->stopping == 0 ? m->p->config.hung_error_s * 1000 * MS : 0;
    m->p->stopping |= 1ull << rank;
    m->p->terminal |= SIM_TERMINAL_HUNG;
    insert_step(m, rank,
                (struct sim_step){.kind = SIM_HANG,
                                  .argument = pick(m, 0, 3000000),
                                  .argument2 = pick(m, 20, 40) * 1000 * MS});
}

/* Some ranks take long to connect to all others; those that have wait for them. */
static void fault_late(struct maker *m)
{
    int32_t most_s = pick(m, 1, 25);
    if (m->p->stopping == 0) /* else the limit must be above its time */
        m->p->config.hung_error_s = pick(m, 2, 12);
    for (int32_t r = 0; r < m->p->ranks; r++)
        if (one_in(m, 2))
            m->p->late_ns[r] = pick(m, 1, most_s * 1000) * MS;
}

/* All ranks are stopped together, as by a job control or a suspended machine, and go on one after
 * the other. */
static void fault_frozen(struct maker *m)
{
    int32_t seconds = pick(m, 1, 40);
    if (m->p->stopping != 0)
        return; /* one that is stopped alone would go on while the others are frozen */
    m->p->frozen_ns = pick(m, 1, 50000) * (MS / 1000);
    for (int32_t r = 0; r < m->p->ranks; r++)
        m->p->thaw_ns[r] = m->p->frozen_ns + seconds * 1000 * MS + pick(m, 0, 900) * MS;
}

/* The kinds of faults in which a rank shows signs of life but does not act, or the other way round.
 */
static void make_life_fault(struct maker *m)
{
    switch (pick(m, 0, 9)) {
    case 0:
    case 1: fault_stuck(m); return;
    case 2: fault_stopped(m); return;
    case 3:
    case 4: fault_late(m); return;
    case 5: fault_frozen(m); return;
    default: return;
    }
}

struct sim_program *sim_program_make(const struct os *os, const struct sim_program_options *options)
{
    struct sim_program *p = os_alloc(os, sizeof *p);
    struct maker m = {
        .p = p, .random = options->seed * 2654435761u + 12345, .has_races = options->has_races};
    if (p == NULL)
        return NULL;
    p->os = os;
    p->seed = options->seed;
    p->trace = options->trace;
    p->tune_one_in = options->tune_one_in;
    p->look = options->look;
    p->look_ctx = options->look_ctx;
    if (sim_world_config(os, &p->config, NULL) != HVD_OK)
        p->has_failed = true;
    make_world(&m, options);
    make_sets(&m);
    for (int32_t wanted = pick(&m, 1, SHAPES_MAX - 2); wanted > 0; wanted--)
        make_shape(&m);
    make_phases(&m);
    for (int32_t wanted = options->has_faults ? pick(&m, 0, 3) : 0; wanted > 0; wanted--)
        make_fault(&m);
    p->is_giving_up = one_in(&m, 2);
    if (options->has_faults)
        make_life_fault(&m);
    if (p->has_failed) {
        sim_program_destroy(p);
        return NULL;
    }
    return p;
}

void sim_program_destroy(struct sim_program *program)
{
    if (program == NULL)
        return;
    const struct os *os = program->os;
    for (int32_t r = 0; r < program->ranks; r++)
        os_free(os, program->scripts[r].steps);
    os_free(os, program->specs);
    os_free(os, program->calls);
    os_free(os, program);
}

/* ---- inputs of the ranks ---- */

int64_t sim_program_rows(const struct sim_program *program, int32_t call, int32_t op, int32_t rank)
{
    const struct sim_spec *s = &program->specs[program->calls[call].spec + op];
    if (s->kind == HVD_ALLTOALL) {
        int64_t rows = 0;
        for (int32_t i = 0; i < program->sets[program->calls[call].set].count; i++)
            rows += sim_program_split(program, call, op, rank, i);
        return rows;
    }
    if (s->kind != HVD_ALLGATHER)
        return s->shape[0];
    /* the same in most turns, so that the cache and plans have something to repeat */
    uint64_t salt = call % 7 == 0 ? (uint64_t)call : 0;
    return (int64_t)(sim_hash(program->seed + salt, (uint64_t)(rank * 64 + op)) %
                     (uint64_t)(s->shape[0] + 1));
}

int32_t sim_program_split(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                          int32_t to)
{
    const struct sim_spec *s = &program->specs[program->calls[call].spec + op];
    uint64_t most = s->shape[0] > 6 ? 6 : (uint64_t)s->shape[0];
    return (
        int32_t)(sim_hash(program->seed + (uint64_t)call, (uint64_t)((rank * 64 + op) * 64 + to)) %
                 (most + 1));
}
