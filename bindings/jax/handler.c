/* SPDX-License-Identifier: Apache-2.0 */
/* handler.c - the function that XLA programs call for every collective: buffers into struct hvd_op,
 * submit, and at the end the result or the error into XLA.
 *
 * Where the runtime has futures the handler returns at once and no thread waits: any number of
 * collectives can be in flight, in whatever order XLA starts them. A small one may be over sooner
 * than another thread could wake up: the handler helps the library for a moment, but never sleeps,
 * and after a try in vain it leaves the next ones alone. Elsewhere the call is chained
 * (request.h): the handler blocks, and the program starts one call after the other.
 *
 * Thread: hvd_jax_collective() by any thread of XLA or the caller's own; call_alloc() and
 * call_ended() by a thread of the library; call_finish() by one of finish.h, or by the handler.
 * Invariant: every future is completed exactly once, after the buffers are no longer used.
 * Start reading at hvd_jax_collective(). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clash.h"
#include "finish.h"
#include "request.h"

#define HELPED_BYTES_MAX (64 << 10)
#define HELP_PAUSE       16 /* calls that are not helped after a try in vain */

HVD_API struct ffi_error *hvd_jax_collective(struct ffi_frame *frame);

/* Where a result goes. The program was compiled for its shape; if the collective gives another one,
 * the rows go to scratch memory and the call fails. */
struct output {
    void *data, *scratch;
    size_t element_bytes;
    int32_t ndim;
    int64_t dims[HVD_DIMS_MAX];
};

enum { STAGE_LEFT, STAGE_HELPED, STAGE_ENDED };

struct call {
    struct finish_item item; /* first: the queue hands it back */
    _Atomic int stage;       /* LEFT: the handler has returned, or will without looking again */
    hvd_handle_t handle;     /* of a helped call, to be released by whoever ends it; else 0 */
    const struct ffi_api *api;
    struct ffi_future *future; /* NULL: the handler waits */
    hvd_kind_t kind;
    struct flight flight;
    hvd_status_t status;
    char text[HVD_ERROR_MAX + 16];
    char name[HVD_NAME_MAX];
    size_t count; /* tensors to communicate */
    struct output outputs[];
};

/* The ops of one call and what their descriptions point to; needed until they are submitted. */
struct batch {
    hvd_op_t *ops;
    int64_t (*shapes)[HVD_DIMS_MAX];
    char (*names)[HVD_NAME_MAX];
    int32_t *splits;
};

/* ---- errors ---- */

static struct ffi_error *make_error(const struct ffi_api *api, enum ffi_code code, const char *text)
{
    struct ffi_error_create args = {.size = sizeof args, .message = text, .code = (int32_t)code};
    return api->error_create(&args);
}

static enum ffi_code code_of(hvd_status_t status)
{
    switch (hvd_status_class(status)) {
    case HVD_CLASS_PRECONDITION: return FFI_FAILED_PRECONDITION;
    case HVD_CLASS_ABORTED: return FFI_ABORTED;
    case HVD_CLASS_INVALID_ARGUMENT: return FFI_INVALID_ARGUMENT;
    case HVD_CLASS_OK:
    case HVD_CLASS_UNKNOWN:
    case HVD_CLASS_IN_PROGRESS: return FFI_UNKNOWN;
    }
    return FFI_UNKNOWN;
}

/* What ends the job is marked: elastic training looks for it among JAX' own errors. */
static void call_fail(struct call *call, hvd_status_t status, const char *text)
{
    if (text == NULL || text[0] == '\0')
        text = hvd_status_name(status);
    bool is_marked = code_of(status) == FFI_UNKNOWN && strncmp(text, "Horovod", 7) != 0;
    call->status = status;
    snprintf(call->text, sizeof call->text, "%s%s", is_marked ? "Horovod: " : "", text);
}

static void call_fail_clash(struct call *call)
{
    char text[HVD_ERROR_MAX];
    snprintf(text, sizeof text,
             "Requested to allreduce, allgather, or broadcast a tensor with the same name as "
             "another tensor that is currently being processed.  If you want to request another "
             "tensor, use a different tensor name. (tensor: %.400s; both calls fail, because ranks "
             "may have combined one with the other)",
             call->name);
    call_fail(call, HVD_ERR_DUPLICATE, text);
}

static void print_shape(const int64_t *dims, int32_t ndim, char *ret_text, size_t bytes)
{
    size_t length = 0;
    for (int32_t i = 0; i < ndim && length + 24 < bytes; i++)
        length += (size_t)snprintf(ret_text + length, bytes - length, "%s%lld", i > 0 ? ", " : "",
                                   (long long)dims[i]);
    ret_text[length] = '\0';
}

static void call_fail_shape(struct call *call, const struct output *output, const char *received)
{
    char compiled[200], text[HVD_ERROR_MAX];
    print_shape(output->dims, output->ndim, compiled, sizeof compiled);
    snprintf(text, sizeof text,
             "%.300s: the ranks' rows make an array of shape [%s], but this program was compiled "
             "for [%s]. Inside jit all ranks must pass equally many rows, or say in sizes= (of "
             "alltoall: received_splits=) how many each passes. After the number of ranks has "
             "changed, call jax.clear_caches().",
             call->name, received, compiled);
    call_fail(call, HVD_ERR_MISMATCH, text);
}

/* ---- the end of a call ---- */

static void call_free(struct call *call)
{
    for (size_t i = 0; i < call->count; i++)
        free(call->outputs[i].scratch);
    free(call);
}

static struct ffi_error *call_error(const struct call *call)
{
    if (call->status == HVD_OK)
        return NULL;
    return make_error(call->api, code_of(call->status), call->text);
}

/* May run the rest of the XLA program before it returns. */
static void call_finish(struct finish_item *item)
{
    struct call *call = (struct call *)item;
    const struct ffi_api *api = call->api;
    struct ffi_future *future = call->future;
    struct ffi_error *error = call_error(call);
    call_free(call);
    if (error != NULL) {
        struct ffi_future_error args = {.size = sizeof args, .future = future, .error = error};
        api->future_set_error(&args);
    } else {
        struct ffi_future_available args = {.size = sizeof args, .future = future};
        api->future_set_available(&args);
    }
}

static void call_take_results(struct call *call, hvd_handle_t handle)
{
    for (size_t i = 0; i < call->count; i++) {
        struct output *output = &call->outputs[i];
        if (output->scratch == NULL)
            continue;
        int32_t ndim = 0;
        int64_t dims[HVD_DIMS_MAX];
        char received[200] = "?";
        if (hvd_result_shape(handle, (int32_t)i, &ndim, dims) == HVD_OK)
            print_shape(dims, ndim, received, sizeof received);
        call_fail_shape(call, output, received);
        return;
    }
    if (call->kind == HVD_JOIN) {
        int32_t last = hvd_result_rank(handle);
        memcpy(call->outputs[0].data, &last, sizeof last);
    }
}

/* Everything but telling XLA. */
static void call_conclude(struct call *call, hvd_handle_t handle, hvd_status_t status)
{
    bool has_clashed = clash_leave(&call->flight);
    if (status != HVD_OK)
        call_fail(call, status, hvd_error(handle));
    else if (has_clashed)
        call_fail_clash(call);
    else
        call_take_results(call, handle);
}

static void call_ended(void *arg, hvd_handle_t handle, hvd_status_t status)
{
    struct call *call = arg;
    call_conclude(call, handle, status);
    if (atomic_exchange(&call->stage, STAGE_ENDED) == STAGE_HELPED)
        return; /* the handler does the rest */
    if (call->handle != 0)
        hvd_release(call->handle);
    finish_push(&call->item);
}

/* Memory for output `index`, now that its size is known. */
static void *call_alloc(void *arg, int32_t index, int32_t ndim, const int64_t *shape)
{
    static char nothing[64];
    struct call *call = arg;
    struct output *output = &call->outputs[index];
    size_t bytes = output->element_bytes;
    for (int32_t i = 0; i < ndim; i++)
        bytes *= (size_t)shape[i];
    if (ndim == output->ndim && memcmp(shape, output->dims, (size_t)ndim * sizeof *shape) == 0)
        return bytes > 0 ? output->data : nothing;
    free(output->scratch);
    output->scratch = malloc(bytes + 1);
    return output->scratch;
}

/* ---- from XLA's buffers to struct hvd_op ---- */

static bool buffer_view(const struct ffi_buffer *buffer, int64_t shape[HVD_DIMS_MAX],
                        hvd_tensor_t *ret_view)
{
    int32_t lanes = 1;
    if (!request_dtype(buffer->dtype, &ret_view->dtype, &lanes))
        return false;
    int64_t ndim = buffer->rank + (lanes > 1);
    if (buffer->rank < 0 || ndim > HVD_DIMS_MAX)
        return false;
    if (buffer->rank > 0)
        memcpy(shape, buffer->dims, (size_t)buffer->rank * sizeof *shape);
    if (lanes > 1)
        shape[buffer->rank] = lanes;
    ret_view->data = buffer->data;
    ret_view->shape = shape;
    ret_view->ndim = (int32_t)ndim;
    ret_view->device = HVD_DEVICE_CPU;
    return true;
}

static size_t buffer_bytes(const struct ffi_buffer *buffer)
{
    hvd_tensor_t view;
    int64_t shape[HVD_DIMS_MAX];
    if (!buffer_view(buffer, shape, &view))
        return 0;
    size_t bytes = hvd_dtype_bytes(view.dtype);
    for (int32_t i = 0; i < view.ndim; i++)
        bytes *= (size_t)shape[i];
    return bytes;
}

static bool output_init(struct output *output, const struct ffi_buffer *buffer)
{
    hvd_tensor_t view;
    if (!buffer_view(buffer, output->dims, &view))
        return false;
    output->data = view.data;
    output->ndim = view.ndim;
    output->element_bytes = hvd_dtype_bytes(view.dtype);
    return true;
}

static void op_init(struct call *call, const struct request *request, hvd_op_t *op)
{
    hvd_op_init(op, request->kind);
    bool is_waited = call->future == NULL || atomic_load(&call->stage) == STAGE_HELPED;
    op->flags = HVD_OP_SCALE_EXACT | (is_waited ? HVD_OP_WAITED : HVD_OP_AUTO_RELEASE);
    op->callback = call->future != NULL ? call_ended : NULL;
    op->arg = call;
    /* Joins and barriers have no name: the library numbers them, wherever they are called. */
    bool is_named = request->kind != HVD_JOIN && request->kind != HVD_BARRIER;
    op->name = is_named && call->name[0] != '\0' ? call->name : NULL;
    op->process_set = request->set;
    op->root = request->root;
    op->reduce = request->reduce;
    op->prescale = request->prescale;
    op->postscale = request->postscale;
    op->wire = request->wire;
}

static bool op_set_tensors(struct call *call, size_t index, const struct ffi_frame *frame,
                           int64_t shape[HVD_DIMS_MAX], hvd_op_t *op)
{
    struct output *output = &call->outputs[index];
    if (!buffer_view(frame->arguments.values[index], shape, &op->input) ||
        !output_init(output, frame->results.values[index]))
        return false;
    if (op->input.dtype != HVD_FLOAT32)
        op->wire = HVD_WIRE_SAME;
    if (op->kind == HVD_ALLREDUCE || op->kind == HVD_BROADCAST) {
        op->output = op->input;
        op->output.data = output->data;
    } else {
        op->alloc_result = call_alloc;
    }
    return true;
}

static bool op_set_splits(struct batch *batch, const struct request *request, hvd_op_t *op)
{
    if (request->splits == NULL)
        return true;
    batch->splits = calloc(request->splits_count + 1, sizeof *batch->splits);
    if (batch->splits == NULL)
        return false;
    for (size_t i = 0; i < request->splits_count; i++)
        batch->splits[i] = (int32_t)request->splits[i];
    op->splits = batch->splits;
    op->splits_count = (int32_t)request->splits_count;
    return true;
}

static void batch_free(struct batch *batch)
{
    free(batch->splits);
    free(batch->names);
    free(batch->shapes);
    free(batch->ops);
}

static bool batch_alloc(struct batch *batch, size_t count)
{
    *batch = (struct batch){.ops = calloc(count + 1, sizeof *batch->ops),
                            .shapes = calloc(count + 1, sizeof *batch->shapes),
                            .names = count > 1 ? calloc(count, sizeof *batch->names) : NULL};
    return batch->ops != NULL && batch->shapes != NULL && (count < 2 || batch->names != NULL);
}

static void batch_name(struct batch *batch, const struct call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        int length = snprintf(batch->names[i], HVD_NAME_MAX, "%.990s_%zuof%zu", call->name, i + 1,
                              call->count);
        batch->ops[i].name = length > 0 ? batch->names[i] : NULL;
    }
}

/* Everything up to the submit. False: the call holds the error. */
static bool batch_describe(struct batch *batch, struct call *call, const struct request *request,
                           const struct ffi_frame *frame)
{
    bool has_tensors = request->kind != HVD_JOIN && request->kind != HVD_BARRIER;
    bool has_memory = batch_alloc(batch, call->count);
    for (size_t i = 0; has_memory && (i < call->count || i == 0); i++) {
        op_init(call, request, &batch->ops[i]);
        if (has_tensors && !op_set_tensors(call, i, frame, batch->shapes[i], &batch->ops[i])) {
            call_fail(call, HVD_ERR_INVALID,
                      "Horovod supports neither this type nor more than 16 dimensions.");
            return false;
        }
    }
    if (!has_memory || !op_set_splits(batch, request, &batch->ops[0])) {
        call_fail(call, HVD_ERR_NO_MEMORY, "Horovod: out of memory.");
        return false;
    }
    if (has_tensors && call->count > 1)
        batch_name(batch, call);
    return true;
}

/* ---- submit ---- */

/* False: the call holds the error and is the caller's. True: with a future the call may be gone. */
static bool call_submit(struct call *call, const struct request *request,
                        const struct ffi_frame *frame, hvd_handle_t *ret_handle)
{
    struct batch batch = {0};
    if (!batch_describe(&batch, call, request, frame)) {
        batch_free(&batch);
        return false;
    }
    bool is_group = batch.names != NULL;
    clash_enter(&call->flight);
    hvd_status_t status = is_group ? hvd_submit_group(batch.ops, call->count, ret_handle)
                                   : hvd_submit(batch.ops, ret_handle);
    batch_free(&batch);
    if (status == HVD_OK)
        return true;
    if (status == HVD_ERR_DUPLICATE)
        clash_report(&call->flight);
    clash_leave(&call->flight);
    call_fail(call, status, hvd_last_error());
    return false;
}

static struct ffi_error *run_chained(struct call *call, const struct request *request,
                                     struct ffi_frame *frame)
{
    hvd_handle_t handle = 0;
    if (call_submit(call, request, frame, &handle)) {
        hvd_status_t status = hvd_wait(handle, -1);
        call_conclude(call, handle, status);
        hvd_release(handle);
    }
    struct ffi_error *error = call_error(call);
    call_free(call);
    return error;
}

/* ---- help ---- */

static _Atomic int32_t help_pause; /* calls still to be left alone */

static bool is_help_tried(const struct ffi_frame *frame)
{
    if (atomic_load(&help_pause) > 0) {
        atomic_fetch_sub(&help_pause, 1);
        return false;
    }
    size_t bytes = 0;
    for (int64_t i = 0; i < frame->arguments.count && bytes <= HELPED_BYTES_MAX; i++)
        bytes += buffer_bytes(frame->arguments.values[i]);
    return bytes <= HELPED_BYTES_MAX;
}

static void call_help(struct call *call, hvd_handle_t handle)
{
    call->handle = handle;
    if (hvd_wait(handle, 0) == HVD_ERR_TIMEOUT)
        atomic_store(&help_pause, HELP_PAUSE);
    if (atomic_exchange(&call->stage, STAGE_LEFT) != STAGE_ENDED)
        return; /* the call may be gone */
    hvd_release(handle);
    call_finish(&call->item);
}

static struct ffi_error *run_async(struct call *call, const struct request *request,
                                   struct ffi_frame *frame)
{
    struct ffi_future_create args = {.size = sizeof args};
    struct ffi_error *error = call->api->future_create(&args);
    if (error != NULL) {
        call_free(call);
        return error;
    }
    call->future = args.future;
    frame->future = args.future;
    hvd_handle_t handle = 0;
    bool is_helped = is_help_tried(frame);
    if (is_helped)
        atomic_store(&call->stage, STAGE_HELPED);
    if (!call_submit(call, request, frame, &handle))
        finish_push(&call->item);
    else if (is_helped)
        call_help(call, handle);
    return NULL;
}

/* ---- the handler ---- */

/* A handler must report a minor version that the runtime knows, or JAX does not start. */
static bool answer_query(struct ffi_frame *frame)
{
    if (frame->extension == NULL || frame->extension->type != FFI_EXTENSION_METADATA)
        return false;
    struct ffi_metadata *metadata = ((struct ffi_metadata_query *)frame->extension)->metadata;
    metadata->version.major = 0;
    metadata->version.minor = frame->api != NULL ? frame->api->version.minor : 1;
    metadata->traits = 0;
    return true;
}

static void copy_through(const struct ffi_buffer *from, const struct ffi_buffer *to)
{
    size_t bytes = from->data != to->data ? buffer_bytes(from) : 0;
    if (bytes > 0)
        memcpy(to->data, from->data, bytes);
}

/* Results that do not depend on other ranks: the chain's own, and what passes a barrier. */
static void fill_plain_results(const struct request *request, struct ffi_frame *frame)
{
    if (request->is_chained) {
        const struct ffi_buffer *link = frame->results.values[frame->results.count - 1];
        memset(link->data, 0, sizeof(int32_t));
    }
    int64_t count = frame->arguments.count - request->is_chained;
    for (int64_t i = 0; request->kind == HVD_BARRIER && i < count; i++)
        copy_through(frame->arguments.values[i], frame->results.values[i]);
}

/* Tensors of a call; -1 if arguments and results do not fit. */
static int64_t count_tensors(const struct request *request, const struct ffi_frame *frame)
{
    int64_t inputs = frame->arguments.count - request->is_chained;
    int64_t outputs = frame->results.count - (request->is_chained || request->has_spare);
    if (request->kind == HVD_BARRIER)
        return inputs == outputs ? 0 : -1;
    if (request->kind == HVD_JOIN)
        return inputs == 0 && outputs == 1 ? 1 : -1;
    return inputs == outputs && inputs > 0 ? inputs : -1;
}

static struct call *call_create(const struct request *request, const struct ffi_frame *frame,
                                int64_t count)
{
    struct call *call = calloc(1, sizeof *call + ((size_t)count + 1) * sizeof(struct output));
    if (call == NULL)
        return NULL;
    call->item.run = call_finish;
    call->api = frame->api;
    call->kind = request->kind;
    call->count = (size_t)count;
    memcpy(call->name, request->name.text, request->name.length);
    call->flight.name = call->name;
    call->flight.set = request->set;
    if (request->kind == HVD_JOIN)
        output_init(&call->outputs[0], frame->results.values[0]);
    return call;
}

struct ffi_error *hvd_jax_collective(struct ffi_frame *frame)
{
    struct request request;
    if (answer_query(frame) || frame->stage != FFI_STAGE_EXECUTE)
        return NULL;
    const char *wrong = request_read(&frame->attributes, &request);
    if (wrong != NULL)
        return make_error(frame->api, FFI_INTERNAL, wrong);
    if (request.name.length >= HVD_NAME_MAX)
        return make_error(frame->api, FFI_INVALID_ARGUMENT,
                          "Horovod: the name of a compiled collective is longer than 1023 bytes.");
    int64_t count = count_tensors(&request, frame);
    if (count < 0)
        return make_error(frame->api, FFI_INTERNAL,
                          "Horovod: a compiled collective has too few arguments or results.");
    if (!request.is_chained && frame->api->size < FFI_API_BYTES_FUTURES)
        return make_error(frame->api, FFI_INTERNAL, "Horovod: this jaxlib has no futures.");
    struct call *call = call_create(&request, frame, count);
    if (call == NULL)
        return make_error(frame->api, FFI_RESOURCE_EXHAUSTED, "Horovod: out of memory.");
    fill_plain_results(&request, frame);
    return request.is_chained ? run_chained(call, &request, frame)
                              : run_async(call, &request, frame);
}
