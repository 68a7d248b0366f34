/* SPDX-License-Identifier: Apache-2.0 */
/* test_wipe.c - the job key is in no memory that is freed: store, TCP links, shared memory links, a
 * world that could not be built, the launcher's messages. Every block is searched for the key, raw
 * and in hex, when it is freed or grown. Start reading at watch_search(). */
#define _GNU_SOURCE 1 /* memmem */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/world.h"
#include "mem.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "wire/cipher.h"
#include "wire/key.h"
#include "wire/store.h"

#define HEAD_BYTES 64 /* in front of every block: its size, and the alignment of what follows */

static uint8_t key[KEY_BYTES];
static char hex[KEY_HEX_BYTES];
static atomic_int found;
static struct os os;

/* ---- memory that is searched when it is given back ---- */

static void watch_search(const uint8_t *block)
{
    size_t n;
    memcpy(&n, block - HEAD_BYTES, sizeof n);
    if (memmem(block, n, key, sizeof key) != NULL || memmem(block, n, hex, strlen(hex)) != NULL)
        atomic_fetch_add(&found, 1);
}

static void *watch_alloc(void *ctx, size_t n)
{
    uint8_t *raw = NULL;
    (void)ctx;
    if (posix_memalign((void **)&raw, HEAD_BYTES, n + HEAD_BYTES) != 0)
        return NULL;
    memset(raw, 0, n + HEAD_BYTES);
    memcpy(raw, &n, sizeof n);
    return raw + HEAD_BYTES;
}

static void watch_free(void *ctx, void *ptr)
{
    (void)ctx;
    if (ptr == NULL)
        return;
    watch_search(ptr);
    free((uint8_t *)ptr - HEAD_BYTES);
}

static void *watch_resize(void *ctx, void *ptr, size_t n)
{
    size_t before = 0;
    uint8_t *grown = watch_alloc(ctx, n);
    if (ptr != NULL)
        memcpy(&before, (uint8_t *)ptr - HEAD_BYTES, sizeof before);
    if (ptr != NULL && grown != NULL)
        memcpy(grown, ptr, before < n ? before : n);
    if (grown != NULL)
        watch_free(ctx, ptr);
    return grown;
}

static const char *names[16];

static const char *watch_env(void *ctx, const char *name)
{
    (void)ctx;
    for (int i = 0; names[i] != NULL; i++)
        if (strncmp(names[i], name, strlen(name)) == 0 && names[i][strlen(name)] == '=')
            return names[i] + strlen(name) + 1;
    return NULL;
}

static void watch_env_each(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                           void *arg)
{
    (void)ctx;
    (void)fn;
    (void)arg;
}

static int setup(void **state)
{
    (void)state;
    struct error error = {0};
    assert_int_equal(key_generate(os_host(), key, &error), HVD_OK);
    key_hex(key, hex);
    os = *os_host();
    os.alloc = watch_alloc;
    os.resize = watch_resize;
    os.free = watch_free;
    os.env = watch_env;
    os.env_each = watch_env_each;
    os.env_wipe = NULL; /* the text above is not the environment */
    atomic_store(&found, 0);
    names[0] = NULL;
    return 0;
}

static void test_the_search_finds(void **state)
{
    (void)state;
    void *block = os_alloc(&os, 1000);
    memcpy((uint8_t *)block + 77, key, sizeof key);
    block = os.resize(os.ctx, block, 2000);
    assert_int_equal(atomic_load(&found), 1);
    memset(block, 0, 2000);
    memcpy(block, hex, sizeof hex);
    os_free(&os, block);
    assert_int_equal(atomic_load(&found), 2);
}

/* ---- the store ---- */

static atomic_bool is_over;

static void *serve(void *arg)
{
    struct store_server *server = arg;
    while (!atomic_load(&is_over)) {
        struct os_event event;
        os.poll_wait(os.ctx, store_server_poll_fd(server), &event, 1, 1000000);
        store_server_progress(server, os_now_ns(&os));
    }
    return NULL;
}

static void test_store(void **state)
{
    (void)state;
    static const uint8_t other[KEY_BYTES] = {1};
    struct store_server *server;
    struct store_client *client;
    char address[256];
    pthread_t thread;
    struct error error = {0};
    assert_int_equal(store_server_create(&os, "unix:", key, &server, address, &error), HVD_OK);
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
    int64_t until_ns = os_now_ns(&os) + 20000000000;
    assert_int_equal(store_client_open(&os, address, key, 0, 0, until_ns, &client, &error), HVD_OK);
    assert_int_equal(store_client_put(client, "s", "k", "v", 1, until_ns, &error), HVD_OK);
    store_client_close(client);
    /* one that fails half way */
    assert_int_not_equal(
        store_client_open(&os, address, other, 0, 0, os_now_ns(&os) + 200000000, &client, &error),
        HVD_OK);
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    store_server_destroy(server);
    assert_int_equal(atomic_load(&found), 0);
}

/* ---- links ---- */

struct rank {
    struct config config;
    struct endpoint all[2];
    struct shm *shm;
    struct tcp *tcp;
    int32_t index;
    int poll_fd;
    hvd_status_t status;
};

static void *connect_rank(void *arg)
{
    static const bool wanted[2] = {true, true};
    struct rank *r = arg;
    struct transport_events events = {0};
    struct error error = {0};
    r->status = r->shm != NULL
                    ? shm_connect(r->shm, r->all, 2, NULL, key, 1, r->poll_fd, &events, &error)
                    : tcp_connect(r->tcp, r->all, 2, wanted, key, 1, r->poll_fd, &events, &error);
    return NULL;
}

static void check_links(bool is_shm, const char *level)
{
    static struct rank ranks[2];
    struct endpoint self[2] = {0};
    struct error error = {0};
    pthread_t threads[2];
    for (int32_t i = 0; i < 2; i++) {
        struct rank *r = &ranks[i];
        memset(r, 0, sizeof *r);
        r->config.timeout_s = 20;
        r->config.tcp_flows = 1;
        r->config.local_size = -1;
        r->config.arena_max_bytes = 64 << 20;
        snprintf(r->config.security, sizeof r->config.security, "%s", level);
        r->index = self[i].rank = i;
        r->poll_fd = os.poll_create(os.ctx);
        hvd_status_t status = is_shm
                                  ? shm_create(&os, &r->config, i, &self[i], &r->shm, &error)
                                  : tcp_create(&os, &r->config, i, true, &self[i], &r->tcp, &error);
        assert_int_equal(status, HVD_OK);
    }
    for (int32_t i = 0; i < 2; i++) {
        memcpy(ranks[i].all, self, sizeof self);
        assert_int_equal(pthread_create(&threads[i], NULL, connect_rank, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < 2; i++) {
        struct transport *t = is_shm ? shm_transport(ranks[i].shm) : tcp_transport(ranks[i].tcp);
        assert_int_equal(ranks[i].status, HVD_OK);
        t->ops->destroy(t);
        os.close(os.ctx, ranks[i].poll_fd);
    }
    assert_int_equal(atomic_load(&found), 0);
}

static void test_links(void **state)
{
    (void)state;
    struct cipher cipher;
    check_links(true, "");
    check_links(false, "auth");
    if (!cipher_load(os_host(), &cipher))
        skip();
    cipher_unload(&cipher);
    check_links(false, "mac");
    check_links(false, "tls");
}

/* ---- a world that finds nobody: its configuration held the key as text ---- */

static void test_world(void **state)
{
    (void)state;
    char text[KEY_HEX_BYTES + 16];
    struct mpi_process process = {0};
    struct world *world = NULL;
    struct error error = {0};
    snprintf(text, sizeof text, "HOROVOD_KEY=%s", hex);
    const char *const list[] = {text,
                                "HOROVOD_RANK=1",
                                "HOROVOD_SIZE=2",
                                "HOROVOD_LOCAL_RANK=1",
                                "HOROVOD_LOCAL_SIZE=2",
                                "HOROVOD_CROSS_RANK=0",
                                "HOROVOD_CROSS_SIZE=1",
                                "HOROVOD_RENDEZVOUS=unix:horovod-nobody-is-here",
                                "HOROVOD_GLOO_TIMEOUT_SECONDS=1",
                                NULL};
    memcpy(names, list, sizeof list);
    struct tenure tenure = {0};
    assert_int_not_equal(world_create(&os, NULL, &tenure, &process, &world, &error), HVD_OK);
    assert_non_null(strstr(error.text, "horovod-nobody-is-here"));
    assert_int_equal(atomic_load(&found), 0);
}

/* ---- the launcher's messages carry the key to its agents ---- */

static void test_launcher_memory(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct mem m;
    bytes_add(&os, &b, key, sizeof key);
    for (int i = 0; i < 1000; i++)
        bytes_add(&os, &b, "more", 4);
    assert_memory_equal(bytes_at(&b), key, sizeof key);
    bytes_free(&os, &b);
    mem_init(&m, &os);
    memcpy(mem_alloc(&m, sizeof key), key, sizeof key);
    mem_copy(&m, hex);
    mem_destroy(&m);
    assert_int_equal(atomic_load(&found), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_search_finds, setup),
        cmocka_unit_test_setup(test_store, setup),
        cmocka_unit_test_setup(test_links, setup),
        cmocka_unit_test_setup(test_world, setup),
        cmocka_unit_test_setup(test_launcher_memory, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
