/* SPDX-License-Identifier: Apache-2.0 */
/* socket_linux.c - see socket.h: abstract Unix sockets, SO_PEERCRED, TCP_USER_TIMEOUT.
 *
 * Start reading at socket_local_address(). */
#include "base/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HEAD (offsetof(struct sockaddr_un, sun_path) + 1)

_Static_assert(SOCKET_LOCAL_NAME_MAX == sizeof(struct sockaddr_un) - HEAD, "what fits");

unsigned socket_local_address(const char *name, size_t n, struct sockaddr_storage *ret)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (n == 0 || n > SOCKET_LOCAL_NAME_MAX)
        return 0;
    memcpy(un.sun_path + 1, name, n); /* a leading NUL makes it abstract: no file, no clean-up */
    memset(ret, 0, sizeof *ret);
    memcpy(ret, &un, sizeof un);
    return (unsigned)(HEAD + n);
}

unsigned socket_path_address(const char *path, struct sockaddr_storage *ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (path[0] != '/' || n > SOCKET_PATH_MAX || n >= sizeof address.sun_path)
        return 0;
    memcpy(address.sun_path, path, n);
    memset(ret, 0, sizeof *ret);
    memcpy(ret, &address, sizeof address);
    return sizeof address;
}

size_t socket_local_name(const struct sockaddr_storage *address, unsigned bytes,
                         const char **ret_name)
{
    *ret_name = ((const struct sockaddr_un *)address)->sun_path + 1;
    return bytes > HEAD ? bytes - HEAD : 0;
}

int socket_peer(const struct os *os, int fd, struct socket_peer *ret)
{
    struct { /* struct ucred of the kernel; the C library declares it only with _GNU_SOURCE */
        int32_t pid;
        uint32_t uid, gid;
    } who = {.uid = UINT32_MAX};
    unsigned bytes = sizeof who;
    int rc = os->sockopt_get(os->ctx, fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes);
    if (rc < 0)
        return rc;
    if (bytes != sizeof who || who.uid == UINT32_MAX)
        return -ENOTCONN;
    *ret = (struct socket_peer){.pid = who.pid, .uid = who.uid};
    return 0;
}

static void set(const struct os *os, int fd, int level, int name, int value)
{
    os->sockopt_set(os->ctx, fd, level, name, &value, sizeof value);
}

void socket_keepalive(const struct os *os, int fd, int idle_s, int every_s, int count,
                      int unacknowledged_ms)
{
    set(os, fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(os, fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    set(os, fd, IPPROTO_TCP, TCP_KEEPINTVL, every_s);
    set(os, fd, IPPROTO_TCP, TCP_KEEPCNT, count);
    set(os, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
}

uint32_t socket_path_mtu(const struct os *os, int fd)
{
    int mtu = 0;
    unsigned bytes = sizeof mtu;
    if (os->sockopt_get(os->ctx, fd, IPPROTO_IP, IP_MTU, &mtu, &bytes) < 0 || mtu <= 0) {
        bytes = sizeof mtu;
        if (os->sockopt_get(os->ctx, fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &bytes) < 0)
            return 0;
    }
    return mtu > 0 ? (uint32_t)mtu : 0;
}
