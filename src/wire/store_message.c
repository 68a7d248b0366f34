/* SPDX-License-Identifier: Apache-2.0 */
/* store_message.c - reading and writing the store's messages; see store_message.h for the layout.
 *
 * Thread: any.  Owner: nobody.  Invariant: a request that was read has its texts and its blob
 * within the limits of store.h, and its index below its count.  Start reading at
 * store_request_read(). */
#include "wire/store_message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OK_HEADER_BYTES 8u /* status and an empty text */

static int64_t wait_of(uint64_t ns)
{
    return ns > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)ns; /* leaves room to add the time */
}

static void exchange_read(struct reader *r, struct store_request *ret)
{
    get_text(r, ret->scope, sizeof ret->scope);
    ret->epoch = get_u64(r);
    ret->index = get_u32(r);
    ret->count = get_u32(r);
    ret->wait_ns = wait_of(get_u64(r));
    ret->blob = get_blob(r, STORE_BLOB_MAX, &ret->blob_bytes);
    if (ret->count > STORE_COUNT_MAX || ret->index >= ret->count)
        r->bad = true;
}

static void join_read(struct reader *r, struct store_request *ret)
{
    get_text(r, ret->scope, sizeof ret->scope);
    get_text(r, ret->worker, sizeof ret->worker);
    ret->life = get_u64(r);
    ret->epoch = get_u64(r);
    ret->index = get_u32(r);
    ret->count = get_u32(r);
    ret->wait_ns = wait_of(get_u64(r));
    if (ret->count > STORE_COUNT_MAX || ret->index >= ret->count || ret->life == 0 ||
        (ret->epoch > INT64_MAX && ret->epoch != STORE_EPOCH_ANY))
        r->bad = true;
}

bool store_request_read(uint8_t type, const void *bytes, size_t n, struct store_request *ret)
{
    struct reader r;
    memset(ret, 0, sizeof *ret);
    reader_init(&r, bytes, n);
    ret->type = (enum store_type)type;
    switch (ret->type) {
    case STORE_EXCHANGE: exchange_read(&r, ret); return reader_done(&r);
    case STORE_JOIN: join_read(&r, ret); return reader_done(&r);
    case STORE_PUT:
        get_text(&r, ret->scope, sizeof ret->scope);
        get_text(&r, ret->key, sizeof ret->key);
        ret->blob = get_blob(&r, STORE_BLOB_MAX, &ret->blob_bytes);
        return reader_done(&r);
    case STORE_GET:
        get_text(&r, ret->scope, sizeof ret->scope);
        get_text(&r, ret->key, sizeof ret->key);
        ret->is_waiting = get_u8(&r) != 0;
        ret->wait_ns = wait_of(get_u64(&r));
        return reader_done(&r);
    case STORE_DELETE: get_text(&r, ret->scope, sizeof ret->scope); return reader_done(&r);
    case STORE_PING:
    case STORE_LEAVE: return reader_done(&r);
    case STORE_ANSWER: return false;
    }
    return false;
}

size_t store_request_bytes(const struct store_request *request)
{
    return STORE_REQUEST_OVERHEAD + request->blob_bytes;
}

size_t store_request_write(const struct store_request *request, void *ret_bytes, size_t capacity)
{
    struct writer w;
    writer_init(&w, ret_bytes, capacity);
    if (request->blob_bytes > STORE_BLOB_MAX)
        return 0;
    if (request->type != STORE_PING && request->type != STORE_LEAVE)
        put_text(&w, request->scope);
    if (request->type == STORE_JOIN) {
        put_text(&w, request->worker);
        put_u64(&w, request->life);
    }
    if (request->type == STORE_EXCHANGE || request->type == STORE_JOIN) {
        put_u64(&w, request->epoch);
        put_u32(&w, request->index);
        put_u32(&w, request->count);
        put_u64(&w, (uint64_t)request->wait_ns);
    }
    if (request->type == STORE_PUT || request->type == STORE_GET)
        put_text(&w, request->key);
    if (request->type == STORE_GET) {
        put_u8(&w, request->is_waiting);
        put_u64(&w, (uint64_t)request->wait_ns);
    }
    if (request->type == STORE_EXCHANGE || request->type == STORE_PUT)
        put_blob(&w, request->blob, request->blob_bytes);
    return w.bad ? 0 : w.used;
}

/* The first reference to memory that was taken from the budget; NULL if there was none. */
static struct reply *reply_first(struct reply *reply, struct budget *budget, size_t bytes)
{
    if (reply == NULL)
        return NULL;
    reply->budget = budget;
    reply->refs = 1;
    reply->bytes = bytes;
    return reply;
}

struct reply *reply_create(struct budget *budget, size_t n, uint8_t **ret_room)
{
    size_t bytes = OK_HEADER_BYTES + n;
    struct reply *reply = budget_take(budget, sizeof *reply + bytes);
    if (reply_first(reply, budget, bytes) != NULL)
        *ret_room = reply->message + OK_HEADER_BYTES; /* zeroed memory: HVD_OK and no text */
    return reply;
}

struct reply *reply_status(struct budget *budget, hvd_status_t status, const char *format, ...)
{
    char text[HVD_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t bytes = OK_HEADER_BYTES + strlen(text);
    struct reply *reply = budget_take_small(budget, sizeof *reply + bytes);
    if (reply_first(reply, budget, bytes) == NULL)
        return NULL;
    struct writer w;
    writer_init(&w, reply->message, bytes);
    put_u32(&w, (uint32_t)status);
    put_text(&w, text);
    return reply;
}

struct reply *reply_ref(struct reply *reply)
{
    reply->refs++;
    return reply;
}

void reply_unref(struct reply *reply)
{
    if (reply != NULL && --reply->refs == 0)
        budget_give(reply->budget, reply, sizeof *reply + reply->bytes);
}

const uint8_t *reply_room(const struct reply *reply, size_t *ret_n)
{
    *ret_n = reply->bytes - OK_HEADER_BYTES;
    return reply->message + OK_HEADER_BYTES;
}
