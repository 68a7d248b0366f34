/* SPDX-License-Identifier: Apache-2.0 */
/* shm_connect.c - connects the ranks on one machine.
 *
 * Every rank listens on its local socket; of two ranks the higher one dials. A link then goes
 * through: handshake (both prove the job key), introduction (memfd and bell passed in both
 * directions), acceptance (one byte each way once the other's memory is mapped: so either both or
 * neither count as connected). All links advance at once, driven by the poller; 128 ranks on two
 * cores do this in a second or two.
 *
 * Connections of other users are dropped at accept. Of our own user's, those without a verified
 * hello compete for PENDING_EXTRA slots; a link whose hello is verified is never dropped for them.
 *
 * Thread: token holder.  Blocks: at most config->timeout_s.  Start reading at shm_connect(). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/socket.h"
#include "transport/shm/shm_internal.h"
#include "wire/peercred.h"

#define DIAL_RETRY_NS    2000000
#define PENDING_EXTRA    128 /* strangers that may be shaking hands at the same time */
#define EVENTS_AT_ONCE   64
#define ACCEPTED_BYTE    0x4b
#define INTRO_FDS        2
#define ACCEPTS_PER_TURN 1024 /* then links get their turn */

enum link_state { LINK_FREE, LINK_DIAL, LINK_HANDSHAKE, LINK_INTRO, LINK_ACCEPT, LINK_UP };

struct intro {
    uint64_t magic;
    uint32_t layout;
    int32_t rank;
    uint64_t bytes;
    uint32_t local_count;
    uint32_t local;
};

struct link {
    enum link_state state;
    int fd;
    struct shm_peer *peer; /* NULL until it has proven who it is */
    struct handshake handshake;
    bool is_intro_sent, is_accept_sent, wants_write;
    uint64_t number; /* in the order of accepting */
};

struct connecting {
    struct shm *shm;
    const struct endpoint *all;
    const bool *wanted; /* by world rank; NULL: all ranks on this machine */
    const uint8_t *key;
    uint64_t epoch;
    struct link *links;
    int32_t capacity;
    int32_t open;   /* peers that are neither connected nor abandoned */
    bool has_dials; /* some dial must be tried again */
    uint64_t accepted, foreign, evicted;
};

static bool is_wanted(const struct connecting *c, const struct shm_peer *peer)
{
    return peer->rank != c->shm->rank && (c->wanted == NULL || c->wanted[peer->rank]);
}

/* --- closing a link --- */

static void peer_forget(struct shm *shm, struct shm_peer *peer)
{
    const struct os *os = shm->base.os;
    if (peer->segment != NULL)
        os->unmap(os->ctx, peer->segment, peer->bytes);
    peer->segment = NULL;
    if (peer->bell >= 0)
        os->close(os->ctx, peer->bell);
    peer->bell = -1;
}

static void link_close(struct connecting *c, struct link *link)
{
    const struct os *os = c->shm->base.os;
    if (link->state == LINK_FREE)
        return;
    if (link->fd >= 0) {
        os->poll_remove(os->ctx, c->shm->inner_poll, link->fd);
        os->close(os->ctx, link->fd);
    }
    if (link->peer != NULL) {
        peer_forget(c->shm, link->peer);
        c->open--;
    }
    handshake_end(&link->handshake);
    *link = (struct link){.fd = -1};
}

static void link_up(struct connecting *c, struct link *link)
{
    const struct os *os = c->shm->base.os;
    struct shm_peer *peer = link->peer;
    peer->fd = link->fd;
    os->poll_remove(os->ctx, c->shm->inner_poll, link->fd);
    if (os->poll_add(os->ctx, c->shm->inner_poll, link->fd, peer, false) < 0) {
        peer->fd = -1;
        link_close(c, link);
        return;
    }
    shm_peer_attach(c->shm, peer);
    peer->is_up = true;
    shm_todo(c->shm, peer); /* it may have written already */
    c->open--;
    handshake_end(&link->handshake);
    *link = (struct link){.fd = -1};
}

static void link_want(struct connecting *c, struct link *link, bool wants_write)
{
    const struct os *os = c->shm->base.os;
    if (link->wants_write == wants_write)
        return;
    link->wants_write = wants_write;
    os->poll_change(os->ctx, c->shm->inner_poll, link->fd, link, wants_write);
}

/* --- introduction --- */

static int64_t intro_send(struct shm *shm, int fd)
{
    const struct os *os = shm->base.os;
    struct intro intro = {.magic = SHM_MAGIC,
                          .layout = SHM_LAYOUT,
                          .rank = shm->rank,
                          .bytes = shm->bytes,
                          .local_count = (uint32_t)shm->peer_count,
                          .local = (uint32_t)shm->local};
    struct iovec iov = {.iov_base = &intro, .iov_len = sizeof intro};
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(INTRO_FDS * sizeof(int))] = {0};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(INTRO_FDS * sizeof(int));
    int fds[INTRO_FDS] = {shm->segment_fd, shm->bell};
    memcpy(CMSG_DATA(head), fds, sizeof fds);
    int64_t n = os->sendmsg(os->ctx, fd, &msg);
    return n < 0 || n == (int64_t)sizeof intro ? n : -EPROTO;
}

/* Collects every descriptor that arrived; closes unexpected ones. */
static int fds_collect(const struct os *os, struct msghdr *msg, int ret_fds[INTRO_FDS])
{
    int count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head != NULL; head = CMSG_NXTHDR(msg, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
            if (count < INTRO_FDS)
                ret_fds[count++] = fd;
            else
                os->close(os->ctx, fd);
        }
    }
    return count;
}

static bool intro_is_good(const struct shm *shm, const struct shm_peer *peer,
                          const struct intro *intro)
{
    return intro->magic == SHM_MAGIC && intro->layout == SHM_LAYOUT && intro->rank == peer->rank &&
           intro->local == (uint32_t)peer->local &&
           intro->local_count == (uint32_t)shm->peer_count && intro->bytes > SHM_HEAP_AT &&
           intro->bytes < (1ull << 46);
}

static int32_t socket_pid(const struct os *os, int fd)
{
    struct socket_peer who;
    return socket_peer(os, fd, &who) < 0 ? 0 : who.pid;
}

static int64_t intro_recv(struct shm *shm, struct shm_peer *peer, int fd)
{
    const struct os *os = shm->base.os;
    struct intro intro;
    struct iovec iov = {.iov_base = &intro, .iov_len = sizeof intro};
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(INTRO_FDS * sizeof(int))] = {0};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int64_t n = os->recvmsg(os->ctx, fd, &msg);
    if (n < 0)
        return n;
    int fds[INTRO_FDS] = {-1, -1};
    int count = fds_collect(os, &msg, fds);
    /* accessing memory that was shrunk would kill this process with a signal */
    bool is_good = n == (int64_t)sizeof intro && count == INTRO_FDS &&
                   (msg.msg_flags & MSG_CTRUNC) == 0 && intro_is_good(shm, peer, &intro) &&
                   os->memfd_check(os->ctx, fds[0], intro.bytes) == 0;
    if (is_good) {
        peer->bytes = intro.bytes;
        peer->segment = os->map(os->ctx, fds[0], peer->bytes, peer->local % SHM_OWN_COLOR);
        peer->pid = socket_pid(os, fd);
    }
    if (fds[0] >= 0)
        os->close(os->ctx, fds[0]);
    if (!is_good || peer->segment == NULL) {
        if (fds[1] >= 0)
            os->close(os->ctx, fds[1]);
        return -EPROTO;
    }
    peer->bell = fds[1];
    return n;
}

/* --- one link's steps; each returns 0: go on, -EAGAIN: wait, else: close --- */

static int step_handshake(struct connecting *c, struct link *link)
{
    struct error why = {0};
    hvd_status_t status = handshake_step(&link->handshake, c->shm->base.os, link->fd, &why);
    if (status == HVD_IN_PROGRESS) {
        link_want(c, link, handshake_wants_write(&link->handshake));
        return -EAGAIN;
    }
    if (status != HVD_OK)
        return -EPROTO;
    if (link->peer == NULL) {
        struct shm_peer *peer = shm_peer_of(c->shm, link->handshake.peer_rank);
        if (peer == NULL || peer->rank < c->shm->rank || peer->is_up || peer->segment != NULL ||
            !is_wanted(c, peer))
            return -EPROTO;
        for (int32_t i = 0; i < c->capacity; i++)
            if (c->links[i].state != LINK_FREE && c->links[i].peer == peer)
                return -EPROTO;
        link->peer = peer;
    }
    link->state = LINK_INTRO;
    return 0;
}

static int step_intro(struct connecting *c, struct link *link)
{
    if (!link->is_intro_sent) {
        int64_t n = intro_send(c->shm, link->fd);
        link_want(c, link, n == -EAGAIN);
        if (n < 0)
            return (int)n;
        link->is_intro_sent = true;
    }
    int64_t n = intro_recv(c->shm, link->peer, link->fd);
    if (n < 0)
        return (int)n;
    link->state = LINK_ACCEPT;
    return 0;
}

static int step_accept(struct connecting *c, struct link *link)
{
    const struct os *os = c->shm->base.os;
    uint8_t byte = ACCEPTED_BYTE;
    if (!link->is_accept_sent) {
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        int64_t n = os->send(os->ctx, link->fd, &iov, 1);
        link_want(c, link, n == -EAGAIN);
        if (n < 0)
            return (int)n;
        link->is_accept_sent = true;
    }
    int64_t n = os->recv(os->ctx, link->fd, &byte, 1);
    if (n < 0)
        return (int)n;
    if (n != 1 || byte != ACCEPTED_BYTE)
        return -EPROTO;
    link->state = LINK_UP;
    return 0;
}

static void link_advance(struct connecting *c, struct link *link)
{
    int rc = 0;
    while (rc == 0) {
        switch (link->state) {
        case LINK_FREE:
        case LINK_DIAL: return;
        case LINK_HANDSHAKE: rc = step_handshake(c, link); break;
        case LINK_INTRO: rc = step_intro(c, link); break;
        case LINK_ACCEPT: rc = step_accept(c, link); break;
        case LINK_UP: link_up(c, link); return;
        }
    }
    if (rc != -EAGAIN && rc != -EINTR)
        link_close(c, link);
}

/* --- the beginning of a link --- */

static struct link *link_free(struct connecting *c)
{
    for (int32_t i = 0; i < c->capacity; i++)
        if (c->links[i].state == LINK_FREE)
            return &c->links[i];
    return NULL;
}

static void handshake_start(struct connecting *c, struct link *link)
{
    const struct os *os = c->shm->base.os;
    bool is_dialer = link->peer != NULL;
    int32_t expected = is_dialer ? link->peer->rank : HANDSHAKE_ANY_RANK;
    if (os->poll_add(os->ctx, c->shm->inner_poll, link->fd, link, false) < 0 ||
        handshake_begin(&link->handshake, os, HANDSHAKE_SHM, is_dialer, c->key, c->epoch,
                        c->shm->rank, expected, 0) != HVD_OK) {
        link_close(c, link);
        return;
    }
    link->state = LINK_HANDSHAKE;
    link->wants_write = false;
    link_advance(c, link);
}

static void dial(struct connecting *c, struct link *link)
{
    const struct os *os = c->shm->base.os;
    size_t n;
    const uint8_t *name = endpoint_find(&c->all[link->peer->rank], shm_row.name, &n);
    struct sockaddr_storage addr; /* is_neighbour(): the name is there and not too long */
    unsigned len = socket_local_address((const char *)name, n, &addr);
    if (link->fd < 0)
        link->fd = os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
    int rc = link->fd < 0 ? link->fd
             : len == 0   ? -EINVAL
                          : os->connect(os->ctx, link->fd, (const struct sockaddr *)&addr, len);
    if (rc == -EAGAIN || rc == -EINPROGRESS) {
        c->has_dials = true; /* the other's backlog is full */
        return;
    }
    if (rc < 0)
        link_close(c, link);
    else
        handshake_start(c, link);
}

static void dials_retry(struct connecting *c)
{
    c->has_dials = false;
    for (int32_t i = 0; i < c->capacity; i++)
        if (c->links[i].state == LINK_DIAL)
            dial(c, &c->links[i]);
}

static bool is_stranger(const struct link *link)
{
    return link->state == LINK_HANDSHAKE && link->peer == NULL &&
           !handshake_is_hello_verified(&link->handshake);
}

static bool is_staler(const struct link *a, const struct link *b)
{
    bool is_a_idle = handshake_is_idle(&a->handshake), is_b_idle = handshake_is_idle(&b->handshake);
    return is_a_idle != is_b_idle ? is_a_idle : a->number < b->number;
}

/* Frees a slot: the oldest stranger that has sent nothing is closed first. Its data may still be in
 * the socket, so the socket is checked once more. */
static struct link *stranger_evict(struct connecting *c)
{
    for (int32_t turn = 0; turn < c->capacity; turn++) {
        struct link *stalest = NULL;
        for (int32_t i = 0; i < c->capacity; i++) {
            struct link *link = &c->links[i];
            if (is_stranger(link) && (stalest == NULL || is_staler(link, stalest)))
                stalest = link;
        }
        if (stalest == NULL)
            return NULL;
        link_advance(c, stalest);
        if (is_stranger(stalest)) {
            link_close(c, stalest);
            c->evicted++;
        }
        struct link *link = link_free(c);
        if (link != NULL)
            return link;
    }
    return NULL;
}

/* False: there is no connection to accept, or no slot. */
static bool accept_one(struct connecting *c)
{
    const struct os *os = c->shm->base.os;
    int fd = os->accept(os->ctx, c->shm->listener, NULL, NULL);
    if (fd == -EINTR || fd == -ECONNABORTED)
        return true;
    if (fd < 0) /* without descriptors, strangers make room */
        return fd != -EAGAIN && stranger_evict(c) != NULL;
    if (!peercred_is_same_user(os, c->shm->listener, fd)) {
        os->close(os->ctx, fd);
        c->foreign++;
        return true;
    }
    struct link *link = link_free(c);
    if (link == NULL)
        link = stranger_evict(c);
    if (link == NULL) {
        os->close(os->ctx, fd);
        return false;
    }
    *link = (struct link){.state = LINK_HANDSHAKE, .fd = fd, .number = ++c->accepted};
    handshake_start(c, link);
    return true;
}

static void accept_all(struct connecting *c)
{
    for (int i = 0; i < ACCEPTS_PER_TURN && accept_one(c); i++) {}
}

/* --- all of them --- */

static void wait_and_advance(struct connecting *c, int64_t left_ns)
{
    struct shm *shm = c->shm;
    const struct os *os = shm->base.os;
    if (c->has_dials && left_ns > DIAL_RETRY_NS)
        left_ns = DIAL_RETRY_NS;
    struct os_event events[EVENTS_AT_ONCE];
    int n = os->poll_wait(os->ctx, shm->inner_poll, events, EVENTS_AT_ONCE, left_ns);
    for (int i = 0; i < n; i++) {
        void *tag = events[i].tag;
        if (tag == shm)
            os->bell_clear(os->ctx, shm->bell);
        else if (tag == &shm->listener)
            accept_all(c);
        else if (tag >= (void *)c->links && tag < (void *)(c->links + c->capacity))
            link_advance(c, tag);
        else
            shm->must_check = true; /* a connected peer went away again */
    }
    if (c->has_dials)
        dials_retry(c);
}

static bool is_neighbour(const struct endpoint *all, int32_t self, int32_t rank)
{
    size_t n;
    const uint8_t *name = endpoint_find(&all[rank], shm_row.name, &n);
    return name != NULL && shm_row.is_offer(name, n) &&
           strncmp(all[rank].host_id, all[self].host_id, sizeof all[rank].host_id) == 0;
}

static hvd_status_t peers_create(struct shm *shm, const struct endpoint *all, int32_t count,
                                 struct error *error)
{
    const struct os *os = shm->base.os;
    shm->by_rank = os_alloc(os, (size_t)count * sizeof *shm->by_rank);
    if (shm->by_rank == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d ranks", (int)count);
    shm->world = count;
    int32_t locals = 0;
    for (int32_t rank = 0; rank < count; rank++)
        shm->by_rank[rank] = is_neighbour(all, shm->rank, rank) ? locals++ : -1;
    if ((uint32_t)locals > SHM_PEERS_MAX)
        return error_set(error, HVD_ERR_LIMIT, "%d ranks on one host; at most %u are possible",
                         (int)locals, SHM_PEERS_MAX);
    shm->peers = os_alloc(os, (size_t)locals * sizeof *shm->peers);
    if (shm->peers == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d ranks", (int)locals);
    shm->peer_count = locals;
    for (int32_t rank = 0; rank < count; rank++) {
        if (shm->by_rank[rank] < 0)
            continue;
        struct shm_peer *peer = &shm->peers[shm->by_rank[rank]];
        peer->rank = rank;
        peer->local = shm->by_rank[rank];
        peer->fd = peer->bell = -1;
        memcpy(peer->host_name, all[rank].host_name, sizeof peer->host_name - 1);
    }
    shm->local = shm->by_rank[shm->rank];
    return HVD_OK;
}

static hvd_status_t links_open(struct connecting *c, struct error *error)
{
    struct shm *shm = c->shm;
    const struct os *os = shm->base.os;
    c->capacity = shm->peer_count + PENDING_EXTRA;
    c->links = os_alloc(os, (size_t)c->capacity * sizeof *c->links);
    if (c->links == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory to connect %d ranks",
                         (int)shm->peer_count);
    for (int32_t i = 0; i < c->capacity; i++)
        c->links[i].fd = -1;
    int rc = os->poll_add(os->ctx, shm->inner_poll, shm->listener, &shm->listener, false);
    if (rc < 0)
        return error_set_os(error, rc, "can't poll the listening socket");
    for (int32_t local = 0; local < shm->peer_count; local++)
        c->open += is_wanted(c, &shm->peers[local]);
    for (int32_t local = 0; local < shm->local; local++) {
        if (!is_wanted(c, &shm->peers[local]))
            continue;
        struct link *link = link_free(c);
        *link = (struct link){.state = LINK_DIAL, .fd = -1, .peer = &shm->peers[local]};
        dial(c, link);
    }
    return HVD_OK;
}

/* The user needs to know whether strangers interfered. */
static void missing_explain(struct connecting *c)
{
    struct shm *shm = c->shm;
    char strangers[160] = "";
    if (c->foreign + c->evicted > 0)
        snprintf(strangers, sizeof strangers,
                 "; meanwhile %llu connections of other users were refused and %llu that did not "
                 "prove the job key were dropped",
                 (unsigned long long)c->foreign, (unsigned long long)c->evicted);
    for (int32_t i = 0; i < shm->peer_count; i++) {
        struct shm_peer *peer = &shm->peers[i];
        if (is_wanted(c, peer) && !peer->is_up && peer->down.status == HVD_OK)
            error_set(&peer->down, HVD_ERR_LINK,
                      "rank %d did not finish its handshake on our Unix socket within %lld s%s",
                      (int)peer->rank, (long long)shm->config->timeout_s, strangers);
    }
}

static void links_finish(struct connecting *c)
{
    struct shm *shm = c->shm;
    const struct os *os = shm->base.os;
    missing_explain(c);
    for (int32_t i = 0; c->links != NULL && i < c->capacity; i++)
        link_close(c, &c->links[i]);
    os_free(os, c->links);
    if (shm->listener >= 0) {
        os->poll_remove(os->ctx, shm->inner_poll, shm->listener);
        os->close(os->ctx, shm->listener);
        shm->listener = -1;
    }
}

hvd_status_t shm_connect(struct shm *shm, const struct endpoint *all, int32_t count,
                         const bool *wanted, const uint8_t key[32], uint64_t epoch, int poll_fd,
                         const struct transport_events *events, struct error *error)
{
    const struct os *os = shm->base.os;
    if (shm->rank < 0 || shm->rank >= count || !is_neighbour(all, shm->rank, shm->rank) ||
        shm->by_rank != NULL)
        return error_set(error, HVD_ERR_INVALID, "rank %d is not among the %d endpoints",
                         (int)shm->rank, (int)count);
    shm->base.events = *events;
    hvd_status_t status = peers_create(shm, all, count, error);
    if (status != HVD_OK)
        return status;
    struct connecting c = {.shm = shm, .all = all, .wanted = wanted, .key = key, .epoch = epoch};
    status = links_open(&c, error);
    int64_t deadline = os_now_ns(os) + shm->config->timeout_s * 1000000000;
    while (status == HVD_OK && c.open > 0) {
        int64_t left = deadline - os_now_ns(os);
        if (left <= 0)
            break;
        if (transport_is_over(events)) {
            status = error_set(error, HVD_ERR_STALE,
                               "epoch %llu was given up while its ranks "
                               "connected",
                               (unsigned long long)epoch);
            break;
        }
        bool is_watched = events->is_over != NULL && left > TRANSPORT_OVER_NS;
        wait_and_advance(&c, is_watched ? TRANSPORT_OVER_NS : left);
    }
    links_finish(&c);
    if (status != HVD_OK)
        return status;
    int rc = os->poll_add(os->ctx, poll_fd, shm->inner_poll, &shm->base, false);
    if (rc < 0)
        return error_set_os(error, rc, "can't add shared memory to the poller");
    shm->outer_poll = poll_fd;
    return HVD_OK;
}
