/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.c - the agents of a job: starting one per host, telling them what to do, hearing from them.
 *
 * A local agent is this program again behind a socket pair; a remote one is the same behind ssh.
 * Up to the first hello a remote start may be tried again; after it a closed link is a lost host.
 * Thread: the launcher's loop.  Owner: struct job.  Start reading at fleet_event(). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "elastic.h"
#include "env.h"
#include "horovod/hvd.h"
#include "job.h"
#include "look.h"
#include "remote.h"
#include "spawn.h"
#include "survey.h"
#include "wire/cause.h"

#define ATTEMPTS_MAX    5
#define RETRY_MS        500
#define STDERR_KEEP     16384u
#define PING_MS         5000
#define DIAL_TIMEOUT_MS 10000

/* ---- starting an agent ---- */

static void run_watch(struct job *job, struct host_run *run)
{
    const struct os *os = job->os;
    run->in_tag = (struct job_tag){JOB_TAG_LINK_IN, run};
    run->out_tag = (struct job_tag){JOB_TAG_LINK_OUT, run};
    run->err_tag = (struct job_tag){JOB_TAG_STDERR, run};
    spawn_nonblocking(run->link.in_fd);
    spawn_nonblocking(run->link.out_fd);
    os->poll_add(os->ctx, job->poll_fd, run->link.in_fd, &run->in_tag, false);
    run->is_in_polled = true;
    run->is_out_polled = false;
    if (run->err_fd >= 0) {
        spawn_nonblocking(run->err_fd);
        os->poll_add(os->ctx, job->poll_fd, run->err_fd, &run->err_tag, false);
    }
}

static int run_spawn_local(struct job *job, struct host_run *run)
{
    int pair[2];
    int rc = spawn_socket_pair(pair);
    if (rc < 0)
        return rc;
    char *argv[] = {(char *)"horovodrun", (char *)"--local-agent", NULL};
    struct spawn s = {.path = spawn_self(),
                      .argv = argv,
                      .fds = {pair[1], pair[1], 2},
                      .kept_fd = -1,
                      .file_limit = job->file_limit,
                      .wants_session = true};
    int pidfd = -1;
    rc = spawn_start(&s, &run->pid, &pidfd);
    job->os->close(job->os->ctx, pair[1]);
    if (pidfd >= 0)
        job->os->close(job->os->ctx, pidfd);
    if (rc < 0) {
        job->os->close(job->os->ctx, pair[0]);
        return rc;
    }
    link_init(&run->link, job->os, pair[0], spawn_duplicate(pair[0]), true);
    run->err_fd = -1;
    return 0;
}

static int run_spawn_remote(struct job *job, struct host_run *run)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    struct list argv = {0};
    remote_command(job->mem, job->os, job->args, run->host, job->self_path,
                   spawn_descriptor_path(job->mem, job->ssh_config_fd), &argv);
    int rc = spawn_pipe(in);
    if (rc == 0)
        rc = spawn_pipe(out);
    if (rc == 0)
        rc = spawn_pipe(err);
    struct spawn s = {.argv = argv.items,
                      .fds = {in[0], out[1], err[1]},
                      .kept_fd = -1,
                      .file_limit = job->file_limit,
                      .wants_session = true,
                      .death_signal = SIGTERM};
    int pidfd = -1;
    if (rc == 0)
        rc = spawn_start(&s, &run->pid, &pidfd);
    int theirs[] = {in[0], out[1], err[1], pidfd};
    int ours[] = {in[1], out[0], err[0]};
    for (size_t i = 0; i < 4; i++)
        if (theirs[i] >= 0)
            job->os->close(job->os->ctx, theirs[i]);
    for (size_t i = 0; rc < 0 && i < 3; i++)
        if (ours[i] >= 0)
            job->os->close(job->os->ctx, ours[i]);
    if (rc < 0)
        return rc;
    link_init(&run->link, job->os, out[0], in[1], true);
    run->err_fd = err[0];
    return 0;
}

static void run_start(struct job *job, struct host_run *run)
{
    run->attempts++;
    run->stage = HOST_CONNECTING;
    run->has_ended = false;
    bytes_drop(&run->err_text, bytes_used(&run->err_text));
    int rc = run->is_local ? run_spawn_local(job, run) : run_spawn_remote(job, run);
    if (rc < 0) {
        run->stage = HOST_GONE;
        verdict_host(job, run, mem_format(job->mem, "cannot start the agent: %s", strerror(-rc)));
        return;
    }
    run_watch(job, run);
}

void fleet_start(struct job *job)
{
    for (int32_t i = 0; i < job->run_count; i++)
        run_start(job, &job->runs[i]);
}

void fleet_retry(struct job *job)
{
    int64_t now_ns = os_now_ns(job->os);
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->stage == HOST_WAITING && now_ns >= run->retry_at_ns)
            run_start(job, run);
    }
}

int64_t fleet_next_retry_ns(const struct job *job)
{
    int64_t next_ns = INT64_MAX;
    for (int32_t i = 0; i < job->run_count; i++)
        if (job->runs[i].stage == HOST_WAITING && job->runs[i].retry_at_ns < next_ns)
            next_ns = job->runs[i].retry_at_ns;
    return next_ns;
}

bool fleet_is(const struct job *job, enum host_stage at_least)
{
    for (int32_t i = 0; i < job->run_count; i++)
        if (job->runs[i].stage < at_least)
            return false;
    return true;
}

/* ---- talking ---- */

/* Where we decide who is a member, a worker is known by its name, whatever its rank. */
static void rank_environment(const struct job *job, struct mem *m, int32_t rank, struct list *ret)
{
    const struct generation *g = &job->generation;
    char worker[STORE_WORKER_MAX + 1];
    env_rank(m, &g->slots[rank], job->runs[g->seats[rank].run].host->name, ret);
    if (!job->is_driven)
        return;
    generation_worker(g, rank, worker);
    list_set(m, ret, "HOROVOD_WORKER", worker);
    list_set(m, ret, "HOROVOD_EPOCH", mem_format(m, "%llu", (unsigned long long)g->epoch));
}

static void run_send_start(struct job *job, struct host_run *run)
{
    struct list env = {0};
    int32_t count = job->elastic != NULL ? 0 : run->rank_count;
    struct mem *m = job->mem;
    struct link *l = &run->link;
    env_common(m, job->os, job->args, &job->assignments, !run->is_local, &env);
    env_large_pages(m, &env);
    env_rendezvous(m, job->args, job->rendezvous, job->rendezvous_host, job->rendezvous_port, &env);
    if (job->elastic != NULL)
        list_set(m, &env, "HOROVOD_ELASTIC", "1");
    message_begin(l, MESSAGE_START);
    message_raw(l, job->key, sizeof job->key);
    message_text(l, run->is_local ? "" : job->dial);
    message_u32(l, DIAL_TIMEOUT_MS);
    message_text(l, spawn_directory(m));
    message_u8(l, run->is_local);
    message_list(l, &env);
    message_list(l, &job->command);
    message_u8(l, job->is_driven);
    message_u32(l, (uint32_t)count);
    for (int32_t i = 0; i < count; i++) {
        struct list own = {0};
        rank_environment(job, m, run->first_rank + i, &own);
        message_list(l, &own);
    }
    message_end(l);
    run->stage = HOST_STARTING;
}

void fleet_spawn_worker(struct job *job, struct host_run *run, uint32_t index,
                        const struct list *env)
{
    struct link *l = &run->link;
    message_begin(l, MESSAGE_SPAWN);
    message_u32(l, index);
    message_list(l, env);
    message_end(l);
    fleet_flush(job);
}

void fleet_spawn_rank(struct job *job, int32_t rank)
{
    struct mem scratch;
    struct list own = {0};
    const struct seat *seat = &job->generation.seats[rank];
    mem_init(&scratch, job->os);
    rank_environment(job, &scratch, rank, &own);
    fleet_spawn_worker(job, &job->runs[seat->run], seat->index, &own);
    mem_destroy(&scratch);
}

void fleet_halt_worker(struct job *job, struct host_run *run, uint32_t index, int64_t grace_ms)
{
    struct link *l = &run->link;
    message_begin(l, MESSAGE_HALT);
    message_u32(l, index);
    message_u32(l, (uint32_t)grace_ms);
    message_end(l);
    fleet_flush(job);
}

void fleet_halt_rank(struct job *job, int32_t rank, int64_t grace_ms)
{
    const struct seat *seat = &job->generation.seats[rank];
    fleet_halt_worker(job, &job->runs[seat->run], seat->index, grace_ms);
}

void fleet_start_host(struct job *job, struct host_run *run)
{
    run->attempts = 0;
    run->stage = HOST_WAITING; /* fleet_retry() starts it */
    run->retry_at_ns = 0;
    (void)job;
}

void fleet_send_start_to(struct job *job, struct host_run *run)
{
    run_send_start(job, run);
    fleet_flush(job);
}

void fleet_stop_host(struct job *job, struct host_run *run, int64_t grace_ms)
{
    if (run->stage < HOST_UP || run->stage == HOST_GONE) {
        fleet_drop_host(job, run);
        return;
    }
    message_begin(&run->link, MESSAGE_STOP);
    message_u32(&run->link, (uint32_t)grace_ms);
    message_end(&run->link);
    fleet_flush(job);
}

void fleet_send_notice(struct job *job, const struct notice *notice)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->stage < HOST_STARTING || run->stage == HOST_GONE)
            continue;
        message_begin(&run->link, MESSAGE_NOTICE);
        message_u64(&run->link, notice->version);
        message_u64(&run->link, notice->added_version);
        message_u64(&run->link, notice->removed_version);
        message_end(&run->link);
    }
    fleet_flush(job);
}

void fleet_send_start(struct job *job)
{
    job->generation.state = GENERATION_STARTED;
    for (int32_t i = 0; i < job->run_count; i++)
        if (job->runs[i].stage == HOST_UP)
            run_send_start(job, &job->runs[i]);
    fleet_flush(job);
}

static void send_number(struct job *job, enum message_type type, uint32_t value)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->stage < HOST_UP || run->stage == HOST_GONE)
            continue;
        message_begin(&run->link, type);
        message_u32(&run->link, value);
        message_end(&run->link);
    }
    fleet_flush(job);
}

/* A host that never came up has nothing to stop: its ssh is ended instead. */
void fleet_send_stop(struct job *job, int64_t grace_ms)
{
    send_number(job, MESSAGE_STOP, (uint32_t)grace_ms);
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->stage == HOST_WAITING)
            run->stage = HOST_GONE;
        if (run->stage == HOST_CONNECTING && run->pid > 0)
            spawn_signal_group(run->pid, SIGTERM);
    }
}

void fleet_send_signal(struct job *job, int signal_number)
{
    send_number(job, MESSAGE_SIGNAL, (uint32_t)signal_number);
}

void fleet_send_look(struct job *job, struct host_run *run, uint32_t number, uint8_t what,
                     const uint32_t *indexes, uint32_t count)
{
    if (run->stage != HOST_RUNNING || count == 0)
        return;
    message_begin(&run->link, MESSAGE_LOOK);
    message_u32(&run->link, number);
    message_u8(&run->link, what);
    message_u32(&run->link, count);
    for (uint32_t i = 0; i < count; i++)
        message_u32(&run->link, indexes[i]);
    message_end(&run->link);
    fleet_flush(job);
}

void fleet_send_end(struct job *job, int32_t rank, const char *text)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->stage != HOST_RUNNING)
            continue;
        message_begin(&run->link, MESSAGE_END);
        message_u64(&run->link, 0);
        message_u32(&run->link, (uint32_t)rank);
        message_text(&run->link, text);
        message_end(&run->link);
    }
    fleet_flush(job);
}

void fleet_ping(struct job *job, int64_t now_ns)
{
    if (now_ns < job->next_ping_ns)
        return;
    job->next_ping_ns = now_ns + PING_MS * JOB_NS_PER_MS;
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->is_local || run->stage < HOST_UP || run->stage == HOST_GONE)
            continue;
        message_begin(&run->link, MESSAGE_PING);
        message_u64(&run->link, 0);
        message_end(&run->link);
    }
}

void fleet_flush(struct job *job)
{
    const struct os *os = job->os;
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->stage == HOST_WAITING || run->stage == HOST_GONE || run->link.out_fd < 0)
            continue;
        bool wants = link_flush(&run->link) == HVD_IN_PROGRESS; /* errors show when reading */
        if (wants && !run->is_out_polled)
            os->poll_add(os->ctx, job->poll_fd, run->link.out_fd, &run->out_tag, true);
        if (!wants && run->is_out_polled)
            os->poll_remove(os->ctx, job->poll_fd, run->link.out_fd);
        run->is_out_polled = wants;
    }
}

void fleet_pause(struct job *job, bool is_paused)
{
    const struct os *os = job->os;
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->link.in_fd < 0 || run->stage == HOST_GONE || run->is_in_polled != is_paused)
            continue;
        if (is_paused)
            os->poll_remove(os->ctx, job->poll_fd, run->link.in_fd);
        else
            os->poll_add(os->ctx, job->poll_fd, run->link.in_fd, &run->in_tag, false);
        run->is_in_polled = !is_paused;
    }
}

/* ---- hearing ---- */

static void run_hello(struct job *job, struct host_run *run, struct reader *r)
{
    uint32_t version = get_u32(r);
    char *release = message_get_text(job->mem, r);
    char *name = message_get_text(job->mem, r);
    run->ssh_peer = message_get_text(job->mem, r);
    if (r->bad || version != MESSAGE_VERSION || strcmp(release, HVD_VERSION_STRING) != 0) {
        verdict_host(job, run,
                     mem_format(job->mem,
                                "runs horovodrun %s (protocol %u), here it is %s (protocol "
                                "%u); install the same version on all hosts",
                                release, version, HVD_VERSION_STRING, MESSAGE_VERSION));
        return;
    }
    run->stage = HOST_UP;
    if (job_is_verbose(job))
        output_say(&job->output, 2, "horovodrun: %s: agent is up (%s)", run->host->name, name);
}

/* -1: not a worker of the generation that stands. */
static int32_t rank_of(const struct job *job, const struct host_run *run, uint32_t index)
{
    return generation_rank(&job->generation, (int32_t)(run - job->runs), index);
}

static void run_output(struct job *job, struct host_run *run, struct reader *r)
{
    uint32_t index = get_u32(r);
    int stream = get_u8(r);
    int32_t rank = job->elastic != NULL ? elastic_find(job, run, index) : rank_of(job, run, index);
    if (r->bad || rank < 0 || stream < 1 || stream > 2)
        return;
    output_feed(&job->output, rank, stream, r->bytes + r->at, r->size - r->at);
}

static void run_exit(struct job *job, struct host_run *run, struct reader *r)
{
    uint32_t index = get_u32(r);
    struct rank_run end = {.is_ended = true};
    end.pid = (pid_t)get_u32(r);
    end.code = (int)get_u32(r);
    end.signal = (int)get_u32(r);
    end.ended_ns = os_now_ns(job->os) - get_i64(r);
    end.is_oom = get_u8(r) != 0;
    int32_t rank = rank_of(job, run, index);
    if (job->elastic != NULL && !r->bad)
        elastic_ended(job, run, index, &end);
    if (r->bad || rank < 0 || job->elastic != NULL)
        return;
    verdict_rank_ended(job, rank, &end);
}

/* A host speaks for its own ranks only. */
static void run_cause(struct job *job, const struct host_run *run, struct reader *r)
{
    struct mem scratch;
    struct cause cause = {0};
    cause.rank = (int32_t)get_u32(r);
    cause.culprit = (int32_t)get_u32(r);
    mem_init(&scratch, job->os);
    snprintf(cause.text, sizeof cause.text, "%s", message_get_text(&scratch, r));
    cause.kind = (enum cause_kind)get_u8(r);
    cause.epoch = get_u64(r);
    snprintf(cause.worker, sizeof cause.worker, "%s", message_get_text(&scratch, r));
    cause.count = get_i64(r);
    cause.waited_ms = get_i64(r);
    mem_destroy(&scratch);
    if (r->bad || cause.culprit < -1)
        return;
    if (cause.kind == CAUSE_SUMMARY) {
        summary_take(job, &cause);
        return;
    }
    if (job->elastic != NULL) {
        elastic_cause(job, run, &cause);
        return;
    }
    if (cause.rank < run->first_rank || cause.rank >= run->first_rank + run->rank_count ||
        cause.culprit >= job->generation.count)
        return;
    if (cause.kind == CAUSE_BROKE)
        verdict_rank_blames(job, cause.rank, cause.culprit, mem_copy(job->mem, cause.text));
    else if (cause.kind == CAUSE_WORDS)
        job->generation.ranks[cause.rank].words = mem_copy(job->mem, cause.text);
    else
        look_cause(job, &cause);
}

static void run_spawned(struct job *job, struct host_run *run, struct reader *r)
{
    uint32_t index = get_u32(r);
    int32_t rank = rank_of(job, run, index);
    uint32_t pid = get_u32(r);
    struct mem scratch;
    mem_init(&scratch, job->os);
    const char *why = message_get_text(&scratch, r);
    if (job->elastic != NULL && !r->bad && pid == 0)
        elastic_unstarted(job, run, index, why);
    if (!r->bad && rank >= 0) {
        job->generation.ranks[rank].pid = (pid_t)pid;
        if (pid == 0)
            verdict_host(job, run, mem_format(job->mem, "cannot start rank %d: %s", rank, why));
    }
    mem_destroy(&scratch);
}

static void run_close(struct job *job, struct host_run *run)
{
    const struct os *os = job->os;
    if (run->link.in_fd >= 0 && run->is_in_polled)
        os->poll_remove(os->ctx, job->poll_fd, run->link.in_fd);
    if (run->link.out_fd >= 0 && run->is_out_polled)
        os->poll_remove(os->ctx, job->poll_fd, run->link.out_fd);
    run->is_in_polled = run->is_out_polled = false;
    link_destroy(&run->link);
}

static void run_message(struct job *job, struct host_run *run, enum message_type type,
                        struct reader *r)
{
    if (job->on_answer != NULL && type != MESSAGE_HELLO && type != MESSAGE_TROUBLE &&
        type != MESSAGE_GONE) {
        job->on_answer(job, run, type, r);
        return;
    }
    switch (type) {
    case MESSAGE_HELLO: run_hello(job, run, r); return;
    case MESSAGE_STARTED:
        run->stage = HOST_RUNNING;
        get_u32(r);
        run->key_path = message_get_text(job->mem, r);
        return;
    case MESSAGE_OUTPUT: run_output(job, run, r); return;
    case MESSAGE_EXIT: run_exit(job, run, r); return;
    case MESSAGE_CAUSE: run_cause(job, run, r); return;
    case MESSAGE_SPAWNED: run_spawned(job, run, r); return;
    case MESSAGE_LOOKED:
        if (!survey_answer(job, run, r))
            look_answer(job, run, r);
        return;
    case MESSAGE_TROUBLE: verdict_host(job, run, message_get_text(job->mem, r)); return;
    case MESSAGE_NOTE:
        if (job_is_verbose(job))
            output_say(&job->output, 2, "horovodrun: %s: %s", run->host->name,
                       message_get_text(job->mem, r));
        return;
    case MESSAGE_GONE: run->stage = HOST_GONE; return;
    case MESSAGE_START:
    case MESSAGE_STOP:
    case MESSAGE_SIGNAL:
    case MESSAGE_PING:
    case MESSAGE_SERVE:
    case MESSAGE_DIAL:
    case MESSAGE_SPAWN:
    case MESSAGE_HALT:
    case MESSAGE_NOTICE:
    case MESSAGE_LOOK:
    case MESSAGE_END:
    case MESSAGE_PONG:
    case MESSAGE_SERVING:
    case MESSAGE_MEASURED: return;
    }
}

static char *run_last_words(struct job *job, const struct host_run *run)
{
    size_t n = bytes_used(&run->err_text);
    while (n > 0 && bytes_at(&run->err_text)[n - 1] == '\n')
        n--;
    return mem_copy_n(job->mem, (const char *)bytes_at(&run->err_text), n);
}

/* The link closed without GONE. Before the hello that may pass; later the host is lost. */
static void run_lost(struct job *job, struct host_run *run)
{
    bool was_up = run->stage >= HOST_UP;
    run_close(job, run);
    run->stage = HOST_GONE;
    if (job->is_stopping || was_up) {
        verdict_host(job, run, mem_copy(job->mem, "the connection to its agent was lost"));
        return;
    }
    run->stage = HOST_CONNECTING; /* until its end is known: fleet_reaped() */
    if (run->has_ended)
        fleet_reaped(job, run->pid, run->end_code);
}

static void run_read(struct job *job, struct host_run *run)
{
    enum message_type type = MESSAGE_PING;
    struct reader payload;
    hvd_status_t status = link_fill(&run->link);
    while (status == HVD_OK) {
        status = link_next(&run->link, &type, &payload);
        if (status == HVD_OK)
            run_message(job, run, type, &payload);
    }
    if (run->stage == HOST_GONE)
        run_close(job, run);
    else if (status != HVD_AGAIN)
        run_lost(job, run);
}

static void run_read_stderr(struct job *job, struct host_run *run)
{
    uint8_t chunk[4096];
    int64_t n = job->os->read(job->os->ctx, run->err_fd, chunk, sizeof chunk);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0) {
        job->os->poll_remove(job->os->ctx, job->poll_fd, run->err_fd);
        job->os->close(job->os->ctx, run->err_fd);
        run->err_fd = -1;
        return;
    }
    bytes_add(job->os, &run->err_text, chunk, (size_t)n);
    if (bytes_used(&run->err_text) > STDERR_KEEP)
        bytes_drop(&run->err_text, bytes_used(&run->err_text) - STDERR_KEEP);
}

void fleet_drop_host(struct job *job, struct host_run *run)
{
    run_close(job, run);
    if (run->pid > 0 && !run->has_ended && !run->is_local)
        spawn_signal_group(run->pid, SIGTERM);
    if (run->err_fd >= 0) {
        job->os->poll_remove(job->os->ctx, job->poll_fd, run->err_fd);
        job->os->close(job->os->ctx, run->err_fd);
        run->err_fd = -1;
    }
    run->stage = HOST_GONE;
}

void fleet_event(struct job *job, const struct job_tag *tag)
{
    struct host_run *run = tag->run;
    if (tag->kind == JOB_TAG_LINK_IN && run->link.in_fd >= 0)
        run_read(job, run);
    else if (tag->kind == JOB_TAG_STDERR && run->err_fd >= 0)
        run_read_stderr(job, run);
}

/* ---- ssh that ended before the hello ---- */

static const char *not_reached(const struct job *job, const struct host_run *run, const char *words)
{
    const char *what = job->args->rsh_agent == NULL ? "ssh not successful for host"
                                                    : "--rsh-agent not successful for host";
    what = mem_format(job->mem, "%s %s (exit %d, attempt %d of %d):\n%s", what, run->host->name,
                      run->end_code, run->attempts, ATTEMPTS_MAX, words);
    if (job->args->rsh_agent != NULL)
        return what;
    return mem_format(job->mem, "%s\nTry it by hand: %s\n%s", what,
                      remote_trial(job->mem, job->args, run->host), remote_advice(words));
}

static void run_never_up(struct job *job, struct host_run *run)
{
    for (int i = 0; i < 64 && run->err_fd >= 0; i++)
        run_read_stderr(job, run);
    char *words = run_last_words(job, run);
    bool is_missing = run->end_code == 127 || run->end_code == 126;
    bool may_pass = !run->is_local && run->end_code == 255 && remote_is_transient(words) &&
                    run->attempts < ATTEMPTS_MAX && !job->is_stopping;
    if (may_pass) {
        run->stage = HOST_WAITING;
        run->retry_at_ns = os_now_ns(job->os) + RETRY_MS * JOB_NS_PER_MS;
        return;
    }
    run->stage = HOST_GONE;
    if (is_missing)
        verdict_host(job, run,
                     mem_format(job->mem,
                                "ssh works, but there is no horovodrun at %s nor in the PATH "
                                "of a non-interactive shell there (%s)",
                                job->self_path, words));
    else if (run->is_local)
        verdict_host(job, run, mem_format(job->mem, "the agent ended with %d", run->end_code));
    else
        verdict_host(job, run, not_reached(job, run, words));
}

void fleet_reaped(struct job *job, pid_t pid, int code)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        if (run->pid != pid || pid == 0)
            continue;
        run->has_ended = true;
        run->end_code = code;
        /* What it said last may still be in the pipe; the verdict waits for its end. */
        if (run->stage == HOST_CONNECTING && run->link.in_fd < 0)
            run_never_up(job, run);
        return;
    }
}

void fleet_destroy(struct job *job)
{
    for (int32_t i = 0; i < job->run_count; i++) {
        struct host_run *run = &job->runs[i];
        run_close(job, run);
        if (run->err_fd >= 0)
            job->os->close(job->os->ctx, run->err_fd);
        run->err_fd = -1;
        bytes_free(job->os, &run->err_text);
    }
}
