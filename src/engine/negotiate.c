/* SPDX-License-Identifier: Apache-2.0 */
/* negotiate.c - agree across a process set which ops every rank has submitted: the part that every
 * member runs. It announces local ops (by id if the name is cached, else in full), counts what its
 * subtree has announced, passes news up the tree, and applies what comes down.
 *
 *      op submitted -> READY(id) or REQUEST(all about it) -> parent -> ... -> coordinator
 *      coordinator  -> RESPONSE(define id, batch ids, error, ...) -> children -> ... -> everyone
 *
 * Thread: token holder.  Blocks: never.
 * Invariant: responses are applied in the same order on all members, so batches run in the same
 * order. Start reading at negotiate_op(), then negotiate_message(). */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/timeline.h"

#define UP_FULL (40u << 10) /* send early: a record must fit behind */

/* ---- sending up ---- */

static struct message_head head_of(const struct procset *set, enum message_type type, uint8_t flags)
{
    return (struct message_head){.type = (uint8_t)type,
                                 .flags = flags,
                                 .set = (uint16_t)set->id,
                                 .incarnation = set->incarnation,
                                 .generation = set->generation};
}

static void up_begin(struct procset *set, struct writer *w, enum message_type type)
{
    struct message_head head = head_of(set, type, 0);
    w->used = 0;
    w->bad = false;
    head_put(w, &head);
    put_u32(w, 0);
}

static void up_end(struct procset *set, struct writer *w, uint32_t *count, uint8_t flags)
{
    if (*count == 0)
        return;
    w->bytes[1] = flags;
    for (int i = 0; i < 4; i++)
        w->bytes[NEGOTIATE_HEAD + (unsigned)i] = (uint8_t)(*count >> (8 * i));
    engine_send(set->engine, set->ranks[set->parent], w->bytes, w->used);
    *count = 0;
}

static bool subtree_waits(const struct procset *set)
{
    if (set->pending_count > 0 &&
        atomic_load_explicit(&set->engine->waiters, memory_order_relaxed) > 0)
        return true;
    for (int32_t i = 0; i < set->child_count; i++)
        if (set->child_waits[i])
            return true;
    return false;
}

void negotiate_flush(struct procset *set)
{
    if (set->parent < 0) {
        coordinator_flush(set, subtree_waits(set));
        return;
    }
    bool has_news = set->up_ready_count != 0 || set->up_request_count != 0;
    if (!has_news && (set->is_waiter_told || set->pending_count == 0 || plan_is_on(set)))
        return;
    bool is_waiting = subtree_waits(set);
    if (!has_news && !is_waiting)
        return;
    uint8_t flags = is_waiting ? MESSAGE_FLAG_WAITER : 0;
    up_end(set, &set->up_request, &set->up_request_count, flags);
    up_end(set, &set->up_ready, &set->up_ready_count, flags);
    if (!has_news) {
        uint8_t bytes[16];
        struct writer w;
        struct message_head head = head_of(set, MESSAGE_NUDGE, flags);
        writer_init(&w, bytes, sizeof bytes);
        head_put(&w, &head);
        engine_send(set->engine, set->ranks[set->parent], bytes, w.used);
    }
    set->is_waiter_told = is_waiting;
}

static void up_ready(struct procset *set, uint32_t id)
{
    if (set->up_ready_count == 0)
        up_begin(set, &set->up_ready, MESSAGE_READY);
    put_u32(&set->up_ready, id);
    set->up_ready_count++;
    if (set->up_ready.used > UP_FULL)
        up_end(set, &set->up_ready, &set->up_ready_count,
               subtree_waits(set) ? MESSAGE_FLAG_WAITER : 0);
}

/* A record with a long payload (a process set of very many ranks) may not fit the collecting
 * buffer. */
static void up_request_alone(struct procset *set, const struct request *request)
{
    size_t bytes = request->payload_bytes + HVD_NAME_MAX + 1024u;
    uint8_t *buffer = os_alloc(set->engine->os, bytes);
    if (buffer == NULL) {
        engine_stop(set->engine, HVD_ERR_NO_MEMORY, "Out of memory for a control message.", true);
        return;
    }
    struct writer w;
    uint32_t one = 1;
    writer_init(&w, buffer, bytes);
    up_begin(set, &w, MESSAGE_REQUEST);
    request_put(&w, request);
    up_end(set, &w, &one, 0);
    os_free(set->engine->os, buffer);
}

static void up_request(struct procset *set, const struct request *request)
{
    if (request->payload_bytes > 4096) {
        up_request_alone(set, request);
        return;
    }
    if (set->up_request_count == 0)
        up_begin(set, &set->up_request, MESSAGE_REQUEST);
    request_put(&set->up_request, request);
    set->up_request_count++;
    if (set->up_request.used > UP_FULL)
        up_end(set, &set->up_request, &set->up_request_count,
               subtree_waits(set) ? MESSAGE_FLAG_WAITER : 0);
}

/* ---- announcing ---- */

static bool entry_fits(const struct entry *entry, const struct op *op)
{
    if (entry->kind != op->kind || entry->dtype != op->dtype || entry->reduce != op->reduce ||
        !factor_is_same(entry->prescale, op->prescale) ||
        !factor_is_same(entry->postscale, op->postscale) || entry->root != op->root ||
        entry->ndim != op->ndim)
        return false;
    int32_t first = op->kind == HVD_ALLTOALL ? 1 : 0; /* its rows travel with the data */
    for (int32_t i = first; i < op->ndim; i++)
        if (entry->shape[i] != op->shape[i])
            return false;
    return true;
}

static void request_of(const struct procset *set, const struct op *op, struct request *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->name = op->tensor->name;
    ret->name_bytes = op->tensor->name_bytes;
    ret->kind = op->kind;
    ret->dtype = op->dtype;
    ret->reduce = op->reduce;
    ret->flags = op->tensor->is_cacheable ? 0 : REQUEST_TRANSIENT;
    ret->rank = set->self;
    ret->root = op->root;
    ret->device = op->device;
    ret->group = op->group;
    ret->prescale = op->prescale;
    ret->postscale = op->postscale;
    ret->ndim = op->ndim;
    memcpy(ret->shape, op->shape, sizeof ret->shape);
    if (op->kind == KIND_SET_ADD || op->kind == KIND_SET_REMOVE) {
        ret->payload = (const uint8_t *)op->splits;
        ret->payload_bytes = (uint32_t)op->count * 4u;
    }
}

void negotiate_ready(struct procset *set, struct entry *entry, int64_t now_ns)
{
    if (entry->ready_count++ == 0) {
        entry->first_ready_ns = now_ns;
        if (set->coordinator != NULL)
            timeline_negotiate_begin(set->engine->timeline, set->id, entry->name, entry->name_bytes,
                                     kind_negotiate_name(entry->kind, entry->reduce));
    }
    if (entry->ready_count != set->child_count + 1)
        return;
    if (set->parent < 0)
        coordinator_ready(set, entry);
    else
        up_ready(set, entry->id);
}

void negotiate_announce(struct procset *set, struct op *op)
{
    struct entry *entry = op->tensor->entry;
    op->state = OP_ANNOUNCED;
    flight_note(set->engine->flight, set->engine->now_ns, FLIGHT_ANNOUNCE, set->id, entry != NULL,
                op->tensor->name);
    if (entry != NULL && !entry->is_forgotten && entry_fits(entry, op)) {
        set->engine->stats.cache_hits++;
        entry->is_announced = true;
        if (entry->kind == HVD_ALLTOALL)
            entry->shape[0] = op->shape[0];
        negotiate_ready(set, entry, set->engine->now_ns);
        return;
    }
    struct request request;
    request_of(set, op, &request);
    set->engine->stats.cache_misses++;
    if (set->parent < 0)
        coordinator_request(set, &request);
    else
        up_request(set, &request);
}

void negotiate_op(struct procset *set, struct op *op)
{
    op->state = OP_HELD;
    op->prev = set->pending_tail;
    op->next = NULL;
    if (set->pending_tail != NULL)
        set->pending_tail->next = op;
    else
        set->pending_head = op;
    set->pending_tail = op;
    set->pending_count++;
    if (set->broken != HVD_OK) {
        complete_op(set->engine, op, set->broken, set->broken_text);
        return;
    }
    if (op->kind == HVD_JOIN)
        set->join_op = op;
    if (plan_is_on(set) && plan_op(set, op))
        return;
    if (!set->must_announce) /* else with all others */
        negotiate_announce(set, op);
}

/* A generation begins: nothing that was announced before counts. */
static void generation_begin(struct procset *set)
{
    set->generation++;
    set->up_ready_count = set->up_request_count = 0;
    set->is_waiter_told = false;
    for (uint32_t i = 0; i < set->id_capacity; i++) {
        struct entry *entry = set->ids[i];
        if (entry == NULL)
            continue;
        entry->ready_count = 0;
        entry->is_announced = false;
    }
    for (struct op *op = set->pending_head; op != NULL; op = op->next)
        if (op->state == OP_ANNOUNCED)
            op->state = OP_HELD;
    if (set->coordinator != NULL)
        coordinator_generation(set);
}

void negotiate_generation(struct procset *set)
{
    generation_begin(set);
}

void negotiate_again(struct procset *set)
{
    uint32_t generation = set->generation;
    set->must_announce = false;
    for (struct op *op = set->pending_head; op != NULL && set->generation == generation;
         op = op->next)
        if (op->state == OP_HELD)
            negotiate_announce(set, op);
}

/* ---- what comes down ---- */

static bool apply_define(struct procset *set, struct reader *r)
{
    uint32_t id = get_u32(r);
    struct request request;
    if (!request_get(r, set->size, &request))
        return false;
    bool has_rows = get_u8(r) != 0;
    int64_t *dim0 = NULL;
    if (has_rows) {
        dim0 = os_alloc(set->engine->os, (size_t)set->size * sizeof *dim0);
        for (int32_t i = 0; i < set->size && dim0 != NULL; i++)
            dim0[i] = get_i64(r);
    }
    struct entry *entry = procset_entry(set, id);
    hvd_status_t status = HVD_OK;
    if (r->bad)
        status = HVD_ERR_CORRUPT;
    else if (entry == NULL) /* the coordinator has made its own already */
        status = procset_define(set, &request, dim0, id, &entry);
    os_free(set->engine->os, dim0);
    return status == HVD_OK;
}

static bool apply_batch(struct procset *set, struct reader *r)
{
    uint32_t count = get_u32(r);
    if (count == 0 || count > COLL_PARTS_MAX)
        return false;
    struct batch batch = {.kind = BATCH_RUN, .count = (int32_t)count};
    if (!procset_ids_take(set, &batch, batch.count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        batch.ids[i] = get_u32(r);
        struct entry *entry = r->bad ? NULL : procset_entry(set, batch.ids[i]);
        if (entry == NULL)
            return false; /* the set is broken: the ring goes with it */
        entry->queued++;
        entry->ready_count = 0;
        entry->is_announced = false;
        if (entry->tensor != NULL && entry->tensor->op != NULL)
            entry->tensor->op->state = OP_BATCHED;
    }
    return procset_batch_push(set, &batch) == HVD_OK;
}

static bool apply_error(struct procset *set, struct reader *r)
{
    char name[HVD_NAME_MAX], text[HVD_ERROR_MAX];
    get_text(r, name, sizeof name);
    int32_t status = (int32_t)get_u32(r);
    get_text(r, text, sizeof text);
    if (r->bad || status >= 0)
        return false;
    struct tensor *tensor;
    pthread_mutex_lock(&set->engine->submit_lock);
    tensor = map_get(&set->tensors, name, strlen(name));
    struct op *op = tensor != NULL ? tensor->op : NULL;
    pthread_mutex_unlock(&set->engine->submit_lock);
    if (op != NULL && op->state == OP_ANNOUNCED)
        complete_op(set->engine, op, (hvd_status_t)status, text);
    return true;
}

/* An id is void: gone at once, or when the batches that hold it have ended. */
static void entry_void(struct procset *set, struct entry *entry)
{
    if (entry->queued == 0) {
        procset_forget(set, entry);
        return;
    }
    entry->is_forgotten = true;
    pthread_mutex_lock(&set->engine->submit_lock);
    if (entry->tensor != NULL && entry->tensor->entry == entry)
        entry->tensor->entry = NULL;
    pthread_mutex_unlock(&set->engine->submit_lock);
}

static bool apply_forget(struct procset *set, struct reader *r)
{
    struct entry *entry = procset_entry(set, get_u32(r));
    if (r->bad)
        return false;
    if (entry == NULL)
        return true;
    struct op *again = NULL;
    if (entry->is_announced && entry->tensor != NULL && entry->tensor->op != NULL &&
        entry->tensor->op->state == OP_ANNOUNCED)
        again = entry->tensor->op;
    entry_void(set, entry);
    if (again != NULL)
        negotiate_announce(set, again);
    return true;
}

static bool apply_reset(struct procset *set)
{
    for (uint32_t i = 0; i < set->id_capacity; i++)
        if (set->ids[i] != NULL)
            entry_void(set, set->ids[i]);
    if (set->coordinator != NULL)
        coordinator_forget_all(set);
    generation_begin(set);
    set->must_announce = true;
    return true;
}

static bool apply_plan(struct procset *set, struct reader *r)
{
    uint32_t count = get_u32(r);
    if (count < 2 || count > PROCSET_IDS_MAX)
        return false;
    uint32_t *ids = os_alloc(set->engine->os, count * sizeof *ids);
    if (ids == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = get_u32(r);
        if (r->bad || (ids[i] != 0 && procset_entry(set, ids[i]) == NULL)) {
            os_free(set->engine->os, ids);
            return false;
        }
    }
    struct batch batch = {
        .kind = BATCH_PLAN, .count = (int32_t)count, .ids = ids, .is_owned = true};
    generation_begin(set);
    batch.argument2 = set->generation;
    plan_prepare(set);
    return procset_batch_push(set, &batch) == HVD_OK;
}

/* What was agreed but has not had its turn yet is not announced again by a new generation. */
static void agreed(struct procset *set, uint8_t kind)
{
    for (struct op *op = set->pending_head; op != NULL; op = op->next)
        if (op->kind == kind)
            op->state = OP_BATCHED;
}

static bool apply_set_add(struct procset *set, struct reader *r)
{
    agreed(set, KIND_SET_ADD);
    struct batch batch = {.kind = BATCH_SET_ADD, .is_owned = true};
    batch.argument = (int32_t)get_u32(r);
    batch.argument2 = get_u32(r);
    uint32_t count = get_u32(r);
    if (r->bad || count == 0 || count > (uint32_t)set->engine->size)
        return false;
    batch.count = (int32_t)count;
    batch.ids = os_alloc(set->engine->os, count * sizeof *batch.ids);
    for (uint32_t i = 0; i < count && batch.ids != NULL; i++)
        batch.ids[i] = get_u32(r);
    if (r->bad || batch.ids == NULL || procset_batch_push(set, &batch) != HVD_OK) {
        os_free(set->engine->os, batch.ids);
        return false;
    }
    return true;
}

static bool apply_event(struct procset *set, enum batch_kind kind, struct reader *r)
{
    struct batch batch = {.kind = kind, .argument = (int32_t)get_u32(r)};
    if (kind == BATCH_JOINED)
        agreed(set, HVD_JOIN);
    if (kind == BATCH_SET_REMOVE)
        agreed(set, KIND_SET_REMOVE);
    return !r->bad && procset_batch_push(set, &batch) == HVD_OK;
}

static bool apply_item(struct procset *set, struct reader *r)
{
    switch ((enum response_item)get_u8(r)) {
    case ITEM_DEFINE: return apply_define(set, r);
    case ITEM_BATCH: return apply_batch(set, r);
    case ITEM_ERROR: return apply_error(set, r);
    case ITEM_FORGET: return apply_forget(set, r);
    case ITEM_JOINED: return apply_event(set, BATCH_JOINED, r);
    case ITEM_PLAN: return apply_plan(set, r);
    case ITEM_SET_ADD: return apply_set_add(set, r);
    case ITEM_SET_REMOVE: return apply_event(set, BATCH_SET_REMOVE, r);
    case ITEM_RESET: return apply_reset(set);
    case ITEM_SHUTDOWN: return apply_event(set, BATCH_SHUTDOWN, r);
    }
    return false;
}

static void apply_items(struct procset *set, const void *items, size_t n)
{
    struct reader r;
    reader_init(&r, items, n);
    while (r.at < r.size && set->broken == HVD_OK) {
        if (apply_item(set, &r))
            continue;
        negotiate_set_broken(set, HVD_ERR_CORRUPT,
                             "A response of the coordinator could not be understood.", true);
        return;
    }
}

static void relay_down(struct procset *set, const void *bytes, size_t n)
{
    for (int32_t i = 0; i < set->child_count; i++)
        engine_send(set->engine, set->ranks[set->children[i]], bytes, n);
}

void negotiate_down(struct procset *set, enum message_type type, const void *body, size_t n)
{
    uint8_t small[256];
    uint8_t *bytes =
        n + NEGOTIATE_HEAD <= sizeof small ? small : os_alloc(set->engine->os, n + NEGOTIATE_HEAD);
    if (bytes == NULL) {
        engine_stop(set->engine, HVD_ERR_NO_MEMORY, "Out of memory for a control message.", true);
        return;
    }
    struct writer w;
    struct message_head head = head_of(set, type, 0);
    writer_init(&w, bytes, n + NEGOTIATE_HEAD);
    head_put(&w, &head);
    put_bytes(&w, body, n);
    relay_down(set, bytes, w.used);
    if (bytes != small)
        os_free(set->engine->os, bytes);
}

void negotiate_up(struct procset *set, enum message_type type, const void *body, size_t n)
{
    uint8_t bytes[128];
    struct writer w;
    struct message_head head = head_of(set, type, 0);
    writer_init(&w, bytes, sizeof bytes);
    head_put(&w, &head);
    put_bytes(&w, body, n);
    engine_send(set->engine, set->ranks[set->parent], bytes, w.used);
}

void negotiate_respond(struct procset *set, uint8_t *message, size_t n)
{
    struct writer w;
    struct message_head head = head_of(set, MESSAGE_RESPONSE, 0);
    writer_init(&w, message, NEGOTIATE_HEAD);
    head_put(&w, &head);
    relay_down(set, message, n);
    apply_items(set, message + NEGOTIATE_HEAD, n - NEGOTIATE_HEAD);
}

/* ---- messages ---- */

static void on_ready(struct procset *set, struct reader *r)
{
    uint32_t count = get_u32(r);
    for (uint32_t i = 0; i < count && !r->bad; i++) {
        uint32_t id = get_u32(r);
        struct entry *entry = r->bad ? NULL : procset_entry(set, id);
        if (entry != NULL && !entry->is_forgotten)
            negotiate_ready(set, entry, set->engine->now_ns);
    }
}

static void on_request(struct procset *set, struct reader *r)
{
    uint32_t count = get_u32(r), generation = set->generation;
    /* A join in it voids the rest: its sender says it again. */
    for (uint32_t i = 0; i < count && !r->bad && set->generation == generation; i++) {
        struct request request;
        if (!request_get(r, set->size, &request)) {
            LOG_AT(set->engine->log, LOG_WARNING, "Dropped a malformed request from a peer.");
            return;
        }
        if (set->parent < 0)
            coordinator_request(set, &request);
        else
            up_request(set, &request);
    }
}

static void on_abort(struct procset *set, struct reader *r)
{
    char text[HVD_ERROR_MAX];
    int32_t status = (int32_t)get_u32(r);
    get_text(r, text, sizeof text);
    if (!r->bad && status < 0)
        negotiate_set_broken(set, (hvd_status_t)status, text, false);
}

static int32_t child_number(const struct procset *set, int32_t index)
{
    for (int32_t i = 0; i < set->child_count; i++)
        if (set->children[i] == index)
            return i;
    return -1;
}

void negotiate_message(struct procset *set, int32_t from, const struct message_head *head,
                       struct reader *r, const void *bytes, size_t n)
{
    int32_t child = child_number(set, from);
    bool is_current = head->generation == set->generation;
    if (child >= 0)
        set->child_waits[child] = (head->flags & MESSAGE_FLAG_WAITER) != 0;
    switch ((enum message_type)head->type) {
    case MESSAGE_READY:
        if (child >= 0 && is_current)
            on_ready(set, r);
        return;
    case MESSAGE_REQUEST:
        if (child >= 0 && is_current)
            on_request(set, r);
        return;
    case MESSAGE_NUDGE: return;
    case MESSAGE_RESPONSE:
        if (from == set->parent) {
            relay_down(set, bytes, n);
            apply_items(set, r->bytes + r->at, r->size - r->at);
        }
        return;
    case MESSAGE_HALT:
    case MESSAGE_COMMIT:
        if (from == set->parent) {
            relay_down(set, bytes, n);
            plan_message(set, head, r);
        }
        return;
    case MESSAGE_BREAK:
    case MESSAGE_POSITION:
        if (child < 0)
            return;
        if (set->parent < 0)
            plan_message(set, head, r);
        else
            engine_send(set->engine, set->ranks[set->parent], bytes, n);
        return;
    case MESSAGE_SHUTDOWN:
        if (set->parent < 0)
            coordinator_shutdown(set, (int32_t)get_u32(r));
        else
            engine_send(set->engine, set->ranks[set->parent], bytes, n);
        return;
    case MESSAGE_ABORT: on_abort(set, r); return;
    case MESSAGE_LEAVE: return;
    }
}

/* ---- the end of a set ---- */

/* Who hears the cause from us before it sees the links close knows the right culprit. */
static void tell_broken(struct procset *set, hvd_status_t status, const char *text)
{
    uint8_t bytes[HVD_ERROR_MAX + 64];
    struct writer w;
    struct message_head head = {.type = MESSAGE_ABORT,
                                .set = (uint16_t)set->id,
                                .incarnation = set->incarnation,
                                .generation = set->generation};
    writer_init(&w, bytes, sizeof bytes);
    head_put(&w, &head);
    put_u32(&w, (uint32_t)status);
    put_text(&w, text);
    for (int32_t i = 0; i < set->size && !w.bad; i++)
        if (i != set->self)
            engine_send(set->engine, set->ranks[i], bytes, w.used);
}

void negotiate_set_broken(struct procset *set, hvd_status_t status, const char *text, bool is_told)
{
    struct engine *engine = set->engine;
    if (set->broken != HVD_OK)
        return;
    if (engine->cause == HVD_OK && status != HVD_ERR_SHUTDOWN) {
        engine->cause = status;
        snprintf(engine->cause_text, sizeof engine->cause_text, "%s", text);
    }
    if (is_told)
        tell_broken(set, status, text);
    if (set->run.is_active) /* callers get their memory back: nothing may move from or to it */
        set->engine->backend->ops->reset(set->engine->backend, set->backend_group,
                                         BACKEND_BASE_LAST);
    pthread_mutex_lock(&set->engine->submit_lock);
    set->broken = status;
    size_t n = strlen(text);
    n = n < sizeof set->broken_text ? n : sizeof set->broken_text - 1;
    memcpy(set->broken_text, text, n);
    set->broken_text[n] = '\0';
    pthread_mutex_unlock(&set->engine->submit_lock);
    complete_pending(set, status, set->broken_text);
}
