/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - log lines in the contract's format: `[YYYY-mm-dd HH:MM:SS.uuuuuu: W file:line] [rank]:
 * text`.
 *
 * Library code logs at debug level at most, except for what a user must know (stalls, failures).
 * Levels up to info go to stdout, warnings and worse to stderr. Thread: any (one write per line).
 */
#ifndef HVD_BASE_LOG_H
#define HVD_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR, LOG_FATAL };

/* A sink other than the terminal, for tests and the simulator; NULL restores the terminal. */
typedef void (*log_sink_t)(void *arg, enum log_level level, const char *line);

struct log {
    enum log_level level;
    bool hide_time;
    int rank; /* -1: not known yet, no rank in the line */
    log_sink_t sink;
    void *sink_arg;
};

bool log_level_parse(const char *text, enum log_level *ret_level); /* case-insensitive */
void log_write(const struct log *log, enum log_level level, const char *file, int line,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

#define LOG_AT(log, lvl, ...)                                                                      \
    do {                                                                                           \
        if ((log) != NULL && (lvl) >= (log)->level)                                                \
            log_write((log), (lvl), __FILE__, __LINE__, __VA_ARGS__);                              \
    } while (0)

#endif
