/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h - the system-specific parts of sockets: names of local ones, the peer's identity, and
 * closing a silent TCP connection.
 *
 * A local name needs no file and disappears with its socket, but every local user can connect to
 * it: see wire/peercred.h.
 *
 * Thread: any.  Blocks: never.  Start reading at socket_local_address(). */
#ifndef HVD_BASE_SOCKET_H
#define HVD_BASE_SOCKET_H

#include "base/os.h"

struct sockaddr_storage;

#define SOCKET_LOCAL_NAME_MAX 107 /* bytes of a local name */

/* The address of the local socket called `name`, and its length; 0: the name is empty or too long.
 */
unsigned socket_local_address(const char *name, size_t n, struct sockaddr_storage *ret);
/* The address of a local socket that is a file at this absolute path; 0: not absolute, or longer
 * than SOCKET_PATH_MAX. */
#define SOCKET_PATH_MAX 100
unsigned socket_path_address(const char *path, struct sockaddr_storage *ret);
/* The name in such an address, not NUL-terminated; returns its length. */
size_t socket_local_name(const struct sockaddr_storage *address, unsigned bytes,
                         const char **ret_name);

struct socket_peer {
    int32_t pid; /* in our pid namespace; 0: not visible */
    uint32_t uid;
};
/* The process connected to a local socket, or for a listening one, the one that called listen().
 * Negative errno value: not known. */
int socket_peer(const struct os *os, int fd, struct socket_peer *ret);

/* Makes the system probe an idle connection and close one whose peer does not respond. If it can't,
 * our own heartbeats do. */
void socket_keepalive(const struct os *os, int fd, int idle_s, int every_s, int count,
                      int unacknowledged_ms);

/* The system's estimate of the path MTU to a TCP socket's peer; 0: not known. */
uint32_t socket_path_mtu(const struct os *os, int fd);

#endif
