/* SPDX-License-Identifier: Apache-2.0 */
/* movement.c - see movement.h. */
#include "movement.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

#define ALIGN_ELEMENTS 16u

WIDEST static void sum_two(float *restrict a, float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

WIDEST static void sum_four(float *restrict a, float *restrict b, float *restrict c,
                            float *restrict d, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = a[i] + b[i] + c[i] + d[i];
        a[i] = sum;
        b[i] = sum;
        c[i] = sum;
        d[i] = sum;
    }
}

static void sum_many(float *const *buffers, int ranks, size_t at, size_t count)
{
    for (size_t i = at; i < at + count; i++) {
        float sum = buffers[0][i];
        for (int r = 1; r < ranks; r++)
            sum += buffers[r][i];
        for (int r = 0; r < ranks; r++)
            buffers[r][i] = sum;
    }
}

void movement_run(float *const *buffers, int ranks, int self, size_t count)
{
    size_t slice = (count / (size_t)ranks + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
    size_t begin = slice * (size_t)self;
    size_t end = self == ranks - 1 ? count : begin + slice;
    size_t block = MOVEMENT_BLOCK_BYTES / sizeof(float);
    end = end > count ? count : end;
    for (size_t at = begin; at < end; at += block) {
        size_t n = end - at < block ? end - at : block;
        if (ranks == 2)
            sum_two(buffers[0] + at, buffers[1] + at, n);
        else if (ranks == 4)
            sum_four(buffers[0] + at, buffers[1] + at, buffers[2] + at, buffers[3] + at, n);
        else
            sum_many(buffers, ranks, at, n);
    }
}
