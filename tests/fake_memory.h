/* SPDX-License-Identifier: Apache-2.0 */
/* fake_memory.h - a kind of memory for tests that behaves like a device's, without a device.
 *
 * Its memory is pages without access (PROT_NONE): code that touches them crashes, and system calls
 * return EFAULT. They are accessible only inside the fake's own copies. A copy finishes later,
 * after a time drawn from a seed, so copies finish in any order; its bytes move when it finishes. A
 * stream is busy until the last of the writes that a test has put into it.
 *
 * What it can't show: real concurrency (a copy is one memcpy on the thread that polls), memory that
 * is coherent late, a limit on concurrent copies, anything about speed, and how a real device
 * fails.
 *
 * Thread: one.  Start reading at fake_open(). */
#ifndef HVD_TESTS_FAKE_MEMORY_H
#define HVD_TESTS_FAKE_MEMORY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "horovod/hvd.h"
#include "memory/memory.h"

#define FAKE_KIND    77
#define FAKE_DEVICES 2
#define FAKE_PAGE    4096u

struct fake_block {
    struct fake_block *next;
    uint8_t *at;
    size_t bytes; /* whole pages */
    int32_t device;
};

struct fake_move { /* one copy, or a write of a stream */
    struct fake_move *next;
    struct memory_mark *mark; /* NULL: of a stream */
    void *to;
    const void *from;
    void *owned; /* freed with it */
    size_t bytes;
    int64_t due_ns;
};

struct memory_mark {
    int64_t due_ns;
    int32_t left; /* copies that have not ended */
    bool is_failing;
};

struct fake_stream {
    int64_t due_ns; /* of the last write in it */
};

enum fake_failure { FAKE_FAIL_NOT, FAKE_FAIL_BEGIN, FAKE_FAIL_END };

struct fake_memory {
    struct memory_kind kind; /* first */
    int64_t (*now_ns)(void *ctx);
    void *ctx;
    uint64_t random;
    int64_t delay_max_ns; /* of a copy */
    enum fake_failure failure;
    int64_t fail_after; /* calls of copy() that go well before the one that does not */
    struct fake_block *blocks;
    struct fake_move *moves;
    int32_t marks, copying, copying_max; /* live; calls of copy() under way; the most at once */
    uint64_t calls;
    char violation[200];
};

static inline struct fake_memory *fake_of(struct memory_kind *m)
{
    return (struct fake_memory *)(void *)m;
}

static inline int64_t fake_delay(struct fake_memory *f)
{
    uint64_t z = (f->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return f->delay_max_ns > 0 ? (int64_t)((z ^ (z >> 31)) % (uint64_t)f->delay_max_ns) : 0;
}

static inline struct fake_block *fake_block_of(struct fake_memory *f, const void *ptr, size_t bytes)
{
    const uint8_t *at = ptr;
    for (struct fake_block *b = f->blocks; b != NULL; b = b->next)
        if (at >= b->at && at + bytes <= b->at + b->bytes)
            return b;
    return NULL;
}

/* The only place where the pages are open. */
static inline void fake_bytes_move(struct fake_memory *f, void *to, const void *from, size_t bytes)
{
    struct fake_block *b = fake_block_of(f, to, bytes);
    struct fake_block *a = fake_block_of(f, from, bytes);
    if ((a == NULL) == (b == NULL)) {
        snprintf(f->violation, sizeof f->violation, "a copy of %zu bytes is not from or to a block",
                 bytes);
        return;
    }
    struct fake_block *block = a != NULL ? a : b;
    mprotect(block->at, block->bytes, PROT_READ | PROT_WRITE);
    memcpy(to, from, bytes);
    mprotect(block->at, block->bytes, PROT_NONE);
}

/* All that has ended by now, in the order in which it has. */
static inline void fake_advance(struct fake_memory *f)
{
    int64_t now_ns = f->now_ns(f->ctx);
    for (;;) {
        struct fake_move **first = NULL;
        for (struct fake_move **p = &f->moves; *p != NULL; p = &(*p)->next)
            if ((*p)->due_ns <= now_ns && (first == NULL || (*p)->due_ns < (*first)->due_ns))
                first = p;
        if (first == NULL)
            return;
        struct fake_move *move = *first;
        *first = move->next;
        fake_bytes_move(f, move->to, move->from, move->bytes);
        if (move->mark != NULL && --move->mark->left == 0)
            f->copying--;
        free(move->owned);
        free(move);
    }
}

/* Is a copy from or to these bytes under way? */
static inline bool fake_is_busy(struct fake_memory *f, const void *ptr, size_t bytes)
{
    const uint8_t *at = ptr;
    fake_advance(f);
    for (struct fake_move *move = f->moves; move != NULL; move = move->next) {
        const uint8_t *to = move->to, *from = move->from;
        if ((to < at + bytes && at < to + move->bytes) ||
            (from < at + bytes && at < from + move->bytes))
            return true;
    }
    return false;
}

static inline void fake_move_add(struct fake_memory *f, struct fake_move move)
{
    struct fake_move *m = malloc(sizeof *m);
    if (m == NULL)
        abort();
    *m = move;
    m->next = f->moves;
    f->moves = m;
}

/* ---- what a test's program does on the device ---- */

static inline void fake_put(struct fake_memory *f, void *to, const void *from, size_t bytes)
{
    fake_bytes_move(f, to, from, bytes);
}

static inline void fake_get(struct fake_memory *f, void *to, const void *from, size_t bytes)
{
    fake_bytes_move(f, to, from, bytes);
}

/* Put into the stream: these bytes get there later. Until then others are there. */
static inline void fake_put_later(struct fake_memory *f, struct fake_stream *stream, void *to,
                                  const void *from, size_t bytes, int64_t after_ns)
{
    void *copy = malloc(bytes);
    if (copy == NULL)
        abort();
    memcpy(copy, from, bytes);
    int64_t due_ns = f->now_ns(f->ctx) + after_ns;
    stream->due_ns = due_ns > stream->due_ns ? due_ns : stream->due_ns;
    fake_move_add(f, (struct fake_move){
                         .to = to, .from = copy, .owned = copy, .bytes = bytes, .due_ns = due_ns});
}

/* ---- the table ---- */

static inline hvd_status_t fake_probe(const struct os *os, struct error *error)
{
    (void)os;
    (void)error;
    return HVD_OK;
}

static inline int32_t fake_device_count(const struct memory_kind *m)
{
    (void)m;
    return FAKE_DEVICES;
}

static inline void *fake_alloc(struct memory_kind *m, int32_t device, size_t bytes)
{
    struct fake_memory *f = fake_of(m);
    struct fake_block *b = malloc(sizeof *b);
    size_t pages = (bytes + FAKE_PAGE) / FAKE_PAGE * FAKE_PAGE;
    void *at = mmap(NULL, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == NULL || at == MAP_FAILED)
        abort();
    *b = (struct fake_block){.next = f->blocks, .at = at, .bytes = pages, .device = device};
    f->blocks = b;
    return at;
}

static inline void fake_free(struct memory_kind *m, int32_t device, void *ptr)
{
    struct fake_memory *f = fake_of(m);
    (void)device;
    for (struct fake_block **p = &f->blocks; *p != NULL; p = &(*p)->next) {
        struct fake_block *b = *p;
        if (b->at != ptr)
            continue;
        if (fake_is_busy(f, b->at, b->bytes))
            snprintf(f->violation, sizeof f->violation, "memory was freed during a copy");
        *p = b->next;
        munmap(b->at, b->bytes);
        free(b);
        return;
    }
}

static inline struct memory_mark *fake_mark(struct fake_memory *f, int64_t due_ns)
{
    struct memory_mark *mark = calloc(1, sizeof *mark);
    if (mark == NULL)
        abort();
    mark->due_ns = due_ns;
    f->marks++;
    return mark;
}

static inline hvd_status_t fake_record(struct memory_kind *m, int32_t device, void *stream,
                                       struct memory_mark **ret, struct error *error)
{
    struct fake_memory *f = fake_of(m);
    const struct fake_stream *s = stream;
    (void)device;
    (void)error;
    *ret = fake_mark(f, s != NULL ? s->due_ns : f->now_ns(f->ctx));
    return HVD_OK;
}

static inline hvd_status_t fake_copy(struct memory_kind *m, int32_t device,
                                     enum memory_direction direction,
                                     const struct memory_copy *copies, int32_t count,
                                     struct memory_mark **ret, struct error *error)
{
    struct fake_memory *f = fake_of(m);
    bool is_failing = f->failure != FAKE_FAIL_NOT && f->fail_after-- == 0;
    f->calls++;
    if (is_failing && f->failure == FAKE_FAIL_BEGIN)
        return error_set(error, HVD_ERR_OS, "the fake device takes no copies");
    int64_t now_ns = f->now_ns(f->ctx);
    struct memory_mark *mark = fake_mark(f, now_ns);
    mark->is_failing = is_failing;
    mark->left = count;
    f->copying += count > 0;
    f->copying_max = f->copying > f->copying_max ? f->copying : f->copying_max;
    for (int32_t i = 0; i < count; i++) {
        const struct memory_copy *c = &copies[i];
        int64_t begin_ns =
            c->after != NULL && c->after->due_ns > now_ns ? c->after->due_ns : now_ns;
        const void *far = direction == MEMORY_TO_HOST ? c->from : c->to;
        struct fake_block *b = fake_block_of(f, far, c->bytes);
        if (b == NULL || b->device != device)
            snprintf(f->violation, sizeof f->violation, "a copy is not on device %d", device);
        if (direction == MEMORY_TO_HOST)
            memset(c->to, 0xee, c->bytes); /* nobody may look at it before the end */
        fake_move_add(f, (struct fake_move){.mark = mark,
                                            .to = c->to,
                                            .from = c->from,
                                            .bytes = c->bytes,
                                            .due_ns = begin_ns + 1 + fake_delay(f)});
    }
    *ret = mark;
    return HVD_OK;
}

static inline hvd_status_t fake_reached(struct memory_kind *m, struct memory_mark *mark,
                                        struct error *error)
{
    struct fake_memory *f = fake_of(m);
    fake_advance(f);
    if (mark->left > 0 || f->now_ns(f->ctx) < mark->due_ns)
        return HVD_IN_PROGRESS;
    return mark->is_failing ? error_set(error, HVD_ERR_OS, "the fake device lost a copy") : HVD_OK;
}

/* It stops copies that nobody waits for any more, as a real device can't. */
static inline bool fake_release(struct memory_kind *m, struct memory_mark *mark)
{
    struct fake_memory *f = fake_of(m);
    if (mark == NULL)
        return true;
    f->copying -= mark->left > 0;
    for (struct fake_move **p = &f->moves; *p != NULL;) {
        struct fake_move *move = *p;
        if (move->mark != mark) {
            p = &move->next;
            continue;
        }
        *p = move->next;
        free(move);
    }
    f->marks--;
    free(mark);
    return true;
}

static const struct memory_ops fake_ops;

static inline hvd_status_t fake_open_row(const struct os *os, struct memory_kind **ret,
                                         struct error *error)
{
    (void)os;
    (void)ret;
    return error_set(error, HVD_ERR_UNSUPPORTED, "tests open the fake by fake_open()");
}

static inline void fake_close(struct memory_kind *m)
{
    struct fake_memory *f = fake_of(m);
    while (f->blocks != NULL)
        fake_free(m, 0, f->blocks->at);
    for (struct fake_move *next; f->moves != NULL; f->moves = next) {
        next = f->moves->next;
        free(f->moves->owned);
        free(f->moves);
    }
}

static const struct memory_ops fake_ops = {.version = MEMORY_VERSION,
                                           .name = "fake",
                                           .kind = FAKE_KIND,
                                           .probe = fake_probe,
                                           .open = fake_open_row,
                                           .close = fake_close,
                                           .device_count = fake_device_count,
                                           .alloc = fake_alloc,
                                           .free = fake_free,
                                           .record = fake_record,
                                           .copy = fake_copy,
                                           .reached = fake_reached,
                                           .release = fake_release};

static inline void fake_open(struct fake_memory *f, uint64_t seed, int64_t delay_max_ns,
                             int64_t (*now_ns)(void *ctx), void *ctx)
{
    *f = (struct fake_memory){.kind = {.ops = &fake_ops, .os = os_host()},
                              .now_ns = now_ns,
                              .ctx = ctx,
                              .random = seed,
                              .delay_max_ns = delay_max_ns};
}

#endif
