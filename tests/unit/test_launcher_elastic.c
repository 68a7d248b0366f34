/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_elastic.c - the small parts of elastic jobs: cooldown, what discovery prints, and
 * the page that announces changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cooldown.h"
#include "hosts.h"
#include "wire/notice.h"

#define S 1000000000LL

static void cooldown_doubles(void **state)
{
    (void)state;
    struct cooldown c = {0};
    cooldown_begin(&c, 100 * S, 10, 100, 0.5);
    assert_int_equal(c.until_ns, 125 * S);
    cooldown_begin(&c, 110 * S, 10, 100, 0.5); /* while it is on: nothing changes */
    assert_int_equal(c.until_ns, 125 * S);
    assert_true(cooldown_is_on(&c, 124 * S));
    assert_false(cooldown_is_on(&c, 125 * S));
    cooldown_begin(&c, 200 * S, 10, 100, 0);
    assert_int_equal(c.until_ns, 240 * S);
    for (int i = 0; i < 100; i++)
        cooldown_begin(&c, c.until_ns, 10, 100, 0.9);
    int64_t before_ns = c.until_ns;
    cooldown_begin(&c, before_ns, 10, 100, 0.9);
    assert_int_equal(c.until_ns, before_ns + 100 * S); /* never over HIGH */
}

static hvd_status_t found(struct mem *m, const char *text, struct hosts *ret, const char **twice,
                          struct error *error)
{
    error_clear(error);
    return hosts_parse_found(m, text, strlen(text), 3, ret, twice, error);
}

static void discovery_lines(void **state)
{
    (void)state;
    struct mem m;
    struct hosts hosts;
    struct error error = {0};
    const char *twice = NULL;
    mem_init(&m, os_host());
    assert_int_equal(found(&m, "", &hosts, &twice, &error), HVD_OK);
    assert_int_equal(hosts.count, 0);
    assert_int_equal(found(&m, " b:2 \r\n\n a\n[fe80::1]:4\nu@c:1", &hosts, &twice, &error),
                     HVD_OK);
    assert_int_equal(hosts.count, 4);
    assert_string_equal(hosts.items[0].name, "b"); /* in the order given */
    assert_int_equal(hosts.items[0].slots, 2);
    assert_int_equal(hosts.items[1].slots, 3);
    assert_string_equal(hosts.items[2].address, "fe80::1");
    assert_string_equal(hosts.items[3].address, "c");
    assert_null(twice);
    assert_int_equal(found(&m, "a:2\nb\na:2\n", &hosts, &twice, &error), HVD_OK);
    assert_int_equal(hosts.count, 2);
    assert_int_equal(hosts.items[0].slots, 2);
    assert_string_equal(twice, "a");
    assert_int_equal(found(&m, "a:2\na:3\n", &hosts, &twice, &error), HVD_ERR_INVALID);
    assert_non_null(strstr(error.text, "listed twice, with 2 and with 3"));
    assert_int_equal(found(&m, "a:0\nb:1\n", &hosts, &twice, &error), HVD_OK);
    assert_int_equal(hosts.count, 1);
    const char *const wrong[] = {"a b", "a:",         "a:-1", "a:x", ":2",
                                 "-a",  "a:99999999", "\x01", "a,b"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(found(&m, wrong[i], &hosts, &twice, &error) != HVD_OK);
        assert_non_null(strstr(error.text, "line 1"));
    }
    mem_destroy(&m);
}

static void announcements(void **state)
{
    (void)state;
    const struct os *os = os_host();
    char folder[] = "/tmp/test-notice-XXXXXX", path[64];
    struct notice notice;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/notice", folder);
    assert_null(notice_open(os, path));
    assert_null(notice_open(os, ""));
    struct notice_page *writer = notice_create(os, path), *reader = notice_open(os, path);
    assert_non_null(writer);
    assert_non_null(reader);
    assert_null(notice_create(os, path)); /* nobody else's file is written over */
    notice_read(reader, &notice);
    assert_true(notice.version == 0 && notice.added_version == 0);
    notice_write(writer, &(struct notice){7, 5, 7});
    notice_read(reader, &notice);
    assert_true(notice.version == 7 && notice.added_version == 5 && notice.removed_version == 7);
    notice_write(writer, &(struct notice){7, 8, 7}); /* half written: not yet */
    notice_read(reader, &notice);
    assert_true(notice.added_version == 0);
    notice_close(os, reader);
    notice_close(os, writer);
    notice_close(os, NULL);
    FILE *file = fopen(path, "w"); /* too short to be touched */
    fputs("short", file);
    fclose(file);
    assert_null(notice_open(os, path));
    notice_read(NULL, &notice);
    assert_true(notice.version == 0);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cooldown_doubles),
        cmocka_unit_test(discovery_lines),
        cmocka_unit_test(announcements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
