/* SPDX-License-Identifier: Apache-2.0 */
/* cipher.c - AES-256-GCM by libcrypto's EVP calls, bound at run time; see cipher.h.
 *
 * The prototypes and the three numbers below are libcrypto's stable interface since 1.1. The
 * library is never unmapped once loaded: it leaves exit handlers behind.
 *
 * Thread: the owner's.  Start reading at cipher_load(). */
#include "wire/cipher.h"

#include <limits.h>
#include <string.h>

#define CTRL_GET_TAG 0x10
#define CTRL_SET_TAG 0x11
#define BYTES_MAX    (1u << 30) /* lengths are int over there */

static bool bind_symbol(const struct cipher *c, const char *name, void *ret_function)
{
    void *symbol = c->os->library_symbol(c->os->ctx, c->library, name);
    memcpy(ret_function, &symbol, sizeof symbol); /* C has no cast from object to function */
    return symbol != NULL;
}

static bool bind_all(struct cipher *c)
{
    return bind_symbol(c, "EVP_CIPHER_CTX_new", &c->ctx_new) &&
           bind_symbol(c, "EVP_CIPHER_CTX_free", &c->ctx_free) &&
           bind_symbol(c, "EVP_CIPHER_CTX_ctrl", &c->ctrl) &&
           bind_symbol(c, "EVP_aes_256_gcm", &c->aes_256_gcm) &&
           bind_symbol(c, "EVP_CipherInit_ex", &c->init) &&
           bind_symbol(c, "EVP_CipherUpdate", &c->update) &&
           bind_symbol(c, "EVP_CipherFinal_ex", &c->final);
}

/* A library may have the symbols and still refuse the cipher (policy, missing provider). */
static bool is_working(const struct cipher *c)
{
    static const uint8_t key[CIPHER_KEY_BYTES] = {0}, nonce[CIPHER_NONCE_BYTES] = {0};
    static const uint8_t expected[CIPHER_TAG_BYTES] = {0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45,
                                                       0x36, 0xb9, 0xa9, 0x63, 0xb4, 0xf1,
                                                       0xc4, 0xcb, 0x73, 0x8b};
    uint8_t tag[CIPHER_TAG_BYTES] = {0};
    struct cipher_ctx *ctx = cipher_open(c, key, true);
    if (ctx == NULL)
        return false;
    bool is_sealed = cipher_seal(c, ctx, nonce, NULL, 0, NULL, 0, tag);
    cipher_close(c, ctx);
    return is_sealed && memcmp(tag, expected, sizeof tag) == 0;
}

bool cipher_load(const struct os *os, struct cipher *ret_cipher)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.3.dylib"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct cipher c = {.os = os};
        c.library = os->library_open(os->ctx, names[i], 0, NULL, 0);
        if (c.library == NULL)
            continue;
        if (bind_all(&c) && is_working(&c)) {
            *ret_cipher = c;
            return true;
        }
        os->library_close(os->ctx, c.library);
    }
    memset(ret_cipher, 0, sizeof *ret_cipher);
    return false;
}

void cipher_unload(struct cipher *cipher)
{
    if (cipher == NULL || cipher->library == NULL)
        return;
    cipher->os->library_close(cipher->os->ctx, cipher->library);
    memset(cipher, 0, sizeof *cipher);
}

struct cipher_ctx *cipher_open(const struct cipher *cipher, const uint8_t key[CIPHER_KEY_BYTES],
                               bool is_sealing)
{
    struct cipher_ctx *ctx = cipher->ctx_new();
    if (ctx == NULL)
        return NULL;
    if (cipher->init(ctx, cipher->aes_256_gcm(), NULL, key, NULL, is_sealing) != 1) {
        cipher->ctx_free(ctx);
        return NULL;
    }
    return ctx;
}

void cipher_close(const struct cipher *cipher, struct cipher_ctx *ctx)
{
    if (ctx != NULL)
        cipher->ctx_free(ctx);
}

bool cipher_begin(const struct cipher *cipher, struct cipher_ctx *ctx,
                  const uint8_t nonce[CIPHER_NONCE_BYTES])
{
    return cipher->init(ctx, NULL, NULL, NULL, nonce, -1) == 1;
}

bool cipher_header(const struct cipher *cipher, struct cipher_ctx *ctx, const void *bytes, size_t n)
{
    int done = 0;

    if (n > BYTES_MAX)
        return false;
    return n == 0 || cipher->update(ctx, NULL, &done, bytes, (int)n) == 1;
}

bool cipher_update(const struct cipher *cipher, struct cipher_ctx *ctx, const uint8_t *bytes,
                   size_t n, uint8_t *ret_bytes)
{
    int done = 0;

    if (n > BYTES_MAX)
        return false;
    return n == 0 || (cipher->update(ctx, ret_bytes, &done, bytes, (int)n) == 1 && done == (int)n);
}

bool cipher_end_seal(const struct cipher *cipher, struct cipher_ctx *ctx,
                     uint8_t ret_tag[CIPHER_TAG_BYTES])
{
    uint8_t nothing[CIPHER_TAG_BYTES];
    int done = 0;

    return cipher->final(ctx, nothing, &done) == 1 &&
           cipher->ctrl(ctx, CTRL_GET_TAG, CIPHER_TAG_BYTES, ret_tag) == 1;
}

bool cipher_end_unseal(const struct cipher *cipher, struct cipher_ctx *ctx,
                       const uint8_t tag[CIPHER_TAG_BYTES])
{
    uint8_t nothing[CIPHER_TAG_BYTES], expected[CIPHER_TAG_BYTES];
    int done = 0;

    memcpy(expected, tag, sizeof expected);
    return cipher->ctrl(ctx, CTRL_SET_TAG, CIPHER_TAG_BYTES, expected) == 1 &&
           cipher->final(ctx, nothing, &done) == 1;
}

bool cipher_seal(const struct cipher *cipher, struct cipher_ctx *ctx,
                 const uint8_t nonce[CIPHER_NONCE_BYTES], const void *header, size_t header_bytes,
                 uint8_t *bytes, size_t n, uint8_t ret_tag[CIPHER_TAG_BYTES])
{
    return cipher_begin(cipher, ctx, nonce) && cipher_header(cipher, ctx, header, header_bytes) &&
           cipher_update(cipher, ctx, bytes, n, bytes) && cipher_end_seal(cipher, ctx, ret_tag);
}

bool cipher_unseal(const struct cipher *cipher, struct cipher_ctx *ctx,
                   const uint8_t nonce[CIPHER_NONCE_BYTES], const void *header, size_t header_bytes,
                   uint8_t *bytes, size_t n, const uint8_t tag[CIPHER_TAG_BYTES])
{
    return cipher_begin(cipher, ctx, nonce) && cipher_header(cipher, ctx, header, header_bytes) &&
           cipher_update(cipher, ctx, bytes, n, bytes) && cipher_end_unseal(cipher, ctx, tag);
}
