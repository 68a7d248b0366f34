/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_avx2.c - the kernels for x86-64 with AVX2 and F16C.
 *
 * FMA is left off on purpose: no result may depend on it.
 * Thread: any.  Owner: a constant table.  Start reading at isa.inc. */
#include "reduce/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define VBYTES 32
#define ISA_FN __attribute__((target("avx2,f16c")))
#define REG    "x"
#define STRAIGHT
#define HAS_16_BITS

typedef uint32_t vu32 __attribute__((vector_size(VBYTES)));
typedef float vf32 __attribute__((vector_size(VBYTES)));

static inline __attribute__((always_inline)) ISA_FN vf32 load_f16(const void *p)
{
    return (vf32)_mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline __attribute__((always_inline)) ISA_FN void store_f16(void *p, vf32 v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

static inline __attribute__((always_inline)) ISA_FN vu32 load_16_bits(const void *p)
{
    return (vu32)_mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}

static inline __attribute__((always_inline)) ISA_FN void store_16_bits(void *p, vu32 v)
{
    const __m256i both = (__m256i)v;
    _mm_storeu_si128(
        p, _mm_packus_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}

#include "reduce/isa.inc"

const struct reduce_kernels *reduce_kernels_avx2(void)
{
    return &table;
}
#else
const struct reduce_kernels *reduce_kernels_avx2(void)
{
    return NULL;
}
#endif
