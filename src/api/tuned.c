/* SPDX-License-Identifier: Apache-2.0 */
/* tuned.c - see tuned.h. */
#include "api/tuned.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/os.h"
#include "engine/engine.h"

#define LOG_HEADER                                                                                 \
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"   \
    "tensor_fusion_threshold,score"
#define FILE_BYTES 65536
#define LINE_BYTES 128

static void trouble(const struct tuned *t, const char *path, int error)
{
    LOG_AT(t->log, LOG_WARNING, "The autotuner can't use the file %s: %s.", path, strerror(-error));
}

/* ---- the log ---- */

static void row(void *ctx, const char *text)
{
    struct tuned *t = ctx;
    char line[256];
    int n = snprintf(line, sizeof line, "%s\n", text);
    if (t->fd < 0 || n < 0 || (size_t)n >= sizeof line)
        return;
    int64_t done = t->os->pwrite(t->os->ctx, t->fd, line, (size_t)n, t->offset);
    if (done == n) {
        t->offset += n;
        return;
    }
    trouble(t, t->config->autotune_log, done < 0 ? (int)done : 0);
    tuned_close(t);
}

/* ---- what was found ---- */

struct found {
    char text[FILE_BYTES];
    size_t bytes;
};

static struct found *file_read(const struct tuned *t)
{
    const char *path = t->config->autotune_cache;
    struct found *found = os_alloc(t->os, sizeof *found);
    int fd = found != NULL ? t->os->open(t->os->ctx, path, O_RDONLY | O_NONBLOCK, 0) : -1;
    while (fd >= 0 && found->bytes < FILE_BYTES - 1) {
        int64_t n =
            t->os->read(t->os->ctx, fd, found->text + found->bytes, FILE_BYTES - 1 - found->bytes);
        if (n <= 0)
            break;
        found->bytes += (size_t)n;
    }
    if (fd >= 0)
        t->os->close(t->os->ctx, fd);
    return found;
}

static bool line_get(const char *line, uint64_t *ret_key, struct tunables *ret)
{
    int64_t fusion, cycle;
    int32_t flows, percent;
    if (sscanf(line, "%16" SCNx64 " %18" SCNd64 " %18" SCNd64 " %9" SCNd32 " %9" SCNd32, ret_key,
               &fusion, &cycle, &flows, &percent) != 5)
        return false;
    ret->fusion_threshold_bytes = fusion;
    ret->cycle_time_ns = cycle;
    ret->flows = flows;
    ret->threshold_percent = percent;
    return true;
}

/* The next line, NUL-terminated in place; NULL: no more. */
static char *line_next(char **at)
{
    char *line = *at;
    if (*line == '\0')
        return NULL;
    size_t n = strcspn(line, "\n");
    *at = line + n + (line[n] == '\n');
    line[n] = '\0';
    return line;
}

static bool known(void *ctx, uint64_t key, struct tunables *ret)
{
    const struct tuned *t = ctx;
    struct found *found = t->config->autotune_cache[0] != '\0' ? file_read(t) : NULL;
    bool is_known = false;
    char *at = found != NULL ? found->text : NULL, *line;
    while (at != NULL && (line = line_next(&at)) != NULL) {
        uint64_t other;
        struct tunables v = *ret;
        if (!line_get(line, &other, &v) || other != key)
            continue;
        *ret = v;
        is_known = true;
    }
    os_free(t->os, found);
    return is_known;
}

static size_t line_put(char *text, uint64_t key, const struct tunables *v)
{
    int n = snprintf(text, LINE_BYTES, "%016" PRIx64 " %" PRId64 " %" PRId64 " %d %d\n", key,
                     v->fusion_threshold_bytes, v->cycle_time_ns, v->flows, v->threshold_percent);
    return n > 0 && n < LINE_BYTES ? (size_t)n : 0;
}

/* Written beside the old one and renamed: a reader sees one or the other. */
static int file_write(const struct tuned *t, const char *text, size_t bytes)
{
    char path[CONFIG_TEXT_MAX + 8];
    snprintf(path, sizeof path, "%s.new", t->config->autotune_cache);
    int fd = t->os->create(t->os->ctx, path, 0644);
    if (fd < 0)
        return fd;
    int64_t done = t->os->pwrite(t->os->ctx, fd, text, bytes, 0);
    t->os->close(t->os->ctx, fd);
    if (done != (int64_t)bytes)
        return done < 0 ? (int)done : -ENOSPC;
    return t->os->rename(t->os->ctx, path, t->config->autotune_cache);
}

static void found_put(void *ctx, uint64_t key, const struct tunables *tunables)
{
    const struct tuned *t = ctx;
    struct found *old = t->config->autotune_cache[0] != '\0' ? file_read(t) : NULL;
    struct found *next = old != NULL ? os_alloc(t->os, sizeof *next) : NULL;
    if (next != NULL) {
        char *at = old->text, *line;
        next->bytes = line_put(next->text, key, tunables); /* newest first: the oldest drop out */
        while ((line = line_next(&at)) != NULL && next->bytes < FILE_BYTES - LINE_BYTES) {
            uint64_t other;
            struct tunables v = {0};
            if (line_get(line, &other, &v) && other != key)
                next->bytes += line_put(next->text + next->bytes, other, &v);
        }
        int written = file_write(t, next->text, next->bytes);
        if (written < 0)
            trouble(t, t->config->autotune_cache, written);
    }
    os_free(t->os, next);
    os_free(t->os, old);
}

/* ---- open and close ---- */

void tuned_options(struct tuned *t, const struct os *os, const struct config *config,
                   const struct log *log, struct engine_options *options)
{
    *t = (struct tuned){.os = os, .config = config, .log = log, .fd = -1};
    if (!config->autotune || options->rank != 0)
        return;
    options->tuner_row = row;
    options->tuner_known = known;
    options->tuner_found = found_put;
    options->tuner_ctx = t;
    if (config->autotune_log[0] == '\0')
        return;
    t->fd = os->create(os->ctx, config->autotune_log, 0644);
    if (t->fd < 0)
        trouble(t, config->autotune_log, t->fd);
    row(t, LOG_HEADER);
}

void tuned_close(struct tuned *t)
{
    if (t->os != NULL && t->fd >= 0)
        t->os->close(t->os->ctx, t->fd);
    t->fd = -1;
}
