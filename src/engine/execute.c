/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - runs the batches of a set, one after the other, in the agreed order: lays out the
 * collective, provides memory for results, lets the backend move the bytes, hands the ops to
 * complete.c.
 *
 * A rank that has joined takes part with zeros in what the others reduce.
 *
 * Thread: token holder.  Blocks: never.  Start reading at execute_progress(). */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/sets.h"
#include "engine/timeline.h"

/* ---- laying out a collective ---- */

static uint64_t row_elements(const struct entry *e)
{
    uint64_t row = 1;
    for (int32_t i = 1; i < e->ndim; i++)
        row *= (uint64_t)e->shape[i];
    return row;
}

static bool counts_reserve(struct procset *set, size_t n)
{
    struct run *run = &set->run;
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

static bool zeros_reserve(struct procset *set, size_t bytes)
{
    struct run *run = &set->run;
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

static bool lay_rows(struct procset *set, int32_t part, const struct entry *e, struct op *op)
{
    struct run *run = &set->run;
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

static bool lay_part(struct procset *set, int32_t i, struct entry *e)
{
    struct run *run = &set->run;
    struct op *op = e->tensor != NULL ? e->tensor->op : NULL;
    if ((e->kind == HVD_ALLGATHER || e->kind == HVD_REDUCESCATTER) && !lay_rows(set, i, e, op))
        return false;
    run->entries[i] = e;
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

/* A joined rank has no memory of its own for these: all parts share zeros, results are thrown away.
 */
static bool lay_zeros(struct procset *set)
{
    struct run *run = &set->run;
    size_t bytes = 0, at = 0;
    for (int32_t i = 0; i < run->batch.count; i++)
        if (run->entries[i]->tensor == NULL || run->entries[i]->tensor->op == NULL)
            bytes += (run->entries[i]->bytes + 63) & ~(size_t)63;
    if (!zeros_reserve(set, bytes))
        return false;
    for (int32_t i = 0; i < run->batch.count; i++) {
        if (run->entries[i]->tensor != NULL && run->entries[i]->tensor->op != NULL)
            continue;
        run->parts[i].in = run->parts[i].out = (uint8_t *)run->zeros + at;
        at += (run->entries[i]->bytes + 63) & ~(size_t)63;
    }
    return true;
}

static void lay_coll(struct procset *set, const struct entry *e)
{
    struct run *run = &set->run;
    run->coll = (struct coll){.kind = (hvd_kind_t)e->kind,
                              .dtype = (hvd_dtype_t)e->dtype,
                              .reduce = (hvd_reduce_t)e->reduce,
                              .prescale = e->prescale,
                              .postscale = e->postscale,
                              .root = e->root,
                              .parts = run->parts,
                              .part_count = run->batch.count,
                              .counts = run->counts};
    if (e->reduce == HVD_AVERAGE) {
        run->coll.reduce = HVD_SUM;
        run->coll.postscale = e->postscale / set->size;
    }
}

static bool lay_out(struct procset *set)
{
    struct run *run = &set->run;
    const struct entry *first = procset_entry(set, run->batch.ids[0]);
    bool has_counts = first != NULL && first->kind != HVD_ALLREDUCE && first->kind != HVD_BROADCAST;
    if (has_counts && !counts_reserve(set, (size_t)run->batch.count * (size_t)set->size))
        return false;
    for (int32_t i = 0; i < run->batch.count; i++) {
        struct entry *e = procset_entry(set, run->batch.ids[i]);
        if (e == NULL || !lay_part(set, i, e))
            return false;
    }
    lay_coll(set, run->entries[0]);
    return lay_zeros(set);
}

/* ---- alltoall: first the splits of everyone, then the rows ---- */

static bool lay_splits(struct procset *set)
{
    struct run *run = &set->run;
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

static bool lay_alltoall(struct procset *set)
{
    struct run *run = &set->run;
    struct entry *e = run->entries[0];
    struct op *op = e->tensor->op;
    size_t n = (size_t)set->size;
    uint64_t row = row_elements(e);
    int64_t rows = 0;
    uint64_t sent = 0; /* rows beyond the splits stay here */
    op->recv_splits = os_alloc(set->engine->os, n * sizeof *op->recv_splits);
    if (op->recv_splits == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        int32_t incoming = run->all_splits[i * n + (size_t)set->self];
        if (incoming < 0)
            return false;
        op->recv_splits[i] = incoming;
        run->recv_counts[i] = (uint64_t)incoming * row;
        run->counts[i] = (uint64_t)op->splits[i] * row;
        sent += run->counts[i];
        rows += incoming;
    }
    if (!result_make(set, op, rows))
        return false;
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
    return true;
}

/* ---- running ---- */

static void trace_begin(struct procset *set)
{
    struct run *run = &set->run;
    struct timeline *t = set->engine->timeline;
    if (!timeline_is_on(t))
        return;
    hvd_kind_t kind = (hvd_kind_t)run->entries[0]->kind;
    const char *activity = set->engine->backend->ops->activity(set->backend_group, kind);
    for (int32_t i = 0; i < run->batch.count; i++) {
        const struct entry *e = run->entries[i];
        timeline_begin(t, set->id, e->name, e->name_bytes, kind_name(e->kind, e->reduce));
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

/* The batch has ended: its entries are let go, its ops completed. */
static void finish(struct procset *set, hvd_status_t status, const char *text)
{
    struct run *run = &set->run;
    struct engine *engine = set->engine;
    run->is_active = false;
    run->is_planned = false;
    engine->stats.batches++;
    for (int32_t i = 0; i < run->batch.count; i++) {
        struct entry *e = procset_entry(set, run->batch.ids[i]);
        if (e == NULL)
            continue;
        trace_end(set, e, status == HVD_OK);
        struct op *op = e->tensor != NULL ? e->tensor->op : NULL;
        if (--e->queued == 0 && (e->is_transient || e->is_forgotten))
            procset_forget(set, e);
        if (op != NULL && op->state == OP_BATCHED)
            complete_op(engine, op, status, text);
    }
    procset_ids_give(set, &run->batch);
}

static void fail(struct procset *set, hvd_status_t status, const char *text)
{
    if (status <= HVD_ERR_LINK)
        negotiate_set_broken(set, status, text, true);
    else
        finish(set, status, text);
}

hvd_status_t execute_begin(struct procset *set, const struct batch *batch)
{
    struct engine *engine = set->engine;
    struct run *run = &set->run;
    struct error error = {0};
    run->batch = *batch;
    run->is_active = true;
    run->is_splits_phase = false;
    run->start_ns = engine->now_ns;
    flight_note(engine->flight, engine->now_ns, FLIGHT_BATCH, set->id, batch->count,
                procset_entry(set, batch->ids[0])->name);
    bool is_laid = lay_out(set);
    if (is_laid && run->coll.kind == HVD_ALLTOALL)
        is_laid = lay_splits(set);
    if (!is_laid) {
        engine_stop(engine, HVD_ERR_NO_MEMORY, "Out of memory for the result of a collective.",
                    true);
        return HVD_ERR_NO_MEMORY;
    }
    trace_begin(set);
    if (run->coll.kind == HVD_BARRIER) { /* the agreement was the barrier */
        finish(set, HVD_OK, "");
        return HVD_OK;
    }
    hvd_status_t status =
        engine->backend->ops->start(engine->backend, set->backend_group, &run->coll, &error);
    if (status != HVD_OK)
        fail(set, status, error.text);
    return status;
}

hvd_status_t execute_step(struct procset *set, bool *ret_moved)
{
    struct engine *engine = set->engine;
    struct run *run = &set->run;
    struct error error = {0};
    hvd_status_t status =
        engine->backend->ops->progress(engine->backend, set->backend_group, ret_moved, &error);
    if (status == HVD_IN_PROGRESS)
        return status;
    if (status == HVD_OK && run->is_splits_phase) {
        if (!lay_alltoall(set)) {
            engine_stop(engine, HVD_ERR_NO_MEMORY, "Out of memory for the result of an alltoall.",
                        true);
            return HVD_ERR_NO_MEMORY;
        }
        status =
            engine->backend->ops->start(engine->backend, set->backend_group, &run->coll, &error);
        if (status == HVD_OK)
            return HVD_IN_PROGRESS;
    }
    if (status == HVD_OK)
        finish(set, HVD_OK, "");
    else
        fail(set, status, error.text);
    return status;
}

void execute_cancel(struct procset *set)
{
    struct run *run = &set->run;
    for (int32_t i = 0; i < run->batch.count; i++) {
        struct entry *e = procset_entry(set, run->batch.ids[i]);
        e->queued--;
        trace_end(set, e, false);
        if (e->tensor != NULL && e->tensor->op != NULL)
            e->tensor->op->state = OP_HELD;
    }
    procset_ids_give(set, &run->batch);
    run->is_active = false;
    run->is_planned = false;
}

/* ---- events that have their place in the order ---- */

static void event(struct procset *set, struct batch *batch)
{
    struct engine *engine = set->engine;
    switch (batch->kind) {
    case BATCH_RUN: return;
    case BATCH_PLAN: plan_begin(set, batch); break;
    case BATCH_JOINED:
        if (set->join_op != NULL) {
            set->join_op->ticket->join_rank = batch->argument;
            complete_op(engine, set->join_op, HVD_OK, "");
        }
        break;
    case BATCH_SET_ADD: sets_added(engine, batch); break;
    case BATCH_SET_REMOVE: sets_removed(engine, batch->argument); break;
    case BATCH_SHUTDOWN: engine_leave(engine, batch->argument); break;
    }
    procset_ids_give(set, batch);
}

bool execute_progress(struct procset *set)
{
    bool has_moved = false;
    while (set->broken == HVD_OK) {
        if (plan_has_begun(set))
            return plan_progress(set) || has_moved;
        if (set->run.is_active) {
            if (execute_step(set, &has_moved) == HVD_IN_PROGRESS)
                return has_moved;
            has_moved = true;
            continue;
        }
        if (set->batch_head == set->batch_tail)
            return has_moved;
        has_moved = true;
        struct batch batch = set->batches[set->batch_head++ % set->batch_capacity];
        if (batch.kind == BATCH_RUN)
            execute_begin(set, &batch);
        else
            event(set, &batch);
    }
    return has_moved;
}
