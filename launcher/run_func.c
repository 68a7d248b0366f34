/* SPDX-License-Identifier: Apache-2.0 */
/* run_func.c - see run_func.h. Thread: the launcher's.  Start reading at run_func_load(). */
#include "run_func.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE       "runfunc"
#define CHUNK_BYTES (32u << 20)
#define COUNT_MAX   (STORE_TOTAL_MAX / CHUNK_BYTES)
#define STDIN_FD    0

static bool has_remote(const struct job *job)
{
    for (int32_t i = 0; i < job->run_count; i++)
        if (!job->runs[i].is_local)
            return true;
    return false;
}

/* ---- is the caller still there? ---- */

void run_func_watch(struct job *job, struct job_tag *tag)
{
    if (job->args->run_func_folder != NULL)
        job->os->poll_add(job->os->ctx, job->poll_fd, STDIN_FD, tag, false);
}

bool run_func_is_abandoned(const struct job *job)
{
    uint8_t waste[256];
    int64_t n = job->os->read(job->os->ctx, STDIN_FD, waste, sizeof waste);
    if (n > 0 || n == -EAGAIN || n == -EINTR)
        return false;
    job->os->poll_remove(job->os->ctx, job->poll_fd, STDIN_FD);
    return true;
}

/* ---- the function ---- */

/* Reads until the buffer is full or the file ends; negative errno. */
static int64_t read_some(const struct os *os, int fd, uint8_t *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        int64_t got = os->read(os->ctx, fd, bytes + done, n - done);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return got;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

static hvd_status_t put_chunks(struct job *job, int fd, uint8_t *chunk, struct error *error)
{
    char key[64], text[16];
    uint32_t count = 0;
    int64_t n = 0;
    do {
        n = read_some(job->os, fd, chunk, CHUNK_BYTES);
        if (n < 0)
            return error_set_os(error, (int)n, "cannot read the function to run");
        snprintf(key, sizeof key, "call.%u", count++);
        hvd_status_t status = store_server_put(job->store, SCOPE, key, chunk, (size_t)n);
        if (status != HVD_OK)
            return error_set(error, status,
                             "the function to run and its arguments are too large to send to other "
                             "hosts (%u MiB at most)",
                             STORE_TOTAL_MAX >> 20);
    } while (n == CHUNK_BYTES);
    int digits = snprintf(text, sizeof text, "%u", count);
    return store_server_put(job->store, SCOPE, "call", text, (size_t)digits);
}

hvd_status_t run_func_load(struct job *job, struct error *error)
{
    const struct os *os = job->os;
    if (job->args->run_func_folder == NULL || !has_remote(job))
        return HVD_OK;
    const char *path = mem_format(job->mem, "%s/call", job->args->run_func_folder);
    int fd = os->open(os->ctx, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return error_set_os(error, fd, "cannot open %s", path);
    uint8_t *chunk = os_alloc(os, CHUNK_BYTES);
    hvd_status_t status = chunk == NULL ? error_set(error, HVD_ERR_NO_MEMORY, "out of memory")
                                        : put_chunks(job, fd, chunk, error);
    os_free(os, chunk);
    os->close(os->ctx, fd);
    return status;
}

/* ---- the results ---- */

static uint32_t result_count(const struct job *job, int32_t rank)
{
    char key[64], text[16] = "";
    size_t n = 0;
    snprintf(key, sizeof key, "result.%d", rank);
    const void *blob = store_server_get(job->store, SCOPE, key, &n);
    if (blob == NULL || n == 0 || n >= sizeof text)
        return 0;
    memcpy(text, blob, n);
    unsigned long count = strtoul(text, NULL, 10);
    return count <= COUNT_MAX ? (uint32_t)count : 0;
}

static int write_all(const struct os *os, int fd, const uint8_t *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        int64_t put = os->write(os->ctx, fd, bytes + done, n - done);
        if (put == -EINTR)
            continue;
        if (put < 0)
            return (int)put;
        done += (size_t)put;
    }
    return 0;
}

static hvd_status_t save_one(struct job *job, int32_t rank, uint32_t count, struct error *error)
{
    const struct os *os = job->os;
    const char *path = mem_format(job->mem, "%s/result.%d", job->args->run_func_folder, rank);
    int fd = os->open(os->ctx, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -EEXIST)
        return HVD_OK; /* the folder is shared, the rank wrote it itself */
    int rc = fd < 0 ? fd : 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        char key[64];
        size_t n = 0;
        snprintf(key, sizeof key, "result.%d.%u", rank, i);
        const void *blob = store_server_get(job->store, SCOPE, key, &n);
        rc = blob != NULL ? write_all(os, fd, blob, n) : -ENODATA;
    }
    if (fd >= 0)
        os->close(os->ctx, fd);
    return rc < 0 ? error_set_os(error, rc, "cannot write the result of rank %d to %s", rank, path)
                  : HVD_OK;
}

hvd_status_t run_func_save(struct job *job, struct error *error)
{
    hvd_status_t status = HVD_OK;
    if (job->args->run_func_folder == NULL || job->store == NULL)
        return HVD_OK;
    for (int32_t rank = 0; status == HVD_OK && rank < job->generation.count; rank++) {
        uint32_t count = result_count(job, rank);
        if (count > 0)
            status = save_one(job, rank, count, error);
    }
    return status;
}
