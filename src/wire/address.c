/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - reading and writing textual addresses; see address.h.
 *
 * Thread: any.  Owner: nobody, no state.  Invariant: an address that is returned has a family we
 * dial (Unix, IPv4, IPv6) and fits its length.  Start reading at address_list_parse(). */
#include "wire/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/socket.h"

#define UNIX_PREFIX "unix:"

static hvd_status_t unix_parse(const char *name, struct address *ret, struct error *error)
{
    unsigned bytes = socket_local_address(name, strlen(name), &ret->sockaddr);
    if (bytes == 0)
        return error_set(error, HVD_ERR_INVALID,
                         "address \"unix:%.120s\": the name must have 1 to %d bytes", name,
                         SOCKET_LOCAL_NAME_MAX);
    ret->bytes = bytes;
    return HVD_OK;
}

/* Splits "HOST:PORT" or "[V6]:PORT" in place. */
static bool host_split(char *text, char **ret_host, char **ret_port)
{
    char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text)
        return false;
    *ret_host = text;
    *ret_port = colon + 1;
    *colon = '\0';
    if (text[0] == '[') {
        if (colon[-1] != ']' || colon - text < 3)
            return false;
        colon[-1] = '\0';
        *ret_host = text + 1;
    } else if (strchr(text, ':') != NULL) {
        return false; /* a bare V6 address: where would its port begin? */
    }
    size_t digits = strspn(*ret_port, "0123456789");
    return digits > 0 && digits <= 5 && (*ret_port)[digits] == '\0';
}

struct found {
    struct address *list;
    int count, max;
};

static void found_add(void *arg, const struct sockaddr *sockaddr, unsigned bytes)
{
    struct found *found = arg;
    if (found->count >= found->max || bytes > sizeof found->list->sockaddr)
        return;
    struct address *at = &found->list[found->count++];
    memset(at, 0, sizeof *at);
    memcpy(&at->sockaddr, sockaddr, bytes);
    at->bytes = bytes;
}

/* Adds one item's addresses behind the *count there are; a name nobody knows adds none. */
static hvd_status_t item_parse(const struct os *os, char *item, struct address *list, int max,
                               int *count, struct error *error)
{
    char copy[ADDRESS_TEXT_MAX];
    char *host, *port;
    if (*count >= max)
        return error_set(error, HVD_ERR_LIMIT, "more than %d addresses", max);
    if (strncmp(item, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
        hvd_status_t status = unix_parse(item + strlen(UNIX_PREFIX), &list[*count], error);
        *count += status == HVD_OK;
        return status;
    }
    snprintf(copy, sizeof copy, "%s", item);
    if (!host_split(copy, &host, &port) || strtol(port, NULL, 10) > 65535)
        return error_set(error, HVD_ERR_INVALID,
                         "address \"%s\" is none of unix:NAME, HOST:PORT, [V6]:PORT", item);
    struct found found = {.list = list + *count, .max = max - *count};
    (void)os->resolve(os->ctx, host, port, found_add, &found);
    *count += found.count;
    return HVD_OK;
}

hvd_status_t address_list_parse(const struct os *os, const char *text, struct address *ret_list,
                                int max, int *ret_count, struct error *error)
{
    int count = 0;
    const char *at = text;
    for (;;) {
        char item[ADDRESS_TEXT_MAX];
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= sizeof item)
            return error_set(error, HVD_ERR_INVALID, "empty or overlong address in \"%.200s\"",
                             text);
        memcpy(item, at, n);
        item[n] = '\0';
        hvd_status_t status = item_parse(os, item, ret_list, max, &count, error);
        if (status != HVD_OK)
            return status;
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    if (count == 0)
        return error_set(error, HVD_ERR_LINK, "no host of \"%.200s\" could be resolved", text);
    *ret_count = count;
    return HVD_OK;
}

/* "%2" behind a link-local address: the number of its interface, which means something here only.
 */
static void v6_format(const struct sockaddr_in6 *in6, char *ret_text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "", scope[16] = "";
    if (in6->sin6_scope_id != 0)
        snprintf(scope, sizeof scope, "%%%u", (unsigned)in6->sin6_scope_id);
    inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
    snprintf(ret_text, bytes, "[%s%s]:%u", host, scope, (unsigned)ntohs(in6->sin6_port));
}

void address_format(const struct address *address, char *ret_text, size_t bytes)
{
    char host[INET_ADDRSTRLEN] = "";
    const char *name;
    switch (address->sockaddr.ss_family) {
    case AF_UNIX: {
        size_t n = socket_local_name(&address->sockaddr, address->bytes, &name);
        snprintf(ret_text, bytes, UNIX_PREFIX "%.*s", (int)n, name);
        return;
    }
    case AF_INET: {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address->sockaddr;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(ret_text, bytes, "%s:%u", host, (unsigned)ntohs(in->sin_port));
        return;
    }
    case AF_INET6:
        v6_format((const struct sockaddr_in6 *)&address->sockaddr, ret_text, bytes);
        return;
    }
    snprintf(ret_text, bytes, "?");
}

bool address_is_wildcard(const struct address *address)
{
    if (address->sockaddr.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address->sockaddr;
        return in->sin_addr.s_addr == htonl(INADDR_ANY);
    }
    if (address->sockaddr.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address->sockaddr;
        return memcmp(&in6->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
    }
    return false;
}

/* A number of a port in front of `end`, or 0. */
static long port_number(const char *text, char end, const char **ret_rest)
{
    char *rest = NULL;
    if (*text < '0' || *text > '9')
        return 0;
    long number = strtol(text, &rest, 10);
    *ret_rest = rest;
    return *rest == end && number <= UINT16_MAX ? number : 0;
}

hvd_status_t port_range_parse(const char *text, uint16_t *ret_first, uint16_t *ret_last,
                              struct error *error)
{
    const char *rest = NULL;
    long first = 0, last = 0;
    *ret_first = *ret_last = 0;
    if (text == NULL || *text == '\0')
        return HVD_OK;
    if (strchr(text, '-') == NULL) {
        first = last = port_number(text, '\0', &rest);
    } else {
        first = port_number(text, '-', &rest);
        last = first > 0 ? port_number(rest + 1, '\0', &rest) : 0;
    }
    if (first < 1 || last < first)
        return error_set(error, HVD_ERR_CONFIG,
                         "HOROVOD_PORT_RANGE=%.40s is no range of ports such as 20000-20100", text);
    *ret_first = (uint16_t)first;
    *ret_last = (uint16_t)last;
    return HVD_OK;
}
