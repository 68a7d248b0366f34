/* SPDX-License-Identifier: Apache-2.0 */
/* sets.c - see sets.h. */
#include "engine/sets.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/complete.h"
#include "engine/control.h"
#include "engine/engine_private.h"
#include "engine/execute.h"
#include "engine/negotiate.h"
#include "engine/submit.h"

#define REMOVED_TEXT "Process set has been removed"

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

static int32_t find(const struct engine *engine, const int32_t *ranks, int32_t count)
{
    for (int32_t id = 0; id < HVD_PROCESS_SETS_MAX; id++) {
        const struct set_record *r = &engine->records[id];
        if (r->is_live && r->count == count &&
            memcmp(r->ranks, ranks, (size_t)count * sizeof *ranks) == 0)
            return id;
    }
    return -1;
}

int32_t sets_find(struct engine *engine, const int32_t *ranks, int32_t count)
{
    pthread_mutex_lock(&engine->submit_lock);
    int32_t id = find(engine, ranks, count);
    pthread_mutex_unlock(&engine->submit_lock);
    return id;
}

bool sets_get(struct engine *engine, int32_t id, int32_t *ret_rank, int32_t *ret_size,
              int32_t *ret_ranks)
{
    if (id < 0 || id >= HVD_PROCESS_SETS_MAX)
        return false;
    const struct set_record *record = &engine->records[id];
    int32_t rank = -1;
    pthread_mutex_lock(&engine->submit_lock);
    bool is_live = record->is_live;
    for (int32_t i = 0; is_live && i < record->count; i++) {
        if (record->ranks[i] == engine->rank)
            rank = i;
        if (ret_ranks != NULL)
            ret_ranks[i] = record->ranks[i];
    }
    if (is_live && ret_size != NULL)
        *ret_size = record->count;
    if (is_live && ret_rank != NULL)
        *ret_rank = rank;
    pthread_mutex_unlock(&engine->submit_lock);
    return is_live;
}

int32_t sets_list(struct engine *engine, int32_t *ret_ids)
{
    int32_t count = 0;
    pthread_mutex_lock(&engine->submit_lock);
    for (int32_t id = 0; id < HVD_PROCESS_SETS_MAX; id++) {
        if (!engine->records[id].is_live)
            continue;
        if (ret_ids != NULL)
            ret_ids[count] = id;
        count++;
    }
    pthread_mutex_unlock(&engine->submit_lock);
    return count;
}

static hvd_status_t set_open(struct engine *engine, int32_t id, uint32_t incarnation,
                             const int32_t *ranks, int32_t count, struct error *error)
{
    struct set_record *record = &engine->records[id];
    assert(!record->is_live && engine->sets[id] == NULL && incarnation > record->incarnation);
    assert(engine->member_count < HVD_PROCESS_SETS_MAX);
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

hvd_status_t sets_open(struct engine *engine, const int32_t *const *sets, const int32_t *sizes,
                       int32_t count, struct error *error)
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
        if (find(engine, sets[i], sizes[i]) >= 0)
            continue;
        if (engine->next_set_id >= HVD_PROCESS_SETS_MAX)
            return error_set(error, HVD_ERR_LIMIT, "At most %d process sets can exist.",
                             HVD_PROCESS_SETS_MAX);
        status = set_open(engine, engine->next_set_id++, engine->next_incarnation++, sets[i],
                          sizes[i], error);
    }
    return status;
}

/* The op that requested a change is complete; its ticket has the id. */
static void change_done(struct engine *engine, uint8_t kind, int32_t id, hvd_status_t status,
                        const char *text)
{
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    for (struct op *op = global->pending_head; op != NULL; op = op->next) {
        if (op->kind != kind)
            continue;
        op->ticket->answer = id;
        complete_op(engine, op, status, text);
        return;
    }
}

int32_t sets_next_id(const struct engine *engine)
{
    return engine->free_id_count > 0 ? engine->free_ids[engine->free_id_head] : engine->next_set_id;
}

/* Ranks agree on a number before they open the set: a set that is removed in between does not
 * change it. */
static bool is_id_expected(const struct engine *engine, int32_t id)
{
    return id == engine->next_set_id || id == sets_next_id(engine);
}

static void hold(struct engine *engine, int32_t id, bool is_own)
{
    pthread_mutex_lock(&engine->submit_lock);
    engine->records[id].holds++;
    engine->records[id].own_holds += is_own;
    pthread_mutex_unlock(&engine->submit_lock);
}

/* A rank has opened a set, or failed to. If it is this rank, its call returns. */
static void opened(struct engine *engine, const struct batch *batch, int32_t id,
                   hvd_status_t status, const char *text)
{
    struct op *next;
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    bool is_own = batch->argument2 == (uint32_t)engine->rank;
    if (status == HVD_OK)
        hold(engine, id, is_own);
    if (!is_own)
        return;
    for (struct op *op = global->pending_head; op != NULL; op = next) {
        next = op->next;
        if (op->kind != KIND_SET_OPEN || op->count != batch->count ||
            memcmp(op->splits, batch->ids, (size_t)batch->count * sizeof *batch->ids) != 0)
            continue;
        op->ticket->answer = id;
        complete_op(engine, op, status, text);
    }
}

/* The other ranks use the set from now on and would wait for this rank: the job can't continue. */
static void open_failed(struct engine *engine, const struct batch *batch, hvd_status_t status,
                        const char *text)
{
    char name[160], cause[HVD_ERROR_MAX];
    engine_peer_name(engine, engine->rank, name, sizeof name);
    snprintf(cause, sizeof cause, "%s could not open process set %d of %d ranks: %.500s", name,
             sets_next_id(engine), batch->count, text);
    engine_stop(engine, status, cause, true);
}

/* The number is one that all ranks have agreed on, or each finds it by itself. */
static bool number_of(struct engine *engine, const struct batch *batch, int32_t *ret_id)
{
    struct error error;
    error_clear(&error);
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    uint32_t number = (uint32_t)batch->argument;
    *ret_id = batch->argument;
    if (number == SET_NUMBER_OPEN || number == SET_NUMBER_NEXT)
        *ret_id = sets_next_id(engine);
    else if (!is_id_expected(engine, *ret_id) || batch->argument2 != engine->next_incarnation) {
        negotiate_misbehaved(global, 0, &error,
                             "gave a new process set the number %d, which is "
                             "not free",
                             *ret_id);
        negotiate_set_broken(global, error.status, error.text, true);
        return false;
    }
    return true;
}

static void number_used(struct engine *engine, int32_t id)
{
    engine->next_incarnation++;
    if (engine->free_id_count > 0 && engine->free_ids[engine->free_id_head] == id) {
        engine->free_id_head = (engine->free_id_head + 1) % HVD_PROCESS_SETS_MAX;
        engine->free_id_count--;
    } else {
        engine->next_set_id = id + 1;
    }
}

void sets_added(struct engine *engine, const struct batch *batch)
{
    struct error error;
    error_clear(&error);
    int32_t id;
    const int32_t *ranks = (const int32_t *)batch->ids;
    bool is_open = (uint32_t)batch->argument == SET_NUMBER_OPEN;
    if (engine->promised_sets > 0)
        engine->promised_sets--;
    if (!number_of(engine, batch, &id))
        return;
    hvd_status_t status = sets_check(engine, ranks, batch->count, &error);
    int32_t known = status == HVD_OK ? find(engine, ranks, batch->count) : -1;
    if (known >= 0 && is_open) {
        opened(engine, batch, known, HVD_OK, "");
        return;
    }
    if (known >= 0)
        status = error_set(&error, HVD_ERR_DUPLICATE, "Attempted to add a duplicate process set.");
    if (status == HVD_OK && (id < 1 || id >= HVD_PROCESS_SETS_MAX))
        status = error_set(&error, HVD_ERR_LIMIT, "At most %d process sets can exist.",
                           HVD_PROCESS_SETS_MAX);
    if (status == HVD_OK)
        status = set_open(engine, id, engine->next_incarnation, ranks, batch->count, &error);
    if (status == HVD_ERR_NO_MEMORY || status == HVD_ERR_OS || status <= HVD_ERR_LINK) {
        open_failed(engine, batch, status, error.text);
        return;
    }
    if (status == HVD_OK) {
        engine->records[id].is_opened = is_open;
        number_used(engine, id);
    }
    if (is_open)
        opened(engine, batch, id, status, error.text);
    else
        change_done(engine, KIND_SET_ADD, id, status, error.text);
    control_replay(engine);
}

/* Handles that outlive their set must not access it. */
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

/* A removed set is freed when no copy is running for it. */
void sets_sweep(struct engine *engine)
{
    for (int32_t i = engine->member_count - 1; i >= 0; i--)
        if (engine->members[i]->is_removed && !execute_is_active(engine->members[i]))
            set_close(engine, engine->members[i]);
}

static void set_remove(struct engine *engine, int32_t id)
{
    struct procset *set = engine->sets[id];
    pthread_mutex_lock(&engine->submit_lock);
    engine->sets[id] = NULL;
    engine->records[id].is_live = false;
    pthread_mutex_unlock(&engine->submit_lock);
    assert(engine->free_id_count < HVD_PROCESS_SETS_MAX);
    engine->free_ids[(engine->free_id_head + engine->free_id_count++) % HVD_PROCESS_SETS_MAX] = id;
    if (set != NULL) {
        submit_drain(engine); /* ops submitted before the set was removed fail with it */
        execute_abort(set);
        pthread_mutex_lock(&engine->submit_lock);
        if (set->broken == HVD_OK) {
            set->broken = HVD_ERR_ABORTED;
            snprintf(set->broken_text, sizeof set->broken_text, "%s", REMOVED_TEXT);
        }
        pthread_mutex_unlock(&engine->submit_lock);
        complete_pending(set, HVD_ERR_ABORTED, REMOVED_TEXT);
        set->is_removed = true;
        engine->backend->ops->group_close(engine->backend, set->backend_group);
        set->backend_group = NULL; /* the id may be reused at once, for another set */
        sets_sweep(engine);
    }
}

static bool is_live(const struct engine *engine, int32_t id)
{
    return id >= 1 && id < HVD_PROCESS_SETS_MAX && engine->records[id].is_live;
}

void sets_removed(struct engine *engine, int32_t id)
{
    bool is_known = is_live(engine, id);
    if (is_known)
        set_remove(engine, id);
    change_done(engine, KIND_SET_REMOVE, is_known ? id : -1, HVD_OK, "");
}

bool sets_hold_drop(struct engine *engine, int32_t id, uint32_t *ret_incarnation)
{
    if (id < 0 || id >= HVD_PROCESS_SETS_MAX || !engine->records[id].is_live ||
        engine->records[id].own_holds == 0)
        return false;
    engine->records[id].own_holds--;
    *ret_incarnation = engine->records[id].incarnation;
    return true;
}

void sets_closed(struct engine *engine, const struct batch *batch)
{
    int32_t id = batch->argument;
    struct op *next;
    struct procset *global = engine->sets[HVD_PROCESS_SET_GLOBAL];
    /* The set may have been removed since, and its number used again. */
    if (is_live(engine, id) && engine->records[id].incarnation == batch->ids[0]) {
        struct set_record *record = &engine->records[id];
        pthread_mutex_lock(&engine->submit_lock);
        record->holds -= record->holds > 0;
        bool is_unused = record->holds == 0 && record->is_opened;
        pthread_mutex_unlock(&engine->submit_lock);
        if (is_unused)
            set_remove(engine, id);
    }
    for (struct op *op = global->pending_head; op != NULL; op = next) {
        next = op->next;
        if (op->kind == KIND_SET_CLOSE && batch->argument2 == (uint32_t)engine->rank &&
            op->splits[0] == id && (uint32_t)op->splits[1] == batch->ids[0])
            complete_op(engine, op, HVD_OK, "");
    }
}

void sets_destroy(struct engine *engine)
{
    while (engine->member_count > 0)
        set_close(engine, engine->members[engine->member_count - 1]);
    for (int32_t i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        os_free(engine->os, engine->records[i].ranks);
}
