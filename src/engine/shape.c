/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - see shape.h. */
#include "engine/shape.h"

#include <stdio.h>

#include "horovod/hvd.h"

bool shape_elements(int32_t ndim, const int64_t *shape, int64_t *ret_count)
{
    if (ndim < 0 || ndim > HVD_DIMS_MAX)
        return false;
    int64_t count = 1;
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(count, shape[i], &count))
            return false;
    if (count > INT64_MAX / 8)
        return false;
    *ret_count = count;
    return true;
}

void shape_format(int32_t ndim, const int64_t *shape, char *ret_text, size_t bytes)
{
    size_t at = 0;
    if (bytes == 0)
        return;
    ret_text[0] = '\0';
    for (int32_t i = 0; i <= ndim && at < bytes; i++) {
        int n;
        if (i == ndim)
            n = snprintf(ret_text + at, bytes - at, ndim == 0 ? "[]" : "]");
        else
            n = snprintf(ret_text + at, bytes - at, "%s%lld", i == 0 ? "[" : ", ",
                         (long long)shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}
