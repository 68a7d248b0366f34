/* SPDX-License-Identifier: Apache-2.0 */
/* machine_linux.c - see machine.h: files of /proc, and the cookie of the network namespace.
 *
 * Start reading at machine_boot_id(), for memory at machine_memory_check(). */
#include "base/machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FILE_BYTES   4096
#define NETNS_COOKIE 71 /* SO_NETNS_COOKIE, Linux 5.14 */

static bool file_read(const struct os *os, const char *path, char *ret_text, size_t capacity)
{
    int fd = os->open(os->ctx, path, O_RDONLY, 0);
    int64_t n = fd >= 0 ? os->read(os->ctx, fd, ret_text, capacity - 1) : 0;
    if (fd >= 0)
        os->close(os->ctx, fd);
    ret_text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

void machine_boot_id(const struct os *os, char ret_id[MACHINE_BOOT_ID_MAX])
{
    file_read(os, "/proc/sys/kernel/random/boot_id", ret_id, MACHINE_BOOT_ID_MAX);
    ret_id[strcspn(ret_id, "\n")] = '\0';
}

uint64_t machine_local_scope(const struct os *os)
{
    uint64_t cookie = 0;
    unsigned len = sizeof cookie;
    int fd = os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
    if (fd < 0)
        return 0;
    if (os->sockopt_get(os->ctx, fd, SOL_SOCKET, NETNS_COOKIE, &cookie, &len) < 0)
        cookie = 0;
    os->close(os->ctx, fd);
    return cookie;
}

void machine_name(const struct os *os, char *ret_name, size_t bytes)
{
    file_read(os, "/proc/sys/kernel/hostname", ret_name, bytes);
    ret_name[strcspn(ret_name, "\n")] = '\0';
}

uint64_t machine_memory_bytes(const struct os *os)
{
    static const char label[] = "MemTotal:";
    char text[FILE_BYTES];
    const char *at = file_read(os, "/proc/meminfo", text, sizeof text) ? strstr(text, label) : NULL;
    return at == NULL ? 0 : strtoull(at + strlen(label), NULL, 10) << 10;
}

struct maps {
    uintptr_t at, end; /* what is left to be covered */
    char what[160];    /* the line that does not fit; "": none */
};

/* One line of /proc/self/maps: "7f00-7fff rw-p 00000000 00:00 0   [name]". */
static void maps_line(struct maps *maps, const char *line)
{
    uintptr_t first, end;
    char mode[8] = "", name[64] = "";
    unsigned long long inode;
    int fields = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*x %*x:%*x %llu %63s", &first, &end,
                        mode, &inode, name);
    if (fields < 4 || end <= maps->at || first >= maps->end || maps->what[0] != '\0')
        return;
    bool is_own = strcmp(mode, "rw-p") == 0 && inode == 0 && strncmp(name, "[stack", 6) != 0;
    if (is_own && first <= maps->at)
        maps->at = end;
    else
        snprintf(maps->what, sizeof maps->what, "%.120s", line);
}

/* Reads line by line; a line longer than the buffer loses its tail, which is a file's name. */
static int maps_read(const struct os *os, struct maps *maps)
{
    char text[FILE_BYTES];
    size_t used = 0;
    int fd = os->open(os->ctx, "/proc/self/maps", O_RDONLY, 0);
    if (fd < 0)
        return fd;
    for (;;) {
        int64_t n = os->read(os->ctx, fd, text + used, sizeof text - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
        text[used] = '\0';
        char *line = text;
        for (char *next; (next = strchr(line, '\n')) != NULL; line = next + 1) {
            *next = '\0';
            maps_line(maps, line);
        }
        used -= (size_t)(line - text);
        memmove(text, line, used);
        if (used == sizeof text - 1)
            used = sizeof text / 2;
    }
    os->close(os->ctx, fd);
    return 0;
}

int machine_memory_check(const struct os *os, const void *ptr, uint64_t bytes, bool *ret_is_private,
                         char *ret_what, size_t what_bytes)
{
    struct maps maps = {.at = (uintptr_t)ptr, .end = (uintptr_t)ptr + bytes};
    int rc = maps_read(os, &maps);
    if (rc < 0)
        return rc;
    *ret_is_private = maps.at >= maps.end;
    snprintf(ret_what, what_bytes, "%s", maps.what);
    return 0;
}
