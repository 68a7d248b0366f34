/* SPDX-License-Identifier: Apache-2.0 */
/* store_client.c - the asking side of the store: one request, one answer, one deadline.
 *
 * A request tells the server how long it may hold the answer back, a little less than our own
 * deadline; so when others are missing it is the server that ends the wait, naming them. Our own
 * deadline is for a server that does not answer at all. After a lost or late answer the connection
 * is out of step: it is closed, and later calls say so.
 *
 * The machine never blocks: begin something, then call store_client_progress() until it is over.
 * The blocking calls are that, with a wait for the descriptor in between.
 *
 * Thread: the caller's, one at a time.  Blocks: until the deadline at most, or never.
 * Start reading at store_client_progress(). */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "wire/store.h"
#include "wire/store_dial.h"
#include "wire/store_message.h"
#include "wire/store_private.h"

#define MARGIN_MAX_NS (INT64_C(1000) * 1000 * 1000)
#define NEVER_LEFT_NS (INT64_MAX / 4)

enum client_state {
    CLIENT_DIALLING,
    CLIENT_READY,  /* in step with the server, nothing under way */
    CLIENT_ASKING, /* a request is under way */
    CLIENT_BROKEN  /* the connection is closed */
};

struct store_client {
    const struct os *os;
    struct cipher cipher;
    struct budget budget;
    enum client_state state;
    struct store_dial dial; /* while dialling */
    char *addresses;
    uint8_t key[32];
    struct channel channel;
    struct address address;
    int poll_fd;
    bool wants_write;
    bool has_entered; /* an exchange */
    int32_t pid;      /* whose connection it is */
    /* the request under way; its message is kept until it is over */
    struct store_request request;
    uint8_t *message;
    int64_t deadline_ns;
    struct reader answer; /* behind status and text of the last answer */
};

/* A forked child has a copy of the keys and of the frames' numbers: whatever it sealed would use a
 * nonce that its parent uses, too. */
static bool is_forked(const struct store_client *c)
{
    return c->os->pid(c->os->ctx) != c->pid;
}

static const char *request_name(enum store_type type)
{
    switch (type) {
    case STORE_EXCHANGE: return "exchange";
    case STORE_PUT: return "put";
    case STORE_GET: return "get";
    case STORE_DELETE: return "delete";
    case STORE_PING: return "ping";
    case STORE_ANSWER: return "answer";
    case STORE_LEAVE: return "leave";
    case STORE_JOIN: return "join";
    }
    return "?";
}

static hvd_status_t client_watch(struct store_client *c, bool wants_write)
{
    const struct os *os = c->os;
    if (wants_write == c->wants_write)
        return HVD_OK;
    c->wants_write = wants_write;
    int rc = os->poll_change(os->ctx, c->poll_fd, c->channel.fd, c, wants_write);
    return rc < 0 ? HVD_ERR_OS : HVD_OK;
}

/* HVD_OK: a whole answer is there. */
static hvd_status_t client_step(struct store_client *c, struct error *error)
{
    hvd_status_t status = channel_flush(&c->channel, error);
    if (status == HVD_OK)
        status = channel_recv(&c->channel, error);
    if (status == HVD_IN_PROGRESS && client_watch(c, channel_wants_write(&c->channel)) != HVD_OK)
        return error_set(error, HVD_ERR_OS, "the poller failed");
    return status;
}

static void message_free(struct store_client *c)
{
    os_free(c->os, c->message);
    c->message = NULL;
}

/* The connection is out of step with the server, or is gone. */
static hvd_status_t client_break(struct store_client *c, hvd_status_t status, const char *why,
                                 struct error *error)
{
    char address[ADDRESS_TEXT_MAX];
    address_format(&c->address, address, sizeof address);
    c->state = CLIENT_BROKEN;
    channel_end(&c->channel); /* before the message that it may be sending from */
    message_free(c);
    return error_set(error, status, "the store at %s, asked to %s \"%s\": %s", address,
                     request_name(c->request.type), c->request.scope, why);
}

/* A whole answer is there; on HVD_OK c->answer reads what lies behind status and text, until
 * client_finish(). */
static hvd_status_t client_answered(struct store_client *c, struct error *error)
{
    char text[HVD_ERROR_MAX];
    if (c->channel.rx_is_over_budget)
        return client_break(c, HVD_ERR_NO_MEMORY, "no memory for its answer", error);
    reader_init(&c->answer, c->channel.rx_message, c->channel.rx_message_bytes);
    hvd_status_t answer = (hvd_status_t)(int32_t)get_u32(&c->answer);
    get_text(&c->answer, text, sizeof text);
    if (c->channel.rx_type != STORE_ANSWER || c->answer.bad)
        return client_break(c, HVD_ERR_CORRUPT, "its answer makes no sense", error);
    c->state = CLIENT_READY;
    message_free(c);
    if (answer == HVD_OK)
        return HVD_OK;
    channel_take(&c->channel);
    return error_set(error, answer, "%s", text);
}

static hvd_status_t client_attach(struct store_client *c, struct error *error)
{
    int rc = c->os->poll_add(c->os->ctx, c->poll_fd, c->channel.fd, c, false);
    return rc < 0 ? error_set_os(error, rc, "the poller failed") : HVD_OK;
}

static hvd_status_t client_dial(struct store_client *c, struct error *error)
{
    hvd_status_t status = store_dial_step(&c->dial, &c->channel, &c->address, error);
    if (status == HVD_IN_PROGRESS)
        return status;
    store_dial_end(&c->dial);
    bytes_wipe(c->key, sizeof c->key);
    if (status == HVD_OK)
        status = client_attach(c, error);
    c->state = status == HVD_OK ? CLIENT_READY : CLIENT_BROKEN;
    return status;
}

hvd_status_t store_client_progress(struct store_client *c, struct error *error)
{
    struct error why = {0};
    hvd_status_t status;
    switch (c->state) {
    case CLIENT_DIALLING: return client_dial(c, error);
    case CLIENT_READY: return HVD_OK;
    case CLIENT_BROKEN:
        return error_set(error, HVD_ERR_LINK, "the connection to the store was lost earlier");
    case CLIENT_ASKING: break;
    }
    status = client_step(c, &why);
    if (status == HVD_OK)
        return client_answered(c, error);
    if (status == HVD_IN_PROGRESS && os_now_ns(c->os) >= c->deadline_ns)
        status = error_set(&why, HVD_ERR_TIMEOUT, "it did not answer in time");
    return status == HVD_IN_PROGRESS ? status : client_break(c, status, why.text, error);
}

int store_client_poll_fd(const struct store_client *c)
{
    return c->poll_fd;
}

int64_t store_client_next_ns(const struct store_client *c)
{
    switch (c->state) {
    case CLIENT_DIALLING: return c->dial.next_ns;
    case CLIENT_ASKING: return c->deadline_ns;
    case CLIENT_READY:
    case CLIENT_BROKEN: break;
    }
    return INT64_MAX;
}

bool store_client_is_lost(const struct store_client *c)
{
    return c->state == CLIENT_BROKEN;
}

/* Until what was begun is over. */
static hvd_status_t client_wait(struct store_client *c, struct error *error)
{
    for (;;) {
        hvd_status_t status = store_client_progress(c, error);
        if (status != HVD_IN_PROGRESS)
            return status;
        struct os_event event;
        int64_t left_ns = store_client_next_ns(c) - os_now_ns(c->os);
        int rc = c->os->poll_wait(c->os->ctx, c->poll_fd, &event, 1, left_ns > 0 ? left_ns : 0);
        if (rc < 0 && rc != -EINTR)
            return client_break(c, HVD_ERR_OS, strerror(-rc), error);
    }
}

/* What the server may wait: long enough to be useful, short enough to hear from it in time. */
static int64_t wait_for(const struct store_client *c, int64_t deadline_ns)
{
    int64_t now_ns = os_now_ns(c->os);
    if (deadline_ns <= now_ns)
        return 0;
    int64_t left_ns = deadline_ns - now_ns;
    if (left_ns > NEVER_LEFT_NS)
        left_ns = NEVER_LEFT_NS;
    int64_t margin_ns = left_ns / 4 < MARGIN_MAX_NS ? left_ns / 4 : MARGIN_MAX_NS;
    return left_ns - margin_ns;
}

/* Begins the request in c->request. */
static hvd_status_t client_ask(struct store_client *c, int64_t deadline_ns, struct error *error)
{
    struct store_request *request = &c->request;
    if (is_forked(c))
        return error_set(error, HVD_ERR_INVALID,
                         "this connection to the store was opened by process %d; a forked child "
                         "has to open its own",
                         (int)c->pid);
    if (c->state == CLIENT_BROKEN)
        return error_set(error, HVD_ERR_LINK, "the connection to the store was lost earlier");
    assert(c->state == CLIENT_READY);
    if (request->blob_bytes > STORE_BLOB_MAX)
        return error_set(error, HVD_ERR_LIMIT, "a blob of %zu bytes; the store takes %u",
                         request->blob_bytes, STORE_BLOB_MAX);
    size_t capacity = store_request_bytes(request);
    c->message = os_alloc(c->os, capacity);
    if (c->message == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a request");
    request->wait_ns = wait_for(c, deadline_ns);
    size_t n = store_request_write(request, c->message, capacity);
    c->deadline_ns = deadline_ns;
    c->state = CLIENT_ASKING;
    channel_send(&c->channel, (uint8_t)request->type, c->message, n);
    return HVD_OK;
}

static hvd_status_t client_call(struct store_client *c, int64_t deadline_ns, struct error *error)
{
    hvd_status_t status = client_ask(c, deadline_ns, error);
    return status == HVD_OK ? client_wait(c, error) : status;
}

/* Frees the answer; one of an error is freed already. */
static void client_finish(struct store_client *c)
{
    if (c->state == CLIENT_READY)
        channel_take(&c->channel);
}

static bool text_copy(char *ret, const char *text)
{
    size_t n = strlen(text);
    if (n > STORE_KEY_MAX)
        return false;
    memcpy(ret, text, n + 1);
    return true;
}

/* Only while none is under way. */
static hvd_status_t request_begin(struct store_client *c, enum store_type type, const char *scope,
                                  const char *key, struct error *error)
{
    struct store_request *ret = &c->request;
    memset(ret, 0, sizeof *ret);
    ret->type = type;
    if (text_copy(ret->scope, scope) && text_copy(ret->key, key))
        return HVD_OK;
    return error_set(error, HVD_ERR_LIMIT, "a scope or key is longer than %u bytes", STORE_KEY_MAX);
}

static hvd_status_t client_create(const struct os *os, const char *addresses, const uint8_t key[32],
                                  uint64_t epoch, int32_t rank, int64_t deadline_ns,
                                  const struct cipher *cipher, struct store_client **ret,
                                  struct error *error)
{
    size_t n = strlen(addresses) + 1;
    struct store_client *c = os_alloc(os, sizeof *c);
    if (c == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for the store's client");
    c->os = os;
    c->pid = os->pid(os->ctx);
    c->channel.fd = -1;
    c->budget = (struct budget){.os = os, .max = SIZE_MAX};
    if (cipher != NULL)
        c->cipher = *cipher;
    memcpy(c->key, key, sizeof c->key);
    c->addresses = os_alloc(os, n);
    c->poll_fd = os->poll_create(os->ctx);
    if (c->addresses == NULL || c->poll_fd < 0) {
        hvd_status_t status = c->poll_fd < 0
                                  ? error_set_os(error, c->poll_fd, "no poller")
                                  : error_set(error, HVD_ERR_NO_MEMORY, "no memory for addresses");
        store_client_close(c);
        return status;
    }
    memcpy(c->addresses, addresses, n);
    c->dial = (struct store_dial){.os = os,
                                  .budget = &c->budget,
                                  .cipher = &c->cipher,
                                  .addresses = c->addresses,
                                  .key = c->key,
                                  .epoch = epoch,
                                  .rank = rank,
                                  .deadline_ns = deadline_ns,
                                  .poll_fd = c->poll_fd};
    *ret = c;
    return HVD_OK;
}

hvd_status_t store_client_open_with(const struct os *os, const char *addresses,
                                    const uint8_t key[32], uint64_t epoch, int32_t rank,
                                    int64_t deadline_ns, const struct cipher *cipher,
                                    struct store_client **ret, struct error *error)
{
    struct store_client *c = NULL;
    hvd_status_t status =
        client_create(os, addresses, key, epoch, rank, deadline_ns, cipher, &c, error);
    if (status != HVD_OK)
        return status;
    status = client_wait(c, error);
    if (status != HVD_OK) {
        store_client_close(c);
        return status;
    }
    *ret = c;
    return HVD_OK;
}

hvd_status_t store_client_open(const struct os *os, const char *addresses, const uint8_t key[32],
                               uint64_t epoch, int32_t rank, int64_t deadline_ns,
                               struct store_client **ret, struct error *error)
{
    struct cipher cipher;
    cipher_load(os, &cipher);
    return store_client_open_with(os, addresses, key, epoch, rank, deadline_ns, &cipher, ret,
                                  error);
}

hvd_status_t store_client_begin(const struct os *os, const char *addresses, const uint8_t key[32],
                                int32_t rank, int64_t deadline_ns, struct store_client **ret,
                                struct error *error)
{
    struct cipher cipher;
    cipher_load(os, &cipher);
    hvd_status_t status =
        client_create(os, addresses, key, 0, rank, deadline_ns, &cipher, ret, error);
    return status == HVD_OK ? HVD_IN_PROGRESS : status;
}

bool store_client_is_encrypted(const struct store_client *c)
{
    return c->channel.is_encrypted;
}

/* Out of step or not, the server then knows that the process lives. Nobody waits for an answer. */
static void client_leave(struct store_client *c)
{
    if (!c->has_entered || c->channel.fd < 0 || is_forked(c) || channel_wants_write(&c->channel))
        return;
    channel_send(&c->channel, STORE_LEAVE, NULL, 0);
    channel_flush(&c->channel, NULL);
}

void store_client_close(struct store_client *c)
{
    if (c == NULL)
        return;
    client_leave(c);
    store_dial_end(&c->dial);
    channel_end(&c->channel);
    message_free(c);
    if (c->poll_fd >= 0)
        c->os->close(c->os->ctx, c->poll_fd);
    cipher_unload(&c->cipher);
    bytes_wipe(c->key, sizeof c->key);
    os_free(c->os, c->addresses);
    os_free(c->os, c);
}

/* Count, lengths, bytes: all is checked before anything is handed out. */
static hvd_status_t blobs_read(struct store_client *c, int32_t count, uint8_t **ret_blobs,
                               size_t *ret_offsets, struct error *error)
{
    struct reader *answer = &c->answer;
    size_t total = 0;
    if (get_u32(answer) != (uint32_t)count)
        answer->bad = true;
    for (int32_t i = 0; i < count; i++) {
        ret_offsets[i] = total;
        total += get_u32(answer);
    }
    ret_offsets[count] = total;
    if (answer->bad || total != answer->size - answer->at)
        return error_set(error, HVD_ERR_CORRUPT, "the store's answer to an exchange is malformed");
    uint8_t *blobs = os_alloc(c->os, total > 0 ? total : 1);
    if (blobs == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %zu bytes of an exchange", total);
    get_bytes(answer, blobs, total);
    *ret_blobs = blobs;
    return HVD_OK;
}

hvd_status_t store_client_begin_exchange(struct store_client *c, const char *scope, uint64_t epoch,
                                         int32_t index, int32_t count, const void *blob, size_t n,
                                         int64_t deadline_ns, struct error *error)
{
    hvd_status_t status = request_begin(c, STORE_EXCHANGE, scope, "", error);
    if (status != HVD_OK)
        return status;
    if (count < 1 || (uint32_t)count > STORE_COUNT_MAX || index < 0 || index >= count)
        return error_set(error, HVD_ERR_INVALID, "exchange \"%s\": index %d of %d", scope, index,
                         count);
    c->request.epoch = epoch;
    c->request.index = (uint32_t)index;
    c->request.count = (uint32_t)count;
    c->request.blob = blob;
    c->request.blob_bytes = n;
    c->has_entered = true;
    return client_ask(c, deadline_ns, error);
}

hvd_status_t store_client_take_exchange(struct store_client *c, int32_t count, uint8_t **ret_blobs,
                                        size_t *ret_offsets, struct error *error)
{
    hvd_status_t status = blobs_read(c, count, ret_blobs, ret_offsets, error);
    client_finish(c);
    return status;
}

hvd_status_t store_client_exchange(struct store_client *c, const char *scope, uint64_t epoch,
                                   int32_t index, int32_t count, const void *blob, size_t n,
                                   int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                   struct error *error)
{
    hvd_status_t status =
        store_client_begin_exchange(c, scope, epoch, index, count, blob, n, deadline_ns, error);
    if (status == HVD_OK)
        status = client_wait(c, error);
    return status == HVD_OK ? store_client_take_exchange(c, count, ret_blobs, ret_offsets, error)
                            : status;
}

/* ---- generations ---- */

hvd_status_t store_client_begin_join(struct store_client *c, const struct store_join *join,
                                     int64_t deadline_ns, struct error *error)
{
    hvd_status_t status = request_begin(c, STORE_JOIN, join->scope, "", error);
    if (status != HVD_OK)
        return status;
    size_t n = strlen(join->worker);
    if (n > STORE_WORKER_MAX || join->life == 0 || join->index < 0 || join->index >= join->count ||
        (uint32_t)join->count > STORE_COUNT_MAX)
        return error_set(error, HVD_ERR_INVALID, "join \"%s\": worker \"%.80s\", index %d of %d",
                         join->scope, join->worker, join->index, join->count);
    memcpy(c->request.worker, join->worker, n + 1);
    c->request.life = join->life;
    c->request.epoch = join->epoch;
    c->request.index = (uint32_t)join->index;
    c->request.count = (uint32_t)join->count;
    return client_ask(c, deadline_ns, error);
}

void store_generation_end(const struct os *os, struct store_generation *g)
{
    os_free(os, g->members);
    bytes_wipe(g, sizeof *g);
}

static void member_read(struct reader *answer, struct store_member *ret)
{
    get_text(answer, ret->worker, sizeof ret->worker);
    ret->place.local_rank = (int32_t)get_u32(answer);
    ret->place.local_size = (int32_t)get_u32(answer);
    ret->place.cross_rank = (int32_t)get_u32(answer);
    ret->place.cross_size = (int32_t)get_u32(answer);
}

static hvd_status_t members_read(struct store_client *c, struct store_generation *ret,
                                 struct error *error)
{
    ret->has_members = true;
    ret->rank = -1;
    ret->members = os_alloc(c->os, (size_t)ret->size * sizeof *ret->members);
    if (ret->members == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d members", ret->size);
    for (int32_t i = 0; i < ret->size; i++) {
        member_read(&c->answer, &ret->members[i]);
        if (strcmp(ret->members[i].worker, c->request.worker) == 0)
            ret->rank = i;
    }
    return HVD_OK;
}

hvd_status_t store_client_take_join(struct store_client *c, struct store_generation *ret,
                                    struct error *error)
{
    struct reader *answer = &c->answer;
    hvd_status_t status = HVD_OK;
    memset(ret, 0, sizeof *ret);
    ret->epoch = get_u64(answer);
    get_bytes(answer, ret->salt, sizeof ret->salt);
    ret->notice = get_u64(answer);
    uint32_t count = get_u32(answer);
    ret->rank = (int32_t)c->request.index;
    ret->size = (int32_t)(count > 0 ? count : c->request.count);
    if (count > STORE_COUNT_MAX)
        answer->bad = true;
    else if (count > 0)
        status = members_read(c, ret, error);
    if (status == HVD_OK && (!reader_done(answer) || ret->rank < 0 || ret->epoch == 0))
        status = error_set(error, HVD_ERR_CORRUPT, "the store's answer to a join is malformed");
    client_finish(c);
    if (status != HVD_OK)
        store_generation_end(c->os, ret);
    return status;
}

hvd_status_t store_client_join(struct store_client *c, const struct store_join *join,
                               int64_t deadline_ns, struct store_generation *ret,
                               struct error *error)
{
    hvd_status_t status = store_client_begin_join(c, join, deadline_ns, error);
    if (status == HVD_OK)
        status = client_wait(c, error);
    return status == HVD_OK ? store_client_take_join(c, ret, error) : status;
}

/* ---- keys ---- */

hvd_status_t store_client_put(struct store_client *c, const char *scope, const char *key,
                              const void *blob, size_t n, int64_t deadline_ns, struct error *error)
{
    hvd_status_t status = request_begin(c, STORE_PUT, scope, key, error);
    if (status != HVD_OK)
        return status;
    c->request.blob = blob;
    c->request.blob_bytes = n;
    status = client_call(c, deadline_ns, error);
    client_finish(c);
    return status;
}

static hvd_status_t blob_read(struct store_client *c, void **ret_blob, size_t *ret_n,
                              struct error *error)
{
    struct reader *answer = &c->answer;
    size_t n = 0;
    const void *view = get_blob(answer, STORE_BLOB_MAX, &n);
    if (!reader_done(answer))
        return error_set(error, HVD_ERR_CORRUPT, "the store's answer to a get is malformed");
    void *blob = os_alloc(c->os, n > 0 ? n : 1);
    if (blob == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a blob of %zu bytes", n);
    if (n > 0)
        memcpy(blob, view, n);
    *ret_blob = blob;
    *ret_n = n;
    return HVD_OK;
}

hvd_status_t store_client_get(struct store_client *c, const char *scope, const char *key,
                              bool is_waiting, int64_t deadline_ns, void **ret_blob, size_t *ret_n,
                              struct error *error)
{
    hvd_status_t status = request_begin(c, STORE_GET, scope, key, error);
    if (status != HVD_OK)
        return status;
    c->request.is_waiting = is_waiting;
    /* an absent key that nobody waits for is no failure: its text would hide a later one */
    struct error own = {0};
    status = client_call(c, deadline_ns, &own);
    if (status == HVD_OK)
        status = blob_read(c, ret_blob, ret_n, error);
    else if (status < 0)
        error_set(error, status, "%s", own.text);
    client_finish(c);
    return status;
}

hvd_status_t store_client_delete(struct store_client *c, const char *scope, int64_t deadline_ns,
                                 struct error *error)
{
    hvd_status_t status = request_begin(c, STORE_DELETE, scope, "", error);
    if (status != HVD_OK)
        return status;
    status = client_call(c, deadline_ns, error);
    client_finish(c);
    return status;
}
