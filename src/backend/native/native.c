/* SPDX-License-Identifier: Apache-2.0 */
/* native.c - the native backend: passes each group's collectives to the half that fits it, host.c
 * if all members share memory, net.c otherwise.
 *
 * Thread: token holder.  Owner: struct world.  Start reading at native_group_open(). */
#include "backend/native/native.h"
#include "transport/shm/shm.h"

struct native {
    struct backend base;
    const struct config *config;
    struct native_routes routes;
    struct backend_group *groups;
};

struct backend_group {
    struct backend_group *next;
    struct host_coll *host; /* one of the two */
    struct net_coll *net;
};

#define SCORE 10 /* backends made for specific memory or networks come first */

static int32_t native_score(const struct backend *b, const struct group *group,
                            const struct backend_ask *ask)
{
    (void)b, (void)group;
    return ask->memory == 0 ? SCORE : -1;
}

static hvd_status_t native_group_open(struct backend *b, const struct group *group,
                                      struct backend_group **ret, struct error *error)
{
    struct native *native = (struct native *)b;
    struct backend_group *g = os_alloc(b->os, sizeof *g);
    if (g == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    hvd_status_t status;
    if (group->is_one_host && group->size > 1)
        status =
            host_coll_create(b->os, native->config, native->routes.shm, group, &g->host, error);
    else
        status = net_coll_create(b->os, native->config, &native->routes, group, &g->net, error);
    if (status != HVD_OK) {
        os_free(b->os, g);
        return status;
    }
    g->next = native->groups;
    native->groups = g;
    *ret = g;
    return HVD_OK;
}

static void native_group_close(struct backend *b, struct backend_group *g)
{
    if (g == NULL)
        return;
    struct backend_group **at = &((struct native *)b)->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    host_coll_destroy(g->host);
    net_coll_destroy(g->net);
    os_free(b->os, g);
}

static hvd_status_t native_start(struct backend *b, struct backend_group *g,
                                 const struct coll *coll, struct error *error)
{
    (void)b;
    if (coll->memory != 0)
        return error_set(error, HVD_ERR_UNSUPPORTED, "memory of kind %d is out of the host's reach",
                         (int)coll->memory);
    return g->host != NULL ? host_coll_start(g->host, coll, error)
                           : net_coll_start(g->net, coll, error);
}

static hvd_status_t native_progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                                    struct error *error)
{
    (void)b;
    return g->host != NULL ? host_coll_progress(g->host, ret_moved, error)
                           : net_coll_progress(g->net, ret_moved, error);
}

/* ---- memory of a cancelled collective ---- */

static const struct coll *open_to_peers(const struct backend_group *g)
{
    return g->host != NULL ? host_coll_open_to_peers(g->host) : net_coll_open_to_peers(g->net);
}

static bool is_in_arena(struct shm *shm, const void *ptr)
{
    return shm != NULL && shm_offset(shm, ptr, 1) != UINT64_MAX;
}

static bool shares_page(struct shm *shm, const struct coll *a, const struct coll *b)
{
    uintptr_t page = shm != NULL ? (uintptr_t)shm_page_bytes(shm) : 1;
    size_t a_element = hvd_dtype_bytes(a->dtype), b_element = hvd_dtype_bytes(b->dtype);
    for (int32_t i = 0; i < a->part_count; i++)
        for (int32_t k = 0; k < b->part_count; k++) {
            uintptr_t at = (uintptr_t)a->parts[i].out / page * page;
            uintptr_t end = (uintptr_t)a->parts[i].out + a->parts[i].count * a_element;
            uintptr_t other = (uintptr_t)b->parts[k].out;
            uintptr_t other_end = other + b->parts[k].count * b_element;
            if (other_end > at && other < (end + page - 1) / page * page &&
                is_in_arena(shm, b->parts[k].out))
                return true;
        }
    return false;
}

/* Pages of a cancelled collective are withdrawn from the arena. If another group's collective has a
 * result in one of them, that is lost with the page. */
static void neighbours_doom(const struct native *native, const struct backend_group *g)
{
    const struct coll *lost = open_to_peers(g);
    if (lost == NULL || lost->kind != HVD_ALLREDUCE)
        return;
    for (struct backend_group *o = native->groups; o != NULL; o = o->next) {
        const struct coll *coll = o != g ? open_to_peers(o) : NULL;
        if (coll == NULL || coll->kind != HVD_ALLREDUCE ||
            !shares_page(native->routes.shm, lost, coll))
            continue;
        static const char why[] = "a result lies in the same page of memory as one of another "
                                  "process set's collective, which has failed";
        if (o->host != NULL)
            host_coll_doom(o->host, why);
        else
            net_coll_doom(o->net, why);
    }
}

static void native_reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    if (base == BACKEND_BASE_LAST)
        neighbours_doom((struct native *)b, g);
    if (g->host != NULL)
        host_coll_reset(g->host, base);
    else
        net_coll_reset(g->net, base);
}

/* Across machines it is not known here: a transfer waits for its peer, and that peer for others. */
static bool native_awaits(const struct backend_group *g, int32_t index)
{
    return g->host != NULL && host_coll_awaits(g->host, index);
}

/* The names that users' tools know. */
static const char *native_activity(const struct backend_group *g, hvd_kind_t kind)
{
    (void)g;
    switch (kind) {
    case HVD_ALLREDUCE: return "GLOO_ALLREDUCE";
    case HVD_ALLGATHER: return "GLOO_ALLGATHER";
    case HVD_BROADCAST: return "GLOO_BCAST";
    case HVD_ALLTOALL: return "MPI_ALLTOALL";
    case HVD_REDUCESCATTER: return "GLOO_REDUCESCATTER";
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: return "BARRIER";
    }
    return "";
}

static void way_add(const struct native_way *way, int64_t now_ns, struct backend_load *ret)
{
    ret->bytes += way->load.bytes;
    ret->ns += way->load.ns + (way->active > 0 ? now_ns - way->since_ns : 0);
}

static void native_load(const struct backend *b, int32_t rank, struct backend_load *ret_sent,
                        struct backend_load *ret_received)
{
    const struct native_link *link = &((const struct native *)b)->routes.links[rank];
    int64_t now_ns = os_now_ns(b->os);
    way_add(&link->sent, now_ns, ret_sent);
    way_add(&link->received, now_ns, ret_received);
}

static void native_destroy(struct backend *b)
{
    if (b == NULL)
        return;
    os_free(b->os, ((struct native *)b)->routes.links);
    os_free(b->os, b);
}

static const struct backend_ops native_ops = {.version = BACKEND_VERSION,
                                              .name = "native",
                                              .score = native_score,
                                              .group_open = native_group_open,
                                              .group_close = native_group_close,
                                              .start = native_start,
                                              .progress = native_progress,
                                              .reset = native_reset,
                                              .activity = native_activity,
                                              .awaits = native_awaits,
                                              .load = native_load,
                                              .destroy = native_destroy};

hvd_status_t native_create(const struct os *os, const struct config *config,
                           const struct native_routes *routes, struct backend **ret,
                           struct error *error)
{
    struct native *native = os_alloc(os, sizeof *native);
    struct native_link *links = os_alloc(os, (size_t)routes->world_size * sizeof *links);
    if (native == NULL || links == NULL) {
        os_free(os, native);
        os_free(os, links);
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    }
    native->base = (struct backend){.ops = &native_ops, .os = os};
    native->config = config;
    native->routes = *routes;
    native->routes.links = links;
    *ret = &native->base;
    return HVD_OK;
}

/* ---- the row ---- */

static bool probe(const struct backend_place *place, char *ret_why)
{
    (void)place, (void)ret_why;
    return true;
}

static hvd_status_t row_create(const struct backend_place *place, struct backend **ret,
                               struct error *error)
{
    struct native_routes routes = {.routes = place->routes,
                                   .world_size = place->size,
                                   .self_rank = place->rank,
                                   .shm = shm_of(place->sight)};
    return native_create(place->os, place->config, &routes, ret, error);
}

const struct backend_row native_row = {.name = "native", .probe = probe, .create = row_create};
