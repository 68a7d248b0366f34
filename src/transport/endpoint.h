/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h - what a rank sends to the others before there are links: its identity and machine,
 * and an offer from each transport that it has open.
 *
 * An offer is a name and bytes that only this transport understands (an address, a port, nothing).
 * So a new transport adds no field here and no line to the rendezvous. The reader ignores names
 * that it does not know.
 *
 * Thread: any.  Start reading at endpoint_offer(). */
#ifndef HVD_TRANSPORT_ENDPOINT_H
#define HVD_TRANSPORT_ENDPOINT_H

#include "base/codec.h"
#include "base/status.h"

#define OFFERS_MAX       8
#define OFFER_NAME_MAX   16   /* with its NUL; a-z, 0-9, '_' and '-' */
#define OFFERS_BYTES_MAX 2048 /* of all offers of a rank together */

struct offer {
    char name[OFFER_NAME_MAX];
    uint16_t at, bytes; /* in endpoint.bytes */
};

struct endpoint {
    int32_t rank;
    int32_t pid;
    char host_id[64];   /* equal only for ranks that can share memory; "": with none */
    char host_name[64]; /* for messages */
    uint8_t offer_count;
    uint16_t bytes_used;
    struct offer offers[OFFERS_MAX];
    uint8_t bytes[OFFERS_BYTES_MAX];
};

/* Adds an offer. HVD_ERR_LIMIT: no room. HVD_ERR_INVALID: a bad or duplicate name. */
hvd_status_t endpoint_offer(struct endpoint *e, const char *name, const void *bytes, size_t n,
                            struct error *error);
/* The bytes of the offer `name`; NULL: there is none. An offer may have 0 bytes. */
const uint8_t *endpoint_find(const struct endpoint *e, const char *name, size_t *ret_n);
/* "shm, tcp" or "nothing": for messages. */
void endpoint_list(const struct endpoint *e, char *ret_text, size_t bytes);

void endpoint_put(struct writer *w, const struct endpoint *e);
/* false: malformed. The contents of an offer are checked by its transport. */
bool endpoint_get(struct reader *r, struct endpoint *ret);

#endif
