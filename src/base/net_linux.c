/* SPDX-License-Identifier: Apache-2.0 */
/* net_linux.c - see net_linux.h.  Start reading at net_resolve(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "base/net_linux.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>

static int error_of(int rc)
{
    switch (rc) {
    case EAI_SYSTEM: return -errno;
    case EAI_MEMORY: return -ENOMEM;
    case EAI_AGAIN: return -EAGAIN;
    default: return -ENOENT;
    }
}

/* A number first: with AI_NUMERICHOST no resolver is used, so nothing can block. */
int net_resolve(void *ctx, const char *host, const char *port,
                void (*fn)(void *arg, const struct sockaddr *addr, unsigned len), void *arg)
{
    (void)ctx;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0) {
        hints.ai_flags = AI_NUMERICSERV;
        rc = getaddrinfo(host, port, &hints, &found);
    }
    if (rc != 0)
        return error_of(rc);
    for (const struct addrinfo *i = found; i != NULL; i = i->ai_next)
        fn(arg, i->ai_addr, (unsigned)i->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

int net_interfaces(void *ctx,
                   void (*fn)(void *arg, const char *name, const struct sockaddr *addr,
                              bool is_loopback),
                   void *arg)
{
    (void)ctx;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return -errno;
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
        if ((i->ifa_flags & IFF_UP) != 0 && i->ifa_addr != NULL)
            fn(arg, i->ifa_name, i->ifa_addr, (i->ifa_flags & IFF_LOOPBACK) != 0);
    freeifaddrs(all);
    return 0;
}
