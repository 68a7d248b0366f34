/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the rendezvous: a small authenticated store served by the launcher (or by rank 0 where
 * there is no launcher), with epochs.
 *
 * Requests on one connection, one after the other, after a handshake:
 *   EXCHANGE(scope, epoch, index, count, blob)  answers with all `count` blobs once all have
 * arrived PUT(scope, key, blob)   GET(scope, key, wait)   DELETE(scope)   PING Blobs at most
 * STORE_BLOB_MAX, keys STORE_KEY_MAX, whole store STORE_TOTAL_MAX; a scope is at most
 * STORE_COUNT_MAX entries. An EXCHANGE in a scope whose epoch has passed is refused as stale.
 * Frames are sealed with keys from the handshake (see docs/decisions): nothing is parsed before its
 * authenticity is known. Listens only on the addresses it is given.
 *
 * Thread: the server belongs to one loop; the client blocks its caller, never longer than its
 * deadline. Start reading at store_server_progress(). */
#ifndef HVD_WIRE_STORE_H
#define HVD_WIRE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

#define STORE_BLOB_MAX  (64u << 20)
#define STORE_KEY_MAX   256u
#define STORE_COUNT_MAX 65536u
#define STORE_TOTAL_MAX (512u << 20)
#define STORE_LIFE_BITS                                                                            \
    20 /* of an epoch: which init of a process; above: the membership's generation */
#define STORE_EPOCH_ANY   UINT64_MAX /* the exchange that stands, whatever its epoch */
#define STORE_PENDING_MAX 128        /* connections that have not proven the key yet */

struct store_server;
struct store_client;

/* address: "unix:NAME" (abstract), "HOST:PORT" or "[V6]:PORT"; port 0 = any, A-B = one of these.
 * The address to give to clients comes back in `ret_address` (at least 256 bytes). */
hvd_status_t store_server_create(const struct os *os, const char *address, const uint8_t key[32],
                                 struct store_server **ret, char *ret_address, struct error *error);
/* More addresses of the same store (several interfaces). */
hvd_status_t store_server_listen(struct store_server *s, const char *address, char *ret_address,
                                 struct error *error);
int store_server_poll_fd(const struct store_server *s); /* readable when progress has work */
void store_server_progress(struct store_server *s, int64_t now_ns); /* never blocks */
int64_t
store_server_deadline_ns(const struct store_server *s); /* next time-out, INT64_MAX = none */
/* Direct access for the process that serves. A blob stays valid until changed. */
hvd_status_t store_server_put(struct store_server *s, const char *scope, const char *key,
                              const void *blob, size_t n);
const void *store_server_get(const struct store_server *s, const char *scope, const char *key,
                             size_t *ret_n);
void store_server_delete(struct store_server *s, const char *scope);
/* How far an exchange got: bit i of ret_present set if index i has arrived (start-up ladder). */
int32_t store_server_arrived(const struct store_server *s, const char *scope, uint64_t epoch,
                             uint8_t *ret_present, int32_t count);
/* Who of this exchange vanishes? From now on a member is remembered whose connection closes without
 * a LEAVE (store_client_close() says it, a dead process does not), until it comes back. */
void store_server_watch(struct store_server *s, const char *scope);
/* A member that vanished before this time and has not come back, or -1. */
int32_t store_server_vanished(const struct store_server *s, int64_t before_ns);
void store_server_destroy(struct store_server *s);

/* Dials `addresses` (comma separated, all tried in parallel). Every call below ends by deadline_ns
 * (os->now_ns clock) with HVD_ERR_TIMEOUT whose text says what was missing. */
hvd_status_t store_client_open(const struct os *os, const char *addresses, const uint8_t key[32],
                               uint64_t epoch, int32_t rank, int64_t deadline_ns,
                               struct store_client **ret, struct error *error);
/* ret_blobs: one allocation (os_free it) holding `count` entries; ret_offsets[count + 1] are filled
 * by the call. */
hvd_status_t store_client_exchange(struct store_client *c, const char *scope, uint64_t epoch,
                                   int32_t index, int32_t count, const void *blob, size_t n,
                                   int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                   struct error *error);
hvd_status_t store_client_put(struct store_client *c, const char *scope, const char *key,
                              const void *blob, size_t n, int64_t deadline_ns, struct error *error);
/* *ret_blob by os_alloc; HVD_AGAIN if absent and !is_waiting. */
hvd_status_t store_client_get(struct store_client *c, const char *scope, const char *key,
                              bool is_waiting, int64_t deadline_ns, void **ret_blob, size_t *ret_n,
                              struct error *error);
hvd_status_t store_client_delete(struct store_client *c, const char *scope, int64_t deadline_ns,
                                 struct error *error);
/* Says LEAVE if an exchange was entered: whoever lives closes. */
void store_client_close(struct store_client *c);

#endif
