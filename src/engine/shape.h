/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h - the dimensions of a tensor: how many elements, and as text.
 *
 * Thread: any (pure). */
#ifndef HVD_ENGINE_SHAPE_H
#define HVD_ENGINE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many elements; false: a negative dimension, too many of them, or the bytes of the largest
 * type overflow 63 bits. */
bool shape_elements(int32_t ndim, const int64_t *shape, int64_t *ret_count);
/* "[2, 3]" */
void shape_format(int32_t ndim, const int64_t *shape, char *ret_text, size_t bytes);

#endif
