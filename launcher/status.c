/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - see status.h: the launcher's side. One survey of the ranks serves all clients that
 * wait when it is complete. */
#include "status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "elastic.h"
#include "job.h"
#include "look.h"
#include "wire/ask.h"
#include "wire/peercred.h"

#define CLIENTS_MAX   8
#define CLIENT_NS     (10 * JOB_NS_PER_S) /* from connecting to having read the answer */
#define LOOKS_AT_ONCE 256u                /* workers in one message */
#define STACK_RANKS   64                  /* up to this many, Python stacks are asked for too */
#define LIST_BYTES    256
#define LATE_NS       JOB_NS_PER_S /* ranks that wait for less are not worth a verdict */

struct client {
    int fd; /* -1: none */
    char kind;
    int64_t until_ns;
    struct bytes out;
    bool is_out_polled;
};

struct survey_rank {
    bool has_answered, has_status;
    int32_t pid;
    char *state, *where, *inner, *inside;
    bool is_inside;
    struct ask_status status;
};

struct status {
    int listen_fd;
    char *path;
    struct job_tag tag;
    struct client clients[CLIENTS_MAX];
    bool is_surveying;
    uint32_t number;
    int64_t until_ns;
    struct mem mem; /* of the survey */
    int32_t count;
    struct survey_rank *ranks;
};

/* ---- the survey ---- */

static void survey_end(struct status *s)
{
    mem_destroy(&s->mem);
    s->is_surveying = false;
    s->ranks = NULL;
    s->count = 0;
}

static void survey_ask(struct job *job, struct status *s, struct host_run *run)
{
    uint32_t indexes[LOOKS_AT_ONCE], count = 0;
    uint8_t what = s->count <= STACK_RANKS ? LOOK_STACK | LOOK_STATUS : LOOK_STATUS;
    for (int32_t rank = 0; rank < s->count; rank++) {
        struct host_run *of = NULL;
        if (look_seat(job, rank, &of, &indexes[count]) && of == run)
            count++;
        if (count == LOOKS_AT_ONCE || rank == s->count - 1) {
            fleet_send_look(job, run, s->number, what, indexes, count);
            count = 0;
        }
    }
}

static void survey_begin(struct job *job, struct status *s, int64_t now_ns)
{
    mem_init(&s->mem, job->os);
    s->is_surveying = true;
    s->number = STATUS_ASKED | (s->number + 1);
    s->until_ns = now_ns + STATUS_WAIT_NS;
    s->count = look_size(job);
    s->ranks = mem_alloc(&s->mem, ((size_t)s->count + 1) * sizeof *s->ranks);
    for (int32_t i = 0; i < job->run_count; i++)
        survey_ask(job, s, &job->runs[i]);
}

bool status_answer(struct job *job, const struct host_run *run, struct reader *r)
{
    struct status *s = job->status;
    struct reader ahead = *r;
    uint32_t number = get_u32(&ahead), index = get_u32(&ahead);
    if (ahead.bad || (number & STATUS_ASKED) == 0)
        return false;
    for (int32_t i = 0; s != NULL && s->is_surveying && number == s->number && i < s->count; i++) {
        struct survey_rank *rank = &s->ranks[i];
        struct host_run *of = NULL;
        uint32_t seat = 0;
        size_t n = 0;
        if (rank->has_answered || !look_seat(job, i, &of, &seat) || of != run || seat != index)
            continue;
        rank->pid = (int32_t)get_u32(&ahead);
        rank->state = message_get_text(&s->mem, &ahead);
        rank->where = message_get_text(&s->mem, &ahead);
        rank->inner = message_get_text(&s->mem, &ahead);
        rank->inside = message_get_text(&s->mem, &ahead);
        message_get_text(&s->mem, &ahead); /* frames */
        rank->is_inside = get_u8(&ahead) != 0;
        const void *record = get_blob(&ahead, ASK_STATUS_MAX, &n);
        rank->has_answered = !ahead.bad;
        rank->has_status = !ahead.bad && record != NULL && n > 0 &&
                           ask_status_get(record, n, &rank->status) && rank->status.rank == i;
        break;
    }
    return true;
}

static bool survey_is_complete(const struct job *job, const struct status *s)
{
    for (int32_t i = 0; i < s->count; i++)
        if (!s->ranks[i].has_answered && look_end(job, i) == NULL)
            return false;
    return true;
}

/* ---- the story ---- */

static void say(const struct job *job, struct bytes *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Nothing that a rank reports may command a terminal. */
static void say(const struct job *job, struct bytes *out, const char *format, ...)
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
        say(job, out, " %.200s", job->command.items[i]);
    if (job->command.count > 16)
        say(job, out, " ...");
}

static void say_line(struct job *job, struct bytes *out, int64_t now_ns)
{
    int32_t hosts = 0;
    for (int32_t i = 0; i < job->run_count; i++)
        hosts += job->runs[i].stage != HOST_GONE;
    int32_t ranks = look_size(job);
    say(job, out, "horovodrun %d: %d rank%s on %d host%s, %s for %.0f s:", (int)getpid(), ranks,
        ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
        job->is_stopping ? "stopping" : "running",
        (double)(now_ns - job->started_ns) / (double)JOB_NS_PER_S);
    say_command(job, out);
    say(job, out, "\n");
}

static double seconds(int64_t ns)
{
    return (double)ns / (double)JOB_NS_PER_S;
}

/* Only the coordinator may know which ranks an op waits for. */
static const char *missing_of(const struct status *s, const struct ask_status *status)
{
    for (int32_t i = 0; status->missing[0] == '\0' && i < s->count; i++) {
        const struct survey_rank *other = &s->ranks[i];
        if (other->has_status && other->status.missing[0] != '\0' && status->op[0] != '\0' &&
            strcmp(other->status.op, status->op) == 0)
            return other->status.missing;
    }
    return status->missing;
}

static void say_op(struct job *job, const struct status *s, const struct ask_status *status,
                   struct bytes *out)
{
    const char *missing = missing_of(s, status);
    if (strcmp(status->doing, "not submitted") == 0)
        say(job, out, "; has not submitted %s, which others have waited for for %.1f s", status->op,
            seconds(status->op_ns));
    else if (strcmp(status->doing, "running") == 0)
        say(job, out, "; runs %s for %.1f s%s%s", status->op, seconds(status->op_ns),
            missing[0] != '\0' ? ", waits for data of rank " : "", missing);
    else if (status->op[0] != '\0')
        say(job, out, "; waits for %s%s%s%s for %.1f s (%s)", missing[0] != '\0' ? "rank " : "",
            missing, missing[0] != '\0' ? " in " : "", status->op, seconds(status->op_ns),
            status->doing);
}

static void say_engine(struct job *job, const struct status *s, const struct survey_rank *r,
                       struct bytes *out)
{
    const struct ask_status *status = &r->status;
    if (status->steps > 0)
        say(job, out, "step %llu (%.1f ms, %.1f s ago)", (unsigned long long)status->steps,
            1e3 * seconds(status->step_ns), seconds(status->since_ns));
    else
        say(job, out, "no step yet");
    if (strcmp(status->state, "busy") == 0)
        say(job, out, "; an internal thread has not returned for %.1f s", seconds(status->busy_ns));
    else if (strcmp(status->state, "running") != 0)
        say(job, out, "; %s%s%s", status->state, status->cause[0] != '\0' ? ": " : "",
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
        say(job, out, "%s%s", r->has_status ? "; " : "", r->state);
    if (where[0] != '\0')
        say(job, out, "%s%s", is_waiting || r->state[0] == '\0' ? ", at " : " at ", where);
}

static void say_rank(struct job *job, const struct status *s, int32_t rank, struct bytes *out)
{
    const struct survey_rank *r = &s->ranks[rank];
    const struct rank_run *end = look_end(job, rank);
    char how[128];
    if (end != NULL) {
        report_describe_end(end, how, sizeof how);
        say(job, out, "  rank %d (pid %d): %s\n", rank, (int)end->pid, how);
        return;
    }
    if (!r->has_answered) {
        say(job, out, "  rank %d: the agent on its host has not answered\n", rank);
        return;
    }
    say(job, out, "  rank %d (pid %d): ", rank, (int)r->pid);
    if (r->has_status)
        say_engine(job, s, r, out);
    say_place(job, r, out);
    if (!r->has_status && r->state[0] != '\0' && strncmp(r->state, "is stopped", 10) != 0)
        say(job, out, "; has not completed hvd.init()");
    say(job, out, "\n");
}

static bool is_listed(const char *list, int32_t rank)
{
    char one[16];
    int n = snprintf(one, sizeof one, "%d", rank);
    for (const char *at = strstr(list, one); at != NULL; at = strstr(at + 1, one))
        if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

/* Which ranks hold the others up? */
static void say_verdict(struct job *job, const struct status *s, struct bytes *out)
{
    for (int32_t rank = 0; rank < s->count; rank++) {
        int32_t waiting = 0;
        for (int32_t i = 0; i < s->count; i++) {
            const struct ask_status *status = &s->ranks[i].status;
            waiting += i != rank && s->ranks[i].has_status && status->op_ns >= LATE_NS &&
                       strcmp(status->doing, "not submitted") != 0 &&
                       is_listed(missing_of(s, status), rank);
        }
        if (waiting > 0)
            say(job, out, "%d other rank%s wait%s for rank %d.\n", waiting, waiting == 1 ? "" : "s",
                waiting == 1 ? "s" : "", rank);
    }
}

static void say_story(struct job *job, const struct status *s, struct bytes *out, int64_t now_ns)
{
    say_line(job, out, now_ns);
    for (int32_t k = 0; k < job->run_count; k++) {
        struct host_run *run = &job->runs[k];
        char stage[512];
        if (job->elastic == NULL && run->stage != HOST_RUNNING) {
            ladder_describe(job, run, stage, sizeof stage);
            say(job, out, "host %s: %s\n", run->host->name, stage);
        } else {
            say(job, out, "host %s\n", run->host->name);
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

static void client_close(struct job *job, struct client *c)
{
    const struct os *os = job->os;
    os->poll_remove(os->ctx, job->poll_fd, c->fd);
    os->close(os->ctx, c->fd);
    bytes_free(os, &c->out);
    *c = (struct client){.fd = -1};
}

static void client_accept(struct job *job, struct status *s, int64_t now_ns)
{
    const struct os *os = job->os;
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0)
            continue;
        int fd = os->accept(os->ctx, s->listen_fd, NULL, NULL);
        if (fd < 0)
            return;
        if (!peercred_is_same_user(os, s->listen_fd, fd) ||
            os->poll_add(os->ctx, job->poll_fd, fd, &s->tag, false) < 0)
            os->close(os->ctx, fd);
        else
            *c = (struct client){.fd = fd, .until_ns = now_ns + CLIENT_NS};
    }
    /* All are taken: whoever else asks is turned away, so that the socket does not keep us awake.
     */
    int fd = os->accept(os->ctx, s->listen_fd, NULL, NULL);
    if (fd >= 0)
        os->close(os->ctx, fd);
}

static void client_read(struct job *job, struct status *s, struct client *c, int64_t now_ns)
{
    char kind = 0;
    int64_t n = job->os->recv(job->os->ctx, c->fd, &kind, 1);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n != 1 || c->kind != 0 || (kind != STATUS_LINE && kind != STATUS_STORY)) {
        client_close(job, c);
        return;
    }
    c->kind = kind;
    if (kind == STATUS_LINE)
        say_line(job, &c->out, now_ns);
    else if (!s->is_surveying)
        survey_begin(job, s, now_ns);
}

static void client_flush(struct job *job, struct status *s, struct client *c)
{
    const struct os *os = job->os;
    while (bytes_used(&c->out) > 0) {
        struct iovec iov = {.iov_base = (void *)bytes_at(&c->out), .iov_len = bytes_used(&c->out)};
        int64_t n = os->send(os->ctx, c->fd, &iov, 1);
        if (n == -EAGAIN) {
            if (!c->is_out_polled)
                os->poll_change(os->ctx, job->poll_fd, c->fd, &s->tag, true);
            c->is_out_polled = true;
            return;
        }
        if (n <= 0)
            break;
        bytes_drop(&c->out, (size_t)n);
    }
    client_close(job, c);
}

void status_event(struct job *job, int64_t now_ns)
{
    struct status *s = job->status;
    if (s == NULL)
        return;
    client_accept(job, s, now_ns);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0)
            client_read(job, s, c, now_ns);
        if (c->fd >= 0 && bytes_used(&c->out) > 0)
            client_flush(job, s, c);
    }
}

void status_tick(struct job *job, int64_t now_ns)
{
    struct status *s = job->status;
    if (s == NULL)
        return;
    bool is_told = s->is_surveying && (now_ns >= s->until_ns || survey_is_complete(job, s));
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0 && is_told && c->kind == STATUS_STORY && bytes_used(&c->out) == 0) {
            say_story(job, s, &c->out, now_ns);
            client_flush(job, s, c);
        }
        if (c->fd >= 0 && now_ns >= c->until_ns)
            client_close(job, c);
    }
    if (is_told)
        survey_end(s);
}

int64_t status_next_ns(const struct job *job)
{
    const struct status *s = job->status;
    return s != NULL && s->is_surveying ? s->until_ns : INT64_MAX;
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
    *s = (struct status){.listen_fd = fd, .path = path, .tag = {.kind = JOB_TAG_STATUS}};
    for (int i = 0; i < CLIENTS_MAX; i++)
        s->clients[i].fd = -1;
    job->status = s;
    job->os->poll_add(job->os->ctx, job->poll_fd, fd, &s->tag, false);
}

void status_close(struct job *job)
{
    struct status *s = job->status;
    if (s == NULL)
        return;
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (s->clients[i].fd >= 0)
            client_close(job, &s->clients[i]);
    if (s->is_surveying)
        survey_end(s);
    job->os->unlink(job->os->ctx, s->path);
    job->os->poll_remove(job->os->ctx, job->poll_fd, s->listen_fd);
    job->os->close(job->os->ctx, s->listen_fd);
    job->status = NULL;
}
