/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_listen.c - which addresses this rank offers, and the listening sockets on them.
 *
 * One socket per chosen address and one port for all of them; never a wildcard. The choice: the
 * loopback when all ranks are on one machine, else the ones in HOROVOD_INTERFACES (interfaces or
 * addresses), else every interface that is up, the loopback last. Addresses that are unreachable
 * from other machines (bridges of containers) do no harm: peers try all of them and those lose.
 *
 * Thread: token holder.  Owner: struct tcp.  Start reading at tcp_listen(). */
#include "transport/tcp/tcp_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/address.h"

#define BACKLOG    1024
#define PORT_TRIES 16
#define ITEM_MAX   64

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct chosen {
    uint8_t addresses[TCP_ADDRESSES_MAX][16];
    int32_t count;
};

static bool is_mapped(const uint8_t address[16])
{
    return memcmp(address, mapped_prefix, sizeof mapped_prefix) == 0;
}

bool tcp_address_is_loopback(const uint8_t address[16])
{
    static const uint8_t loopback6[16] = {[15] = 1};

    return is_mapped(address) ? address[12] == 127 : memcmp(address, loopback6, 16) == 0;
}

void tcp_address_text(const uint8_t address[16], char *ret_text, size_t bytes)
{
    const char *text = NULL;

    if (is_mapped(address))
        text = inet_ntop(AF_INET, address + 12, ret_text, (socklen_t)bytes);
    else
        text = inet_ntop(AF_INET6, address, ret_text, (socklen_t)bytes);
    if (text == NULL && bytes > 0)
        ret_text[0] = '\0';
}

/* False: not an address that others can dial (link-local needs an interface number). */
static bool address_of(const struct sockaddr *sa, uint8_t ret_address[16])
{
    if (sa == NULL)
        return false;
    if (sa->sa_family == AF_INET) {
        memcpy(ret_address, mapped_prefix, sizeof mapped_prefix);
        memcpy(ret_address + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
        return ret_address[12] != 0;
    }
    if (sa->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;

        memcpy(ret_address, a, 16);
        return !IN6_IS_ADDR_LINKLOCAL(a) && !IN6_IS_ADDR_MULTICAST(a) &&
               !IN6_IS_ADDR_UNSPECIFIED(a);
    }
    return false;
}

/* Does one item of a comma list name this interface or this address? "" lists nothing: all. */
static bool is_listed(const char *list, const char *name, const uint8_t address[16])
{
    char text[INET6_ADDRSTRLEN], item[ITEM_MAX];
    const char *at = list;

    tcp_address_text(address, text, sizeof text);
    while (*at != '\0') {
        const size_t n = strcspn(at, ",");
        const char *begin = at + strspn(at, " ");
        size_t length = n - (size_t)(begin - at < (ptrdiff_t)n ? begin - at : (ptrdiff_t)n);

        while (length > 0 && begin[length - 1] == ' ')
            length--;
        if (length > 0 && length < sizeof item) {
            memcpy(item, begin, length);
            item[length] = '\0';
            if (strcmp(item, name) == 0 || strcmp(item, text) == 0)
                return true;
        }
        at += n + (at[n] == ',' ? 1 : 0);
    }
    return false;
}

static void add(struct chosen *chosen, const uint8_t address[16])
{
    for (int32_t i = 0; i < chosen->count; i++) {
        if (memcmp(chosen->addresses[i], address, 16) == 0)
            return;
    }
    if (chosen->count < TCP_ADDRESSES_MAX)
        memcpy(chosen->addresses[chosen->count++], address, 16);
}

struct choice {
    const char *interfaces;
    bool is_single_host, is_loopback_wanted;
    struct chosen *chosen;
};

static void choose(void *arg, const char *name, const struct sockaddr *sa, bool is_loopback)
{
    const struct choice *c = arg;
    uint8_t address[16];

    if (is_loopback != c->is_loopback_wanted || !address_of(sa, address))
        return;
    if (c->is_single_host ? is_loopback
                          : c->interfaces[0] == '\0' || is_listed(c->interfaces, name, address))
        add(c->chosen, address);
}

/* Two passes, so that the loopback is the last resort and never crowds out a real address. */
static int choose_all(const struct os *os, const char *interfaces, bool is_single_host,
                      struct chosen *ret)
{
    struct choice c = {interfaces, is_single_host, false, ret};
    int result = os->interfaces(os->ctx, choose, &c);

    c.is_loopback_wanted = true;
    return result < 0 ? result : os->interfaces(os->ctx, choose, &c);
}

unsigned tcp_sockaddr(const uint8_t address[16], uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (is_mapped(address)) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)ret;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address + 12, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)ret;

    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, address, 16);
    return sizeof *in6;
}

/* The socket, or a negative errno; *port is chosen by the kernel if it is 0. */
static int listen_on(const struct os *os, const uint8_t address[16], uint16_t *port)
{
    struct sockaddr_storage sa;
    unsigned length = tcp_sockaddr(address, *port, &sa);
    const int one = 1;
    const int fd = os->socket(os->ctx, sa.ss_family, SOCK_STREAM);
    int result = 0;

    if (fd < 0)
        return fd;
    if (sa.ss_family == AF_INET6)
        os->sockopt_set(os->ctx, fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (*port != 0) /* connections of the last job that are not forgotten yet do not count */
        os->sockopt_set(os->ctx, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    result = os->bind(os->ctx, fd, (const struct sockaddr *)&sa, length);
    if (result >= 0)
        result = os->listen(os->ctx, fd, BACKLOG);
    if (result >= 0) {
        length = sizeof sa;
        result = os->getsockname(os->ctx, fd, (struct sockaddr *)&sa, &length);
    }
    if (result < 0) {
        os->close(os->ctx, fd);
        return result;
    }
    *port = ntohs(sa.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&sa)->sin_port
                                          : ((struct sockaddr_in6 *)(void *)&sa)->sin6_port);
    return fd;
}

/* Listens on all addresses with one port, 0: the kernel's choice for the first. An address that
 * can't be bound at all (it has just been removed, or IPv6 is off) is left out; if the port is
 * taken on one of them, the caller tries another. */
static int listen_on_all(struct tcp *tcp, const struct chosen *chosen, uint16_t port,
                         struct tcp_offer *ret)
{
    const struct os *os = tcp->base.os;
    int last = -EADDRNOTAVAIL;

    ret->address_count = 0;
    for (int32_t i = 0; i < chosen->count; i++) {
        const int fd = listen_on(os, chosen->addresses[i], &port);

        if (fd == -EADDRINUSE)
            return fd;
        if (fd < 0) {
            last = fd;
            continue;
        }
        tcp->listeners[tcp->listener_count++] = (struct tcp_listener){TCP_TAG_LISTENER, fd};
        memcpy(ret->addresses[ret->address_count++], chosen->addresses[i], 16);
    }
    ret->port = port;
    return tcp->listener_count > 0 ? 0 : last;
}

/* Tries ports until one is free on every address: the kernel's choice, or all of the range from a
 * random one on (ranks on one machine search at the same time). */
static int listen_somewhere(struct tcp *tcp, const struct chosen *chosen, uint16_t first,
                            uint16_t last, struct tcp_offer *ret)
{
    const struct os *os = tcp->base.os;
    const uint32_t count = (uint32_t)(last - first) + 1;
    const uint32_t tries = first == 0 ? PORT_TRIES : count;
    uint32_t start = 0;
    int result = first == 0 ? 0 : os->random(os->ctx, &start, sizeof start);

    if (result < 0)
        return result;
    result = -EADDRINUSE;
    for (uint32_t i = 0; i < tries && result == -EADDRINUSE; i++) {
        uint32_t port = first == 0 ? 0 : first + (start % count + i) % count;
        tcp_listen_end(tcp);
        result = listen_on_all(tcp, chosen, (uint16_t)port, ret);
    }
    return result;
}

hvd_status_t tcp_listen(struct tcp *tcp, const struct config *config, bool is_single_host,
                        struct tcp_offer *ret, struct error *error)
{
    const char *interfaces = config->interfaces;
    struct chosen chosen = {.count = 0};
    uint16_t first = 0, last = 0;
    int result = 0;

    if (port_range_parse(config->port_range, &first, &last, error) != HVD_OK)
        return HVD_ERR_CONFIG;
    result = choose_all(tcp->base.os, interfaces, is_single_host, &chosen);
    if (result < 0)
        return error_set_os(error, result, "can't list the network interfaces");
    if (chosen.count == 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "no address to listen on: no interface that is up matches \"%s\" "
                         "(HOROVOD_INTERFACES or HOROVOD_GLOO_IFACE; interface names or addresses)",
                         interfaces);
    result = listen_somewhere(tcp, &chosen, first, last, ret);
    if (result == -EADDRINUSE && first != 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "can't listen for other ranks: no port of HOROVOD_PORT_RANGE=%s is free",
                         config->port_range);
    if (result < 0)
        return error_set_os(error, result, "can't listen for other ranks");
    return HVD_OK;
}

void tcp_listen_end(struct tcp *tcp)
{
    const struct os *os = tcp->base.os;

    for (int32_t i = 0; i < tcp->listener_count; i++) {
        os->poll_remove(os->ctx, tcp->poll, tcp->listeners[i].fd);
        os->close(os->ctx, tcp->listeners[i].fd);
    }
    tcp->listener_count = 0;
}
