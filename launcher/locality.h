/* SPDX-License-Identifier: Apache-2.0 */
/* locality.h - this machine's own addresses: which hosts are here, and where to listen so that the
 * others can reach us. Interface names are only ever compared with what the user typed, never
 * between machines.
 *
 * Thread: the launcher's; names are resolved in parallel by short-lived threads.
 * Blocks: on the name service.  Start reading at locality_mark_hosts(). */
#ifndef HVD_LAUNCHER_LOCALITY_H
#define HVD_LAUNCHER_LOCALITY_H

#include "base/status.h"
#include "hosts.h"
#include "mem.h"

struct locality_address {
    char *interface;
    char *text; /* numeric, without port; link-local ones are left out */
    bool is_ipv6, is_loopback;
};

struct locality {
    struct locality_address *items;
    int32_t count, capacity;
    char hostname[256];
};

hvd_status_t locality_load(struct mem *m, struct locality *ret, struct error *error);
/* ret_is_local[hosts->count]. A name that does not resolve is remote: ssh may know it. */
void locality_mark_hosts(const struct locality *l, const struct os *os, struct mem *m,
                         const struct hosts *hosts, bool *ret_is_local);
bool locality_is_own(const struct locality *l, const char *address);
/* Adds to `ret` the addresses of the given interfaces; an error if this machine has none of them.
 */
hvd_status_t locality_of_interfaces(const struct locality *l, struct mem *m,
                                    const struct list *interfaces, struct list *ret,
                                    struct error *error);
/* Our address on the route to `host`, or NULL. */
char *locality_route_to(const struct locality *l, struct mem *m, const char *host);
void locality_all(const struct locality *l, struct mem *m, struct list *ret); /* not loopback */
void locality_add_once(struct mem *m, struct list *list, const char *text);

#endif
