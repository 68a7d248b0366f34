/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_store.c - the store for other programs (hvd_store.h): serving, requests, waiting,
 * rejecting a wrong key. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "horovod/hvd_store.h"

#define TIMEOUT_MS 20000

static uint8_t key[HVD_STORE_KEY_BYTES];
static char where[HVD_STORE_ADDRESS_BYTES];

static hvd_store_server_t *serve(const char *address)
{
    hvd_store_server_t *server = NULL;
    assert_int_equal(hvd_store_key(key), HVD_OK);
    assert_int_equal(hvd_store_server_start(address, key, &server, where), HVD_OK);
    return server;
}

/* A server of this machine, and a client of it. */
static hvd_store_server_t *serve_and_open(hvd_store_client_t **ret_client)
{
    hvd_store_server_t *server = serve("127.0.0.1:0");
    assert_int_equal(hvd_store_open(where, key, TIMEOUT_MS, ret_client), HVD_OK);
    return server;
}

static void test_put_and_get(void **state)
{
    (void)state;
    hvd_store_client_t *client = NULL;
    hvd_store_server_t *server = serve_and_open(&client);
    void *bytes = NULL;
    size_t n = 0;
    assert_int_equal(hvd_store_get(client, "s", "k", 0, &bytes, &n), HVD_AGAIN);
    assert_int_equal(hvd_store_put(client, "s", "k", "value", 5, TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_get(client, "s", "k", 0, &bytes, &n), HVD_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(bytes, "value", 5);
    hvd_store_free(bytes);
    hvd_store_close(client);
    hvd_store_server_stop(server);
}

static void *put_later(void *arg)
{
    hvd_store_client_t *client = NULL;
    assert_int_equal(hvd_store_open(arg, key, TIMEOUT_MS, &client), HVD_OK);
    assert_int_equal(hvd_store_put(client, "s", "late", "x", 1, TIMEOUT_MS), HVD_OK);
    hvd_store_close(client);
    return NULL;
}

static void test_wait_for_another(void **state)
{
    (void)state;
    hvd_store_server_t *server = serve("127.0.0.1:0");
    hvd_store_client_t *client = NULL;
    char second[HVD_STORE_ADDRESS_BYTES];
    pthread_t thread;
    void *bytes = NULL;
    size_t n = 0;
    assert_int_equal(hvd_store_open(where, key, TIMEOUT_MS, &client), HVD_OK);
    assert_int_equal(hvd_store_server_listen(server, "127.0.0.1:0", second), HVD_OK);
    assert_string_not_equal(where, second);
    assert_int_equal(pthread_create(&thread, NULL, put_later, second), 0);
    assert_int_equal(hvd_store_get(client, "s", "late", TIMEOUT_MS, &bytes, &n), HVD_OK);
    assert_int_equal(n, 1);
    hvd_store_free(bytes);
    pthread_join(thread, NULL);
    hvd_store_close(client);
    hvd_store_server_stop(server);
}

/* A deleted scope is gone, its name can be used again, and other scopes stay. */
static void test_delete(void **state)
{
    (void)state;
    hvd_store_client_t *client = NULL;
    hvd_store_server_t *server = serve_and_open(&client);
    void *bytes = NULL;
    size_t n = 0;
    assert_int_equal(hvd_store_put(client, "old", "a", "1", 1, TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_put(client, "old", "b", "2", 1, TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_put(client, "kept", "a", "3", 1, TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_delete(client, "old", TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_delete(client, "never there", TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_get(client, "old", "a", 0, &bytes, &n), HVD_AGAIN);
    assert_int_equal(hvd_store_get(client, "old", "b", 0, &bytes, &n), HVD_AGAIN);
    assert_int_equal(hvd_store_put(client, "old", "a", "45", 2, TIMEOUT_MS), HVD_OK);
    assert_int_equal(hvd_store_get(client, "old", "a", 0, &bytes, &n), HVD_OK);
    assert_int_equal(n, 2);
    hvd_store_free(bytes);
    assert_int_equal(hvd_store_get(client, "kept", "a", 0, &bytes, &n), HVD_OK);
    assert_int_equal(n, 1);
    hvd_store_free(bytes);
    hvd_store_close(client);
    hvd_store_server_stop(server);
}

static void test_refusals(void **state)
{
    (void)state;
    hvd_store_server_t *server = serve("127.0.0.1:0"), *other = NULL;
    hvd_store_client_t *client = NULL;
    uint8_t wrong[HVD_STORE_KEY_BYTES];
    char address[HVD_STORE_ADDRESS_BYTES];
    memcpy(wrong, key, sizeof wrong);
    wrong[0] ^= 1;
    assert_int_not_equal(hvd_store_open(where, wrong, 300, &client), HVD_OK);
    assert_null(client);
    assert_true(hvd_last_error()[0] != '\0');
    assert_int_not_equal(hvd_store_server_start("0.0.0.0:0", key, &other, address), HVD_OK);
    assert_int_not_equal(hvd_store_server_start("nonsense", key, &other, address), HVD_OK);
    assert_null(other);
    hvd_store_server_stop(server);
    hvd_store_server_stop(NULL);
    hvd_store_close(NULL);
    hvd_store_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_get),
        cmocka_unit_test(test_wait_for_another),
        cmocka_unit_test(test_delete),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
