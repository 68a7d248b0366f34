/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - what the ranks print: cut into lines, prefixed with rank and stream, written whole.
 *
 * `[3]<stdout>:text`, with a time in front if wanted. A line ends at \n or at \r (progress bars); a
 * last line without an end is written without one. With a directory each rank's lines also go to
 * DIR/rank.N/stdout and stderr. The last lines of each rank are kept for the failure report.
 * Writing to the terminal never blocks the caller: what does not fit is queued, and
 * output_is_full() tells the caller to stop feeding. Thread: the launcher's loop.  Owner: struct
 * job.  Start reading at output_feed(). */
#ifndef HVD_LAUNCHER_OUTPUT_H
#define HVD_LAUNCHER_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"
#include "mem.h"

#define OUTPUT_TAIL_LINES 20
#define OUTPUT_LINE_MAX   (1u << 20) /* a longer line is written in pieces */

/* One place to write to: our stdout, our stderr, or a file. */
struct output_sink {
    int fd;
    bool is_file;   /* always takes what it gets */
    bool is_gone;   /* writing failed; everything is dropped from then on */
    bool is_broken; /* because nobody reads it any more (EPIPE) */
    char last;      /* byte written last: does the next line need a newline before it? */
    const void *last_owner;
    struct bytes queue;
};

/* One stream of one rank. */
struct output_stream {
    struct bytes line;       /* unfinished */
    bool has_prefix;         /* of the line under construction, already written in pieces */
    bool had_return;         /* the last line ended with \r: a \n right behind belongs to it */
    struct output_sink file; /* fd -1: none */
};

struct output_tail {
    char *lines[OUTPUT_TAIL_LINES]; /* oldest at `next`, os_alloc'ed */
    int next;
};

#define OUTPUT_LABEL_MAX 32u

struct output_rank {
    char label[OUTPUT_LABEL_MAX]; /* its rank; of an elastic job's worker without one, its name */
    struct output_stream streams[2];
    struct output_tail tail;
};

#define OUTPUT_EVENTS     64
#define OUTPUT_EVENT_TEXT 400u

/* A line of the launcher's own, kept for the dashboard. */
struct output_event {
    int64_t at_us; /* wall clock */
    char text[OUTPUT_EVENT_TEXT];
};

struct output {
    const struct os *os;
    struct output_sink sinks[2]; /* stdout, stderr */
    struct output_rank *ranks;
    int32_t count, room;
    bool wants_time, wants_prefix;
    uint64_t event_count; /* so far; the last ones are in the ring */
    struct output_event events[OUTPUT_EVENTS];
};

void output_init(struct output *o, const struct os *os, struct mem *m, int32_t count,
                 bool wants_time);
/* Creates the directories and files; the number is as wide as the largest. */
hvd_status_t output_open_files(struct output *o, struct mem *m, const char *dir,
                               struct error *error);
/* At least so many ranks; those that are new have no label yet. */
void output_grow(struct output *o, struct mem *m, int32_t count);
void output_label(struct output *o, int32_t rank, const char *label);
/* DIR/FOLDER/stdout and stderr for one rank. */
hvd_status_t output_open_rank(struct output *o, struct mem *m, int32_t rank, const char *folder,
                              struct error *error);
/* Another process is to use this entry: nothing of the last one is left. */
void output_renew_rank(struct output *o, int32_t rank);
void output_feed(struct output *o, int32_t rank, int stream, const void *bytes, size_t n);
void output_finish_rank(struct output *o, int32_t rank); /* writes unfinished lines */
/* A line of the launcher's own; stream 1 or 2; gets a newline. */
void output_say(struct output *o, int stream, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Keeps a line as output_say() does, without printing it. */
void output_note(struct output *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes what fits without blocking. true: nothing is queued any more. */
bool output_flush(struct output *o);
void output_drain(struct output *o, int64_t limit_ns); /* waits, at the end of the job */
bool output_is_full(const struct output *o);
bool output_is_gone(const struct output *o); /* stdout's reader went away (EPIPE) */
bool output_has_tail(const struct output *o, int32_t rank);
/* The kept lines, oldest first; fn is not called for an empty tail. */
void output_tail_each(const struct output *o, int32_t rank, void (*fn)(void *arg, const char *line),
                      void *arg);
void output_destroy(struct output *o);

#endif
