/* SPDX-License-Identifier: Apache-2.0 */
/* coordinator.c - the root's half of the negotiation: collects what every rank says about a name,
 * compares it, gives names ids, decides when and how ready ops are batched, and learns the steps of
 * a training so that a plan can take over.
 *
 * Thread: token holder of the set's lowest rank.  Owner: its struct procset.  Blocks: never.
 * Invariant: a name becomes ready only after every rank that has not joined announced it with equal
 * dtype, op, root, scale and compatible shape; otherwise exactly one error goes to every rank.
 * Start reading at coordinator_request() and coordinator_flush(). */
#include <stdio.h>
#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine.h"
#include "engine/timeline.h"

#define OUT_BYTES (256u << 10)
#define OUT_FULL  (128u << 10)

#define EVICT_LOOKS 8
#define EVICT_MAX   2

/* ---- making and ending ---- */

hvd_status_t coordinator_create(struct procset *set, struct coordinator **ret)
{
    const struct os *os = set->engine->os;
    struct coordinator *c = os_alloc(os, sizeof *c);
    if (c == NULL)
        return HVD_ERR_NO_MEMORY;
    c->set = set;
    map_init(&c->pending, os);
    map_init(&c->entries, os);
    c->next_id = 1;
    c->steps_wanted = set->engine->config->plan_warmup_steps;
    c->joined = os_alloc(os, (size_t)set->size);
    c->buffers[0] = os_alloc(os, OUT_BYTES);
    c->buffers[1] = os_alloc(os, OUT_BYTES);
    if (c->joined == NULL || c->buffers[0] == NULL || c->buffers[1] == NULL) {
        coordinator_destroy(c);
        return HVD_ERR_NO_MEMORY;
    }
    writer_init(&c->out, c->buffers[0], OUT_BYTES);
    c->out.used = NEGOTIATE_HEAD;
    *ret = c;
    return HVD_OK;
}

static void pending_free(struct coordinator *c, struct pending *p)
{
    const struct os *os = c->set->engine->os;
    os_free(os, p->dim0);
    os_free(os, p->payload);
    os_free(os, p->error);
    os_free(os, p);
}

static void pending_clear(struct coordinator *c)
{
    size_t cursor = 0;
    for (struct pending *p; (p = map_next(&c->pending, &cursor)) != NULL;)
        pending_free(c, p);
    map_destroy(&c->pending);
    map_init(&c->pending, c->set->engine->os);
}

void coordinator_destroy(struct coordinator *c)
{
    if (c == NULL)
        return;
    const struct os *os = c->set->engine->os;
    pending_clear(c);
    map_destroy(&c->pending);
    map_destroy(&c->entries);
    os_free(os, c->ready);
    os_free(os, c->items);
    os_free(os, c->window);
    os_free(os, c->joined);
    os_free(os, c->buffers[0]);
    os_free(os, c->buffers[1]);
    os_free(os, c);
}

void coordinator_forget_all(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    map_destroy(&c->entries);
    map_init(&c->entries, set->engine->os);
    c->oldest = c->newest = NULL;
}

void coordinator_generation(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    pending_clear(c);
    for (int32_t i = 0; i < c->ready_count; i++)
        c->ready[i]->is_ready = false;
    c->ready_count = 0;
    c->ready_bytes = 0;
    c->window_count = 0;
    c->step++;
    c->steps_equal = 0;
    memset(c->joined, 0, (size_t)set->size);
    c->joined_count = 0;
}

/* ---- what goes out ---- */

/* Hands out what was collected. Applying it may collect more, in the other buffer. */
static void out_send(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    if (c->out.used == NEGOTIATE_HEAD)
        return;
    uint8_t *message = c->out.bytes;
    size_t n = c->out.used;
    c->current = !c->current;
    writer_init(&c->out, c->buffers[c->current], OUT_BYTES);
    c->out.used = NEGOTIATE_HEAD;
    negotiate_respond(set, message, n);
}

static void out_error(struct procset *set, const struct pending *p)
{
    struct writer *w = &set->coordinator->out;
    put_u8(w, ITEM_ERROR);
    put_blob(w, p->name, p->request.name_bytes);
    put_u32(w, (uint32_t)p->error->status);
    put_text(w, p->error->text);
}

/* ---- the cache, in the order of use ---- */

static void cache_unlink(struct coordinator *c, struct entry *entry)
{
    *(entry->older != NULL ? &entry->older->newer : &c->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &c->newest) = entry->older;
    entry->older = entry->newer = NULL;
}

static void cache_link(struct coordinator *c, struct entry *entry)
{
    entry->older = c->newest;
    *(c->newest != NULL ? &c->newest->newer : &c->oldest) = entry;
    c->newest = entry;
}

static void cache_use(struct coordinator *c, struct entry *entry)
{
    if (c->newest == entry || entry->is_transient || entry->is_forgotten)
        return;
    cache_unlink(c, entry);
    cache_link(c, entry);
}

void coordinator_forget(struct procset *set, struct entry *entry)
{
    struct coordinator *c = set->coordinator;
    map_remove(&c->entries, entry->name, entry->name_bytes);
    cache_unlink(c, entry);
    entry->is_forgotten = true; /* what still comes by its id before all know does not count */
    for (int32_t i = 0; entry->is_ready && i < c->ready_count; i++)
        if (c->ready[i] == entry) {
            entry->is_ready = false;
            c->ready_bytes -= entry->bytes;
            memmove(&c->ready[i], &c->ready[i + 1],
                    (size_t)(c->ready_count - i - 1) * sizeof(struct entry *));
            c->ready_count--;
            break;
        }
    if (entry->ready_count > 0)
        timeline_negotiate_end(set->engine->timeline, set->id, entry->name, entry->name_bytes);
    c->steps_equal = 0;
    c->window_count = 0;
    c->step++;
    put_u8(&c->out, ITEM_FORGET);
    put_u32(&c->out, entry->id);
}

static uint32_t next_id(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    while (c->next_id == 0 || set->ids[c->next_id % set->id_capacity] != NULL)
        c->next_id++;
    return c->next_id++;
}

/* The cache is full: the entry not used for longest goes. One that is in use right now counts as
 * used: if the oldest few are, so are probably all, and the cache grows for the while. Two go for
 * one that comes, so that it shrinks again. */
static void evict(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    int32_t gone = 0;
    for (int32_t i = 0; i < EVICT_LOOKS && gone < EVICT_MAX && c->oldest != NULL &&
                        (int64_t)c->entries.count >= set->engine->config->cache_capacity;
         i++) {
        struct entry *oldest = c->oldest;
        if (oldest->queued > 0 || oldest->ready_count > 0 || oldest->is_ready) {
            cache_use(c, oldest);
            continue;
        }
        coordinator_forget(set, oldest);
        gone++;
    }
    if (gone == 0 || c->is_evict_told)
        return;
    c->is_evict_told = true;
    LOG_AT(set->engine->log, LOG_WARNING,
           "The response cache is full (%lld entries) and begins to forget; a larger "
           "HOROVOD_CACHE_CAPACITY keeps negotiation cheap.",
           (long long)set->engine->config->cache_capacity);
}

/* ---- comparing ---- */

static hvd_status_t mismatch(struct pending *p, const struct os *os, const struct procset *set,
                             const struct request *q, hvd_status_t status, const char *text)
{
    if (p->error != NULL)
        return status;
    p->error = os_alloc(os, sizeof *p->error);
    if (p->error == NULL)
        return HVD_ERR_NO_MEMORY;
    return error_set(p->error, status, "%s (tensor %s, ranks %d and %d)", text, p->name,
                     set->ranks[p->request.rank], set->ranks[q->rank]);
}

static const char *device_name(int32_t device)
{
    return device == HVD_DEVICE_CPU ? "CPU" : "GPU";
}

static bool compare_basics(const struct request *a, const struct request *b, char *t, size_t n)
{
    const char *ka = kind_name(a->kind, a->reduce), *kb = kind_name(b->kind, b->reduce);
    if (a->dtype != b->dtype)
        snprintf(t, n, "Mismatched data types: One rank had type %s, but another rank had type %s.",
                 hvd_dtype_name((hvd_dtype_t)a->dtype), hvd_dtype_name((hvd_dtype_t)b->dtype));
    else if (strcmp(ka, kb) != 0)
        snprintf(t, n, "Mismatched operations: One rank did an %s, but another rank did an %s.", ka,
                 kb);
    else if ((a->device == HVD_DEVICE_CPU) != (b->device == HVD_DEVICE_CPU))
        snprintf(t, n,
                 "Mismatched %s CPU/GPU device selection: One rank specified device %s, but "
                 "another rank specified "
                 "device %s.",
                 ka, device_name(a->device), device_name(b->device));
    else
        return true;
    return false;
}

static bool compare_shape_exact(const struct request *a, const struct request *b, char *t, size_t n)
{
    char sa[256], sb[256];
    if (a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0)
        return true;
    shape_format(a->ndim, a->shape, sa, sizeof sa);
    shape_format(b->ndim, b->shape, sb, sizeof sb);
    snprintf(t, n,
             "Mismatched %s tensor shapes: One rank sent a tensor of shape %s, but another rank "
             "sent a tensor of shape %s.",
             kind_name(a->kind, a->reduce), sa, sb);
    return false;
}

static bool compare_shape_rows(const struct request *a, const struct request *b, char *t, size_t n)
{
    const char *kind = kind_name(a->kind, a->reduce);
    if (a->ndim != b->ndim) {
        snprintf(t, n,
                 "Mismatched %s tensor shapes: One rank sent a tensor of rank %d, but another rank "
                 "sent a tensor of rank %d.",
                 kind, a->ndim, b->ndim);
        return false;
    }
    for (int32_t i = 1; i < a->ndim; i++) {
        if (a->shape[i] == b->shape[i])
            continue;
        snprintf(t, n,
                 "Mismatched %s tensor shapes: One rank sent a tensor with dimension %d equal to "
                 "%lld, but another "
                 "rank sent a tensor with dimension %d equal to %lld.",
                 kind, i, (long long)a->shape[i], i, (long long)b->shape[i]);
        return false;
    }
    return true;
}

static bool compare_reduction(const struct request *a, const struct request *b, char *t, size_t n)
{
    if (!factor_is_same(a->prescale, b->prescale) || !factor_is_same(a->postscale, b->postscale)) {
        snprintf(t, n,
                 "Mismatched prescale and/or postscale factors: One rank sent factors (%g, %g), "
                 "but another rank sent "
                 "factors (%g, %g).",
                 a->prescale, a->postscale, b->prescale, b->postscale);
        return false;
    }
    if (a->kind == HVD_ALLREDUCE && a->reduce != b->reduce) {
        snprintf(t, n,
                 "Mismatched reduction operation: One rank sent reduction op %d, but another rank "
                 "sent reduction op %d.",
                 a->reduce, b->reduce);
        return false;
    }
    return true;
}

/* Equal enough to run together? `t` gets the contract's words if not. */
static bool compare(const struct procset *set, const struct request *a, const struct request *b,
                    char *t, size_t n)
{
    if (!compare_basics(a, b, t, n))
        return false;
    switch (a->kind) {
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER: return compare_shape_exact(a, b, t, n) && compare_reduction(a, b, t, n);
    case HVD_BROADCAST:
        if (!compare_shape_exact(a, b, t, n))
            return false;
        if (a->root == b->root)
            return true;
        snprintf(t, n,
                 "Mismatched BROADCAST root ranks: One rank specified root rank %d, but another "
                 "rank specified root rank %d.",
                 set->ranks[a->root], set->ranks[b->root]);
        return false;
    case HVD_ALLGATHER:
    case HVD_ALLTOALL: return compare_shape_rows(a, b, t, n);
    default: return true;
    }
}

static bool compare_payload(const struct pending *p, const struct request *q, char *t, size_t n)
{
    if (p->request.payload_bytes == q->payload_bytes &&
        (q->payload_bytes == 0 || memcmp(p->payload, q->payload, q->payload_bytes) == 0))
        return true;
    snprintf(t, n, "%s",
             p->request.payload_bytes != q->payload_bytes
                 ? "Attempted to register process set with mismatching size on different ranks"
                 : "Attempted to register process set with mismatching values on different ranks");
    return false;
}

/* Wrong by itself, whatever the others say. */
static void check_alone(struct procset *set, struct pending *p, const struct request *q)
{
    char t[512];
    if ((q->kind == HVD_ALLGATHER || q->kind == HVD_ALLTOALL || q->kind == HVD_REDUCESCATTER) &&
        q->ndim == 0) {
        /* The contract's words, whoever came first; the ranks follow in parentheses. */
        snprintf(t, sizeof t, "Process-set rank zero tried to %s a rank-zero tensor.",
                 kind_name(q->kind, q->reduce));
        mismatch(p, set->engine->os, set, q, HVD_ERR_MISMATCH, t);
    }
    if (q->kind == HVD_ALLREDUCE && q->reduce == HVD_ADASUM && q->dtype != HVD_FLOAT16 &&
        q->dtype != HVD_FLOAT32 && q->dtype != HVD_FLOAT64 && q->dtype != HVD_BFLOAT16)
        mismatch(p, set->engine->os, set, q, HVD_ERR_UNSUPPORTED,
                 "Unsupported data type for Adasum");
}

/* ---- collecting ---- */

static struct pending *pending_make(struct procset *set, const struct request *q)
{
    const struct os *os = set->engine->os;
    size_t bitmap = ((size_t)set->size + 7) / 8;
    struct pending *p = os_alloc(os, sizeof *p + bitmap + q->name_bytes + 1);
    if (p == NULL)
        return NULL;
    p->request = *q;
    p->present = (uint8_t *)(p + 1);
    p->name = (char *)p->present + bitmap;
    memcpy(p->name, q->name, q->name_bytes);
    p->request.name = p->name;
    p->first_ns = set->engine->now_ns;
    if (q->kind == HVD_ALLGATHER)
        p->dim0 = os_alloc(os, (size_t)set->size * sizeof *p->dim0);
    if (q->payload_bytes > 0) {
        p->payload = os_alloc(os, q->payload_bytes);
        if (p->payload != NULL)
            memcpy(p->payload, q->payload, q->payload_bytes);
    }
    p->request.payload = p->payload;
    if ((q->kind == HVD_ALLGATHER && p->dim0 == NULL) ||
        (q->payload_bytes > 0 && p->payload == NULL) ||
        map_put(&set->coordinator->pending, p->name, q->name_bytes, p) != 0) {
        pending_free(set->coordinator, p);
        return NULL;
    }
    timeline_negotiate_begin(set->engine->timeline, set->id, p->name, q->name_bytes,
                             kind_negotiate_name(q->kind, q->reduce));
    return p;
}

static bool is_present(const struct pending *p, int32_t rank)
{
    return (p->present[rank / 8] >> (rank % 8) & 1) != 0;
}

static bool is_complete(const struct coordinator *c, const struct pending *p)
{
    int32_t absent_joined = 0;
    for (int32_t i = 0; c->joined_count > 0 && i < c->set->size; i++)
        absent_joined += c->joined[i] && !is_present(p, i);
    return p->count + absent_joined == c->set->size;
}

static void join_error(struct procset *set, struct pending *p)
{
    static const char *const titles[HVD_KIND_COUNT] = {[HVD_ALLGATHER] = "Allgather",
                                                       [HVD_BROADCAST] = "Broadcast",
                                                       [HVD_ALLTOALL] = "Alltoall",
                                                       [HVD_REDUCESCATTER] = "Reducescatter"};
    uint8_t kind = p->request.kind;
    if (p->error != NULL || kind >= HVD_KIND_COUNT || titles[kind] == NULL)
        return;
    p->error = os_alloc(set->engine->os, sizeof *p->error);
    int32_t joined = 0;
    while (joined < set->size - 1 && !set->coordinator->joined[joined])
        joined++;
    if (p->error != NULL)
        error_set(p->error, HVD_ERR_MISMATCH,
                  "%s is not supported with Join at this time.%s (tensor %s, rank %d has joined)",
                  titles[kind],
                  kind == HVD_ALLGATHER
                      ? " Specify sparse_to_dense=True if using DistributedOptimizer"
                      : "",
                  p->name, set->ranks[joined]);
}

static void out_define(struct procset *set, const struct pending *p, uint32_t id)
{
    struct writer *w = &set->coordinator->out;
    put_u8(w, ITEM_DEFINE);
    put_u32(w, id);
    request_put(w, &p->request);
    put_u8(w, p->dim0 != NULL);
    for (int32_t i = 0; p->dim0 != NULL && i < set->size; i++)
        put_i64(w, p->dim0[i]);
}

static void finish_set_change(struct procset *set, const struct pending *p)
{
    struct engine *engine = set->engine;
    struct writer *w = &set->coordinator->out;
    if (p->request.kind == KIND_SET_REMOVE) {
        int32_t id;
        memcpy(&id, p->payload, sizeof id);
        put_u8(w, ITEM_SET_REMOVE);
        put_u32(w, (uint32_t)id);
        return;
    }
    int32_t id =
        engine->free_id_count > 0 ? engine->free_ids[engine->free_id_head] : engine->next_set_id;
    put_u8(w, ITEM_SET_ADD);
    put_u32(w, (uint32_t)id);
    put_u32(w, engine->next_incarnation);
    put_u32(w, p->request.payload_bytes / 4);
    put_bytes(w, p->payload, p->request.payload_bytes);
}

static void finish_define(struct procset *set, struct pending *p)
{
    struct coordinator *c = set->coordinator;
    struct entry *entry = NULL;
    int64_t capacity = set->engine->config->cache_capacity;
    if (c->is_joining || capacity <= 0 || p->request.kind >= HVD_KIND_COUNT)
        p->request.flags |= REQUEST_TRANSIENT;
    uint32_t id = next_id(set);
    hvd_status_t status = procset_define(set, &p->request, p->dim0, id, &entry);
    if (status == HVD_OK && !entry->is_transient) {
        if ((int64_t)c->entries.count >= capacity)
            evict(set);
        if (map_put(&c->entries, entry->name, entry->name_bytes, entry) != 0)
            status = HVD_ERR_NO_MEMORY;
        else
            cache_link(c, entry);
    }
    if (status != HVD_OK) {
        engine_stop(set->engine, status, "Out of memory for the table of tensors.", true);
        return;
    }
    out_define(set, p, id);
    coordinator_ready(set, entry);
}

/* Ranks that do not agree: a bar of its own, so that it is found. */
static void trace_error(struct procset *set, const struct pending *p)
{
    struct timeline *t = set->engine->timeline;
    timeline_negotiate_end(t, set->id, p->name, p->request.name_bytes);
    timeline_begin(t, set->id, p->name, p->request.name_bytes, "ERROR");
    timeline_end(t, set->id, p->name, p->request.name_bytes);
}

static void finish(struct procset *set, struct pending *p)
{
    struct coordinator *c = set->coordinator;
    map_remove(&c->pending, p->name, p->request.name_bytes);
    if (c->joined_count > 0)
        join_error(set, p);
    if (p->error != NULL) {
        trace_error(set, p);
        out_error(set, p);
    } else if (p->request.kind == KIND_SET_ADD || p->request.kind == KIND_SET_REMOVE) {
        timeline_negotiate_end(set->engine->timeline, set->id, p->name, p->request.name_bytes);
        finish_set_change(set, p);
    } else {
        finish_define(set, p);
    }
    pending_free(c, p);
    if (c->out.used > OUT_FULL)
        out_send(set);
}

static void emit_ready(struct procset *set);

#define JOIN_NAME "join.noname"

static void on_join(struct procset *set, const struct request *q)
{
    struct coordinator *c = set->coordinator;
    if (c->joined[q->rank])
        return;
    if (!c->is_joining) {
        /* Who has joined does not announce ids, and what it announced by id before must not be
         * lost: all ids become void, and everyone, the joining rank too, announces in full what is
         * pending. */
        c->is_joining = true;
        emit_ready(set); /* all have submitted it: the join comes behind */
        put_u8(&c->out, ITEM_RESET);
        out_send(set);
        return;
    }
    c->joined[q->rank] = 1;
    c->joined_count++;
    timeline_negotiate_begin(set->engine->timeline, set->id, JOIN_NAME, strlen(JOIN_NAME),
                             kind_negotiate_name(HVD_JOIN, HVD_SUM));
    timeline_rank_ready(set->engine->timeline, set->id, JOIN_NAME, strlen(JOIN_NAME), q->rank);
    c->last_joined = q->rank;
    size_t cursor = 0;
    for (struct pending *p; (p = map_next(&c->pending, &cursor)) != NULL;)
        if (is_complete(c, p)) {
            finish(set, p);
            cursor = 0;
        }
    if (c->joined_count < set->size)
        return;
    emit_ready(
        set); /* those who have joined give zeros to these; afterwards their names are new ops */
    timeline_negotiate_end(set->engine->timeline, set->id, JOIN_NAME, strlen(JOIN_NAME));
    put_u8(&c->out, ITEM_JOINED);
    put_u32(&c->out, (uint32_t)set->ranks[c->last_joined]);
    memset(c->joined, 0, (size_t)set->size);
    c->joined_count = 0;
    c->is_joining = false;
}

void coordinator_request(struct procset *set, const struct request *q)
{
    struct coordinator *c = set->coordinator;
    if (q->kind == HVD_JOIN) {
        on_join(set, q);
        return;
    }
    struct entry *entry = map_get(&c->entries, q->name, q->name_bytes);
    if (entry != NULL)
        coordinator_forget(set, entry);
    struct pending *p = map_get(&c->pending, q->name, q->name_bytes);
    if (p == NULL)
        p = pending_make(set, q);
    if (p == NULL) {
        engine_stop(set->engine, HVD_ERR_NO_MEMORY, "Out of memory for a request.", true);
        return;
    }
    if (is_present(p, q->rank))
        return;
    char text[640];
    bool is_first = p->count == 0;
    if (!is_first && (!compare(set, &p->request, q, text, sizeof text) ||
                      !compare_payload(p, q, text, sizeof text)))
        mismatch(p, set->engine->os, set, q, HVD_ERR_MISMATCH, text);
    check_alone(set, p, q);
    p->present[q->rank / 8] |= (uint8_t)(1u << (q->rank % 8));
    p->count++;
    p->request.flags |= q->flags;
    if (p->dim0 != NULL && q->ndim > 0)
        p->dim0[q->rank] = q->shape[0];
    timeline_rank_ready(set->engine->timeline, set->id, p->name, p->request.name_bytes, q->rank);
    if (is_complete(c, p))
        finish(set, p);
}

/* ---- batching ---- */

void coordinator_ready(struct procset *set, struct entry *entry)
{
    struct coordinator *c = set->coordinator;
    if (c->ready_count == c->ready_capacity) {
        int32_t capacity = c->ready_capacity != 0 ? c->ready_capacity * 2 : 256;
        const struct os *os = set->engine->os;
        struct entry **ready = os->resize(os->ctx, c->ready, (size_t)capacity * sizeof *ready);
        if (ready != NULL)
            c->ready = ready;
        struct batch_item *items = os->resize(os->ctx, c->items, (size_t)capacity * sizeof *items);
        if (items != NULL)
            c->items = items;
        if (ready == NULL || items == NULL) {
            engine_stop(set->engine, HVD_ERR_NO_MEMORY, "Out of memory for ready tensors.", true);
            return;
        }
        c->ready_capacity = capacity;
    }
    if (c->ready_count == 0)
        c->ready_first_ns = set->engine->now_ns;
    c->ready[c->ready_count++] = entry;
    c->ready_bytes += entry->bytes;
    entry->is_ready = true;
    cache_use(c, entry);
}

static void emit_batch(void *arg, const uint32_t *ids, int32_t count)
{
    struct procset *set = arg;
    struct writer *w = &set->coordinator->out;
    put_u8(w, ITEM_BATCH);
    put_u32(w, (uint32_t)count);
    for (int32_t i = 0; i < count; i++) {
        put_u32(w, ids[i]);
        struct entry *e = procset_entry(set, ids[i]);
        timeline_negotiate_end(set->engine->timeline, set->id, e->name, e->name_bytes);
    }
    learn_batch(set, ids, count);
    if (w->used > OUT_FULL)
        out_send(set);
}

static bool is_time(const struct procset *set, bool is_waited)
{
    const struct coordinator *c = set->coordinator;
    const struct config *config = set->engine->config;
    if (is_waited || set->size == 1 || c->is_shutdown)
        return true;
    if (c->ready_bytes >= (uint64_t)config->fusion_threshold_bytes)
        return true;
    return set->engine->now_ns - c->ready_first_ns >= (int64_t)(config->cycle_time_ms * 1e6);
}

static void emit_ready(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    int32_t count = c->ready_count;
    if (count == 0)
        return;
    for (int32_t i = 0; i < count; i++) {
        c->items[i] = (struct batch_item){.entry = c->ready[i]};
        c->ready[i]->is_ready = false;
    }
    c->ready_count = 0;
    c->ready_bytes = 0;
    timeline_cycle(set->engine->timeline);
    batch_fuse(set, c->items, count, emit_batch, set);
}

void coordinator_flush(struct procset *set, bool is_waited)
{
    struct coordinator *c = set->coordinator;
    if (c->ready_count > 0 && is_time(set, is_waited) && !learn_plan(set))
        emit_ready(set);
    if (c->is_shutdown && !c->is_shutdown_sent) {
        c->is_shutdown_sent = true;
        put_u8(&c->out, ITEM_SHUTDOWN);
        put_u32(&c->out, (uint32_t)c->shutdown_rank);
    }
    out_send(set);
}

int64_t coordinator_deadline_ns(const struct procset *set)
{
    const struct coordinator *c = set->coordinator;
    if (c->ready_count == 0)
        return INT64_MAX;
    return c->ready_first_ns + (int64_t)(set->engine->config->cycle_time_ms * 1e6);
}

void coordinator_shutdown(struct procset *set, int32_t rank)
{
    struct coordinator *c = set->coordinator;
    if (!c->is_shutdown)
        c->shutdown_rank = rank;
    c->is_shutdown = true;
    plan_break(set);
}
