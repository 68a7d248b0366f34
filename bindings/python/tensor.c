/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - a Python object to a view of its memory: address, dtype, shape.
 *
 * Three doors, tried in this order: the C table that a registered type offers (PyTorch; no Python
 * code runs), a tuple (address, dtype, shape) made by the caller, and NumPy's __array_interface__.
 * Invariant: a view is dense, row by row, in host memory and of a dtype the library knows; for
 * anything else TensorError is raised and the Python side decides what to do.
 * Start reading at tensor_read(). */
#include "native.h"

#include <string.h>

static bool refuse(struct native_state *state, const char *text)
{
    PyErr_SetString(state->tensor_error, text);
    return false;
}

/* A tensor without elements is dense, whatever its strides are. */
static bool has_elements(int32_t ndim, const int64_t *shape)
{
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return false;
    return true;
}

/* Strides of dimensions of size 1 mean nothing, except that views with odd ones are better copied
 * by their framework (it knows about lazily negated memory). */
static bool is_dense(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    if (strides == NULL || !has_elements(ndim, shape))
        return true;
    int64_t expected = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (shape[i] != 1 && strides[i] != expected)
            return false;
        expected *= shape[i];
    }
    return true;
}

static bool dtype_of(unsigned code, unsigned bits, hvd_dtype_t *ret_dtype)
{
    static const struct {
        uint8_t code, bits;
        hvd_dtype_t dtype;
    } rows[] = {
        {DLPACK_FLOAT, 32, HVD_FLOAT32}, {DLPACK_INT, 64, HVD_INT64},
        {DLPACK_FLOAT, 16, HVD_FLOAT16}, {DLPACK_BFLOAT, 16, HVD_BFLOAT16},
        {DLPACK_FLOAT, 64, HVD_FLOAT64}, {DLPACK_INT, 32, HVD_INT32},
        {DLPACK_UINT, 8, HVD_UINT8},     {DLPACK_INT, 8, HVD_INT8},
        {DLPACK_INT, 16, HVD_INT16},     {DLPACK_UINT, 16, HVD_UINT16},
        {DLPACK_BOOL, 8, HVD_BOOL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].code == code && rows[i].bits == bits) {
            *ret_dtype = rows[i].dtype;
            return true;
        }
    }
    return false;
}

/* ---- a registered type ---- */

static bool read_exchange(struct native_state *state, dlpack_read_t read, PyObject *object,
                          struct tensor_view *ret_view)
{
    struct dlpack_tensor t;
    if (read(object, &t) != 0) {
        PyErr_Clear();
        return refuse(state, "Tensor has no plain memory.");
    }
    hvd_tensor_t *out = &ret_view->tensor;
    if (t.device_type != DLPACK_CPU && t.device_type != DLPACK_CUDA_HOST)
        return refuse(state, "Tensor is not in host memory.");
    if (t.lanes != 1 || !dtype_of(t.code, t.bits, &out->dtype))
        return refuse(state, "Tensor type is not supported.");
    if (!is_dense(t.ndim, t.shape, t.strides))
        return refuse(state, "Tensor is required to be contiguous.");
    out->data = t.data != NULL ? (char *)t.data + t.offset_bytes : NULL;
    out->shape = t.shape;
    out->ndim = t.ndim;
    out->device = HVD_DEVICE_CPU;
    return true;
}

static dlpack_read_t find_read(const struct native_state *state, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < state->exchange_count; i++)
        if (PyType_IsSubtype(type, (PyTypeObject *)state->exchanges[i].type))
            return state->exchanges[i].read;
    return NULL;
}

/* ---- (address, dtype, shape) ---- */

static bool read_shape(struct native_state *state, PyObject *shape, struct tensor_view *ret_view)
{
    Py_ssize_t ndim = PySequence_Size(shape);
    if (ndim < 0)
        return false;
    if (ndim > HVD_DIMS_MAX)
        return refuse(state, "Tensor has too many dimensions.");
    for (Py_ssize_t i = 0; i < ndim; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        if (item == NULL)
            return false;
        ret_view->shape[i] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (ret_view->shape[i] == -1 && PyErr_Occurred())
            return false;
    }
    ret_view->tensor.shape = ret_view->shape;
    ret_view->tensor.ndim = (int32_t)ndim;
    ret_view->tensor.device = HVD_DEVICE_CPU;
    return true;
}

static bool read_tuple(struct native_state *state, PyObject *tuple, struct tensor_view *ret_view)
{
    if (PyTuple_Size(tuple) != 3) {
        PyErr_SetString(PyExc_TypeError, "a tensor tuple is (address, dtype, shape)");
        return false;
    }
    ret_view->tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, 0));
    if (ret_view->tensor.data == NULL && PyErr_Occurred())
        return false;
    long dtype = PyLong_AsLong(PyTuple_GetItem(tuple, 1));
    if (dtype == -1 && PyErr_Occurred())
        return false;
    if (dtype < 0 || dtype >= HVD_DTYPE_COUNT)
        return refuse(state, "Tensor type is not supported.");
    ret_view->tensor.dtype = (hvd_dtype_t)dtype;
    return read_shape(state, PyTuple_GetItem(tuple, 2), ret_view);
}

/* ---- __array_interface__ ---- */

/* "<f4": byte order, kind, bytes. */
static bool read_typestr(PyObject *typestr, hvd_dtype_t *ret_dtype)
{
    const char *text =
        typestr != NULL && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
    if (text == NULL || strlen(text) != 3 || text[0] == '>' || text[2] < '1' || text[2] > '8')
        return false;
    unsigned bits = (unsigned)(text[2] - '0') * 8u;
    switch (text[1]) {
    case 'f': return dtype_of(DLPACK_FLOAT, bits, ret_dtype);
    case 'i': return dtype_of(DLPACK_INT, bits, ret_dtype);
    case 'u': return dtype_of(DLPACK_UINT, bits, ret_dtype);
    case 'b': return dtype_of(DLPACK_BOOL, bits, ret_dtype);
    default: return false;
    }
}

static bool has_dense_strides(PyObject *strides, const struct tensor_view *view)
{
    if (strides == NULL || strides == Py_None || !has_elements(view->tensor.ndim, view->shape))
        return true;
    int64_t expected = (int64_t)hvd_dtype_bytes(view->tensor.dtype);
    for (int32_t i = view->tensor.ndim - 1; i >= 0; i--) {
        PyObject *item = PySequence_GetItem(strides, i);
        int64_t stride = item != NULL ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (view->shape[i] != 1 && stride != expected)
            return false;
        expected *= view->shape[i];
    }
    return true;
}

static bool read_interface(struct native_state *state, PyObject *interface,
                           struct tensor_view *ret_view)
{
    if (!PyDict_Check(interface))
        return refuse(state, "__array_interface__ is not a dict.");
    PyObject *data = PyDict_GetItemString(interface, "data");
    PyObject *shape = PyDict_GetItemString(interface, "shape");
    if (data == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2 || shape == NULL)
        return refuse(state, "Array has no plain memory.");
    ret_view->tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (ret_view->tensor.data == NULL && PyErr_Occurred())
        return false;
    if (!read_typestr(PyDict_GetItemString(interface, "typestr"), &ret_view->tensor.dtype))
        return refuse(state, "Tensor type is not supported.");
    if (!read_shape(state, shape, ret_view))
        return false;
    if (!has_dense_strides(PyDict_GetItemString(interface, "strides"), ret_view)) {
        PyErr_Clear();
        return refuse(state, "Tensor is required to be contiguous.");
    }
    return true;
}

bool tensor_read(struct native_state *state, PyObject *object, struct tensor_view *ret_view)
{
    dlpack_read_t read = find_read(state, object);
    if (read != NULL)
        return read_exchange(state, read, object, ret_view);
    if (PyTuple_Check(object))
        return read_tuple(state, object, ret_view);
    PyObject *interface = PyObject_GetAttr(object, state->array_interface);
    if (interface == NULL) {
        PyErr_Clear();
        return refuse(state, "Object is not a tensor.");
    }
    bool is_read = read_interface(state, interface, ret_view);
    Py_DECREF(interface);
    return is_read;
}

PyObject *native_register_exchange(PyObject *module, PyObject *type)
{
    struct native_state *state = native_state(module);
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "register_exchange() takes a type");
        return NULL;
    }
    for (int i = 0; i < state->exchange_count; i++)
        if (state->exchanges[i].type == type)
            Py_RETURN_TRUE;
    PyObject *capsule = PyObject_GetAttrString(type, DLPACK_EXCHANGE_NAME);
    const struct dlpack_exchange *table =
        capsule != NULL ? PyCapsule_GetPointer(capsule, DLPACK_EXCHANGE_CAPSULE) : NULL;
    Py_XDECREF(capsule);
    PyErr_Clear();
    while (table != NULL && table->major != DLPACK_MAJOR)
        table = table->previous;
    if (table == NULL || table->read == NULL || state->exchange_count == EXCHANGE_TYPES_MAX)
        Py_RETURN_FALSE;
    state->exchanges[state->exchange_count].type = Py_NewRef(type);
    state->exchanges[state->exchange_count].read = table->read;
    state->exchange_count++;
    Py_RETURN_TRUE;
}
