/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_store.h - the rendezvous store for programs that start ranks themselves.
 *
 * A custom launcher generates a key (hvd_store_key()), serves a store, and passes both to the
 * ranks: HOROVOD_RENDEZVOUS (or HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT) and HOROVOD_KEY_FD,
 * HOROVOD_KEY_FILE or HOROVOD_KEY. The store serves only holders of the key, everything on the
 * wire is authenticated, and encrypted where libcrypto is found; it listens only on the given
 * addresses.
 *
 * Every function is safe from any thread, one client from one thread at a time. The text of an
 * error is hvd_last_error(). */
#ifndef HOROVOD_HVD_STORE_H
#define HOROVOD_HVD_STORE_H

#include "horovod/hvd.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_STORE_KEY_BYTES     32u
#define HVD_STORE_ADDRESS_BYTES 256u

typedef struct hvd_store_server hvd_store_server_t;
typedef struct hvd_store_client hvd_store_client_t;

HVD_API hvd_status_t hvd_store_key(uint8_t ret_key[HVD_STORE_KEY_BYTES]); /* fresh and random */

/* address: "unix:NAME", "HOST:PORT" or "[V6]:PORT", port 0 for any. ret_address: the actual
 * address. A thread serves it until hvd_store_server_stop(). */
HVD_API hvd_status_t hvd_store_server_start(const char *address,
                                            const uint8_t key[HVD_STORE_KEY_BYTES],
                                            hvd_store_server_t **ret,
                                            char ret_address[HVD_STORE_ADDRESS_BYTES]);
HVD_API hvd_status_t hvd_store_server_listen(hvd_store_server_t *server, const char *address,
                                             char ret_address[HVD_STORE_ADDRESS_BYTES]);
HVD_API void hvd_store_server_stop(hvd_store_server_t *server); /* NULL is fine */

HVD_API hvd_status_t hvd_store_open(const char *addresses, const uint8_t key[HVD_STORE_KEY_BYTES],
                                    int64_t timeout_ms, hvd_store_client_t **ret);
HVD_API hvd_status_t hvd_store_put(hvd_store_client_t *client, const char *scope, const char *key,
                                   const void *bytes, size_t n, int64_t timeout_ms);
/* Waits up to timeout_ms for the entry (0: not at all); HVD_AGAIN: there is none. Free *ret_bytes
 * with hvd_store_free(). */
HVD_API hvd_status_t hvd_store_get(hvd_store_client_t *client, const char *scope, const char *key,
                                   int64_t timeout_ms, void **ret_bytes, size_t *ret_n);
/* All entries of a scope. */
HVD_API hvd_status_t hvd_store_delete(hvd_store_client_t *client, const char *scope,
                                      int64_t timeout_ms);
HVD_API void hvd_store_free(void *bytes);
HVD_API void hvd_store_close(hvd_store_client_t *client); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
