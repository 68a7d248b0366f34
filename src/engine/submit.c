/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c - the first step of an op: checks the caller's arguments, takes an op and a ticket, puts
 * them on the queue. Nothing waits here and nothing is completed here.
 *
 * Thread: any, under the submit lock; submit_drain() by the token holder. Invariant: a submit
 * either queues all its ops or none, and a failed one leaves no trace (it does not use up an
 * auto-name number). Order of checks as in the contract: set, shut down, op, member, name. Start
 * reading at submit_ops(). */
#include "engine/submit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/direct.h"
#include "engine/engine_private.h"
#include "engine/flight.h"
#include "engine/negotiate.h"
#include "engine/pool.h"
#include "engine/sets.h"
#include "engine/shape.h"
#include "engine/timeline.h"
#include "memory/memory.h"
#include "reduce/reduce.h"

#define NAME_HOLD_NS 1000000 /* a name is free 1 ms after completion even if no caller polled */

/* ---- checks ---- */

#define FLAGS_KNOWN    (HVD_OP_AUTO_RELEASE | HVD_OP_NAME_HOLD | HVD_OP_WAITED | HVD_OP_SCALE_EXACT)
#define DEVICE_CPU_OLD (-1) /* of the first header */

/* Zero-filled means the default, unless the caller sets the flag that it means zero. Minus zero is
 * not zero-filled: the caller has set it. */
static double scale_of(const hvd_op_t *op, double scale)
{
    bool is_default = scale == 0.0 && !signbit(scale) && (op->flags & HVD_OP_SCALE_EXACT) == 0;
    return is_default ? 1.0 : scale;
}

/* NULL: there is none of this kind. */
static struct memory_kind *memory_of(const struct engine *engine, int32_t kind)
{
    for (int32_t i = 0; i < engine->options.memory_count; i++)
        if (engine->options.memories[i]->ops->kind == kind)
            return engine->options.memories[i];
    return NULL;
}

static hvd_status_t check_device(const hvd_tensor_t *tensor, const char *what, struct error *error)
{
    if (tensor->device == HVD_DEVICE_CPU || tensor->device == DEVICE_CPU_OLD)
        return HVD_OK;
    return error_set(
        error, HVD_ERR_UNSUPPORTED,
        "The %s is on device %d, but host memory, in which the op says that it is, has "
        "device %d only; copy it there first.",
        what, tensor->device, HVD_DEVICE_CPU);
}

/* Results are copied back, so there must be memory to copy them to. */
static hvd_status_t check_result(const hvd_op_t *op, const char *name, struct error *error)
{
    bool is_given = op->alloc_result != NULL || op->kind == HVD_ALLREDUCE ||
                    op->kind == HVD_BROADCAST ||
                    (op->output.data != NULL && op->kind != HVD_ALLTOALL);
    if (is_given)
        return HVD_OK;
    return error_set(error, HVD_ERR_INVALID,
                     "%s in %s memory needs alloc_result, or memory for its output.",
                     kind_title((uint8_t)op->kind), name);
}

static hvd_status_t check_memory(const struct engine *engine, const hvd_op_t *op,
                                 struct error *error)
{
    const struct memory_kind *m = memory_of(engine, op->memory);
    if (m == NULL)
        return error_set(error, HVD_ERR_UNSUPPORTED,
                         "The tensor is in memory of kind %d, which is not there; copy it to host "
                         "memory (kind %d) first.",
                         op->memory, HVD_MEMORY_HOST);
    int32_t count = m->ops->device_count(m);
    if (op->input.device < 0 || op->input.device >= count)
        return error_set(error, HVD_ERR_INVALID,
                         "The input is on device %d of %s memory, which has %d of them.",
                         op->input.device, m->ops->name, count);
    if (op->output.data != NULL && op->output.device != op->input.device)
        return error_set(error, HVD_ERR_INVALID,
                         "The input is on device %d of %s memory and the output on device %d; both "
                         "must be on the same.",
                         op->input.device, m->ops->name, op->output.device);
    return check_result(op, m->ops->name, error);
}

static hvd_status_t check_place(const struct engine *engine, const hvd_op_t *op,
                                struct error *error)
{
    if (op->memory != HVD_MEMORY_HOST)
        return check_memory(engine, op, error);
    if (op->stream != NULL)
        return error_set(
            error, HVD_ERR_INVALID,
            "The op has a stream, but its tensors are in host memory, which has none.");
    hvd_status_t status = check_device(&op->input, "input", error);
    return status == HVD_OK && op->output.data != NULL ? check_device(&op->output, "output", error)
                                                       : status;
}

/* An output with a shape must match what will be written; one without is trusted. */
static hvd_status_t check_output(const hvd_op_t *op, struct error *error)
{
    const hvd_tensor_t *in = &op->input, *out = &op->output;
    if (op->kind != HVD_ALLREDUCE && op->kind != HVD_BROADCAST)
        return HVD_OK;
    if (out->shape == NULL)
        return HVD_OK;
    if (out->dtype != in->dtype)
        return error_set(error, HVD_ERR_INVALID, "%s from %s into %s: the types must be equal.",
                         kind_title((uint8_t)op->kind), hvd_dtype_name(in->dtype),
                         hvd_dtype_name(out->dtype));
    bool is_same = out->ndim == in->ndim;
    for (int32_t i = 0; is_same && i < in->ndim; i++)
        is_same = out->shape[i] == in->shape[i];
    if (is_same)
        return HVD_OK;
    char have[256], want[256];
    shape_format(in->ndim, in->shape, want, sizeof want);
    shape_format(out->ndim < 0 || out->ndim > HVD_DIMS_MAX ? 0 : out->ndim, out->shape, have,
                 sizeof have);
    return error_set(error, HVD_ERR_INVALID,
                     "%s of a tensor of shape %s needs an output of that shape, not %s.",
                     kind_title((uint8_t)op->kind), want, have);
}

static hvd_status_t check_shape(const struct engine *engine, const hvd_op_t *op, int64_t *ret_count,
                                struct error *error)
{
    const hvd_tensor_t *t = &op->input;
    *ret_count = 0;
    if (op->kind == HVD_BARRIER || op->kind == HVD_JOIN)
        return HVD_OK;
    if ((unsigned)t->dtype >= HVD_DTYPE_COUNT)
        return error_set(error, HVD_ERR_INVALID, "Unknown data type number %d.", (int)t->dtype);
    if (t->ndim < 0 || t->ndim > HVD_DIMS_MAX)
        return error_set(error, HVD_ERR_INVALID,
                         "A tensor of %d dimensions is not supported; the limit is %d.", t->ndim,
                         HVD_DIMS_MAX);
    if (!shape_elements(t->ndim, t->shape, ret_count))
        return error_set(error, HVD_ERR_INVALID,
                         "The shape of the tensor is negative or too large.");
    if (t->data == NULL && *ret_count > 0)
        return error_set(error, HVD_ERR_INVALID, "The tensor has %lld elements but no memory.",
                         (long long)*ret_count);
    if ((op->kind == HVD_ALLREDUCE || op->kind == HVD_BROADCAST) && op->output.data == NULL &&
        *ret_count > 0)
        return error_set(error, HVD_ERR_INVALID, "%s needs memory for its output.",
                         kind_title((uint8_t)op->kind));
    hvd_status_t status = check_place(engine, op, error);
    return status == HVD_OK ? check_output(op, error) : status;
}

static hvd_status_t check_splits(const hvd_op_t *op, int32_t set_size, struct error *error)
{
    int64_t rows = op->input.ndim > 0 ? op->input.shape[0] : 0;
    if (op->splits_count == 0) {
        if (rows % set_size != 0)
            return error_set(
                error, HVD_ERR_INVALID,
                "splits not provided, but first dimension of tensor is not an even multiple of the "
                "number of workers.");
        if (rows / set_size > INT32_MAX)
            return error_set(error, HVD_ERR_LIMIT,
                             "%lld rows for each rank are more than the %d that splits can say; "
                             "reshape the tensor to fewer rows.",
                             (long long)(rows / set_size), INT32_MAX);
        return HVD_OK;
    }
    if (op->splits_count != set_size)
        return error_set(error, HVD_ERR_INVALID,
                         "Number of entries in splits does not equal number of workers.");
    int64_t sum = 0;
    for (int32_t i = 0; i < set_size; i++) {
        if (op->splits[i] < 0)
            return error_set(error, HVD_ERR_INVALID,
                             "splits must not be negative, but entry %d is %d.", i, op->splits[i]);
        sum += op->splits[i];
    }
    if (sum > rows)
        return error_set(error, HVD_ERR_INVALID,
                         "Sum of splits entries is greater than the first dimension of tensor.");
    return HVD_OK;
}

static hvd_status_t check_wire(const hvd_op_t *op, struct error *error)
{
    if (op->wire == HVD_WIRE_SAME)
        return HVD_OK;
    if ((unsigned)op->wire >= HVD_WIRE_COUNT)
        return error_set(error, HVD_ERR_INVALID, "There is no wire type %d.", (int)op->wire);
    if (message_wire_is_sane((uint8_t)op->kind, (uint8_t)op->input.dtype, (uint8_t)op->reduce,
                             (uint8_t)op->wire))
        return HVD_OK;
    return error_set(error, HVD_ERR_INVALID,
                     "Only an allreduce by SUM or AVERAGE of float32 can travel as %s; cast the "
                     "tensor, or leave hvd_op.wire 0.",
                     hvd_dtype_name(reduce_wire_dtype(op->wire)));
}

static hvd_status_t check_kind(const struct engine *engine, const hvd_op_t *op, int32_t set_size,
                               struct error *error)
{
    hvd_status_t status = check_wire(op, error);
    if (status != HVD_OK)
        return status;
    if (op->kind == HVD_REDUCESCATTER) {
        if (op->input.ndim == 0)
            return error_set(error, HVD_ERR_INVALID,
                             "Reducescatter does not support scalar inputs");
        if (op->reduce != HVD_AVERAGE && op->reduce != HVD_SUM)
            return error_set(error, HVD_ERR_ABORTED,
                             "Reducescatter currently only supports AVERAGE and SUM.");
    }
    if (op->kind == HVD_ALLTOALL && op->input.ndim == 0)
        return error_set(error, HVD_ERR_INVALID, "Alltoall does not support scalar inputs");
    if (op->kind != HVD_ALLREDUCE && op->kind != HVD_REDUCESCATTER)
        return HVD_OK;
    if ((unsigned)op->reduce >= HVD_REDUCE_COUNT)
        return error_set(error, HVD_ERR_UNSUPPORTED, "Reduction op type not supported.");
    if (op->reduce == HVD_ADASUM) {
        if (op->process_set != HVD_PROCESS_SET_GLOBAL)
            return error_set(error, HVD_ERR_UNSUPPORTED,
                             "Adasum does not support non-global process sets yet.");
        if ((engine->size & (engine->size - 1)) != 0)
            return error_set(error, HVD_ERR_UNSUPPORTED,
                             "Running Adasum with non-power of 2 ranks is not supported yet.");
        return HVD_OK;
    }
    double postscale = scale_of(op, op->postscale);
    if (op->reduce == HVD_AVERAGE)
        postscale /= set_size;
    if (reduce_check(op->input.dtype, op->reduce == HVD_AVERAGE ? HVD_SUM : op->reduce,
                     scale_of(op, op->prescale), postscale) != HVD_OK)
        return error_set(
            error, HVD_ERR_UNSUPPORTED,
            "Scaling or averaging %s tensors is not supported; use op=Sum without scale factors.",
            hvd_dtype_name(op->input.dtype));
    return HVD_OK;
}

/* The set of this op, or why it can't be used. */
static hvd_status_t check_set(struct engine *engine, const hvd_op_t *op, struct procset **ret,
                              int32_t *ret_root, struct error *error)
{
    const char *title = kind_title((uint8_t)op->kind);
    int32_t id = op->process_set;
    bool is_known = id >= 0 && id < HVD_PROCESS_SETS_MAX && engine->records[id].is_live;
    struct procset *set = is_known ? engine->sets[id] : NULL;
    if (op->kind == HVD_REDUCESCATTER && set == NULL)
        return error_set(error, HVD_ERR_INVALID, "Invalid process set id for this rank: %d", id);
    if (!is_known)
        return error_set(error, HVD_ERR_INVALID,
                         "%s: Process set provided does not exist, or has not been registered.",
                         title);
    if (atomic_load(&engine->is_stopped)) {
        engine_tell_cause(engine, engine->stop_text);
        return error_set(error, engine->stop_status, "%s", engine->stop_text);
    }
    *ret_root = 0;
    if (op->kind == HVD_BROADCAST) {
        *ret_root = set != NULL ? procset_index(set, op->root) : -1;
        if (*ret_root < 0)
            return error_set(error, HVD_ERR_INVALID,
                             "broadcast received invalid root rank %d for provided process set",
                             op->root);
    }
    if (set == NULL)
        return error_set(error, HVD_ERR_INVALID,
                         "%s: Rank %d is not a member of the provided process set.", title,
                         engine->rank);
    if (set->broken != HVD_OK)
        return error_set(error, set->broken, "%s", set->broken_text);
    *ret = set;
    return HVD_OK;
}

/* ---- names ---- */

/* The user's name as it is, or one made in `buffer`; NULL: too long. */
static const char *full_name(struct procset *set, const hvd_op_t *op, uint64_t auto_offset,
                             char *buffer, uint32_t *ret_bytes)
{
    int n;
    if (op->kind == HVD_JOIN || op->kind == HVD_BARRIER)
        n = snprintf(buffer, HVD_NAME_MAX, "%s.noname", kind_prefix((uint8_t)op->kind));
    else if (op->name != NULL && op->name[0] != '\0') {
        size_t bytes = strnlen(op->name, HVD_NAME_MAX);
        *ret_bytes = (uint32_t)bytes;
        return bytes < HVD_NAME_MAX ? op->name : NULL;
    } else if (set->join_count == 0)
        n = snprintf(buffer, HVD_NAME_MAX, "%s.noname.%llu", kind_prefix((uint8_t)op->kind),
                     (unsigned long long)(set->auto_names[op->kind] + auto_offset));
    else
        n = snprintf(buffer, HVD_NAME_MAX, "%s.noname.%u.%llu", kind_prefix((uint8_t)op->kind),
                     set->join_count,
                     (unsigned long long)(set->auto_names[op->kind] + auto_offset));
    *ret_bytes = (uint32_t)n;
    return n > 0 && n < (int)HVD_NAME_MAX ? buffer : NULL;
}

static bool is_auto_named(const hvd_op_t *op)
{
    return op->kind != HVD_JOIN && op->kind != HVD_BARRIER &&
           (op->name == NULL || op->name[0] == '\0');
}

static bool tensor_is_taken(struct engine *engine, const struct tensor *tensor)
{
    if (tensor->op != NULL)
        return true;
    return tensor->hold != NULL && os_now_ns(engine->os) < tensor->hold_until_ns;
}

static struct tensor *tensor_make(struct engine *engine, struct procset *set, const char *name,
                                  uint32_t n, bool is_cacheable)
{
    struct tensor *tensor = map_get(&set->tensors, name, n);
    if (tensor != NULL)
        return tensor;
    tensor = os_alloc(engine->os, sizeof *tensor + n + 1);
    if (tensor == NULL)
        return NULL;
    memcpy(tensor->name, name, n);
    tensor->name_bytes = n;
    flight_name_set(&tensor->flight_name, name, n);
    tensor->is_cacheable = is_cacheable;
    if (map_put(&set->tensors, tensor->name, n, tensor) != 0) {
        os_free(engine->os, tensor);
        return NULL;
    }
    return tensor;
}

/* ---- filling ---- */

static hvd_status_t op_fill(struct op *o, const hvd_op_t *op, struct procset *set, int32_t root,
                            int64_t count, struct error *error)
{
    const struct os *os = set->engine->os;
    o->set = set;
    o->set_size = set->size;
    o->kind = (uint8_t)op->kind;
    o->dtype = (uint8_t)op->input.dtype;
    o->reduce = (uint8_t)op->reduce;
    o->wire = (uint8_t)op->wire;
    o->flags = op->flags;
    o->prescale = scale_of(op, op->prescale);
    o->postscale = scale_of(op, op->postscale);
    o->root = root;
    o->device = HVD_DEVICE_CPU;
    o->in = op->input.data;
    o->out = op->output.data;
    o->count = count;
    o->callback = op->callback;
    o->alloc_result = op->alloc_result;
    o->arg = op->arg;
    if (op->kind == HVD_BARRIER || op->kind == HVD_JOIN) {
        o->dtype = HVD_INT32;
        o->reduce = HVD_SUM;
        o->prescale = o->postscale = 1.0;
        return HVD_OK;
    }
    o->ndim = op->input.ndim;
    if (o->ndim > 0)
        memcpy(o->shape, op->input.shape, (size_t)o->ndim * sizeof o->shape[0]);
    if (op->kind == HVD_REDUCESCATTER && op->reduce == HVD_AVERAGE) {
        o->reduce = HVD_SUM;
        o->postscale /= set->size;
    }
    if (op->kind != HVD_ALLREDUCE && op->kind != HVD_REDUCESCATTER) {
        o->reduce = HVD_SUM;
        o->prescale = o->postscale = 1.0;
    }
    if (op->memory != HVD_MEMORY_HOST) {
        o->memory_kind = (uint8_t)op->memory;
        o->device = op->input.device;
        o->memory = memory_of(set->engine, op->memory);
        hvd_status_t status =
            o->memory->ops->record(o->memory, o->device, op->stream, &o->mark, error);
        if (status != HVD_OK)
            return status;
    }
    if (op->kind == HVD_ALLTOALL) {
        o->splits = os_alloc(os, (size_t)set->size * sizeof *o->splits);
        if (o->splits == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
        for (int32_t i = 0; i < set->size; i++)
            o->splits[i] =
                op->splits_count > 0 ? op->splits[i] : (int32_t)(op->input.shape[0] / set->size);
    }
    return HVD_OK;
}

static uint32_t group_tag(const char *name, uint32_t n)
{
    uint64_t h = hash_bytes(name, n);
    uint32_t tag = (uint32_t)(h ^ (h >> 32));
    return tag != 0 ? tag : 1;
}

static void queue_push(struct engine *engine, struct op *op)
{
    op->next = NULL;
    if (engine->queue_tail != NULL)
        engine->queue_tail->next = op;
    else
        engine->queue_head = op;
    engine->queue_tail = op;
}

/* The hold of an earlier ticket on this name has expired: that ticket must not access it again. */
static void hold_end(struct tensor *tensor)
{
    struct ticket *ticket = tensor->hold;
    for (int32_t i = 0; i < ticket->count; i++)
        if (ticket->ops[i]->tensor == tensor)
            ticket->ops[i]->tensor = NULL;
    tensor->hold = NULL;
}

/* One op of the group: checked, named, filled; not yet queued. */
static hvd_status_t prepare(struct engine *engine, const hvd_op_t *op, struct ticket *ticket,
                            int32_t index, struct error *error)
{
    struct procset *set = NULL;
    int32_t root = 0;
    int64_t count = 0;
    if (op->struct_size != sizeof *op)
        return error_set(error, HVD_ERR_INVALID,
                         "struct hvd_op has %zu bytes, this library expects %zu.", op->struct_size,
                         sizeof *op);
    if ((unsigned)op->kind >= HVD_KIND_COUNT)
        return error_set(error, HVD_ERR_INVALID, "Unknown kind of operation: %d.", (int)op->kind);
    if ((op->flags & ~(uint32_t)FLAGS_KNOWN) != 0)
        return error_set(error, HVD_ERR_INVALID, "Unknown flags of an operation: 0x%x.", op->flags);
    hvd_status_t status = check_shape(engine, op, &count, error);
    if (status == HVD_OK)
        status = check_set(engine, op, &set, &root, error);
    if (status == HVD_OK)
        status = check_kind(engine, op, set->size, error);
    if (status == HVD_OK && op->kind == HVD_ALLTOALL)
        status = check_splits(op, set->size, error);
    if (status != HVD_OK)
        return status;

    uint64_t auto_offset = 1;
    for (int32_t i = 0; i < index && is_auto_named(op); i++)
        if (ticket->ops[i]->set == set && ticket->ops[i]->kind == op->kind &&
            !ticket->ops[i]->tensor->is_cacheable)
            auto_offset++;
    char buffer[HVD_NAME_MAX];
    uint32_t n;
    const char *name = full_name(set, op, auto_offset, buffer, &n);
    if (name == NULL)
        return error_set(error, HVD_ERR_LIMIT, "The name of the tensor is longer than %u bytes.",
                         HVD_NAME_MAX - 1);
    if (op->kind != HVD_JOIN && n == sizeof JOIN_NAME - 1 && memcmp(name, JOIN_NAME, n) == 0)
        return error_set(error, HVD_ERR_INVALID, "The name %s is reserved; choose another.", name);
    struct tensor *tensor = tensor_make(engine, set, name, n, !is_auto_named(op));
    if (tensor == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    if (tensor_is_taken(engine, tensor))
        return error_set(error, HVD_ERR_DUPLICATE,
                         "Requested to allreduce, allgather, or broadcast a tensor with the same "
                         "name as another "
                         "tensor that is currently being processed.  If you want to request "
                         "another tensor, use a "
                         "different tensor name. (tensor: %s)",
                         name);
    struct op *o = pool_op_take(engine);
    if (o == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    ticket->ops[index] = o;
    o->ticket = ticket;
    o->index = index;
    status = op_fill(o, op, set, root, count, error);
    if (status != HVD_OK)
        return status;
    o->tensor = tensor;
    if (tensor->hold != NULL)
        hold_end(tensor);
    tensor->op = o; /* taken: a second op of the same name fails */
    return HVD_OK;
}

void submit_tensor_drop(struct engine *engine, struct procset *set, struct tensor *tensor)
{
    if (tensor->op != NULL || tensor->hold != NULL || tensor->entry != NULL)
        return;
    map_remove(&set->tensors, tensor->name, tensor->name_bytes);
    os_free(engine->os, tensor);
}

static void unprepare(struct engine *engine, struct ticket *ticket)
{
    for (int32_t i = 0; i < ticket->count; i++) {
        struct op *o = ticket->ops[i];
        if (o == NULL)
            continue;
        if (o->tensor != NULL) {
            o->tensor->op = NULL;
            submit_tensor_drop(engine, o->set, o->tensor);
        }
        pool_op_give(engine, o);
    }
    if (ticket->handle == engine->next_handle)
        engine->next_handle--;
    pool_ticket_give(engine, ticket);
}

static void enqueue(struct engine *engine, struct ticket *ticket, int64_t now_ns)
{
    uint32_t tag = ticket->count > 1 || engine->config->disable_group_fusion
                       ? group_tag(ticket->ops[0]->tensor->name, ticket->ops[0]->tensor->name_bytes)
                       : 0;
    for (int32_t i = 0; i < ticket->count; i++) {
        struct op *o = ticket->ops[i];
        o->submit_ns = now_ns;
        o->group = tag;
        if (!o->tensor->is_cacheable && o->kind < HVD_KIND_COUNT)
            o->set->auto_names[o->kind]++;
        queue_push(engine, o);
    }
    ticket->flags = ticket->ops[0]->flags;
    ticket->is_name_held = (ticket->flags & HVD_OP_NAME_HOLD) != 0;
    atomic_fetch_add(&engine->in_flight, ticket->count);
    atomic_fetch_add(&engine->queued, ticket->count);
}

hvd_status_t submit_ops(struct engine *engine, const hvd_op_t *ops, size_t count,
                        struct ticket **ret, struct error *error)
{
    if (count == 0 || count > INT32_MAX)
        return error_set(error, HVD_ERR_INVALID, "A group needs at least one tensor.");
    if (atomic_load(&engine->in_flight) + (int64_t)count > ENGINE_IN_FLIGHT_MAX)
        return error_set(error, HVD_ERR_LIMIT,
                         "%d operations are in flight; wait for some of them first.",
                         atomic_load(&engine->in_flight));
    int64_t now_ns = os_now_ns(engine->os);
    pthread_mutex_lock(&engine->submit_lock);
    struct ticket *ticket = pool_ticket_take(engine, (int32_t)count);
    hvd_status_t status =
        ticket != NULL ? HVD_OK : error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (size_t i = 0; status == HVD_OK && i < count; i++)
        status = prepare(engine, &ops[i], ticket, (int32_t)i, error);
    if (status == HVD_OK)
        enqueue(engine, ticket, now_ns);
    else if (ticket != NULL)
        unprepare(engine, ticket);
    pthread_mutex_unlock(&engine->submit_lock);
    if (status == HVD_OK)
        *ret = ticket;
    return status;
}

/* A change of the process sets is an op of the global set; `payload` is freed with it. Several
 * opens and closes can be under way, so their names tell what they are about. */
static hvd_status_t set_change(struct engine *engine, uint8_t kind, int32_t *payload, int32_t count,
                               struct ticket **ret, struct error *error)
{
    struct procset *set = engine->sets[HVD_PROCESS_SET_GLOBAL];
    char name[64];
    if (kind == KIND_SET_OPEN || kind == KIND_SET_CLOSE)
        snprintf(name, sizeof name, "process_set.%s.%016llx",
                 kind == KIND_SET_OPEN ? "open" : "close",
                 (unsigned long long)hash_bytes(payload, (size_t)count * sizeof *payload));
    else
        snprintf(name, sizeof name, "process_set.%s", kind == KIND_SET_ADD ? "add" : "remove");
    struct tensor *tensor = tensor_make(engine, set, name, (uint32_t)strlen(name), true);
    struct ticket *ticket =
        tensor != NULL && tensor->op == NULL ? pool_ticket_take(engine, 1) : NULL;
    struct op *op = ticket != NULL ? pool_op_take(engine) : NULL;
    if (op == NULL) {
        if (ticket != NULL)
            pool_ticket_give(engine, ticket);
        return error_set(error, HVD_ERR_DUPLICATE,
                         "Another change of the process sets is in progress.");
    }
    op->set = set;
    op->ticket = ticket;
    op->tensor = tensor;
    op->kind = kind;
    op->splits = payload;
    op->count = count;
    op->device = HVD_DEVICE_CPU;
    op->prescale = op->postscale = 1.0;
    tensor->op = op;
    ticket->ops[0] = op;
    enqueue(engine, ticket, os_now_ns(engine->os));
    *ret = ticket;
    return HVD_OK;
}

/* `words`: what the payload is, NULL for a close, which finds it under the lock. */
static hvd_status_t set_change_begin(struct engine *engine, uint8_t kind, const int32_t *words,
                                     int32_t count, int32_t close_id, struct ticket **ret,
                                     struct error *error)
{
    if (atomic_load(&engine->is_stopped)) {
        engine_tell_cause(engine, engine->stop_text);
        return error_set(error, engine->stop_status, "%s", engine->stop_text);
    }
    int32_t *payload = os_alloc(engine->os, (size_t)count * sizeof *payload + 4);
    if (payload == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    if (words != NULL)
        memcpy(payload, words, (size_t)count * sizeof *payload);
    pthread_mutex_lock(&engine->submit_lock);
    hvd_status_t status = HVD_OK;
    uint32_t incarnation = 0;
    if (words == NULL) {
        payload[0] = close_id;
        if (!sets_hold_drop(engine, close_id, &incarnation))
            status = error_set(error, HVD_ERR_INVALID,
                               "This rank has not opened process set %d, or has closed it already.",
                               close_id);
        payload[1] = (int32_t)incarnation;
    }
    if (status == HVD_OK) {
        status = set_change(engine, kind, payload, count, ret, error);
        if (status != HVD_OK && words == NULL)
            engine->records[close_id].own_holds++;
    }
    pthread_mutex_unlock(&engine->submit_lock);
    if (status != HVD_OK)
        os_free(engine->os, payload);
    return status;
}

hvd_status_t submit_set_change(struct engine *engine, const int32_t *ranks, int32_t count,
                               int32_t remove_id, struct ticket **ret, struct error *error)
{
    if (ranks != NULL)
        return set_change_begin(engine, KIND_SET_ADD, ranks, count, -1, ret, error);
    return set_change_begin(engine, KIND_SET_REMOVE, &remove_id, 1, -1, ret, error);
}

hvd_status_t submit_set_open(struct engine *engine, const int32_t *ranks, int32_t count,
                             struct ticket **ret, struct error *error)
{
    return set_change_begin(engine, KIND_SET_OPEN, ranks, count, -1, ret, error);
}

hvd_status_t submit_set_close(struct engine *engine, int32_t id, struct ticket **ret,
                              struct error *error)
{
    return set_change_begin(engine, KIND_SET_CLOSE, NULL, 2, id, ret, error);
}

/* ---- messages to one rank ---- */

static hvd_status_t check_message(const struct engine *engine, const hvd_message_t *message,
                                  bool is_send, struct error *error)
{
    const struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    const char *title = kind_title(is_send ? KIND_SEND : KIND_RECV);
    if ((message->flags & ~(uint32_t)FLAGS_KNOWN) != 0)
        return error_set(error, HVD_ERR_INVALID, "Unknown flags of an operation: 0x%x.",
                         message->flags);
    if (message->data == NULL && message->bytes > 0)
        return error_set(error, HVD_ERR_INVALID, "The message has %zu bytes but no memory.",
                         message->bytes);
    if (message->bytes > (uint64_t)INT64_MAX)
        return error_set(error, HVD_ERR_INVALID, "A message of %zu bytes is too large.",
                         message->bytes);
    bool is_any = !is_send && message->peer == HVD_ANY_RANK;
    if (!is_any && (message->peer < 0 || message->peer >= engine->size))
        return error_set(error, HVD_ERR_INVALID, "%s: there is no rank %d in a world of %d.", title,
                         message->peer, engine->size);
    if (message->peer == engine->rank)
        return error_set(error, HVD_ERR_INVALID, "%s: rank %d is this rank itself.", title,
                         message->peer);
    if (atomic_load(&engine->is_stopped))
        return error_set(error, engine->stop_status, "%s", engine->stop_text);
    if (global->broken != HVD_OK)
        return error_set(error, global->broken, "%s", global->broken_text);
    return HVD_OK;
}

static void message_fill(struct engine *engine, struct op *op, const hvd_message_t *message,
                         bool is_send)
{
    op->set = engine->sets[HVD_PROCESS_SET_GLOBAL];
    op->set_size = op->set->size;
    op->kind = is_send ? KIND_SEND : KIND_RECV;
    op->dtype = HVD_UINT8;
    op->flags = message->flags;
    op->prescale = op->postscale = 1.0;
    op->device = HVD_DEVICE_CPU;
    op->in = op->out = message->data;
    op->count = (int64_t)message->bytes;
    op->peer = message->peer;
    op->channel = message->channel;
    op->tag = message->tag;
    op->callback = message->callback;
    op->arg = message->arg;
}

hvd_status_t submit_message(struct engine *engine, const hvd_message_t *message, bool is_send,
                            struct ticket **ret, struct error *error)
{
    char name[96];
    pthread_mutex_lock(&engine->submit_lock);
    hvd_status_t status = check_message(engine, message, is_send, error);
    struct ticket *ticket = status == HVD_OK ? pool_ticket_take(engine, 1) : NULL;
    struct op *op = ticket != NULL ? pool_op_take(engine) : NULL;
    struct tensor *tensor = NULL;
    if (op != NULL) {
        snprintf(name, sizeof name, "%s.%lld", is_send ? "send" : "recv",
                 (long long)ticket->handle);
        tensor = tensor_make(engine, engine->sets[HVD_PROCESS_SET_GLOBAL], name,
                             (uint32_t)strlen(name), false);
    }
    if (tensor != NULL) {
        message_fill(engine, op, message, is_send);
        op->ticket = ticket;
        op->tensor = tensor;
        tensor->op = op;
        ticket->ops[0] = op;
        enqueue(engine, ticket, os_now_ns(engine->os));
        *ret = ticket;
    } else if (status == HVD_OK) {
        status = error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
        if (op != NULL)
            pool_op_give(engine, op);
        if (ticket != NULL)
            pool_ticket_give(engine, ticket);
    }
    pthread_mutex_unlock(&engine->submit_lock);
    return status;
}

/* ---- the engine's end of the queue ---- */

static void collective_op(struct op *op)
{
    struct timeline *timeline = op->set->engine->timeline;
    if (timeline_is_on(timeline))
        timeline_submit(timeline, op->set->id, op->tensor->name, op->tensor->name_bytes,
                        kind_negotiate_name(op->kind, op->reduce), op->submit_ns);
    meter_submitted(op->set->engine, op);
    negotiate_op(op->set, op);
}

void submit_drain(struct engine *engine)
{
    if (atomic_load_explicit(&engine->queued, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&engine->submit_lock);
    struct op *op = engine->queue_head;
    engine->queue_head = engine->queue_tail = NULL;
    pthread_mutex_unlock(&engine->submit_lock);
    while (op != NULL) {
        struct op *next = op->next;
        atomic_fetch_sub(&engine->queued, 1);
        flight_note(engine->flight, engine->now_ns, FLIGHT_SUBMIT, op->set->id, op->kind,
                    &op->tensor->flight_name);
        if (op->kind == KIND_SEND || op->kind == KIND_RECV)
            direct_op(engine, op);
        else
            collective_op(op);
        op = next;
    }
}

/* ---- names are free again ---- */

/* On completion: frees the name, at once or by the PyTorch rule; called by complete.c. */
void submit_name_done(struct engine *engine, struct op *op)
{
    pthread_mutex_lock(&engine->submit_lock);
    struct tensor *tensor = op->tensor;
    tensor->op = NULL;
    if (op->kind == HVD_JOIN) {
        op->set->join_count++;
        memset(op->set->auto_names, 0, sizeof op->set->auto_names);
    }
    if ((op->flags & HVD_OP_NAME_HOLD) != 0) {
        tensor->hold = op->ticket;
        tensor->hold_until_ns = engine->now_ns + NAME_HOLD_NS;
    } else {
        op->tensor = NULL;
        submit_tensor_drop(engine, op->set, tensor);
    }
    pthread_mutex_unlock(&engine->submit_lock);
}
