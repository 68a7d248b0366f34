/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_backend.c - see mpi_backend.h: the table, and a communicator for each group.
 *
 * A group's communicator is made when the group is, which all its members do at the same place in
 * the order of things that they have agreed on. That blocks until the last of them is there.
 *
 * Thread: token holder.  Owner: struct world.  Start reading at group_open(). */
#include "backend/mpi/mpi_backend.h"

#define GROUP_TAG 32 /* above the transport's own small numbers */
#define TAG_COUNT 16384

struct mpi_backend {
    struct backend base;
    struct mpi_backend_options options;
    struct mpi_ops ops;
};

struct backend_group {
    struct backend_group *fallback; /* every group has one */
    struct mpi_coll *coll;          /* NULL: all goes to the fallback */
    mpi_handle_t comm;
    bool is_fallen_back;
};

static struct mpi_backend *of(struct backend *b)
{
    return (struct mpi_backend *)b;
}

static hvd_status_t comm_make(struct mpi_backend *m, const struct group *group, mpi_handle_t *ret,
                              struct error *error)
{
    const struct mpi_lib *lib = m->options.lib;
    int *ranks = os_alloc(m->base.os, (size_t)group->size * sizeof *ranks);
    if (ranks == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (int32_t i = 0; i < group->size; i++)
        ranks[i] = group->ranks[i];
    int code = lib->abi->comm_create_group(lib, m->options.comm, ranks, group->size,
                                           GROUP_TAG + group->set_id % TAG_COUNT, ret);
    os_free(m->base.os, ranks);
    if (code != 0)
        return mpi_lib_error(lib, "MPI_Comm_create_group", code, error);
    return mpi_lib_error(lib, "MPI_Comm_set_errhandler", lib->abi->comm_errors_return(lib, *ret),
                         error);
}

static void group_close(struct backend *b, struct backend_group *g)
{
    struct mpi_backend *m = of(b);
    const struct mpi_lib *lib = m->options.lib;
    if (g == NULL)
        return;
    bool is_stuck = g->coll != NULL && g->coll->is_stuck;
    mpi_coll_destroy(g->coll);
    if (g->comm != lib->comm_null && !is_stuck)
        lib->abi->comm_free(lib, &g->comm);
    if (g->fallback != NULL)
        m->options.fallback->ops->group_close(m->options.fallback, g->fallback);
    os_free(b->os, g);
}

static hvd_status_t group_open(struct backend *b, const struct group *group,
                               struct backend_group **ret, struct error *error)
{
    struct mpi_backend *m = of(b);
    struct backend *fallback = m->options.fallback;
    bool is_native = group->size == 1 || (m->options.is_host_native && group->is_one_host);
    struct backend_group *g = os_alloc(b->os, sizeof *g);
    if (g == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    g->comm = m->options.lib->comm_null;
    hvd_status_t status = fallback->ops->group_open(fallback, group, &g->fallback, error);
    if (status == HVD_OK && !is_native)
        status = comm_make(m, group, &g->comm, error);
    if (status == HVD_OK && !is_native)
        status =
            mpi_coll_create(b->os, &m->ops, g->comm, group->size, group->self, &g->coll, error);
    if (status != HVD_OK) {
        group_close(b, g);
        return status;
    }
    *ret = g;
    return HVD_OK;
}

static hvd_status_t start(struct backend *b, struct backend_group *g, const struct coll *coll,
                          struct error *error)
{
    struct backend *fallback = of(b)->options.fallback;
    bool is_adasum = coll->kind == HVD_ALLREDUCE && coll->reduce == HVD_ADASUM;
    g->is_fallen_back = g->coll == NULL || is_adasum || coll->kind == HVD_BARRIER;
    if (g->is_fallen_back)
        return fallback->ops->start(fallback, g->fallback, coll, error);
    return mpi_coll_start(g->coll, coll, error);
}

static hvd_status_t progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                             struct error *error)
{
    struct backend *fallback = of(b)->options.fallback;
    if (g->is_fallen_back)
        return fallback->ops->progress(fallback, g->fallback, ret_moved, error);
    return mpi_coll_progress(g->coll, ret_moved, error);
}

static void reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    struct backend *fallback = of(b)->options.fallback;
    fallback->ops->reset(fallback, g->fallback, base);
    if (g->coll != NULL)
        mpi_coll_give_up(g->coll);
}

/* The names that users' tools know. */
static const char *activity(const struct backend_group *g, hvd_kind_t kind)
{
    (void)g;
    switch (kind) {
    case HVD_ALLREDUCE: return "MPI_ALLREDUCE";
    case HVD_ALLGATHER: return "MPI_ALLGATHER";
    case HVD_BROADCAST: return "MPI_BCAST";
    case HVD_ALLTOALL: return "MPI_ALLTOALL";
    case HVD_REDUCESCATTER: return "MPI_REDUCESCATTER";
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: return "BARRIER";
    }
    return "";
}

static void destroy(struct backend *b)
{
    if (b == NULL)
        return;
    struct mpi_backend *m = of(b);
    mpi_ops_destroy(&m->ops);
    m->options.fallback->ops->destroy(m->options.fallback);
    os_free(b->os, m);
}

static const struct backend_ops table = {.version = BACKEND_VERSION,
                                         .name = "mpi",
                                         .group_open = group_open,
                                         .group_close = group_close,
                                         .start = start,
                                         .progress = progress,
                                         .reset = reset,
                                         .activity = activity,
                                         .destroy = destroy};

hvd_status_t mpi_backend_create(const struct os *os, const struct mpi_backend_options *options,
                                struct backend **ret, struct error *error)
{
    struct mpi_backend *m = os_alloc(os, sizeof *m);
    if (m == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    m->base = (struct backend){.ops = &table, .os = os};
    m->options = *options;
    m->ops.lib = options->lib;
    *ret = &m->base;
    return HVD_OK;
}
