/* SPDX-License-Identifier: Apache-2.0 */
/* sim_run.c - see sim_run.h.
 *
 * An actor is one rank's program at its position in the script; a record is what one rank saw of
 * one call. Tensor memory of a completed call is filled with a pattern and kept to the end of the
 * run, so that a late write is detected.  Start reading at sim_run(), then actor_turn(). */
#include "sim_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim_reference.h"
#include "sim_world.h"

#define PATIENCE_NS   60000000000LL /* no event for this long: a rank waits forever */
#define FAULTS_MAX    (4 * SIM_RANKS_MAX)
#define SLACK_NS      3000000000LL /* beyond a limit, until an error must have arrived */
#define POISON        0xa5
#define LOOK_ONE_IN   5
#define TEXT_KEPT_MAX 320
#define TUNINGS_MAX   48
#define TUNED_SETS    64

enum record_state { RECORD_NONE, RECORD_PENDING, RECORD_DONE, RECORD_REFUSED };

struct memory { /* of one op on one rank */
    uint8_t *in, *out;
    size_t bytes;
};

struct record {
    enum record_state state;
    hvd_status_t status;
    char *text; /* of an error */
    struct ticket *ticket;
    int64_t submit_ns;
    struct memory memory[SIM_GROUP_MAX];
    int32_t callbacks;
};

struct actor {
    int32_t at; /* in its script */
    int64_t resume_ns;
    struct ticket *special; /* a set change or a join */
    int32_t *pending;       /* calls */
    int32_t pending_count;
    int32_t set_ids[SIM_SETS_MAX]; /* -1: unknown here */
    bool is_waiting, is_leaving, is_gone, is_crashed, is_desperate;
};

struct fault {
    int64_t time_ns;
    enum sim_step_kind kind;
    bool is_end; /* of a hang */
    int32_t rank;
    int64_t argument;
};

struct tuning { /* as the first member saw it */
    bool is_seen;
    struct tunables tunables;
    uint64_t position;
};

struct sim_trial {
    const struct os *os;
    const struct sim_program *p;
    struct sim_world *world;
    struct sim_report *report;
    struct record *records; /* call x rank */
    void **common;          /* call x SIM_GROUP_MAX: results that all ranks share */
    struct actor actors[SIM_RANKS_MAX];
    struct fault faults[FAULTS_MAX];
    int32_t fault_count;
    int32_t *joined; /* by join: the rank it reported, -1 = nothing yet */
    int32_t set_ids[SIM_SETS_MAX];
    int64_t last_ns; /* of the last event */
    int32_t alive;
    struct tuning tunings[TUNED_SETS][TUNINGS_MAX + 1]; /* by set and version */
    uint64_t versions[SIM_RANKS_MAX][TUNED_SETS];       /* the last that a rank has seen */
};

/* ---- what happened ---- */

static void violate(struct sim_trial *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void violate(struct sim_trial *run, const char *format, ...)
{
    va_list args;
    if (!run->report->is_ok)
        return;
    run->report->is_ok = false;
    int n = snprintf(run->report->text, sizeof run->report->text,
                     "at %.6f s: ", (double)sim_world_now_ns(run->world) / 1e9);
    va_start(args, format);
    vsnprintf(run->report->text + n, sizeof run->report->text - (size_t)n, format, args);
    va_end(args);
}

static void note(struct sim_trial *run, int32_t rank, int32_t what, int64_t a, int64_t b)
{
    uint64_t event = sim_hash((uint64_t)sim_world_now_ns(run->world), (uint64_t)(rank * 32 + what));
    event = sim_hash(event, sim_hash((uint64_t)a, (uint64_t)b));
    run->report->hash = sim_hash(run->report->hash, event);
    run->last_ns = sim_world_now_ns(run->world);
    if (run->p->trace == NULL)
        return;
    static const char *const names[] = {"submit",     "end",   "",      "",      "set add",
                                        "set remove", "join",  "probe", "crash", "hang",
                                        "slow",       "leave", "stuck", "poor"};
    char line[160];
    snprintf(line, sizeof line, "%12.6f ms  rank %d  %s %lld: %lld", (double)run->last_ns / 1e6,
             rank, names[what], (long long)a, (long long)b);
    run->p->trace(line);
}

static void trace_call(const struct sim_trial *run, int32_t call)
{
    const struct sim_call *c = &run->p->calls[call];
    char line[256];
    for (int32_t i = 0; i < c->count && run->p->trace != NULL; i++) {
        const struct sim_spec *s = &run->p->specs[c->spec + i];
        snprintf(line, sizeof line,
                 "call %d op %d: set %d, kind %d, %s, dtype %s, op %d, %d dims, %lld elements, "
                 "expect %d, odd %d of rank %d op %d, submitters %llx",
                 call, i, c->set, (int)s->kind, s->name, hvd_dtype_name(s->dtype), (int)s->reduce,
                 s->ndim, (long long)sim_reference_count(s), (int)c->expect, (int)c->odd,
                 c->odd_rank, c->odd_op, (unsigned long long)c->submitters);
        run->p->trace(line);
    }
}

static void trace_program(const struct sim_trial *run)
{
    const struct sim_program *p = run->p;
    char line[256];
    if (p->trace == NULL)
        return;
    snprintf(line, sizeof line,
             "%d ranks on %d hosts%s, delay %lld-%lld ns, turn %lld ns, again %u, cycle %g ms, "
             "fusion %lld, cache %lld, warm-up %lld, hung %lld s, stall %lld and %lld s",
             p->ranks, p->hosts, p->is_in_sight ? " in sight" : "", (long long)p->delay_min_ns,
             (long long)p->delay_max_ns, (long long)p->turn_max_ns, p->again_one_in,
             p->config.cycle_time_ms, (long long)p->config.fusion_threshold_bytes,
             (long long)p->config.cache_capacity, (long long)p->config.plan_warmup_steps,
             (long long)p->config.hung_error_s, (long long)p->config.stall_check_time_s,
             (long long)p->config.stall_shutdown_time_s);
    p->trace(line);
    for (int32_t i = 0; i < p->call_count; i++)
        trace_call(run, i);
}

static struct record *record_of(struct sim_trial *run, int32_t call, int32_t rank)
{
    return &run->records[(size_t)call * (size_t)run->p->ranks + (size_t)rank];
}

static bool is_of_job(hvd_status_t status) /* the set or the job is over, not only this op */
{
    return status <= HVD_ERR_LINK || status == HVD_ERR_NO_MEMORY;
}

static void record_end(struct sim_trial *run, struct record *record, enum record_state state,
                       hvd_status_t status, const char *text)
{
    record->state = state;
    record->status = status;
    if (status == HVD_OK)
        return;
    size_t n = strnlen(text, TEXT_KEPT_MAX - 1);
    record->text = os_alloc(run->os, n + 1);
    if (record->text != NULL)
        memcpy(record->text, text, n);
}

/* ---- tensor memory ---- */

static bool memory_take(struct sim_trial *run, struct memory *memory, const struct sim_spec *s)
{
    bool has_out = (s->kind == HVD_ALLREDUCE || s->kind == HVD_BROADCAST) && !s->is_in_place;
    memory->bytes = (size_t)sim_reference_count(s) * hvd_dtype_bytes(s->dtype);
    memory->in = os_alloc(run->os, memory->bytes + 1);
    memory->out = has_out ? os_alloc(run->os, memory->bytes + 1) : memory->in;
    return memory->in != NULL && memory->out != NULL;
}

static void memory_poison(struct memory *memory)
{
    memset(memory->in, POISON, memory->bytes);
    memset(memory->out, POISON, memory->bytes);
}

static bool memory_is_poisoned(const struct memory *memory)
{
    for (size_t i = 0; i < memory->bytes; i++)
        if (memory->in[i] != POISON || memory->out[i] != POISON)
            return false;
    return true;
}

static void memory_free(struct sim_trial *run, struct memory *memory)
{
    if (memory->out != memory->in)
        os_free(run->os, memory->out);
    os_free(run->os, memory->in);
    memset(memory, 0, sizeof *memory);
}

/* ---- submitting ---- */

static void on_callback(void *arg, hvd_handle_t handle, hvd_status_t status)
{
    struct record *record = arg;
    (void)handle;
    (void)status;
    record->callbacks++;
}

static void op_fill(const struct sim_trial *run, int32_t call, int32_t op, int32_t rank,
                    const struct sim_spec *s, const struct memory *memory, hvd_op_t *ret)
{
    const struct sim_set *set = &run->p->sets[run->p->calls[call].set];
    memset(ret, 0, sizeof *ret);
    ret->struct_size = sizeof *ret;
    ret->kind = s->kind;
    ret->flags = run->p->calls[call].flags;
    ret->name = s->name;
    ret->process_set = run->actors[rank].set_ids[run->p->calls[call].set];
    ret->reduce = s->reduce;
    ret->prescale = s->prescale;
    ret->postscale = s->postscale;
    ret->wire = s->wire;
    ret->root = set->ranks[s->root];
    ret->input = (hvd_tensor_t){.data = memory->in,
                                .shape = s->shape,
                                .ndim = s->ndim,
                                .dtype = s->dtype,
                                .device = HVD_DEVICE_CPU};
    ret->output = ret->input;
    ret->output.data = s->kind == HVD_ALLREDUCE || s->kind == HVD_BROADCAST ? memory->out : NULL;
    (void)op;
}

static hvd_status_t call_submit(struct sim_trial *run, int32_t call, int32_t rank,
                                struct error *error)
{
    const struct sim_call *c = &run->p->calls[call];
    struct record *record = record_of(run, call, rank);
    struct sim_spec specs[SIM_GROUP_MAX];
    hvd_op_t ops[SIM_GROUP_MAX];
    int32_t splits[SIM_GROUP_MAX][SIM_RANKS_MAX];
    for (int32_t i = 0; i < c->count; i++) {
        sim_reference_spec(run->p, call, i, rank, &specs[i]);
        if (!memory_take(run, &record->memory[i], &specs[i]))
            return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
        sim_reference_fill(run->p, call, i, rank, &specs[i], record->memory[i].in);
        op_fill(run, call, i, rank, &specs[i], &record->memory[i], &ops[i]);
        if (c->has_callback) {
            ops[i].callback = on_callback;
            ops[i].arg = record;
        }
        if (specs[i].kind != HVD_ALLTOALL)
            continue;
        ops[i].splits = splits[i];
        ops[i].splits_count = run->p->sets[c->set].count;
        for (int32_t k = 0; k < ops[i].splits_count; k++)
            splits[i][k] = sim_program_split(run->p, call, i, rank, k);
    }
    return submit_ops(sim_world_engine(run->world, rank), ops, (size_t)c->count, &record->ticket,
                      error);
}

static void step_submit(struct sim_trial *run, int32_t rank, int32_t call)
{
    struct actor *a = &run->actors[rank];
    struct record *record = record_of(run, call, rank);
    struct error error = {0};
    if (a->set_ids[run->p->calls[call].set] < 0)
        return; /* the set was never made */
    hvd_status_t status = call_submit(run, call, rank, &error);
    note(run, rank, SIM_SUBMIT, call, status);
    record->submit_ns = sim_world_now_ns(run->world);
    if (status == HVD_OK) {
        record->state = RECORD_PENDING;
        a->pending[a->pending_count++] = call;
        return;
    }
    record_end(run, record, RECORD_REFUSED, status, error.text);
    a->is_desperate |= is_of_job(status);
    for (int32_t i = 0; i < run->p->calls[call].count; i++)
        if (record->memory[i].in != NULL)
            memory_poison(&record->memory[i]);
}

/* ---- completion ---- */

static void call_check(struct sim_trial *run, int32_t call, int32_t rank,
                       const struct ticket *ticket)
{
    const struct sim_call *c = &run->p->calls[call];
    for (int32_t i = 0; i < c->count; i++) {
        struct ticket_result result;
        ticket_result(ticket, i, &result);
        const struct sim_spec *s = &run->p->specs[c->spec + i];
        bool is_right = sim_reference_check(run->p, call, i, rank, result.out, result.shape[0],
                                            result.recv_splits,
                                            &run->common[(size_t)call * SIM_GROUP_MAX + (size_t)i]);
        if (!is_right)
            violate(run, "rank %d: wrong result of call %d op %d (%s, kind %d, dtype %s, op %d)",
                    rank, call, i, s->name, (int)s->kind, hvd_dtype_name(s->dtype), (int)s->reduce);
    }
}

/* A wait for a single rank that is stuck or stopped must end within the limit that was set for it.
 */
static void check_in_time(struct sim_trial *run, int32_t call, int32_t rank,
                          const struct record *record)
{
    const struct sim_program *p = run->p;
    int64_t waited_ns = sim_world_now_ns(run->world) - record->submit_ns, limit_ns = INT64_MAX;
    if (p->terminal == SIM_TERMINAL_STUCK && p->stopping == 0)
        limit_ns = p->stuck_limit_ns + SLACK_NS;
    if (p->terminal == SIM_TERMINAL_HUNG && p->stop_limit_ns > 0 && (p->stopping >> rank & 1) == 0)
        limit_ns = p->stop_limit_ns + SLACK_NS;
    if (waited_ns > limit_ns)
        violate(run, "rank %d: call %d waited %.1f s, at most %.1f s are allowed", rank, call,
                (double)waited_ns / 1e9, (double)limit_ns / 1e9);
}

static void call_end(struct sim_trial *run, int32_t call, int32_t rank)
{
    struct actor *a = &run->actors[rank];
    struct record *record = record_of(run, call, rank);
    struct ticket *ticket = record->ticket;
    hvd_status_t status = ticket_status(ticket);
    if (status == HVD_OK && run->p->calls[call].expect != SIM_EXPECT_MISMATCH)
        call_check(run, call, rank, ticket);
    record_end(run, record, RECORD_DONE, status, ticket_error(ticket));
    note(run, rank, SIM_WAIT, call, status);
    check_in_time(run, call, rank, record);
    run->report->calls_ended++;
    run->report->calls_failed += status != HVD_OK;
    a->is_desperate |= is_of_job(status);
    record->ticket = NULL;
    for (int32_t i = 0; i < run->p->calls[call].count; i++)
        memory_poison(&record->memory[i]);
    ticket_release(sim_world_engine(run->world, rank), ticket);
}

static void collect(struct sim_trial *run, int32_t rank)
{
    struct actor *a = &run->actors[rank];
    struct engine *engine = sim_world_engine(run->world, rank);
    complete_callbacks(engine, complete_take(engine));
    for (int32_t i = 0; i < a->pending_count;) {
        int32_t call = a->pending[i];
        const struct record *record = record_of(run, call, rank);
        bool is_over = ticket_status(record->ticket) != HVD_IN_PROGRESS;
        if (!is_over || (run->p->calls[call].has_callback && record->callbacks == 0)) {
            i++;
            continue;
        }
        memmove(&a->pending[i], &a->pending[i + 1],
                (size_t)(a->pending_count - i - 1) * sizeof *a->pending);
        a->pending_count--;
        call_end(run, call, rank);
    }
}

/* ---- steps other than calls ---- */

static void probe(struct sim_trial *run, int32_t rank, enum sim_probe which)
{
    struct engine *engine = sim_world_engine(run->world, rank);
    int64_t shape[1] = {4};
    int32_t data[4] = {0}, splits[2] = {100, 100};
    size_t count = 1;
    hvd_status_t wanted = HVD_ERR_INVALID;
    struct ticket *ticket = NULL;
    struct error error = {0};
    hvd_op_t ops[2] = {{.struct_size = sizeof ops[0],
                        .kind = HVD_ALLREDUCE,
                        .name = "probe",
                        .reduce = HVD_SUM,
                        .prescale = 1,
                        .postscale = 1,
                        .input = {data, shape, 1, HVD_INT32, HVD_DEVICE_CPU},
                        .output = {data, shape, 1, HVD_INT32, HVD_DEVICE_CPU}}};
    switch (which) {
    case SIM_PROBE_DUPLICATE:
        count = 2;
        wanted = HVD_ERR_DUPLICATE;
        break;
    case SIM_PROBE_UNKNOWN_SET: ops[0].process_set = 200; break;
    case SIM_PROBE_ROOT:
        ops[0].kind = HVD_BROADCAST;
        ops[0].root = run->p->ranks;
        break;
    case SIM_PROBE_SPLITS:
        ops[0].kind = HVD_ALLTOALL;
        ops[0].splits = splits;
        ops[0].splits_count = run->p->ranks == 1 ? 2 : 1;
        break;
    case SIM_PROBE_FOREIGN_SET:
        for (int32_t i = 0; i < run->p->static_count; i++)
            if ((run->p->sets[i + 1].members >> rank & 1) == 0)
                ops[0].process_set = run->actors[rank].set_ids[i + 1];
        if (ops[0].process_set == 0)
            return;
        break;
    case SIM_PROBE_NOTHING:
    case SIM_PROBE_COUNT: count = 0; break;
    }
    ops[1] = ops[0];
    hvd_status_t status = submit_ops(engine, ops, count, &ticket, &error);
    note(run, rank, SIM_PROBE, which, status);
    if (status != wanted && !(run->p->terminal != 0 && is_of_job(status)))
        violate(run, "rank %d: probe %d was answered with %d (%s)", rank, (int)which, (int)status,
                error.text);
}

static hvd_status_t special_submit(struct sim_trial *run, int32_t rank, const struct sim_step *step,
                                   struct error *error)
{
    struct actor *a = &run->actors[rank];
    struct engine *engine = sim_world_engine(run->world, rank);
    const struct sim_set *set = &run->p->sets[step->argument];
    int32_t id = a->set_ids[step->argument];
    if (step->kind == SIM_SET_ADD)
        return submit_set_change(engine, set->ranks, set->count, 0, &a->special, error);
    if (id < 0)
        return error_set(error, HVD_ERR_PEER_DEAD, "This set was never made.");
    if (step->kind == SIM_SET_REMOVE)
        return submit_set_change(engine, NULL, 0, id, &a->special, error);
    hvd_op_t op = {.struct_size = sizeof op, .kind = HVD_JOIN, .process_set = id};
    return submit_ops(engine, &op, 1, &a->special, error);
}

static void special_end(struct sim_trial *run, int32_t rank, const struct sim_step *step)
{
    struct actor *a = &run->actors[rank];
    hvd_status_t status = ticket_status(a->special);
    int32_t told = ticket_answer(a->special);
    note(run, rank, (int32_t)step->kind, told, status);
    int32_t *common =
        step->kind == SIM_JOIN ? &run->joined[step->argument2] : &run->set_ids[step->argument];
    if (status == HVD_OK && step->kind == SIM_SET_ADD)
        a->set_ids[step->argument] = told;
    if (status == HVD_OK && step->kind == SIM_SET_REMOVE)
        a->set_ids[step->argument] = -1;
    if (status == HVD_OK && *common >= 0 && *common != told)
        violate(run, "rank %d: step kind %d told %d, another rank was told %d", rank,
                (int)step->kind, told, *common);
    if (status == HVD_OK)
        *common = told;
    if (status != HVD_OK && (run->p->terminal == 0 || !is_of_job(status)))
        violate(run, "rank %d: step kind %d ended with %d: %s", rank, (int)step->kind, (int)status,
                ticket_error(a->special));
    a->is_desperate |= status != HVD_OK;
    ticket_release(sim_world_engine(run->world, rank), a->special);
    a->special = NULL;
}

/* A step that submits and waits; false: not yet. */
static bool step_special(struct sim_trial *run, int32_t rank, const struct sim_step *step)
{
    struct actor *a = &run->actors[rank];
    struct error error = {0};
    if (a->special == NULL) {
        hvd_status_t status = special_submit(run, rank, step, &error);
        note(run, rank, (int32_t)step->kind, -2, status);
        if (status != HVD_OK) {
            if (run->p->terminal == 0 || !is_of_job(status))
                violate(run, "rank %d: step kind %d was refused with %d: %s", rank, (int)step->kind,
                        (int)status, error.text);
            a->is_desperate = true;
            return true;
        }
    }
    if (ticket_status(a->special) == HVD_IN_PROGRESS)
        return false;
    special_end(run, rank, step);
    return true;
}

static void fault_add(struct sim_trial *run, int32_t rank, enum sim_step_kind kind,
                      int64_t after_ns, int64_t argument, bool is_end)
{
    if (run->fault_count == FAULTS_MAX)
        return;
    run->faults[run->fault_count++] =
        (struct fault){.time_ns = sim_world_now_ns(run->world) + after_ns,
                       .kind = kind,
                       .is_end = is_end,
                       .rank = rank,
                       .argument = argument};
}

static bool step_leave(struct sim_trial *run, int32_t rank)
{
    struct actor *a = &run->actors[rank];
    struct engine *engine = sim_world_engine(run->world, rank);
    if (!a->is_leaving) {
        note(run, rank, SIM_LEAVE, 0, 0);
        sim_world_wake(run->world, rank, 0); /* like a driver, which continues at once */
    }
    a->is_leaving = true;
    engine_shutdown_ask(engine);
    if (!engine_is_over(engine))
        return false;
    if (a->pending_count > 0) {
        collect(run, rank);
        if (a->pending_count > 0)
            violate(run, "rank %d leaves, but call %d never ended", rank, a->pending[0]);
    }
    const hvd_stats_t *stats = engine_stats(engine);
    run->report->batches += stats->batches;
    run->report->batches_planned += stats->batches_planned;
    run->report->plan_starts += stats->plan_starts;
    run->report->plan_breaks += stats->plan_breaks;
    note(run, rank, SIM_LEAVE, 1, (int64_t)stats->messages_sent);
    a->is_gone = true;
    run->alive--;
    sim_world_leave_later(run->world, rank, false);
    return false;
}

/* ---- a rank's turn ---- */

static void wait_mark(struct sim_trial *run, int32_t rank, bool is_waiting)
{
    struct actor *a = &run->actors[rank];
    if (a->is_waiting == is_waiting || run->p->scripts[rank].is_polling)
        return;
    a->is_waiting = is_waiting;
    struct engine *engine = sim_world_engine(run->world, rank);
    if (is_waiting)
        engine_wait_begin(engine);
    else
        engine_wait_end(engine);
    sim_world_wake(run->world, rank, 0);
}

static bool step_stuck(struct sim_trial *run, int32_t rank)
{
    return engine_broken(sim_world_engine(run->world, rank)) != HVD_OK;
}

static bool step_compute(struct sim_trial *run, int32_t rank, int64_t ns)
{
    struct actor *a = &run->actors[rank];
    int64_t now_ns = sim_world_now_ns(run->world);
    if (a->resume_ns == 0)
        a->resume_ns = now_ns + ns;
    if (now_ns < a->resume_ns) {
        sim_world_wake(run->world, rank, a->resume_ns);
        return false;
    }
    a->resume_ns = 0;
    return true;
}

/* false: the rank stays at this step. */
static bool step_do(struct sim_trial *run, int32_t rank, const struct sim_step *step)
{
    const struct actor *a = &run->actors[rank];
    switch (step->kind) {
    case SIM_SUBMIT: step_submit(run, rank, (int32_t)step->argument); return true;
    case SIM_WAIT: return record_of(run, (int32_t)step->argument, rank)->state != RECORD_PENDING;
    case SIM_WAIT_ALL: return a->pending_count == 0;
    case SIM_COMPUTE: return step_compute(run, rank, step->argument);
    case SIM_SET_ADD:
    case SIM_SET_REMOVE:
    case SIM_JOIN: return step_special(run, rank, step);
    case SIM_PROBE: probe(run, rank, (enum sim_probe)step->argument); return true;
    case SIM_CRASH: fault_add(run, rank, SIM_CRASH, step->argument, 0, false); return true;
    case SIM_HANG:
        fault_add(run, rank, SIM_HANG, step->argument, step->argument2, false);
        return true;
    case SIM_SLOW: sim_net_slow(sim_world_net(run->world), rank, step->argument); return true;
    case SIM_LEAVE: return step_leave(run, rank);
    case SIM_STUCK: return step_stuck(run, rank);
    case SIM_POOR:
        note(run, rank, SIM_POOR, step->argument, step->argument2);
        sim_world_poor(run->world, rank, (int)step->argument, step->argument2);
        return true;
    }
    return false;
}

static bool is_waiting_step(enum sim_step_kind kind)
{
    return kind != SIM_COMPUTE && kind != SIM_LEAVE && kind != SIM_STUCK;
}

/* ---- tuning ---- */

static struct tunables random_tunables(uint64_t random)
{
    static const int64_t thresholds[] = {0, 64, 1024, 64 << 20};
    static const int64_t cycles_ns[] = {0, 100000, 1000000, 5000000};
    return (struct tunables){.fusion_threshold_bytes = thresholds[random % 4],
                             .cycle_time_ns = cycles_ns[random / 4 % 4],
                             .spin_ns = (int64_t)(random / 16 % 3) - 1,
                             .flows = 1 + (int32_t)(random / 64 % 32),
                             .threshold_percent = 1 + (int32_t)(random / 4096 % 1000)};
}

/* Rank 0 tunes now and then, for no reason. */
static void tune_maybe(struct sim_trial *run)
{
    uint64_t random = sim_hash(run->p->seed, run->report->turns);
    struct engine *engine = sim_world_engine(run->world, 0);
    struct error error = {0};
    if (run->p->tune_one_in == 0 || run->report->tunings >= TUNINGS_MAX || engine == NULL ||
        random % run->p->tune_one_in != 0)
        return;
    struct tunables t = random_tunables(sim_hash(random, 1));
    if (engine_tune(engine, &t, &error) != HVD_OK)
        return; /* the job is over */
    run->report->tunings++;
    sim_world_wake(run->world, 0, sim_world_now_ns(run->world));
}

static bool is_alike(const struct tuning *seen, const struct tunables *t, uint64_t position)
{
    return seen->position == position && seen->tunables.flows == t->flows &&
           seen->tunables.fusion_threshold_bytes == t->fusion_threshold_bytes &&
           seen->tunables.cycle_time_ns == t->cycle_time_ns &&
           seen->tunables.spin_ns == t->spin_ns &&
           seen->tunables.threshold_percent == t->threshold_percent;
}

static void on_tuned(void *ctx, int32_t rank, int32_t set, const struct tunables *t,
                     uint64_t position)
{
    struct sim_trial *run = ctx;
    if (set < 0 || set >= TUNED_SETS || t->version > TUNINGS_MAX) {
        violate(run, "rank %d tuned set %d to version %llu", rank, set,
                (unsigned long long)t->version);
        return;
    }
    struct tuning *seen = &run->tunings[set][t->version];
    if (t->version <= run->versions[rank][set] && set == 0)
        violate(run, "rank %d: version %llu of the tunables after version %llu", rank,
                (unsigned long long)t->version, (unsigned long long)run->versions[rank][set]);
    for (uint64_t v = run->versions[rank][set] + 1; v < t->version && set == 0; v++)
        if (run->tunings[set][v].is_seen)
            violate(run, "rank %d has left out version %llu of the tunables", rank,
                    (unsigned long long)v);
    run->versions[rank][set] = t->version;
    if (!seen->is_seen)
        *seen = (struct tuning){.is_seen = true, .tunables = *t, .position = position};
    else if (!is_alike(seen, t, position))
        violate(run,
                "set %d, version %llu of the tunables: after batch %llu on rank %d, %llu "
                "on another, or other values",
                set, (unsigned long long)t->version, (unsigned long long)position, rank,
                (unsigned long long)seen->position);
    else
        run->report->tuned_alike++;
}

static void actor_turn(void *ctx, int32_t rank)
{
    struct sim_trial *run = ctx;
    struct actor *a = &run->actors[rank];
    const struct sim_script *script = &run->p->scripts[rank];
    run->report->turns++;
    collect(run, rank);
    if (rank == 0)
        tune_maybe(run);
    while (!a->is_gone) {
        bool is_free = a->special == NULL && a->resume_ns == 0;
        if (a->is_desperate && run->p->is_giving_up && is_free && !a->is_leaving)
            a->at = script->count - 1;
        const struct sim_step *step = &script->steps[a->at];
        if (!step_do(run, rank, step)) {
            if (!a->is_gone)
                wait_mark(run, rank, is_waiting_step(step->kind));
            return;
        }
        wait_mark(run, rank, false);
        a->at++;
    }
}

/* ---- faults ---- */

static void fault_do(struct sim_trial *run, const struct fault *f)
{
    struct actor *a = &run->actors[f->rank];
    note(run, f->rank, (int32_t)f->kind, f->is_end, 0);
    if (a->is_gone)
        return;
    if (f->kind == SIM_HANG) {
        sim_world_hang(run->world, f->rank, !f->is_end);
        if (!f->is_end)
            fault_add(run, f->rank, SIM_HANG, f->argument, 0, true);
        return;
    }
    a->is_gone = a->is_crashed = true;
    run->alive--;
    sim_world_crash(run->world, f->rank);
}

static int32_t fault_next(const struct sim_trial *run)
{
    int32_t first = -1;
    for (int32_t i = 0; i < run->fault_count; i++)
        if (first < 0 || run->faults[i].time_ns < run->faults[first].time_ns)
            first = i;
    return first;
}

/* ---- at the end ---- */

static bool is_named(const struct sim_trial *run, uint64_t ranks, const char *text)
{
    char name[24];
    for (int32_t r = 0; r < run->p->ranks; r++) {
        snprintf(name, sizeof name, "rank %d", r);
        const char *at = strstr(text, name);
        if ((ranks >> r & 1) != 0 && at != NULL &&
            (at[strlen(name)] < '0' || at[strlen(name)] > '9'))
            return true;
    }
    return false;
}

static bool is_expected(const struct sim_trial *run, const struct sim_call *c, hvd_status_t status)
{
    if (status == HVD_ERR_NO_MEMORY)
        return run->p->poor != 0;
    if (is_of_job(status))
        return run->p->terminal != 0 && status != HVD_ERR_INTERNAL && status != HVD_ERR_CORRUPT;
    if (c->odd == SIM_ODD_NAME)
        return false;
    switch (c->expect) {
    case SIM_EXPECT_OK: return status == HVD_OK;
    case SIM_EXPECT_MISMATCH: return status == HVD_ERR_MISMATCH;
    case SIM_EXPECT_EITHER: return status == HVD_OK || status == HVD_ERR_MISMATCH;
    case SIM_EXPECT_REMOVED: return status == HVD_OK || status == HVD_ERR_ABORTED;
    }
    return false;
}

static void check_text(struct sim_trial *run, int32_t call, int32_t rank,
                       const struct record *record)
{
    const struct sim_call *c = &run->p->calls[call];
    const char *text = record->text != NULL ? record->text : "";
    uint64_t gone = 0;
    for (int32_t r = 0; r < run->p->ranks; r++)
        gone |= run->actors[r].is_gone ? 1ull << r : 0;
    if (record->status == HVD_ERR_PEER_DEAD && !is_named(run, gone, text))
        violate(run, "rank %d: the error of call %d does not name a rank that is gone: %s", rank,
                call, text);
    if (record->status == HVD_ERR_PEER_DEAD && run->p->crashing != 0 &&
        !is_named(run, run->p->crashing, text))
        violate(run, "rank %d: the error of call %d names a rank that left because of a crash: %s",
                rank, call, text);
    /* With several sets a rank may be waited for that itself waits for the stuck one. */
    uint64_t silent = run->p->stuck | run->p->stopping;
    if (record->status == HVD_ERR_PEER_HUNG && run->p->set_count == 1 &&
        (run->p->terminal & SIM_TERMINAL_NAME) == 0 && !is_named(run, silent, text))
        violate(run, "rank %d: the error of call %d does not name the rank that is stuck: %s", rank,
                call, text);
    if (record->status == HVD_ERR_NO_MEMORY && !is_named(run, run->p->poor, text))
        violate(run, "rank %d: the error of call %d does not name the rank without memory: %s",
                rank, call, text);
    if (record->status == HVD_ERR_MISMATCH && c->odd != SIM_ODD_NONE) {
        char number[16];
        snprintf(number, sizeof number, "%d", c->odd_rank);
        if (strstr(text, run->p->specs[c->spec + c->odd_op].name) == NULL ||
            strstr(text, number) == NULL)
            violate(run, "rank %d: the error of call %d does not say who and what: %s", rank, call,
                    text);
    }
}

static void check_call(struct sim_trial *run, int32_t call)
{
    const struct sim_call *c = &run->p->calls[call];
    hvd_status_t first = HVD_IN_PROGRESS;
    bool has_ended_well = false, has_lost = false;
    for (int32_t r = 0; r < run->p->ranks; r++) {
        const struct record *record = record_of(run, call, r);
        if ((c->submitters >> r & 1) == 0 || run->actors[r].is_crashed)
            continue;
        if (record->state == RECORD_NONE || record->state == RECORD_PENDING) {
            if (run->p->terminal == 0 || record->state == RECORD_PENDING)
                violate(run, "rank %d: call %d has not ended", r, call);
            continue;
        }
        if (!is_expected(run, c, record->status))
            violate(run, "rank %d: call %d (set %d, kind %d, odd %d) ended with %s: %s", r, call,
                    c->set, (int)run->p->specs[c->spec].kind, (int)c->odd,
                    hvd_status_name(record->status), record->text != NULL ? record->text : "");
        check_text(run, call, r, record);
        if (c->has_callback && record->state == RECORD_DONE && record->callbacks != 1)
            violate(run, "rank %d: %d callbacks of call %d", r, record->callbacks, call);
        if (is_of_job(record->status)) {
            has_lost = true;
            continue;
        }
        has_ended_well = true;
        if (first == HVD_IN_PROGRESS)
            first = record->status;
        if (record->status != first && c->expect != SIM_EXPECT_REMOVED)
            violate(run, "call %d ended with %s on one rank and %s on rank %d", call,
                    hvd_status_name(first), hvd_status_name(record->status), r);
    }
    run->report->splits += has_ended_well && has_lost;
}

static void check_memory(struct sim_trial *run)
{
    for (int32_t call = 0; call < run->p->call_count; call++)
        for (int32_t r = 0; r < run->p->ranks; r++) {
            const struct record *record = record_of(run, call, r);
            for (int32_t i = 0; i < SIM_GROUP_MAX; i++)
                if (record->memory[i].in != NULL && !run->actors[r].is_crashed &&
                    record->state != RECORD_PENDING && !memory_is_poisoned(&record->memory[i]))
                    violate(run, "rank %d: memory of call %d op %d was written after its end", r,
                            call, i);
        }
}

static void check_all(struct sim_trial *run)
{
    const char *violation = sim_world_violation(run->world);
    if (violation != NULL)
        violate(run, "%s", violation);
    for (int32_t call = 0; call < run->p->call_count; call++)
        check_call(run, call);
    check_memory(run);
}

/* ---- the run ---- */

static void tell_stuck(struct sim_trial *run)
{
    for (int32_t r = 0; r < run->p->ranks; r++) {
        const struct actor *a = &run->actors[r];
        if (a->is_gone)
            continue;
        const struct sim_step *step = &run->p->scripts[r].steps[a->at];
        violate(run,
                "%d ranks wait for ever; rank %d at step %d of %d (kind %d, argument %lld, %d "
                "pending, first %d)",
                run->alive, r, a->at, run->p->scripts[r].count, (int)step->kind,
                (long long)step->argument, a->pending_count,
                a->pending_count > 0 ? a->pending[0] : -1);
    }
}

/* Now and then, by a number that nothing else depends on. */
static void look(struct sim_trial *run, uint64_t turn)
{
    const struct sim_program *p = run->p;
    uint64_t dice = sim_hash(p->seed, turn);
    if (p->look == NULL || dice % LOOK_ONE_IN != 0)
        return;
    struct engine *engine =
        sim_world_engine(run->world, (int32_t)(dice / LOOK_ONE_IN % (uint64_t)p->ranks));
    if (engine != NULL)
        p->look(p->look_ctx, engine, sim_world_now_ns(run->world));
}

static void loop(struct sim_trial *run)
{
    uint64_t turn = 0;
    while (run->alive > 0 && run->report->is_ok) {
        look(run, turn++);
        int32_t next = fault_next(run);
        int64_t limit_ns = run->last_ns + PATIENCE_NS;
        if (next >= 0 && run->faults[next].time_ns < limit_ns)
            limit_ns = run->faults[next].time_ns;
        if (sim_world_step(run->world, limit_ns))
            continue;
        if (next < 0 || run->faults[next].time_ns > sim_world_now_ns(run->world)) {
            tell_stuck(run);
            return;
        }
        struct fault fault = run->faults[next];
        run->faults[next] = run->faults[--run->fault_count];
        fault_do(run, &fault);
    }
}

static bool run_open(struct sim_trial *run)
{
    const struct sim_program *p = run->p;
    const int32_t *sets[SIM_SETS_MAX];
    int32_t sizes[SIM_SETS_MAX];
    struct error error = {0};
    for (int32_t i = 0; i < p->static_count; i++) {
        sets[i] = p->sets[i + 1].ranks;
        sizes[i] = p->sets[i + 1].count;
    }
    struct sim_world_options options = {.seed = p->seed,
                                        .ranks = p->ranks,
                                        .hosts = p->hosts,
                                        .is_in_sight = p->is_in_sight,
                                        .delay_min_ns = p->delay_min_ns,
                                        .delay_max_ns = p->delay_max_ns,
                                        .bytes_per_us = p->bytes_per_us,
                                        .again_one_in = p->again_one_in,
                                        .turn_max_ns = p->turn_max_ns,
                                        .config = &p->config,
                                        .sets = sets,
                                        .set_sizes = sizes,
                                        .set_count = p->static_count,
                                        .turn = actor_turn,
                                        .tuned = on_tuned,
                                        .ctx = run};
    run->records =
        os_alloc(run->os, (size_t)p->call_count * (size_t)p->ranks * sizeof *run->records);
    run->common = os_alloc(run->os, (size_t)p->call_count * SIM_GROUP_MAX * sizeof *run->common);
    run->joined = os_alloc(run->os, (size_t)(p->join_count + 1) * sizeof *run->joined);
    for (int32_t i = 0; run->joined != NULL && i < p->join_count; i++)
        run->joined[i] = -1;
    run->alive = p->ranks;
    bool has_memory = run->records != NULL && run->common != NULL && run->joined != NULL;
    for (int32_t i = 0; i < SIM_SETS_MAX; i++)
        run->set_ids[i] = -1;
    for (int32_t r = 0; r < p->ranks; r++) {
        run->actors[r].pending = os_alloc(run->os, (size_t)p->call_count * sizeof(int32_t));
        has_memory = has_memory && run->actors[r].pending != NULL;
        for (int32_t i = 0; i < SIM_SETS_MAX; i++)
            run->actors[r].set_ids[i] = i <= p->static_count ? i : -1;
    }
    if (has_memory)
        run->world = sim_world_create(run->os, &options, &error);
    return run->world != NULL;
}

/* Ranks that are still connecting take no part and show no sign of life. */
static void begin_late(struct sim_trial *run)
{
    for (int32_t r = 0; r < run->p->ranks; r++)
        if (run->p->late_ns[r] > 0) {
            sim_world_hang(run->world, r, true);
            fault_add(run, r, SIM_HANG, run->p->late_ns[r], 0, true);
        }
    for (int32_t r = 0; run->p->frozen_ns > 0 && r < run->p->ranks; r++)
        fault_add(run, r, SIM_HANG, run->p->frozen_ns, run->p->thaw_ns[r] - run->p->frozen_ns,
                  false);
}

static void run_close(struct sim_trial *run)
{
    const struct sim_program *p = run->p;
    sim_world_destroy(run->world);
    for (int32_t i = 0; run->records != NULL && i < p->call_count * p->ranks; i++) {
        os_free(run->os, run->records[i].text);
        for (int32_t k = 0; k < SIM_GROUP_MAX; k++)
            memory_free(run, &run->records[i].memory[k]);
    }
    for (int32_t i = 0; run->common != NULL && i < p->call_count * SIM_GROUP_MAX; i++)
        sim_reference_free(p, run->common[i]);
    for (int32_t r = 0; r < p->ranks; r++)
        os_free(run->os, run->actors[r].pending);
    os_free(run->os, run->records);
    os_free(run->os, run->common);
    os_free(run->os, run->joined);
    os_free(run->os, run);
}

bool sim_run(const struct os *os, const struct sim_program *program, struct sim_report *ret)
{
    *ret = (struct sim_report){
        .is_ok = true, .ranks = program->ranks, .is_in_sight = program->is_in_sight};
    uint64_t live_before, live_after, total;
    os_host_alloc_counts(&live_before, &total);
    struct sim_trial *run = os_alloc(os, sizeof *run);
    if (run != NULL) {
        run->os = os;
        run->p = program;
        run->report = ret;
    }
    if (run == NULL || !run_open(run)) {
        ret->is_ok = false;
        snprintf(ret->text, sizeof ret->text, "no memory");
    } else {
        trace_program(run);
        begin_late(run);
        loop(run);
        if (ret->is_ok)
            check_all(run);
        ret->end_ns = sim_world_now_ns(run->world);
        ret->messages = sim_net_messages(sim_world_net(run->world));
        ret->hash = sim_hash(ret->hash, ret->messages);
    }
    if (run != NULL)
        run_close(run);
    os_host_alloc_counts(&live_after, &total);
    if (ret->is_ok && live_after != live_before) {
        ret->is_ok = false;
        snprintf(ret->text, sizeof ret->text, "%lld allocations were not given back",
                 (long long)(live_after - live_before));
    }
    return ret->is_ok;
}

bool sim_run_seed(const struct os *os, const struct sim_program_options *options,
                  struct sim_report *ret)
{
    struct sim_program *program = sim_program_make(os, options);
    if (program == NULL) {
        *ret = (struct sim_report){.text = "no memory"};
        return false;
    }
    bool is_ok = sim_run(os, program, ret);
    sim_program_destroy(program);
    return is_ok;
}
