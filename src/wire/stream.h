/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - sends and receives a whole buffer over a socket that does not block, in pieces.
 *
 * Both return 0 if *done has reached n, -EAGAIN if it has not yet, and else a negative errno;
 * -ECONNRESET if the other side has closed the connection. Call them again with the same arguments.
 *
 * Thread: the socket's owner.  Blocks: never. */
#ifndef HVD_WIRE_STREAM_H
#define HVD_WIRE_STREAM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/os.h"

static inline int stream_send(const struct os *os, int fd, uint8_t *bytes, size_t n, size_t *done)
{
    while (*done < n) {
        struct iovec iov = {bytes + *done, n - *done};
        int64_t sent = os->send(os->ctx, fd, &iov, 1);
        if (sent == -EINTR)
            continue;
        if (sent <= 0)
            return sent == 0 ? -EAGAIN : (int)sent;
        *done += (size_t)sent;
    }
    return 0;
}

static inline int stream_recv(const struct os *os, int fd, uint8_t *bytes, size_t n, size_t *done)
{
    while (*done < n) {
        int64_t got = os->recv(os->ctx, fd, bytes + *done, n - *done);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            return got == 0 ? -ECONNRESET : (int)got;
        *done += (size_t)got;
    }
    return 0;
}

#endif
