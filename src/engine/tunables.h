/* SPDX-License-Identifier: Apache-2.0 */
/* tunables.h - what may change while a job runs, in one small struct with a version.
 *
 * The first values, version 0, are those of the configuration, which never changes. A change begins
 * at rank 0 (engine_tune() in engine.h), is sent as an item of the ordered response stream and
 * takes effect at its position among the batches: at the same point on all members of a process
 * set, between the same two collectives, also with plans. Each of the other sets has a separate
 * order, so its coordinator forwards the change in that set's stream; a new set begins with the
 * values in force.
 *
 * Thread: token holder.  Start reading at tune.c. */
#ifndef HVD_ENGINE_TUNABLES_H
#define HVD_ENGINE_TUNABLES_H

#include <stdint.h>

struct tunables {
    uint64_t version; /* increases with every change; 0: as configured */
    int64_t fusion_threshold_bytes;
    int64_t cycle_time_ns;     /* how long ready ops are held back for a larger batch */
    int64_t spin_ns;           /* before a waiting thread sleeps; -1: by the number of cores */
    int32_t flows;             /* channels of one collective between machines */
    int32_t threshold_percent; /* of the sizes at which the algorithm changes (select.c) */
};

#endif
