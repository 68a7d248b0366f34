/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - SHA-256, HMAC and HKDF (FIPS 180-4, RFC 2104, RFC 5869).
 *
 * Thread: any; a state belongs to its holder.  Blocks: never.  Allocates: never. Invariant: run
 * time and memory access depend on lengths only, never on the bytes; states that saw a key are
 * wiped when they are finished. x86 has instructions for the compression of a block, which are
 * several times as fast; without them the portable version is used. `length` counts bytes taken so
 * far; length % 64 of them wait in `block`. Start reading at sha256_update(). */
#include "base/sha256.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#define BLOCK_BYTES 64

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t v, unsigned by)
{
    return v >> by | v << (32 - by);
}

static uint32_t big_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static void put_big_u32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void block_expand(uint32_t w[64], const uint8_t *block)
{
    for (int i = 0; i < 16; i++)
        w[i] = big_u32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t near = w[i - 2], far = w[i - 15];
        uint32_t s1 = rotate(near, 17) ^ rotate(near, 19) ^ near >> 10;
        uint32_t s0 = rotate(far, 7) ^ rotate(far, 18) ^ far >> 3;
        w[i] = s1 + w[i - 7] + s0 + w[i - 16];
    }
}

static void compress_portable(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    block_expand(w, block);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + sha256_k[i] + w[i];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

#if defined(__x86_64__)

enum { SHA_UNKNOWN, SHA_ABSENT, SHA_PRESENT };

static bool has_instructions(void)
{
    static atomic_int known = SHA_UNKNOWN; /* the result of CPUID does not change */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == SHA_UNKNOWN) {
        unsigned a, b, c, d;
        bool is_there = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1) &&
                        __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
        answer = is_there ? SHA_PRESENT : SHA_ABSENT;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == SHA_PRESENT;
}

/* The instructions keep the eight words as (a b e f) and (c d g h), highest lane first, and do two
 * rounds each. `w` holds the last 16 words of the schedule, four to a register. */
__attribute__((target("sha,ssse3,sse4.1"))) static void compress_instructions(uint32_t state[8],
                                                                              const uint8_t *block)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
    __m128i efgh =
        _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        if (i < 4) {
            w[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(block + 16 * i)), swap);
        } else {
            __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]),
                                        _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
            w[i & 3] = _mm_sha256msg2_epu32(sum, w[(i + 3) & 3]);
        }
        __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(sha256_k + 4 * i));
        __m128i wk = _mm_add_epi32(w[i & 3], k);
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
    }
    abef = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_before), 0x1b);
    cdgh = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_before), 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(abef, cdgh, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(cdgh, abef, 8));
}

static void block_compress(uint32_t state[8], const uint8_t *block)
{
    if (has_instructions())
        compress_instructions(state, block);
    else
        compress_portable(state, block);
}

#else

static void block_compress(uint32_t state[8], const uint8_t *block)
{
    compress_portable(state, block);
}

#endif

void sha256_compress_portable(uint32_t state[8], const uint8_t block[64])
{
    compress_portable(state, block);
}

void sha256_compress(uint32_t state[8], const uint8_t block[64])
{
    block_compress(state, block);
}

void sha256_init(struct sha256 *h)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(h, 0, sizeof *h);
    memcpy(h->state, start, sizeof start);
}

void sha256_update(struct sha256 *h, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    size_t waiting = (size_t)(h->length % BLOCK_BYTES);
    h->length += n;
    if (n == 0)
        return;
    if (waiting > 0) {
        size_t part = n < BLOCK_BYTES - waiting ? n : BLOCK_BYTES - waiting;
        memcpy(h->block + waiting, at, part);
        if (waiting + part < BLOCK_BYTES)
            return;
        block_compress(h->state, h->block);
        at += part;
        n -= part;
    }
    for (; n >= BLOCK_BYTES; n -= BLOCK_BYTES, at += BLOCK_BYTES)
        block_compress(h->state, at);
    memcpy(h->block, at, n);
}

void sha256_final(struct sha256 *h, uint8_t ret_digest[SHA256_BYTES])
{
    uint64_t bits = h->length * 8;
    size_t waiting = (size_t)(h->length % BLOCK_BYTES);
    h->block[waiting++] = 0x80;
    if (waiting > BLOCK_BYTES - 8) {
        memset(h->block + waiting, 0, BLOCK_BYTES - waiting);
        block_compress(h->state, h->block);
        waiting = 0;
    }
    memset(h->block + waiting, 0, BLOCK_BYTES - 8 - waiting);
    put_big_u32(h->block + BLOCK_BYTES - 8, (uint32_t)(bits >> 32));
    put_big_u32(h->block + BLOCK_BYTES - 4, (uint32_t)bits);
    block_compress(h->state, h->block);
    for (int i = 0; i < 8; i++)
        put_big_u32(ret_digest + 4 * i, h->state[i]);
    bytes_wipe(h, sizeof *h);
}

void hmac256_init(struct hmac256 *h, const void *key, size_t key_bytes)
{
    uint8_t pad[BLOCK_BYTES] = {0};
    if (key_bytes > BLOCK_BYTES) {
        struct sha256 shortened;
        sha256_init(&shortened);
        sha256_update(&shortened, key, key_bytes);
        sha256_final(&shortened, pad);
    } else if (key_bytes > 0) {
        memcpy(pad, key, key_bytes);
    }
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        pad[i] ^= 0x36;
    sha256_init(&h->inner);
    sha256_update(&h->inner, pad, BLOCK_BYTES);
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha256_init(&h->outer);
    sha256_update(&h->outer, pad, BLOCK_BYTES);
    bytes_wipe(pad, sizeof pad);
}

void hmac256_update(struct hmac256 *h, const void *bytes, size_t n)
{
    sha256_update(&h->inner, bytes, n);
}

void hmac256_final(struct hmac256 *h, uint8_t ret_mac[SHA256_BYTES])
{
    uint8_t inner[SHA256_BYTES];
    sha256_final(&h->inner, inner);
    sha256_update(&h->outer, inner, sizeof inner);
    sha256_final(&h->outer, ret_mac);
    bytes_wipe(inner, sizeof inner);
}

void hkdf256(const void *key, size_t key_bytes, const void *salt, size_t salt_bytes,
             const void *label, size_t label_bytes, void *ret_bytes, size_t n)
{
    uint8_t extracted[SHA256_BYTES], round[SHA256_BYTES];
    struct hmac256 h;
    hmac256_init(&h, salt, salt_bytes);
    hmac256_update(&h, key, key_bytes);
    hmac256_final(&h, extracted);

    uint8_t *at = ret_bytes;
    for (uint8_t counter = 1; n > 0; counter++) {
        hmac256_init(&h, extracted, sizeof extracted);
        hmac256_update(&h, round, counter == 1 ? 0 : sizeof round);
        hmac256_update(&h, label, label_bytes);
        hmac256_update(&h, &counter, 1);
        hmac256_final(&h, round);
        size_t part = n < sizeof round ? n : sizeof round;
        memcpy(at, round, part);
        at += part;
        n -= part;
    }
    bytes_wipe(extracted, sizeof extracted);
    bytes_wipe(round, sizeof round);
}

bool bytes_equal(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *left = a, *right = b;
    uint8_t difference = 0;
    for (size_t i = 0; i < n; i++)
        difference = (uint8_t)(difference | (left[i] ^ right[i]));
    return difference == 0;
}

void bytes_wipe(void *bytes, size_t n)
{
    if (n == 0)
        return;
    memset(bytes, 0, n);
    __asm__ volatile("" : : "r"(bytes) : "memory"); /* keeps the stores above alive */
}
