/* SPDX-License-Identifier: Apache-2.0 */
/* store_server.c - the serving side of the store: listeners, connections, time-outs.
 *
 * A connection goes through these states: stranger (TCP, its hello is not verified: at most
 * STORE_STRANGERS_MAX of them and 2 s each, the oldest idle one is dropped first), pending (a
 * process of our own user, or the hello is verified: 5 s, never dropped for another), idle or being
 * answered, and waiting (its answer depends on others; see store_table.h). On a Unix socket other
 * users are dropped at accept. Whatever is wrong with a connection closes that connection and
 * nothing else.
 *
 * Thread: one loop.  Owner: the launcher, or rank 0.  Blocks: never.
 * Invariant: a closed connection stays in `dead` until the end of progress(), because an event
 * already fetched may still name it.  Start reading at store_server_progress(). */
#include "wire/store.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/sha256.h"
#include "wire/address.h"
#include "wire/peercred.h"
#include "wire/store_private.h"
#include "wire/store_table.h"

#define LISTENERS_MAX    16
#define LISTEN_BACKLOG   1024
#define EVENTS_PER_CALL  64
#define ROUNDS_PER_CALL  16 /* of EVENTS_PER_CALL, before the caller gets its thread back */
#define ACCEPTS_PER_TURN 256
/* A backlog full of other users' connections is emptied in one turn; then nobody is accepted for a
 * while, for longer as long as nobody else comes, so that a flood costs the job next to nothing.
 * Our own ranks dial again. */
#define FOREIGN_PER_TURN    LISTEN_BACKLOG
#define FOREIGN_MANY        256
#define ACCEPT_PAUSE_NS     (INT64_C(100) * 1000 * 1000) /* also when descriptors have run out */
#define ACCEPT_PAUSE_MAX_NS (INT64_C(1000) * 1000 * 1000)
#define NEVER_NS            INT64_MAX
#define VANISHED_MAX        16 /* of whom one is enough to act upon */

struct listener {
    int fd; /* tags in the poller point here or at a connection; see target_listener() */
    bool is_unix;
};

enum conn_place { PLACE_STRANGERS, PLACE_PENDING, PLACE_PROVEN, PLACE_DEAD };

struct conn {
    TAILQ_ENTRY(conn) link;
    struct store_server *server;
    struct channel channel;
    struct waiter waiter;
    struct reply *reply; /* being sent */
    int64_t deadline_ns; /* stranger, pending: of the handshake; waiting: of the answer */
    enum conn_place place;
    bool wants_write;   /* as the poller knows it */
    bool is_member;     /* of the watched exchange, and has not said LEAVE */
    bool has_exchanged; /* its last answer was that of an exchange */
    uint32_t member;    /* its index there */
};

struct vanished {
    int32_t index; /* -1: nobody */
    int64_t at_ns;
};

TAILQ_HEAD(conn_list, conn);

struct store_server {
    const struct os *os;
    uint8_t key[32];
    int poll_fd;
    struct cipher cipher;
    bool is_plain; /* encryption forgone */
    struct budget budget;
    struct table table;
    struct listener listeners[LISTENERS_MAX];
    int listener_count;
    struct conn_list places[PLACE_DEAD + 1]; /* strangers, pending: in the order of deadlines */
    int stranger_count, pending_count;
    uint64_t evicted_count, foreign_count, change_count;
    int64_t foreign_pause_ns; /* the last one; 0: our own user came since */
    int64_t now_ns;
    int64_t wait_next_ns;     /* no waiting connection's deadline is before this */
    int64_t accept_resume_ns; /* NEVER_NS: listening */
    char watched[STORE_KEY_MAX + 1];
    struct vanished vanished[VANISHED_MAX];
};

/* ---- members that vanish ---- */

void store_server_watch(struct store_server *s, const char *scope)
{
    snprintf(s->watched, sizeof s->watched, "%s", scope);
    for (int i = 0; i < VANISHED_MAX; i++)
        s->vanished[i].index = -1;
}

int32_t store_server_vanished(const struct store_server *s, int64_t before_ns)
{
    for (int i = 0; s->watched[0] != '\0' && i < VANISHED_MAX; i++)
        if (s->vanished[i].index >= 0 && s->vanished[i].at_ns < before_ns)
            return s->vanished[i].index;
    return -1;
}

static void member_enters(struct conn *c, const struct store_request *q)
{
    struct store_server *s = c->server;
    if (s->watched[0] == '\0' || strcmp(q->scope, s->watched) != 0)
        return;
    c->is_member = true;
    c->member = q->index;
    for (int i = 0; i < VANISHED_MAX; i++)
        if (s->vanished[i].index == (int32_t)q->index)
            s->vanished[i].index = -1;
}

static void member_vanishes(struct conn *c)
{
    struct store_server *s = c->server;
    for (int i = 0; c->is_member && i < VANISHED_MAX; i++) {
        if (s->vanished[i].index >= 0)
            continue;
        s->vanished[i] = (struct vanished){(int32_t)c->member, s->now_ns};
        return;
    }
}

/* ---- connections ---- */

static void place_count(struct conn *c, int by)
{
    struct store_server *s = c->server;
    if (c->place == PLACE_STRANGERS)
        s->stranger_count += by;
    if (c->place == PLACE_PENDING)
        s->pending_count += by;
    assert(s->stranger_count >= 0 && s->pending_count >= 0);
}

static void place_enter(struct conn *c, enum conn_place place)
{
    c->place = place;
    TAILQ_INSERT_TAIL(&c->server->places[place], c, link);
    place_count(c, 1);
}

static void place_change(struct conn *c, enum conn_place place)
{
    place_count(c, -1);
    TAILQ_REMOVE(&c->server->places[c->place], c, link);
    place_enter(c, place);
}

static void conn_close(struct conn *c)
{
    struct store_server *s = c->server;
    if (c->place == PLACE_DEAD)
        return;
    place_change(c, PLACE_DEAD);
    s->change_count++;
    member_vanishes(c);
    table_forget(&s->table, &c->waiter);
    s->os->poll_remove(s->os->ctx, s->poll_fd, c->channel.fd);
    channel_end(&c->channel);
    reply_unref(c->reply);
    c->reply = NULL;
}

static void dead_free(struct store_server *s)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->places[PLACE_DEAD])) != NULL) {
        TAILQ_REMOVE(&s->places[PLACE_DEAD], c, link);
        os_free(s->os, c);
    }
}

static bool conn_watch(struct conn *c)
{
    struct store_server *s = c->server;
    bool wants_write = channel_wants_write(&c->channel);
    if (wants_write == c->wants_write)
        return true;
    c->wants_write = wants_write;
    return s->os->poll_change(s->os->ctx, s->poll_fd, c->channel.fd, c, wants_write) >= 0;
}

static void conn_flush(struct conn *c)
{
    hvd_status_t status = channel_flush(&c->channel, NULL);
    if (status < 0 || !conn_watch(c)) {
        conn_close(c);
        return;
    }
    if (status == HVD_OK) {
        reply_unref(c->reply);
        c->reply = NULL;
    }
}

/* Borrows `reply`; NULL: there was no memory to say anything. */
static void conn_answer(struct conn *c, struct reply *reply)
{
    if (reply == NULL) {
        conn_close(c);
        return;
    }
    c->reply = reply_ref(reply);
    channel_send(&c->channel, STORE_ANSWER, reply->message, reply->bytes);
    conn_flush(c);
}

static void waiter_answered(struct waiter *waiter, struct reply *reply)
{
    struct conn *c = (struct conn *)((char *)waiter - offsetof(struct conn, waiter));
    conn_answer(c, reply);
}

/* ---- requests ---- */

static void conn_hold(struct conn *c, int64_t wait_ns)
{
    struct store_server *s = c->server;
    c->deadline_ns = s->now_ns > NEVER_NS - wait_ns ? NEVER_NS : s->now_ns + wait_ns;
    if (c->deadline_ns < s->wait_next_ns)
        s->wait_next_ns = c->deadline_ns;
}

/* The reply given back is the caller's; NULL: the connection waits, or there was no memory. */
static struct reply *serve_get(struct conn *c, const struct store_request *q)
{
    struct store_server *s = c->server;
    struct reply *value = table_get(&s->table, q->scope, q->key);
    if (value != NULL)
        return reply_ref(value);
    if (!q->is_waiting)
        return reply_status(&s->budget, HVD_AGAIN, "key \"%s\" of \"%s\" is not there", q->key,
                            q->scope);
    if (table_wait(&s->table, q->scope, q->key, &c->waiter) != HVD_OK)
        return reply_status(&s->budget, HVD_ERR_LIMIT, "the store is full");
    return NULL;
}

static struct reply *serve_put(struct conn *c, const struct store_request *q)
{
    struct store_server *s = c->server;
    hvd_status_t status = table_put(&s->table, q->scope, q->key, q->blob, q->blob_bytes);
    return reply_status(&s->budget, status, "%s",
                        status == HVD_OK ? ""
                                         : "the store is full, or the scope has too many keys");
}

static struct reply *serve(struct conn *c, const struct store_request *q)
{
    struct store_server *s = c->server;
    switch (q->type) {
    case STORE_EXCHANGE:
        member_enters(c, q);
        c->has_exchanged = true;
        return table_exchange(&s->table, q, &c->waiter);
    case STORE_JOIN: c->has_exchanged = false; return table_join(&s->table, q, &c->waiter);
    case STORE_PUT: return serve_put(c, q);
    case STORE_GET: return serve_get(c, q);
    case STORE_DELETE: table_delete(&s->table, q->scope); break;
    case STORE_LEAVE: c->is_member = false; break;
    case STORE_PING:
    case STORE_ANSWER: break;
    }
    return reply_status(&s->budget, HVD_OK, "%s", "");
}

static void conn_request(struct conn *c)
{
    struct store_server *s = c->server;
    struct channel *channel = &c->channel;
    struct store_request q;
    struct reply *reply;
    if (channel->rx_is_over_budget) {
        channel_take(channel);
        reply = reply_status(&s->budget, HVD_ERR_LIMIT, "the store is full (%zu of %zu bytes)",
                             s->budget.used, s->budget.max);
    } else {
        bool is_right = store_request_read(channel->rx_type, channel->rx_message,
                                           channel->rx_message_bytes, &q);
        if (!is_right) {
            conn_close(c);
            return;
        }
        s->change_count++;
        reply = serve(c, &q);
        channel_take(channel);
        if (reply == NULL && c->waiter.scope != NULL) {
            conn_hold(c, q.wait_ns);
            return;
        }
    }
    conn_answer(c, reply);
    reply_unref(reply);
}

/* ---- events ---- */

/* A hello that another pending connection has sent, too, was recorded: it wins no place. */
static bool is_recorded(const struct conn *c)
{
    const struct conn *other;
    TAILQ_FOREACH(other, &c->server->places[PLACE_PENDING], link)
    {
        if (other != c && handshake_is_same_hello(&other->channel.handshake, &c->channel.handshake))
            return true;
    }
    return false;
}

static void conn_handshake(struct conn *c)
{
    struct store_server *s = c->server;
    hvd_status_t status = channel_handshake(&c->channel, NULL);
    if (status == HVD_OK) {
        place_change(c, PLACE_PROVEN);
    } else if (status == HVD_IN_PROGRESS && c->place == PLACE_STRANGERS &&
               handshake_is_hello_verified(&c->channel.handshake)) {
        c->deadline_ns = s->now_ns + STORE_HANDSHAKE_NS;
        place_change(c, PLACE_PENDING);
        if (is_recorded(c))
            status = HVD_ERR_AUTH;
    }
    if (status < 0 || !conn_watch(c))
        conn_close(c);
}

static void conn_event(struct conn *c)
{
    if (c->place == PLACE_DEAD)
        return;
    if (!c->channel.is_proven) {
        conn_handshake(c);
        return;
    }
    if (c->reply != NULL)
        conn_flush(c);
    if (c->place == PLACE_DEAD)
        return;
    bool is_busy = c->reply != NULL || c->waiter.scope != NULL;
    hvd_status_t status =
        is_busy ? channel_expect_silence(&c->channel, NULL) : channel_recv(&c->channel, NULL);
    if (status == HVD_OK)
        conn_request(c);
    else if (status < 0)
        conn_close(c);
}

/* The oldest of `place` that has sent nothing, else the oldest whose hello is not verified. */
static struct conn *stranger_oldest(struct store_server *s, enum conn_place place)
{
    struct conn *c, *oldest = NULL;
    TAILQ_FOREACH(c, &s->places[place], link)
    {
        const struct handshake *h = &c->channel.handshake;
        if (handshake_is_hello_verified(h))
            continue;
        if (handshake_is_idle(h))
            return c;
        if (oldest == NULL)
            oldest = c;
    }
    return oldest;
}

/* Makes room for one more. What a stranger sent may still be in its socket: it is asked first. */
static bool stranger_evict(struct store_server *s, enum conn_place place)
{
    int count = place == PLACE_STRANGERS ? s->stranger_count : s->pending_count;
    for (int i = 0; i < count; i++) {
        struct conn *c = stranger_oldest(s, place);
        if (c == NULL)
            return false;
        conn_handshake(c);
        if (c->place == PLACE_DEAD)
            return true;
        if (c->place != place || handshake_is_hello_verified(&c->channel.handshake))
            continue;
        conn_close(c);
        s->evicted_count++;
        return true;
    }
    return false;
}

static bool conn_admit(struct store_server *s, int fd, bool is_unix)
{
    static const int yes = 1;
    struct channel_identity self = {.key = s->key,
                                    .epoch = HANDSHAKE_ANY_EPOCH,
                                    .rank = HANDSHAKE_ANY_RANK,
                                    .is_dialer = false};
    const struct cipher *cipher = s->is_plain ? NULL : &s->cipher;
    struct conn *c = os_alloc(s->os, sizeof *c);
    if (c == NULL)
        return false;
    c->server = s;
    c->waiter.answer = waiter_answered;
    c->deadline_ns = s->now_ns + (is_unix ? STORE_HANDSHAKE_NS : STORE_STRANGER_NS);
    s->os->sockopt_set(s->os->ctx, fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (channel_begin(&c->channel, s->os, &s->budget, fd, &self, cipher, STORE_REQUEST_MAX) !=
            HVD_OK ||
        s->os->poll_add(s->os->ctx, s->poll_fd, fd, c, false) < 0) {
        c->channel.fd = -1; /* the caller closes it */
        channel_end(&c->channel);
        os_free(s->os, c);
        return false;
    }
    if (!is_unix && s->stranger_count >= STORE_STRANGERS_MAX)
        stranger_evict(s, PLACE_STRANGERS);
    place_enter(c, is_unix ? PLACE_PENDING : PLACE_STRANGERS);
    conn_handshake(c);
    return true;
}

/* Listening stops for a moment: a listener that stays readable would keep the loop spinning. */
static void accept_pause(struct store_server *s, int64_t pause_ns)
{
    for (int i = 0; i < s->listener_count; i++)
        s->os->poll_remove(s->os->ctx, s->poll_fd, s->listeners[i].fd);
    s->accept_resume_ns = s->now_ns + pause_ns;
}

static void accept_resume(struct store_server *s)
{
    s->accept_resume_ns = NEVER_NS;
    for (int i = 0; i < s->listener_count; i++) {
        struct listener *l = &s->listeners[i];
        if (s->os->poll_add(s->os->ctx, s->poll_fd, l->fd, l, false) < 0)
            s->accept_resume_ns = s->now_ns + ACCEPT_PAUSE_NS;
    }
}

/* 1: admitted, or refused for what it is; 0: of another user; negative: nothing accepted. */
static int accept_one(struct store_server *s, const struct listener *l)
{
    const struct os *os = s->os;
    int fd = os->accept(os->ctx, l->fd, NULL, NULL);
    if (fd < 0)
        return fd;
    bool is_foreign = l->is_unix && !peercred_is_same_user(os, l->fd, fd);
    s->foreign_count += is_foreign;
    if (is_foreign || !conn_admit(s, fd, l->is_unix))
        os->close(os->ctx, fd);
    return is_foreign ? 0 : 1;
}

static void listener_event(struct store_server *s, const struct listener *l)
{
    int admitted = 0, foreign = 0;
    while (admitted < ACCEPTS_PER_TURN && foreign < FOREIGN_PER_TURN) {
        int rc = accept_one(s, l);
        if (rc == -EAGAIN)
            break;
        if (rc >= 0 || rc == -ECONNABORTED || rc == -EINTR) {
            admitted += rc != 0;
            foreign += rc == 0;
            continue;
        }
        /* no descriptor or memory left: strangers make room first */
        if (!stranger_evict(s, PLACE_STRANGERS) && !stranger_evict(s, PLACE_PENDING)) {
            accept_pause(s, ACCEPT_PAUSE_NS);
            return;
        }
    }
    if (admitted > 0)
        s->foreign_pause_ns = 0;
    if (foreign < FOREIGN_MANY)
        return;
    s->foreign_pause_ns = s->foreign_pause_ns == 0 ? ACCEPT_PAUSE_NS : 2 * s->foreign_pause_ns;
    if (s->foreign_pause_ns > ACCEPT_PAUSE_MAX_NS)
        s->foreign_pause_ns = ACCEPT_PAUSE_MAX_NS;
    accept_pause(s, s->foreign_pause_ns);
}

static struct listener *target_listener(struct store_server *s, void *tag)
{
    for (int i = 0; i < s->listener_count; i++)
        if (tag == &s->listeners[i])
            return &s->listeners[i];
    return NULL;
}

/* ---- time ---- */

static void expire_pending(struct store_server *s, enum conn_place place)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->places[place])) != NULL && c->deadline_ns <= s->now_ns)
        conn_close(c);
}

static void expire_one(struct conn *c)
{
    struct reply *reply = table_missing(&c->server->table, &c->waiter);
    table_forget(&c->server->table, &c->waiter);
    conn_answer(c, reply);
    reply_unref(reply);
}

static void expire_waiting(struct store_server *s)
{
    if (s->wait_next_ns > s->now_ns)
        return;
    struct conn *c, *next;
    s->wait_next_ns = NEVER_NS;
    for (c = TAILQ_FIRST(&s->places[PLACE_PROVEN]); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->waiter.scope == NULL)
            continue;
        if (c->deadline_ns <= s->now_ns)
            expire_one(c);
        else if (c->deadline_ns < s->wait_next_ns)
            s->wait_next_ns = c->deadline_ns;
    }
}

void store_server_progress(struct store_server *s, int64_t now_ns)
{
    struct os_event events[EVENTS_PER_CALL];
    s->now_ns = now_ns;
    if (s->accept_resume_ns <= now_ns)
        accept_resume(s);
    for (int round = 0; round < ROUNDS_PER_CALL; round++) {
        int n = s->os->poll_wait(s->os->ctx, s->poll_fd, events, EVENTS_PER_CALL, 0);
        for (int i = 0; i < n; i++) {
            struct listener *l = target_listener(s, events[i].tag);
            if (l != NULL)
                listener_event(s, l);
            else
                conn_event(events[i].tag);
        }
        dead_free(s);
        if (n < EVENTS_PER_CALL)
            break;
    }
    expire_pending(s, PLACE_STRANGERS);
    expire_pending(s, PLACE_PENDING);
    expire_waiting(s);
    dead_free(s);
}

int64_t store_server_deadline_ns(const struct store_server *s)
{
    int64_t at = s->wait_next_ns;
    for (enum conn_place place = PLACE_STRANGERS; place <= PLACE_PENDING; place++) {
        const struct conn *oldest = TAILQ_FIRST(&s->places[place]);
        if (oldest != NULL && oldest->deadline_ns < at)
            at = oldest->deadline_ns;
    }
    return s->accept_resume_ns < at ? s->accept_resume_ns : at;
}

int store_server_poll_fd(const struct store_server *s)
{
    return s->poll_fd;
}

/* ---- life ---- */

/* "unix:" alone asks for a name nobody can guess or already has. */
static hvd_status_t name_choose(const struct os *os, const char *address, char *ret_text,
                                struct error *error)
{
    uint64_t number[2];
    if (strcmp(address, "unix:") != 0) {
        if (strlen(address) >= ADDRESS_TEXT_MAX)
            return error_set(error, HVD_ERR_INVALID, "address \"%.80s...\" is too long", address);
        snprintf(ret_text, ADDRESS_TEXT_MAX, "%s", address);
        return HVD_OK;
    }
    int rc = os->random(os->ctx, number, sizeof number);
    if (rc < 0)
        return error_set_os(error, rc, "no random bytes for a name");
    snprintf(ret_text, ADDRESS_TEXT_MAX, "unix:horovod-%016llx%016llx",
             (unsigned long long)number[0], (unsigned long long)number[1]);
    return HVD_OK;
}

static hvd_status_t listener_open(struct store_server *s, const struct address *address,
                                  const char *text, int *ret_fd, struct error *error)
{
    static const int yes = 1;
    const struct os *os = s->os;
    int rc = 0, fd = os->socket(os->ctx, address->sockaddr.ss_family, SOCK_STREAM);
    if (fd < 0)
        return error_set_os(error, fd, "no socket to listen on %s", text);
    if (address->sockaddr.ss_family != AF_UNIX)
        rc = os->sockopt_set(os->ctx, fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (rc >= 0)
        rc = os->bind(os->ctx, fd, (const struct sockaddr *)&address->sockaddr, address->bytes);
    if (rc >= 0)
        rc = os->listen(os->ctx, fd, LISTEN_BACKLOG);
    if (rc >= 0) {
        *ret_fd = fd;
        return HVD_OK;
    }
    os->close(os->ctx, fd);
    return error_set_os(error, rc, "cannot listen on %s", text);
}

static hvd_status_t listener_add(struct store_server *s, int fd, char *ret_address,
                                 struct error *error)
{
    const struct os *os = s->os;
    struct address bound = {.bytes = sizeof bound.sockaddr};
    struct listener *l = &s->listeners[s->listener_count];
    int rc = os->getsockname(os->ctx, fd, (struct sockaddr *)&bound.sockaddr, &bound.bytes);
    if (rc >= 0 && s->accept_resume_ns == NEVER_NS)
        rc = os->poll_add(os->ctx, s->poll_fd, fd, l, false);
    if (rc < 0)
        return error_set_os(error, rc, "cannot watch a listening socket");
    l->fd = fd;
    l->is_unix = bound.sockaddr.ss_family == AF_UNIX;
    s->listener_count++;
    address_format(&bound, ret_address, ADDRESS_TEXT_MAX);
    return HVD_OK;
}

static hvd_status_t listen_on(struct store_server *s, const char *address, char *ret_address,
                              struct error *error)
{
    char text[ADDRESS_TEXT_MAX];
    struct address list[ADDRESS_LIST_MAX];
    int count, fd = -1;
    if (s->listener_count == LISTENERS_MAX)
        return error_set(error, HVD_ERR_LIMIT, "the store listens on %d addresses already",
                         LISTENERS_MAX);
    hvd_status_t status = name_choose(s->os, address, text, error);
    if (status == HVD_OK)
        status = address_list_parse(s->os, text, list, ADDRESS_LIST_MAX, &count, error);
    if (status != HVD_OK)
        return status;
    if (address_is_wildcard(&list[0]))
        return error_set(error, HVD_ERR_INVALID,
                         "%s would listen on every interface; name one address", text);
    status = listener_open(s, &list[0], text, &fd, error);
    if (status != HVD_OK)
        return status;
    status = listener_add(s, fd, ret_address, error);
    if (status != HVD_OK)
        s->os->close(s->os->ctx, fd);
    return status;
}

/* "HOST:A-B": the first port of the range that is free, from a random one on, so that jobs that
 * start together do not all try the same ones. */
hvd_status_t store_server_listen(struct store_server *s, const char *address, char *ret_address,
                                 struct error *error)
{
    const char *colon = strrchr(address, ':');
    uint16_t first = 0, last = 0;
    uint32_t start = 0;
    struct error trouble = {0};
    char one[ADDRESS_TEXT_MAX];
    if (strncmp(address, "unix:", 5) == 0 || colon == NULL || strchr(colon, '-') == NULL ||
        (size_t)(colon - address) + 8 > sizeof one)
        return listen_on(s, address, ret_address, error);
    hvd_status_t status = port_range_parse(colon + 1, &first, &last, error);
    if (status == HVD_OK && s->os->random(s->os->ctx, &start, sizeof start) < 0)
        status = error_set(error, HVD_ERR_OS, "no random bytes to choose a port");
    if (status != HVD_OK)
        return status;
    uint32_t count = (uint32_t)(last - first) + 1;
    for (uint32_t i = 0; i < count; i++) {
        error_clear(&trouble);
        snprintf(one, sizeof one, "%.*s:%u", (int)(colon - address), address,
                 first + (start % count + i) % count);
        if (listen_on(s, one, ret_address, &trouble) == HVD_OK)
            return HVD_OK;
    }
    return error_set(error, trouble.status, "no port of %u-%u is free: %.500s", first, last,
                     trouble.text);
}

hvd_status_t store_server_create(const struct os *os, const char *address, const uint8_t key[32],
                                 struct store_server **ret, char *ret_address, struct error *error)
{
    struct store_server *s = os_alloc(os, sizeof *s);
    if (s == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for the store");
    s->os = os;
    memcpy(s->key, key, sizeof s->key);
    for (enum conn_place place = PLACE_STRANGERS; place <= PLACE_DEAD; place++)
        TAILQ_INIT(&s->places[place]);
    s->wait_next_ns = s->accept_resume_ns = NEVER_NS;
    s->now_ns = os_now_ns(os);
    s->budget = (struct budget){.os = os, .max = STORE_TOTAL_MAX};
    table_init(&s->table, &s->budget);
    cipher_load(s->os, &s->cipher);
    s->poll_fd = os->poll_create(os->ctx);
    hvd_status_t status = s->poll_fd < 0
                              ? error_set_os(error, s->poll_fd, "no poller for the store")
                              : store_server_listen(s, address, ret_address, error);
    if (status != HVD_OK) {
        store_server_destroy(s);
        return status;
    }
    *ret = s;
    return HVD_OK;
}

void store_server_destroy(struct store_server *s)
{
    struct conn *c;
    if (s == NULL)
        return;
    for (enum conn_place place = PLACE_STRANGERS; place < PLACE_DEAD; place++)
        while ((c = TAILQ_FIRST(&s->places[place])) != NULL)
            conn_close(c);
    dead_free(s);
    table_destroy(&s->table);
    for (int i = 0; i < s->listener_count; i++)
        s->os->close(s->os->ctx, s->listeners[i].fd);
    if (s->poll_fd >= 0)
        s->os->close(s->os->ctx, s->poll_fd);
    cipher_unload(&s->cipher);
    bytes_wipe(s->key, sizeof s->key);
    os_free(s->os, s);
}

/* ---- the serving process's own access ---- */

hvd_status_t store_server_put(struct store_server *s, const char *scope, const char *key,
                              const void *blob, size_t n)
{
    return table_put(&s->table, scope, key, blob, n);
}

const void *store_server_get(const struct store_server *s, const char *scope, const char *key,
                             size_t *ret_n)
{
    const struct reply *value = table_get(&s->table, scope, key);
    return value != NULL ? table_blob(value, ret_n) : NULL;
}

void store_server_delete(struct store_server *s, const char *scope)
{
    table_delete(&s->table, scope);
}

hvd_status_t store_server_generation(struct store_server *s, const char *scope, uint64_t epoch,
                                     const struct store_member *members, uint32_t count,
                                     uint64_t notice)
{
    return table_generation(&s->table, scope, epoch, members, count, notice);
}

hvd_status_t store_server_judge(struct store_server *s, const char *scope,
                                const struct store_judge *judge)
{
    return table_judge(&s->table, scope, judge);
}

void store_server_abandon(struct store_server *s, const char *scope)
{
    struct conn *c, *next;
    if (!table_abandon(&s->table, scope))
        return;
    for (c = TAILQ_FIRST(&s->places[PLACE_PROVEN]); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        /* has all addresses and has not said LEAVE: it connects, and sees this end */
        if (c->is_member && c->has_exchanged && c->waiter.scope == NULL)
            conn_close(c);
    }
    dead_free(s);
}

void store_server_review(struct store_server *s, const char *scope)
{
    table_review(&s->table, scope);
}

enum store_standing store_server_standing(const struct store_server *s, const char *scope,
                                          const char *worker)
{
    return table_standing(&s->table, scope, worker);
}

uint64_t store_server_changes(const struct store_server *s)
{
    return s->change_count;
}

uint64_t store_server_epoch(const struct store_server *s, const char *scope, bool *ret_is_met)
{
    return table_epoch(&s->table, scope, ret_is_met);
}

bool store_server_is_waiting(const struct store_server *s, const char *scope, const char *worker)
{
    return table_is_waiting(&s->table, scope, worker);
}

int32_t store_server_arrived(const struct store_server *s, const char *scope, uint64_t epoch,
                             uint8_t *ret_present, int32_t count)
{
    return table_arrived(&s->table, scope, epoch, ret_present, count);
}

void store_server_forgo_encryption(struct store_server *s)
{
    s->is_plain = true;
}

void store_server_limit(struct store_server *s, size_t bytes_max)
{
    s->budget.max = bytes_max;
}

size_t store_server_bytes_used(const struct store_server *s)
{
    return s->budget.used;
}

int store_server_pending_count(const struct store_server *s)
{
    return s->pending_count + s->stranger_count;
}

uint64_t store_server_evicted_count(const struct store_server *s)
{
    return s->evicted_count;
}

uint64_t store_server_foreign_count(const struct store_server *s)
{
    return s->foreign_count;
}
