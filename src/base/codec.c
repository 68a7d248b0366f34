/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c - bounded little-endian writing and reading of plain values.
 *
 * Thread: the owner's.  Blocks: never.  Allocates: never. Invariant: `used <= capacity` and `at <=
 * size` always hold, whatever a peer sent; once `bad` is set a writer writes nothing more and a
 * reader returns zeros and empty texts. Start reading at writer_room() and reader_take(), which
 * everything else uses. */
#include "base/codec.h"

#include <string.h>

void writer_init(struct writer *w, void *bytes, size_t capacity)
{
    *w = (struct writer){.bytes = bytes, .capacity = capacity};
}

static uint8_t *writer_room(struct writer *w, size_t n)
{
    if (w->bad || n > w->capacity - w->used) {
        w->bad = true;
        return NULL;
    }
    uint8_t *room = w->bytes + w->used;
    w->used += n;
    return room;
}

static void put_little(struct writer *w, uint64_t v, size_t n)
{
    uint8_t *room = writer_room(w, n);
    if (room == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        room[i] = (uint8_t)(v >> (8 * i));
}

void put_u8(struct writer *w, uint8_t v)
{
    put_little(w, v, 1);
}

void put_u16(struct writer *w, uint16_t v)
{
    put_little(w, v, 2);
}

void put_u32(struct writer *w, uint32_t v)
{
    put_little(w, v, 4);
}

void put_u64(struct writer *w, uint64_t v)
{
    put_little(w, v, 8);
}

void put_i64(struct writer *w, int64_t v)
{
    put_little(w, (uint64_t)v, 8);
}

void put_f64(struct writer *w, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_little(w, bits, 8);
}

void put_bytes(struct writer *w, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    uint8_t *room = writer_room(w, n);
    if (room != NULL)
        memcpy(room, bytes, n);
}

void put_blob(struct writer *w, const void *bytes, size_t n)
{
    if (n > UINT32_MAX) {
        w->bad = true;
        return;
    }
    put_u32(w, (uint32_t)n);
    put_bytes(w, bytes, n);
}

void put_text(struct writer *w, const char *text)
{
    put_blob(w, text, strlen(text));
}

void reader_init(struct reader *r, const void *bytes, size_t size)
{
    *r = (struct reader){.bytes = bytes, .size = size};
}

static const uint8_t *reader_take(struct reader *r, size_t n)
{
    if (r->bad || n > r->size - r->at) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *taken = r->bytes + r->at;
    r->at += n;
    return taken;
}

static uint64_t get_little(struct reader *r, size_t n)
{
    const uint8_t *taken = reader_take(r, n);
    if (taken == NULL)
        return 0;
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)taken[i] << (8 * i);
    return v;
}

uint8_t get_u8(struct reader *r)
{
    return (uint8_t)get_little(r, 1);
}

uint16_t get_u16(struct reader *r)
{
    return (uint16_t)get_little(r, 2);
}

uint32_t get_u32(struct reader *r)
{
    return (uint32_t)get_little(r, 4);
}

uint64_t get_u64(struct reader *r)
{
    return get_little(r, 8);
}

int64_t get_i64(struct reader *r)
{
    return (int64_t)get_little(r, 8);
}

double get_f64(struct reader *r)
{
    uint64_t bits = get_little(r, 8);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void get_bytes(struct reader *r, void *ret_bytes, size_t n)
{
    if (n == 0)
        return;
    const uint8_t *taken = reader_take(r, n);
    if (taken == NULL)
        memset(ret_bytes, 0, n);
    else
        memcpy(ret_bytes, taken, n);
}

const void *get_blob(struct reader *r, size_t max, size_t *ret_n)
{
    *ret_n = 0;
    size_t n = get_u32(r);
    if (n > max)
        r->bad = true;
    const uint8_t *taken = reader_take(r, n);
    if (taken != NULL)
        *ret_n = n;
    return taken;
}

void get_text(struct reader *r, char *ret_text, size_t capacity)
{
    size_t n = 0;
    const char *text = capacity == 0 ? NULL : get_blob(r, capacity - 1, &n);
    if (text == NULL || memchr(text, '\0', n) != NULL) {
        r->bad = true;
        n = 0;
    }
    if (capacity == 0)
        return;
    if (n > 0)
        memcpy(ret_text, text, n);
    ret_text[n] = '\0';
}

bool reader_done(const struct reader *r)
{
    return !r->bad && r->at == r->size;
}
