/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - writes JSON (RFC 8259) into a buffer of fixed size, without allocating.
 *
 * The text is valid whatever the size: a value that does not fit is omitted with its key, and an
 * array or object is opened only if its end fits too. `is_cut` is set if something was omitted.
 * To write several values together or not at all, put them between json_try() and json_tried().
 *
 * Thread: the owner's.  Start reading at json_open(). */
#ifndef HVD_BASE_JSON_H
#define HVD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_PIECE_MAX 8

struct json {
    char *text; /* NUL-terminated at all times */
    size_t used;
    size_t limit;       /* bytes that may be used, without the NUL; json_limit() lowers it */
    size_t depth;       /* open arrays and objects: this many bytes are reserved for their ends */
    bool has_member;    /* the innermost open one is not empty: a comma comes first */
    bool is_cut;        /* something did not fit */
    uint64_t is_object; /* by depth, the innermost lowest: ends with a brace */
};

struct json_mark {
    struct json at;
};

void json_init(struct json *json, char *text, size_t capacity); /* at least 1 */

/* `key` is NULL inside an array. false: it does not fit and was not opened. */
bool json_open(struct json *json, const char *key, bool is_object);
void json_close(struct json *json);
void json_text(struct json *json, const char *key, const char *text);
/* At most `bytes` bytes of it; up to a NUL. */
void json_text_part(struct json *json, const char *key, const char *text, size_t bytes);
void json_int(struct json *json, const char *key, int64_t value);
void json_uint(struct json *json, const char *key, uint64_t value);
void json_bool(struct json *json, const char *key, bool value);
void json_seconds(struct json *json, const char *key, int64_t ns); /* "1.250000"; not below 0 */

struct json_mark json_try(struct json *json);
/* false: something did not fit, and everything written since json_try() was removed. */
bool json_tried(struct json *json, const struct json_mark *since);
/* Allows only `bytes` more bytes from now on; returns the value to pass to json_unlimit(). */
size_t json_limit(struct json *json, size_t bytes);
void json_unlimit(struct json *json, size_t limit);
size_t json_room(const struct json *json); /* bytes that are left */

/* Writes the character at `at` as it appears in a JSON string, NUL-terminated; returns how many
 * bytes of the text it represents. Invalid UTF-8 becomes U+FFFD, byte by byte. */
int json_escape(const char *at, char ret[JSON_PIECE_MAX]);

#endif
