/* SPDX-License-Identifier: Apache-2.0 */
/* jsrun.c - see jsrun.h. The line is
 *   jsrun {--erf_input FILE | binding-args} [--stdio_stderr F --stdio_stdout F]
 *   [--smpiargs '{flags} {mpi-args}'] {command}
 * Thread: one.  Start reading at jsrun_run(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "jsrun.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "mpi.h"

#define ANSWER_MAX (1u << 20)
#define NUMBER_MAX 1000000
/* The service's programs, where the system has them; the PATH comes first. */
#define CSM_PATH "PATH=\"$PATH:/opt/ibm/csm/bin\" "

/* ---- reading answers ---- */

/* The text behind "NAME:" at the start of a line, blanks aside; NULL: there is none. */
static const char *field(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *at = line + strspn(line, " \t");
        if (strncmp(at, name, n) == 0 && at[n] == ':')
            return at + n + 1;
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return NULL;
}

static hvd_status_t number(const char *text, const char *name, int32_t *ret, struct error *error)
{
    const char *value = field(text, name);
    char *end = NULL;
    long found = value != NULL ? strtol(value, &end, 10) : -1;
    if (value == NULL || end == value || found < 0 || found > NUMBER_MAX)
        return error_set(error, HVD_ERR_CONFIG, "the cluster's service does not tell \"%s\"", name);
    *ret = (int32_t)found;
    return HVD_OK;
}

static bool is_host_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > HOSTS_NAME_MAX || name[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && strchr("-._", name[i]) == NULL)
            return false;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines "- NAME" behind "compute_nodes:". */
static void nodes_read(struct mem *m, const char *allocation, struct list *ret)
{
    const char *line = field(allocation, "compute_nodes");
    while (line != NULL && (line = strchr(line, '\n')) != NULL) {
        line++;
        const char *at = line + strspn(line, " \t");
        if (*at != '-' || strncmp(at, "---", 3) == 0)
            return;
        at += 1 + strspn(at + 1, " \t");
        list_add(m, ret, mem_copy_n(m, at, strcspn(at, " \t\r\n")));
    }
}

hvd_status_t jsrun_read_hosts(struct mem *m, const char *allocation, int32_t gpus,
                              struct hosts *ret, struct error *error)
{
    struct list nodes = {0}, words = {0};
    nodes_read(m, allocation, &nodes);
    if (nodes.count == 0 || gpus < 1)
        return error_set(error, HVD_ERR_CONFIG, "the cluster's service names no hosts with GPUs");
    qsort(nodes.items, nodes.count, sizeof *nodes.items, by_name);
    for (size_t i = 0; i < nodes.count; i++) {
        if (!is_host_name(nodes.items[i]))
            return error_set(error, HVD_ERR_CONFIG, "the cluster's service calls a host \"%.60s\"",
                             nodes.items[i]);
        list_add(m, &words, mem_format(m, "%s:%d", nodes.items[i], gpus));
    }
    return hosts_parse_list(m, mpi_join(m, words.items, words.count, ","), ret, error);
}

hvd_status_t jsrun_read_node(const char *allocation, const char *attributes, const char *lscpu,
                             struct jsrun_node *ret, struct error *error)
{
    int32_t cores = 0, sockets = 0, isolated = 0;
    hvd_status_t status = number(attributes, "discovered_cores", &cores, error);
    if (status == HVD_OK)
        status = number(attributes, "discovered_sockets", &sockets, error);
    if (status == HVD_OK)
        status = number(attributes, "discovered_gpus", &ret->gpus, error);
    if (status == HVD_OK) /* of each socket, kept for the system */
        status = number(allocation, "isolated_cores", &isolated, error);
    if (status == HVD_OK)
        status = number(lscpu, "Thread(s) per core", &ret->threads_per_core, error);
    if (status != HVD_OK)
        return status;
    ret->cores = (int64_t)sockets * isolated < cores ? cores - sockets * isolated : 0;
    return HVD_OK;
}

/* ---- the rank file ---- */

hvd_status_t jsrun_rank_file(struct mem *m, const struct hosts *hosts, int32_t count,
                             const struct jsrun_node *node, char **ret, struct error *error)
{
    struct list lines = {0};
    int32_t rank = 0;
    int32_t share = node->gpus > 0 ? node->cores * node->threads_per_core / node->gpus : 0;
    if (share < 1)
        return error_set(error, HVD_ERR_CONFIG,
                         "%d cores with %d threads do not suffice for %d GPUs on a host; give "
                         "--binding-args",
                         node->cores, node->threads_per_core, node->gpus);
    list_add(m, &lines, mem_copy(m, "overlapping_rs: allow\ncpu_index_using: logical\n"));
    for (int32_t i = 0; i < hosts->count && rank < count; i++) {
        const struct host *h = &hosts->items[i];
        if (h->slots > node->gpus)
            return error_set(error, HVD_ERR_INVALID,
                             "Invalid host input, slot count for host '%s:%d' is greater than "
                             "number of GPUs per host '%d'.",
                             h->name, h->slots, node->gpus);
        list_add(m, &lines, mem_copy(m, "\n"));
        for (int32_t s = 0; s < h->slots && rank < count; s++, rank++)
            list_add(m, &lines,
                     mem_format(m, "rank: %d: { hostname: %s; cpu: {%d-%d} ; gpu: * ; mem: * }\n",
                                rank, h->name, s * share, (s + 1) * share - 1));
    }
    if (rank < count)
        return error_set(error, HVD_ERR_INVALID,
                         "Not enough slots on the hosts to fulfill the %d requested.", count);
    *ret = mpi_join(m, lines.items, lines.count, "");
    return HVD_OK;
}

/* ---- asking and running ---- */

static hvd_status_t ask(struct mem *m, const char *line, char **ret, struct error *error)
{
    char *text = mem_alloc(m, ANSWER_MAX);
    FILE *pipe = popen(line, "re");
    size_t n = pipe != NULL ? fread(text, 1, ANSWER_MAX - 1, pipe) : 0;
    text[n] = '\0';
    if (pipe == NULL || pclose(pipe) != 0)
        return error_set(error, HVD_ERR_CONFIG, "`%s` failed", line);
    *ret = text;
    return HVD_OK;
}

/* What CSM says about this allocation; *ret_has: is there a CSM at all? */
static hvd_status_t ask_csm(struct job *job, struct hosts *ret_hosts, struct jsrun_node *ret_node,
                            bool *ret_has, struct error *error)
{
    struct mem *m = job->mem;
    const char *id = job->os->env(job->os->ctx, "CSM_ALLOCATION_ID");
    char *allocation = NULL, *attributes = NULL, *lscpu = NULL;
    *ret_has = id != NULL && id[0] != '\0';
    if (!*ret_has)
        return HVD_OK;
    if (id[strspn(id, "0123456789")] != '\0')
        return error_set(error, HVD_ERR_CONFIG, "CSM_ALLOCATION_ID is '%.60s', which is no number",
                         id);
    hvd_status_t status =
        ask(m, mem_format(m, CSM_PATH "csm_allocation_query -a %s", id), &allocation, error);
    if (status == HVD_OK) /* one slot each, to have their names checked */
        status = jsrun_read_hosts(m, allocation, 1, ret_hosts, error);
    if (status != HVD_OK)
        return status;
    const char *first = ret_hosts->items[0].name;
    status = ask(m, mem_format(m, CSM_PATH "csm_node_attributes_query -n %s", first), &attributes,
                 error);
    if (status == HVD_OK)
        status = ask(
            m, mem_format(m, "ssh -o BatchMode=yes -o StrictHostKeyChecking=no %s lscpu", first),
            &lscpu, error);
    if (status == HVD_OK)
        status = jsrun_read_node(allocation, attributes, lscpu, ret_node, error);
    *ret_hosts = (struct hosts){0};
    return status == HVD_OK ? jsrun_read_hosts(m, allocation, ret_node->gpus, ret_hosts, error)
                            : status;
}

static hvd_status_t file_write(struct job *job, const char *text, char **ret_path,
                               struct error *error)
{
    const struct os *os = job->os;
    const char *folder = os->env(os->ctx, "TMPDIR");
    *ret_path = mem_format(job->mem, "%s/horovod-ranks-%d-%llx",
                           folder != NULL && folder[0] == '/' ? folder : "/tmp", os->pid(os->ctx),
                           (unsigned long long)os_now_ns(os));
    int fd = os->open(os->ctx, *ret_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t n = strlen(text), done = 0;
    int64_t put = fd;
    while (put >= 0 && done < n) {
        put = os->write(os->ctx, fd, text + done, n - done);
        done += put > 0 ? (size_t)put : 0;
    }
    if (fd >= 0)
        os->close(os->ctx, fd);
    return put < 0 ? error_set_os(error, (int)put, "cannot write %s", *ret_path) : HVD_OK;
}

static hvd_status_t binding(struct job *job, char **ret_piece, char **ret_file, struct error *error)
{
    struct hosts all = {0};
    struct jsrun_node node = {0};
    bool has_csm = false;
    char *text = NULL;
    const struct args *args = job->args;
    hvd_status_t status = ask_csm(job, &all, &node, &has_csm, error);
    if (status == HVD_OK && !has_csm)
        status = error_set(
            error, HVD_ERR_CONFIG,
            "--jsrun needs --binding-args here (for example --binding-args=\"--tasks_per_rs 1 "
            "--cpu_per_rs 4 --nrs 8\"): CSM_ALLOCATION_ID is not set, so nobody tells what the "
            "hosts have. Without jsrun, plain horovodrun starts the processes on the hosts of the "
            "LSF job by itself");
    if (status != HVD_OK)
        return status;
    bool is_told = args->hosts != NULL || args->hostfile != NULL;
    const struct hosts *hosts = is_told ? job->hosts : &all;
    int32_t count = args->num_proc.is_set ? job->generation.count : (int32_t)hosts_slot_sum(hosts);
    status = jsrun_rank_file(job->mem, hosts, count, &node, &text, error);
    if (status == HVD_OK)
        status = file_write(job, text, ret_file, error);
    if (status == HVD_OK)
        *ret_piece = mem_format(job->mem, "--erf_input %s", mpi_quote(job->mem, *ret_file));
    return status;
}

static char *smpi_piece(struct mem *m, const struct args *args)
{
    const char *flags = args->tcp ? "-tcp" : "", *more = args->mpi_args;
    if (!args->tcp && more == NULL)
        return mem_copy(m, "");
    return mem_format(m, " --smpiargs '%s%s%s'", flags, args->tcp && more != NULL ? " " : "",
                      more != NULL ? more : "");
}

/* The rank file goes once jsrun has ended. */
static char *whole_line(struct job *job, const char *piece, const char *file)
{
    struct mem *m = job->mem;
    struct list words = {0};
    const char *out = job->args->output_filename;
    for (size_t i = 0; i < job->command.count; i++)
        list_add(m, &words, mpi_quote(m, job->command.items[i]));
    char *line = mem_format(
        m, "jsrun %s%s%s %s", piece,
        out == NULL ? "" : mem_format(m, " --stdio_stderr %s --stdio_stdout %s", out, out),
        smpi_piece(m, job->args), mpi_join(m, words.items, words.count, " "));
    if (file == NULL)
        return line;
    return mem_format(m, "%s; code=$?; rm -f %s; exit $code", line, mpi_quote(m, file));
}

int jsrun_run(struct job *job)
{
    struct error error;
    struct list env = {0};
    char *piece = NULL, *file = NULL;
    error_clear(&error);
    if (!allocation_is_lsf(job->os)) {
        fputs("horovodrun: Horovod did not detect an LSF job.  The jsrun launcher can only be used "
              "in that environment. Please, pick a different launcher for other environments.\n",
              stderr);
        return 1;
    }
    if (job->args->binding_args != NULL)
        piece = mem_copy(job->mem, job->args->binding_args);
    else if (binding(job, &piece, &file, &error) != HVD_OK) {
        fprintf(stderr, "horovodrun: %s\n", error.text);
        return 1;
    }
    mpi_environment(job, &env);
    char *line = whole_line(job, piece, file);
    if (job->args->verbose)
        printf("%s\n", line);
    fflush(stdout);
    mpi_become_shell(job->mem, line, &env);
}
