/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - the store of wire/store.h for other programs; see horovod/hvd_store.h.
 *
 * A server has one thread that drives it; `lock` serialises it with hvd_store_server_listen(). This
 * file does not use the engine and does not need hvd_init(). Thread: any.  Owner: the caller.
 * Start reading at hvd_store_server_start(). */
#include <pthread.h>
#include <stdatomic.h>

#include "api/instance.h"
#include "horovod/hvd_store.h"
#include "wire/key.h"
#include "wire/store.h"

#define NS_PER_MS      INT64_C(1000000)
#define POLL_NS        (100 * NS_PER_MS)
#define ANSWER_MS      INT64_C(30000) /* for a request that waits only for the network */
#define TIMEOUT_MS_MAX INT64_C(86400000)

struct hvd_store_server {
    const struct os *os;
    pthread_mutex_t lock;
    struct store_server *server;
    int poll_fd;
    void *thread;
    _Atomic bool is_stopping;
    int32_t pid; /* whose thread it is */
};

struct hvd_store_client {
    struct store_client *client;
};

static int64_t deadline_ns(const struct os *os, int64_t timeout_ms)
{
    if (timeout_ms < 0)
        timeout_ms = 0;
    if (timeout_ms > TIMEOUT_MS_MAX)
        timeout_ms = TIMEOUT_MS_MAX;
    return os_now_ns(os) + timeout_ms * NS_PER_MS;
}

hvd_status_t hvd_store_key(uint8_t ret_key[HVD_STORE_KEY_BYTES])
{
    return key_generate(os_host(), ret_key, instance_error());
}

/* ---- serving ---- */

static void *serve(void *arg)
{
    struct hvd_store_server *s = arg;
    const struct os *os = s->os;
    while (!atomic_load(&s->is_stopping)) {
        struct os_event event;
        os->poll_wait(os->ctx, s->poll_fd, &event, 1, POLL_NS);
        pthread_mutex_lock(&s->lock);
        store_server_progress(s->server, os_now_ns(os));
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static hvd_status_t start_thread(struct hvd_store_server *s, struct error *error)
{
    const struct os *os = s->os;
    s->poll_fd = os->poll_create(os->ctx);
    int rc = s->poll_fd;
    if (rc >= 0)
        rc = os->poll_add(os->ctx, s->poll_fd, store_server_poll_fd(s->server), NULL, false);
    if (rc >= 0)
        rc = os->thread_start(os->ctx, serve, s, "horovod-store", &s->thread);
    return rc < 0 ? error_set_os(error, rc, "Could not start the thread of the store") : HVD_OK;
}

hvd_status_t hvd_store_server_start(const char *address, const uint8_t key[HVD_STORE_KEY_BYTES],
                                    hvd_store_server_t **ret,
                                    char ret_address[HVD_STORE_ADDRESS_BYTES])
{
    const struct os *os = os_host();
    struct error *error = instance_error();
    struct hvd_store_server *s = os_alloc(os, sizeof *s);
    if (s == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    s->os = os;
    s->pid = os->pid(os->ctx);
    s->poll_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    hvd_status_t status = store_server_create(os, address, key, &s->server, ret_address, error);
    if (status == HVD_OK)
        status = start_thread(s, error);
    if (status != HVD_OK) {
        hvd_store_server_stop(s);
        return status;
    }
    *ret = s;
    return HVD_OK;
}

hvd_status_t hvd_store_server_listen(hvd_store_server_t *s, const char *address,
                                     char ret_address[HVD_STORE_ADDRESS_BYTES])
{
    pthread_mutex_lock(&s->lock);
    hvd_status_t status = store_server_listen(s->server, address, ret_address, instance_error());
    pthread_mutex_unlock(&s->lock);
    return status;
}

void hvd_store_server_stop(hvd_store_server_t *s)
{
    if (s == NULL)
        return;
    const struct os *os = s->os;
    if (os->pid(os->ctx) != s->pid)
        return; /* a forked child: it has neither the thread nor the poller */
    atomic_store(&s->is_stopping, true);
    if (s->thread != NULL)
        os->thread_join(os->ctx, s->thread);
    if (s->poll_fd >= 0)
        os->close(os->ctx, s->poll_fd);
    store_server_destroy(s->server);
    pthread_mutex_destroy(&s->lock);
    os_free(os, s);
}

/* ---- asking ---- */

hvd_status_t hvd_store_open(const char *addresses, const uint8_t key[HVD_STORE_KEY_BYTES],
                            int64_t timeout_ms, hvd_store_client_t **ret)
{
    const struct os *os = os_host();
    struct error *error = instance_error();
    struct hvd_store_client *c = os_alloc(os, sizeof *c);
    if (c == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    hvd_status_t status =
        store_client_open(os, addresses, key, 0, 0, deadline_ns(os, timeout_ms), &c->client, error);
    if (status != HVD_OK) {
        os_free(os, c);
        return status;
    }
    *ret = c;
    return HVD_OK;
}

hvd_status_t hvd_store_put(hvd_store_client_t *c, const char *scope, const char *key,
                           const void *bytes, size_t n, int64_t timeout_ms)
{
    return store_client_put(c->client, scope, key, bytes, n, deadline_ns(os_host(), timeout_ms),
                            instance_error());
}

hvd_status_t hvd_store_get(hvd_store_client_t *c, const char *scope, const char *key,
                           int64_t timeout_ms, void **ret_bytes, size_t *ret_n)
{
    bool is_waiting = timeout_ms > 0;
    return store_client_get(c->client, scope, key, is_waiting,
                            deadline_ns(os_host(), is_waiting ? timeout_ms : ANSWER_MS), ret_bytes,
                            ret_n, instance_error());
}

hvd_status_t hvd_store_delete(hvd_store_client_t *c, const char *scope, int64_t timeout_ms)
{
    return store_client_delete(c->client, scope, deadline_ns(os_host(), timeout_ms),
                               instance_error());
}

void hvd_store_free(void *bytes)
{
    os_free(os_host(), bytes);
}

void hvd_store_close(hvd_store_client_t *c)
{
    if (c == NULL)
        return;
    store_client_close(c->client);
    os_free(os_host(), c);
}
