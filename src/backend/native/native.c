/* SPDX-License-Identifier: Apache-2.0 */
/* native.c - the native backend: hands each group's collectives to the half that fits it, host.c
 * where all members see each other's memory, net.c otherwise.
 *
 * Thread: token holder.  Owner: struct world.  Start reading at group_open(). */
#include "backend/native/native.h"

struct native {
    struct backend base;
    const struct config *config;
    struct native_routes routes;
};

struct backend_group {
    struct host_coll *host; /* one of the two */
    struct net_coll *net;
};

static hvd_status_t group_open(struct backend *b, const struct group *group,
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
    *ret = g;
    return HVD_OK;
}

static void group_close(struct backend *b, struct backend_group *g)
{
    if (g == NULL)
        return;
    host_coll_destroy(g->host);
    net_coll_destroy(g->net);
    os_free(b->os, g);
}

static hvd_status_t start(struct backend *b, struct backend_group *g, const struct coll *coll,
                          struct error *error)
{
    (void)b;
    return g->host != NULL ? host_coll_start(g->host, coll, error)
                           : net_coll_start(g->net, coll, error);
}

static hvd_status_t progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                             struct error *error)
{
    (void)b;
    return g->host != NULL ? host_coll_progress(g->host, ret_moved, error)
                           : net_coll_progress(g->net, ret_moved, error);
}

static void reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    (void)b;
    if (g->host != NULL)
        host_coll_reset(g->host, base);
    else
        net_coll_reset(g->net, base);
}

/* The names that users' tools know. */
static const char *activity(const struct backend_group *g, hvd_kind_t kind)
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

static void destroy(struct backend *b)
{
    if (b != NULL)
        os_free(b->os, b);
}

static const struct backend_ops native_ops = {.version = BACKEND_VERSION,
                                              .name = "native",
                                              .group_open = group_open,
                                              .group_close = group_close,
                                              .start = start,
                                              .progress = progress,
                                              .reset = reset,
                                              .activity = activity,
                                              .destroy = destroy};

hvd_status_t native_create(const struct os *os, const struct config *config,
                           const struct native_routes *routes, struct backend **ret,
                           struct error *error)
{
    struct native *native = os_alloc(os, sizeof *native);
    if (native == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    native->base = (struct backend){.ops = &native_ops, .os = os};
    native->config = config;
    native->routes = *routes;
    *ret = &native->base;
    return HVD_OK;
}
