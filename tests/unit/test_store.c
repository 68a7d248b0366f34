/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - the rendezvous store end to end: a server in a thread, clients in others, over
 * abstract Unix sockets and loopback TCP, encrypted and not; epochs, deadlines, limits, strangers
 * and damaged frames; and the server with its k-th system call failing. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "other_user.h"
#include "wire/address.h"
#include "wire/store.h"
#include "wire/store_message.h"
#include "wire/store_private.h"

#define SECOND_NS INT64_C(1000000000)

static const uint8_t KEY[32] = {3, 1, 4, 1, 5, 9};
static const uint8_t OTHER_KEY[32] = {2, 7, 1, 8};

/* ---- a server in a thread ---- */

struct bed {
    struct store_server *server;
    char address[256];
    pthread_mutex_t lock; /* around every call on the server */
    pthread_t thread;
    atomic_bool is_over;
    atomic_llong skip_ns; /* added to the server's clock */
};

static int64_t later(double seconds)
{
    return os_now_ns(os_host()) + (int64_t)(seconds * 1e9);
}

static void *bed_main(void *arg)
{
    struct bed *b = arg;
    while (!atomic_load(&b->is_over)) {
        struct pollfd p = {.fd = store_server_poll_fd(b->server), .events = POLLIN};
        poll(&p, 1, 2);
        pthread_mutex_lock(&b->lock);
        store_server_progress(b->server, os_now_ns(os_host()) + atomic_load(&b->skip_ns));
        pthread_mutex_unlock(&b->lock);
    }
    return NULL;
}

static void bed_start_with(struct bed *b, const struct os *os, const char *address)
{
    struct error error = {0};
    memset(b, 0, sizeof *b);
    assert_int_equal(store_server_create(os, address, KEY, &b->server, b->address, &error), HVD_OK);
    pthread_mutex_init(&b->lock, NULL);
    assert_int_equal(pthread_create(&b->thread, NULL, bed_main, b), 0);
}

static void bed_start(struct bed *b, const char *address)
{
    bed_start_with(b, os_host(), address);
}

static void bed_stop(struct bed *b)
{
    atomic_store(&b->is_over, true);
    pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->lock);
    store_server_destroy(b->server);
}

static struct store_client *client(struct bed *b, int32_t rank)
{
    struct store_client *c = NULL;
    struct error error = {0};
    hvd_status_t status =
        store_client_open(os_host(), b->address, KEY, 0, rank, later(20), &c, &error);
    if (status != HVD_OK)
        fail_msg("open: %s", error.text);
    return c;
}

static int32_t arrived(struct bed *b, const char *scope, uint64_t epoch, uint8_t *ret_bits, int n)
{
    pthread_mutex_lock(&b->lock);
    int32_t count = store_server_arrived(b->server, scope, epoch, ret_bits, n);
    pthread_mutex_unlock(&b->lock);
    return count;
}

static void wait_arrived(struct bed *b, const char *scope, uint64_t epoch, int32_t want, int n)
{
    uint8_t bits[16];
    while (arrived(b, scope, epoch, bits, n) != want)
        usleep(1000);
}

/* ---- a rank in a thread ---- */

struct rank {
    struct bed *bed;
    const char *scope;
    uint64_t epoch;
    int32_t index, count;
    double seconds;
    size_t bytes;
    bool is_plain;
    hvd_status_t status;
    struct error error;
    bool is_right, is_encrypted;
    pthread_t thread;
};

static void rank_check(struct rank *r, const uint8_t *blobs, const size_t *offsets)
{
    r->is_right = true;
    for (int32_t i = 0; i < r->count; i++) {
        size_t n = r->bytes + (size_t)i;
        if (offsets[i + 1] - offsets[i] != n)
            r->is_right = false;
        for (size_t k = 0; r->is_right && k < n; k++)
            r->is_right = blobs[offsets[i] + k] == (uint8_t)(i + 1);
    }
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct store_client *c = NULL;
    uint8_t *blobs = NULL;
    size_t offsets[65];
    size_t n = r->bytes + (size_t)r->index;
    uint8_t *mine = malloc(n + 1);
    struct cipher cipher = {0};
    memset(mine, r->index + 1, n);
    if (!r->is_plain)
        cipher_load(os_host(), &cipher);
    r->status = store_client_open_with(os_host(), r->bed->address, KEY, r->epoch, r->index,
                                       later(20), &cipher, &c, &r->error);
    if (r->status == HVD_OK) {
        r->is_encrypted = store_client_is_encrypted(c);
        r->status = store_client_exchange(c, r->scope, r->epoch, r->index, r->count, mine, n,
                                          later(r->seconds), &blobs, offsets, &r->error);
    }
    if (r->status == HVD_OK) {
        rank_check(r, blobs, offsets);
        os_free(os_host(), blobs);
    }
    store_client_close(c);
    free(mine);
    return NULL;
}

static void rank_start(struct rank *r, struct bed *b, const char *scope, uint64_t epoch,
                       int32_t index, int32_t count, double seconds)
{
    r->bed = b;
    r->scope = scope;
    r->epoch = epoch;
    r->index = index;
    r->count = count;
    r->seconds = seconds;
    assert_int_equal(pthread_create(&r->thread, NULL, rank_main, r), 0);
}

static void rank_join(struct rank *r)
{
    assert_int_equal(pthread_join(r->thread, NULL), 0);
}

static void exchange_all(struct bed *b, const char *scope, int32_t count, size_t bytes,
                         bool is_plain)
{
    struct rank ranks[8] = {{0}};
    for (int32_t i = 0; i < count; i++) {
        ranks[i].bytes = bytes;
        ranks[i].is_plain = is_plain && i % 2 == 0;
        rank_start(&ranks[i], b, scope, 1, i, count, 20);
    }
    for (int32_t i = 0; i < count; i++)
        rank_join(&ranks[i]);
    for (int32_t i = 0; i < count; i++) {
        if (ranks[i].status != HVD_OK)
            fail_msg("rank %d: %s", i, ranks[i].error.text);
        assert_true(ranks[i].is_right);
    }
}

/* ---- values ---- */

static void values_on(const char *address)
{
    struct bed b;
    struct error error = {0};
    void *blob = NULL;
    size_t n = 0;
    bed_start(&b, address);
    struct store_client *c = client(&b, 0);
    assert_int_equal(store_client_get(c, "s", "k", false, later(20), &blob, &n, &error), HVD_AGAIN);
    assert_int_equal(error.status, HVD_OK);
    assert_int_equal(store_client_put(c, "s", "k", "hello", 5, later(20), &error), HVD_OK);
    assert_int_equal(store_client_get(c, "s", "k", false, later(20), &blob, &n, &error), HVD_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(blob, "hello", 5);
    os_free(os_host(), blob);
    assert_int_equal(store_client_put(c, "s", "k", NULL, 0, later(20), &error), HVD_OK);
    assert_int_equal(store_client_get(c, "s", "k", true, later(20), &blob, &n, &error), HVD_OK);
    assert_int_equal(n, 0);
    os_free(os_host(), blob);
    assert_int_equal(store_client_delete(c, "s", later(20), &error), HVD_OK);
    assert_int_equal(store_client_get(c, "s", "k", false, later(20), &blob, &n, &error), HVD_AGAIN);
    store_client_close(c);
    pthread_mutex_lock(&b.lock);
    assert_int_equal(store_server_bytes_used(b.server), 0);
    pthread_mutex_unlock(&b.lock);
    bed_stop(&b);
}

static void test_values(void **state)
{
    (void)state;
    values_on("unix:");
    values_on("127.0.0.1:0");
}

static void test_values_large(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    void *back = NULL;
    size_t n = 0, bytes = (3u << 20) + 17;
    uint8_t *blob = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        blob[i] = (uint8_t)(i * 31 >> 3);
    bed_start(&b, "unix:");
    struct store_client *c = client(&b, 0);
    assert_int_equal(store_client_put(c, "s", "k", blob, bytes, later(20), &error), HVD_OK);
    assert_int_equal(store_client_get(c, "s", "k", false, later(20), &back, &n, &error), HVD_OK);
    assert_int_equal(n, bytes);
    assert_memory_equal(back, blob, bytes);
    os_free(os_host(), back);
    store_client_close(c);
    bed_stop(&b);
    free(blob);
}

static void test_server_access(void **state)
{
    (void)state;
    struct store_server *s;
    char address[256], long_key[STORE_KEY_MAX + 2];
    size_t n = 0;
    assert_int_equal(store_server_create(os_host(), "unix:", KEY, &s, address, NULL), HVD_OK);
    assert_int_equal(store_server_put(s, "a", "k", "one", 3), HVD_OK);
    assert_int_equal(store_server_put(s, "a", "k", "three", 5), HVD_OK);
    assert_memory_equal(store_server_get(s, "a", "k", &n), "three", 5);
    assert_int_equal(n, 5);
    assert_null(store_server_get(s, "a", "other", &n));
    assert_null(store_server_get(s, "b", "k", &n));
    memset(long_key, 'x', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    assert_int_equal(store_server_put(s, "a", long_key, "", 0), HVD_ERR_LIMIT);
    store_server_delete(s, "a");
    store_server_delete(s, "a");
    assert_null(store_server_get(s, "a", "k", &n));
    assert_int_equal(store_server_bytes_used(s), 0);
    assert_int_equal(store_server_deadline_ns(s), INT64_MAX);
    store_server_destroy(s);
    store_server_destroy(NULL);
}

struct getter {
    struct bed *bed;
    hvd_status_t status;
    struct error error;
    char text[16];
    double seconds;
};

static void *getter_main(void *arg)
{
    struct getter *g = arg;
    void *blob = NULL;
    size_t n = 0;
    struct store_client *c = client(g->bed, 1);
    g->status = store_client_get(c, "s", "late", true, later(g->seconds), &blob, &n, &g->error);
    if (g->status == HVD_OK)
        snprintf(g->text, sizeof g->text, "%.*s", (int)n, (const char *)blob);
    os_free(os_host(), blob);
    store_client_close(c);
    return NULL;
}

static void test_get_waits(void **state)
{
    (void)state;
    struct bed b;
    struct getter g = {.bed = &b, .seconds = 20};
    pthread_t thread;
    bed_start(&b, "unix:");
    assert_int_equal(pthread_create(&thread, NULL, getter_main, &g), 0);
    usleep(20000);
    pthread_mutex_lock(&b.lock);
    assert_int_equal(store_server_put(b.server, "s", "other", "no", 2), HVD_OK);
    assert_int_equal(store_server_put(b.server, "s", "late", "yes", 3), HVD_OK);
    pthread_mutex_unlock(&b.lock);
    pthread_join(thread, NULL);
    assert_int_equal(g.status, HVD_OK);
    assert_string_equal(g.text, "yes");
    bed_stop(&b);
}

static void test_get_times_out(void **state)
{
    (void)state;
    struct bed b;
    struct getter g = {.bed = &b, .seconds = 2};
    bed_start(&b, "unix:");
    getter_main(&g);
    assert_int_equal(g.status, HVD_ERR_TIMEOUT);
    assert_string_equal(g.error.text, "key \"late\" of \"s\" was not put");
    bed_stop(&b);
}

/* ---- exchanges ---- */

static void test_exchange(void **state)
{
    (void)state;
    static const char *const addresses[] = {"unix:", "127.0.0.1:0"};
    for (int i = 0; i < 2; i++) {
        struct bed b;
        bed_start(&b, addresses[i]);
        exchange_all(&b, "world", 4, 0, false);
        exchange_all(&b, "alone", 1, 10, false);
        exchange_all(&b, "large", 4, 300000, true);
        bed_stop(&b);
    }
}

static void test_encryption_is_chosen(void **state)
{
    (void)state;
    struct cipher probe;
    bool has_cipher = cipher_load(os_host(), &probe);
    cipher_unload(&probe);
    for (int mode = 0; mode < 4; mode++) {
        struct bed b;
        struct rank r = {.is_plain = (mode & 1) != 0, .bytes = 70000};
        bed_start(&b, "unix:");
        pthread_mutex_lock(&b.lock);
        if (mode & 2)
            store_server_forgo_encryption(b.server);
        pthread_mutex_unlock(&b.lock);
        rank_start(&r, &b, "world", 1, 0, 1, 20);
        rank_join(&r);
        assert_int_equal(r.status, HVD_OK);
        assert_true(r.is_right);
        assert_int_equal(r.is_encrypted, has_cipher && mode == 0);
        bed_stop(&b);
    }
}

static void test_exchange_names_the_missing(void **state)
{
    (void)state;
    struct bed b;
    struct rank ranks[2] = {{0}};
    bed_start(&b, "unix:");
    rank_start(&ranks[0], &b, "world", 3, 0, 4, 20);
    rank_start(&ranks[1], &b, "world", 3, 2, 4, 20);
    wait_arrived(&b, "world", 3, 2, 4);
    atomic_store(&b.skip_ns, 30 * SECOND_NS); /* the server's clock jumps past both waits */
    for (int i = 0; i < 2; i++) {
        rank_join(&ranks[i]);
        assert_int_equal(ranks[i].status, HVD_ERR_TIMEOUT);
        assert_non_null(strstr(ranks[i].error.text,
                               "exchange \"world\" of epoch 3: 2 of 4 ranks have not arrived: 1, "
                               "3"));
    }
    wait_arrived(&b, "world", 3, 0, 4);
    bed_stop(&b);
}

static void test_exchange_deadline(void **state)
{
    (void)state;
    struct bed b;
    struct rank r = {0};
    bed_start(&b, "127.0.0.1:0");
    rank_start(&r, &b, "world", 0, 1, 2, 2);
    rank_join(&r);
    assert_int_equal(r.status, HVD_ERR_TIMEOUT);
    assert_string_equal(r.error.text,
                        "exchange \"world\" of epoch 0: 1 of 2 ranks have not arrived: 0");
    const char *summary = NULL;
    assert_int_equal(store_missing_rank(r.error.text, &summary), 0);
    assert_string_equal(summary, "1 of 2 ranks have not arrived: 0");
    assert_int_equal(store_missing_rank("exchange \"world\": epoch 4 is given up", &summary), -1);
    assert_int_equal(store_missing_rank("", &summary), -1);
    bed_stop(&b);
}

/* A server that accepts and proves, then says nothing: our own deadline ends the call. */
static void test_silent_server(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    bed_start(&b, "unix:");
    struct store_client *c = client(&b, 0);
    pthread_mutex_lock(&b.lock); /* the server's thread stands still */
    assert_int_equal(store_client_put(c, "s", "k", "v", 1, later(0.2), &error), HVD_ERR_TIMEOUT);
    pthread_mutex_unlock(&b.lock);
    assert_non_null(strstr(error.text, "asked to put \"s\": it did not answer in time"));
    memset(&error, 0, sizeof error);
    assert_int_equal(store_client_put(c, "s", "k", "v", 1, later(20), &error), HVD_ERR_LINK);
    store_client_close(c);
    bed_stop(&b);
}

static void test_exchange_forgets_the_gone(void **state)
{
    (void)state;
    struct bed b;
    struct rank ranks[3] = {{0}};
    uint8_t bits[1];
    bed_start(&b, "unix:");
    rank_start(&ranks[0], &b, "world", 1, 1, 3, 0.4);
    wait_arrived(&b, "world", 1, 1, 3);
    assert_int_equal(arrived(&b, "world", 1, bits, 3), 1);
    assert_int_equal(bits[0], 2);
    assert_int_equal(arrived(&b, "world", 2, bits, 3), 0);
    assert_int_equal(arrived(&b, "world", STORE_EPOCH_ANY, bits, 3), 1);
    assert_int_equal(arrived(&b, "nowhere", 1, bits, 3), 0);
    rank_join(&ranks[0]);
    assert_int_equal(ranks[0].status, HVD_ERR_TIMEOUT);
    wait_arrived(&b, "world", 1, 0, 3);
    for (int32_t i = 0; i < 3; i++)
        rank_start(&ranks[i], &b, "world", 1, i, 3, 20);
    for (int32_t i = 0; i < 3; i++) {
        rank_join(&ranks[i]);
        assert_int_equal(ranks[i].status, HVD_OK);
        assert_true(ranks[i].is_right);
    }
    assert_int_equal(arrived(&b, "world", 1, bits, 3), 3);
    assert_int_equal(bits[0], 7);
    bed_stop(&b);
}

static atomic_bool is_mute;

static int64_t mute_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    return atomic_load(&is_mute) ? -EPIPE : os_host()->send(ctx, fd, iov, count);
}

/* A time by the server's clock, which tests set forward. */
static int64_t server_later(struct bed *b, double seconds)
{
    return later(seconds) + atomic_load(&b->skip_ns);
}

static int32_t vanished(struct bed *b)
{
    pthread_mutex_lock(&b->lock);
    int32_t index = store_server_vanished(b->server, server_later(b, 60));
    pthread_mutex_unlock(&b->lock);
    return index;
}

struct visitor {
    struct store_client *c;
    int32_t index;
    hvd_status_t status;
};

static void *visitor_main(void *arg)
{
    struct visitor *v = arg;
    uint8_t *blobs = NULL;
    size_t offsets[9];
    v->status = store_client_exchange(v->c, "world", 1, v->index, 8, "x", 1, later(60), &blobs,
                                      offsets, NULL);
    return NULL;
}

/* Enters an exchange of eight, who never all come, until the server ends the wait, and closes; a
 * dead one can't say a last word. */
static void enter_and_go(struct bed *b, int32_t index, bool is_dead)
{
    struct os os = *os_host();
    struct visitor v = {.index = index};
    pthread_t thread;
    os.send = mute_send;
    atomic_store(&is_mute, false);
    assert_int_equal(store_client_open(&os, b->address, KEY, 0, index, later(60), &v.c, NULL),
                     HVD_OK);
    assert_int_equal(pthread_create(&thread, NULL, visitor_main, &v), 0);
    wait_arrived(b, "world", 1, 1, 8);
    atomic_fetch_add(&b->skip_ns, 100 * SECOND_NS);
    pthread_join(thread, NULL);
    assert_int_equal(v.status, HVD_ERR_TIMEOUT);
    atomic_store(&is_mute, is_dead);
    store_client_close(v.c);
}

static void test_who_vanished(void **state)
{
    (void)state;
    struct bed b;
    bed_start(&b, "unix:");
    assert_int_equal(vanished(&b), -1);
    pthread_mutex_lock(&b.lock);
    store_server_watch(b.server, "world");
    pthread_mutex_unlock(&b.lock);
    enter_and_go(&b, 5, false); /* left in words */
    enter_and_go(&b, 4, true);
    while (vanished(&b) < 0)
        usleep(1000);
    assert_int_equal(vanished(&b), 4);
    pthread_mutex_lock(&b.lock);
    assert_int_equal(store_server_vanished(b.server, server_later(&b, -60)),
                     -1); /* not so long ago */
    pthread_mutex_unlock(&b.lock);
    enter_and_go(&b, 4, false); /* it came back */
    assert_int_equal(vanished(&b), -1);
    bed_stop(&b);
}

static void test_epochs(void **state)
{
    (void)state;
    struct bed b;
    struct rank old = {0}, late = {0}, now[2] = {{0}};
    bed_start(&b, "unix:");
    rank_start(&old, &b, "world", 4, 0, 2, 20);
    wait_arrived(&b, "world", 4, 1, 2);
    rank_start(&now[0], &b, "world", 5, 0, 2, 20);
    rank_join(&old);
    assert_int_equal(old.status, HVD_ERR_STALE);
    assert_string_equal(old.error.text,
                        "exchange \"world\": epoch 5 has begun, epoch 4 is given up");
    rank_start(&late, &b, "world", 4, 1, 2, 20);
    rank_join(&late);
    assert_int_equal(late.status, HVD_ERR_STALE);
    assert_string_equal(late.error.text, "exchange \"world\" is at epoch 5, epoch 4 has passed");
    rank_start(&now[1], &b, "world", 5, 1, 2, 20);
    for (int i = 0; i < 2; i++) {
        rank_join(&now[i]);
        assert_int_equal(now[i].status, HVD_OK);
        assert_true(now[i].is_right);
    }
    bed_stop(&b);
}

static void test_exchange_again(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    uint8_t *blobs;
    size_t offsets[3];
    bed_start(&b, "unix:");
    exchange_all(&b, "world", 2, 3, false);
    struct store_client *c = client(&b, 0);
    /* the same again: the same answer at once */
    assert_int_equal(store_client_exchange(c, "world", 1, 1, 2, "\2\2\2\2", 4, later(20), &blobs,
                                           offsets, &error),
                     HVD_OK);
    assert_int_equal(offsets[2], 7);
    assert_memory_equal(blobs, "\1\1\1\2\2\2\2", 7);
    os_free(os_host(), blobs);
    /* something else under the same epoch: who brings it has to join the next one */
    assert_int_equal(store_client_exchange(c, "world", 1, 1, 2, "\2\2\2!", 4, later(20), &blobs,
                                           offsets, &error),
                     HVD_ERR_STALE);
    assert_string_equal(error.text,
                        "exchange \"world\" of epoch 1 has finished without this process");
    memset(&error, 0, sizeof error);
    struct rank waiting = {0};
    rank_start(&waiting, &b, "world", 2, 0, 2, 20);
    wait_arrived(&b, "world", 2, 1, 2);
    assert_int_equal(
        store_client_exchange(c, "world", 2, 1, 3, "", 0, later(20), &blobs, offsets, &error),
        HVD_ERR_MISMATCH);
    assert_string_equal(error.text, "exchange \"world\": rank 1 counts 3 ranks, others count 2");
    pthread_mutex_lock(&b.lock);
    store_server_delete(b.server, "world");
    pthread_mutex_unlock(&b.lock);
    rank_join(&waiting);
    assert_int_equal(
        store_client_exchange(c, "world", 1, 2, 2, "", 0, later(20), &blobs, offsets, NULL),
        HVD_ERR_INVALID);
    store_client_close(c);
    bed_stop(&b);
}

static void test_exchange_displaced_and_deleted(void **state)
{
    (void)state;
    struct bed b;
    struct rank first = {0}, second = {0};
    bed_start(&b, "unix:");
    rank_start(&first, &b, "world", 1, 0, 2, 20);
    wait_arrived(&b, "world", 1, 1, 2);
    rank_start(&second, &b, "world", 1, 0, 2, 20);
    rank_join(&first);
    assert_int_equal(first.status, HVD_ERR_DUPLICATE);
    pthread_mutex_lock(&b.lock);
    store_server_delete(b.server, "world");
    pthread_mutex_unlock(&b.lock);
    rank_join(&second);
    assert_int_equal(second.status, HVD_ERR_ABORTED);
    assert_string_equal(second.error.text, "\"world\" was deleted");
    bed_stop(&b);
}

/* ---- generations ---- */

static hvd_status_t join(struct store_client *c, const char *worker, uint64_t life, uint64_t least,
                         int32_t index, int32_t count, struct store_generation *ret,
                         struct error *error)
{
    struct store_join q = {.scope = "world",
                           .worker = worker,
                           .life = life,
                           .epoch = least,
                           .index = index,
                           .count = count};
    memset(error, 0, sizeof *error);
    return store_client_join(c, &q, later(20), ret, error);
}

/* A static job goes from one generation to the next by itself, at whatever rank comes first. */
static void test_join_static(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    struct store_generation g[2], again;
    uint8_t *blobs;
    size_t offsets[2];
    bed_start(&b, "unix:");
    struct store_client *c[2] = {client(&b, 0), client(&b, 1)};
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(join(c[i], i == 0 ? "0" : "1", 7, 0, i, 2, &g[i], &error), HVD_OK);
        assert_true(g[i].epoch == 1 && g[i].rank == i && g[i].size == 2 && !g[i].has_members);
    }
    assert_memory_equal(g[0].salt, g[1].salt, sizeof g[0].salt);
    /* not met: a process that was started anew is in the same generation */
    assert_int_equal(join(c[1], "1", 8, 0, 1, 2, &again, &error), HVD_OK);
    assert_int_equal(again.epoch, 1);
    /* asking for a later one takes all others along */
    assert_int_equal(join(c[1], "1", 8, 5, 1, 2, &again, &error), HVD_OK);
    assert_int_equal(again.epoch, 5);
    assert_memory_not_equal(again.salt, g[0].salt, sizeof again.salt);
    assert_int_equal(
        store_client_exchange(c[0], "world", 1, 0, 1, "x", 1, later(20), &blobs, offsets, &error),
        HVD_ERR_STALE);
    assert_string_equal(error.text, "exchange \"world\" is at epoch 5, epoch 1 has passed");
    memset(&error, 0, sizeof error);
    assert_int_equal(
        store_client_exchange(c[0], "world", 6, 0, 1, "x", 1, later(20), &blobs, offsets, &error),
        HVD_ERR_STALE);
    assert_string_equal(error.text, "exchange \"world\" is at epoch 5, epoch 6 has not begun");
    memset(&error, 0, sizeof error);
    assert_int_equal(
        store_client_exchange(c[0], "world", 5, 0, 1, "x", 1, later(20), &blobs, offsets, &error),
        HVD_OK);
    os_free(os_host(), blobs);
    /* met: the same process has lost its connection, another one begins the next generation */
    assert_int_equal(join(c[1], "1", 8, 5, 1, 2, &again, &error), HVD_OK);
    assert_int_equal(again.epoch, 5);
    assert_int_equal(join(c[1], "1", 9, 0, 1, 2, &again, &error), HVD_OK);
    assert_int_equal(again.epoch, 6);
    for (int i = 0; i < 2; i++)
        store_client_close(c[i]);
    bed_stop(&b);
}

struct joiner {
    struct store_client *c;
    const char *worker;
    uint64_t least;
    struct store_generation g;
    hvd_status_t status;
    struct error error;
    pthread_t thread;
};

static void *joiner_main(void *arg)
{
    struct joiner *j = arg;
    j->status = join(j->c, j->worker, 7, j->least, 0, 1, &j->g, &j->error);
    return NULL;
}

static void joiner_start(struct joiner *j, struct bed *b, const char *worker, uint64_t least)
{
    j->c = client(b, 0);
    j->worker = worker;
    j->least = least;
    assert_int_equal(pthread_create(&j->thread, NULL, joiner_main, j), 0);
    for (bool is_waiting = false; !is_waiting; usleep(1000)) {
        pthread_mutex_lock(&b->lock);
        is_waiting = store_server_is_waiting(b->server, "world", worker);
        pthread_mutex_unlock(&b->lock);
    }
}

static void joiner_end(struct joiner *j)
{
    pthread_join(j->thread, NULL);
    store_client_close(j->c);
}

static hvd_status_t drive(struct bed *b, uint64_t epoch, const char *first, const char *second)
{
    struct store_member members[2] = {{.place = {0, 1, 0, 2}}, {.place = {0, 1, 1, 2}}};
    snprintf(members[0].worker, sizeof members[0].worker, "%s", first);
    snprintf(members[1].worker, sizeof members[1].worker, "%s", second);
    pthread_mutex_lock(&b->lock);
    hvd_status_t status = store_server_generation(b->server, "world", epoch, members, 2, 0);
    pthread_mutex_unlock(&b->lock);
    return status;
}

static void test_join_driven(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    struct store_generation g;
    struct rank waiting = {0};
    struct joiner early = {0}, spare = {0}, outcast = {0};
    bool is_met = true;
    bed_start(&b, "unix:");
    assert_int_equal(drive(&b, 3, "a", "a"), HVD_ERR_INVALID);
    assert_int_equal(drive(&b, 3, "a", "b"), HVD_OK);
    assert_int_equal(drive(&b, 3, "a", "c"), HVD_ERR_INVALID);
    struct store_client *c = client(&b, 0);
    assert_int_equal(join(c, "b", 7, 0, 0, 1, &g, &error), HVD_OK);
    assert_true(g.epoch == 3 && g.rank == 1 && g.size == 2 && g.has_members);
    assert_string_equal(g.members[0].worker, "a");
    assert_int_equal(g.members[1].place.cross_rank, 1);
    store_generation_end(os_host(), &g);
    assert_int_equal(join(c, "c", 7, 0, 0, 1, &g, &error), HVD_ERR_STALE);
    assert_string_equal(error.text,
                        "worker \"c\" was refused by epoch 3 of \"world\": it is not a member");
    /* one waits in the exchange, others for the next generation */
    rank_start(&waiting, &b, "world", 3, 1, 2, 20);
    wait_arrived(&b, "world", 3, 1, 2);
    joiner_start(&early, &b, "b", 4);
    joiner_start(&spare, &b, "c", STORE_EPOCH_ANY);
    joiner_start(&outcast, &b, "a", 4);
    assert_int_equal(drive(&b, 4, "b", "c"), HVD_OK);
    rank_join(&waiting);
    assert_int_equal(waiting.status, HVD_ERR_STALE);
    assert_string_equal(waiting.error.text,
                        "exchange \"world\": epoch 4 has begun, epoch 3 is given up");
    joiner_end(&early);
    joiner_end(&spare);
    joiner_end(&outcast);
    assert_true(early.status == HVD_OK && early.g.epoch == 4 && early.g.rank == 0);
    assert_true(spare.status == HVD_OK && spare.g.epoch == 4 && spare.g.rank == 1);
    assert_int_equal(outcast.status, HVD_ERR_STALE);
    store_generation_end(os_host(), &early.g);
    store_generation_end(os_host(), &spare.g);
    pthread_mutex_lock(&b.lock);
    assert_int_equal(store_server_epoch(b.server, "world", &is_met), 4);
    pthread_mutex_unlock(&b.lock);
    assert_false(is_met);
    store_client_close(c);
    bed_stop(&b);
}

/* ---- limits ---- */

static void test_limits(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    uint8_t *blob = calloc(1, STORE_BLOB_MAX + 1u);
    void *back;
    size_t n;
    bed_start(&b, "unix:");
    struct store_client *c = client(&b, 0);
    assert_int_equal(store_client_put(c, "s", "k", blob, STORE_BLOB_MAX + 1u, later(20), &error),
                     HVD_ERR_LIMIT);
    pthread_mutex_lock(&b.lock);
    store_server_limit(b.server, 1u << 20);
    pthread_mutex_unlock(&b.lock);
    assert_int_equal(store_client_put(c, "s", "k", blob, 200000, later(20), NULL), HVD_OK);
    /* too large to be taken in, and too large to be kept: both leave the connection whole */
    assert_int_equal(store_client_put(c, "s", "l", blob, 2000000, later(20), NULL), HVD_ERR_LIMIT);
    assert_int_equal(store_client_put(c, "s", "m", blob, 500000, later(20), NULL), HVD_ERR_LIMIT);
    assert_int_equal(store_client_get(c, "s", "m", false, later(20), &back, &n, NULL), HVD_AGAIN);
    assert_int_equal(store_client_get(c, "s", "k", false, later(20), &back, &n, NULL), HVD_OK);
    assert_int_equal(n, 200000);
    os_free(os_host(), back);
    store_client_close(c);
    bed_stop(&b);
    free(blob);
}

/* ---- strangers and damage ---- */

static int dial_raw(const char *text)
{
    struct address a;
    int count = 0;
    assert_int_equal(address_list_parse(os_host(), text, &a, 1, &count, NULL), HVD_OK);
    int fd = socket(a.sockaddr.ss_family, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a.sockaddr, a.bytes), 0);
    return fd;
}

/* The server closes, within the time the test itself may take. */
static bool is_closed_by_server(int fd)
{
    char bytes[512];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (poll(&p, 1, 20000) != 1)
            return false;
        if (recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    }
}

static void test_wrong_key(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    struct store_client *c = NULL;
    bed_start(&b, "unix:");
    assert_int_equal(store_client_open(os_host(), b.address, OTHER_KEY, 0, 0, later(3), &c, &error),
                     HVD_ERR_AUTH);
    assert_null(c);
    assert_non_null(strstr(error.text, "another job's key"));
    exchange_all(&b, "world", 2, 5, false);
    bed_stop(&b);
}

static void test_garbage(void **state)
{
    (void)state;
    struct bed b;
    uint8_t junk[4096];
    bed_start(&b, "127.0.0.1:0");
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (uint8_t)(k * 7 + (size_t)i * 13);
        int fd = dial_raw(b.address);
        assert_true(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
        assert_true(is_closed_by_server(fd));
        close(fd);
    }
    exchange_all(&b, "world", 2, 5, false);
    bed_stop(&b);
}

/* A proven connection in our own hands, to send over it what no client of ours would. */
static void raw_open(struct channel *ch, struct budget *budget, const char *address,
                     const struct cipher *cipher)
{
    struct channel_identity self = {.key = KEY, .epoch = 0, .rank = 0, .is_dialer = true};
    int fd = dial_raw(address);
    *budget = (struct budget){.os = os_host(), .max = SIZE_MAX};
    assert_int_equal(channel_begin(ch, os_host(), budget, fd, &self, cipher, 1u << 20), HVD_OK);
    hvd_status_t status;
    while ((status = channel_handshake(ch, NULL)) == HVD_IN_PROGRESS)
        usleep(200);
    assert_int_equal(status, HVD_OK);
}

enum damage {
    FLIP,
    REPLAY,
    REFLECT,
    OVERSIZED,
    TRUNCATED,
    BAD_REQUEST,
    BAD_TYPE,
    PIPELINED,
    DAMAGE_COUNT
};

static void damage_send(struct channel *ch, enum damage damage)
{
    uint8_t frame[FRAME_HEADER_BYTES + 64], answer[FRAME_HEADER_BYTES + 64];
    uint8_t payload[8] = {255, 255, 255, 255};
    size_t n = FRAME_HEADER_BYTES;
    bool has_payload = damage == BAD_REQUEST || damage == TRUNCATED;
    uint8_t type = damage == BAD_REQUEST ? STORE_GET : damage == BAD_TYPE ? 99 : STORE_PING;
    size_t payload_bytes = has_payload ? sizeof payload : 0;
    assert_int_equal(frame_seal(&ch->seal, type, 0, payload, payload_bytes, frame), HVD_OK);
    n += payload_bytes;
    if (damage == FLIP)
        frame[30] ^= 1;
    if (damage == OVERSIZED)
        memset(frame + 8, 0xff, 4);
    if (damage == TRUNCATED)
        n -= 3;
    assert_int_equal(send(ch->fd, frame, n, MSG_NOSIGNAL), n);
    if (damage == TRUNCATED)
        shutdown(ch->fd, SHUT_WR);
    if (damage == REPLAY || damage == REFLECT) {
        ssize_t got = recv(ch->fd, answer, FRAME_HEADER_BYTES + 8, MSG_WAITALL);
        assert_int_equal(got, FRAME_HEADER_BYTES + 8);
        const uint8_t *again = damage == REPLAY ? frame : answer;
        n = damage == REPLAY ? n : (size_t)got;
        assert_int_equal(send(ch->fd, again, n, MSG_NOSIGNAL), n);
    }
    if (damage == PIPELINED) { /* a get that waits, and another request behind it */
        struct store_request q = {.type = STORE_GET, .is_waiting = true, .wait_ns = SECOND_NS * 60};
        uint8_t message[2048], out[2048 + FRAME_HEADER_BYTES];
        size_t bytes = store_request_write(&q, message, sizeof message);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(frame_seal(&ch->seal, STORE_GET, 0, message, bytes, out), HVD_OK);
            assert_true(send(ch->fd, out, FRAME_HEADER_BYTES + bytes, MSG_NOSIGNAL) > 0);
        }
    }
}

static void test_damage(void **state)
{
    (void)state;
    struct bed b;
    struct cipher cipher;
    bed_start(&b, "unix:");
    cipher_load(os_host(), &cipher);
    for (int mode = 0; mode < 2; mode++) {
        for (int damage = 0; damage < DAMAGE_COUNT; damage++) {
            struct channel ch;
            struct budget budget;
            raw_open(&ch, &budget, b.address, mode == 0 ? &cipher : NULL);
            damage_send(&ch, (enum damage)damage);
            assert_true(is_closed_by_server(ch.fd));
            channel_end(&ch);
            assert_int_equal(budget.used, 0);
        }
    }
    cipher_unload(&cipher);
    exchange_all(&b, "world", 2, 5, false);
    bed_stop(&b);
}

static void test_slow_handshake(void **state)
{
    (void)state;
    struct store_server *s;
    char address[256];
    int64_t now_ns = os_now_ns(os_host());
    assert_int_equal(store_server_create(os_host(), "unix:", KEY, &s, address, NULL), HVD_OK);
    int fd = dial_raw(address);
    assert_int_equal(send(fd, "H", 1, 0), 1);
    store_server_progress(s, now_ns);
    assert_int_equal(store_server_pending_count(s), 1);
    assert_true(store_server_deadline_ns(s) == now_ns + 5 * SECOND_NS);
    assert_int_equal(send(fd, "V", 1, 0), 1); /* a byte now and then wins no time */
    store_server_progress(s, now_ns + 5 * SECOND_NS - 1);
    assert_int_equal(store_server_pending_count(s), 1);
    store_server_progress(s, now_ns + 5 * SECOND_NS);
    assert_int_equal(store_server_pending_count(s), 0);
    assert_true(is_closed_by_server(fd));
    close(fd);
    store_server_destroy(s);
}

static void test_flood(void **state)
{
    (void)state;
    struct bed b;
    struct rank ranks[4] = {{0}};
    int fds[300];
    bed_start(&b, "127.0.0.1:0");
    for (int32_t i = 0; i < 2; i++)
        rank_start(&ranks[i], &b, "world", 1, i, 4, 20);
    for (int i = 0; i < 300; i++)
        fds[i] = dial_raw(b.address);
    for (int32_t i = 2; i < 4; i++)
        rank_start(&ranks[i], &b, "world", 1, i, 4, 20);
    for (int32_t i = 0; i < 4; i++) {
        rank_join(&ranks[i]);
        assert_int_equal(ranks[i].status, HVD_OK);
        assert_true(ranks[i].is_right);
    }
    pthread_mutex_lock(&b.lock);
    assert_true(store_server_pending_count(b.server) <= (int)STORE_STRANGERS_MAX);
    pthread_mutex_unlock(&b.lock);
    assert_true(is_closed_by_server(fds[0])); /* the oldest had to go */
    for (int i = 0; i < 300; i++)
        close(fds[i]);
    bed_stop(&b);
}

/* As many ranks as there are, at one moment: each has sent its hello before the server looks. */
static void check_many_at_once(const char *address)
{
    enum { MANY = 400 };
    static struct handshake handshakes[MANY];
    static int fds[MANY];
    struct store_server *s;
    char where[256];
    int done = 0;
    assert_int_equal(store_server_create(os_host(), address, KEY, &s, where, NULL), HVD_OK);
    for (int i = 0; i < MANY; i++) {
        fds[i] = dial_raw(where);
        assert_int_equal(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
        assert_int_equal(handshake_begin(&handshakes[i], os_host(), HANDSHAKE_STORE, true, KEY, 0,
                                         i, HANDSHAKE_ANY_RANK, 0),
                         HVD_OK);
        assert_int_equal(handshake_step(&handshakes[i], os_host(), fds[i], NULL), HVD_IN_PROGRESS);
    }
    while (done < MANY) {
        store_server_progress(s, os_now_ns(os_host()));
        done = 0;
        for (int i = 0; i < MANY; i++) {
            struct error error = {0};
            hvd_status_t status = handshake_step(&handshakes[i], os_host(), fds[i], &error);
            if (status < 0)
                fail_msg("rank %d: %s", i, error.text);
            done += status == HVD_OK;
        }
    }
    store_server_progress(s, os_now_ns(os_host()));
    assert_int_equal(store_server_pending_count(s), 0);
    assert_int_equal(store_server_evicted_count(s), 0);
    for (int i = 0; i < MANY; i++) {
        assert_false(other_user_is_closed(fds[i]));
        close(fds[i]);
    }
    store_server_destroy(s);
}

static void test_many_at_once(void **state)
{
    (void)state;
    check_many_at_once("127.0.0.1:0");
    check_many_at_once("unix:");
}

/* A verified hello keeps its place, however many strangers come after it; its twin gets none. */
static void test_verified_is_not_evicted(void **state)
{
    (void)state;
    enum { STRANGERS = 3 * STORE_STRANGERS_MAX };
    static int fds[STRANGERS];
    struct store_server *s;
    struct handshake h;
    char where[256];
    assert_int_equal(store_server_create(os_host(), "127.0.0.1:0", KEY, &s, where, NULL), HVD_OK);
    int rank = dial_raw(where), twin = dial_raw(where);
    assert_int_equal(fcntl(rank, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(
        handshake_begin(&h, os_host(), HANDSHAKE_STORE, true, KEY, 0, 0, HANDSHAKE_ANY_RANK, 0),
        HVD_OK);
    assert_int_equal(send(twin, h.out, sizeof h.out, 0), sizeof h.out);
    assert_int_equal(send(rank, h.out, sizeof h.out, 0), sizeof h.out);
    h.out_done = h.out_size;
    assert_int_equal(handshake_step(&h, os_host(), rank, NULL), HVD_IN_PROGRESS);
    store_server_progress(s, os_now_ns(os_host()));
    assert_int_equal(store_server_pending_count(s), 1);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = dial_raw(where);
        store_server_progress(s, os_now_ns(os_host()));
    }
    assert_int_equal(store_server_pending_count(s), STORE_STRANGERS_MAX + 1);
    assert_int_equal(store_server_evicted_count(s), STRANGERS - STORE_STRANGERS_MAX);
    /* both were answered, but only the one that came first may go on to prove the key */
    char bytes[HANDSHAKE_BYTES];
    assert_int_equal(recv(rank, bytes, sizeof bytes, MSG_DONTWAIT), HANDSHAKE_BYTES);
    assert_int_equal(recv(twin, bytes, sizeof bytes, MSG_DONTWAIT), HANDSHAKE_BYTES);
    assert_int_equal(other_user_is_closed(rank) + other_user_is_closed(twin), 1);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    close(rank);
    close(twin);
    store_server_destroy(s);
}

static void check_other_user(void **state)
{
    struct bed b;
    bed_start(&b, "unix:");
    pid_t pid = other_user_start(b.address + strlen("unix:"), unit_case(state) == OTHER_FLOOD);
    if (pid == 0) {
        bed_stop(&b);
        skip();
    }
    assert_true(pid > 0);
    for (int i = 0; i < 3; i++)
        exchange_all(&b, i == 0 ? "first" : i == 1 ? "second" : "third", 8, 100, false);
    other_user_stop(pid);
    pthread_mutex_lock(&b.lock);
    assert_true(store_server_foreign_count(b.server) > 0);
    assert_int_equal(store_server_evicted_count(b.server), 0);
    pthread_mutex_unlock(&b.lock);
    bed_stop(&b);
}

/* A forked child holds a copy of the keys and counters: it may not seal anything with them. */
static void test_forked_child(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    bed_start(&b, "127.0.0.1:0");
    struct store_client *c = client(&b, 0);
    uint8_t *blobs = NULL;
    size_t offsets[2];
    assert_int_equal(
        store_client_exchange(c, "alone", 0, 0, 1, "x", 1, later(20), &blobs, offsets, &error),
        HVD_OK);
    os_free(os_host(), blobs);
    pid_t pid = fork();
    if (pid == 0) {
        struct error why = {0};
        hvd_status_t status = store_client_put(c, "s", "k", "child", 5, later(5), &why);
        bool is_right = status == HVD_ERR_INVALID && strstr(why.text, "forked child") != NULL;
        store_client_close(c); /* sends nothing, either */
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* the parent's connection is as it was */
    assert_int_equal(store_client_put(c, "s", "k", "parent", 6, later(20), &error), HVD_OK);
    store_client_close(c);
    bed_stop(&b);
}

/* ---- finding the store ---- */

static void *open_late(void *arg)
{
    struct bed *b = arg;
    return client(b, 0);
}

static void test_server_comes_later(void **state)
{
    (void)state;
    struct bed b, dialled;
    pthread_t thread;
    void *c = NULL;
    snprintf(dialled.address, sizeof dialled.address, "127.0.0.1:1,unix:horovod-test-%d",
             (int)getpid());
    assert_int_equal(pthread_create(&thread, NULL, open_late, &dialled), 0);
    usleep(50000);
    bed_start(&b, strchr(dialled.address, ',') + 1);
    assert_string_equal(b.address, strchr(dialled.address, ',') + 1);
    pthread_join(thread, &c);
    assert_non_null(c);
    store_client_close(c);
    bed_stop(&b);
}

static void test_two_listeners(void **state)
{
    (void)state;
    struct bed b;
    char second[256];
    bed_start(&b, "unix:");
    pthread_mutex_lock(&b.lock);
    assert_int_equal(store_server_listen(b.server, "127.0.0.1:0", second, NULL), HVD_OK);
    pthread_mutex_unlock(&b.lock);
    assert_memory_equal(second, "127.0.0.1:", 10);
    exchange_all(&b, "world", 2, 5, false);
    snprintf(b.address, sizeof b.address, "%s", second);
    exchange_all(&b, "world2", 2, 5, false);
    bed_stop(&b);
}

static void test_port_range(void **state)
{
    (void)state;
    struct bed b;
    struct error error = {0};
    char address[256];
    bed_start(&b, "127.0.0.1:23491-23492");
    pthread_mutex_lock(&b.lock);
    assert_int_equal(store_server_listen(b.server, "127.0.0.1:23491-23492", address, &error),
                     HVD_OK);
    assert_string_not_equal(address, b.address);
    assert_non_null(strstr(address, "127.0.0.1:2349"));
    assert_int_not_equal(store_server_listen(b.server, "127.0.0.1:23491-23492", address, &error),
                         HVD_OK);
    assert_non_null(strstr(error.text, "no port of 23491-23492 is free"));
    pthread_mutex_unlock(&b.lock);
    store_client_close(client(&b, 0));
    bed_stop(&b);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct store_client *c = NULL;
    struct error error = {0};
    assert_int_equal(store_client_open(os_host(), "unix:horovod-nobody,127.0.0.1:1", KEY, 0, 0,
                                       later(3), &c, &error),
                     HVD_ERR_TIMEOUT);
    assert_string_equal(error.text, "could not reach the store: unix:horovod-nobody: Connection "
                                    "refused; 127.0.0.1:1: Connection refused");
    assert_null(c);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",     ",",           "unix:",         "host",       "host:",
        ":1",   "1.2.3.4:x",   "1.2.3.4:65536", "::1:80",     "[::1]",
        "[]:1", "1.2.3.4:80,", "[::1:80",       "1.2.3.4:-1", "127.0.0.1:1,unix:"};
    struct address list[4];
    struct store_server *s = NULL;
    char text[256];
    int count = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(address_list_parse(os_host(), bad[i], list, 4, &count, NULL),
                         HVD_ERR_INVALID);
    assert_int_equal(
        address_list_parse(os_host(), "unix:a,10.0.0.1:80,[fe80::1]:9", list, 4, &count, NULL),
        HVD_OK);
    assert_int_equal(count, 3);
    address_format(&list[0], text, sizeof text);
    assert_string_equal(text, "unix:a");
    address_format(&list[1], text, sizeof text);
    assert_string_equal(text, "10.0.0.1:80");
    address_format(&list[2], text, sizeof text);
    assert_string_equal(text, "[fe80::1]:9");
    assert_int_equal(
        address_list_parse(os_host(), "unix:a,unix:b,unix:c,unix:d,unix:e", list, 4, &count, NULL),
        HVD_ERR_LIMIT);
    assert_int_equal(store_server_create(os_host(), "0.0.0.0:0", KEY, &s, text, NULL),
                     HVD_ERR_INVALID);
    assert_int_equal(store_server_create(os_host(), "[::]:0", KEY, &s, text, NULL),
                     HVD_ERR_INVALID);
    assert_null(s);
}

/* ---- every system call of the server fails once ---- */

static void torture_once(uint64_t fail_at, uint64_t *ret_calls)
{
    struct fault_os *fault = fault_os_create(os_host(), 0);
    struct store_server *s = NULL;
    struct bed b = {0};
    struct store_client *c = NULL;
    char address[256];
    fault_os_arm(fault, fail_at, false);
    hvd_status_t status =
        store_server_create(fault_os_table(fault), "unix:", KEY, &s, address, NULL);
    if (status == HVD_OK) {
        b.server = s;
        snprintf(b.address, sizeof b.address, "%s", address);
        pthread_mutex_init(&b.lock, NULL);
        assert_int_equal(pthread_create(&b.thread, NULL, bed_main, &b), 0);
        status = store_client_open(os_host(), address, KEY, 0, 0, later(2), &c, NULL);
        if (status == HVD_OK) {
            uint8_t *blobs = NULL;
            size_t offsets[2];
            store_client_put(c, "s", "k", "v", 1, later(2), NULL);
            status =
                store_client_exchange(c, "x", 1, 0, 1, "v", 1, later(2), &blobs, offsets, NULL);
            if (status == HVD_OK)
                os_free(os_host(), blobs);
        }
        store_client_close(c);
        bed_stop(&b);
    }
    *ret_calls = fault_os_calls(fault);
    fault_os_destroy(fault);
}

/* The same for the client's calls, against a server in good health. */
static void torture_client(struct bed *b, uint64_t fail_at, uint64_t *ret_calls)
{
    struct fault_os *fault = fault_os_create(os_host(), 0);
    const struct os *os = fault_os_table(fault);
    struct store_client *c = NULL;
    struct error error = {0};
    fault_os_arm(fault, fail_at, false);
    hvd_status_t status = store_client_open(os, b->address, KEY, 0, 0, later(2), &c, &error);
    if (status == HVD_OK) {
        uint8_t *blobs = NULL;
        void *blob = NULL;
        size_t offsets[2], n;
        store_client_put(c, "s", "k", "v", 1, later(2), NULL);
        if (store_client_get(c, "s", "k", true, later(2), &blob, &n, NULL) == HVD_OK)
            os_free(os, blob);
        if (store_client_exchange(c, "x", 1, 0, 1, "v", 1, later(2), &blobs, offsets, &error) ==
            HVD_OK)
            os_free(os, blobs);
        else
            assert_true(error.text[0] != '\0');
    } else {
        assert_true(error.text[0] != '\0');
        assert_null(c);
    }
    store_client_close(c);
    *ret_calls = fault_os_calls(fault);
    fault_os_destroy(fault);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_torture(void **state)
{
    (void)state;
    uint64_t live_before, live_after, total, calls = 0;
    int fds = open_descriptors();
    /* the first run fails nothing; its count has idle polls in it, hence the bound */
    torture_once(0, &calls);
    assert_true(calls > 30);
    for (uint64_t k = 1, last = calls < 80 ? calls : 80; k <= last; k++) {
        os_host_alloc_counts(&live_before, &total);
        torture_once(k, &calls);
        os_host_alloc_counts(&live_after, &total);
        assert_int_equal(live_before, live_after);
        assert_int_equal(open_descriptors(), fds);
    }
}

static void test_torture_client(void **state)
{
    (void)state;
    uint64_t live_before, live_after, total, calls = 0, last = 0;
    int fds = open_descriptors();
    os_host_alloc_counts(&live_before, &total);
    for (uint64_t k = 0; k <= last; k++) {
        struct bed b;
        bed_start(&b, "unix:");
        torture_client(&b, k, &calls);
        bed_stop(&b);
        if (k == 0) { /* nothing failed: so many calls there are */
            assert_true(calls > 20);
            last = calls;
        }
    }
    os_host_alloc_counts(&live_after, &total);
    assert_int_equal(live_before, live_after);
    assert_int_equal(open_descriptors(), fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_values_large),
        cmocka_unit_test(test_server_access),
        cmocka_unit_test(test_get_waits),
        cmocka_unit_test(test_get_times_out),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_encryption_is_chosen),
        cmocka_unit_test(test_exchange_names_the_missing),
        cmocka_unit_test(test_exchange_deadline),
        cmocka_unit_test(test_silent_server),
        cmocka_unit_test(test_exchange_forgets_the_gone),
        cmocka_unit_test(test_who_vanished),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_exchange_again),
        cmocka_unit_test(test_exchange_displaced_and_deleted),
        cmocka_unit_test(test_join_static),
        cmocka_unit_test(test_join_driven),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_slow_handshake),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_forked_child),
        cmocka_unit_test(test_verified_is_not_evicted),
        OTHER_USER_TESTS(check_other_user),
        cmocka_unit_test(test_server_comes_later),
        cmocka_unit_test(test_two_listeners),
        cmocka_unit_test(test_port_range),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_torture),
        cmocka_unit_test(test_torture_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
