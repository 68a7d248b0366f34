/* SPDX-License-Identifier: Apache-2.0 */
/* coll_values.h - elements of any type as doubles, and a collective on one tensor, for tests of
 * backends. */
#ifndef HVD_TESTS_COLL_VALUES_H
#define HVD_TESTS_COLL_VALUES_H

#include "backend/backend.h"
#include "reduce/reduce.h"

static inline double value_get(hvd_dtype_t dtype, const void *data, uint64_t i)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL: return ((const uint8_t *)data)[i];
    case HVD_INT8: return ((const int8_t *)data)[i];
    case HVD_UINT16: return ((const uint16_t *)data)[i];
    case HVD_INT16: return ((const int16_t *)data)[i];
    case HVD_INT32: return ((const int32_t *)data)[i];
    case HVD_INT64: return (double)((const int64_t *)data)[i];
    case HVD_FLOAT16: return (double)reduce_half_to_float(((const uint16_t *)data)[i]);
    case HVD_BFLOAT16: return (double)reduce_bfloat_to_float(((const uint16_t *)data)[i]);
    case HVD_FLOAT32: return (double)((const float *)data)[i];
    case HVD_FLOAT64: return ((const double *)data)[i];
    case HVD_DTYPE_COUNT: break;
    }
    return -1;
}

static inline void value_set(hvd_dtype_t dtype, void *data, uint64_t i, double value)
{
    switch (dtype) {
    case HVD_UINT8: ((uint8_t *)data)[i] = (uint8_t)value; return;
    case HVD_INT8: ((int8_t *)data)[i] = (int8_t)value; return;
    case HVD_UINT16: ((uint16_t *)data)[i] = (uint16_t)value; return;
    case HVD_INT16: ((int16_t *)data)[i] = (int16_t)value; return;
    case HVD_INT32: ((int32_t *)data)[i] = (int32_t)value; return;
    case HVD_INT64: ((int64_t *)data)[i] = (int64_t)value; return;
    case HVD_FLOAT16: ((uint16_t *)data)[i] = reduce_float_to_half((float)value); return;
    case HVD_BFLOAT16: ((uint16_t *)data)[i] = reduce_float_to_bfloat((float)value); return;
    case HVD_FLOAT32: ((float *)data)[i] = (float)value; return;
    case HVD_FLOAT64: ((double *)data)[i] = value; return;
    case HVD_BOOL: ((uint8_t *)data)[i] = value != 0; return;
    case HVD_DTYPE_COUNT: return;
    }
}

/* An allreduce of one tensor, without factors. */
static inline struct coll coll_of_one(hvd_dtype_t dtype, hvd_reduce_t reduce,
                                      struct coll_part *part)
{
    return (struct coll){.kind = HVD_ALLREDUCE,
                         .dtype = dtype,
                         .reduce = reduce,
                         .prescale = 1,
                         .postscale = 1,
                         .parts = part,
                         .part_count = 1};
}

#endif
