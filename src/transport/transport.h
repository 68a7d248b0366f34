/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - bytes between ranks. One of the three tables that are our only polymorphism.
 *
 * A transport serves a set of peers (world ranks). It carries two kinds of traffic, which never
 * block each other: messages  small, whole, reliable, ordered per peer: the control plane (at most
 * TRANSPORT_MESSAGE_MAX) bulk      byte streams numbered per peer; a send and a receive of equal
 * length are matched in order within one stream; nothing is delivered for which no receive was
 * posted and where it can (shm) it gives direct sight of a peer's arena.
 *
 * Thread: whoever holds the engine's token; callbacks run inside progress().  Blocks: never.
 * A request is caller-owned memory that must stay put until it is complete. Nothing is allocated
 * per message or request in steady state. After a peer is down all its requests end with its error
 * and new ones fail at once. Every implementation passes tests/unit/transport_conformance.h. */
#ifndef HVD_TRANSPORT_TRANSPORT_H
#define HVD_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

#define TRANSPORT_VERSION     1u
#define TRANSPORT_MESSAGE_MAX (1u << 20)

struct transport;

struct transport_req {
    hvd_status_t status; /* HVD_IN_PROGRESS until done */
    /* below: the transport's */
    struct transport_req *next;
    const uint8_t *send;
    uint8_t *recv;
    size_t bytes, done;
    uint32_t stream;
    int32_t peer;
    uint32_t crc;
    uint32_t mark; /* transport's own */
};

struct transport_events {
    void *ctx;
    /* A control message from `peer`; the bytes are valid during the call only. */
    void (*message)(void *ctx, int32_t peer, const void *bytes, size_t n);
    /* Told once per peer: it can't be reached any more, and why (text for people). */
    void (*peer_down)(void *ctx, int32_t peer, hvd_status_t status, const char *why);
};

struct transport_ops {
    uint32_t version;
    const char *name;

    bool (*reaches)(const struct transport *t, int32_t peer);

    /* HVD_OK: taken (copied or sent). HVD_AGAIN: no room now, call again after progress(). Error:
     * peer down.
     */
    hvd_status_t (*message_send)(struct transport *t, int32_t peer, const void *bytes, size_t n);

    /* Post a transfer; completes in progress(). n may be 0. */
    hvd_status_t (*bulk_send)(struct transport *t, int32_t peer, uint32_t stream, const void *bytes,
                              size_t n, struct transport_req *req);
    hvd_status_t (*bulk_recv)(struct transport *t, int32_t peer, uint32_t stream, void *bytes,
                              size_t n, struct transport_req *req);
    /* Forget a posted transfer that will not be needed (a broken plan, an aborted batch). */
    void (*bulk_cancel)(struct transport *t, struct transport_req *req);

    /* Move what can be moved now; true if anything happened. `now_ns` is os->now_ns(). */
    bool (*progress)(struct transport *t, int64_t now_ns);

    /* Before the driver sleeps: true promises that a later event makes `poll_fd` (see open)
     * readable. Does what is needed so that peers ring; undone by sleep_end. false: something is
     * there already. */
    bool (*sleep_begin)(struct transport *t);
    void (*sleep_end)(struct transport *t);

    /* Direct sight of `peer`'s arena (its own included): base address and size, or NULL. */
    uint8_t *(*arena)(const struct transport *t, int32_t peer, uint64_t *ret_bytes);

    /* Tell `peer` that something in shared memory changed (wakes it if it sleeps). */
    void (*notify)(struct transport *t, int32_t peer);

    void (*counters)(const struct transport *t, uint64_t *ret_messages, uint64_t *ret_bytes);
    /* When `peer` last showed a sign of life, in the time of progress(); to be asked about once a
     * second. 0: not known. May be NULL. */
    int64_t (*last_heard_ns)(struct transport *t, int32_t peer, int64_t now_ns);
    void (*destroy)(struct transport *t); /* safe on NULL and half-built */

    /* May be NULL. Streams [first, first + count) of `peer` were given up and are never used again
     * (a reset backend): what came or still comes on them unawaited is thrown away, not kept. */
    void (*bulk_forget)(struct transport *t, int32_t peer, uint32_t first, uint32_t count);

    /* NULL: sleep_begin() keeps its promise. Else nothing rings, and whoever sleeps must look again
     * after at most so long. */
    int64_t (*poll_ns)(struct transport *t);
};

struct transport { /* every implementation starts with this */
    const struct transport_ops *ops;
    const struct os *os;
    struct transport_events events;
};

/* One peer as the rendezvous told about it. */
struct endpoint {
    int32_t rank;
    int32_t pid;
    char host_id[64]; /* equal only for ranks that can share memory: boot id + network namespace */
    char host_name[64]; /* for people */
    char unix_name[96]; /* abstract Unix socket for shm, "" = none */
    uint16_t tcp_port;  /* 0 = none */
    uint8_t address_count;
    uint8_t addresses[8][16]; /* IPv6, IPv4 mapped; candidates to dial in parallel */
};

#endif
