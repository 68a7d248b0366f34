/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - see trace.h. */
#include "engine/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define TEXT_BYTES (64u << 10)
#define NAP_NS     50000000
#define EVENT_MAX  4096u

/* ---- records as text ---- */

static void out_text(struct trace *t, const char *text)
{
    size_t n = strlen(text);
    if (t->out_used + n < TEXT_BYTES) {
        memcpy(t->out + t->out_used, text, n);
        t->out_used += n;
    }
}

static void out_escaped(struct trace *t, const char *text)
{
    char piece[JSON_PIECE_MAX];
    while (*text != '\0') {
        text += json_escape(text, piece);
        out_text(t, piece);
    }
}

static void out_tensor(struct trace *t, const struct record *r)
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

static void out_record(struct trace *t, const struct record *r)
{
    char text[256];
    switch (r->kind) {
    case RECORD_TENSOR: out_tensor(t, r); return;
    case RECORD_BEGIN:
        snprintf(text, sizeof text,
                 ",\n{\"ph\": \"B\", \"name\": \"%s\", \"ts\": %lld, \"pid\": %d%s", r->activity,
                 (long long)r->time_us, r->pid, r->number == 0 ? "}" : "");
        out_text(t, text);
        if (r->number == 0)
            return;
        snprintf(text, sizeof text, ", \"args\": {\"batch\": %lld}}", (long long)r->number);
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
    case RECORD_SUBMIT:
        snprintf(text, sizeof text,
                 ",\n{\"ph\": \"i\", \"name\": \"SUBMIT\", \"ts\": %lld, \"pid\": %d, \"s\": "
                 "\"t\", \"args\": {\"submitted\": %lld}}",
                 (long long)r->time_us, r->pid, (long long)r->number);
        break;
    case RECORD_CLOCK:
        snprintf(text, sizeof text,
                 ",\n{\"name\": \"horovod_clock\", \"ph\": \"M\", \"pid\": 0, \"args\": %s}",
                 r->text);
        break;
    case RECORD_NEGOTIATE:
    case RECORD_AGREED: return;
    }
    out_text(t, text);
}

/* Dropped events are reported in the file as soon as there is room again. */
static void out_dropped(struct trace *t)
{
    char text[200];
    uint64_t dropped = atomic_exchange(&t->dropped, 0);
    if (dropped == 0)
        return;
    snprintf(text, sizeof text,
             ",\n{\"ph\": \"i\", \"name\": \"DROPPED_EVENTS\", \"ts\": %lld, \"s\": \"g\", "
             "\"args\": {\"count\": %llu}}",
             (long long)t->last_us, (unsigned long long)dropped);
    out_text(t, text);
}

static void write_out(struct trace *t)
{
    if (t->out_used == 0 || t->fd < 0) {
        t->out_used = 0;
        return;
    }
    size_t event_bytes = t->out_used;
    out_text(t, "\n]\n");
    size_t done = 0;
    while (done < t->out_used) {
        int64_t n = t->os->pwrite(t->os->ctx, t->fd, t->out + done, t->out_used - done,
                                  t->offset + (int64_t)done);
        if (n <= 0) {
            t->os->close(t->os->ctx, t->fd);
            t->fd = -1;
            atomic_store(&t->is_broken, true);
            break;
        }
        done += (size_t)n;
    }
    t->offset += (int64_t)event_bytes;
    t->out_used = 0;
}

static bool drain(struct trace *t)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&t->tail, memory_order_acquire);
    bool has_any = head != tail;
    for (; head != tail; head++) {
        struct record *r = &t->ring[head % TRACE_RING];
        if (t->out_used + EVENT_MAX * 2 > TEXT_BYTES)
            write_out(t);
        out_record(t, r);
        t->last_us = r->time_us;
        os_free(t->os, r->text);
        r->text = NULL;
        atomic_store_explicit(&t->head, head + 1, memory_order_release);
    }
    out_dropped(t);
    write_out(t);
    return has_any;
}

static void phase_set(struct trace *t, enum trace_phase phase)
{
    atomic_store(&t->phase, (uint32_t)phase);
    t->os->futex_wake(t->os->ctx, (const uint32_t *)&t->phase, 1);
}

static void trace_free(struct trace *t)
{
    for (uint64_t i = atomic_load(&t->head); t->ring != NULL && i != atomic_load(&t->tail); i++)
        os_free(t->os, t->ring[i % TRACE_RING].text);
    os_free(t->os, t->ring);
    os_free(t->os, t->out);
    os_free(t->os, t);
}

void trace_release(struct trace *t)
{
    if (atomic_fetch_sub(&t->owners, 1) == 1)
        trace_free(t);
}

/* Which rank this is, for the tool that merges the traces of all. Its own clock is the trace's. */
static void out_identity(struct trace *t)
{
    char text[200];
    if (t->identity.size == 0)
        return;
    snprintf(text, sizeof text,
             ",\n{\"name\": \"horovod_rank\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"rank\": %d, "
             "\"size\": %d, \"start_ns\": %lld, \"host\": \"",
             t->identity.rank, t->identity.size, (long long)t->start_ns);
    out_text(t, text);
    out_escaped(t, t->identity.host);
    out_text(t, "\"}}");
}

static bool file_open(struct trace *t)
{
    /* A pipe without a reader is rejected, not waited for. */
    t->fd = t->os->create(t->os->ctx, t->path, 0644);
    if (t->fd < 0) {
        t->open_errno = t->fd;
        return false;
    }
    int n = snprintf(t->out, TEXT_BYTES,
                     "[\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": "
                     "{\"start_time_since_epoch_in_micros\": "
                     "%lld}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, "
                     "\"args\": {\"sort_index\": 0}}",
                     (long long)t->start_wall_us);
    t->out_used = (size_t)n;
    out_identity(t);
    write_out(t);
    return true;
}

void *trace_writer(void *arg)
{
    struct trace *t = arg;
    bool is_open = file_open(t);
    phase_set(t, is_open ? TRACE_OPEN : TRACE_REFUSED);
    while (is_open) {
        uint32_t seen = atomic_load(&t->word);
        bool is_stopping = atomic_load(&t->is_stopping);
        if (drain(t))
            continue;
        if (is_stopping)
            break;
        t->os->futex_wait(t->os->ctx, (const uint32_t *)&t->word, seen, NAP_NS);
    }
    if (t->fd >= 0)
        t->os->close(t->os->ctx, t->fd);
    if (is_open)
        phase_set(t, TRACE_ENDED);
    trace_release(t);
    return NULL;
}

/* ---- create and wait ---- */

struct trace *trace_create(const struct os *os, const char *path, const struct identity *identity)
{
    struct trace *trace = os_alloc(os, sizeof *trace);
    if (trace == NULL)
        return NULL;
    trace->os = os;
    trace->fd = -1;
    trace->identity = *identity;
    trace->start_ns = os_now_ns(os);
    trace->start_wall_us = os->wall_us(os->ctx);
    trace->ring = os_alloc(os, TRACE_RING * sizeof *trace->ring);
    trace->out = os_alloc(os, TEXT_BYTES);
    atomic_store(&trace->owners, 2);
    snprintf(trace->path, sizeof trace->path, "%s", path);
    if (trace->ring != NULL && trace->out != NULL)
        return trace;
    trace_free(trace);
    return NULL;
}

bool trace_wait(struct trace *trace, enum trace_phase phase)
{
    int64_t end_ns = os_now_ns(trace->os) + TRACE_WAIT_NS;
    while (atomic_load(&trace->phase) == (uint32_t)phase) {
        int64_t left_ns = end_ns - os_now_ns(trace->os);
        if (left_ns <= 0)
            return false;
        trace->os->futex_wait(trace->os->ctx, (const uint32_t *)&trace->phase, (uint32_t)phase,
                              left_ns);
    }
    return true;
}
