/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h - SHA-256, HMAC and HKDF (FIPS 180-4, RFC 2104, RFC 5869): all the cryptography
 * implemented here; anything more comes from the system's library. Thread: any. */
#ifndef HVD_BASE_SHA256_H
#define HVD_BASE_SHA256_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define SHA256_BYTES 32
struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
};
void sha256_init(struct sha256 *h);
void sha256_update(struct sha256 *h, const void *bytes, size_t n);
void sha256_final(struct sha256 *h, uint8_t ret_digest[SHA256_BYTES]);
/* One block, with the CPU's instructions if it has them, and without: for tests. */
void sha256_compress(uint32_t state[8], const uint8_t block[64]);
void sha256_compress_portable(uint32_t state[8], const uint8_t block[64]);
struct hmac256 {
    struct sha256 inner, outer;
};
void hmac256_init(struct hmac256 *h, const void *key, size_t key_bytes);
void hmac256_update(struct hmac256 *h, const void *bytes, size_t n);
void hmac256_final(struct hmac256 *h, uint8_t ret_mac[SHA256_BYTES]);
void hkdf256(const void *key, size_t key_bytes, const void *salt, size_t salt_bytes,
             const void *label, size_t label_bytes, void *ret_bytes, size_t n); /* n <= 255 * 32 */
bool bytes_equal(const void *a, const void *b, size_t n);                       /* constant time */
void bytes_wipe(void *bytes, size_t n); /* not optimised away */
#endif
