/* SPDX-License-Identifier: Apache-2.0 */
/* peercred.h - which user sits at the other end of a Unix socket, as the kernel knows it.
 *
 * Abstract names are listed in /proc/net/unix, so every local user can connect to ours. Nothing of
 * such a connection is read: it is closed right after accept, before it takes a place.
 *
 * Thread: any.  Blocks: never.  Start reading at peercred_is_same_user(). */
#ifndef HVD_WIRE_PEERCRED_H
#define HVD_WIRE_PEERCRED_H

#include <stdbool.h>

#include "base/os.h"

/* Does the accepted socket `fd` belong to the user who called listen() on `listener`? False also
 * when the kernel does not answer. Both must be Unix sockets. */
bool peercred_is_same_user(const struct os *os, int listener, int fd);

#endif
