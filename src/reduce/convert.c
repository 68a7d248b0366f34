/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - one value between float and the two 16-bit floats, by integer arithmetic.
 *
 * Same results as the F16C and NEON instructions: nearest even, subnormals and infinities kept, a
 * NaN keeps its sign and the top of its payload and becomes quiet. Nothing here depends on the
 * flush-to-zero mode that a framework may have set: subnormal halves are converted with normal
 * floats only.
 *
 * Thread: any.  Owner: none, no state.  The vector form of the same steps is in isa.inc. */
#include <string.h>

#include "reduce/reduce.h"

float reduce_half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;

    if (magnitude >= 31u << 23) { /* infinity, NaN: the exponent goes from 31 to 255 */
        uint32_t quiet = (magnitude & 0x7fffff) != 0 ? 0x400000 : 0;
        return reduce_float_of(sign | (magnitude + (224u << 23)) | quiet);
    }
    if (magnitude >= 1u << 23)
        return reduce_float_of(sign | (magnitude + (112u << 23))); /* bias 15 to bias 127 */
    /* Subnormal: put the bits below a leading one, then take that one away. */
    float value = reduce_float_of(magnitude + (113u << 23)) - reduce_float_of(113u << 23);
    return reduce_float_of(sign | reduce_bits_of(value));
}

uint16_t reduce_float_to_half(float value)
{
    const uint32_t bits = reduce_bits_of(value) & 0x7fffffff;
    const uint16_t sign = (uint16_t)((reduce_bits_of(value) >> 16) & 0x8000);

    if (bits > 255u << 23)
        return (uint16_t)(sign | 0x7e00 | ((bits >> 13) & 0x3ff));
    if (bits >= 143u << 23)
        return (uint16_t)(sign | 0x7c00);
    if (bits >= 113u << 23) /* the rounding carry may reach the exponent, and infinity */
        return (uint16_t)(sign | ((bits + 0xfff + ((bits >> 13) & 1) - (112u << 23)) >> 13));
    /* Subnormal: one step of 0.5 is one step of a half here, so the addition rounds for us. */
    return (uint16_t)(sign | (reduce_bits_of(reduce_float_of(bits) + 0.5f) - (126u << 23)));
}

float reduce_bfloat_to_float(uint16_t bfloat)
{
    return reduce_float_of((uint32_t)bfloat << 16);
}

uint16_t reduce_float_to_bfloat(float value)
{
    const uint32_t bits = reduce_bits_of(value);

    if ((bits & 0x7fffffff) > 255u << 23)
        return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
