/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - a strict parser of Chrome traces for tests: the text must be strict JSON (RFC 8259), an
 * array of objects, and the bars of every process must be balanced.
 *
 * Thread: any; nothing is kept.  Start reading at json_trace_check(). */
#ifndef HVD_TESTS_JSON_H
#define HVD_TESTS_JSON_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH_MAX 8
#define JSON_PIDS_MAX  4096

static inline const char *json_value(const char *at, int depth);

static inline const char *json_space(const char *at)
{
    return at == NULL ? NULL : at + strspn(at, " \t\r\n");
}

static inline const char *json_hex(const char *at)
{
    for (int i = 0; i < 4; i++)
        if (strchr("0123456789abcdefABCDEF", at[i]) == NULL || at[i] == '\0')
            return NULL;
    return at + 4;
}

static inline const char *json_string(const char *at)
{
    if (at == NULL || *at++ != '"')
        return NULL;
    while (*at != '"') {
        unsigned char c = (unsigned char)*at++;
        int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        if (c < 0x20 || (c >= 0x80 && c < 0xc2) || c > 0xf4)
            return NULL;
        for (; more > 0; more--)
            if (((unsigned char)*at++ & 0xc0) != 0x80)
                return NULL;
        if (c != '\\')
            continue;
        c = (unsigned char)*at++;
        if (c == 'u')
            at = json_hex(at);
        else if (c == '\0' || strchr("\"\\/bfnrt", c) == NULL)
            return NULL;
        if (at == NULL)
            return NULL;
    }
    return at + 1;
}

static inline const char *json_number(const char *at)
{
    at += *at == '-';
    size_t digits = strspn(at, "0123456789");
    if (digits == 0 || (digits > 1 && *at == '0'))
        return NULL;
    at += digits;
    if (*at == '.') {
        digits = strspn(++at, "0123456789");
        at = digits > 0 ? at + digits : NULL;
    }
    return at;
}

/* Members of an object (with keys) or of an array. */
static inline const char *json_members(const char *at, char end, int depth)
{
    at = json_space(at + 1);
    if (*at == end)
        return at + 1;
    for (;;) {
        if (end == '}') {
            at = json_space(json_string(at));
            if (at == NULL || *at != ':')
                return NULL;
            at = json_space(at + 1);
        }
        at = json_space(json_value(at, depth + 1));
        if (at == NULL || (*at != ',' && *at != end))
            return NULL;
        if (*at == end)
            return at + 1;
        at = json_space(at + 1);
    }
}

static inline const char *json_value(const char *at, int depth)
{
    if (at == NULL || depth > JSON_DEPTH_MAX)
        return NULL;
    if (*at == '{' || *at == '[')
        return json_members(at, *at == '{' ? '}' : ']', depth);
    if (*at == '"')
        return json_string(at);
    if (strncmp(at, "true", 4) == 0 || strncmp(at, "false", 5) == 0)
        return at + (*at == 't' ? 4 : 5);
    return json_number(at);
}

static inline bool json_is_valid(const char *text)
{
    const char *end = json_space(json_value(json_space(text), 0));
    return end != NULL && *end == '\0';
}

static inline long json_field(const char *object, const char *end, const char *name, long missing)
{
    const char *at = strstr(object, name);
    return at != NULL && at < end ? strtol(at + strlen(name), NULL, 10) : missing;
}

/* NULL: a valid trace whose bars are balanced (or may be open, for one that is still written); else
 * what is wrong with it. */
static inline const char *json_trace_check(const char *text, bool may_be_open)
{
    static int depth[JSON_PIDS_MAX];
    long last_us = 0;
    memset(depth, 0, sizeof depth);
    if (!json_is_valid(text))
        return "no JSON";
    if (text[0] != '[')
        return "no array";
    for (const char *at = json_space(text + 1); *at == '{';) {
        const char *end = json_value(at, 1);
        bool is_begin = strncmp(at, "{\"ph\": \"B\", \"name\": \"", 21) == 0;
        bool is_end = strncmp(at, "{\"ph\": \"E\", \"ts\": ", 18) == 0;
        long pid = json_field(at, end, "\"pid\": ", -1);
        long us = json_field(at, end, "\"ts\": ", last_us);
        if (us < last_us)
            return "time goes back";
        last_us = us;
        if ((is_begin || is_end) && (pid < 1 || pid >= JSON_PIDS_MAX))
            return "an event without a process";
        if (is_begin)
            depth[pid]++;
        if (is_end && --depth[pid] < 0)
            return "an end without a beginning";
        at = json_space(end);
        at = json_space(at + (*at == ','));
    }
    for (int i = 0; i < JSON_PIDS_MAX && !may_be_open; i++)
        if (depth[i] != 0)
            return "a beginning without an end";
    return NULL;
}

static inline char *json_file_text(const char *path)
{
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return NULL;
    size_t capacity = 1 << 20, used = 0;
    char *text = malloc(capacity);
    for (size_t n; text != NULL && (n = fread(text + used, 1, capacity - used - 1, f)) > 0;) {
        used += n;
        if (used + 1 == capacity) {
            capacity *= 2;
            char *grown = realloc(text, capacity);
            if (grown == NULL)
                free(text);
            text = grown;
        }
    }
    if (text != NULL)
        text[used] = '\0';
    fclose(f);
    return text;
}

static inline int json_count(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

#endif
