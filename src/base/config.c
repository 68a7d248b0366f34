/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - the table of all settings and its reader.
 *
 * Thread: any; nothing is kept.  Blocks: never.  Allocates: never.
 * Invariant: every field of struct config has a row, every default is text that goes through the
 * same parser as the environment, and an empty value counts as not set. Where two rows share a
 * field, the later one wins if it is set.
 * A value that cannot be read stops the start; one that is merely odd (a negative size, "true" for
 * a switch) is told and read as the contract reads it.  Start reading at config_rows[], then
 * config_load(). */
#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sha256.h"

#define NAME_PREFIX "HOROVOD_"
#define SUGGEST_MAX 64 /* longest name that gets a suggestion */

#define FIELD(field) offsetof(struct config, field), sizeof(((struct config *)0)->field)
#define ROW(name, type, fallback, field, help)                                                     \
    {                                                                                              \
        "HOROVOD_" name, type, fallback, FIELD(field), help, false, 0, 0, false                    \
    }
#define SECRET(name, type, fallback, field, help)                                                  \
    {                                                                                              \
        "HOROVOD_" name, type, fallback, FIELD(field), help, true, 0, 0, false                     \
    }
/* A quantity: beyond its limits it is told and taken as the limit. */
#define NUMBER(name, type, fallback, field, lowest, highest, help)                                 \
    {                                                                                              \
        "HOROVOD_" name, type, fallback, FIELD(field), help, false, lowest, highest, false         \
    }
/* A number that names something: the nearest one would be another thing, so it is an error. */
#define EXACT(name, fallback, field, lowest, highest, help)                                        \
    {                                                                                              \
        "HOROVOD_" name, CONFIG_INT, fallback, FIELD(field), help, false, lowest, highest, true    \
    }

#define RANKS_MAX   (1 << 24)
#define PORT_MAX    65535
#define SECONDS_MAX 1000000000 /* 31 years: in nanoseconds, with a clock added, still a number */
#define BYTES_MAX   (1LL << 46)
#define COUNT_MAX   1000000000

const struct config_row config_rows[] = {
    /* where */
    EXACT("RANK", "-1", rank, -1, RANKS_MAX,
          "rank of this process in the job; set by the launcher"),
    EXACT("SIZE", "-1", size, -1, RANKS_MAX, "number of processes in the job; set by the launcher"),
    EXACT("LOCAL_RANK", "-1", local_rank, -1, RANKS_MAX, "rank among the processes of this host"),
    EXACT("LOCAL_SIZE", "-1", local_size, -1, RANKS_MAX, "number of processes on this host"),
    EXACT("CROSS_RANK", "-1", cross_rank, -1, RANKS_MAX,
          "number of this host among the hosts that have this local rank"),
    EXACT("CROSS_SIZE", "-1", cross_size, -1, RANKS_MAX,
          "number of hosts that have this local rank"),
    ROW("HOSTNAME", CONFIG_TEXT, "", hostname, "name of this host; empty: ask the system"),
    ROW("GLOO_RENDEZVOUS_ADDR", CONFIG_TEXT, "", rendezvous_addr,
        "address of the launcher's rendezvous store"),
    EXACT("GLOO_RENDEZVOUS_PORT", "-1", rendezvous_port, -1, PORT_MAX,
          "port of the launcher's rendezvous store"),
    ROW("RENDEZVOUS", CONFIG_TEXT, "", rendezvous,
        "rendezvous store as unix:NAME or HOST:PORT; wins over the two GLOO ones"),
    SECRET("KEY", CONFIG_TEXT, "", key,
           "job key in hex; emptied in the environment once it has been read"),
    ROW("KEY_FILE", CONFIG_TEXT, "", key_file, "file with the job key in hex"),
    EXACT("KEY_FD", "-1", key_fd, -1, INT32_MAX, "inherited descriptor to read the job key from"),
    EXACT("EPOCH", "0", epoch, 0, INT32_MAX, "membership generation; set by the elastic launcher"),
    ROW("GLOO_IFACE", CONFIG_TEXT, "", interfaces, "network interfaces to use, comma list"),
    ROW("INTERFACES", CONFIG_TEXT, "", interfaces,
        "network interfaces to use, comma list; empty: all; wins over HOROVOD_GLOO_IFACE"),
    ROW("PORT_RANGE", CONFIG_TEXT, "", port_range,
        "ports to listen on, A-B, for launcher and ranks; empty: any that the system gives"),

    /* engine */
    NUMBER("FUSION_THRESHOLD", CONFIG_INT, "134217728", fusion_threshold_bytes, 0, BYTES_MAX,
           "largest batch of fused tensors in bytes; 0: no fusion"),
    NUMBER("CYCLE_TIME", CONFIG_FLOAT, "1", cycle_time_ms, 0, 3600000,
           "longest time in ms that a tensor waits for others to be fused with"),
    NUMBER("CACHE_CAPACITY", CONFIG_INT, "1024", cache_capacity, 0, COUNT_MAX,
           "ops whose agreement is remembered; 0: none"),
    ROW("DISABLE_GROUP_FUSION", CONFIG_BOOL, "0", disable_group_fusion,
        "do not fuse a group with other tensors"),
    ROW("DYNAMIC_PROCESS_SETS", CONFIG_NONZERO, "0", dynamic_process_sets,
        "allow adding and removing process sets after init"),
    ROW("ELASTIC", CONFIG_NONZERO, "0", elastic, "started by the elastic launcher"),
    ROW("PLAN_DISABLE", CONFIG_BOOL, "0", plan_disable,
        "negotiate every step, never record a plan"),
    NUMBER("PLAN_WARMUP_STEPS", CONFIG_INT, "3", plan_warmup_steps, 1, COUNT_MAX,
           "equal steps before a plan starts"),
    ROW("THREAD_AFFINITY", CONFIG_TEXT, "", thread_affinity,
        "core for the engine thread of each local rank, comma list; empty: any"),
    NUMBER("SPIN_US", CONFIG_INT, "-1", spin_us, -1, COUNT_MAX,
           "time in us to spin before sleeping; -1: by the number of cores"),

    /* waiting and failures */
    ROW("STALL_CHECK_DISABLE", CONFIG_BOOL, "0", stall_check_disable,
        "do not report tensors that some ranks never submit"),
    NUMBER("STALL_CHECK_TIME_SECONDS", CONFIG_INT, "60", stall_check_time_s, 0, SECONDS_MAX,
           "report a tensor that some ranks have not submitted for so long"),
    NUMBER("STALL_SHUTDOWN_TIME_SECONDS", CONFIG_INT, "0", stall_shutdown_time_s, 0, SECONDS_MAX,
           "end the job when a tensor stalls for so long; 0: never"),
    NUMBER("HUNG_WARN_SECONDS", CONFIG_INT, "5", hung_warn_s, 0, SECONDS_MAX,
           "report a peer that has been silent for so long; 0: never"),
    NUMBER("HUNG_ERROR_SECONDS", CONFIG_INT, "0", hung_error_s, 0, SECONDS_MAX,
           "give up on a peer that has been silent for so long; 0: never"),
    NUMBER("GLOO_TIMEOUT_SECONDS", CONFIG_INT, "30", timeout_s, 1, SECONDS_MAX,
           "time limit for connecting and for control messages"),

    /* transports and back ends */
    ROW("CONTROLLER", CONFIG_TEXT, "", controller, "control plane: mpi or gloo; empty: choose"),
    ROW("CPU_OPERATIONS", CONFIG_TEXT, "", cpu_operations,
        "data plane for CPU tensors: mpi, gloo or ccl; empty: choose"),
    ROW("MPI_LIBRARY", CONFIG_TEXT, "", mpi_library,
        "file of the MPI library; empty: the one in the process or of the launcher"),
    ROW("MPI_THREADS_DISABLE", CONFIG_BOOL, "0", mpi_threads_disable,
        "start MPI for one thread only; the engine's thread then does all of the work"),
    ROW("SHM_DISABLE", CONFIG_BOOL, "0", shm_disable,
        "use TCP (under MPI: MPI) between ranks of one host, too"),
    EXACT("CMA", "-1", cma, -1, 1, "read peers' memory directly: -1 measure, 0 never, 1 always"),
    NUMBER("ARENA_MAX", CONFIG_INT, "0", arena_max_bytes, 0, BYTES_MAX,
           "address space for shared tensors in bytes per rank; 0: by memory size"),
    NUMBER("TCP_FLOWS", CONFIG_INT, "4", tcp_flows, 1, CONFIG_FLOWS_MAX,
           "connections for tensor bytes per pair of ranks"),
    ROW("SECURITY", CONFIG_TEXT, "auth", security,
        "links between hosts: auth (handshake and checksums), mac (every byte authenticated), tls "
        "(and encrypted), off (no checksums; for benchmarks)"),
    ROW("ALLREDUCE_ALGORITHM", CONFIG_TEXT, "", algorithm,
        "force an allreduce schedule by name; empty: choose by size"),
    ROW("HIERARCHICAL_ALLREDUCE", CONFIG_BOOL, "0", hierarchical_allreduce,
        "allreduce within hosts first, then across"),
    ROW("HIERARCHICAL_ALLGATHER", CONFIG_BOOL, "0", hierarchical_allgather,
        "allgather within hosts first, then across"),
    ROW("TORUS_ALLREDUCE", CONFIG_BOOL, "0", torus_allreduce,
        "allreduce along the two axes local and cross"),
    NUMBER("ADASUM_MPI_CHUNK_SIZE", CONFIG_INT, "1073741824", adasum_chunk_bytes, 1, BYTES_MAX,
           "bytes per message of Adasum"),

    /* timeline, tuning, logging */
    ROW("TIMELINE", CONFIG_TEXT, "", timeline,
        "file for the timeline, or DYNAMIC to start it at run time"),
    ROW("TIMELINE_MARK_CYCLES", CONFIG_BOOL, "0", timeline_mark_cycles,
        "mark cycles in the timeline"),
    ROW("AUTOTUNE", CONFIG_BOOL, "0", autotune, "tune fusion threshold and cycle time"),
    ROW("AUTOTUNE_LOG", CONFIG_TEXT, "", autotune_log, "CSV file for the tuner's samples"),
    NUMBER("AUTOTUNE_WARMUP_SAMPLES", CONFIG_INT, "3", autotune_warmup_samples, 0, COUNT_MAX,
           "samples the tuner throws away at first"),
    NUMBER("AUTOTUNE_STEPS_PER_SAMPLE", CONFIG_INT, "10", autotune_steps_per_sample, 1, COUNT_MAX,
           "training steps per score of the tuner"),
    NUMBER("AUTOTUNE_BAYES_OPT_MAX_SAMPLES", CONFIG_INT, "20", autotune_bayes_opt_max_samples, 1,
           COUNT_MAX, "samples of the tuner per search"),
    NUMBER("AUTOTUNE_GAUSSIAN_PROCESS_NOISE", CONFIG_FLOAT, "0.8", autotune_gaussian_process_noise,
           0, COUNT_MAX, "noise the tuner expects in its scores"),
    ROW("LOG_LEVEL", CONFIG_LEVEL, "warning", log_level,
        "trace, debug, info, warning, error or fatal"),
    ROW("LOG_HIDE_TIME", CONFIG_BOOL, "0", log_hide_time, "no time in log lines"),
};
const size_t config_row_count = sizeof config_rows / sizeof config_rows[0];

/* Accepted for scripts written for other builds; setting one is told once. */
static const char *const names_without_effect[] = {
    "HOROVOD_NUM_NCCL_STREAMS", "HOROVOD_BATCH_D2D_MEMCOPIES", "HOROVOD_ENABLE_ASYNC_COMPLETION",
    "HOROVOD_CCL_CACHE",        "HOROVOD_DISABLE_NVTX_RANGES",
};

/* Read, but nothing here acts on them; another value than the default is told once, with why. */
static const struct idle_row {
    const char *name, *why;
} idle_rows[] = {
    {"HOROVOD_AUTOTUNE", "there is no tuner; fusion threshold and cycle time are used as set"},
    {"HOROVOD_HIERARCHICAL_ALLREDUCE", "the way is chosen by size and topology"},
    {"HOROVOD_HIERARCHICAL_ALLGATHER", "the way is chosen by size and topology"},
    {"HOROVOD_TORUS_ALLREDUCE", "the way is chosen by size and topology"},
    {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", "messages are cut by the transports"},
};

/* Read by the launcher, by a binding, or when building; silent here. */
static const char *const names_elsewhere[] = {
    "HOROVOD_ENABLE_XLA_OPS",
    "HOROVOD_TENSORFLOW_FALLBACK",
    "HOROVOD_START_TIMEOUT",
    "HOROVOD_ELASTIC_TIMEOUT",
    "HOROVOD_SPARK_START_TIMEOUT",
    "HOROVOD_SPARK_PYTHONPATH",
    "HOROVOD_SPARK_WORK_DIR",
    "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
    "HOROVOD_LSF_GPUS",
    "HOROVOD_LSF_THREADS",
    "HOROVOD_WITH_TENSORFLOW",
    "HOROVOD_WITH_PYTORCH",
    "HOROVOD_WITH_MXNET",
    "HOROVOD_WITH_MPI",
    "HOROVOD_WITH_GLOO",
    "HOROVOD_WITH_NVTX",
    "HOROVOD_WITHOUT_TENSORFLOW",
    "HOROVOD_WITHOUT_PYTORCH",
    "HOROVOD_WITHOUT_MXNET",
    "HOROVOD_WITHOUT_MPI",
    "HOROVOD_WITHOUT_GLOO",
    "HOROVOD_WITHOUT_NVTX",
    "HOROVOD_GPU",
    "HOROVOD_GPU_OPERATIONS",
    "HOROVOD_GPU_ALLREDUCE",
    "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_BROADCAST",
    "HOROVOD_GPU_ALLTOALL",
    "HOROVOD_GPU_REDUCESCATTER",
    "HOROVOD_ALLOW_MIXED_GPU_IMPL",
    "HOROVOD_CUDA_HOME",
    "HOROVOD_ROCM_HOME",
    "HOROVOD_NCCL_HOME",
    "HOROVOD_NCCL_INCLUDE",
    "HOROVOD_NCCL_LIB",
    "HOROVOD_NCCL_LINK",
    "HOROVOD_NVTX_INCLUDE",
    "HOROVOD_BUILD_ARCH_FLAGS",
    "HOROVOD_BUILD_CUDA_CC_LIST",
    "HOROVOD_BUILD_FLAGS",
    "HOROVOD_CMAKE",
    "HOROVOD_DEBUG",
    "HOROVOD_SKIP_COMPILE",
    "HOROVOD_LOCAL_VERSION",
    "HOROVOD_CONTROLLER_DEFAULT",
    "HOROVOD_CPU_OPERATIONS_DEFAULT",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Texts that are one of a few words. The complaints are those that users know. */
static const struct choice {
    size_t offset;
    const char *name;
    const char *words[10];
    const char *complaint;
} choices[] = {
    {offsetof(struct config, controller),
     "HOROVOD_CONTROLLER",
     {"mpi", "gloo"},
     "Unsupported controller type, only MPI and Gloo are supported"},
    {offsetof(struct config, cpu_operations),
     "HOROVOD_CPU_OPERATIONS",
     {"mpi", "gloo", "ccl"},
     "Unsupported CPU operation type, only MPI, oneCCL, and Gloo are supported"},
    {offsetof(struct config, security),
     "HOROVOD_SECURITY",
     {"auth", "mac", "tls", "off"},
     "Unsupported security level, only auth, mac, tls and off are supported"},
    {offsetof(struct config, algorithm),
     "HOROVOD_ALLREDUCE_ALGORITHM",
     {"auto", "direct", "one_shot", "staged", "recursive_doubling", "rabenseifner", "ring",
      "double_tree", "two_level"},
     "Unknown allreduce algorithm, only auto, direct, one_shot, staged, recursive_doubling, "
     "rabenseifner, ring, double_tree and two_level are known"},
};

struct loader {
    const struct os *os;
    struct config *config;
    void (*warn)(void *arg, const char *text);
    void *arg;
    struct error *error;
};

static void loader_warn(const struct loader *loader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void loader_warn(const struct loader *loader, const char *format, ...)
{
    if (loader->warn == NULL)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    loader->warn(loader->arg, text);
}

static const char *env_value(const struct os *os, const char *name)
{
    const char *value = os->env(os->ctx, name);
    return value == NULL || *value == '\0' ? NULL : value;
}

/* ---- values ---- */

static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

static bool parse_int(const char *text, int64_t *ret_value)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *skip_space(end) != '\0' || errno == ERANGE)
        return false;
    *ret_value = value;
    return true;
}

/* Digits into *value; what comes behind the point counts in *scale. */
static const char *parse_digits(const char *at, double *value, int *scale, int step)
{
    for (; isdigit((unsigned char)*at); at++) {
        *value = *value * 10 + (*at - '0');
        *scale += step;
    }
    return at;
}

static double power_of_ten(int exponent)
{
    double power = 1;
    for (; exponent > 0; exponent--)
        power *= 10;
    return power;
}

/* Not strtod(): a program may have set a locale in which 0.5 is written 0,5. */
static bool parse_float(const char *text, double *ret_value)
{
    const char *at = skip_space(text);
    bool is_negative = *at == '-';
    if (*at == '-' || *at == '+')
        at++;
    double value = 0;
    int scale = 0, digits = 0;
    const char *whole = at;
    at = parse_digits(at, &value, &digits, 1);
    if (*at == '.')
        at = parse_digits(at + 1, &value, &scale, 1);
    if (digits + scale == 0 || at - whole > 300)
        return false;
    if (*at == 'e' || *at == 'E') {
        int64_t exponent;
        if (!isdigit((unsigned char)at[1]) && at[1] != '-' && at[1] != '+')
            return false;
        if (!parse_int(at + 1, &exponent) || exponent < -300 || exponent > 300)
            return false;
        scale -= (int)exponent;
        at = "";
    }
    if (*skip_space(at) != '\0')
        return false;
    value = scale < 0 ? value * power_of_ten(-scale) : value / power_of_ten(scale);
    if (!isfinite(value))
        return false;
    *ret_value = is_negative ? -value : value;
    return true;
}

static hvd_status_t bad_value(const struct loader *loader, const struct config_row *row,
                              const char *text, const char *what)
{
    return error_set(loader->error, HVD_ERR_CONFIG, "%s=%.100s: %s", row->name,
                     row->is_secret ? "(secret)" : text, what);
}

static hvd_status_t out_of_range(const struct loader *loader, const struct config_row *row,
                                 const char *text)
{
    char what[96];
    (void)snprintf(what, sizeof what, "must be a whole number from %lld to %lld",
                   (long long)row->lowest, (long long)row->highest);
    return bad_value(loader, row, text, what);
}

static void told_limit(const struct loader *loader, const struct config_row *row, const char *text,
                       bool is_small)
{
    loader_warn(loader, "%s=%.100s is too %s (allowed: %lld to %lld) and counts as %lld", row->name,
                text, is_small ? "small" : "large", (long long)row->lowest, (long long)row->highest,
                (long long)(is_small ? row->lowest : row->highest));
}

static hvd_status_t load_int(const struct loader *loader, const struct config_row *row,
                             const char *text, int64_t *ret_value)
{
    if (!parse_int(text, ret_value))
        return bad_value(loader, row, text, "not a whole number");
    bool is_small = *ret_value<row->lowest, is_large = *ret_value> row->highest;
    if (!is_small && !is_large)
        return HVD_OK;
    if (row->is_exact)
        return out_of_range(loader, row, text);
    told_limit(loader, row, text, is_small);
    *ret_value = is_small ? row->lowest : row->highest;
    return HVD_OK;
}

static hvd_status_t load_float(const struct loader *loader, const struct config_row *row,
                               const char *text, double *ret_value)
{
    if (!parse_float(text, ret_value))
        return bad_value(loader, row, text, "not a number");
    bool is_small = *ret_value<(double)row->lowest, is_large = *ret_value>(double) row->highest;
    if (!is_small && !is_large)
        return HVD_OK;
    told_limit(loader, row, text, is_small);
    *ret_value = (double)(is_small ? row->lowest : row->highest);
    return HVD_OK;
}

static hvd_status_t load_switch(const struct loader *loader, const struct config_row *row,
                                const char *text, bool *ret_value)
{
    char *end;
    long number = strtol(text, &end, 10);
    *ret_value = row->type == CONFIG_NONZERO ? number != 0 : number > 0;
    if (end == text)
        loader_warn(loader, "%s=%.100s is not a number and counts as 0 (off); 1 switches it on",
                    row->name, text);
    else if (*skip_space(end) != '\0')
        loader_warn(loader, "%s=%.100s is not a number and counts as %ld (%s); use 1 or 0",
                    row->name, text, number, *ret_value ? "on" : "off");
    return HVD_OK;
}

static hvd_status_t load_text(const struct loader *loader, const struct config_row *row,
                              const char *text, char *ret_text)
{
    size_t n = strlen(text);
    if (n >= row->bytes)
        return bad_value(loader, row, text, "too long");
    memset(ret_text, 0, row->bytes);
    memcpy(ret_text, text, n);
    return HVD_OK;
}

static hvd_status_t load_level(const struct loader *loader, const struct config_row *row,
                               const char *text, enum log_level *ret_level)
{
    if (!log_level_parse(text, ret_level)) {
        *ret_level = LOG_WARNING;
        loader_warn(loader, "%s=%.100s is not a log level and counts as warning", row->name, text);
    }
    return HVD_OK;
}

static hvd_status_t load_value(const struct loader *loader, const struct config_row *row,
                               const char *text)
{
    void *field = (char *)loader->config + row->offset;
    switch (row->type) {
    case CONFIG_BOOL:
    case CONFIG_NONZERO: return load_switch(loader, row, text, field);
    case CONFIG_INT: return load_int(loader, row, text, field);
    case CONFIG_FLOAT: return load_float(loader, row, text, field);
    case CONFIG_TEXT: return load_text(loader, row, text, field);
    case CONFIG_LEVEL: return load_level(loader, row, text, field);
    }
    return error_set(loader->error, HVD_ERR_INTERNAL, "%s has no type", row->name);
}

/* ---- names ---- */

static bool name_is_in(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static bool name_has_row(const char *name)
{
    for (size_t i = 0; i < config_row_count; i++) {
        if (strcmp(name, config_rows[i].name) == 0)
            return true;
    }
    return false;
}

/* Levenshtein's distance; both texts shorter than SUGGEST_MAX. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[SUGGEST_MAX];
    size_t width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
        }
    }
    return row[width];
}

static void nearest_try(const char *name, const char *candidate, const char **best,
                        size_t *distance)
{
    size_t d = edit_distance(name, candidate);
    if (d < *distance) {
        *distance = d;
        *best = candidate;
    }
}

/* The known name that is closest, or NULL when none is close enough to be meant. */
static const char *name_nearest(const char *name)
{
    size_t length = strlen(name);
    if (length >= SUGGEST_MAX)
        return NULL;
    const char *best = NULL;
    size_t distance = 2 + (length - strlen(NAME_PREFIX)) / 3; /* the first one too far */
    for (size_t i = 0; i < config_row_count; i++)
        nearest_try(name, config_rows[i].name, &best, &distance);
    for (size_t i = 0; i < COUNT(names_without_effect); i++)
        nearest_try(name, names_without_effect[i], &best, &distance);
    for (size_t i = 0; i < COUNT(names_elsewhere); i++)
        nearest_try(name, names_elsewhere[i], &best, &distance);
    return best;
}

static void name_check(void *arg, const char *name, const char *value)
{
    const struct loader *loader = arg;
    (void)value;
    if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0 || name_has_row(name) ||
        name_is_in(name, names_elsewhere, COUNT(names_elsewhere)))
        return;
    if (name_is_in(name, names_without_effect, COUNT(names_without_effect))) {
        loader_warn(loader, "%s is accepted but has no effect here", name);
        return;
    }
    const char *nearest = name_nearest(name);
    if (nearest == NULL)
        loader_warn(loader, "unknown setting %s is ignored", name);
    else
        loader_warn(loader, "unknown setting %s is ignored; did you mean %s?", name, nearest);
}

/* ---- the whole ---- */

static hvd_status_t choice_check(const struct loader *loader, const struct choice *choice)
{
    char *text = (char *)loader->config + choice->offset;
    if (*text == '\0')
        return HVD_OK;
    for (size_t i = 0; i < COUNT(choice->words) && choice->words[i] != NULL; i++) {
        if (strcasecmp(text, choice->words[i]) == 0) {
            memcpy(text, choice->words[i], strlen(choice->words[i])); /* in lower case */
            return HVD_OK;
        }
    }
    return error_set(loader->error, HVD_ERR_CONFIG, "%s (%s=%s)", choice->complaint, choice->name,
                     text);
}

static hvd_status_t rows_load(const struct loader *loader)
{
    for (size_t i = 0; i < config_row_count; i++) {
        hvd_status_t status = load_value(loader, &config_rows[i], config_rows[i].fallback);
        if (status != HVD_OK)
            return status;
    }
    for (size_t i = 0; i < config_row_count; i++) {
        const char *text = env_value(loader->os, config_rows[i].name);
        hvd_status_t status = text == NULL ? HVD_OK : load_value(loader, &config_rows[i], text);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}

/* XLA ops wait for nobody to fuse with, so their cycle time is 0 unless somebody asks for one. */
static void cycle_time_derive(const struct loader *loader)
{
    const char *xla = env_value(loader->os, "HOROVOD_ENABLE_XLA_OPS");
    if (xla != NULL && strtol(xla, NULL, 10) > 0 &&
        !config_is_set(loader->os, "HOROVOD_CYCLE_TIME"))
        loader->config->cycle_time_ms = 0;
}

static void idle_check(const struct loader *loader)
{
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        char text[64];
        config_format(loader->config, row, text, sizeof text);
        for (size_t k = 0; k < COUNT(idle_rows); k++)
            if (strcmp(row->name, idle_rows[k].name) == 0 && strcmp(text, row->fallback) != 0)
                loader_warn(loader, "%s is accepted but has no effect here: %s", row->name,
                            idle_rows[k].why);
    }
}

static void secrets_wipe(const struct os *os)
{
    if (os->env_wipe == NULL)
        return;
    for (size_t i = 0; i < config_row_count; i++) {
        if (config_rows[i].is_secret)
            os->env_wipe(os->ctx, config_rows[i].name);
    }
}

static hvd_status_t loader_run(struct loader *loader)
{
    hvd_status_t status = rows_load(loader);
    for (size_t i = 0; i < COUNT(choices) && status == HVD_OK; i++)
        status = choice_check(loader, &choices[i]);
    if (status != HVD_OK)
        return status;
    cycle_time_derive(loader);
    idle_check(loader);
    loader->os->env_each(loader->os->ctx, name_check, loader);
    secrets_wipe(loader->os);
    return HVD_OK;
}

hvd_status_t config_load(const struct os *os, struct config *ret,
                         void (*warn)(void *arg, const char *text), void *arg, struct error *error)
{
    struct config config;
    memset(&config, 0, sizeof config);
    struct loader loader = {.os = os, .config = &config, .warn = warn, .arg = arg, .error = error};
    hvd_status_t status = loader_run(&loader);
    if (status == HVD_OK)
        *ret = config;
    bytes_wipe(&config, sizeof config); /* it may hold the key */
    return status;
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_TRACE: return "trace";
    case LOG_DEBUG: return "debug";
    case LOG_INFO: return "info";
    case LOG_WARNING: return "warning";
    case LOG_ERROR: return "error";
    case LOG_FATAL: return "fatal";
    }
    return "warning";
}

static void format_float(double value, char *ret_text, size_t bytes)
{
    (void)snprintf(ret_text, bytes, "%.10g", value);
    char *comma = strchr(ret_text, ','); /* a locale's */
    if (comma != NULL)
        *comma = '.';
}

void config_format(const struct config *config, const struct config_row *row, char *ret_text,
                   size_t bytes)
{
    const void *field = (const char *)config + row->offset;
    switch (row->type) {
    case CONFIG_BOOL:
    case CONFIG_NONZERO:
        (void)snprintf(ret_text, bytes, "%d", *(const bool *)field ? 1 : 0);
        return;
    case CONFIG_INT:
        (void)snprintf(ret_text, bytes, "%lld", (long long)*(const int64_t *)field);
        return;
    case CONFIG_FLOAT: format_float(*(const double *)field, ret_text, bytes); return;
    case CONFIG_TEXT:
        (void)snprintf(ret_text, bytes, "%s",
                       row->is_secret && *(const char *)field != '\0' ? "(secret)"
                                                                      : (const char *)field);
        return;
    case CONFIG_LEVEL:
        (void)snprintf(ret_text, bytes, "%s", level_name(*(const enum log_level *)field));
        return;
    }
}

bool config_is_set(const struct os *os, const char *name)
{
    return env_value(os, name) != NULL;
}
