/* SPDX-License-Identifier: Apache-2.0 */
/* top.c - see top.h. */
#include "top.h"

#include <stdio.h>
#include <string.h>

#include "job.h"
#include "look.h"
#include "status.h"
#include "survey.h"

#define EVENTS_SHOWN 8
#define WAITS_SHOWN  3
#define NS           ((double)JOB_NS_PER_S)

/* ---- cells ---- */

static const struct ask_peer *peer_find(const struct ask_status *status, int32_t rank)
{
    for (int32_t i = 0; status != NULL && i < status->peer_count; i++)
        if (status->peers[i].rank == rank)
            return &status->peers[i];
    return NULL;
}

/* In memory that both share it is known; through a transport the time to receive is the bound. */
static int64_t waited_ns(const struct ask_peer *peer)
{
    return peer != NULL ? peer->awaits_ns + peer->receive_ns : 0;
}

static void rates(const struct ask_status *now, const struct ask_status *before, double seconds,
                  double *ret_sent, double *ret_received)
{
    *ret_sent = *ret_received = 0;
    for (int32_t i = 0; i < now->peer_count; i++) {
        const struct ask_peer *peer = &now->peers[i], *old = peer_find(before, peer->rank);
        if (old == NULL && before->peer_count == ASK_PEERS_MAX)
            continue; /* it was not among those that were reported */
        *ret_sent += (double)(peer->sent_bytes - (old != NULL ? old->sent_bytes : 0));
        *ret_received += (double)(peer->received_bytes - (old != NULL ? old->received_bytes : 0));
    }
    *ret_sent /= seconds * 1e6;
    *ret_received /= seconds * 1e6;
}

/* "1 (43 %), 3 (2 %)": the ranks that this one has waited for most since the survey before. */
static void waits_text(const struct ask_status *now, const struct ask_status *before,
                       double seconds, char *ret, size_t bytes)
{
    size_t used = 0;
    ret[0] = '\0';
    for (int32_t i = 0; i < now->peer_count && i < WAITS_SHOWN; i++) {
        int64_t ns = waited_ns(&now->peers[i]) - waited_ns(peer_find(before, now->peers[i].rank));
        double percent = 100 * (double)ns / NS / seconds;
        if (percent >= 1 && used + 32 < bytes)
            used +=
                (size_t)snprintf(ret + used, bytes - used, "%s%d (%.0f %%)", used > 0 ? ", " : "",
                                 now->peers[i].rank, percent < 100 ? percent : 100);
    }
}

static void doing_text(const struct survey *s, const struct ask_status *status, char *ret,
                       size_t bytes)
{
    const char *missing = survey_missing(s, status);
    if (strcmp(status->state, "running") != 0)
        snprintf(ret, bytes, "%s%s%.120s", status->state, status->cause[0] != '\0' ? ": " : "",
                 status->cause);
    else if (status->op_ns < JOB_NS_PER_S || status->op[0] == '\0')
        ret[0] = '\0';
    else
        snprintf(ret, bytes, "%s %.60s for %.0f s%s%s", status->doing, status->op,
                 (double)status->op_ns / NS, missing[0] != '\0' ? ", waits for rank " : "",
                 missing);
}

/* ---- lines ---- */

static void status_write(struct job *job, const struct survey *s, int32_t rank, struct bytes *out)
{
    const struct ask_status *now = &s->ranks[rank].status;
    double seconds = 0, sent = 0, received = 0, step_ms = (double)now->step_ns / 1e6, alone = 0,
           user = 0, system = 0;
    const struct ask_status *before = survey_before(s, rank, &seconds);
    char waits[96] = "", doing[320];
    if (before != NULL) {
        rates(now, before, seconds, &sent, &received);
        waits_text(now, before, seconds, waits, sizeof waits);
        if (now->steps > before->steps)
            step_ms = (double)(now->steps_ns - before->steps_ns) / 1e6 /
                      (double)(now->steps - before->steps);
        alone = 100 * (double)(now->alone_ns - before->alone_ns) / NS / seconds;
        user = 100 * (double)(now->user_ns - before->user_ns) / NS / seconds;
        system = 100 * (double)(now->system_ns - before->system_ns) / NS / seconds;
    }
    doing_text(s, now, doing, sizeof doing);
    status_say(job, out, " %9llu %9.1f", (unsigned long long)now->steps, step_ms);
    if (before != NULL)
        status_say(job, out, " %6.0f%% %4.0f%% %4.0f%% %9.1f %9.1f %9.1f",
                   alone < 100 ? alone : 100, user, system,
                   (double)(now->op_bytes - before->op_bytes) / seconds / 1e6, sent, received);
    else
        status_say(job, out, " %7s %5s %5s %9s %9s %9s", "-", "-", "-", "-", "-", "-");
    status_say(job, out, "  %-20s %s", waits, doing);
}

static void rank_write(struct job *job, const struct survey *s, int32_t rank, struct bytes *out)
{
    const struct survey_rank *r = &s->ranks[rank];
    const struct rank_run *end = look_end(job, rank);
    struct host_run *run = NULL;
    uint32_t index = 0;
    char how[128];
    bool has_seat = look_seat(job, rank, &run, &index);
    status_say(job, out, "%5d %-16.16s", rank, has_seat ? run->host->name : "-");
    if (end != NULL) {
        report_describe_end(end, how, sizeof how);
        status_say(job, out, " %s", how);
    } else if (!r->has_answered) {
        status_say(job, out, " the agent on its host has not answered");
    } else if (!r->has_status) {
        status_say(job, out, " has not completed hvd.init() (%s)", r->state);
    } else {
        status_write(job, s, rank, out);
    }
    status_say(job, out, "\n");
}

static void verdicts_write(struct job *job, const struct survey *s, struct bytes *out)
{
    for (int32_t rank = 0; rank < s->count; rank++)
        if (s->waiting[rank] > 0)
            status_say(job, out, "%d rank%s wait for rank %d.\n", s->waiting[rank],
                       s->waiting[rank] == 1 ? "" : "s", rank);
    if (s->count > 0 && s->ranks[0].has_status && s->ranks[0].status.slow[0] != '\0')
        status_say(job, out, "Slow: rank %s.\n", s->ranks[0].status.slow);
}

static void events_write(struct job *job, struct bytes *out)
{
    const struct output *o = &job->output;
    uint64_t first = o->event_count > EVENTS_SHOWN ? o->event_count - EVENTS_SHOWN : 0;
    int64_t now_us = job->os->wall_us(job->os->ctx);
    for (uint64_t i = first; i < o->event_count; i++) {
        const struct output_event *event = &o->events[i % OUTPUT_EVENTS];
        status_say(job, out, "%s%6.0f s ago  %s\n", i == first ? "\n" : "",
                   (double)(now_us - event->at_us) / 1e6, event->text);
    }
}

void top_write(struct job *job, const struct survey *s, struct bytes *out)
{
    status_say_line(job, out, s->at_ns);
    status_say(job, out, "%5s %-16s %9s %9s %7s %5s %5s %9s %9s %9s  %-20s %s\n", "rank", "host",
               "step", "ms/step", "alone", "user", "sys", "data MB/s", "sent MB/s", "recv MB/s",
               "waits for", "now");
    for (int32_t rank = 0; rank < s->count; rank++)
        rank_write(job, s, rank, out);
    verdicts_write(job, s, out);
    events_write(job, out);
}
