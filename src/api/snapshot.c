/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - hvd_snapshot() and hvd_metrics(): the identity of this process, and the state of its
 * engine (engine/snapshot.c); and the snapshot in a file when the job breaks
 * (HOROVOD_POSTMORTEM_DIR), which needs no thread of Python.
 *
 * Thread: any. Reads with the token if it is available, else concurrently with its holder. Start
 * reading at hvd_snapshot(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "api/instance.h"
#include "base/json.h"

#define TOKEN_WAIT_NS 100000000LL

static void who_write(struct json *json, const struct world *world)
{
    json_int(json, "rank", world->place.rank);
    json_int(json, "size", world->place.size);
    json_int(json, "local_rank", world->place.local_rank);
    json_int(json, "local_size", world->place.local_size);
    json_int(json, "cross_rank", world->place.cross_rank);
    json_int(json, "cross_size", world->place.cross_size);
    json_text_part(json, "host", world->endpoints[world->place.rank].host_name,
                   sizeof world->endpoints->host_name);
    json_uint(json, "epoch", world->epoch);
}

static void head_write(struct json *json, const struct os *os)
{
    json_open(json, NULL, true);
    json_int(json, "version", HVD_SNAPSHOT_VERSION);
    json_text(json, "horovod", HVD_VERSION_STRING);
    json_int(json, "pid", os->pid(os->ctx));
    json_seconds(json, "time_s", os->wall_us(os->ctx) * 1000);
}

/* ---- post-mortem ---- */

/* Written under another name first, so that a reader never sees half of it. */
static int file_write(const struct os *os, const char *path, const char *text, size_t n)
{
    char part[CONFIG_TEXT_MAX + 64];
    snprintf(part, sizeof part, "%s.part", path);
    int fd = os->open(os->ctx, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    int64_t done = 1;
    for (size_t at = 0; at < n && done > 0; at += (size_t)done)
        done = os->write(os->ctx, fd, text + at, n - at);
    os->close(os->ctx, fd);
    return done <= 0 ? (done < 0 ? (int)done : -EIO) : os->rename(os->ctx, part, path);
}

void snapshot_postmortem(struct world *world)
{
    const struct os *os = world->os;
    char path[CONFIG_TEXT_MAX + 32];
    struct json json;
    char *text = os_alloc(os, HVD_SNAPSHOT_BYTES);
    if (text == NULL)
        return;
    json_init(&json, text, HVD_SNAPSHOT_BYTES);
    head_write(&json, os);
    who_write(&json, world);
    snapshot_write(world->engine, os_now_ns(os), true, &json);
    json_close(&json);
    os->mkdir(os->ctx, world->config.postmortem_dir, 0700); /* it may be there */
    snprintf(path, sizeof path, "%s/rank.%d.json", world->config.postmortem_dir, world->place.rank);
    int rc = file_write(os, path, text, json.used);
    if (rc < 0)
        LOG_AT(&world->log, LOG_WARNING, "HOROVOD_POSTMORTEM_DIR: %s can't be written: %s.", path,
               strerror(-rc));
    os_free(os, text);
}

/* ---- on request ---- */

static void world_write(struct json *json, struct world *world)
{
    bool has_token = driver_look_begin(&world->driver, TOKEN_WAIT_NS);
    who_write(json, world);
    if (!has_token)
        json_seconds(json, "busy_s", driver_turn_age_ns(&world->driver));
    snapshot_write(world->engine, os_now_ns(world->os), has_token, json);
    if (has_token)
        driver_look_end(&world->driver);
}

size_t hvd_metrics(char *ret_text, size_t bytes)
{
    struct json json;
    if (ret_text == NULL || bytes < HVD_METRICS_MIN)
        return 0;
    json_init(&json, ret_text, bytes);
    json_open(&json, NULL, true);
    json_int(&json, "version", HVD_METRICS_VERSION);
    struct world *world = instance_enter();
    bool has_token = world != NULL && driver_look_begin(&world->driver, TOKEN_WAIT_NS);
    json_text(&json, "state",
              has_token       ? "initialised"
              : world != NULL ? "busy"
                              : "not initialised");
    if (has_token) {
        who_write(&json, world);
        metrics_write(world->engine, &json);
        driver_look_end(&world->driver);
    }
    if (world != NULL)
        instance_leave();
    json_close(&json);
    return json.used;
}

size_t hvd_snapshot(char *ret_text, size_t bytes)
{
    const struct os *os = os_host();
    struct json json;
    if (ret_text == NULL || bytes < HVD_SNAPSHOT_MIN)
        return 0;
    json_init(&json, ret_text, bytes);
    head_write(&json, os);
    struct world *world = instance_enter();
    if (world != NULL) {
        world_write(&json, world);
        instance_leave();
    } else {
        json_text(&json, "state", "not initialised");
    }
    json_close(&json);
    return json.used;
}
