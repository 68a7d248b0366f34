/* SPDX-License-Identifier: Apache-2.0 */
/* stack.c - see stack.h. */
#include "stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_SHOWN 8
#define SIGNAL_MIN   34 /* real-time ones: no other would be announced */
#define SIGNAL_MAX   64

struct line {
    const char *text;
    size_t n;
};

/* The next line, without its end; false: no further whole line. */
static bool line_next(const char **at, const char *end, struct line *ret)
{
    const char *stop = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    if (stop == NULL)
        return false;
    *ret = (struct line){*at, (size_t)(stop - *at)};
    *at = stop + 1;
    return true;
}

static bool line_begins(const struct line *line, const char *prefix)
{
    size_t n = strlen(prefix);
    return line->n >= n && memcmp(line->text, prefix, n) == 0;
}

static long line_number(const struct line *line, size_t from)
{
    char digits[16];
    size_t n = line->n - from < sizeof digits ? line->n - from : sizeof digits - 1;
    memcpy(digits, line->text + from, n);
    digits[n] = '\0';
    return strtol(digits, NULL, 10);
}

static void head_line(const struct line *line, struct stack_head *ret)
{
    if (line_begins(line, "pid "))
        ret->pid = (int32_t)line_number(line, 4);
    else if (line_begins(line, "signal "))
        ret->signal = (int)line_number(line, 7);
    else if (line_begins(line, "skip ") && ret->skip_count < STACK_SKIPS_MAX && line->n > 5)
        snprintf(ret->skips[ret->skip_count++], STACK_PATH_MAX, "%.*s", (int)(line->n - 5),
                 line->text + 5);
}

bool stack_head_read(const char *text, size_t n, struct stack_head *ret)
{
    const char *at = text, *end = text + n;
    struct line line;
    memset(ret, 0, sizeof *ret);
    while (line_next(&at, end, &line)) {
        ret->bytes = (size_t)(at - text);
        if (line.n == 5 && line_begins(&line, "ready"))
            return ret->pid > 1 && ret->signal >= SIGNAL_MIN && ret->signal <= SIGNAL_MAX;
        head_line(&line, ret);
    }
    return false;
}

/* ---- frames ---- */

struct frame {
    char path[STACK_PATH_MAX];
    char function[128];
    long number;
};

/* `  File "PATH", line N in FUNCTION` */
static bool frame_read(const struct line *line, struct frame *ret)
{
    static const char begin[] = "  File \"", middle[] = "\", line ";
    char text[1024];
    if (!line_begins(line, begin) || line->n >= sizeof text)
        return false;
    memcpy(text, line->text, line->n);
    text[line->n] = '\0';
    char *path = text + sizeof begin - 1;
    char *number = strstr(path, middle);
    char *function = number != NULL ? strstr(number, " in ") : NULL;
    if (function == NULL)
        return false;
    *number = '\0';
    ret->number = strtol(number + sizeof middle - 1, NULL, 10);
    snprintf(ret->path, sizeof ret->path, "%.511s", path);
    snprintf(ret->function, sizeof ret->function, "%.127s", function + 4);
    for (char *c = ret->path; *c != '\0'; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    for (char *c = ret->function; *c != '\0'; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    return true;
}

static bool is_under(const struct frame *frame, const char *folder)
{
    return strncmp(frame->path, folder, strlen(folder)) == 0;
}

static bool is_library(const struct stack_head *head, const struct frame *frame)
{
    for (int i = 0; i < head->skip_count; i++)
        if (is_under(frame, head->skips[i]))
            return true;
    return frame->path[0] == '<'; /* <frozen importlib._bootstrap> */
}

static void frame_where(const struct frame *frame, char ret[STACK_WHERE_MAX])
{
    const char *slash = strrchr(frame->path, '/');
    snprintf(ret, STACK_WHERE_MAX, "%.120s:%ld in %.100s", slash != NULL ? slash + 1 : frame->path,
             frame->number, frame->function);
}

/* ---- threads ---- */

struct thread {
    struct stack stack; /* as if it were the main thread */
    bool is_inside;
    int count;
};

static void thread_frame(const struct stack_head *head, const struct frame *frame, struct thread *t)
{
    bool is_known = t->stack.where[0] != '\0';
    bool is_skipped = is_library(head, frame);
    if (t->count == 0 && is_skipped)
        frame_where(frame, t->stack.inner);
    if (!is_known && head->skip_count > 0 && is_under(frame, head->skips[0]))
        t->is_inside = true;
    if (!is_known && !is_skipped)
        frame_where(frame, t->stack.where);
    if (t->count++ >= FRAMES_SHOWN)
        return;
    size_t used = strlen(t->stack.frames);
    int n = snprintf(t->stack.frames + used, sizeof t->stack.frames - used,
                     "File \"%s\", line %ld in %s\n", frame->path, frame->number, frame->function);
    if (n < 0 || (size_t)n >= sizeof t->stack.frames - used)
        t->stack.frames[used] = '\0';
}

bool stack_read(const struct stack_head *head, const char *text, size_t n, struct stack *ret)
{
    const char *at = text, *end = text + n;
    struct thread thread = {0};
    struct line line;
    struct frame frame;
    bool has_any = false;
    memset(ret, 0, sizeof *ret);
    while (line_next(&at, end, &line)) {
        bool is_head = line_begins(&line, "Thread 0x") || line_begins(&line, "Current thread 0x");
        if (is_head)
            memset(&thread, 0, sizeof thread);
        if (!frame_read(&line, &frame))
            continue;
        has_any = true;
        thread_frame(head, &frame, &thread);
        if (thread.is_inside && thread.stack.where[0] != '\0' && ret->inside[0] == '\0')
            memcpy(ret->inside, thread.stack.where, sizeof ret->inside);
    }
    memcpy(ret->where, thread.stack.where, sizeof ret->where);
    memcpy(ret->inner, thread.stack.inner, sizeof ret->inner);
    memcpy(ret->frames, thread.stack.frames, sizeof ret->frames);
    ret->is_inside = thread.is_inside;
    if (ret->is_inside)
        memcpy(ret->inside, ret->where, sizeof ret->inside);
    return has_any;
}
