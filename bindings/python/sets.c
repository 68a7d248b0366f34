/* SPDX-License-Identifier: Apache-2.0 */
/* sets.c - process sets: add and remove (collective, they block and release the GIL), and ask.
 *
 * Thread: the caller's.  Start reading at native_process_set_add(). */
#include "native.h"

int32_t *native_read_ranks(PyObject *ranks, int32_t *ret_count)
{
    Py_ssize_t n = PyList_Size(ranks);
    if (n < 0)
        return NULL;
    int32_t *array = PyMem_Malloc(((size_t)n + 1) * sizeof *array);
    if (array == NULL)
        return (int32_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        long value = PyLong_AsLong(PyList_GetItem(ranks, i));
        if (value < INT32_MIN || value > INT32_MAX)
            PyErr_SetString(PyExc_OverflowError, "number does not fit 32 bits");
        if (PyErr_Occurred()) {
            PyMem_Free(array);
            return NULL;
        }
        array[i] = (int32_t)value;
    }
    *ret_count = (int32_t)n;
    return array;
}

/* The number that a call has given, or the exception of its status. */
static PyObject *number_or_raise(PyObject *module, hvd_status_t status, int32_t number)
{
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    return PyLong_FromLong(number);
}

static PyObject *begin(PyObject *module, PyObject *ranks,
                       hvd_status_t (*function)(const int32_t *, int32_t, int32_t *))
{
    int32_t count = 0, id = -1;
    int32_t *array = native_read_ranks(ranks, &count);
    if (array == NULL)
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = function(array, count, &id);
    Py_END_ALLOW_THREADS;
    PyMem_Free(array);
    return number_or_raise(module, status, id);
}

PyObject *native_process_set_add(PyObject *module, PyObject *ranks)
{
    return begin(module, ranks, hvd_process_set_add);
}

PyObject *native_process_set_open(PyObject *module, PyObject *ranks)
{
    return begin(module, ranks, hvd_process_set_open);
}

static bool read_id(PyObject *object, int32_t *ret_id)
{
    long id = PyLong_AsLong(object);
    if (id == -1 && PyErr_Occurred())
        return false;
    *ret_id = id < INT32_MIN || id > INT32_MAX ? -1 : (int32_t)id;
    return true;
}

static PyObject *end(PyObject *module, PyObject *object, hvd_status_t (*function)(int32_t))
{
    int32_t id;
    if (!read_id(object, &id))
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = function(id);
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    Py_RETURN_NONE;
}

PyObject *native_process_set_close(PyObject *module, PyObject *object)
{
    return end(module, object, hvd_process_set_close);
}

PyObject *native_process_set_remove(PyObject *module, PyObject *object)
{
    return end(module, object, hvd_process_set_remove);
}

static PyObject *ask(PyObject *module, PyObject *object,
                     hvd_status_t (*question)(int32_t id, int32_t *ret_value))
{
    int32_t id, value = -1;
    if (!read_id(object, &id))
        return NULL;
    hvd_status_t status = question(id, &value);
    return number_or_raise(module, status, value);
}

PyObject *native_process_set_rank(PyObject *module, PyObject *id)
{
    return ask(module, id, hvd_process_set_rank);
}

PyObject *native_process_set_size(PyObject *module, PyObject *id)
{
    return ask(module, id, hvd_process_set_size);
}

/* The ranks of one set as a new list; NULL with an exception. */
static PyObject *list_ranks(PyObject *module, int32_t id)
{
    int32_t size = 0;
    hvd_status_t status = hvd_process_set_size(id, &size);
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    int32_t *ranks = PyMem_Malloc(((size_t)size + 1) * sizeof *ranks);
    if (ranks == NULL)
        return PyErr_NoMemory();
    PyObject *list = NULL;
    status = hvd_process_set_ranks(id, ranks);
    if (status != HVD_OK)
        (void)native_raise(native_state(module), status, hvd_last_error());
    else
        list = PyList_New(size);
    for (int32_t i = 0; list != NULL && i < size; i++) {
        PyObject *item = PyLong_FromLong(ranks[i]);
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    PyMem_Free(ranks);
    return list;
}

PyObject *native_process_sets(PyObject *module, PyObject *unused)
{
    (void)unused;
    int32_t ids[HVD_PROCESS_SETS_MAX];
    int32_t count = hvd_process_set_count();
    if (!hvd_is_initialized())
        return native_raise(native_state(module), HVD_ERR_NOT_INITIALIZED,
                            "Horovod has not been initialized; use hvd.init().");
    hvd_process_set_ids(ids);
    PyObject *dict = PyDict_New();
    for (int32_t i = 0; dict != NULL && i < count; i++) {
        PyObject *key = PyLong_FromLong(ids[i]);
        PyObject *ranks = key != NULL ? list_ranks(module, ids[i]) : NULL;
        if (ranks == NULL || PyDict_SetItem(dict, key, ranks) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(ranks);
        Py_XDECREF(key);
    }
    return dict;
}
