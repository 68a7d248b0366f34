/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - one file of the timeline: a ring of records and the thread that writes them as JSON.
 *
 * The writer puts records after the last one in the file, with the closing bracket, in one pwrite:
 * the file is valid after every write. No other thread waits for the disk. A directory that
 * vanishes or a full disk stops the trace (is_broken), never the job.
 *
 * The file, the ring and the text belong to struct trace, which the writer and struct timeline
 * share: a writer that hangs in a system call is abandoned after TRACE_WAIT_NS and frees the trace
 * itself, if it ever returns. Only the writer opens, writes and closes the file.
 * Thread: the writer's, and the holder of the timeline's lock.  Start reading at trace_writer(). */
#ifndef HVD_ENGINE_TRACE_H
#define HVD_ENGINE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"

#define TRACE_RING (1u << 16)
/* How long starting and stopping wait for a file system that does not respond. */
#define TRACE_WAIT_NS 5000000000LL

enum record_kind {
    RECORD_TENSOR,
    RECORD_BEGIN,
    RECORD_END,
    RECORD_ARGS,
    RECORD_RANK,
    RECORD_CYCLE,
    RECORD_SUBMIT,
    RECORD_CLOCK,
    /* never in the ring: they become one of the others, or nothing */
    RECORD_NEGOTIATE,
    RECORD_AGREED
};

struct record {
    enum record_kind kind;
    int32_t pid;
    int32_t rank;
    int64_t time_us;
    int64_t number;       /* of the batch, 0: none; SUBMIT: when, in us of the trace */
    const char *activity; /* static */
    char *text;           /* owned: a new tensor's name; args */
};

struct identity { /* of the rank that traces, if all do */
    int32_t rank, size;
    char host[64];
};

enum trace_phase { TRACE_OPENING, TRACE_OPEN, TRACE_REFUSED, TRACE_ENDED };

struct trace {
    const struct os *os;
    char path[1024];
    _Atomic uint32_t phase;  /* enum trace_phase; futex: set by the writer */
    _Atomic uint32_t owners; /* the writer, and struct timeline until it gives up */
    _Atomic bool is_stopping;
    _Atomic bool is_broken;       /* a write failed: the file is closed */
    _Atomic uint64_t dropped;     /* events, not yet reported in the file */
    _Atomic uint64_t dropped_all; /* events */
    int open_errno;               /* of TRACE_REFUSED */
    int fd;
    struct identity identity; /* size 0: only rank 0 traces */
    int64_t start_ns, start_wall_us;
    int64_t offset;  /* of the closing bracket */
    int64_t last_us; /* time of the last record written */
    struct record *ring;
    _Atomic uint64_t head, tail; /* written by the writer; by the holder of the timeline's lock */
    _Atomic uint32_t word;       /* futex: events for the writer */
    char *out;
    size_t out_used;
};

/* Both the caller and the writer own it: each calls trace_release(). NULL: no memory. */
struct trace *trace_create(const struct os *os, const char *path, const struct identity *identity);
void trace_release(struct trace *t); /* the last owner frees it */
void *trace_writer(void *trace);     /* the thread */
/* Waits for a limited time for the writer to leave `phase`; false: it has not. */
bool trace_wait(struct trace *t, enum trace_phase phase);

#endif
