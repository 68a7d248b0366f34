/* SPDX-License-Identifier: Apache-2.0 */
/* store_table.h - what the store holds: scopes of keys, exchanges by epoch, and who waits for what.
 * No sockets, no clock: the server in store_server.c feeds it.
 *
 * A value is kept as the answer that will be sent for it, counted by reference, so that a thousand
 * clients fetching one blob cost one blob. An exchange keeps the blobs until all have arrived, then
 * only the one answer for everybody. Everything comes out of the budget.
 *
 * Thread: the server's loop.  Blocks: never.  Start reading at table_exchange(). */
#ifndef HVD_WIRE_STORE_TABLE_H
#define HVD_WIRE_STORE_TABLE_H

#include <sys/queue.h>

#include "base/map.h"
#include "wire/store_message.h"
#include "wire/store_roster.h"

struct scope;

enum waiter_kind { WAITER_GET, WAITER_EXCHANGE, WAITER_JOIN };

/* One client that waits; part of its connection. */
struct waiter {
    TAILQ_ENTRY(waiter) link;
    struct scope *scope; /* NULL: does not wait */
    enum waiter_kind kind;
    uint32_t index;              /* of an exchange */
    uint64_t epoch, life;        /* of a join */
    char key[STORE_KEY_MAX + 1]; /* of a get; of a join: the worker */
    /* Called once, when the wait is over; the waiter no longer waits then. Borrows `reply`; NULL
     * when there was no memory for one. */
    void (*answer)(struct waiter *waiter, struct reply *reply);
};

struct table {
    struct budget *budget;
    struct map scopes;
};

void table_init(struct table *t, struct budget *budget);
void table_destroy(struct table *t); /* nobody may wait any more */

hvd_status_t table_put(struct table *t, const char *scope, const char *key, const void *blob,
                       size_t n);
struct reply *table_get(const struct table *t, const char *scope, const char *key); /* borrowed */
/* The blob inside a value's reply. */
const void *table_blob(const struct reply *value, size_t *ret_n);
/* Waits until `key` is put; HVD_OK or HVD_ERR_LIMIT. */
hvd_status_t table_wait(struct table *t, const char *scope, const char *key, struct waiter *waiter);
/* An answer to send now (one reference for the caller), or NULL: `waiter` waits, unless
 * waiter->scope is NULL, which means that there was no memory to say anything. */
struct reply *table_exchange(struct table *t, const struct store_request *request,
                             struct waiter *waiter);
/* The same for a worker that joins a generation. */
struct reply *table_join(struct table *t, const struct store_request *request,
                         struct waiter *waiter);
hvd_status_t table_generation(struct table *t, const char *scope, uint64_t epoch,
                              const struct store_member *members, uint32_t count, uint64_t notice);
hvd_status_t table_judge(struct table *t, const char *scope, const struct store_judge *judge);
/* True: its members have met, and those that are still here connect to each other. */
bool table_abandon(struct table *t, const char *scope);
void table_review(struct table *t, const char *scope);
enum store_standing table_standing(const struct table *t, const char *scope, const char *worker);
bool table_is_waiting(const struct table *t, const char *scope, const char *worker);
uint64_t table_epoch(const struct table *t, const char *scope, bool *ret_is_met);
int32_t table_arrived(const struct table *t, const char *scope, uint64_t epoch,
                      uint8_t *ret_present, int32_t count);
/* What the waiter still waits for, as the answer to give when its time is over. */
struct reply *table_missing(const struct table *t, const struct waiter *waiter);
/* The client is gone or gave up: it no longer waits, and what it brought is taken back. */
void table_forget(struct table *t, struct waiter *waiter);
void table_delete(struct table *t, const char *scope);

#endif
