/* SPDX-License-Identifier: Apache-2.0 */
/* results.c - memory of the library handed to Python: results whose size only the op's end tells,
 * and memory that peers on this host can reach. The latter is shared during the library's life; a
 * tensor that dies later, or in a forked child, gives nothing back.
 *
 * Both travel as DLPack capsules: the consumer's tensor points straight at the memory and gives it
 * back with hvd_free() when its last view dies; a capsule nobody consumed gives it back itself.
 * Thread: the caller's, with the GIL; the deleter runs on any thread, with or without it. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

/* The struct and its arrays in one block. */
struct owned {
    struct dlpack_managed managed;
    struct life *life; /* of arena memory; NULL for a result */
    int64_t shape[HVD_DIMS_MAX];
    int64_t strides[HVD_DIMS_MAX];
};

static void life_leave(struct life *life)
{
    if (life != NULL && atomic_fetch_sub(&life->users, 1) == 1)
        free(life);
}

static struct life *life_enter(struct native_state *state)
{
    if (state->life == NULL) {
        state->life = calloc(1, sizeof *state->life);
        if (state->life == NULL)
            return NULL;
        atomic_store(&state->life->users, 1);
    }
    atomic_fetch_add(&state->life->users, 1);
    return state->life;
}

void native_life_end(struct native_state *state)
{
    if (state == NULL || state->life == NULL)
        return;
    atomic_store(&state->life->is_over, true);
    life_leave(state->life);
    state->life = NULL;
}

static void owned_free(struct dlpack_managed *managed)
{
    if (managed == NULL)
        return;
    struct owned *owned = managed->ctx;
    void *data = managed->tensor.data;
    if (owned->life == NULL)
        hvd_free(data);
    else if (!atomic_load(&owned->life->is_over) && hvd_is_shared(data, 1))
        hvd_free(data); /* not in a forked child, which has no arena of its own */
    life_leave(owned->life);
    free(owned);
}

static void capsule_free(PyObject *capsule)
{
    /* A consumer renames the capsule and takes over. */
    if (!PyCapsule_IsValid(capsule, DLPACK_CAPSULE))
        return;
    owned_free(PyCapsule_GetPointer(capsule, DLPACK_CAPSULE));
}

static void dtype_fill(hvd_dtype_t dtype, struct dlpack_tensor *ret)
{
    static const uint8_t codes[HVD_DTYPE_COUNT] = {
        [HVD_UINT8] = DLPACK_UINT,    [HVD_INT8] = DLPACK_INT,        [HVD_UINT16] = DLPACK_UINT,
        [HVD_INT16] = DLPACK_INT,     [HVD_INT32] = DLPACK_INT,       [HVD_INT64] = DLPACK_INT,
        [HVD_FLOAT16] = DLPACK_FLOAT, [HVD_FLOAT32] = DLPACK_FLOAT,   [HVD_FLOAT64] = DLPACK_FLOAT,
        [HVD_BOOL] = DLPACK_BOOL,     [HVD_BFLOAT16] = DLPACK_BFLOAT,
    };
    ret->code = codes[dtype];
    ret->bits = (uint8_t)(hvd_dtype_bytes(dtype) * 8u);
    ret->lanes = 1;
}

/* Takes over `data` and `life`, also when it fails. */
static PyObject *capsule_make(void *data, struct life *life, hvd_dtype_t dtype, int32_t ndim,
                              const int64_t *shape)
{
    struct owned *owned = calloc(1, sizeof *owned);
    if (owned == NULL) {
        hvd_free(data);
        life_leave(life);
        return PyErr_NoMemory();
    }
    owned->life = life;
    memcpy(owned->shape, shape, (size_t)ndim * sizeof *shape);
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        owned->strides[i] = stride;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
    struct dlpack_tensor *t = &owned->managed.tensor;
    t->data = data;
    t->device_type = DLPACK_CPU;
    t->ndim = ndim;
    t->shape = owned->shape;
    t->strides = owned->strides;
    dtype_fill(dtype, t);
    owned->managed.ctx = owned;
    owned->managed.deleter = owned_free;
    PyObject *capsule = PyCapsule_New(&owned->managed, DLPACK_CAPSULE, capsule_free);
    if (capsule == NULL)
        owned_free(&owned->managed);
    return capsule;
}

static bool read_dtype(PyObject *object, hvd_dtype_t *ret_dtype)
{
    long dtype = PyLong_AsLong(object);
    if (dtype == -1 && PyErr_Occurred())
        return false;
    if (dtype < 0 || dtype >= HVD_DTYPE_COUNT) {
        PyErr_SetString(PyExc_ValueError, "unknown dtype number");
        return false;
    }
    *ret_dtype = (hvd_dtype_t)dtype;
    return true;
}

static bool read_handle_and_index(PyObject *const *args, hvd_handle_t *ret_handle,
                                  int32_t *ret_index)
{
    *ret_handle = PyLong_AsLongLong(args[0]);
    long index = PyLong_AsLong(args[1]);
    if (PyErr_Occurred())
        return false;
    *ret_index = (int32_t)index;
    return true;
}

PyObject *native_result(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    hvd_handle_t handle;
    hvd_dtype_t dtype;
    int32_t index, ndim = 0;
    int64_t shape[HVD_DIMS_MAX] = {0};
    if (!native_check_count(count, 3, "result") || !read_handle_and_index(args, &handle, &index) ||
        !read_dtype(args[2], &dtype))
        return NULL;
    hvd_status_t status = hvd_result_shape(handle, index, &ndim, shape);
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    return capsule_make(hvd_result_take(handle, index), NULL, dtype, ndim, shape);
}

PyObject *native_result_splits(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    hvd_handle_t handle;
    int32_t index;
    if (!native_check_count(count, 3, "result_splits") ||
        !read_handle_and_index(args, &handle, &index))
        return NULL;
    Py_ssize_t n = PyLong_AsSsize_t(args[2]);
    if (n < 0)
        return PyErr_Occurred() ? NULL : PyList_New(0);
    int32_t *splits = PyMem_Malloc(((size_t)n + 1) * sizeof *splits);
    if (splits == NULL)
        return PyErr_NoMemory();
    hvd_status_t status = hvd_result_splits(handle, index, splits);
    PyObject *list = NULL;
    if (status != HVD_OK)
        (void)native_raise(native_state(module), status, hvd_last_error());
    else
        list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLong(splits[i]);
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    PyMem_Free(splits);
    return list;
}

PyObject *native_result_rank(PyObject *module, PyObject *object)
{
    (void)module;
    hvd_handle_t handle = PyLong_AsLongLong(object);
    if (handle == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(hvd_result_rank(handle));
}

PyObject *native_alloc(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    hvd_dtype_t dtype;
    if (!native_check_count(count, 2, "alloc") || !read_dtype(args[0], &dtype))
        return NULL;
    Py_ssize_t ndim = PySequence_Size(args[1]);
    if (ndim < 0 || ndim > HVD_DIMS_MAX) {
        PyErr_SetString(PyExc_ValueError, "alloc() takes a shape");
        return NULL;
    }
    int64_t shape[HVD_DIMS_MAX] = {0};
    size_t bytes = hvd_dtype_bytes(dtype);
    for (Py_ssize_t i = 0; i < ndim; i++) {
        PyObject *item = PySequence_GetItem(args[1], i);
        shape[i] = item != NULL ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (size_t)shape[i], &bytes)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "negative or too large shape");
            return NULL;
        }
    }
    void *data = bytes > 0 ? hvd_alloc(bytes) : NULL;
    if (data != NULL && !hvd_is_shared(data, bytes)) {
        hvd_free(data); /* nobody to share with: the framework's own memory is as good */
        data = NULL;
    }
    if (data == NULL)
        Py_RETURN_NONE;
    struct life *life = life_enter(native_state(module));
    if (life == NULL) {
        hvd_free(data);
        return PyErr_NoMemory();
    }
    return capsule_make(data, life, dtype, (int32_t)ndim, shape);
}

PyObject *native_is_shared(PyObject *module, PyObject *object)
{
    struct tensor_view view;
    if (!tensor_read(native_state(module), object, &view))
        return NULL;
    size_t bytes = hvd_dtype_bytes(view.tensor.dtype);
    for (int32_t i = 0; i < view.tensor.ndim; i++)
        bytes *= (size_t)view.tensor.shape[i];
    return PyBool_FromLong(hvd_is_shared(view.tensor.data, bytes));
}
