/* SPDX-License-Identifier: Apache-2.0 */
/* locality.c - see locality.h. The sockets here never send a byte: connecting a datagram socket
 * only asks the routing table. Thread: the launcher's.  Start reading at locality_mark_hosts(). */
#include "locality.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define RESOLVERS_MAX 32

/* ---- our addresses ---- */

static bool is_usable(const struct ifaddrs *i)
{
    if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0)
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return true;
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 v6;
    memcpy(&v6, i->ifa_addr, sizeof v6);
    return !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

static bool to_text(const struct sockaddr *address, char *ret_text, size_t bytes)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        return inet_ntop(AF_INET, &v4.sin_addr, ret_text, (socklen_t)bytes) != NULL;
    }
    if (address->sa_family != AF_INET6)
        return false;
    memcpy(&v6, address, sizeof v6);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], ret_text, (socklen_t)bytes) != NULL;
    return inet_ntop(AF_INET6, &v6.sin6_addr, ret_text, (socklen_t)bytes) != NULL;
}

hvd_status_t locality_load(struct mem *m, struct locality *ret, struct error *error)
{
    *ret = (struct locality){0};
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return error_set_os(error, -errno, "cannot list the network interfaces");
    int32_t count = 0;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
        count++;
    ret->items = mem_alloc(m, (size_t)(count + 1) * sizeof *ret->items);
    ret->capacity = count;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN];
        if (!is_usable(i) || !to_text(i->ifa_addr, text, sizeof text))
            continue;
        ret->items[ret->count++] =
            (struct locality_address){.interface = mem_copy(m, i->ifa_name),
                                      .text = mem_copy(m, text),
                                      .is_ipv6 = i->ifa_addr->sa_family == AF_INET6,
                                      .is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0};
    }
    freeifaddrs(list);
    gethostname(ret->hostname, sizeof ret->hostname - 1);
    return HVD_OK;
}

bool locality_is_own(const struct locality *l, const char *address)
{
    if (strcmp(address, "127.0.1.1") == 0) /* Debian's /etc/hosts gives it the machine's own name */
        return true;
    for (int32_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i].text, address) == 0)
            return true;
    return false;
}

/* ---- which hosts are here? ---- */

struct resolve {
    const struct locality *locality;
    const char *name;
    bool *ret_is_local;
};

static void *resolve_one(void *arg)
{
    const struct resolve *r = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(r->name, NULL, &hints, &found) != 0)
        return NULL;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        char text[INET6_ADDRSTRLEN];
        if (to_text(a->ai_addr, text, sizeof text) && locality_is_own(r->locality, text))
            *r->ret_is_local = true;
    }
    freeaddrinfo(found);
    return NULL;
}

static void resolve_batch(const struct os *os, struct resolve *batch, int count)
{
    void *threads[RESOLVERS_MAX];
    for (int i = 0; i < count; i++)
        if (count == 1 ||
            os->thread_start(os->ctx, resolve_one, &batch[i], "resolve", &threads[i]) != 0) {
            resolve_one(&batch[i]);
            threads[i] = NULL;
        }
    for (int i = 0; i < count; i++)
        if (threads[i] != NULL)
            os->thread_join(os->ctx, threads[i]);
}

static bool is_numeric(const char *name)
{
    struct in6_addr any;
    return inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1;
}

void locality_mark_hosts(const struct locality *l, const struct os *os, struct mem *m,
                         const struct hosts *hosts, bool *ret_is_local)
{
    struct resolve *batch = mem_alloc(m, RESOLVERS_MAX * sizeof *batch);
    int pending = 0;
    for (int32_t i = 0; i < hosts->count; i++) {
        const char *name = hosts->items[i].address;
        ret_is_local[i] = strcasecmp(name, "localhost") == 0 ||
                          strcasecmp(name, l->hostname) == 0 || locality_is_own(l, name);
        if (!ret_is_local[i] && !is_numeric(name))
            batch[pending++] = (struct resolve){l, name, &ret_is_local[i]};
        if (pending == RESOLVERS_MAX || (pending > 0 && i + 1 == hosts->count)) {
            resolve_batch(os, batch, pending);
            pending = 0;
        }
    }
    if (pending > 0)
        resolve_batch(os, batch, pending);
}

/* ---- where to listen ---- */

void locality_add_once(struct mem *m, struct list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0)
            return;
    list_add(m, list, mem_copy(m, text));
}

hvd_status_t locality_of_interfaces(const struct locality *l, struct mem *m,
                                    const struct list *interfaces, struct list *ret,
                                    struct error *error)
{
    struct list known = {0};
    size_t before = ret->count;
    for (int32_t i = 0; i < l->count; i++) {
        locality_add_once(m, &known, l->items[i].interface);
        for (size_t k = 0; k < interfaces->count; k++)
            if (strcmp(l->items[i].interface, interfaces->items[k]) == 0)
                locality_add_once(m, ret, l->items[i].text);
    }
    if (ret->count > before)
        return HVD_OK;
    char *names = mem_copy(m, known.count > 0 ? known.items[0] : "none");
    for (size_t i = 1; i < known.count; i++)
        names = mem_format(m, "%s, %s", names, known.items[i]);
    return error_set(error, HVD_ERR_INVALID,
                     "--network-interfaces: %s%s has no address on this machine; it has %s",
                     interfaces->items[0], interfaces->count > 1 ? " and the others" : "", names);
}

void locality_all(const struct locality *l, struct mem *m, struct list *ret)
{
    for (int32_t i = 0; i < l->count; i++)
        if (!l->items[i].is_loopback)
            locality_add_once(m, ret, l->items[i].text);
}

char *locality_route_to(const struct locality *l, struct mem *m, const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    char *result = NULL;
    if (getaddrinfo(host, "9", &hints, &found) != 0)
        return NULL;
    for (const struct addrinfo *a = found; a != NULL && result == NULL; a = a->ai_next) {
        struct sockaddr_storage self;
        socklen_t bytes = sizeof self;
        char text[INET6_ADDRSTRLEN];
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
            getsockname(fd, (struct sockaddr *)&self, &bytes) == 0 &&
            to_text((struct sockaddr *)&self, text, sizeof text) && locality_is_own(l, text))
            result = mem_copy(m, text);
        close(fd);
    }
    freeaddrinfo(found);
    return result;
}
