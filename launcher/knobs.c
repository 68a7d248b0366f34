/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.c - see knobs.h. Thread: any.  Start reading at knob_rows[]. */
#include "knobs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "yaml.h"

enum knob_kind { KNOB_INT, KNOB_FLOAT, KNOB_TEXT, KNOB_BOOL, KNOB_LEVEL };
enum knob_range { ANY, NOT_NEGATIVE, ZERO_TO_ONE };
enum knob_when { ALWAYS, WITH_AUTOTUNE, WITH_TIMELINE };

struct knob_row {
    const char *name; /* the destination's name, in messages */
    enum knob_kind kind;
    size_t offset;
    const char *env;
    const char *section, *key; /* in the file */
    enum knob_range range;
    enum knob_when when;
    int64_t scale;   /* KNOB_INT: the environment carries value * scale; 0 = 1 */
    bool flips_env;  /* KNOB_BOOL: the variable has the opposite sense of the option */
    bool flips_file; /* KNOB_BOOL: the file's key has */
};

#define AT(field) offsetof(struct args, field)
#define MIB       1048576

static const struct knob_row knob_rows[] = {
    {"fusion_threshold_mb", KNOB_INT, AT(fusion_threshold_mb), "HOROVOD_FUSION_THRESHOLD", "params",
     "fusion_threshold_mb", NOT_NEGATIVE, ALWAYS, MIB, 0, 0},
    {"cycle_time_ms", KNOB_FLOAT, AT(cycle_time_ms), "HOROVOD_CYCLE_TIME", "params",
     "cycle_time_ms", NOT_NEGATIVE, ALWAYS, 0, 0, 0},
    {"cache_capacity", KNOB_INT, AT(cache_capacity), "HOROVOD_CACHE_CAPACITY", "params",
     "cache_capacity", NOT_NEGATIVE, ALWAYS, 0, 0, 0},
    {"hierarchical_allreduce", KNOB_BOOL, AT(hierarchical_allreduce),
     "HOROVOD_HIERARCHICAL_ALLREDUCE", "params", "hierarchical_allreduce", ANY, ALWAYS, 0, 0, 0},
    {"hierarchical_allgather", KNOB_BOOL, AT(hierarchical_allgather),
     "HOROVOD_HIERARCHICAL_ALLGATHER", "params", "hierarchical_allgather", ANY, ALWAYS, 0, 0, 0},
    {"torus_allreduce", KNOB_BOOL, AT(torus_allreduce), "HOROVOD_TORUS_ALLREDUCE", "params",
     "torus_allreduce", ANY, ALWAYS, 0, 0, 0},

    {"autotune", KNOB_BOOL, AT(autotune), "HOROVOD_AUTOTUNE", "autotune", "enabled", ANY, ALWAYS, 0,
     0, 0},
    {"autotune_log_file", KNOB_TEXT, AT(autotune_log_file), "HOROVOD_AUTOTUNE_LOG", "autotune",
     "log_file", ANY, WITH_AUTOTUNE, 0, 0, 0},
    {"autotune_warmup_samples", KNOB_INT, AT(autotune_warmup_samples),
     "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "autotune", "warmup_samples", NOT_NEGATIVE, WITH_AUTOTUNE,
     0, 0, 0},
    {"autotune_steps_per_sample", KNOB_INT, AT(autotune_steps_per_sample),
     "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "autotune", "steps_per_sample", NOT_NEGATIVE,
     WITH_AUTOTUNE, 0, 0, 0},
    {"autotune_bayes_opt_max_samples", KNOB_INT, AT(autotune_bayes_opt_max_samples),
     "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "autotune", "bayes_opt_max_samples", NOT_NEGATIVE,
     WITH_AUTOTUNE, 0, 0, 0},
    {"autotune_gaussian_process_noise", KNOB_FLOAT, AT(autotune_gaussian_process_noise),
     "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "autotune", "gaussian_process_noise", ZERO_TO_ONE,
     WITH_AUTOTUNE, 0, 0, 0},

    {"timeline_filename", KNOB_TEXT, AT(timeline_filename), "HOROVOD_TIMELINE", "timeline",
     "filename", ANY, ALWAYS, 0, 0, 0},
    {"timeline_mark_cycles", KNOB_BOOL, AT(timeline_mark_cycles), "HOROVOD_TIMELINE_MARK_CYCLES",
     "timeline", "mark_cycles", ANY, WITH_TIMELINE, 0, 0, 0},

    {"no_stall_check", KNOB_BOOL, AT(no_stall_check), "HOROVOD_STALL_CHECK_DISABLE", "stall_check",
     "enabled", ANY, ALWAYS, 0, false, true},
    {"stall_check_warning_time_seconds", KNOB_INT, AT(stall_check_warning_time_s),
     "HOROVOD_STALL_CHECK_TIME_SECONDS", "stall_check", "warning_time_seconds", NOT_NEGATIVE,
     ALWAYS, 0, 0, 0},
    {"stall_check_shutdown_time_seconds", KNOB_INT, AT(stall_check_shutdown_time_s),
     "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "stall_check", "shutdown_time_seconds", NOT_NEGATIVE,
     ALWAYS, 0, 0, 0},

    {"mpi_threads_disable", KNOB_BOOL, AT(mpi_threads_disable), "HOROVOD_MPI_THREADS_DISABLE",
     "library_options", "mpi_threads_disable", ANY, ALWAYS, 0, 0, 0},
    {"num_nccl_streams", KNOB_INT, AT(num_nccl_streams), "HOROVOD_NUM_NCCL_STREAMS",
     "library_options", "num_nccl_streams", NOT_NEGATIVE, ALWAYS, 0, 0, 0},
    {"thread_affinity", KNOB_INT, AT(thread_affinity), "HOROVOD_THREAD_AFFINITY", "library_options",
     "thread_affinity", NOT_NEGATIVE, ALWAYS, 0, 0, 0},
    {"gloo_timeout_seconds", KNOB_INT, AT(gloo_timeout_s), "HOROVOD_GLOO_TIMEOUT_SECONDS",
     "library_options", "gloo_timeout_seconds", NOT_NEGATIVE, ALWAYS, 0, 0, 0},

    {"log_level", KNOB_LEVEL, AT(log_level), "HOROVOD_LOG_LEVEL", "logging", "level", ANY, ALWAYS,
     0, 0, 0},
    {"log_with_timestamp", KNOB_BOOL, AT(log_with_timestamp), "HOROVOD_LOG_HIDE_TIME", "logging",
     "with_timestamp", ANY, ALWAYS, 0, true, false},
};

#define KNOB_COUNT (sizeof knob_rows / sizeof *knob_rows)

static bool knob_is_set(const struct args *args, const struct knob_row *row)
{
    const void *field = (const char *)args + row->offset;
    switch (row->kind) {
    case KNOB_INT: return ((const struct arg_int *)field)->is_set;
    case KNOB_FLOAT: return ((const struct arg_float *)field)->is_set;
    case KNOB_BOOL: return ((const struct arg_bool *)field)->is_set;
    case KNOB_TEXT:
    case KNOB_LEVEL: return *(const char *const *)field != NULL;
    }
    return false;
}

/* ---- the file ---- */

static hvd_status_t bad_value(const char *name, const struct yaml_entry *e, const char *wanted,
                              struct error *error)
{
    return error_set(error, HVD_ERR_INVALID, "%s:%d: %s.%s must be %s, not '%s'", name, e->line,
                     e->section == NULL ? "" : e->section, e->key, wanted,
                     e->value == NULL ? "" : e->value);
}

static hvd_status_t file_int(const char *name, const struct yaml_entry *e, struct arg_int *field,
                             struct error *error)
{
    char digits[72], *end = NULL;
    size_t n = 0;
    for (const char *at = e->value; *at != '\0' && n < sizeof digits - 1; at++)
        if (*at != '_') /* as in 1_000 */
            digits[n++] = *at;
    digits[n] = '\0';
    bool is_binary = strncmp(digits, "0b", 2) == 0 && digits[2] != '-' && digits[2] != '+';
    const char *start = is_binary ? digits + 2 : digits;
    errno = 0;
    long long value = strtoll(start, &end, is_binary ? 2 : 0);
    if (e->is_quoted || errno != 0 || end == start || *end != '\0')
        return bad_value(name, e, "a whole number", error);
    *field = (struct arg_int){true, value};
    return HVD_OK;
}

static hvd_status_t file_float(const char *name, const struct yaml_entry *e,
                               struct arg_float *field, struct error *error)
{
    char *end = NULL;
    double value = strtod(e->value, &end);
    if (e->is_quoted || end == e->value || *end != '\0' || !isfinite(value))
        return bad_value(name, e, "a number", error);
    *field = (struct arg_float){true, value};
    return HVD_OK;
}

static hvd_status_t file_level(const char *name, const struct yaml_entry *e, const char **field,
                               struct error *error)
{
    static const char *const levels[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcasecmp(levels[i], e->value) == 0) {
            *field = levels[i];
            return HVD_OK;
        }
    return bad_value(name, e, "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", error);
}

static hvd_status_t file_knob(const char *name, const struct yaml_entry *e,
                              const struct knob_row *row, struct args *args, struct error *error)
{
    void *field = (char *)args + row->offset;
    bool value = false;
    switch (row->kind) {
    case KNOB_INT: return file_int(name, e, field, error);
    case KNOB_FLOAT: return file_float(name, e, field, error);
    case KNOB_TEXT: *(const char **)field = e->value; return HVD_OK;
    case KNOB_LEVEL: return file_level(name, e, field, error);
    case KNOB_BOOL:
        if (!yaml_bool(e, &value))
            return bad_value(name, e, "true or false", error);
        *(struct arg_bool *)field = (struct arg_bool){true, value != row->flips_file};
        return HVD_OK;
    }
    return HVD_OK;
}

static hvd_status_t file_controller(const char *name, const struct yaml_entry *e, struct args *args,
                                    struct error *error)
{
    bool is_gloo = e->value != NULL && strcasecmp(e->value, "gloo") == 0;
    bool is_mpi = e->value != NULL && strcasecmp(e->value, "mpi") == 0;
    if (!is_gloo && !is_mpi)
        return error_set(error, HVD_ERR_INVALID, "%s:%d: No such controller supported: %s", name,
                         e->line, e->value == NULL ? "" : e->value);
    if (!args->use_gloo && !args->use_mpi) {
        args->use_gloo = is_gloo;
        args->use_mpi = is_mpi;
    }
    return HVD_OK;
}

static const struct knob_row *knob_find(const struct yaml_entry *e)
{
    for (size_t i = 0; i < KNOB_COUNT; i++)
        if (e->section != NULL && strcmp(e->section, knob_rows[i].section) == 0 &&
            strcmp(e->key, knob_rows[i].key) == 0)
            return &knob_rows[i];
    return NULL;
}

static bool is_section_name(const struct yaml_entry *e)
{
    for (size_t i = 0; i < KNOB_COUNT; i++)
        if (e->section == NULL && strcmp(e->key, knob_rows[i].section) == 0)
            return true;
    return false;
}

static void warn_unknown(struct mem *m, const char *name, const struct yaml_entry *e,
                         struct args *args)
{
    list_add(m, &args->warnings,
             mem_format(m, "%s:%d: unknown key %s%s%s has no effect", name, e->line,
                        e->section == NULL ? "" : e->section, e->section == NULL ? "" : ".",
                        e->key));
}

hvd_status_t knobs_load_file(struct mem *m, const char *name, const char *text, size_t n,
                             struct args *args, struct error *error)
{
    struct yaml yaml;
    hvd_status_t status = yaml_read(m, name, text, n, &yaml, error);
    struct args given = *args; /* the command line wins wherever it said something */
    for (size_t i = 0; status == HVD_OK && i < yaml.count; i++) {
        const struct yaml_entry *e = &yaml.entries[i];
        const struct knob_row *row = knob_find(e);
        if (e->section == NULL && strcmp(e->key, "controller") == 0)
            status = file_controller(name, e, args, error);
        else if (is_section_name(e) && e->value == NULL && !e->is_quoted)
            continue;
        else if (is_section_name(e))
            status = bad_value(name, e, "a section with indented keys", error);
        else if (row == NULL)
            warn_unknown(m, name, e, args);
        else if (e->value != NULL && !knob_is_set(&given, row))
            status = file_knob(name, e, row, args, error);
    }
    return status;
}

/* ---- limits and the environment ---- */

static hvd_status_t check_number(const struct knob_row *row, double value, const char *text,
                                 struct error *error)
{
    if (row->range == NOT_NEGATIVE && value < 0)
        return error_set(error, HVD_ERR_INVALID, "%s=%s must be >= 0", row->name, text);
    if (row->range == ZERO_TO_ONE && (value < 0 || value > 1))
        return error_set(error, HVD_ERR_INVALID, "%s=%s must be in [0, 1]", row->name, text);
    return HVD_OK;
}

hvd_status_t knobs_check(const struct args *args, struct error *error)
{
    char text[32];
    hvd_status_t status = HVD_OK;
    for (size_t i = 0; i < KNOB_COUNT && status == HVD_OK; i++) {
        const struct knob_row *row = &knob_rows[i];
        const void *field = (const char *)args + row->offset;
        if (!knob_is_set(args, row))
            continue;
        if (row->kind == KNOB_INT) {
            int64_t value = ((const struct arg_int *)field)->value;
            snprintf(text, sizeof text, "%" PRId64, value);
            status = check_number(row, (double)value, text, error);
            if (status == HVD_OK && row->scale > 0 && value > INT64_MAX / row->scale)
                status = error_set(error, HVD_ERR_INVALID, "%s=%s is too large", row->name, text);
        } else if (row->kind == KNOB_FLOAT) {
            double value = ((const struct arg_float *)field)->value;
            knobs_format_float(value, text);
            status = check_number(row, value, text, error);
        }
    }
    return status;
}

/* The fewest digits that read back as the same number, as Python's repr() gives. */
void knobs_format_float(double value, char *ret_text)
{
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(ret_text, 32, "%.*e", digits - 1, value);
        if (strtod(ret_text, NULL) == value)
            break;
    }
    snprintf(ret_text, 32, "%.*e", digits - 1, value);
    const char *mark = strchr(ret_text, 'e');
    int exponent = mark == NULL ? 0 : atoi(mark + 1);
    if (exponent < -4 || exponent > 15) {
        snprintf(ret_text, 32, "%.*g", digits, value);
        return;
    }
    int decimals = digits - 1 - exponent;
    snprintf(ret_text, 32, "%.*f", decimals < 1 ? 1 : decimals, value);
}

static bool knob_applies(const struct args *args, const struct knob_row *row)
{
    switch (row->when) {
    case ALWAYS: return true;
    case WITH_AUTOTUNE: return args->autotune.is_set && args->autotune.value;
    case WITH_TIMELINE: return args->timeline_filename != NULL;
    }
    return false;
}

static void knob_export(struct mem *m, const struct args *args, const struct knob_row *row,
                        struct list *env)
{
    const void *field = (const char *)args + row->offset;
    char text[32] = "";
    const char *value = text;
    switch (row->kind) {
    case KNOB_INT:
        snprintf(text, sizeof text, "%" PRId64,
                 ((const struct arg_int *)field)->value * (row->scale == 0 ? 1 : row->scale));
        break;
    case KNOB_FLOAT: knobs_format_float(((const struct arg_float *)field)->value, text); break;
    case KNOB_BOOL:
        value = ((const struct arg_bool *)field)->value != row->flips_env ? "1" : "0";
        break;
    case KNOB_TEXT:
    case KNOB_LEVEL: value = *(const char *const *)field; break;
    }
    list_set(m, env, row->env, value);
}

void knobs_export(struct mem *m, const struct args *args, struct list *env)
{
    for (size_t i = 0; i < KNOB_COUNT; i++)
        if (knob_is_set(args, &knob_rows[i]) && knob_applies(args, &knob_rows[i]))
            knob_export(m, args, &knob_rows[i], env);
    if (args->tcp)
        list_set(m, env, "NCCL_IB_DISABLE", "1");
}
