/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - do the requests of two ranks for a name match?
 *
 * Thread: any (pure). */
#ifndef HVD_ENGINE_COMPARE_H
#define HVD_ENGINE_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/message.h"

struct procset;

/* How two requests differ. */
struct difference {
    /* The sentence of 0.28.1, which does not say which rank sent which value. */
    char text[480];
    /* What the first and the second rank sent; empty if there is no short form. */
    char values[2][160];
};

/* Can they run together? If not, `ret` is filled. */
bool compare_requests(const struct procset *set, const struct request *a, const struct request *b,
                      struct difference *ret);
bool compare_payload(const struct request *a, const struct request *b, struct difference *ret);

#endif
