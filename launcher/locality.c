/* SPDX-License-Identifier: Apache-2.0 */
/* locality.c - see locality.h. The sockets here never send a byte: connecting a datagram socket
 * only asks the routing table. Thread: the launcher's.  Start reading at locality_mark_hosts(). */
#include "locality.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define RESOLVERS_MAX 32

/* ---- our addresses ---- */

static bool is_usable(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return true;
    if (address->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
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

struct load {
    struct mem *mem;
    struct locality *locality;
};

static void load_address(void *arg, const char *name, const struct sockaddr *address,
                         bool is_loopback)
{
    struct load *load = arg;
    struct locality *l = load->locality;
    char text[INET6_ADDRSTRLEN];
    if (!is_usable(address) || !to_text(address, text, sizeof text))
        return;
    if (l->count == l->capacity) {
        int32_t capacity = l->capacity == 0 ? 16 : l->capacity * 2;
        struct locality_address *items = mem_alloc(load->mem, (size_t)capacity * sizeof *items);
        if (l->count > 0)
            memcpy(items, l->items, (size_t)l->count * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->count++] = (struct locality_address){.interface = mem_copy(load->mem, name),
                                                     .text = mem_copy(load->mem, text),
                                                     .is_ipv6 = address->sa_family == AF_INET6,
                                                     .is_loopback = is_loopback};
}

hvd_status_t locality_load(struct mem *m, struct locality *ret, struct error *error)
{
    *ret = (struct locality){0};
    struct load load = {m, ret};
    int rc = m->os->interfaces(m->os->ctx, load_address, &load);
    if (rc < 0)
        return error_set_os(error, rc, "cannot list the network interfaces");
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
    const struct os *os;
    const struct locality *locality;
    const char *name;
    bool *ret_is_local;
};

static void resolved(void *arg, const struct sockaddr *address, unsigned bytes)
{
    const struct resolve *r = arg;
    char text[INET6_ADDRSTRLEN];
    (void)bytes;
    if (to_text(address, text, sizeof text) && locality_is_own(r->locality, text))
        *r->ret_is_local = true;
}

static void *resolve_one(void *arg)
{
    struct resolve *r = arg;
    (void)r->os->resolve(r->os->ctx, r->name, "0", resolved, r);
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
            batch[pending++] = (struct resolve){os, l, name, &ret_is_local[i]};
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

struct route {
    const struct locality *locality;
    struct mem *mem;
    char *result;
};

static void route_try(void *arg, const struct sockaddr *address, unsigned bytes)
{
    struct route *route = arg;
    const struct os *os = route->mem->os;
    struct sockaddr_storage self;
    unsigned self_bytes = sizeof self;
    char text[INET6_ADDRSTRLEN];
    int fd = route->result == NULL ? os->socket(os->ctx, address->sa_family, SOCK_DGRAM) : -1;
    if (fd < 0)
        return;
    if (os->connect(os->ctx, fd, address, bytes) == 0 &&
        os->getsockname(os->ctx, fd, (struct sockaddr *)&self, &self_bytes) == 0 &&
        to_text((struct sockaddr *)&self, text, sizeof text) &&
        locality_is_own(route->locality, text))
        route->result = mem_copy(route->mem, text);
    os->close(os->ctx, fd);
}

char *locality_route_to(const struct locality *l, struct mem *m, const char *host)
{
    struct route route = {.locality = l, .mem = m};
    (void)m->os->resolve(m->os->ctx, host, "9", route_try, &route);
    return route.result;
}
