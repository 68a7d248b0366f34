/* SPDX-License-Identifier: Apache-2.0 */
/* supervise.c - the launcher's loop: brings the hosts up, serves the rendezvous, passes output on,
 * watches for the first failure and for signals, and leaves only when nothing of the job is left.
 *
 * Thread: one.  Invariant: from the first failure or signal on, everything is gone within
 * JOB_GIVE_UP_MS; the report comes last.  Start reading at supervise_run(). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "dashboard.h"
#include "elastic.h"
#include "job.h"
#include "look.h"
#include "remote.h"
#include "run_func.h"
#include "spawn.h"
#include "status.h"
#include "survey.h"
#include "wire/key.h"

#define EVENTS_MAX     64
#define TICK_NS        JOB_NS_PER_S
#define SWEEP_MS       1000
#define LAST_OUTPUT_NS (2 * JOB_NS_PER_S)
#define VANISHED_NS    (JOB_NS_PER_S / 2) /* for the end of the process to be told, if it is */

bool job_is_verbose(const struct job *job)
{
    return job->args->verbose;
}

void job_stop(struct job *job, int64_t grace_ms)
{
    if (!job->is_stopping) {
        int64_t now_ns = os_now_ns(job->os);
        int64_t since_ns =
            job->blame_limit_ns == 0 ? now_ns : job->blame_limit_ns - JOB_GRACE_MS * JOB_NS_PER_MS;
        job->is_stopping = true;
        job->stopped_ns = now_ns;
        job->give_up_ns = since_ns + JOB_GIVE_UP_MS * JOB_NS_PER_MS;
    }
    fleet_send_stop(job, grace_ms);
}

/* ---- signals ---- */

static void on_children(struct job *job)
{
    struct spawn_end end;
    while (spawn_reap(-1, &end)) {
        int code = end.signal != 0 ? 128 + end.signal : end.code;
        if (job->elastic == NULL || !elastic_reaped(job, end.pid, code))
            fleet_reaped(job, end.pid, code);
    }
}

/* Ctrl-Z holds the whole job, fg goes on with it. */
static void on_suspend(struct job *job)
{
    fleet_send_signal(job, SIGSTOP);
    kill(getpid(), SIGSTOP);
    fleet_send_signal(job, SIGCONT);
}

void supervise_signals(struct job *job)
{
    int sender = 0;
    for (int n = spawn_signals_next(job->signal_fd, &sender); n != 0;
         n = spawn_signals_next(job->signal_fd, &sender)) {
        if (n == SIGCHLD)
            on_children(job);
        else if (n == SIGTSTP)
            on_suspend(job);
        else if (n != SIGCONT)
            verdict_signal(job, n);
    }
}

/* ---- output that does not get away ---- */

static void watch_output(struct job *job)
{
    const struct os *os = job->os;
    output_flush(&job->output);
    for (int i = 0; i < 2; i++) {
        bool wants = bytes_used(&job->output.sinks[i].queue) > 0;
        if (wants && !job->is_output_polled[i])
            os->poll_add(os->ctx, job->poll_fd, i + 1, &job->output_tags[i], true);
        if (!wants && job->is_output_polled[i])
            os->poll_remove(os->ctx, job->poll_fd, i + 1);
        job->is_output_polled[i] = wants;
    }
    bool is_full = output_is_full(&job->output) && !job->is_stopping;
    if (is_full != job->is_paused)
        fleet_pause(job, is_full);
    job->is_paused = is_full;
    if (output_is_gone(&job->output))
        verdict_output(job);
}

/* ---- steps of the loop ---- */

static void start_when_up(struct job *job)
{
    struct error error;
    if (job->is_started || job->is_stopping || !fleet_is(job, HOST_UP))
        return;
    error_clear(&error);
    job->is_started = true;
    if (rendezvous_open(job, &error) != HVD_OK || run_func_load(job, &error) != HVD_OK) {
        job->verdict = (struct verdict){.kind = VERDICT_HOST,
                                        .at_ns = os_now_ns(job->os),
                                        .text = mem_copy(job->mem, error.text)};
        job_stop(job, 0);
        return;
    }
    store_server_watch(job->store, JOB_SCOPE);
    job->store_tag.kind = JOB_TAG_STORE;
    job->os->poll_add(job->os->ctx, job->poll_fd, store_server_poll_fd(job->store), &job->store_tag,
                      false);
    fleet_send_start(job);
}

static void check_start_limit(struct job *job, int64_t now_ns)
{
    if (job->is_stopping || now_ns < job->start_limit_ns || fleet_is(job, HOST_RUNNING))
        return;
    for (int32_t i = 0; i < job->run_count; i++) {
        char text[512];
        if (job->runs[i].stage >= (job->is_started ? HOST_RUNNING : HOST_UP))
            continue;
        ladder_describe(job, &job->runs[i], text, sizeof text);
        verdict_host(
            job, &job->runs[i],
            mem_format(job->mem, "not up after %.0f s (--start-timeout): %s%s%.*s",
                       (double)(job->start_limit_ns - job->started_ns) / (double)JOB_NS_PER_S, text,
                       bytes_used(&job->runs[i].err_text) > 0 ? "\n" : "",
                       (int)bytes_used(&job->runs[i].err_text),
                       (const char *)bytes_at(&job->runs[i].err_text)));
        return;
    }
}

/* The others would wait until their own time limit for a rank that can't come any more: it died
 * behind a wrapper that lives on, or its command ended well without ever joining. */
static void check_meeting(struct job *job, int64_t now_ns)
{
    if (job->is_stopping || job->blame_limit_ns != 0 || job->store == NULL)
        return;
    int32_t rank = store_server_vanished(job->store, now_ns - VANISHED_NS);
    if (rank >= 0 && rank < job->generation.count) {
        verdict_lost(job, rank,
                     job->generation.ranks[rank].is_ended
                         ? "ended while the ranks were meeting in hvd.init(), with exit code 0"
                         : "has gone while the ranks were meeting in hvd.init(): its process "
                           "died, though the command it was started with still runs");
        return;
    }
    rank = ladder_never_came(job);
    if (rank >= 0)
        verdict_lost(job, rank,
                     "ended with exit code 0 and never called hvd.init(), where other ranks "
                     "wait for it");
}

static int64_t next_wait_ns(const struct job *job, int64_t now_ns)
{
    int64_t until_ns = now_ns + TICK_NS;
    int64_t retry_ns = fleet_next_retry_ns(job);
    int64_t store_ns = job->store == NULL ? INT64_MAX : store_server_deadline_ns(job->store);
    if (retry_ns < until_ns)
        until_ns = retry_ns;
    if (store_ns < until_ns)
        until_ns = store_ns;
    if (look_next_ns(job) < until_ns)
        until_ns = look_next_ns(job);
    if (survey_next_ns(job) < until_ns)
        until_ns = survey_next_ns(job);
    if (job->is_stopping && job->give_up_ns < until_ns)
        until_ns = job->give_up_ns;
    if (!job->is_stopping && job->blame_limit_ns != 0 && job->blame_limit_ns < until_ns)
        until_ns = job->blame_limit_ns;
    if (!job->is_stopping && job->mourn_limit_ns != 0 && job->mourn_limit_ns < until_ns)
        until_ns = job->mourn_limit_ns;
    if (job->elastic != NULL && !job->is_stopping && elastic_next_ns(job) < until_ns)
        until_ns = elastic_next_ns(job);
    return until_ns > now_ns ? until_ns - now_ns : 0;
}

static void on_event(struct job *job, const struct os_event *event)
{
    const struct job_tag *tag = event->tag;
    switch (tag->kind) {
    case JOB_TAG_SIGNALS: supervise_signals(job); return;
    case JOB_TAG_CALLER:
        if (run_func_is_abandoned(job))
            verdict_signal(job, SIGHUP);
        return;
    case JOB_TAG_DISCOVERY: elastic_read_discovery(job); return;
    case JOB_TAG_STATUS: status_event(job, os_now_ns(job->os)); return;
    case JOB_TAG_DASHBOARD: dashboard_event(job, os_now_ns(job->os)); return;
    case JOB_TAG_STORE:
    case JOB_TAG_OUTPUT: return; /* served in every round */
    case JOB_TAG_LINK_IN:
    case JOB_TAG_STDERR:
    case JOB_TAG_LINK_OUT: fleet_event(job, tag); return;
    }
}

static bool is_over(const struct job *job)
{
    if (fleet_is(job, HOST_GONE) && (job->elastic == NULL || job->is_stopping))
        return true;
    return job->is_stopping && os_now_ns(job->os) >= job->give_up_ns;
}

static void tend_ranks(struct job *job, int64_t now_ns)
{
    start_when_up(job);
    check_start_limit(job, now_ns);
    check_meeting(job, now_ns);
    verdict_tick(job, now_ns);
    ladder_tick(job, now_ns);
}

static void loop(struct job *job)
{
    struct os_event events[EVENTS_MAX];
    while (!is_over(job)) {
        int64_t now_ns = os_now_ns(job->os);
        int n = job->os->poll_wait(job->os->ctx, job->poll_fd, events, EVENTS_MAX,
                                   next_wait_ns(job, now_ns));
        for (int i = 0; i < n; i++)
            on_event(job, &events[i]);
        now_ns = os_now_ns(job->os);
        if (job->store != NULL)
            store_server_progress(job->store, now_ns);
        fleet_retry(job);
        fleet_ping(job, now_ns);
        if (job->elastic != NULL)
            elastic_turn(job, now_ns);
        else
            tend_ranks(job, now_ns);
        look_tick(job, now_ns);
        survey_tick(job, now_ns);
        status_tick(job, now_ns);
        dashboard_tick(job, now_ns);
        fleet_flush(job);
        watch_output(job);
    }
}

/* Agents close their end and leave; what does not is ended here, with whatever it left to us. */
static void sweep(struct job *job)
{
    int64_t deadline_ns = os_now_ns(job->os) + SWEEP_MS * JOB_NS_PER_MS;
    bool is_forced = !fleet_is(job, HOST_GONE);
    struct spawn_end end;
    fleet_destroy(job);
    while (spawn_has_children() && os_now_ns(job->os) < deadline_ns) {
        bool is_late = os_now_ns(job->os) > deadline_ns - SWEEP_MS / 2 * JOB_NS_PER_MS;
        if (is_forced || is_late)
            spawn_signal_descendants(job->os, SIGKILL);
        while (spawn_reap(-1, &end)) {}
        job->os->sleep_ns(job->os->ctx, JOB_NS_PER_MS / 4);
    }
}

static void layout_hosts(struct job *job)
{
    bool *is_local = mem_alloc(job->mem, (size_t)job->hosts->count * sizeof *is_local);
    locality_mark_hosts(&job->locality, job->os, job->mem, job->hosts, is_local);
    job->runs = mem_alloc(job->mem, (size_t)job->hosts->count * sizeof *job->runs);
    for (int32_t rank = 0; rank < job->generation.count;
         rank += job->generation.slots[rank].local_size) {
        int32_t host = job->generation.slots[rank].host;
        job->runs[job->run_count++] =
            (struct host_run){.host = &job->hosts->items[host],
                              .is_local = is_local[host] && job->args->rsh_agent == NULL,
                              .first_rank = rank,
                              .rank_count = job->generation.slots[rank].local_size,
                              .err_fd = -1,
                              .link = {.in_fd = -1, .out_fd = -1}};
        for (int32_t i = 0; i < job->generation.slots[rank].local_size; i++)
            generation_seat(&job->generation, rank + i, job->run_count - 1, (uint32_t)i);
    }
}

hvd_status_t supervise_open(struct job *job, struct error *error)
{
    const struct os *os = job->os;
    job->poll_fd = job->signal_fd = job->ssh_config_fd = -1;
    job->started_ns = os_now_ns(os);
    job->stopped_ns = INT64_MAX;
    job->start_limit_ns = job->started_ns + job->args->start_timeout_s.value * JOB_NS_PER_S;
    output_init(&job->output, os, job->mem, job->generation.count,
                job->args->prefix_output_with_timestamp);
    hvd_status_t status = locality_load(job->mem, &job->locality, error);
    if (status != HVD_OK)
        return status;
    if (job->elastic == NULL)
        layout_hosts(job);
    if (job->args->output_filename != NULL && job->elastic == NULL)
        status = output_open_files(&job->output, job->mem, job->args->output_filename, error);
    if (status == HVD_OK)
        status = key_generate(os, job->key, error);
    if (status != HVD_OK)
        return status;
    job->ssh_config_fd = spawn_secret_file(REMOTE_SSH_CONFIG, sizeof REMOTE_SSH_CONFIG - 1);
    spawn_adopt_orphans();
    job->file_limit = spawn_raise_file_limit();
    job->signal_fd = spawn_signals_open();
    job->poll_fd = os->poll_create(os->ctx);
    if (job->signal_fd < 0 || job->poll_fd < 0)
        return error_set_os(error, job->signal_fd < 0 ? job->signal_fd : job->poll_fd,
                            "cannot watch processes");
    job->signal_tag.kind = JOB_TAG_SIGNALS;
    job->output_tags[0].kind = job->output_tags[1].kind = JOB_TAG_OUTPUT;
    os->poll_add(os->ctx, job->poll_fd, job->signal_fd, &job->signal_tag, false);
    job->caller_tag.kind = JOB_TAG_CALLER;
    run_func_watch(job, &job->caller_tag);
    return HVD_OK;
}

static void remove_key_files(struct job *job)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        const struct host_run *run = &job->runs[i];
        if (run->is_local && run->key_path != NULL && run->key_path[0] != '\0')
            spawn_secret_remove(job->mem, run->key_path);
    }
}

void supervise_close(struct job *job)
{
    sweep(job);
    remove_key_files(job);
    output_drain(&job->output, LAST_OUTPUT_NS);
    rendezvous_close(job);
    bytes_wipe(job->key, sizeof job->key);
    output_destroy(&job->output);
    look_destroy(job);
    status_close(job);
    dashboard_close(job);
    survey_destroy(job);
    bytes_free(job->os, &job->summary);
    if (job->signal_fd >= 0)
        job->os->close(job->os->ctx, job->signal_fd);
    if (job->poll_fd >= 0)
        job->os->close(job->os->ctx, job->poll_fd);
    if (job->ssh_config_fd >= 0)
        job->os->close(job->os->ctx, job->ssh_config_fd);
    job->signal_fd = job->poll_fd = job->ssh_config_fd = -1;
}

int supervise_run(struct job *job)
{
    struct error error;
    int code = 1;
    error_clear(&error);
    if (supervise_open(job, &error) != HVD_OK || dashboard_open(job, &error) != HVD_OK) {
        output_say(&job->output, 2, "horovodrun: %s", error.text);
    } else {
        status_open(job);
        if (job->elastic == NULL)
            fleet_start(job);
        else
            elastic_start(job);
        loop(job);
        sweep(job);
        for (int32_t i = 0; i < job->output.count; i++)
            output_finish_rank(&job->output, i);
        output_drain(&job->output, LAST_OUTPUT_NS); /* or the report would overtake it */
        look_tick(job, INT64_MAX);
        report_print(job);
        summary_print(job);
        code = report_exit_code(job);
        if (run_func_save(job, &error) != HVD_OK) {
            output_say(&job->output, 2, "horovodrun: %s", error.text);
            code = code == 0 ? 1 : code;
        }
    }
    supervise_close(job);
    return code;
}
