/* SPDX-License-Identifier: Apache-2.0 */
/* cooldown.h - hosts that failed are left alone for a while (--blacklist-cooldown-range LOW HIGH).
 *
 * The n-th time takes LOW * 2^n seconds plus up to LOW more by chance, at least LOW and at most
 * HIGH; n counts from 1. A host that fails again while it cools down does not begin anew.
 *
 * Pure. Thread: the launcher's loop.  Owner: struct policy.  Start reading at cooldown_begin(). */
#ifndef HVD_LAUNCHER_COOLDOWN_H
#define HVD_LAUNCHER_COOLDOWN_H

#include <stdbool.h>
#include <stdint.h>

struct cooldown {
    int32_t count;
    int64_t until_ns; /* 0: usable */
};

/* `chance`: in [0, 1). */
void cooldown_begin(struct cooldown *c, int64_t now_ns, int64_t low_s, int64_t high_s,
                    double chance);
bool cooldown_is_on(const struct cooldown *c, int64_t now_ns);

#endif
