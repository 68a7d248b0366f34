/* SPDX-License-Identifier: Apache-2.0 */
/* test_cgroup_linux.c - CPU quotas of fake control group trees, version 1 and 2. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cgroup_linux.h"

struct file {
    const char *path, *text;
};
struct tree {
    const struct file *files;
    size_t count, at[16];
    int open_count;
};

static int tree_open(void *ctx, const char *path, int flags, unsigned mode)
{
    struct tree *tree = ctx;
    (void)flags;
    (void)mode;
    for (size_t i = 0; i < tree->count; i++) {
        if (strcmp(tree->files[i].path, path) == 0) {
            tree->at[i] = 0;
            tree->open_count++;
            return (int)i;
        }
    }
    return -ENOENT;
}

/* A few bytes at a time, as the kernel is free to do. */
static int64_t tree_read(void *ctx, int fd, void *ret_bytes, size_t n)
{
    struct tree *tree = ctx;
    const char *text = tree->files[fd].text + tree->at[fd];
    size_t part = strlen(text) < 5 ? strlen(text) : 5;
    part = part < n ? part : n;
    memcpy(ret_bytes, text, part);
    tree->at[fd] += part;
    return (int64_t)part;
}

static int tree_close(void *ctx, int fd)
{
    (void)fd;
    ((struct tree *)ctx)->open_count--;
    return 0;
}

static int limit_of(const struct file *files, size_t count)
{
    struct tree tree = {.files = files, .count = count};
    struct os os = {.ctx = &tree, .open = tree_open, .read = tree_read, .close = tree_close};
    int limit = cgroup_cpu_limit(&os);
    assert_int_equal(tree.open_count, 0);
    return limit;
}

#define LIMIT(...)                                                                                 \
    limit_of((const struct file[]){__VA_ARGS__},                                                   \
             sizeof((const struct file[]){__VA_ARGS__}) / sizeof(struct file))

static void version_2(void **state)
{
    (void)state;
    assert_int_equal(LIMIT({"/proc/self/cgroup", "0::/a/b\n"},
                           {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
                           {"/sys/fs/cgroup/a/cpu.max", "350000 100000\n"}),
                     3);
    assert_int_equal(LIMIT({"/proc/self/cgroup", "0::/a/b\n"},
                           {"/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n"},
                           {"/sys/fs/cgroup/a/cpu.max", "350000 100000\n"}),
                     1);
    assert_int_equal(
        LIMIT({"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}), 2);
}

static void version_1(void **state)
{
    (void)state;
    assert_int_equal(LIMIT({"/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/job/x\n0::/\n"},
                           {"/sys/fs/cgroup/cpu/job/x/cpu.cfs_quota_us", "-1\n"},
                           {"/sys/fs/cgroup/cpu/job/x/cpu.cfs_period_us", "100000\n"},
                           {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "800000\n"},
                           {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}),
                     8);
    assert_int_equal(LIMIT({"/proc/self/cgroup", "2:cpuset:/x\n1:cpuacct,cpu:/x\n"},
                           {"/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000\n"},
                           {"/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "50000\n"}),
                     5);
}

/* The path in /proc is the host's; under the container's mount only the root exists. */
static void container_sees_only_the_root(void **state)
{
    (void)state;
    assert_int_equal(LIMIT({"/proc/self/cgroup", "3:cpu:/docker/0123abcd\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}),
                     4);
}

static void no_quota(void **state)
{
    (void)state;
    assert_int_equal(LIMIT({"/nothing", ""}), 0);
    assert_int_equal(LIMIT({"/proc/self/cgroup", ""}), 0);
    assert_int_equal(LIMIT({"/proc/self/cgroup", "0::/a\n"}), 0);
    assert_int_equal(LIMIT({"/proc/self/cgroup", "0::/a"}, {"/sys/fs/cgroup/a/cpu.max", "max 1"}),
                     0);
}

static void nonsense_is_no_quota(void **state)
{
    (void)state;
    assert_int_equal(LIMIT({"/proc/self/cgroup", "\n:\nxyz\n0:\n1:cpu\n"}), 0);
    assert_int_equal(
        LIMIT({"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "100000\n"}), 0);
    assert_int_equal(LIMIT({"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "5 0\n"}),
                     0);
    assert_int_equal(LIMIT({"/proc/self/cgroup", "1:cpuset:/a\n"},
                           {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n"}),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(container_sees_only_the_root),
        cmocka_unit_test(no_quota),
        cmocka_unit_test(nonsense_is_no_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
