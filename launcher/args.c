/* SPDX-License-Identifier: Apache-2.0 */
/* args.c - see args.h. A row is one spelling group of one option; two rows may write the same field
 * (`--x` and `--no-x`). Rows of one exclusive set refuse each other, as argparse does.
 * Thread: any.  Start reading at arg_rows[], then args_parse(). */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum arg_kind {
    ARG_FLAG,       /* bool, set to true */
    ARG_TRUE,       /* struct arg_bool */
    ARG_FALSE,      /* struct arg_bool */
    ARG_INT,        /* struct arg_int */
    ARG_INT_PAIR,   /* two struct arg_int behind each other */
    ARG_FLOAT,      /* struct arg_float */
    ARG_TEXT,       /* const char * */
    ARG_LEVEL,      /* const char *, one of the log levels */
    ARG_INTERFACES, /* struct list: comma separated, repeatable */
    ARG_INTERFACE   /* the same, deprecated spelling */
};

enum arg_group {
    GROUP_GENERAL,
    GROUP_SSH,
    GROUP_TUNING,
    GROUP_AUTOTUNE,
    GROUP_ELASTIC,
    GROUP_TIMELINE,
    GROUP_STALL,
    GROUP_LIBRARY,
    GROUP_LOGGING,
    GROUP_HOSTS,
    GROUP_CONTROLLER,
    GROUP_COUNT
};

enum arg_exclusive {
    FREE,
    EXCL_HIERARCHICAL_ALLREDUCE,
    EXCL_HIERARCHICAL_ALLGATHER,
    EXCL_TORUS,
    EXCL_AUTOTUNE,
    EXCL_MARK_CYCLES,
    EXCL_STALL,
    EXCL_MPI_THREADS,
    EXCL_TIMESTAMP,
    EXCL_HOSTS,
    EXCL_CONTROLLER,
    EXCL_COUNT
};

struct arg_row {
    const char *names[2]; /* short or older spelling first; the second may be NULL */
    enum arg_kind kind;
    size_t offset;
    enum arg_group group;
    enum arg_exclusive exclusive;
    const char *metavar; /* NULL: takes no value */
    const char *help;    /* NULL: hidden */
};

static const char *const group_titles[GROUP_COUNT] = {
    [GROUP_GENERAL] = "Job",       [GROUP_HOSTS] = "Hosts (one of them)",
    [GROUP_SSH] = "SSH",           [GROUP_CONTROLLER] = "Controller (one of them)",
    [GROUP_TUNING] = "Tuning",     [GROUP_AUTOTUNE] = "Autotune",
    [GROUP_TIMELINE] = "Timeline", [GROUP_STALL] = "Stall check",
    [GROUP_LOGGING] = "Logging",   [GROUP_LIBRARY] = "Libraries",
    [GROUP_ELASTIC] = "Elastic",
};

static const enum arg_group group_order[] = {
    GROUP_GENERAL,  GROUP_HOSTS, GROUP_SSH,     GROUP_CONTROLLER, GROUP_TUNING, GROUP_AUTOTUNE,
    GROUP_TIMELINE, GROUP_STALL, GROUP_LOGGING, GROUP_LIBRARY,    GROUP_ELASTIC};

#define AT(field) offsetof(struct args, field)

#define ROW(name, other, kind, field, group, exclusive, metavar, help)                             \
    {                                                                                              \
        {name, other}, kind, AT(field), group, exclusive, metavar, help                            \
    }

static const struct arg_row arg_rows[] = {
    ROW("-h", "--help", ARG_FLAG, wants_help, GROUP_GENERAL, FREE, NULL, "show this help and exit"),
    ROW("-v", "--version", ARG_FLAG, wants_version, GROUP_GENERAL, FREE, NULL,
        "print the version and exit"),
    ROW("-np", "--num-proc", ARG_INT, num_proc, GROUP_GENERAL, FREE, "N",
        "number of processes to start; with elastic, the number needed before the job begins"),
    ROW("-cb", "--check-build", ARG_FLAG, check_build, GROUP_GENERAL, FREE, NULL,
        "show which frameworks, controllers and operations are usable on this machine, and exit"),
    ROW("--print-config", NULL, ARG_FLAG, print_config, GROUP_GENERAL, FREE, NULL,
        "show every setting with its value as the workers would see it, and exit"),
    ROW("--doctor", NULL, ARG_FLAG, doctor, GROUP_GENERAL, FREE, NULL,
        "check ssh, versions, clocks, addresses and bandwidth of the hosts, give a verdict, and "
        "exit"),
    ROW("--config-file", NULL, ARG_TEXT, config_file, GROUP_GENERAL, FREE, "FILE",
        "YAML file with settings; an option on the command line wins over the file"),
    ROW("--start-timeout", NULL, ARG_INT, start_timeout_s, GROUP_GENERAL, FREE, "SECONDS",
        "how long all hosts may take to come up (default: HOROVOD_START_TIMEOUT, else 30)"),
    ROW("--network-interfaces", NULL, ARG_INTERFACES, interfaces, GROUP_GENERAL, FREE, "A,B",
        "use only these network interfaces; a host that lacks one of them uses the others"),
    ROW("--network-interface", NULL, ARG_INTERFACE, interfaces, GROUP_GENERAL, FREE, "A",
        "one network interface; may be repeated"),
    ROW("--output-filename", NULL, ARG_TEXT, output_filename, GROUP_GENERAL, FREE, "DIR",
        "also write each rank's output to DIR/rank.N/stdout and DIR/rank.N/stderr"),
    ROW("--disable-cache", NULL, ARG_FLAG, disable_cache, GROUP_GENERAL, FREE, NULL,
        "accepted for old scripts: nothing is cached between runs"),
    ROW("--verbose", NULL, ARG_FLAG, verbose, GROUP_GENERAL, FREE, NULL,
        "tell what the launcher does"),
    ROW("--agent", NULL, ARG_FLAG, is_agent, GROUP_GENERAL, FREE, NULL, NULL),
    ROW("--run-func-folder", NULL, ARG_TEXT, run_func_folder, GROUP_GENERAL, FREE, "DIR", NULL),

    ROW("-p", "--ssh-port", ARG_INT, ssh_port, GROUP_SSH, FREE, "PORT", "ssh port on all hosts"),
    ROW("-i", "--ssh-identity-file", ARG_TEXT, ssh_identity_file, GROUP_SSH, FREE, "FILE",
        "private key for ssh"),

    ROW("--fusion-threshold-mb", NULL, ARG_INT, fusion_threshold_mb, GROUP_TUNING, FREE, "MB",
        "largest batch of small tensors that is reduced as one"),
    ROW("--cycle-time-ms", NULL, ARG_FLOAT, cycle_time_ms, GROUP_TUNING, FREE, "MS",
        "longest wait for more tensors before a batch is started"),
    ROW("--cache-capacity", NULL, ARG_INT, cache_capacity, GROUP_TUNING, FREE, "N",
        "number of tensors whose agreement is remembered between steps"),
    ROW("--hierarchical-allreduce", NULL, ARG_TRUE, hierarchical_allreduce, GROUP_TUNING,
        EXCL_HIERARCHICAL_ALLREDUCE, NULL, "reduce inside each host before going between hosts"),
    ROW("--no-hierarchical-allreduce", NULL, ARG_FALSE, hierarchical_allreduce, GROUP_TUNING,
        EXCL_HIERARCHICAL_ALLREDUCE, NULL, "never do so, and keep autotune from trying it"),
    ROW("--hierarchical-allgather", NULL, ARG_TRUE, hierarchical_allgather, GROUP_TUNING,
        EXCL_HIERARCHICAL_ALLGATHER, NULL, "gather inside each host before going between hosts"),
    ROW("--no-hierarchical-allgather", NULL, ARG_FALSE, hierarchical_allgather, GROUP_TUNING,
        EXCL_HIERARCHICAL_ALLGATHER, NULL, "never do so, and keep autotune from trying it"),
    ROW("--torus-allreduce", NULL, ARG_TRUE, torus_allreduce, GROUP_TUNING, EXCL_TORUS, NULL,
        "reduce along hosts, then across them"),
    ROW("--no-torus-allreduce", NULL, ARG_FALSE, torus_allreduce, GROUP_TUNING, EXCL_TORUS, NULL,
        "never do so, and keep autotune from trying it"),

    ROW("--autotune", NULL, ARG_TRUE, autotune, GROUP_AUTOTUNE, EXCL_AUTOTUNE, NULL,
        "find good tuning values while training; those given explicitly stay as they are"),
    ROW("--no-autotune", NULL, ARG_FALSE, autotune, GROUP_AUTOTUNE, EXCL_AUTOTUNE, NULL, NULL),
    ROW("--autotune-log-file", NULL, ARG_TEXT, autotune_log_file, GROUP_AUTOTUNE, FREE, "FILE",
        "CSV file for what was tried and how fast it was"),
    ROW("--autotune-warmup-samples", NULL, ARG_INT, autotune_warmup_samples, GROUP_AUTOTUNE, FREE,
        "N", "samples to discard before scoring"),
    ROW("--autotune-steps-per-sample", NULL, ARG_INT, autotune_steps_per_sample, GROUP_AUTOTUNE,
        FREE, "N", "steps that make one sample"),
    ROW("--autotune-bayes-opt-max-samples", NULL, ARG_INT, autotune_bayes_opt_max_samples,
        GROUP_AUTOTUNE, FREE, "N", "samples after which the search ends"),
    ROW("--autotune-gaussian-process-noise", NULL, ARG_FLOAT, autotune_gaussian_process_noise,
        GROUP_AUTOTUNE, FREE, "X", "noise of the search's model, 0 to 1"),

    ROW("--min-np", "--min-num-proc", ARG_INT, min_num_proc, GROUP_ELASTIC, FREE, "N",
        "go on with at least N processes; turns elastic on"),
    ROW("--max-np", "--max-num-proc", ARG_INT, max_num_proc, GROUP_ELASTIC, FREE, "N",
        "never use more than N processes"),
    ROW("--slots-per-host", NULL, ARG_INT, slots_per_host, GROUP_ELASTIC, FREE, "N",
        "slots of a discovered host that does not say (default: 1)"),
    ROW("--elastic-timeout", NULL, ARG_INT, elastic_timeout_s, GROUP_ELASTIC, FREE, "SECONDS",
        "how long to wait for enough slots (default: HOROVOD_ELASTIC_TIMEOUT, else 600)"),
    ROW("--reset-limit", NULL, ARG_INT, reset_limit, GROUP_ELASTIC, FREE, "N",
        "give up after this many changes of membership"),
    ROW("--blacklist-cooldown-range", NULL, ARG_INT_PAIR, cooldown_low_s, GROUP_ELASTIC, FREE,
        "LOW HIGH", "seconds after which a host that failed may be used again"),

    ROW("--timeline-filename", NULL, ARG_TEXT, timeline_filename, GROUP_TIMELINE, FREE, "FILE",
        "write a trace of all operations for chrome://tracing or Perfetto"),
    ROW("--timeline-mark-cycles", NULL, ARG_TRUE, timeline_mark_cycles, GROUP_TIMELINE,
        EXCL_MARK_CYCLES, NULL, "mark each cycle in the trace"),
    ROW("--no-timeline-mark-cycles", NULL, ARG_FALSE, timeline_mark_cycles, GROUP_TIMELINE,
        EXCL_MARK_CYCLES, NULL, NULL),

    ROW("--no-stall-check", NULL, ARG_TRUE, no_stall_check, GROUP_STALL, EXCL_STALL, NULL,
        "do not warn when some ranks wait for others"),
    ROW("--stall-check", NULL, ARG_FALSE, no_stall_check, GROUP_STALL, EXCL_STALL, NULL, NULL),
    ROW("--stall-check-warning-time-seconds", NULL, ARG_INT, stall_check_warning_time_s,
        GROUP_STALL, FREE, "SECONDS", "warn after this time"),
    ROW("--stall-check-shutdown-time-seconds", NULL, ARG_INT, stall_check_shutdown_time_s,
        GROUP_STALL, FREE, "SECONDS", "end the job after this time (0: never)"),

    ROW("--mpi-threads-disable", NULL, ARG_TRUE, mpi_threads_disable, GROUP_LIBRARY,
        EXCL_MPI_THREADS, NULL, "do not ask MPI for thread support"),
    ROW("--no-mpi-threads-disable", NULL, ARG_FALSE, mpi_threads_disable, GROUP_LIBRARY,
        EXCL_MPI_THREADS, NULL, NULL),
    ROW("--mpi-args", NULL, ARG_TEXT, mpi_args, GROUP_LIBRARY, FREE, "TEXT",
        "more arguments for mpirun, written as --mpi-args=\"...\""),
    ROW("--tcp", NULL, ARG_FLAG, tcp, GROUP_LIBRARY, FREE, NULL, "use TCP only, no InfiniBand"),
    ROW("--binding-args", NULL, ARG_TEXT, binding_args, GROUP_LIBRARY, FREE, "TEXT",
        "replaces the process binding arguments of mpirun or jsrun"),
    ROW("--num-nccl-streams", NULL, ARG_INT, num_nccl_streams, GROUP_LIBRARY, FREE, "N",
        "number of NCCL streams"),
    ROW("--thread-affinity", NULL, ARG_INT, thread_affinity, GROUP_LIBRARY, FREE, "CORE",
        "core of the background thread"),
    ROW("--gloo-timeout-seconds", NULL, ARG_INT, gloo_timeout_s, GROUP_LIBRARY, FREE, "SECONDS",
        "how long ranks wait for each other at the start and in control messages"),

    ROW("--log-level", NULL, ARG_LEVEL, log_level, GROUP_LOGGING, FREE, "LEVEL",
        "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"),
    ROW("--log-with-timestamp", NULL, ARG_TRUE, log_with_timestamp, GROUP_LOGGING, EXCL_TIMESTAMP,
        NULL, NULL),
    ROW("--log-without-timestamp", NULL, ARG_FALSE, log_with_timestamp, GROUP_LOGGING,
        EXCL_TIMESTAMP, NULL, "no time in log lines"),
    ROW("--log-hide-timestamp", NULL, ARG_FALSE, log_with_timestamp, GROUP_LOGGING, EXCL_TIMESTAMP,
        NULL, NULL),
    ROW("--no-log-hide-timestamp", NULL, ARG_TRUE, log_with_timestamp, GROUP_LOGGING,
        EXCL_TIMESTAMP, NULL, NULL),
    ROW("-prefix-timestamp", "--prefix-output-with-timestamp", ARG_FLAG,
        prefix_output_with_timestamp, GROUP_LOGGING, EXCL_TIMESTAMP, NULL,
        "put the time in front of every line of output"),

    ROW("-H", "--hosts", ARG_TEXT, hosts, GROUP_HOSTS, EXCL_HOSTS, "A:2,B:2",
        "hosts and their slots; an IPv6 address goes in brackets"),
    ROW("-hostfile", "--hostfile", ARG_TEXT, hostfile, GROUP_HOSTS, EXCL_HOSTS, "FILE",
        "one host a line, `name slots=2`, as Open MPI reads it"),
    ROW("--host-discovery-script", NULL, ARG_TEXT, host_discovery_script, GROUP_HOSTS, EXCL_HOSTS,
        "FILE", "program that prints the hosts of now, `name:slots`; turns elastic on"),

    ROW("--gloo", NULL, ARG_FLAG, use_gloo, GROUP_CONTROLLER, EXCL_CONTROLLER, NULL,
        "start the processes from here (the default)"),
    ROW("--mpi", NULL, ARG_FLAG, use_mpi, GROUP_CONTROLLER, EXCL_CONTROLLER, NULL,
        "start them with mpirun"),
    ROW("--jsrun", NULL, ARG_FLAG, use_jsrun, GROUP_CONTROLLER, EXCL_CONTROLLER, NULL,
        "start them with jsrun (LSF)"),
};

#define ROW_COUNT (sizeof arg_rows / sizeof *arg_rows)

static const char *const log_levels[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};

/* ---- finding the option ---- */

/* "-np/--num-proc", as argparse names an argument in its messages. */
static const char *row_label(struct mem *m, const struct arg_row *row)
{
    if (row->names[1] == NULL)
        return row->names[0];
    return mem_format(m, "%s/%s", row->names[0], row->names[1]);
}

static const struct arg_row *row_exact(const char *name, size_t n)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        for (int k = 0; k < 2 && arg_rows[i].names[k] != NULL; k++)
            if (strlen(arg_rows[i].names[k]) == n && strncmp(arg_rows[i].names[k], name, n) == 0)
                return &arg_rows[i];
    return NULL;
}

static hvd_status_t row_ambiguous(struct mem *m, const char *name, size_t n, struct error *error)
{
    char *all = NULL;
    for (size_t i = 0; i < ROW_COUNT; i++)
        for (int k = 0; k < 2 && arg_rows[i].names[k] != NULL; k++)
            if (strncmp(arg_rows[i].names[k], name, n) == 0)
                all = all == NULL ? mem_copy(m, arg_rows[i].names[k])
                                  : mem_format(m, "%s, %s", all, arg_rows[i].names[k]);
    return error_set(error, HVD_ERR_INVALID, "ambiguous option: %.*s could match %s", (int)n, name,
                     all);
}

/* A unique beginning of a long option is enough; hidden ones count, as they do for argparse. */
static hvd_status_t row_by_prefix(struct mem *m, const char *name, size_t n,
                                  const struct arg_row **ret, struct error *error)
{
    const struct arg_row *found = NULL;
    for (size_t i = 0; i < ROW_COUNT; i++)
        for (int k = 0; k < 2 && arg_rows[i].names[k] != NULL; k++) {
            if (strncmp(arg_rows[i].names[k], name, n) != 0 || found == &arg_rows[i])
                continue;
            if (found != NULL)
                return row_ambiguous(m, name, n, error);
            found = &arg_rows[i];
        }
    if (found == NULL)
        return error_set(error, HVD_ERR_INVALID, "unrecognized arguments: %s", name);
    *ret = found;
    return HVD_OK;
}

/* Finds the row of `word`; *ret_value is what stands behind `=` or is glued to `-p`, or NULL. */
static hvd_status_t row_find(struct mem *m, const char *word, const struct arg_row **ret,
                             const char **ret_value, struct error *error)
{
    const char *equals = strchr(word, '=');
    size_t n = equals == NULL ? strlen(word) : (size_t)(equals - word);
    *ret_value = equals == NULL ? NULL : equals + 1;
    *ret = row_exact(word, n);
    if (*ret != NULL)
        return HVD_OK;
    if (word[1] != '-') {
        const struct arg_row *letter = row_exact(word, 2);
        if (letter != NULL && letter->metavar != NULL) {
            *ret = letter;
            *ret_value = word + 2;
            return HVD_OK;
        }
    }
    if (n < 3)
        return error_set(error, HVD_ERR_INVALID, "unrecognized arguments: %s", word);
    return row_by_prefix(m, word, n, ret, error);
}

/* ---- reading the value ---- */

static bool is_number(const char *text)
{
    char *end = NULL;
    (void)strtod(text, &end);
    return end != text && *end == '\0';
}

static bool is_option_like(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && !is_number(word) && strchr(word, ' ') == NULL;
}

static bool parse_int(const char *text, int64_t *ret)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *ret = value;
    return errno == 0 && end != text && *end == '\0';
}

static bool parse_float(const char *text, double *ret)
{
    char *end = NULL;
    *ret = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*ret);
}

static hvd_status_t store_int(struct mem *m, const struct arg_row *row, struct arg_int *field,
                              const char *text, struct error *error)
{
    field->is_set = true;
    if (parse_int(text, &field->value))
        return HVD_OK;
    return error_set(error, HVD_ERR_INVALID, "argument %s: invalid int value: '%s'",
                     row_label(m, row), text);
}

static hvd_status_t store_level(struct mem *m, const struct arg_row *row, const char **field,
                                const char *text, struct error *error)
{
    for (size_t i = 0; i < sizeof log_levels / sizeof *log_levels; i++)
        if (strcasecmp(text, log_levels[i]) == 0) {
            *field = log_levels[i];
            return HVD_OK;
        }
    return error_set(error, HVD_ERR_INVALID,
                     "argument %s: invalid choice: '%s' (choose from 'TRACE', 'DEBUG', 'INFO', "
                     "'WARNING', 'ERROR', 'FATAL')",
                     row_label(m, row), text);
}

static void store_interfaces(struct mem *m, struct list *list, const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        char *name = mem_copy_n(m, text, n);
        bool is_known = n == 0;
        for (size_t i = 0; i < list->count; i++)
            is_known = is_known || strcmp(list->items[i], name) == 0;
        if (!is_known)
            list_add(m, list, name);
        text += n;
        text += *text == ',';
    }
}

static hvd_status_t store(struct mem *m, const struct arg_row *row, struct args *args,
                          const char *value, const char *second, struct error *error)
{
    void *field = (char *)args + row->offset;
    switch (row->kind) {
    case ARG_FLAG: *(bool *)field = true; return HVD_OK;
    case ARG_TRUE: *(struct arg_bool *)field = (struct arg_bool){true, true}; return HVD_OK;
    case ARG_FALSE: *(struct arg_bool *)field = (struct arg_bool){true, false}; return HVD_OK;
    case ARG_INT: return store_int(m, row, field, value, error);
    case ARG_INT_PAIR: {
        hvd_status_t status = store_int(m, row, field, value, error);
        return status != HVD_OK ? status
                                : store_int(m, row, (struct arg_int *)field + 1, second, error);
    }
    case ARG_FLOAT: {
        struct arg_float *number = field;
        number->is_set = true;
        if (parse_float(value, &number->value))
            return HVD_OK;
        return error_set(error, HVD_ERR_INVALID, "argument %s: invalid float value: '%s'",
                         row_label(m, row), value);
    }
    case ARG_TEXT: *(const char **)field = value; return HVD_OK;
    case ARG_LEVEL: return store_level(m, row, field, value, error);
    case ARG_INTERFACE:
        if (strchr(value, ',') != NULL)
            list_add(m, &args->warnings,
                     mem_copy(m, "--network-interface takes one name; use --network-interfaces "
                                 "for a list"));
        store_interfaces(m, field, value);
        return HVD_OK;
    case ARG_INTERFACES: store_interfaces(m, field, value); return HVD_OK;
    }
    return error_set(error, HVD_ERR_INTERNAL, "option without a kind");
}

/* ---- the whole line ---- */

struct parse {
    struct mem *m;
    struct args *args;
    const struct arg_row *seen[EXCL_COUNT]; /* first of each exclusive set */
    char **words;
    int at, count;
};

static hvd_status_t check_exclusive(struct parse *p, const struct arg_row *row, struct error *error)
{
    if (row->exclusive == FREE)
        return HVD_OK;
    const struct arg_row *other = p->seen[row->exclusive];
    if (other != NULL && other != row)
        return error_set(error, HVD_ERR_INVALID, "argument %s: not allowed with argument %s",
                         row_label(p->m, row), row_label(p->m, other));
    p->seen[row->exclusive] = row;
    return HVD_OK;
}

static void warn_deprecated(struct parse *p, const struct arg_row *row)
{
    bool is_old = strcmp(row->names[0], "--log-hide-timestamp") == 0 ||
                  strcmp(row->names[0], "--no-log-hide-timestamp") == 0;
    if (is_old)
        list_add(p->m, &p->args->warnings,
                 mem_format(p->m, "%s is deprecated; use --log-%s-timestamp", row->names[0],
                            row->kind == ARG_FALSE ? "without" : "with"));
}

static const char *next_value(struct parse *p)
{
    if (p->at >= p->count || is_option_like(p->words[p->at]))
        return NULL;
    return p->words[p->at++];
}

static hvd_status_t parse_option(struct parse *p, struct error *error)
{
    const struct arg_row *row = NULL;
    const char *value = NULL, *second = NULL;
    hvd_status_t status = row_find(p->m, p->words[p->at++], &row, &value, error);
    if (status == HVD_OK)
        status = check_exclusive(p, row, error);
    if (status != HVD_OK)
        return status;
    if (row->metavar == NULL && value != NULL)
        return error_set(error, HVD_ERR_INVALID, "argument %s: ignored explicit argument '%s'",
                         row_label(p->m, row), value);
    if (row->metavar != NULL && value == NULL)
        value = next_value(p);
    if (row->kind == ARG_INT_PAIR && value != NULL)
        second = next_value(p);
    if (row->metavar != NULL && (value == NULL || (row->kind == ARG_INT_PAIR && second == NULL)))
        return error_set(error, HVD_ERR_INVALID, "argument %s: expected %s", row_label(p->m, row),
                         row->kind == ARG_INT_PAIR ? "2 arguments" : "one argument");
    warn_deprecated(p, row);
    return store(p->m, row, p->args, value, second, error);
}

hvd_status_t args_parse(struct mem *m, int argc, char **argv, struct args *ret, struct error *error)
{
    *ret = (struct args){0};
    struct parse p = {.m = m, .args = ret, .words = argv, .at = 1, .count = argc};
    while (p.at < argc && argv[p.at][0] == '-' && argv[p.at][1] != '\0') {
        if (strcmp(argv[p.at], "--") == 0) {
            p.at++;
            break;
        }
        hvd_status_t status = parse_option(&p, error);
        if (status != HVD_OK)
            return status;
        if (ret->wants_help || ret->wants_version)
            return HVD_OK;
    }
    if (p.at < argc)
        ret->command = argv + p.at;
    return HVD_OK;
}

bool args_is_elastic(const struct args *args)
{
    return args->min_num_proc.is_set || args->host_discovery_script != NULL;
}

/* ---- help ---- */

#define HELP_COLUMN 30
#define HELP_WIDTH  96

static void print_wrapped(FILE *file, const char *text, int column)
{
    int at = column;
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (at > column && at + 1 + (int)n > HELP_WIDTH) {
            fprintf(file, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', file);
            at++;
        }
        fwrite(text, 1, n, file);
        at += (int)n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', file);
}

static void print_row(FILE *file, const struct arg_row *row)
{
    char left[128];
    snprintf(left, sizeof left, "  %s%s%s%s%s", row->names[0], row->names[1] == NULL ? "" : ", ",
             row->names[1] == NULL ? "" : row->names[1], row->metavar == NULL ? "" : " ",
             row->metavar == NULL ? "" : row->metavar);
    if (strlen(left) + 2 > HELP_COLUMN)
        fprintf(file, "%s\n%*s", left, HELP_COLUMN, "");
    else
        fprintf(file, "%-*s", HELP_COLUMN, left);
    print_wrapped(file, row->help, HELP_COLUMN);
}

void args_print_usage(FILE *file)
{
    fputs("usage: horovodrun -np N [-H a:2,b:2 | --hostfile FILE] [option ...] command [arg ...]\n"
          "       horovodrun --check-build | --print-config | --doctor -H a:1,b:1 | --help\n",
          file);
}

void args_print_help(FILE *file)
{
    fputs("Horovod Runner: starts a training command on this machine or on many.\n\n", file);
    args_print_usage(file);
    for (size_t g = 0; g < sizeof group_order / sizeof *group_order; g++) {
        fprintf(file, "\n%s:\n", group_titles[group_order[g]]);
        for (size_t i = 0; i < ROW_COUNT; i++)
            if (arg_rows[i].group == group_order[g] && arg_rows[i].help != NULL)
                print_row(file, &arg_rows[i]);
    }
    fputs("\nA long option may be shortened as long as it stays unique. NAME=VALUE words in front "
          "of the\ncommand go into its environment. See horovodrun(1).\n",
          file);
}
