/* SPDX-License-Identifier: Apache-2.0 */
/* allocation.c - see allocation.h. Thread: the launcher's.  Start reading at allocation_find(). */
#include "allocation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX (16u << 20)

static const char *env(const struct os *os, const char *name)
{
    const char *value = os->env(os->ctx, name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

hvd_status_t allocation_read_file(struct mem *m, const struct os *os, const char *path,
                                  char **ret_text, size_t *ret_n, struct error *error)
{
    int fd = os->open(os->ctx, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return error_set_os(error, fd, "cannot read %s", path);
    struct bytes text = {0};
    int64_t n = 1;
    while (n > 0 && bytes_used(&text) <= FILE_MAX) {
        n = os->read(os->ctx, fd, bytes_room(os, &text, 65536), 65536);
        if (n > 0)
            bytes_grew(&text, (size_t)n);
    }
    os->close(os->ctx, fd);
    hvd_status_t status = HVD_OK;
    if (n < 0)
        status = error_set_os(error, (int)n, "cannot read %s", path);
    else if (bytes_used(&text) > FILE_MAX)
        status = error_set(error, HVD_ERR_LIMIT, "%s is larger than %u bytes", path, FILE_MAX);
    else {
        *ret_text = mem_copy_n(m, (const char *)bytes_at(&text), bytes_used(&text));
        *ret_n = bytes_used(&text);
    }
    bytes_free(os, &text);
    return status;
}

bool allocation_is_lsf(const struct os *os)
{
    return env(os, "LSB_JOBID") != NULL;
}

static const char *slurm_nodes(const struct os *os)
{
    const char *nodes = env(os, "SLURM_JOB_NODELIST");
    return nodes != NULL ? nodes : env(os, "SLURM_NODELIST");
}

bool allocation_is_batch(const struct os *os)
{
    return allocation_is_lsf(os) || slurm_nodes(os) != NULL || env(os, "PBS_NODEFILE") != NULL;
}

static hvd_status_t from_file(struct mem *m, const struct os *os, const char *path,
                              struct hosts *ret, struct error *error)
{
    char *text = NULL;
    size_t n = 0;
    hvd_status_t status = allocation_read_file(m, os, path, &text, &n, error);
    return status != HVD_OK ? status : hosts_parse_file(m, path, text, n, ret, error);
}

static hvd_status_t from_lsf(struct mem *m, const struct os *os, struct hosts *ret,
                             struct error *error)
{
    if (env(os, "LSB_MCPU_HOSTS") != NULL)
        return hosts_parse_lsf(m, env(os, "LSB_MCPU_HOSTS"), ret, error);
    if (env(os, "LSB_DJOB_HOSTFILE") != NULL)
        return from_file(m, os, env(os, "LSB_DJOB_HOSTFILE"), ret, error);
    return error_set(error, HVD_ERR_CONFIG,
                     "LSB_JOBID is set, but neither LSB_MCPU_HOSTS nor LSB_DJOB_HOSTFILE names "
                     "hosts; give -H or --hostfile");
}

static hvd_status_t from_slurm(struct mem *m, const struct os *os, struct hosts *ret,
                               struct error *error)
{
    const char *tasks = env(os, "SLURM_TASKS_PER_NODE");
    if (tasks == NULL)
        tasks = env(os, "SLURM_JOB_CPUS_PER_NODE");
    return hosts_parse_slurm(m, slurm_nodes(os), tasks, ret, error);
}

hvd_status_t allocation_find(struct mem *m, const struct os *os, const struct args *args,
                             struct hosts *ret, const char **ret_source, struct error *error)
{
    if (args->hosts != NULL) {
        *ret_source = "-H";
        return hosts_parse_list(m, args->hosts, ret, error);
    }
    if (args->hostfile != NULL) {
        *ret_source = "--hostfile";
        return from_file(m, os, args->hostfile, ret, error);
    }
    if (allocation_is_lsf(os)) {
        *ret_source = "LSF";
        return from_lsf(m, os, ret, error);
    }
    if (slurm_nodes(os) != NULL) {
        *ret_source = "Slurm";
        return from_slurm(m, os, ret, error);
    }
    if (env(os, "PBS_NODEFILE") != NULL) {
        *ret_source = "PBS";
        return from_file(m, os, env(os, "PBS_NODEFILE"), ret, error);
    }
    *ret_source = "this machine";
    int64_t slots = args->num_proc.is_set ? args->num_proc.value : 1;
    if (slots < 1 || slots > HOSTS_SLOTS_MAX)
        return error_set(error, HVD_ERR_INVALID, "-np must be between 1 and %d", HOSTS_SLOTS_MAX);
    return hosts_parse_list(m, mem_format(m, "localhost:%lld", (long long)slots), ret, error);
}
