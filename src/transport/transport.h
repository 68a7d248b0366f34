/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - moves bytes between ranks. One of the three tables that are our only polymorphism;
 * transports.h lists the implementations.
 *
 * A transport links this rank to a set of peers (world ranks). It carries two kinds of traffic,
 * which never block each other:
 *
 *     messages  small, whole, reliable, ordered per peer: the control plane (at most
 *               TRANSPORT_MESSAGE_MAX)
 *     bulk      byte streams numbered per peer; a send and a receive of equal length are matched in
 *               order within one stream (streams.h numbers them); nothing is delivered without a
 *               posted receive
 *
 * If it can (shm), it also maps each peer's arena.
 *
 * Thread: the holder of the engine's token; callbacks run inside progress().  Blocks: never.
 * A request is caller-owned memory that must not move until it is complete. Nothing is allocated
 * per message or request in steady state. After a peer is down all its requests fail with its error
 * and new ones fail at once. Every implementation passes tests/unit/transport_conformance.h. */
#ifndef HVD_TRANSPORT_TRANSPORT_H
#define HVD_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"
#include "transport/endpoint.h"

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
    uint64_t stream;
    int32_t peer;
    uint32_t crc;
    uint32_t mark; /* transport's own */
};

struct transport_events {
    void *ctx;
    /* A control message from `peer`; the bytes are valid during the call only. */
    void (*message)(void *ctx, int32_t peer, const void *bytes, size_t n);
    /* Called once per peer: it can no longer be reached, and why (a text for messages). */
    void (*peer_down)(void *ctx, int32_t peer, hvd_status_t status, const char *why);
    /* While links are made: is there no use in going on, because these ranks will not meet? Asked
     * every TRANSPORT_OVER_NS. NULL: there always is. */
    bool (*is_over)(void *over_ctx);
    void *over_ctx;
};

#define TRANSPORT_OVER_NS 10000000

static inline bool transport_is_over(const struct transport_events *events)
{
    return events->is_over != NULL && events->is_over(events->over_ctx);
}

struct transport_ops {
    uint32_t version;
    const char *name;

    bool (*reaches)(const struct transport *t, int32_t peer);

    /* HVD_OK: accepted (copied or sent). HVD_AGAIN: no room now, call again after progress().
     * Error: peer down. */
    hvd_status_t (*message_send)(struct transport *t, int32_t peer, const void *bytes, size_t n);

    /* Post a transfer; completes in progress(). n may be 0. */
    hvd_status_t (*bulk_send)(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                              size_t n, struct transport_req *req);
    hvd_status_t (*bulk_recv)(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                              size_t n, struct transport_req *req);
    /* Forget a posted transfer that will not be needed (a broken plan, an aborted batch). */
    void (*bulk_cancel)(struct transport *t, struct transport_req *req);

    /* Moves what can be moved now; true if anything happened. `now_ns` is os->now_ns(). */
    bool (*progress)(struct transport *t, int64_t now_ns);

    /* Before the driver sleeps: true guarantees that a later event makes `poll_fd` (see open)
     * readable. Makes peers ring from now on; undone by sleep_end. false: there is already
     * something to do. */
    bool (*sleep_begin)(struct transport *t);
    void (*sleep_end)(struct transport *t);

    /* `peer`'s mapped arena (or this rank's own): base address and size, or NULL. */
    uint8_t *(*arena)(const struct transport *t, int32_t peer, uint64_t *ret_bytes);

    /* Notifies `peer` that something in shared memory changed (wakes it if it sleeps). */
    void (*notify)(struct transport *t, int32_t peer);

    void (*counters)(const struct transport *t, uint64_t *ret_messages, uint64_t *ret_bytes);
    /* When anything was last received from `peer`, in the time of progress(); to be called about
     * twice a second. 0: not known. Negative: not since it connected; it may still be connecting.
     * May be NULL. */
    int64_t (*last_heard_ns)(struct transport *t, int32_t peer, int64_t now_ns);
    void (*destroy)(struct transport *t); /* safe on NULL and partly constructed */

    /* May be NULL. bulk_open: the streams from `first` to the end of its life (see streams.h) are
     * in use from now on, and those before it in this life no longer; bulk_close: the whole life
     * has ended. Data without a receive for streams that have ended is discarded, not kept. `slot`
     * distinguishes lives that are open at the same time: the process set's id. */
    void (*bulk_open)(struct transport *t, int32_t slot, uint64_t first);
    void (*bulk_close)(struct transport *t, uint64_t first);

    /* NULL: sleep_begin() works as described. Else nothing rings, and a sleeping thread must poll
     * again after at most this time. */
    int64_t (*poll_ns)(struct transport *t);

    /* For a transport that maps arenas; all five or none. Any thread. */
    const struct transport_memory *memory;
};

/* This rank's own arena: memory that its peers map. */
struct transport_memory {
    void *(*alloc)(struct transport *t, size_t bytes); /* zeroed; NULL: no room */
    void (*free)(struct transport *t, void *ptr);      /* ignores memory that it does not own */
    /* Makes whole pages of a caller's memory part of the arena in place, and undoes it. */
    hvd_status_t (*add)(struct transport *t, void *ptr, uint64_t bytes, struct error *error);
    hvd_status_t (*remove)(struct transport *t, void *ptr, struct error *error);
    bool (*holds)(struct transport *t, const void *ptr, size_t bytes);
};

struct transport { /* every implementation starts with this */
    const struct transport_ops *ops;
    const struct os *os;
    struct transport_events events;
    bool is_one_thread; /* after it is connected only one thread may call it, always the same */
};

#endif
