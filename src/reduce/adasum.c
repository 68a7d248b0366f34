/* SPDX-License-Identifier: Apache-2.0 */
/* adasum.c - the arithmetic of Adasum: three dot products, and a weighted sum, both in double.
 *
 * Element i is summed in lane i % 8, and the lanes are added in one fixed order at the end, so
 * every machine gets the same bits. The 16-bit floats pass through float scratch, a block at a
 * time; their results are rounded to float and then to 16 bits.
 *
 * Thread: any.  Owner: no state; scratch is on the stack.  Start reading at reduce_adasum_dots().
 */
#include <string.h>

#include "reduce/isa.h"
#include "reduce/kernels.h"
#include "reduce/reduce.h"

#define LANES       REDUCE_DOT_LANES
#define BLOCK_COUNT 1024 /* floats of scratch: two of them take 8 KiB; a multiple of LANES */

static void dots_add(reduce_dots_fn dots, const void *a, const void *b, size_t count, size_t bytes,
                     double lanes[3][LANES])
{
    const size_t whole = count - count % LANES, rest = (count - whole) * bytes;
    _Alignas(64) unsigned char tail_a[LANES * sizeof(double)] = {0},
                                              tail_b[LANES * sizeof(double)] = {0};

    dots(a, b, whole, lanes);
    if (rest == 0)
        return;
    memcpy(tail_a, (const unsigned char *)a + whole * bytes, rest);
    memcpy(tail_b, (const unsigned char *)b + whole * bytes, rest);
    dots(tail_a, tail_b, LANES, lanes);
}

static void combine(reduce_combine_fn function, void *a, const void *b, size_t count, size_t bytes,
                    double ca, double cb)
{
    const size_t whole = count - count % LANES, rest = (count - whole) * bytes;
    _Alignas(64) unsigned char tail_a[LANES * sizeof(double)] = {0},
                                              tail_b[LANES * sizeof(double)] = {0};

    function(a, b, whole, ca, cb);
    if (rest == 0)
        return;
    memcpy(tail_a, (const unsigned char *)a + whole * bytes, rest);
    memcpy(tail_b, (const unsigned char *)b + whole * bytes, rest);
    function(tail_a, tail_b, LANES, ca, cb);
    memcpy((unsigned char *)a + whole * bytes, tail_a, rest);
}

static void dots_16_bits(const struct reduce_kernels *kernels, bool is_bfloat, const void *a,
                         const void *b, size_t count, double lanes[3][LANES])
{
    _Alignas(64) float wide_a[BLOCK_COUNT], wide_b[BLOCK_COUNT];

    for (size_t i = 0; i < count; i += BLOCK_COUNT) {
        const size_t n = count - i < BLOCK_COUNT ? count - i : BLOCK_COUNT;
        const unsigned char *from_a = (const unsigned char *)a + 2 * i;
        const unsigned char *from_b = (const unsigned char *)b + 2 * i;
        (is_bfloat ? kernels->widen_bf16 : kernels->widen_f16)(from_a, n, 1.0f, wide_a);
        (is_bfloat ? kernels->widen_bf16 : kernels->widen_f16)(from_b, n, 1.0f, wide_b);
        dots_add(kernels->dots_f32, wide_a, wide_b, n, sizeof(float), lanes);
    }
}

static void combine_16_bits(const struct reduce_kernels *kernels, bool is_bfloat, void *a,
                            const void *b, size_t count, double ca, double cb)
{
    _Alignas(64) float wide_a[BLOCK_COUNT], wide_b[BLOCK_COUNT];

    for (size_t i = 0; i < count; i += BLOCK_COUNT) {
        const size_t n = count - i < BLOCK_COUNT ? count - i : BLOCK_COUNT;
        unsigned char *from_a = (unsigned char *)a + 2 * i;
        const unsigned char *from_b = (const unsigned char *)b + 2 * i;
        (is_bfloat ? kernels->widen_bf16 : kernels->widen_f16)(from_a, n, 1.0f, wide_a);
        (is_bfloat ? kernels->widen_bf16 : kernels->widen_f16)(from_b, n, 1.0f, wide_b);
        combine(kernels->combine_f32, wide_a, wide_b, n, sizeof(float), ca, cb);
        (is_bfloat ? kernels->narrow_bf16 : kernels->narrow_f16)(wide_a, n, 1.0f, from_a);
    }
}

static double lanes_sum(const double lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

void reduce_adasum_dots(hvd_dtype_t dtype, const void *a, const void *b, size_t count,
                        double ret_dots[3])
{
    const struct reduce_kernels *kernels = isa_kernels_best();
    double lanes[3][LANES] = {{0}};

    if (dtype == HVD_FLOAT32)
        dots_add(kernels->dots_f32, a, b, count, sizeof(float), lanes);
    else if (dtype == HVD_FLOAT64)
        dots_add(kernels->dots_f64, a, b, count, sizeof(double), lanes);
    else if (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16)
        dots_16_bits(kernels, dtype == HVD_BFLOAT16, a, b, count, lanes);
    for (int i = 0; i < 3; i++)
        ret_dots[i] = lanes_sum(lanes[i]);
}

void reduce_adasum_combine(hvd_dtype_t dtype, void *a, const void *b, size_t count, double ca,
                           double cb)
{
    const struct reduce_kernels *kernels = isa_kernels_best();

    if (dtype == HVD_FLOAT32)
        combine(kernels->combine_f32, a, b, count, sizeof(float), ca, cb);
    else if (dtype == HVD_FLOAT64)
        combine(kernels->combine_f64, a, b, count, sizeof(double), ca, cb);
    else if (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16)
        combine_16_bits(kernels, dtype == HVD_BFLOAT16, a, b, count, ca, cb);
}
