/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - reading and writing textual addresses; see address.h.
 *
 * Thread: any.  Owner: nobody, no state.  Invariant: an address that is returned has a family we
 * dial (Unix, IPv4, IPv6) and fits its length.  Start reading at address_list_parse(). */
#include "wire/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define UNIX_PREFIX "unix:"

static hvd_status_t unix_parse(const char *name, struct address *ret, struct error *error)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    if (n == 0 || n > sizeof un.sun_path - 1)
        return error_set(error, HVD_ERR_INVALID,
                         "address \"unix:%.120s\": the name must have 1 to %zu bytes", name,
                         sizeof un.sun_path - 1);
    memcpy(un.sun_path + 1, name, n); /* a leading NUL makes it abstract: no file, no clean-up */
    memset(ret, 0, sizeof *ret);
    memcpy(&ret->sockaddr, &un, sizeof un);
    ret->bytes = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
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

static int resolve(const char *host, const char *port, struct address *ret_list, int max)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int count = 0;
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        hints.ai_flags = AI_NUMERICSERV;
        if (getaddrinfo(host, port, &hints, &found) != 0)
            return 0;
    }
    for (const struct addrinfo *i = found; i != NULL && count < max; i = i->ai_next) {
        if (i->ai_addrlen > sizeof ret_list->sockaddr)
            continue;
        memset(&ret_list[count], 0, sizeof ret_list[count]);
        memcpy(&ret_list[count].sockaddr, i->ai_addr, i->ai_addrlen);
        ret_list[count++].bytes = (unsigned)i->ai_addrlen;
    }
    freeaddrinfo(found);
    return count;
}

/* Adds one item's addresses behind the *count there are; a name nobody knows adds none. */
static hvd_status_t item_parse(char *item, struct address *list, int max, int *count,
                               struct error *error)
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
    *count += resolve(host, port, list + *count, max - *count);
    return HVD_OK;
}

hvd_status_t address_list_parse(const char *text, struct address *ret_list, int max, int *ret_count,
                                struct error *error)
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
        hvd_status_t status = item_parse(item, ret_list, max, &count, error);
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

void address_format(const struct address *address, char *ret_text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN + 17], port[8];
    if (address->sockaddr.ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&address->sockaddr;
        size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
        int n = address->bytes > head ? (int)(address->bytes - head) : 0;
        snprintf(ret_text, bytes, UNIX_PREFIX "%.*s", n, un->sun_path + 1);
        return;
    }
    if (getnameinfo((const struct sockaddr *)&address->sockaddr, address->bytes, host, sizeof host,
                    port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(ret_text, bytes, "?");
        return;
    }
    bool is_v6 = address->sockaddr.ss_family == AF_INET6;
    snprintf(ret_text, bytes, is_v6 ? "[%s]:%s" : "%s:%s", host, port);
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
