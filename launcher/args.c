/* SPDX-License-Identifier: Apache-2.0 */
/* args.c - see args.h. Several flags may fill one row (`--x` and `--no-x`): these, and rows with
 * the same word in `exclusive`, refuse each other, as argparse does. Thread: any.  Start reading at
 * args_parse(). */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Field of an option of horovodrun itself, by row. */
static const size_t option_offsets[ROW_COUNT] = {
#define OPTION(type, field, ...) [ROW_option_##field] = offsetof(struct args, field),
#define PAIR(low, high, ...)     [ROW_option_##low] = offsetof(struct args, low),
#include "base/settings.def"
};

struct option {
    const struct setting *setting;
    const struct setting_flag *flag;
};

/* The flag after `at`, in the table's order; a NULL flag begins and ends. */
static bool option_next(struct option *at)
{
    if (at->flag == NULL)
        *at = (struct option){setting_rows, setting_rows[0].flags};
    else
        at->flag++;
    while (at->flag == at->setting->flags + SETTING_FLAGS_MAX || at->flag->names[0] == NULL) {
        at->setting++;
        if (at->setting == setting_rows + setting_count)
            return false;
        at->flag = at->setting->flags;
    }
    return true;
}

static bool option_is_named(const struct option *o, const char *name, size_t n, bool by_prefix)
{
    for (int k = 0; k < 2 && o->flag->names[k] != NULL; k++)
        if (strncmp(o->flag->names[k], name, n) == 0 && (by_prefix || o->flag->names[k][n] == '\0'))
            return true;
    return false;
}

/* ---- finding the option ---- */

/* "-np/--num-proc", as argparse names an argument in its messages. */
static const char *flag_label(struct mem *m, const struct setting_flag *flag)
{
    if (flag->names[1] == NULL)
        return flag->names[0];
    return mem_format(m, "%s/%s", flag->names[0], flag->names[1]);
}

static bool option_exact(const char *name, size_t n, struct option *ret)
{
    struct option o = {0};
    while (option_next(&o))
        if (option_is_named(&o, name, n, false)) {
            *ret = o;
            return true;
        }
    return false;
}

static hvd_status_t option_ambiguous(struct mem *m, const char *name, size_t n, struct error *error)
{
    char *all = NULL;
    struct option o = {0};
    while (option_next(&o))
        for (int k = 0; k < 2 && o.flag->names[k] != NULL; k++)
            if (strncmp(o.flag->names[k], name, n) == 0)
                all = all == NULL ? mem_copy(m, o.flag->names[k])
                                  : mem_format(m, "%s, %s", all, o.flag->names[k]);
    return error_set(error, HVD_ERR_INVALID, "ambiguous option: %.*s could match %s", (int)n, name,
                     all);
}

/* A unique beginning of a long option is enough; hidden ones count, as they do for argparse. */
static hvd_status_t option_by_prefix(struct mem *m, const char *name, size_t n, struct option *ret,
                                     struct error *error)
{
    struct option o = {0}, found = {0};
    while (option_next(&o)) {
        if (!option_is_named(&o, name, n, true))
            continue;
        if (found.flag != NULL)
            return option_ambiguous(m, name, n, error);
        found = o;
    }
    if (found.flag == NULL)
        return error_set(error, HVD_ERR_INVALID, "unrecognized arguments: %s", name);
    *ret = found;
    return HVD_OK;
}

/* Finds the option of `word`; *ret_value is what follows `=` or is glued to `-p`, or NULL. */
static hvd_status_t option_find(struct mem *m, const char *word, struct option *ret,
                                const char **ret_value, struct error *error)
{
    const char *equals = strchr(word, '=');
    size_t n = equals == NULL ? strlen(word) : (size_t)(equals - word);
    *ret_value = equals == NULL ? NULL : equals + 1;
    if (option_exact(word, n, ret))
        return HVD_OK;
    if (word[1] != '-' && option_exact(word, 2, ret) && ret->setting->metavar != NULL) {
        *ret_value = word + 2;
        return HVD_OK;
    }
    if (n < 3)
        return error_set(error, HVD_ERR_INVALID, "unrecognized arguments: %s", word);
    return option_by_prefix(m, word, n, ret, error);
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

static hvd_status_t bad_value(struct mem *m, const struct option *o, const char *kind,
                              const char *text, struct error *error)
{
    return error_set(error, HVD_ERR_INVALID, "argument %s: invalid %s value: '%s'",
                     flag_label(m, o->flag), kind, text);
}

const char *args_choice(const struct setting *setting, const char *text)
{
    for (int i = 0; i < SETTING_CHOICES_MAX && setting->choices[i] != NULL; i++)
        if (strcasecmp(text, setting->choices[i]) == 0)
            return setting->choices[i];
    return NULL;
}

static hvd_status_t bad_choice(struct mem *m, const struct option *o, const char *text,
                               struct error *error)
{
    const char *all = "";
    for (int i = 0; i < SETTING_CHOICES_MAX && o->setting->choices[i] != NULL; i++)
        all = mem_format(m, "%s%s'%s'", all, i > 0 ? ", " : "", o->setting->choices[i]);
    return error_set(error, HVD_ERR_INVALID, "argument %s: invalid choice: '%s' (choose from %s)",
                     flag_label(m, o->flag), text, all);
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

static hvd_status_t store_int(struct mem *m, const struct option *o, const char *text,
                              struct arg_int *ret, struct error *error)
{
    ret->is_set = true;
    return parse_int(text, &ret->value) ? HVD_OK : bad_value(m, o, "int", text, error);
}

static void store_names(struct mem *m, const struct option *o, const char *text, struct args *args,
                        struct list *list)
{
    if (o->flag->is_single && strchr(text, ',') != NULL)
        list_add(m, &args->warnings,
                 mem_format(m, "%s takes one name; use %s for a list", o->flag->names[0],
                            o->setting->flags[0].names[0]));
    store_interfaces(m, list, text);
}

/* What the workers get. */
static hvd_status_t store_value(struct mem *m, const struct option *o, const char *text,
                                struct arg_value *ret, struct error *error)
{
    ret->is_set = true;
    if (o->flag->sense != SENSE_VALUE) {
        ret->is_on = o->flag->sense == SENSE_ON;
        return HVD_OK;
    }
    if (o->setting->choices[0] != NULL) {
        ret->text = args_choice(o->setting, text);
        return ret->text != NULL ? HVD_OK : bad_choice(m, o, text, error);
    }
    switch (setting_option_type(o->setting)) {
    case TYPE_INT:
        return parse_int(text, &ret->whole) ? HVD_OK : bad_value(m, o, "int", text, error);
    case TYPE_FLOAT:
        return parse_float(text, &ret->real) ? HVD_OK : bad_value(m, o, "float", text, error);
    case TYPE_TEXT:
    case TYPE_LEVEL: ret->text = text; return HVD_OK;
    case TYPE_NONE:
    case TYPE_SWITCH:
    case TYPE_NONZERO:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "%s has no type", o->setting->id);
}

static hvd_status_t store(struct mem *m, const struct option *o, struct args *args,
                          const char *value, const char *second, struct error *error)
{
    size_t row = (size_t)(o->setting - setting_rows);
    void *field = (char *)args + option_offsets[row];
    if (setting_is_passed_on(o->setting))
        return store_value(m, o, value, &args->settings[row], error);
    switch (o->setting->type) {
    case TYPE_FLAG: *(bool *)field = true; return HVD_OK;
    case TYPE_INT: return store_int(m, o, value, field, error);
    case TYPE_TEXT: *(const char **)field = value; return HVD_OK;
    case TYPE_NAMES: store_names(m, o, value, args, field); return HVD_OK;
    case TYPE_PAIR: {
        hvd_status_t status = store_int(m, o, value, field, error);
        return status != HVD_OK ? status
                                : store_int(m, o, second, (struct arg_int *)field + 1, error);
    }
    case TYPE_NONE:
    case TYPE_SWITCH:
    case TYPE_NONZERO:
    case TYPE_FLOAT:
    case TYPE_LEVEL: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "%s has no type", o->setting->id);
}

/* ---- the whole line ---- */

struct parse {
    struct mem *m;
    struct args *args;
    const struct setting_flag *seen[ROW_COUNT]; /* first of each row */
    char **words;
    int at, count;
};

/* The flag given before that this one can't stand beside, or NULL. */
static const struct setting_flag *find_rival(const struct parse *p, const struct option *o)
{
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting_flag *other = p->seen[i];
        bool is_same_row = &setting_rows[i] == o->setting;
        bool is_rival = is_same_row
                            ? o->flag->sense != SENSE_VALUE
                            : o->setting->exclusive != NULL && setting_rows[i].exclusive != NULL &&
                                  strcmp(o->setting->exclusive, setting_rows[i].exclusive) == 0;
        if (other != NULL && other != o->flag && is_rival)
            return other;
    }
    return NULL;
}

static hvd_status_t check_exclusive(struct parse *p, const struct option *o, struct error *error)
{
    const struct setting_flag *other = find_rival(p, o);
    if (other != NULL)
        return error_set(error, HVD_ERR_INVALID, "argument %s: not allowed with argument %s",
                         flag_label(p->m, o->flag), flag_label(p->m, other));
    if (p->seen[o->setting - setting_rows] == NULL)
        p->seen[o->setting - setting_rows] = o->flag;
    return HVD_OK;
}

static void warn_deprecated(struct parse *p, const struct setting_flag *flag)
{
    if (flag->instead != NULL)
        list_add(p->m, &p->args->warnings,
                 mem_format(p->m, "%s is deprecated; use %s", flag->names[0], flag->instead));
}

static const char *next_value(struct parse *p)
{
    if (p->at >= p->count || is_option_like(p->words[p->at]))
        return NULL;
    return p->words[p->at++];
}

/* The value of an option that needs none, "[PORT]": a number, because the command may follow. */
static const char *next_number(struct parse *p)
{
    const char *word = p->at < p->count ? p->words[p->at] : "";
    bool is_digits = word[0] != '\0' && word[strspn(word, "0123456789")] == '\0';
    return is_digits ? next_value(p) : "0";
}

static hvd_status_t parse_option(struct parse *p, struct error *error)
{
    struct option o = {0};
    const char *value = NULL, *second = NULL;
    hvd_status_t status = option_find(p->m, p->words[p->at++], &o, &value, error);
    if (status == HVD_OK)
        status = check_exclusive(p, &o, error);
    if (status != HVD_OK)
        return status;
    bool takes_value = o.setting->metavar != NULL, is_pair = o.setting->type == TYPE_PAIR;
    if (!takes_value && value != NULL)
        return error_set(error, HVD_ERR_INVALID, "argument %s: ignored explicit argument '%s'",
                         flag_label(p->m, o.flag), value);
    if (takes_value && value == NULL)
        value = o.setting->metavar[0] == '[' ? next_number(p) : next_value(p);
    if (is_pair && value != NULL)
        second = next_value(p);
    if (takes_value && (value == NULL || (is_pair && second == NULL)))
        return error_set(error, HVD_ERR_INVALID, "argument %s: expected %s",
                         flag_label(p->m, o.flag), is_pair ? "2 arguments" : "one argument");
    warn_deprecated(p, o.flag);
    return store(p->m, &o, p->args, value, second, error);
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

static void print_option(FILE *file, const struct option *o)
{
    const struct setting_flag *flag = o->flag;
    const char *metavar = setting_metavar(o->setting, flag);
    char left[128], help[512];
    snprintf(left, sizeof left, "  %s%s%s%s%s", flag->names[0], flag->names[1] == NULL ? "" : ", ",
             flag->names[1] == NULL ? "" : flag->names[1], metavar == NULL ? "" : " ",
             metavar == NULL ? "" : metavar);
    if (strlen(left) + 2 > HELP_COLUMN)
        fprintf(file, "%s\n%*s", left, HELP_COLUMN, "");
    else
        fprintf(file, "%-*s", HELP_COLUMN, left);
    print_wrapped(file, setting_flag_help(o->setting, flag, help, sizeof help), HELP_COLUMN);
}

static void print_group(FILE *file, enum setting_group group)
{
    const struct setting_group_text *text = &setting_groups[group];
    struct option o = {0};
    fprintf(file, "\n%s%s%s%s:\n", text->title, text->note == NULL ? "" : " (",
            text->note == NULL ? "" : text->note, text->note == NULL ? "" : ")");
    while (option_next(&o))
        if (o.setting->group == group && !o.flag->is_hidden)
            print_option(file, &o);
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
    for (int group = GROUP_NONE + 1; group < GROUP_COUNT; group++)
        print_group(file, (enum setting_group)group);
    fputs("\nA long option may be shortened as long as it stays unique. NAME=VALUE words in front "
          "of the\ncommand go into its environment. See horovodrun(1).\n",
          file);
}
