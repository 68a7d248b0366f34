/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_store_frame.c - arbitrary bytes on a store's connection, and arbitrary requests of a peer
 * that has the key.
 *
 * The first byte picks: raw bytes as they are, or frames of (type, flags, length, payload) sealed
 * with the right key. Frames that open are parsed and served by a table with four clients and a
 * small budget; at the end the whole budget must be free again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"
#include "wire/channel.h"
#include "wire/store_table.h"

#define CLIENTS 4

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static const uint8_t KEY_A[32] = {1}, KEY_B[32] = {2};

static struct feed *feed_of(const struct os *os)
{
    return os->ctx;
}

static void *feed_alloc(void *ctx, size_t n)
{
    (void)ctx;
    return calloc(1, n > 0 ? n : 1);
}

static void *feed_resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    return realloc(p, n);
}

static void feed_free(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static int feed_random(void *ctx, void *ret_bytes, size_t n)
{
    struct feed *f = ctx;
    memset(ret_bytes, (int)f->calls++, n);
    return f->calls % 16 == 0 ? -EIO : 0;
}

static int feed_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static int64_t feed_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    struct feed *f = ctx;
    (void)fd;
    if (f->calls++ % 7 == 6)
        return -EINTR;
    return feed_take(f, ret_bytes, f->calls % 3 == 0 && n > 1 ? n / 2 : n);
}

/* Script to sealed bytes; the flags are passed on as they are. */
static size_t seal_script(const uint8_t *script, size_t size, uint8_t *ret_bytes, size_t capacity)
{
    struct seal seal;
    size_t at = 0, used = 0;
    seal_begin(&seal, NULL, KEY_B, KEY_A);
    while (size - at >= 3) {
        size_t n = script[at + 2];
        if (n > size - at - 3)
            n = size - at - 3;
        if (used + FRAME_HEADER_BYTES + n > capacity)
            break;
        frame_seal(&seal, script[at], script[at + 1], script + at + 3, n, ret_bytes + used);
        used += FRAME_HEADER_BYTES + n;
        at += 3 + n;
    }
    seal_end(&seal);
    return used;
}

static void answered(struct waiter *waiter, struct reply *reply)
{
    if (waiter->scope != NULL || (reply != NULL && reply->refs == 0))
        abort();
}

/* The process that serves decides, too: on every PING there is a next generation. */
static void drive(struct table *t, const char *scope)
{
    struct store_member members[2] = {{.worker = "a"}, {.worker = "b"}};
    bool is_met;
    table_generation(t, scope, table_epoch(t, scope, &is_met) + 1, members, 2, 0);
}

static void serve(struct table *t, struct waiter *waiter, const struct store_request *q)
{
    uint8_t bits[STORE_COUNT_MAX / 8 + 1];
    table_arrived(t, q->scope, q->epoch, bits, 64);
    if (q->type == STORE_PUT) {
        table_put(t, q->scope, q->key, q->blob, q->blob_bytes);
    } else if (q->type == STORE_PING) {
        drive(t, "s");
    } else if (q->type == STORE_DELETE) {
        table_delete(t, q->scope);
    } else if (q->type == STORE_EXCHANGE || q->type == STORE_JOIN) {
        struct reply *reply =
            q->type == STORE_JOIN ? table_join(t, q, waiter) : table_exchange(t, q, waiter);
        if (reply != NULL && waiter->scope != NULL)
            abort();
        reply_unref(reply);
    } else if (q->type == STORE_GET && table_get(t, q->scope, q->key) == NULL && q->is_waiting) {
        table_wait(t, q->scope, q->key, waiter);
    }
}

static void run(struct channel *c, struct budget *budget)
{
    struct table table;
    struct waiter waiters[CLIENTS];
    struct store_request q;
    memset(waiters, 0, sizeof waiters);
    table_init(&table, budget);
    for (unsigned i = 0; channel_recv(c, NULL) == HVD_OK; i++) {
        struct waiter *waiter = &waiters[i % CLIENTS];
        waiter->answer = answered;
        if (waiter->scope != NULL) {
            reply_unref(table_missing(&table, waiter));
            table_forget(&table, waiter);
        }
        bool is_right = !c->rx_is_over_budget &&
                        store_request_read(c->rx_type, c->rx_message, c->rx_message_bytes, &q);
        if (is_right)
            serve(&table, waiter, &q);
        channel_take(c);
    }
    for (int i = 0; i < CLIENTS; i++)
        table_forget(&table, &waiters[i]);
    table_destroy(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static uint8_t sealed[1u << 16];
    if (size < 1)
        return 0;
    struct feed feed = {.bytes = input + 1, .size = size - 1};
    struct os os = {.ctx = &feed,
                    .recv = feed_recv,
                    .alloc = feed_alloc,
                    .resize = feed_resize,
                    .free = feed_free,
                    .random = feed_random,
                    .close = feed_close};
    struct budget budget = {.os = &os, .max = 256u << 10};
    struct channel c;
    if ((input[0] & 1) != 0) {
        feed.size = seal_script(input + 1, size - 1, sealed, sizeof sealed);
        feed.bytes = sealed;
    }
    memset(&c, 0, sizeof c);
    c.os = &os;
    c.budget = &budget;
    c.is_proven = true;
    c.message_max = 64u << 10;
    seal_begin(&c.seal, NULL, KEY_A, KEY_B);
    run(&c, &budget);
    channel_end(&c);
    if (budget.used != 0 || feed_of(&os)->at > feed.size)
        abort();
    return 0;
}
