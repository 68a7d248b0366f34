/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c - see inspect.h. */
#include "inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "message.h"
#include "spawn.h"

#define MS_NS          1000000LL
#define ANSWER_NS      (1500 * MS_NS) /* for the first and the last byte of the stacks */
#define QUIET_NS       (60 * MS_NS)   /* without a further byte: that was all */
#define TURN_NS        (20 * MS_NS)
#define STACK_BYTES    (64u << 10) /* of the stacks that are read */
#define STACK_FILE_MAX (8u << 20)  /* the file grows with every question: from here on, none */

/* ---- the file ---- */

static int64_t file_read(const struct os *os, const char *path, uint64_t from, char *ret, size_t n)
{
    int fd = path[0] != '\0' ? os->open(os->ctx, path, O_RDONLY | O_NOFOLLOW, 0) : -1;
    if (fd < 0)
        return -1;
    int64_t got = 1;
    for (uint64_t skipped = 0; skipped < from && got > 0; skipped += (uint64_t)got)
        got = os->read(os->ctx, fd, ret, from - skipped < n ? (size_t)(from - skipped) : n);
    if (got > 0)
        got = os->read(os->ctx, fd, ret, n);
    os->close(os->ctx, fd);
    return got;
}

static uint64_t file_size(const struct os *os, const char *path)
{
    struct os_file file;
    return os->stat(os->ctx, path, &file) == 0 && file.kind == OS_FILE_REGULAR ? file.bytes : 0;
}

static bool read_head(struct inspect *i, const struct os *os)
{
    char text[STACK_HEAD_MAX];
    int64_t n = file_read(os, i->path, 0, text, sizeof text);
    return n > 0 && stack_head_read(text, (size_t)n, &i->head);
}

/* ---- the process ---- */

static void describe(struct inspect *i)
{
    struct spawn_look look;
    if (!spawn_look(i->pid, &look)) {
        snprintf(i->state, sizeof i->state, "has no process any more");
        return;
    }
    switch (look.state) {
    case 'T':
        snprintf(i->state, sizeof i->state, "is stopped by a signal (kill -CONT %d continues it)",
                 (int)i->pid);
        return;
    case 't': snprintf(i->state, sizeof i->state, "is stopped by a debugger"); return;
    case 'D':
        snprintf(i->state, sizeof i->state, "is blocked in the kernel%s%s",
                 look.place[0] != '\0' ? " in " : "", look.place);
        return;
    case 'R': snprintf(i->state, sizeof i->state, "is running"); return;
    case 'S':
        snprintf(i->state, sizeof i->state, "is sleeping%s%s", look.place[0] != '\0' ? " in " : "",
                 look.place);
        return;
    default: i->state[0] = '\0';
    }
}

/* ---- its core ---- */

static void status_close(struct inspect *i, const struct os *os)
{
    if (i->status_fd >= 0)
        os->close(os->ctx, i->status_fd);
    i->status_fd = -1;
}

static void status_begin(struct inspect *i, const struct os *os, const char *path)
{
    char kind = ASK_STATUS;
    struct iovec iov = {.iov_base = &kind, .iov_len = 1};
    i->status_fd = path != NULL ? ask_connect(os, path) : -1;
    if (i->status_fd >= 0 && os->send(os->ctx, i->status_fd, &iov, 1) != 1)
        status_close(i, os);
}

static void status_turn(struct inspect *i, const struct os *os)
{
    while (i->status_fd >= 0) {
        size_t room = sizeof i->status - i->status_bytes;
        int64_t n = os->recv(os->ctx, i->status_fd, i->status + i->status_bytes, room);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n > 0)
            i->status_bytes += (size_t)n;
        else
            status_close(i, os);
    }
}

static void begin(struct inspect *i, const struct os *os, const struct inspect_question *q)
{
    int64_t now_ns = os_now_ns(os);
    *i = (struct inspect){.number = q->number,
                          .index = q->index,
                          .pid = q->pid,
                          .until_ns = now_ns + ANSWER_NS,
                          .status_fd = -1};
    status_begin(i, os, q->status_path);
    if (q->stack_path != NULL)
        snprintf(i->path, sizeof i->path, "%s", q->stack_path);
    bool has_head = read_head(i, os);
    if (has_head && spawn_is_descendant(i->head.pid))
        i->pid = i->head.pid;
    describe(i);
    struct spawn_look look;
    bool can_answer = has_head && q->wants_stack && file_size(os, i->path) < STACK_FILE_MAX &&
                      i->pid == i->head.pid && spawn_look(i->pid, &look) && look.state != 'T' &&
                      look.state != 't' && spawn_catches(i->pid, i->head.signal);
    i->from = i->seen = can_answer ? file_size(os, i->path) : 0;
    i->quiet_ns = now_ns;
    i->is_asked = can_answer && i->from >= i->head.bytes && spawn_signal(i->pid, i->head.signal);
    i->is_done = !i->is_asked;
}

static void finish(struct inspect *i, const struct os *os)
{
    char *text = os_alloc(os, STACK_BYTES);
    if (text != NULL) {
        int64_t n = file_read(os, i->path, i->from, text, STACK_BYTES);
        i->has_stack = n > 0 && stack_read(&i->head, text, (size_t)n, &i->stack);
    }
    os_free(os, text);
    i->is_done = true;
}

static bool turn(struct inspect *i, const struct os *os, int64_t now_ns)
{
    status_turn(i, os);
    bool is_waiting = i->status_fd >= 0 && now_ns < i->until_ns;
    if (i->is_done)
        return !is_waiting;
    uint64_t size = file_size(os, i->path);
    if (size != i->seen)
        i->quiet_ns = now_ns;
    i->seen = size;
    bool is_complete = size > i->from && now_ns - i->quiet_ns >= QUIET_NS;
    if (is_complete || now_ns >= i->until_ns)
        finish(i, os);
    return i->is_done && !is_waiting;
}

/* ---- all of them ---- */

static void answer(const struct inspect *i, struct link *link)
{
    message_begin(link, MESSAGE_LOOKED);
    message_u32(link, i->number);
    message_u32(link, i->index);
    message_u32(link, (uint32_t)i->pid);
    message_text(link, i->state);
    message_text(link, i->stack.where);
    message_text(link, i->stack.inner);
    message_text(link, i->stack.inside);
    message_text(link, i->stack.frames);
    message_u8(link, i->stack.is_inside);
    message_u32(link, (uint32_t)i->status_bytes);
    message_raw(link, i->status, i->status_bytes);
    message_end(link);
}

void inspect_add(struct inspect **list, const struct os *os, const struct inspect_question *q)
{
    struct inspect *i = os_alloc(os, sizeof *i);
    if (i == NULL)
        return;
    begin(i, os, q);
    i->next = *list;
    *list = i;
}

int64_t inspect_turn(struct inspect **list, const struct os *os, struct link *link)
{
    int64_t now_ns = os_now_ns(os);
    for (struct inspect **at = list; *at != NULL;) {
        struct inspect *i = *at;
        if (!turn(i, os, now_ns)) {
            at = &i->next;
            continue;
        }
        answer(i, link);
        *at = i->next;
        status_close(i, os);
        os_free(os, i);
    }
    return *list != NULL ? now_ns + TURN_NS : INT64_MAX;
}

void inspect_clear(struct inspect **list, const struct os *os)
{
    while (*list != NULL) {
        struct inspect *next = (*list)->next;
        status_close(*list, os);
        os_free(os, *list);
        *list = next;
    }
}
