/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - the fuzzer's bytes as what a connection receives. */
#ifndef HVD_FUZZ_FEED_H
#define HVD_FUZZ_FEED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct feed {
    const uint8_t *bytes;
    size_t size, at;
    unsigned calls;
};

/* The next `n` bytes, or as many as there are. */
static inline int64_t feed_take(struct feed *f, void *ret_bytes, size_t n)
{
    size_t left = f->size - f->at;
    if (left < n)
        n = left;
    memcpy(ret_bytes, f->bytes + f->at, n);
    f->at += n;
    return (int64_t)n;
}

#endif
