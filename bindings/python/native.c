/* SPDX-License-Identifier: Apache-2.0 */
/* native.c - the Python module horovod._native: its functions, its exceptions and its constants.
 *
 * What each function takes stands in its doc string below; what it does, in hvd.h under the same
 * name. tensor.c reads tensors, ops.c submits and waits, results.c hands out memory, world.c and
 * sets.c ask and tell the library the rest.
 *
 * Invariant: after import nothing has been started; no state lives outside the module object. */
#include "native.h"

struct native_state *native_state(PyObject *module)
{
    return PyModule_GetState(module);
}

PyObject *native_raise(struct native_state *state, hvd_status_t status, const char *text)
{
    hvd_status_class_t status_class = hvd_status_class(status);
    if (text == NULL || text[0] == '\0')
        text = hvd_status_name(status);
    PyObject *type =
        status_class == HVD_CLASS_INVALID_ARGUMENT ? PyExc_ValueError : state->status_error;
    PyObject *error = PyObject_CallFunction(type, "s", text);
    PyObject *number = PyLong_FromLong((long)status);
    PyObject *class_number = PyLong_FromLong((long)status_class);
    if (error != NULL && number != NULL && class_number != NULL &&
        PyObject_SetAttrString(error, "status", number) == 0 &&
        PyObject_SetAttrString(error, "status_class", class_number) == 0)
        PyErr_SetObject(type, error);
    Py_XDECREF(class_number);
    Py_XDECREF(number);
    Py_XDECREF(error);
    return NULL;
}

bool native_check_count(Py_ssize_t count, Py_ssize_t expected, const char *function)
{
    if (count == expected)
        return true;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", function, expected,
                 count);
    return false;
}

#define FAST(function) ((PyCFunction)(void (*)(void))(native_fast_t)(function))

static PyMethodDef methods[] = {
    {"submit", FAST(native_submit), METH_FASTCALL,
     "submit(kind, name, set_id, reduce, prescale, postscale, root, input, output, splits, flags) "
     "-> handle. A tensor is an object of a registered type, anything with __array_interface__, or "
     "a tuple (address, dtype, shape). The caller keeps it alive until the op has ended. With "
     "WIRE_* << WIRE_SHIFT among the flags a float32 travels in that type; others do not."},
    {"submit_group", FAST(native_submit_group), METH_FASTCALL,
     "submit_group(kind, names, set_id, reduce, prescale, postscale, inputs, outputs, flags) -> "
     "handle. All or nothing. names or outputs may be None."},
    {"submit_each", FAST(native_submit_each), METH_FASTCALL,
     "submit_each(handles, kind, names, set_id, reduce, prescale, postscale, tensors, flags): each "
     "on its own and in place; appends the handles, also of those before one that is refused."},
    {"poll", native_poll, METH_O, "poll(handle) -> bool: has it ended, well or badly?"},
    {"status", native_status, METH_O, "status(handle) -> hvd_status_t: 0 ok, 1 in progress"},
    {"wait", native_wait, METH_O,
     "wait(handle): until it ends, without the GIL. Raises and releases the handle if it failed."},
    {"finish", native_finish, METH_O, "finish(handle): wait, then release the handle."},
    {"finish_each", native_finish_each, METH_O,
     "finish_each(handles): wait for all and release them, then raise the first error if any."},
    {"set_place_hook", native_set_place_hook, METH_O,
     "set_place_hook(function): function(count) -> where this thread waits, if `count` threads "
     "wait "
     "and no other can submit anything; else None."},
    {"last_words", native_last_words, METH_O,
     "last_words(text): why this process is about to end, for the other ranks and horovodrun."},
    {"only_waits", native_only_waits, METH_O,
     "only_waits(handles): this thread submits nothing before one of those that are in progress "
     "has ended, though it is not inside of wait()."},
    {"have_ended", FAST(native_have_ended), METH_FASTCALL,
     "have_ended(handles, limit_ms) -> bool: wait so long at the most; nothing is released and no "
     "error is raised."},
    {"told", native_told, METH_O,
     "told(timeout_ms) -> the handle of an op that was submitted with OP_TOLD and has ended, or 0. "
     "Each handle is given to one caller, which releases it: nobody else may."},
    {"send", FAST(native_send), METH_FASTCALL,
     "send(peer, channel, tag, tensor, flags) -> handle: a message to one rank."},
    {"recv", FAST(native_recv), METH_FASTCALL,
     "recv(peer, channel, tag, tensor, flags) -> handle; a peer of -1 is any rank, and "
     "result_rank() says which."},
    {"error", native_error, METH_O, "error(handle) -> str: why it failed; releases nothing."},
    {"missing", native_missing, METH_O,
     "missing(handle) -> str: what it waits for and since when; empty if it has ended."},
    {"release", native_release, METH_O, "release(handle)"},
    {"result", FAST(native_result), METH_FASTCALL,
     "result(handle, index, dtype) -> DLPack capsule that owns the result, without a copy."},
    {"result_splits", FAST(native_result_splits), METH_FASTCALL,
     "result_splits(handle, index, count) -> list of the rows received from each rank."},
    {"result_rank", native_result_rank, METH_O, "result_rank(handle) -> who joined last."},
    {"alloc", FAST(native_alloc), METH_FASTCALL,
     "alloc(dtype, shape) -> DLPack capsule of zeroed memory that peers on this host reach "
     "without a copy, or None when there is no more."},
    {"is_shared", native_is_shared, METH_O, "is_shared(tensor) -> bool: is it such memory?"},
    {"copy", FAST(native_copy), METH_FASTCALL,
     "copy(target, source) -> bool: copy the elements, past the caches if there are many; False "
     "and "
     "nothing done if either is not dense host memory or they differ."},
    {"register_exchange", native_register_exchange, METH_O,
     "register_exchange(type) -> bool: read tensors of this type through its C table, if it has "
     "one."},
    {"init", FAST(native_init), METH_FASTCALL,
     "init(ranks, process_sets): ranks is None or a list, process_sets a list of lists."},
    {"init_at", FAST(native_init_at), METH_FASTCALL,
     "init_at(rank, size, local_rank, local_size, cross_rank, cross_size, address, key): meet at a "
     "store that somebody serves."},
    {"shutdown", native_shutdown, METH_NOARGS, "shutdown()"},
    {"is_initialized", native_is_initialized, METH_NOARGS, "is_initialized() -> bool"},
    {"rank", native_rank, METH_NOARGS, "rank() -> int, -1 when not initialised"},
    {"size", native_size, METH_NOARGS, "size() -> int, -1 when not initialised"},
    {"local_rank", native_local_rank, METH_NOARGS, "local_rank() -> int"},
    {"local_size", native_local_size, METH_NOARGS, "local_size() -> int"},
    {"cross_rank", native_cross_rank, METH_NOARGS, "cross_rank() -> int"},
    {"cross_size", native_cross_size, METH_NOARGS, "cross_size() -> int"},
    {"is_homogeneous", native_is_homogeneous, METH_NOARGS, "is_homogeneous() -> 1, 0 or -1"},
    {"feature", native_feature, METH_O, "feature(name) -> int: what this build can do, 0 = not"},
    {"settings_json", native_settings_json, METH_NOARGS,
     "settings_json() -> str: every setting and every option of horovodrun"},
    {"timeline_start", FAST(native_timeline_start), METH_FASTCALL,
     "timeline_start(path, mark_cycles)"},
    {"timeline_stop", native_timeline_stop, METH_NOARGS, "timeline_stop()"},
    {"notice", native_notice, METH_O,
     "notice(since) -> (version, flags): changes of membership announced after number `since`"},
    {"generation", native_generation, METH_NOARGS,
     "generation() -> {epoch, notice, is_elastic}: which world this is, and up to which announced "
     "change it accounts for"},
    {"leave_request", native_leave_request, METH_NOARGS,
     "leave_request() -> bool: ask to be left out of the next generation; False where nobody can "
     "be asked."},
    {"stats", native_stats, METH_NOARGS, "stats() -> dict of counters"},
    {"summary", native_summary, METH_O, "summary(text): a closing paragraph for horovodrun"},
    {"dump", native_dump, METH_O, "dump(folder): what this rank is doing, into a file there"},
    {"snapshot", native_snapshot, METH_NOARGS, "snapshot() -> JSON text: what this rank is doing"},
    {"metrics", native_metrics, METH_NOARGS, "metrics()"},
    {"process_set_add", native_process_set_add, METH_O, "process_set_add(ranks) -> id"},
    {"process_set_open", native_process_set_open, METH_O,
     "process_set_open(ranks) -> id: the set of these ranks; the others need not ask for it."},
    {"process_set_close", native_process_set_close, METH_O,
     "process_set_close(id): this rank no longer needs a set that it has opened."},
    {"process_set_remove", native_process_set_remove, METH_O, "process_set_remove(id)"},
    {"process_set_rank", native_process_set_rank, METH_O, "process_set_rank(id) -> int"},
    {"process_set_size", native_process_set_size, METH_O, "process_set_size(id) -> int"},
    {"process_sets", native_process_sets, METH_NOARGS, "process_sets() -> {id: [ranks]}"},
    {"store_serve", FAST(native_store_serve), METH_FASTCALL,
     "store_serve(address, key) -> (server, address): a rendezvous store, served by a thread until "
     "the server is dropped."},
    {"store_listen", FAST(native_store_listen), METH_FASTCALL,
     "store_listen(server, address) -> address: listen there as well."},
    {"store_open", FAST(native_store_open), METH_FASTCALL,
     "store_open(addresses, key, timeout_s) -> client"},
    {"store_put", FAST(native_store_put), METH_FASTCALL,
     "store_put(client, scope, key, bytes, timeout_s)"},
    {"store_get", FAST(native_store_get), METH_FASTCALL,
     "store_get(client, scope, key, timeout_s) -> bytes, or None if it is not there; 0 s: do not "
     "wait for it."},
    {"store_delete", FAST(native_store_delete), METH_FASTCALL,
     "store_delete(client, scope, timeout_s): delete all entries of a scope."},
    {NULL, NULL, 0, NULL}};

static const struct constant {
    const char *name;
    long value;
} constants[] = {{"OP_TOLD", NATIVE_TOLD},
                 {"UINT8", HVD_UINT8},
                 {"INT8", HVD_INT8},
                 {"UINT16", HVD_UINT16},
                 {"INT16", HVD_INT16},
                 {"INT32", HVD_INT32},
                 {"INT64", HVD_INT64},
                 {"FLOAT16", HVD_FLOAT16},
                 {"FLOAT32", HVD_FLOAT32},
                 {"FLOAT64", HVD_FLOAT64},
                 {"BOOL", HVD_BOOL},
                 {"BFLOAT16", HVD_BFLOAT16},
                 {"AVERAGE", HVD_AVERAGE},
                 {"SUM", HVD_SUM},
                 {"ADASUM", HVD_ADASUM},
                 {"MIN", HVD_MIN},
                 {"MAX", HVD_MAX},
                 {"PRODUCT", HVD_PRODUCT},
                 {"ALLREDUCE", HVD_ALLREDUCE},
                 {"ALLGATHER", HVD_ALLGATHER},
                 {"BROADCAST", HVD_BROADCAST},
                 {"JOIN", HVD_JOIN},
                 {"ALLTOALL", HVD_ALLTOALL},
                 {"BARRIER", HVD_BARRIER},
                 {"REDUCESCATTER", HVD_REDUCESCATTER},
                 {"OP_NAME_HOLD", HVD_OP_NAME_HOLD},
                 {"OP_WAITED", HVD_OP_WAITED},
                 {"WIRE_FLOAT16", HVD_WIRE_FLOAT16},
                 {"WIRE_BFLOAT16", HVD_WIRE_BFLOAT16},
                 {"WIRE_SHIFT", NATIVE_WIRE_SHIFT},
                 {"IN_PROGRESS", HVD_IN_PROGRESS},
                 {"ERR_INVALID", HVD_ERR_INVALID},
                 {"ERR_DUPLICATE", HVD_ERR_DUPLICATE},
                 {"ERR_MISMATCH", HVD_ERR_MISMATCH},
                 {"ERR_UNSUPPORTED", HVD_ERR_UNSUPPORTED},
                 {"ERR_ABORTED", HVD_ERR_ABORTED},
                 {"ERR_NOT_INITIALIZED", HVD_ERR_NOT_INITIALIZED},
                 {"ERR_LIMIT", HVD_ERR_LIMIT},
                 {"ERR_NO_MEMORY", HVD_ERR_NO_MEMORY},
                 {"ERR_TIMEOUT", HVD_ERR_TIMEOUT},
                 {"ERR_CONFIG", HVD_ERR_CONFIG},
                 {"ERR_OS", HVD_ERR_OS},
                 {"ERR_LINK", HVD_ERR_LINK},
                 {"ERR_AUTH", HVD_ERR_AUTH},
                 {"ERR_CORRUPT", HVD_ERR_CORRUPT},
                 {"ERR_STALE", HVD_ERR_STALE},
                 {"ERR_PEER_DEAD", HVD_ERR_PEER_DEAD},
                 {"ERR_PEER_HUNG", HVD_ERR_PEER_HUNG},
                 {"ERR_SHUTDOWN", HVD_ERR_SHUTDOWN},
                 {"ERR_INTERNAL", HVD_ERR_INTERNAL},
                 {"ERR_REMOVED", HVD_ERR_REMOVED},
                 {"NOTICE_REMOVED", HVD_NOTICE_REMOVED},
                 {"NOTICE_ADDED", HVD_NOTICE_ADDED},
                 {"CLASS_UNKNOWN", HVD_CLASS_UNKNOWN},
                 {"CLASS_PRECONDITION", HVD_CLASS_PRECONDITION},
                 {"CLASS_ABORTED", HVD_CLASS_ABORTED},
                 {"CLASS_INVALID_ARGUMENT", HVD_CLASS_INVALID_ARGUMENT}};

/* The module keeps one reference, its namespace another. */
static PyObject *add_exception(PyObject *module, const char *full_name, const char *name,
                               PyObject *base)
{
    PyObject *type = PyErr_NewException(full_name, base, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return type;
}

static int module_exec(PyObject *module)
{
    struct native_state *state = native_state(module);
    state->status_error =
        add_exception(module, "horovod._native.StatusError", "StatusError", PyExc_RuntimeError);
    state->tensor_error =
        add_exception(module, "horovod._native.TensorError", "TensorError", PyExc_ValueError);
    state->array_interface = PyUnicode_InternFromString("__array_interface__");
    if (state->status_error == NULL || state->tensor_error == NULL ||
        state->array_interface == NULL)
        return -1;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
            return -1;
    return PyModule_AddStringConstant(module, "VERSION", HVD_VERSION_STRING);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct native_state *state = native_state(module);
    if (state == NULL)
        return 0;
    Py_VISIT(state->status_error);
    Py_VISIT(state->place_hook);
    Py_VISIT(state->tensor_error);
    for (int i = 0; i < state->exchange_count; i++)
        Py_VISIT(state->exchanges[i].type);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct native_state *state = native_state(module);
    if (state == NULL)
        return 0;
    Py_CLEAR(state->status_error);
    Py_CLEAR(state->place_hook);
    Py_CLEAR(state->tensor_error);
    Py_CLEAR(state->array_interface);
    for (int i = 0; i < state->exchange_count; i++)
        Py_CLEAR(state->exchanges[i].type);
    state->exchange_count = 0;
    return 0;
}

static void module_free(void *module)
{
    native_life_end(native_state(module));
    (void)module_clear(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "horovod._native",
    .m_doc = "Fast calls into libhorovod; see hvd.h. Private: use horovod.torch and its sisters.",
    .m_size = sizeof(struct native_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
