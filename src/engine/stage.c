/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - see stage.h.
 *
 * Each run has two buffers: one for inputs, and one for results whose size differs from their
 * input. They only grow, so a steady step allocates nothing. They come from the allocator of
 * results, which is the arena if there is one, so that peers on this machine can reduce in them in
 * place. */
#include "engine/stage.h"

#include "engine/engine_private.h"
#include "memory/memory.h"

#define SLOT_BYTES 64u

struct stage {
    struct memory_kind *memory;
    int32_t device;
    struct memory_mark *mark; /* of the running copies; NULL: none */
    void *bytes[2];           /* inputs, results */
    size_t capacity[2];
    struct op *ops[COLL_PARTS_MAX]; /* by part */
    struct memory_copy copies[COLL_PARTS_MAX];
};

bool stage_is_needed(const struct run *run)
{
    if (run->entries[0]->memory == HVD_MEMORY_HOST)
        return false;
    for (int32_t i = 0; i < run->batch.count; i++) {
        const struct tensor *tensor = run->entries[i]->tensor;
        if (tensor != NULL && tensor->op != NULL && tensor->op->memory != NULL)
            return true;
    }
    return false; /* this rank has joined; its zeros are in host memory */
}

struct op *stage_op(const struct run *run, int32_t i)
{
    return run->stage->ops[i];
}

/* Other statuses would mean a failure that all ranks share, or one of a link. */
static hvd_status_t failed(hvd_status_t status, struct error *error)
{
    if (status != HVD_ERR_NO_MEMORY)
        status = error->status = HVD_ERR_OS;
    return status;
}

static hvd_status_t reserve(struct procset *set, struct stage *stage, int which, size_t bytes,
                            struct error *error)
{
    const struct engine_options *o = &set->engine->options;
    if (bytes <= stage->capacity[which])
        return HVD_OK;
    if (stage->bytes[which] != NULL)
        o->result_free(o->result_ctx, stage->bytes[which]);
    stage->capacity[which] = 0;
    stage->bytes[which] = o->result_alloc(o->result_ctx, bytes);
    if (stage->bytes[which] == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "out of memory for %zu bytes of %s tensors",
                         bytes, stage->memory->ops->name);
    stage->capacity[which] = bytes;
    return HVD_OK;
}

static size_t slot(size_t bytes)
{
    return (bytes + SLOT_BYTES - 1) & ~(size_t)(SLOT_BYTES - 1);
}

/* Results of these kinds have another size than the inputs. */
static bool is_apart(const struct run *run)
{
    return run->coll.kind != HVD_ALLREDUCE && run->coll.kind != HVD_BROADCAST;
}

static size_t in_bytes(const struct run *run, int32_t i)
{
    return (size_t)run->parts[i].count * hvd_dtype_bytes(run->coll.dtype);
}

static size_t out_bytes(const struct procset *set, const struct run *run, int32_t i)
{
    const uint64_t *counts = run->coll.kind == HVD_ALLTOALL
                                 ? run->coll.recv_counts
                                 : run->counts + (size_t)i * (size_t)set->size;
    uint64_t count = 0;
    if (!is_apart(run))
        return in_bytes(run, i);
    for (int32_t k = 0; counts != NULL && k < set->size; k++)
        if (run->coll.kind != HVD_REDUCESCATTER || k == set->self)
            count += counts[k];
    return (size_t)count * hvd_dtype_bytes(run->coll.dtype);
}

/* Parts of a rank that has joined are zeros in host memory already. */
static hvd_status_t lay(struct procset *set, struct run *run, struct error *error)
{
    struct stage *stage = run->stage;
    size_t need[2] = {0, 0}, at[2] = {0, 0};
    for (int32_t i = 0; i < run->batch.count; i++) {
        const struct tensor *tensor = run->entries[i]->tensor;
        stage->ops[i] = tensor != NULL ? tensor->op : NULL;
        if (stage->ops[i] == NULL)
            continue;
        stage->memory = stage->ops[i]->memory;
        stage->device = stage->ops[i]->device;
        need[0] += slot(in_bytes(run, i));
        need[1] += is_apart(run) ? slot(out_bytes(set, run, i)) : 0;
    }
    for (int which = 0; which < 2; which++)
        if (reserve(set, stage, which, need[which], error) != HVD_OK)
            return error->status;
    for (int32_t i = 0; i < run->batch.count; i++) {
        if (stage->ops[i] == NULL)
            continue;
        run->parts[i].in = run->parts[i].out = (uint8_t *)stage->bytes[0] + at[0];
        at[0] += slot(in_bytes(run, i));
        if (!is_apart(run))
            continue;
        run->parts[i].out = (uint8_t *)stage->bytes[1] + at[1];
        at[1] += slot(out_bytes(set, run, i));
    }
    return HVD_OK;
}

/* Starts stage->copies. */
static hvd_status_t begin(struct run *run, enum memory_direction direction, int32_t count,
                          struct error *error)
{
    struct stage *stage = run->stage;
    struct memory_kind *m = stage->memory;
    if (count == 0)
        return HVD_OK;
    hvd_status_t status =
        m->ops->copy(m, stage->device, direction, stage->copies, count, &stage->mark, error);
    if (status != HVD_OK)
        return failed(status, error);
    for (int32_t i = 0; i < run->batch.count; i++)
        if (stage->ops[i] != NULL)
            stage->ops[i]->is_lent = true;
    return HVD_OK;
}

hvd_status_t stage_in(struct procset *set, struct run *run, struct error *error)
{
    if (run->stage == NULL)
        run->stage = os_alloc(set->engine->os, sizeof *run->stage);
    if (run->stage == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "out of memory for copies");
    struct stage *stage = run->stage;
    hvd_status_t status = lay(set, run, error);
    if (status != HVD_OK)
        return status;
    run->is_staged = true;
    int32_t count = 0;
    bool is_read = run->coll.kind != HVD_BROADCAST || run->coll.root == set->self;
    for (int32_t i = 0; is_read && i < run->batch.count; i++) {
        const struct op *op = stage->ops[i];
        if (op != NULL && in_bytes(run, i) > 0)
            stage->copies[count++] = (struct memory_copy){.to = run->parts[i].out,
                                                          .from = op->in,
                                                          .bytes = in_bytes(run, i),
                                                          .after = op->mark};
        if (count > 0 && is_apart(run))
            stage->copies[count - 1].to = (void *)(uintptr_t)run->parts[i].in;
    }
    return begin(run, MEMORY_TO_HOST, count, error);
}

hvd_status_t stage_rows(struct procset *set, struct run *run, struct error *error)
{
    struct stage *stage = run->stage;
    hvd_status_t status = reserve(set, stage, 1, out_bytes(set, run, 0), error);
    run->parts[0].in = stage->bytes[0];
    run->parts[0].out = stage->bytes[1];
    return status;
}

/* The output may differ from the input, and earlier work in the stream may still use it: these
 * copies wait for the stream, too. */
hvd_status_t stage_out(struct procset *set, struct run *run, struct error *error)
{
    struct stage *stage = run->stage;
    int32_t count = 0;
    for (int32_t i = 0; i < run->batch.count; i++) {
        const struct op *op = stage->ops[i];
        size_t bytes = out_bytes(set, run, i);
        bool is_there = run->coll.kind == HVD_BROADCAST && run->coll.root == set->self &&
                        op != NULL && op->in == op->out;
        if (op == NULL || bytes == 0 || is_there)
            continue;
        stage->copies[count++] = (struct memory_copy){
            .to = op->out, .from = run->parts[i].out, .bytes = bytes, .after = op->mark};
    }
    return begin(run, MEMORY_FROM_HOST, count, error);
}

hvd_status_t stage_poll(struct run *run, struct error *error)
{
    struct stage *stage = run->stage;
    if (stage->mark == NULL)
        return HVD_OK;
    hvd_status_t status = stage->memory->ops->reached(stage->memory, stage->mark, error);
    if (status == HVD_IN_PROGRESS)
        return status;
    stage->memory->ops->release(stage->memory, stage->mark);
    stage->mark = NULL;
    for (int32_t i = 0; i < run->batch.count; i++)
        if (stage->ops[i] != NULL)
            stage->ops[i]->is_lent = false;
    return status == HVD_OK ? HVD_OK : failed(status, error);
}

void stage_destroy(struct procset *set, struct run *run)
{
    const struct engine_options *o = &set->engine->options;
    struct stage *stage = run->stage;
    if (stage == NULL)
        return;
    bool is_free = stage->mark == NULL || stage->memory->ops->release(stage->memory, stage->mark);
    for (int which = 0; is_free && which < 2; which++)
        if (stage->bytes[which] != NULL)
            o->result_free(o->result_ctx, stage->bytes[which]);
    os_free(set->engine->os, stage);
    run->stage = NULL;
}
