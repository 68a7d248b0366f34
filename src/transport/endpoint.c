/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c - see endpoint.h. */
#include "transport/endpoint.h"

#include <stdio.h>
#include <string.h>

static const struct offer *offer_find(const struct endpoint *e, const char *name)
{
    for (int i = 0; i < e->offer_count; i++)
        if (strcmp(e->offers[i].name, name) == 0)
            return &e->offers[i];
    return NULL;
}

/* Names appear in error messages: a peer's must not inject anything else there. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n < OFFER_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

hvd_status_t endpoint_offer(struct endpoint *e, const char *name, const void *bytes, size_t n,
                            struct error *error)
{
    if (!is_name(name) || offer_find(e, name) != NULL)
        return error_set(error, HVD_ERR_INVALID,
                         "A transport's name is bad or offered twice: \"%.32s\".", name);
    if (e->offer_count == OFFERS_MAX || n > (size_t)(OFFERS_BYTES_MAX - e->bytes_used))
        return error_set(error, HVD_ERR_LIMIT,
                         "No room for the address of the transport %s: %zu bytes, after %d offers "
                         "of %d bytes.",
                         name, n, e->offer_count, e->bytes_used);
    struct offer *offer = &e->offers[e->offer_count++];
    *offer = (struct offer){.at = e->bytes_used, .bytes = (uint16_t)n};
    snprintf(offer->name, sizeof offer->name, "%s", name);
    if (n > 0)
        memcpy(e->bytes + offer->at, bytes, n);
    e->bytes_used = (uint16_t)(e->bytes_used + n);
    return HVD_OK;
}

const uint8_t *endpoint_find(const struct endpoint *e, const char *name, size_t *ret_n)
{
    const struct offer *offer = offer_find(e, name);
    *ret_n = offer != NULL ? offer->bytes : 0;
    return offer != NULL ? e->bytes + offer->at : NULL;
}

void endpoint_list(const struct endpoint *e, char *ret_text, size_t bytes)
{
    size_t used = 0;
    snprintf(ret_text, bytes, "nothing");
    for (int i = 0; i < e->offer_count && used < bytes; i++)
        used += (size_t)snprintf(ret_text + used, bytes - used, "%s%s", i > 0 ? ", " : "",
                                 e->offers[i].name);
}

void endpoint_put(struct writer *w, const struct endpoint *e)
{
    put_u32(w, (uint32_t)e->rank);
    put_u32(w, (uint32_t)e->pid);
    put_text(w, e->host_id);
    put_text(w, e->host_name);
    put_u8(w, e->offer_count);
    for (int i = 0; i < e->offer_count; i++) {
        put_text(w, e->offers[i].name);
        put_blob(w, e->bytes + e->offers[i].at, e->offers[i].bytes);
    }
}

bool endpoint_get(struct reader *r, struct endpoint *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->rank = (int32_t)get_u32(r);
    ret->pid = (int32_t)get_u32(r);
    get_text(r, ret->host_id, sizeof ret->host_id);
    get_text(r, ret->host_name, sizeof ret->host_name);
    int count = get_u8(r);
    for (int i = 0; i < count && !r->bad; i++) {
        char name[OFFER_NAME_MAX] = "";
        size_t n = 0;
        get_text(r, name, sizeof name);
        const void *bytes = get_blob(r, OFFERS_BYTES_MAX, &n);
        if (r->bad || endpoint_offer(ret, name, bytes, n, NULL) != HVD_OK)
            return false;
    }
    return !r->bad;
}
