/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard_json.c - what the dashboard's page shows, as JSON: docs/dashboard.md has the fields.
 * Numbers are sums since hvd.init(); the page subtracts what it got before.
 * Thread: the launcher's loop.  Start reading at dashboard_json(). */
#include "base/json.h"
#include "dashboard.h"
#include "job.h"
#include "look.h"
#include "status.h"
#include "survey.h"

#define BYTES_BASE     (128u << 10)
#define BYTES_PER_RANK (8u << 10)

static void peers_write(struct json *json, const struct ask_status *status)
{
    if (!json_open(json, "peers", false))
        return;
    for (int32_t i = 0; i < status->peer_count; i++) {
        const struct ask_peer *peer = &status->peers[i];
        if (!json_open(json, NULL, true))
            break;
        json_int(json, "rank", peer->rank);
        json_seconds(json, "awaits_s", peer->awaits_ns);
        json_uint(json, "sent_bytes", peer->sent_bytes);
        json_uint(json, "received_bytes", peer->received_bytes);
        json_seconds(json, "send_s", peer->send_ns);
        json_seconds(json, "receive_s", peer->receive_ns);
        json_close(json);
    }
    json_close(json);
}

static void engine_write(struct json *json, const struct survey *s, const struct ask_status *status)
{
    json_uint(json, "epoch", status->epoch);
    json_text(json, "state", status->state);
    json_text(json, "cause", status->cause);
    json_uint(json, "steps", status->steps);
    json_seconds(json, "step_s", status->step_ns);
    json_seconds(json, "since_s", status->since_ns);
    json_seconds(json, "steps_s", status->steps_ns);
    json_seconds(json, "alone_s", status->alone_ns);
    json_seconds(json, "user_s", status->user_ns);
    json_seconds(json, "system_s", status->system_ns);
    json_uint(json, "op_bytes", status->op_bytes);
    json_int(json, "in_flight", status->in_flight);
    json_text(json, "op", status->op);
    json_text(json, "doing", status->doing);
    json_seconds(json, "op_s", status->op_ns);
    json_text(json, "missing", survey_missing(s, status));
    peers_write(json, status);
}

static void rank_write(struct json *json, const struct job *job, const struct survey *s,
                       int32_t rank)
{
    const struct survey_rank *r = &s->ranks[rank];
    const struct rank_run *end = look_end(job, rank);
    struct host_run *run = NULL;
    uint32_t index = 0;
    char how[128];
    json_int(json, "rank", rank);
    json_text(json, "host", look_seat(job, rank, &run, &index) ? run->host->name : "");
    json_int(json, "waited_for_by", s->waiting[rank]);
    if (end != NULL) {
        report_describe_end(end, how, sizeof how);
        json_int(json, "pid", end->pid);
        json_text(json, "state", how);
    } else if (!r->has_answered) {
        json_text(json, "state", "the agent on its host has not answered");
    } else {
        json_int(json, "pid", r->pid);
        json_text(json, "process", r->state);
        if (r->has_status)
            engine_write(json, s, &r->status);
        else
            json_text(json, "state", "has not completed hvd.init()");
    }
}

static void ranks_write(struct json *json, const struct job *job, const struct survey *s)
{
    int32_t count = 0;
    if (!json_open(json, "ranks", false))
        return;
    for (bool has_room = true; has_room && count < s->count; count += has_room) {
        struct json_mark mark = json_try(json);
        if (json_open(json, NULL, true)) {
            rank_write(json, job, s, count);
            json_close(json);
        }
        has_room = json_tried(json, &mark);
    }
    json_close(json);
    json_int(json, "ranks_left_out", s->count - count);
}

static void events_write(struct json *json, const struct output *o)
{
    uint64_t first = o->event_count > OUTPUT_EVENTS ? o->event_count - OUTPUT_EVENTS : 0;
    if (!json_open(json, "events", false))
        return;
    for (uint64_t i = first; i < o->event_count; i++) {
        const struct output_event *event = &o->events[i % OUTPUT_EVENTS];
        if (!json_open(json, NULL, true))
            break;
        json_uint(json, "number", i);
        json_seconds(json, "time_s", 1000 * event->at_us);
        json_text(json, "text", event->text);
        json_close(json);
    }
    json_close(json);
}

static void command_write(struct json *json, const struct job *job)
{
    if (!json_open(json, "command", false))
        return;
    for (size_t i = 0; i < job->command.count && i < 64; i++)
        json_text_part(json, NULL, job->command.items[i], 256);
    json_close(json);
}

void dashboard_json(struct job *job, const struct survey *s, struct bytes *out)
{
    size_t room = BYTES_BASE + (size_t)s->count * BYTES_PER_RANK;
    room = room < STATUS_TEXT_MAX ? room : STATUS_TEXT_MAX;
    struct json json;
    json_init(&json, (char *)bytes_room(job->os, out, room), room);
    if (json_open(&json, NULL, true)) {
        json_int(&json, "version", 1);
        json_int(&json, "pid", job->os->pid(job->os->ctx));
        json_seconds(&json, "time_s", 1000 * job->os->wall_us(job->os->ctx));
        json_seconds(&json, "running_s", s->at_ns - job->started_ns);
        json_bool(&json, "is_stopping", job->is_stopping);
        json_bool(&json, "is_elastic", job->elastic != NULL);
        command_write(&json, job);
        if (s->count > 0 && s->ranks[0].has_status)
            json_text(&json, "slow", s->ranks[0].status.slow);
        events_write(&json, &job->output);
        ranks_write(&json, job, s);
        json_close(&json);
    }
    bytes_grew(out, json.used);
}
