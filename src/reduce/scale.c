/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c - integers times a factor; see scale.h for the rule.
 *
 * Not in the tables of instruction sets: scaled integers are rare and this keeps up with memory.
 *
 * Thread: any.  Owner: none, no state.  Start reading at scale_integers(). */
#include "reduce/scale.h"

#include <string.h>

bool scale_has_dtype(hvd_dtype_t dtype)
{
    return dtype == HVD_UINT8 || dtype == HVD_INT8 || dtype == HVD_INT32 || dtype == HVD_INT64;
}

/* `above` is the first double too large for the type, `low` the lowest value, itself a double. */
#define DEFINE_SCALE(type, low, high, above)                                                       \
    static type truncate_##type(double value)                                                      \
    {                                                                                              \
        if (value >= (above))                                                                      \
            return (high);                                                                         \
        if (value >= (double)(low))                                                                \
            return (type)value;                                                                    \
        return value < (double)(low) ? (low) : 0;                                                  \
    }                                                                                              \
    static void scale_##type(const unsigned char *from, size_t count, double factor,               \
                             unsigned char *ret_scaled)                                            \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            type value;                                                                            \
            memcpy(&value, from + i * sizeof(value), sizeof(value));                               \
            value = truncate_##type((double)value * factor);                                       \
            memcpy(ret_scaled + i * sizeof(value), &value, sizeof(value));                         \
        }                                                                                          \
    }

DEFINE_SCALE(uint8_t, 0, UINT8_MAX, 256.0)
DEFINE_SCALE(int8_t, INT8_MIN, INT8_MAX, 128.0)
DEFINE_SCALE(int32_t, INT32_MIN, INT32_MAX, 2147483648.0)
DEFINE_SCALE(int64_t, INT64_MIN, INT64_MAX, 9223372036854775808.0)

void scale_integers(hvd_dtype_t dtype, const void *from, size_t count, double factor,
                    void *ret_scaled)
{
    switch (dtype) {
    case HVD_UINT8: scale_uint8_t(from, count, factor, ret_scaled); return;
    case HVD_INT8: scale_int8_t(from, count, factor, ret_scaled); return;
    case HVD_INT32: scale_int32_t(from, count, factor, ret_scaled); return;
    case HVD_INT64: scale_int64_t(from, count, factor, ret_scaled); return;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_FLOAT32:
    case HVD_FLOAT64:
    case HVD_BOOL:
    case HVD_BFLOAT16:
    case HVD_DTYPE_COUNT: return;
    }
}
