/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_codec.c - the input is a script of reads: the first half selects which get_* to call with
 * which limit, the second half is the message they read. Checks that a reader stays inside the
 * message, stays bad once it is, and that what was read, written again, reads the same. */
#include <stdlib.h>
#include <string.h>

#include "base/codec.h"

#define TEXT_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void read_text(struct reader *r, struct writer *w, size_t limit)
{
    char text[TEXT_MAX + 1];
    memset(text, 'x', sizeof text);
    size_t capacity = limit % TEXT_MAX;
    get_text(r, text, capacity);
    require(text[capacity] == 'x');
    require(capacity > 0 || r->bad);
    if (capacity == 0)
        return;
    require(memchr(text, '\0', capacity) != NULL);
    require(!r->bad || text[0] == '\0');
    put_text(w, text);
}

static void read_blob(struct reader *r, struct writer *w, size_t limit)
{
    size_t n = 1;
    const uint8_t *blob = get_blob(r, limit, &n);
    require((blob == NULL) == r->bad);
    require(n <= limit && (blob != NULL || n == 0));
    require(blob == NULL || (blob >= r->bytes && blob + n <= r->bytes + r->size));
    put_blob(w, blob, n);
}

static void read_bytes(struct reader *r, struct writer *w, size_t limit)
{
    uint8_t bytes[TEXT_MAX];
    size_t n = limit % TEXT_MAX;
    get_bytes(r, bytes, n);
    for (size_t i = 0; i < n && r->bad; i++)
        require(bytes[i] == 0);
    put_bytes(w, bytes, n);
}

static void step(struct reader *r, struct writer *w, uint8_t what)
{
    size_t limit = what >> 3;
    switch (what & 7) {
    case 0: put_u8(w, get_u8(r)); break;
    case 1: put_u16(w, get_u16(r)); break;
    case 2: put_u32(w, get_u32(r)); break;
    case 3: put_i64(w, get_i64(r)); break;
    case 4: put_f64(w, get_f64(r)); break;
    case 5: read_bytes(r, w, limit); break;
    case 6: read_blob(r, w, limit); break;
    case 7: read_text(r, w, limit); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    size_t steps = size / 2;
    struct reader r;
    reader_init(&r, input + steps, size - steps);
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL)
        return 0;
    struct writer w;
    writer_init(&w, copy, size - steps);
    for (size_t i = 0; i < steps; i++) {
        bool was_bad = r.bad;
        size_t was_at = r.at;
        step(&r, &w, input[i]);
        require(r.at <= r.size && r.at >= was_at);
        require(!was_bad || (r.bad && r.at == was_at));
        require(w.used <= w.capacity);
        if (!r.bad) { /* a signalling NaN may change when it passes through a register */
            require(!w.bad && w.used == r.at);
            require((input[i] & 7) == 4 ||
                    memcmp(copy + was_at, r.bytes + was_at, r.at - was_at) == 0);
        }
    }
    require(reader_done(&r) == (!r.bad && r.at == r.size));
    free(copy);
    return 0;
}
