/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap.c - see bootstrap.h. */
#include "api/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One way to be started: the variables that tell rank, size and place. NULL: the source has none.
 */
struct source {
    const char *name;
    const char *rank, *size, *local_rank, *local_size, *job;
};

static const struct source sources[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_ess_base_jobid"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_JOB_ID"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
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

static hvd_status_t check_numbers(const struct bootstrap *b, struct error *error)
{
    if (b->size < 1 || b->rank < 0 || b->rank >= b->size)
        return error_set(error, HVD_ERR_CONFIG, "%s says rank %d of %d, which can't be.", b->source,
                         b->rank, b->size);
    if (b->local_size < 1 || b->local_rank < 0 || b->local_rank >= b->local_size ||
        b->local_size > b->size)
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

static hvd_status_t from_launcher(const struct config *c, struct bootstrap *b, struct error *error)
{
    b->source = "the environment (HOROVOD_RANK ...)";
    if (c->rank < 0 || c->size < 0)
        return error_set(error, HVD_ERR_CONFIG, "%s is set but %s is not; set both or neither.",
                         c->rank >= 0 ? "HOROVOD_RANK" : "HOROVOD_SIZE",
                         c->rank >= 0 ? "HOROVOD_SIZE" : "HOROVOD_RANK");
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

/* ---- others' launchers ---- */

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
    if (status == HVD_OK && value_of(os, s->local_rank) != NULL)
        status = number_of(os, s->local_rank, &b->local_rank, error);
    if (status == HVD_OK && value_of(os, s->local_size) != NULL)
        status = number_of(os, s->local_size, &b->local_size, error);
    const char *job = value_of(os, s->job);
    snprintf(b->job, sizeof b->job, "%s", job != NULL ? job : "0");
    fill_missing(b);
    return status;
}

/* Without a launcher of ours rank 0 serves the store: on this host by a name made of the job,
 * elsewhere at an address that somebody must tell. */
static hvd_status_t self_serve(const struct os *os, const struct config *c, struct bootstrap *b,
                               struct error *error)
{
    b->is_self_served = true;
    if (b->size == 1)
        return HVD_OK;
    if (c->rendezvous[0] != '\0') {
        snprintf(b->rendezvous, sizeof b->rendezvous, "%s", c->rendezvous);
        return HVD_OK;
    }
    const char *master = value_of(os, "MASTER_ADDR"), *port = value_of(os, "MASTER_PORT");
    if (b->local_size == b->size)
        snprintf(b->rendezvous, sizeof b->rendezvous, "unix:horovod-%s-%s-%s", b->source, b->job,
                 port != NULL ? port : "0");
    else if (master != NULL && port != NULL)
        snprintf(b->rendezvous, sizeof b->rendezvous, "%s:%d", master, atoi(port) + 1);
    else
        return error_set(error, HVD_ERR_CONFIG,
                         "%s started %d ranks on several hosts; set HOROVOD_RENDEZVOUS to "
                         "HOST:PORT of rank 0's host "
                         "and HOROVOD_KEY_FILE to a file with the job key, or use horovodrun.",
                         b->source, b->size);
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
        return check_numbers(ret, error);
    }
    if (config->rank >= 0 || config->size >= 0) {
        status = from_launcher(config, ret, error);
        return status == HVD_OK ? check_numbers(ret, error) : status;
    }
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (value_of(os, sources[i].rank) == NULL && value_of(os, sources[i].size) == NULL)
            continue;
        status = from_source(os, &sources[i], ret, error);
        if (status == HVD_OK)
            status = self_serve(os, config, ret, error);
        return status == HVD_OK ? check_numbers(ret, error) : status;
    }
    ret->source = "no launcher";
    ret->size = ret->local_size = ret->cross_size = 1;
    return HVD_OK;
}
