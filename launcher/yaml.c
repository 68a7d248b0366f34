/* SPDX-License-Identifier: Apache-2.0 */
/* yaml.c - see yaml.h. One pass over the lines; a line is indentation, a key, a colon, a scalar
 * (or, for a section, {key: scalar, ...}) and perhaps a comment. What it takes it reads as PyYAML
 * does, tests/python/launcher/test_yaml.py. Thread: any.  Start reading at yaml_read(). */
#include "yaml.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define YAML_ENTRIES_MAX 4096u

struct yaml_parse {
    struct mem *m;
    const char *name; /* of the file */
    struct yaml *out;
    struct error *error;
    const char *at, *end; /* of the current line, without its line end */
    int line;
    const char *section;   /* of the block we are in, NULL at the top level */
    size_t section_indent; /* 0: its first line has not come yet */
    bool has_document;
};

static hvd_status_t refuse(struct yaml_parse *p, const char *what, const char *at, size_t n)
{
    return error_set(p->error, HVD_ERR_INVALID, "%s:%d: %s%s%.*s%s", p->name, p->line, what,
                     n > 0 ? ": '" : "", (int)(n > 200 ? 200 : n), at, n > 0 ? "'" : "");
}

static size_t left(const struct yaml_parse *p)
{
    return (size_t)(p->end - p->at);
}

static void skip_spaces(struct yaml_parse *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        p->at++;
}

/* Only blanks and perhaps a comment behind this point? A comment needs a blank before its #. */
static bool is_line_done(struct yaml_parse *p)
{
    const char *before = p->at;
    skip_spaces(p);
    return p->at == p->end || (*p->at == '#' && p->at > before);
}

static void put_utf8(char *out, size_t *n, unsigned code)
{
    if (code < 0x80) {
        out[(*n)++] = (char)code;
    } else if (code < 0x800) {
        out[(*n)++] = (char)(0xc0 | (code >> 6));
        out[(*n)++] = (char)(0x80 | (code & 0x3f));
    } else {
        out[(*n)++] = (char)(0xe0 | (code >> 12));
        out[(*n)++] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[(*n)++] = (char)(0x80 | (code & 0x3f));
    }
}

static bool hex(const char *at, const char *end, int digits, unsigned *ret)
{
    *ret = 0;
    for (int i = 0; i < digits; i++) {
        if (at + i >= end || !isxdigit((unsigned char)at[i]))
            return false;
        int c = tolower((unsigned char)at[i]);
        *ret = 16 * *ret + (unsigned)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    return *ret != 0;
}

/* One escape of a double-quoted scalar; p->at is behind the backslash. */
static bool escape(struct yaml_parse *p, char *out, size_t *n)
{
    static const char from[] = "\"\\/abtnvfre ";
    static const char to[] = "\"\\/\a\b\t\n\v\f\r\x1b ";
    if (p->at == p->end)
        return false;
    char c = *p->at++;
    const char *found = strchr(from, c);
    if (c != '\0' && found != NULL) {
        out[(*n)++] = to[found - from];
        return true;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    unsigned code = 0;
    if (digits == 0 || !hex(p->at, p->end, digits, &code))
        return false;
    put_utf8(out, n, code);
    p->at += digits;
    return true;
}

static hvd_status_t quoted(struct yaml_parse *p, char **ret)
{
    char quote = *p->at++;
    const char *start = p->at;
    char *out = mem_alloc(p->m, left(p) + 1);
    size_t n = 0;
    while (p->at < p->end) {
        char c = *p->at++;
        if (c == quote && quote == '\'' && p->at < p->end && *p->at == '\'')
            p->at++;
        else if (c == quote) {
            *ret = out;
            return HVD_OK;
        }
        if (c == '\\' && quote == '"') {
            if (!escape(p, out, &n))
                return refuse(p, "unknown escape in double quotes", start, 0);
        } else {
            out[n++] = c;
        }
    }
    return refuse(p, "quote is not closed on this line", start - 1, (size_t)(p->end - start) + 1);
}

/* Plain text up to a comment or the line's end. */
static hvd_status_t plain(struct yaml_parse *p, char **ret)
{
    if (strchr("[]{}&*!|>%@`,", *p->at) != NULL || (left(p) >= 2 && memcmp(p->at, "- ", 2) == 0))
        return refuse(p, "only plain or quoted values are understood here", p->at, left(p));
    const char *start = p->at, *end = p->at;
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#' && (p->at[-1] == ' ' || p->at[-1] == '\t'))
            break;
        if (*p->at == ':' && (p->at + 1 == p->end || p->at[1] == ' ' || p->at[1] == '\t'))
            return refuse(p, "a second colon; put the value in quotes", start,
                          (size_t)(p->end - start));
        if (*p->at != ' ' && *p->at != '\t')
            end = p->at + 1;
    }
    *ret = mem_copy_n(p->m, start, (size_t)(end - start));
    p->at = end; /* so that the blank before a comment is seen again */
    return HVD_OK;
}

static hvd_status_t key_read(struct yaml_parse *p, char **ret)
{
    if (*p->at == '"' || *p->at == '\'') {
        hvd_status_t status = quoted(p, ret);
        if (status != HVD_OK)
            return status;
    } else {
        const char *start = p->at;
        while (p->at < p->end && (isalnum((unsigned char)*p->at) || *p->at == '_' || *p->at == '-'))
            p->at++;
        if (p->at == start)
            return refuse(p, "expected `key: value`", start, left(p));
        *ret = mem_copy_n(p->m, start, (size_t)(p->at - start));
    }
    skip_spaces(p);
    if (p->at == p->end || *p->at != ':')
        return refuse(p, "expected a colon behind the key", *ret, strlen(*ret));
    p->at++;
    if (p->at < p->end && *p->at != ' ' && *p->at != '\t')
        return refuse(p, "expected a blank behind the colon", *ret, strlen(*ret));
    return HVD_OK;
}

static hvd_status_t entry_add(struct yaml_parse *p, const struct yaml_entry *entry)
{
    struct yaml *y = p->out;
    for (size_t i = 0; i < y->count; i++) {
        const struct yaml_entry *e = &y->entries[i];
        if (e->section == entry->section && /* the same pointer: the section's own key */
            strcmp(e->key, entry->key) == 0)
            return refuse(p, "key is given twice", entry->key, strlen(entry->key));
    }
    if (y->count == YAML_ENTRIES_MAX)
        return refuse(p, "too many entries", "", 0);
    if (y->count == y->capacity) {
        size_t capacity = y->capacity == 0 ? 32 : 2 * y->capacity;
        struct yaml_entry *entries = mem_alloc(p->m, capacity * sizeof *entries);
        if (y->count > 0)
            memcpy(entries, y->entries, y->count * sizeof *entries);
        y->entries = entries;
        y->capacity = capacity;
    }
    y->entries[y->count++] = *entry;
    return HVD_OK;
}

static bool is_null(const char *text)
{
    return strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

/* Plain text inside braces. */
static hvd_status_t flow_plain(struct yaml_parse *p, char **ret)
{
    if (strchr("[]{&*!|>%@`", *p->at) != NULL)
        return refuse(p, "only plain or quoted values are understood here", p->at, left(p));
    const char *start = p->at, *end = p->at;
    for (; p->at < p->end && strchr(",[]{}", *p->at) == NULL; p->at++) {
        if (*p->at == '#' && (p->at[-1] == ' ' || p->at[-1] == '\t'))
            break;
        if (*p->at == ':' && (p->at + 1 == p->end || strchr(" \t,}", p->at[1]) != NULL))
            return refuse(p, "a second colon; put the value in quotes", start,
                          (size_t)(p->end - start));
        if (*p->at != ' ' && *p->at != '\t')
            end = p->at + 1;
    }
    *ret = mem_copy_n(p->m, start, (size_t)(end - start));
    return HVD_OK;
}

static hvd_status_t flow_entry(struct yaml_parse *p, const char *section)
{
    char *value = NULL;
    struct yaml_entry entry = {.section = section, .line = p->line};
    hvd_status_t status = key_read(p, &value);
    if (status != HVD_OK)
        return status;
    entry.key = value;
    skip_spaces(p);
    if (p->at < p->end && *p->at != ',' && *p->at != '}') {
        entry.is_quoted = *p->at == '"' || *p->at == '\'';
        status = entry.is_quoted ? quoted(p, &value) : flow_plain(p, &value);
        if (status != HVD_OK)
            return status;
        entry.value = !entry.is_quoted && is_null(value) ? NULL : value;
    }
    skip_spaces(p);
    return entry_add(p, &entry);
}

/* {key: value, ...} as a whole section; p->at is at the brace. */
static hvd_status_t flow_read(struct yaml_parse *p, const char *section)
{
    hvd_status_t status = HVD_OK;
    p->at++;
    skip_spaces(p);
    while (p->at < p->end && *p->at != '}') {
        status = flow_entry(p, section);
        if (status != HVD_OK)
            return status;
        if (p->at < p->end && *p->at != ',' && *p->at != '}')
            return refuse(p, "expected , or } behind a value", p->at, left(p));
        if (p->at < p->end && *p->at == ',')
            p->at++;
        skip_spaces(p);
    }
    if (p->at == p->end)
        return refuse(p, "brace is not closed on this line", "", 0);
    p->at++;
    return is_line_done(p) ? HVD_OK : refuse(p, "text behind the brace", p->at, left(p));
}

/* Where are we? Deeper than the top level must follow a key without a value. */
static hvd_status_t indent_check(struct yaml_parse *p, size_t indent)
{
    if (indent == 0) {
        p->section = NULL;
        p->section_indent = 0;
        return HVD_OK;
    }
    if (p->section == NULL && p->out->count > 0 && p->section_indent == 0) {
        struct yaml_entry *last = &p->out->entries[p->out->count - 1];
        if (last->value == NULL && !last->is_quoted && !last->is_section && last->section == NULL) {
            last->is_section = true;
            p->section = last->key;
            p->section_indent = indent;
            return HVD_OK;
        }
    }
    if (p->section == NULL || indent != p->section_indent)
        return refuse(p, "unexpected indentation; sections are one level deep", "", 0);
    return HVD_OK;
}

static hvd_status_t line_read(struct yaml_parse *p)
{
    const char *start = p->at;
    while (p->at < p->end && *p->at == ' ')
        p->at++;
    size_t indent = (size_t)(p->at - start);
    if (p->at < p->end && *p->at == '\t') {
        skip_spaces(p);
        return p->at == p->end || *p->at == '#'
                   ? HVD_OK
                   : refuse(p, "a tab in the indentation; use blanks", "", 0);
    }
    if (p->at == p->end || *p->at == '#')
        return HVD_OK;
    if (*p->at == '-' && (left(p) == 1 || p->at[1] == ' '))
        return refuse(p, "lists are not understood here", "", 0);
    hvd_status_t status = indent_check(p, indent);
    char *key = NULL, *value = NULL;
    if (status == HVD_OK)
        status = key_read(p, &key);
    if (status != HVD_OK)
        return status;
    struct yaml_entry entry = {.section = p->section, .key = key, .line = p->line};
    bool is_done = is_line_done(p);
    if (!is_done && *p->at == '{' && p->section == NULL) {
        entry.is_section = true;
        status = entry_add(p, &entry);
        return status == HVD_OK ? flow_read(p, key) : status;
    }
    if (!is_done) {
        entry.is_quoted = *p->at == '"' || *p->at == '\'';
        status = entry.is_quoted ? quoted(p, &value) : plain(p, &value);
        if (status != HVD_OK)
            return status;
        if (!is_line_done(p))
            return refuse(p, "text behind the value", p->at, left(p));
        entry.value = !entry.is_quoted && is_null(value) ? NULL : value;
    }
    return entry_add(p, &entry);
}

/* `---` at the start and `...` at the end; *ret_is_end: nothing may follow. */
static hvd_status_t marker_read(struct yaml_parse *p, bool *ret_is_marker, bool *ret_is_end)
{
    bool is_start = left(p) >= 3 && memcmp(p->at, "---", 3) == 0 &&
                    (left(p) == 3 || p->at[3] == ' ' || p->at[3] == '\t');
    bool is_end = left(p) == 3 && memcmp(p->at, "...", 3) == 0;
    *ret_is_marker = is_start || is_end;
    *ret_is_end = is_end;
    if (!is_start)
        return HVD_OK;
    if (p->has_document || p->out->count > 0)
        return refuse(p, "only one document is understood", "", 0);
    p->has_document = true;
    p->at += 3;
    return is_line_done(p) ? HVD_OK : refuse(p, "text behind ---", p->at, left(p));
}

hvd_status_t yaml_read(struct mem *m, const char *name, const char *text, size_t n,
                       struct yaml *ret, struct error *error)
{
    *ret = (struct yaml){0};
    struct yaml_parse p = {.m = m, .name = name, .out = ret, .error = error};
    const char *end = text + n;
    bool is_ended = false;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    while (text < end && !is_ended) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop == NULL ? end : stop;
        p.line++;
        p.at = text;
        p.end = stop > text && stop[-1] == '\r' ? stop - 1 : stop;
        text = stop < end ? stop + 1 : end;
        if (memchr(p.at, '\0', left(&p)) != NULL)
            return refuse(&p, "a zero byte: this is not a text file", "", 0);
        bool is_marker = false;
        hvd_status_t status = marker_read(&p, &is_marker, &is_ended);
        if (status == HVD_OK && !is_marker)
            status = line_read(&p);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}

bool yaml_bool(const struct yaml_entry *entry, bool *ret)
{
    static const char *const names[] = {"false", "no", "off", "true", "yes", "on"};
    if (entry->value == NULL || entry->is_quoted)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(entry->value, names[i]) == 0) {
            *ret = i >= 3;
            return true;
        }
    return false;
}
