/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - reads the environment into a struct config, by the rows of settings.def.
 *
 * Thread: any; nothing is kept.  Blocks: never.  Allocates: never.
 * Invariant: every field of struct config has a row, every default is text that goes through the
 * same parser as the environment, and an empty value counts as not set. Where two rows share a
 * field, the later one wins if it is set.
 * A value that cannot be read is an error; one that is merely odd (a negative size, "true" for a
 * switch) gives a warning and is read as the contract reads it.  Start reading at config_load(). */
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

#define NAME_PREFIX   "HOROVOD_"
#define SUGGEST_MAX   64 /* longest name that gets a suggestion */
#define BEAT_NS       1000000000LL
#define BEAT_SHORT_NS 250000000LL
#define SHORT_LIMIT_S 2 /* a peer that beats once a second can't be judged so soon */

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

/* Digits into *value; those after the point count in *scale. */
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

static hvd_status_t bad_value(const struct loader *loader, const struct setting *row,
                              const char *text, const char *what)
{
    return error_set(loader->error, HVD_ERR_CONFIG, "%s=%.100s: %s", row->name,
                     row->is_secret ? "(secret)" : text, what);
}

static hvd_status_t out_of_range(const struct loader *loader, const struct setting *row,
                                 const char *text)
{
    char what[96];
    (void)snprintf(what, sizeof what, "must be a whole number from %lld to %lld",
                   (long long)row->lowest, (long long)row->highest);
    return bad_value(loader, row, text, what);
}

static void told_limit(const struct loader *loader, const struct setting *row, const char *text,
                       bool is_small)
{
    loader_warn(loader, "%s=%.100s is too %s (allowed: %lld to %lld) and counts as %lld", row->name,
                text, is_small ? "small" : "large", (long long)row->lowest, (long long)row->highest,
                (long long)(is_small ? row->lowest : row->highest));
}

static hvd_status_t load_int(const struct loader *loader, const struct setting *row,
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

static hvd_status_t load_float(const struct loader *loader, const struct setting *row,
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

static hvd_status_t load_switch(const struct loader *loader, const struct setting *row,
                                const char *text, bool *ret_value)
{
    char *end;
    long number = strtol(text, &end, 10);
    *ret_value = row->type == TYPE_NONZERO ? number != 0 : number > 0;
    if (end == text)
        loader_warn(loader, "%s=%.100s is not a number and counts as 0 (off); 1 switches it on",
                    row->name, text);
    else if (*skip_space(end) != '\0')
        loader_warn(loader, "%s=%.100s is not a number and counts as %ld (%s); use 1 or 0",
                    row->name, text, number, *ret_value ? "on" : "off");
    return HVD_OK;
}

static hvd_status_t load_text(const struct loader *loader, const struct setting *row,
                              const char *text, char *ret_text)
{
    size_t n = strlen(text);
    if (n >= row->bytes)
        return bad_value(loader, row, text, "too long");
    memset(ret_text, 0, row->bytes);
    memcpy(ret_text, text, n);
    return HVD_OK;
}

static hvd_status_t load_level(const struct loader *loader, const struct setting *row,
                               const char *text, enum log_level *ret_level)
{
    if (!log_level_parse(text, ret_level)) {
        *ret_level = LOG_WARNING;
        loader_warn(loader, "%s=%.100s is not a log level and counts as warning", row->name, text);
    }
    return HVD_OK;
}

static hvd_status_t load_value(const struct loader *loader, const struct setting *row,
                               const char *text)
{
    void *field = (char *)loader->config + row->offset;
    switch (row->type) {
    case TYPE_SWITCH:
    case TYPE_NONZERO: return load_switch(loader, row, text, field);
    case TYPE_INT: return load_int(loader, row, text, field);
    case TYPE_FLOAT: return load_float(loader, row, text, field);
    case TYPE_TEXT: return load_text(loader, row, text, field);
    case TYPE_LEVEL: return load_level(loader, row, text, field);
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: break;
    }
    return error_set(loader->error, HVD_ERR_INTERNAL, "%s has no type", row->name);
}

/* ---- names ---- */

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
    for (size_t i = 0; i < setting_count; i++)
        if (setting_rows[i].name != NULL)
            nearest_try(name, setting_rows[i].name, &best, &distance);
    return best;
}

static void name_check(void *arg, const char *name, const char *value)
{
    const struct loader *loader = arg;
    (void)value;
    if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0)
        return;
    const struct setting *row = setting_find(name);
    if (row != NULL && row->idle != NULL && !setting_is_config(row))
        loader_warn(loader, "%s is accepted but has no effect here", name);
    if (row != NULL)
        return;
    const char *nearest = name_nearest(name);
    if (nearest == NULL)
        loader_warn(loader, "unknown setting %s is ignored", name);
    else
        loader_warn(loader, "unknown setting %s is ignored; did you mean %s?", name, nearest);
}

/* ---- the whole ---- */

static hvd_status_t choice_check(const struct loader *loader, const struct setting *row)
{
    char *text = (char *)loader->config + row->offset;
    if (row->type != TYPE_TEXT || row->choices[0] == NULL || *text == '\0')
        return HVD_OK;
    for (size_t i = 0; i < SETTING_CHOICES_MAX && row->choices[i] != NULL; i++) {
        if (strcasecmp(text, row->choices[i]) == 0) {
            memcpy(text, row->choices[i], strlen(row->choices[i])); /* in lower case */
            return HVD_OK;
        }
    }
    return error_set(loader->error, HVD_ERR_CONFIG, "%s (%s=%s)", row->complaint, row->name, text);
}

static hvd_status_t rows_load(const struct loader *loader)
{
    for (size_t i = 0; i < setting_count; i++) {
        hvd_status_t status = setting_is_config(&setting_rows[i])
                                  ? load_value(loader, &setting_rows[i], setting_rows[i].fallback)
                                  : HVD_OK;
        if (status != HVD_OK)
            return status;
    }
    for (size_t i = 0; i < setting_count; i++) {
        const char *text = setting_is_config(&setting_rows[i])
                               ? env_value(loader->os, setting_rows[i].name)
                               : NULL;
        hvd_status_t status = text == NULL ? HVD_OK : load_value(loader, &setting_rows[i], text);
        if (status == HVD_OK)
            status = choice_check(loader, &setting_rows[i]);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}

/* XLA ops do not wait to be fused, so their cycle time is 0 unless the user sets one. */
static void cycle_time_derive(const struct loader *loader)
{
    const char *xla = env_value(loader->os, "HOROVOD_ENABLE_XLA_OPS");
    if (xla != NULL && strtol(xla, NULL, 10) > 0 &&
        !config_is_set(loader->os, "HOROVOD_CYCLE_TIME"))
        loader->config->cycle_time_ms = 0;
}

/* A stall must be reported before it stops the job. The default shutdown time yields to a late
 * report; one that the user set is ignored, as in the contract. */
static void stall_limit_derive(const struct loader *loader)
{
    struct config *c = loader->config;
    if (c->stall_shutdown_time_s == 0 || c->stall_shutdown_time_s >= c->stall_check_time_s)
        return;
    if (!config_is_set(loader->os, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")) {
        c->stall_shutdown_time_s = c->stall_check_time_s;
        return;
    }
    loader_warn(loader,
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=%lld is ignored: it is below "
                "HOROVOD_STALL_CHECK_TIME_SECONDS=%lld",
                (long long)c->stall_shutdown_time_s, (long long)c->stall_check_time_s);
    c->stall_shutdown_time_s = 0;
}

static void idle_check(const struct loader *loader)
{
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &setting_rows[i];
        char text[64];
        if (row->idle == NULL || !setting_is_config(row))
            continue;
        config_format(loader->config, row, text, sizeof text);
        if (strcmp(text, row->fallback) != 0)
            loader_warn(loader, "%s is accepted but has no effect here: %s", row->name, row->idle);
    }
}

static void secrets_wipe(const struct os *os)
{
    if (os->env_wipe == NULL)
        return;
    for (size_t i = 0; i < setting_count; i++) {
        if (setting_rows[i].is_secret)
            os->env_wipe(os->ctx, setting_rows[i].name);
    }
}

static hvd_status_t loader_run(struct loader *loader)
{
    hvd_status_t status = rows_load(loader);
    if (status != HVD_OK)
        return status;
    cycle_time_derive(loader);
    stall_limit_derive(loader);
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

void config_format(const struct config *config, const struct setting *row, char *ret_text,
                   size_t bytes)
{
    const void *field = (const char *)config + row->offset;
    switch (row->type) {
    case TYPE_SWITCH:
    case TYPE_NONZERO: (void)snprintf(ret_text, bytes, "%d", *(const bool *)field ? 1 : 0); return;
    case TYPE_INT:
        (void)snprintf(ret_text, bytes, "%lld", (long long)*(const int64_t *)field);
        return;
    case TYPE_FLOAT: format_float(*(const double *)field, ret_text, bytes); return;
    case TYPE_TEXT:
        (void)snprintf(ret_text, bytes, "%s",
                       row->is_secret && *(const char *)field != '\0' ? "(secret)"
                                                                      : (const char *)field);
        return;
    case TYPE_LEVEL:
        (void)snprintf(ret_text, bytes, "%s", level_name(*(const enum log_level *)field));
        return;
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: (void)snprintf(ret_text, bytes, "%s", ""); return;
    }
}

bool config_is_set(const struct os *os, const char *name)
{
    return env_value(os, name) != NULL;
}

int64_t config_beat_ns(const struct config *config)
{
    bool is_short = config->hung_error_s > 0 && config->hung_error_s <= SHORT_LIMIT_S;
    return is_short ? BEAT_SHORT_NS : BEAT_NS;
}
