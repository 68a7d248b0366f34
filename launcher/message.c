/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - see message.h. Frame: u32 length of the rest, u8 type, payload; little endian.
 * Thread: the link's owner.  Start reading at link_next(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "message.h"

#include <errno.h>
#include <string.h>

#define LIST_MAX 1000000u

void link_init(struct link *l, const struct os *os, int in_fd, int out_fd, bool wants_greeting)
{
    *l = (struct link){.os = os, .in_fd = in_fd, .out_fd = out_fd, .is_synced = !wants_greeting};
}

void link_destroy(struct link *l)
{
    if (l == NULL || l->os == NULL)
        return;
    if (l->in_fd >= 0)
        l->os->close(l->os->ctx, l->in_fd);
    if (l->out_fd >= 0 && l->out_fd != l->in_fd)
        l->os->close(l->os->ctx, l->out_fd);
    l->in_fd = l->out_fd = -1;
    bytes_free(l->os, &l->in);
    bytes_free(l->os, &l->out);
    bytes_free(l->os, &l->noise);
}

/* ---- writing ---- */

static void put_little(uint8_t *at, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

void message_raw(struct link *l, const void *bytes, size_t n)
{
    bytes_add(l->os, &l->out, bytes, n);
}

static void message_number(struct link *l, uint64_t v, int n)
{
    uint8_t raw[8];
    put_little(raw, v, n);
    message_raw(l, raw, (size_t)n);
}

void message_begin(struct link *l, enum message_type type)
{
    l->building = bytes_used(&l->out);
    message_u32(l, 0);
    message_u8(l, (uint8_t)type);
}

void message_u8(struct link *l, uint8_t v)
{
    message_number(l, v, 1);
}

void message_u32(struct link *l, uint32_t v)
{
    message_number(l, v, 4);
}

void message_u64(struct link *l, uint64_t v)
{
    message_number(l, v, 8);
}

void message_f64(struct link *l, double v)
{
    uint64_t raw = 0;
    memcpy(&raw, &v, sizeof raw);
    message_u64(l, raw);
}

void message_text(struct link *l, const char *text)
{
    size_t n = strlen(text);
    message_u32(l, (uint32_t)n);
    message_raw(l, text, n);
}

void message_list(struct link *l, const struct list *list)
{
    message_u32(l, (uint32_t)list->count);
    for (size_t i = 0; i < list->count; i++)
        message_text(l, list->items[i]);
}

void message_end(struct link *l)
{
    size_t bytes = bytes_used(&l->out) - l->building - 4;
    put_little(l->out.data + l->out.start + l->building, bytes, 4);
}

bool link_has_output(const struct link *l)
{
    return bytes_used(&l->out) > 0;
}

hvd_status_t link_flush(struct link *l)
{
    while (link_has_output(l)) {
        if (l->out_fd < 0)
            return HVD_ERR_LINK;
        int64_t n = l->os->write(l->os->ctx, l->out_fd, bytes_at(&l->out), bytes_used(&l->out));
        if (n == -EAGAIN)
            return HVD_IN_PROGRESS;
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return HVD_ERR_LINK;
        bytes_drop(&l->out, (size_t)n);
    }
    return HVD_OK;
}

/* ---- reading ---- */

hvd_status_t link_fill(struct link *l)
{
    if (l->in_fd < 0)
        return HVD_ERR_LINK;
    uint8_t *room = bytes_room(l->os, &l->in, MESSAGE_CHUNK);
    int64_t n = l->os->read(l->os->ctx, l->in_fd, room, MESSAGE_CHUNK);
    if (n == -EAGAIN || n == -EINTR)
        return HVD_AGAIN;
    if (n <= 0)
        return HVD_ERR_LINK;
    bytes_grew(&l->in, (size_t)n);
    return HVD_OK;
}

/* Everything before the greeting is a remote shell's own chatter. */
static hvd_status_t link_sync(struct link *l)
{
    const size_t greeting = sizeof MESSAGE_GREETING - 1;
    const uint8_t *found = memmem(bytes_at(&l->in), bytes_used(&l->in), MESSAGE_GREETING, greeting);
    size_t noise = bytes_used(&l->in);
    if (found != NULL)
        noise = (size_t)(found - bytes_at(&l->in));
    else
        noise = noise < greeting ? 0 : noise - greeting + 1;
    if (bytes_used(&l->noise) + noise > MESSAGE_NOISE_MAX)
        return HVD_ERR_CORRUPT;
    bytes_add(l->os, &l->noise, bytes_at(&l->in), noise);
    bytes_drop(&l->in, noise);
    if (found == NULL)
        return HVD_AGAIN;
    bytes_drop(&l->in, greeting);
    l->is_synced = true;
    return HVD_OK;
}

hvd_status_t link_next(struct link *l, enum message_type *ret_type, struct reader *ret_payload)
{
    bytes_drop(&l->in, l->consumed);
    l->consumed = 0;
    if (!l->is_synced) {
        hvd_status_t status = link_sync(l);
        if (status != HVD_OK)
            return status;
    }
    if (bytes_used(&l->in) < 5)
        return HVD_AGAIN;
    struct reader head;
    reader_init(&head, bytes_at(&l->in), 5);
    uint32_t length = get_u32(&head);
    if (length < 1 || length > MESSAGE_MAX)
        return HVD_ERR_CORRUPT;
    if (bytes_used(&l->in) < 4 + (size_t)length)
        return HVD_AGAIN;
    *ret_type = (enum message_type)get_u8(&head);
    reader_init(ret_payload, bytes_at(&l->in) + 5, length - 1);
    l->consumed = 4 + (size_t)length;
    return HVD_OK;
}

char *message_get_text(struct mem *m, struct reader *r)
{
    size_t n = 0;
    const char *text = get_blob(r, MESSAGE_TEXT_MAX, &n);
    return text == NULL ? mem_copy(m, "") : mem_copy_n(m, text, n);
}

void message_get_list(struct mem *m, struct reader *r, struct list *ret)
{
    uint32_t count = get_u32(r);
    if (count > LIST_MAX)
        r->bad = true;
    for (uint32_t i = 0; i < count && !r->bad; i++)
        list_add(m, ret, message_get_text(m, r));
}
