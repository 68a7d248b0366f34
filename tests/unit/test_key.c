/* SPDX-License-Identifier: Apache-2.0 */
/* test_key.c - the job key from a descriptor, a file and the environment, and everything that must
 * be rejected. */
#define _GNU_SOURCE 1 /* memfd_create */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/key.h"

static const char HEX[] = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";
static const uint8_t KEY[KEY_BYTES] = {
    0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
    0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00};

static struct config empty_config(void)
{
    struct config c;
    memset(&c, 0, sizeof c);
    c.key_fd = -1;
    return c;
}

static hvd_status_t load(const struct config *c, uint8_t *key, bool *has, struct error *error)
{
    memset(error, 0, sizeof *error);
    memset(key, 0xee, KEY_BYTES);
    *has = false;
    hvd_status_t status = key_load(os_host(), c, key, has, error);
    assert_null(strstr(error->text, "0011223344"));
    return status;
}

static int pipe_with(const void *bytes, size_t n, bool is_closed)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], bytes, n), n);
    if (is_closed)
        close(fds[1]);
    return fds[0];
}

static void test_none(void **state)
{
    (void)state;
    struct config c = empty_config();
    struct error error;
    uint8_t key[KEY_BYTES];
    bool has;
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_false(has);
    assert_int_equal(key[0], 0xee);
}

static void test_fd(void **state)
{
    (void)state;
    struct config c = empty_config();
    struct error error;
    uint8_t key[KEY_BYTES];
    bool has;
    c.key_fd = pipe_with(KEY, sizeof KEY, false); /* raw, the writer still open */
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_true(has);
    assert_memory_equal(key, KEY, sizeof KEY);
    assert_int_equal(fcntl((int)c.key_fd, F_GETFD), -1); /* closed after reading */

    c.key_fd = pipe_with(HEX, 64, false);
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_memory_equal(key, KEY, sizeof KEY);

    snprintf(c.key, sizeof c.key, "zz"); /* the descriptor wins over what is wrong elsewhere */
    c.key_fd = pipe_with("0011223344", 10, true);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    assert_int_equal(key[0], 0xee);
    close((int)c.key_fd);

    c.key_fd = pipe_with(KEY, 31, true);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    close((int)c.key_fd);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_OS); /* not open any more */
    c.key_fd = INT64_MAX;
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
}

static void file_write(const char *path, const void *bytes, size_t n, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void test_file(void **state)
{
    (void)state;
    struct config c = empty_config();
    struct error error;
    uint8_t key[KEY_BYTES];
    bool has;
    char folder[] = "/tmp/horovod-key-XXXXXX", text[80], other[CONFIG_TEXT_MAX];
    assert_non_null(mkdtemp(folder));
    snprintf(c.key_file, sizeof c.key_file, "%s/key", folder);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_OS); /* absent */

    snprintf(text, sizeof text, "%s\r\n", HEX);
    file_write(c.key_file, text, strlen(text), 0600);
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_memory_equal(key, KEY, sizeof KEY);
    file_write(c.key_file, KEY, sizeof KEY, 0400);
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_memory_equal(key, KEY, sizeof KEY);

    file_write(c.key_file, text, strlen(text), 0640);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "mode 0640"));
    text[5] = 'g';
    file_write(c.key_file, text, strlen(text), 0600);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    file_write(c.key_file, "", 0, 0600);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);

    snprintf(other, sizeof other, "%s", c.key_file);
    file_write(other, KEY, sizeof KEY, 0600);
    snprintf(c.key_file, sizeof c.key_file, "%s/link", folder);
    assert_int_equal(symlink(other, c.key_file), 0);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "symbolic link"));
    unlink(c.key_file);
    assert_int_equal(mkfifo(c.key_file, 0600), 0); /* must not hang */
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    unlink(c.key_file);
    unlink(other);
    rmdir(folder);
}

/* A wrapper has closed the launcher's descriptor, or has one of its own under that number. */
static void test_fd_lost(void **state)
{
    (void)state;
    struct config c = empty_config();
    struct error error;
    uint8_t key[KEY_BYTES], other[KEY_BYTES] = {9};
    bool has;
    char folder[] = "/tmp/horovod-key-XXXXXX", left[8] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(c.key_file, sizeof c.key_file, "%s/key", folder);
    file_write(c.key_file, KEY, sizeof KEY, 0600);

    c.key_fd = 987; /* not open */
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_memory_equal(key, KEY, sizeof KEY);

    c.key_fd = pipe_with("theirs", 6, true);
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_memory_equal(key, KEY, sizeof KEY);
    assert_int_equal(read((int)c.key_fd, left, sizeof left), 6); /* untouched */
    close((int)c.key_fd);

    c.key_fd = memfd_create("key", MFD_CLOEXEC); /* the launcher's: it wins */
    assert_int_equal(fchmod((int)c.key_fd, 0600), 0);
    assert_int_equal(write((int)c.key_fd, other, sizeof other), sizeof other);
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_memory_equal(key, other, sizeof other);
    unlink(c.key_file);
    rmdir(folder);
}

static void test_environment(void **state)
{
    (void)state;
    struct config c = empty_config();
    struct error error;
    uint8_t key[KEY_BYTES];
    bool has;
    assert_int_equal(setenv("HOROVOD_KEY", HEX, 1), 0);
    snprintf(c.key, sizeof c.key, "%s", HEX);
    assert_int_equal(load(&c, key, &has, &error), HVD_OK);
    assert_true(has);
    assert_memory_equal(key, KEY, sizeof KEY);
    const char *left = getenv("HOROVOD_KEY");
    assert_true(left == NULL || left[0] == '\0');
    c.key[7] = 'x';
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    snprintf(c.key, sizeof c.key, "%.63s", HEX);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
    /* 32 characters are half a key here, never a raw one */
    snprintf(c.key, sizeof c.key, "%.32s", HEX);
    assert_int_equal(load(&c, key, &has, &error), HVD_ERR_CONFIG);
}

static void test_generate(void **state)
{
    (void)state;
    uint8_t a[KEY_BYTES] = {0}, b[KEY_BYTES] = {0};
    char hex[KEY_HEX_BYTES];
    assert_int_equal(key_generate(os_host(), a, NULL), HVD_OK);
    assert_int_equal(key_generate(os_host(), b, NULL), HVD_OK);
    assert_memory_not_equal(a, b, sizeof a);
    key_hex(KEY, hex);
    assert_string_equal(hex, "00112233445566778899aabbccddeeffffeeddccbbaa99887766554433221100");
    struct config c = empty_config();
    struct error error;
    bool has;
    key_hex(a, c.key);
    assert_int_equal(load(&c, b, &has, &error), HVD_OK);
    assert_memory_equal(a, b, sizeof a);
}

static void test_derive(void **state)
{
    (void)state;
    uint8_t job[KEY_BYTES] = {1}, other[KEY_BYTES] = {2}, salt[KEY_BYTES] = {3}, a[KEY_BYTES],
            b[KEY_BYTES];
    key_derive(job, 1, salt, a);
    key_derive(job, 1, salt, b);
    assert_memory_equal(a, b, sizeof a);
    key_derive(job, 2, salt, b);
    assert_memory_not_equal(a, b, sizeof a);
    key_derive(other, 1, salt, b);
    assert_memory_not_equal(a, b, sizeof a);
    salt[31] = 1;
    key_derive(job, 1, salt, b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, job, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derive),      cmocka_unit_test(test_none),
        cmocka_unit_test(test_fd),          cmocka_unit_test(test_file),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_generate),
        cmocka_unit_test(test_fd_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
