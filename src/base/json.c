/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - see json.h. */
#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64

/* ---- characters ---- */

/* Bytes of the UTF-8 character that begins here; 0: none does. */
static int utf8_bytes(const unsigned char *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = *c < 0x80 ? 1 : *c >= 0xc2 && *c < 0xe0 ? 2 : *c >= 0xe0 && *c < 0xf0 ? 3 : 4;
    if (n == 1)
        return 1;
    if (*c < 0xc2 || *c > 0xf4)
        return 0;
    uint32_t code = *c & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (c[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[n] || code > 0x10ffff || is_surrogate ? 0 : n;
}

int json_escape(const char *at, char ret[JSON_PIECE_MAX])
{
    const unsigned char *c = (const unsigned char *)at;
    int n = utf8_bytes(c);
    if (n == 0)
        memcpy(ret, "\\ufffd", 7);
    else if (*c == '"' || *c == '\\')
        snprintf(ret, JSON_PIECE_MAX, "\\%c", *c);
    else if (*c < 0x20)
        snprintf(ret, JSON_PIECE_MAX, "\\u%04x", *c);
    else {
        memcpy(ret, at, (size_t)n);
        ret[n] = '\0';
    }
    return n > 0 ? n : 1;
}

/* ---- room ---- */

void json_init(struct json *json, char *text, size_t capacity)
{
    assert(capacity > 0);
    *json = (struct json){.text = text, .limit = capacity - 1};
    text[0] = '\0';
}

size_t json_room(const struct json *json)
{
    return json->used + json->depth < json->limit ? json->limit - json->used - json->depth : 0;
}

size_t json_limit(struct json *json, size_t bytes)
{
    size_t before = json->limit;
    if (bytes < json_room(json))
        json->limit = json->used + json->depth + bytes;
    return before;
}

void json_unlimit(struct json *json, size_t limit)
{
    assert(limit >= json->limit);
    json->limit = limit;
}

static struct json_mark mark_of(const struct json *json)
{
    struct json_mark mark = {.at = *json};
    return mark;
}

static void rewind_to(struct json *json, const struct json_mark *mark)
{
    size_t limit = json->limit;
    *json = mark->at;
    json->limit = limit;
    json->text[json->used] = '\0';
}

struct json_mark json_try(struct json *json)
{
    struct json_mark mark = mark_of(json);
    json->is_cut = false;
    return mark;
}

bool json_tried(struct json *json, const struct json_mark *since)
{
    bool is_whole = !json->is_cut;
    if (is_whole)
        json->is_cut = since->at.is_cut;
    else
        rewind_to(json, since);
    return is_whole;
}

/* ---- writing ---- */

static bool put(struct json *json, const char *bytes, size_t n)
{
    if (n > json_room(json))
        return false;
    memcpy(json->text + json->used, bytes, n);
    json->used += n;
    json->text[json->used] = '\0';
    return true;
}

static bool put_escaped(struct json *json, const char *text, size_t bytes)
{
    char piece[JSON_PIECE_MAX];
    const char *end = text + strnlen(text, bytes);
    while (text < end) {
        int n = json_escape(text, piece);
        if (n > end - text) /* a character that was cut in two */
            return true;
        if (!put(json, piece, strlen(piece)))
            return false;
        text += n;
    }
    return true;
}

/* The comma and the key; keys are ours and need no escapes. */
static bool put_key(struct json *json, const char *key)
{
    assert((key != NULL) == (json->depth > 0 && (json->is_object & 1) != 0));
    if (json->has_member && !put(json, ",", 1))
        return false;
    return key == NULL ||
           (put(json, "\"", 1) && put(json, key, strlen(key)) && put(json, "\":", 2));
}

static void cut(struct json *json, const struct json_mark *mark)
{
    rewind_to(json, mark);
    json->is_cut = true;
}

static void put_value(struct json *json, const char *key, const char *value)
{
    struct json_mark mark = mark_of(json);
    if (put_key(json, key) && put(json, value, strlen(value)))
        json->has_member = true;
    else
        cut(json, &mark);
}

bool json_open(struct json *json, const char *key, bool is_object)
{
    struct json_mark mark = mark_of(json);
    assert(json->depth < DEPTH_MAX);
    if (!put_key(json, key) || json_room(json) < 2) {
        cut(json, &mark);
        return false;
    }
    put(json, is_object ? "{" : "[", 1);
    json->depth++;
    json->is_object = json->is_object << 1 | (is_object ? 1u : 0u);
    json->has_member = false;
    return true;
}

void json_close(struct json *json)
{
    assert(json->depth > 0);
    json->text[json->used++] = (json->is_object & 1) != 0 ? '}' : ']';
    json->text[json->used] = '\0';
    json->depth--;
    json->is_object >>= 1;
    json->has_member = true;
}

void json_text_part(struct json *json, const char *key, const char *text, size_t bytes)
{
    struct json_mark mark = mark_of(json);
    if (put_key(json, key) && put(json, "\"", 1) && put_escaped(json, text, bytes) &&
        put(json, "\"", 1))
        json->has_member = true;
    else
        cut(json, &mark);
}

void json_text(struct json *json, const char *key, const char *text)
{
    json_text_part(json, key, text, strlen(text));
}

void json_int(struct json *json, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_value(json, key, text);
}

void json_uint(struct json *json, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put_value(json, key, text);
}

void json_bool(struct json *json, const char *key, bool value)
{
    put_value(json, key, value ? "true" : "false");
}

/* By hand: the locale decides about the point of a printed double. */
void json_seconds(struct json *json, const char *key, int64_t ns)
{
    char text[40];
    int64_t us = ns > 0 ? ns / 1000 : 0;
    snprintf(text, sizeof text, "%" PRId64 ".%06" PRId64, us / 1000000, us % 1000000);
    put_value(json, key, text);
}
