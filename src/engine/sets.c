/* SPDX-License-Identifier: Apache-2.0 */
/* sets.c - see sets.h. */
#include "engine/sets.h"

#include <string.h>

hvd_status_t sets_check(const struct engine *engine, const int32_t *ranks, int32_t count,
                        struct error *error)
{
    if (count < 1 || count > engine->size)
        return error_set(error, HVD_ERR_INVALID,
                         "A process set of %d ranks does not fit a world of %d.", count,
                         engine->size);
    for (int32_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= engine->size)
            return error_set(error, HVD_ERR_INVALID,
                             "Tried to register process set with invalid rank: %d", ranks[i]);
        if (i > 0 && ranks[i] == ranks[i - 1])
            return error_set(error, HVD_ERR_INVALID,
                             "Tried to register process set with duplicate rank: %d", ranks[i]);
        if (i > 0 && ranks[i] < ranks[i - 1])
            return error_set(error, HVD_ERR_INVALID,
                             "The ranks of a process set must be in ascending order.");
    }
    return HVD_OK;
}

int32_t sets_find(const struct engine *engine, const int32_t *ranks, int32_t count)
{
    for (int32_t id = 0; id < HVD_PROCESS_SETS_MAX; id++) {
        const struct set_record *r = &engine->records[id];
        if (r->is_live && r->count == count &&
            memcmp(r->ranks, ranks, (size_t)count * sizeof *ranks) == 0)
            return id;
    }
    return -1;
}

static hvd_status_t set_open(struct engine *engine, int32_t id, uint32_t incarnation,
                             const int32_t *ranks, int32_t count, struct error *error)
{
    struct set_record *record = &engine->records[id];
    int32_t *copy = os_alloc(engine->os, (size_t)count * sizeof *copy);
    if (copy == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    memcpy(copy, ranks, (size_t)count * sizeof *copy);
    struct procset *set = NULL;
    bool is_member = false;
    for (int32_t i = 0; i < count; i++)
        is_member = is_member || ranks[i] == engine->rank;
    if (is_member) {
        hvd_status_t status = procset_create(engine, id, incarnation, ranks, count, &set, error);
        if (status != HVD_OK) {
            os_free(engine->os, copy);
            return status;
        }
        engine->members[engine->member_count++] = set;
    }
    pthread_mutex_lock(&engine->submit_lock);
    os_free(engine->os, record->ranks);
    *record = (struct set_record){
        .is_live = true, .incarnation = incarnation, .count = count, .ranks = copy};
    engine->sets[id] = set;
    pthread_mutex_unlock(&engine->submit_lock);
    return HVD_OK;
}

hvd_status_t engine_open_sets(struct engine *engine, const int32_t *const *sets,
                              const int32_t *sizes, int32_t count, struct error *error)
{
    int32_t *world = os_alloc(engine->os, (size_t)engine->size * sizeof *world);
    if (world == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (int32_t i = 0; i < engine->size; i++)
        world[i] = i;
    engine->next_incarnation = 1;
    hvd_status_t status =
        set_open(engine, 0, engine->next_incarnation++, world, engine->size, error);
    os_free(engine->os, world);
    engine->next_set_id = 1;
    for (int32_t i = 0; status == HVD_OK && i < count; i++) {
        status = sets_check(engine, sets[i], sizes[i], error);
        if (status != HVD_OK)
            return status;
        if (sets_find(engine, sets[i], sizes[i]) >= 0)
            continue;
        if (engine->next_set_id >= HVD_PROCESS_SETS_MAX)
            return error_set(error, HVD_ERR_LIMIT, "At most %d process sets can exist.",
                             HVD_PROCESS_SETS_MAX);
        status = set_open(engine, engine->next_set_id++, engine->next_incarnation++, sets[i],
                          sizes[i], error);
    }
    return status;
}

/* The op that asked for a change is complete; its ticket tells the id. */
static void change_done(struct engine *engine, uint8_t kind, int32_t id, hvd_status_t status,
                        const char *text)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    for (struct op *op = global->pending_head; op != NULL; op = op->next) {
        if (op->kind != kind)
            continue;
        op->ticket->join_rank = id;
        complete_op(engine, op, status, text);
        return;
    }
}

void sets_added(struct engine *engine, const struct batch *batch)
{
    struct error error = {0};
    int32_t id = batch->argument;
    const int32_t *ranks = (const int32_t *)batch->ids;
    hvd_status_t status = sets_check(engine, ranks, batch->count, &error);
    if (status == HVD_OK && sets_find(engine, ranks, batch->count) >= 0)
        status = error_set(&error, HVD_ERR_DUPLICATE, "Attempted to add a duplicate process set.");
    if (status == HVD_OK && (id < 1 || id >= HVD_PROCESS_SETS_MAX))
        status = error_set(&error, HVD_ERR_LIMIT, "At most %d process sets can exist.",
                           HVD_PROCESS_SETS_MAX);
    if (status == HVD_OK)
        status = set_open(engine, id, batch->argument2, ranks, batch->count, &error);
    if (status == HVD_OK) {
        engine->next_incarnation = batch->argument2 + 1;
        if (engine->free_id_count > 0 && engine->free_ids[engine->free_id_head] == id) {
            engine->free_id_head = (engine->free_id_head + 1) % HVD_PROCESS_SETS_MAX;
            engine->free_id_count--;
        } else {
            engine->next_set_id = id + 1;
        }
    }
    change_done(engine, KIND_SET_ADD, id, status, error.text);
    engine_early_replay(engine);
}

/* Handles that outlive their set must not look into it any more. */
static void tickets_detach(struct engine *engine, const struct procset *set)
{
    for (size_t i = 0; i < engine->ticket_capacity; i++) {
        struct ticket *ticket = engine->tickets[i];
        for (int32_t k = 0; ticket != NULL && k < ticket->count; k++)
            if (ticket->ops[k] != NULL && ticket->ops[k]->set == set)
                ticket->ops[k]->tensor = NULL;
    }
}

static void set_close(struct engine *engine, struct procset *set)
{
    for (int32_t i = 0; i < engine->member_count; i++)
        if (engine->members[i] == set) {
            engine->members[i] = engine->members[--engine->member_count];
            break;
        }
    pthread_mutex_lock(&engine->submit_lock);
    tickets_detach(engine, set);
    pthread_mutex_unlock(&engine->submit_lock);
    procset_destroy(set);
}

void sets_removed(struct engine *engine, int32_t id)
{
    if (id < 1 || id >= HVD_PROCESS_SETS_MAX || !engine->records[id].is_live) {
        change_done(engine, KIND_SET_REMOVE, -1, HVD_OK, "");
        return;
    }
    struct procset *set = engine->sets[id];
    pthread_mutex_lock(&engine->submit_lock);
    engine->sets[id] = NULL;
    engine->records[id].is_live = false;
    pthread_mutex_unlock(&engine->submit_lock);
    engine->free_ids[(engine->free_id_head + engine->free_id_count++) % HVD_PROCESS_SETS_MAX] = id;
    if (set != NULL) {
        queue_drain(engine); /* what was submitted before it vanished ends with the set */
        complete_pending(set, HVD_ERR_ABORTED, "Process set has been removed");
        set_close(engine, set);
    }
    change_done(engine, KIND_SET_REMOVE, id, HVD_OK, "");
}

void sets_destroy(struct engine *engine)
{
    while (engine->member_count > 0)
        set_close(engine, engine->members[engine->member_count - 1]);
    for (int32_t i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        os_free(engine->os, engine->records[i].ranks);
}
