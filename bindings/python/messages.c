/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c - messages to and from one rank, and the queue of ops that have ended.
 *
 * An op that was submitted with TOLD puts its handle into a queue when it has ended, in good order
 * or not. Any number of Python threads take handles from it; each is given to one of them.
 *
 * Thread: the caller's; told() blocks and releases the GIL; queue_put() runs on a thread of the
 * library. Owner: the process. The library may call at any time, so the queue is never freed.
 * Start reading at native_told(). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "native.h"

#define MS_PER_S  1000
#define NS_PER_MS 1000000L
#define NS_PER_S  1000000000L

struct told_queue {
    pthread_mutex_t lock;
    pthread_cond_t came;
    hvd_handle_t *handles; /* ring */
    size_t capacity, head, count;
};

static struct told_queue *queue_make(void)
{
    pthread_condattr_t attributes;
    struct told_queue *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    q->capacity = 256;
    q->handles = calloc(q->capacity, sizeof *q->handles);
    if (q->handles == NULL || pthread_mutex_init(&q->lock, NULL) != 0)
        goto free_queue;
    if (pthread_condattr_init(&attributes) != 0)
        goto free_lock;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&q->came, &attributes);
    pthread_condattr_destroy(&attributes);
    if (rc == 0)
        return q;
free_lock:
    pthread_mutex_destroy(&q->lock);
free_queue:
    free(q->handles);
    free(q);
    return NULL;
}

struct told_queue *native_told_queue(struct native_state *state)
{
    if (state->told == NULL)
        state->told = queue_make();
    if (state->told == NULL)
        (void)PyErr_NoMemory();
    return state->told;
}

static bool queue_grow(struct told_queue *q)
{
    hvd_handle_t *handles = calloc(q->capacity * 2, sizeof *handles);
    if (handles == NULL)
        return false;
    for (size_t i = 0; i < q->count; i++)
        handles[i] = q->handles[(q->head + i) % q->capacity];
    free(q->handles);
    q->handles = handles;
    q->head = 0;
    q->capacity *= 2;
    return true;
}

/* Without memory a handle is lost here; whoever waits for the op itself still gets its end. */
void native_told_put(void *arg, hvd_handle_t handle, hvd_status_t status)
{
    struct told_queue *q = arg;
    (void)status;
    pthread_mutex_lock(&q->lock);
    if (q->count < q->capacity || queue_grow(q)) {
        q->handles[(q->head + q->count++) % q->capacity] = handle;
        pthread_cond_signal(&q->came);
    }
    pthread_mutex_unlock(&q->lock);
}

static hvd_handle_t queue_take(struct told_queue *q, int64_t timeout_ms)
{
    struct timespec until;
    hvd_handle_t handle = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ms / MS_PER_S);
    until.tv_nsec += (long)(timeout_ms % MS_PER_S) * NS_PER_MS;
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_nsec -= NS_PER_S;
        until.tv_sec++;
    }
    pthread_mutex_lock(&q->lock);
    while (q->count == 0)
        if (pthread_cond_timedwait(&q->came, &q->lock, &until) == ETIMEDOUT)
            break;
    if (q->count > 0) {
        handle = q->handles[q->head];
        q->head = (q->head + 1) % q->capacity;
        q->count--;
    }
    pthread_mutex_unlock(&q->lock);
    return handle;
}

PyObject *native_told(PyObject *module, PyObject *timeout)
{
    struct told_queue *q = native_told_queue(native_state(module));
    int64_t timeout_ms = PyLong_AsLongLong(timeout);
    if (q == NULL || PyErr_Occurred())
        return NULL;
    hvd_handle_t handle;
    Py_BEGIN_ALLOW_THREADS;
    handle = queue_take(q, timeout_ms > 0 ? timeout_ms : 0);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(handle);
}

/* ---- messages ---- */

static bool read_message(struct native_state *state, PyObject *const *args, hvd_message_t *ret)
{
    struct tensor_view view;
    long peer = PyLong_AsLong(args[0]);
    ret->channel = PyLong_AsUnsignedLongLong(args[1]);
    ret->tag = PyLong_AsUnsignedLongLong(args[2]);
    long flags = PyLong_AsLong(args[4]);
    if (PyErr_Occurred() || !tensor_read(state, args[3], &view))
        return false;
    ret->struct_size = sizeof *ret;
    ret->peer = peer < INT32_MIN || peer > INT32_MAX ? INT32_MAX : (int32_t)peer;
    ret->flags = (uint32_t)flags;
    ret->data = view.tensor.data;
    ret->bytes = hvd_dtype_bytes(view.tensor.dtype);
    for (int32_t i = 0; i < view.tensor.ndim; i++)
        ret->bytes *= (size_t)view.tensor.shape[i];
    if ((ret->flags & NATIVE_TOLD) == 0)
        return true;
    ret->flags &= ~(uint32_t)NATIVE_TOLD;
    ret->callback = native_told_put;
    ret->arg = native_told_queue(state);
    return ret->arg != NULL;
}

static PyObject *message(PyObject *module, PyObject *const *args, Py_ssize_t count,
                         const char *function,
                         hvd_status_t (*submit)(const hvd_message_t *, hvd_handle_t *))
{
    struct native_state *state = native_state(module);
    hvd_message_t m = {0};
    hvd_handle_t handle = 0;
    if (!native_check_count(count, 5, function) || !read_message(state, args, &m))
        return NULL;
    hvd_status_t status = submit(&m, &handle);
    if (status != HVD_OK)
        return native_raise(state, status, hvd_last_error());
    return PyLong_FromLongLong(handle);
}

PyObject *native_send(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return message(module, args, count, "send", hvd_send);
}

PyObject *native_recv(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return message(module, args, count, "recv", hvd_recv);
}

PyObject *native_error(PyObject *module, PyObject *object)
{
    (void)module;
    hvd_handle_t handle = PyLong_AsLongLong(object);
    if (handle == -1 && PyErr_Occurred())
        return NULL;
    return PyUnicode_FromString(hvd_error(handle));
}

/* Why a wait for it would not return now; "": it has ended. */
PyObject *native_missing(PyObject *module, PyObject *object)
{
    (void)module;
    hvd_handle_t handle = PyLong_AsLongLong(object);
    hvd_status_t status;
    if (handle == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_wait(handle, 0);
    Py_END_ALLOW_THREADS;
    return PyUnicode_FromString(status == HVD_ERR_TIMEOUT ? hvd_last_error() : "");
}
