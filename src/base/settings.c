/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - the rows of settings.def as an array, and queries on a row.
 *
 * Thread: any; nothing is kept.  Blocks: never.  Allocates: never. Start reading at setting_rows[].
 */
#include "base/settings.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"

#define RANKS_MAX   (1 << 24)
#define PORT_MAX    65535
#define SECONDS_MAX 1000000000 /* 31 years: in nanoseconds, with a clock added, still a number */
#define BYTES_MAX   (1LL << 46)
#define COUNT_MAX   1000000000

#define FIELD(field)                                                                               \
    .offset = offsetof(struct config, field), .bytes = sizeof(((struct config *)0)->field)

#define FLAG(spelling)                                                                             \
    {                                                                                              \
        .names = { spelling }                                                                      \
    }
#define FLAG_2(older, newer)                                                                       \
    {                                                                                              \
        .names = { older, newer }                                                                  \
    }
#define HIDDEN(spelling)                                                                           \
    {                                                                                              \
        .names = {spelling}, .is_hidden = true                                                     \
    }
#define ON(spelling)                                                                               \
    {                                                                                              \
        .names = {spelling}, .sense = SENSE_ON                                                     \
    }
#define OFF(spelling)                                                                              \
    {                                                                                              \
        .names = {spelling}, .sense = SENSE_OFF                                                    \
    }
#define HIDDEN_ON(spelling)                                                                        \
    {                                                                                              \
        .names = {spelling}, .sense = SENSE_ON, .is_hidden = true                                  \
    }
#define HIDDEN_OFF(spelling)                                                                       \
    {                                                                                              \
        .names = {spelling}, .sense = SENSE_OFF, .is_hidden = true                                 \
    }
#define OLD_ON(spelling, better)                                                                   \
    {                                                                                              \
        .names = {spelling}, .sense = SENSE_ON, .is_hidden = true, .instead = better               \
    }
#define OLD_OFF(spelling, better)                                                                  \
    {                                                                                              \
        .names = {spelling}, .sense = SENSE_OFF, .is_hidden = true, .instead = better              \
    }

const struct setting setting_rows[] = {
#define ROW(row_id, row_type, row_name, row_fallback, row_help)                                    \
    .id = row_id, .type = row_type, .name = row_name, .fallback = row_fallback, .help = row_help
#define SETTING(type, field, name, fallback, help, ...)                                            \
    {ROW(#field, TYPE_##type, name, fallback, help), FIELD(field), __VA_ARGS__},
#define TEXT(field, size, name, fallback, help, ...)                                               \
    {ROW(#field, TYPE_TEXT, name, fallback, help), FIELD(field), __VA_ARGS__},
#define ALIAS(id, field, name, fallback, help, ...)                                                \
    {ROW(#id, TYPE_TEXT, name, fallback, help), FIELD(field), __VA_ARGS__},
#define KNOWN(id, name, help, ...) {ROW(#id, TYPE_NONE, name, "", help), __VA_ARGS__},
#define OPTION(type, field, name, fallback, help, ...)                                             \
    {ROW(#field, TYPE_##type, name, fallback, help), __VA_ARGS__},
#define PAIR(low, high, name, fallback, help, ...)                                                 \
    {ROW(#low, TYPE_PAIR, name, fallback, help), __VA_ARGS__},
#include "base/settings.def"
};
const size_t setting_count = sizeof setting_rows / sizeof setting_rows[0];
_Static_assert(sizeof setting_rows / sizeof setting_rows[0] == ROW_COUNT,
               "one enum value for each row");

const struct setting_group_text setting_groups[GROUP_COUNT] = {
    [GROUP_JOB] = {"Job", NULL},
    [GROUP_HOSTS] = {"Hosts", "one of them"},
    [GROUP_SSH] = {"SSH", NULL},
    [GROUP_CONTROLLER] = {"Controller", "one of them"},
    [GROUP_TUNING] = {"Tuning", NULL},
    [GROUP_AUTOTUNE] = {"Autotune", "accepted, but there is no tuner yet"},
    [GROUP_TIMELINE] = {"Timeline", NULL},
    [GROUP_STALL] = {"Stall check", NULL},
    [GROUP_LOGGING] = {"Logging", NULL},
    [GROUP_LIBRARY] = {"Libraries", NULL},
    [GROUP_ELASTIC] = {"Elastic", "see docs/elastic.md"},
};

const struct setting *setting_find(const char *name)
{
    for (size_t i = 0; i < setting_count; i++)
        if (setting_rows[i].name != NULL && strcmp(setting_rows[i].name, name) == 0)
            return &setting_rows[i];
    return NULL;
}

bool setting_is_config(const struct setting *setting)
{
    return setting->bytes > 0;
}

bool setting_is_passed_on(const struct setting *setting)
{
    return setting->name != NULL && setting->scope != SCOPE_LAUNCHER &&
           setting->flags[0].names[0] != NULL;
}

enum setting_type setting_option_type(const struct setting *setting)
{
    return setting->option_type != TYPE_NONE ? setting->option_type : setting->type;
}

/* Appends, as far as there is room. */
static void append(char *text, size_t bytes, const char *first, const char *second)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, bytes - used, "%s%s", first, second);
}

const char *setting_flag_help(const struct setting *setting, const struct setting_flag *flag,
                              char *ret_text, size_t bytes)
{
    const char *help = flag->help != NULL             ? flag->help
                       : setting->option_help != NULL ? setting->option_help
                                                      : setting->help;
    bool is_opposite = flag->sense == SENSE_OFF && !setting->is_variable_inverted;
    ret_text[0] = '\0';
    append(ret_text, bytes, setting->idle != NULL ? "no effect yet: " : "",
           is_opposite ? "the opposite of " : "");
    append(ret_text, bytes, is_opposite ? setting->flags[0].names[0] : help, "");
    for (int i = 0; i < SETTING_CHOICES_MAX && setting->choices[i] != NULL; i++)
        append(ret_text, bytes, i == 0 ? ": " : ", ", setting->choices[i]);
    if (setting->scope == SCOPE_LAUNCHER && setting->name != NULL) {
        append(ret_text, bytes, " (default: ", setting->name);
        append(ret_text, bytes, ", else ", setting->fallback);
        append(ret_text, bytes, ")", "");
    }
    return ret_text;
}

const char *setting_metavar(const struct setting *setting, const struct setting_flag *flag)
{
    return flag->metavar != NULL ? flag->metavar : setting->metavar;
}

const char *setting_type_word(enum setting_type type)
{
    switch (type) {
    case TYPE_NONE: return "none";
    case TYPE_SWITCH: return "switch";
    case TYPE_NONZERO: return "nonzero";
    case TYPE_INT: return "int";
    case TYPE_FLOAT: return "float";
    case TYPE_TEXT: return "text";
    case TYPE_LEVEL: return "level";
    case TYPE_FLAG: return "flag";
    case TYPE_NAMES: return "names";
    case TYPE_PAIR: return "pair";
    }
    return "none";
}

const char *setting_scope_word(enum setting_scope scope)
{
    switch (scope) {
    case SCOPE_JOB: return "job";
    case SCOPE_RANK: return "rank";
    case SCOPE_LAUNCHER: return "launcher";
    case SCOPE_BINDING: return "binding";
    case SCOPE_BUILD: return "build";
    }
    return "rank";
}

/* ---- as JSON ---- */

struct out {
    char *text;
    size_t bytes, used; /* `used` counts what did not fit, too */
};

static void out_char(struct out *out, char c)
{
    if (out->used + 1 < out->bytes)
        out->text[out->used] = c;
    out->used++;
}

static void out_text(struct out *out, const char *text)
{
    for (; *text != '\0'; text++)
        out_char(out, *text);
}

/* The rows are ASCII without control characters; a test holds them to that. */
static void out_string(struct out *out, const char *text)
{
    if (text == NULL) {
        out_text(out, "null");
        return;
    }
    out_char(out, '"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            out_char(out, '\\');
        out_char(out, *text);
    }
    out_char(out, '"');
}

static void out_key(struct out *out, const char *key)
{
    out_text(out, ", ");
    out_string(out, key);
    out_text(out, ": ");
}

static void out_member(struct out *out, const char *key, const char *text)
{
    out_key(out, key);
    out_string(out, text);
}

static void out_bool(struct out *out, const char *key, bool value)
{
    out_key(out, key);
    out_text(out, value ? "true" : "false");
}

static void out_int(struct out *out, const char *key, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    out_key(out, key);
    out_text(out, text);
}

static void json_choices(struct out *out, const struct setting *s)
{
    out_key(out, "choices");
    out_char(out, '[');
    for (int i = 0; i < SETTING_CHOICES_MAX && s->choices[i] != NULL; i++) {
        out_text(out, i > 0 ? ", " : "");
        out_string(out, s->choices[i]);
    }
    out_char(out, ']');
}

static void json_flag(struct out *out, const struct setting *s, const struct setting_flag *flag)
{
    static const char *const senses[] = {
        [SENSE_VALUE] = "value", [SENSE_ON] = "on", [SENSE_OFF] = "off"};
    char help[512];
    out_text(out, "{\"names\": [");
    out_string(out, flag->names[0]);
    if (flag->names[1] != NULL) {
        out_text(out, ", ");
        out_string(out, flag->names[1]);
    }
    out_char(out, ']');
    out_member(out, "sense", senses[flag->sense]);
    out_bool(out, "hidden", flag->is_hidden);
    out_bool(out, "single", flag->is_single);
    out_member(out, "instead", flag->instead);
    out_member(out, "help", setting_flag_help(s, flag, help, sizeof help));
    out_char(out, '}');
}

static void json_option(struct out *out, const struct setting *s)
{
    out_member(out, "group", setting_groups[s->group].title);
    out_key(out, "flags");
    out_char(out, '[');
    for (int i = 0; i < SETTING_FLAGS_MAX && s->flags[i].names[0] != NULL; i++) {
        out_text(out, i > 0 ? ", " : "");
        json_flag(out, s, &s->flags[i]);
    }
    out_char(out, ']');
    out_member(out, "exclusive", s->exclusive);
    out_member(out, "option_type", setting_type_word(setting_option_type(s)));
    out_member(out, "metavar", s->metavar);
    out_member(out, "dest", s->dest);
    out_int(out, "option_scale", s->option_scale == 0 ? 1 : s->option_scale);
    out_int(out, "option_highest", s->option_highest);
    out_bool(out, "variable_inverted", s->is_variable_inverted);
    out_bool(out, "file_inverted", s->is_file_inverted);
    out_member(out, "needs", s->needs);
    out_member(out, "exports", s->exports);
    out_member(out, "section", s->section);
    out_member(out, "key", s->key);
}

static void json_row(struct out *out, const struct setting *s)
{
    out_text(out, "{\"id\": ");
    out_string(out, s->id);
    out_member(out, "name", s->name);
    out_member(out, "type", setting_type_word(s->type));
    out_member(out, "default", s->fallback);
    out_member(out, "help", s->help);
    out_member(out, "scope", setting_scope_word(s->scope));
    out_bool(out, "tunable", s->is_tunable);
    out_bool(out, "secret", s->is_secret);
    out_int(out, "lowest", s->lowest);
    out_int(out, "highest", s->highest);
    out_bool(out, "exact", s->is_exact);
    out_member(out, "unit", s->unit);
    json_choices(out, s);
    out_member(out, "idle", s->idle);
    json_option(out, s);
    out_char(out, '}');
}

size_t settings_json(char *ret_text, size_t bytes)
{
    struct out out = {.text = ret_text, .bytes = bytes};
    out_char(&out, '[');
    for (size_t i = 0; i < setting_count; i++) {
        out_text(&out, i > 0 ? ",\n " : "");
        json_row(&out, &setting_rows[i]);
    }
    out_text(&out, "]\n");
    if (bytes > 0)
        ret_text[out.used < bytes ? out.used : bytes - 1] = '\0';
    return out.used;
}
