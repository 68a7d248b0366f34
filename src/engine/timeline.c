/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - see timeline.h.
 *
 * Events go into a ring under a small lock; the writer thread turns them into JSON and writes them
 * behind the last one, with the closing bracket, in one pwrite: the file is valid after every
 * write. When the ring is full the newest event waits for room, so nothing is lost. A directory
 * that vanishes or a full disk ends the trace with one message, never the job. */
#include "engine/timeline.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"

#define RING       (1u << 16)
#define TEXT_BYTES (64u << 10)
#define NAP_NS     50000000
#define EVENT_MAX  4096u

enum record_kind {
    RECORD_TENSOR,
    RECORD_BEGIN,
    RECORD_END,
    RECORD_ARGS,
    RECORD_RANK,
    RECORD_CYCLE
};

struct record {
    enum record_kind kind;
    int32_t pid;
    int32_t rank;
    int64_t time_us;
    const char *activity; /* static */
    char *text;           /* owned: a new tensor's name; args */
};

struct timeline {
    const struct os *os;
    const struct log *log;
    pthread_mutex_t lock;
    _Atomic bool is_on;
    bool is_marking, is_stopping;
    char path[1024];
    int fd;
    int64_t start_ns;
    int64_t offset; /* of the closing bracket */
    struct map pids;
    int32_t next_pid;
    struct record *ring;
    _Atomic uint64_t head, tail; /* written by the writer; by whoever holds the lock */
    _Atomic uint32_t word;       /* futex: events for the writer */
    void *thread;
    char *out;
    size_t out_used;
};

struct pid_entry {
    int32_t pid;
    char name[];
};

/* ---- the writer ---- */

static void out_text(struct timeline *t, const char *text)
{
    size_t n = strlen(text);
    if (t->out_used + n < TEXT_BYTES) {
        memcpy(t->out + t->out_used, text, n);
        t->out_used += n;
    }
}

/* A JSON string body: quotes, backslashes and control characters escaped. */
static void out_escaped(struct timeline *t, const char *text)
{
    char piece[8];
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            snprintf(piece, sizeof piece, "\\%c", *c);
        else if (*c < 0x20)
            snprintf(piece, sizeof piece, "\\u%04x", *c);
        else
            snprintf(piece, sizeof piece, "%c", *c);
        out_text(t, piece);
    }
}

static void out_tensor(struct timeline *t, const struct record *r)
{
    char text[160];
    out_text(t, ",\n{\"name\": \"process_name\", \"ph\": \"M\", ");
    snprintf(text, sizeof text, "\"pid\": %d, \"args\": {\"name\": \"", r->pid);
    out_text(t, text);
    out_escaped(t, r->text);
    snprintf(text, sizeof text,
             "\"}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": %d, \"args\": "
             "{\"sort_index\": %d}}",
             r->pid, r->pid);
    out_text(t, text);
}

static void out_record(struct timeline *t, const struct record *r)
{
    char text[256];
    switch (r->kind) {
    case RECORD_TENSOR: out_tensor(t, r); return;
    case RECORD_BEGIN:
        snprintf(text, sizeof text,
                 ",\n{\"ph\": \"B\", \"name\": \"%s\", \"ts\": %lld, \"pid\": %d}", r->activity,
                 (long long)r->time_us, r->pid);
        break;
    case RECORD_END:
        snprintf(text, sizeof text, ",\n{\"ph\": \"E\", \"ts\": %lld, \"pid\": %d}",
                 (long long)r->time_us, r->pid);
        break;
    case RECORD_ARGS:
        snprintf(text, sizeof text, ",\n{\"ph\": \"E\", \"ts\": %lld, \"pid\": %d, \"args\": %s}",
                 (long long)r->time_us, r->pid, r->text);
        break;
    case RECORD_RANK:
        snprintf(text, sizeof text,
                 ",\n{\"ph\": \"X\", \"name\": \"%d\", \"ts\": %lld, \"pid\": %d, \"dur\": 0}",
                 r->rank, (long long)r->time_us, r->pid);
        break;
    case RECORD_CYCLE:
        snprintf(text, sizeof text,
                 ",\n{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": %lld, \"s\": \"g\"}",
                 (long long)r->time_us);
        break;
    }
    out_text(t, text);
}

static void write_out(struct timeline *t)
{
    if (t->out_used == 0 || t->fd < 0)
        return;
    size_t event_bytes = t->out_used;
    out_text(t, "\n]\n");
    size_t done = 0;
    while (done < t->out_used) {
        int64_t n = t->os->pwrite(t->os->ctx, t->fd, t->out + done, t->out_used - done,
                                  t->offset + (int64_t)done);
        if (n <= 0) {
            LOG_AT(t->log, LOG_ERROR, "The timeline %s can't be written any more; it ends here.",
                   t->path);
            t->os->close(t->os->ctx, t->fd);
            t->fd = -1;
            atomic_store(&t->is_on, false);
            break;
        }
        done += (size_t)n;
    }
    t->offset += (int64_t)event_bytes;
    t->out_used = 0;
}

static bool drain(struct timeline *t)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&t->tail, memory_order_acquire);
    bool has_any = head != tail;
    for (; head != tail; head++) {
        struct record *r = &t->ring[head % RING];
        if (t->out_used + EVENT_MAX * 2 > TEXT_BYTES)
            write_out(t);
        out_record(t, r);
        os_free(t->os, r->text);
        r->text = NULL;
        atomic_store_explicit(&t->head, head + 1, memory_order_release);
    }
    write_out(t);
    return has_any;
}

static void *writer(void *arg)
{
    struct timeline *t = arg;
    for (;;) {
        uint32_t seen = atomic_load(&t->word);
        pthread_mutex_lock(&t->lock);
        bool is_stopping = t->is_stopping;
        pthread_mutex_unlock(&t->lock);
        if (drain(t))
            continue;
        if (is_stopping)
            return NULL;
        t->os->futex_wait(t->os->ctx, (const uint32_t *)&t->word, seen, NAP_NS);
    }
}

/* ---- events ---- */

/* Lock held; may let it go for a moment when the ring is full. */
static void push(struct timeline *t, const struct record *record)
{
    while (atomic_load_explicit(&t->tail, memory_order_relaxed) - atomic_load(&t->head) >= RING) {
        pthread_mutex_unlock(&t->lock);
        t->os->yield(t->os->ctx);
        pthread_mutex_lock(&t->lock);
        if (!atomic_load(&t->is_on)) {
            os_free(t->os, record->text);
            return;
        }
    }
    uint64_t tail = atomic_load_explicit(&t->tail, memory_order_relaxed);
    struct record *r = &t->ring[tail % RING];
    *r = *record;
    r->time_us = (os_now_ns(t->os) - t->start_ns) / 1000;
    atomic_store_explicit(&t->tail, tail + 1, memory_order_release);
    atomic_fetch_add(&t->word, 1);
    if (((tail + 1) & 63) == 0)
        t->os->futex_wake(t->os->ctx, (const uint32_t *)&t->word, 1);
}

static char *text_copy(const struct os *os, const char *text, size_t n)
{
    char *copy = os_alloc(os, n + 1);
    if (copy != NULL)
        memcpy(copy, text, n);
    return copy;
}

/* Lock held. The number of a tensor in this file; its name is written with the first event. */
static int32_t pid_of(struct timeline *t, const char *tensor, size_t n)
{
    struct pid_entry *entry = map_get(&t->pids, tensor, n);
    if (entry != NULL)
        return entry->pid;
    entry = os_alloc(t->os, sizeof *entry + n + 1);
    if (entry == NULL)
        return 0;
    memcpy(entry->name, tensor, n);
    entry->pid = t->next_pid++;
    if (map_put(&t->pids, entry->name, n, entry) != 0) {
        os_free(t->os, entry);
        return 0;
    }
    char *name = text_copy(t->os, tensor, n);
    if (name != NULL)
        push(t, &(struct record){.kind = RECORD_TENSOR, .pid = entry->pid, .text = name});
    return entry->pid;
}

static void event(struct timeline *t, const char *tensor, size_t n, struct record record)
{
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->is_on)) {
        if (tensor != NULL)
            record.pid = pid_of(t, tensor, n);
        push(t, &record);
    } else {
        os_free(t->os, record.text);
    }
    pthread_mutex_unlock(&t->lock);
}

bool timeline_is_on(const struct timeline *t)
{
    return t != NULL && atomic_load_explicit(&t->is_on, memory_order_relaxed);
}

void timeline_begin(struct timeline *t, const char *tensor, size_t n, const char *activity)
{
    if (timeline_is_on(t))
        event(t, tensor, n, (struct record){.kind = RECORD_BEGIN, .activity = activity});
}

void timeline_end(struct timeline *t, const char *tensor, size_t n)
{
    if (timeline_is_on(t))
        event(t, tensor, n, (struct record){.kind = RECORD_END});
}

void timeline_end_args(struct timeline *t, const char *tensor, size_t n, const char *dtype,
                       const char *shape)
{
    if (!timeline_is_on(t))
        return;
    char text[160];
    snprintf(text, sizeof text, "{\"dtype\": \"%s\", \"shape\": \"%.100s\"}", dtype, shape);
    char *copy = text_copy(t->os, text, strlen(text));
    event(t, tensor, n,
          (struct record){.kind = copy != NULL ? RECORD_ARGS : RECORD_END, .text = copy});
}

void timeline_rank_ready(struct timeline *t, const char *tensor, size_t n, int32_t rank)
{
    if (timeline_is_on(t))
        event(t, tensor, n, (struct record){.kind = RECORD_RANK, .rank = rank});
}

void timeline_cycle(struct timeline *t)
{
    if (timeline_is_on(t) && t->is_marking)
        event(t, NULL, 0, (struct record){.kind = RECORD_CYCLE});
}

/* ---- life ---- */

struct timeline *timeline_create(const struct os *os, const struct log *log)
{
    struct timeline *t = os_alloc(os, sizeof *t);
    if (t == NULL)
        return NULL;
    t->os = os;
    t->log = log;
    t->fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    map_init(&t->pids, os);
    return t;
}

static hvd_status_t begin_file(struct timeline *t, const char *path, struct error *error)
{
    t->fd = t->os->open(t->os->ctx, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (t->fd < 0) {
        hvd_status_t status =
            error_set_os(error, t->fd, "The timeline %s could not be opened", path);
        LOG_AT(t->log, LOG_ERROR, "%s; the job goes on without it.", error->text);
        return status;
    }
    snprintf(t->path, sizeof t->path, "%s", path);
    int n = snprintf(t->out, TEXT_BYTES,
                     "[\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": "
                     "{\"start_time_since_epoch_in_micros\": "
                     "%lld}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, "
                     "\"args\": {\"sort_index\": 0}}",
                     (long long)t->os->wall_us(t->os->ctx));
    t->out_used = (size_t)n;
    t->offset = 0;
    t->start_ns = os_now_ns(t->os);
    t->next_pid = 1;
    write_out(t);
    return HVD_OK;
}

hvd_status_t timeline_start(struct timeline *t, const char *path, bool is_marking_cycles,
                            struct error *error)
{
    if (timeline_is_on(t) && strcmp(t->path, path) == 0)
        return HVD_OK;
    timeline_stop(t);
    if (t->ring == NULL)
        t->ring = os_alloc(t->os, RING * sizeof *t->ring);
    if (t->out == NULL)
        t->out = os_alloc(t->os, TEXT_BYTES);
    if (t->ring == NULL || t->out == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory for the timeline.");
    hvd_status_t status = begin_file(t, path, error);
    if (status != HVD_OK)
        return status;
    t->is_marking = is_marking_cycles;
    t->is_stopping = false;
    int started = t->os->thread_start(t->os->ctx, writer, t, "horovod-trace", &t->thread);
    if (started < 0)
        return error_set_os(error, started, "Could not start the timeline's thread");
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

void timeline_stop(struct timeline *t)
{
    if (t->thread == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->is_on, false);
    t->is_stopping = true;
    pthread_mutex_unlock(&t->lock);
    atomic_fetch_add(&t->word, 1);
    t->os->futex_wake(t->os->ctx, (const uint32_t *)&t->word, 1);
    t->os->thread_join(t->os->ctx, t->thread);
    t->thread = NULL;
    if (t->fd >= 0)
        t->os->close(t->os->ctx, t->fd);
    t->fd = -1;
    pids_clear(t);
}

void timeline_destroy(struct timeline *t)
{
    if (t == NULL)
        return;
    timeline_stop(t);
    map_destroy(&t->pids);
    pthread_mutex_destroy(&t->lock);
    os_free(t->os, t->ring);
    os_free(t->os, t->out);
    os_free(t->os, t);
}
