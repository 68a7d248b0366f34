/* SPDX-License-Identifier: Apache-2.0 */
/* links.c - see links.h. */
#include "api/links.h"

#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static bool allocate(struct links *l)
{
    const struct os *os = l->place.os;
    size_t n = (size_t)l->place.size;
    l->chosen = os_alloc(os, n * sizeof *l->chosen);
    l->routes = os_alloc(os, n * sizeof *l->routes);
    l->host = os_alloc(os, n * sizeof *l->host);
    l->names = os_alloc(os, n * sizeof *l->names);
    return l->chosen != NULL && l->routes != NULL && l->host != NULL && l->names != NULL;
}

/* Nothing listens on the network if another transport is certain to reach all ranks. */
static bool is_needless(const struct links *l, const struct transport_row *row)
{
    for (int32_t i = 0; row->is_exposed && l->rows[i] != NULL; i++)
        if (l->open[i] != NULL && l->rows[i]->is_enough != NULL && l->rows[i]->is_enough(&l->place))
            return true;
    return false;
}

static bool is_worth_opening(struct links *l, int32_t i)
{
    const struct transport_row *row = l->rows[i];
    if (is_needless(l, row)) {
        snprintf(l->why[i], WHY_MAX, "Not needed: another transport reaches every rank.");
        return false;
    }
    return row->probe(&l->place, l->why[i]);
}

hvd_status_t links_open(struct links *l, const struct transport_row *const *rows,
                        const struct transport_place *place, const struct log *log,
                        struct endpoint *self, struct error *error)
{
    hvd_status_t status = HVD_OK;
    l->place = *place;
    l->rows = rows != NULL ? rows : transport_table;
    if (!allocate(l))
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    /* Transports that do not listen come first: they decide whether the rest is needed. */
    for (int exposed = 0; exposed < 2 && place->size > 1; exposed++)
        for (int32_t i = 0; status == HVD_OK && i < TRANSPORTS_MAX && l->rows[i] != NULL; i++) {
            if (l->rows[i]->is_exposed != (exposed == 1))
                continue;
            if (is_worth_opening(l, i))
                status = l->rows[i]->open(place, self, &l->open[i], error);
            else
                LOG_AT(log, LOG_DEBUG, "The transport %s is not opened: %s", l->rows[i]->name,
                       l->why[i]);
            if (l->rows[i]->is_sight && l->sight == NULL)
                l->sight = l->open[i];
        }
    return status;
}

/* ---- choosing ---- */

static void name_peers(struct links *l, const struct endpoint *all)
{
    for (int32_t i = 0; i < l->place.size; i++)
        snprintf(l->names[i], sizeof l->names[i], "rank %d (pid %d on %.48s)", i, all[i].pid,
                 all[i].host_name);
}

/* A rank has the number of the first rank before it with which a transport shares memory. */
static void number_hosts(struct links *l, const struct endpoint *all)
{
    int32_t count = 0;
    for (int32_t i = 0; i < l->place.size; i++) {
        int32_t known = -1;
        for (int32_t k = 0; k < i && known < 0; k++) {
            if (all[i].host_id[0] == '\0' || strcmp(all[k].host_id, all[i].host_id) != 0)
                continue;
            const struct transport_row *row = transports_choose(l->rows, &all[k], &all[i]);
            if (row != NULL && row->is_sight)
                known = l->host[k];
        }
        l->host[i] = known >= 0 ? known : count++;
    }
}

static hvd_status_t fail_unlinked(const struct links *l, const struct endpoint *all, int32_t peer,
                                  struct error *error)
{
    char ours[96], theirs[96], reasons[600] = "";
    const char *hint = NULL;
    size_t used = 0;
    endpoint_list(&all[l->place.rank], ours, sizeof ours);
    endpoint_list(&all[peer], theirs, sizeof theirs);
    for (int32_t i = 0; l->rows[i] != NULL; i++) {
        if (l->open[i] != NULL && hint == NULL)
            hint = l->rows[i]->hint;
        if (l->open[i] == NULL && used < sizeof reasons)
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, " %s: %s",
                                     l->rows[i]->name, l->why[i]);
    }
    return error_set(error, HVD_ERR_LINK,
                     "%s %s but no transport links it with this rank. This rank offers %s, that "
                     "one %s.%s %s",
                     l->names[peer],
                     l->place.is_one_host ? "was started as if on this host," : "is in this job,",
                     ours, theirs, reasons, hint != NULL ? hint : "");
}

static int32_t row_index(const struct links *l, const struct transport_row *row)
{
    int32_t i = 0;
    while (l->rows[i] != row)
        i++;
    return i;
}

/* Does it link any pair of ranks? Usually this rank's own pairs decide. */
static bool is_used_by_any(const struct links *l, const struct endpoint *all,
                           const struct transport_row *row)
{
    for (int32_t i = 0; i < l->place.size; i++)
        for (int32_t k = 0; k < i; k++)
            if (transports_choose(l->rows, &all[k], &all[i]) == row)
                return true;
    return false;
}

hvd_status_t links_choose(struct links *l, const struct endpoint *all, struct error *error)
{
    hvd_status_t status = HVD_OK;
    int32_t self = l->place.rank;
    name_peers(l, all);
    for (int32_t i = 0; status == HVD_OK && i < l->place.size; i++)
        status = transports_check(l->rows, &all[i], error);
    if (status != HVD_OK)
        return status;
    number_hosts(l, all);
    for (int32_t i = 0; i < l->place.size; i++) {
        if (i == self)
            continue;
        l->chosen[i] = transports_choose(l->rows, &all[self], &all[i]);
        if (l->chosen[i] == NULL || l->open[row_index(l, l->chosen[i])] == NULL)
            return fail_unlinked(l, all, i, error);
        l->has_peers[row_index(l, l->chosen[i])] = true;
    }
    for (int32_t i = 0; i < TRANSPORTS_MAX && l->rows[i] != NULL; i++)
        l->is_used[i] = l->open[i] != NULL && (l->has_peers[i] || !l->rows[i]->is_collective ||
                                               is_used_by_any(l, all, l->rows[i]));
    return HVD_OK;
}

/* ---- connecting ---- */

hvd_status_t links_connect(struct links *l, const struct transport_meeting *meeting,
                           struct error *error)
{
    const struct os *os = l->place.os;
    hvd_status_t status = HVD_OK;
    bool *wanted = os_alloc(os, (size_t)l->place.size * sizeof *wanted);
    if (wanted == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (int32_t i = 0; status == HVD_OK && i < TRANSPORTS_MAX && l->rows[i] != NULL; i++) {
        if (!l->is_used[i])
            continue;
        for (int32_t rank = 0; rank < l->place.size; rank++)
            wanted[rank] = l->chosen[rank] == l->rows[i];
        status = l->rows[i]->connect(l->open[i], meeting, wanted, error);
        for (int32_t rank = 0; status == HVD_OK && rank < l->place.size; rank++)
            if (wanted[rank])
                l->routes[rank] = l->open[i];
    }
    os_free(os, wanted);
    return status;
}

int32_t links_list(const struct links *l, struct transport **ret, int32_t max)
{
    int32_t count = 0;
    for (int32_t i = 0; i < TRANSPORTS_MAX && count < max; i++)
        if (l->has_peers[i])
            ret[count++] = l->open[i];
    return count;
}

void links_destroy(struct links *l)
{
    const struct os *os = l->place.os;
    if (os == NULL)
        return;
    for (int32_t i = TRANSPORTS_MAX - 1; i >= 0; i--)
        if (l->open[i] != NULL)
            l->open[i]->ops->destroy(l->open[i]);
    os_free(os, l->chosen);
    os_free(os, l->routes);
    os_free(os, l->host);
    os_free(os, l->names);
    memset(l, 0, sizeof *l);
}
