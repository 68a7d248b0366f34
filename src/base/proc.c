/* SPDX-License-Identifier: Apache-2.0 */
/* proc.c - see proc.h. */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

size_t proc_read(const struct os *os, int32_t pid, const char *what, char *ret_text, size_t bytes)
{
    char path[64];
    size_t done = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
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
