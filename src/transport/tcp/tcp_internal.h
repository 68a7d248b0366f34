/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_internal.h - what the files of the TCP transport share.
 *
 * struct tcp has a peer per wanted rank; a peer has one control connection (tcp_link.c) and
 * `flow_count` bulk connections (tcp_bulk.c). Before they are established, sockets are pending
 * (tcp_connect.c). All sockets are in one internal poller, which is itself one descriptor of the
 * engine's poller: polling for work takes one system call, whatever the number of peers.
 *
 * Invariant: a failing link only records its cause (tcp_peer_fail); progress() then fails the
 * requests and calls peer_down, once per peer. Thread: token holder.  Start reading at
 * tcp_progress(). */
#ifndef HVD_TRANSPORT_TCP_INTERNAL_H
#define HVD_TRANSPORT_TCP_INTERNAL_H

#include "transport/streams.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_seal.h"
#include "wire/handshake.h"

#define TCP_FLOWS_MAX     32
#define TCP_WHY_MAX       320u
#define TCP_QUEUE_BYTES   (TRANSPORT_MESSAGE_MAX + (64u << 10)) /* control bytes not yet sent */
#define TCP_INBOX_BYTES   (TCP_CONTROL_HEAD + TCP_TAG_BYTES + TRANSPORT_MESSAGE_MAX)
#define TCP_SCRATCH_BYTES (64u << 10)
#define TCP_ENCRYPT_MAX                                                                            \
    (64u << 10) /* payload of an encrypted frame: each flow has such a buffer                      \
                 */
#define TCP_ASIDE_BYTES_MAX  (256u << 20) /* buffered for all peers together */
#define TCP_STRANGERS_MAX    256          /* accepted connections without a verified hello */
#define TCP_ACCEPTS_MAX      768          /* accepted connections without a completed handshake */
#define TCP_DIALS_MAX        256
#define TCP_HANDSHAKE_NS     (5 * 1000000000LL)
#define TCP_STRANGER_NS      (2 * 1000000000LL) /* until the hello is verified */
#define TCP_LOOK_INTERVAL_NS 5000               /* between polls when nothing is expected */

enum tcp_tag { TCP_TAG_LISTENER, TCP_TAG_PENDING, TCP_TAG_CONN };

struct tcp_listener {
    enum tcp_tag tag; /* first: what a poller's tag points to */
    int fd;
};

struct tcp_conn { /* an authenticated connection, or the place for it */
    enum tcp_tag tag;
    struct tcp_peer *peer;
    int fd;
    uint32_t flow; /* 0: control, else bulk flow - 1 */
    bool is_polled, is_write_polled, is_todo;
    struct tcp_seal seal;
    struct tcp_conn *todo_next;
    /* while connecting, dialer's side */
    int32_t dialing; /* pending sockets for this place */
    bool is_claimed; /* one of them was chosen */
    int64_t retry_ns, backoff_ns;
};

struct tcp_control {
    struct tcp_conn conn; /* first */
    uint8_t *out, *in;
    size_t out_begin, out_end, in_end;
    uint64_t send_sequence, recv_sequence;
    int64_t sent_ns;
};

struct tcp_chunk {
    struct tcp_chunk *next;
    size_t used, capacity;
    uint8_t bytes[];
};

struct tcp_aside { /* buffers a transfer that arrived before its receive was posted */
    struct tcp_aside *next;
    uint64_t stream;
    uint64_t total;
    struct tcp_chunk *first, *last;
};

struct tcp_flow_out {
    struct transport_req *head, *tail; /* the head is being sent */
    bool is_framed;                    /* a frame is being sent */
    uint8_t frame_head[TCP_BULK_HEAD + TCP_TAG_BYTES];
    uint32_t head_done, length, done;
    const uint8_t *payload;
    uint8_t *encrypted;    /* TCP_ENCRYPT_MAX bytes, or NULL */
    uint8_t *rest;         /* own copy of the rest of a frame whose request was cancelled */
    bool is_cancelled;     /* the frame being sent no longer has a request */
    bool is_abort_pending; /* then tell the peer that the transfer is aborted */
    uint64_t abort_stream;
    uint64_t abort_left;
};

struct tcp_flow_in {
    struct transport_req *posted, *posted_last; /* oldest first */
    struct tcp_aside *asides, *asides_last;     /* oldest first; the last one may be growing */
    uint8_t frame_head[TCP_BULK_HEAD + TCP_TAG_BYTES];
    uint8_t tag[TCP_TAG_BYTES]; /* of the current frame; the next header may be in frame_head */
    uint32_t head_done;
    bool is_framed;   /* the header is decoded; payload follows */
    bool is_transfer; /* a transfer is in progress, to the one below that is set, if any */
    bool is_discarded;
    bool is_placed; /* room for the frame was allocated in `aside` */
    struct transport_req *req;
    struct tcp_aside *aside;
    struct tcp_bulk_frame frame;
    uint32_t frame_done, crc;
    uint64_t left; /* of the transfer, after this frame */
};

struct tcp_flow {
    struct tcp_conn conn; /* first */
    bool is_blocked;      /* the next payload has no destination; it stays in the socket */
    struct tcp_flow_out out;
    struct tcp_flow_in in;
};

struct tcp_peer {
    struct tcp *tcp;
    int32_t rank;
    char host_name[64];
    uint8_t addresses[TCP_ADDRESSES_MAX][16];
    uint16_t port;
    int32_t address_count, address_won;
    hvd_status_t status; /* HVD_OK: up */
    bool is_told;
    char why[TCP_WHY_MAX];
    struct tcp_peer *down_next;
    int64_t heard_ns;
    struct error dial_error; /* the last cause, for messages */
    struct tcp_control control;
    struct tcp_flow *flows;
};

struct tcp_connecting; /* tcp_connect.c */

struct tcp {
    struct transport base; /* first */
    int32_t rank;
    int32_t flow_count;
    enum tcp_security security;
    struct cipher cipher; /* loaded if `security` needs it */
    /* after every header of a bulk frame and of a control frame: 0 or TCP_TAG_BYTES */
    uint32_t tag_bytes, control_tag_bytes;
    int64_t timeout_ns;
    uint64_t epoch;
    int poll;     /* internal */
    int poll_out; /* the engine's, with `poll` in it; -1: none */
    struct tcp_listener listeners[TCP_ADDRESSES_MAX];
    int32_t listener_count;
    struct tcp_connecting *connecting;
    struct tcp_peer **peers; /* by rank; NULL: not ours */
    int32_t peer_count;
    struct tcp_conn *todo;
    struct tcp_peer *downs;
    bool is_marked;
    const struct config *config; /* the owner's; rank 0's settings are in it once all have met */
    int64_t now_ns, looked_ns, beat_ns;
    uint64_t posted_count; /* requests in progress */
    struct streams streams;
    uint64_t aside_bytes;
    uint64_t messages, bytes;
    uint8_t *scratch;
};

/* tcp.c */
/* Without sockets yet; NULL: no memory. `flows` is clamped. */
struct tcp *tcp_new(const struct os *os, int32_t rank, int64_t flows);
struct tcp_peer *tcp_peer_of(const struct tcp *tcp, int32_t rank);
/* Records the first cause; progress() fails the requests and calls peer_down. */
void tcp_peer_fail(struct tcp_peer *peer, hvd_status_t status, const char *what);
void tcp_conn_todo(struct tcp_conn *conn);
void tcp_conn_poll(struct tcp_conn *conn, bool want_write);
void tcp_conn_unpoll(struct tcp_conn *conn);
void tcp_conn_close(struct tcp_conn *conn);
/* What a failed send or recv means: HVD_AGAIN, or the peer has been failed. n: 0 or negative. */
hvd_status_t tcp_conn_io_error(struct tcp_conn *conn, int64_t n);
hvd_status_t tcp_peer_new(struct tcp *tcp, int32_t rank, struct tcp_peer **ret);
void tcp_peer_free(struct tcp_peer *peer);

/* tcp_listen.c */
hvd_status_t tcp_listen(struct tcp *tcp, const struct config *config, bool is_single_host,
                        struct tcp_offer *ret, struct error *error);
void tcp_listen_end(struct tcp *tcp);
void tcp_address_text(const uint8_t address[16], char *ret_text, size_t bytes);
bool tcp_address_is_loopback(const uint8_t address[16]);
struct sockaddr_storage;
/* Fills an IPv4 or IPv6 socket address; returns its length. */
unsigned tcp_sockaddr(const uint8_t address[16], uint16_t port, struct sockaddr_storage *ret);

/* tcp_connect.c */
void tcp_connecting_free(struct tcp *tcp);

/* tcp_link.c */
hvd_status_t tcp_control_init(struct tcp_peer *peer);
void tcp_control_end(struct tcp_peer *peer);
hvd_status_t tcp_control_send(struct tcp_peer *peer, enum tcp_control_type type, const void *bytes,
                              size_t n);
bool tcp_control_read(struct tcp_peer *peer);
bool tcp_control_write(struct tcp_peer *peer);

/* tcp_bulk.c */
hvd_status_t tcp_bulk_send(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                           size_t n, struct transport_req *req);
hvd_status_t tcp_bulk_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                           size_t n, struct transport_req *req);
void tcp_bulk_cancel(struct transport *t, struct transport_req *req);
void tcp_bulk_open(struct transport *t, int32_t slot, uint64_t first);
void tcp_bulk_close(struct transport *t, uint64_t first);
bool tcp_flow_read(struct tcp_flow *flow);
bool tcp_flow_write(struct tcp_flow *flow);
/* Matches new receives with buffered data, then moves what can be moved. */
bool tcp_flow_work(struct tcp_flow *flow);
void tcp_flow_fail(struct tcp_flow *flow, hvd_status_t status); /* fails all its requests */
void tcp_flow_end(struct tcp_flow *flow);

#endif
