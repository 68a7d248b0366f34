/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_world.c - see mpi_world.h. */
#include "api/mpi_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define END_PATIENCE_NS (30LL * 1000000000) /* for ranks that have not finished yet */
#define WAIT_STEP_NS    200000LL
#define WAIT_SPINS      2000
#define WAIT_TELL_NS    (30LL * 1000000000)
#define INIT_PATIENCE   20 /* times the limit of the rendezvous: these ranks are already running */
#define GROUP_TAG       77
#define RANK_LIST_TEXT  200

/* ---- is this MPI's job? ---- */

static bool is_set(const struct os *os, const char *name)
{
    const char *value = os->env(os->ctx, name);
    return value != NULL && value[0] != '\0';
}

/* Ranks and sizes alone may be stale or made up; the address of the process manager is not. */
static bool is_started_by_mpi(const struct os *os)
{
    bool is_pmix = is_set(os, "PMIX_NAMESPACE") || is_set(os, "OMPI_MCA_orte_hnp_uri");
    bool is_pmi = is_set(os, "PMI_FD") || is_set(os, "PMI_PORT");
    return (is_pmix && (is_set(os, "OMPI_COMM_WORLD_SIZE") || is_set(os, "SLURM_STEP_ID"))) ||
           (is_pmi && is_set(os, "PMI_RANK") && is_set(os, "PMI_SIZE"));
}

enum mpi_wish mpi_world_wish(const struct os *os, const struct config *config,
                             const hvd_config_t *e)
{
    if (e != NULL && e->mpi_comm_count > 0)
        return MPI_WISH_MUST;
    if (e != NULL && e->size > 0)
        return MPI_WISH_NO;
    if (config->controller[0] != '\0')
        return strcasecmp(config->controller, "mpi") == 0 ? MPI_WISH_MUST : MPI_WISH_NO;
    if (config->rank >= 0 || config->size >= 0)
        return MPI_WISH_NO;
    if (!is_started_by_mpi(os))
        return MPI_WISH_NO;
    return config->mpi_library[0] != '\0' ? MPI_WISH_MUST : MPI_WISH_IF_THERE;
}

/* ---- waiting for the others ---- */

struct patience {
    const struct os *os;
    const struct log *log; /* NULL: no messages while waiting */
    int64_t deadline_ns;
    const char *what;
};

static hvd_status_t await(const struct mpi_lib *lib, mpi_handle_t *request,
                          const struct patience *p, struct error *error)
{
    const struct os *os = p->os;
    int64_t start_ns = os_now_ns(os), told_ns = start_ns;
    for (int spins = 0;; spins++) {
        bool is_done = false;
        int code = lib->abi->test(lib, request, 0, &is_done, NULL);
        if (code != 0)
            return mpi_lib_error(lib, p->what, code, error);
        if (is_done)
            return HVD_OK;
        if (spins < WAIT_SPINS) {
            os->yield(os->ctx);
            continue;
        }
        int64_t now_ns = os_now_ns(os);
        if (now_ns > p->deadline_ns)
            return error_set(error, HVD_ERR_TIMEOUT,
                             "%s: after %lld s not all ranks have answered.", p->what,
                             (long long)((now_ns - start_ns) / 1000000000));
        if (p->log != NULL && now_ns - told_ns > WAIT_TELL_NS) {
            told_ns = now_ns;
            LOG_AT(p->log, LOG_WARNING, "%s: waiting for %lld s.", p->what,
                   (long long)((now_ns - start_ns) / 1000000000));
        }
        os->sleep_ns(os->ctx, WAIT_STEP_NS);
    }
}

/* MPI_Comm_dup() and similar calls wait silently; a barrier before them can log messages. */
static hvd_status_t gather_here(const struct os *os, const struct config *config,
                                const struct log *log, const struct mpi_lib *lib, mpi_handle_t comm,
                                struct error *error)
{
    struct patience p = {.os = os,
                         .log = log,
                         .deadline_ns =
                             os_now_ns(os) + INIT_PATIENCE * config->timeout_s * 1000000000LL,
                         .what = "Not all ranks of the communicator have called hvd.init() (the "
                                 "limit is 20 times HOROVOD_GLOO_TIMEOUT_SECONDS)"};
    mpi_handle_t request;
    int code = lib->abi->ibarrier(lib, comm, &request);
    if (code != 0)
        return mpi_lib_error(lib, "MPI_Ibarrier", code, error);
    return await(lib, &request, &p, error);
}

/* ---- the library ---- */

/* `is_theirs`: a communicator was given, which only the library in this process understands. */
static hvd_status_t library_open(const struct os *os, const struct config *config,
                                 const struct log *log, enum mpi_wish wish, bool is_theirs,
                                 struct mpi_process *process, struct error *error)
{
    struct error trouble = {0};
    if (process->lib == NULL) {
        hvd_status_t status =
            mpi_lib_open(os, is_theirs ? "" : config->mpi_library, &process->lib, &trouble);
        if (status != HVD_OK)
            return error_set(error, wish == MPI_WISH_IF_THERE ? HVD_AGAIN : status, "%s",
                             trouble.text);
        process->pid = os->pid(os->ctx);
    }
    struct mpi_lib *lib = process->lib;
    bool was_ours = lib->is_ours;
    hvd_status_t status = mpi_lib_init(lib, config->mpi_threads_disable, error);
    if (status != HVD_OK)
        return status;
    lib->is_ours = lib->is_ours || was_ours;
    int rank = -1;
    lib->abi->comm_rank(lib, lib->comm_world, &rank);
    if (!lib->is_ours && lib->level < MPI_LEVEL_MULTIPLE && rank == 0)
        LOG_AT(
            log, LOG_WARNING,
            "MPI was initialised without support for several threads (%s). Horovod's own thread "
            "will call it while your program may: initialise it with MPI_THREAD_MULTIPLE, or let "
            "hvd.init() do it.",
            lib->version);
    LOG_AT(log, LOG_DEBUG, "MPI: %s, %s, %s", lib->version, lib->path, lib->origin);
    return HVD_OK;
}

/* A launcher whose ranks do not find each other: each would silently train alone. */
static hvd_status_t check_launcher(const struct os *os, const struct mpi_lib *lib,
                                   struct error *error)
{
    static const struct {
        const char *name, *who;
    } sizes[] = {{"OMPI_COMM_WORLD_SIZE", "Open MPI's launcher"},
                 {"PMI_SIZE", "A PMI launcher (MPICH, Intel MPI, Slurm)"},
                 {"SLURM_STEP_NUM_TASKS", "Slurm"},
                 {"HOROVOD_SIZE", "horovodrun (without --mpi)"}};
    int size = 0;
    int code = lib->abi->comm_size(lib, lib->comm_world, &size);
    if (code != 0)
        return mpi_lib_error(lib, "MPI_Comm_size", code, error);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *value = os->env(os->ctx, sizes[i].name);
        long started = value != NULL ? strtol(value, NULL, 10) : 0;
        if (size != 1 || started <= 1)
            continue;
        return error_set(
            error, HVD_ERR_CONFIG,
            "%s started %ld processes (%s), but in the MPI library of this process, %s (%s, %s), "
            "each of them is alone: launcher and library do not belong together. Use the launcher "
            "of that library (with srun: --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH), or name "
            "the launcher's library in HOROVOD_MPI_LIBRARY, or set HOROVOD_CONTROLLER=gloo to do "
            "without MPI.",
            sizes[i].who, started, sizes[i].name, lib->version, lib->path, lib->origin);
    }
    return HVD_OK;
}

/* ---- the communicator ---- */

static void list_text(const int32_t *ranks, int32_t count, char *ret, size_t bytes)
{
    size_t used = 0;
    ret[0] = '\0';
    for (int32_t i = 0; i < count && used + 16 < bytes; i++)
        used += (size_t)snprintf(ret + used, bytes - used, "%s%d", i > 0 ? ", " : "", ranks[i]);
}

static hvd_status_t comm_of_list(const struct mpi_lib *lib, const hvd_config_t *e,
                                 mpi_handle_t *ret, struct error *error)
{
    char text[RANK_LIST_TEXT];
    int rank = -1, size = 0;
    bool is_member = false;
    lib->abi->comm_rank(lib, lib->comm_world, &rank);
    lib->abi->comm_size(lib, lib->comm_world, &size);
    list_text(e->ranks, e->rank_count, text, sizeof text);
    for (int32_t i = 0; i < e->rank_count; i++) {
        is_member = is_member || e->ranks[i] == rank;
        bool is_twice = false;
        for (int32_t k = 0; k < i; k++)
            is_twice = is_twice || e->ranks[k] == e->ranks[i];
        if (e->ranks[i] < 0 || e->ranks[i] >= size || is_twice)
            return error_set(
                error, HVD_ERR_INVALID,
                "The list of ranks [%s] contains %d, %s MPI_COMM_WORLD (size %d).", text,
                e->ranks[i],
                is_twice ? "twice; it must be a set of ranks of" : "which is not a rank of", size);
    }
    if (!is_member)
        return error_set(error, HVD_ERR_INVALID,
                         "This process is rank %d of MPI_COMM_WORLD, which is not in the list [%s] "
                         "given to hvd.init(); only members may call it with that list.",
                         rank, text);
    return mpi_lib_error(
        lib, "MPI_Comm_create_group",
        lib->abi->comm_create_group(lib, lib->comm_world, e->ranks, e->rank_count, GROUP_TAG, ret),
        error);
}

static hvd_status_t comm_make(const struct os *os, const struct config *config,
                              const struct log *log, const struct mpi_lib *lib,
                              const hvd_config_t *e, mpi_handle_t *ret, struct error *error)
{
    mpi_handle_t base = lib->comm_world;
    if (e != NULL && e->mpi_comm_count > 0) {
        base = lib->abi->comm_at(e->mpi_comms, 0);
        if (base == lib->comm_null)
            return error_set(error, HVD_ERR_INVALID,
                             "The communicator given to hvd.init() is MPI_COMM_NULL: this process "
                             "is not a member of it.");
    } else if (e != NULL && e->rank_count > 0) {
        hvd_status_t status = comm_of_list(lib, e, ret, error);
        return status != HVD_OK ? status
                                : mpi_lib_error(lib, "MPI_Comm_set_errhandler",
                                                lib->abi->comm_errors_return(lib, *ret), error);
    }
    hvd_status_t status = gather_here(os, config, log, lib, base, error);
    return status == HVD_OK ? mpi_lib_comm_own(lib, base, ret, error) : status;
}

static int rank_and_size(const struct mpi_lib *lib, mpi_handle_t comm, int32_t *ret_rank,
                         int32_t *ret_size)
{
    int rank = -1, size = -1;
    int code = lib->abi->comm_rank(lib, comm, &rank);
    if (code == 0)
        code = lib->abi->comm_size(lib, comm, &size);
    *ret_rank = rank;
    *ret_size = size;
    return code;
}

static hvd_status_t place_find(const struct mpi_lib *lib, mpi_handle_t comm, struct bootstrap *b,
                               struct error *error)
{
    mpi_handle_t local = lib->comm_null, cross = lib->comm_null;
    memset(b, 0, sizeof *b);
    b->source = lib->version;
    int code = rank_and_size(lib, comm, &b->rank, &b->size);
    if (code == 0)
        code = lib->abi->comm_split_shared(lib, comm, b->rank, &local);
    if (code == 0)
        code = rank_and_size(lib, local, &b->local_rank, &b->local_size);
    if (code == 0)
        code = lib->abi->comm_split(lib, comm, b->local_rank, b->rank, &cross);
    if (code == 0)
        code = rank_and_size(lib, cross, &b->cross_rank, &b->cross_size);
    if (cross != lib->comm_null)
        lib->abi->comm_free(lib, &cross);
    if (local != lib->comm_null)
        lib->abi->comm_free(lib, &local);
    return mpi_lib_error(lib, "Splitting the communicator by hosts", code, error);
}

hvd_status_t mpi_world_join(const struct os *os, const struct config *config, const struct log *log,
                            const hvd_config_t *e, enum mpi_wish wish, struct mpi_process *process,
                            struct bootstrap *ret_place, mpi_handle_t *ret_comm,
                            struct error *error)
{
    bool is_theirs = e != NULL && e->mpi_comm_count > 0;
    hvd_status_t status = library_open(os, config, log, wish, is_theirs, process, error);
    if (status != HVD_OK)
        return status;
    const struct mpi_lib *lib = process->lib;
    status = check_launcher(os, lib, error);
    if (status == HVD_OK)
        status = comm_make(os, config, log, lib, e, ret_comm, error);
    return status == HVD_OK ? place_find(lib, *ret_comm, ret_place, error) : status;
}

/* ---- the first exchange ---- */

hvd_status_t mpi_world_share_key(const struct mpi_lib *lib, mpi_handle_t comm, uint8_t key[32],
                                 struct error *error)
{
    return mpi_lib_error(lib, "MPI_Bcast",
                         lib->abi->bcast(lib, key, 32, lib->types[MPI_TYPE_BYTE], 0, comm), error);
}

/* Gathers `count` items of `bytes` bytes, different for each rank; *ret holds offsets[size] of
 * them. `sizes` and `at` are space for place->size ints. */
static hvd_status_t gather(const struct mpi_lib *lib, mpi_handle_t comm, const struct patience *p,
                           int32_t size, const void *mine, int count, int *sizes, int *at,
                           uint8_t **ret, struct error *error)
{
    mpi_handle_t request, byte = lib->types[MPI_TYPE_BYTE], word = lib->types[MPI_TYPE_INT32];
    int code = lib->abi->iallgather(lib, &count, 1, word, sizes, 1, word, comm, &request);
    hvd_status_t status = mpi_lib_error(lib, "MPI_Iallgather", code, error);
    if (status == HVD_OK)
        status = await(lib, &request, p, error);
    if (status != HVD_OK)
        return status;
    int64_t total = 0;
    for (int32_t i = 0; i < size; i++) {
        at[i] = (int)total;
        total += sizes[i];
        if (sizes[i] < 0 || total > INT32_MAX)
            return error_set(error, HVD_ERR_LIMIT,
                             "The introductions of %d ranks take more than 2 GiB.", size);
    }
    *ret = os_alloc(p->os, (size_t)total + 1);
    if (*ret == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    code = lib->abi->iallgatherv(lib, mine, count, byte, *ret, sizes, at, byte, comm, &request);
    status = mpi_lib_error(lib, "MPI_Iallgatherv", code, error);
    return status == HVD_OK ? await(lib, &request, p, error) : status;
}

hvd_status_t mpi_world_exchange(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                                const struct bootstrap *place, const uint8_t *mine, size_t n,
                                int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                struct error *error)
{
    size_t size = (size_t)place->size;
    struct patience p = {
        .os = os, .deadline_ns = deadline_ns, .what = "Exchanging introductions over MPI"};
    int *sizes = os_alloc(os, 2 * size * sizeof *sizes);
    if (sizes == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    hvd_status_t status =
        gather(lib, comm, &p, place->size, mine, (int)n, sizes, sizes + size, ret_blobs, error);
    for (size_t i = 0; status == HVD_OK && i < size; i++) {
        ret_offsets[i] = (size_t)sizes[size + i];
        ret_offsets[i + 1] = ret_offsets[i] + (size_t)sizes[i];
    }
    os_free(os, sizes);
    return status;
}

/* ---- process sets from communicators ---- */

static int compare_ranks(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

hvd_status_t mpi_world_ranks(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t part,
                             int32_t *ret_ranks, int32_t *ret_count, struct error *error)
{
    int size = 0, all = 0;
    *ret_count = 0;
    if (part == lib->comm_null)
        return HVD_OK;
    int code = lib->abi->comm_size(lib, part, &size);
    if (code == 0)
        code = lib->abi->comm_size(lib, comm, &all);
    if (code == 0 && size > all)
        return error_set(error, HVD_ERR_INVALID,
                         "A process set's communicator has %d processes, the world has %d.", size,
                         all);
    if (code == 0)
        code = lib->abi->comm_translate(lib, part, comm, ret_ranks);
    if (code != 0)
        return mpi_lib_error(lib, "MPI_Group_translate_ranks", code, error);
    for (int i = 0; i < size; i++)
        if (ret_ranks[i] == lib->undefined)
            return error_set(error, HVD_ERR_INVALID,
                             "A process set's communicator has a process that is not in the world "
                             "given to hvd.init().");
    qsort(ret_ranks, (size_t)size, sizeof *ret_ranks, compare_ranks);
    *ret_count = size;
    return HVD_OK;
}

static int compare_lists(const int32_t *a, int32_t na, const int32_t *b, int32_t nb)
{
    for (int32_t i = 0; i < na && i < nb; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return (na > nb) - (na < nb);
}

/* Inserts a list in order among those from `first` on; a duplicate changes nothing. */
static bool sets_insert(struct mpi_sets *sets, int32_t first, const int32_t *list, int32_t count)
{
    int32_t at = sets->count;
    for (int32_t i = 0; i < sets->count; i++)
        if (compare_lists(sets->lists[i], sets->sizes[i], list, count) == 0)
            return true;
    if (sets->count == HVD_PROCESS_SETS_MAX)
        return false;
    while (at > first && compare_lists(list, count, sets->lists[at - 1], sets->sizes[at - 1]) < 0) {
        sets->lists[at] = sets->lists[at - 1];
        sets->sizes[at] = sets->sizes[at - 1];
        at--;
    }
    sets->lists[at] = list;
    sets->sizes[at] = count;
    sets->count++;
    return true;
}

/* All ranks' lists for one communicator argument. `memory` takes them; it must outlive the sets. */
static hvd_status_t sets_of_comm(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                                 const struct bootstrap *place, mpi_handle_t part, int *space,
                                 int32_t **ret_memory, struct mpi_sets *sets, struct error *error)
{
    struct patience p = {
        .os = os, .deadline_ns = INT64_MAX, .what = "Agreeing on process sets over MPI"};
    int32_t *mine = space + 2 * place->size, count = 0, first = sets->count;
    hvd_status_t status = mpi_world_ranks(lib, comm, part, mine, &count, error);
    bool has_failed = status != HVD_OK;
    uint8_t *all = NULL;
    struct error trouble = {0}; /* the others wait for us in any case */
    hvd_status_t met = gather(lib, comm, &p, place->size, mine, has_failed ? 0 : count * 4, space,
                              space + place->size, &all, &trouble);
    *ret_memory = (int32_t *)(void *)all;
    if (has_failed || met != HVD_OK)
        return has_failed ? status : error_set(error, met, "%s", trouble.text);
    for (int32_t i = 0; i < place->size; i++) {
        int32_t n = space[i] / 4;
        if (n > 0 && n < place->size &&
            !sets_insert(sets, first, *ret_memory + space[place->size + i] / 4, n))
            return error_set(error, HVD_ERR_LIMIT, "The communicators make more than %d sets.",
                             HVD_PROCESS_SETS_MAX);
    }
    return HVD_OK;
}

hvd_status_t mpi_world_sets(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                            const struct bootstrap *place, const hvd_config_t *e,
                            struct mpi_sets *ret, struct error *error)
{
    hvd_status_t status = HVD_OK;
    int32_t comms = e->mpi_comm_count - 1;
    size_t most = HVD_PROCESS_SETS_MAX;
    int *space = os_alloc(os, 3 * (size_t)place->size * sizeof *space);
    ret->lists = os_alloc(os, most * sizeof *ret->lists);
    ret->sizes = os_alloc(os, most * sizeof *ret->sizes);
    ret->memory = os_alloc(os, ((size_t)comms + 1) * sizeof *ret->memory);
    ret->memory_count = comms;
    if (space == NULL || ret->lists == NULL || ret->sizes == NULL || ret->memory == NULL)
        status = error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    for (int32_t i = 0; status == HVD_OK && i < comms; i++)
        status = sets_of_comm(os, lib, comm, place, lib->abi->comm_at(e->mpi_comms, i + 1), space,
                              &ret->memory[i], ret, error);
    for (int32_t i = 0; status == HVD_OK && i < e->process_set_count; i++)
        if (!sets_insert(ret, ret->count, e->process_sets[i], e->process_set_sizes[i]))
            status = error_set(error, HVD_ERR_LIMIT, "There are more than %d process sets.",
                               HVD_PROCESS_SETS_MAX);
    os_free(os, space);
    return status;
}

void mpi_sets_destroy(const struct os *os, struct mpi_sets *sets)
{
    for (int32_t i = 0; sets->memory != NULL && i < sets->memory_count; i++)
        os_free(os, sets->memory[i]);
    os_free(os, sets->memory);
    os_free(os, sets->sizes);
    os_free(os, sets->lists);
}

/* ---- finalize ---- */

/* After an error, for instance about a stuck rank, some rank may never finalize MPI, and
 * MPI_Finalize has no time limit: so check first whether all ranks arrive. */
static bool is_all_ending(const struct os *os, const struct mpi_lib *lib)
{
    struct patience p = {.os = os,
                         .deadline_ns = os_now_ns(os) + END_PATIENCE_NS,
                         .what = "Ending MPI after an error"};
    struct error error = {0};
    mpi_handle_t request;
    return lib->abi->ibarrier(lib, lib->comm_world, &request) == 0 &&
           await(lib, &request, &p, &error) == HVD_OK;
}

void mpi_process_end(const struct os *os, struct mpi_process *process)
{
    if (process->lib == NULL || process->pid != os->pid(os->ctx) || process->has_lost)
        return;
    if (!process->has_broken || (process->lib->is_ours && is_all_ending(os, process->lib)))
        mpi_lib_finalize(process->lib);
}
