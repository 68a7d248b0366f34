/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - hvd_snapshot() and hvd_metrics(): the identity of this process, and the state of its
 * engine (engine/snapshot.c). dump.c writes the same into a file.
 *
 * Thread: any. Reads with the token if it is available, else concurrently with its holder. Start
 * reading at hvd_snapshot(). */
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

size_t snapshot_text(struct world *world, const char *reason, bool is_token, char *ret_text,
                     size_t bytes)
{
    struct json json;
    json_init(&json, ret_text, bytes);
    head_write(&json, world->os);
    json_text(&json, "reason", reason);
    if (is_token) {
        who_write(&json, world);
        snapshot_write(world->engine, os_now_ns(world->os), true, &json);
    } else {
        world_write(&json, world);
    }
    json_close(&json);
    return json.used;
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
