/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.h - ranks of different hosts: authenticated TCP links, CRC32C on every frame.
 *
 * One control connection and config->tcp_flows bulk connections per pair of ranks; the higher rank
 * dials all candidate addresses in parallel and keeps the first that answers and authenticates.
 * Bulk stream s uses flow s % flows. A frame that is garbage, truncated, oversized, of another
 * epoch or fails its checksum closes the link; the peer is then down. Heartbeats on the control
 * connection when idle.
 *
 * Bulk data that arrives for a stream with no posted receive stays in the socket, unless another
 * stream of the same flow has a receive posted: then it is set aside, so that streams never wait
 * for each other.
 *
 * Thread: token holder.  Start reading at tcp_create(). */
#ifndef HVD_TRANSPORT_TCP_H
#define HVD_TRANSPORT_TCP_H

#include "base/config.h"
#include "transport/transport.h"

struct tcp; /* starts with struct transport */

/* Step 1: listens on the chosen addresses (config->interfaces; one host only: loopback; never a
 * wildcard); fills tcp_port and addresses of `ret_self`. */
hvd_status_t tcp_create(const struct os *os, const struct config *config, int32_t rank,
                        bool is_single_host, struct endpoint *ret_self, struct tcp **ret,
                        struct error *error);
/* Step 2: links to every rank r of `all` for which wanted[r] is true. Blocks at most
 * config->timeout_s; the error names the rank, its host and the addresses tried. */
hvd_status_t tcp_connect(struct tcp *tcp, const struct endpoint *all, int32_t count,
                         const bool *wanted, const uint8_t key[32], uint64_t epoch, int poll_fd,
                         const struct transport_events *events, struct error *error);
struct transport *tcp_transport(struct tcp *tcp);
/* The poller saw an event whose tag is this `struct tcp *` (poll_fd holds one descriptor of ours,
 * which stands for all sockets). Only marks it, progress() works on it. */
void tcp_event(struct tcp *tcp, const struct os_event *event);
/* When anything was last heard of `peer`, in the time that progress() is given; at most about two
 * seconds ago for a live one, because of heartbeats. 0: not our peer. */
int64_t tcp_last_heard_ns(const struct tcp *tcp, int32_t peer);

#endif
