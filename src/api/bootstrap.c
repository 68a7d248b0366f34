/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap.c - see bootstrap.h. */
#include "api/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/nodelist.h"
#include "base/proc.h"
#include "base/sha256.h"

#define IDENTITY_NAMES 4
#define ENVIRON_MAX    (1u << 20)
#define ANCESTORS_MAX  64
#define PORT_FIRST     15000 /* below the ephemeral port range */
#define PORT_COUNT     15000
#define BATCH_STEP     4294967290 /* from here on steps are not srun's: batch, extern, ... */

/* One kind of launcher: the variables with rank, size and placement, and those that distinguish
 * this job from others. NULL: the source has none. */
struct source {
    const char *name;
    const char *rank, *size, *local_rank, *local_size;
    const char *identity[IDENTITY_NAMES];
};

static const struct source sources[] = {
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     NULL,
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
};

static const char *value_of(const struct os *os, const char *name)
{
    const char *value = name != NULL ? os->env(os->ctx, name) : NULL;
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static hvd_status_t number_of(const struct os *os, const char *name, int32_t *ret,
                              struct error *error)
{
    const char *value = value_of(os, name);
    char *end = NULL;
    long number = value != NULL ? strtol(value, &end, 10) : -1;
    if (value == NULL || *end != '\0' || number < 0 || number > 1000000)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s is '%s', which is not a number of a rank or a size.", name,
                         value != NULL ? value : "");
    *ret = (int32_t)number;
    return HVD_OK;
}

/* `is_elastic`: the numbers are those of a generation that is over, and local ranks have gaps. */
static hvd_status_t check_numbers(const struct bootstrap *b, bool is_elastic, struct error *error)
{
    if (b->size < 1 || b->rank < 0 || b->rank >= b->size)
        return error_set(error, HVD_ERR_CONFIG, "%s says rank %d of %d, which can't be.", b->source,
                         b->rank, b->size);
    if (b->local_size < 1 || b->local_rank < 0 || b->local_size > b->size ||
        (b->local_rank >= b->local_size && !is_elastic))
        return error_set(error, HVD_ERR_CONFIG,
                         "%s says local rank %d of %d (world size %d), which can't be.", b->source,
                         b->local_rank, b->local_size, b->size);
    return HVD_OK;
}

static void fill_missing(struct bootstrap *b)
{
    if (b->local_size < 1) {
        b->local_size = b->local_rank >= 0 ? b->size : 1;
        b->local_rank = b->local_rank >= 0 ? b->local_rank : 0;
    }
    if (b->cross_size < 1) {
        b->cross_size = b->size / b->local_size > 0 ? b->size / b->local_size : 1;
        b->cross_rank = b->rank / b->local_size < b->cross_size ? b->rank / b->local_size : 0;
    }
}

/* ---- our launcher ---- */

/* -1: not set. */
static hvd_status_t check_pair(const char *a, int64_t a_value, const char *b, int64_t b_value,
                               struct error *error)
{
    if ((a_value >= 0) == (b_value >= 0))
        return HVD_OK;
    return error_set(error, HVD_ERR_CONFIG, "%s is set but %s is not; set both or neither.",
                     a_value >= 0 ? a : b, a_value >= 0 ? b : a);
}

static hvd_status_t from_launcher(const struct config *c, struct bootstrap *b, struct error *error)
{
    b->source = "the environment (HOROVOD_RANK ...)";
    if (check_pair("HOROVOD_RANK", c->rank, "HOROVOD_SIZE", c->size, error) != HVD_OK)
        return HVD_ERR_CONFIG;
    hvd_status_t status =
        check_pair("HOROVOD_LOCAL_RANK", c->local_rank, "HOROVOD_LOCAL_SIZE", c->local_size, error);
    if (status == HVD_OK)
        status = check_pair("HOROVOD_CROSS_RANK", c->cross_rank, "HOROVOD_CROSS_SIZE",
                            c->cross_size, error);
    if (status == HVD_OK && c->rendezvous[0] == '\0')
        status = check_pair("HOROVOD_GLOO_RENDEZVOUS_ADDR", c->rendezvous_addr[0] != '\0' ? 0 : -1,
                            "HOROVOD_GLOO_RENDEZVOUS_PORT", c->rendezvous_port, error);
    if (status != HVD_OK)
        return status;
    b->rank = (int32_t)c->rank;
    b->size = (int32_t)c->size;
    b->local_rank = c->local_rank >= 0 ? (int32_t)c->local_rank : 0;
    b->local_size = c->local_size >= 0 ? (int32_t)c->local_size : 1;
    b->cross_rank = c->cross_rank >= 0 ? (int32_t)c->cross_rank : 0;
    b->cross_size = c->cross_size >= 0 ? (int32_t)c->cross_size : 1;
    if (c->rendezvous[0] != '\0')
        snprintf(b->rendezvous, sizeof b->rendezvous, "%s", c->rendezvous);
    else if (c->rendezvous_addr[0] != '\0' && c->rendezvous_port > 0)
        snprintf(b->rendezvous, sizeof b->rendezvous, "%s:%lld", c->rendezvous_addr,
                 (long long)c->rendezvous_port);
    else if (b->size > 1)
        return error_set(error, HVD_ERR_CONFIG,
                         "HOROVOD_SIZE is %d but neither HOROVOD_RENDEZVOUS nor "
                         "HOROVOD_GLOO_RENDEZVOUS_ADDR and "
                         "HOROVOD_GLOO_RENDEZVOUS_PORT say where the ranks meet. Start the script "
                         "with horovodrun.",
                         b->size);
    return HVD_OK;
}

/* ---- others' launchers: place ---- */

static bool is_loopback_name(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* Slurm's variables about the placement of this process, if they describe this very task. */
static bool place_from_slurm(const struct os *os, struct bootstrap *b)
{
    int32_t rank = -1, size = -1, node = -1, local_rank = -1;
    struct nodelist_place place;
    const char *tasks = value_of(os, "SLURM_STEP_TASKS_PER_NODE");
    if (tasks == NULL || number_of(os, "SLURM_PROCID", &rank, NULL) != HVD_OK ||
        number_of(os, "SLURM_STEP_NUM_TASKS", &size, NULL) != HVD_OK ||
        number_of(os, "SLURM_NODEID", &node, NULL) != HVD_OK ||
        number_of(os, "SLURM_LOCALID", &local_rank, NULL) != HVD_OK)
        return false;
    if (rank != b->rank || size != b->size || !nodelist_place(tasks, node, local_rank, &place) ||
        place.task_count != size)
        return false;
    b->local_rank = local_rank;
    b->local_size = place.local_size;
    b->cross_rank = place.cross_rank;
    b->cross_size = place.cross_size;
    return true;
}

/* A torch program started by hand often has LOCAL_RANK and no LOCAL_WORLD_SIZE. */
static hvd_status_t place_from_master(const struct os *os, const struct source *s,
                                      struct bootstrap *b, struct error *error)
{
    const char *master = value_of(os, "MASTER_ADDR");
    if (master != NULL && !is_loopback_name(master) && b->size > 1)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s says rank %d of %d but %s is not set, which tells how many of them "
                         "are on this host.",
                         s->name, b->rank, b->size, s->local_size);
    b->local_size = b->size;
    b->local_rank = b->local_rank >= 0 ? b->local_rank : b->rank;
    return HVD_OK;
}

static hvd_status_t fill_place(const struct os *os, const struct source *s, struct bootstrap *b,
                               struct error *error)
{
    hvd_status_t status = HVD_OK;
    if (value_of(os, s->local_rank) != NULL)
        status = number_of(os, s->local_rank, &b->local_rank, error);
    if (status == HVD_OK && value_of(os, s->local_size) != NULL)
        status = number_of(os, s->local_size, &b->local_size, error);
    if (status != HVD_OK)
        return status;
    if (b->local_rank < 0 && b->local_size > 0)
        return error_set(error, HVD_ERR_CONFIG, "%s is set but %s is not.", s->local_size,
                         s->local_rank);
    if (b->local_size < 0 && !place_from_slurm(os, b)) {
        if (strcmp(s->name, "Slurm") == 0)
            return error_set(error, HVD_ERR_CONFIG,
                             "Slurm says rank %d of %d, but SLURM_LOCALID, SLURM_NODEID and "
                             "SLURM_STEP_TASKS_PER_NODE do not tell its place among them.",
                             b->rank, b->size);
        if (strcmp(s->name, "torchrun") == 0)
            status = place_from_master(os, s, b, error);
    }
    if (status == HVD_OK)
        fill_missing(b);
    return status;
}

static hvd_status_t from_source(const struct os *os, const struct source *s, struct bootstrap *b,
                                struct error *error)
{
    b->source = s->name;
    b->local_rank = b->local_size = b->cross_size = -1;
    const char *given = value_of(os, s->rank), *size = value_of(os, s->size);
    if (given == NULL || size == NULL)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s is set but %s is not: this looks like %s, but only half of it.",
                         given != NULL ? s->rank : s->size, given != NULL ? s->size : s->rank,
                         s->name);
    hvd_status_t status = number_of(os, s->rank, &b->rank, error);
    if (status == HVD_OK)
        status = number_of(os, s->size, &b->size, error);
    return status == HVD_OK ? fill_place(os, s, b, error) : status;
}

/* A batch script itself, or a shell of salloc, is one process and not one of several tasks. */
static bool is_slurm_step(const struct os *os)
{
    const char *step = value_of(os, "SLURM_STEP_ID");
    char *end = NULL;
    long long number = step != NULL ? strtoll(step, &end, 10) : -1;
    return step != NULL && *end == '\0' && number >= 0 && number < BATCH_STEP;
}

static bool is_present(const struct os *os, const struct source *s)
{
    if (value_of(os, s->rank) == NULL && value_of(os, s->size) == NULL)
        return false;
    return strcmp(s->name, "Slurm") != 0 || is_slurm_step(os);
}

/* ---- other launchers: which job is this? ---- */

static bool has_variable(const struct os *os, int32_t pid, const char *name, char *space)
{
    size_t n = proc_environment(os, pid, space, ENVIRON_MAX), length = strlen(name);
    for (const char *at = space; at < space + n; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return true;
    return false;
}

/* The process that started the ranks on this machine: the nearest ancestor that has no rank itself.
 * Shells and wrappers in between differ from rank to rank, this one does not. */
static int32_t starter_of(const struct os *os, const char *rank_name)
{
    int32_t pid = os->pid(os->ctx);
    char *space = os_alloc(os, ENVIRON_MAX);
    for (int i = 0; i < ANCESTORS_MAX && space != NULL; i++) {
        int32_t parent = proc_parent(os, pid);
        if (parent <= 0)
            break;
        pid = parent;
        if (!has_variable(os, pid, rank_name, space))
            break;
    }
    os_free(os, space);
    return pid;
}

static void identify(const struct os *os, const struct source *s, struct bootstrap *b)
{
    bool is_known = false;
    size_t used = (size_t)snprintf(b->identity, sizeof b->identity, "%s", s->name);
    for (int i = 0; i < IDENTITY_NAMES && s->identity[i] != NULL; i++) {
        const char *value = value_of(os, s->identity[i]);
        if (value == NULL)
            continue;
        is_known = true;
        int n = snprintf(b->identity + used, sizeof b->identity - used, "/%s", value);
        used += (size_t)n < sizeof b->identity - used ? (size_t)n : 0;
    }
    if (is_known)
        return;
    if (b->local_size == b->size)
        snprintf(b->identity + used, sizeof b->identity - used, "/%d", starter_of(os, s->rank));
    else
        b->identity[0] = '\0';
}

static uint64_t identity_hash(const struct bootstrap *b)
{
    uint8_t digest[SHA256_BYTES];
    uint64_t hash = 0;
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, b->identity, strlen(b->identity));
    sha256_final(&h, digest);
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

/* ---- other launchers: where do the ranks meet? ---- */

static hvd_status_t at_master(const struct os *os, struct bootstrap *b, struct error *error)
{
    const char *master = value_of(os, "MASTER_ADDR");
    int32_t port = 0;
    hvd_status_t status = number_of(os, "MASTER_PORT", &port, error);
    if (status != HVD_OK)
        return status;
    if (port < 1 || port >= UINT16_MAX)
        return error_set(error, HVD_ERR_CONFIG, "MASTER_PORT is %d, which is not a port.", port);
    b->port = (uint16_t)(port + 1); /* MASTER_PORT itself is PyTorch's */
    snprintf(b->rendezvous, sizeof b->rendezvous, strchr(master, ':') != NULL ? "[%s]:%d" : "%s:%d",
             master, b->port);
    return HVD_OK;
}

static hvd_status_t at_first_node(const char *nodes, const char *name, struct bootstrap *b,
                                  struct error *error)
{
    char host[NODELIST_HOST_MAX];
    if (!nodelist_first(nodes, host))
        return error_set(error, HVD_ERR_CONFIG, "%s is '%.200s', which is not a list of nodes.",
                         name, nodes);
    b->port = (uint16_t)(PORT_FIRST + identity_hash(b) % PORT_COUNT);
    snprintf(b->rendezvous, sizeof b->rendezvous, "%s:%d", host, b->port);
    return HVD_OK;
}

/* Without them the ranks would search for each other until the time limit. */
static hvd_status_t check_master(const struct os *os, struct error *error)
{
    const bool has_address = value_of(os, "MASTER_ADDR") != NULL;
    if (has_address && value_of(os, "MASTER_PORT") != NULL)
        return HVD_OK;
    return error_set(error, HVD_ERR_CONFIG,
                     "%s is set but %s is not: torchrun sets MASTER_ADDR and MASTER_PORT with RANK "
                     "and WORLD_SIZE.",
                     has_address ? "MASTER_ADDR" : "WORLD_SIZE",
                     has_address ? "MASTER_PORT" : "MASTER_ADDR");
}

static hvd_status_t across_hosts(const struct os *os, struct bootstrap *b, struct error *error)
{
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
    bool is_torch = strcmp(b->source, "torchrun") == 0;
    if (is_torch)
        return at_master(os, b, error);
    for (int i = 0; i < 2; i++)
        if (value_of(os, lists[i]) != NULL)
            return at_first_node(value_of(os, lists[i]), lists[i], b, error);
    return HVD_OK; /* only a file that all machines share can pass it on */
}

static hvd_status_t self_serve(const struct os *os, const struct config *c, const struct source *s,
                               struct bootstrap *b, struct error *error)
{
    b->is_self_served = true;
    if (b->size == 1)
        return HVD_OK;
    if (strcmp(s->name, "torchrun") == 0 && c->rendezvous[0] == '\0') {
        hvd_status_t status = check_master(os, error);
        if (status != HVD_OK)
            return status;
    }
    identify(os, s, b);
    if (c->rendezvous[0] != '\0') {
        b->is_rendezvous_own = true;
        snprintf(b->rendezvous, sizeof b->rendezvous, "%s", c->rendezvous);
        return HVD_OK;
    }
    if (b->local_size < b->size)
        return across_hosts(os, b, error);
    snprintf(b->rendezvous, sizeof b->rendezvous, "unix:horovod-%u-%016llx",
             (unsigned)os->user(os->ctx), (unsigned long long)identity_hash(b));
    return HVD_OK;
}

static hvd_status_t from_explicit(const hvd_config_t *e, struct bootstrap *b)
{
    b->source = "hvd_config";
    b->rank = e->rank;
    b->size = e->size;
    b->local_rank = e->local_size > 0 ? e->local_rank : 0;
    b->local_size = e->local_size > 0 ? e->local_size : 1;
    b->cross_rank = e->cross_size > 0 ? e->cross_rank : 0;
    b->cross_size = e->cross_size > 0 ? e->cross_size : 1;
    snprintf(b->rendezvous, sizeof b->rendezvous, "%s", e->rendezvous != NULL ? e->rendezvous : "");
    return HVD_OK;
}

hvd_status_t bootstrap_find(const struct os *os, const struct config *config,
                            const hvd_config_t *explicit_config, struct bootstrap *ret,
                            struct error *error)
{
    memset(ret, 0, sizeof *ret);
    hvd_status_t status = HVD_OK;
    if (explicit_config != NULL && explicit_config->size > 0) {
        from_explicit(explicit_config, ret);
        return check_numbers(ret, config->elastic, error);
    }
    if (config->rank >= 0 || config->size >= 0) {
        status = from_launcher(config, ret, error);
        return status == HVD_OK ? check_numbers(ret, config->elastic, error) : status;
    }
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (!is_present(os, &sources[i]))
            continue;
        status = from_source(os, &sources[i], ret, error);
        if (status == HVD_OK)
            status = check_numbers(ret, config->elastic, error);
        return status == HVD_OK ? self_serve(os, config, &sources[i], ret, error) : status;
    }
    if (value_of(os, "PMIX_RANK") != NULL && strcmp(value_of(os, "PMIX_RANK"), "0") != 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "PMIX_RANK is %s but no variable tells how many ranks there are. Set "
                         "HOROVOD_RANK and HOROVOD_SIZE, or start the script with horovodrun.",
                         value_of(os, "PMIX_RANK"));
    ret->source = "no launcher";
    ret->size = ret->local_size = ret->cross_size = 1;
    return HVD_OK;
}
