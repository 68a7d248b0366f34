/* SPDX-License-Identifier: Apache-2.0 */
/* store_message.h - requests and answers of the store as bytes.
 *
 * The frame's type says which request it is; all values are little-endian by base/codec.h:
 *   EXCHANGE  text scope, u64 epoch, u32 index, u32 count, u64 wait_ns, blob
 *   PUT       text scope, text key, blob
 *   GET       text scope, text key, u8 is_waiting, u64 wait_ns
 *   DELETE    text scope
 *   PING      (nothing)
 *   LEAVE     (nothing): this connection is about to be closed on purpose
 *   JOIN      text scope, text worker, u64 life, u64 least epoch, u32 index, u32 count, u64 wait_ns
 *   ANSWER    u32 status, text why, then for EXCHANGE: u32 count, count * u32 length, the bytes;
 *             for GET: blob; for JOIN: u64 epoch, 32 bytes of salt, u64 notice, u32 number of
 *             members (0: the count asked for), for each: text worker, u32 local rank and size,
 * cross rank and size wait_ns is how long the server may hold the answer back; it then says what is
 * missing.
 *
 * Thread: any.  Blocks: never.  Start reading at store_request_read(). */
#ifndef HVD_WIRE_STORE_MESSAGE_H
#define HVD_WIRE_STORE_MESSAGE_H

#include "base/codec.h"
#include "wire/budget.h"
#include "wire/store.h"

enum store_type {
    STORE_EXCHANGE = 1,
    STORE_PUT = 2,
    STORE_GET = 3,
    STORE_DELETE = 4,
    STORE_PING = 5,
    STORE_ANSWER = 6,
    STORE_LEAVE = 7,
    STORE_JOIN = 8
};

#define STORE_REQUEST_OVERHEAD 1024u /* everything of a request but its blob */
#define STORE_REQUEST_MAX      ((size_t)STORE_BLOB_MAX + STORE_REQUEST_OVERHEAD)
#define STORE_ANSWER_MAX       ((size_t)STORE_TOTAL_MAX + (1u << 20))

struct store_request {
    enum store_type type;
    char scope[STORE_KEY_MAX + 1], key[STORE_KEY_MAX + 1];
    char worker[STORE_WORKER_MAX + 1];
    uint64_t life;
    uint64_t epoch; /* JOIN: the least one */
    uint32_t index, count;
    bool is_waiting;
    int64_t wait_ns;
    const void *blob; /* a view into the message */
    size_t blob_bytes;
};

/* False: malformed, the link is to be closed. */
bool store_request_read(uint8_t type, const void *bytes, size_t n, struct store_request *ret);
/* Bytes that store_request_write() needs at most. */
size_t store_request_bytes(const struct store_request *request);
/* 0: a text or the blob is over its limit. */
size_t store_request_write(const struct store_request *request, void *ret_bytes, size_t capacity);

/* An answer that several connections may be sending at once. */
struct reply {
    struct budget *budget;
    size_t refs, bytes;
    uint8_t message[];
};

/* An answer of HVD_OK with room for `n` bytes behind it (at *ret_room); NULL: budget used up. */
struct reply *reply_create(struct budget *budget, size_t n, uint8_t **ret_room);
/* A short answer; also served when the budget is used up. NULL: no memory at all. */
struct reply *reply_status(struct budget *budget, hvd_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct reply *reply_ref(struct reply *reply);
void reply_unref(struct reply *reply); /* NULL is fine */
/* What lies behind status and text of an answer of HVD_OK. */
const uint8_t *reply_room(const struct reply *reply, size_t *ret_n);

#endif
