/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - formats a log line and passes it to the sink or, in one write, to the terminal.
 *
 * Thread: any; only the descriptors are shared.  Blocks: as long as the terminal does. Invariant: a
 * line is written in one write of at most LOG_LINE_MAX bytes, so that lines of ranks that share a
 * pipe do not mix; a longer text is truncated with "...".  A sink gets the line without its
 * newline. Nothing here ever exits the process, whatever the level.  Start reading at log_write().
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/os.h"

#define LOG_LINE_MAX 4096 /* what POSIX systems write to a pipe undivided */

bool log_level_parse(const char *text, enum log_level *ret_level)
{
    static const char *const names[] = {"trace", "debug", "info", "warning", "error", "fatal"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(text, names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

static char log_letter(enum log_level level)
{
    switch (level) {
    case LOG_TRACE: return 'T';
    case LOG_DEBUG: return 'D';
    case LOG_INFO: return 'I';
    case LOG_WARNING: return 'W';
    case LOG_ERROR: return 'E';
    case LOG_FATAL: return 'F';
    }
    return '?';
}

static const char *log_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The length that snprintf() wrote, given its return value. */
static size_t log_advance(size_t used, size_t room, int printed)
{
    if (printed < 0)
        return used;
    return (size_t)printed < room ? used + (size_t)printed : used + room - 1;
}

static size_t log_time(char *ret_text, size_t room)
{
    const struct os *os = os_host();
    int64_t wall_us = os->wall_us(os->ctx);
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm tm;
    if (localtime_r(&seconds, &tm) == NULL)
        return 0;
    size_t used = strftime(ret_text, room, "%Y-%m-%d %H:%M:%S", &tm);
    int printed = snprintf(ret_text + used, room - used, ".%06d: ", (int)(wall_us % 1000000));
    return log_advance(used, room - used, printed);
}

static size_t log_prefix(const struct log *log, enum log_level level, const char *file, int line,
                         char *ret_text, size_t room)
{
    size_t used = 0;
    ret_text[used++] = '[';
    if (!log->hide_time)
        used += log_time(ret_text + used, room - used);
    int printed = snprintf(ret_text + used, room - used, "%c %.64s:%d] ", log_letter(level),
                           log_basename(file), line);
    used = log_advance(used, room - used, printed);
    if (log->rank < 0)
        return used;
    printed = snprintf(ret_text + used, room - used, "[%d]: ", log->rank);
    return log_advance(used, room - used, printed);
}

/* A line that cannot be written is dropped: there is nowhere to report it. */
static void log_terminal(enum log_level level, const char *text, size_t n)
{
    const struct os *os = os_host();
    int fd = level <= LOG_INFO ? 1 : 2;
    while (n > 0) {
        int64_t written = os->write(os->ctx, fd, text, n);
        if (written <= 0)
            return;
        text += written;
        n -= (size_t)written;
    }
}

void log_write(const struct log *log, enum log_level level, const char *file, int line,
               const char *format, ...)
{
    if (log == NULL || level < log->level)
        return;
    char text[LOG_LINE_MAX];
    size_t room = sizeof text - 1; /* for the newline */
    size_t used = log_prefix(log, level, file, line, text, room);

    va_list args;
    va_start(args, format);
    int printed = vsnprintf(text + used, room - used, format, args);
    va_end(args);
    bool is_cut = printed >= 0 && (size_t)printed >= room - used;
    used = log_advance(used, room - used, printed);
    if (is_cut)
        memcpy(text + used - 3, "...", 3);
    text[used] = '\0';

    if (log->sink != NULL) {
        log->sink(log->sink_arg, level, text);
        return;
    }
    text[used] = '\n';
    log_terminal(level, text, used + 1);
}
