/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - the public calls of include/horovod/hvd.h: check that there is a world, hand over to the
 * engine.
 *
 * Thread: any.  Start reading at hvd_submit(). */
#include <string.h>

#include "api/instance.h"
#include "engine/sets.h"
#include "engine/timeline.h"
#include "transport/shm/shm.h"

#define NOT_INITIALIZED "Horovod has not been initialized; use hvd.init()."

void hvd_op_init(hvd_op_t *op, hvd_kind_t kind)
{
    memset(op, 0, sizeof *op);
    op->struct_size = sizeof *op;
    op->kind = kind;
    op->reduce = HVD_SUM;
    op->prescale = op->postscale = 1.0;
    op->input.device = op->output.device = HVD_DEVICE_CPU;
    op->input.dtype = op->output.dtype = HVD_FLOAT32;
}

/* ---- who am I ---- */

#define PLACE(function, field)                                                                     \
    int32_t function(void)                                                                         \
    {                                                                                              \
        struct world *world = instance_enter();                                                    \
        if (world == NULL)                                                                         \
            return -1;                                                                             \
        int32_t value = (int32_t)world->field;                                                     \
        instance_leave();                                                                          \
        return value;                                                                              \
    }

PLACE(hvd_rank, place.rank)
PLACE(hvd_size, place.size)
PLACE(hvd_local_rank, place.local_rank)
PLACE(hvd_local_size, place.local_size)
PLACE(hvd_cross_rank, place.cross_rank)
PLACE(hvd_cross_size, place.cross_size)
PLACE(hvd_is_homogeneous, is_homogeneous)

/* ---- submitting ---- */

/* Pointers that the engine follows without asking. */
static hvd_status_t check_pointers(const hvd_op_t *ops, size_t count,
                                   const hvd_handle_t *ret_handle, struct error *error)
{
    if ((ops == NULL && count > 0) || ret_handle == NULL)
        return error_set(error, HVD_ERR_INVALID,
                         "hvd_submit() needs an op and a place for the "
                         "handle, not NULL.");
    for (size_t i = 0; i < count; i++) {
        if (ops[i].struct_size != sizeof ops[i])
            return HVD_OK; /* the engine says so; the fields may not be there */
        if (ops[i].input.ndim > 0 && ops[i].input.shape == NULL)
            return error_set(error, HVD_ERR_INVALID, "The tensor has %d dimensions but no shape.",
                             ops[i].input.ndim);
        if (ops[i].splits_count > 0 && ops[i].splits == NULL)
            return error_set(error, HVD_ERR_INVALID, "splits_count is %d but splits is NULL.",
                             ops[i].splits_count);
    }
    return HVD_OK;
}

hvd_status_t hvd_submit_group(const hvd_op_t *ops, size_t count, hvd_handle_t *ret_handle)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    struct ticket *ticket = NULL;
    hvd_status_t status = check_pointers(ops, count, ret_handle, error);
    if (status == HVD_OK)
        status = engine_submit(world->engine, ops, count, &ticket, error);
    if (status == HVD_OK) {
        *ret_handle = ticket->handle;
        driver_submitted(&world->driver, count > 0 && (ops[0].flags & HVD_OP_WAITED) != 0);
    }
    instance_leave();
    return status;
}

hvd_status_t hvd_submit(const hvd_op_t *op, hvd_handle_t *ret_handle)
{
    return hvd_submit_group(op, 1, ret_handle);
}

/* ---- handles ---- */

/* The ticket of a handle, with the world entered; NULL: neither. */
static struct ticket *ticket_enter(hvd_handle_t handle, struct world **ret_world)
{
    struct world *world = instance_enter();
    if (world == NULL) {
        error_set(instance_error(), HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
        return NULL;
    }
    struct ticket *ticket = engine_ticket(world->engine, handle);
    if (ticket == NULL) {
        instance_leave();
        error_set(instance_error(), HVD_ERR_INVALID,
                  "Handle %lld was not created or has been cleared.", (long long)handle);
        return NULL;
    }
    *ret_world = world;
    return ticket;
}

static hvd_status_t ticket_refused(void)
{
    return hvd_is_initialized() ? HVD_ERR_INVALID : HVD_ERR_NOT_INITIALIZED;
}

static hvd_status_t ticket_status(const struct ticket *ticket)
{
    return (hvd_status_t)atomic_load_explicit(&ticket->state, memory_order_acquire);
}

static void ticket_ended(struct world *world, struct ticket *ticket, hvd_status_t status,
                         struct error *error)
{
    if (status != HVD_OK)
        error_set(error, status, "%s",
                  ticket->error != NULL ? ticket->error->text : hvd_status_name(status));
    engine_ticket_seen(world->engine, ticket);
}

hvd_status_t hvd_poll(hvd_handle_t handle)
{
    struct error *error = instance_error();
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return ticket_refused();
    hvd_status_t status = ticket_status(ticket);
    if (status == HVD_IN_PROGRESS)
        driver_help(
            &world->driver); /* what it brings is told by the next poll: never done at once */
    else
        ticket_ended(world, ticket, status, error);
    instance_leave();
    return status;
}

hvd_status_t hvd_wait(hvd_handle_t handle, int64_t timeout_ms)
{
    struct error *error = instance_error();
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return ticket_refused();
    hvd_status_t status = driver_wait(&world->driver, ticket, timeout_ms);
    if (status == HVD_OK) {
        status = ticket_status(ticket);
        ticket_ended(world, ticket, status, error);
    } else {
        error_set(error, status, "Handle %lld has not ended within %lld ms.", (long long)handle,
                  (long long)timeout_ms);
    }
    instance_leave();
    return status;
}

const char *hvd_error(hvd_handle_t handle)
{
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return "";
    const char *text =
        ticket_status(ticket) < 0 && ticket->error != NULL ? ticket->error->text : "";
    instance_leave();
    return text;
}

void hvd_release(hvd_handle_t handle)
{
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return;
    if (ticket_status(ticket) != HVD_IN_PROGRESS)
        engine_ticket_release(world->engine, ticket);
    instance_leave();
}

/* ---- results ---- */

static struct op *result_enter(hvd_handle_t handle, int32_t index)
{
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return NULL;
    bool is_ended = ticket_status(ticket) != HVD_IN_PROGRESS;
    if (!is_ended || index < 0 || index >= ticket->count) {
        if (is_ended)
            error_set(instance_error(), HVD_ERR_INVALID, "Handle %lld has %d results, not %d.",
                      (long long)handle, ticket->count, index);
        else
            error_set(instance_error(), HVD_ERR_INVALID, "Handle %lld has not ended yet.",
                      (long long)handle);
        instance_leave();
        return NULL;
    }
    return ticket->ops[index];
}

hvd_status_t hvd_result_shape(hvd_handle_t handle, int32_t index, int32_t *ret_ndim,
                              int64_t ret_shape[HVD_DIMS_MAX])
{
    instance_error();
    struct op *op = result_enter(handle, index);
    if (op == NULL)
        return ticket_refused();
    *ret_ndim = op->ndim;
    memcpy(ret_shape, op->shape, sizeof op->shape);
    if (op->ndim > 0 &&
        (op->kind == HVD_ALLGATHER || op->kind == HVD_ALLTOALL || op->kind == HVD_REDUCESCATTER))
        ret_shape[0] = op->result_dim0;
    instance_leave();
    return HVD_OK;
}

void *hvd_result_data(hvd_handle_t handle, int32_t index)
{
    struct op *op = result_enter(handle, index);
    if (op == NULL)
        return NULL;
    void *data = op->result;
    instance_leave();
    return data;
}

void *hvd_result_take(hvd_handle_t handle, int32_t index)
{
    struct op *op = result_enter(handle, index);
    if (op == NULL)
        return NULL;
    void *data = op->result;
    if (data != NULL && !memory_lend(instance_memory(), data))
        data = NULL; /* it stays with the handle */
    else
        op->result = NULL;
    instance_leave();
    return data;
}

hvd_status_t hvd_result_splits(hvd_handle_t handle, int32_t index, int32_t *ret_splits)
{
    struct error *error = instance_error();
    struct op *op = result_enter(handle, index);
    if (op == NULL)
        return ticket_refused();
    bool has_splits = op->recv_splits != NULL;
    if (has_splits)
        memcpy(ret_splits, op->recv_splits, (size_t)op->set_size * sizeof *ret_splits);
    else
        error_set(error, HVD_ERR_INVALID, "Handle %lld is no alltoall that has received splits.",
                  (long long)handle);
    instance_leave();
    return has_splits ? HVD_OK : HVD_ERR_INVALID;
}

int32_t hvd_result_rank(hvd_handle_t handle)
{
    struct op *op = result_enter(handle, 0);
    if (op == NULL)
        return -1;
    int32_t rank = op->ticket->join_rank;
    instance_leave();
    return rank;
}

/* ---- process sets ---- */

static hvd_status_t set_change(struct world *world, const int32_t *ranks, int32_t count,
                               int32_t remove_id, int32_t *ret_id, struct error *error)
{
    struct ticket *ticket = NULL;
    if (!world->config.dynamic_process_sets)
        return error_set(error, HVD_ERR_CONFIG,
                         "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow %s process sets after "
                         "Horovod initialization.",
                         ranks != NULL ? "adding" : "removing");
    hvd_status_t status = engine_submit_set(world->engine, ranks, count, remove_id, &ticket, error);
    if (status != HVD_OK)
        return status;
    driver_submitted(&world->driver, true);
    driver_wait(&world->driver, ticket, -1);
    status = ticket_status(ticket);
    if (status == HVD_OK)
        *ret_id = ticket->join_rank;
    else
        error_set(error, status, "%s",
                  ticket->error != NULL ? ticket->error->text : hvd_status_name(status));
    engine_ticket_release(world->engine, ticket);
    return status;
}

hvd_status_t hvd_process_set_add(const int32_t *ranks, int32_t count, int32_t *ret_id)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = HVD_OK;
    if ((ranks == NULL && count > 0) || ret_id == NULL)
        status = error_set(error, HVD_ERR_INVALID,
                           "hvd_process_set_add() needs ranks and a place for the id, not NULL.");
    if (status == HVD_OK)
        status = sets_check(world->engine, ranks, count, error);
    if (status == HVD_OK)
        status = set_change(world, ranks, count, -1, ret_id, error);
    instance_leave();
    return status;
}

hvd_status_t hvd_process_set_remove(int32_t id)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    int32_t removed = -1;
    hvd_status_t status = set_change(world, NULL, 0, id, &removed, error);
    if (status == HVD_OK && removed < 0)
        status = error_set(error, HVD_ERR_INVALID,
                           "Process set %d does not exist or has not been registered.", id);
    instance_leave();
    return status;
}

/* The record of a live set with the submit lock held; NULL and not held otherwise. */
static const struct set_record *record_lock(struct engine *engine, int32_t id)
{
    pthread_mutex_lock(&engine->submit_lock);
    if (id >= 0 && id < HVD_PROCESS_SETS_MAX && engine->records[id].is_live)
        return &engine->records[id];
    pthread_mutex_unlock(&engine->submit_lock);
    return NULL;
}

static hvd_status_t set_query(int32_t id, int32_t *ret_rank, int32_t *ret_size, int32_t *ret_ranks)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = HVD_OK;
    const struct set_record *record = record_lock(world->engine, id);
    if (record == NULL) {
        status = error_set(error, HVD_ERR_INVALID,
                           "Process set does not exist or has not been registered.");
    } else {
        int32_t rank = -1;
        for (int32_t i = 0; i < record->count; i++) {
            if (record->ranks[i] == world->place.rank)
                rank = i;
            if (ret_ranks != NULL)
                ret_ranks[i] = record->ranks[i];
        }
        if (ret_size != NULL)
            *ret_size = record->count;
        if (ret_rank != NULL)
            *ret_rank = rank;
        pthread_mutex_unlock(&world->engine->submit_lock);
        if (ret_rank != NULL && rank < 0)
            status =
                error_set(error, HVD_ERR_ABORTED, "Process is not part of provided process set.");
    }
    instance_leave();
    return status;
}

hvd_status_t hvd_process_set_rank(int32_t id, int32_t *ret_rank)
{
    return set_query(id, ret_rank, NULL, NULL);
}

hvd_status_t hvd_process_set_size(int32_t id, int32_t *ret_size)
{
    return set_query(id, NULL, ret_size, NULL);
}

hvd_status_t hvd_process_set_ranks(int32_t id, int32_t *ret_ranks)
{
    return set_query(id, NULL, NULL, ret_ranks);
}

static int32_t sets_list(int32_t *ret_ids)
{
    struct world *world = instance_enter();
    int32_t count = 0;
    if (world == NULL)
        return 0;
    pthread_mutex_lock(&world->engine->submit_lock);
    for (int32_t id = 0; id < HVD_PROCESS_SETS_MAX; id++) {
        if (!world->engine->records[id].is_live)
            continue;
        if (ret_ids != NULL)
            ret_ids[count] = id;
        count++;
    }
    pthread_mutex_unlock(&world->engine->submit_lock);
    instance_leave();
    return count;
}

int32_t hvd_process_set_count(void)
{
    return sets_list(NULL);
}

void hvd_process_set_ids(int32_t *ret_ids)
{
    sets_list(ret_ids);
}

/* ---- memory ---- */

void *hvd_alloc(size_t bytes)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return NULL;
    void *ptr = world->shm != NULL ? shm_heap_alloc(world->shm, bytes)
                                   : memory_alloc(instance_memory(), bytes);
    instance_leave();
    return ptr;
}

void hvd_free(void *ptr)
{
    struct world *world = instance_enter();
    if (world != NULL && world->shm != NULL)
        shm_heap_free(world->shm, ptr); /* minds its own only */
    if (world != NULL)
        instance_leave();
    memory_free(instance_memory(), ptr);
}

hvd_status_t hvd_register(void *ptr, size_t bytes)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = world->shm != NULL ? shm_register(world->shm, ptr, bytes, error) : HVD_OK;
    instance_leave();
    return status;
}

hvd_status_t hvd_unregister(void *ptr)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = world->shm != NULL ? shm_unregister(world->shm, ptr, error) : HVD_OK;
    instance_leave();
    return status;
}

bool hvd_is_shared(const void *ptr, size_t bytes)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return false;
    bool is_arena = world->shm != NULL && shm_offset(world->shm, ptr, bytes) != UINT64_MAX;
    instance_leave();
    return is_arena;
}

/* ---- timeline ---- */

hvd_status_t hvd_timeline_start(const char *path, bool mark_cycles)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    hvd_status_t status = HVD_OK;
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    if (path == NULL || path[0] == '\0')
        status = error_set(error, HVD_ERR_INVALID, "The timeline needs the name of a file.");
    else if (world->config.timeline[0] == '\0')
        status = error_set(error, HVD_ERR_CONFIG,
                           "Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.");
    else if (world->engine->timeline != NULL)
        status = timeline_start(world->engine->timeline, path, mark_cycles, error);
    instance_leave();
    return status;
}

hvd_status_t hvd_timeline_stop(void)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    if (world->engine->timeline != NULL)
        timeline_stop(world->engine->timeline);
    instance_leave();
    return HVD_OK;
}

/* ---- counters ---- */

void hvd_stats(hvd_stats_t *ret)
{
    size_t size = ret->struct_size;
    struct world *world = instance_enter();
    memset(ret, 0, sizeof *ret);
    ret->struct_size = size;
    if (world == NULL)
        return;
    uint64_t live = 0, messages = 0;
    pthread_mutex_lock(&world->driver.token);
    *ret = world->engine->stats;
    if (world->shm != NULL)
        shm_transport(world->shm)
            ->ops->counters(shm_transport(world->shm), &messages, &ret->shm_bytes);
    for (int32_t i = 0; i < world->engine->options.transport_count; i++) {
        struct transport *t = world->engine->options.transports[i];
        if (world->shm == NULL || t != shm_transport(world->shm))
            t->ops->counters(t, &messages, &ret->net_bytes);
    }
    pthread_mutex_unlock(&world->driver.token);
    ret->struct_size = size;
    os_host_alloc_counts(&live, &ret->allocations);
    ret->sleeps = atomic_load(&world->driver.sleeps);
    ret->wakeups = atomic_load(&world->driver.wakeups);
    instance_leave();
}
