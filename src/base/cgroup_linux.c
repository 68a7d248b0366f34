/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_linux.c - how many cores the control groups of this process allow it to use.
 *
 * Thread: any.  Blocks: on small reads of kernel files.  Allocates: never. A quota on any group
 * above ours applies as well, so every level up to the root is read and the tightest wins. In a
 * container /proc may name the path as the host sees it, which does not exist under the container's
 * mount; then only the levels that do exist count, including the root. Fractions are truncated:
 * spinning on half a core costs more than sleeping. Start reading at cgroup_cpu_limit(). */
#include "base/cgroup_linux.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_PATH_MAX 1024
#define CGROUP_FILE_MAX 8192

static bool file_read(const struct os *os, const char *path, char *ret_text, size_t bytes)
{
    int fd = os->open(os->ctx, path, O_RDONLY, 0);
    if (fd < 0)
        return false;
    size_t used = 0;
    int64_t got;
    while (used < bytes - 1 && (got = os->read(os->ctx, fd, ret_text + used, bytes - 1 - used)) > 0)
        used += (size_t)got;
    ret_text[used] = '\0';
    os->close(os->ctx, fd);
    return used > 0;
}

static bool group_file_read(const struct os *os, const char *mount, const char *group,
                            const char *file, char *ret_text, size_t bytes)
{
    char path[CGROUP_PATH_MAX + 128];
    (void)snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
    return file_read(os, path, ret_text, bytes);
}

/* 0 = no quota at this level. Version 2 has "QUOTA PERIOD" in one file, with "max" for none;
 * version 1 has two files, with -1 for none. strtoll() returns 0 for "max". */
static int group_limit(const struct os *os, const char *mount, const char *group, bool is_v2)
{
    char text[64], period_text[64];
    const char *quota_file = is_v2 ? "cpu.max" : "cpu.cfs_quota_us";
    if (!group_file_read(os, mount, group, quota_file, text, sizeof text))
        return 0;
    char *end = text;
    long long quota_us = strtoll(text, &end, 10);
    long long period_us = is_v2 ? strtoll(end, NULL, 10) : 0;
    if (!is_v2 &&
        group_file_read(os, mount, group, "cpu.cfs_period_us", period_text, sizeof period_text))
        period_us = strtoll(period_text, NULL, 10);
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    long long cores = quota_us / period_us;
    return cores < 1 ? 1 : cores > 65536 ? 65536 : (int)cores;
}

static int limit_min(int a, int b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

/* From the group up to the root; `group` is cut level by level. */
static int branch_limit(const struct os *os, const char *mount, char *group, bool is_v2)
{
    int limit = 0;
    size_t length = strlen(group);
    if (length > 0 && group[length - 1] == '/')
        group[length - 1] = '\0';
    for (;;) {
        limit = limit_min(limit, group_limit(os, mount, group, is_v2));
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return limit;
        *slash = '\0';
    }
}

static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* A line is ID:CONTROLLERS:PATH; version 2 has no controllers. `line` is cut up. */
static int line_limit(const struct os *os, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL)
        return 0;
    controllers++;
    *group++ = '\0';
    if (strlen(group) > CGROUP_PATH_MAX)
        return 0;
    if (*controllers == '\0')
        return branch_limit(os, "/sys/fs/cgroup", group, true);
    if (list_has(controllers, "cpu"))
        return branch_limit(os, "/sys/fs/cgroup/cpu", group, false);
    return 0;
}

int cgroup_cpu_limit(const struct os *os)
{
    char text[CGROUP_FILE_MAX];
    if (!file_read(os, "/proc/self/cgroup", text, sizeof text))
        return 0;
    int limit = 0;
    for (char *line = text; line != NULL && *line != '\0';) {
        char *next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        limit = limit_min(limit, line_limit(os, line));
        line = next;
    }
    return limit;
}
