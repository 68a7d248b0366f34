/* SPDX-License-Identifier: Apache-2.0 */
/* cipher.h - AES-256-GCM out of the system's libcrypto, found at run time.
 *
 * Nothing of OpenSSL is needed to build or to install; where the library is absent, or lacks the
 * cipher, cipher_load() says so and links stay authenticated but readable (see
 * docs/decisions/0002-control-plane-encryption.md).
 *
 * Thread: the owner's; a context belongs to one direction of one link.  Start at cipher_load(). */
#ifndef HVD_WIRE_CIPHER_H
#define HVD_WIRE_CIPHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"

#define CIPHER_KEY_BYTES   32
#define CIPHER_NONCE_BYTES 12
#define CIPHER_TAG_BYTES   16

struct cipher_ctx; /* libcrypto's */

struct cipher {
    const struct os *os;
    void *library; /* NULL: not available */
    struct cipher_ctx *(*ctx_new)(void);
    void (*ctx_free)(struct cipher_ctx *);
    int (*ctrl)(struct cipher_ctx *, int what, int n, void *p);
    const void *(*aes_256_gcm)(void);
    int (*init)(struct cipher_ctx *, const void *type, void *engine, const uint8_t *key,
                const uint8_t *nonce, int is_sealing);
    int (*update)(struct cipher_ctx *, uint8_t *out, int *out_bytes, const uint8_t *in, int n);
    int (*final)(struct cipher_ctx *, uint8_t *out, int *out_bytes);
};

bool cipher_load(const struct os *os, struct cipher *ret_cipher);
void cipher_unload(struct cipher *cipher);

/* NULL on failure. */
struct cipher_ctx *cipher_open(const struct cipher *cipher, const uint8_t key[CIPHER_KEY_BYTES],
                               bool is_sealing);
void cipher_close(const struct cipher *cipher, struct cipher_ctx *ctx); /* wipes the key */

/* One message in steps, for what comes in pieces: begin, then any number of headers, then any
 * number of updates, then one end. A nonce must never be used twice with one key; a piece is at
 * most 2^30 bytes. What the last step refuses was worth nothing from its first byte on. */
bool cipher_begin(const struct cipher *cipher, struct cipher_ctx *ctx,
                  const uint8_t nonce[CIPHER_NONCE_BYTES]);
/* Authenticated, not encrypted. */
bool cipher_header(const struct cipher *cipher, struct cipher_ctx *ctx, const void *bytes,
                   size_t n);
/* ret_bytes may be `bytes`, or must not touch it. */
bool cipher_update(const struct cipher *cipher, struct cipher_ctx *ctx, const uint8_t *bytes,
                   size_t n, uint8_t *ret_bytes);
bool cipher_end_seal(const struct cipher *cipher, struct cipher_ctx *ctx,
                     uint8_t ret_tag[CIPHER_TAG_BYTES]);
/* False: not authentic. */
bool cipher_end_unseal(const struct cipher *cipher, struct cipher_ctx *ctx,
                       const uint8_t tag[CIPHER_TAG_BYTES]);

/* All steps at once, in place. */
bool cipher_seal(const struct cipher *cipher, struct cipher_ctx *ctx,
                 const uint8_t nonce[CIPHER_NONCE_BYTES], const void *header, size_t header_bytes,
                 uint8_t *bytes, size_t n, uint8_t ret_tag[CIPHER_TAG_BYTES]);
/* False: not authentic; `bytes` then hold nothing of use and must not be looked at. */
bool cipher_unseal(const struct cipher *cipher, struct cipher_ctx *ctx,
                   const uint8_t nonce[CIPHER_NONCE_BYTES], const void *header, size_t header_bytes,
                   uint8_t *bytes, size_t n, const uint8_t tag[CIPHER_TAG_BYTES]);

#endif
