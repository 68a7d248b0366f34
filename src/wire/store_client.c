/* SPDX-License-Identifier: Apache-2.0 */
/* store_client.c - the asking side of the store: one request, one answer, one deadline.
 *
 * A request tells the server how long it may hold the answer back, a little less than our own
 * deadline; so when others are missing it is the server that ends the wait, naming them. Our own
 * deadline is for a server that does not answer at all. After a lost or late answer the connection
 * is out of step: it is closed, and later calls say so.
 *
 * Thread: the caller's, one at a time.  Blocks: until the deadline at most.
 * Start reading at client_call(). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/store.h"
#include "wire/store_dial.h"
#include "wire/store_message.h"
#include "wire/store_private.h"

#define MARGIN_MAX_NS (INT64_C(1000) * 1000 * 1000)
#define NEVER_LEFT_NS (INT64_MAX / 4)

struct store_client {
    const struct os *os;
    struct cipher cipher;
    struct budget budget;
    struct channel channel;
    struct address address;
    int poll_fd;
    bool wants_write;
    hvd_status_t broken; /* HVD_OK: in step with the server */
    bool has_entered;    /* an exchange */
};

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

static hvd_status_t client_wait(struct store_client *c, int64_t deadline_ns, struct error *error)
{
    for (;;) {
        hvd_status_t status = client_step(c, error);
        if (status != HVD_IN_PROGRESS)
            return status;
        int64_t left_ns = deadline_ns - os_now_ns(c->os);
        if (left_ns <= 0)
            return error_set(error, HVD_ERR_TIMEOUT, "it did not answer in time");
        struct os_event event;
        int rc = c->os->poll_wait(c->os->ctx, c->poll_fd, &event, 1, left_ns);
        if (rc < 0 && rc != -EINTR)
            return error_set_os(error, rc, "waiting failed");
    }
}

/* Sends the written request; on HVD_OK *ret_answer reads what lies behind status and text, until
 * channel_take(). */
static hvd_status_t client_talk(struct store_client *c, const struct store_request *request,
                                const uint8_t *message, size_t n, int64_t deadline_ns,
                                struct reader *ret_answer, struct error *error)
{
    char text[HVD_ERROR_MAX], address[ADDRESS_TEXT_MAX];
    struct error why = {0};
    channel_send(&c->channel, (uint8_t)request->type, message, n);
    hvd_status_t status = client_wait(c, deadline_ns, &why);
    if (status == HVD_OK && c->channel.rx_is_over_budget)
        status = error_set(&why, HVD_ERR_NO_MEMORY, "no memory for its answer");
    if (status == HVD_OK) {
        reader_init(ret_answer, c->channel.rx_message, c->channel.rx_message_bytes);
        hvd_status_t answer = (hvd_status_t)(int32_t)get_u32(ret_answer);
        get_text(ret_answer, text, sizeof text);
        if (c->channel.rx_type == STORE_ANSWER && !ret_answer->bad)
            return answer == HVD_OK ? HVD_OK : error_set(error, answer, "%s", text);
        status = error_set(&why, HVD_ERR_CORRUPT, "its answer makes no sense");
    }
    c->broken = status;
    address_format(&c->address, address, sizeof address);
    return error_set(error, status, "the store at %s, asked to %s \"%s\": %s", address,
                     request_name(request->type), request->scope, why.text);
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

static hvd_status_t client_call(struct store_client *c, struct store_request *request,
                                int64_t deadline_ns, struct reader *ret_answer, struct error *error)
{
    if (c->broken != HVD_OK)
        return error_set(error, HVD_ERR_LINK, "the connection to the store was lost earlier");
    if (request->blob_bytes > STORE_BLOB_MAX)
        return error_set(error, HVD_ERR_LIMIT, "a blob of %zu bytes; the store takes %u",
                         request->blob_bytes, STORE_BLOB_MAX);
    size_t capacity = store_request_bytes(request);
    uint8_t *message = os_alloc(c->os, capacity);
    if (message == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for a request");
    request->wait_ns = wait_for(c, deadline_ns);
    size_t n = store_request_write(request, message, capacity);
    hvd_status_t status = client_talk(c, request, message, n, deadline_ns, ret_answer, error);
    /* a broken channel must not send on from memory that is gone */
    if (c->broken != HVD_OK)
        channel_end(&c->channel);
    os_free(c->os, message);
    return status;
}

/* Frees the answer; a connection that broke has freed it already. */
static void client_finish(struct store_client *c)
{
    if (c->broken == HVD_OK)
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

static hvd_status_t request_begin(struct store_request *ret, enum store_type type,
                                  const char *scope, const char *key, struct error *error)
{
    memset(ret, 0, sizeof *ret);
    ret->type = type;
    if (text_copy(ret->scope, scope) && text_copy(ret->key, key))
        return HVD_OK;
    return error_set(error, HVD_ERR_LIMIT, "a scope or key is longer than %u bytes", STORE_KEY_MAX);
}

static hvd_status_t client_attach(struct store_client *c, struct error *error)
{
    int rc = c->os->poll_add(c->os->ctx, c->poll_fd, c->channel.fd, c, false);
    return rc < 0 ? error_set_os(error, rc, "the poller failed") : HVD_OK;
}

hvd_status_t store_client_open_with(const struct os *os, const char *addresses,
                                    const uint8_t key[32], uint64_t epoch, int32_t rank,
                                    int64_t deadline_ns, const struct cipher *cipher,
                                    struct store_client **ret, struct error *error)
{
    struct store_client *c = os_alloc(os, sizeof *c);
    if (c == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for the store's client");
    c->os = os;
    c->channel.fd = -1;
    c->budget = (struct budget){.os = os, .max = SIZE_MAX};
    if (cipher != NULL)
        c->cipher = *cipher;
    c->poll_fd = os->poll_create(os->ctx);
    struct store_dial dial = {.os = os,
                              .budget = &c->budget,
                              .cipher = &c->cipher,
                              .addresses = addresses,
                              .key = key,
                              .epoch = epoch,
                              .rank = rank,
                              .deadline_ns = deadline_ns,
                              .poll_fd = c->poll_fd};
    hvd_status_t status = c->poll_fd < 0 ? error_set_os(error, c->poll_fd, "no poller")
                                         : store_dial(&dial, &c->channel, &c->address, error);
    if (status == HVD_OK)
        status = client_attach(c, error);
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
    cipher_load(&cipher);
    return store_client_open_with(os, addresses, key, epoch, rank, deadline_ns, &cipher, ret,
                                  error);
}

bool store_client_is_encrypted(const struct store_client *c)
{
    return c->channel.is_encrypted;
}

/* Out of step or not, the server then knows that the process lives. Nobody waits for an answer. */
static void client_leave(struct store_client *c)
{
    if (!c->has_entered || c->channel.fd < 0)
        return;
    channel_send(&c->channel, STORE_LEAVE, NULL, 0);
    channel_flush(&c->channel, NULL);
}

void store_client_close(struct store_client *c)
{
    if (c == NULL)
        return;
    client_leave(c);
    channel_end(&c->channel);
    if (c->poll_fd >= 0)
        c->os->close(c->os->ctx, c->poll_fd);
    cipher_unload(&c->cipher);
    os_free(c->os, c);
}

/* Count, lengths, bytes: all is checked before anything is handed out. */
static hvd_status_t blobs_read(struct store_client *c, struct reader *answer, int32_t count,
                               uint8_t **ret_blobs, size_t *ret_offsets, struct error *error)
{
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

hvd_status_t store_client_exchange(struct store_client *c, const char *scope, uint64_t epoch,
                                   int32_t index, int32_t count, const void *blob, size_t n,
                                   int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                   struct error *error)
{
    struct store_request request;
    struct reader answer;
    hvd_status_t status = request_begin(&request, STORE_EXCHANGE, scope, "", error);
    if (status != HVD_OK)
        return status;
    if (count < 1 || (uint32_t)count > STORE_COUNT_MAX || index < 0 || index >= count)
        return error_set(error, HVD_ERR_INVALID, "exchange \"%s\": index %d of %d", scope, index,
                         count);
    request.epoch = epoch;
    request.index = (uint32_t)index;
    request.count = (uint32_t)count;
    request.blob = blob;
    request.blob_bytes = n;
    c->has_entered = true;
    status = client_call(c, &request, deadline_ns, &answer, error);
    if (status == HVD_OK)
        status = blobs_read(c, &answer, count, ret_blobs, ret_offsets, error);
    client_finish(c);
    return status;
}

hvd_status_t store_client_put(struct store_client *c, const char *scope, const char *key,
                              const void *blob, size_t n, int64_t deadline_ns, struct error *error)
{
    struct store_request request;
    struct reader answer;
    hvd_status_t status = request_begin(&request, STORE_PUT, scope, key, error);
    if (status != HVD_OK)
        return status;
    request.blob = blob;
    request.blob_bytes = n;
    status = client_call(c, &request, deadline_ns, &answer, error);
    client_finish(c);
    return status;
}

static hvd_status_t blob_read(struct store_client *c, struct reader *answer, void **ret_blob,
                              size_t *ret_n, struct error *error)
{
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
    struct store_request request;
    struct reader answer;
    hvd_status_t status = request_begin(&request, STORE_GET, scope, key, error);
    if (status != HVD_OK)
        return status;
    request.is_waiting = is_waiting;
    /* an absent key that nobody waits for is no failure: its text would hide a later one */
    struct error own = {0};
    status = client_call(c, &request, deadline_ns, &answer, &own);
    if (status == HVD_OK)
        status = blob_read(c, &answer, ret_blob, ret_n, error);
    else if (status < 0)
        error_set(error, status, "%s", own.text);
    client_finish(c);
    return status;
}

hvd_status_t store_client_delete(struct store_client *c, const char *scope, int64_t deadline_ns,
                                 struct error *error)
{
    struct store_request request;
    struct reader answer;
    hvd_status_t status = request_begin(&request, STORE_DELETE, scope, "", error);
    if (status != HVD_OK)
        return status;
    status = client_call(c, &request, deadline_ns, &answer, error);
    client_finish(c);
    return status;
}
