/* SPDX-License-Identifier: Apache-2.0 */
/* staged.c - one host, private memory: the data goes through staging areas that all ranks see, in
 * chunks small enough to stay in the cache. Two areas by turns: while one chunk waits for its last
 * wave the next one is copied in.
 *
 *   copy in c0 | wave 0 | reduce my slice of c0 to all | copy in c1 | wave 1 | copy out c0 |
 *              | reduce my slice of c1 to all | copy in c2 | wave 2 | copy out c1 | ...
 *
 * One wave per chunk: wave c says both "chunk c is in" and "my slice of chunk c - 1 is out".
 *
 * Invariant: chunk c + 2 overwrites the area of chunk c only after its owner has copied chunk c
 * out, and between wave c and wave c + 1 slice i of that area is touched by rank i alone.
 * Thread: any (pure).  Start reading at build_staged(). */
#include "schedule/build.h"

#define CHUNK_BYTES (512u << 10)

static uint64_t chunk_length(const struct build *b)
{
    uint64_t length = CHUNK_BYTES / b->element_bytes;
    return length == 0 ? 1 : length;
}

static struct slice chunk_at(const struct build *b, uint64_t index)
{
    uint64_t length = chunk_length(b), offset = index * length;
    uint64_t left = b->count - offset;
    return (struct slice){offset, left < length ? left : length};
}

static void chunk_copy(struct build *b, enum step_kind kind, uint64_t index)
{
    struct slice chunk = chunk_at(b, index);
    uint64_t area = index % 2 * chunk_length(b), work = b->base + chunk.offset;
    bool is_in = kind == STEP_COPY_IN;
    build_push(b, (struct step){.kind = kind,
                                .offset = is_in ? area : work,
                                .source = is_in ? work : area,
                                .count = chunk.count});
}

static void chunk_reduce(struct build *b, uint64_t index)
{
    struct slice chunk = chunk_at(b, index);
    struct slice mine =
        build_slice(chunk.count, (uint64_t)b->size, (uint64_t)b->rank, b->element_bytes);
    if (mine.count == 0)
        return;
    build_push(b, (struct step){.kind = STEP_REDUCE_TEMP_ALL,
                                .is_final = true,
                                .source = index % 2 * chunk_length(b) + mine.offset,
                                .count = mine.count});
}

void build_staged(struct build *b)
{
    if (b->size < 2 || b->count == 0)
        return;
    uint64_t length = chunk_length(b), chunks = (b->count + length - 1) / length;
    b->s->scratch_count = chunks < 2 ? b->count : 2 * length;
    chunk_copy(b, STEP_COPY_IN, 0);
    for (uint64_t i = 0; i < chunks; i++) {
        build_wave(b, (int32_t)i);
        if (i > 0)
            chunk_copy(b, STEP_COPY_OUT, i - 1);
        chunk_reduce(b, i);
        if (i + 1 < chunks)
            chunk_copy(b, STEP_COPY_IN, i + 1);
    }
    build_wave(b, (int32_t)chunks);
    chunk_copy(b, STEP_COPY_OUT, chunks - 1);
}
