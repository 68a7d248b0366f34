/* SPDX-License-Identifier: Apache-2.0 */
/* cooldown.c - see cooldown.h. */
#include "cooldown.h"

#define NS_PER_S    1000000000.0
#define DOUBLES_MAX 30 /* more would only be cut off at HIGH */

bool cooldown_is_on(const struct cooldown *c, int64_t now_ns)
{
    return c->until_ns > now_ns;
}

void cooldown_begin(struct cooldown *c, int64_t now_ns, int64_t low_s, int64_t high_s,
                    double chance)
{
    if (cooldown_is_on(c, now_ns))
        return;
    if (c->count < DOUBLES_MAX)
        c->count++;
    double seconds = (double)low_s * (double)((int64_t)1 << c->count) + chance * (double)low_s;
    if (seconds < (double)low_s)
        seconds = (double)low_s;
    if (seconds > (double)high_s)
        seconds = (double)high_s;
    c->until_ns = now_ns + (int64_t)(seconds * NS_PER_S);
}
