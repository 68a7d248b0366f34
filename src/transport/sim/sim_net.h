/* SPDX-License-Identifier: Apache-2.0 */
/* sim_net.h - links between many ranks in one process, in virtual time, from a seed.
 *
 * Messages and bulk bytes take a seeded delay (order is kept per peer and kind, as on a real link;
 * links overtake each other freely). Faults: crash (links close after a delay), hang (nothing
 * moves), slow. Same seed, same run. Thread: one.  Start reading at sim_net_create(). */
#ifndef HVD_TRANSPORT_SIM_NET_H
#define HVD_TRANSPORT_SIM_NET_H

#include "transport/transport.h"

struct sim_net;

struct sim_net_options {
    uint64_t seed;
    int32_t ranks;
    int64_t delay_min_ns, delay_max_ns; /* per message */
    int64_t bytes_per_us;               /* bulk bandwidth per link, 0 = infinite */
};

struct sim_net *sim_net_create(const struct os *os, const struct sim_net_options *options);
void sim_net_destroy(struct sim_net *net);
int64_t sim_net_now_ns(const struct sim_net *net);
/* Advances to the next event not later than `limit_ns`; false: nothing left before it (time =
 * limit). */
bool sim_net_advance(struct sim_net *net, int64_t limit_ns);
struct transport *sim_net_open(struct sim_net *net, int32_t rank,
                               const struct transport_events *events);
void sim_net_crash(struct sim_net *net, int32_t rank); /* peers are told after a delay */
void sim_net_hang(struct sim_net *net, int32_t rank, bool is_hung);
uint64_t sim_net_random(struct sim_net *net);
/* An os table whose clock is the net's; everything else is `os`. */
const struct os *sim_net_os(struct sim_net *net);
uint64_t sim_net_messages(const struct sim_net *net); /* sent so far */

#endif
