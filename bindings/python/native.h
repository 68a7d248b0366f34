/* SPDX-License-Identifier: Apache-2.0 */
/* native.h - what the files of the Python module horovod._native share.
 *
 * The module is a thin, fast door to hvd.h for Python: it turns Python objects into hvd structs and
 * statuses into exceptions, and holds no logic of its own. It keeps to the limited API of Python
 * 3.10, so one file serves every later Python.
 *
 * Thread: the caller's, with the GIL; calls that may block release it.
 * Owner: all state hangs on the module object (struct native_state).
 * Start reading at native.c, the table of functions. */
#ifndef HVD_BINDINGS_PYTHON_NATIVE_H
#define HVD_BINDINGS_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>

#include "dlpack.h"
#include "horovod/hvd.h"

#define EXCHANGE_TYPES_MAX 8

/* A framework whose tensors we read without calling Python: its type and its reader. */
struct exchange {
    PyObject *type;
    dlpack_read_t read;
};

/* One life of the library, from init to shutdown: memory of its arena is given back only within it.
 * Shared by the module and by every tensor in the arena, which may outlive the module. */
struct life {
    _Atomic int users;
    _Atomic bool is_over;
};

struct told_queue;

/* A thread that has waited for a while (waits.c); lives on its stack. */
struct native_wait {
    struct native_wait *next;
    hvd_handle_t handle;
    int slices;
};

struct native_state {
    PyObject *status_error; /* RuntimeError with .status and .status_class */
    PyObject *tensor_error; /* ValueError: this object can't be handed over as it is */
    PyObject *array_interface;
    struct exchange exchanges[EXCHANGE_TYPES_MAX];
    int exchange_count;
    struct life *life;       /* NULL: nothing was allocated in this one */
    struct told_queue *told; /* NULL: no op was submitted with TOLD */
    struct native_wait *waits;
    PyObject *place_hook; /* of Python: where does this thread wait? NULL: none */
};

#define NATIVE_TOLD                                                                                \
    (1 << 16) /* a flag of ours beside HVD_OP_*: told() gives the handle at the end */
#define NATIVE_WIRE_SHIFT 24 /* the flags above are a hvd_wire_t, for float32 */

typedef PyObject *(*native_fast_t)(PyObject *module, PyObject *const *args, Py_ssize_t count);

struct native_state *native_state(PyObject *module);
/* Sets the exception for a failed call: ValueError for the caller's own argument, else StatusError.
 * Either has the attributes status and status_class. Always returns NULL. */
PyObject *native_raise(struct native_state *state, hvd_status_t status, const char *text);
bool native_check_count(Py_ssize_t count, Py_ssize_t expected, const char *function);

/* ---- tensor.c ---- */

/* A borrowed view of a tensor's memory, and room for a shape nobody else keeps. */
struct tensor_view {
    hvd_tensor_t tensor;
    int64_t shape[HVD_DIMS_MAX];
};

/* False with an exception set; TensorError if the object is not dense CPU memory of a known dtype.
 */
bool tensor_read(struct native_state *state, PyObject *object, struct tensor_view *ret_view);
PyObject *native_register_exchange(PyObject *module, PyObject *type);

/* ---- the functions of the module, by file ---- */
PyObject *native_submit(PyObject *module, PyObject *const *args, Py_ssize_t count); /* ops.c */
PyObject *native_submit_group(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_submit_each(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_poll(PyObject *module, PyObject *handle);
PyObject *native_status(PyObject *module, PyObject *handle);
PyObject *native_wait(PyObject *module, PyObject *handle);
PyObject *native_finish(PyObject *module, PyObject *handle);
PyObject *native_have_ended(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_finish_each(PyObject *module, PyObject *handles);
PyObject *native_release(PyObject *module, PyObject *handle);

PyObject *native_set_place_hook(PyObject *module, PyObject *hook); /* waits.c */
PyObject *native_only_waits(PyObject *module, PyObject *handles);
/* A slice of the time of a wait has passed; and its end, if one has. */
void native_wait_slow(struct native_state *state, struct native_wait *wait);
void native_wait_done(struct native_state *state, struct native_wait *wait);

PyObject *native_told(PyObject *module, PyObject *timeout_ms); /* messages.c */
PyObject *native_send(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_recv(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_error(PyObject *module, PyObject *handle);
PyObject *native_missing(PyObject *module, PyObject *handle);
struct told_queue *native_told_queue(struct native_state *state); /* NULL with an exception */
void native_told_put(void *arg, hvd_handle_t handle, hvd_status_t status);

PyObject *native_result(PyObject *module, PyObject *const *args, Py_ssize_t count); /* results.c */
PyObject *native_result_splits(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_result_rank(PyObject *module, PyObject *handle);
PyObject *native_alloc(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_is_shared(PyObject *module, PyObject *object);
void native_life_end(struct native_state *state);

PyObject *native_copy(PyObject *module, PyObject *const *args, Py_ssize_t count); /* copy.c */

PyObject *native_init(PyObject *module, PyObject *const *args, Py_ssize_t count); /* world.c */
PyObject *native_init_at(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_shutdown(PyObject *module, PyObject *unused);
PyObject *native_is_initialized(PyObject *module, PyObject *unused);
PyObject *native_rank(PyObject *module, PyObject *unused);
PyObject *native_size(PyObject *module, PyObject *unused);
PyObject *native_local_rank(PyObject *module, PyObject *unused);
PyObject *native_local_size(PyObject *module, PyObject *unused);
PyObject *native_cross_rank(PyObject *module, PyObject *unused);
PyObject *native_cross_size(PyObject *module, PyObject *unused);
PyObject *native_is_homogeneous(PyObject *module, PyObject *unused);
PyObject *native_notice(PyObject *module, PyObject *since);
PyObject *native_generation(PyObject *module, PyObject *unused);
PyObject *native_leave_request(PyObject *module, PyObject *unused);
PyObject *native_feature(PyObject *module, PyObject *name);
PyObject *native_settings_json(PyObject *module, PyObject *unused);
PyObject *native_timeline_start(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_timeline_stop(PyObject *module, PyObject *unused);
PyObject *native_stats(PyObject *module, PyObject *unused);
PyObject *native_last_words(PyObject *module, PyObject *text);
PyObject *native_summary(PyObject *module, PyObject *text);
PyObject *native_dump(PyObject *module, PyObject *folder);
PyObject *native_snapshot(PyObject *module, PyObject *unused);
PyObject *native_metrics(PyObject *module, PyObject *unused);

PyObject *native_process_set_add(PyObject *module, PyObject *ranks); /* sets.c */
PyObject *native_process_set_open(PyObject *module, PyObject *ranks);
PyObject *native_process_set_close(PyObject *module, PyObject *id);
PyObject *native_process_set_remove(PyObject *module, PyObject *id);
PyObject *native_process_set_rank(PyObject *module, PyObject *id);
PyObject *native_process_set_size(PyObject *module, PyObject *id);
PyObject *native_process_sets(PyObject *module, PyObject *unused);

PyObject *native_store_serve(PyObject *module, PyObject *const *args,
                             Py_ssize_t count); /* store.c */
PyObject *native_store_listen(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_store_open(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_store_put(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_store_get(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *native_store_delete(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* A list of ints as an array that the caller frees with PyMem_Free(); NULL with an exception. */
int32_t *native_read_ranks(PyObject *ranks, int32_t *ret_count);

#endif
