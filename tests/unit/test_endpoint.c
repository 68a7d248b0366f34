/* SPDX-License-Identifier: Apache-2.0 */
/* test_endpoint.c - what ranks send each other before there are links. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
/* clang-format on */

#include "transport/endpoint.h"
#include "transport/transports.h"

static uint8_t wire[8192];

static size_t write_one(const struct endpoint *e)
{
    struct writer w;
    writer_init(&w, wire, sizeof wire);
    endpoint_put(&w, e);
    assert_false(w.bad);
    return w.used;
}

static bool read_one(size_t n, struct endpoint *ret)
{
    struct reader r;
    reader_init(&r, wire, n);
    return endpoint_get(&r, ret) && reader_done(&r);
}

static void test_round_trip(void **state)
{
    struct endpoint out = {.rank = 3, .pid = 42, .host_id = "id", .host_name = "b"}, in;
    struct error error = {0};
    size_t n;
    (void)state;
    assert_int_equal(endpoint_offer(&out, "fast", "abc", 3, &error), HVD_OK);
    assert_int_equal(endpoint_offer(&out, "empty", NULL, 0, &error), HVD_OK);
    assert_true(read_one(write_one(&out), &in));
    assert_int_equal(in.rank, 3);
    assert_int_equal(in.pid, 42);
    assert_string_equal(in.host_id, "id");
    assert_string_equal(in.host_name, "b");
    assert_memory_equal(endpoint_find(&in, "fast", &n), "abc", 3);
    assert_int_equal(n, 3);
    assert_non_null(endpoint_find(&in, "empty", &n));
    assert_int_equal(n, 0);
    assert_null(endpoint_find(&in, "fas", &n));
    char list[32];
    endpoint_list(&in, list, sizeof list);
    assert_string_equal(list, "fast, empty");
}

static void test_limits(void **state)
{
    static uint8_t big[OFFERS_BYTES_MAX + 1];
    static const char *const bad[] = {"", "Fast", "a b", "a\nb", "sixteen_letters_"};
    struct endpoint e = {0};
    struct error error = {0};
    char name[] = "t0";
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(endpoint_offer(&e, bad[i], "x", 1, NULL), HVD_ERR_INVALID);
    assert_int_equal(endpoint_offer(&e, "big", big, sizeof big, &error), HVD_ERR_LIMIT);
    assert_non_null(strstr(error.text, "big"));
    for (int i = 0; i < OFFERS_MAX; i++, name[1]++)
        assert_int_equal(endpoint_offer(&e, name, big, OFFERS_BYTES_MAX / OFFERS_MAX, NULL),
                         HVD_OK);
    assert_int_equal(endpoint_offer(&e, "more", NULL, 0, NULL), HVD_ERR_LIMIT);
    assert_int_equal(endpoint_offer(&e, "t0", NULL, 0, NULL), HVD_ERR_INVALID);
}

/* Cut short anywhere, an endpoint is refused; so are an offer too many and a name twice. */
static void test_malformed(void **state)
{
    struct endpoint out = {.rank = 1}, in;
    (void)state;
    endpoint_offer(&out, "one", "1234", 4, NULL);
    endpoint_offer(&out, "two", "5678", 4, NULL);
    size_t n = write_one(&out);
    for (size_t cut = 0; cut < n; cut++)
        assert_false(read_one(cut, &in));
    assert_true(read_one(n, &in));
    strcpy(out.offers[1].name, "one");
    assert_false(read_one(write_one(&out), &in));
    strcpy(out.offers[1].name, "TWO");
    assert_false(read_one(write_one(&out), &in));
    out.offer_count = OFFERS_MAX;
    assert_false(read_one(write_one(&out), &in));
}

/* Whatever bytes a peer offers under the name of a transport of ours, the transport looks first. */
static void test_offers_of_table(void **state)
{
    static const struct {
        const char *name;
        size_t good, bad[4];
    } cases[] = {
        {"shm", 40, {0, 96, 200, 2000}}, {"mpi", 0, {1, 2, 3, 4}}, {"tcp", 34, {0, 2, 19, 146}}};
    uint8_t bytes[OFFERS_BYTES_MAX];
    (void)state;
    memset(bytes, 'x', sizeof bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = -1; k < 4; k++) {
            struct endpoint e = {.rank = 7, .host_name = "far"};
            struct error error = {0};
            size_t n = k < 0 ? cases[i].good : cases[i].bad[k];
            assert_int_equal(endpoint_offer(&e, cases[i].name, bytes, n, NULL), HVD_OK);
            hvd_status_t status = transports_check(transport_table, &e, &error);
            assert_int_equal(status, k < 0 ? HVD_OK : HVD_ERR_CORRUPT);
            if (k < 0)
                continue;
            assert_non_null(strstr(error.text, "Rank 7 on far"));
            assert_non_null(strstr(error.text, cases[i].name));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_offers_of_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
