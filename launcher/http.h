/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - the few lines of HTTP/1.1 that the dashboard needs: reads a request, writes an answer.
 *
 * Strict: only GET without a body, one request per connection, at most HTTP_REQUEST_MAX bytes.
 * Everything else gets the code of an error. Pure: bytes in, values out.
 * Thread: any.  Start reading at http_read(). */
#ifndef HVD_LAUNCHER_HTTP_H
#define HVD_LAUNCHER_HTTP_H

#include <stddef.h>

#include "mem.h"

#define HTTP_REQUEST_MAX 8192u
#define HTTP_PATH_MAX    64u
#define HTTP_TOKEN_MAX   64u

#define HTTP_MORE 0 /* the request is not complete */

struct http_request {
    char path[HTTP_PATH_MAX];
    char token[HTTP_TOKEN_MAX]; /* of the query, `token=...`; "": none */
};

/* 200: a request was read. HTTP_MORE: read on. Else: the code of the error to answer with. */
int http_read(const char *bytes, size_t n, struct http_request *ret);
/* Adds a whole answer. The client may use it once, and load nothing else because of it. */
void http_write(const struct os *os, struct bytes *out, int code, const char *type,
                const void *body, size_t n);

#endif
