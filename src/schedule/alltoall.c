/* SPDX-License-Identifier: Apache-2.0 */
/* alltoall.c - every rank has data for every other: in round k rank r sends to r + k and receives
 * from r - k. Rounds are distributed over a few channels, so that several are in progress at a time
 * without all senders sending to one receiver.
 *
 * Thread: any (pure).  Start reading at schedule_alltoall(). */
#include "schedule/build.h"

#define ROUNDS_AT_A_TIME 4

static void build_round(struct build *b, const struct alltoall_shape *shape, int32_t k)
{
    int32_t n = b->size, to = (b->rank + k) % n, from = (b->rank + n - k) % n;
    struct slice out = {shape->send_offsets[to], shape->send_counts[to]};
    struct slice in = {shape->recv_offsets[from], shape->recv_counts[from]};
    build_transfer(b, STEP_SEND_TEMP, to, out, in.count > 0);
    build_transfer(b, STEP_RECV, from, in, false);
}

hvd_status_t schedule_alltoall(struct schedule *s, const struct alltoall_shape *shape, int32_t rank,
                               const struct topology *topology, struct error *error)
{
    int32_t n = topology->size;
    if (rank < 0 || rank >= n)
        return error_set(error, HVD_ERR_INVALID, "alltoall schedule: rank %d of %d", rank, n);
    if (shape->send_counts[rank] != shape->recv_counts[rank])
        return error_set(error, HVD_ERR_INVALID,
                         "alltoall: rank %d sends %llu elements to itself "
                         "but receives %llu",
                         rank, (unsigned long long)shape->send_counts[rank],
                         (unsigned long long)shape->recv_counts[rank]);
    struct build b = {.s = s, .size = n, .rank = rank, .element_bytes = 1};
    build_begin(&b, 0, SCHEDULE_AUTO);
    for (int32_t i = 0; i < n; i++)
        if (s->scratch_count < shape->send_offsets[i] + shape->send_counts[i])
            s->scratch_count = shape->send_offsets[i] + shape->send_counts[i];
    for (int32_t c = 0; c < ROUNDS_AT_A_TIME; c++) {
        b.channel = (uint16_t)c;
        for (int32_t k = 1 + c; k < n; k += ROUNDS_AT_A_TIME)
            build_round(&b, shape, k);
        if (c == 0 && shape->send_counts[rank] > 0)
            build_push(&b, (struct step){.kind = STEP_COPY_OUT,
                                         .offset = shape->recv_offsets[rank],
                                         .source = shape->send_offsets[rank],
                                         .count = shape->send_counts[rank]});
    }
    return build_end(&b, error);
}
