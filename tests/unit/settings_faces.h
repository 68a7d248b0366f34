/* SPDX-License-Identifier: Apache-2.0 */
/* settings_faces.h - walks the table of settings and checks every output of every row: the parser
 * of the environment, what ranks share, horovodrun's options, config file and help, the pages and
 * completions, and the JSON. The sources are compiled in, so that a test can add rows first. Start
 * reading at FACES. */
#ifndef HVD_TESTS_SETTINGS_FACES_H
#define HVD_TESTS_SETTINGS_FACES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/base/settings.c"

/* Names that several of the sources have for themselves. */
#define append      settings_append
#define is_shown    settings_is_shown
#define bad_value   config_bad_value
#define parse_int   config_parse_int
#define parse_float config_parse_float
#include "../../src/base/config.c"
#undef bad_value
#undef parse_int
#undef parse_float
#include "../../src/base/config_share.c"

#include "../../launcher/args.c"
#define bad_value knobs_bad_value
#include "../../launcher/knobs.c"
#undef bad_value
#include "../../launcher/mem.c"
#include "../../launcher/yaml.c"

#define main gen_settings_main
int gen_settings_main(int argc, char **argv);
#include "../../tools/gen_settings.c"
#undef main

struct faces {
    struct mem mem;
    struct args args;
    struct error error;
    struct os os;
    const char *name, *value; /* the whole environment */
    char warning[512];
    int warning_count;
    struct config config;
};

static const char *faces_env(void *ctx, const char *name)
{
    struct faces *f = ctx;
    return f->name != NULL && strcmp(name, f->name) == 0 ? f->value : NULL;
}

static void faces_env_each(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                           void *arg)
{
    struct faces *f = ctx;
    if (f->name != NULL)
        fn(arg, f->name, f->value);
}

static void faces_warn(void *arg, const char *text)
{
    struct faces *f = arg;
    f->warning_count++;
    (void)snprintf(f->warning, sizeof f->warning, "%s", text);
}

static int faces_setup(void **state)
{
    struct faces *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -1;
    mem_init(&f->mem, os_host());
    f->os = (struct os){.ctx = f, .env = faces_env, .env_each = faces_env_each};
    *state = f;
    return 0;
}

static int faces_teardown(void **state)
{
    struct faces *f = *state;
    mem_destroy(&f->mem);
    free(f);
    return 0;
}

static hvd_status_t faces_load(struct faces *f, const char *name, const char *value)
{
    f->name = name;
    f->value = value;
    f->warning_count = 0;
    error_clear(&f->error);
    return config_load(&f->os, &f->config, faces_warn, f, &f->error);
}

/* A value that is not the default, as the option takes it. */
static const char *faces_sample(struct mem *m, const struct setting *s, enum setting_type type)
{
    if (s->choices[0] != NULL)
        return s->choices[1];
    if (type == TYPE_FLOAT)
        return "0.5";
    if (type == TYPE_TEXT)
        return "7";
    if (type == TYPE_SWITCH && strcmp(s->fallback, "1") == 0)
        return "0";
    int64_t value = s->lowest > 0 ? s->lowest : 1;
    if (strcmp(mem_format(m, "%lld", (long long)value), s->fallback) == 0)
        value++;
    return mem_format(m, "%lld", (long long)value);
}

/* ---- the row itself ---- */

static bool is_plain(const char *text)
{
    for (; text != NULL && *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

static void faces_check_texts(const struct setting *s)
{
    assert_true(is_plain(s->name) && is_plain(s->help) && is_plain(s->idle));
    assert_true(is_plain(s->fallback) && is_plain(s->complaint) && is_plain(s->option_help));
    assert_true(s->help[0] != '\0' || s->scope == SCOPE_BUILD);
    assert_true(s->name != NULL || s->flags[0].names[0] != NULL);
    assert_true(s->name == NULL || strncmp(s->name, "HOROVOD_", 8) == 0);
}

/* What code takes for granted of a row. */
static void rows_hold_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        enum setting_type type = setting_option_type(s);
        faces_check_texts(s);
        assert_int_equal(s->section == NULL, s->key == NULL);
        assert_true(s->section == NULL || setting_is_passed_on(s));
        if (s->flags[0].names[0] == NULL)
            continue;
        assert_int_not_equal(s->group, GROUP_NONE);
        assert_true(!setting_is_passed_on(s) || (s->dest != NULL && s->section != NULL));
        assert_int_equal(s->metavar != NULL, s->flags[0].sense == SENSE_VALUE && type != TYPE_FLAG);
        assert_true(s->needs == NULL || setting_find(s->needs) != NULL);
        assert_true(type != TYPE_NONE && type != TYPE_NONZERO);
    }
}

static void spellings_are_unique(void **state)
{
    (void)state;
    struct option a = {0};
    while (option_next(&a)) {
        struct option b = {0};
        while (option_next(&b))
            for (int k = 0; k < 4 && a.flag != b.flag; k++) {
                const char *x = a.flag->names[k / 2], *y = b.flag->names[k % 2];
                assert_true(x == NULL || y == NULL || strcmp(x, y) != 0);
            }
    }
}

/* ---- the environment ---- */

static void environment_reads_every_row(void **state)
{
    struct faces *f = *state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        char text[CONFIG_TEXT_MAX];
        if (!setting_is_config(s))
            continue;
        const char *value = faces_sample(&f->mem, s, s->type);
        assert_int_equal(faces_load(f, s->name, value), HVD_OK);
        config_format(&f->config, s, text, sizeof text);
        bool is_same = strcasecmp(text, s->is_secret ? "(secret)" : value) == 0;
        bool is_ignored = s == &setting_rows[ROW_stall_shutdown_time_s]; /* below the warning */
        assert_true(is_same || is_ignored);
        assert_true(s->idle == NULL || strstr(f->warning, s->idle) != NULL);
        assert_int_equal(f->warning_count, s->idle != NULL || is_ignored ? 1 : 0);
        if (s->type == TYPE_INT || s->type == TYPE_FLOAT)
            assert_int_equal(faces_load(f, s->name, "1 2"), HVD_ERR_CONFIG);
        if (s->type == TYPE_INT && s->is_exact)
            assert_int_equal(
                faces_load(f, s->name, mem_format(&f->mem, "%lld", (long long)s->highest + 1)),
                HVD_ERR_CONFIG);
        if (s->type == TYPE_TEXT && s->choices[0] != NULL)
            assert_int_equal(faces_load(f, s->name, "nosuch"), HVD_ERR_CONFIG);
    }
}

/* Out of range: the nearest limit, with a warning that names it. */
static void environment_keeps_limits(void **state)
{
    struct faces *f = *state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        char text[64];
        if (!setting_is_config(s) || s->is_exact || (s->type != TYPE_INT && s->type != TYPE_FLOAT))
            continue;
        assert_true(s->highest > s->lowest);
        const char *limit = mem_format(&f->mem, "%lld", (long long)s->highest);
        const char *beyond = mem_format(&f->mem, "%lld", (long long)s->highest + 1);
        assert_int_equal(faces_load(f, s->name, beyond), HVD_OK);
        config_format(&f->config, s, text, sizeof text);
        assert_string_equal(text, limit);
        assert_true(f->warning_count > 0);
    }
}

static void every_name_is_known(void **state)
{
    struct faces *f = *state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        if (s->name == NULL || setting_is_config(s))
            continue;
        assert_int_equal(faces_load(f, s->name, "1"), HVD_OK);
        assert_int_equal(f->warning_count, s->idle != NULL ? 1 : 0);
        assert_ptr_equal(setting_find(s->name), s);
    }
    assert_int_equal(faces_load(f, "HOROVOD_NOSUCH_SETTING_AT_ALL", "1"), HVD_OK);
    assert_int_equal(f->warning_count, 1);
}

/* ---- what the ranks share ---- */

/* A rank takes over rank 0's values of scope `job`, and no others. */
static void shared_rows_are_rank_0s(void **state)
{
    struct faces *f = *state;
    uint8_t bytes[4096];
    struct writer w;
    struct reader r;
    struct config mine;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        char before[CONFIG_TEXT_MAX], theirs[CONFIG_TEXT_MAX], after[CONFIG_TEXT_MAX];
        if (!setting_is_config(s))
            continue;
        assert_int_equal(faces_load(f, NULL, NULL), HVD_OK);
        mine = f->config;
        assert_int_equal(faces_load(f, s->name, faces_sample(&f->mem, s, s->type)), HVD_OK);
        config_format(&mine, s, before, sizeof before);
        config_format(&f->config, s, theirs, sizeof theirs);
        writer_init(&w, bytes, sizeof bytes);
        config_share(&f->config, &w);
        assert_false(w.bad);
        reader_init(&r, bytes, w.used);
        assert_true(config_adopt(&mine, &r) && reader_done(&r));
        config_format(&mine, s, after, sizeof after);
        assert_string_equal(after, s->scope == SCOPE_JOB ? theirs : before);
        reader_init(&r, bytes, w.used);
        assert_true(config_share_skip(&r) && reader_done(&r));
    }
}

/* What a peer sends is not believed: cut anywhere, or with any byte flipped, nothing out of range
 * gets in, and a refusal changes nothing. */
static void foreign_values_are_checked(void **state)
{
    struct faces *f = *state;
    uint8_t bytes[4096];
    struct writer w;
    assert_int_equal(faces_load(f, NULL, NULL), HVD_OK);
    struct config plain = f->config;
    writer_init(&w, bytes, sizeof bytes);
    config_share(&plain, &w);
    for (size_t n = 0; n < w.used; n++) {
        struct reader r;
        reader_init(&r, bytes, n);
        assert_false(config_adopt(&f->config, &r));
        assert_memory_equal(&f->config, &plain, sizeof plain);
    }
    for (size_t bit = 0; bit < 8 * w.used; bit++) {
        struct reader r;
        f->config = plain;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        reader_init(&r, bytes, w.used);
        bool is_taken = config_adopt(&f->config, &r);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (!is_taken)
            assert_memory_equal(&f->config, &plain, sizeof plain);
        assert_true(f->config.tcp_flows >= 1 && f->config.tcp_flows <= CONFIG_FLOWS_MAX);
        assert_true(f->config.cycle_time_ms >= 0 && f->config.cycle_time_ms <= 3600000);
        assert_true(f->config.fusion_threshold_bytes >= 0);
    }
}

/* ---- the command line and the file ---- */

static void faces_words(struct faces *f, struct list *words, const struct setting *s,
                        const struct setting_flag *flag)
{
    list_add(&f->mem, words, mem_copy(&f->mem, flag->names[flag->names[1] != NULL]));
    if (s->metavar != NULL)
        list_add(&f->mem, words,
                 mem_copy(&f->mem, faces_sample(&f->mem, s, setting_option_type(s))));
    if (s->type == TYPE_PAIR)
        list_add(&f->mem, words, mem_copy(&f->mem, "9"));
}

static hvd_status_t faces_parse(struct faces *f, const struct setting *s,
                                const struct setting_flag *flag)
{
    struct list words = {0};
    const struct setting *needed = s->needs == NULL ? NULL : setting_find(s->needs);
    list_add(&f->mem, &words, mem_copy(&f->mem, "horovodrun"));
    if (needed != NULL)
        faces_words(f, &words, needed, &needed->flags[0]);
    faces_words(f, &words, s, flag);
    error_clear(&f->error);
    return args_parse(&f->mem, (int)words.count, words.items, &f->args, &f->error);
}

static const char *faces_exported(struct faces *f, const char *name)
{
    struct list env = {0};
    assert_int_equal(knobs_check(&f->args, &f->error), HVD_OK);
    knobs_export(&f->mem, &f->args, &env);
    return list_get(&env, name);
}

/* What the variable must be for the option's sample or sense. */
static void faces_check_variable(struct faces *f, const struct setting *s, const char *variable,
                                 bool is_on)
{
    const char *sample = faces_sample(&f->mem, s, setting_option_type(s));
    assert_non_null(variable);
    if (s->metavar == NULL)
        assert_string_equal(variable, is_on != s->is_variable_inverted ? "1" : "0");
    else if (s->option_scale > 0)
        assert_true(atoll(variable) == atoll(sample) * s->option_scale);
    else
        assert_string_equal(variable, sample);
    assert_int_equal(faces_load(f, s->name, variable), HVD_OK);
}

static void options_become_variables(void **state)
{
    struct faces *f = *state;
    struct option o = {0};
    while (option_next(&o)) {
        assert_int_equal(faces_parse(f, o.setting, o.flag), HVD_OK);
        if (o.setting->exports != NULL)
            assert_string_equal(faces_exported(f, o.setting->exports), "1");
        if (!setting_is_passed_on(o.setting))
            continue;
        faces_check_variable(f, o.setting, faces_exported(f, o.setting->name),
                             o.flag->sense == SENSE_ON);
        assert_int_equal(f->args.warnings.count, o.flag->instead != NULL ? 1 : 0);
    }
}

static hvd_status_t faces_file(struct faces *f, const struct setting *s, const char *value)
{
    const struct setting *needed = s->needs == NULL ? NULL : setting_find(s->needs);
    const char *more = needed == NULL
                           ? ""
                           : mem_format(&f->mem, "%s: {%s: %s}\n", needed->section, needed->key,
                                        needed->type == TYPE_SWITCH ? "true" : "x");
    bool is_same = needed != NULL && strcmp(needed->section, s->section) == 0;
    const char *text =
        is_same ? mem_format(&f->mem, "%s:\n  %s: %s\n  %s: %s\n", s->section, needed->key,
                             needed->type == TYPE_SWITCH ? "true" : "x", s->key, value)
                : mem_format(&f->mem, "%s%s:\n  %s: %s\n", more, s->section, s->key, value);
    f->args = (struct args){0};
    error_clear(&f->error);
    return knobs_load_file(&f->mem, "f", text, strlen(text), &f->args, &f->error);
}

static void file_becomes_variables(void **state)
{
    struct faces *f = *state;
    size_t count = 0;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        if (s->section == NULL)
            continue;
        const char *value =
            s->metavar == NULL ? "true" : faces_sample(&f->mem, s, setting_option_type(s));
        assert_int_equal(faces_file(f, s, value), HVD_OK);
        assert_int_equal(f->args.warnings.count, 0);
        faces_check_variable(f, s, faces_exported(f, s->name), !s->is_file_inverted);
        if (setting_option_type(s) != TYPE_TEXT || s->choices[0] != NULL)
            assert_int_equal(faces_file(f, s, "nosuch"), HVD_ERR_INVALID);
        count++;
    }
    assert_true(count >= 23);
}

static void options_keep_limits(void **state)
{
    struct faces *f = *state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        enum setting_type type = setting_option_type(s);
        if (!setting_is_passed_on(s) || (type != TYPE_INT && type != TYPE_FLOAT))
            continue;
        long long lowest = s->lowest < 0 ? s->lowest : 0;
        assert_int_equal(faces_file(f, s, mem_format(&f->mem, "%lld", lowest - 1)), HVD_OK);
        assert_int_equal(knobs_check(&f->args, &f->error), HVD_ERR_INVALID);
        assert_non_null(strstr(f->error.text, s->dest));
        assert_int_equal(faces_file(f, s, mem_format(&f->mem, "%lld", lowest)), HVD_OK);
        assert_int_equal(knobs_check(&f->args, &f->error), HVD_OK);
    }
}

/* ---- what people read ---- */

static char *faces_text(write_fn *write)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(out);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* `word` with something else than a letter, digit, underscore or dash on both sides. */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == text || strchr(" \n'`\"{(,|*", at[-1]) != NULL;
        if (begins && !isalnum((unsigned char)at[n]) && at[n] != '_' && at[n] != '-')
            return true;
    }
    return false;
}

static void no_backslashes(char *text)
{
    char *to = text;
    for (; *text != '\0'; text++)
        if (*text != '\\')
            *to++ = *text;
    *to = '\0';
}

static void help_and_pages_name_every_option(void **state)
{
    (void)state;
    char *texts[] = {faces_text(args_print_help), faces_text(man_options), faces_text(zsh_write),
                     faces_text(bash_options)};
    struct option o = {0};
    no_backslashes(texts[1]);
    while (option_next(&o))
        for (int k = 0; k < 2 && o.flag->names[k] != NULL; k++)
            for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
                assert_int_equal(has_word(texts[i], o.flag->names[k]), !o.flag->is_hidden);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
}

static void pages_name_every_setting(void **state)
{
    struct faces *f = *state;
    char *page = faces_text(page_write), *file = faces_text(man_file);
    size_t bytes = settings_json(NULL, 0) + 1;
    char *json = mem_alloc(&f->mem, bytes);
    assert_int_equal(settings_json(json, bytes), bytes - 1);
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        if (s->name != NULL) {
            assert_true(has_word(page, s->name));
            assert_non_null(strstr(json, mem_format(&f->mem, "\"name\": \"%s\"", s->name)));
        }
        if (s->name != NULL && s->idle != NULL)
            assert_non_null(strstr(page, s->idle));
        if (s->section != NULL) {
            assert_non_null(strstr(page, mem_format(&f->mem, "`%s.%s`", s->section, s->key)));
            assert_non_null(strstr(file, mem_format(&f->mem, "  %s: ", s->key)));
        }
    }
    free(page);
    free(file);
}

/* The example in the manual is read without a complaint. */
static void example_file_is_read(void **state)
{
    struct faces *f = *state;
    char *file = faces_text(man_file);
    no_backslashes(file);
    f->args = (struct args){0};
    error_clear(&f->error);
    hvd_status_t status = knobs_load_file(&f->mem, "f", file, strlen(file), &f->args, &f->error);
    assert_string_equal(f->error.text, "");
    assert_int_equal(status, HVD_OK);
    assert_int_equal(f->args.warnings.count, 0);
    assert_int_equal(knobs_check(&f->args, &f->error), HVD_OK);
    free(file);
}

static void json_of_any_room(void **state)
{
    struct faces *f = *state;
    size_t whole = settings_json(NULL, 0);
    char *text = mem_alloc(&f->mem, whole + 1);
    for (size_t bytes = 1; bytes <= whole + 1; bytes += bytes < 100 ? 1 : whole / 7) {
        memset(text, 'x', whole + 1);
        assert_int_equal(settings_json(text, bytes), whole);
        assert_int_equal(strlen(text), bytes - 1 < whole ? bytes - 1 : whole);
    }
}

#define FACE(name) cmocka_unit_test_setup_teardown(name, faces_setup, faces_teardown)
#define FACES                                                                                      \
    FACE(rows_hold_together), FACE(spellings_are_unique), FACE(environment_reads_every_row),       \
        FACE(environment_keeps_limits), FACE(every_name_is_known), FACE(shared_rows_are_rank_0s),  \
        FACE(foreign_values_are_checked), FACE(options_become_variables),                          \
        FACE(file_becomes_variables), FACE(options_keep_limits),                                   \
        FACE(help_and_pages_name_every_option), FACE(pages_name_every_setting),                    \
        FACE(example_file_is_read), FACE(json_of_any_room)

#endif
