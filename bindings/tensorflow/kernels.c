/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - what the ops do: tensors into struct hvd_op, submit, and at the end the result or the
 * error into TensorFlow.
 *
 * A kernel object belongs to one node of a graph and is called once per run of that node. A call
 * lives from the kernel's start to its done callback; it holds the tensors. No thread ever waits
 * here: hundreds of collectives can be in flight on two threads.
 *
 * Thread: collective_compute() by a thread of TensorFlow; call_alloc() and call_ended() by a thread
 * of the library. Invariant: done runs exactly once per call, after every tensor handle is deleted.
 * A call's name is the same on all ranks and says which iteration of which loop it is
 * (call_set_name()); two calls in flight under one name both fail (clash.h).
 * Start reading at collective_compute(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clash.h"
#include "done.h"
#include "ops.h"

static const char not_initialized[] = "Horovod has not been initialized; use hvd.init().";

struct kernel {
    const struct op_row *row;
    int32_t reduce, root, set, wire;
    float prescale, postscale;
    char name[]; /* of the node, as the other ranks know it */
};

struct shape {
    int32_t ndim;
    int64_t dims[HVD_DIMS_MAX];
};

/* The ops of one call and what their descriptions point to; needed until they are submitted. */
struct batch {
    hvd_op_t *ops;
    struct shape *shapes;
    char (*names)[HVD_NAME_MAX];
};

struct call {
    struct kernel *kernel;
    TF_OpKernelContext *context;
    struct done done;
    struct flight flight; /* holds the call's name */
    char *own_name;       /* NULL: the kernel's name serves */
    int count;            /* tensors to communicate */
    TF_Tensor *splits;    /* alltoall */
    TF_Tensor **inputs;   /* count; NULL where the output took the input's memory */
    TF_Tensor *outputs[];
};

/* ---- errors ---- */

static void context_fail(TF_OpKernelContext *context, TF_Code code, const char *text)
{
    TF_Status *status = tf.NewStatus();
    tf.SetStatus(status, code, text);
    tf.OpKernelContext_Failure(context, status);
    tf.DeleteStatus(status);
}

static TF_Code code_of(hvd_status_t status)
{
    switch (hvd_status_class(status)) {
    case HVD_CLASS_OK: return TF_OK;
    case HVD_CLASS_PRECONDITION: return TF_FAILED_PRECONDITION;
    case HVD_CLASS_ABORTED: return TF_ABORTED;
    case HVD_CLASS_INVALID_ARGUMENT: return TF_INVALID_ARGUMENT;
    case HVD_CLASS_UNKNOWN:
    case HVD_CLASS_IN_PROGRESS: return TF_UNKNOWN;
    }
    return TF_UNKNOWN;
}

/* What ends the job is marked: elastic training looks for it among TensorFlow's own errors. */
static void context_fail_status(TF_OpKernelContext *context, hvd_status_t status, const char *text)
{
    char marked[HVD_ERROR_MAX + 16];
    TF_Code code = code_of(status);
    if (text == NULL || text[0] == '\0')
        text = hvd_status_name(status);
    if (code == TF_UNKNOWN && strncmp(text, "Horovod", 7) != 0) {
        snprintf(marked, sizeof marked, "Horovod: %s", text);
        text = marked;
    }
    context_fail(context, code, text);
}

/* ---- tensors ---- */

static bool dtype_of(TF_DataType type, hvd_dtype_t *ret_dtype)
{
    static const struct {
        TF_DataType type;
        hvd_dtype_t dtype;
    } rows[] = {{TF_FLOAT, HVD_FLOAT32}, {TF_DOUBLE, HVD_FLOAT64},   {TF_INT32, HVD_INT32},
                {TF_UINT8, HVD_UINT8},   {TF_INT16, HVD_INT16},      {TF_INT8, HVD_INT8},
                {TF_INT64, HVD_INT64},   {TF_BOOL, HVD_BOOL},        {TF_UINT16, HVD_UINT16},
                {TF_HALF, HVD_FLOAT16},  {TF_BFLOAT16, HVD_BFLOAT16}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type) {
            *ret_dtype = rows[i].dtype;
            return true;
        }
    return false;
}

/* The memory of a tensor; false if it has too many dimensions or a type we don't move. */
static bool tensor_view(const TF_Tensor *tensor, struct shape *ret_shape, hvd_tensor_t *ret_view)
{
    int ndim = tf.NumDims(tensor);
    if (ndim < 0 || ndim > HVD_DIMS_MAX || !dtype_of(tf.TensorType(tensor), &ret_view->dtype))
        return false;
    ret_shape->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        ret_shape->dims[i] = tf.Dim(tensor, i);
    ret_view->data = tf.TensorData(tensor);
    ret_view->shape = ret_shape->dims;
    ret_view->ndim = ndim;
    ret_view->device = HVD_DEVICE_CPU;
    return true;
}

static void tensor_drop(TF_Tensor **tensor)
{
    if (*tensor != NULL)
        tf.DeleteTensor(*tensor);
    *tensor = NULL;
}

/* ---- a call's life ---- */

/* The name that Python gave to the eager call it is about to make; empty: none. An eager call runs
 * its kernel in the thread of its caller. */
static _Thread_local char eager_name[HVD_NAME_MAX + 2];

void kernels_name_eager(const char *name)
{
    /* A name that is too long stays too long: the library reports it. */
    snprintf(eager_name, sizeof eager_name, "%s", name != NULL ? name : "");
}

static bool is_eager(const struct kernel *kernel)
{
    return strcmp(kernel->name, kernel->row->name) == 0;
}

/* The frame of a loop and the iteration in it; false outside of loops. TensorFlow computes a
 * frame's number from the names of the loops around it and their iterations, so all ranks that run
 * the same graph get the same one. */
static bool loop_of(TF_OpKernelContext *context, uint64_t *ret_frame, int64_t *ret_iteration)
{
    if (tf.GetFrameId == NULL || tf.GetIterId == NULL)
        return false;
    *ret_frame = tf.GetFrameId(context);
    *ret_iteration = tf.GetIterId(context);
    return *ret_frame != 0 && *ret_frame != UINT64_MAX && *ret_iteration >= 0;
}

/* Iterations of a loop run side by side, so each has a name of its own. */
static bool call_set_name(struct call *call)
{
    const struct kernel *kernel = call->kernel;
    uint64_t frame;
    int64_t iteration;
    call->flight.name = kernel->name;
    if ((kernel->row->traits & OP_IS_PLAIN) != 0)
        return true;
    if (is_eager(kernel)) {
        if (eager_name[0] != '\0')
            call->own_name = strdup(eager_name);
        else
            return true;
    } else if (loop_of(call->context, &frame, &iteration)) {
        size_t bytes = strlen(kernel->name) + 48;
        call->own_name = malloc(bytes);
        if (call->own_name != NULL)
            snprintf(call->own_name, bytes, "%s@%016llx.%lld", kernel->name,
                     (unsigned long long)frame, (long long)iteration);
    } else {
        return true;
    }
    call->flight.name = call->own_name;
    return call->own_name != NULL;
}

static void call_free(struct call *call)
{
    free(call->own_name);
    free(call);
}

static struct call *call_create(struct kernel *kernel, TF_OpKernelContext *context, int count)
{
    size_t handles = (size_t)count * 2 * sizeof(TF_Tensor *);
    struct call *call = calloc(1, sizeof *call + handles);
    if (call == NULL)
        return NULL;
    call->kernel = kernel;
    call->context = context;
    call->count = count;
    call->inputs = call->outputs + count;
    call->flight.set = kernel->set;
    if (call_set_name(call))
        return call;
    call_free(call);
    return NULL;
}

/* Ends the call and frees it. */
static void call_finish(struct call *call)
{
    for (int i = 0; i < call->count; i++) {
        tensor_drop(&call->inputs[i]);
        tensor_drop(&call->outputs[i]);
    }
    tensor_drop(&call->splits);
    done_run(&call->done);
    call_free(call);
}

static bool call_give_int(struct call *call, int output, const int32_t *values, int64_t count,
                          bool is_scalar)
{
    TF_Status *status = tf.NewStatus();
    size_t bytes = (size_t)count * sizeof *values;
    TF_Tensor *tensor = tf.AllocateOutput(call->context, output, TF_INT32, &count,
                                          is_scalar ? 0 : 1, bytes, status);
    bool is_ok = tensor != NULL && tf.GetCode(status) == TF_OK;
    if (is_ok && bytes > 0)
        memcpy(tf.TensorData(tensor), values, bytes);
    else if (!is_ok)
        tf.OpKernelContext_Failure(call->context, status);
    tensor_drop(&tensor);
    tf.DeleteStatus(status);
    return is_ok;
}

static void call_give_splits(struct call *call, hvd_handle_t handle)
{
    int32_t size = 0;
    hvd_status_t status = hvd_process_set_size(call->kernel->set, &size);
    int32_t *received = status == HVD_OK ? calloc((size_t)size + 1, sizeof *received) : NULL;
    if (received != NULL)
        status = hvd_result_splits(handle, 0, received);
    if (received != NULL && status == HVD_OK)
        call_give_int(call, 1, received, size, false);
    else
        context_fail_status(call->context, status == HVD_OK ? HVD_ERR_NO_MEMORY : status, "");
    free(received);
}

/* What is known only at the end: who joined last, the rows received. */
static void call_give_rest(struct call *call, hvd_handle_t handle)
{
    int32_t value = 0;
    switch (call->kernel->row->kind) {
    case HVD_JOIN:
        value = hvd_result_rank(handle);
        call_give_int(call, 0, &value, 1, true);
        break;
    case HVD_BARRIER: call_give_int(call, 0, &value, 1, true); break;
    case HVD_ALLTOALL: call_give_splits(call, handle); break;
    case HVD_ALLREDUCE:
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_REDUCESCATTER:
    case HVD_KIND_COUNT: break;
    }
}

static void call_fail_clash(struct call *call)
{
    char text[HVD_ERROR_MAX];
    clash_describe(&call->flight, text, sizeof text);
    context_fail_status(call->context, HVD_ERR_DUPLICATE, text);
}

static void call_ended(void *arg, hvd_handle_t handle, hvd_status_t status)
{
    struct call *call = arg;
    bool has_clashed = clash_leave(&call->flight);
    if (status != HVD_OK)
        context_fail_status(call->context, status, hvd_error(handle));
    else if (has_clashed)
        call_fail_clash(call);
    else
        call_give_rest(call, handle);
    call_finish(call);
}

/* Memory for output `index`, now that its size is known. */
static void *call_alloc(void *arg, int32_t index, int32_t ndim, const int64_t *shape)
{
    struct call *call = arg;
    TF_Tensor *input = call->inputs[index];
    size_t bytes = 0;
    hvd_dtype_t dtype;
    if (dtype_of(tf.TensorType(input), &dtype))
        bytes = hvd_dtype_bytes(dtype);
    for (int32_t i = 0; i < ndim; i++)
        bytes *= (size_t)shape[i];
    TF_Status *status = tf.NewStatus();
    tensor_drop(&call->outputs[index]);
    call->outputs[index] =
        tf.AllocateOutput(call->context, index, tf.TensorType(input), shape, ndim, bytes, status);
    if (tf.GetCode(status) != TF_OK)
        tensor_drop(&call->outputs[index]);
    tf.DeleteStatus(status);
    return call->outputs[index] != NULL ? tf.TensorData(call->outputs[index]) : NULL;
}

/* ---- from the kernel's inputs to struct hvd_op ---- */

static void op_init(struct call *call, hvd_op_t *op)
{
    const struct kernel *kernel = call->kernel;
    hvd_op_init(op, kernel->row->kind);
    op->flags = HVD_OP_AUTO_RELEASE;
    op->arg = call;
    op->name = call->flight.name;
    op->process_set = kernel->set;
    op->root = kernel->root;
    op->callback = call_ended;
    if ((kernel->row->traits & OP_REDUCES) == 0)
        return;
    op->reduce = (hvd_reduce_t)kernel->reduce;
    op->prescale = (double)kernel->prescale;
    op->postscale = (double)kernel->postscale;
    op->wire = (hvd_wire_t)kernel->wire;
    op->flags |= HVD_OP_SCALE_EXACT;
}

/* Allreduce, broadcast: into the input's own memory if nobody else needs it. */
static void call_prepare_output(struct call *call, int i, const struct shape *shape, hvd_op_t *op,
                                TF_Status *status)
{
    bool is_root = op->kind == HVD_BROADCAST && op->root == hvd_rank();
    if (is_root) {
        tf.SetOutput(call->context, i, call->inputs[i], status);
        op->output = op->input;
        return;
    }
    /* Our own handle counts as a user of the memory. */
    tensor_drop(&call->inputs[i]);
    int taken = -1;
    call->outputs[i] = tf.ForwardInputOrAllocateOutput(call->context, &i, 1, i, shape->dims,
                                                       shape->ndim, &taken, status);
    if (tf.GetCode(status) != TF_OK)
        return;
    op->output = op->input;
    op->output.data = tf.TensorData(call->outputs[i]);
    if (taken < 0) {
        tf.GetInput(call->context, i, &call->inputs[i], status);
        if (tf.GetCode(status) == TF_OK)
            op->input.data = tf.TensorData(call->inputs[i]);
    } else {
        op->input.data = op->output.data;
    }
}

static void call_prepare(struct call *call, int i, struct shape *shape, hvd_op_t *op,
                         TF_Status *status)
{
    const struct kernel *kernel = call->kernel;
    op_init(call, op);
    tf.GetInput(call->context, i, &call->inputs[i], status);
    if (tf.GetCode(status) != TF_OK)
        return;
    if (!tensor_view(call->inputs[i], shape, &op->input)) {
        tf.SetStatus(status, TF_INVALID_ARGUMENT,
                     "Horovod supports neither this type nor more than 16 dimensions.");
        return;
    }
    if ((kernel->row->traits & OP_KEEPS_SHAPE) != 0)
        call_prepare_output(call, i, shape, op, status);
    else
        op->alloc_result = call_alloc;
}

static void call_prepare_splits(struct call *call, hvd_op_t *op, TF_Status *status)
{
    tf.GetInput(call->context, 1, &call->splits, status);
    if (tf.GetCode(status) != TF_OK)
        return;
    if (tf.NumDims(call->splits) != 1) {
        tf.SetStatus(status, TF_INVALID_ARGUMENT, "alltoall expects a 1D splits tensor");
        return;
    }
    op->splits_count = (int32_t)tf.Dim(call->splits, 0);
    op->splits = tf.TensorData(call->splits);
}

/* ---- submit ---- */

static void batch_free(struct batch *batch)
{
    free(batch->names);
    free(batch->shapes);
    free(batch->ops);
}

static bool batch_alloc(struct batch *batch, size_t count, bool is_group)
{
    *batch = (struct batch){.ops = calloc(count, sizeof *batch->ops),
                            .shapes = calloc(count, sizeof *batch->shapes)};
    if (is_group)
        batch->names = calloc(count, sizeof *batch->names);
    return batch->ops != NULL && batch->shapes != NULL && (!is_group || batch->names != NULL);
}

static void batch_name(struct batch *batch, const struct call *call)
{
    for (int i = 0; i < call->count; i++) {
        int length = snprintf(batch->names[i], HVD_NAME_MAX, "%s_%dof%d", call->flight.name, i + 1,
                              call->count);
        if (length > 0 && length < (int)HVD_NAME_MAX)
            batch->ops[i].name = batch->names[i];
    }
}

static bool batch_fill(struct batch *batch, struct call *call)
{
    TF_Status *status = tf.NewStatus();
    for (int i = 0; i < call->count && tf.GetCode(status) == TF_OK; i++)
        call_prepare(call, i, &batch->shapes[i], &batch->ops[i], status);
    if (call->kernel->row->kind == HVD_ALLTOALL && tf.GetCode(status) == TF_OK)
        call_prepare_splits(call, &batch->ops[0], status);
    bool is_ok = tf.GetCode(status) == TF_OK;
    if (!is_ok)
        tf.OpKernelContext_Failure(call->context, status);
    tf.DeleteStatus(status);
    return is_ok;
}

/* Everything up to the submit. False: the context holds the error. */
static bool batch_describe(struct batch *batch, struct call *call, bool is_group)
{
    size_t count = call->count > 0 ? (size_t)call->count : 1;
    if (!batch_alloc(batch, count, is_group)) {
        context_fail(call->context, TF_RESOURCE_EXHAUSTED, "Out of memory.");
        return false;
    }
    if (call->count == 0) {
        op_init(call, batch->ops);
        return true;
    }
    if (!batch_fill(batch, call))
        return false;
    if (is_group)
        batch_name(batch, call);
    return true;
}

/* True: the library has it, and it may have ended already. False: the context holds the error. */
static bool call_submit(struct call *call)
{
    struct batch batch;
    hvd_handle_t handle;
    bool is_group = (call->kernel->row->traits & OP_IS_GROUP) != 0;
    bool is_described = batch_describe(&batch, call, is_group);
    hvd_status_t status = HVD_OK;
    if (is_described) {
        size_t count = (size_t)call->count;
        clash_enter(&call->flight);
        /* From here on the call may be gone, if the submit succeeds. */
        status =
            is_group ? hvd_submit_group(batch.ops, count, &handle) : hvd_submit(batch.ops, &handle);
    }
    batch_free(&batch);
    if (!is_described || status == HVD_OK)
        return is_described;
    if (status == HVD_ERR_DUPLICATE)
        clash_report(&call->flight);
    clash_leave(&call->flight);
    context_fail_status(call->context, status, hvd_last_error());
    return false;
}

static void collective_compute(void *object, TF_OpKernelContext *context,
                               TF_AsyncOpKernelDoneCallback *callback)
{
    struct kernel *kernel = object;
    struct done done;
    done_take(&done, callback);
    bool is_plain = (kernel->row->traits & OP_IS_PLAIN) != 0;
    int count = is_plain ? 0 : kernel->row->kind == HVD_ALLTOALL ? 1 : tf.NumInputs(context);
    struct call *call = hvd_is_initialized() ? call_create(kernel, context, count) : NULL;
    if (call == NULL) {
        if (hvd_is_initialized())
            context_fail(context, TF_RESOURCE_EXHAUSTED, "Out of memory.");
        else
            context_fail(context, TF_FAILED_PRECONDITION, not_initialized);
        done_run(&done);
        return;
    }
    call->done = done;
    if (!call_submit(call))
        call_finish(call);
}

/* ---- kernel objects ---- */

static void read_attributes(struct kernel *kernel, TF_OpKernelConstruction *construction,
                            TF_Status *status)
{
    uint32_t traits = kernel->row->traits;
    if ((traits & OP_REDUCES) != 0) {
        tf.OpKernelConstruction_GetAttrInt32(construction, "reduce_op", &kernel->reduce, status);
        tf.OpKernelConstruction_GetAttrFloat(construction, "prescale_factor", &kernel->prescale,
                                             status);
        tf.OpKernelConstruction_GetAttrFloat(construction, "postscale_factor", &kernel->postscale,
                                             status);
    }
    if ((traits & OP_HAS_WIRE) != 0)
        tf.OpKernelConstruction_GetAttrInt32(construction, "wire", &kernel->wire, status);
    if ((traits & OP_HAS_ROOT) != 0)
        tf.OpKernelConstruction_GetAttrInt32(construction, "root_rank", &kernel->root, status);
    if ((traits & OP_HAS_SET) != 0)
        tf.OpKernelConstruction_GetAttrInt32(construction, "process_set_id", &kernel->set, status);
}

static TF_StringView read_name(const struct op_row *row, TF_OpKernelConstruction *construction,
                               TF_Status *status)
{
    TF_StringView name = tf.OpKernelConstruction_GetName(construction);
    unsigned char is_scope_ignored = 0;
    if ((row->traits & OP_HAS_SCOPE) != 0)
        tf.OpKernelConstruction_GetAttrBool(construction, "ignore_name_scope", &is_scope_ignored,
                                            status);
    if (!is_scope_ignored)
        return name;
    for (size_t i = name.len; i > 0; i--)
        if (name.data[i - 1] == '/')
            return (TF_StringView){name.data + i, name.len - i};
    return name;
}

static void collective_delete(void *object)
{
    free(object);
}

static void *collective_create(const struct op_row *row, TF_OpKernelConstruction *construction)
{
    TF_Status *status = tf.NewStatus();
    TF_StringView name = read_name(row, construction, status);
    struct kernel *kernel = calloc(1, sizeof *kernel + name.len + 1);
    if (kernel == NULL) {
        tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "Out of memory.");
        goto check_status;
    }
    kernel->row = row;
    memcpy(kernel->name, name.data, name.len);
    if (tf.GetCode(status) == TF_OK)
        read_attributes(kernel, construction, status);
check_status:
    if (tf.GetCode(status) != TF_OK) {
        tf.OpKernelConstruction_Failure(construction, status);
        collective_delete(kernel);
        kernel = NULL;
    }
    tf.DeleteStatus(status);
    return kernel;
}

/* TensorFlow does not tell a constructor which op it is for, so each row has its own. */
#define CREATE(index)                                                                              \
    static void *create_##index(TF_OpKernelConstruction *construction)                             \
    {                                                                                              \
        return collective_create(&definitions_rows()[index], construction);                        \
    }
CREATE(0)
CREATE(1)
CREATE(2)
CREATE(3)
CREATE(4)
CREATE(5)
CREATE(6)
CREATE(7)
CREATE(8)
CREATE(9)

static const tf_create_fn creators[] = {create_0, create_1, create_2, create_3, create_4,
                                        create_5, create_6, create_7, create_8, create_9};

/* ---- questions: answered at once ---- */

static void *question_create(TF_OpKernelConstruction *construction)
{
    int32_t *set = calloc(1, sizeof *set);
    if (set == NULL)
        return NULL;
    TF_Status *status = tf.NewStatus();
    tf.OpKernelConstruction_GetAttrInt32(construction, "process_set_id", set, status);
    tf.DeleteStatus(status); /* not every question has it; the global set then */
    return set;
}

static void question_answer(TF_OpKernelContext *context, int32_t value)
{
    if (!hvd_is_initialized()) {
        context_fail(context, TF_FAILED_PRECONDITION, not_initialized);
        return;
    }
    struct call call = {.context = context};
    call_give_int(&call, 0, &value, 1, true);
}

enum { SET_UNKNOWN = -3 }; /* the answer that scripts know for a set that does not exist */

static void size_compute(void *object, TF_OpKernelContext *context)
{
    const int32_t *set = object;
    int32_t size = 0;
    if (hvd_process_set_size(set != NULL ? *set : 0, &size) != HVD_OK)
        size = SET_UNKNOWN;
    question_answer(context, size);
}

static void included_compute(void *object, TF_OpKernelContext *context)
{
    const int32_t *set = object;
    int32_t id = set != NULL ? *set : 0, size = 0, rank = 0;
    int32_t answer = hvd_process_set_rank(id, &rank) == HVD_OK;
    if (hvd_process_set_size(id, &size) != HVD_OK)
        answer = SET_UNKNOWN;
    question_answer(context, answer);
}

static void local_size_compute(void *object, TF_OpKernelContext *context)
{
    (void)object;
    question_answer(context, hvd_local_size());
}

static void rank_compute(void *object, TF_OpKernelContext *context)
{
    (void)object;
    question_answer(context, hvd_rank());
}

static void local_rank_compute(void *object, TF_OpKernelContext *context)
{
    (void)object;
    question_answer(context, hvd_local_rank());
}

static const struct {
    const char *name;
    tf_compute_fn compute;
} questions[] = {{"HorovodSize", size_compute},
                 {"HorovodProcessSetIncluded", included_compute},
                 {"HorovodLocalSize", local_size_compute},
                 {"HorovodRank", rank_compute},
                 {"HorovodLocalRank", local_rank_compute}};

/* ---- registration ---- */

static const char *add(const char *name, TF_KernelBuilder *builder, char *ret_text,
                       size_t text_bytes)
{
    TF_Status *status = tf.NewStatus();
    tf.RegisterKernelBuilder(name, builder, status);
    const char *error = NULL;
    if (tf.GetCode(status) != TF_OK) {
        snprintf(ret_text, text_bytes, "kernel %s: %s", name, tf.Message(status));
        error = ret_text;
    }
    tf.DeleteStatus(status);
    return error;
}

const char *kernels_register(char *ret_text, size_t text_bytes)
{
    const char *error = NULL;
    const struct op_row *rows = definitions_rows();
    for (size_t i = 0; i < sizeof creators / sizeof creators[0] && error == NULL; i++)
        error = add(rows[i].name,
                    tf.NewAsyncKernelBuilder(rows[i].name, "CPU", creators[i], collective_compute,
                                             collective_delete),
                    ret_text, text_bytes);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0] && error == NULL; i++)
        error = add(questions[i].name,
                    tf.NewKernelBuilder(questions[i].name, "CPU", question_create,
                                        questions[i].compute, free),
                    ret_text, text_bytes);
    return error;
}
