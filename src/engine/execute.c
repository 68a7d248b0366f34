/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - runs the batches of a set in the agreed order: lays out the collective, provides
 * memory for results, lets the backend move the bytes, passes the ops to complete.c.
 *
 * The backend runs one batch of a set at a time. Tensors that the processor cannot access are
 * copied before and after it (stage.c); meanwhile the next batch may copy in and the previous one
 * copy out:
 *
 *      host memory                  MOVING, DONE
 *      other kinds    IN, READY, MOVING, OUT, DONE       cancelled during IN: DRAIN, DONE
 *
 * A rank that has joined takes part with zeros in what the others reduce.
 *
 * Thread: token holder.  Blocks: never.  Start reading at execute_progress(). */
#include "engine/execute.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/complete.h"
#include "engine/control.h"
#include "engine/engine_private.h"
#include "engine/flight.h"
#include "engine/negotiate.h"
#include "engine/plan.h"
#include "engine/sets.h"
#include "engine/shape.h"
#include "engine/stage.h"
#include "engine/timeline.h"
#include "engine/tune.h"

static hvd_status_t no_memory(struct error *error)
{
    return error_set(error, HVD_ERR_NO_MEMORY, "out of memory for the result of the collective");
}

/* ---- laying out a collective ---- */

static uint64_t row_elements(const struct entry *e)
{
    uint64_t row = 1;
    for (int32_t i = 1; i < e->ndim; i++)
        row *= (uint64_t)e->shape[i];
    return row;
}

static bool counts_reserve(struct procset *set, struct run *run, size_t n)
{
    if (n <= run->counts_capacity)
        return true;
    const struct os *os = set->engine->os;
    uint64_t *counts = os->resize(os->ctx, run->counts, n * sizeof *counts);
    if (counts == NULL)
        return false;
    run->counts = counts;
    run->counts_capacity = n;
    return true;
}

static bool zeros_reserve(struct procset *set, struct run *run, size_t bytes)
{
    const struct os *os = set->engine->os;
    if (bytes > run->zeros_bytes) {
        os_free(os, run->zeros);
        run->zeros = os_alloc(os, bytes);
        run->zeros_bytes = run->zeros != NULL ? bytes : 0;
    } else if (bytes > 0) {
        memset(run->zeros, 0, bytes);
    }
    return bytes == 0 || run->zeros != NULL;
}

/* The output of an op whose size is known only now. */
static bool result_make(struct procset *set, struct op *op, int64_t dim0)
{
    if (op->out != NULL && op->alloc_result == NULL && op->kind != HVD_ALLTOALL &&
        op->result == NULL) {
        op->result_dim0 = dim0;
        return true; /* the caller gave it */
    }
    int64_t shape[HVD_DIMS_MAX];
    memcpy(shape, op->shape, sizeof shape);
    shape[0] = dim0;
    op->result_dim0 = dim0;
    int64_t count = 0;
    if (!shape_elements(op->ndim, shape, &count))
        return false;
    size_t bytes = (size_t)count * hvd_dtype_bytes((hvd_dtype_t)op->dtype);
    if (op->alloc_result != NULL) {
        op->out = op->alloc_result(op->arg, op->index, op->ndim, shape);
        return op->out != NULL || bytes == 0;
    }
    const struct engine_options *o = &set->engine->options;
    if (op->result != NULL) /* of a planned batch that was cancelled */
        o->result_free(o->result_ctx, op->result);
    op->result = op->out = o->result_alloc(o->result_ctx, bytes > 0 ? bytes : 1);
    return op->out != NULL;
}

static int64_t scatter_rows(int64_t dim0, int32_t size, int32_t index)
{
    return dim0 / size + (index < dim0 % size ? 1 : 0);
}

static bool lay_rows(struct procset *set, struct run *run, int32_t part, const struct entry *e,
                     struct op *op)
{
    uint64_t row = row_elements(e);
    int64_t total = 0;
    for (int32_t i = 0; i < set->size; i++) {
        int64_t rows =
            e->kind == HVD_ALLGATHER ? e->dim0[i] : scatter_rows(e->shape[0], set->size, i);
        run->counts[(size_t)part * (size_t)set->size + (size_t)i] = (uint64_t)rows * row;
        total += rows;
    }
    if (op == NULL)
        return true;
    return result_make(set, op,
                       e->kind == HVD_ALLGATHER ? total
                                                : scatter_rows(e->shape[0], set->size, set->self));
}

static bool lay_part(struct procset *set, struct run *run, int32_t i, struct entry *e)
{
    struct op *op = e->tensor != NULL ? e->tensor->op : NULL;
    if ((e->kind == HVD_ALLGATHER || e->kind == HVD_REDUCESCATTER) && !lay_rows(set, run, i, e, op))
        return false;
    int64_t count = 0;
    shape_elements(e->ndim, e->shape, &count);
    run->parts[i] = (struct coll_part){.count = (uint64_t)count};
    if (op != NULL) {
        run->parts[i].in = op->in;
        run->parts[i].out = op->out;
        run->parts[i].count = (uint64_t)op->count;
    }
    return true;
}

/* A joined rank has no memory for these: all parts share zeros, results are discarded. */
static bool lay_zeros(struct procset *set, struct run *run)
{
    size_t bytes = 0, at = 0;
    for (int32_t i = 0; i < run->batch.count; i++)
        if (run->entries[i]->tensor == NULL || run->entries[i]->tensor->op == NULL)
            bytes += (run->entries[i]->bytes + 63) & ~(size_t)63;
    if (!zeros_reserve(set, run, bytes))
        return false;
    for (int32_t i = 0; i < run->batch.count; i++) {
        if (run->entries[i]->tensor != NULL && run->entries[i]->tensor->op != NULL)
            continue;
        run->parts[i].in = run->parts[i].out = (uint8_t *)run->zeros + at;
        at += (run->entries[i]->bytes + 63) & ~(size_t)63;
    }
    return true;
}

static void lay_coll(struct procset *set, struct run *run, const struct entry *e)
{
    run->coll = (struct coll){.kind = (hvd_kind_t)e->kind,
                              .dtype = (hvd_dtype_t)e->dtype,
                              .reduce = (hvd_reduce_t)e->reduce,
                              .prescale = e->prescale,
                              .postscale = e->postscale,
                              .wire = (hvd_wire_t)e->wire,
                              .root = e->root,
                              .parts = run->parts,
                              .part_count = run->batch.count,
                              .counts = run->counts,
                              .channels = set->tunables.flows,
                              .threshold_percent = set->tunables.threshold_percent};
    if (e->reduce == HVD_AVERAGE) {
        run->coll.reduce = HVD_SUM;
        run->coll.postscale = e->postscale / set->size;
    }
}

static bool lay_out(struct procset *set, struct run *run)
{
    const struct entry *first = run->entries[0];
    bool has_counts = first->kind != HVD_ALLREDUCE && first->kind != HVD_BROADCAST;
    if (has_counts && !counts_reserve(set, run, (size_t)run->batch.count * (size_t)set->size))
        return false;
    for (int32_t i = 0; i < run->batch.count; i++)
        if (!lay_part(set, run, i, run->entries[i]))
            return false;
    lay_coll(set, run, run->entries[0]);
    return lay_zeros(set, run);
}

/* ---- alltoall: first the splits of all ranks, then the rows ---- */

static bool lay_splits(struct procset *set, struct run *run)
{
    struct op *op = run->entries[0]->tensor->op;
    const struct os *os = set->engine->os;
    size_t n = (size_t)set->size;
    if (run->all_splits == NULL)
        run->all_splits = os_alloc(os, n * n * sizeof *run->all_splits);
    if (run->all_splits == NULL)
        return false;
    run->parts[0] = (struct coll_part){.in = op->splits, .out = run->all_splits, .count = n};
    for (size_t i = 0; i < n; i++)
        run->counts[i] = n;
    run->coll = (struct coll){.kind = HVD_ALLGATHER,
                              .dtype = HVD_INT32,
                              .reduce = HVD_SUM,
                              .prescale = 1.0,
                              .postscale = 1.0,
                              .parts = run->parts,
                              .part_count = 1,
                              .counts = run->counts};
    run->is_splits_phase = true;
    return true;
}

/* A peer's splits are not trusted: the member with a negative split, -1: none. */
static int32_t split_refused(const struct procset *set, const struct run *run)
{
    size_t n = (size_t)set->size;
    for (size_t i = 0; i < n * n; i++)
        if (run->all_splits[i] < 0)
            return (int32_t)(i / n);
    return -1;
}

static void splits_broken(struct procset *set, const struct run *run, int32_t index)
{
    struct error error;
    error_clear(&error);
    const int32_t *splits = run->all_splits + (size_t)index * (size_t)set->size;
    int32_t to = 0;
    while (to < set->size - 1 && splits[to] >= 0)
        to++;
    negotiate_misbehaved(set, index, &error, "sends %d rows of %s to rank %d", splits[to],
                         run->entries[0]->name, set->ranks[to]);
    negotiate_set_broken(set, error.status, error.text, true);
}

static hvd_status_t lay_alltoall(struct procset *set, struct run *run, struct error *error)
{
    struct entry *e = run->entries[0];
    struct op *op = e->tensor->op;
    size_t n = (size_t)set->size;
    uint64_t row = row_elements(e);
    int64_t rows = 0;
    uint64_t sent = 0; /* rows beyond the splits stay here */
    op->recv_splits = os_alloc(set->engine->os, n * sizeof *op->recv_splits);
    if (op->recv_splits == NULL)
        return no_memory(error);
    for (size_t i = 0; i < n; i++) {
        int32_t incoming = run->all_splits[i * n + (size_t)set->self];
        op->recv_splits[i] = incoming;
        run->recv_counts[i] = (uint64_t)incoming * row;
        run->counts[i] = (uint64_t)op->splits[i] * row;
        sent += run->counts[i];
        rows += incoming;
    }
    if (!result_make(set, op, rows))
        return no_memory(error);
    run->parts[0] = (struct coll_part){.in = op->in, .out = op->out, .count = sent};
    run->coll = (struct coll){.kind = HVD_ALLTOALL,
                              .dtype = (hvd_dtype_t)e->dtype,
                              .reduce = HVD_SUM,
                              .prescale = 1.0,
                              .postscale = 1.0,
                              .parts = run->parts,
                              .part_count = 1,
                              .counts = run->counts,
                              .recv_counts = run->recv_counts};
    run->is_splits_phase = false;
    return run->is_staged ? stage_rows(set, run, error) : HVD_OK;
}

/* ---- running ---- */

static void trace_begin(struct procset *set, const struct run *run)
{
    struct timeline *t = set->engine->timeline;
    if (!timeline_is_on(t))
        return;
    hvd_kind_t kind = (hvd_kind_t)run->entries[0]->kind;
    const char *activity = set->engine->backend->ops->activity(set->backend_group, kind);
    for (int32_t i = 0; i < run->batch.count; i++) {
        const struct entry *e = run->entries[i];
        timeline_batch(t, set->id, e->name, e->name_bytes, kind_name(e->kind, e->reduce),
                       run->number);
        if (kind != HVD_BARRIER) /* moves nothing */
            timeline_begin(t, set->id, e->name, e->name_bytes, activity);
    }
}

static void trace_end(struct procset *set, const struct entry *e, bool is_done)
{
    struct timeline *t = set->engine->timeline;
    char shape[256];
    if (!timeline_is_on(t))
        return;
    if (e->kind != HVD_BARRIER)
        timeline_end(t, set->id, e->name, e->name_bytes);
    if (!is_done) {
        timeline_end(t, set->id, e->name, e->name_bytes);
        return;
    }
    shape_format(e->ndim, e->shape, shape, sizeof shape);
    timeline_end_args(t, set->id, e->name, e->name_bytes, hvd_dtype_name((hvd_dtype_t)e->dtype),
                      shape);
}

static struct run *run_at(struct procset *set, uint32_t number)
{
    return &set->runs[number % PROCSET_RUNS];
}

/* Ids are returned to the ring in the order they were taken. */
static void retire(struct procset *set)
{
    while (set->run_head != set->run_tail && run_at(set, set->run_head)->state == RUN_DONE) {
        struct run *run = run_at(set, set->run_head++);
        procset_ids_give(set, &run->batch);
        run->state = RUN_FREE;
    }
}

/* The batch has finished: its entries are released, its ops completed. */
static void finish(struct procset *set, struct run *run, hvd_status_t status, const char *text)
{
    struct engine *engine = set->engine;
    run->state = RUN_DONE;
    engine->stats.batches++;
    for (int32_t i = 0; i < run->batch.count; i++) {
        struct entry *e = run->entries[i];
        trace_end(set, e, status == HVD_OK);
        struct op *op = e->tensor != NULL ? e->tensor->op : NULL;
        bool is_own = op != NULL && op->state == OP_BATCHED;
        if (is_own && status == HVD_OK)
            meter_ran(engine, e, op, run);
        if (--e->queued == 0 && (e->is_transient || e->is_forgotten))
            procset_forget(set, e);
        if (is_own)
            complete_op(engine, op, status, text);
    }
}

/* All members have agreed to run this batch. An unsupported operation fails on all of them alike.
 * Any other failure may affect this rank alone, and then the others wait for it: the set breaks on
 * all ranks, with one cause. An error of a link or a peer already names its rank. */
static void fail(struct procset *set, struct run *run, hvd_status_t status, const char *text)
{
    struct engine *engine = set->engine;
    const struct entry *first = run->entries[0];
    char name[160], cause[HVD_ERROR_MAX];
    if (status == HVD_ERR_UNSUPPORTED) {
        if (run->is_planned)
            plan_batch_moved(set);
        finish(set, run, status, text);
        return;
    }
    if (status <= HVD_ERR_LINK) {
        control_listen(engine); /* another rank may know why the link broke */
        negotiate_set_broken(set, status, text, true);
        return;
    }
    engine_peer_name(engine, engine->rank, name, sizeof name);
    snprintf(cause, sizeof cause, "%s could not run %s %.200s: %.500s", name,
             kind_name(first->kind, first->reduce), first->name, text);
    LOG_AT(engine->log, LOG_DEBUG, "%s", cause);
    negotiate_set_broken(set, status, cause, true);
}

/* The batches in execution will never complete. Their ops are about to fail, so the callers must
 * own their memory again. Ops with running copies complete when those have finished. */
void execute_abort(struct procset *set)
{
    struct backend *backend = set->engine->backend;
    bool is_moving = false;
    for (uint32_t i = set->run_head; i != set->run_tail; i++) {
        struct run *run = run_at(set, i);
        is_moving = is_moving || run->state == RUN_MOVING;
        if (run->state == RUN_IN)
            run->state = RUN_DRAIN;
        else if (run->state == RUN_READY || run->state == RUN_MOVING)
            run->state = RUN_DONE;
    }
    if (is_moving)
        backend->ops->reset(backend, set->backend_group, BACKEND_BASE_LAST);
    retire(set);
}

/* No memory for the result of the batch. For an allgather, names the rank that contributes most:
 * its first dimension may be wrong. */
static void no_result(struct procset *set, struct run *run)
{
    const struct entry *largest = run->entries[0];
    int32_t most = 0;
    char what[HVD_ERROR_MAX - 200];
    for (int32_t i = 0; largest->dim0 != NULL && i < run->batch.count; i++) {
        const struct entry *e = run->entries[i];
        for (int32_t k = 0; k < set->size; k++)
            if (e->dim0[k] > largest->dim0[most]) {
                largest = e;
                most = k;
            }
    }
    if (largest->dim0 != NULL)
        snprintf(what, sizeof what,
                 "out of memory for the result of %s, to which rank %d gives %lld rows",
                 largest->name, set->ranks[most], (long long)largest->dim0[most]);
    else
        snprintf(what, sizeof what, "out of memory for the result of %s", largest->name);
    fail(set, run, HVD_ERR_NO_MEMORY, what);
}

/* ---- the states of a batch ---- */

static void move_begin(struct procset *set, struct run *run)
{
    struct backend *backend = set->engine->backend;
    struct error error;
    error_clear(&error);
    run->state = RUN_MOVING;
    hvd_status_t status = backend->ops->start(backend, set->backend_group, &run->coll, &error);
    if (status != HVD_OK)
        fail(set, run, status, error.text);
}

/* The backend has done its part. */
static void move_end(struct procset *set, struct run *run)
{
    struct error error;
    error_clear(&error);
    if (run->is_planned)
        plan_batch_moved(set);
    if (!run->is_staged) {
        finish(set, run, HVD_OK, "");
        return;
    }
    run->state = RUN_OUT;
    hvd_status_t status = stage_out(set, run, &error);
    if (status != HVD_OK) {
        run->state = RUN_DONE;
        fail(set, run, status, error.text);
    }
}

static hvd_status_t splits_end(struct procset *set, struct run *run, struct error *error)
{
    struct backend *backend = set->engine->backend;
    int32_t refused = split_refused(set, run);
    if (refused >= 0) {
        splits_broken(set, run, refused);
        return HVD_OK; /* already reported */
    }
    hvd_status_t status = lay_alltoall(set, run, error);
    return status == HVD_OK ? backend->ops->start(backend, set->backend_group, &run->coll, error)
                            : status;
}

static bool step_moving(struct procset *set, struct run *run, bool *ret_moved)
{
    struct backend *backend = set->engine->backend;
    struct error error;
    error_clear(&error);
    hvd_status_t status = backend->ops->progress(backend, set->backend_group, ret_moved, &error);
    if (status == HVD_IN_PROGRESS) {
        meter_waiting(set);
        return false;
    }
    if (status == HVD_OK && !run->is_splits_phase)
        move_end(set, run);
    else if (status == HVD_OK)
        status = splits_end(set, run, &error);
    if (status != HVD_OK)
        fail(set, run, status, error.text);
    return true;
}

static bool step_in(struct procset *set, struct run *run)
{
    struct error error;
    error_clear(&error);
    hvd_status_t status = stage_poll(run, &error);
    if (status == HVD_IN_PROGRESS)
        return false;
    run->state = RUN_READY;
    if (status != HVD_OK)
        fail(set, run, status, error.text);
    return true;
}

/* The result is complete even if the set has broken meanwhile, so its ops succeed. */
static bool step_out(struct procset *set, struct run *run)
{
    struct error error;
    error_clear(&error);
    hvd_status_t status = stage_poll(run, &error);
    if (status == HVD_IN_PROGRESS)
        return false;
    if (status == HVD_OK) {
        finish(set, run, HVD_OK, "");
        return true;
    }
    run->state = RUN_DONE;
    fail(set, run, status, error.text); /* does nothing if the set is broken already */
    complete_pending(set, set->broken, set->broken_text);
    return true;
}

/* Whether the copies failed does not matter. Ops of a broken plan can be announced now. */
static bool step_drain(struct procset *set, struct run *run)
{
    struct error error;
    error_clear(&error);
    if (stage_poll(run, &error) == HVD_IN_PROGRESS)
        return false;
    run->state = RUN_DONE;
    if (set->broken != HVD_OK) {
        complete_pending(set, set->broken, set->broken_text);
        return true;
    }
    for (int32_t i = 0; i < run->batch.count; i++)
        if (stage_op(run, i) != NULL)
            stage_op(run, i)->state = OP_HELD;
    set->must_announce = true;
    return true;
}

static bool step(struct procset *set, struct run *run, bool is_next, bool *ret_moved)
{
    switch (run->state) {
    case RUN_IN: return step_in(set, run);
    case RUN_READY:
        if (is_next)
            move_begin(set, run);
        return is_next;
    case RUN_MOVING: return step_moving(set, run, ret_moved);
    case RUN_OUT: return step_out(set, run);
    case RUN_DRAIN: return step_drain(set, run);
    case RUN_FREE:
    case RUN_DONE: return false;
    }
    return false;
}

/* The backend has finished with it. */
static bool is_past_backend(const struct run *run)
{
    return run->state == RUN_OUT || run->state == RUN_DRAIN || run->state == RUN_DONE;
}

bool execute_step(struct procset *set, bool *ret_moved)
{
    bool has_changed = false, is_next = true;
    for (uint32_t i = set->run_head; i != set->run_tail; i++) {
        struct run *run = run_at(set, i);
        has_changed |= step(set, run, is_next, ret_moved);
        is_next = is_next && is_past_backend(run);
    }
    retire(set);
    return has_changed;
}

bool execute_is_active(const struct procset *set)
{
    return set->run_head != set->run_tail;
}

bool execute_is_copying(const struct procset *set)
{
    for (uint32_t i = set->run_head; i != set->run_tail; i++) {
        const struct run *run = &set->runs[i % PROCSET_RUNS];
        if (run->state == RUN_IN || run->state == RUN_OUT || run->state == RUN_DRAIN)
            return true;
    }
    return false;
}

/* The backend takes one batch at a time; a batch that must be copied first may start copying
 * earlier. */
bool execute_has_room(struct procset *set, uint32_t first_id)
{
    if (!execute_is_active(set))
        return true;
    if (set->run_tail - set->run_head == PROCSET_RUNS)
        return false;
    bool is_copied = procset_entry(set, first_id)->memory != HVD_MEMORY_HOST;
    for (uint32_t i = set->run_head; i != set->run_tail; i++)
        if (!is_copied && !is_past_backend(run_at(set, i)))
            return false;
    return true;
}

/* ---- beginning ---- */

/* Have all earlier batches left the backend? */
static bool is_newest_next(struct procset *set)
{
    for (uint32_t i = set->run_head; i + 1 != set->run_tail; i++)
        if (!is_past_backend(run_at(set, i)))
            return false;
    return true;
}

static void stage_begin(struct procset *set, struct run *run)
{
    struct error error;
    error_clear(&error);
    run->state = RUN_IN;
    hvd_status_t status = stage_in(set, run, &error);
    if (status != HVD_OK) {
        run->state = RUN_READY; /* nothing is in progress */
        fail(set, run, status, error.text);
    }
}

void execute_begin(struct procset *set, const struct batch *batch, bool is_planned)
{
    struct engine *engine = set->engine;
    struct run *run = run_at(set, set->run_tail);
    assert(execute_has_room(set, batch->ids[0]) && run->state == RUN_FREE);
    if (!procset_run_prepare(set, run)) {
        struct batch lost = *batch;
        procset_ids_give(set, &lost);
        engine_no_memory(engine, "a batch");
        return;
    }
    set->run_tail++;
    run->batch = *batch;
    run->state = RUN_READY;
    run->is_splits_phase = run->is_staged = false;
    run->is_planned = is_planned;
    run->start_ns = engine->now_ns;
    run->number = set->order + (is_planned ? plan_started(set) : 0);
    for (int32_t i = 0; i < batch->count; i++)
        run->entries[i] = procset_entry(set, batch->ids[i]);
    meter_batch(set, run);
    flight_note(engine->flight, engine->now_ns, FLIGHT_BATCH, set->id, batch->count,
                &run->entries[0]->flight_name);
    if (!lay_out(set, run)) {
        no_result(set, run);
        return;
    }
    trace_begin(set, run);
    if (run->coll.kind == HVD_BARRIER) { /* the agreement was the barrier */
        finish(set, run, HVD_OK, "");
        retire(set);
        return;
    }
    if (stage_is_needed(run))
        stage_begin(set, run);
    if (run->coll.kind == HVD_ALLTOALL && set->broken == HVD_OK && !lay_splits(set, run))
        no_result(set, run);
    /* A joined rank has nothing to copy, but the batch before this one may still be in the backend.
     */
    if (run->state == RUN_READY && !run->is_staged && is_newest_next(set))
        move_begin(set, run);
    retire(set);
}

/* Started by this rank and not by all: none of them has changed an output. */
void execute_cancel(struct procset *set)
{
    for (uint32_t n = set->run_head; n != set->run_tail; n++) {
        struct run *run = run_at(set, n);
        if (is_past_backend(run))
            continue;
        run->state = run->state == RUN_IN ? RUN_DRAIN : RUN_DONE;
        for (int32_t i = 0; i < run->batch.count; i++) {
            struct entry *e = run->entries[i];
            trace_end(set, e, false);
            if (run->state == RUN_DONE && e->tensor != NULL && e->tensor->op != NULL)
                e->tensor->op->state = OP_HELD;
            if (--e->queued == 0 && (e->is_transient || e->is_forgotten))
                procset_forget(set, e); /* voided meanwhile by ranks that had left the plan */
        }
    }
    retire(set);
}

/* ---- events that have a position in the order ---- */

static void event(struct procset *set, struct batch *batch)
{
    struct engine *engine = set->engine;
    switch (batch->kind) {
    case BATCH_RUN: return;
    case BATCH_PLAN: plan_begin(set, batch); break;
    case BATCH_JOINED:
        if (set->join_op != NULL) {
            set->join_op->ticket->answer = batch->argument;
            complete_op(engine, set->join_op, HVD_OK, "");
        }
        break;
    case BATCH_SET_ADD: sets_added(engine, batch); break;
    case BATCH_SET_REMOVE: sets_removed(engine, batch->argument); break;
    case BATCH_SET_CLOSE: sets_closed(engine, batch); break;
    case BATCH_SHUTDOWN: engine_leave(engine, batch->argument); break;
    case BATCH_TUNE: tune_take_effect(set, batch); break;
    }
    procset_ids_give(set, batch);
}

/* The next in the agreed order; false: there is none, or it can't start yet. */
static bool begin_next(struct procset *set)
{
    if (set->batch_head == set->batch_tail)
        return false;
    struct batch batch = set->batches[set->batch_head % set->batch_capacity];
    bool is_run = batch.kind == BATCH_RUN;
    if (is_run ? !execute_has_room(set, batch.ids[0]) : execute_is_active(set))
        return false;
    set->batch_head++;
    if (is_run) {
        set->order++;
        execute_begin(set, &batch, false);
    } else {
        event(set, &batch);
    }
    return true;
}

bool execute_progress(struct procset *set)
{
    bool has_moved = false;
    while (set->broken == HVD_OK) {
        if (plan_has_begun(set))
            return plan_progress(set) || has_moved;
        if (!(execute_is_active(set) && execute_step(set, &has_moved)) && !begin_next(set))
            return has_moved;
        has_moved = true;
    }
    return execute_is_active(set) && execute_step(set, &has_moved);
}
