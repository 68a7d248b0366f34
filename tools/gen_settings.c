/* SPDX-License-Identifier: Apache-2.0 */
/* gen_settings.c - writes what follows from src/base/settings.def, or says what is stale.
 *
 *     gen_settings FOLDER            FOLDER: the top of the source tree
 *     gen_settings --check FOLDER    fails when a file is stale, and names it
 *     gen_settings --json            the table itself
 *
 * docs/configuration.md and the completion for zsh are written whole; in horovodrun(1) and in the
 * completion for bash only what stands between the lines BEGIN and END.
 * Thread: one.  Start reading at targets[]. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"

#define SELF      "tools/gen_settings.c"
#define PATH_MAX_ 4096

typedef void write_fn(FILE *out);

/* ---- walking ---- */

static bool is_shown(const struct setting *s, int flag)
{
    return flag < SETTING_FLAGS_MAX && s->flags[flag].names[0] != NULL && !s->flags[flag].is_hidden;
}

typedef void flag_fn(FILE *out, const struct setting *s, const struct setting_flag *flag);

/* Every option that the help shows, in its order. */
static void each_flag(FILE *out, flag_fn *fn)
{
    for (int group = GROUP_NONE + 1; group < GROUP_COUNT; group++)
        for (size_t i = 0; i < setting_count; i++)
            for (int k = 0; k < SETTING_FLAGS_MAX && setting_rows[i].group == (unsigned)group; k++)
                if (is_shown(&setting_rows[i], k))
                    fn(out, &setting_rows[i], &setting_rows[i].flags[k]);
}

/* Words in lines of bounded width. */
struct words {
    FILE *out;
    size_t at, indent, width;
};

static void word_write(struct words *w, const char *word)
{
    if (w->at > w->indent && w->at + 1 + strlen(word) > w->width) {
        fprintf(w->out, "\n%*s", (int)w->indent, "");
        w->at = w->indent;
    } else if (w->at > 0) {
        fputc(' ', w->out);
        w->at++;
    }
    fputs(word, w->out);
    w->at += strlen(word);
}

/* ---- docs/configuration.md ---- */

/* Where a chapter of the page begins: at this row. */
static const struct chapter {
    enum setting_row first;
    const char *title, *text;
} chapters[] = {
    {ROW_rank, "Identity and rendezvous of a process",
     "Set by the launcher. If these are not set, the variables of other launchers (Open MPI, PMI, "
     "Slurm, torchrun) are used."},
    {ROW_fusion_threshold_bytes, "Engine", "How ops are negotiated and fused."},
    {ROW_stall_check_disable, "Waiting and failures", "When to report, and when to give up."},
    {ROW_controller, "Transports and backends", "How data is moved."},
    {ROW_timeline, "Timeline, tuning, logging", "Traces and logs."},
    {ROW_option_wants_help, "horovodrun",
     "Defaults of options of [horovodrun](man/horovodrun.1). Its other options have no variable."},
    {ROW_enable_xla_ops, "Bindings", "Read by a framework's binding or by a Python module."},
    {ROW_num_nccl_streams, "Other builds",
     "Accepted for scripts written for builds of Horovod with other libraries."},
};
#define CHAPTER_COUNT (sizeof chapters / sizeof chapters[0])

static const char *type_text(const struct setting *s)
{
    switch (s->type) {
    case TYPE_SWITCH: return "switch";
    case TYPE_NONZERO: return "number, not 0 = on";
    case TYPE_INT: return "whole number";
    case TYPE_FLOAT: return "number";
    case TYPE_TEXT: return s->choices[0] != NULL ? "" : "text";
    case TYPE_LEVEL:
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: return "";
    }
    return "";
}

static void cell(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void type_write(FILE *out, const struct setting *s)
{
    fputs(type_text(s), out);
    for (int i = 0; i < SETTING_CHOICES_MAX && s->choices[i] != NULL; i++)
        fprintf(out, "%s`%s`", i > 0 ? ", " : "", s->choices[i]);
    if (s->highest != 0)
        fprintf(out, ", %lld to %lld", (long long)s->lowest, (long long)s->highest);
    if (s->unit != NULL)
        fprintf(out, " %s", s->unit);
}

static void row_write(FILE *out, const struct setting *s)
{
    fprintf(out, "| `%s` | ", s->name);
    type_write(out, s);
    fputs(" | ", out);
    if (s->fallback[0] != '\0')
        fprintf(out, "`%s`", s->fallback);
    fputs(" | ", out);
    for (int k = 0; k < SETTING_FLAGS_MAX; k++)
        if (is_shown(s, k))
            fprintf(out, "%s`%s`", k > 0 && is_shown(s, k - 1) ? ", " : "", s->flags[k].names[0]);
    fputs(" | ", out);
    if (s->section != NULL)
        fprintf(out, "`%s.%s`", s->section, s->key);
    fprintf(out, " | %s | ", setting_scope_word(s->scope));
    if (s->idle != NULL)
        fputs("accepted, but has no effect yet: ", out);
    cell(out, s->help);
    if (s->idle != NULL)
        fprintf(out, " (%s)", s->idle);
    fprintf(out, "%s%s |\n", s->is_tunable ? " (first value: may be tuned while running)" : "",
            s->is_secret ? " (secret: never printed)" : "");
}

static void names_write(FILE *out)
{
    struct words w = {.out = out, .width = 110};
    char name[96];
    fputs("\nKnown and ignored:\n", out);
    for (size_t i = 0; i < setting_count; i++)
        if (setting_rows[i].name != NULL && setting_rows[i].help[0] == '\0') {
            (void)snprintf(name, sizeof name, "`%s`", setting_rows[i].name);
            word_write(&w, name);
        }
    fputs("\n", out);
}

static void page_write(FILE *out)
{
    fprintf(out,
            "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
            "<!-- Generated by " SELF " from src/base/settings.def. -->\n"
            "# Configuration\n\n"
            "Every setting is an environment variable, read once by `hvd_init()`; it does not "
            "change afterwards.\n"
            "An empty value counts as not set. Use `1` or `0` for a switch: `true` is not "
            "recognised and means off.\n"
            "An unknown `HOROVOD_*` name gives one warning with the nearest match. A number that "
            "cannot be read is an\n"
            "error; one that is out of range is clamped with one warning, or is an error if "
            "only the exact number\n"
            "makes sense (ranks, ports). `horovodrun --print-config` shows the settings that a "
            "worker would read from the\n"
            "present environment.\n\n"
            "If a setting has a `horovodrun` option or a `--config-file` key, both are listed; "
            "the option overrides\n"
            "the file, and the file overrides the environment. `job`: rank 0's value applies "
            "to all ranks. `rank`:\n"
            "each rank reads its own. `launcher`, `binding`: only `horovodrun`, or only a "
            "framework's binding, reads it.\n");
    size_t found = 0;
    for (size_t i = 0; i < setting_count; i++) {
        if (found < CHAPTER_COUNT && i == chapters[found].first) {
            fprintf(out,
                    "\n## %s\n\n%s\n\n| name | type | default | option | file | for | meaning |\n"
                    "|---|---|---|---|---|---|---|\n",
                    chapters[found].title, chapters[found].text);
            found++;
        }
        if (setting_rows[i].name != NULL && setting_rows[i].help[0] != '\0')
            row_write(out, &setting_rows[i]);
    }
    names_write(out);
}

/* ---- horovodrun(1) ---- */

static void roff(FILE *out, const char *text, bool is_sentence)
{
    for (const char *at = text; *at != '\0'; at++) {
        bool is_dash = *at == '-' && (!is_sentence || at[1] == '-' || (at > text && at[-1] == '-'));
        if (*at == '\'')
            fputs("\\(aq", out);
        else if (*at == '\\')
            fputs("\\e", out);
        else if (is_dash)
            fputs("\\-", out);
        else
            fputc(is_sentence && at == text ? toupper((unsigned char)*at) : *at, out);
    }
}

static void man_flag(FILE *out, const struct setting *s, const struct setting_flag *flag)
{
    char help[512];
    fputs(".TP\n.BR \"", out);
    roff(out, flag->names[0], false);
    if (flag->names[1] != NULL) {
        fputs(", ", out);
        roff(out, flag->names[1], false);
    }
    fputc('"', out);
    if (s->metavar != NULL)
        fprintf(out, " \" \\fI%s\\fR\"", setting_metavar(s, flag));
    fputc('\n', out);
    roff(out, setting_flag_help(s, flag, help, sizeof help), true);
    fputs(".\n", out);
}

static void man_options(FILE *out)
{
    for (int group = GROUP_NONE + 1; group < GROUP_COUNT; group++) {
        const struct setting_group_text *text = &setting_groups[group];
        fprintf(out, ".SS %s%s%s%s\n", text->title, text->note != NULL ? " (" : "",
                text->note != NULL ? text->note : "", text->note != NULL ? ")" : "");
        for (size_t i = 0; i < setting_count; i++)
            for (int k = 0; k < SETTING_FLAGS_MAX && setting_rows[i].group == (unsigned)group; k++)
                if (is_shown(&setting_rows[i], k))
                    man_flag(out, &setting_rows[i], &setting_rows[i].flags[k]);
    }
}

static void file_value(FILE *out, const struct setting *s)
{
    long long number = s->option_scale > 0 ? atoll(s->fallback) / s->option_scale : 0;
    bool is_on = (s->fallback[0] == '1') != s->is_variable_inverted;
    if (s->example != NULL)
        roff(out, s->example, false);
    else if (s->type == TYPE_SWITCH || s->type == TYPE_NONZERO)
        fputs(is_on != s->is_file_inverted ? "true" : "false", out);
    else if (s->option_scale > 0)
        fprintf(out, "%lld", number);
    else
        roff(out, s->fallback, false);
}

static bool is_first_of_section(size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (setting_rows[i].section != NULL &&
            strcmp(setting_rows[i].section, setting_rows[row].section) == 0)
            return false;
    return true;
}

static void man_file(FILE *out)
{
    fputs("controller: gloo  # or mpi\n", out);
    for (size_t i = 0; i < setting_count; i++) {
        if (setting_rows[i].section == NULL || !is_first_of_section(i))
            continue;
        fprintf(out, "%s:\n", setting_rows[i].section);
        for (size_t k = i; k < setting_count; k++) {
            const struct setting *s = &setting_rows[k];
            if (s->section == NULL || strcmp(s->section, setting_rows[i].section) != 0)
                continue;
            fprintf(out, "  %s: ", s->key);
            file_value(out, s);
            fprintf(out, "%s\n", s->idle != NULL ? "  # no effect yet" : "");
        }
    }
}

/* ---- completion ---- */

enum wants { WANTS_NOTHING, WANTS_WORD, WANTS_FILE, WANTS_FOLDER, WANTS_HOST, WANTS_INTERFACE };

static enum wants wanted(const struct setting *s)
{
    if (s->metavar == NULL)
        return WANTS_NOTHING;
    if (s->type == TYPE_NAMES)
        return WANTS_INTERFACE;
    if (s == &setting_rows[ROW_option_hosts])
        return WANTS_HOST;
    if (strcmp(s->metavar, "FILE") == 0)
        return WANTS_FILE;
    return strcmp(s->metavar, "DIR") == 0 ? WANTS_FOLDER : WANTS_WORD;
}

static void zsh_text(FILE *out, const char *text, bool is_lower)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (*text == ':' || *text == '[' || *text == ']')
            fprintf(out, "\\%c", *text);
        else if (*text != '`')
            fputc(is_lower ? tolower((unsigned char)*text) : *text, out);
    }
}

static void zsh_words(FILE *out, const struct setting *s)
{
    fputc('(', out);
    for (int i = 0; i < SETTING_CHOICES_MAX && s->choices[i] != NULL; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", s->choices[i]);
    fputc(')', out);
}

static void zsh_value(FILE *out, const struct setting *s)
{
    if (s->metavar == NULL)
        return;
    if (s->type == TYPE_PAIR) {
        fputs(":low: :high: ", out);
        return;
    }
    fputc(':', out);
    zsh_text(out, s->type == TYPE_NAMES ? "interface" : s->metavar, true);
    fputc(':', out);
    switch (wanted(s)) {
    case WANTS_FILE: fputs("_files", out); return;
    case WANTS_FOLDER: fputs("_files -/", out); return;
    case WANTS_HOST: fputs("_hosts", out); return;
    case WANTS_INTERFACE: fputs("_net_interfaces", out); return;
    case WANTS_NOTHING:
    case WANTS_WORD: break;
    }
    if (s->choices[0] != NULL)
        zsh_words(out, s);
    else
        fputc(' ', out);
}

static void zsh_flag(FILE *out, const struct setting *s, const struct setting_flag *flag)
{
    char help[512];
    const char *first = flag->names[0], *second = flag->names[1];
    fputs("    '", out);
    if (second != NULL)
        fprintf(out, "(%s %s)'{%s,%s}'", first, second, first, second);
    else
        fprintf(out, "%s%s", s->type == TYPE_NAMES ? "*" : "", first);
    fputc('[', out);
    zsh_text(out, setting_flag_help(s, flag, help, sizeof help), false);
    fputc(']', out);
    zsh_value(out, s);
    fputs("' \\\n", out);
}

static void zsh_write(FILE *out)
{
    fputs("#compdef horovodrun\n"
          "# SPDX-License-Identifier: Apache-2.0\n"
          "# zsh completion for horovodrun; install as _horovodrun in a folder of $fpath\n"
          "# Generated by " SELF " from src/base/settings.def.\n\n"
          "_arguments -S \\\n",
          out);
    each_flag(out, zsh_flag);
    fputs("    '*::command:_normal'\n", out);
}

static void bash_words(FILE *out, const char *name, bool only_with_value)
{
    struct words w = {.out = out, .indent = 8, .width = 95};
    fprintf(out, "    local %s=\"\n        ", name);
    for (int group = GROUP_NONE + 1; group < GROUP_COUNT; group++)
        for (size_t i = 0; i < setting_count; i++)
            for (int k = 0; k < SETTING_FLAGS_MAX && setting_rows[i].group == (unsigned)group; k++)
                for (int n = 0; n < 2 && is_shown(&setting_rows[i], k); n++)
                    if (setting_rows[i].flags[k].names[n] != NULL &&
                        (!only_with_value || setting_rows[i].metavar != NULL))
                        word_write(&w, setting_rows[i].flags[k].names[n]);
    fputs("\"\n", out);
}

static void bash_options(FILE *out)
{
    bash_words(out, "options", false);
    bash_words(out, "with_value", true);
}

static size_t bash_pattern(FILE *out, enum wants wants, const struct setting *only)
{
    size_t count = 0;
    for (size_t i = 0; i < setting_count; i++)
        for (int k = 0; k < SETTING_FLAGS_MAX; k++)
            for (int n = 0; n < 2 && is_shown(&setting_rows[i], k); n++)
                if (setting_rows[i].flags[k].names[n] != NULL &&
                    wanted(&setting_rows[i]) == wants && (only == NULL || only == &setting_rows[i]))
                    fprintf(out, "%s%s", count++ == 0 ? "        " : " | ",
                            setting_rows[i].flags[k].names[n]);
    fputs(count > 0 ? ")\n" : "", out);
    return count;
}

static void bash_case(FILE *out, enum wants wants, const char *how)
{
    if (bash_pattern(out, wants, NULL) > 0)
        fprintf(out,
                "            mapfile -t COMPREPLY < <(compgen %s -- \"$cur\")\n"
                "            return\n            ;;\n",
                how);
}

static void bash_cases(FILE *out)
{
    bash_case(out, WANTS_FILE, "-f");
    bash_case(out, WANTS_FOLDER, "-d");
    bash_case(out, WANTS_HOST, "-A hostname -S :1");
    bash_case(out, WANTS_INTERFACE, "-W \"$(ls /sys/class/net 2>/dev/null)\"");
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &setting_rows[i];
        if (s->choices[0] == NULL || bash_pattern(out, WANTS_WORD, s) == 0)
            continue;
        fputs("            mapfile -t COMPREPLY < <(compgen -W \"", out);
        for (int k = 0; k < SETTING_CHOICES_MAX && s->choices[k] != NULL; k++)
            fprintf(out, "%s%s", k > 0 ? " " : "", s->choices[k]);
        fputs("\" -- \"$cur\")\n            return\n            ;;\n", out);
    }
}

/* ---- files ---- */

static const struct target {
    const char *path;
    const char *region; /* NULL: the whole file */
    write_fn *write;
} targets[] = {
    {"docs/configuration.md", NULL, page_write},
    {"docs/man/horovodrun.1", "options", man_options},
    {"docs/man/horovodrun.1", "config file", man_file},
    {"launcher/completion/_horovodrun", NULL, zsh_write},
    {"launcher/completion/horovodrun.bash", "options", bash_options},
    {"launcher/completion/horovodrun.bash", "values", bash_cases},
};
#define TARGET_COUNT (sizeof targets / sizeof targets[0])

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    long size;
    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        text = calloc((size_t)size + 1, 1);
        if (text != NULL && fread(text, 1, (size_t)size, file) != (size_t)size)
            text[0] = '\0';
    }
    fclose(file);
    return text;
}

/* The line after the one that holds `BEGIN region`, and the start of the one with `END region`. */
static bool region_find(char *text, const char *region, char **ret_begin, char **ret_end)
{
    char begin[64], end[64];
    (void)snprintf(begin, sizeof begin, "BEGIN %s", region);
    (void)snprintf(end, sizeof end, "END %s", region);
    char *first = strstr(text, begin);
    char *last = first == NULL ? NULL : strstr(first, end);
    if (last == NULL)
        return false;
    *ret_begin = strchr(first, '\n') + 1;
    while (last > *ret_begin && last[-1] != '\n')
        last--;
    *ret_end = last;
    return true;
}

/* What the file must hold, from what it holds; NULL: it lacks the lines BEGIN and END. */
static char *target_text(const struct target *target, char *old)
{
    char *text = NULL, *begin = NULL, *end = NULL;
    size_t bytes = 0;
    if (target->region != NULL && (old == NULL || !region_find(old, target->region, &begin, &end)))
        return NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return NULL;
    if (begin != NULL)
        fwrite(old, 1, (size_t)(begin - old), out);
    target->write(out);
    if (end != NULL)
        fputs(end, out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int target_do(const struct target *target, const char *folder, bool is_check)
{
    char path[PATH_MAX_];
    int code = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, target->path);
    char *old = read_all(path);
    char *text = target_text(target, old);
    if (text == NULL) {
        fprintf(stderr, "gen_settings: %s has no lines BEGIN %s and END %s\n", path, target->region,
                target->region);
        code = 1;
    } else if (is_check && (old == NULL || strcmp(old, text) != 0)) {
        fprintf(stderr, "%s is stale: run gen_settings %s\n", path, folder);
        code = 1;
    } else if (!is_check) {
        FILE *file = fopen(path, "w");
        bool is_good = file != NULL && fputs(text, file) >= 0;
        if (file == NULL || fclose(file) != 0 || !is_good) {
            perror(path);
            code = 1;
        }
    }
    free(text);
    free(old);
    return code;
}

static int json_print(void)
{
    size_t bytes = settings_json(NULL, 0) + 1;
    char *text = malloc(bytes);
    if (text == NULL)
        return 1;
    settings_json(text, bytes);
    fputs(text, stdout);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    bool is_check = argc == 3 && strcmp(argv[1], "--check") == 0;
    if (argc == 2 && strcmp(argv[1], "--json") == 0)
        return json_print();
    if (!is_check && (argc != 2 || argv[1][0] == '-')) {
        fprintf(stderr, "use: %s [--check] FOLDER | --json\n", argv[0]);
        return 2;
    }
    int code = 0;
    for (size_t i = 0; i < TARGET_COUNT; i++)
        code |= target_do(&targets[i], argv[argc - 1], is_check);
    return code;
}
