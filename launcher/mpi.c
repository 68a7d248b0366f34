/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - see mpi.h. The line has a fixed order that scripts and logs know:
 *   mpirun {base} -np {n}{per host}{hosts} {binding} {impl} {ssh} {nic} {nccl} {output} {env}
 *   {mpi-args} {command}
 * and an empty piece leaves its blank behind. The library differs in four columns: Open MPI (with
 * its 5.x spelling), Spectrum MPI, MPICH and Intel MPI.
 * Thread: one.  Start reading at mpi_command(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "mpi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env.h"
#include "knobs.h"

#define LARGE_CLUSTER 64
#define MPI_NOT_FOUND                                                                              \
    "horovodrun: no usable mpirun in the PATH (Open MPI, Spectrum MPI, MPICH and Intel MPI are "   \
    "known); install one, or start without --mpi\n"

enum mpi_kind mpi_kind_of(const char *text)
{
    if (strstr(text, "IBM Spectrum MPI") != NULL)
        return MPI_SPECTRUM;
    if (strstr(text, "Open MPI") != NULL || strstr(text, "OpenRTE") != NULL) {
        const char *number = strpbrk(text, "0123456789");
        return number != NULL && atoi(number) >= 5 ? MPI_OPEN_5 : MPI_OPEN;
    }
    if (strstr(text, "MPICH") != NULL || strstr(text, "HYDRA") != NULL)
        return MPI_MPICH;
    if (strstr(text, "Intel(R) MPI") != NULL)
        return MPI_INTEL;
    return MPI_UNKNOWN;
}

static bool is_hydra(enum mpi_kind kind)
{
    return kind == MPI_MPICH || kind == MPI_INTEL;
}

/* Plain words stay; everything else goes into single quotes, as Python's shlex does. */
char *mpi_quote(struct mem *m, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "@%_+=:,./-";
    if (word[0] != '\0' && strspn(word, plain) == strlen(word))
        return mem_copy(m, word);
    char *out = mem_alloc(m, 5 * strlen(word) + 3);
    char *at = out;
    *at++ = '\'';
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            memcpy(at, "'\"'\"'", 5);
            at += 5;
        } else {
            *at++ = *word;
        }
    }
    *at++ = '\'';
    *at = '\0';
    return out;
}

char *mpi_join(struct mem *m, char *const *words, size_t count, const char *between)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(words[i]) + strlen(between);
    char *out = mem_alloc(m, bytes), *at = out;
    for (size_t i = 0; i < count; i++) {
        at = stpcpy(at, i == 0 ? "" : between);
        at = stpcpy(at, words[i]);
    }
    return out;
}

static hvd_status_t hosts_piece(struct mem *m, enum mpi_kind kind, const struct hosts *hosts,
                                char **ret, struct error *error)
{
    struct list words = {0};
    for (int32_t i = 0; i < hosts->count; i++) {
        const struct host *h = &hosts->items[i];
        if (is_hydra(kind) && h->slots != hosts->items[0].slots)
            return error_set(error, HVD_ERR_INVALID,
                             "this MPI needs the same number of slots on every host, but %s has %d "
                             "and %s has %d",
                             hosts->items[0].name, hosts->items[0].slots, h->name, h->slots);
        list_add(m, &words, is_hydra(kind) ? h->name : mem_format(m, "%s:%d", h->name, h->slots));
    }
    char *all = mpi_join(m, words.items, words.count, ",");
    *ret = is_hydra(kind) ? mem_format(m, " -ppn %d -hosts %s", hosts->items[0].slots, all)
                          : mem_format(m, " -H %s", all);
    return HVD_OK;
}

static const char *binding_piece(const struct args *args, enum mpi_kind kind)
{
    if (args->binding_args != NULL && !is_hydra(kind))
        return args->binding_args;
    switch (kind) {
    case MPI_OPEN_5: return "--bind-to none --map-by slot";
    case MPI_SPECTRUM: return "-bind-to socket -map-by socket -rank-by core";
    case MPI_INTEL: return "";
    case MPI_OPEN:
    case MPI_MPICH:
    case MPI_MISSING:
    case MPI_UNKNOWN: return "-bind-to none -map-by slot";
    }
    return "";
}

static const char *impl_piece(const struct args *args, enum mpi_kind kind)
{
    if (kind == MPI_OPEN)
        return "-mca pml ob1 -mca btl ^openib";
    return kind == MPI_SPECTRUM && args->tcp ? "-tcp" : "";
}

static char *ssh_piece(struct mem *m, const struct args *args, enum mpi_kind kind, int32_t hosts)
{
    char *options = mem_copy(m, "");
    if (args->ssh_port.is_set)
        options = mem_format(m, "-p %" PRId64, args->ssh_port.value);
    if (args->ssh_identity_file != NULL)
        options = mem_format(m, "%s%s-i %s", options, options[0] == '\0' ? "" : " ",
                             args->ssh_identity_file);
    const char *mca = kind == MPI_OPEN_5 ? "--prtemca" : "-mca";
    char *piece = mem_copy(m, "");
    if (options[0] != '\0' && is_hydra(kind))
        piece = mem_format(m, "-bootstrap=ssh -bootstrap-exec-args \"%s\"", options);
    else if (options[0] != '\0')
        piece = mem_format(m, "%s plm_rsh_args \"%s\"", mca, options);
    if (hosts >= LARGE_CLUSTER && !is_hydra(kind))
        piece = mem_format(m, "%s%s%s plm_rsh_no_tree_spawn true %s plm_rsh_num_concurrent %d",
                           piece, piece[0] == '\0' ? "" : " ", mca, mca, hosts);
    return piece;
}

static void nic_pieces(struct mem *m, const struct args *args, enum mpi_kind kind, char **ret_nic,
                       char **ret_nccl)
{
    *ret_nic = *ret_nccl = mem_copy(m, "");
    if (args->interfaces.count == 0)
        return;
    char *all = mpi_join(m, args->interfaces.items, args->interfaces.count, ",");
    if (is_hydra(kind)) {
        *ret_nic = mem_format(m, "-iface %s", args->interfaces.items[0]);
        *ret_nccl = mem_format(m, "-genv NCCL_SOCKET_IFNAME=%s", all);
        return;
    }
    *ret_nic = mem_format(m, "-mca btl_tcp_if_include %s", all);
    *ret_nccl = mem_format(m, "-x NCCL_SOCKET_IFNAME=%s", all);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_shell_name(const char *name)
{
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] ==
           '\0';
}

/* Hydra passes the whole environment on by itself. */
static char *env_piece(struct mem *m, enum mpi_kind kind, const struct list *env)
{
    struct list names = {0};
    if (is_hydra(kind))
        return mem_copy(m, "");
    for (size_t i = 0; i < env->count; i++) {
        char *name = mem_copy_n(m, env->items[i], strcspn(env->items[i], "="));
        if (env_is_exportable(name) && is_shell_name(name))
            list_add(m, &names, mem_format(m, "-x %s", name));
    }
    if (names.count > 0)
        qsort(names.items, names.count, sizeof *names.items, by_name);
    return mpi_join(m, names.items, names.count, " ");
}

static char *output_piece(struct mem *m, const struct args *args, enum mpi_kind kind)
{
    if (args->output_filename == NULL)
        return mem_copy(m, "");
    return mem_format(m, "%s %s", is_hydra(kind) ? "-outfile-pattern" : "--output-filename",
                      args->output_filename);
}

hvd_status_t mpi_command(struct mem *m, const struct args *args, enum mpi_kind kind,
                         const struct hosts *hosts, int32_t count, const struct list *env,
                         const struct list *command, char **ret, struct error *error)
{
    char *where = NULL, *nic = NULL, *nccl = NULL;
    hvd_status_t status = hosts_piece(m, kind, hosts, &where, error);
    if (status != HVD_OK)
        return status;
    nic_pieces(m, args, kind, &nic, &nccl);
    const char *base = is_hydra(kind) ? "-l" : "--allow-run-as-root --tag-output";
    const char *time =
        args->prefix_output_with_timestamp && !is_hydra(kind) ? " --timestamp-output" : "";
    struct list words = {0};
    for (size_t i = 0; i < command->count; i++)
        list_add(m, &words, mpi_quote(m, command->items[i]));
    *ret = mem_format(
        m, "mpirun %s%s -np %d%s %s %s %s %s %s %s %s %s %s", base, time, count, where,
        binding_piece(args, kind), impl_piece(args, kind), ssh_piece(m, args, kind, hosts->count),
        nic, nccl, output_piece(m, args, kind), env_piece(m, kind, env),
        args->mpi_args == NULL ? "" : args->mpi_args, mpi_join(m, words.items, words.count, " "));
    return HVD_OK;
}

/* ---- running it ---- */

static enum mpi_kind ask_mpirun(void)
{
    char text[4096];
    FILE *pipe = popen("mpirun --version 2>/dev/null", "re");
    if (pipe == NULL)
        return MPI_MISSING;
    size_t n = fread(text, 1, sizeof text - 1, pipe);
    text[n] = '\0';
    int rc = pclose(pipe);
    return rc != 0 ? MPI_MISSING : mpi_kind_of(text);
}

void mpi_become_shell(struct mem *m, const char *line, const struct list *env)
{
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", mem_copy(m, line), NULL};
    execve(argv[0], argv, env->items);
    fprintf(stderr, "horovodrun: cannot run /bin/sh: %s\n", strerror(errno));
    exit(126);
}

void mpi_environment(struct job *job, struct list *ret)
{
    static const char *const not_ours[] = {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS",
                                           "PYTHONUNBUFFERED"};
    env_common(job->mem, job->os, job->args, &job->assignments, false, ret);
    for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++)
        if (job->os->env(job->os->ctx, not_ours[i]) == NULL)
            list_unset(ret, not_ours[i]);
}

int mpi_run(struct job *job)
{
    struct error error;
    struct list env = {0};
    char *line = NULL;
    error_clear(&error);
    enum mpi_kind kind = ask_mpirun();
    if (kind == MPI_MISSING || kind == MPI_UNKNOWN) {
        fputs(MPI_NOT_FOUND, stderr);
        return 1;
    }
    mpi_environment(job, &env);
    if (mpi_command(job->mem, job->args, kind, job->hosts, job->generation.count, &env,
                    &job->command, &line, &error) != HVD_OK) {
        fprintf(stderr, "horovodrun: %s\n", error.text);
        return 1;
    }
    if (job->args->verbose)
        printf("%s\n", line);
    fflush(stdout);
    mpi_become_shell(job->mem, line, &env);
}
