/* SPDX-License-Identifier: Apache-2.0 */
/* procset.c - see procset.h: creating and destroying a process set, its tree, its table of ids. */
#include "engine/procset.h"

#include <assert.h>
#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/plan.h"
#include "engine/shape.h"
#include "engine/stage.h"

#define UP_BYTES (48u << 10)

int32_t procset_index(const struct procset *set, int32_t world_rank)
{
    int32_t low = 0, high = set->size - 1;
    while (low <= high) {
        int32_t middle = (low + high) / 2;
        if (set->ranks[middle] == world_rank)
            return middle;
        if (set->ranks[middle] < world_rank)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

/* Numbers the machines of the members by first appearance; returns how many. */
static int32_t number_hosts(struct procset *set)
{
    const int32_t *world = set->engine->options.host;
    int32_t count = 0;
    for (int32_t i = 0; i < set->size; i++) {
        int32_t known = -1;
        for (int32_t k = 0; k < i && known < 0; k++)
            if (world[set->ranks[k]] == world[set->ranks[i]])
                known = set->host[k];
        set->host[i] = known >= 0 ? known : count++;
    }
    return count;
}

/* Parent of a member: its machine's leader, or for leaders the binomial parent among machines.
 * `leaders` has the lowest member of each machine. */
static int32_t tree_parent(const struct procset *set, const int32_t *leaders, int32_t index)
{
    int32_t host = set->host[index];
    if (index != leaders[host])
        return leaders[host];
    return host == 0 ? -1 : leaders[host & (host - 1)];
}

static void tree_fill(struct procset *set, int32_t *leaders)
{
    for (int32_t i = set->size - 1; i >= 0; i--)
        leaders[set->host[i]] = i;
    set->parent = tree_parent(set, leaders, set->self);
    for (int32_t i = 0; i < set->size; i++) {
        set->via[i] = -1;
        if (i != set->self && tree_parent(set, leaders, i) == set->self) {
            set->via[i] = set->child_count;
            set->children[set->child_count++] = i;
        }
    }
    for (int32_t i = 0; i < set->size; i++) {
        int32_t at = i;
        while (at >= 0 && at != set->self && set->via[at] < 0)
            at = tree_parent(set, leaders, at);
        if (at >= 0 && at != set->self)
            set->via[i] = set->via[at];
    }
    for (int32_t i = 0; i < set->size; i++)
        if (set->via[i] >= 0)
            set->child_members[set->via[i]]++;
}

static hvd_status_t tree_build(struct procset *set)
{
    const struct os *os = set->engine->os;
    int32_t *leaders = os_alloc(os, (size_t)set->size * sizeof *leaders);
    set->children = os_alloc(os, (size_t)set->size * sizeof *set->children);
    set->via = os_alloc(os, (size_t)set->size * sizeof *set->via);
    set->child_members = os_alloc(os, (size_t)set->size * sizeof *set->child_members);
    set->child_waits = os_alloc(os, (size_t)set->size);
    bool has_memory = leaders != NULL && set->children != NULL && set->via != NULL &&
                      set->child_members != NULL && set->child_waits != NULL;
    if (has_memory)
        tree_fill(set, leaders);
    os_free(os, leaders);
    return has_memory ? HVD_OK : HVD_ERR_NO_MEMORY;
}

bool procset_run_prepare(struct procset *set, struct run *run)
{
    const struct os *os = set->engine->os;
    if (run->parts == NULL)
        run->parts = os_alloc(os, COLL_PARTS_MAX * sizeof *run->parts);
    if (run->entries == NULL)
        run->entries = os_alloc(os, COLL_PARTS_MAX * sizeof(struct entry *));
    if (run->recv_counts == NULL)
        run->recv_counts = os_alloc(os, (size_t)set->size * 2 * sizeof *run->recv_counts);
    return run->parts != NULL && run->entries != NULL && run->recv_counts != NULL;
}

static void run_destroy(struct procset *set, struct run *run)
{
    const struct os *os = set->engine->os;
    stage_destroy(set, run);
    procset_ids_give(set, &run->batch);
    void *const owned[] = {run->parts,       run->entries,    run->counts,
                           run->recv_counts, run->all_splits, run->zeros};
    os_free_each(os, owned, sizeof owned / sizeof *owned);
}

static hvd_status_t tables_build(struct procset *set)
{
    const struct os *os = set->engine->os;
    map_init(&set->tensors, os);
    set->ids = os_alloc(os, PROCSET_IDS * sizeof *set->ids);
    set->id_capacity = PROCSET_IDS;
    set->batch_capacity = 1024;
    set->batches = os_alloc(os, set->batch_capacity * sizeof *set->batches);
    set->ring = os_alloc(os, PROCSET_RING * sizeof *set->ring);
    set->up_bytes = os_alloc(os, UP_BYTES * 2);
    if (set->ids == NULL || set->batches == NULL || set->ring == NULL || set->up_bytes == NULL ||
        !procset_run_prepare(set, &set->runs[0]))
        return HVD_ERR_NO_MEMORY;
    writer_init(&set->up_ready, set->up_bytes, UP_BYTES);
    writer_init(&set->up_request, set->up_bytes + UP_BYTES, UP_BYTES);
    return HVD_OK;
}

static void group_fill(struct procset *set)
{
    struct group *g = &set->group;
    g->set_id = set->id;
    g->size = set->size;
    g->self = set->self;
    g->ranks = set->ranks;
    g->topology.size = set->size;
    g->topology.host_count = number_hosts(set);
    g->topology.host = set->host;
    g->topology.channels = set->tunables.flows;
    g->is_one_host = set->engine->options.is_host_sight && g->topology.host_count == 1;
}

hvd_status_t procset_create(struct engine *engine, int32_t id, uint32_t incarnation,
                            const int32_t *ranks, int32_t count, struct procset **ret,
                            struct error *error)
{
    const struct os *os = engine->os;
    struct procset *set = os_alloc(os, sizeof *set);
    if (set == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    set->engine = engine;
    set->id = id;
    set->incarnation = incarnation;
    set->generation = 1;
    set->size = count;
    set->ranks = os_alloc(os, (size_t)count * sizeof *set->ranks);
    set->host = os_alloc(os, (size_t)count * sizeof *set->host);
    if (set->ranks == NULL || set->host == NULL)
        goto no_memory;
    memcpy(set->ranks, ranks, (size_t)count * sizeof *set->ranks);
    set->self = procset_index(set, engine->rank);
    set->tunables = *engine_tunables(engine);
    set->tune_version = set->tunables.version;
    group_fill(set);
    if (tree_build(set) != HVD_OK || tables_build(set) != HVD_OK)
        goto no_memory;
    if (set->self == 0 && coordinator_create(set, &set->coordinator) != HVD_OK)
        goto no_memory;
    hvd_status_t status =
        engine->backend->ops->group_open(engine->backend, &set->group, &set->backend_group, error);
    if (status != HVD_OK) {
        procset_destroy(set);
        return status;
    }
    procset_rebase(set, set->generation);
    *ret = set;
    return HVD_OK;

no_memory:
    procset_destroy(set);
    return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory for a process set of %d ranks.",
                     count);
}

/* Set ids are reused for other sets, and plans break: waves and streams of the backend continue
 * from a number that no earlier life of this id has reached. */
void procset_rebase(struct procset *set, uint32_t generation)
{
    struct backend *backend = set->engine->backend;
    uint64_t base = (uint64_t)set->incarnation << 48 | (uint64_t)(generation & 0xffff) << 32;
    backend->ops->reset(backend, set->backend_group, base);
}

static void entry_free(const struct os *os, struct entry *entry)
{
    os_free(os, entry->dim0);
    os_free(os, entry->name);
    os_free(os, entry);
}

void procset_destroy(struct procset *set)
{
    if (set == NULL)
        return;
    struct engine *engine = set->engine;
    const struct os *os = engine->os;
    plan_destroy(set);
    if (set->backend_group != NULL)
        engine->backend->ops->group_close(engine->backend, set->backend_group);
    coordinator_destroy(set->coordinator);
    for (uint32_t i = 0; set->ids != NULL && i < set->id_capacity; i++)
        if (set->ids[i] != NULL)
            entry_free(os, set->ids[i]);
    size_t cursor = 0;
    for (struct tensor *t; (t = map_next(&set->tensors, &cursor)) != NULL;)
        os_free(os, t);
    map_destroy(&set->tensors);
    for (; set->batches != NULL && set->batch_head != set->batch_tail; set->batch_head++)
        procset_ids_give(set, &set->batches[set->batch_head % set->batch_capacity]);
    for (int32_t i = 0; i < PROCSET_RUNS; i++)
        run_destroy(set, &set->runs[i]);
    void *const owned[] = {set->ring,     set->up_bytes, set->batches,       set->ids,
                           set->children, set->via,      set->child_members, set->child_waits,
                           set->host,     set->ranks};
    os_free_each(os, owned, sizeof owned / sizeof *owned);
    os_free(os, set);
}

struct entry *procset_entry(const struct procset *set, uint32_t id)
{
    struct entry *entry = set->ids[id % set->id_capacity];
    return entry != NULL && entry->id == id ? entry : NULL;
}

static uint64_t entry_bytes(const struct entry *entry)
{
    int64_t count = 0;
    if (!shape_elements(entry->ndim, entry->shape, &count))
        return 0;
    return (uint64_t)count * hvd_dtype_bytes((hvd_dtype_t)entry->dtype);
}

/* Ids that do not share a slot now do not share one in the larger table either. */
static bool ids_grow(struct procset *set)
{
    const struct os *os = set->engine->os;
    if (set->id_capacity >= PROCSET_IDS_MAX)
        return false;
    uint32_t capacity = set->id_capacity * 2;
    struct entry **ids = os_alloc(os, capacity * sizeof *ids);
    if (ids == NULL)
        return false;
    for (uint32_t i = 0; i < set->id_capacity; i++)
        if (set->ids[i] != NULL)
            ids[set->ids[i]->id % capacity] = set->ids[i];
    os_free(os, set->ids);
    set->ids = ids;
    set->id_capacity = capacity;
    return true;
}

hvd_status_t procset_define(struct procset *set, const struct request *request, const int64_t *dim0,
                            uint32_t id, struct entry **ret)
{
    const struct os *os = set->engine->os;
    if (procset_entry(set, id) != NULL)
        return HVD_ERR_CORRUPT;
    while (set->ids[id % set->id_capacity] != NULL || set->id_count > set->id_capacity / 4 * 3)
        if (!ids_grow(set))
            return HVD_ERR_NO_MEMORY;
    struct entry *entry = os_alloc(os, sizeof *entry + (size_t)set->child_count / 8 + 1);
    if (entry == NULL)
        return HVD_ERR_NO_MEMORY;
    entry->id = id;
    entry->ready_bits = (uint8_t *)(entry + 1);
    entry->is_transient = (request->flags & REQUEST_TRANSIENT) != 0;
    entry->kind = request->kind;
    entry->dtype = request->dtype;
    entry->reduce = request->reduce;
    entry->root = request->root;
    entry->ndim = request->ndim;
    entry->prescale = request->prescale;
    entry->postscale = request->postscale;
    entry->group = request->group;
    entry->memory = request->memory;
    entry->wire = request->wire;
    entry->devices = request->device;
    entry->plan_batch = -1;
    memcpy(entry->shape, request->shape, sizeof entry->shape);
    entry->name = os_alloc(os, request->name_bytes + 1u);
    if (dim0 != NULL)
        entry->dim0 = os_alloc(os, (size_t)set->size * sizeof *dim0);
    if (entry->name == NULL || (dim0 != NULL && entry->dim0 == NULL)) {
        entry_free(os, entry);
        return HVD_ERR_NO_MEMORY;
    }
    memcpy(entry->name, request->name, request->name_bytes);
    entry->name_bytes = request->name_bytes;
    flight_name_set(&entry->flight_name, entry->name, entry->name_bytes);
    if (dim0 != NULL) {
        memcpy(entry->dim0, dim0, (size_t)set->size * sizeof *dim0);
        entry->shape[0] = dim0[set->self];
    }
    pthread_mutex_lock(&set->engine->submit_lock);
    entry->tensor = map_get(&set->tensors, entry->name, entry->name_bytes);
    if (entry->tensor != NULL && entry->tensor->entry != NULL &&
        !entry->tensor->entry->is_forgotten)
        entry->tensor = NULL; /* a joined rank still runs the round before: it has no op in this */
    if (entry->tensor != NULL)
        entry->tensor->entry = entry;
    pthread_mutex_unlock(&set->engine->submit_lock);
    const struct op *op = entry->tensor != NULL ? entry->tensor->op : NULL;
    if (op != NULL && entry->kind == HVD_ALLTOALL)
        entry->shape[0] = op->shape[0];
    if (op != NULL)
        entry->device = op->device;
    entry->bytes = entry_bytes(entry);
    assert(set->ids[id % set->id_capacity] == NULL);
    set->ids[id % set->id_capacity] = entry;
    set->id_count++;
    set->id_newest = id;
    *ret = entry;
    return HVD_OK;
}

bool procset_entry_fits(const struct entry *entry, const struct op *op)
{
    if (entry->kind != op->kind || entry->dtype != op->dtype || entry->reduce != op->reduce ||
        !factor_is_same(entry->prescale, op->prescale) ||
        !factor_is_same(entry->postscale, op->postscale) || entry->root != op->root ||
        entry->ndim != op->ndim || entry->memory != op->memory_kind ||
        entry->device != op->device || entry->wire != op->wire)
        return false;
    int32_t first = op->kind == HVD_ALLTOALL ? 1 : 0; /* its rows are sent with the data */
    for (int32_t i = first; i < op->ndim; i++)
        if (entry->shape[i] != op->shape[i])
            return false;
    return true;
}

void procset_forget(struct procset *set, struct entry *entry)
{
    struct engine *engine = set->engine;
    assert(entry->queued == 0 && !entry->is_ready && set->id_count > 0);
    pthread_mutex_lock(&engine->submit_lock);
    struct tensor *tensor = entry->tensor;
    if (tensor != NULL) {
        if (tensor->entry == entry)
            tensor->entry = NULL;
        if (tensor->entry == NULL && tensor->op == NULL && tensor->hold == NULL) {
            map_remove(&set->tensors, tensor->name, tensor->name_bytes);
            os_free(engine->os, tensor);
        }
    }
    pthread_mutex_unlock(&engine->submit_lock);
    set->ids[entry->id % set->id_capacity] = NULL;
    set->id_count--;
    entry_free(engine->os, entry);
}

bool procset_ids_take(struct procset *set, struct batch *batch, int32_t count)
{
    uint32_t at = (uint32_t)(set->ring_tail % PROCSET_RING);
    uint32_t skip = at + (uint32_t)count > PROCSET_RING ? PROCSET_RING - at : 0;
    uint32_t span = skip + (uint32_t)count;
    if (set->ring_tail + span - set->ring_head <= PROCSET_RING) {
        batch->ids = &set->ring[(at + skip) % PROCSET_RING];
        batch->ring_span = span;
        set->ring_tail += span;
        return true;
    }
    batch->ids = os_alloc(set->engine->os, (size_t)count * sizeof *batch->ids);
    batch->is_owned = batch->ids != NULL;
    return batch->is_owned;
}

void procset_ids_give(struct procset *set, struct batch *batch)
{
    set->ring_head += batch->ring_span;
    if (batch->is_owned)
        os_free(set->engine->os, batch->ids);
    *batch = (struct batch){0};
}

static bool batches_grow(struct procset *set)
{
    uint32_t capacity = set->batch_capacity * 2;
    struct batch *ring = os_alloc(set->engine->os, capacity * sizeof *ring);
    if (ring == NULL)
        return false;
    for (uint32_t i = set->batch_head; i != set->batch_tail; i++)
        ring[i % capacity] = set->batches[i % set->batch_capacity];
    os_free(set->engine->os, set->batches);
    set->batches = ring;
    set->batch_capacity = capacity;
    return true;
}

hvd_status_t procset_batch_push(struct procset *set, const struct batch *batch)
{
    if (set->batch_tail - set->batch_head == set->batch_capacity && !batches_grow(set))
        return HVD_ERR_NO_MEMORY;
    set->batches[set->batch_tail++ % set->batch_capacity] = *batch;
    return HVD_OK;
}

hvd_status_t procset_no_memory(const struct procset *set, struct error *error, const char *what)
{
    char name[160];
    engine_peer_name(set->engine, set->engine->rank, name, sizeof name);
    return error_set(error, HVD_ERR_NO_MEMORY, "%s has no memory for %s.", name, what);
}
