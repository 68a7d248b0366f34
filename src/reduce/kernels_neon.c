/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_neon.c - the kernels for 64-bit ARM, which always has NEON and float16 conversion.
 *
 * Thread: any.  Owner: a constant table.  Start reading at isa.inc. */
#include "reduce/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define VBYTES 16
#define ISA_FN
#define REG "w"
#define STRAIGHT

typedef float vf32 __attribute__((vector_size(VBYTES)));

static inline __attribute__((always_inline)) vf32 load_f16(const void *p)
{
    uint16x4_t halves;
    __builtin_memcpy(&halves, p, sizeof(halves));
    return (vf32)vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

static inline __attribute__((always_inline)) void store_f16(void *p, vf32 v)
{
    uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v));
    __builtin_memcpy(p, &halves, sizeof(halves));
}

#include "reduce/isa.inc"

const struct reduce_kernels *reduce_kernels_neon(void)
{
    return &table;
}
#else
const struct reduce_kernels *reduce_kernels_neon(void)
{
    return NULL;
}
#endif
