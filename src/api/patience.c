/* SPDX-License-Identifier: Apache-2.0 */
/* patience.c - see patience.h. */
#include "api/patience.h"

#define PAUSES        8
#define YIELD_LATE_NS 200000 /* a rank that ran in between returns much sooner */

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool patience_wait(struct patience *p, const struct patience_limits *limits, const struct os *os)
{
    int64_t now_ns = os_now_ns(os);
    if (p->since_ns == 0)
        p->since_ns = now_ns;
    if (now_ns - p->since_ns < limits->spin_ns) {
        for (int i = 0; i < PAUSES; i++)
            cpu_pause();
        return true;
    }
    if (p->yields >= limits->yield_count)
        return false;
    os->yield(os->ctx);
    p->yields = os_now_ns(os) - now_ns < YIELD_LATE_NS ? p->yields + 1 : limits->yield_count;
    return true;
}
