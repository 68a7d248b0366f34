/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - see timeline.h.
 *
 * Events become records in the ring of struct trace (trace.h) under a small lock. When the ring is
 * full, events are dropped and counted; a slot is reserved for the end of every bar whose beginning
 * was recorded, so a trace with gaps is still balanced. */
#include "engine/timeline.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "engine/trace.h"
#include "horovod/hvd.h"

struct timeline {
    const struct os *os;
    const struct log *log;
    pthread_mutex_t life; /* start and stop, one at a time */
    pthread_mutex_t lock;
    _Atomic bool is_on;
    _Atomic bool is_marking; /* read before the lock is taken */
    struct map pids;
    int32_t next_pid;
    uint64_t open;     /* bars begun in the ring or the file: each reserves a slot for its end */
    bool is_drop_told; /* in the log, of this trace */
    struct identity identity;
    struct trace *trace; /* NULL: none */
    void *thread;
};

struct pid_entry { /* one tensor */
    int32_t pid;
    int32_t depth;   /* open bars of the execution */
    int32_t dropped; /* of those, the innermost ones that are not in the trace */
    bool is_named;   /* its name is in the trace */
    bool is_negotiating;
    const char *deferred; /* a negotiation that begins when those are closed */
    size_t key_bytes;
    char key[]; /* the set's number, then the name */
};

/* ---- events ---- */

/* Lock held. Puts a record into the ring if that leaves a slot for the end of each open bar and
 * `spare` more; false: it was dropped, and its text is freed. */
static bool push(struct timeline *t, const struct record *record, uint64_t spare)
{
    struct trace *trace = t->trace;
    uint64_t tail = atomic_load_explicit(&trace->tail, memory_order_relaxed);
    uint64_t used = tail - atomic_load_explicit(&trace->head, memory_order_acquire);
    if (used + t->open + spare >= TRACE_RING) {
        atomic_fetch_add(&trace->dropped, 1);
        atomic_fetch_add(&trace->dropped_all, 1);
        os_free(t->os, record->text);
        return false;
    }
    struct record *r = &trace->ring[tail % TRACE_RING];
    *r = *record;
    r->time_us = (os_now_ns(t->os) - trace->start_ns) / 1000;
    if (r->kind == RECORD_SUBMIT) /* may be before the trace began */
        r->number = (r->number - trace->start_ns) / 1000;
    atomic_store_explicit(&trace->tail, tail + 1, memory_order_release);
    atomic_fetch_add(&trace->word, 1);
    if (((tail + 1) & 63) == 0)
        t->os->futex_wake(t->os->ctx, (const uint32_t *)&trace->word, 1);
    return true;
}

/* The end of a bar that is in the trace: its slot was reserved. */
static void push_end(struct timeline *t, const struct record *record)
{
    assert(t->open > 0);
    t->open--;
    bool is_kept = push(t, record, 0);
    assert(is_kept);
    (void)is_kept;
}

static char *text_copy(const struct os *os, const char *text, size_t n)
{
    char *copy = os_alloc(os, n + 1);
    if (copy != NULL)
        memcpy(copy, text, n);
    return copy;
}

static struct pid_entry *entry_make(struct timeline *t, const char *key, size_t key_bytes)
{
    struct pid_entry *entry = os_alloc(t->os, sizeof *entry + key_bytes + 1);
    if (entry == NULL)
        return NULL;
    memcpy(entry->key, key, key_bytes);
    entry->key_bytes = key_bytes;
    entry->pid = t->next_pid++;
    if (map_put(&t->pids, entry->key, key_bytes, entry) == 0)
        return entry;
    os_free(t->os, entry);
    return NULL;
}

/* Lock held. A tensor of this file. NULL: no memory. */
static struct pid_entry *entry_of(struct timeline *t, int32_t set, const char *tensor, size_t n)
{
    char key[sizeof set + HVD_NAME_MAX];
    n = n < HVD_NAME_MAX ? n : HVD_NAME_MAX - 1;
    memcpy(key, &set, sizeof set);
    memcpy(key + sizeof set, tensor, n);
    struct pid_entry *entry = map_get(&t->pids, key, sizeof set + n);
    return entry != NULL ? entry : entry_make(t, key, sizeof set + n);
}

/* The name of a tensor is written before its first bar. */
static bool name_put(struct timeline *t, struct pid_entry *e)
{
    char label[HVD_NAME_MAX + 40];
    int32_t set;
    int n = (int)(e->key_bytes - sizeof set);
    memcpy(&set, e->key, sizeof set);
    if (set == HVD_PROCESS_SET_GLOBAL)
        snprintf(label, sizeof label, "%.*s", n, e->key + sizeof set);
    else
        snprintf(label, sizeof label, "%.*s (process set %d)", n, e->key + sizeof set, set);
    char *name = text_copy(t->os, label, strlen(label));
    e->is_named = name != NULL &&
                  push(t, &(struct record){.kind = RECORD_TENSOR, .pid = e->pid, .text = name}, 2);
    return e->is_named;
}

static bool bar_begin(struct timeline *t, struct pid_entry *e, const char *activity, int64_t number)
{
    struct record record = {
        .kind = RECORD_BEGIN, .pid = e->pid, .activity = activity, .number = number};
    if (!e->is_named && !name_put(t, e))
        return false;
    if (!push(t, &record, 1))
        return false;
    t->open++;
    return true;
}

static void bar_end(struct timeline *t, const struct pid_entry *e)
{
    push_end(t, &(struct record){.kind = RECORD_END, .pid = e->pid});
}

static void negotiation_end(struct timeline *t, struct pid_entry *e)
{
    if (e->is_negotiating)
        bar_end(t, e);
    e->is_negotiating = false;
    e->deferred = NULL;
}

static void negotiation_begin(struct timeline *t, struct pid_entry *e, const char *activity)
{
    if (e->is_negotiating)
        return; /* announced again: it continues */
    if (e->depth > 0) {
        e->deferred = activity;
        return;
    }
    e->deferred = NULL;
    e->is_negotiating = bar_begin(t, e, activity, 0);
}

/* Lock held. Applies the record to the tensor's bars; owns its text. */
static void entry_event(struct timeline *t, struct pid_entry *e, struct record record)
{
    record.pid = e->pid;
    switch (record.kind) {
    case RECORD_NEGOTIATE: negotiation_begin(t, e, record.activity); return;
    case RECORD_AGREED: negotiation_end(t, e); return;
    case RECORD_RANK:
        if (e->is_negotiating)
            push(t, &record, 0);
        return;
    case RECORD_SUBMIT:
        negotiation_begin(t, e, record.activity);
        if (t->identity.size > 0 && (e->is_named || name_put(t, e)))
            push(t, &record, 0);
        return;
    case RECORD_BEGIN:
        if (e->is_negotiating)
            negotiation_end(t, e);
        e->depth++;
        if (e->dropped > 0 || !bar_begin(t, e, record.activity, record.number))
            e->dropped++; /* with all that it holds */
        return;
    case RECORD_END:
    case RECORD_ARGS:
        if (e->depth == 0 || e->dropped > 0) {
            os_free(t->os, record.text);
            e->dropped -= e->dropped > 0;
            e->depth -= e->depth > 0;
        } else {
            push_end(t, &record);
            e->depth--;
        }
        if (e->depth == 0 && e->deferred != NULL)
            negotiation_begin(t, e, e->deferred);
        return;
    case RECORD_TENSOR:
    case RECORD_CLOCK:
    case RECORD_CYCLE: return;
    }
}

/* Lock held. Is there a trace to write to? The outcome of opening it is logged here and at its end,
 * never by the writer, which may outlive the log. */
static bool trace_is_on(struct timeline *t)
{
    if (!atomic_load(&t->is_on))
        return false;
    if (atomic_load(&t->trace->is_broken)) {
        LOG_AT(t->log, LOG_ERROR, "The timeline %s can't be written any more; it ends here.",
               t->trace->path);
        atomic_store(&t->is_on, false);
        return false;
    }
    if (!t->is_drop_told && atomic_load(&t->trace->dropped_all) > 0) {
        t->is_drop_told = true;
        LOG_AT(t->log, LOG_WARNING,
               "The timeline %s can't be written as fast as events come; some are dropped, and "
               "counted there as DROPPED_EVENTS.",
               t->trace->path);
    }
    return true;
}

static void event(struct timeline *t, int32_t set, const char *tensor, size_t n,
                  struct record record)
{
    pthread_mutex_lock(&t->lock);
    struct pid_entry *e = trace_is_on(t) ? entry_of(t, set, tensor, n) : NULL;
    if (e != NULL)
        entry_event(t, e, record);
    else
        os_free(t->os, record.text);
    pthread_mutex_unlock(&t->lock);
}

bool timeline_is_on(const struct timeline *t)
{
    return t != NULL && atomic_load_explicit(&t->is_on, memory_order_relaxed);
}

void timeline_submit(struct timeline *t, int32_t set, const char *tensor, size_t n,
                     const char *activity, int64_t submit_ns)
{
    if (!timeline_is_on(t))
        return;
    event(t, set, tensor, n,
          (struct record){.kind = RECORD_SUBMIT, .activity = activity, .number = submit_ns});
}

void timeline_negotiate_begin(struct timeline *t, int32_t set, const char *tensor, size_t n,
                              const char *activity)
{
    if (timeline_is_on(t))
        event(t, set, tensor, n, (struct record){.kind = RECORD_NEGOTIATE, .activity = activity});
}

void timeline_negotiate_end(struct timeline *t, int32_t set, const char *tensor, size_t n)
{
    if (timeline_is_on(t))
        event(t, set, tensor, n, (struct record){.kind = RECORD_AGREED});
}

void timeline_batch(struct timeline *t, int32_t set, const char *tensor, size_t n,
                    const char *activity, uint64_t number)
{
    if (!timeline_is_on(t))
        return;
    int64_t shown = t->identity.size > 0 ? (int64_t)number : 0;
    event(t, set, tensor, n,
          (struct record){.kind = RECORD_BEGIN, .activity = activity, .number = shown});
}

void timeline_begin(struct timeline *t, int32_t set, const char *tensor, size_t n,
                    const char *activity)
{
    if (timeline_is_on(t))
        event(t, set, tensor, n, (struct record){.kind = RECORD_BEGIN, .activity = activity});
}

void timeline_end(struct timeline *t, int32_t set, const char *tensor, size_t n)
{
    if (timeline_is_on(t))
        event(t, set, tensor, n, (struct record){.kind = RECORD_END});
}

void timeline_end_args(struct timeline *t, int32_t set, const char *tensor, size_t n,
                       const char *dtype, const char *shape)
{
    if (!timeline_is_on(t))
        return;
    char text[160];
    snprintf(text, sizeof text, "{\"dtype\": \"%s\", \"shape\": \"%.100s\"}", dtype, shape);
    char *copy = text_copy(t->os, text, strlen(text));
    event(t, set, tensor, n,
          (struct record){.kind = copy != NULL ? RECORD_ARGS : RECORD_END, .text = copy});
}

void timeline_rank_ready(struct timeline *t, int32_t set, const char *tensor, size_t n,
                         int32_t rank)
{
    if (timeline_is_on(t))
        event(t, set, tensor, n, (struct record){.kind = RECORD_RANK, .rank = rank});
}

void timeline_clock(struct timeline *t, int64_t at_ns, int64_t offset_ns, int64_t error_ns)
{
    if (!timeline_is_on(t))
        return;
    char text[120];
    snprintf(text, sizeof text, "{\"at_ns\": %lld, \"offset_ns\": %lld, \"error_ns\": %lld}",
             (long long)at_ns, (long long)offset_ns, (long long)error_ns);
    char *copy = text_copy(t->os, text, strlen(text));
    pthread_mutex_lock(&t->lock);
    if (copy != NULL && trace_is_on(t))
        push(t, &(struct record){.kind = RECORD_CLOCK, .text = copy}, 0);
    else
        os_free(t->os, copy);
    pthread_mutex_unlock(&t->lock);
}

void timeline_cycle(struct timeline *t)
{
    if (!timeline_is_on(t) || !t->is_marking)
        return;
    pthread_mutex_lock(&t->lock);
    if (trace_is_on(t))
        push(t, &(struct record){.kind = RECORD_CYCLE}, 0);
    pthread_mutex_unlock(&t->lock);
}

/* ---- create and destroy ---- */

struct timeline *timeline_create(const struct os *os, const struct log *log)
{
    struct timeline *t = os_alloc(os, sizeof *t);
    if (t == NULL)
        return NULL;
    t->os = os;
    t->log = log;
    pthread_mutex_init(&t->life, NULL);
    pthread_mutex_init(&t->lock, NULL);
    map_init(&t->pids, os);
    return t;
}

void timeline_identify(struct timeline *t, int32_t rank, int32_t size, const char *host)
{
    t->identity = (struct identity){.rank = rank, .size = size};
    snprintf(t->identity.host, sizeof t->identity.host, "%.63s", host);
}

bool timeline_path(const char *path, int32_t rank, char *ret_path, size_t bytes)
{
    int n = rank == 0 ? snprintf(ret_path, bytes, "%s", path)
                      : snprintf(ret_path, bytes, "%s.rank%d", path, rank);
    return n >= 0 && (size_t)n < bytes;
}

/* The writer exits by itself, now or when its system call returns. */
static void writer_leave(struct timeline *t, bool is_ending)
{
    if (is_ending)
        t->os->thread_join(t->os->ctx, t->thread);
    else
        t->os->thread_detach(t->os->ctx, t->thread);
    t->thread = NULL;
    trace_release(t->trace);
    t->trace = NULL;
}

static hvd_status_t open_failed(struct timeline *t, const char *path, struct error *error)
{
    bool is_ending = atomic_load(&t->trace->phase) == TRACE_REFUSED;
    hvd_status_t status =
        is_ending
            ? error_set_os(error, t->trace->open_errno, "The timeline %s could not be opened%s",
                           path, os_create_hint(t->trace->open_errno))
            : error_set(error, HVD_ERR_TIMEOUT,
                        "The timeline %s could not be opened within %d s: its file system does not "
                        "answer",
                        path, (int)(TRACE_WAIT_NS / 1000000000));
    LOG_AT(t->log, LOG_ERROR, "%s; the job continues without it.", error->text);
    atomic_store(&t->trace->is_stopping, true);
    writer_leave(t, is_ending);
    return status;
}

static hvd_status_t start(struct timeline *t, const char *path, bool is_marking_cycles,
                          struct error *error)
{
    t->trace = trace_create(t->os, path, &t->identity);
    if (t->trace == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory for the timeline.");
    t->is_marking = is_marking_cycles;
    t->is_drop_told = false;
    t->next_pid = 1;
    t->open = 0;
    int started =
        t->os->thread_start(t->os->ctx, trace_writer, t->trace, "horovod-trace", &t->thread);
    if (started < 0) {
        trace_release(t->trace); /* also for the writer */
        trace_release(t->trace);
        t->trace = NULL;
        return error_set_os(error, started, "Could not start the timeline's thread");
    }
    if (!trace_wait(t->trace, TRACE_OPENING) || atomic_load(&t->trace->phase) == TRACE_REFUSED)
        return open_failed(t, path, error);
    atomic_store(&t->is_on, true);
    return HVD_OK;
}

static void pids_clear(struct timeline *t)
{
    size_t cursor = 0;
    for (struct pid_entry *e; (e = map_next(&t->pids, &cursor)) != NULL;)
        os_free(t->os, e);
    map_destroy(&t->pids);
    map_init(&t->pids, t->os);
}

/* Lock held. */
static void bars_close(struct timeline *t)
{
    size_t cursor = 0;
    for (struct pid_entry *e; (e = map_next(&t->pids, &cursor)) != NULL;) {
        negotiation_end(t, e);
        for (; e->depth > e->dropped; e->depth--)
            bar_end(t, e);
    }
    assert(t->open == 0);
}

static void stop_log(const struct timeline *t, bool was_on, bool is_ended)
{
    unsigned long long dropped = atomic_load(&t->trace->dropped_all);
    if (!is_ended)
        LOG_AT(t->log, LOG_ERROR,
               "The file system of the timeline %s does not answer; its last events are lost.",
               t->trace->path);
    else if (was_on && atomic_load(&t->trace->is_broken))
        LOG_AT(t->log, LOG_ERROR, "The timeline %s can't be written any more; it ends here.",
               t->trace->path);
    if (dropped > 0)
        LOG_AT(t->log, LOG_WARNING, "%llu events of the timeline %s were dropped.", dropped,
               t->trace->path);
}

static void stop(struct timeline *t)
{
    struct trace *trace = t->trace;
    if (trace == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    bool was_on = atomic_load(&t->is_on);
    if (was_on)
        bars_close(t);
    atomic_store(&t->is_on, false);
    atomic_store(&trace->is_stopping, true);
    pthread_mutex_unlock(&t->lock);
    atomic_fetch_add(&trace->word, 1);
    t->os->futex_wake(t->os->ctx, (const uint32_t *)&trace->word, 1);
    bool is_ended = trace_wait(trace, TRACE_OPEN);
    stop_log(t, was_on, is_ended);
    writer_leave(t, is_ended);
    pids_clear(t);
}

hvd_status_t timeline_start(struct timeline *t, const char *path, bool is_marking_cycles,
                            struct error *error)
{
    hvd_status_t status = HVD_OK;
    pthread_mutex_lock(&t->life);
    if (!timeline_is_on(t) || strcmp(t->trace->path, path) != 0) {
        stop(t);
        status = start(t, path, is_marking_cycles, error);
    }
    pthread_mutex_unlock(&t->life);
    return status;
}

void timeline_stop(struct timeline *t)
{
    pthread_mutex_lock(&t->life);
    stop(t);
    pthread_mutex_unlock(&t->life);
}

void timeline_destroy(struct timeline *t)
{
    if (t == NULL)
        return;
    timeline_stop(t);
    map_destroy(&t->pids);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->life);
    os_free(t->os, t);
}
