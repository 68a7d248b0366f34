/* SPDX-License-Identifier: Apache-2.0 */
/* backends.c - see backends.h: the table, and a backend that passes each collective to the best of
 * several.
 *
 * Thread: token holder.  Owner: struct world.  Start reading at choice_start(). */
#include "backend/backends.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/mpi/mpi_backend.h"
#include "backend/native/native.h"

const struct backend_row *const backend_table[] = {&native_row, &mpi_backend_row, NULL};

_Static_assert(sizeof backend_table / sizeof *backend_table <= BACKENDS_MAX + 1, "room for all");

struct choice {
    struct backend base;
    struct backend *members[BACKENDS_MAX];
    int32_t count;
};

struct backend_group {
    struct group group;
    const struct choice *choice;
    struct backend_group *groups[BACKENDS_MAX]; /* NULL: this member does not serve the group */
    bool is_open[BACKENDS_MAX];
    int32_t running; /* which member has the collective in progress */
};

/* ---- choosing ---- */

struct backend_ask backends_ask(const struct group *group, const struct coll *coll)
{
    struct backend_ask ask = {.kind = coll->kind,
                              .dtype = coll->dtype,
                              .reduce = coll->reduce,
                              .wire = coll->wire,
                              .memory = coll->memory};
    size_t members = (size_t)group->size;
    uint64_t count = 0;
    switch (coll->kind) {
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
        for (int32_t p = 0; p < coll->part_count; p++)
            count += coll->parts[p].count;
        break;
    case HVD_ALLGATHER:
    case HVD_REDUCESCATTER:
        for (size_t i = 0; i < (size_t)coll->part_count * members; i++)
            count += coll->counts[i];
        break;
    case HVD_ALLTOALL: /* a member knows its own counts only */
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    ask.bytes = count * hvd_dtype_bytes(coll->dtype);
    return ask;
}

int32_t backends_choose(struct backend *const *members, const bool *is_open, int32_t count,
                        const struct group *group, const struct backend_ask *ask)
{
    int32_t best = -1, best_score = -1;
    for (int32_t i = 0; i < count; i++) {
        const struct backend_ops *ops = members[i]->ops;
        if (is_open != NULL && !is_open[i])
            continue;
        int32_t score = ops->score != NULL ? ops->score(members[i], group, ask) : 0;
        if (score < 0 || score < best_score ||
            (score == best_score && strcmp(ops->name, members[best]->ops->name) > 0))
            continue;
        best = i;
        best_score = score;
    }
    return best;
}

/* ---- the table ---- */

static void choice_group_close(struct backend *b, struct backend_group *g)
{
    struct choice *c = (struct choice *)b;
    if (g == NULL)
        return;
    for (int32_t i = c->count - 1; i >= 0; i--)
        if (g->is_open[i])
            c->members[i]->ops->group_close(c->members[i], g->groups[i]);
    os_free(b->os, g);
}

static hvd_status_t choice_group_open(struct backend *b, const struct group *group,
                                      struct backend_group **ret, struct error *error)
{
    struct choice *c = (struct choice *)b;
    struct backend_group *g = os_alloc(b->os, sizeof *g);
    if (g == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    g->group = *group;
    g->choice = c;
    for (int32_t i = 0; i < c->count; i++) {
        struct error why = {0};
        hvd_status_t status =
            c->members[i]->ops->group_open(c->members[i], group, &g->groups[i], &why);
        g->is_open[i] = status == HVD_OK;
        if (status == HVD_OK || status == HVD_ERR_UNSUPPORTED)
            continue;
        choice_group_close(b, g);
        return error_set(error, status, "%s", why.text);
    }
    *ret = g;
    return HVD_OK;
}

static hvd_status_t choice_start(struct backend *b, struct backend_group *g,
                                 const struct coll *coll, struct error *error)
{
    struct choice *c = (struct choice *)b;
    struct backend_ask ask = backends_ask(&g->group, coll);
    int32_t best = backends_choose(c->members, g->is_open, c->count, &g->group, &ask);
    if (best < 0)
        return error_set(error, HVD_ERR_UNSUPPORTED,
                         "no backend of this job runs a collective of this kind (%d) on %s in "
                         "memory of kind %d",
                         (int)coll->kind, hvd_dtype_name(coll->dtype), (int)coll->memory);
    g->running = best;
    return c->members[best]->ops->start(c->members[best], g->groups[best], coll, error);
}

static hvd_status_t choice_progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                                    struct error *error)
{
    struct backend *member = ((struct choice *)b)->members[g->running];
    return member->ops->progress(member, g->groups[g->running], ret_moved, error);
}

/* Numbers continue from `base` in all of them: any may be the next. */
static void choice_reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    struct choice *c = (struct choice *)b;
    for (int32_t i = 0; i < c->count; i++)
        if (g->is_open[i])
            c->members[i]->ops->reset(c->members[i], g->groups[i], base);
}

/* Of the member that most collectives of this kind go to. */
static const char *choice_activity(const struct backend_group *g, hvd_kind_t kind)
{
    const struct choice *c = g->choice;
    struct backend_ask ask = {.kind = kind, .dtype = HVD_FLOAT32, .reduce = HVD_SUM};
    int32_t best = backends_choose(c->members, g->is_open, c->count, &g->group, &ask);
    return best >= 0 ? c->members[best]->ops->activity(g->groups[best], kind) : "";
}

static void choice_destroy(struct backend *b)
{
    struct choice *c = (struct choice *)b;
    if (b == NULL)
        return;
    for (int32_t i = c->count - 1; i >= 0; i--)
        c->members[i]->ops->destroy(c->members[i]);
    os_free(b->os, c);
}

static int64_t choice_poll_ns(struct backend *b)
{
    const struct choice *c = (const struct choice *)b;
    int64_t soonest = INT64_MAX;
    for (int32_t i = 0; i < c->count; i++) {
        struct backend *member = c->members[i];
        int64_t ns = member->ops->poll_ns != NULL ? member->ops->poll_ns(member) : INT64_MAX;
        soonest = ns < soonest ? ns : soonest;
    }
    return soonest;
}

static bool choice_awaits(const struct backend_group *g, int32_t index)
{
    const struct backend_ops *ops = g->choice->members[g->running]->ops;
    return ops->awaits != NULL && ops->awaits(g->groups[g->running], index);
}

static void choice_load(const struct backend *b, int32_t rank, struct backend_load *ret_sent,
                        struct backend_load *ret_received)
{
    const struct choice *c = (const struct choice *)b;
    for (int32_t i = 0; i < c->count; i++)
        if (c->members[i]->ops->load != NULL)
            c->members[i]->ops->load(c->members[i], rank, ret_sent, ret_received);
}

static const struct backend_ops choice_ops = {.version = BACKEND_VERSION,
                                              .name = "choice",
                                              .group_open = choice_group_open,
                                              .group_close = choice_group_close,
                                              .start = choice_start,
                                              .progress = choice_progress,
                                              .reset = choice_reset,
                                              .activity = choice_activity,
                                              .destroy = choice_destroy,
                                              .poll_ns = choice_poll_ns,
                                              .awaits = choice_awaits,
                                              .load = choice_load};

/* ---- making ---- */

bool backends_is_missing(const struct backend_row *const *rows, const struct backend_place *place,
                         const char *name, char ret_why[WHY_MAX])
{
    for (; *rows != NULL; rows++)
        if (strcasecmp((*rows)->name, name) == 0)
            return !(*rows)->probe(place, ret_why);
    return false;
}

static hvd_status_t members_create(struct choice *c, const struct backend_row *const *rows,
                                   const struct backend_place *place, struct error *error)
{
    char why[WHY_MAX] = "The table of backends is empty.";
    for (; *rows != NULL && c->count < BACKENDS_MAX; rows++) {
        struct backend *member = NULL;
        if (!(*rows)->probe(place, why))
            continue;
        hvd_status_t status = (*rows)->create(place, &member, error);
        if (status != HVD_OK)
            return status;
        c->members[c->count++] = member;
        c->base.is_final |= member->is_final;
        c->base.is_one_thread |= member->is_one_thread;
    }
    return c->count > 0
               ? HVD_OK
               : error_set(error, HVD_ERR_CONFIG,
                           "No backend can run collectives here. The last one tried: %s", why);
}

hvd_status_t backends_create(const struct backend_row *const *rows,
                             const struct backend_place *place, struct backend **ret,
                             struct error *error)
{
    struct choice *c = os_alloc(place->os, sizeof *c);
    if (c == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    c->base = (struct backend){.ops = &choice_ops, .os = place->os};
    hvd_status_t status = members_create(c, rows, place, error);
    if (status != HVD_OK) {
        choice_destroy(&c->base);
        return status;
    }
    *ret = &c->base;
    if (c->count == 1) { /* the usual case pays nothing for the selection */
        *ret = c->members[0];
        os_free(place->os, c);
    }
    return HVD_OK;
}
