/* SPDX-License-Identifier: Apache-2.0 */
/* store_private.h - what the store's own files and its tests know beyond store.h. */
#ifndef HVD_WIRE_STORE_PRIVATE_H
#define HVD_WIRE_STORE_PRIVATE_H

#include "wire/channel.h"
#include "wire/store.h"

#define STORE_HANDSHAKE_NS (INT64_C(5) * 1000 * 1000 * 1000)
#define STORE_STRANGER_NS  (INT64_C(2) * 1000 * 1000 * 1000) /* until its hello is verified */

/* As if libcrypto were absent: links made from now on are authenticated only. */
void store_server_forgo_encryption(struct store_server *s);
void store_server_limit(struct store_server *s, size_t bytes_max); /* instead of STORE_TOTAL_MAX */
size_t store_server_bytes_used(const struct store_server *s);
int store_server_pending_count(const struct store_server *s); /* strangers included */
uint64_t store_server_evicted_count(const struct store_server *s);
uint64_t store_server_foreign_count(const struct store_server *s); /* of other users, refused */
/* store_client_open() with a choice; cipher may be NULL or not loaded, else is taken over. */
hvd_status_t store_client_open_with(const struct os *os, const char *addresses,
                                    const uint8_t key[32], uint64_t epoch, int32_t rank,
                                    int64_t deadline_ns, const struct cipher *cipher,
                                    struct store_client **ret, struct error *error);
bool store_client_is_encrypted(const struct store_client *c);

#endif
