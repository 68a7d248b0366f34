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
#include "horovod/hvd.h"

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
    RECORD_CYCLE,
    /* never in the ring: they become one of the others, or nothing */
    RECORD_NEGOTIATE,
    RECORD_AGREED
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
    pthread_mutex_t life; /* start and stop, one at a time */
    pthread_mutex_t lock;
    _Atomic bool is_on;
    _Atomic bool is_marking; /* read before the lock is taken */
    bool is_stopping;
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

struct pid_entry { /* one tensor */
    int32_t pid;
    int32_t depth; /* open bars of the execution */
    bool is_negotiating;
    const char *deferred; /* a negotiation that begins when those are closed */
    char key[];           /* the set's number, then the name */
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

/* Bytes of the UTF-8 character that begins here; 0: none does. */
static int utf8_bytes(const unsigned char *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = *c < 0x80 ? 1 : *c >= 0xc2 && *c < 0xe0 ? 2 : *c >= 0xe0 && *c < 0xf0 ? 3 : 4;
    if (n == 1)
        return 1;
    if (*c < 0xc2 || *c > 0xf4)
        return 0;
    uint32_t code = *c & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (c[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[n] || code > 0x10ffff || is_surrogate ? 0 : n;
}

/* A JSON string body: quotes, backslashes, control characters and what is no UTF-8 escaped. */
static void out_escaped(struct timeline *t, const char *text)
{
    char piece[8];
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0';) {
        int n = utf8_bytes(c);
        if (n == 0)
            snprintf(piece, sizeof piece, "\\ufffd");
        else if (*c == '"' || *c == '\\')
            snprintf(piece, sizeof piece, "\\%c", *c);
        else if (*c < 0x20)
            snprintf(piece, sizeof piece, "\\u%04x", *c);
        else
            snprintf(piece, sizeof piece, "%.*s", n, (const char *)c);
        out_text(t, piece);
        c += n > 0 ? n : 1;
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
    case RECORD_NEGOTIATE:
    case RECORD_AGREED: return;
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

static struct pid_entry *entry_make(struct timeline *t, const char *key, size_t key_bytes)
{
    struct pid_entry *entry = os_alloc(t->os, sizeof *entry + key_bytes + 1);
    if (entry == NULL)
        return NULL;
    memcpy(entry->key, key, key_bytes);
    entry->pid = t->next_pid++;
    if (map_put(&t->pids, entry->key, key_bytes, entry) == 0)
        return entry;
    os_free(t->os, entry);
    return NULL;
}

/* Lock held. A tensor of this file; its name is written with its first event. NULL: no memory. */
static struct pid_entry *entry_of(struct timeline *t, int32_t set, const char *tensor, size_t n)
{
    char key[sizeof set + HVD_NAME_MAX], label[HVD_NAME_MAX + 40];
    n = n < HVD_NAME_MAX ? n : HVD_NAME_MAX - 1;
    memcpy(key, &set, sizeof set);
    memcpy(key + sizeof set, tensor, n);
    struct pid_entry *entry = map_get(&t->pids, key, sizeof set + n);
    if (entry != NULL)
        return entry;
    entry = entry_make(t, key, sizeof set + n);
    if (entry == NULL)
        return NULL;
    if (set == HVD_PROCESS_SET_GLOBAL)
        snprintf(label, sizeof label, "%.*s", (int)n, tensor);
    else
        snprintf(label, sizeof label, "%.*s (process set %d)", (int)n, tensor, set);
    char *name = text_copy(t->os, label, strlen(label));
    if (name != NULL)
        push(t, &(struct record){.kind = RECORD_TENSOR, .pid = entry->pid, .text = name});
    return entry;
}

static void bar_begin(struct timeline *t, const struct pid_entry *e, const char *activity)
{
    push(t, &(struct record){.kind = RECORD_BEGIN, .pid = e->pid, .activity = activity});
}

static void bar_end(struct timeline *t, const struct pid_entry *e)
{
    push(t, &(struct record){.kind = RECORD_END, .pid = e->pid});
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
        return; /* announced anew: it still goes on */
    if (e->depth > 0) {
        e->deferred = activity;
        return;
    }
    e->deferred = NULL;
    e->is_negotiating = true;
    bar_begin(t, e, activity);
}

/* Lock held. What the record does to the tensor's bars; its text is owned here. */
static void entry_event(struct timeline *t, struct pid_entry *e, struct record record)
{
    record.pid = e->pid;
    switch (record.kind) {
    case RECORD_NEGOTIATE: negotiation_begin(t, e, record.activity); return;
    case RECORD_AGREED: negotiation_end(t, e); return;
    case RECORD_RANK:
        if (e->is_negotiating)
            push(t, &record);
        return;
    case RECORD_BEGIN:
        if (e->is_negotiating)
            negotiation_end(t, e);
        e->depth++;
        push(t, &record);
        return;
    case RECORD_END:
    case RECORD_ARGS:
        if (e->depth == 0) {
            os_free(t->os, record.text);
            return;
        }
        push(t, &record);
        if (--e->depth == 0 && e->deferred != NULL)
            negotiation_begin(t, e, e->deferred);
        return;
    case RECORD_TENSOR:
    case RECORD_CYCLE: return;
    }
}

static void event(struct timeline *t, int32_t set, const char *tensor, size_t n,
                  struct record record)
{
    pthread_mutex_lock(&t->lock);
    struct pid_entry *e = atomic_load(&t->is_on) ? entry_of(t, set, tensor, n) : NULL;
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

void timeline_cycle(struct timeline *t)
{
    if (!timeline_is_on(t) || !t->is_marking)
        return;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->is_on))
        push(t, &(struct record){.kind = RECORD_CYCLE});
    pthread_mutex_unlock(&t->lock);
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
    pthread_mutex_init(&t->life, NULL);
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

static hvd_status_t start(struct timeline *t, const char *path, bool is_marking_cycles,
                          struct error *error)
{
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
    if (started < 0) {
        t->os->close(t->os->ctx, t->fd);
        t->fd = -1;
        return error_set_os(error, started, "Could not start the timeline's thread");
    }
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
        for (; e->depth > 0; e->depth--)
            bar_end(t, e);
    }
}

static void stop(struct timeline *t)
{
    if (t->thread == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->is_on))
        bars_close(t);
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

hvd_status_t timeline_start(struct timeline *t, const char *path, bool is_marking_cycles,
                            struct error *error)
{
    hvd_status_t status = HVD_OK;
    pthread_mutex_lock(&t->life);
    if (!timeline_is_on(t) || strcmp(t->path, path) != 0) {
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
    os_free(t->os, t->ring);
    os_free(t->os, t->out);
    os_free(t->os, t);
}
