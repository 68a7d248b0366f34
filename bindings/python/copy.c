/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - a tensor's elements into memory of another, past the caches if there are many.
 *
 * This is how a gradient gets into the arena. The source was just computed and lies in the cache,
 * the target is written now and read much later, maybe by another core: stores that go around the
 * cache neither fetch the target first nor push out what backward works on. For 100 MB of gradients
 * it takes half of the time of an ordinary copy.
 *
 * Thread: the caller's; long copies release the GIL.
 * Invariant: the bytes are in memory when the call returns, visible to whoever is told next.
 * Start reading at native_copy(). */
#include "native.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define LINE_BYTES     64u
#define STREAM_BYTES   (16u << 10) /* below, the cache is the better place */
#define GIL_FREE_BYTES (1u << 20)

#if defined(__SSE2__)
/* Whole lines; `to` begins one. */
static void copy_lines(char *to, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE_BYTES) {
        const __m128i *in = (const __m128i *)(const void *)(from + at);
        __m128i *out = (__m128i *)(void *)(to + at);
        __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
        __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
}
#else
static void copy_lines(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

static void copy_bytes(char *to, const char *from, size_t bytes)
{
    if (bytes < STREAM_BYTES) {
        memcpy(to, from, bytes);
        return;
    }
    size_t head = -(uintptr_t)to % LINE_BYTES;
    size_t lines = (bytes - head) / LINE_BYTES * LINE_BYTES;
    memcpy(to, from, head);
    copy_lines(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

static size_t bytes_of(const hvd_tensor_t *tensor)
{
    size_t bytes = hvd_dtype_bytes(tensor->dtype);
    for (int32_t i = 0; i < tensor->ndim; i++)
        bytes *= (size_t)tensor->shape[i];
    return bytes;
}

/* False, without an exception, for what is not plain dense memory. */
static bool read_plain(struct native_state *state, PyObject *object, struct tensor_view *ret_view)
{
    if (tensor_read(state, object, ret_view))
        return true;
    if (PyErr_ExceptionMatches(state->tensor_error))
        PyErr_Clear();
    return false;
}

PyObject *native_copy(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct native_state *state = native_state(module);
    struct tensor_view to, from;
    if (!native_check_count(count, 2, "copy"))
        return NULL;
    if (!read_plain(state, args[0], &to) || !read_plain(state, args[1], &from))
        return PyErr_Occurred() ? NULL : PyBool_FromLong(0);
    size_t bytes = bytes_of(&to.tensor);
    if (to.tensor.dtype != from.tensor.dtype || bytes != bytes_of(&from.tensor))
        Py_RETURN_FALSE;
    if (bytes == 0)
        Py_RETURN_TRUE;
    if (bytes < GIL_FREE_BYTES) {
        copy_bytes(to.tensor.data, from.tensor.data, bytes);
        Py_RETURN_TRUE;
    }
    Py_BEGIN_ALLOW_THREADS;
    copy_bytes(to.tensor.data, from.tensor.data, bytes);
    Py_END_ALLOW_THREADS;
    Py_RETURN_TRUE;
}
