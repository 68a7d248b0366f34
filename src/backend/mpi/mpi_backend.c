/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_backend.c - see mpi_backend.h: the table, and a communicator for each group.
 *
 * A group's communicator is created with the group, which all its members do at the same point in
 * the agreed order. That blocks until the last of them arrives.
 *
 * Thread: token holder.  Owner: struct world.  Start reading at mpi_backend_group_open(). */
#include "backend/mpi/mpi_backend.h"

#include <stdio.h>
#include <strings.h>

#define GROUP_TAG 32 /* above the transport's own small numbers */
#define TAG_COUNT 16384
#define SCORE     100 /* it exists only if it was requested */
#define POLL_NS   100000LL

struct mpi_backend {
    struct backend base;
    struct mpi_job job;
    struct mpi_ops ops;
};

struct backend_group {
    struct mpi_coll *coll;
    mpi_handle_t comm;
};

static struct mpi_backend *of(struct backend *b)
{
    return (struct mpi_backend *)b;
}

/* MPI has no Adasum, a barrier that was negotiated is already complete, and values that travel in
 * another type may have to travel again in their own. */
static bool is_supported(const struct backend_ask *ask)
{
    return ask->memory == 0 && ask->kind != HVD_BARRIER && ask->kind != HVD_JOIN &&
           !(ask->kind == HVD_ALLREDUCE && ask->reduce == HVD_ADASUM) && ask->wire == HVD_WIRE_SAME;
}

static int32_t mpi_backend_score(const struct backend *b, const struct group *group,
                                 const struct backend_ask *ask)
{
    (void)b;
    return group->size > 1 && is_supported(ask) ? SCORE : -1;
}

static hvd_status_t comm_make(struct mpi_backend *m, const struct group *group, mpi_handle_t *ret,
                              struct error *error)
{
    const struct mpi_lib *lib = m->job.lib;
    int *ranks = os_alloc(m->base.os, (size_t)group->size * sizeof *ranks);
    if (ranks == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (int32_t i = 0; i < group->size; i++)
        ranks[i] = group->ranks[i];
    int code = lib->abi->comm_create_group(lib, m->job.comm, ranks, group->size,
                                           GROUP_TAG + group->set_id % TAG_COUNT, ret);
    os_free(m->base.os, ranks);
    if (code != 0)
        return mpi_lib_error(lib, "MPI_Comm_create_group", code, error);
    return mpi_lib_error(lib, "MPI_Comm_set_errhandler", lib->abi->comm_errors_return(lib, *ret),
                         error);
}

static void mpi_backend_group_close(struct backend *b, struct backend_group *g)
{
    const struct mpi_lib *lib = of(b)->job.lib;
    if (g == NULL)
        return;
    bool is_stuck = g->coll != NULL && g->coll->is_stuck;
    mpi_coll_destroy(g->coll);
    if (g->comm != lib->comm_null && !is_stuck)
        lib->abi->comm_free(lib, &g->comm);
    os_free(b->os, g);
}

static hvd_status_t mpi_backend_group_open(struct backend *b, const struct group *group,
                                           struct backend_group **ret, struct error *error)
{
    struct mpi_backend *m = of(b);
    if (group->size == 1)
        return error_set(error, HVD_ERR_UNSUPPORTED, "MPI has nothing to do for one rank.");
    struct backend_group *g = os_alloc(b->os, sizeof *g);
    if (g == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    g->comm = m->job.lib->comm_null;
    hvd_status_t status = comm_make(m, group, &g->comm, error);
    if (status == HVD_OK)
        status =
            mpi_coll_create(b->os, &m->ops, g->comm, group->size, group->self, &g->coll, error);
    if (status != HVD_OK) {
        mpi_backend_group_close(b, g);
        return status;
    }
    *ret = g;
    return HVD_OK;
}

static hvd_status_t mpi_backend_start(struct backend *b, struct backend_group *g,
                                      const struct coll *coll, struct error *error)
{
    (void)b;
    const struct backend_ask ask = {
        .kind = coll->kind, .reduce = coll->reduce, .wire = coll->wire, .memory = coll->memory};
    if (!is_supported(&ask))
        return error_set(error, HVD_ERR_UNSUPPORTED, "MPI has no collective for this operation");
    return mpi_coll_start(g->coll, coll, error);
}

static hvd_status_t mpi_backend_progress(struct backend *b, struct backend_group *g,
                                         bool *ret_moved, struct error *error)
{
    (void)b;
    return mpi_coll_progress(g->coll, ret_moved, error);
}

static void mpi_backend_reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    (void)b, (void)base;
    mpi_coll_give_up(g->coll);
}

/* The names that users' tools know. */
static const char *mpi_backend_activity(const struct backend_group *g, hvd_kind_t kind)
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

static void mpi_backend_destroy(struct backend *b)
{
    if (b == NULL)
        return;
    struct mpi_backend *m = of(b);
    mpi_ops_destroy(&m->ops);
    os_free(b->os, m);
}

/* MPI does not signal progress. */
static int64_t mpi_backend_poll_ns(struct backend *b)
{
    (void)b;
    return POLL_NS;
}

static const struct backend_ops table = {.version = BACKEND_VERSION,
                                         .name = "mpi",
                                         .score = mpi_backend_score,
                                         .group_open = mpi_backend_group_open,
                                         .group_close = mpi_backend_group_close,
                                         .start = mpi_backend_start,
                                         .progress = mpi_backend_progress,
                                         .reset = mpi_backend_reset,
                                         .activity = mpi_backend_activity,
                                         .destroy = mpi_backend_destroy,
                                         .poll_ns = mpi_backend_poll_ns};

hvd_status_t mpi_backend_create(const struct os *os, const struct mpi_job *job,
                                struct backend **ret, struct error *error)
{
    struct mpi_backend *m = os_alloc(os, sizeof *m);
    if (m == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    m->base = (struct backend){.ops = &table,
                               .os = os,
                               .is_final = true,
                               .is_one_thread = job->lib->level < MPI_LEVEL_SERIALIZED};
    m->job = *job;
    m->ops.lib = job->lib;
    *ret = &m->base;
    return HVD_OK;
}

/* ---- the row ---- */

static bool probe(const struct backend_place *place, char *ret_why)
{
    const char *why = NULL;
    if (place->rank < 0)
        why =
            mpi_lib_probe(place->os, place->config->mpi_library, NULL, 0)
                ? NULL
                : "No MPI library was found. Install one, or set HOROVOD_MPI_LIBRARY to its file.";
    else if (place->mpi == NULL)
        why = "The ranks of this job did not meet by way of MPI. Start it with mpirun, or set "
              "HOROVOD_CONTROLLER=mpi.";
    else if (strcasecmp(place->config->cpu_operations, "mpi") != 0)
        why = "HOROVOD_CPU_OPERATIONS=mpi was not asked for.";
    snprintf(ret_why, WHY_MAX, "%s", why != NULL ? why : "");
    return why == NULL;
}

static hvd_status_t row_create(const struct backend_place *place, struct backend **ret,
                               struct error *error)
{
    return mpi_backend_create(place->os, place->mpi, ret, error);
}

const struct backend_row mpi_backend_row = {.name = "mpi", .probe = probe, .create = row_create};
