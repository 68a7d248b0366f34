/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h - what an idle thread does: spin, then yield, then sleep.
 *
 * A yield that returns late shows that others need the core. On Linux a thread that yields is
 * queued after all runnable threads, each time: fifty yields among fifty busy processes kept a rank
 * off its core for seconds, in which it neither worked nor sent anything. So a thread stops
 * yielding after the first late yield.
 *
 * Thread: any, one struct patience each.  Blocks: never longer than a yield. */
#ifndef HVD_API_PATIENCE_H
#define HVD_API_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"

struct patience_limits {
    int64_t spin_ns;     /* how long to spin */
    int32_t yield_count; /* how often to yield afterwards */
};

struct patience { /* zeroed: there was just progress */
    int64_t since_ns;
    int32_t yields;
};

/* There was no progress: true: check again, false: sleep. */
bool patience_wait(struct patience *p, const struct patience_limits *limits, const struct os *os);

#endif
