/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - the process set that corresponds to an MPI communicator.
 *
 * Thread: any; MPI is called by the holder of the token.  Start reading at
 * hvd_process_set_of_comm(). */
#include "api/instance.h"

static hvd_status_t find(struct world *world, const void *mpi_comm, int32_t *ranks, int32_t *ret_id,
                         struct error *error)
{
    const struct mpi_lib *lib = world->mpi_lib;
    int32_t count = 0;
    hvd_status_t status =
        mpi_world_ranks(lib, world->mpi_comm, lib->abi->comm_at(mpi_comm, 0), ranks, &count, error);
    if (status != HVD_OK)
        return status;
    int32_t id = sets_find(world->engine, ranks, count);
    if (id < 0)
        return error_set(error, HVD_ERR_INVALID,
                         "No process set with the members of this communicator is registered.");
    *ret_id = id;
    return HVD_OK;
}

hvd_status_t hvd_process_set_of_comm(const void *mpi_comm, int32_t *ret_id)
{
    struct error *error = instance_error();
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED,
                         "Horovod has not been initialized; use hvd.init().");
    hvd_status_t status = HVD_OK;
    int32_t *ranks = os_alloc(world->os, (size_t)world->place.size * sizeof *ranks);
    if (ranks == NULL)
        status = error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    else if (world->mpi_lib == NULL)
        status = error_set(error, HVD_ERR_CONFIG, "This job does not use MPI.");
    if (status == HVD_OK) {
        pthread_mutex_lock(&world->driver.token);
        status = find(world, mpi_comm, ranks, ret_id, error);
        pthread_mutex_unlock(&world->driver.token);
    }
    os_free(world->os, ranks);
    instance_leave();
    return status;
}
