/* SPDX-License-Identifier: Apache-2.0 */
/* net_linux.h - two rows of the `os` table: host names and network interfaces; see os.h.
 *
 * Thread: any.  Blocks: net_resolve() on names.  Allocates: the C library does, and frees it. */
#ifndef HVD_BASE_NET_LINUX_H
#define HVD_BASE_NET_LINUX_H

#include <stdbool.h>

struct sockaddr;

int net_resolve(void *ctx, const char *host, const char *port,
                void (*fn)(void *arg, const struct sockaddr *addr, unsigned len), void *arg);
int net_interfaces(void *ctx,
                   void (*fn)(void *arg, const char *name, const struct sockaddr *addr,
                              bool is_loopback),
                   void *arg);

#endif
