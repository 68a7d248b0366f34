/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h - bounded little-endian writing and reading of plain values. No recursion, no allocation;
 * the first overrun or bad length sets `bad` and every later call is harmless, so a parser checks
 * once at the end. Used for every message. Thread: the owner's. */
#ifndef HVD_BASE_CODEC_H
#define HVD_BASE_CODEC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writer {
    uint8_t *bytes;
    size_t capacity, used;
    bool bad; /* did not fit */
};
struct reader {
    const uint8_t *bytes;
    size_t size, at;
    bool bad; /* ran past the end, or a value out of its limit */
};

void writer_init(struct writer *w, void *bytes, size_t capacity);
void put_u8(struct writer *w, uint8_t v);
void put_u16(struct writer *w, uint16_t v);
void put_u32(struct writer *w, uint32_t v);
void put_u64(struct writer *w, uint64_t v);
void put_i64(struct writer *w, int64_t v);
void put_f64(struct writer *w, double v);
void put_bytes(struct writer *w, const void *bytes, size_t n); /* raw */
void put_blob(struct writer *w, const void *bytes, size_t n);  /* u32 length, then raw */
void put_text(struct writer *w, const char *text);             /* blob without the NUL */

void reader_init(struct reader *r, const void *bytes, size_t size);
uint8_t get_u8(struct reader *r);
uint16_t get_u16(struct reader *r);
uint32_t get_u32(struct reader *r);
uint64_t get_u64(struct reader *r);
int64_t get_i64(struct reader *r);
double get_f64(struct reader *r);
void get_bytes(struct reader *r, void *ret_bytes, size_t n);
/* A view into the message; a length over `max` sets bad and returns NULL with *ret_n = 0. */
const void *get_blob(struct reader *r, size_t max, size_t *ret_n);
/* Copies and NUL-terminates; bad if it does not fit into `capacity` or contains a NUL. */
void get_text(struct reader *r, char *ret_text, size_t capacity);
bool reader_done(const struct reader *r); /* all read, nothing bad */
#endif
