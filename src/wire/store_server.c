/* SPDX-License-Identifier: Apache-2.0 */
/* store_server.c - the serving side of the store: listeners, connections, time-outs.
 *
 * A connection lives through three states: pending (has not proven the key; at most
 * STORE_PENDING_MAX of them and 5 s each, the oldest goes first), idle or being answered, and
 * waiting (its answer depends on others; see store_table.h). Whatever is wrong with a connection
 * closes that connection and nothing else.
 *
 * Thread: one loop.  Owner: the launcher, or rank 0.  Blocks: never.
 * Invariant: a closed connection stays in `dead` until the end of progress(), because an event
 * already fetched may still name it.  Start reading at store_server_progress(). */
#include "wire/store.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/sha256.h"
#include "wire/address.h"
#include "wire/store_private.h"
#include "wire/store_table.h"

#define LISTENERS_MAX    16
#define LISTEN_BACKLOG   1024
#define EVENTS_PER_CALL  64
#define ROUNDS_PER_CALL  16 /* of EVENTS_PER_CALL, before the caller gets its thread back */
#define ACCEPTS_PER_TURN 256
#define ACCEPT_PAUSE_NS  (INT64_C(100) * 1000 * 1000) /* after the system ran out of descriptors */
#define NEVER_NS         INT64_MAX
#define VANISHED_MAX     16 /* of whom one is enough to act upon */

struct listener {
    int fd; /* tags in the poller point here or at a connection; see target_listener() */
};

struct conn {
    TAILQ_ENTRY(conn) link;
    struct store_server *server;
    struct channel channel;
    struct waiter waiter;
    struct reply *reply; /* being sent */
    int64_t deadline_ns; /* pending: of the handshake; waiting: of the answer */
    bool wants_write;    /* as the poller knows it */
    bool is_dead;
    bool is_member;  /* of the watched exchange, and has not said LEAVE */
    uint32_t member; /* its index there */
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
    struct conn_list pending; /* in the order of their deadlines */
    struct conn_list proven;
    struct conn_list dead;
    int pending_count;
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

static void conn_close(struct conn *c)
{
    struct store_server *s = c->server;
    if (c->is_dead)
        return;
    c->is_dead = true;
    if (c->channel.is_proven) {
        TAILQ_REMOVE(&s->proven, c, link);
    } else {
        TAILQ_REMOVE(&s->pending, c, link);
        s->pending_count--;
    }
    TAILQ_INSERT_TAIL(&s->dead, c, link);
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
    while ((c = TAILQ_FIRST(&s->dead)) != NULL) {
        TAILQ_REMOVE(&s->dead, c, link);
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
    case STORE_EXCHANGE: member_enters(c, q); return table_exchange(&s->table, q, &c->waiter);
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

static void conn_handshake(struct conn *c)
{
    struct store_server *s = c->server;
    hvd_status_t status = channel_handshake(&c->channel, NULL);
    if (status == HVD_OK) {
        TAILQ_REMOVE(&s->pending, c, link);
        s->pending_count--;
        TAILQ_INSERT_TAIL(&s->proven, c, link);
    }
    if (status < 0 || !conn_watch(c))
        conn_close(c);
}

static void conn_event(struct conn *c)
{
    if (c->is_dead)
        return;
    if (!c->channel.is_proven) {
        conn_handshake(c);
        return;
    }
    if (c->reply != NULL)
        conn_flush(c);
    if (c->is_dead)
        return;
    bool is_busy = c->reply != NULL || c->waiter.scope != NULL;
    hvd_status_t status =
        is_busy ? channel_expect_silence(&c->channel, NULL) : channel_recv(&c->channel, NULL);
    if (status == HVD_OK)
        conn_request(c);
    else if (status < 0)
        conn_close(c);
}

static bool conn_admit(struct store_server *s, int fd)
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
    c->deadline_ns = s->now_ns + STORE_HANDSHAKE_NS;
    s->os->sockopt_set(s->os->ctx, fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (channel_begin(&c->channel, s->os, &s->budget, fd, &self, cipher, STORE_REQUEST_MAX) !=
            HVD_OK ||
        s->os->poll_add(s->os->ctx, s->poll_fd, fd, c, false) < 0) {
        c->channel.fd = -1; /* the caller closes it */
        channel_end(&c->channel);
        os_free(s->os, c);
        return false;
    }
    TAILQ_INSERT_TAIL(&s->pending, c, link);
    if (++s->pending_count > STORE_PENDING_MAX)
        conn_close(TAILQ_FIRST(&s->pending));
    return true;
}

/* Listening stops for a moment: a listener that stays readable would keep the loop spinning. */
static void accept_pause(struct store_server *s)
{
    for (int i = 0; i < s->listener_count; i++)
        s->os->poll_remove(s->os->ctx, s->poll_fd, s->listeners[i].fd);
    s->accept_resume_ns = s->now_ns + ACCEPT_PAUSE_NS;
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

static void listener_event(struct store_server *s, const struct listener *l)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = s->os->accept(s->os->ctx, l->fd, NULL, NULL);
        if (fd == -EAGAIN)
            return;
        if (fd == -ECONNABORTED || fd == -EINTR)
            continue;
        if (fd < 0) {
            /* no descriptor or memory left: strangers make room first */
            if (TAILQ_EMPTY(&s->pending)) {
                accept_pause(s);
                return;
            }
            conn_close(TAILQ_FIRST(&s->pending));
            continue;
        }
        if (!conn_admit(s, fd))
            s->os->close(s->os->ctx, fd);
    }
}

static struct listener *target_listener(struct store_server *s, void *tag)
{
    for (int i = 0; i < s->listener_count; i++)
        if (tag == &s->listeners[i])
            return &s->listeners[i];
    return NULL;
}

/* ---- time ---- */

static void expire_pending(struct store_server *s)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->pending)) != NULL && c->deadline_ns <= s->now_ns)
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
    for (c = TAILQ_FIRST(&s->proven); c != NULL; c = next) {
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
    expire_pending(s);
    expire_waiting(s);
    dead_free(s);
}

int64_t store_server_deadline_ns(const struct store_server *s)
{
    int64_t at = s->wait_next_ns;
    const struct conn *oldest = TAILQ_FIRST(&s->pending);
    if (oldest != NULL && oldest->deadline_ns < at)
        at = oldest->deadline_ns;
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
    uint64_t number;
    if (strcmp(address, "unix:") != 0) {
        if (strlen(address) >= ADDRESS_TEXT_MAX)
            return error_set(error, HVD_ERR_INVALID, "address \"%.80s...\" is too long", address);
        snprintf(ret_text, ADDRESS_TEXT_MAX, "%s", address);
        return HVD_OK;
    }
    int rc = os->random(os->ctx, &number, sizeof number);
    if (rc < 0)
        return error_set_os(error, rc, "no random bytes for a name");
    snprintf(ret_text, ADDRESS_TEXT_MAX, "unix:horovod-%016llx", (unsigned long long)number);
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
        status = address_list_parse(text, list, ADDRESS_LIST_MAX, &count, error);
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
    TAILQ_INIT(&s->pending);
    TAILQ_INIT(&s->proven);
    TAILQ_INIT(&s->dead);
    s->wait_next_ns = s->accept_resume_ns = NEVER_NS;
    s->now_ns = os_now_ns(os);
    s->budget = (struct budget){.os = os, .max = STORE_TOTAL_MAX};
    table_init(&s->table, &s->budget);
    cipher_load(&s->cipher);
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
    while ((c = TAILQ_FIRST(&s->pending)) != NULL || (c = TAILQ_FIRST(&s->proven)) != NULL)
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
    return s->pending_count;
}
