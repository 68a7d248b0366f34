/* SPDX-License-Identifier: Apache-2.0 */
/* apply.c - applies the coordinator's decisions on a member: the items of a response, one after the
 * other, in the same order on all members. The response is checked first: it may only start what
 * this rank has announced.
 *
 * Thread: token holder.  Blocks: never.  Start reading at apply_items(). */
#include "engine/apply.h"

#include <assert.h>
#include <string.h>

#include "engine/batch.h"
#include "engine/cache.h"
#include "engine/complete.h"
#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/negotiate.h"
#include "engine/plan.h"
#include "engine/tune.h"

/* Ids only increase, by at most the size of a table; compared so that they may wrap. */
static bool id_is_next(const struct procset *set, uint32_t id)
{
    return id != 0 && id - set->id_newest - 1 < PROCSET_IDS_MAX;
}

static hvd_status_t define(struct procset *set, const struct request *request, const int64_t *dim0,
                           uint32_t id, struct error *error)
{
    struct entry *entry = NULL;
    uint64_t bytes = 0;
    int name_bytes = (int)request->name_bytes;
    if (request->kind >= HVD_KIND_COUNT || request->kind == HVD_JOIN)
        return negotiate_refused(set, error, "defined an id for a change of the ranks");
    if (!id_is_next(set, id))
        return negotiate_refused(set, error, "defined id %u after id %u", id, set->id_newest);
    if ((request->kind == HVD_ALLGATHER) != (dim0 != NULL) ||
        (dim0 != NULL &&
         (request->ndim == 0 || !message_rows_bytes(request, dim0, set->size, &bytes))))
        return negotiate_refused(set, error, "defined %.*s with impossible first dimensions",
                                 name_bytes, request->name);
    pthread_mutex_lock(&set->engine->submit_lock);
    const struct tensor *tensor = map_get(&set->tensors, request->name, request->name_bytes);
    bool is_twice = tensor != NULL && tensor->entry != NULL && set->join_op == NULL;
    pthread_mutex_unlock(&set->engine->submit_lock);
    if (is_twice)
        return negotiate_refused(set, error, "defined %.*s twice", name_bytes, request->name);
    if (procset_define(set, request, dim0, id, &entry) != HVD_OK)
        return procset_no_memory(set, error, "the table of tensors");
    return HVD_OK;
}

static hvd_status_t apply_define(struct procset *set, struct reader *r, struct error *error)
{
    uint32_t id = get_u32(r);
    struct request request;
    if (!message_request_get(r, set->size, &request))
        return negotiate_refused(set, error, "sent a definition that can't be read");
    bool has_rows = get_u8(r) != 0;
    if (set->coordinator != NULL) { /* it has made its own already */
        for (int32_t i = 0; has_rows && i < set->size; i++)
            get_i64(r);
        assert(!r->bad && procset_entry(set, id) != NULL);
        return HVD_OK;
    }
    int64_t *dim0 = NULL;
    if (has_rows) {
        dim0 = os_alloc(set->engine->os, (size_t)set->size * sizeof *dim0);
        if (dim0 == NULL)
            return procset_no_memory(set, error, "the first dimensions of a tensor");
        for (int32_t i = 0; i < set->size; i++)
            dim0[i] = get_i64(r);
    }
    hvd_status_t status = r->bad
                              ? negotiate_refused(set, error, "sent a definition that ends early")
                              : define(set, &request, dim0, id, error);
    os_free(set->engine->os, dim0);
    return status;
}

/* A joined rank takes part in this round without an op: the name, if it is known here, is free for
 * others, and may be deleted at any time. */
static void entry_detach(struct procset *set, struct entry *entry)
{
    pthread_mutex_lock(&set->engine->submit_lock);
    if (entry->tensor != NULL && entry->tensor->entry == entry)
        entry->tensor->entry = NULL;
    entry->tensor = NULL;
    pthread_mutex_unlock(&set->engine->submit_lock);
}

/* All ranks have announced it, including this one: unless it has joined, it has a waiting op that
 * matches the entry. */
static hvd_status_t batch_entry(struct procset *set, struct entry *entry, struct error *error)
{
    struct op *op = entry->tensor != NULL ? entry->tensor->op : NULL;
    bool is_ours = op != NULL && op->state == OP_ANNOUNCED && op->kind != HVD_JOIN;
    if (!is_ours && set->join_op == NULL)
        return negotiate_refused(set, error, "started %s, which this rank has not announced",
                                 entry->name);
    if (!is_ours && entry->kind != HVD_ALLREDUCE && entry->kind != HVD_BARRIER)
        return negotiate_refused(set, error, "started %s without this rank, which has joined",
                                 entry->name);
    if (is_ours && !procset_entry_fits(entry, op))
        return negotiate_refused(set, error, "started %s otherwise than this rank has announced it",
                                 entry->name);
    if (is_ours)
        op->state = OP_BATCHED;
    else
        entry_detach(set, entry);
    entry->queued++;
    entry->ready_count = 0;
    entry->is_announced = false;
    return HVD_OK;
}

static hvd_status_t apply_batch(struct procset *set, struct reader *r, struct error *error)
{
    uint32_t count = get_u32(r);
    if (count == 0 || count > COLL_PARTS_MAX || count > (r->size - r->at) / 4)
        return negotiate_refused(set, error, "started %u ops at once", count);
    struct batch batch = {.kind = BATCH_RUN, .count = (int32_t)count};
    if (!procset_ids_take(set, &batch, batch.count))
        return procset_no_memory(set, error, "the list of a batch");
    for (uint32_t i = 0; i < count; i++)
        batch.ids[i] = get_u32(r);
    hvd_status_t status = HVD_OK;
    if (!batch_is_sane(set, batch.ids, batch.count))
        status = negotiate_refused(set, error, "started ops together that do not fit");
    for (uint32_t i = 0; i < count && status == HVD_OK; i++)
        status = batch_entry(set, procset_entry(set, batch.ids[i]), error);
    if (status == HVD_OK && procset_batch_push(set, &batch) != HVD_OK)
        status = procset_no_memory(set, error, "the queue of batches");
    if (status != HVD_OK && batch.is_owned)
        os_free(set->engine->os, batch.ids); /* the ring is freed with the set */
    return status;
}

static hvd_status_t apply_error(struct procset *set, struct reader *r, struct error *error)
{
    char name[HVD_NAME_MAX], text[HVD_ERROR_MAX];
    get_text(r, name, sizeof name);
    int32_t status = (int32_t)get_u32(r);
    get_text(r, text, sizeof text);
    /* A protocol violation is not an op's error. */
    if (r->bad || status >= 0 || status < HVD_ERR_INTERNAL || status == HVD_ERR_CORRUPT)
        return negotiate_refused(set, error, "sent an error that can't be read");
    struct tensor *tensor;
    pthread_mutex_lock(&set->engine->submit_lock);
    tensor = map_get(&set->tensors, name, strlen(name));
    struct op *op = tensor != NULL ? tensor->op : NULL;
    pthread_mutex_unlock(&set->engine->submit_lock);
    if (op == NULL || op->state != OP_ANNOUNCED)
        return HVD_OK;
    if (tensor->entry != NULL && tensor->entry->is_announced)
        return negotiate_refused(set, error, "failed %s, which all ranks agree on", name);
    complete_op(set->engine, op, (hvd_status_t)status, text);
    return HVD_OK;
}

/* An id is void: deleted at once, or when the batches that contain it have completed. */
static void entry_void(struct procset *set, struct entry *entry)
{
    if (entry->queued == 0) {
        procset_forget(set, entry);
        return;
    }
    entry->is_forgotten = true;
    entry->ready_count = 0;
    pthread_mutex_lock(&set->engine->submit_lock);
    if (entry->tensor != NULL && entry->tensor->entry == entry)
        entry->tensor->entry = NULL;
    pthread_mutex_unlock(&set->engine->submit_lock);
}

static hvd_status_t apply_forget(struct procset *set, struct reader *r, struct error *error)
{
    uint32_t id = get_u32(r);
    struct entry *entry = r->bad ? NULL : procset_entry(set, id);
    if (set->coordinator != NULL && entry == NULL)
        return HVD_OK; /* its last batch has ended since */
    if (entry == NULL || (set->coordinator == NULL && entry->is_forgotten))
        return negotiate_refused(set, error, "voided id %u, which is not in use", id);
    struct op *again = NULL;
    if (entry->is_announced && entry->tensor != NULL && entry->tensor->op != NULL &&
        entry->tensor->op->state == OP_ANNOUNCED)
        again = entry->tensor->op;
    entry_void(set, entry);
    return again != NULL ? negotiate_announce(set, again, error) : HVD_OK;
}

static hvd_status_t apply_reset(struct procset *set)
{
    for (uint32_t i = 0; i < set->id_capacity; i++)
        if (set->ids[i] != NULL)
            entry_void(set, set->ids[i]);
    if (set->coordinator != NULL)
        cache_clear(set);
    negotiate_generation(set);
    set->must_announce = true;
    return HVD_OK;
}

/* Batches of known ids, each id once, with 0 after each batch. */
static bool is_plan_sane(struct procset *set, const uint32_t *ids, uint32_t count)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct entry *entry = ids[i] != 0 ? procset_entry(set, ids[i]) : NULL;
        if (ids[i] == 0) {
            if (i == first || !batch_is_sane(set, ids + first, (int32_t)(i - first)))
                return false;
            first = i + 1;
            continue;
        }
        if (entry == NULL || entry->is_forgotten || entry->is_transient ||
            entry->plan_generation == set->generation + 1)
            return false;
        entry->plan_generation = set->generation + 1;
    }
    return first == count;
}

static hvd_status_t apply_plan(struct procset *set, struct reader *r, struct error *error)
{
    uint32_t count = get_u32(r);
    if (count < 2 || count > (r->size - r->at) / 4 || plan_is_on(set))
        return negotiate_refused(set, error, "began a plan of %u ids out of turn", count);
    uint32_t *ids = os_alloc(set->engine->os, count * sizeof *ids);
    if (ids == NULL)
        return procset_no_memory(set, error, "a plan");
    for (uint32_t i = 0; i < count; i++)
        ids[i] = get_u32(r);
    if (!is_plan_sane(set, ids, count)) {
        os_free(set->engine->os, ids);
        return negotiate_refused(set, error, "began a plan of ids that do not fit");
    }
    struct batch batch = {
        .kind = BATCH_PLAN, .count = (int32_t)count, .ids = ids, .is_owned = true};
    negotiate_generation(set);
    batch.argument2 = set->generation;
    plan_prepare(set);
    if (procset_batch_push(set, &batch) == HVD_OK)
        return HVD_OK;
    os_free(set->engine->os, ids);
    return procset_no_memory(set, error, "the queue of batches");
}

/* The op of this rank that requested a change on which all have agreed; a new generation does not
 * announce it again. NULL: this rank has not requested it, or it is already done. */
static struct op *agreed(struct procset *set, uint8_t kind)
{
    struct op *found = NULL;
    for (struct op *op = set->pending_head; op != NULL; op = op->next)
        if (op->kind == kind) {
            found = op->state == OP_ANNOUNCED ? op : found;
            op->state = OP_BATCHED;
        }
    return found;
}

/* The same for a change that one rank is enough for, if it is this one. */
static void alone_agreed(struct procset *set, uint8_t kind, int32_t rank, const void *payload,
                         int32_t count)
{
    if (rank != set->engine->rank)
        return;
    for (struct op *op = set->pending_head; op != NULL; op = op->next)
        if (op->kind == kind && op->count == count &&
            memcmp(op->splits, payload, (size_t)count * sizeof *op->splits) == 0)
            op->state = OP_BATCHED;
}

static hvd_status_t apply_set_add(struct procset *set, struct reader *r, struct error *error)
{
    struct batch batch = {.kind = BATCH_SET_ADD, .is_owned = true};
    batch.argument = (int32_t)get_u32(r);
    bool is_open = (uint32_t)batch.argument == SET_NUMBER_OPEN;
    const struct op *op = is_open ? NULL : agreed(set, KIND_SET_ADD);
    batch.argument2 = get_u32(r);
    uint32_t count = get_u32(r);
    if (r->bad || count == 0 || count > (r->size - r->at) / 4 || set->id != HVD_PROCESS_SET_GLOBAL)
        return negotiate_refused(set, error, "added a process set of %u ranks", count);
    if (is_open && batch.argument2 >= (uint32_t)set->engine->size)
        return negotiate_refused(set, error, "opened a process set for rank %u", batch.argument2);
    if (op == NULL && set->join_op == NULL && !is_open)
        return negotiate_refused(set, error,
                                 "added a process set that this rank has not asked for");
    batch.count = (int32_t)count;
    batch.ids = os_alloc(set->engine->os, count * sizeof *batch.ids);
    if (batch.ids == NULL)
        return procset_no_memory(set, error, "a process set");
    for (uint32_t i = 0; i < count; i++)
        batch.ids[i] = get_u32(r);
    hvd_status_t status = HVD_OK;
    if (is_open)
        alone_agreed(set, KIND_SET_OPEN, (int32_t)batch.argument2, batch.ids, batch.count);
    if (op != NULL &&
        (op->count != batch.count || memcmp(op->splits, batch.ids, count * sizeof *batch.ids) != 0))
        status =
            negotiate_refused(set, error, "added another process set than this rank has asked for");
    else if (procset_batch_push(set, &batch) != HVD_OK)
        status = procset_no_memory(set, error, "the queue of batches");
    if (status != HVD_OK)
        os_free(set->engine->os, batch.ids);
    return status;
}

static hvd_status_t event_check(struct procset *set, const struct batch *batch, struct error *error)
{
    const struct op *op = NULL;
    bool is_global = set->id == HVD_PROCESS_SET_GLOBAL;
    switch (batch->kind) {
    case BATCH_JOINED:
        if (agreed(set, HVD_JOIN) == NULL || procset_index(set, batch->argument) < 0)
            return negotiate_refused(set, error, "ended a join that this rank is not in");
        return HVD_OK;
    case BATCH_SET_REMOVE:
        op = agreed(set, KIND_SET_REMOVE);
        if (!is_global || (op == NULL && set->join_op == NULL) ||
            (op != NULL && op->splits[0] != batch->argument))
            return negotiate_refused(set, error,
                                     "removed process set %d, which this rank has not asked for",
                                     batch->argument);
        return HVD_OK;
    case BATCH_SHUTDOWN:
        if (!is_global || batch->argument < 0 || batch->argument >= set->engine->size)
            return negotiate_refused(set, error, "shut down in the name of rank %d",
                                     batch->argument);
        return HVD_OK;
    case BATCH_RUN:
    case BATCH_PLAN:
    case BATCH_SET_ADD:
    case BATCH_SET_CLOSE:
    case BATCH_TUNE: break;
    }
    assert(false); /* the others are no events */
    return HVD_ERR_INTERNAL;
}

static hvd_status_t apply_event(struct procset *set, enum batch_kind kind, struct reader *r,
                                struct error *error)
{
    struct batch batch = {.kind = kind, .argument = (int32_t)get_u32(r)};
    if (r->bad)
        return negotiate_refused(set, error, "sent a response that ends early");
    hvd_status_t status = event_check(set, &batch, error);
    if (status == HVD_OK && procset_batch_push(set, &batch) != HVD_OK)
        status = procset_no_memory(set, error, "the queue of batches");
    return status;
}

static hvd_status_t apply_set_close(struct procset *set, struct reader *r, struct error *error)
{
    struct batch batch = {.kind = BATCH_SET_CLOSE, .is_owned = true, .count = 1};
    batch.argument2 = get_u32(r);
    int32_t payload[2] = {(int32_t)get_u32(r), 0};
    payload[1] = (int32_t)get_u32(r);
    if (r->bad || set->id != HVD_PROCESS_SET_GLOBAL || batch.argument2 >= (uint32_t)set->size)
        return negotiate_refused(set, error, "closed a process set for rank %u", batch.argument2);
    batch.argument = payload[0];
    batch.ids = os_alloc(set->engine->os, sizeof *batch.ids);
    if (batch.ids == NULL)
        return procset_no_memory(set, error, "a process set");
    batch.ids[0] = (uint32_t)payload[1];
    alone_agreed(set, KIND_SET_CLOSE, (int32_t)batch.argument2, payload, 2);
    if (procset_batch_push(set, &batch) == HVD_OK)
        return HVD_OK;
    os_free(set->engine->os, batch.ids);
    return procset_no_memory(set, error, "the queue of batches");
}

static hvd_status_t apply_shutdown(struct procset *set, struct reader *r, struct error *error)
{
    hvd_status_t status = apply_event(set, BATCH_SHUTDOWN, r, error);
    get_text(r, set->engine->farewell, sizeof set->engine->farewell);
    if (status == HVD_OK && r->bad)
        return negotiate_refused(set, error, "sent a shutdown that can't be read");
    return status;
}

static hvd_status_t apply_item(struct procset *set, struct reader *r, struct error *error)
{
    uint8_t item = get_u8(r);
    if (plan_is_on(set) && !plan_is_ending(set) && item != ITEM_SHUTDOWN)
        return negotiate_refused(set, error, "sent item %d inside of a plan", item);
    switch ((enum response_item)item) {
    case ITEM_DEFINE: return apply_define(set, r, error);
    case ITEM_BATCH: return apply_batch(set, r, error);
    case ITEM_ERROR: return apply_error(set, r, error);
    case ITEM_FORGET: return apply_forget(set, r, error);
    case ITEM_JOINED: return apply_event(set, BATCH_JOINED, r, error);
    case ITEM_PLAN: return apply_plan(set, r, error);
    case ITEM_SET_ADD: return apply_set_add(set, r, error);
    case ITEM_SET_REMOVE: return apply_event(set, BATCH_SET_REMOVE, r, error);
    case ITEM_RESET: return apply_reset(set);
    case ITEM_SHUTDOWN: return apply_shutdown(set, r, error);
    case ITEM_TUNE: return tune_item(set, r, error);
    case ITEM_SET_CLOSE: return apply_set_close(set, r, error);
    }
    return negotiate_refused(set, error, "sent an item of the unknown kind %d", item);
}

hvd_status_t apply_items(struct procset *set, const void *items, size_t n, struct error *error)
{
    struct reader r;
    hvd_status_t status = HVD_OK;
    reader_init(&r, items, n);
    while (status == HVD_OK && r.at < r.size && set->broken == HVD_OK)
        status = apply_item(set, &r, error);
    return status;
}
