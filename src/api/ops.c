/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - the public calls of include/horovod/hvd.h: check that there is a world, call the engine.
 *
 * Thread: any.  Start reading at hvd_submit(). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "api/extend.h"
#include "api/instance.h"
#include "api/meet.h"
#include "api/watch.h"
#include "engine/timeline.h"

#define NOT_INITIALIZED "Horovod has not been initialized; use hvd.init()."

#define OBITUARY_NS    2000000000LL /* for the agent to report how a peer ended */
#define OBITUARY_BYTES 300

#define WAIT_LOOK_NS 1000000 /* to find the ranks that a timed-out wait waited for */

#define OP_FIRST_BYTES (offsetof(hvd_op_t, arg) + sizeof(void *)) /* of the first header */

void hvd_op_init_sized(hvd_op_t *op, size_t struct_size, hvd_kind_t kind)
{
    memset(op, 0, struct_size);
    op->struct_size = struct_size;
    op->kind = kind;
    op->reduce = HVD_SUM;
    op->prescale = op->postscale = 1.0;
    op->input.device = op->output.device = HVD_DEVICE_CPU;
    op->input.dtype = op->output.dtype = HVD_FLOAT32;
}

/* For programs of the first header, which had no macro. */
void(hvd_op_init)(hvd_op_t *op, hvd_kind_t kind)
{
    hvd_op_init_sized(op, OP_FIRST_BYTES, kind);
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

/* ---- how another rank ended ---- */

/* Only the agent that started a process knows the signal or code with which it ended. A peer's
 * links close at the same moment, so the report is about to come; the thread that raises waits for
 * it, once. "": there is none. */
static void obituary_read(struct world *world, hvd_status_t status, char ret[OBITUARY_BYTES])
{
    char how[OBITUARY_BYTES - 32];
    ret[0] = '\0';
    /* cause_fd: horovodrun numbers the ranks as this world does */
    if ((status != HVD_ERR_PEER_DEAD && status != HVD_ERR_SHUTDOWN) || world->cause_fd < 0 ||
        meet_is_elastic(world))
        return;
    int32_t rank = engine_culprit(world->engine);
    int64_t wait_ns = status == HVD_ERR_PEER_DEAD ? OBITUARY_NS : 0;
    if (rank >= 0 && watch_end_of(world, rank, wait_ns, how, sizeof how))
        snprintf(ret, OBITUARY_BYTES, " Rank %d %s.", rank, how);
}

static void submit_failed(struct world *world, hvd_status_t status, struct error *error)
{
    char obituary[OBITUARY_BYTES];
    obituary_read(world, status, obituary);
    error_append(error, obituary);
}

/* ---- submitting ---- */

static const struct extend_kind op_kind = {"hvd_op", OP_FIRST_BYTES, sizeof(hvd_op_t)};

/* Ops of a caller with another header, as ours: in `one`, or in memory for the caller to free. */
static hvd_status_t ops_extend(const struct os *os, const hvd_op_t *ops, size_t count,
                               hvd_op_t *one, hvd_op_t **ret, struct error *error)
{
    size_t stride = ops->struct_size;
    hvd_status_t status = extend_check(&op_kind, ops, stride, error);
    if (status != HVD_OK)
        return status;
    hvd_op_t *known = one;
    if (count > 1 && (known = os_alloc(os, count * sizeof *known)) == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (size_t i = 0; i < count && status == HVD_OK; i++) {
        const void *theirs = (const char *)ops + i * stride;
        size_t size;
        memcpy(&size, theirs, sizeof size);
        if (size != stride)
            status = error_set(error, HVD_ERR_INVALID,
                               "struct_size of member %zu of the group is %zu, that of the first "
                               "is %zu; they must be equal.",
                               i, size, stride);
        else
            status = extend_check(&op_kind, theirs, size, error);
        if (status == HVD_OK)
            extend_copy(&op_kind, &known[i], theirs, size);
    }
    if (status == HVD_OK)
        *ret = known;
    else if (known != one)
        os_free(os, known);
    return status;
}

/* Pointers that the engine dereferences without checks. */
static hvd_status_t check_pointers(const hvd_op_t *ops, size_t count, struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i].struct_size != sizeof ops[i])
            return error_set(error, HVD_ERR_INVALID,
                             "struct_size of member %zu of the group is %zu, that of the first is "
                             "%zu; they must be equal.",
                             i, ops[i].struct_size, sizeof ops[i]);
        if (ops[i].input.ndim > 0 && ops[i].input.shape == NULL)
            return error_set(error, HVD_ERR_INVALID, "The tensor has %d dimensions but no shape.",
                             ops[i].input.ndim);
        if (ops[i].splits_count > 0 && ops[i].splits == NULL)
            return error_set(error, HVD_ERR_INVALID, "splits_count is %d but splits is NULL.",
                             ops[i].splits_count);
    }
    return HVD_OK;
}

static hvd_status_t submit(struct world *world, const hvd_op_t *ops, size_t count,
                           hvd_handle_t *ret_handle, struct error *error)
{
    if ((ops == NULL && count > 0) || ret_handle == NULL)
        return error_set(error, HVD_ERR_INVALID,
                         "hvd_submit() needs an op and a place for the handle, not NULL.");
    hvd_op_t one, *extended = NULL;
    hvd_status_t status = HVD_OK;
    if (count > 0 && ops->struct_size != sizeof *ops) {
        status = ops_extend(world->os, ops, count, &one, &extended, error);
        ops = extended;
    }
    struct ticket *ticket = NULL;
    if (status == HVD_OK)
        status = check_pointers(ops, count, error);
    if (status == HVD_OK)
        status = submit_ops(world->engine, ops, count, &ticket, error);
    if (status == HVD_OK) {
        *ret_handle = ticket_handle(ticket);
        driver_submitted(&world->driver, count > 0 && (ops[0].flags & HVD_OP_WAITED) != 0);
    }
    if (extended != &one)
        os_free(world->os, extended);
    return status;
}

hvd_status_t hvd_submit_group(const hvd_op_t *ops, size_t count, hvd_handle_t *ret_handle)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = submit(world, ops, count, ret_handle, error);
    if (status != HVD_OK)
        submit_failed(world, status, error);
    instance_leave();
    return status;
}

hvd_status_t hvd_submit(const hvd_op_t *op, hvd_handle_t *ret_handle)
{
    return hvd_submit_group(op, 1, ret_handle);
}

static const struct extend_kind message_kind = {"hvd_message", sizeof(hvd_message_t),
                                                sizeof(hvd_message_t)};

static hvd_status_t message_submit(const hvd_message_t *message, bool is_send,
                                   hvd_handle_t *ret_handle)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    struct ticket *ticket = NULL;
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = HVD_OK;
    if (message == NULL || ret_handle == NULL)
        status = error_set(error, HVD_ERR_INVALID,
                           "hvd_send() and hvd_recv() need a message and a place for the handle, "
                           "not NULL.");
    if (status == HVD_OK && message->struct_size != sizeof *message)
        status = extend_check(&message_kind, message, message->struct_size, error);
    if (status == HVD_OK)
        status = submit_message(world->engine, message, is_send, &ticket, error);
    if (status == HVD_OK) {
        *ret_handle = ticket_handle(ticket);
        driver_submitted(&world->driver, (message->flags & HVD_OP_WAITED) != 0);
    } else {
        submit_failed(world, status, error);
    }
    instance_leave();
    return status;
}

hvd_status_t hvd_send(const hvd_message_t *message, hvd_handle_t *ret_handle)
{
    return message_submit(message, true, ret_handle);
}

hvd_status_t hvd_recv(const hvd_message_t *message, hvd_handle_t *ret_handle)
{
    return message_submit(message, false, ret_handle);
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
    struct ticket *ticket = ticket_find(world->engine, handle);
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

static void ticket_mourn(struct world *world, struct ticket *ticket, hvd_status_t status)
{
    char obituary[OBITUARY_BYTES];
    obituary_read(world, status, obituary);
    if (obituary[0] != '\0')
        ticket_error_add(ticket, obituary);
}

static void ticket_ended(struct world *world, struct ticket *ticket, hvd_status_t status,
                         struct error *error)
{
    if (status != HVD_OK) {
        ticket_mourn(world, ticket, status);
        error_set(error, status, "%s", ticket_error(ticket));
    }
    ticket_seen(world->engine, ticket);
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
        driver_help(&world->driver); /* the next poll reports what it completes: the first poll is
                                        never done */
    else
        ticket_ended(world, ticket, status, error);
    instance_leave();
    return status;
}

/* Adds the ranks it waits for, if this rank knows them and the token is free soon. */
static void wait_timed_out(struct world *world, const struct ticket *ticket, int64_t timeout_ms,
                           struct error *error)
{
    char missing[HVD_ERROR_MAX - 128] = "";
    if (driver_look_begin(&world->driver, WAIT_LOOK_NS)) {
        snapshot_missing(world->engine, ticket, os_now_ns(world->os), missing, sizeof missing);
        driver_look_end(&world->driver);
    }
    error_set(error, HVD_ERR_TIMEOUT, "Handle %lld has not ended within %lld ms.%s%s%s",
              (long long)ticket_handle(ticket), (long long)timeout_ms,
              missing[0] != '\0' ? " " : "", missing, missing[0] != '\0' ? "." : "");
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
        wait_timed_out(world, ticket, timeout_ms, error);
    }
    instance_leave();
    return status;
}

#define ONLY_WAITS_MAX 64

void hvd_only_waits(const hvd_handle_t *handles, size_t count, const char *where)
{
    const struct ticket *tickets[ONLY_WAITS_MAX];
    struct world *world = instance_enter();
    if (world == NULL)
        return;
    bool is_known = count > 0 && count <= ONLY_WAITS_MAX;
    for (size_t i = 0; i < count && is_known; i++) {
        tickets[i] = ticket_find(world->engine, handles[i]);
        is_known = tickets[i] != NULL;
    }
    if (is_known && driver_look_begin(&world->driver, WAIT_LOOK_NS)) {
        deadlock_claim(world->engine, tickets, (int32_t)count, where != NULL ? where : "");
        driver_look_end(&world->driver);
    }
    instance_leave();
}

const char *hvd_error(hvd_handle_t handle)
{
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return "";
    ticket_mourn(world, ticket, ticket_status(ticket));
    const char *text = ticket_error(ticket);
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
        ticket_release(world->engine, ticket);
    instance_leave();
}

/* ---- results ---- */

/* The ticket of a completed handle that has such a result, with the world entered. */
static struct ticket *result_enter(hvd_handle_t handle, int32_t index, struct ticket_result *ret)
{
    struct world *world = NULL;
    struct ticket *ticket = ticket_enter(handle, &world);
    if (ticket == NULL)
        return NULL;
    bool is_ended = ticket_status(ticket) != HVD_IN_PROGRESS;
    if (!is_ended || index < 0 || index >= ticket_op_count(ticket)) {
        if (is_ended)
            error_set(instance_error(), HVD_ERR_INVALID, "Handle %lld has %d results, not %d.",
                      (long long)handle, ticket_op_count(ticket), index);
        else
            error_set(instance_error(), HVD_ERR_INVALID, "Handle %lld has not ended yet.",
                      (long long)handle);
        instance_leave();
        return NULL;
    }
    ticket_result(ticket, index, ret);
    return ticket;
}

hvd_status_t hvd_result_shape(hvd_handle_t handle, int32_t index, int32_t *ret_ndim,
                              int64_t ret_shape[HVD_DIMS_MAX])
{
    instance_error();
    struct ticket_result result;
    if (result_enter(handle, index, &result) == NULL)
        return ticket_refused();
    *ret_ndim = result.ndim;
    memcpy(ret_shape, result.shape, sizeof result.shape);
    instance_leave();
    return HVD_OK;
}

void *hvd_result_data(hvd_handle_t handle, int32_t index)
{
    struct ticket_result result;
    if (result_enter(handle, index, &result) == NULL)
        return NULL;
    instance_leave();
    return result.made;
}

void *hvd_result_take(hvd_handle_t handle, int32_t index)
{
    struct ticket_result result;
    struct ticket *ticket = result_enter(handle, index, &result);
    if (ticket == NULL)
        return NULL;
    void *data = result.made;
    if (data != NULL && !memory_lend(instance_memory(), data))
        data = NULL; /* it stays with the handle */
    else
        ticket_result_taken(ticket, index);
    instance_leave();
    return data;
}

hvd_status_t hvd_result_splits(hvd_handle_t handle, int32_t index, int32_t *ret_splits)
{
    struct error *error = instance_error();
    struct ticket_result result;
    if (result_enter(handle, index, &result) == NULL)
        return ticket_refused();
    bool has_splits = result.recv_splits != NULL;
    if (has_splits)
        memcpy(ret_splits, result.recv_splits, (size_t)result.recv_count * sizeof *ret_splits);
    else
        error_set(error, HVD_ERR_INVALID,
                  "Handle %lld is not an alltoall that has received splits.", (long long)handle);
    instance_leave();
    return has_splits ? HVD_OK : HVD_ERR_INVALID;
}

int32_t hvd_result_rank(hvd_handle_t handle)
{
    struct ticket_result result;
    struct ticket *ticket = result_enter(handle, 0, &result);
    if (ticket == NULL)
        return -1;
    int32_t rank = ticket_answer(ticket);
    instance_leave();
    return rank;
}

/* ---- process sets ---- */

/* Waits for a change that was submitted with this status. */
static hvd_status_t set_changed(struct world *world, hvd_status_t status, struct ticket *ticket,
                                int32_t *ret_id, struct error *error)
{
    if (status != HVD_OK)
        return status;
    driver_submitted(&world->driver, true);
    driver_wait(&world->driver, ticket, -1);
    status = ticket_status(ticket);
    if (status == HVD_OK)
        *ret_id = ticket_answer(ticket);
    else
        error_set(error, status, "%s", ticket_error(ticket));
    ticket_release(world->engine, ticket);
    return status;
}

static hvd_status_t set_change(struct world *world, const int32_t *ranks, int32_t count,
                               int32_t remove_id, int32_t *ret_id, struct error *error)
{
    struct ticket *ticket = NULL;
    if (!world->config.dynamic_process_sets)
        return error_set(error, HVD_ERR_CONFIG,
                         "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow %s process sets after "
                         "Horovod initialization.",
                         ranks != NULL ? "adding" : "removing");
    hvd_status_t status = submit_set_change(world->engine, ranks, count, remove_id, &ticket, error);
    return set_changed(world, status, ticket, ret_id, error);
}

static hvd_status_t set_open(struct world *world, const int32_t *ranks, int32_t count,
                             int32_t *ret_id, struct error *error)
{
    struct ticket *ticket = NULL;
    hvd_status_t status = submit_set_open(world->engine, ranks, count, &ticket, error);
    return set_changed(world, status, ticket, ret_id, error);
}

/* Both functions that make a set: one that is registered for good, or one that can be closed. */
static hvd_status_t set_make(const char *function, bool is_registered, const int32_t *ranks,
                             int32_t count, int32_t *ret_id)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = HVD_OK;
    if ((ranks == NULL && count > 0) || ret_id == NULL)
        status = error_set(error, HVD_ERR_INVALID,
                           "%s() needs ranks and a place for the id, not NULL.", function);
    if (status == HVD_OK)
        status = sets_check(world->engine, ranks, count, error);
    if (status == HVD_OK && is_registered)
        status = set_change(world, ranks, count, -1, ret_id, error);
    else if (status == HVD_OK)
        status = set_open(world, ranks, count, ret_id, error);
    instance_leave();
    return status;
}

hvd_status_t hvd_process_set_add(const int32_t *ranks, int32_t count, int32_t *ret_id)
{
    return set_make("hvd_process_set_add", true, ranks, count, ret_id);
}

hvd_status_t hvd_process_set_open(const int32_t *ranks, int32_t count, int32_t *ret_id)
{
    return set_make("hvd_process_set_open", false, ranks, count, ret_id);
}

hvd_status_t hvd_process_set_close(int32_t id)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    int32_t closed = -1;
    struct ticket *ticket = NULL;
    hvd_status_t status = submit_set_close(world->engine, id, &ticket, error);
    status = set_changed(world, status, ticket, &closed, error);
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

static hvd_status_t set_query(int32_t id, int32_t *ret_rank, int32_t *ret_size, int32_t *ret_ranks)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    hvd_status_t status = HVD_OK;
    if (!sets_get(world->engine, id, ret_rank, ret_size, ret_ranks))
        status = error_set(error, HVD_ERR_INVALID,
                           "Process set does not exist or has not been registered.");
    else if (ret_rank != NULL && *ret_rank < 0)
        status = error_set(error, HVD_ERR_ABORTED, "Process is not part of provided process set.");
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

static int32_t set_ids(int32_t *ret_ids)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return 0;
    int32_t count = sets_list(world->engine, ret_ids);
    instance_leave();
    return count;
}

int32_t hvd_process_set_count(void)
{
    return set_ids(NULL);
}

void hvd_process_set_ids(int32_t *ret_ids)
{
    set_ids(ret_ids);
}

/* ---- memory ---- */

void *hvd_alloc(size_t bytes)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return NULL;
    struct transport *sight = world->links.sight;
    void *ptr = sight != NULL ? sight->ops->memory->alloc(sight, bytes)
                              : memory_alloc(instance_memory(), bytes);
    if (ptr != NULL)
        heap_expect(&world->heap, world->os, bytes);
    instance_leave();
    return ptr;
}

void hvd_free(void *ptr)
{
    struct world *world = instance_enter();
    struct transport *sight = world != NULL ? world->links.sight : NULL;
    if (sight != NULL)
        sight->ops->memory->free(sight, ptr); /* minds its own only */
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
    struct transport *sight = world->links.sight;
    hvd_status_t status =
        sight != NULL ? sight->ops->memory->add(sight, ptr, bytes, error) : HVD_OK;
    instance_leave();
    return status;
}

hvd_status_t hvd_unregister(void *ptr)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    struct transport *sight = world->links.sight;
    hvd_status_t status = sight != NULL ? sight->ops->memory->remove(sight, ptr, error) : HVD_OK;
    instance_leave();
    return status;
}

bool hvd_is_shared(const void *ptr, size_t bytes)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return false;
    struct transport *sight = world->links.sight;
    bool is_arena = sight != NULL && sight->ops->memory->holds(sight, ptr, bytes);
    instance_leave();
    return is_arena;
}

/* ---- timeline ---- */

hvd_status_t hvd_timeline_start(const char *path, bool mark_cycles)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    hvd_status_t status = HVD_OK;
    char own[CONFIG_TEXT_MAX + 16];
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    if (path == NULL || path[0] == '\0')
        status = error_set(error, HVD_ERR_INVALID, "The timeline needs the name of a file.");
    else if (world->config.timeline[0] == '\0')
        status = error_set(error, HVD_ERR_CONFIG,
                           "Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.");
    else if (!timeline_path(path, world->place.rank, own, sizeof own))
        status = error_set(error, HVD_ERR_INVALID,
                           "The name of the timeline is too long: %.100s...", path);
    else if (engine_timeline(world->engine) != NULL)
        status = timeline_start(engine_timeline(world->engine), own, mark_cycles, error);
    instance_leave();
    return status;
}

hvd_status_t hvd_timeline_stop(void)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED, NOT_INITIALIZED);
    if (engine_timeline(world->engine) != NULL)
        timeline_stop(engine_timeline(world->engine));
    instance_leave();
    return HVD_OK;
}

/* ---- counters ---- */

/* A caller that did not set struct_size has the struct of the first header. */
#define STATS_FIRST_BYTES (offsetof(hvd_stats_t, sleeps) + sizeof(uint64_t))

static void stats_read(struct world *world, hvd_stats_t *ret)
{
    uint64_t live = 0, messages = 0, bytes = 0;
    if (!driver_look_begin(&world->driver, INT64_MAX / 2))
        return;
    *ret = *engine_stats(world->engine);
    int32_t count = 0;
    struct transport *const *transports = engine_transports(world->engine, &count);
    for (int32_t i = 0; i < count; i++) {
        struct transport *t = transports[i];
        t->ops->counters(t, &messages, &bytes);
        *(t == world->links.sight ? &ret->shm_bytes : &ret->net_bytes) += bytes;
    }
    driver_look_end(&world->driver);
    os_host_alloc_counts(&live, &ret->allocations);
    ret->sleeps = atomic_load(&world->driver.sleeps);
    ret->wakeups = atomic_load(&world->driver.wakeups);
}

void hvd_stats(hvd_stats_t *ret)
{
    hvd_stats_t known = {0};
    struct world *world = instance_enter();
    if (world != NULL) {
        stats_read(world, &known);
        instance_leave();
    }
    known.struct_size = ret->struct_size;
    size_t size = ret->struct_size != 0 ? ret->struct_size : STATS_FIRST_BYTES;
    if (size > EXTEND_MAX)
        size = STATS_FIRST_BYTES;
    if (size > sizeof known)
        memset((char *)ret + sizeof known, 0, size - sizeof known);
    memcpy(ret, &known, size < sizeof known ? size : sizeof known);
}
