/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.c - see knobs.h. Thread: any.  Start reading at knobs_load_file(). */
#include "knobs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "yaml.h"

static size_t row_of(const struct setting *setting)
{
    return (size_t)(setting - setting_rows);
}

/* ---- the file ---- */

static hvd_status_t bad_value(const char *name, const struct yaml_entry *e, const char *wanted,
                              struct error *error)
{
    return error_set(error, HVD_ERR_INVALID, "%s:%d: %s.%s must be %s, not '%s'", name, e->line,
                     e->section == NULL ? "" : e->section, e->key, wanted,
                     e->value == NULL ? "" : e->value);
}

static hvd_status_t file_int(const char *name, const struct yaml_entry *e, struct arg_value *ret,
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
    *ret = (struct arg_value){.is_set = true, .whole = value};
    return HVD_OK;
}

static hvd_status_t file_float(const char *name, const struct yaml_entry *e, struct arg_value *ret,
                               struct error *error)
{
    char *end = NULL;
    double value = strtod(e->value, &end);
    if (e->is_quoted || end == e->value || *end != '\0' || !isfinite(value))
        return bad_value(name, e, "a number", error);
    *ret = (struct arg_value){.is_set = true, .real = value};
    return HVD_OK;
}

/* "A, B or C" */
static hvd_status_t file_choice(struct mem *m, const char *name, const struct yaml_entry *e,
                                const struct setting *setting, struct arg_value *ret,
                                struct error *error)
{
    const char *found = args_choice(setting, e->value), *all = "";
    if (found != NULL) {
        *ret = (struct arg_value){.is_set = true, .text = found};
        return HVD_OK;
    }
    for (int i = 0; i < SETTING_CHOICES_MAX && setting->choices[i] != NULL; i++) {
        bool is_last = i + 1 == SETTING_CHOICES_MAX || setting->choices[i + 1] == NULL;
        all = mem_format(m, "%s%s%s", all,
                         i == 0    ? ""
                         : is_last ? " or "
                                   : ", ",
                         setting->choices[i]);
    }
    return bad_value(name, e, all, error);
}

static hvd_status_t file_switch(const char *name, const struct yaml_entry *e,
                                const struct setting *setting, struct arg_value *ret,
                                struct error *error)
{
    bool value = false;
    if (!yaml_bool(e, &value))
        return bad_value(name, e, "true or false", error);
    *ret = (struct arg_value){.is_set = true, .is_on = value != setting->is_file_inverted};
    return HVD_OK;
}

static hvd_status_t file_knob(struct mem *m, const char *name, const struct yaml_entry *e,
                              const struct setting *setting, struct args *args, struct error *error)
{
    struct arg_value *ret = &args->settings[row_of(setting)];
    if (setting->choices[0] != NULL)
        return file_choice(m, name, e, setting, ret, error);
    switch (setting_option_type(setting)) {
    case TYPE_INT: return file_int(name, e, ret, error);
    case TYPE_FLOAT: return file_float(name, e, ret, error);
    case TYPE_SWITCH:
    case TYPE_NONZERO: return file_switch(name, e, setting, ret, error);
    case TYPE_TEXT:
    case TYPE_LEVEL: *ret = (struct arg_value){.is_set = true, .text = e->value}; return HVD_OK;
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "%s has no type", setting->id);
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

static const struct setting *knob_find(const struct yaml_entry *e)
{
    for (size_t i = 0; i < setting_count; i++)
        if (e->section != NULL && setting_rows[i].section != NULL &&
            strcmp(e->section, setting_rows[i].section) == 0 &&
            strcmp(e->key, setting_rows[i].key) == 0)
            return &setting_rows[i];
    return NULL;
}

static bool is_section_name(const struct yaml_entry *e)
{
    for (size_t i = 0; i < setting_count; i++)
        if (e->section == NULL && setting_rows[i].section != NULL &&
            strcmp(e->key, setting_rows[i].section) == 0)
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
        const struct setting *setting = knob_find(e);
        if (e->section == NULL && strcmp(e->key, "controller") == 0)
            status = file_controller(name, e, args, error);
        else if (is_section_name(e) && e->value == NULL && !e->is_quoted)
            continue;
        else if (is_section_name(e))
            status = bad_value(name, e, "a section with indented keys", error);
        else if (setting == NULL)
            warn_unknown(m, name, e, args);
        else if (e->value != NULL && !given.settings[row_of(setting)].is_set)
            status = file_knob(m, name, e, setting, args, error);
    }
    return status;
}

/* ---- limits and the environment ---- */

static hvd_status_t check_number(const struct setting *setting, double value, const char *text,
                                 struct error *error)
{
    int64_t lowest = setting->lowest < 0 ? setting->lowest : 0, highest = setting->option_highest;
    if (highest != 0 && (value < (double)lowest || value > (double)highest))
        return error_set(error, HVD_ERR_INVALID, "%s=%s must be in [%" PRId64 ", %" PRId64 "]",
                         setting->dest, text, lowest, highest);
    if (value < (double)lowest)
        return error_set(error, HVD_ERR_INVALID, "%s=%s must be >= %" PRId64, setting->dest, text,
                         lowest);
    return HVD_OK;
}

static hvd_status_t check_int(const struct setting *setting, int64_t value, struct error *error)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    hvd_status_t status = check_number(setting, (double)value, text, error);
    if (status == HVD_OK && setting->option_scale > 0 && value > INT64_MAX / setting->option_scale)
        return error_set(error, HVD_ERR_INVALID, "%s=%s is too large", setting->dest, text);
    return status;
}

static hvd_status_t check_float(const struct setting *setting, double value, struct error *error)
{
    char text[32];
    knobs_format_float(value, text);
    return check_number(setting, value, text, error);
}

hvd_status_t knobs_check(const struct args *args, struct error *error)
{
    hvd_status_t status = HVD_OK;
    for (size_t i = 0; i < setting_count && status == HVD_OK; i++) {
        const struct arg_value *value = &args->settings[i];
        enum setting_type type = setting_option_type(&setting_rows[i]);
        if (value->is_set && type == TYPE_INT)
            status = check_int(&setting_rows[i], value->whole, error);
        else if (value->is_set && type == TYPE_FLOAT)
            status = check_float(&setting_rows[i], value->real, error);
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

/* A switch that is off, like an option that was not given, leaves those that need it without
 * meaning. */
static bool knob_applies(const struct args *args, const struct setting *setting)
{
    const struct setting *needed = setting->needs == NULL ? NULL : setting_find(setting->needs);
    if (needed == NULL)
        return true;
    const struct arg_value *value = &args->settings[row_of(needed)];
    return value->is_set && (needed->type != TYPE_SWITCH || value->is_on);
}

static void knob_export(struct mem *m, const struct setting *setting, const struct arg_value *value,
                        struct list *env)
{
    char text[32] = "";
    switch (setting_option_type(setting)) {
    case TYPE_INT:
        snprintf(text, sizeof text, "%" PRId64,
                 value->whole * (setting->option_scale == 0 ? 1 : setting->option_scale));
        break;
    case TYPE_FLOAT: knobs_format_float(value->real, text); break;
    case TYPE_SWITCH:
    case TYPE_NONZERO: text[0] = value->is_on != setting->is_variable_inverted ? '1' : '0'; break;
    case TYPE_TEXT:
    case TYPE_LEVEL: list_set(m, env, setting->name, value->text); return;
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: return;
    }
    list_set(m, env, setting->name, text);
}

void knobs_export(struct mem *m, const struct args *args, struct list *env)
{
    for (size_t i = 0; i < setting_count; i++)
        if (args->settings[i].is_set && knob_applies(args, &setting_rows[i]))
            knob_export(m, &setting_rows[i], &args->settings[i], env);
    if (args->tcp)
        list_set(m, env, setting_rows[ROW_option_tcp].exports, "1");
}
