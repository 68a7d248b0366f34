/* SPDX-License-Identifier: Apache-2.0 */
/* push.c - a collective as an asynchronous operation of MXNet's engine.
 *
 * Python pushes a call and goes on. The engine runs call_run() once everything that was pushed
 * earlier and touches the same arrays has ended; call_run() submits the call and returns, so no
 * thread of MXNet waits for other ranks. The library's callback completes the operation, and only
 * then may later operations on those arrays run.
 *
 * All collectives here work in place: every array is written to. The address of an array is asked
 * for in call_run(), not when it is pushed, because an operation that still waits may allocate the
 * memory, move it, or leave it in a layout of oneDNN.
 *
 * Thread: hvd_mxnet_push() by the user's, call_run() and call_delete() by any of MXNet,
 * call_ended() by one of the library. Owner of a call: the engine, which deletes it when it is
 * completed; nobody touches a call after handing it to the library or completing it. Invariant:
 * each call that runs is completed exactly once. Start reading at hvd_mxnet_push(). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clash.h"
#include "horovod/hvd.h"
#include "mx_api.h"

struct member {
    mx_array array; /* ours: a shallow copy */
    char *name;
    hvd_dtype_t dtype;
    int32_t ndim;
    int64_t dims[HVD_DIMS_MAX];
};

struct call {
    struct mx_done done;
    struct flight flight; /* of the first name, which stands for the group */
    hvd_kind_t kind;
    hvd_reduce_t reduce;
    int32_t set, root;
    double prescale, postscale;
    size_t count;
    struct member members[];
};

/* Loads what is needed of the libmxnet at this path. NULL, or what is missing. */
HVD_API const char *hvd_mxnet_load(const char *path);
HVD_API void hvd_mxnet_leave(void); /* from now on operations end without an error */
/* Pushes one collective on `count` arrays, which become ready together; names holds one for each.
 * NULL, or why nothing was pushed; that text is valid until the thread's next call. */
HVD_API const char *hvd_mxnet_push(int32_t kind, const char *const *names, int32_t set,
                                   int32_t reduce, double prescale, double postscale, int32_t root,
                                   int32_t priority, mx_array *arrays, int32_t count);

const char *hvd_mxnet_load(const char *path)
{
    return mx_api_load(path);
}

/* ---- what an array is ---- */

static _Thread_local char refusal[HVD_ERROR_MAX];

static bool dtype_of(int type, hvd_dtype_t *ret_dtype)
{
    static const struct {
        int type;
        hvd_dtype_t dtype;
    } rows[] = {{MX_FLOAT32, HVD_FLOAT32}, {MX_FLOAT64, HVD_FLOAT64}, {MX_FLOAT16, HVD_FLOAT16},
                {MX_UINT8, HVD_UINT8},     {MX_INT32, HVD_INT32},     {MX_INT8, HVD_INT8},
                {MX_INT64, HVD_INT64},     {MX_BOOL, HVD_BOOL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type) {
            *ret_dtype = rows[i].dtype;
            return true;
        }
    return false;
}

static bool refuse(const char *name, const char *text)
{
    snprintf(refusal, sizeof refusal, "%.400s: %.500s", name, text);
    return false;
}

static bool member_check_kind(mx_array array, const char *name)
{
    int type = 0, id = 0, storage = MX_STORAGE_DENSE;
    if (mx.NDArrayGetContext(array, &type, &id) != 0 ||
        mx.NDArrayGetStorageType(array, &storage) != 0)
        return refuse(name, mx.GetLastError());
    if (storage != MX_STORAGE_DENSE)
        return refuse(name, "Horovod moves dense arrays only; convert it with tostype('default').");
    if (type != MX_CPU && type != MX_CPU_PINNED && type != MX_CPU_SHARED)
        return refuse(name, "Horovod moves arrays in host memory only; copy it with "
                            "as_in_context(mx.cpu()).");
    return mx_chunk(array) != NULL || refuse(name, "the array has no memory.");
}

static bool member_read_shape(struct member *member)
{
    int ndim = -1, is_numpy = 0;
    const int64_t *dims = NULL;
    if (mx.NDArrayGetShapeEx64(member->array, &ndim, &dims) != 0 || mx.IsNumpyShape(&is_numpy) != 0)
        return refuse(member->name, mx.GetLastError());
    if (ndim < 0 || ndim > HVD_DIMS_MAX)
        return refuse(member->name,
                      "the array's shape is not known, or has more than 16 dimensions.");
    member->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        member->dims[i] = dims[i];
    /* Without NumPy's rules an array without dimensions has no elements. */
    if (ndim == 0 && !is_numpy)
        member->ndim = 1;
    return true;
}

static bool member_fill(struct member *member, mx_array array, const char *name)
{
    int type = -1;
    member->name = strdup(name);
    if (member->name == NULL)
        return refuse(name, "out of memory");
    if (!member_check_kind(array, name))
        return false;
    if (mx.NDArrayGetDType(array, &type) != 0 || mx.ShallowCopyNDArray(array, &member->array) != 0)
        return refuse(name, mx.GetLastError());
    if (!dtype_of(type, &member->dtype)) {
        char text[80];
        snprintf(text, sizeof text, "MXNet's type number %d is not supported in MPI mode.", type);
        return refuse(name, text);
    }
    return member_read_shape(member);
}

/* ---- a call's life ---- */

static void call_delete(void *arg)
{
    struct call *call = arg;
    for (size_t i = 0; call != NULL && i < call->count; i++) {
        if (call->members[i].array != NULL)
            mx.NDArrayFree(call->members[i].array);
        free(call->members[i].name);
    }
    free(call);
}

/* The process exits: nobody will look at results or errors any more. MXNet 1.9 collects the errors
 * of operations without a lock, and crashes if its own threads report one at the same time. */
static atomic_bool is_leaving;

void hvd_mxnet_leave(void)
{
    atomic_store(&is_leaving, true);
}

/* Ends the call, which is gone then. */
static void call_complete(struct call *call, const char *text)
{
    struct mx_done done = call->done;
    mx_complete(&done, atomic_load(&is_leaving) ? NULL : text);
}

/* The texts that scripts know where the library has a word only. */
static const char *describe(hvd_status_t status, const char *text)
{
    if (text != NULL && text[0] != '\0' && strcmp(text, hvd_status_name(status)) != 0)
        return text;
    if (status == HVD_ERR_SHUTDOWN)
        return "Horovod has been shut down. This was caused by an exception on one of the ranks or "
               "an attempt to allreduce, allgather or broadcast a tensor after one of the ranks "
               "finished execution.";
    if (status == HVD_ERR_NOT_INITIALIZED)
        return "Horovod has not been initialized; use hvd.init().";
    return hvd_status_name(status);
}

static void call_ended(void *arg, hvd_handle_t handle, hvd_status_t status)
{
    struct call *call = arg;
    char text[HVD_ERROR_MAX];
    bool has_clashed = clash_leave(&call->flight);
    if (status != HVD_OK) {
        call_complete(call, describe(status, hvd_error(handle)));
    } else if (has_clashed) {
        clash_describe(&call->flight, text, sizeof text);
        call_complete(call, text);
    } else {
        call_complete(call, NULL);
    }
}

/* False: MXNet can't give the memory of the array. */
static bool member_describe(const struct member *member, const struct call *call, hvd_op_t *op)
{
    if (mx.chunk_lay_out != NULL)
        mx.chunk_lay_out(mx_chunk(member->array));
    hvd_op_init(op, call->kind);
    op->flags = HVD_OP_AUTO_RELEASE | HVD_OP_SCALE_EXACT;
    op->name = member->name;
    op->process_set = call->set;
    op->reduce = call->reduce;
    op->prescale = call->prescale;
    op->postscale = call->postscale;
    op->root = call->root;
    op->callback = call_ended;
    op->arg = (void *)(uintptr_t)call;
    op->input.shape = member->dims;
    op->input.ndim = member->ndim;
    op->input.dtype = member->dtype;
    op->input.device = HVD_DEVICE_CPU;
    if (mx.NDArrayGetData(member->array, &op->input.data) != 0)
        return false;
    op->output = op->input;
    return true;
}

/* By a thread of MXNet's engine: what was pushed earlier on these arrays has ended. */
static void call_run(void *run_context, void *done, void *param)
{
    (void)run_context;
    struct call *call = param;
    memcpy(&call->done, done, sizeof call->done);
    hvd_op_t *ops = calloc(call->count, sizeof *ops);
    const char *why = ops != NULL ? NULL : "out of memory";
    for (size_t i = 0; why == NULL && i < call->count; i++)
        if (!member_describe(&call->members[i], call, &ops[i]))
            why = mx.GetLastError();
    if (why == NULL) {
        hvd_handle_t handle;
        clash_enter(&call->flight);
        /* From here on the call may be gone, if the submit succeeds. */
        hvd_status_t status = call->count == 1 ? hvd_submit(ops, &handle)
                                               : hvd_submit_group(ops, call->count, &handle);
        if (status == HVD_OK)
            goto free_ops;
        if (status == HVD_ERR_DUPLICATE)
            clash_report(&call->flight);
        clash_leave(&call->flight);
        why = describe(status, hvd_last_error());
    }
    call_complete(call, why);
free_ops:
    free(ops);
}

static struct call *call_create(int32_t kind, const char *const *names, mx_array *arrays,
                                int32_t count)
{
    struct call *call = calloc(1, sizeof *call + (size_t)count * sizeof call->members[0]);
    if (call == NULL) {
        refuse(names[0], "out of memory");
        return NULL;
    }
    call->kind = (hvd_kind_t)kind;
    call->count = (size_t)count;
    for (int32_t i = 0; i < count; i++)
        if (!member_fill(&call->members[i], arrays[i], names[i])) {
            call_delete(call);
            return NULL;
        }
    return call;
}

/* The engine waits for ever if one array, or two views of one, are listed twice. */
static int list_distinct(const struct call *call, mx_array *ret_arrays)
{
    int found = 0;
    for (size_t i = 0; i < call->count; i++) {
        int k = 0;
        while (k < found && mx_chunk(ret_arrays[k]) != mx_chunk(call->members[i].array))
            k++;
        if (k == found)
            ret_arrays[found++] = call->members[i].array;
    }
    return found;
}

static const char *engine_name(int32_t kind)
{
    return kind == HVD_BROADCAST ? "horovod_broadcast" : "horovod_allreduce";
}

const char *hvd_mxnet_push(int32_t kind, const char *const *names, int32_t set, int32_t reduce,
                           double prescale, double postscale, int32_t root, int32_t priority,
                           mx_array *arrays, int32_t count)
{
    static const struct mx_context context = {.type = MX_CPU, .id = 0};
    static const int property = MX_CPU_PRIORITIZED;
    struct call *call = call_create(kind, names, arrays, count);
    mx_array *written = call != NULL ? calloc((size_t)count, sizeof(mx_array)) : NULL;
    if (written == NULL) {
        if (call != NULL)
            refuse(names[0], "out of memory");
        call_delete(call);
        return refusal;
    }
    call->reduce = (hvd_reduce_t)reduce;
    call->set = set;
    call->root = root;
    call->prescale = prescale;
    call->postscale = postscale;
    call->flight = (struct flight){.name = call->members[0].name, .set = set};
    int written_count = list_distinct(call, written);
    /* The engine owns the call from here on, also if this fails. */
    int rc = mx.EnginePushAsyncND(call_run, call, call_delete, &context, NULL, 0, written,
                                  written_count, &property, priority, engine_name(kind), false);
    free(written);
    if (rc == 0)
        return NULL;
    snprintf(refusal, sizeof refusal, "%.1000s", mx.GetLastError());
    return refusal;
}
