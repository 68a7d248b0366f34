/* SPDX-License-Identifier: Apache-2.0 */
/* scale.h - integers times a factor, in double, truncated toward zero.
 *
 * Values out of range of the type are clamped, NaN becomes 0: the same on every machine, whereas a
 * plain C conversion would be undefined.
 *
 * Thread: any.  Owner: none, no state. */
#ifndef HVD_REDUCE_SCALE_H
#define HVD_REDUCE_SCALE_H

#include <stdbool.h>
#include <stddef.h>

#include "horovod/hvd.h"

bool scale_has_dtype(hvd_dtype_t dtype); /* uint8, int8, int32, int64 */

/* No alignment is assumed; `from` and `ret_scaled` may be the same array. */
void scale_integers(hvd_dtype_t dtype, const void *from, size_t count, double factor,
                    void *ret_scaled);

#endif
