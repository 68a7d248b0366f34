/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_connect.c - from endpoints to authenticated connections.
 *
 * The higher rank dials the lower one. For the control connection it tries all addresses at once;
 * the first that authenticates is chosen, the others are closed. Bulk flows then use the address
 * that won. A socket is pending until it is authenticated and both sides have sent OPEN:
 *
 *      dialer     DIALING  PROVING  SENDING_OPEN  AWAITING_OPEN  -> a struct tcp_conn
 *      listener            PROVING  AWAITING_OPEN  SENDING_OPEN  -> a struct tcp_conn
 *
 * From OPEN the listener learns which of several authenticated sockets the dialer kept. A dialer
 * that lost a socket after that dials again; the listener then uses the newest.
 *
 * Strangers, sockets without a verified hello, compete among themselves for TCP_STRANGERS_MAX slots
 * and have 2 seconds; the oldest that has sent nothing is closed first. A socket whose hello is
 * verified is never closed for another. Thread: token holder.  Blocks: tcp_connect(), up to its
 * limit. Invariant: place->dialing counts the pending sockets of a place.  Start at tcp_connect().
 */
#include "transport/tcp/tcp_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/sha256.h"
#include "base/socket.h"

#define EVENTS_MAX       64
#define TICK_NS          50000000LL
#define BACKOFF_FIRST_NS 50000000LL
#define BACKOFF_LAST_NS  1000000000LL
#define PENDING_MAX      (TCP_ACCEPTS_MAX + TCP_DIALS_MAX)

enum pending_state { FREE, DIALING, PROVING, SENDING_OPEN, AWAITING_OPEN };

struct pending {
    enum tcp_tag tag; /* first */
    enum pending_state state;
    int fd;
    bool is_dialer, is_chosen;
    bool is_verified;       /* listener: the hello was made with the key */
    struct tcp_conn *place; /* listener: once proven */
    int32_t address;        /* dialer: which of the peer's */
    int64_t begin_ns;
    uint64_t number; /* in the order of their beginning */
    struct handshake handshake;
    struct tcp_seal seal; /* once proven */
    uint8_t open[TCP_CONTROL_HEAD + TCP_TAG_BYTES];
    uint32_t open_done;
};

struct tcp_connecting {
    uint8_t key[32];
    struct error refused; /* the last stranger's fault, for messages */
    int32_t dials, accepts, strangers;
    uint64_t evicted, begun;
    int32_t missing; /* places still to fill */
    struct pending pendings[PENDING_MAX];
};

/* --- sockets --- */

static void set_int(const struct os *os, int fd, int level, int name, int value)
{
    os->sockopt_set(os->ctx, fd, level, name, &value, sizeof value);
}

/* A machine that vanished silently is detected within about half a minute even when idle. */
static void tune_socket(const struct os *os, int fd)
{
    set_int(os, fd, IPPROTO_TCP, TCP_NODELAY, 1);
    socket_keepalive(os, fd, 10, 5, 4, 30000);
}

/* --- pending sockets --- */

static struct pending *pending_new(struct tcp *tcp, int fd, bool is_dialer, bool want_write)
{
    struct tcp_connecting *c = tcp->connecting;
    const struct os *os = tcp->base.os;
    struct pending *p = NULL;

    if (is_dialer ? c->dials >= TCP_DIALS_MAX : c->accepts >= TCP_ACCEPTS_MAX)
        return NULL;
    for (int i = 0; i < PENDING_MAX && p == NULL; i++) {
        if (c->pendings[i].state == FREE)
            p = &c->pendings[i];
    }
    if (p == NULL)
        return NULL;
    *p = (struct pending){.tag = TCP_TAG_PENDING, .fd = fd, .is_dialer = is_dialer};
    if (os->poll_add(os->ctx, tcp->poll, fd, p, want_write) < 0)
        return NULL;
    p->state = is_dialer ? DIALING : PROVING;
    p->begin_ns = tcp->now_ns;
    p->number = ++c->begun;
    if (is_dialer) {
        c->dials++;
    } else {
        c->accepts++;
        c->strangers++;
    }
    return p;
}

/* Frees the slot, does not close the descriptor. */
static void pending_release(struct tcp *tcp, struct pending *p)
{
    struct tcp_connecting *c = tcp->connecting;

    tcp->base.os->poll_remove(tcp->base.os->ctx, tcp->poll, p->fd);
    handshake_end(&p->handshake);
    tcp_seal_end(&p->seal);
    if (p->is_dialer) {
        c->dials--;
        p->place->dialing--;
        if (p->is_chosen)
            p->place->is_claimed = false;
    } else {
        c->accepts--;
        c->strangers -= p->is_verified ? 0 : 1;
    }
    p->state = FREE;
}

static void pending_close(struct tcp *tcp, struct pending *p)
{
    pending_release(tcp, p);
    tcp->base.os->close(tcp->base.os->ctx, p->fd);
}

static void dial_later(struct tcp *tcp, struct tcp_conn *place)
{
    if (place->backoff_ns == 0)
        place->backoff_ns = BACKOFF_FIRST_NS;
    place->retry_ns = tcp->now_ns + place->backoff_ns;
    place->backoff_ns *= 2;
    if (place->backoff_ns > BACKOFF_LAST_NS)
        place->backoff_ns = BACKOFF_LAST_NS;
}

/* The most useful error for the user: an authentication failure rather than a refused port. */
static void note_cause(struct tcp_peer *peer, int32_t address, const struct error *cause)
{
    char text[64];

    if ((peer->dial_error.status == HVD_ERR_AUTH || peer->dial_error.status == HVD_ERR_STALE) &&
        cause->status != HVD_ERR_AUTH && cause->status != HVD_ERR_STALE)
        return;
    tcp_address_text(peer->addresses[address], text, sizeof text);
    error_clear(&peer->dial_error);
    error_set(&peer->dial_error, cause->status, "%s: %.600s", text, cause->text);
}

static void pending_fail(struct tcp *tcp, struct pending *p, const struct error *cause)
{
    struct tcp_conn *place = p->place;

    if (!p->is_dialer) {
        struct error *refused = &tcp->connecting->refused;

        /* a connection that was merely closed is less informative than one that was refused for a
         * reason */
        if (refused->status == HVD_OK || cause->status != HVD_ERR_LINK)
            *refused = *cause;
        pending_close(tcp, p);
        return;
    }
    note_cause(place->peer, p->address, cause);
    pending_close(tcp, p);
    if (place->dialing == 0)
        dial_later(tcp, place);
}

static void pending_fail_os(struct tcp *tcp, struct pending *p, int neg_errno)
{
    struct error cause;

    error_clear(&cause);
    error_set(&cause, HVD_ERR_LINK, "%s", strerror(-neg_errno));
    pending_fail(tcp, p, &cause);
}

static void close_rivals(struct tcp *tcp, const struct tcp_conn *place)
{
    struct tcp_connecting *c = tcp->connecting;

    for (int i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &c->pendings[i];

        if (p->state != FREE && p->is_dialer && p->place == place)
            pending_close(tcp, p);
    }
}

static void adopt(struct tcp *tcp, struct pending *p)
{
    struct tcp_conn *place = p->place;
    const int fd = p->fd;
    struct tcp_seal seal = p->seal;

    p->seal = (struct tcp_seal){0}; /* it moves */
    if (p->is_dialer && place->flow == 0)
        place->peer->address_won = p->address;
    pending_release(tcp, p);
    if (place->fd >= 0)
        tcp_conn_close(place);
    else
        tcp->connecting->missing--;
    place->fd = fd;
    place->seal = seal;
    bytes_wipe(&seal, sizeof seal);
    place->peer->heard_ns = -1;
    tune_socket(tcp->base.os, fd);
    close_rivals(tcp, place);
}

/* --- the steps of one pending socket --- */

/* The contents of both hellos, under the handshake's MAC. */
static uint32_t word_of(const struct tcp *tcp, uint32_t flow)
{
    return (uint32_t)tcp->security << 28 | (uint32_t)tcp->flow_count << 16 | flow;
}

/* Ranks that were started with different numbers of flows would wait for each other forever. */
static hvd_status_t check_word(const struct tcp *tcp, uint32_t word, struct error *error)
{
    static const char *const names[] = {"auth", "mac", "tls", "off"};
    const uint32_t flows = word >> 16 & 0xfffu, flow = word & 0xffffu, security = word >> 28;

    if (security != (uint32_t)tcp->security)
        return error_set(
            error, HVD_ERR_CONFIG, "ranks disagree on HOROVOD_SECURITY: %s there, %s here",
            security <= TCP_SECURITY_OFF ? names[security] : "unknown", names[tcp->security]);

    if (flows != (uint32_t)tcp->flow_count)
        return error_set(error, HVD_ERR_CONFIG,
                         "ranks disagree on HOROVOD_TCP_FLOWS: %u there, %d here", flows,
                         tcp->flow_count);
    if (flow > flows)
        return error_set(error, HVD_ERR_AUTH, "asked for flow %u of %u", flow, flows);
    return HVD_OK;
}

static hvd_status_t listener_proven(struct tcp *tcp, struct pending *p, struct error *error)
{
    const uint32_t flow = p->handshake.peer_word & 0xffffu;
    struct tcp_peer *peer = tcp_peer_of(tcp, p->handshake.peer_rank);

    if (peer == NULL || peer->rank <= tcp->rank)
        return error_set(error, HVD_ERR_AUTH, "rank %d is not expected to dial this rank",
                         p->handshake.peer_rank);
    p->place = flow == 0 ? &peer->control.conn : &peer->flows[flow - 1].conn;
    p->state = AWAITING_OPEN;
    return HVD_OK;
}

static uint32_t open_bytes(const struct tcp *tcp)
{
    return TCP_CONTROL_HEAD + tcp->control_tag_bytes;
}

static bool open_write(struct tcp *tcp, struct pending *p)
{
    const struct tcp_control_frame frame = {TCP_CONTROL_OPEN, 0, tcp->epoch, 0};

    tcp_control_encode(&frame, NULL, p->open);
    p->open_done = 0;
    p->state = SENDING_OPEN;
    if (tcp->control_tag_bytes == 0)
        return true;
    if (!tcp_seal_frame(&p->seal, p->open, TCP_CONTROL_HEAD, NULL, 0, NULL,
                        p->open + TCP_CONTROL_HEAD)) {
        pending_fail_os(tcp, p, -EIO);
        return false;
    }
    p->seal.sent++;
    return true;
}

static hvd_status_t open_read(struct tcp *tcp, struct pending *p, struct error *error)
{
    struct tcp_control_frame frame;
    hvd_status_t status = tcp_control_decode(p->open, open_bytes(tcp), tcp->control_tag_bytes,
                                             tcp->epoch, 0, &frame, error);

    if (status == HVD_OK && (frame.type != TCP_CONTROL_OPEN || frame.length != 0))
        status = error_set(error, HVD_ERR_CORRUPT, "did not open the connection");
    if (status != HVD_OK || tcp->control_tag_bytes == 0)
        return status == HVD_AGAIN
                   ? error_set(error, HVD_ERR_CORRUPT, "did not open the connection")
                   : status;
    tcp_open_begin(&p->seal, p->open, TCP_CONTROL_HEAD);
    tcp_open_update(&p->seal, NULL, 0);
    if (tcp_open_end(&p->seal, p->open + TCP_CONTROL_HEAD))
        return HVD_OK;
    return error_set(error, HVD_ERR_CORRUPT,
                     "sent a control frame that is not authentic: it was changed on the way");
}

/* The first to authenticate is kept; a second one is closed without an error. */
static bool dialer_proven(struct tcp *tcp, struct pending *p)
{
    if (p->place->is_claimed || p->place->fd >= 0) {
        pending_close(tcp, p);
        return false;
    }
    p->place->is_claimed = true;
    p->is_chosen = true;
    return open_write(tcp, p);
}

/* A hello that another socket has sent, too, is a replay: it gets no slot. */
static bool is_recorded(const struct tcp *tcp, const struct pending *p)
{
    const struct tcp_connecting *c = tcp->connecting;

    for (int i = 0; i < PENDING_MAX; i++) {
        const struct pending *other = &c->pendings[i];

        if (other != p && other->state == PROVING && other->is_verified &&
            handshake_is_same_hello(&other->handshake, &p->handshake))
            return true;
    }
    return false;
}

/* From here on no stranger can take its slot. */
static hvd_status_t note_verified(struct tcp *tcp, struct pending *p, struct error *error)
{
    if (p->is_dialer || p->is_verified || !handshake_is_hello_verified(&p->handshake))
        return HVD_OK;
    p->is_verified = true;
    p->begin_ns = tcp->now_ns;
    tcp->connecting->strangers--;
    if (is_recorded(tcp, p))
        return error_set(error, HVD_ERR_AUTH, "repeated the first message of another connection");
    return HVD_OK;
}

/* False: the pending socket was closed or has to wait. */
static bool step_proving(struct tcp *tcp, struct pending *p)
{
    const struct os *os = tcp->base.os;
    struct error error;
    hvd_status_t status = HVD_OK;

    error_clear(&error);
    status = handshake_step(&p->handshake, os, p->fd, &error);
    if (status >= 0 && note_verified(tcp, p, &error) != HVD_OK)
        status = HVD_ERR_AUTH;
    if (status == HVD_IN_PROGRESS) {
        os->poll_change(os->ctx, tcp->poll, p->fd, p, handshake_wants_write(&p->handshake));
        return false;
    }
    if (status == HVD_OK)
        status = check_word(tcp, p->handshake.peer_word, &error);
    if (status == HVD_OK && tcp_seal_begin(&p->seal, &tcp->cipher, tcp->security,
                                           p->handshake.send_key, p->handshake.recv_key) != HVD_OK)
        status = error_set(&error, HVD_ERR_NO_MEMORY, "no memory for a cipher");
    if (status == HVD_OK && !p->is_dialer)
        status = listener_proven(tcp, p, &error);
    if (status != HVD_OK) {
        pending_fail(tcp, p, &error);
        return false;
    }
    return p->is_dialer ? dialer_proven(tcp, p) : true;
}

static bool step_dialing(struct tcp *tcp, struct pending *p)
{
    const struct os *os = tcp->base.os;
    int result = 0;
    unsigned length = sizeof result;
    const int rc = os->sockopt_get(os->ctx, p->fd, SOL_SOCKET, SO_ERROR, &result, &length);

    if (rc < 0 || result != 0) {
        pending_fail_os(tcp, p, rc < 0 ? rc : -result);
        return false;
    }
    p->state = PROVING;
    return true;
}

static bool step_sending(struct tcp *tcp, struct pending *p)
{
    const struct os *os = tcp->base.os;
    struct iovec iov = {p->open + p->open_done, open_bytes(tcp) - p->open_done};
    const int64_t n = os->send(os->ctx, p->fd, &iov, 1);

    if (n == -EAGAIN) {
        os->poll_change(os->ctx, tcp->poll, p->fd, p, true);
        return false;
    }
    if (n < 0) {
        pending_fail_os(tcp, p, (int)n);
        return false;
    }
    p->open_done += (uint32_t)n;
    if (p->open_done < open_bytes(tcp))
        return true;
    if (!p->is_dialer) {
        adopt(tcp, p);
        return false;
    }
    os->poll_change(os->ctx, tcp->poll, p->fd, p, false);
    p->open_done = 0;
    p->state = AWAITING_OPEN;
    return true;
}

static bool step_awaiting(struct tcp *tcp, struct pending *p)
{
    const struct os *os = tcp->base.os;
    struct error error;
    const int64_t n =
        os->recv(os->ctx, p->fd, p->open + p->open_done, open_bytes(tcp) - p->open_done);

    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        pending_fail_os(tcp, p, n == 0 ? -ECONNRESET : (int)n);
        return false;
    }
    p->open_done += (uint32_t)n;
    if (p->open_done < open_bytes(tcp))
        return true;
    error_clear(&error);
    if (open_read(tcp, p, &error) != HVD_OK) {
        pending_fail(tcp, p, &error);
        return false;
    }
    if (p->is_dialer) {
        adopt(tcp, p);
        return false;
    }
    return open_write(tcp, p);
}

static void pending_step(struct tcp *tcp, struct pending *p)
{
    bool is_going_on = true;

    while (is_going_on) {
        switch (p->state) {
        case FREE: is_going_on = false; break;
        case DIALING: is_going_on = step_dialing(tcp, p); break;
        case PROVING: is_going_on = step_proving(tcp, p); break;
        case SENDING_OPEN: is_going_on = step_sending(tcp, p); break;
        case AWAITING_OPEN: is_going_on = step_awaiting(tcp, p); break;
        }
    }
}

static void expire(struct tcp *tcp)
{
    struct tcp_connecting *c = tcp->connecting;

    for (int i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &c->pendings[i];
        const int64_t limit_ns =
            p->is_dialer || p->is_verified ? TCP_HANDSHAKE_NS : TCP_STRANGER_NS;
        struct error cause;

        /* Once it has our OPEN the listener may count on this connection: only the listener may
         * abandon it. */
        if (p->state == FREE || (p->is_dialer && p->is_chosen))
            continue;
        if (tcp->now_ns - p->begin_ns <= limit_ns)
            continue;
        error_clear(&cause);
        error_set(&cause, HVD_ERR_LINK, "no answer within %lld seconds",
                  (long long)(limit_ns / 1000000000));
        pending_fail(tcp, p, &cause);
    }
}

/* --- dialing --- */

static void dial_address(struct tcp *tcp, struct tcp_conn *place, int32_t address)
{
    const struct os *os = tcp->base.os;
    struct tcp_peer *peer = place->peer;
    struct sockaddr_storage sa;
    const unsigned length = tcp_sockaddr(peer->addresses[address], peer->port, &sa);
    const int fd = os->socket(os->ctx, sa.ss_family, SOCK_STREAM);
    struct pending *p = NULL;
    struct error cause;
    int result = fd;

    error_clear(&cause);
    if (fd >= 0) {
        set_int(os, fd, IPPROTO_TCP, TCP_NODELAY, 1);
        result = os->connect(os->ctx, fd, (const struct sockaddr *)&sa, length);
    }
    if (result >= 0 || result == -EINPROGRESS)
        p = pending_new(tcp, fd, true, true);
    if (p == NULL) {
        error_set(&cause, HVD_ERR_LINK, "%s", strerror(result < 0 ? -result : ENOMEM));
        note_cause(peer, address, &cause);
        if (fd >= 0)
            os->close(os->ctx, fd);
        return;
    }
    p->place = place;
    p->address = address;
    place->dialing++;
    if (handshake_begin(&p->handshake, os, HANDSHAKE_TCP, true, tcp->connecting->key, tcp->epoch,
                        tcp->rank, peer->rank, word_of(tcp, place->flow)) != HVD_OK)
        pending_fail_os(tcp, p, -EIO);
}

static void dial_place(struct tcp *tcp, struct tcp_conn *place)
{
    struct tcp_peer *peer = place->peer;

    if (place->fd >= 0 || place->dialing > 0 || tcp->now_ns < place->retry_ns)
        return;
    if (place->flow > 0 && peer->control.conn.fd < 0)
        return;
    if (tcp->connecting->dials + peer->address_count > TCP_DIALS_MAX)
        return;
    if (place->flow > 0) {
        dial_address(tcp, place, peer->address_won);
    } else {
        for (int32_t i = 0; i < peer->address_count; i++)
            dial_address(tcp, place, i);
    }
    if (place->dialing == 0)
        dial_later(tcp, place);
}

/* Nearest lower rank first, so that not all ranks start with rank 0. */
static void dial_all(struct tcp *tcp)
{
    for (int32_t rank = tcp->rank - 1; rank >= 0; rank--) {
        struct tcp_peer *peer = tcp_peer_of(tcp, rank);

        if (peer == NULL)
            continue;
        dial_place(tcp, &peer->control.conn);
        for (int32_t i = 0; i < tcp->flow_count; i++)
            dial_place(tcp, &peer->flows[i].conn);
    }
}

/* --- listening --- */

static bool is_stranger(const struct pending *p)
{
    return p->state == PROVING && !p->is_dialer && !p->is_verified;
}

static bool is_staler(const struct pending *a, const struct pending *b)
{
    const bool is_a_idle = handshake_is_idle(&a->handshake);
    const bool is_b_idle = handshake_is_idle(&b->handshake);

    return is_a_idle != is_b_idle ? is_a_idle : a->number < b->number;
}

/* Frees one slot; false: there is no stranger. Its data may still be in the socket, so the socket
 * is checked once more. */
static bool stranger_evict(struct tcp *tcp)
{
    struct tcp_connecting *c = tcp->connecting;
    const int32_t before = c->strangers;

    while (c->strangers == before) {
        struct pending *stalest = NULL;

        for (int i = 0; i < PENDING_MAX; i++) {
            struct pending *p = &c->pendings[i];

            if (is_stranger(p) && (stalest == NULL || is_staler(p, stalest)))
                stalest = p;
        }
        if (stalest == NULL)
            return false;
        pending_step(tcp, stalest);
        if (is_stranger(stalest)) {
            pending_close(tcp, stalest);
            c->evicted++;
        }
    }
    return true;
}

/* False: no connection to accept now. */
static bool accept_one(struct tcp *tcp, const struct tcp_listener *listener)
{
    const struct os *os = tcp->base.os;
    struct tcp_connecting *c = tcp->connecting;
    struct pending *p = NULL;
    int fd = -1;

    if (c->strangers >= TCP_STRANGERS_MAX)
        stranger_evict(tcp);
    if (c->accepts >= TCP_ACCEPTS_MAX)
        return false;
    fd = os->accept(os->ctx, listener->fd, NULL, NULL);
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS)
        return stranger_evict(tcp);
    if (fd < 0)
        return false;
    set_int(os, fd, IPPROTO_TCP, TCP_NODELAY, 1);
    p = pending_new(tcp, fd, false, false);
    if (p == NULL) {
        os->close(os->ctx, fd);
        return false;
    }
    if (handshake_begin(&p->handshake, os, HANDSHAKE_TCP, false, c->key, tcp->epoch, tcp->rank,
                        HANDSHAKE_ANY_RANK, word_of(tcp, 0)) != HVD_OK)
        pending_close(tcp, p);
    else
        pending_step(tcp, p); /* its hello may have arrived */
    return true;
}

static void accept_all(struct tcp *tcp, const struct tcp_listener *listener)
{
    for (int i = 0; i < TCP_STRANGERS_MAX && accept_one(tcp, listener); i++) {}
}

static hvd_status_t listen_begin(struct tcp *tcp, struct error *error)
{
    const struct os *os = tcp->base.os;

    for (int32_t i = 0; i < tcp->listener_count; i++) {
        struct tcp_listener *l = &tcp->listeners[i];
        const int result = os->poll_add(os->ctx, tcp->poll, l->fd, l, false);

        if (result < 0)
            return error_set_os(error, result, "can't wait for other ranks");
    }
    return HVD_OK;
}

/* --- the whole --- */

void tcp_connecting_free(struct tcp *tcp)
{
    if (tcp->connecting == NULL)
        return;
    for (int i = 0; i < PENDING_MAX; i++) {
        if (tcp->connecting->pendings[i].state != FREE)
            pending_close(tcp, &tcp->connecting->pendings[i]);
    }
    bytes_wipe(tcp->connecting->key, sizeof tcp->connecting->key);
    os_free(tcp->base.os, tcp->connecting);
    tcp->connecting = NULL;
}

/* A loopback address of another machine would be one of our own. */
static void take_addresses(struct tcp_peer *peer, const struct endpoint *theirs,
                           const struct endpoint *own)
{
    const bool is_elsewhere = theirs->host_id[0] != '\0' && own->host_id[0] != '\0' &&
                              strncmp(theirs->host_id, own->host_id, sizeof own->host_id) != 0;

    struct tcp_offer offer = {0};

    if (!tcp_offer_get(theirs, &offer))
        offer.address_count = 0;
    for (int32_t i = 0; i < offer.address_count; i++) {
        if (is_elsewhere && tcp_address_is_loopback(offer.addresses[i]))
            continue;
        memcpy(peer->addresses[peer->address_count++], offer.addresses[i], 16);
    }
    peer->port = offer.port;
    snprintf(peer->host_name, sizeof peer->host_name, "%.63s", theirs->host_name);
}

static hvd_status_t make_peers(struct tcp *tcp, const struct endpoint *all, int32_t count,
                               const bool *wanted, struct error *error)
{
    tcp->peers = os_alloc(tcp->base.os, (size_t)(count > 0 ? count : 1) * sizeof *tcp->peers);
    if (tcp->peers == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d TCP peers", count);
    tcp->peer_count = count;
    for (int32_t rank = 0; rank < count; rank++) {
        struct tcp_peer *peer = NULL;

        if (rank == tcp->rank || !wanted[rank])
            continue;
        if (tcp_peer_new(tcp, rank, &peer) != HVD_OK)
            return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d TCP peers", count);
        tcp->peers[rank] = peer;
        tcp->connecting->missing += 1 + tcp->flow_count;
        take_addresses(peer, &all[rank], &all[tcp->rank]);
        if (rank < tcp->rank && (peer->address_count == 0 || peer->port == 0))
            return error_set(error, HVD_ERR_LINK, "rank %d on %.63s offers no TCP address", rank,
                             peer->host_name);
    }
    return HVD_OK;
}

static bool is_missing(const struct tcp *tcp, const struct tcp_peer *peer)
{
    if (peer == NULL)
        return false;
    for (int32_t i = 0; i < tcp->flow_count; i++) {
        if (peer->flows[i].conn.fd < 0)
            return true;
    }
    return peer->control.conn.fd < 0;
}

static hvd_status_t say_missing_dialed(const struct tcp *tcp, const struct tcp_peer *peer,
                                       struct error *error)
{
    char list[TCP_ADDRESSES_MAX * 48] = "";
    size_t used = 0;
    const struct error *cause = &peer->dial_error;

    for (int32_t i = 0; i < peer->address_count; i++) {
        char text[48];

        tcp_address_text(peer->addresses[i], text, sizeof text);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", text);
    }
    return error_set(error, cause->status != HVD_OK ? cause->status : HVD_ERR_LINK,
                     "no TCP link to rank %d on %s within %lld s; tried %s port %u (last: %.400s)",
                     peer->rank, peer->host_name, (long long)(tcp->timeout_ns / 1000000000), list,
                     peer->port, cause->status != HVD_OK ? cause->text : "no answer");
}

static hvd_status_t say_missing(const struct tcp *tcp, struct error *error)
{
    const struct error *refused = &tcp->connecting->refused;

    for (int32_t rank = 0; rank < tcp->peer_count; rank++) {
        const struct tcp_peer *peer = tcp->peers[rank];

        if (!is_missing(tcp, peer))
            continue;
        if (rank < tcp->rank)
            return say_missing_dialed(tcp, peer, error);
        char strangers[96] = "";
        if (tcp->connecting->evicted > 0)
            snprintf(strangers, sizeof strangers,
                     "; meanwhile %llu connections that did not prove the job key were dropped",
                     (unsigned long long)tcp->connecting->evicted);
        if (refused->status != HVD_OK)
            return error_set(error, refused->status,
                             "rank %d on %s did not connect within %lld s (last refused: %.400s)%s",
                             rank, peer->host_name, (long long)(tcp->timeout_ns / 1000000000),
                             refused->text, strangers);
        return error_set(error, HVD_ERR_LINK, "rank %d on %s did not connect within %lld s%s", rank,
                         peer->host_name, (long long)(tcp->timeout_ns / 1000000000), strangers);
    }
    return HVD_OK;
}

static void handle_events(struct tcp *tcp, struct os_event *events, int count)
{
    for (int i = 0; i < count; i++) {
        switch (*(const enum tcp_tag *)events[i].tag) {
        case TCP_TAG_LISTENER: accept_all(tcp, events[i].tag); break;
        case TCP_TAG_PENDING: pending_step(tcp, events[i].tag); break;
        case TCP_TAG_CONN: break;
        }
    }
}

static hvd_status_t connect_all(struct tcp *tcp, struct error *error)
{
    const struct os *os = tcp->base.os;
    const int64_t end_ns = os_now_ns(os) + tcp->timeout_ns;
    struct os_event events[EVENTS_MAX];

    for (;;) {
        int count = 0;

        tcp->now_ns = os_now_ns(os);
        expire(tcp);
        dial_all(tcp);
        if (tcp->connecting->missing == 0)
            return HVD_OK;
        if (tcp->now_ns >= end_ns)
            return say_missing(tcp, error);
        if (transport_is_over(&tcp->base.events))
            return error_set(error, HVD_ERR_STALE,
                             "epoch %llu was given up while its ranks connected",
                             (unsigned long long)tcp->epoch);
        count = os->poll_wait(os->ctx, tcp->poll, events, EVENTS_MAX, TICK_NS);
        if (count < 0 && count != -EINTR)
            return error_set_os(error, count, "waiting for other ranks failed");
        handle_events(tcp, events, count);
    }
}

/* From here on the sockets belong to progress(). */
static hvd_status_t start_links(struct tcp *tcp, int poll_fd, struct error *error)
{
    const struct os *os = tcp->base.os;
    int result = 0;

    for (int32_t rank = 0; rank < tcp->peer_count; rank++) {
        struct tcp_peer *peer = tcp->peers[rank];

        if (peer == NULL)
            continue;
        peer->control.sent_ns =
            tcp->now_ns - config_beat_ns(tcp->config); /* the first one is due */
        tcp_conn_poll(&peer->control.conn, false);
        for (int32_t i = 0; i < tcp->flow_count; i++)
            tcp_conn_poll(&peer->flows[i].conn, false);
    }
    if (poll_fd < 0)
        return HVD_OK;
    result = os->poll_add(os->ctx, poll_fd, tcp->poll, tcp, false);
    if (result < 0)
        return error_set_os(error, result, "can't wait for TCP links");
    tcp->poll_out = poll_fd;
    return HVD_OK;
}

hvd_status_t tcp_connect(struct tcp *tcp, const struct endpoint *all, int32_t count,
                         const bool *wanted, const uint8_t key[32], uint64_t epoch, int poll_fd,
                         const struct transport_events *events, struct error *error)
{
    hvd_status_t status = HVD_OK;

    if (tcp->peers != NULL || tcp->rank < 0 || tcp->rank >= count)
        return error_set(error, HVD_ERR_INVALID, "tcp_connect: called twice, or not a rank of %d",
                         count);
    tcp->epoch = epoch;
    tcp->base.events = *events;
    tcp->connecting = os_alloc(tcp->base.os, sizeof *tcp->connecting);
    if (tcp->connecting == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory to connect to other ranks");
    memcpy(tcp->connecting->key, key, sizeof tcp->connecting->key);
    status = make_peers(tcp, all, count, wanted, error);
    if (status == HVD_OK)
        status = listen_begin(tcp, error);
    if (status == HVD_OK)
        status = connect_all(tcp, error);
    tcp_connecting_free(tcp);
    tcp_listen_end(tcp);
    if (status == HVD_OK)
        status = start_links(tcp, poll_fd, error);
    return status;
}
