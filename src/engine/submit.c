/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c - the first step of an op's way: check what the caller gave, take an op and a ticket,
 * put them on the queue. Nothing waits here and nothing is completed here.
 *
 * Thread: any, under the submit lock; queue_drain() by the token holder.
 * Invariant: a submit either queues all its ops or none, and a failed one leaves no trace (an
 * auto-name number is not used up by it). Order of checks as in the contract: set, shut down, op,
 * member, name. Start reading at engine_submit(). */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/flight.h"
#include "reduce/reduce.h"

#define IN_FLIGHT_MAX 1000000
#define NAME_HOLD_NS  1000000 /* a name is free 1 ms after completion even if nobody asked */

static const char *const kind_titles[HVD_KIND_COUNT] = {
    [HVD_ALLREDUCE] = "Allreduce",        [HVD_ALLGATHER] = "Allgather",
    [HVD_BROADCAST] = "Broadcast",        [HVD_JOIN] = "Join",
    [HVD_ALLTOALL] = "Alltoall",          [HVD_BARRIER] = "Barrier",
    [HVD_REDUCESCATTER] = "Reducescatter"};

static const char *const kind_prefixes[HVD_KIND_COUNT] = {
    [HVD_ALLREDUCE] = "allreduce",        [HVD_ALLGATHER] = "allgather",
    [HVD_BROADCAST] = "broadcast",        [HVD_JOIN] = "join",
    [HVD_ALLTOALL] = "alltoall",          [HVD_BARRIER] = "barrier",
    [HVD_REDUCESCATTER] = "reducescatter"};

/* ---- checks ---- */

#define FLAGS_KNOWN (HVD_OP_AUTO_RELEASE | HVD_OP_NAME_HOLD | HVD_OP_WAITED)

static hvd_status_t check_device(const hvd_tensor_t *tensor, const char *what, struct error *error)
{
    if (tensor->device == HVD_DEVICE_CPU)
        return HVD_OK;
    return error_set(error, HVD_ERR_UNSUPPORTED,
                     "The %s is on device %d, but only host memory (device %d) is supported; copy "
                     "it there first.",
                     what, tensor->device, HVD_DEVICE_CPU);
}

/* A described output must be what will be written; one without a shape is taken on trust. */
static hvd_status_t check_output(const hvd_op_t *op, struct error *error)
{
    const hvd_tensor_t *in = &op->input, *out = &op->output;
    if (op->kind != HVD_ALLREDUCE && op->kind != HVD_BROADCAST)
        return HVD_OK;
    if (out->shape == NULL)
        return HVD_OK;
    if (out->dtype != in->dtype)
        return error_set(error, HVD_ERR_INVALID, "%s from %s into %s: the types must be equal.",
                         kind_titles[op->kind], hvd_dtype_name(in->dtype),
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
                     kind_titles[op->kind], want, have);
}

static hvd_status_t check_shape(const hvd_op_t *op, int64_t *ret_count, struct error *error)
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
                         kind_titles[op->kind]);
    hvd_status_t status = check_device(t, "input", error);
    if (status == HVD_OK && op->output.data != NULL)
        status = check_device(&op->output, "output", error);
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

static hvd_status_t check_kind(const struct engine *engine, const hvd_op_t *op, int32_t set_size,
                               struct error *error)
{
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
    double postscale = op->reduce == HVD_AVERAGE ? op->postscale / set_size : op->postscale;
    if (reduce_check(op->input.dtype, op->reduce == HVD_AVERAGE ? HVD_SUM : op->reduce,
                     op->prescale, postscale) != HVD_OK)
        return error_set(
            error, HVD_ERR_UNSUPPORTED,
            "Scaling or averaging %s tensors is not supported; use op=Sum without scale factors.",
            hvd_dtype_name(op->input.dtype));
    return HVD_OK;
}

/* The set this op goes to, or why it can't. */
static hvd_status_t check_set(struct engine *engine, const hvd_op_t *op, struct procset **ret,
                              int32_t *ret_root, struct error *error)
{
    const char *title = kind_titles[op->kind];
    int32_t id = op->process_set;
    bool is_known = id >= 0 && id < HVD_PROCESS_SETS_MAX && engine->records[id].is_live;
    struct procset *set = is_known ? engine->sets[id] : NULL;
    if (op->kind == HVD_REDUCESCATTER && set == NULL)
        return error_set(error, HVD_ERR_INVALID, "Invalid process set id for this rank: %d", id);
    if (!is_known)
        return error_set(error, HVD_ERR_INVALID,
                         "%s: Process set provided does not exist, or has not been registered.",
                         title);
    if (atomic_load(&engine->is_stopped))
        return error_set(error, engine->stop_status, "%s", engine->stop_text);
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

static uint32_t full_name(struct procset *set, const hvd_op_t *op, uint64_t auto_offset,
                          char *ret_name)
{
    int n;
    if (op->kind == HVD_JOIN || op->kind == HVD_BARRIER)
        n = snprintf(ret_name, HVD_NAME_MAX, "%s.noname", kind_prefixes[op->kind]);
    else if (op->name != NULL && op->name[0] != '\0')
        n = snprintf(ret_name, HVD_NAME_MAX, "%s", op->name);
    else if (set->join_count == 0)
        n = snprintf(ret_name, HVD_NAME_MAX, "%s.noname.%llu", kind_prefixes[op->kind],
                     (unsigned long long)(set->auto_names[op->kind] + auto_offset));
    else
        n = snprintf(ret_name, HVD_NAME_MAX, "%s.noname.%u.%llu", kind_prefixes[op->kind],
                     set->join_count,
                     (unsigned long long)(set->auto_names[op->kind] + auto_offset));
    return n > 0 && n < (int)HVD_NAME_MAX ? (uint32_t)n : 0;
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
    o->flags = op->flags;
    o->prescale = op->prescale;
    o->postscale = op->postscale;
    o->root = root;
    o->device = op->input.device;
    o->in = op->input.data;
    o->out = op->output.data;
    o->count = count;
    o->callback = op->callback;
    o->alloc_result = op->alloc_result;
    o->arg = op->arg;
    if (op->kind == HVD_BARRIER || op->kind == HVD_JOIN) {
        o->dtype = HVD_INT32;
        o->device = HVD_DEVICE_CPU;
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

/* The hold of an earlier ticket on this name has run out: that ticket must not look at it again. */
static void hold_end(struct tensor *tensor)
{
    struct ticket *ticket = tensor->hold;
    for (int32_t i = 0; i < ticket->count; i++)
        if (ticket->ops[i]->tensor == tensor)
            ticket->ops[i]->tensor = NULL;
    tensor->hold = NULL;
}

/* One member: checked, named, filled; not yet queued. */
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
    hvd_status_t status = check_shape(op, &count, error);
    if (status == HVD_OK)
        status = check_set(engine, op, &set, &root, error);
    if (status == HVD_OK)
        status = check_kind(engine, op, set->size, error);
    if (status == HVD_OK && op->kind == HVD_ALLTOALL)
        status = check_splits(op, set->size, error);
    if (status != HVD_OK)
        return status;

    uint64_t auto_offset = 1;
    for (int32_t i = 0; i < index; i++)
        if (ticket->ops[i]->set == set && ticket->ops[i]->kind == op->kind &&
            !ticket->ops[i]->tensor->is_cacheable)
            auto_offset++;
    char name[HVD_NAME_MAX];
    uint32_t n = full_name(set, op, auto_offset, name);
    if (n == 0)
        return error_set(error, HVD_ERR_LIMIT, "The name of the tensor is longer than %u bytes.",
                         HVD_NAME_MAX - 1);
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
    struct op *o = op_take(engine);
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
    tensor->op = o; /* taken: a second member of the same name fails */
    return HVD_OK;
}

static void tensor_drop(struct engine *engine, struct procset *set, struct tensor *tensor)
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
            tensor_drop(engine, o->set, o->tensor);
        }
        op_pool_free(engine, o);
    }
    if (ticket->handle == engine->next_handle)
        engine->next_handle--;
    ticket_pool_free(engine, ticket);
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

hvd_status_t engine_submit(struct engine *engine, const hvd_op_t *ops, size_t count,
                           struct ticket **ret, struct error *error)
{
    if (count == 0 || count > INT32_MAX)
        return error_set(error, HVD_ERR_INVALID, "A group needs at least one tensor.");
    if (atomic_load(&engine->in_flight) + (int64_t)count > IN_FLIGHT_MAX)
        return error_set(error, HVD_ERR_LIMIT,
                         "%d operations are in flight; wait for some of them first.",
                         atomic_load(&engine->in_flight));
    int64_t now_ns = os_now_ns(engine->os);
    pthread_mutex_lock(&engine->submit_lock);
    struct ticket *ticket = ticket_take(engine, (int32_t)count);
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

/* A change of the process sets is an op of the global set; what it carries hangs on `result`. */
hvd_status_t engine_submit_set(struct engine *engine, const int32_t *ranks, int32_t count,
                               int32_t remove_id, struct ticket **ret, struct error *error)
{
    struct procset *set = engine->sets[HVD_PROCESS_SET_GLOBAL];
    if (atomic_load(&engine->is_stopped))
        return error_set(error, engine->stop_status, "%s", engine->stop_text);
    bool is_add = ranks != NULL;
    int32_t *payload = os_alloc(engine->os, (size_t)(is_add ? count : 1) * sizeof *payload + 4);
    if (payload == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    if (is_add)
        memcpy(payload, ranks, (size_t)count * sizeof *payload);
    else
        payload[0] = remove_id;

    pthread_mutex_lock(&engine->submit_lock);
    const char *name = is_add ? "process_set.add" : "process_set.remove";
    struct tensor *tensor = tensor_make(engine, set, name, (uint32_t)strlen(name), true);
    struct ticket *ticket = tensor != NULL && tensor->op == NULL ? ticket_take(engine, 1) : NULL;
    struct op *op = ticket != NULL ? op_take(engine) : NULL;
    if (op != NULL) {
        op->set = set;
        op->ticket = ticket;
        op->tensor = tensor;
        op->kind = is_add ? KIND_SET_ADD : KIND_SET_REMOVE;
        op->splits = payload; /* freed with the op */
        op->count = is_add ? count : 1;
        op->device = HVD_DEVICE_CPU;
        op->prescale = op->postscale = 1.0;
        tensor->op = op;
        ticket->ops[0] = op;
        enqueue(engine, ticket, os_now_ns(engine->os));
    } else if (ticket != NULL) {
        ticket_pool_free(engine, ticket);
    }
    pthread_mutex_unlock(&engine->submit_lock);
    if (op == NULL) {
        os_free(engine->os, payload);
        return error_set(error, HVD_ERR_DUPLICATE,
                         "Another change of the process sets is under way.");
    }
    *ret = ticket;
    return HVD_OK;
}

/* ---- the engine's end of the queue ---- */

void queue_drain(struct engine *engine)
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
                    op->tensor->name);
        negotiate_op(op->set, op);
        op = next;
    }
}

/* ---- handles ---- */

struct ticket *engine_ticket(struct engine *engine, hvd_handle_t handle)
{
    struct ticket *ticket = NULL;
    pthread_mutex_lock(&engine->submit_lock);
    if (handle > 0 && engine->ticket_capacity != 0)
        ticket = engine->tickets[(uint64_t)handle & (engine->ticket_capacity - 1)];
    if (ticket != NULL && ticket->handle != handle)
        ticket = NULL;
    pthread_mutex_unlock(&engine->submit_lock);
    return ticket;
}

static void names_free(struct engine *engine, struct ticket *ticket)
{
    if (!ticket->is_name_held)
        return;
    ticket->is_name_held = false;
    for (int32_t i = 0; i < ticket->count; i++) {
        struct op *o = ticket->ops[i];
        if (o->tensor == NULL || o->tensor->hold != ticket)
            continue;
        o->tensor->hold = NULL;
        tensor_drop(engine, o->set, o->tensor);
        o->tensor = NULL;
    }
}

void engine_ticket_seen(struct engine *engine, struct ticket *ticket)
{
    if (!ticket->is_name_held)
        return;
    pthread_mutex_lock(&engine->submit_lock);
    names_free(engine, ticket);
    pthread_mutex_unlock(&engine->submit_lock);
}

void engine_ticket_release(struct engine *engine, struct ticket *ticket)
{
    pthread_mutex_lock(&engine->submit_lock);
    names_free(engine, ticket);
    for (int32_t i = 0; i < ticket->count; i++)
        op_pool_free(engine, ticket->ops[i]);
    ticket_pool_free(engine, ticket);
    pthread_mutex_unlock(&engine->submit_lock);
}

/* Completion gives the name back, at once or by the PyTorch rule; called by complete.c. */
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
        tensor_drop(engine, op->set, tensor);
    }
    pthread_mutex_unlock(&engine->submit_lock);
}
