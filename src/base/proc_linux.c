/* SPDX-License-Identifier: Apache-2.0 */
/* proc_linux.c - see proc.h: the files of /proc/PID.  Start reading at proc_read(). */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS 10000000LL /* USER_HZ is 100 on every machine */

/* At most bytes - 1 of a file, ended by a 0; returns how many. */
static size_t file_read(const struct os *os, const char *path, char *ret_text, size_t bytes)
{
    size_t done = 0;
    int fd = os->open(os->ctx, path, O_RDONLY | O_CLOEXEC, 0);
    while (fd >= 0 && done < bytes - 1) {
        int64_t n = os->read(os->ctx, fd, ret_text + done, bytes - 1 - done);
        if (n <= 0 && n != -EINTR)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        os->close(os->ctx, fd);
    ret_text[done] = '\0';
    return done;
}

/* /proc/PID/WHAT */
static size_t proc_read(const struct os *os, int32_t pid, const char *what, char *ret_text,
                        size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
    return file_read(os, path, ret_text, bytes);
}

int32_t proc_parent(const struct os *os, int32_t pid)
{
    char text[512];
    int32_t parent = -1;
    proc_read(os, pid, "stat", text, sizeof text);
    const char *name_end = strrchr(text, ')'); /* a name may hold anything */
    if (name_end == NULL || sscanf(name_end + 1, " %*c %d", &parent) != 1)
        return -1;
    return parent;
}

/* The first file that is mapped into it. */
bool proc_program(const struct os *os, int32_t pid, char *ret_path, size_t bytes)
{
    char text[1024];
    proc_read(os, pid, "maps", text, sizeof text);
    const char *path = strchr(text, '/'); /* a sanitizer's memory has none and may come first */
    size_t n = path != NULL ? strcspn(path, "\n") : bytes;
    if (n >= bytes || path[n] == '\0')
        return false;
    memcpy(ret_path, path, n);
    ret_path[n] = '\0';
    return true;
}

size_t proc_environment(const struct os *os, int32_t pid, char *ret_text, size_t bytes)
{
    return proc_read(os, pid, "environ", ret_text, bytes);
}

int proc_reopen(const struct os *os, int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return os->open(os->ctx, path, O_RDONLY | O_CLOEXEC, 0);
}

bool proc_times(const struct os *os, int32_t pid, struct proc_times *ret)
{
    char text[1024];
    unsigned long long user = 0, system = 0, started = 0;
    double uptime_s = 0;
    proc_read(os, pid, "stat", text, sizeof text);
    const char *name_end = strrchr(text, ')');
    if (name_end == NULL || /* fields 14, 15 and 22, counted from 1; the state is the third */
        sscanf(
            name_end + 1,
            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu",
            &user, &system, &started) != 3)
        return false;
    file_read(os, "/proc/uptime", text, sizeof text);
    int64_t age_ns = 0;
    if (sscanf(text, "%lf", &uptime_s) == 1)
        age_ns = (int64_t)(uptime_s * 1e9) - (int64_t)started * TICK_NS;
    *ret = (struct proc_times){.user_ns = (int64_t)user * TICK_NS,
                               .system_ns = (int64_t)system * TICK_NS,
                               .age_ns = age_ns > 0 ? age_ns : 0};
    return true;
}
