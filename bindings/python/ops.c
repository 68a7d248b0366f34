/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - submit an op or a group of them, ask whether it has ended, wait for it.
 *
 * Thread: the caller's. Submitting and polling keep the GIL (they never block); waiting releases it
 * and looks for signals ten times a second, so that Ctrl-C works while peers are slow.
 * Invariant: a handle whose op failed is released here, after its text went into the exception.
 * Start reading at native_submit(). */
#include <time.h>

#include "native.h"

#define SIGNAL_CHECK_MS 100

/* ---- arguments ---- */

static bool read_int(PyObject *object, int32_t *ret_value)
{
    long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred())
        return false;
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "number does not fit 32 bits");
        return false;
    }
    *ret_value = (int32_t)value;
    return true;
}

static bool read_double(PyObject *object, double *ret_value)
{
    *ret_value = PyFloat_AsDouble(object);
    return *ret_value != -1.0 || !PyErr_Occurred();
}

static bool read_name(PyObject *object, const char **ret_name)
{
    *ret_name = NULL;
    if (object == Py_None)
        return true;
    *ret_name = PyUnicode_AsUTF8AndSize(object, NULL);
    return *ret_name != NULL;
}

static bool read_kind(PyObject *object, hvd_op_t *op)
{
    int32_t kind;
    if (!read_int(object, &kind))
        return false;
    hvd_op_init(op, (hvd_kind_t)kind);
    return true;
}

/* What single ops and groups have in common: set, reduction, scales. */
static bool read_common(PyObject *const *args, hvd_op_t *op)
{
    int32_t reduce;
    if (!read_int(args[0], &op->process_set) || !read_int(args[1], &reduce) ||
        !read_double(args[2], &op->prescale) || !read_double(args[3], &op->postscale))
        return false;
    op->reduce = (hvd_reduce_t)reduce;
    return true;
}

/* Flags of an op, and the type in which it travels if it is float32. */
static bool read_flags(PyObject *object, hvd_op_t *op)
{
    int32_t bits;
    if (!read_int(object, &bits))
        return false;
    op->flags = ((uint32_t)bits & ((1u << NATIVE_WIRE_SHIFT) - 1)) | HVD_OP_SCALE_EXACT;
    op->wire = (hvd_wire_t)((uint32_t)bits >> NATIVE_WIRE_SHIFT);
    return true;
}

static bool read_tensors(struct native_state *state, PyObject *input, PyObject *output,
                         struct tensor_view views[2], hvd_op_t *op)
{
    if (input == Py_None)
        return true;
    if (!tensor_read(state, input, &views[0]))
        return false;
    op->input = views[0].tensor;
    if (op->input.dtype != HVD_FLOAT32)
        op->wire = HVD_WIRE_SAME;
    if (output == Py_None)
        return true;
    if (output == input) {
        op->output = op->input;
        return true;
    }
    if (!tensor_read(state, output, &views[1]))
        return false;
    op->output = views[1].tensor;
    return true;
}

/* An int32 vector as it lies in memory, or a list of ints, which the caller frees. */
static bool read_splits(struct native_state *state, PyObject *splits, hvd_op_t *op,
                        int32_t **ret_owned)
{
    *ret_owned = NULL;
    if (splits == Py_None)
        return true;
    if (PyList_Check(splits)) {
        *ret_owned = native_read_ranks(splits, &op->splits_count);
        op->splits = *ret_owned;
        return *ret_owned != NULL;
    }
    struct tensor_view view;
    if (!tensor_read(state, splits, &view))
        return false;
    if (view.tensor.ndim != 1 || view.tensor.dtype != HVD_INT32) {
        PyErr_SetString(PyExc_ValueError, "splits must be a vector of 32-bit integers");
        return false;
    }
    op->splits = view.tensor.data;
    op->splits_count = (int32_t)view.tensor.shape[0];
    return true;
}

/* ---- submit ---- */

static PyObject *give_handle(struct native_state *state, hvd_status_t status, hvd_handle_t handle)
{
    if (status != HVD_OK)
        return native_raise(state, status, hvd_last_error());
    return PyLong_FromLongLong(handle);
}

PyObject *native_submit(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct native_state *state = native_state(module);
    struct tensor_view views[2];
    hvd_op_t op;
    int32_t *owned_splits = NULL;
    if (!native_check_count(count, 11, "submit") || !read_kind(args[0], &op) ||
        !read_name(args[1], &op.name) || !read_common(args + 2, &op) ||
        !read_int(args[6], &op.root) || !read_flags(args[10], &op) ||
        !read_tensors(state, args[7], args[8], views, &op) ||
        !read_splits(state, args[9], &op, &owned_splits))
        return NULL;
    if ((op.flags & NATIVE_TOLD) != 0) {
        op.flags &= ~(uint32_t)NATIVE_TOLD;
        op.callback = native_told_put;
        op.arg = native_told_queue(state);
        if (op.arg == NULL) {
            PyMem_Free(owned_splits);
            return NULL;
        }
    }
    hvd_handle_t handle = 0;
    hvd_status_t status = hvd_submit(&op, &handle);
    PyMem_Free(owned_splits);
    return give_handle(state, status, handle);
}

struct group {
    hvd_op_t *ops;
    struct tensor_view (*views)[2];
    Py_ssize_t count;
};

/* Member i of a list, borrowed; None stands for a list of None. */
static PyObject *member(PyObject *list, Py_ssize_t i)
{
    return list == Py_None ? Py_None : PyList_GetItem(list, i);
}

static bool group_fill(struct native_state *state, struct group *group, const hvd_op_t *common,
                       PyObject *names, PyObject *inputs, PyObject *outputs)
{
    for (Py_ssize_t i = 0; i < group->count; i++) {
        hvd_op_t *op = &group->ops[i];
        *op = *common;
        PyObject *name = member(names, i), *output = member(outputs, i);
        if (name == NULL || output == NULL || !read_name(name, &op->name) ||
            !read_tensors(state, PyList_GetItem(inputs, i), output, group->views[i], op))
            return false;
    }
    return true;
}

static bool group_check_lists(PyObject *names, PyObject *inputs, PyObject *outputs)
{
    if (PyList_Check(inputs) && (names == Py_None || PyList_Check(names)) &&
        (outputs == Py_None || PyList_Check(outputs)))
        return true;
    PyErr_SetString(PyExc_TypeError, "submit_group() takes lists");
    return false;
}

/* What the ops of one call have in common: the kind, the four arguments of read_common(), flags. */
static bool read_shared(PyObject *kind, PyObject *const *common, PyObject *flags, hvd_op_t *ret)
{
    return read_kind(kind, ret) && read_common(common, ret) && read_flags(flags, ret);
}

PyObject *native_submit_group(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct native_state *state = native_state(module);
    hvd_op_t common;
    if (!native_check_count(count, 9, "submit_group") ||
        !read_shared(args[0], args + 2, args[8], &common) ||
        !group_check_lists(args[1], args[6], args[7]))
        return NULL;
    struct group group = {.count = PyList_Size(args[6])};
    size_t n = (size_t)group.count;
    group.ops = PyMem_Malloc((n + 1) * sizeof *group.ops);
    group.views = PyMem_Malloc((n + 1) * sizeof *group.views);
    PyObject *result = NULL;
    if (group.ops == NULL || group.views == NULL) {
        (void)PyErr_NoMemory();
        goto free_group;
    }
    if (!group_fill(state, &group, &common, args[1], args[6], args[7]))
        goto free_group;
    hvd_handle_t handle = 0;
    hvd_status_t status = hvd_submit_group(group.ops, n, &handle);
    result = give_handle(state, status, handle);
free_group:
    PyMem_Free(group.views);
    PyMem_Free(group.ops);
    return result;
}

/* The ops of a round are independent of each other, unlike those of a group: another rank may hand
 * them over one by one, or in another order. */
PyObject *native_submit_each(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct native_state *state = native_state(module);
    hvd_op_t common;
    if (!native_check_count(count, 9, "submit_each") ||
        !read_shared(args[1], args + 3, args[8], &common))
        return NULL;
    if (!PyList_Check(args[0]) || !PyList_Check(args[2]) || !PyList_Check(args[7])) {
        PyErr_SetString(PyExc_TypeError, "submit_each() takes lists");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(args[7]); i++) {
        struct tensor_view views[2];
        hvd_op_t op = common;
        hvd_handle_t handle = 0;
        PyObject *name = PyList_GetItem(args[2], i), *tensor = PyList_GetItem(args[7], i);
        if (name == NULL || !read_name(name, &op.name) ||
            !read_tensors(state, tensor, tensor, views, &op))
            return NULL;
        hvd_status_t status = hvd_submit(&op, &handle);
        PyObject *number = give_handle(state, status, handle);
        int rc = number != NULL ? PyList_Append(args[0], number) : -1;
        Py_XDECREF(number);
        if (rc < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- the end of an op ---- */

static bool read_handle(PyObject *object, hvd_handle_t *ret_handle)
{
    *ret_handle = PyLong_AsLongLong(object);
    return *ret_handle != -1 || !PyErr_Occurred();
}

PyObject *native_poll(PyObject *module, PyObject *object)
{
    (void)module;
    hvd_handle_t handle;
    if (!read_handle(object, &handle))
        return NULL;
    return PyBool_FromLong(hvd_poll(handle) != HVD_IN_PROGRESS);
}

PyObject *native_status(PyObject *module, PyObject *object)
{
    (void)module;
    hvd_handle_t handle;
    if (!read_handle(object, &handle))
        return NULL;
    return PyLong_FromLong((long)hvd_poll(handle));
}

/* IN_PROGRESS with an exception set if a signal's handler raised. */
static hvd_status_t wait_with_signals(struct native_state *state, hvd_handle_t handle)
{
    struct native_wait wait = {.handle = handle};
    hvd_status_t status;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS;
        status = hvd_wait(handle, SIGNAL_CHECK_MS);
        Py_END_ALLOW_THREADS;
        if (status != HVD_ERR_TIMEOUT && status != HVD_IN_PROGRESS)
            break;
        status = HVD_IN_PROGRESS;
        if (PyErr_CheckSignals() != 0)
            break;
        native_wait_slow(state, &wait);
    }
    if (wait.slices > 0)
        native_wait_done(state, &wait);
    return status;
}

/* OK, or what went wrong with an exception set; IN_PROGRESS: the op goes on. */
static hvd_status_t wait_for(PyObject *module, PyObject *object, bool is_released)
{
    hvd_handle_t handle;
    if (!read_handle(object, &handle))
        return HVD_IN_PROGRESS;
    hvd_status_t status = wait_with_signals(native_state(module), handle);
    if (status == HVD_IN_PROGRESS)
        return status;
    if (status != HVD_OK) {
        const char *text = hvd_error(handle);
        (void)native_raise(native_state(module), status, text[0] != '\0' ? text : hvd_last_error());
    }
    if (status != HVD_OK || is_released)
        hvd_release(handle);
    return status;
}

PyObject *native_wait(PyObject *module, PyObject *handle)
{
    return wait_for(module, handle, false) == HVD_OK ? Py_NewRef(Py_None) : NULL;
}

PyObject *native_finish(PyObject *module, PyObject *handle)
{
    return wait_for(module, handle, true) == HVD_OK ? Py_NewRef(Py_None) : NULL;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for one; IN_PROGRESS: the time is over, or a signal's handler raised. */
static hvd_status_t wait_until(hvd_handle_t handle, int64_t deadline_ms)
{
    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        hvd_status_t status;
        Py_BEGIN_ALLOW_THREADS;
        status = hvd_wait(handle, left_ms < 0                 ? 0
                                  : left_ms < SIGNAL_CHECK_MS ? left_ms
                                                              : SIGNAL_CHECK_MS);
        Py_END_ALLOW_THREADS;
        if (status != HVD_ERR_TIMEOUT && status != HVD_IN_PROGRESS)
            return status;
        if (PyErr_CheckSignals() != 0 || left_ms <= 0)
            return HVD_IN_PROGRESS;
    }
}

PyObject *native_have_ended(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (!native_check_count(count, 2, "have_ended"))
        return NULL;
    int64_t limit_ms = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "have_ended() takes a list");
        return NULL;
    }
    int64_t deadline_ms = now_ms() + limit_ms;
    for (Py_ssize_t i = 0; i < PyList_Size(args[0]); i++) {
        hvd_handle_t handle;
        if (!read_handle(PyList_GetItem(args[0], i), &handle))
            return NULL;
        if (wait_until(handle, deadline_ms) == HVD_IN_PROGRESS)
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    Py_RETURN_TRUE;
}

/* The first error of several; the others are left running only if a signal's handler raised. */
PyObject *native_finish_each(PyObject *module, PyObject *handles)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    if (!PyList_Check(handles)) {
        PyErr_SetString(PyExc_TypeError, "finish_each() takes a list");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(handles); i++) {
        hvd_status_t status = wait_for(module, PyList_GetItem(handles, i), true);
        if (status == HVD_OK)
            continue;
        if (status == HVD_IN_PROGRESS)
            goto interrupted;
        if (type == NULL)
            PyErr_Fetch(&type, &value, &traceback);
        else
            PyErr_Clear();
    }
    if (type == NULL)
        Py_RETURN_NONE;
    PyErr_Restore(type, value, traceback);
    return NULL;
interrupted:
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return NULL;
}

PyObject *native_release(PyObject *module, PyObject *object)
{
    (void)module;
    hvd_handle_t handle;
    if (!read_handle(object, &handle))
        return NULL;
    hvd_release(handle);
    Py_RETURN_NONE;
}
