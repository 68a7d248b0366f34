/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - host memory as a kind: one device, no streams, and copies that finish before copy()
 * returns.
 *
 * The engine accesses host memory directly and never calls this. The row makes the table complete
 * and is a reference for other kinds.
 *
 * Thread: any. */
#include <string.h>

#include "horovod/hvd.h"
#include "memory/memory.h"

static hvd_status_t probe(const struct os *os, struct error *error)
{
    (void)os;
    (void)error;
    return HVD_OK;
}

static hvd_status_t open_host(const struct os *os, struct memory_kind **ret, struct error *error)
{
    struct memory_kind *m = os_alloc(os, sizeof *m);
    if (m == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    *m = (struct memory_kind){.ops = &memory_host, .os = os};
    *ret = m;
    return HVD_OK;
}

static void close_host(struct memory_kind *m)
{
    if (m != NULL)
        os_free(m->os, m);
}

static int32_t device_count(const struct memory_kind *m)
{
    (void)m;
    return 1;
}

static void *alloc(struct memory_kind *m, int32_t device, size_t bytes)
{
    (void)device;
    return os_alloc(m->os, bytes);
}

static void free_host(struct memory_kind *m, int32_t device, void *ptr)
{
    (void)device;
    os_free(m->os, ptr);
}

/* There is no queued work, so every mark is reached; all of them are NULL. */
static hvd_status_t record(struct memory_kind *m, int32_t device, void *stream,
                           struct memory_mark **ret, struct error *error)
{
    (void)m;
    (void)device;
    if (stream != NULL)
        return error_set(error, HVD_ERR_INVALID, "Host memory has no streams; pass NULL as one.");
    *ret = NULL;
    return HVD_OK;
}

static hvd_status_t copy(struct memory_kind *m, int32_t device, enum memory_direction direction,
                         const struct memory_copy *copies, int32_t count, struct memory_mark **ret,
                         struct error *error)
{
    (void)m;
    (void)device;
    (void)direction;
    (void)error;
    for (int32_t i = 0; i < count; i++)
        if (copies[i].bytes > 0)
            memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    *ret = NULL;
    return HVD_OK;
}

static hvd_status_t reached(struct memory_kind *m, struct memory_mark *mark, struct error *error)
{
    (void)m;
    (void)mark;
    (void)error;
    return HVD_OK;
}

static bool release(struct memory_kind *m, struct memory_mark *mark)
{
    (void)m;
    (void)mark;
    return true;
}

const struct memory_ops memory_host = {.version = MEMORY_VERSION,
                                       .name = "host",
                                       .kind = HVD_MEMORY_HOST,
                                       .is_host_visible = true,
                                       .probe = probe,
                                       .open = open_host,
                                       .close = close_host,
                                       .device_count = device_count,
                                       .alloc = alloc,
                                       .free = free_host,
                                       .record = record,
                                       .copy = copy,
                                       .reached = reached,
                                       .release = release};
