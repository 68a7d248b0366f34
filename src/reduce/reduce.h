/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h - arithmetic on tensors: op x dtype x instruction set, chosen once at run time.
 *
 * One kernel shape serves all: dst[d][i] = post(op over s of pre(src[s][i])) for all destinations
 * d, in one pass, sources added in index order (so results are the same on every rank that computes
 * them). Half types and bfloat16 accumulate in float32 and round once. Scaling follows the
 * contract: float32 and halves multiply in float by the factor cast to float; float64 in double;
 * int32/int64/int8/uint8 multiply in double and truncate toward zero, after prescale (each source)
 * and again after postscale; other types refuse scaling. Integers wrap around; bool: SUM and MAX
 * are or, PRODUCT and MIN are and. HVD_AVERAGE is SUM here: the caller folds 1/n into postscale.
 * HVD_ADASUM is not a kernel op. Scaled integers are clamped to the range of their type, NaN
 * becomes 0. MIN and MAX give NaN if any source is NaN. All instruction sets give the same bits;
 * only which of several NaNs results from an addition or multiplication is unspecified.
 *
 * Thread: any.  Blocks: never.  No alignment is assumed.  Sources and destinations may be the same
 * buffer (exactly) but may not overlap otherwise.  Start reading at reduce_run(). */
#ifndef HVD_REDUCE_REDUCE_H
#define HVD_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "horovod/hvd.h"

#define REDUCE_SOURCES_MAX 256
#define REDUCE_TARGETS_MAX 256

enum reduce_isa { REDUCE_SCALAR, REDUCE_AVX2, REDUCE_AVX512, REDUCE_NEON, REDUCE_ISA_COUNT };

struct reduce_job {
    hvd_dtype_t dtype;
    hvd_reduce_t op;
    double prescale, postscale; /* exactly 1.0: no scaling pass at all */
    const void *const *sources;
    int32_t source_count; /* 1 .. REDUCE_SOURCES_MAX; 1: scale and copy */
    void *const *targets;
    int32_t target_count; /* 1 .. REDUCE_TARGETS_MAX */
    size_t count;         /* elements */
};

/* HVD_ERR_UNSUPPORTED for a combination that does not exist. */
hvd_status_t reduce_check(hvd_dtype_t dtype, hvd_reduce_t op, double prescale, double postscale);
void reduce_run(
    const struct reduce_job *job); /* best instruction set of this CPU; job passed reduce_check */
void reduce_run_isa(enum reduce_isa isa, const struct reduce_job *job);
bool reduce_has_isa(enum reduce_isa isa);
const char *reduce_isa_name(enum reduce_isa isa);
void reduce_force_isa(enum reduce_isa isa); /* tests */

/* target = (left op right) * postscale; the target may be one of the two. */
static inline void reduce_two(hvd_dtype_t dtype, hvd_reduce_t op, const void *left,
                              const void *right, void *target, size_t count, double postscale)
{
    const void *sources[2] = {left, right};
    const struct reduce_job job = {.dtype = dtype,
                                   .op = op,
                                   .prescale = 1.0,
                                   .postscale = postscale,
                                   .sources = sources,
                                   .source_count = 2,
                                   .targets = &target,
                                   .target_count = 1,
                                   .count = count};
    reduce_run(&job);
}

/* to = from * factor by the same rules; both may be the same. */
void reduce_copy(hvd_dtype_t dtype, const void *from, void *to, size_t count, double factor);
/* x *= factor in place by the same rules. */
void reduce_scale(hvd_dtype_t dtype, void *data, size_t count, double factor);

/* Adasum: dot(a,b), |a|^2, |b|^2 in double over `count` elements; then a = ca*a + cb*b. float16,
 * bfloat16, float32, float64. */
void reduce_adasum_dots(hvd_dtype_t dtype, const void *a, const void *b, size_t count,
                        double ret_dots[3]);
void reduce_adasum_combine(hvd_dtype_t dtype, void *a, const void *b, size_t count, double ca,
                           double cb);

/* float16 or bfloat16 (`narrow`) to float32 and back, times `factor` cast to float: multiplied as
 * float32, rounded once to nearest even. The buffers do not overlap. */
void reduce_widen(hvd_dtype_t narrow, const void *from, size_t count, double factor,
                  float *ret_floats);
void reduce_narrow(hvd_dtype_t narrow, const float *floats, size_t count, double factor,
                   void *ret_narrow);
/* Are all of them finite? float16, bfloat16, float32. */
bool reduce_is_finite(hvd_dtype_t dtype, const void *values, size_t count);
/* The type of a float32 that travels so. */
static inline hvd_dtype_t reduce_wire_dtype(hvd_wire_t wire)
{
    return wire == HVD_WIRE_FLOAT16    ? HVD_FLOAT16
           : wire == HVD_WIRE_BFLOAT16 ? HVD_BFLOAT16
                                       : HVD_FLOAT32;
}
/* Can a result be finite although an intermediate float16 sum is not? */
bool reduce_needs_width(hvd_dtype_t dtype, hvd_reduce_t op, double postscale);

/* A float and its bits. */
static inline float reduce_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t reduce_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Conversions used by tests and by wire compression. */
float reduce_half_to_float(uint16_t half);
uint16_t reduce_float_to_half(float value); /* nearest even; denormals, infinities and NaN kept */
float reduce_bfloat_to_float(uint16_t bfloat);
uint16_t reduce_float_to_bfloat(float value);

#endif
