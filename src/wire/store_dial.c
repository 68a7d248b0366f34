/* SPDX-License-Identifier: Apache-2.0 */
/* store_dial.c - dialling all addresses of the store in parallel; see store_dial.h.
 *
 * One attempt per address goes through: resting until a time, connecting, proving the key, asking
 * for a sign of life (PING). The last step matters: a dialer has finished the handshake before the
 * server has seen its proof, and a server under a flood may just then have dropped it.
 *
 * Thread: the caller's.  Owner: store_client.c.  Invariant: an attempt has a socket in the
 * poller unless it rests or is hopeless.  Start reading at store_dial_step(). */
#include "wire/store_dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "wire/store_message.h"
#include "wire/store_private.h"

#define PAUSE_FIRST_NS   (INT64_C(20) * 1000 * 1000)
#define PAUSE_MAX_NS     (INT64_C(500) * 1000 * 1000)
#define BACKLOG_PAUSE_NS (INT64_C(2) * 1000 * 1000)
#define RESOLVE_WAIT_NS  (INT64_C(200) * 1000 * 1000)
#define EVENTS_MAX       16

enum stage { STAGE_RESTING, STAGE_CONNECTING, STAGE_PROVING, STAGE_ASKING, STAGE_HOPELESS };

struct store_attempt {
    struct address address;
    enum stage stage;
    struct channel channel;
    int64_t until_ns; /* resting: when to try again; else: when to give up this try */
    int64_t pause_ns;
    bool wants_write;
    bool is_refused; /* the last time somebody answered there, and hung up on our proof */
    char why[160];   /* the last failure */
};

static void attempt_rest(const struct store_dial *d, struct store_attempt *a, const char *why)
{
    if (a->stage != STAGE_RESTING && a->stage != STAGE_HOPELESS) {
        d->os->poll_remove(d->os->ctx, d->poll_fd, a->channel.fd);
        channel_end(&a->channel);
    }
    snprintf(a->why, sizeof a->why, "%s", why);
    a->is_refused = false;
    a->stage = STAGE_RESTING;
    a->until_ns = os_now_ns(d->os) + a->pause_ns;
    a->pause_ns = a->pause_ns * 2 < PAUSE_MAX_NS ? a->pause_ns * 2 : PAUSE_MAX_NS;
}

static void attempt_fail(const struct store_dial *d, struct store_attempt *a, hvd_status_t status,
                         const struct error *error)
{
    bool was_proving = a->stage == STAGE_PROVING;
    attempt_rest(d, a, error->text);
    a->is_refused = was_proving;
    if (status == HVD_ERR_AUTH)
        a->stage = STAGE_HOPELESS; /* whoever sits there has another key; that will not change */
}

static bool attempt_watch(const struct store_dial *d, struct store_attempt *a, bool wants_write)
{
    if (wants_write == a->wants_write)
        return true;
    a->wants_write = wants_write;
    return d->os->poll_change(d->os->ctx, d->poll_fd, a->channel.fd, a, wants_write) >= 0;
}

static void attempt_start(const struct store_dial *d, struct store_attempt *a)
{
    static const int yes = 1;
    const struct os *os = d->os;
    struct channel_identity self = {
        .key = d->key, .epoch = d->epoch, .rank = d->rank, .is_dialer = true};
    int fd = os->socket(os->ctx, a->address.sockaddr.ss_family, SOCK_STREAM);
    if (fd < 0) {
        attempt_rest(d, a, strerror(-fd));
        return;
    }
    os->sockopt_set(os->ctx, fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    int rc =
        os->connect(os->ctx, fd, (const struct sockaddr *)&a->address.sockaddr, a->address.bytes);
    if (rc < 0 && rc != -EINPROGRESS) {
        os->close(os->ctx, fd);
        if (rc == -EAGAIN)
            a->pause_ns = BACKLOG_PAUSE_NS; /* a Unix socket's backlog is full: soon it is not */
        attempt_rest(d, a, rc == -EAGAIN ? "its backlog is full" : strerror(-rc));
        return;
    }
    if (channel_begin(&a->channel, os, d->budget, fd, &self, d->cipher, STORE_ANSWER_MAX) !=
            HVD_OK ||
        os->poll_add(os->ctx, d->poll_fd, fd, a, true) < 0) {
        channel_end(&a->channel);
        attempt_rest(d, a, "out of memory or random bytes");
        return;
    }
    a->wants_write = true;
    a->stage = STAGE_CONNECTING;
    a->until_ns = os_now_ns(os) + STORE_HANDSHAKE_NS;
}

static hvd_status_t on_connected(const struct store_dial *d, struct store_attempt *a,
                                 struct error *error)
{
    int code = 0;
    unsigned n = sizeof code;
    int rc = d->os->sockopt_get(d->os->ctx, a->channel.fd, SOL_SOCKET, SO_ERROR, &code, &n);
    if (rc < 0 || code != 0)
        return error_set(error, HVD_ERR_LINK, "%s", strerror(rc < 0 ? -rc : code));
    a->stage = STAGE_PROVING;
    return HVD_OK;
}

static hvd_status_t on_proving(struct store_attempt *a, struct error *error)
{
    hvd_status_t status = channel_handshake(&a->channel, error);
    if (status != HVD_OK)
        return status;
    channel_send(&a->channel, STORE_PING, NULL, 0);
    a->stage = STAGE_ASKING;
    return HVD_OK;
}

static hvd_status_t on_asking(struct store_attempt *a, struct error *error)
{
    hvd_status_t status = channel_flush(&a->channel, error);
    if (status == HVD_OK)
        status = channel_recv(&a->channel, error);
    if (status == HVD_OK)
        channel_take(&a->channel);
    return status;
}

/* HVD_OK: this attempt has won. */
static hvd_status_t attempt_step(const struct store_dial *d, struct store_attempt *a,
                                 struct error *error)
{
    hvd_status_t status = HVD_OK;
    if (a->stage == STAGE_CONNECTING)
        status = on_connected(d, a, error);
    if (status == HVD_OK && a->stage == STAGE_PROVING)
        status = on_proving(a, error);
    if (status == HVD_OK && a->stage == STAGE_ASKING)
        status = on_asking(a, error);
    if (status == HVD_IN_PROGRESS && !attempt_watch(d, a, channel_wants_write(&a->channel)))
        status = error_set(error, HVD_ERR_OS, "the poller failed");
    return status;
}

/* Starts what is due, gives up what hangs; tells when to look again. */
static int64_t attempts_tend(const struct store_dial *d, struct store_attempt *attempts, int count,
                             bool *ret_is_hopeless)
{
    int64_t next_ns = d->deadline_ns, now_ns = os_now_ns(d->os);
    *ret_is_hopeless = true;
    for (int i = 0; i < count; i++) {
        struct store_attempt *a = &attempts[i];
        if (a->stage == STAGE_HOPELESS)
            continue;
        *ret_is_hopeless = false;
        if (a->stage != STAGE_RESTING && a->until_ns <= now_ns)
            attempt_rest(d, a, "connected, but no answer");
        else if (a->stage == STAGE_RESTING && a->until_ns <= now_ns)
            attempt_start(d, a);
        if (a->until_ns < next_ns)
            next_ns = a->until_ns;
    }
    return next_ns;
}

static struct store_attempt *attempts_look(const struct store_dial *d)
{
    struct os_event events[EVENTS_MAX];
    int n = d->os->poll_wait(d->os->ctx, d->poll_fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++) {
        struct store_attempt *a = events[i].tag;
        struct error error = {0};
        hvd_status_t status = attempt_step(d, a, &error);
        if (status == HVD_OK)
            return a;
        if (status < 0)
            attempt_fail(d, a, status, &error);
    }
    return NULL;
}

/* One line about every address that did not work. */
static hvd_status_t fail_all(const struct store_attempt *attempts, int count, hvd_status_t status,
                             struct error *error)
{
    char text[HVD_ERROR_MAX - 64] = "";
    size_t at = 0;
    for (int i = 0; i < count && at < sizeof text; i++) {
        char address[ADDRESS_TEXT_MAX];
        const struct store_attempt *a = &attempts[i];
        address_format(&a->address, address, sizeof address);
        int n = snprintf(text + at, sizeof text - at, "%s%s: %s", i > 0 ? "; " : "", address,
                         a->why[0] != '\0' ? a->why : "no answer");
        at += n > 0 ? (size_t)n : 0;
    }
    return error_set(error, status, "could not reach the store: %s", text);
}

/* A store that is busy or about to end may hang up, too; at the time limit it is most likely the
 * key.
 */
static hvd_status_t late_status(const struct store_dial *d)
{
    for (int i = 0; i < d->count; i++)
        if (!d->attempts[i].is_refused)
            return HVD_ERR_TIMEOUT;
    return HVD_ERR_AUTH;
}

/* Names may become known later than we start; a malformed address never becomes right. */
static hvd_status_t resolve(struct store_dial *d, struct error *error)
{
    struct address list[ADDRESS_LIST_MAX];
    struct error why = {0};
    int count = 0;
    int64_t now_ns = os_now_ns(d->os);
    hvd_status_t status =
        address_list_parse(d->os, d->addresses, list, ADDRESS_LIST_MAX, &count, &why);
    if (status == HVD_ERR_LINK && now_ns < d->deadline_ns) {
        d->next_ns = now_ns + RESOLVE_WAIT_NS;
        if (d->next_ns > d->deadline_ns)
            d->next_ns = d->deadline_ns;
        return HVD_IN_PROGRESS;
    }
    if (status != HVD_OK)
        return error_set(error, status == HVD_ERR_LINK ? HVD_ERR_TIMEOUT : status, "%s", why.text);
    d->attempts = os_alloc(d->os, (size_t)count * sizeof *d->attempts);
    if (d->attempts == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory to dial the store");
    d->count = count;
    for (int i = 0; i < count; i++) {
        d->attempts[i].address = list[i];
        d->attempts[i].pause_ns = PAUSE_FIRST_NS;
    }
    return HVD_OK;
}

static void take_winner(struct store_dial *d, struct store_attempt *winner,
                        struct channel *ret_channel, struct address *ret_address)
{
    d->os->poll_remove(d->os->ctx, d->poll_fd, winner->channel.fd);
    *ret_channel = winner->channel;
    *ret_address = winner->address;
    winner->stage = STAGE_HOPELESS; /* its channel is not ours any more */
}

hvd_status_t store_dial_step(struct store_dial *d, struct channel *ret_channel,
                             struct address *ret_address, struct error *error)
{
    bool is_hopeless;
    if (d->attempts == NULL) {
        hvd_status_t status = os_now_ns(d->os) < d->next_ns ? HVD_IN_PROGRESS : resolve(d, error);
        if (status != HVD_OK)
            return status;
    }
    struct store_attempt *winner = attempts_look(d);
    if (winner != NULL) {
        take_winner(d, winner, ret_channel, ret_address);
        return HVD_OK;
    }
    d->next_ns = attempts_tend(d, d->attempts, d->count, &is_hopeless);
    if (is_hopeless)
        return fail_all(d->attempts, d->count, HVD_ERR_AUTH, error);
    if (os_now_ns(d->os) >= d->deadline_ns)
        return fail_all(d->attempts, d->count, late_status(d), error);
    return HVD_IN_PROGRESS;
}

void store_dial_end(struct store_dial *d)
{
    for (int i = 0; i < d->count; i++) {
        struct store_attempt *a = &d->attempts[i];
        if (a->stage == STAGE_RESTING || a->stage == STAGE_HOPELESS)
            continue;
        d->os->poll_remove(d->os->ctx, d->poll_fd, a->channel.fd);
        channel_end(&a->channel);
    }
    if (d->attempts != NULL)
        bytes_wipe(d->attempts, (size_t)d->count * sizeof *d->attempts);
    if (d->os != NULL)
        os_free(d->os, d->attempts);
    d->attempts = NULL;
    d->count = 0;
}
