/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_row.c - TCP as a row of transport_table, and what it offers: a port and addresses.
 *
 * Thread: the one inside hvd_init().  Start reading at tcp_row. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "transport/tcp/tcp_internal.h"

#define SCORE       10 /* transports made for a specific network come first */
#define ADDRESS     16u
#define OFFER_BYTES (2 + TCP_ADDRESSES_MAX * ADDRESS)

/* ---- the offer: the port, then the addresses ---- */

static bool offer_read(const uint8_t *bytes, size_t n, struct tcp_offer *ret)
{
    struct reader r;
    if (n < 2 + ADDRESS || n > OFFER_BYTES || (n - 2) % ADDRESS != 0)
        return false;
    reader_init(&r, bytes, n);
    ret->port = get_u16(&r);
    ret->address_count = (uint8_t)((n - 2) / ADDRESS);
    for (int i = 0; i < ret->address_count; i++)
        get_bytes(&r, ret->addresses[i], ADDRESS);
    return ret->port != 0 && !r.bad;
}

hvd_status_t tcp_offer_put(struct endpoint *e, const struct tcp_offer *offer, struct error *error)
{
    uint8_t bytes[OFFER_BYTES];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    put_u16(&w, offer->port);
    put_bytes(&w, offer->addresses, offer->address_count * ADDRESS);
    return endpoint_offer(e, tcp_row.name, bytes, w.used, error);
}

bool tcp_offer_get(const struct endpoint *e, struct tcp_offer *ret)
{
    size_t n;
    const uint8_t *bytes = endpoint_find(e, tcp_row.name, &n);
    return bytes != NULL && offer_read(bytes, n, ret);
}

/* ---- the row ---- */

static bool tcp_probe(const struct transport_place *place, char *ret_why)
{
    const struct os *os = place->os;
    int fd = os->socket(os->ctx, AF_INET, SOCK_STREAM);
    if (fd < 0)
        fd = os->socket(os->ctx, AF_INET6, SOCK_STREAM);
    if (fd < 0) {
        struct error error = {0};
        error_set_os(&error, fd, "No TCP socket can be made");
        snprintf(ret_why, WHY_MAX, "%.250s.", error.text);
        return false;
    }
    os->close(os->ctx, fd);
    return true;
}

static hvd_status_t tcp_row_open(const struct transport_place *place, struct endpoint *self,
                                 struct transport **ret, struct error *error)
{
    struct tcp *tcp = NULL;
    hvd_status_t status =
        tcp_create(place->os, place->config, place->rank, place->is_one_host, self, &tcp, error);
    if (status == HVD_OK)
        *ret = &tcp->base;
    return status;
}

static bool tcp_is_offer(const uint8_t *bytes, size_t n)
{
    struct tcp_offer offer;
    return offer_read(bytes, n, &offer);
}

static int32_t tcp_score(const struct endpoint *a, const struct endpoint *b)
{
    (void)a, (void)b;
    return SCORE;
}

static hvd_status_t tcp_row_connect(struct transport *t, const struct transport_meeting *m,
                                    const bool *wanted, struct error *error)
{
    return tcp_connect((struct tcp *)t, m->all, m->count, wanted, m->key, m->epoch, m->poll_fd,
                       m->events, error);
}

static int32_t tcp_addresses(const struct endpoint *self, uint8_t (*ret)[ADDRESS], int32_t max)
{
    struct tcp_offer offer;
    int32_t count = tcp_offer_get(self, &offer) ? offer.address_count : 0;
    count = count < max ? count : max;
    memcpy(ret, offer.addresses, (size_t)count * ADDRESS);
    return count;
}

const struct transport_row tcp_row = {
    .name = "tcp",
    .is_exposed = true,
    .probe = tcp_probe,
    .is_enough = transports_always,
    .open = tcp_row_open,
    .is_offer = tcp_is_offer,
    .score = tcp_score,
    .connect = tcp_row_connect,
    .addresses = tcp_addresses,
};
