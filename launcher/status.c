/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - see status.h: the launcher's side. */
#include "status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client.h"
#include "elastic.h"
#include "job.h"
#include "look.h"
#include "survey.h"
#include "top.h"
#include "wire/ask.h"
#include "wire/peercred.h"

struct status {
    char *path;
    struct job_tag tag;
    struct clients clients;
};

/* ---- the story ---- */

void status_say(const struct job *job, struct bytes *out, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n <= 0 || bytes_used(out) > STATUS_TEXT_MAX)
        return;
    size_t length = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\n') || line[i] == 0x7f)
            line[i] = ' ';
    bytes_add(job->os, out, line, length);
}

static void say_command(struct job *job, struct bytes *out)
{
    for (size_t i = 0; i < job->command.count && i < 16; i++)
        status_say(job, out, " %.200s", job->command.items[i]);
    if (job->command.count > 16)
        status_say(job, out, " ...");
}

void status_say_line(struct job *job, struct bytes *out, int64_t now_ns)
{
    int32_t hosts = 0;
    for (int32_t i = 0; i < job->run_count; i++)
        hosts += job->runs[i].stage != HOST_GONE;
    int32_t ranks = look_size(job);
    status_say(job, out, "horovodrun %d: %d rank%s on %d host%s, %s for %.0f s:", (int)getpid(),
               ranks, ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
               job->is_stopping ? "stopping" : "running",
               (double)(now_ns - job->started_ns) / (double)JOB_NS_PER_S);
    say_command(job, out);
    status_say(job, out, "\n");
}

static double seconds(int64_t ns)
{
    return (double)ns / (double)JOB_NS_PER_S;
}

static void say_op(struct job *job, const struct survey *s, const struct ask_status *status,
                   struct bytes *out)
{
    const char *missing = survey_missing(s, status);
    if (strcmp(status->doing, "not submitted") == 0)
        status_say(job, out, "; has not submitted %s, which others have waited for for %.1f s",
                   status->op, seconds(status->op_ns));
    else if (strcmp(status->doing, "running") == 0)
        status_say(job, out, "; runs %s for %.1f s%s%s", status->op, seconds(status->op_ns),
                   missing[0] != '\0' ? ", waits for data of rank " : "", missing);
    else if (status->op[0] != '\0')
        status_say(job, out, "; waits for %s%s%s%s for %.1f s (%s)",
                   missing[0] != '\0' ? "rank " : "", missing, missing[0] != '\0' ? " in " : "",
                   status->op, seconds(status->op_ns), status->doing);
}

static void say_engine(struct job *job, const struct survey *s, const struct survey_rank *r,
                       struct bytes *out)
{
    const struct ask_status *status = &r->status;
    if (status->steps > 0)
        status_say(job, out, "step %llu (%.1f ms, %.1f s ago)", (unsigned long long)status->steps,
                   1e3 * seconds(status->step_ns), seconds(status->since_ns));
    else
        status_say(job, out, "no step yet");
    if (strcmp(status->state, "busy") == 0)
        status_say(job, out, "; an internal thread has not returned for %.1f s",
                   seconds(status->busy_ns));
    else if (strcmp(status->state, "running") != 0)
        status_say(job, out, "; %s%s%s", status->state, status->cause[0] != '\0' ? ": " : "",
                   status->cause);
    say_op(job, s, status, out);
}

static void say_place(struct job *job, const struct survey_rank *r, struct bytes *out)
{
    const char *where = r->where[0] != '\0' ? r->where : r->inner;
    if (r->inside[0] != '\0')
        where = r->inside;
    bool is_waiting = r->has_status && (r->is_inside || r->inside[0] != '\0');
    if (!is_waiting && r->state[0] != '\0')
        status_say(job, out, "%s%s", r->has_status ? "; " : "", r->state);
    if (where[0] != '\0')
        status_say(job, out, "%s%s", is_waiting || r->state[0] == '\0' ? ", at " : " at ", where);
}

static void say_rank(struct job *job, const struct survey *s, int32_t rank, struct bytes *out)
{
    const struct survey_rank *r = &s->ranks[rank];
    const struct rank_run *end = look_end(job, rank);
    char how[128];
    if (end != NULL) {
        report_describe_end(end, how, sizeof how);
        status_say(job, out, "  rank %d (pid %d): %s\n", rank, (int)end->pid, how);
        return;
    }
    if (!r->has_answered) {
        status_say(job, out, "  rank %d: the agent on its host has not answered\n", rank);
        return;
    }
    status_say(job, out, "  rank %d (pid %d): ", rank, (int)r->pid);
    if (r->has_status)
        say_engine(job, s, r, out);
    say_place(job, r, out);
    if (!r->has_status && r->state[0] != '\0' && strncmp(r->state, "is stopped", 10) != 0)
        status_say(job, out, "; has not completed hvd.init()");
    status_say(job, out, "\n");
}

/* Which ranks hold the others up? */
static void say_verdict(struct job *job, const struct survey *s, struct bytes *out)
{
    for (int32_t rank = 0; rank < s->count; rank++)
        if (s->waiting[rank] > 0)
            status_say(job, out, "%d other rank%s wait%s for rank %d.\n", s->waiting[rank],
                       s->waiting[rank] == 1 ? "" : "s", s->waiting[rank] == 1 ? "s" : "", rank);
}

static void say_story(struct job *job, const struct survey *s, struct bytes *out, int64_t now_ns)
{
    status_say_line(job, out, now_ns);
    for (int32_t k = 0; k < job->run_count; k++) {
        struct host_run *run = &job->runs[k];
        char stage[512];
        if (job->elastic == NULL && run->stage != HOST_RUNNING) {
            ladder_describe(job, run, stage, sizeof stage);
            status_say(job, out, "host %s: %s\n", run->host->name, stage);
        } else {
            status_say(job, out, "host %s\n", run->host->name);
        }
        for (int32_t rank = 0; rank < s->count; rank++) {
            struct host_run *of = NULL;
            uint32_t index = 0;
            if (look_seat(job, rank, &of, &index) && of == run)
                say_rank(job, s, rank, out);
        }
    }
    say_verdict(job, s, out);
}

/* ---- clients ---- */

static void client_read(struct job *job, struct client *c, int64_t now_ns)
{
    char kind = 0;
    int64_t n = job->os->recv(job->os->ctx, c->fd, &kind, 1);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n != 1 || c->kind != 0 ||
        (kind != STATUS_LINE && kind != STATUS_STORY && kind != STATUS_TOP)) {
        client_close(job, c);
        return;
    }
    c->kind = kind;
    if (kind == STATUS_LINE)
        status_say_line(job, &c->out, now_ns);
}

void status_event(struct job *job, int64_t now_ns)
{
    struct status *s = job->status;
    if (s == NULL)
        return;
    client_accept(job, &s->clients, now_ns, peercred_is_same_user);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &s->clients.items[i];
        if (c->fd >= 0)
            client_read(job, c, now_ns);
        if (c->fd >= 0 && bytes_used(&c->out) > 0)
            client_flush(job, &s->clients, c);
    }
}

/* Answers it if the survey that has just ended is of the kind that it wants; or asks for one. */
static void client_serve(struct job *job, struct status *s, struct client *c, int64_t now_ns)
{
    const struct survey *survey = job->survey;
    bool wants_stacks = c->kind == STATUS_STORY;
    if (survey == NULL || !survey->is_ready || (wants_stacks && !survey->has_stacks)) {
        survey_want(job, wants_stacks, now_ns);
        return;
    }
    if (c->kind == STATUS_STORY)
        say_story(job, survey, &c->out, now_ns);
    else
        top_write(job, survey, &c->out);
    client_flush(job, &s->clients, c);
}

void status_tick(struct job *job, int64_t now_ns)
{
    struct status *s = job->status;
    for (int i = 0; s != NULL && i < CLIENTS_MAX; i++) {
        struct client *c = &s->clients.items[i];
        if (c->fd >= 0 && (c->kind == STATUS_STORY || c->kind == STATUS_TOP) &&
            bytes_used(&c->out) == 0)
            client_serve(job, s, c, now_ns);
        if (c->fd >= 0 && now_ns >= c->until_ns)
            client_close(job, c);
    }
}

/* ---- opening and closing ---- */

char *status_folder(struct mem *m, const struct os *os)
{
    const char *runtime = os->env(os->ctx, "XDG_RUNTIME_DIR");
    struct os_file file;
    bool is_ours = runtime != NULL && runtime[0] == '/' && os->stat(os->ctx, runtime, &file) == 0 &&
                   file.kind == OS_FILE_FOLDER && file.uid == os->user(os->ctx) &&
                   (file.mode & 077u) == 0;
    char *folder = is_ours ? mem_format(m, "%s/horovod", runtime)
                           : mem_format(m, "/tmp/horovod-%u", (unsigned)os->user(os->ctx));
    os->mkdir(os->ctx, folder, 0700); /* it may be there, and another user's */
    if (os->stat(os->ctx, folder, &file) < 0 || file.kind != OS_FILE_FOLDER ||
        file.uid != os->user(os->ctx) || (file.mode & 077u) != 0)
        return NULL;
    return folder;
}

void status_open(struct job *job)
{
    char *folder = status_folder(job->mem, job->os);
    if (folder == NULL)
        return;
    char *path = mem_format(job->mem, "%s/" STATUS_PREFIX "%d", folder, (int)getpid());
    int fd = ask_listen(job->os, path);
    if (fd < 0)
        return;
    struct status *s = mem_alloc(job->mem, sizeof *s);
    *s = (struct status){.path = path, .tag = {.kind = JOB_TAG_STATUS}};
    clients_open(job, &s->clients, fd, &s->tag);
    job->status = s;
}

void status_close(struct job *job)
{
    struct status *s = job->status;
    if (s == NULL)
        return;
    job->os->unlink(job->os->ctx, s->path);
    clients_close(job, &s->clients);
    job->status = NULL;
}
