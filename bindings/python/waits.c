/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - threads that have waited long: does this process do anything else? If not, the core is
 * told so, and can prove a deadlock.
 *
 * A wait is counted only after its first slice of time has passed, so that a short one costs
 * nothing. Then every thread that runs Python is either here, or known to be harmless, or may still
 * submit something: a function of Python's decides (horovod/common/stacks.py).
 * Thread: the caller's, with the GIL, which guards the list.  Start reading at native_wait_slow().
 */
#include "native.h"

#define FIRST_SLICE 5
#define EVERY_SLICE 10
#define WAITS_MAX   64
#define OTHERS_MAX  16 /* of the handles of one thread: any of them will do */

void native_wait_done(struct native_state *state, struct native_wait *wait)
{
    struct native_wait **at = &state->waits;
    while (*at != NULL && *at != wait)
        at = &(*at)->next;
    if (*at != NULL)
        *at = wait->next;
}

/* Where this thread waits, if all others do too or are harmless; else NULL. */
static PyObject *ask_place(PyObject *hook, int count)
{
    PyObject *place = PyObject_CallFunction(hook, "i", count);
    if (place == NULL)
        PyErr_Clear(); /* a diagnosis less */
    if (place != NULL && PyUnicode_Check(place))
        return place;
    Py_XDECREF(place);
    return NULL;
}

/* All threads that wait, and another one that waits for `count` handles. */
static void claim(struct native_state *state, hvd_handle_t handles[WAITS_MAX], int count)
{
    int threads = count > 0;
    for (const struct native_wait *w = state->waits; w != NULL && count < WAITS_MAX; w = w->next) {
        handles[count++] = w->handle;
        threads++;
    }
    PyObject *place = NULL;
    if (count < WAITS_MAX && state->place_hook != NULL)
        place = ask_place(state->place_hook, threads);
    if (place == NULL)
        return;
    const char *text = PyUnicode_AsUTF8AndSize(place, NULL);
    if (text != NULL)
        hvd_only_waits(handles, (size_t)count, text); /* short, so the GIL is kept */
    else
        PyErr_Clear();
    Py_DECREF(place);
}

void native_wait_slow(struct native_state *state, struct native_wait *wait)
{
    if (wait->slices++ == 0) {
        wait->next = state->waits;
        state->waits = wait;
    }
    hvd_handle_t handles[WAITS_MAX];
    if (wait->slices % EVERY_SLICE == FIRST_SLICE)
        claim(state, handles, 0);
}

PyObject *native_only_waits(PyObject *module, PyObject *list)
{
    hvd_handle_t handles[WAITS_MAX];
    int count = 0;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "only_waits() takes a list");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(list) && count < OTHERS_MAX; i++) {
        hvd_handle_t handle = PyLong_AsLongLong(PyList_GetItem(list, i));
        if (handle == -1 && PyErr_Occurred())
            return NULL;
        if (hvd_poll(handle) == HVD_IN_PROGRESS)
            handles[count++] = handle;
    }
    if (count > 0)
        claim(native_state(module), handles, count);
    Py_RETURN_NONE;
}

PyObject *native_set_place_hook(PyObject *module, PyObject *hook)
{
    struct native_state *state = native_state(module);
    PyObject *old = state->place_hook;
    state->place_hook = hook == Py_None ? NULL : Py_NewRef(hook);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}
