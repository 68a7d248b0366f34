/* SPDX-License-Identifier: Apache-2.0 */
/* cause.c - see cause.h. Record: magic, kind, epoch, rank, culprit, count, waited_ms, worker,
 * text, zeros.
 * Thread: any.  Start reading at cause_send(). */
#include "wire/cause.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/codec.h"

#define MAGIC      0x6873757361637633ull
#define HEAD_BYTES (8u + 4u + 8u + 4u + 4u + 8u + 8u + 4u + STORE_WORKER_MAX + 4u)

_Static_assert(HEAD_BYTES + CAUSE_TEXT_MAX <= CAUSE_BYTES, "the longest text fits");

void cause_encode(const struct cause *cause, uint8_t ret_record[CAUSE_BYTES])
{
    struct writer w;
    memset(ret_record, 0, CAUSE_BYTES);
    writer_init(&w, ret_record, CAUSE_BYTES);
    put_u64(&w, MAGIC);
    put_u32(&w, (uint32_t)cause->kind);
    put_u64(&w, cause->epoch);
    put_u32(&w, (uint32_t)cause->rank);
    put_u32(&w, (uint32_t)cause->culprit);
    put_u64(&w, (uint64_t)cause->count);
    put_u64(&w, (uint64_t)cause->waited_ms);
    put_text(&w, cause->worker);
    put_text(&w, cause->text);
}

bool cause_decode(const uint8_t record[CAUSE_BYTES], struct cause *ret)
{
    struct reader r;
    reader_init(&r, record, CAUSE_BYTES);
    uint64_t magic = get_u64(&r);
    uint32_t kind = get_u32(&r);
    ret->kind = (enum cause_kind)kind;
    ret->epoch = get_u64(&r);
    ret->rank = (int32_t)get_u32(&r);
    ret->culprit = (int32_t)get_u32(&r);
    ret->count = get_i64(&r);
    ret->waited_ms = get_i64(&r);
    get_text(&r, ret->worker, sizeof ret->worker);
    get_text(&r, ret->text, sizeof ret->text);
    for (char *at = ret->text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
    return !r.bad && magic == MAGIC && kind <= CAUSE_SUMMARY && ret->rank >= 0 &&
           ret->culprit >= -1;
}

int cause_open(const struct os *os, const char *path)
{
    if (path[0] == '\0')
        return -ENOENT;
    /* Open for both, so that a launcher that has died costs us no SIGPIPE. */
    int fd = os->open(os->ctx, path, O_RDWR | O_NOFOLLOW, 0);
    if (fd < 0)
        return fd;
    /* Only what can't be sought in is a pipe: a file must not be written over. */
    int64_t rc = os->pwrite(os->ctx, fd, "", 0, 0);
    if (rc == -ESPIPE)
        return fd;
    os->close(os->ctx, fd);
    return rc < 0 ? (int)rc : -ESPIPE;
}

void cause_send(const struct os *os, int fd, const struct cause *cause)
{
    uint8_t record[CAUSE_BYTES];
    if (fd < 0)
        return;
    cause_encode(cause, record);
    os->write(os->ctx, fd, record, sizeof record);
}
