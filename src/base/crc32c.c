/* SPDX-License-Identifier: Apache-2.0 */
/* crc32c.c - CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of bytes.
 *
 * Thread: any.  Blocks: never.  All tables are constants.
 * Three ways to the same value: slice-by-8 tables (the reference), the x86 crc32 instruction over
 * three interleaved streams, and the ARMv8 one. The instruction takes three cycles but a new one
 * can start in each, so one stream alone would use a third of the unit.
 *
 * Joining streams: the state after N more zero bytes is state * x^(8N) mod P. A carry-less product
 * of two reflected 32-bit values, fed to crc32, gives a * b * x^33 mod P, so multiplying by
 * x^(8N-33) mod P shifts a state over N bytes.  Start reading at crc32c(). */
#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#define CRC_X86 1
#include <immintrin.h>
#elif defined(__aarch64__)
#define CRC_ARM 1
#include "base/cpu.h"
#endif

/* Every table entry is the exclusive-or of those of its set bits, so eight constants per table are
 * all that has to be written down; the compiler unfolds the rest. */
#define BIT(i, b, v) ((((i) >> (b)) & 1u) ? (v) : 0u)
#define ENTRY(i, v0, v1, v2, v3, v4, v5, v6, v7)                                                   \
    (BIT(i, 0, v0) ^ BIT(i, 1, v1) ^ BIT(i, 2, v2) ^ BIT(i, 3, v3) ^ BIT(i, 4, v4) ^               \
     BIT(i, 5, v5) ^ BIT(i, 6, v6) ^ BIT(i, 7, v7))
#define ROW4(i, ...)                                                                               \
    ENTRY((i), __VA_ARGS__), ENTRY((i) + 1u, __VA_ARGS__), ENTRY((i) + 2u, __VA_ARGS__),           \
        ENTRY((i) + 3u, __VA_ARGS__)
#define ROW16(i, ...)                                                                              \
    ROW4((i), __VA_ARGS__), ROW4((i) + 4u, __VA_ARGS__), ROW4((i) + 8u, __VA_ARGS__),              \
        ROW4((i) + 12u, __VA_ARGS__)
#define ROW64(i, ...)                                                                              \
    ROW16((i), __VA_ARGS__), ROW16((i) + 16u, __VA_ARGS__), ROW16((i) + 32u, __VA_ARGS__),         \
        ROW16((i) + 48u, __VA_ARGS__)
#define TABLE(...)                                                                                 \
    {                                                                                              \
        ROW64(0u, __VA_ARGS__), ROW64(64u, __VA_ARGS__), ROW64(128u, __VA_ARGS__),                 \
            ROW64(192u, __VA_ARGS__)                                                               \
    }

/* crc_table[k][b]: what byte b contributes once k more bytes have passed. */
static const uint32_t crc_table[8][256] = {
    TABLE(0xf26b8303u, 0xe13b70f7u, 0xc79a971fu, 0x8ad958cfu, 0x105ec76fu, 0x20bd8edeu, 0x417b1dbcu,
          0x82f63b78u),
    TABLE(0x13a29877u, 0x274530eeu, 0x4e8a61dcu, 0x9d14c3b8u, 0x3fc5f181u, 0x7f8be302u, 0xff17c604u,
          0xfbc3faf9u),
    TABLE(0xa541927eu, 0x4f6f520du, 0x9edea41au, 0x38513ec5u, 0x70a27d8au, 0xe144fb14u, 0xc76580d9u,
          0x8b277743u),
    TABLE(0xdd45aab8u, 0xbf672381u, 0x7b2231f3u, 0xf64463e6u, 0xe964b13du, 0xd725148bu, 0xaba65fe7u,
          0x52a0c93fu),
    TABLE(0x38116facu, 0x7022df58u, 0xe045beb0u, 0xc5670b91u, 0x8f2261d3u, 0x1ba8b557u, 0x37516aaeu,
          0x6ea2d55cu),
    TABLE(0xef306b19u, 0xdb8ca0c3u, 0xb2f53777u, 0x6006181fu, 0xc00c303eu, 0x85f4168du, 0x0e045bebu,
          0x1c08b7d6u),
    TABLE(0x68032cc8u, 0xd0065990u, 0xa5e0c5d1u, 0x4e2dfd53u, 0x9c5bfaa6u, 0x3d5b83bdu, 0x7ab7077au,
          0xf56e0ef4u),
    TABLE(0x493c7d27u, 0x9278fa4eu, 0x211d826du, 0x423b04dau, 0x847609b4u, 0x0d006599u, 0x1a00cb32u,
          0x34019664u),
};

static uint32_t little_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint32_t state = ~crc;
    for (; n >= 8; n -= 8, at += 8) {
        uint32_t low = state ^ little_u32(at);
        uint32_t high = little_u32(at + 4);
        state = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^
                crc_table[5][low >> 16 & 255] ^ crc_table[4][low >> 24] ^ crc_table[3][high & 255] ^
                crc_table[2][high >> 8 & 255] ^ crc_table[1][high >> 16 & 255] ^
                crc_table[0][high >> 24];
    }
    for (; n > 0; n--, at++)
        state = state >> 8 ^ crc_table[0][(state ^ *at) & 255];
    return ~state;
}

#ifdef CRC_X86

#define CRC_TARGET __attribute__((target("sse4.2,pclmul")))
#define CRC_INLINE static inline __attribute__((always_inline)) CRC_TARGET

#define STREAM_LONG     1024u       /* bytes of one of the three streams */
#define STREAM_LONG_X1  0x170076fau /* x^(8 * 1024 - 33) mod P: over one stream */
#define STREAM_LONG_X2  0xa51b6135u /* x^(16 * 1024 - 33) mod P: over two */
#define STREAM_SHORT    128u
#define STREAM_SHORT_X1 0x0d3b6092u
#define STREAM_SHORT_X2 0xb9e02b86u

/* One word into the state; also copied if there is a target (known at compile time). */
CRC_INLINE uint64_t x86_word(uint64_t state, const uint8_t *from, uint8_t *to)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    if (to != NULL)
        memcpy(to, &word, sizeof word);
    return _mm_crc32_u64(state, word);
}

CRC_INLINE uint64_t x86_shift(uint64_t state, uint32_t power)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)state),
                                           _mm_cvtsi32_si128((int)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Three streams of `stream` bytes each, interleaved, joined at the end. */
CRC_INLINE uint64_t x86_three(uint64_t state, const uint8_t *from, uint8_t *to, size_t stream,
                              uint32_t over_one, uint32_t over_two)
{
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < stream; i += 8) {
        a = x86_word(a, from + i, to == NULL ? NULL : to + i);
        b = x86_word(b, from + stream + i, to == NULL ? NULL : to + stream + i);
        c = x86_word(c, from + 2 * stream + i, to == NULL ? NULL : to + 2 * stream + i);
    }
    return x86_shift(a, over_two) ^ x86_shift(b, over_one) ^ c;
}

CRC_INLINE uint32_t x86_any(uint32_t crc, uint8_t *to, const uint8_t *from, size_t n)
{
    uint64_t state = (uint32_t)~crc;
    size_t at = 0;
    for (; n - at >= 3 * STREAM_LONG; at += 3 * STREAM_LONG)
        state = x86_three(state, from + at, to == NULL ? NULL : to + at, STREAM_LONG,
                          STREAM_LONG_X1, STREAM_LONG_X2);
    for (; n - at >= 3 * STREAM_SHORT; at += 3 * STREAM_SHORT)
        state = x86_three(state, from + at, to == NULL ? NULL : to + at, STREAM_SHORT,
                          STREAM_SHORT_X1, STREAM_SHORT_X2);
    for (; n - at >= 8; at += 8)
        state = x86_word(state, from + at, to == NULL ? NULL : to + at);
    for (; at < n; at++) {
        state = _mm_crc32_u8((uint32_t)state, from[at]);
        if (to != NULL)
            to[at] = from[at];
    }
    return ~(uint32_t)state;
}

CRC_TARGET static uint32_t crc_fast(uint32_t crc, const uint8_t *from, size_t n)
{
    return x86_any(crc, NULL, from, n);
}

CRC_TARGET static uint32_t crc_fast_copy(uint32_t crc, uint8_t *to, const uint8_t *from, size_t n)
{
    return x86_any(crc, to, from, n);
}

static int crc_has_fast(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

#elif defined(CRC_ARM)

/* In assembly, because compilers hide the intrinsic unless the whole build enables it. */
static inline uint32_t arm_word(uint32_t state, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    return state;
}

static inline uint32_t arm_byte(uint32_t state, uint32_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"(byte));
    return state;
}

static uint32_t crc_fast(uint32_t crc, const uint8_t *from, size_t n)
{
    uint32_t state = ~crc;
    for (; n >= 8; n -= 8, from += 8) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        state = arm_word(state, word);
    }
    for (; n > 0; n--, from++)
        state = arm_byte(state, *from);
    return ~state;
}

static uint32_t crc_fast_copy(uint32_t crc, uint8_t *to, const uint8_t *from, size_t n)
{
    memcpy(to, from, n);
    return crc_fast(crc, to, n);
}

static int crc_has_fast(void)
{
    return cpu_has_arm_crc32();
}

#else

static uint32_t crc_fast(uint32_t crc, const uint8_t *from, size_t n)
{
    return crc32c_portable(crc, from, n);
}

static uint32_t crc_fast_copy(uint32_t crc, uint8_t *to, const uint8_t *from, size_t n)
{
    memcpy(to, from, n);
    return crc32c_portable(crc, to, n);
}

static int crc_has_fast(void)
{
    return 0;
}

#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    return crc_has_fast() ? crc_fast(crc, bytes, n) : crc32c_portable(crc, bytes, n);
}

uint32_t crc32c_copy(uint32_t crc, void *ret_bytes, const void *bytes, size_t n)
{
    if (n == 0)
        return crc;
    if (crc_has_fast())
        return crc_fast_copy(crc, ret_bytes, bytes, n);
    memcpy(ret_bytes, bytes, n);
    return crc32c_portable(crc, ret_bytes, n);
}
