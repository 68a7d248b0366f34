/* SPDX-License-Identifier: Apache-2.0 */
/* negotiate.c - agree across a process set which ops every rank has submitted: the part that every
 * member runs. It announces local ops (by id if the name is cached, else in full), counts what its
 * subtree has announced, passes announcements up the tree and responses down; apply.c applies them.
 *
 *      op submitted -> READY(id) or REQUEST(full description) -> parent -> ... -> coordinator
 *      coordinator  -> RESPONSE(define id, batch ids, error, ...) -> children -> ... -> all
 *
 * Thread: token holder.  Blocks: never. Invariant: responses are applied in the same order on all
 * members, so batches run in the same order. Start reading at negotiate_op(), then
 * negotiate_message(). */
#include "engine/negotiate.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/apply.h"
#include "engine/complete.h"
#include "engine/control.h"
#include "engine/coordinator.h"
#include "engine/deadlock.h"
#include "engine/direct.h"
#include "engine/engine_private.h"
#include "engine/execute.h"
#include "engine/flight.h"
#include "engine/plan.h"
#include "engine/response.h"
#include "engine/stall.h"
#include "engine/timeline.h"

#define UP_FULL (40u << 10) /* send early: a record must still fit */

/* ---- what is wrong ---- */

#define ADVICE "Do all ranks run the same build of Horovod?"

hvd_status_t negotiate_misbehaved(const struct procset *set, int32_t index, struct error *error,
                                  const char *format, ...)
{
    char name[160], what[HVD_ERROR_MAX - 384], relay[64] = "";
    int32_t child = set->via[index];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    engine_blame(set->engine, set->ranks[index]);
    engine_peer_name(set->engine, set->ranks[index], name, sizeof name);
    if (child >= 0 && set->children[child] != index)
        snprintf(relay, sizeof relay, " (relayed by rank %d)", set->ranks[set->children[child]]);
    return error_set(error, HVD_ERR_CORRUPT, "%s broke the protocol%s: it %s. " ADVICE, name, relay,
                     what);
}

/* The same about a response: it is the coordinator's, whichever rank relayed it. */
hvd_status_t negotiate_refused(const struct procset *set, struct error *error, const char *format,
                               ...)
{
    char name[160], what[HVD_ERROR_MAX - 384], relay[64] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    engine_blame(set->engine, set->ranks[0]);
    engine_peer_name(set->engine, set->ranks[0], name, sizeof name);
    if (set->parent > 0)
        snprintf(relay, sizeof relay, " (relayed by rank %d)", set->ranks[set->parent]);
    return error_set(error, HVD_ERR_CORRUPT,
                     "%s, the coordinator, broke the protocol%s: it %s. " ADVICE, name, relay,
                     what);
}

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
    message_head_put(w, &head);
    put_u32(w, 0);
}

static void up_end(struct procset *set, struct writer *w, uint32_t *count, uint8_t flags)
{
    if (*count == 0)
        return;
    assert(!w->bad && w->used > MESSAGE_HEAD_BYTES + 4 && set->parent >= 0);
    w->bytes[1] = flags;
    for (int i = 0; i < 4; i++)
        w->bytes[MESSAGE_HEAD_BYTES + (unsigned)i] = (uint8_t)(*count >> (8 * i));
    control_send(set->engine, set->ranks[set->parent], w->bytes, w->used);
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
        message_head_put(&w, &head);
        control_send(set->engine, set->ranks[set->parent], bytes, w.used);
    }
    set->is_waiter_told = is_waiting;
}

/* A record has been put; what is full is sent at once. */
static void up_added(struct procset *set, struct writer *w, uint32_t *count)
{
    ++*count;
    if (w->used > UP_FULL)
        up_end(set, w, count, subtree_waits(set) ? MESSAGE_FLAG_WAITER : 0);
}

static void up_ready(struct procset *set, uint32_t id)
{
    if (set->up_ready_count == 0)
        up_begin(set, &set->up_ready, MESSAGE_READY);
    put_u32(&set->up_ready, id);
    up_added(set, &set->up_ready, &set->up_ready_count);
}

/* A record with a long payload (a process set of very many ranks) may not fit the collecting
 * buffer. */
static hvd_status_t up_request_alone(struct procset *set, const struct request *request,
                                     struct error *error)
{
    size_t bytes = request->payload_bytes + HVD_NAME_MAX + 1024u;
    uint8_t *buffer = os_alloc(set->engine->os, bytes);
    if (buffer == NULL)
        return procset_no_memory(set, error, "a request");
    struct writer w;
    uint32_t one = 1;
    writer_init(&w, buffer, bytes);
    up_begin(set, &w, MESSAGE_REQUEST);
    message_request_put(&w, request);
    up_end(set, &w, &one, 0);
    os_free(set->engine->os, buffer);
    return HVD_OK;
}

static hvd_status_t up_request(struct procset *set, const struct request *request,
                               struct error *error)
{
    if (request->payload_bytes > 4096)
        return up_request_alone(set, request, error);
    if (set->up_request_count == 0)
        up_begin(set, &set->up_request, MESSAGE_REQUEST);
    message_request_put(&set->up_request, request);
    up_added(set, &set->up_request, &set->up_request_count);
    return HVD_OK;
}

/* ---- announcing ---- */

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
    ret->memory = op->memory_kind;
    ret->wire = op->wire;
    ret->group = op->group;
    ret->waited_ms = engine_waited_ms(set->engine, op->submit_ns);
    ret->prescale = op->prescale;
    ret->postscale = op->postscale;
    ret->ndim = op->ndim;
    memcpy(ret->shape, op->shape, sizeof ret->shape);
    if (kind_is_set_change(op->kind)) {
        ret->payload = (const uint8_t *)op->splits;
        ret->payload_bytes = (uint32_t)op->count * 4u;
    }
}

/* One more child (by number), or this rank itself (number child_count), has announced an id that it
 * had not announced in this round. */
static hvd_status_t ready(struct procset *set, struct entry *entry, int32_t child,
                          struct error *error)
{
    if (entry->ready_count++ == 0) {
        memset(entry->ready_bits, 0, (size_t)set->child_count / 8 + 1);
        entry->first_ready_ns = set->engine->now_ns;
        if (set->coordinator != NULL)
            timeline_negotiate_begin(set->engine->timeline, set->id, entry->name, entry->name_bytes,
                                     kind_negotiate_name(entry->kind, entry->reduce));
    }
    entry->ready_bits[child / 8] |= (uint8_t)(1u << (child % 8));
    assert(entry->ready_count <= set->child_count + 1);
    if (entry->ready_count != set->child_count + 1)
        return HVD_OK;
    if (set->parent < 0)
        return coordinator_ready(set, entry, error);
    up_ready(set, entry->id);
    return HVD_OK;
}

static bool has_announced(const struct entry *entry, int32_t child)
{
    return entry->ready_count > 0 && (entry->ready_bits[child / 8] >> (child % 8) & 1) != 0;
}

hvd_status_t negotiate_announce(struct procset *set, struct op *op, struct error *error)
{
    struct entry *entry = op->tensor->entry;
    op->state = OP_ANNOUNCED;
    flight_note(set->engine->flight, set->engine->now_ns, FLIGHT_ANNOUNCE, set->id, entry != NULL,
                &op->tensor->flight_name);
    /* Ops that have waited long are announced in full: only that shows which ranks are missing. */
    bool is_old = set->engine->now_ns - op->submit_ns >= stall_uncover_ns(set->engine->config);
    if (entry != NULL && !entry->is_forgotten && !is_old && procset_entry_fits(entry, op)) {
        assert(!has_announced(entry, set->child_count));
        set->engine->stats.cache_hits++;
        entry->is_announced = true;
        if (entry->kind == HVD_ALLTOALL)
            entry->shape[0] = op->shape[0];
        return ready(set, entry, set->child_count, error);
    }
    struct request request;
    request_of(set, op, &request);
    set->engine->stats.cache_misses++;
    if (set->parent < 0)
        return coordinator_request(set, &request, error);
    return up_request(set, &request, error);
}

static void announce_or_break(struct procset *set, struct op *op)
{
    struct error error;
    error_clear(&error);
    hvd_status_t status = negotiate_announce(set, op, &error);
    if (status != HVD_OK)
        negotiate_set_broken(set, status, error.text, true);
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
    if (set->must_announce)
        return; /* with all others */
    announce_or_break(set, op);
    if (set->coordinator != NULL)
        response_deliver_full(set);
}

/* A generation begins: earlier announcements are void. */
void negotiate_generation(struct procset *set)
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

void negotiate_again(struct procset *set)
{
    uint32_t generation = set->generation;
    set->must_announce = false;
    for (struct op *op = set->pending_head; op != NULL; op = op->next) {
        if (op->state == OP_HELD)
            announce_or_break(set, op);
        if (set->broken != HVD_OK || set->generation != generation)
            return; /* the list has changed */
    }
}

/* ---- sending down ---- */

static void relay_down(struct procset *set, const void *bytes, size_t n)
{
    for (int32_t i = 0; i < set->child_count; i++)
        control_send(set->engine, set->ranks[set->children[i]], bytes, n);
}

void negotiate_down(struct procset *set, enum message_type type, const void *body, size_t n)
{
    uint8_t small[256];
    uint8_t *bytes = n + MESSAGE_HEAD_BYTES <= sizeof small
                         ? small
                         : os_alloc(set->engine->os, n + MESSAGE_HEAD_BYTES);
    if (bytes == NULL) {
        engine_no_memory(set->engine, "a control message");
        return;
    }
    struct writer w;
    struct message_head head = head_of(set, type, 0);
    writer_init(&w, bytes, n + MESSAGE_HEAD_BYTES);
    message_head_put(&w, &head);
    put_bytes(&w, body, n);
    relay_down(set, bytes, w.used);
    if (bytes != small)
        os_free(set->engine->os, bytes);
}

void negotiate_up(struct procset *set, enum message_type type, const void *body, size_t n)
{
    uint8_t bytes[512];
    struct writer w;
    struct message_head head = head_of(set, type, 0);
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    put_bytes(&w, body, n);
    assert(!w.bad);
    control_send(set->engine, set->ranks[set->parent], bytes, w.used);
}

void negotiate_respond(struct procset *set, uint8_t *message, size_t n)
{
    struct writer w;
    struct message_head head = head_of(set, MESSAGE_RESPONSE, 0);
    struct error error;
    error_clear(&error);
    writer_init(&w, message, MESSAGE_HEAD_BYTES);
    message_head_put(&w, &head);
    relay_down(set, message, n);
    set->responses++;
    hvd_status_t status =
        apply_items(set, message + MESSAGE_HEAD_BYTES, n - MESSAGE_HEAD_BYTES, &error);
    if (status != HVD_OK)
        negotiate_set_broken(set, status, error.text, true);
}

/* ---- messages ---- */

static hvd_status_t on_ready(struct procset *set, int32_t child, struct reader *r,
                             struct error *error)
{
    int32_t from = set->children[child];
    uint32_t count = get_u32(r);
    if (r->bad || count == 0 || count != (r->size - r->at) / 4 || (r->size - r->at) % 4 != 0)
        return negotiate_misbehaved(set, from, error, "sent an announcement that can't be read");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = get_u32(r);
        struct entry *entry = procset_entry(set, id);
        if (id == 0 || (entry == NULL && (int32_t)(id - set->id_newest) > 0))
            return negotiate_misbehaved(set, from, error, "announced id %u, which does not exist",
                                        id);
        if (entry == NULL || entry->is_forgotten)
            continue; /* voided since: its sender announces it again, in full */
        if (has_announced(entry, child))
            return negotiate_misbehaved(set, from, error, "announced %s twice", entry->name);
        hvd_status_t status = ready(set, entry, child, error);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}

static hvd_status_t request_apply(struct procset *set, int32_t child, const struct request *q,
                                  struct error *error)
{
    int32_t from = set->children[child];
    if (set->via[q->rank] != child)
        return negotiate_misbehaved(set, from, error,
                                    "announced %.*s for rank %d, which it does not speak for",
                                    (int)q->name_bytes, q->name, set->ranks[q->rank]);
    if (q->kind >= HVD_KIND_COUNT &&
        (set->id != HVD_PROCESS_SET_GLOBAL || q->payload_bytes / 4 > (uint32_t)set->engine->size))
        return negotiate_misbehaved(set, from, error, "asked for an impossible process set");
    return set->parent < 0 ? coordinator_request(set, q, error) : up_request(set, q, error);
}

static hvd_status_t on_request(struct procset *set, int32_t child, struct reader *r,
                               struct error *error)
{
    uint32_t count = get_u32(r), generation = set->generation;
    hvd_status_t status = HVD_OK;
    /* A join in it voids the rest: its sender announces it again. */
    for (uint32_t i = 0; i < count && status == HVD_OK && set->generation == generation; i++) {
        struct request request;
        if (!message_request_get(r, set->size, &request))
            return negotiate_misbehaved(set, set->children[child], error,
                                        "sent a request that can't be read");
        status = request_apply(set, child, &request, error);
    }
    if (status == HVD_OK && set->generation == generation && (count == 0 || !reader_done(r)))
        return negotiate_misbehaved(set, set->children[child], error,
                                    "sent requests with something behind them");
    if (status == HVD_OK && set->coordinator != NULL)
        response_deliver_full(set);
    return status;
}

static hvd_status_t on_abort(struct procset *set, int32_t from, struct reader *r,
                             struct error *error)
{
    char text[HVD_ERROR_MAX];
    hvd_status_t status;
    if (!engine_take_cause(set->engine, set->ranks[from], r, &status, text))
        return negotiate_misbehaved(set, from, error, "gave up without a cause that can be read");
    /* Forwarded: a rank that fails or leaves because of it has notified all others before they can
     * see its links close, so no rank blames it. */
    negotiate_set_broken(set, status, text, true);
    return HVD_OK;
}

static hvd_status_t on_shutdown(struct procset *set, int32_t child, struct reader *r,
                                const void *bytes, size_t n, struct error *error)
{
    char words[ENGINE_WORDS_MAX];
    int32_t rank = (int32_t)get_u32(r);
    get_text(r, words, sizeof words);
    int32_t index = reader_done(r) ? procset_index(set, rank) : -1;
    if (set->id != HVD_PROCESS_SET_GLOBAL || index < 0 || set->via[index] != child)
        return negotiate_misbehaved(set, set->children[child], error,
                                    "asked for shutdown in the name of rank %d", rank);
    if (set->parent < 0)
        coordinator_shutdown(set, rank, words);
    else
        control_send(set->engine, set->ranks[set->parent], bytes, n);
    return HVD_OK;
}

/* Whatever this rank has to announce for its subtree goes first. */
static hvd_status_t on_stuck(struct procset *set, int32_t child, struct reader *r,
                             const void *bytes, size_t n, struct error *error)
{
    if (!deadlock_message(set, child, r))
        return negotiate_misbehaved(set, set->children[child], error,
                                    "sent a report of waiting ranks that can't be read");
    if (set->parent < 0)
        return HVD_OK;
    negotiate_flush(set);
    control_send(set->engine, set->ranks[set->parent], bytes, n);
    return HVD_OK;
}

static int32_t child_number(const struct procset *set, int32_t index)
{
    int32_t child = set->via[index];
    return child >= 0 && set->children[child] == index ? child : -1;
}

/* From a child: the state of its subtree. A child begins a generation after its parent, so its
 * message may be from an older generation but never from a newer one. */
static hvd_status_t from_child(struct procset *set, int32_t child, const struct message_head *head,
                               struct reader *r, const void *bytes, size_t n, struct error *error)
{
    int32_t from = set->children[child];
    bool is_current = head->generation == set->generation;
    if (!is_current && (int32_t)(head->generation - set->generation) > 0)
        return negotiate_misbehaved(set, from, error, "spoke of generation %u before %u began",
                                    head->generation, set->generation + 1);
    if ((head->flags & ~MESSAGE_FLAG_WAITER) != 0)
        return negotiate_misbehaved(set, from, error, "sent the unknown flags 0x%x", head->flags);
    set->child_waits[child] = (head->flags & MESSAGE_FLAG_WAITER) != 0;
    if (is_current && plan_is_on(set) && !plan_is_ending(set) &&
        (head->type == MESSAGE_READY || head->type == MESSAGE_REQUEST))
        return negotiate_misbehaved(set, from, error, "announced ops inside of a plan");
    switch ((enum message_type)head->type) {
    case MESSAGE_READY: return is_current ? on_ready(set, child, r, error) : HVD_OK;
    case MESSAGE_REQUEST: return is_current ? on_request(set, child, r, error) : HVD_OK;
    case MESSAGE_NUDGE: return HVD_OK;
    case MESSAGE_SHUTDOWN: return on_shutdown(set, child, r, bytes, n, error);
    case MESSAGE_STUCK: return is_current ? on_stuck(set, child, r, bytes, n, error) : HVD_OK;
    case MESSAGE_BREAK:
    case MESSAGE_POSITION:
        if (set->parent < 0)
            return plan_message(set, from, head, r, error);
        return plan_relay(set, from, head, r, bytes, n, error);
    case MESSAGE_RESPONSE:
    case MESSAGE_HALT:
    case MESSAGE_COMMIT:
    case MESSAGE_ABORT:
    case MESSAGE_LEAVE:
    case MESSAGE_OFFER:
    case MESSAGE_TAKE:
    case MESSAGE_PIECE:
    case MESSAGE_CLOCK:
    case MESSAGE_PACE: break;
    }
    return negotiate_misbehaved(set, from, error, "sent message %d up, which only goes down",
                                head->type);
}

static hvd_status_t from_parent(struct procset *set, const struct message_head *head,
                                struct reader *r, const void *bytes, size_t n, struct error *error)
{
    if (head->type == MESSAGE_RESPONSE) {
        relay_down(set, bytes, n);
        set->responses++;
        return apply_items(set, r->bytes + r->at, r->size - r->at, error);
    }
    if (head->type == MESSAGE_HALT || head->type == MESSAGE_COMMIT) {
        relay_down(set, bytes, n);
        return plan_message(set, set->parent, head, r, error);
    }
    return negotiate_misbehaved(set, set->parent, error, "sent message %d down, which only goes up",
                                head->type);
}

static hvd_status_t message_apply(struct procset *set, int32_t from,
                                  const struct message_head *head, struct reader *r,
                                  const void *bytes, size_t n, struct error *error)
{
    int32_t child = child_number(set, from);
    if (head->type == MESSAGE_ABORT)
        return on_abort(set, from, r, error);
    if (child >= 0)
        return from_child(set, child, head, r, bytes, n, error);
    if (from == set->parent)
        return from_parent(set, head, r, bytes, n, error);
    return negotiate_misbehaved(set, from, error, "sent message %d past its parent", head->type);
}

void negotiate_message(struct procset *set, int32_t from, const struct message_head *head,
                       struct reader *r, const void *bytes, size_t n)
{
    struct error error;
    error_clear(&error);
    assert(from >= 0 && from < set->size && from != set->self && set->broken == HVD_OK);
    hvd_status_t status = message_apply(set, from, head, r, bytes, n, &error);
    if (status != HVD_OK)
        negotiate_set_broken(set, status, error.text, true);
}

/* ---- breaking a set ---- */

/* A peer that receives our ABORT before its links close blames the right rank. */
static void tell_broken(struct procset *set, hvd_status_t status, const char *text)
{
    uint8_t bytes[HVD_ERROR_MAX + 64];
    struct writer w;
    struct message_head head = {.type = MESSAGE_ABORT,
                                .set = (uint16_t)set->id,
                                .incarnation = set->incarnation,
                                .generation = set->generation};
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    put_u32(&w, (uint32_t)status);
    put_text(&w, text);
    put_u32(&w, (uint32_t)(set->engine->culprit >= 0 ? set->engine->culprit : set->engine->rank));
    for (int32_t i = 0; i < set->size && !w.bad; i++)
        if (i != set->self)
            control_send(set->engine, set->ranks[i], bytes, w.used);
}

void negotiate_set_broken(struct procset *set, hvd_status_t status, const char *text, bool is_told)
{
    struct engine *engine = set->engine;
    if (set->broken != HVD_OK)
        return;
    if (engine->cause == HVD_OK && status != HVD_ERR_SHUTDOWN) {
        engine->cause = status;
        snprintf(engine->cause_text, sizeof engine->cause_text, "%s", text);
        flight_log(engine->flight, engine->log, engine->now_ns);
        if (engine->options.breaking != NULL)
            engine->options.breaking(engine->options.breaking_ctx);
    }
    /* A shutdown that all ranks requested is not a failure. */
    if (status != HVD_ERR_SHUTDOWN || (set->pending_head != NULL && !engine->is_shutdown_asked))
        engine_tell_cause(engine, text);
    if (is_told)
        tell_broken(set, status, text);
    execute_abort(set);
    pthread_mutex_lock(&set->engine->submit_lock);
    set->broken = status;
    size_t n = strlen(text);
    n = n < sizeof set->broken_text ? n : sizeof set->broken_text - 1;
    memcpy(set->broken_text, text, n);
    set->broken_text[n] = '\0';
    pthread_mutex_unlock(&set->engine->submit_lock);
    complete_pending(set, status, set->broken_text);
    if (set->id == HVD_PROCESS_SET_GLOBAL)
        direct_fail(engine, status, set->broken_text);
}
