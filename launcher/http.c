/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - see http.h. */
#include "http.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

/* The end of the head, after the empty line; 0: it is not there yet. */
static size_t head_end(const char *bytes, size_t n)
{
    for (size_t i = 3; i < n; i++)
        if (memcmp(bytes + i - 3, "\r\n\r\n", 4) == 0)
            return i + 1;
    return 0;
}

static size_t line_length(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] != '\r' && at[n] != '\n')
        n++;
    return n;
}

static bool is_visible(char c)
{
    return c > ' ' && c < 0x7f;
}

/* Copies what fits; false: it does not, or has bytes that are not visible ASCII. */
static bool word_copy(const char *at, size_t n, char *ret, size_t bytes)
{
    if (n >= bytes)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_visible(at[i]))
            return false;
    memcpy(ret, at, n);
    ret[n] = '\0';
    return true;
}

static int target_read(const char *at, size_t n, struct http_request *ret)
{
    const char *query = memchr(at, '?', n);
    size_t path = query != NULL ? (size_t)(query - at) : n;
    if (n == 0 || at[0] != '/')
        return 400;
    if (!word_copy(at, path, ret->path, sizeof ret->path))
        return path >= sizeof ret->path ? 414 : 400;
    while (query != NULL) {
        const char *name = query + 1;
        size_t left = n - (size_t)(name - at);
        query = memchr(name, '&', left);
        size_t used = query != NULL ? (size_t)(query - name) : left;
        if (used >= 6 && memcmp(name, "token=", 6) == 0 &&
            !word_copy(name + 6, used - 6, ret->token, sizeof ret->token))
            return 400;
    }
    return 200;
}

/* "GET /path?token=... HTTP/1.1" */
static int first_line_read(const char *line, size_t n, struct http_request *ret)
{
    const char *space = memchr(line, ' ', n);
    size_t method = space != NULL ? (size_t)(space - line) : 0;
    if (method == 0 || n < method + 11)
        return 400;
    const char *version = line + n - 9;
    if (memcmp(version, " HTTP/1.", 8) != 0 || (version[8] != '0' && version[8] != '1'))
        return memcmp(version, " HTTP/", 6) == 0 ? 505 : 400;
    const char *target = space + 1;
    if (version < target || memchr(target, ' ', (size_t)(version - target)) != NULL)
        return 400;
    if (method != 3 || memcmp(line, "GET", 3) != 0)
        return 405;
    return target_read(target, (size_t)(version - target), ret);
}

/* Fields are not used, but what is not a field is not HTTP. */
static bool is_field(const char *line, size_t n)
{
    size_t name = 0;
    while (name < n && is_visible(line[name]) && line[name] != ':')
        name++;
    if (name == 0 || name == n || line[name] != ':')
        return false;
    for (size_t i = name; i < n; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
            return false;
    return true;
}

int http_read(const char *bytes, size_t n, struct http_request *ret)
{
    *ret = (struct http_request){0};
    size_t head = head_end(bytes, n);
    if (head == 0)
        return n >= HTTP_REQUEST_MAX ? 431 : HTTP_MORE;
    if (head > HTTP_REQUEST_MAX)
        return 431;
    const char *at = bytes, *end = bytes + head - 2; /* without the empty line */
    size_t length = line_length(at, end);
    int code = first_line_read(at, length, ret);
    for (;;) {
        at += length;
        if (end - at < 2 || at[0] != '\r' || at[1] != '\n')
            return 400; /* a bare \n or \r */
        at += 2;
        if (at == end)
            return code;
        length = line_length(at, end);
        if (!is_field(at, length))
            return 400;
    }
}

/* ---- writing ---- */

static const char *reason_of(int code)
{
    static const struct {
        int code;
        const char *text;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {414, "URI Too Long"},
                   {431, "Request Header Fields Too Large"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code)
            return reasons[i].text;
    return "Error";
}

void http_write(const struct os *os, struct bytes *out, int code, const char *type,
                const void *body, size_t n)
{
    char head[768];
    int used = snprintf(
        head, sizeof head,
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'\r\n\r\n",
        code, reason_of(code), type, n, code == 405 ? "Allow: GET\r\n" : "");
    bytes_add(os, out, head, (size_t)used);
    bytes_add(os, out, body, n);
}
