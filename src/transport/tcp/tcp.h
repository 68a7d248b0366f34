/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.h - ranks on different machines: authenticated TCP links, CRC32C on every frame.
 *
 * One control connection and config->tcp_flows bulk connections per pair of ranks; the higher rank
 * dials all candidate addresses in parallel and keeps the first that responds and authenticates.
 * Bulk stream s uses flow s % flows. A frame that is garbage, truncated, oversized, of another
 * epoch or fails its checksum closes the link; the peer is then down. An idle control connection
 * sends heartbeats.
 *
 * Bulk data that arrives for a stream with no posted receive stays in the socket, unless another
 * stream of the same flow has a receive posted: then it is buffered, so that streams never wait
 * for each other.
 *
 * Thread: token holder.  Start reading at tcp_create(). */
#ifndef HVD_TRANSPORT_TCP_H
#define HVD_TRANSPORT_TCP_H

#include "base/config.h"
#include "transport/transports.h"

#define TCP_ADDRESSES_MAX 8 /* of a rank */

struct tcp; /* starts with struct transport */

extern const struct transport_row tcp_row; /* tcp_row.c */

/* What a rank offers: candidates to dial in parallel. */
struct tcp_offer {
    uint16_t port;
    uint8_t address_count;
    uint8_t addresses[TCP_ADDRESSES_MAX][16]; /* IPv6, IPv4 mapped */
};
hvd_status_t tcp_offer_put(struct endpoint *e, const struct tcp_offer *offer, struct error *error);
bool tcp_offer_get(const struct endpoint *e, struct tcp_offer *ret); /* false: none, or malformed */

/* Step 1: listens on the chosen addresses (config->interfaces; on a single machine: loopback; never
 * a wildcard) and offers them in `ret_self`. */
hvd_status_t tcp_create(const struct os *os, const struct config *config, int32_t rank,
                        bool is_single_host, struct endpoint *ret_self, struct tcp **ret,
                        struct error *error);
/* Step 2: links to every rank r of `all` for which wanted[r] is true. Blocks at most
 * config->timeout_s; the error names the rank, its host and the addresses tried. */
hvd_status_t tcp_connect(struct tcp *tcp, const struct endpoint *all, int32_t count,
                         const bool *wanted, const uint8_t key[32], uint64_t epoch, int poll_fd,
                         const struct transport_events *events, struct error *error);
struct transport *tcp_transport(struct tcp *tcp);
/* The poller saw an event whose tag is this `struct tcp *` (poll_fd contains one descriptor of this
 * transport, for all sockets). Only marks it; progress() handles it. */
void tcp_event(struct tcp *tcp, const struct os_event *event);
/* When anything was last received from `peer`, in the time passed to progress(); at most about two
 * seconds ago for a live one, because of heartbeats. 0: not our peer. */
int64_t tcp_last_heard_ns(const struct tcp *tcp, int32_t peer);

#endif
