/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - start, stop and ask the library: ranks, features, timeline, counters.
 *
 * Thread: the caller's; init, shutdown and the timeline may block and release the GIL.
 * Start reading at native_init(). */
#include "native.h"

/* Rank lists as hvd_config wants them: an array of arrays and their sizes. */
struct rank_lists {
    int32_t **lists;
    int32_t *sizes;
    int32_t count;
};

static void rank_lists_free(struct rank_lists *lists)
{
    for (int32_t i = 0; lists->lists != NULL && i < lists->count; i++)
        PyMem_Free(lists->lists[i]);
    PyMem_Free(lists->lists);
    PyMem_Free(lists->sizes);
}

static bool rank_lists_read(PyObject *sets, struct rank_lists *ret)
{
    Py_ssize_t n = PyList_Size(sets);
    if (n < 0)
        return false;
    ret->lists = PyMem_Calloc((size_t)n + 1, sizeof *ret->lists);
    ret->sizes = PyMem_Calloc((size_t)n + 1, sizeof *ret->sizes);
    if (ret->lists == NULL || ret->sizes == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    ret->count = (int32_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        ret->lists[i] = native_read_ranks(PyList_GetItem(sets, i), &ret->sizes[i]);
        if (ret->lists[i] == NULL)
            return false;
    }
    return true;
}

/* init(ranks, sets) or init(ranks, sets, comms, comm_count): `comms` are the bytes of an array of
 * MPI_Comm. */
PyObject *native_init(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 && !native_check_count(count, 2, "init"))
        return NULL;
    struct rank_lists sets = {0};
    hvd_config_t config = {.struct_size = sizeof config};
    int32_t *ranks = NULL;
    PyObject *result = NULL;
    if (args[0] != Py_None) {
        ranks = native_read_ranks(args[0], &config.rank_count);
        if (ranks == NULL)
            goto free_lists;
        config.ranks = ranks;
    }
    if (!rank_lists_read(args[1], &sets))
        goto free_lists;
    if (count == 4) {
        config.mpi_comms = PyBytes_AsString(args[2]);
        config.mpi_comm_count = (int32_t)PyLong_AsLong(args[3]);
        if (PyErr_Occurred() != NULL)
            goto free_lists;
    }
    config.process_sets = (const int32_t *const *)sets.lists;
    config.process_set_sizes = sets.sizes;
    config.process_set_count = sets.count;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_init(&config);
    Py_END_ALLOW_THREADS;
    if (status == HVD_OK)
        result = Py_NewRef(Py_None);
    else
        (void)native_raise(native_state(module), status, hvd_last_error());
free_lists:
    rank_lists_free(&sets);
    PyMem_Free(ranks);
    return result;
}

PyObject *native_init_at(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    hvd_config_t config = {.struct_size = sizeof config};
    int32_t *const numbers[] = {&config.rank,       &config.size,       &config.local_rank,
                                &config.local_size, &config.cross_rank, &config.cross_size};
    if (!native_check_count(count, 8, "init_at"))
        return NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        *numbers[i] = (int32_t)PyLong_AsLong(args[i]);
    config.rendezvous = PyUnicode_AsUTF8AndSize(args[6], NULL);
    char *key = NULL;
    Py_ssize_t key_bytes = 0;
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[7], &key, &key_bytes) < 0)
        return NULL;
    config.key = key;
    config.key_bytes = (size_t)key_bytes;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_init(&config);
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    Py_RETURN_NONE;
}

PyObject *native_shutdown(PyObject *module, PyObject *unused)
{
    (void)unused;
    native_life_end(native_state(module));
    Py_BEGIN_ALLOW_THREADS;
    hvd_shutdown();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *native_is_initialized(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(hvd_is_initialized());
}

#define NUMBER(name)                                                                               \
    PyObject *native_##name(PyObject *module, PyObject *unused)                                    \
    {                                                                                              \
        (void)module, (void)unused;                                                                \
        return PyLong_FromLong(hvd_##name());                                                      \
    }
NUMBER(rank)
NUMBER(size)
NUMBER(local_rank)
NUMBER(local_size)
NUMBER(cross_rank)
NUMBER(cross_size)
NUMBER(is_homogeneous)
#undef NUMBER

PyObject *native_notice(PyObject *module, PyObject *since)
{
    (void)module;
    uint64_t version = 0;
    uint64_t after = PyLong_AsUnsignedLongLong(since);
    if (PyErr_Occurred() != NULL)
        return NULL;
    uint32_t flags = hvd_notice(after, &version);
    return Py_BuildValue("(KI)", (unsigned long long)version, (unsigned int)flags);
}

PyObject *native_generation(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    uint64_t epoch = 0, notice = 0;
    bool is_elastic = hvd_generation(&epoch, &notice);
    return Py_BuildValue("{s:K,s:K,s:N}", "epoch", (unsigned long long)epoch, "notice",
                         (unsigned long long)notice, "is_elastic", PyBool_FromLong(is_elastic));
}

PyObject *native_leave_request(PyObject *module, PyObject *unused)
{
    (void)unused;
    hvd_status_t status = hvd_leave_request();
    if (status == HVD_ERR_UNSUPPORTED)
        Py_RETURN_FALSE;
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    Py_RETURN_TRUE;
}

PyObject *native_feature(PyObject *module, PyObject *name)
{
    (void)module;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    return text != NULL ? PyLong_FromLong(hvd_feature(text)) : NULL;
}

PyObject *native_settings_json(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    size_t bytes = hvd_settings_json(NULL, 0) + 1;
    char *text = PyMem_Malloc(bytes);
    if (text == NULL)
        return PyErr_NoMemory();
    hvd_settings_json(text, bytes);
    PyObject *result = PyUnicode_FromString(text);
    PyMem_Free(text);
    return result;
}

PyObject *native_timeline_start(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!native_check_count(count, 2, "timeline_start"))
        return NULL;
    const char *path = PyUnicode_AsUTF8AndSize(args[0], NULL);
    int is_marked = path != NULL ? PyObject_IsTrue(args[1]) : -1;
    if (is_marked < 0)
        return NULL;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_timeline_start(path, is_marked != 0);
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    Py_RETURN_NONE;
}

PyObject *native_timeline_stop(PyObject *module, PyObject *unused)
{
    (void)unused;
    hvd_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_timeline_stop();
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    Py_RETURN_NONE;
}

PyObject *native_last_words(PyObject *module, PyObject *text)
{
    (void)module;
    const char *words = PyUnicode_AsUTF8AndSize(text, NULL);
    if (words == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    hvd_last_words(words);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* The JSON text, valid UTF-8 by construction. */
static PyObject *text_of(size_t (*write)(char *text, size_t bytes), size_t capacity)
{
    char *text = PyMem_Malloc(capacity);
    if (text == NULL)
        return PyErr_NoMemory();
    size_t bytes;
    Py_BEGIN_ALLOW_THREADS;
    bytes = write(text, capacity);
    Py_END_ALLOW_THREADS;
    PyObject *result = PyUnicode_FromStringAndSize(text, (Py_ssize_t)bytes);
    PyMem_Free(text);
    return result;
}

PyObject *native_summary(PyObject *module, PyObject *text)
{
    (void)module;
    const char *words = PyUnicode_AsUTF8AndSize(text, NULL);
    if (words == NULL)
        return NULL;
    hvd_summary(words);
    Py_RETURN_NONE;
}

PyObject *native_dump(PyObject *module, PyObject *folder)
{
    const char *path = PyUnicode_AsUTF8AndSize(folder, NULL);
    hvd_status_t status;
    if (path == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_dump(path);
    Py_END_ALLOW_THREADS;
    if (status != HVD_OK)
        return native_raise(native_state(module), status, hvd_last_error());
    Py_RETURN_NONE;
}

PyObject *native_snapshot(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return text_of(hvd_snapshot, HVD_SNAPSHOT_BYTES);
}

PyObject *native_metrics(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return text_of(hvd_metrics, HVD_METRICS_BYTES);
}

PyObject *native_stats(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    hvd_stats_t s = {.struct_size = sizeof s};
    hvd_stats(&s);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"ops_completed", s.ops_completed},
        {"batches", s.batches},
        {"batches_planned", s.batches_planned},
        {"bytes_reduced", s.bytes_reduced},
        {"messages_sent", s.messages_sent},
        {"allocations", s.allocations},
        {"plan_starts", s.plan_starts},
        {"plan_breaks", s.plan_breaks},
        {"cache_hits", s.cache_hits},
        {"cache_misses", s.cache_misses},
        {"shm_bytes", s.shm_bytes},
        {"net_bytes", s.net_bytes},
        {"wakeups", s.wakeups},
        {"sleeps", s.sleeps},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < sizeof rows / sizeof rows[0]; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(rows[i].value);
        if (value == NULL || PyDict_SetItemString(dict, rows[i].name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}
