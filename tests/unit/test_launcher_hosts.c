/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_hosts.c - host lists, host files, batch systems' node lists, and the placement of
 * ranks. The launcher is a program, so its pure parts are compiled into their tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../launcher/hosts.c"
#include "../../launcher/mem.c"

#include "launcher_mem.h"

/* "a:2 b:1" */
static const char *shown(const struct hosts *hosts)
{
    char *text = mem_copy(&mem, "");
    for (int32_t i = 0; i < hosts->count; i++)
        text = mem_format(&mem, "%s%s%s:%d", text, i == 0 ? "" : " ", hosts->items[i].name,
                          hosts->items[i].slots);
    return text;
}

static void test_list(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* NULL: refused */
    } rows[] = {{"a:2", "a:2"},
                {"a:2,b:4", "a:2 b:4"},
                {" a:2 , b-1.c_d:4 ", "a:2 b-1.c_d:4"},
                {"a:2,b:1,a:3", "a:5 b:1"},
                {"[fe80::1]:2", "fe80::1:2"},
                {"[fe80::1%eth0]:2", "fe80::1%eth0:2"},
                {"10.0.0.1:3", "10.0.0.1:3"},
                {"me@a:2", "me@a:2"},
                {"a:0,b:1", "b:1"},
                {"a", NULL},
                {"", NULL},
                {"a:", NULL},
                {":2", NULL},
                {"a:2,", NULL},
                {"a:-1", NULL},
                {"a:x", NULL},
                {"a:1:2", NULL},
                {"fe80::1:2", NULL},
                {"-oProxyCommand=x:1", NULL},
                {"-a:1", NULL},
                {"me@-a:1", NULL},
                {"a b:1", NULL},
                {"a;b:1", NULL},
                {"a:99999999999", NULL},
                {"a:65537", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hosts hosts;
        error_clear(&error);
        hvd_status_t status = hosts_parse_list(&mem, rows[i].text, &hosts, &error);
        if (rows[i].want == NULL) {
            assert_int_equal(status, HVD_ERR_INVALID);
            assert_non_null(strstr(error.text, "Invalid host input"));
        } else {
            assert_int_equal(status, HVD_OK);
            assert_string_equal(shown(&hosts), rows[i].want);
        }
    }
}

static void test_address_has_no_user(void **state)
{
    (void)state;
    struct hosts hosts;
    assert_int_equal(hosts_parse_list(&mem, "me@[::1]:2", &hosts, &error), HVD_OK);
    assert_string_equal(hosts.items[0].name, "me@::1");
    assert_string_equal(hosts.items[0].address, "::1");
}

static void test_file(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want, *error;
    } rows[] = {
        {"aa slots=2\nbb slots=4\n", "aa:2 bb:4", NULL},
        {"aa slots = 2", "aa:2", NULL},
        {"# c\n\n  aa\tslots=2 # c\r\n// c\nbb // c", "aa:2 bb:1", NULL},
        {"aa slots=2 max-slots=4\nbb max_slots=3 slots=3", "aa:2 bb:3", NULL},
        {"aa cpu=3\nbb count=2", "aa:3 bb:2", NULL},
        {"aa user=me slots=2", "me@aa:2", NULL},
        {"me@aa", "me@aa:1", NULL},
        {"aa\naa\nbb\naa", "aa:3 bb:1", NULL},
        {"aa:4\n[fe80::2]:2\nfe80::3 slots=1", "aa:4 fe80::2:2 fe80::3:1", NULL},
        {"aa slots=2\nbb slots=2\n^aa", "bb:2", NULL},
        {"aa SLOTS=2 sockets=1 cores_per_socket=4", "aa:2", NULL},
        {"", NULL, "f: no host"},
        {"aa slots=0", NULL, "f: no host"},
        {"aa slots", NULL, "f:1: 'slots'"},
        {"aa slots=", NULL, "f:1: 'slots='"},
        {"\n\naa slots=1 x=2", NULL, "f:3: 'x=2'"},
        {"aa slots=3 max-slots=2", NULL, "f:1: slots=3"},
        {"=2", NULL, "f:1:"},
        {"a/b", NULL, "f:1: 'a/b'"},
        {"aa slots=1 bb", NULL, "f:1: 'bb'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hosts hosts;
        error_clear(&error);
        hvd_status_t status =
            hosts_parse_file(&mem, "f", rows[i].text, strlen(rows[i].text), &hosts, &error);
        if (rows[i].want == NULL) {
            assert_int_equal(status, HVD_ERR_INVALID);
            assert_memory_equal(error.text, rows[i].error, strlen(rows[i].error));
        } else {
            assert_int_equal(status, HVD_OK);
            assert_string_equal(shown(&hosts), rows[i].want);
        }
    }
}

static void test_slurm(void **state)
{
    (void)state;
    static const struct {
        const char *nodes, *tasks, *want;
    } rows[] = {{"n1", "4", "n1:4"},
                {"n[1-3]", "2(x3)", "n1:2 n2:2 n3:2"},
                {"n[1-2,07],m", "2(x2),1,5", "n1:2 n2:2 n07:1 m:5"},
                {"r[08-10]x", NULL, "r08x:1 r09x:1 r10x:1"},
                {"n[1-", NULL, NULL},
                {"n[]x[1]", NULL, NULL},
                {"n[3-1]", NULL, NULL},
                {"n[1-99999999]", NULL, NULL},
                {"", NULL, NULL},
                {"n1", "x", NULL},
                {"n[1]", "2(x", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hosts hosts;
        error_clear(&error);
        hvd_status_t status = hosts_parse_slurm(&mem, rows[i].nodes, rows[i].tasks, &hosts, &error);
        assert_int_equal(status, rows[i].want == NULL ? HVD_ERR_INVALID : HVD_OK);
        if (rows[i].want != NULL)
            assert_string_equal(shown(&hosts), rows[i].want);
    }
}

static void test_lsf(void **state)
{
    (void)state;
    struct hosts hosts;
    assert_int_equal(hosts_parse_lsf(&mem, " a 4  b 2 ", &hosts, &error), HVD_OK);
    assert_string_equal(shown(&hosts), "a:4 b:2");
    assert_int_equal(hosts_parse_lsf(&mem, "a 4 b", &hosts, &error), HVD_ERR_INVALID);
    assert_int_equal(hosts_parse_lsf(&mem, "", &hosts, NULL), HVD_ERR_INVALID);
}

static void test_assign(void **state)
{
    (void)state;
    static const int32_t want[][6] = {
        /* host, rank, local rank, local size, cross rank, cross size: a:2,b:1,c:2 with 5 */
        {0, 0, 0, 2, 0, 3},
        {0, 1, 1, 2, 0, 2},
        {1, 2, 0, 1, 1, 3},
        {2, 3, 0, 2, 2, 3},
        {2, 4, 1, 2, 1, 2}};
    struct hosts hosts;
    struct slot *slots = NULL;
    assert_int_equal(hosts_parse_list(&mem, "a:2,b:1,c:9", &hosts, &error), HVD_OK);
    assert_int_equal(hosts_slot_sum(&hosts), 12);
    assert_int_equal(hosts_assign(&mem, &hosts, 5, &slots, &error), HVD_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(slots[i].host, want[i][0]);
        assert_int_equal(slots[i].rank, want[i][1]);
        assert_int_equal(slots[i].local_rank, want[i][2]);
        assert_int_equal(slots[i].local_size, want[i][3]);
        assert_int_equal(slots[i].cross_rank, want[i][4]);
        assert_int_equal(slots[i].cross_size, want[i][5]);
        assert_int_equal(slots[i].size, 5);
    }
}

static void test_assign_too_many(void **state)
{
    (void)state;
    struct hosts hosts;
    struct slot *slots = NULL;
    error_clear(&error);
    assert_int_equal(hosts_parse_list(&mem, "a:2", &hosts, &error), HVD_OK);
    assert_int_equal(hosts_assign(&mem, &hosts, 3, &slots, &error), HVD_ERR_INVALID);
    assert_string_equal(error.text,
                        "Requested more processes (3) than there are available slots (2): a:2 = 2. "
                        "Lower -np to 2, or give a host more slots: -H a:3");
    assert_int_equal(hosts_assign(&mem, &hosts, 0, &slots, NULL), HVD_ERR_INVALID);
}

static void test_large_world(void **state)
{
    (void)state;
    struct hosts hosts;
    struct slot *slots = NULL;
    assert_int_equal(hosts_parse_slurm(&mem, "n[1-128]", "8(x128)", &hosts, &error), HVD_OK);
    assert_int_equal(hosts_assign(&mem, &hosts, 1024, &slots, &error), HVD_OK);
    assert_int_equal(slots[1023].cross_rank, 127);
    assert_int_equal(slots[1023].cross_size, 128);
    assert_int_equal(slots[1023].local_rank, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_address_has_no_user),
                                       cmocka_unit_test(test_file),
                                       cmocka_unit_test(test_slurm),
                                       cmocka_unit_test(test_lsf),
                                       cmocka_unit_test(test_assign),
                                       cmocka_unit_test(test_assign_too_many),
                                       cmocka_unit_test(test_large_world)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
