/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - the rendezvous store for Python: serving one, and talking to one.
 *
 * Servers and clients are capsules that end with their last reference. Blobs are bytes objects and
 * nothing here looks into them.
 * Thread: the caller's; whatever may block releases the GIL.  A client serves one thread at a time.
 * Start reading at native_store_serve(). */
#include "native.h"

#include "horovod/hvd_store.h"

#define SERVER_NAME "horovod.store_server"
#define CLIENT_NAME "horovod.store_client"
#define MS_PER_S    1000.0
#define SECONDS_MAX 86400.0

static PyObject *raise_last(PyObject *module, hvd_status_t status)
{
    return native_raise(native_state(module), status, hvd_last_error());
}

static void server_free(PyObject *capsule)
{
    hvd_store_server_t *server = PyCapsule_GetPointer(capsule, SERVER_NAME);
    if (server == NULL)
        PyErr_Clear();
    Py_BEGIN_ALLOW_THREADS;
    hvd_store_server_stop(server);
    Py_END_ALLOW_THREADS;
}

static void client_free(PyObject *capsule)
{
    hvd_store_client_t *client = PyCapsule_GetPointer(capsule, CLIENT_NAME);
    if (client == NULL)
        PyErr_Clear();
    hvd_store_close(client);
}

static const char *text_of(PyObject *object)
{
    return PyUnicode_AsUTF8AndSize(object, NULL);
}

static bool key_read(PyObject *object, uint8_t ret_key[HVD_STORE_KEY_BYTES])
{
    char *bytes = NULL;
    Py_ssize_t n = 0;
    if (PyBytes_AsStringAndSize(object, &bytes, &n) < 0)
        return false;
    if (n != (Py_ssize_t)HVD_STORE_KEY_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a job key has 32 bytes");
        return false;
    }
    memcpy(ret_key, bytes, HVD_STORE_KEY_BYTES);
    return true;
}

/* The bytes object that it came from is Python's and can't be wiped. */
static void key_wipe(uint8_t key[HVD_STORE_KEY_BYTES])
{
    memset(key, 0, HVD_STORE_KEY_BYTES);
    __asm__ volatile("" : : "r"(key) : "memory"); /* keeps the stores above alive */
}

static bool timeout_read(PyObject *object, int64_t *ret_ms)
{
    double seconds = PyFloat_AsDouble(object);
    if (seconds == -1.0 && PyErr_Occurred())
        return false;
    if (!(seconds >= 0.0)) /* a NaN too */
        seconds = 0.0;
    if (seconds > SECONDS_MAX)
        seconds = SECONDS_MAX;
    *ret_ms = (int64_t)(seconds * MS_PER_S);
    return true;
}

PyObject *native_store_serve(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    uint8_t key[HVD_STORE_KEY_BYTES];
    char where[HVD_STORE_ADDRESS_BYTES];
    hvd_store_server_t *server = NULL;
    if (!native_check_count(count, 2, "store_serve"))
        return NULL;
    const char *address = text_of(args[0]);
    if (address == NULL || !key_read(args[1], key))
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_store_server_start(address, key, &server, where);
    Py_END_ALLOW_THREADS;
    key_wipe(key);
    if (status != HVD_OK)
        return raise_last(module, status);
    PyObject *capsule = PyCapsule_New(server, SERVER_NAME, server_free);
    if (capsule == NULL) {
        hvd_store_server_stop(server);
        return NULL;
    }
    return Py_BuildValue("(Ns)", capsule, where);
}

PyObject *native_store_listen(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    char where[HVD_STORE_ADDRESS_BYTES];
    if (!native_check_count(count, 2, "store_listen"))
        return NULL;
    hvd_store_server_t *server = PyCapsule_GetPointer(args[0], SERVER_NAME);
    const char *address = server != NULL ? text_of(args[1]) : NULL;
    if (address == NULL)
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_store_server_listen(server, address, where);
    Py_END_ALLOW_THREADS;
    return status == HVD_OK ? PyUnicode_FromString(where) : raise_last(module, status);
}

PyObject *native_store_open(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    uint8_t key[HVD_STORE_KEY_BYTES];
    int64_t timeout_ms = 0;
    hvd_store_client_t *client = NULL;
    if (!native_check_count(count, 3, "store_open"))
        return NULL;
    const char *addresses = text_of(args[0]);
    if (addresses == NULL || !timeout_read(args[2], &timeout_ms) || !key_read(args[1], key))
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_store_open(addresses, key, timeout_ms, &client);
    Py_END_ALLOW_THREADS;
    key_wipe(key);
    if (status != HVD_OK)
        return raise_last(module, status);
    PyObject *capsule = PyCapsule_New(client, CLIENT_NAME, client_free);
    if (capsule == NULL)
        hvd_store_close(client);
    return capsule;
}

/* Where a value is, and how long to wait for the store: the first three arguments of put and get,
 * and their last. */
struct place {
    hvd_store_client_t *client;
    const char *scope, *key;
    int64_t timeout_ms;
};

static bool place_read(PyObject *const *args, Py_ssize_t count, struct place *ret)
{
    struct place place = {.client = PyCapsule_GetPointer(args[0], CLIENT_NAME)};
    place.scope = place.client != NULL ? text_of(args[1]) : NULL;
    place.key = place.scope != NULL ? text_of(args[2]) : NULL;
    bool is_read = place.key != NULL && timeout_read(args[count - 1], &place.timeout_ms);
    *ret = place;
    return is_read;
}

PyObject *native_store_put(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    char *bytes = NULL;
    Py_ssize_t n = 0;
    struct place at;
    if (!native_check_count(count, 5, "store_put") || !place_read(args, count, &at) ||
        PyBytes_AsStringAndSize(args[3], &bytes, &n) < 0)
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_store_put(at.client, at.scope, at.key, bytes, (size_t)n, at.timeout_ms);
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return raise_last(module, status);
    Py_RETURN_NONE;
}

PyObject *native_store_get(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    void *bytes = NULL;
    size_t n = 0;
    struct place at;
    if (!native_check_count(count, 4, "store_get") || !place_read(args, count, &at))
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_store_get(at.client, at.scope, at.key, at.timeout_ms, &bytes, &n);
    Py_END_ALLOW_THREADS;
    if (status == HVD_AGAIN)
        Py_RETURN_NONE;
    if (status != HVD_OK)
        return raise_last(module, status);
    PyObject *result = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)n);
    hvd_store_free(bytes);
    return result;
}

PyObject *native_store_delete(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int64_t timeout_ms = 0;
    if (!native_check_count(count, 3, "store_delete"))
        return NULL;
    hvd_store_client_t *client = PyCapsule_GetPointer(args[0], CLIENT_NAME);
    const char *scope = client != NULL ? text_of(args[1]) : NULL;
    if (scope == NULL || !timeout_read(args[2], &timeout_ms))
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_store_delete(client, scope, timeout_ms);
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return raise_last(module, status);
    Py_RETURN_NONE;
}
