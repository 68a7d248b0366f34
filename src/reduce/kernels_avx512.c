/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_avx512.c - the kernels for x86-64 with AVX-512 F, BW, VL and DQ.
 *
 * Thread: any.  Owner: a constant table.  Start reading at isa.inc. */
#include "reduce/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define VBYTES 64
#define ISA_FN __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq")))
#define REG    "v"
#define STRAIGHT
#define HAS_16_BITS

typedef uint32_t vu32 __attribute__((vector_size(VBYTES)));
typedef float vf32 __attribute__((vector_size(VBYTES)));

static inline __attribute__((always_inline)) ISA_FN vf32 load_f16(const void *p)
{
    return (vf32)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline __attribute__((always_inline)) ISA_FN void store_f16(void *p, vf32 v)
{
    /* The form without a mask warns in gcc's own header when nothing is optimised. */
    _mm256_storeu_si256(p, _mm512_maskz_cvtps_ph(0xffff, (__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

static inline __attribute__((always_inline)) ISA_FN vu32 load_16_bits(const void *p)
{
    return (vu32)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}

static inline __attribute__((always_inline)) ISA_FN void store_16_bits(void *p, vu32 v)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16((__m512i)v));
}

#include "reduce/isa.inc"

const struct reduce_kernels *reduce_kernels_avx512(void)
{
    return &table;
}
#else
const struct reduce_kernels *reduce_kernels_avx512(void)
{
    return NULL;
}
#endif
