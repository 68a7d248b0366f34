/* SPDX-License-Identifier: Apache-2.0 */
/* compat.c - the C names that scripts call through ctypes (`hvd.mpi_ops._basics.MPI_LIB_CTYPES`):
 * thin wrappers over hvd.h, with the return codes those scripts expect.
 *
 * Thread: any.  Invariant: nothing here holds state, and nothing aborts on a wrong argument. */
#include "horovod/hvd.h"

enum set_error {
    SET_ERROR_INIT = -1,
    SET_ERROR_DYNAMIC = -2,
    SET_ERROR_UNKNOWN = -3,
    SET_ERROR_FOREIGN = -4,
    SET_ERROR_SHUTDOWN = -5,
    SET_ERROR_EXISTING = -6
};

#define TIMELINE_NOT_INITIALIZED (-1)
#define TIMELINE_NOT_ENABLED     (-2)

/* Not declared in a header: callers look them up by name. */
#define COMPAT(type, name, ...)                                                                    \
    HVD_API type name(__VA_ARGS__);                                                                \
    type name(__VA_ARGS__)

/* ---- init and shutdown ---- */

/* `sets` contains all rank lists one after the other; fills `space` with the start of each. */
static bool lists_read(const int *set_ranks, const int *set_sizes, int set_count,
                       const int32_t *space[HVD_PROCESS_SETS_MAX], hvd_config_t *config)
{
    if (set_count < 0 || set_count > HVD_PROCESS_SETS_MAX)
        return false;
    const int32_t *next = set_ranks;
    for (int i = 0; i < set_count; i++) {
        if (set_sizes[i] < 0)
            return false;
        space[i] = next;
        next += set_sizes[i];
    }
    config->process_sets = space;
    config->process_set_sizes = set_sizes;
    config->process_set_count = set_count;
    return true;
}

COMPAT(bool, horovod_init, const int *ranks, int rank_count, const int *set_ranks,
       const int *set_sizes, int set_count)
{
    const int32_t *sets[HVD_PROCESS_SETS_MAX];
    hvd_config_t config = {.struct_size = sizeof config,
                           .ranks = rank_count > 0 ? ranks : NULL,
                           .rank_count = rank_count > 0 ? rank_count : 0};
    return lists_read(set_ranks, set_sizes, set_count, sets, &config) &&
           hvd_init(&config) == HVD_OK;
}

/* `comms` is an array of MPI_Comm: the world, then one for each process set. */
COMPAT(bool, horovod_init_multi_comm, const void *comms, int comm_count, const int *set_ranks,
       const int *set_sizes, int set_count)
{
    const int32_t *sets[HVD_PROCESS_SETS_MAX];
    hvd_config_t config = {.struct_size = sizeof config,
                           .mpi_comms = comms,
                           .mpi_comm_count = comm_count > 0 ? comm_count : 0};
    return lists_read(set_ranks, set_sizes, set_count, sets, &config) &&
           hvd_init(&config) == HVD_OK;
}

COMPAT(void, horovod_shutdown, void)
{
    hvd_shutdown();
}

COMPAT(int, horovod_is_initialized, void)
{
    return hvd_is_initialized() ? 1 : 0;
}

/* ---- who am I ---- */

COMPAT(int, horovod_rank, void)
{
    return hvd_rank();
}

COMPAT(int, horovod_local_rank, void)
{
    return hvd_local_rank();
}

COMPAT(int, horovod_cross_rank, void)
{
    return hvd_cross_rank();
}

COMPAT(int, horovod_size, void)
{
    return hvd_size();
}

COMPAT(int, horovod_local_size, void)
{
    return hvd_local_size();
}

COMPAT(int, horovod_cross_size, void)
{
    return hvd_cross_size();
}

COMPAT(bool, horovod_is_homogeneous, void)
{
    return hvd_is_homogeneous() == 1;
}

/* ---- timeline ---- */

COMPAT(int, horovod_start_timeline, const char *path, bool mark_cycles)
{
    hvd_status_t status = hvd_timeline_start(path, mark_cycles);
    if (status == HVD_ERR_NOT_INITIALIZED)
        return TIMELINE_NOT_INITIALIZED;
    return status == HVD_ERR_CONFIG ? TIMELINE_NOT_ENABLED : 1;
}

COMPAT(int, horovod_stop_timeline, void)
{
    return hvd_timeline_stop() == HVD_ERR_NOT_INITIALIZED ? TIMELINE_NOT_INITIALIZED : 1;
}

/* ---- what this build can do ---- */

/* "enabled" means: it carries control messages or CPU tensors of this job. */
COMPAT(bool, horovod_mpi_enabled, void)
{
    return hvd_is_initialized() && hvd_feature("mpi_enabled") != 0;
}

COMPAT(bool, horovod_gloo_enabled, void)
{
    return hvd_is_initialized() && hvd_feature("gloo_enabled") != 0;
}

COMPAT(int, horovod_mpi_threads_supported, void)
{
    if (!hvd_is_initialized())
        return -1;
    return hvd_feature("mpi_threads") != 0 ? 1 : 0;
}

COMPAT(bool, horovod_mpi_built, void)
{
    return hvd_feature("mpi") != 0;
}

COMPAT(bool, horovod_gloo_built, void)
{
    return hvd_feature("gloo") != 0;
}

COMPAT(bool, horovod_ddl_built, void)
{
    return hvd_feature("ddl") != 0;
}

COMPAT(bool, horovod_ccl_built, void)
{
    return hvd_feature("ccl") != 0;
}

COMPAT(bool, horovod_cuda_built, void)
{
    return hvd_feature("cuda") != 0;
}

COMPAT(bool, horovod_rocm_built, void)
{
    return hvd_feature("rocm") != 0;
}

COMPAT(int, horovod_nccl_built, void)
{
    return hvd_feature("nccl");
}

/* ---- reductions ---- */

COMPAT(int, horovod_reduce_op_average, void)
{
    return HVD_AVERAGE;
}

COMPAT(int, horovod_reduce_op_sum, void)
{
    return HVD_SUM;
}

COMPAT(int, horovod_reduce_op_adasum, void)
{
    return HVD_ADASUM;
}

COMPAT(int, horovod_reduce_op_min, void)
{
    return HVD_MIN;
}

COMPAT(int, horovod_reduce_op_max, void)
{
    return HVD_MAX;
}

COMPAT(int, horovod_reduce_op_product, void)
{
    return HVD_PRODUCT;
}

/* ---- process sets ---- */

static int set_error(hvd_status_t status)
{
    static const struct {
        hvd_status_t status;
        enum set_error error;
    } rows[] = {{HVD_ERR_NOT_INITIALIZED, SET_ERROR_INIT},
                {HVD_ERR_CONFIG, SET_ERROR_DYNAMIC},
                {HVD_ERR_DUPLICATE, SET_ERROR_EXISTING},
                {HVD_ERR_ABORTED, SET_ERROR_FOREIGN},
                {HVD_ERR_SHUTDOWN, SET_ERROR_SHUTDOWN}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return rows[i].error;
    return SET_ERROR_UNKNOWN;
}

COMPAT(int, horovod_add_process_set, const int *ranks, int count)
{
    int32_t id = -1;
    hvd_status_t status = hvd_process_set_add(ranks, count, &id);
    return status == HVD_OK ? id : set_error(status);
}

COMPAT(int, horovod_remove_process_set, int id)
{
    hvd_status_t status = hvd_process_set_remove(id);
    return status == HVD_OK ? id : set_error(status);
}

COMPAT(int, horovod_process_set_rank, int id)
{
    int32_t rank = -1;
    hvd_status_t status = hvd_process_set_rank(id, &rank);
    return status == HVD_OK ? rank : set_error(status);
}

COMPAT(int, horovod_process_set_size, int id)
{
    int32_t size = -1;
    hvd_status_t status = hvd_process_set_size(id, &size);
    return status == HVD_OK ? size : set_error(status);
}

COMPAT(int, horovod_process_set_included, int id)
{
    int32_t rank = -1;
    if (id == HVD_PROCESS_SET_GLOBAL)
        return 1;
    hvd_status_t status = hvd_process_set_rank(id, &rank);
    if (status == HVD_ERR_ABORTED)
        return 0;
    return status == HVD_OK ? 1 : set_error(status);
}

COMPAT(int, horovod_number_of_process_sets, void)
{
    return hvd_is_initialized() ? hvd_process_set_count() : 1;
}

COMPAT(void, horovod_process_set_ids, int *ret_ids)
{
    if (hvd_is_initialized())
        hvd_process_set_ids(ret_ids);
    else
        ret_ids[0] = HVD_PROCESS_SET_GLOBAL;
}

COMPAT(int, horovod_process_set_ranks, int id, int *ret_ranks)
{
    hvd_status_t status = hvd_process_set_ranks(id, ret_ranks);
    return status == HVD_OK ? 0 : set_error(status);
}

/* An MPI_Comm by value, which is an int or a pointer: either begins where a pointer's bytes do. */
COMPAT(int, horovod_comm_process_set, void *comm)
{
    int32_t id = -1;
    hvd_status_t status = hvd_process_set_of_comm(&comm, &id);
    return status == HVD_OK ? id : set_error(status);
}
