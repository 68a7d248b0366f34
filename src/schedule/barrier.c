/* SPDX-License-Identifier: Apache-2.0 */
/* barrier.c - dissemination: in round k every rank sends to the one 2^k after it and receives from
 * the one 2^k before it; after ceil(log2(N)) rounds every rank has heard from every other, directly
 * or not.
 *
 * One element is sent per round, so that transports need not support empty transfers. Thread: any
 * (pure).  Start reading at schedule_barrier(). */
#include "schedule/build.h"

hvd_status_t schedule_barrier(struct schedule *s, int32_t rank, const struct topology *topology,
                              struct error *error)
{
    int32_t n = topology->size;
    if (rank < 0 || rank >= n)
        return error_set(error, HVD_ERR_INVALID, "barrier schedule: rank %d of %d", rank, n);
    struct build b = {.s = s, .size = n, .rank = rank, .element_bytes = 1};
    uint64_t place = 1;
    build_begin(&b, SCHEDULE_BARRIER_COUNT, SCHEDULE_AUTO);
    for (int64_t distance = 1; distance < n; distance *= 2, place++) {
        int32_t to = (int32_t)((rank + distance) % n), from = (int32_t)((rank + n - distance) % n);
        build_transfer(&b, STEP_SEND_TEMP, to, (struct slice){0, 1}, true);
        build_transfer(&b, STEP_RECV_TEMP, from, (struct slice){place, 1}, false);
    }
    return build_end(&b, error);
}
