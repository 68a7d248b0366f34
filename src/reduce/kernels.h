/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - what one instruction set offers to reduce.c: a table of block functions.
 *
 * Every table is made from the same two templates (isa.inc, dtype.inc) and gives bit for bit the
 * same results; only the width of the vectors and the float16 conversion differ. A table that this
 * build or platform does not have is NULL.
 *
 * Thread: any.  Owner: constant tables.  Invariant: a block function reads all sources of an
 * element before it writes that element to any target, so buffers may be the same. */
#ifndef HVD_REDUCE_KERNELS_H
#define HVD_REDUCE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "horovod/hvd.h"

enum reduce_kernel_op {
    REDUCE_KERNEL_SUM,
    REDUCE_KERNEL_MIN,
    REDUCE_KERNEL_MAX,
    REDUCE_KERNEL_PRODUCT,
    REDUCE_KERNEL_OP_COUNT
};

/* POST multiplies the result only (an average), BOTH also every source. Multiplying by exactly 1
 * changes nothing, so BOTH serves "prescale only" as well. */
enum reduce_kernel_mode {
    REDUCE_KERNEL_PLAIN,
    REDUCE_KERNEL_POST,
    REDUCE_KERNEL_BOTH,
    REDUCE_KERNEL_MODE_COUNT
};

#define REDUCE_DOT_LANES                                                                           \
    8 /* element i of a dot product is summed in lane i % 8 on every machine                       \
       */

struct reduce_block {
    const void *const *sources;
    int32_t source_count;
    void *const *targets;
    int32_t target_count;
    size_t count;
    double prescale, postscale;
};

typedef void (*reduce_block_fn)(const struct reduce_block *block);

/* The counts of dots and combine are multiples of REDUCE_DOT_LANES. */
typedef void (*reduce_dots_fn)(const void *a, const void *b, size_t count,
                               double lanes[3][REDUCE_DOT_LANES]);
typedef void (*reduce_combine_fn)(void *a, const void *b, size_t count, double ca, double cb);

struct reduce_kernels {
    /* Integer and bool rows have only PLAIN: reduce.c scales them around it. */
    reduce_block_fn block[HVD_DTYPE_COUNT][REDUCE_KERNEL_OP_COUNT][REDUCE_KERNEL_MODE_COUNT];
    reduce_dots_fn dots_f32, dots_f64;
    reduce_combine_fn combine_f32, combine_f64;
    /* Whole arrays between 16 bits and float, times `factor`; exactly 1: nothing is multiplied. */
    void (*widen_f16)(const void *halves, size_t count, float factor, float *ret_floats);
    void (*widen_bf16)(const void *bfloats, size_t count, float factor, float *ret_floats);
    void (*narrow_f16)(const float *floats, size_t count, float factor, void *ret_halves);
    void (*narrow_bf16)(const float *floats, size_t count, float factor, void *ret_bfloats);
};

const struct reduce_kernels *reduce_kernels_scalar(void); /* never NULL */
const struct reduce_kernels *reduce_kernels_avx2(void);
const struct reduce_kernels *reduce_kernels_avx512(void);
const struct reduce_kernels *reduce_kernels_neon(void);

#endif
