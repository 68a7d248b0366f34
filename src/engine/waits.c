/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - see waits.h. */
#include "engine/waits.h"

#include <assert.h>
#include <stdio.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"

#define NAMES_MAX 6 /* of ranks in a text */

/* The cursor: slots of the coordinator's map of names, then of the table of ids, then the join. */
#define AT_JOIN SIZE_MAX

static bool has_join(const struct coordinator *c)
{
    return c != NULL && c->joined_count > 0 && c->joined_count < c->set->size;
}

static void wait_of_pending(const struct pending *pending, struct wait *ret)
{
    *ret = (struct wait){.pending = pending,
                         .name = pending->name,
                         .since_ns = pending->first_ns,
                         .number = pending->number};
}

static bool has_bit(const uint8_t *bits, int32_t i)
{
    return (bits[i / 8] >> (i % 8) & 1) != 0;
}

/* Announcements by id do not carry how long an op has waited; for our own, which is pending, we
 * know. */
static void wait_of_entry(const struct procset *set, const struct entry *entry, struct wait *ret)
{
    *ret = (struct wait){.entry = entry, .name = entry->name, .since_ns = entry->first_ready_ns};
    if (has_bit(entry->ready_bits, set->child_count) &&
        entry->tensor->op->submit_ns < ret->since_ns)
        ret->since_ns = entry->tensor->op->submit_ns;
}

static void wait_of_join(const struct coordinator *c, struct wait *ret)
{
    *ret = (struct wait){.name = WAITS_JOIN_NAME, .since_ns = c->moved_ns};
}

bool waits_is_before(const struct wait *a, const struct wait *b)
{
    return a->since_ns != b->since_ns ? a->since_ns < b->since_ns : a->number < b->number;
}

/* No rank is missing for an entry in a batch: a rank that announces it again is only faster. */
static bool is_partial(const struct procset *set, const struct entry *entry)
{
    return entry->ready_count > 0 && entry->ready_count <= set->child_count && entry->queued == 0 &&
           !entry->is_forgotten;
}

bool waits_next(const struct procset *set, size_t *cursor, struct wait *ret)
{
    const struct coordinator *c = set->coordinator;
    size_t first_id = c != NULL ? c->pending.capacity : 0;
    if (*cursor == AT_JOIN || set->broken != HVD_OK) /* ops that are announced are pending */
        return false;
    if (*cursor < first_id) {
        const struct pending *p = map_next(&c->pending, cursor);
        if (p != NULL) {
            wait_of_pending(p, ret);
            return true;
        }
        *cursor = first_id;
    }
    while (set->child_count > 0 && *cursor - first_id < set->id_capacity) {
        const struct entry *entry = set->ids[(*cursor)++ - first_id];
        if (entry != NULL && is_partial(set, entry)) {
            wait_of_entry(set, entry, ret);
            return true;
        }
    }
    *cursor = AT_JOIN;
    if (!has_join(c))
        return false;
    wait_of_join(c, ret);
    return true;
}

bool waits_of_op(const struct procset *set, const struct op *op, struct wait *ret)
{
    const struct coordinator *c = set->coordinator;
    const struct tensor *tensor = op->tensor;
    if (op->kind == HVD_JOIN) {
        if (has_join(c))
            wait_of_join(c, ret);
        return has_join(c);
    }
    const struct pending *pending =
        c != NULL ? map_get(&c->pending, tensor->name, tensor->name_bytes) : NULL;
    if (pending != NULL)
        wait_of_pending(pending, ret);
    else if (tensor->entry != NULL && is_partial(set, tensor->entry))
        wait_of_entry(set, tensor->entry, ret);
    else
        return false;
    return true;
}

static enum waits_word entry_member(const struct procset *set, const struct entry *entry,
                                    int32_t index)
{
    int32_t child = index == set->self ? set->child_count : set->via[index];
    if (child < 0)
        return WAITS_UNKNOWN;
    if (has_bit(entry->ready_bits, child))
        return WAITS_PRESENT;
    return child == set->child_count || set->child_members[child] == 1 ? WAITS_MISSING
                                                                       : WAITS_UNSURE;
}

enum waits_word waits_member(const struct procset *set, const struct wait *w, int32_t index)
{
    assert(index >= 0 && index < set->size);
    if (set->coordinator != NULL && set->coordinator->joined[index])
        return WAITS_PRESENT;
    if (w->entry != NULL)
        return entry_member(set, w->entry, index);
    return w->pending != NULL && has_bit(w->pending->present, index) ? WAITS_PRESENT
                                                                     : WAITS_MISSING;
}

bool waits_is_exact(const struct procset *set, const struct wait *w)
{
    for (int32_t i = 0; w->entry != NULL && i < set->child_count; i++)
        if (set->child_members[i] > 1 && !has_bit(w->entry->ready_bits, i))
            return false;
    return true;
}

int32_t waits_first_missing(const struct procset *set, const struct wait *w)
{
    for (int32_t i = 0; i < set->size; i++)
        if (waits_member(set, w, i) == WAITS_MISSING)
            return set->ranks[i];
    return -1;
}

void waits_text(const struct procset *set, const struct wait *w, char *ret, size_t bytes)
{
    size_t at = 0;
    int32_t told = 0, all = 0;
    ret[0] = '\0';
    for (int32_t i = 0; i < set->size; i++) {
        char name[160];
        if (waits_member(set, w, i) != WAITS_MISSING)
            continue;
        all++;
        if (told == NAMES_MAX || at >= bytes)
            continue;
        engine_peer_name(set->engine, set->ranks[i], name, sizeof name);
        int n = snprintf(ret + at, bytes - at, "%s%s", told > 0 ? ", " : "", name);
        at += n > 0 ? (size_t)n : 0;
        told++;
    }
    if (all > told && at < bytes)
        snprintf(ret + at, bytes - at, " and %d more", all - told);
}
