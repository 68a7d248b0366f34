/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.c - the TCP transport as a whole: creating it, its peers, its ops table, and its progress
 * loop.
 *
 * progress() does three things: connections with local work (new requests, blocked data), then
 * those the poller reports, then peers that went down. When no request is in progress it polls only
 * every few microseconds, so that a spinning caller does not make a system call each time.
 *
 * Bulk data without a receive keeps its socket readable; such a connection is removed from the
 * poller until a receive is posted.
 *
 * Thread: token holder.  Owner: the engine.  Blocks: never (tcp_connect() is in tcp_connect.c).
 * Start reading at tcp_progress(). */
#include "transport/tcp/tcp_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EVENTS_MAX 64
#define DRAIN_MAX  64 /* reads per connection of a peer that is down */

static const struct transport_ops tcp_ops;
static void tcp_destroy(struct transport *t);

/* --- peers and connections --- */

struct tcp_peer *tcp_peer_of(const struct tcp *tcp, int32_t rank)
{
    return rank >= 0 && rank < tcp->peer_count ? tcp->peers[rank] : NULL;
}

void tcp_peer_fail(struct tcp_peer *peer, hvd_status_t status, const char *what)
{
    if (peer->status != HVD_OK)
        return;
    peer->status = status;
    snprintf(peer->why, sizeof peer->why, "rank %d on %s %s", peer->rank,
             peer->host_name[0] != '\0' ? peer->host_name : "unknown host", what);
    struct tcp_peer **end = &peer->tcp->downs; /* the first to fail is reported first */
    while (*end != NULL)
        end = &(*end)->down_next;
    peer->down_next = NULL;
    *end = peer;
}

void tcp_conn_todo(struct tcp_conn *conn)
{
    struct tcp *tcp = conn->peer->tcp;

    if (conn->is_todo)
        return;
    conn->is_todo = true;
    conn->todo_next = tcp->todo;
    tcp->todo = conn;
}

/* A poller that rejects the socket is like a broken link: nothing would wake us for it. */
void tcp_conn_poll(struct tcp_conn *conn, bool want_write)
{
    struct tcp *tcp = conn->peer->tcp;
    const struct os *os = tcp->base.os;
    int result = 0;

    if (conn->is_polled && conn->is_write_polled == want_write)
        return;
    if (conn->is_polled)
        result = os->poll_change(os->ctx, tcp->poll, conn->fd, conn, want_write);
    else
        result = os->poll_add(os->ctx, tcp->poll, conn->fd, conn, want_write);
    if (result < 0) {
        tcp_peer_fail(conn->peer, HVD_ERR_OS, "can't be waited for: the poller refused its socket");
        return;
    }
    conn->is_polled = true;
    conn->is_write_polled = want_write;
}

void tcp_conn_unpoll(struct tcp_conn *conn)
{
    const struct os *os = conn->peer->tcp->base.os;

    if (conn->is_polled)
        os->poll_remove(os->ctx, conn->peer->tcp->poll, conn->fd);
    conn->is_polled = false;
    conn->is_write_polled = false;
}

void tcp_conn_close(struct tcp_conn *conn)
{
    const struct os *os = conn->peer->tcp->base.os;

    if (conn->fd < 0)
        return;
    tcp_conn_unpoll(conn);
    os->close(os->ctx, conn->fd);
    conn->fd = -1;
    tcp_seal_end(&conn->seal);
}

hvd_status_t tcp_conn_io_error(struct tcp_conn *conn, int64_t n)
{
    char text[128];

    if (n == -EAGAIN || n == -EINTR)
        return HVD_AGAIN;
    if (n == 0 || n == -ECONNRESET || n == -EPIPE)
        snprintf(text, sizeof text, "closed its connection");
    else
        snprintf(text, sizeof text, "can't be reached any more: %s", strerror((int)-n));
    tcp_peer_fail(conn->peer, HVD_ERR_PEER_DEAD, text);
    return HVD_ERR_PEER_DEAD;
}

static bool flows_init(struct tcp_peer *peer)
{
    struct tcp *tcp = peer->tcp;

    for (int32_t i = 0; i < tcp->flow_count && tcp->security == TCP_SECURITY_TLS; i++) {
        peer->flows[i].out.encrypted = os_alloc(tcp->base.os, TCP_ENCRYPT_MAX);
        if (peer->flows[i].out.encrypted == NULL)
            return false;
    }
    return true;
}

hvd_status_t tcp_peer_new(struct tcp *tcp, int32_t rank, struct tcp_peer **ret)
{
    const struct os *os = tcp->base.os;
    struct tcp_peer *peer = os_alloc(os, sizeof *peer);

    if (peer == NULL)
        return HVD_ERR_NO_MEMORY;
    peer->tcp = tcp;
    peer->rank = rank;
    peer->control.conn = (struct tcp_conn){.tag = TCP_TAG_CONN, .peer = peer, .fd = -1};
    peer->flows = os_alloc(os, (size_t)tcp->flow_count * sizeof *peer->flows);
    for (int32_t i = 0; peer->flows != NULL && i < tcp->flow_count; i++)
        peer->flows[i].conn =
            (struct tcp_conn){.tag = TCP_TAG_CONN, .peer = peer, .fd = -1, .flow = (uint32_t)i + 1};
    if (peer->flows == NULL || !flows_init(peer) || tcp_control_init(peer) != HVD_OK) {
        tcp_peer_free(peer);
        return HVD_ERR_NO_MEMORY;
    }
    *ret = peer;
    return HVD_OK;
}

void tcp_peer_free(struct tcp_peer *peer)
{
    const struct os *os = NULL;

    if (peer == NULL)
        return;
    os = peer->tcp->base.os;
    tcp_conn_close(&peer->control.conn);
    for (int32_t i = 0; peer->flows != NULL && i < peer->tcp->flow_count; i++) {
        tcp_conn_close(&peer->flows[i].conn);
        tcp_flow_end(&peer->flows[i]);
    }
    tcp_control_end(peer);
    os_free(os, peer->flows);
    os_free(os, peer);
}

/* --- progress --- */

static struct tcp_flow *flow_of_conn(struct tcp_conn *conn)
{
    return (struct tcp_flow *)conn; /* a bulk connection is the first member of its flow */
}

static bool conn_event(struct tcp_conn *conn, const struct os_event *event)
{
    struct tcp_flow *flow = conn->flow > 0 ? flow_of_conn(conn) : NULL;
    const bool is_input = event->readable || event->closed;
    bool is_moved = false;

    if (conn->fd >= 0 && event->writable)
        is_moved |= flow == NULL ? tcp_control_write(conn->peer) : tcp_flow_write(flow);
    if (conn->fd < 0 || !is_input)
        return is_moved;
    if (flow == NULL)
        return tcp_control_read(conn->peer) || is_moved;
    if (!flow->is_blocked)
        return tcp_flow_read(flow) || is_moved;
    if (!conn->is_write_polled)
        tcp_conn_unpoll(conn);
    return is_moved;
}

static bool look(struct tcp *tcp)
{
    const struct os *os = tcp->base.os;
    struct os_event events[EVENTS_MAX];
    const int count = os->poll_wait(os->ctx, tcp->poll, events, EVENTS_MAX, 0);
    bool is_moved = false;

    tcp->looked_ns = tcp->now_ns;
    tcp->is_marked = false;
    for (int i = 0; i < count; i++) {
        if (*(const enum tcp_tag *)events[i].tag == TCP_TAG_CONN)
            is_moved |= conn_event(events[i].tag, &events[i]);
    }
    return is_moved;
}

static bool run_todo(struct tcp *tcp)
{
    struct tcp_conn *conn = tcp->todo;
    bool is_moved = false;

    tcp->todo = NULL;
    while (conn != NULL) {
        struct tcp_conn *next = conn->todo_next;

        conn->is_todo = false;
        if (conn->fd >= 0 && conn->flow > 0)
            is_moved |= tcp_flow_work(flow_of_conn(conn));
        conn = next;
    }
    return is_moved;
}

static void beat(struct tcp *tcp)
{
    int64_t beat_ns = config_beat_ns(tcp->config);
    if (tcp->now_ns - tcp->beat_ns < beat_ns / 4)
        return;
    tcp->beat_ns = tcp->now_ns;
    for (int32_t rank = 0; rank < tcp->peer_count; rank++) {
        struct tcp_peer *peer = tcp->peers[rank];

        if (peer == NULL || peer->status != HVD_OK || tcp->now_ns - peer->control.sent_ns < beat_ns)
            continue;
        tcp_control_send(peer, TCP_CONTROL_HEARTBEAT, NULL, 0);
    }
}

/* Data that a peer sent before it left is still in the sockets; its last message may say why it
 * left. */
static void drain(struct tcp_peer *peer)
{
    for (int i = 0; i < DRAIN_MAX && tcp_control_read(peer); i++) {}
    for (int32_t f = 0; f < peer->tcp->flow_count; f++) {
        struct tcp_flow *flow = &peer->flows[f];

        tcp_flow_work(flow);
        for (int i = 0; i < DRAIN_MAX && (flow->in.posted != NULL || flow->in.req != NULL); i++) {
            if (!tcp_flow_read(flow))
                break;
        }
    }
}

/* Other ranks may already have reported why a peer left; their messages come first, so that the
 * cause is known before its consequences. */
static void drain_others(struct tcp *tcp)
{
    for (int32_t rank = 0; rank < tcp->peer_count; rank++) {
        struct tcp_peer *peer = tcp->peers[rank];

        if (peer == NULL || peer->status != HVD_OK)
            continue;
        for (int i = 0; i < DRAIN_MAX && peer->status == HVD_OK && tcp_control_read(peer); i++) {}
    }
}

static void tell_down(struct tcp_peer *peer)
{
    struct tcp *tcp = peer->tcp;

    if (peer->status == HVD_ERR_PEER_DEAD)
        drain(peer);
    for (int32_t i = 0; i < tcp->flow_count; i++) {
        tcp_flow_fail(&peer->flows[i], peer->status);
        tcp_conn_close(&peer->flows[i].conn);
        tcp_flow_end(&peer->flows[i]);
    }
    tcp_conn_close(&peer->control.conn);
    peer->is_told = true;
    if (tcp->base.events.peer_down != NULL)
        tcp->base.events.peer_down(tcp->base.events.ctx, peer->rank, peer->status, peer->why);
}

static bool tcp_progress(struct transport *t, int64_t now_ns)
{
    struct tcp *tcp = (struct tcp *)t;
    bool is_moved = false;

    tcp->now_ns = now_ns;
    if (tcp->todo != NULL)
        is_moved |= run_todo(tcp);
    if (tcp->posted_count > 0 || tcp->is_marked || now_ns - tcp->looked_ns >= TCP_LOOK_INTERVAL_NS)
        is_moved |= look(tcp);
    beat(tcp);
    if (tcp->downs != NULL)
        drain_others(tcp);
    while (tcp->downs != NULL) {
        struct tcp_peer *peer = tcp->downs;

        tcp->downs = peer->down_next;
        tell_down(peer);
        is_moved = true;
    }
    return is_moved;
}

void tcp_event(struct tcp *tcp, const struct os_event *event)
{
    (void)event; /* our one descriptor in the engine's poller represents all sockets */
    tcp->is_marked = true;
}

/* Is there anything in the poller except data without a receive? */
static bool tcp_sleep_begin(struct transport *t)
{
    struct tcp *tcp = (struct tcp *)t;
    const struct os *os = tcp->base.os;
    struct os_event events[EVENTS_MAX];
    bool is_something = tcp->todo != NULL || tcp->downs != NULL;

    while (!is_something) {
        const int count = os->poll_wait(os->ctx, tcp->poll, events, EVENTS_MAX, 0);

        if (count <= 0)
            break;
        for (int i = 0; i < count; i++) {
            struct tcp_conn *conn = events[i].tag;

            if (conn->tag != TCP_TAG_CONN)
                continue;
            if (conn->flow > 0 && flow_of_conn(conn)->is_blocked && !conn->is_write_polled)
                tcp_conn_unpoll(conn);
            else
                is_something = true;
        }
    }
    if (is_something)
        tcp->is_marked = true;
    return !is_something;
}

static void tcp_sleep_end(struct transport *t)
{
    (void)t;
}

/* --- the rest of the table --- */

static bool tcp_reaches(const struct transport *t, int32_t peer)
{
    const struct tcp_peer *p = tcp_peer_of((const struct tcp *)t, peer);

    return p != NULL && p->status == HVD_OK;
}

static hvd_status_t tcp_message_send(struct transport *t, int32_t rank, const void *bytes, size_t n)
{
    struct tcp *tcp = (struct tcp *)t;
    struct tcp_peer *peer = tcp_peer_of(tcp, rank);
    hvd_status_t status = HVD_OK;

    if (peer == NULL || n > TRANSPORT_MESSAGE_MAX)
        return HVD_ERR_INVALID;
    status = tcp_control_send(peer, TCP_CONTROL_MESSAGE, bytes, n);
    if (status == HVD_OK) {
        tcp->messages++;
        tcp->bytes += n;
    }
    return status;
}

static uint8_t *tcp_arena(const struct transport *t, int32_t peer, uint64_t *ret_bytes)
{
    (void)t;
    (void)peer;
    *ret_bytes = 0;
    return NULL;
}

static void tcp_notify(struct transport *t, int32_t peer)
{
    (void)t;
    (void)peer;
}

static void tcp_counters(const struct transport *t, uint64_t *ret_messages, uint64_t *ret_bytes)
{
    *ret_messages = ((const struct tcp *)t)->messages;
    *ret_bytes = ((const struct tcp *)t)->bytes;
}

int64_t tcp_last_heard_ns(const struct tcp *tcp, int32_t peer)
{
    const struct tcp_peer *p = tcp_peer_of(tcp, peer);

    return p == NULL ? 0 : p->heard_ns;
}

static int64_t last_heard_ns(struct transport *t, int32_t peer, int64_t now_ns)
{
    (void)now_ns;
    return tcp_last_heard_ns((struct tcp *)t, peer);
}

struct transport *tcp_transport(struct tcp *tcp)
{
    return &tcp->base;
}

/* --- create and destroy --- */

static const struct {
    const char *name;
    enum tcp_security security;
} levels[] = {{"", TCP_SECURITY_AUTH},
              {"auth", TCP_SECURITY_AUTH},
              {"mac", TCP_SECURITY_MAC},
              {"tls", TCP_SECURITY_TLS},
              {"off", TCP_SECURITY_OFF}};

/* Never weaker than requested: without libcrypto there is no link. */
static hvd_status_t set_security(struct tcp *tcp, const char *name, struct error *error)
{
    size_t i = 0;

    while (i < sizeof levels / sizeof levels[0] && strcmp(levels[i].name, name) != 0)
        i++;
    if (i == sizeof levels / sizeof levels[0])
        return error_set(error, HVD_ERR_CONFIG,
                         "HOROVOD_SECURITY=%s: only auth, mac, tls and off are supported", name);
    tcp->security = levels[i].security;
    tcp->control_tag_bytes = tcp->security == TCP_SECURITY_OFF ? 0 : TCP_TAG_BYTES;
    if (tcp->security != TCP_SECURITY_MAC && tcp->security != TCP_SECURITY_TLS)
        return HVD_OK;
    tcp->tag_bytes = TCP_TAG_BYTES;
    if (cipher_load(tcp->base.os, &tcp->cipher))
        return HVD_OK;
    return error_set(error, HVD_ERR_CONFIG,
                     "HOROVOD_SECURITY=%s needs AES-256-GCM of OpenSSL's libcrypto (libcrypto.so.3 "
                     "or libcrypto.so.1.1), which is not usable on this host; install it or use "
                     "HOROVOD_SECURITY=auth (authentic control frames, checksums of tensors)",
                     name);
}

struct tcp *tcp_new(const struct os *os, int32_t rank, int64_t flows)
{
    struct tcp *tcp = os_alloc(os, sizeof *tcp);

    if (tcp == NULL)
        return NULL;
    tcp->base.ops = &tcp_ops;
    tcp->base.os = os;
    tcp->rank = rank;
    tcp->poll = tcp->poll_out = -1;
    tcp->flow_count = (int32_t)(flows < 1 ? 1 : flows > TCP_FLOWS_MAX ? TCP_FLOWS_MAX : flows);
    tcp->scratch = os_alloc(os, TCP_SCRATCH_BYTES);
    if (tcp->scratch == NULL) {
        os_free(os, tcp);
        return NULL;
    }
    return tcp;
}

hvd_status_t tcp_create(const struct os *os, const struct config *config, int32_t rank,
                        bool is_single_host, struct endpoint *ret_self, struct tcp **ret,
                        struct error *error)
{
    struct tcp *tcp = tcp_new(os, rank, config->tcp_flows);
    struct tcp_offer offer = {0};
    hvd_status_t status = HVD_OK;

    if (tcp == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for the TCP transport");
    tcp->config = config;
    tcp->timeout_ns = (config->timeout_s > 0 ? config->timeout_s : 30) * 1000000000LL;
    status = set_security(tcp, config->security, error);
    if (status == HVD_OK)
        tcp->poll = os->poll_create(os->ctx);
    if (status == HVD_OK && tcp->poll < 0)
        status = error_set_os(error, tcp->poll, "can't make a poller for TCP links");
    if (status == HVD_OK)
        status = tcp_listen(tcp, config, is_single_host, &offer, error);
    if (status == HVD_OK)
        status = tcp_offer_put(ret_self, &offer, error);
    if (status != HVD_OK) {
        tcp_destroy(&tcp->base);
        return status;
    }
    *ret = tcp;
    return HVD_OK;
}

/* Unread bytes would make the kernel reset the connection and drop what it has not sent yet. */
static void say_goodbye(struct tcp_peer *peer)
{
    const struct os *os = peer->tcp->base.os;

    if (peer->status != HVD_OK || peer->control.conn.fd < 0)
        return;
    tcp_control_write(peer);
    for (int i = 0; i < DRAIN_MAX; i++) {
        if (os->recv(os->ctx, peer->control.conn.fd, peer->tcp->scratch, TCP_SCRATCH_BYTES) <= 0)
            break;
    }
}

static void tcp_destroy(struct transport *t)
{
    struct tcp *tcp = (struct tcp *)t;
    const struct os *os = NULL;

    if (t == NULL)
        return;
    os = t->os;
    for (int32_t rank = 0; rank < tcp->peer_count; rank++) {
        if (tcp->peers[rank] != NULL)
            say_goodbye(tcp->peers[rank]);
        tcp_peer_free(tcp->peers[rank]);
    }
    tcp_connecting_free(tcp);
    tcp_listen_end(tcp);
    if (tcp->poll_out >= 0)
        os->poll_remove(os->ctx, tcp->poll_out, tcp->poll);
    if (tcp->poll >= 0)
        os->close(os->ctx, tcp->poll);
    cipher_unload(&tcp->cipher);
    os_free(os, tcp->peers);
    os_free(os, tcp->scratch);
    os_free(os, tcp);
}

static const struct transport_ops tcp_ops = {
    .version = TRANSPORT_VERSION,
    .name = "tcp",
    .reaches = tcp_reaches,
    .message_send = tcp_message_send,
    .bulk_send = tcp_bulk_send,
    .bulk_recv = tcp_bulk_recv,
    .bulk_cancel = tcp_bulk_cancel,
    .progress = tcp_progress,
    .sleep_begin = tcp_sleep_begin,
    .sleep_end = tcp_sleep_end,
    .arena = tcp_arena,
    .notify = tcp_notify,
    .counters = tcp_counters,
    .last_heard_ns = last_heard_ns,
    .destroy = tcp_destroy,
    .bulk_open = tcp_bulk_open,
    .bulk_close = tcp_bulk_close,
};
