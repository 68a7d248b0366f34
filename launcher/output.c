/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - see output.h. Pipes and terminals are asked with poll() before each piece of at most
 * PIPE_BUF bytes, which is what they then take without blocking; our stdout may be shared with a
 * shell, so it must not be switched to non-blocking.
 * Thread: the launcher's loop.  Start reading at output_feed(). */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_HIGH_BYTES (1u << 20)
#define TAIL_LINE_MAX    512u
#define NS_PER_MS        1000000LL
#define US_PER_S         1000000LL

/* ---- sinks ---- */

static void sink_init(struct output_sink *s, int fd, bool is_file)
{
    *s = (struct output_sink){.fd = fd, .is_file = is_file, .last = '\n'};
}

static bool sink_takes_now(const struct output_sink *s)
{
    if (s->is_file)
        return true;
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

static void sink_flush(const struct os *os, struct output_sink *s)
{
    while (bytes_used(&s->queue) > 0 && !s->is_gone && sink_takes_now(s)) {
        size_t n = bytes_used(&s->queue);
        if (!s->is_file && n > PIPE_BUF)
            n = PIPE_BUF;
        int64_t written = os->write(os->ctx, s->fd, bytes_at(&s->queue), n);
        if (written == -EINTR)
            continue;
        if (written == -EAGAIN) /* someone else made it non-blocking */
            return;
        if (written < 0) {
            s->is_gone = true;
            s->is_broken = written == -EPIPE;
        } else
            bytes_drop(&s->queue, (size_t)written);
    }
    if (s->is_gone)
        bytes_drop(&s->queue, bytes_used(&s->queue));
}

/* An unfinished line of someone else is ended first, so that lines never run into each other. */
static void sink_begin(const struct os *os, struct output_sink *s, const void *owner)
{
    if (s->last != '\n' && s->last != '\r' && s->last_owner != owner)
        bytes_add(os, &s->queue, "\n", 1);
    s->last_owner = owner;
}

static void sink_add(const struct os *os, struct output_sink *s, const void *bytes, size_t n)
{
    if (n == 0 || s->is_gone)
        return;
    bytes_add(os, &s->queue, bytes, n);
    s->last = ((const char *)bytes)[n - 1];
}

/* ---- the kept lines ---- */

static void tail_add(const struct os *os, struct output_tail *tail, int stream, const char *line,
                     size_t n)
{
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
        n--;
    if (n == 0)
        return;
    bool is_long = n > TAIL_LINE_MAX;
    n = is_long ? TAIL_LINE_MAX : n;
    const char *prefix = stream == 1 ? "<stdout> " : "<stderr> ";
    size_t prefix_bytes = strlen(prefix);
    char *copy = os_alloc(os, prefix_bytes + n + 4);
    if (copy == NULL)
        return;
    memcpy(copy, prefix, prefix_bytes);
    memcpy(copy + prefix_bytes, line, n);
    if (is_long)
        memcpy(copy + prefix_bytes + n, "...", 3);
    os_free(os, tail->lines[tail->next]);
    tail->lines[tail->next] = copy;
    tail->next = (tail->next + 1) % OUTPUT_TAIL_LINES;
}

bool output_has_tail(const struct output *o, int32_t rank)
{
    const struct output_tail *tail = &o->ranks[rank].tail;
    return tail->lines[(tail->next + OUTPUT_TAIL_LINES - 1) % OUTPUT_TAIL_LINES] != NULL;
}

void output_tail_each(const struct output *o, int32_t rank, void (*fn)(void *arg, const char *line),
                      void *arg)
{
    const struct output_tail *tail = &o->ranks[rank].tail;
    for (int i = 0; i < OUTPUT_TAIL_LINES; i++) {
        const char *line = tail->lines[(tail->next + i) % OUTPUT_TAIL_LINES];
        if (line != NULL)
            fn(arg, line);
    }
}

/* ---- lines ---- */

static size_t format_prefix(const struct output *o, const char *label, int stream, char *ret_text,
                            size_t bytes)
{
    char when[64] = "";
    if (o->wants_time) {
        time_t seconds = (time_t)(o->os->wall_us(o->os->ctx) / US_PER_S);
        struct tm local;
        if (localtime_r(&seconds, &local) != NULL)
            strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", &local);
    }
    int n =
        snprintf(ret_text, bytes, "%s[%s]<%s>:", when, label, stream == 1 ? "stdout" : "stderr");
    return n < 0 ? 0 : (size_t)n;
}

/* Writes the stream's line buffer plus `more`, which together end a line unless it is a piece. */
static void emit(struct output *o, int32_t rank, int stream, const char *more, size_t n)
{
    struct output_rank *r = &o->ranks[rank];
    struct output_stream *s = &r->streams[stream - 1];
    struct output_sink *sinks[2] = {&o->sinks[stream - 1], &s->file};
    char prefix[128];
    size_t prefix_bytes =
        s->has_prefix ? 0 : format_prefix(o, r->label, stream, prefix, sizeof prefix);
    for (int i = 0; i < 2; i++) {
        if (sinks[i]->fd < 0)
            continue;
        sink_begin(o->os, sinks[i], s);
        sink_add(o->os, sinks[i], prefix, prefix_bytes);
        sink_add(o->os, sinks[i], bytes_at(&s->line), bytes_used(&s->line));
        sink_add(o->os, sinks[i], more, n);
    }
    bytes_add(o->os, &s->line, more, n);
    tail_add(o->os, &r->tail, stream, (const char *)bytes_at(&s->line), bytes_used(&s->line));
    bytes_drop(&s->line, bytes_used(&s->line));
}

/* The \n of a \r\n whose \r was already written: it follows at once, without a prefix. */
static void emit_newline(struct output *o, struct output_stream *s, int stream)
{
    struct output_sink *sinks[2] = {&o->sinks[stream - 1], &s->file};
    for (int i = 0; i < 2; i++)
        if (sinks[i]->fd >= 0)
            sink_add(o->os, sinks[i], "\n", 1);
}

static size_t line_bytes(const char *text, size_t n, bool *ret_is_whole)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n' || text[i] == '\r') {
            *ret_is_whole = true;
            bool is_pair = text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
            return i + (is_pair ? 2 : 1);
        }
    *ret_is_whole = false;
    return n;
}

void output_feed(struct output *o, int32_t rank, int stream, const void *bytes, size_t n)
{
    struct output_stream *s = &o->ranks[rank].streams[stream - 1];
    const char *text = bytes;
    if (n > 0 && s->had_return && text[0] == '\n') {
        emit_newline(o, s, stream);
        text++;
        n--;
    }
    if (n > 0)
        s->had_return = false;
    while (n > 0) {
        bool is_whole = false;
        size_t used = line_bytes(text, n, &is_whole);
        if (is_whole) {
            emit(o, rank, stream, text, used);
            s->has_prefix = false;
            s->had_return = text[used - 1] == '\r';
        } else if (bytes_used(&s->line) + used > OUTPUT_LINE_MAX) {
            emit(o, rank, stream, text, used);
            s->has_prefix = true;
        } else {
            bytes_add(o->os, &s->line, text, used);
        }
        text += used;
        n -= used;
    }
    output_flush(o);
}

void output_finish_rank(struct output *o, int32_t rank)
{
    for (int stream = 1; stream <= 2; stream++) {
        struct output_stream *s = &o->ranks[rank].streams[stream - 1];
        if (bytes_used(&s->line) > 0)
            emit(o, rank, stream, "", 0);
        s->has_prefix = s->had_return = false;
    }
    output_flush(o);
}

static void event_add(struct output *o, const char *text, size_t n)
{
    struct output_event *event = &o->events[o->event_count++ % OUTPUT_EVENTS];
    event->at_us = o->os->wall_us(o->os->ctx);
    snprintf(event->text, sizeof event->text, "%.*s", (int)n, text);
}

void output_note(struct output *o, const char *format, ...)
{
    char text[OUTPUT_EVENT_TEXT];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0)
        event_add(o, text, strlen(text));
}

void output_say(struct output *o, int stream, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    size_t used = (size_t)n < sizeof text - 1 ? (size_t)n : sizeof text - 2;
    event_add(o, text, used);
    text[used++] = '\n';
    struct output_sink *s = &o->sinks[stream - 1];
    sink_begin(o->os, s, o);
    sink_add(o->os, s, text, used);
    output_flush(o);
}

/* ---- the whole ---- */

void output_init(struct output *o, const struct os *os, struct mem *m, int32_t count,
                 bool wants_time)
{
    *o = (struct output){.os = os, .wants_time = wants_time};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        bool is_file = fstat(i + 1, &st) == 0 && S_ISREG(st.st_mode);
        sink_init(&o->sinks[i], i + 1, is_file);
    }
    output_grow(o, m, count);
    for (int32_t i = 0; i < count; i++)
        snprintf(o->ranks[i].label, sizeof o->ranks[i].label, "%d", i);
}

void output_grow(struct output *o, struct mem *m, int32_t count)
{
    if (count > o->room) {
        int32_t room = count > 2 * o->room ? count : 2 * o->room;
        struct output_rank *grown = mem_alloc(m, (size_t)room * sizeof *grown);
        if (o->count > 0)
            memcpy(grown, o->ranks, (size_t)o->count * sizeof *grown);
        o->ranks = grown;
        o->room = room;
    }
    for (; o->count < count; o->count++)
        for (int k = 0; k < 2; k++)
            sink_init(&o->ranks[o->count].streams[k].file, -1, true);
}

void output_label(struct output *o, int32_t rank, const char *label)
{
    snprintf(o->ranks[rank].label, sizeof o->ranks[rank].label, "%s", label);
}

static void rank_destroy(struct output *o, struct output_rank *r)
{
    for (int k = 0; k < 2; k++) {
        bytes_free(o->os, &r->streams[k].line);
        bytes_free(o->os, &r->streams[k].file.queue);
        if (r->streams[k].file.fd >= 0)
            o->os->close(o->os->ctx, r->streams[k].file.fd);
    }
    for (int k = 0; k < OUTPUT_TAIL_LINES; k++)
        os_free(o->os, r->tail.lines[k]);
}

void output_renew_rank(struct output *o, int32_t rank)
{
    output_finish_rank(o, rank);
    rank_destroy(o, &o->ranks[rank]);
    memset(&o->ranks[rank], 0, sizeof o->ranks[rank]);
    for (int k = 0; k < 2; k++)
        sink_init(&o->ranks[rank].streams[k].file, -1, true);
}

static int make_directories(struct mem *m, const char *path)
{
    char *copy = mem_copy(m, path);
    for (char *p = copy + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(copy, 0777) != 0 && errno != EEXIST ? -errno : 0;
}

static int digits(int32_t n)
{
    int width = 1;
    for (; n >= 10; n /= 10)
        width++;
    return width;
}

hvd_status_t output_open_rank(struct output *o, struct mem *m, int32_t rank, const char *folder,
                              struct error *error)
{
    static const char *const names[] = {"stdout", "stderr"};
    int rc = make_directories(m, folder);
    if (rc < 0)
        return error_set_os(error, rc, "cannot make directory %s", folder);
    for (int k = 0; k < 2; k++) {
        char *path = mem_format(m, "%s/%s", folder, names[k]);
        /* what programs print may be secret; a file that is there keeps its mode */
        int fd = o->os->create(o->os->ctx, path, 0600);
        if (fd < 0)
            return error_set_os(error, fd, "cannot write %s%s", path, os_create_hint(fd));
        sink_init(&o->ranks[rank].streams[k].file, fd, true);
    }
    return HVD_OK;
}

hvd_status_t output_open_files(struct output *o, struct mem *m, const char *dir,
                               struct error *error)
{
    int width = digits(o->count - 1);
    hvd_status_t status = HVD_OK;
    for (int32_t i = 0; i < o->count && status == HVD_OK; i++)
        status = output_open_rank(o, m, i, mem_format(m, "%s/rank.%0*d", dir, width, i), error);
    return status;
}

bool output_flush(struct output *o)
{
    for (int32_t i = 0; i < o->count; i++)
        for (int k = 0; k < 2; k++)
            if (o->ranks[i].streams[k].file.fd >= 0)
                sink_flush(o->os, &o->ranks[i].streams[k].file);
    for (int i = 0; i < 2; i++)
        sink_flush(o->os, &o->sinks[i]);
    return bytes_used(&o->sinks[0].queue) == 0 && bytes_used(&o->sinks[1].queue) == 0;
}

void output_drain(struct output *o, int64_t limit_ns)
{
    int64_t deadline_ns = os_now_ns(o->os) + limit_ns;
    while (!output_flush(o) && os_now_ns(o->os) < deadline_ns) {
        struct pollfd p[2];
        for (int i = 0; i < 2; i++)
            p[i] = (struct pollfd){.fd = bytes_used(&o->sinks[i].queue) > 0 ? i + 1 : -1,
                                   .events = POLLOUT};
        poll(p, 2, 50);
    }
}

bool output_is_full(const struct output *o)
{
    return bytes_used(&o->sinks[0].queue) > QUEUE_HIGH_BYTES ||
           bytes_used(&o->sinks[1].queue) > QUEUE_HIGH_BYTES;
}

bool output_is_gone(const struct output *o)
{
    return o->sinks[0].is_broken;
}

void output_destroy(struct output *o)
{
    if (o == NULL || o->os == NULL)
        return;
    for (int32_t i = 0; i < o->count; i++)
        rank_destroy(o, &o->ranks[i]);
    for (int i = 0; i < 2; i++)
        bytes_free(o->os, &o->sinks[i].queue);
    *o = (struct output){0};
}
