/* SPDX-License-Identifier: Apache-2.0 */
/* coordinator.c - the root's half of the negotiation: collects the requests of all ranks for a
 * name, has them compared (compare.c), assigns ids to names (cache.c), decides when ready ops are
 * batched (batch.c), and writes the responses (response.c).
 *
 * Thread: token holder of the set's lowest rank.  Owner: its struct procset.  Blocks: never.
 * Invariant: a name becomes ready only after every rank that has not joined announced it with equal
 * dtype, op, root, scale, kind of memory and compatible shape; otherwise exactly one error is sent
 * to every rank. Start reading at coordinator_request() and coordinator_flush(). */
#include "engine/coordinator.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/batch.h"
#include "engine/cache.h"
#include "engine/compare.h"
#include "engine/engine_private.h"
#include "engine/learn.h"
#include "engine/negotiate.h"
#include "engine/plan.h"
#include "engine/response.h"
#include "engine/sets.h"
#include "engine/timeline.h"
#include "engine/tune.h"

/* What one process can address: a result beyond it is an absurd dimension, not a lack of memory. */
#define RESULT_BYTES_MAX (UINT64_C(1) << 47)
#define RANKS_NAMED_MAX  8

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
    map_init(&c->passing, os);
    c->next_id = 1;
    c->stuck_since_ns = -1;
    c->step = 1; /* entries begin with 0: seen in no step */
    c->steps_wanted = set->engine->config->plan_warmup_steps;
    c->joined = os_alloc(os, (size_t)set->size);
    c->positioned = os_alloc(os, (size_t)set->size);
    c->made = os_alloc(os, (size_t)set->size * sizeof *c->made);
    if (c->joined == NULL || c->positioned == NULL || c->made == NULL || !response_create(c)) {
        coordinator_destroy(c);
        return HVD_ERR_NO_MEMORY;
    }
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
    for (int32_t i = 0; c->made != NULL && i < c->set->size; i++)
        c->made[i] = 0;
}

void coordinator_destroy(struct coordinator *c)
{
    if (c == NULL)
        return;
    const struct os *os = c->set->engine->os;
    pending_clear(c);
    map_destroy(&c->pending);
    map_destroy(&c->entries);
    map_destroy(&c->passing);
    os_free(os, c->ready);
    os_free(os, c->items);
    os_free(os, c->window);
    response_destroy(c);
    os_free(os, c->joined);
    os_free(os, c->positioned);
    os_free(os, c->made);
    os_free(os, c->stuck);
    os_free(os, c);
}

static void unready(struct coordinator *c, struct entry *entry)
{
    assert(entry->is_ready && !entry->is_forgotten);
    entry->is_ready = false;
    if (entry->is_transient)
        map_remove(&c->passing, entry->name, entry->name_bytes);
}

void coordinator_generation(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    pending_clear(c);
    for (int32_t i = 0; i < c->ready_count; i++)
        unready(c, c->ready[i]);
    c->ready_count = 0;
    c->ready_bytes = 0;
    c->window_count = 0;
    c->step++;
    c->steps_equal = 0;
    memset(c->joined, 0, (size_t)set->size);
    c->joined_count = 0;
}

static uint32_t next_id(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    while (c->next_id == 0 || set->ids[c->next_id % set->id_capacity] != NULL)
        c->next_id++;
    return c->next_id++;
}

/* ---- verdicts ---- */

/* Records the first mismatch of a name; all ranks get it when all have announced it. An error that
 * can't be recorded must not be lost: then the set fails. */
static hvd_status_t verdict(const struct procset *set, struct pending *p, hvd_status_t status,
                            struct error *error, const char *text)
{
    if (p->error != NULL)
        return HVD_OK;
    p->error = os_alloc(set->engine->os, sizeof *p->error);
    if (p->error == NULL)
        return procset_no_memory(set, error, "an error of a tensor");
    error_set(p->error, status, "%s", text);
    return HVD_OK;
}

static hvd_status_t mismatch(const struct procset *set, struct pending *p, const struct request *q,
                             struct error *error, const struct difference *d)
{
    char all[HVD_ERROR_MAX];
    int first = set->ranks[p->request.rank], other = set->ranks[q->rank];
    p->odd[q->rank / 8] |= (uint8_t)(1u << (q->rank % 8));
    p->odd_count++;
    if (d->values[0][0] != '\0')
        snprintf(all, sizeof all, "%s (tensor %s; rank %d: %s; rank %d: %s)", d->text, p->name,
                 first, d->values[0], other, d->values[1]);
    else
        snprintf(all, sizeof all, "%s (tensor %s; ranks %d and %d)", d->text, p->name, first,
                 other);
    return verdict(set, p, HVD_ERR_MISMATCH, error, all);
}

/* The error names two ranks. Which of them is the exception? */
static void describe_rest(const struct procset *set, struct pending *p)
{
    char list[RANKS_NAMED_MAX * 12 + 8] = "";
    size_t used = 0, end = strlen(p->error->text);
    int32_t named = 0, first = set->ranks[p->request.rank];
    for (int32_t i = 0; i < set->size && named <= RANKS_NAMED_MAX; i++) {
        if ((p->odd[i / 8] >> (i % 8) & 1) == 0)
            continue;
        int n = named == RANKS_NAMED_MAX ? snprintf(list + used, sizeof list - used, ", ...")
                                         : snprintf(list + used, sizeof list - used, "%s%d",
                                                    named > 0 ? ", " : "", set->ranks[i]);
        used += (size_t)n;
        named++;
    }
    char *tail = p->error->text + end;
    if (p->odd_count == 1)
        snprintf(tail, sizeof p->error->text - end, " All other ranks match rank %d.", first);
    else
        snprintf(tail, sizeof p->error->text - end, " Ranks that do not match rank %d: %s.", first,
                 list);
}

static hvd_status_t wrong_alone(const struct procset *set, struct pending *p,
                                const struct request *q, hvd_status_t status, struct error *error,
                                const char *text)
{
    char all[HVD_ERROR_MAX];
    snprintf(all, sizeof all, "%s (tensor %s, rank %d)", text, p->name, set->ranks[q->rank]);
    return verdict(set, p, status, error, all);
}

/* Wrong by itself, whatever the other ranks sent. */
static hvd_status_t check_alone(const struct procset *set, struct pending *p,
                                const struct request *q, struct error *error)
{
    char t[512];
    if ((q->kind == HVD_ALLGATHER || q->kind == HVD_ALLTOALL || q->kind == HVD_REDUCESCATTER) &&
        q->ndim == 0) {
        /* The sentence of 0.28.1, whichever rank it was; the rank follows in parentheses. */
        snprintf(t, sizeof t, "Process-set rank zero tried to %s a rank-zero tensor.",
                 kind_name(q->kind, q->reduce));
        return wrong_alone(set, p, q, HVD_ERR_MISMATCH, error, t);
    }
    if (q->kind == HVD_ALLREDUCE && q->reduce == HVD_ADASUM && q->dtype != HVD_FLOAT16 &&
        q->dtype != HVD_FLOAT32 && q->dtype != HVD_FLOAT64 && q->dtype != HVD_BFLOAT16)
        return wrong_alone(set, p, q, HVD_ERR_UNSUPPORTED, error,
                           "Unsupported data type for Adasum");
    return HVD_OK;
}

/* An allgather's result has the length of all inputs together: one absurd first dimension must not
 * make every rank try to allocate that much memory. */
static hvd_status_t check_rows(const struct procset *set, struct pending *p, struct error *error)
{
    char t[HVD_ERROR_MAX], name[160];
    uint64_t bytes = 0;
    int32_t most = 0;
    if (p->dim0 == NULL)
        return HVD_OK;
    for (int32_t i = 0; i < set->size; i++)
        most = p->dim0[i] > p->dim0[most] ? i : most;
    if (message_rows_bytes(&p->request, p->dim0, set->size, &bytes) && bytes <= RESULT_BYTES_MAX)
        return HVD_OK;
    engine_peer_name(set->engine, set->ranks[most], name, sizeof name);
    snprintf(t, sizeof t,
             "The result of the allgather would be larger than any memory: %s gives a first "
             "dimension of %lld. (tensor %s)",
             name, (long long)p->dim0[most], p->name);
    return verdict(set, p, HVD_ERR_LIMIT, error, t);
}

/* ---- collecting ---- */

static struct pending *pending_make(struct procset *set, const struct request *q)
{
    const struct os *os = set->engine->os;
    size_t bitmap = ((size_t)set->size + 7) / 8;
    struct pending *p = os_alloc(os, sizeof *p + 2 * bitmap + q->name_bytes + 1);
    if (p == NULL)
        return NULL;
    p->request = *q;
    p->present = (uint8_t *)(p + 1);
    p->odd = p->present + bitmap;
    p->name = (char *)p->odd + bitmap;
    memcpy(p->name, q->name, q->name_bytes);
    p->request.name = p->name;
    p->first_ns = INT64_MAX;
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
    set->coordinator->made[q->rank]++;
    p->number = set->coordinator->pending_number++;
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
    if (p->request.kind == KIND_SET_OPEN || p->request.kind == KIND_SET_CLOSE)
        return p->count > 0;
    return p->count + absent_joined == c->set->size;
}

static bool is_refused_with_join(uint8_t kind)
{
    return kind == HVD_ALLGATHER || kind == HVD_BROADCAST || kind == HVD_ALLTOALL ||
           kind == HVD_REDUCESCATTER;
}

static hvd_status_t join_error(struct procset *set, struct pending *p, struct error *error)
{
    char text[HVD_ERROR_MAX];
    uint8_t kind = p->request.kind;
    if (p->error != NULL || !is_refused_with_join(kind))
        return HVD_OK;
    int32_t joined = 0;
    while (joined < set->size - 1 && !set->coordinator->joined[joined])
        joined++;
    snprintf(text, sizeof text,
             "%s is not supported with Join at this time.%s (tensor %s, rank %d has joined)",
             kind_title(kind),
             kind == HVD_ALLGATHER ? " Specify sparse_to_dense=True if using DistributedOptimizer"
                                   : "",
             p->name, set->ranks[joined]);
    return verdict(set, p, HVD_ERR_MISMATCH, error, text);
}

static void out_error(struct procset *set, const struct pending *p)
{
    struct writer *w =
        response_room(set, RESPONSE_ITEM_FIXED + p->request.name_bytes + strlen(p->error->text));
    put_u8(w, ITEM_ERROR);
    put_blob(w, p->name, p->request.name_bytes);
    put_u32(w, (uint32_t)p->error->status);
    put_text(w, p->error->text);
}

static void out_define(struct procset *set, const struct pending *p, uint32_t id)
{
    size_t rows = p->dim0 != NULL ? (size_t)set->size * sizeof *p->dim0 : 0;
    struct writer *w = response_room(set, RESPONSE_ITEM_FIXED + p->request.name_bytes +
                                              p->request.payload_bytes + rows);
    put_u8(w, ITEM_DEFINE);
    put_u32(w, id);
    message_request_put(w, &p->request);
    put_u8(w, p->dim0 != NULL);
    for (int32_t i = 0; p->dim0 != NULL && i < set->size; i++)
        put_i64(w, p->dim0[i]);
}

static void finish_set_change(struct procset *set, const struct pending *p)
{
    struct engine *engine = set->engine;
    struct writer *w = response_room(set, RESPONSE_ITEM_FIXED + p->request.payload_bytes);
    if (p->request.kind == KIND_SET_REMOVE) {
        int32_t id;
        assert(p->request.payload_bytes == sizeof id);
        memcpy(&id, p->payload, sizeof id);
        put_u8(w, ITEM_SET_REMOVE);
        put_u32(w, (uint32_t)id);
        return;
    }
    if (p->request.kind == KIND_SET_CLOSE) {
        put_u8(w, ITEM_SET_CLOSE);
        put_u32(w, (uint32_t)p->request.rank);
        put_bytes(w, p->payload, p->request.payload_bytes);
        return;
    }
    bool is_open = p->request.kind == KIND_SET_OPEN;
    uint32_t id = (uint32_t)sets_next_id(engine);
    if (is_open)
        id = SET_NUMBER_OPEN;
    else if (engine->promised_sets > 0)
        id = SET_NUMBER_NEXT;
    engine->promised_sets++;
    put_u8(w, ITEM_SET_ADD);
    put_u32(w, id);
    put_u32(w, is_open ? (uint32_t)p->request.rank : engine->next_incarnation);
    put_u32(w, p->request.payload_bytes / 4);
    put_bytes(w, p->payload, p->request.payload_bytes);
}

static hvd_status_t finish_define(struct procset *set, struct pending *p, struct error *error)
{
    struct coordinator *c = set->coordinator;
    struct entry *entry = NULL;
    int64_t capacity = set->engine->config->cache_capacity;
    if (c->is_joining || capacity <= 0 || p->request.kind >= HVD_KIND_COUNT)
        p->request.flags |= REQUEST_TRANSIENT;
    p->request.device = (int32_t)(p->devices & INT32_MAX);
    uint32_t id = next_id(set);
    if (procset_define(set, &p->request, p->dim0, id, &entry) != HVD_OK)
        return procset_no_memory(set, error, "the table of tensors");
    if (!entry->is_transient) {
        if ((int64_t)c->entries.count >= capacity)
            cache_evict(set);
        if (map_put(&c->entries, entry->name, entry->name_bytes, entry) != 0)
            return procset_no_memory(set, error, "the table of cached tensors");
        cache_link(c, entry);
    }
    out_define(set, p, id);
    return coordinator_ready(set, entry, error);
}

/* Ranks that do not agree: a separate bar, so that it is easy to find. */
static void trace_error(struct procset *set, const struct pending *p)
{
    struct timeline *t = set->engine->timeline;
    timeline_negotiate_end(t, set->id, p->name, p->request.name_bytes);
    timeline_begin(t, set->id, p->name, p->request.name_bytes, "ERROR");
    timeline_end(t, set->id, p->name, p->request.name_bytes);
}

static hvd_status_t finish(struct procset *set, struct pending *p, struct error *error)
{
    struct coordinator *c = set->coordinator;
    hvd_status_t status = HVD_OK;
    struct pending *known = map_remove(&c->pending, p->name, p->request.name_bytes);
    assert(known == p && p->count <= set->size && c->made[p->request.rank] > 0);
    c->made[p->request.rank]--;
    if (c->joined_count > 0)
        status = join_error(set, p, error);
    if (status == HVD_OK && p->error == NULL)
        status = check_rows(set, p, error);
    if (status != HVD_OK) {
        pending_free(c, p);
        return status;
    }
    if (p->error != NULL) {
        if (p->odd_count > 0 && p->count > 2)
            describe_rest(set, p);
        trace_error(set, p);
        out_error(set, p);
    } else if (kind_is_set_change(p->request.kind)) {
        timeline_negotiate_end(set->engine->timeline, set->id, p->name, p->request.name_bytes);
        finish_set_change(set, p);
    } else {
        status = finish_define(set, p, error);
    }
    pending_free(c, p);
    return status;
}

static void emit_ready(struct procset *set);

/* A rank joins for the first time since all had: a joined rank announces no ids, and its earlier
 * announcements by id must not be lost. All ids become void, and every rank, including the joining
 * one, announces its pending ops in full. */
static void join_begin(struct procset *set)
{
    set->coordinator->is_joining = true;
    emit_ready(set); /* all have submitted it: the join is processed afterwards */
    put_u8(response_room(set, RESPONSE_ITEM_FIXED), ITEM_RESET);
    response_deliver(set);
}

/* The last rank has joined. */
static void join_end(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    emit_ready(
        set); /* joined ranks contribute zeros to these; afterwards their names are new ops */
    timeline_negotiate_end(set->engine->timeline, set->id, JOIN_NAME, strlen(JOIN_NAME));
    struct writer *w = response_room(set, RESPONSE_ITEM_FIXED);
    put_u8(w, ITEM_JOINED);
    put_u32(w, (uint32_t)set->ranks[c->last_joined]);
    memset(c->joined, 0, (size_t)set->size);
    c->joined_count = 0;
    c->is_joining = false;
}

static hvd_status_t on_join(struct procset *set, const struct request *q, struct error *error)
{
    struct coordinator *c = set->coordinator;
    if (c->joined[q->rank])
        return negotiate_misbehaved(set, q->rank, error, "joined twice");
    if (!c->is_joining) {
        join_begin(set);
        return HVD_OK;
    }
    c->joined[q->rank] = 1;
    c->joined_count++;
    c->moved_ns = set->engine->now_ns;
    timeline_negotiate_begin(set->engine->timeline, set->id, JOIN_NAME, strlen(JOIN_NAME),
                             kind_negotiate_name(HVD_JOIN, HVD_SUM));
    timeline_rank_ready(set->engine->timeline, set->id, JOIN_NAME, strlen(JOIN_NAME), q->rank);
    c->last_joined = q->rank;
    size_t cursor = 0;
    for (struct pending *p; (p = map_next(&c->pending, &cursor)) != NULL;)
        if (is_complete(c, p)) {
            hvd_status_t status = finish(set, p, error);
            if (status != HVD_OK)
                return status;
            cursor = 0;
        }
    if (c->joined_count == set->size)
        join_end(set);
    return HVD_OK;
}

/* A new name, or one that others have announced; NULL: `error` says why not. */
static struct pending *pending_of(struct procset *set, const struct request *q, struct error *error)
{
    struct coordinator *c = set->coordinator;
    struct pending *p = map_get(&c->pending, q->name, q->name_bytes);
    if (p != NULL)
        return p;
    if (c->made[q->rank] >= ENGINE_IN_FLIGHT_MAX) {
        negotiate_misbehaved(set, q->rank, error, "announced more than %d ops at once",
                             ENGINE_IN_FLIGHT_MAX);
        return NULL;
    }
    p = pending_make(set, q);
    if (p == NULL)
        procset_no_memory(set, error, "a request");
    return p;
}

/* Ops fuse if each rank has both on one device, whichever that is. Ranks may announce in any order,
 * so their values are added up. */
static uint32_t devices_fold(const struct request *q)
{
    int32_t words[2] = {q->rank, q->device};
    return q->memory == HVD_MEMORY_HOST ? 0 : (uint32_t)hash_bytes(words, sizeof words);
}

hvd_status_t coordinator_request(struct procset *set, const struct request *q, struct error *error)
{
    struct coordinator *c = set->coordinator;
    assert(q->rank >= 0 && q->rank < set->size);
    if (q->kind == HVD_JOIN)
        return on_join(set, q, error);
    /* All ranks have announced it, and none can have finished it. */
    if (c->passing.count > 0 && map_get(&c->passing, q->name, q->name_bytes) != NULL)
        return negotiate_misbehaved(set, q->rank, error, "announced %.*s twice", (int)q->name_bytes,
                                    q->name);
    struct entry *entry = map_get(&c->entries, q->name, q->name_bytes);
    if (entry != NULL)
        cache_forget(set, entry);
    struct pending *p = pending_of(set, q, error);
    if (p == NULL)
        return error->status;
    if (is_present(p, q->rank))
        return negotiate_misbehaved(set, q->rank, error, "announced %s twice", p->name);
    int64_t since_ns = engine_since_ns(set->engine, q->waited_ms);
    p->first_ns = since_ns < p->first_ns ? since_ns : p->first_ns;
    struct difference d;
    hvd_status_t status = HVD_OK;
    if (p->count > 0 &&
        (!compare_requests(set, &p->request, q, &d) || !compare_payload(&p->request, q, &d)))
        status = mismatch(set, p, q, error, &d);
    if (status == HVD_OK)
        status = check_alone(set, p, q, error);
    if (status != HVD_OK)
        return status;
    p->present[q->rank / 8] |= (uint8_t)(1u << (q->rank % 8));
    p->count++;
    p->devices += devices_fold(q);
    p->request.flags |= q->flags;
    if (p->dim0 != NULL && q->ndim > 0)
        p->dim0[q->rank] = q->shape[0];
    timeline_rank_ready(set->engine->timeline, set->id, p->name, p->request.name_bytes, q->rank);
    return is_complete(c, p) ? finish(set, p, error) : HVD_OK;
}

/* ---- batching ---- */

hvd_status_t coordinator_ready(struct procset *set, struct entry *entry, struct error *error)
{
    struct coordinator *c = set->coordinator;
    assert(!entry->is_ready && !entry->is_forgotten);
    if (c->ready_count == c->ready_capacity) {
        int32_t capacity = c->ready_capacity != 0 ? c->ready_capacity * 2 : 256;
        const struct os *os = set->engine->os;
        struct entry **ready = os->resize(os->ctx, c->ready, (size_t)capacity * sizeof *ready);
        if (ready != NULL)
            c->ready = ready;
        struct batch_item *items = os->resize(os->ctx, c->items, (size_t)capacity * sizeof *items);
        if (items != NULL)
            c->items = items;
        if (ready == NULL || items == NULL)
            return procset_no_memory(set, error, "the list of ready tensors");
        c->ready_capacity = capacity;
    }
    if (entry->is_transient && map_put(&c->passing, entry->name, entry->name_bytes, entry) != 0)
        return procset_no_memory(set, error, "the list of ready tensors");
    if (c->ready_count == 0)
        c->ready_first_ns = set->engine->now_ns;
    c->ready[c->ready_count++] = entry;
    c->ready_bytes += entry->bytes;
    entry->is_ready = true;
    cache_use(c, entry);
    return HVD_OK;
}

static void emit_batch(void *arg, const uint32_t *ids, int32_t count)
{
    struct procset *set = arg;
    struct writer *w = response_room(set, RESPONSE_ITEM_FIXED + (size_t)count * 4);
    put_u8(w, ITEM_BATCH);
    put_u32(w, (uint32_t)count);
    for (int32_t i = 0; i < count; i++) {
        put_u32(w, ids[i]);
        struct entry *e = procset_entry(set, ids[i]);
        timeline_negotiate_end(set->engine->timeline, set->id, e->name, e->name_bytes);
    }
    learn_batch(set, ids, count);
}

static bool is_time(const struct procset *set, bool is_waited)
{
    const struct coordinator *c = set->coordinator;
    const struct tunables *t = &set->tunables;
    if (is_waited || set->size == 1 || c->is_shutdown)
        return true;
    if (c->ready_bytes >= (uint64_t)t->fusion_threshold_bytes)
        return true;
    return set->engine->now_ns - c->ready_first_ns >= t->cycle_time_ns;
}

static void emit_ready(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    int32_t count = c->ready_count;
    if (count == 0)
        return;
    for (int32_t i = 0; i < count; i++) {
        c->items[i] = (struct batch_item){.entry = c->ready[i]};
        unready(c, c->ready[i]);
    }
    c->ready_count = 0;
    c->ready_bytes = 0;
    timeline_cycle(set->engine->timeline);
    batch_fuse(set, c->items, count, emit_batch, set);
}

void coordinator_flush(struct procset *set, bool is_waited)
{
    struct coordinator *c = set->coordinator;
    tune_flush(set);
    if (c->ready_count > 0 && is_time(set, is_waited) && !learn_plan(set))
        emit_ready(set);
    if (c->is_shutdown && !c->is_shutdown_sent) {
        c->is_shutdown_sent = true;
        struct writer *w = response_room(set, RESPONSE_ITEM_FIXED + ENGINE_WORDS_MAX);
        put_u8(w, ITEM_SHUTDOWN);
        put_u32(w, (uint32_t)c->shutdown_rank);
        put_text(w, c->shutdown_words);
    }
    response_deliver(set);
}

int64_t coordinator_deadline_ns(const struct procset *set)
{
    const struct coordinator *c = set->coordinator;
    if (c->ready_count == 0)
        return INT64_MAX;
    return c->ready_first_ns + set->tunables.cycle_time_ns;
}

void coordinator_shutdown(struct procset *set, int32_t rank, const char *words)
{
    struct coordinator *c = set->coordinator;
    if (!c->is_shutdown) {
        c->shutdown_rank = rank;
        snprintf(c->shutdown_words, sizeof c->shutdown_words, "%s", words);
    }
    c->is_shutdown = true;
    plan_break(set);
}
