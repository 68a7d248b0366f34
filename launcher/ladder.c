/* SPDX-License-Identifier: Apache-2.0 */
/* ladder.c - start-up that talks: after a few seconds, and then now and again, one line for each
 * host that is missing, with what it got to. Says nothing while all goes well.
 *
 * Whether a worker will ever come to the rendezvous cannot be known (`horovodrun true` does not),
 * so the wait for it only counts from the moment the first one came. Thread: the launcher's loop.
 * Start reading at ladder_tick(). */
#include <stdio.h>
#include <string.h>

#include "job.h"

#define FIRST_S     3
#define EVERY_S     5
#define MISSING_MAX 8 /* ranks named in one line */

static int32_t arrived(const struct job *job, uint8_t *ret_present)
{
    if (job->store == NULL)
        return 0;
    return store_server_arrived(job->store, JOB_SCOPE, STORE_EPOCH_ANY, ret_present,
                                job->generation.count);
}

static bool has_arrived(const uint8_t *present, int32_t rank)
{
    return (present[rank / 8] >> (rank % 8) & 1) != 0;
}

void ladder_describe(const struct job *job, const struct host_run *run, char *ret_text,
                     size_t bytes)
{
    const char *way = run->is_local ? "" : "ssh ok, ";
    switch (run->stage) {
    case HOST_WAITING:
        snprintf(ret_text, bytes, "ssh failed %d time%s, trying again", run->attempts,
                 run->attempts == 1 ? "" : "s");
        return;
    case HOST_CONNECTING:
        snprintf(ret_text, bytes,
                 run->is_local ? "its agent has not answered yet" : "ssh has not connected yet");
        return;
    case HOST_UP: snprintf(ret_text, bytes, "%sagent up, waiting for the other hosts", way); return;
    case HOST_STARTING:
        snprintf(ret_text, bytes, "%sagent up, has not dialled back to %s", way,
                 job->dial == NULL || job->dial[0] == '\0' ? "us" : job->dial);
        return;
    case HOST_RUNNING:
        if (run->is_local)
            snprintf(ret_text, bytes, "started, has not called init yet");
        else
            snprintf(ret_text, bytes, "%sstarted, has not dialled back to %s", way,
                     job->rendezvous);
        return;
    case HOST_GONE: snprintf(ret_text, bytes, "gone"); return;
    }
}

static void name_missing(const struct host_run *run, const uint8_t *present, char *ret_text,
                         size_t bytes)
{
    size_t used = 0;
    int named = 0;
    ret_text[0] = '\0';
    for (int32_t i = 0; i < run->rank_count && named <= MISSING_MAX; i++) {
        int32_t rank = run->first_rank + i;
        if (has_arrived(present, rank))
            continue;
        int n = named == MISSING_MAX ? snprintf(ret_text + used, bytes - used, " ...")
                                     : snprintf(ret_text + used, bytes - used, "%s%d",
                                                named == 0 ? " rank " : ",", rank);
        if (n < 0 || (size_t)n >= bytes - used)
            return;
        used += (size_t)n;
        named++;
    }
}

static void say_hosts(struct job *job, double seconds)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        char text[512];
        if (run->stage >= HOST_UP && !job->is_started)
            continue;
        if (run->stage >= HOST_RUNNING)
            continue;
        ladder_describe(job, run, text, sizeof text);
        output_say(&job->output, 2, "horovodrun: waiting %.0f s for %s: %s", seconds,
                   run->host->name, text);
        job->ladder.has_spoken = true;
    }
}

static void say_ranks(struct job *job, const uint8_t *present, double seconds)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        char text[512], missing[128];
        name_missing(run, present, missing, sizeof missing);
        if (missing[0] == '\0' || run->stage != HOST_RUNNING)
            continue;
        ladder_describe(job, run, text, sizeof text);
        output_say(&job->output, 2, "horovodrun: waiting %.0f s for %s%s: %s", seconds,
                   run->host->name, missing, text);
        job->ladder.has_spoken = true;
    }
}

int32_t ladder_never_came(const struct job *job)
{
    int32_t rank = 0;
    while (rank < job->generation.count && !job->generation.ranks[rank].is_ended)
        rank++;
    if (rank == job->generation.count)
        return -1;
    uint8_t *present = os_alloc(job->os, ((size_t)job->generation.count + 7) / 8);
    if (present == NULL)
        return -1;
    int32_t count = arrived(job, present), found = -1;
    for (; count > 0 && count < job->generation.count && rank < job->generation.count && found < 0;
         rank++)
        if (job->generation.ranks[rank].is_ended && !has_arrived(present, rank))
            found = rank;
    os_free(job->os, present);
    return found;
}

static void tick_ranks(struct job *job, int64_t now_ns)
{
    size_t bytes = ((size_t)job->generation.count + 7) / 8;
    uint8_t *present = os_alloc(job->os, bytes);
    if (present == NULL)
        return;
    int32_t count = arrived(job, present);
    if (count > 0 && job->ladder.dial_since_ns == 0)
        job->ladder.dial_since_ns = now_ns;
    int64_t waited_ns = now_ns - job->ladder.dial_since_ns;
    /* A finished exchange may be forgotten by the store: fewer than before means done. */
    if (count == job->generation.count || (count == 0 && job->ladder.dial_since_ns != 0))
        job->ladder.is_quiet = true;
    else if (count > 0 && waited_ns >= FIRST_S * JOB_NS_PER_S)
        say_ranks(job, present, (double)waited_ns / (double)JOB_NS_PER_S);
    os_free(job->os, present);
}

void ladder_tick(struct job *job, int64_t now_ns)
{
    struct ladder *ladder = &job->ladder;
    if (job->is_stopping || ladder->is_quiet)
        return;
    if (ladder->next_ns == 0)
        ladder->next_ns = job->started_ns + FIRST_S * JOB_NS_PER_S;
    if (now_ns < ladder->next_ns)
        return;
    ladder->next_ns = now_ns + (fleet_is(job, HOST_RUNNING) ? 1 : EVERY_S) * JOB_NS_PER_S;
    if (!fleet_is(job, HOST_RUNNING)) {
        say_hosts(job, (double)(now_ns - job->started_ns) / (double)JOB_NS_PER_S);
        return;
    }
    bool was_waiting = ladder->dial_since_ns != 0;
    tick_ranks(job, now_ns);
    if (was_waiting && !ladder->is_quiet && ladder->has_spoken)
        ladder->next_ns = now_ns + EVERY_S * JOB_NS_PER_S;
}
