/* SPDX-License-Identifier: Apache-2.0 */
/* sim_net.h - links between many ranks in one process, in virtual time, from a seed.
 *
 * Messages and bulk bytes take a seeded delay (order is kept per peer and kind, as on a real link;
 * links overtake each other freely). Faults: crash (links close after a delay), hang (nothing
 * moves), slow. Same seed and same calls, same run. A driver's loop:
 *
 *     while (sim_net_advance(net, limit_ns))
 *         while ((rank = sim_net_due_rank(net)) >= 0)
 *             step the engine of `rank`, which calls its transport's progress();
 *
 * Thread: one.  Start reading at sim_net_create(). */
#ifndef HVD_TRANSPORT_SIM_NET_H
#define HVD_TRANSPORT_SIM_NET_H

#include "transport/transport.h"

struct sim_net;

struct sim_net_options {
    uint64_t seed;
    int32_t ranks;
    int64_t delay_min_ns, delay_max_ns; /* per message */
    int64_t bytes_per_us;               /* bulk bandwidth per link, 0 = infinite */
    uint32_t again_one_in; /* one message_send in this many returns HVD_AGAIN at random, 0 = none */
};

/* NULL: no memory, or invalid options. `os` must outlive the net. */
struct sim_net *sim_net_create(const struct os *os, const struct sim_net_options *options);
/* Frees the transports too; they must not be used afterwards. Safe on NULL. */
void sim_net_destroy(struct sim_net *net);
int64_t sim_net_now_ns(const struct sim_net *net);
/* Advances to the next event not later than `limit_ns` that gives some rank something to do;
 * false: nothing left before it (time = limit). Ranks that are already due don't hold it back. */
bool sim_net_advance(struct sim_net *net, int64_t limit_ns);
/* Has `rank` anything to deliver in progress() at the present time? */
bool sim_net_is_due(struct sim_net *net, int32_t rank);
/* Some rank for which sim_net_is_due() holds, the longest waiting first; -1: none. The rank stays
 * due until its progress() has run. */
int32_t sim_net_due_rank(struct sim_net *net);
/* Once per rank; NULL on the second time, after a crash, or without memory. Messages sent to a rank
 * before it opened wait for it. */
struct transport *sim_net_open(struct sim_net *net, int32_t rank,
                               const struct transport_events *events);
/* Peers learn of it after a delay; what is still in transit at that moment is lost. The rank's own
 * requests are forgotten, so its memory may be freed; its transport does nothing from now on. */
void sim_net_crash(struct sim_net *net, int32_t rank);
/* Nothing moves from or to a hung rank; on release it all arrives, in order. */
void sim_net_hang(struct sim_net *net, int32_t rank, bool is_hung);
/* Everything sent by or to `rank` from now on takes `extra_ns` longer. */
void sim_net_slow(struct sim_net *net, int32_t rank, int64_t extra_ns);
uint64_t sim_net_random(struct sim_net *net);
/* The next number of a sequence that any seed starts: splitmix64 (public domain). */
static inline uint64_t sim_splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* An os table whose clocks and random bytes are the net's; everything else is `os`. */
const struct os *sim_net_os(struct sim_net *net);
uint64_t sim_net_messages(const struct sim_net *net); /* sent so far */

#endif
