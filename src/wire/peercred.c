/* SPDX-License-Identifier: Apache-2.0 */
/* peercred.c - see peercred.h.
 *
 * Asked about a listening socket the system names the user who called listen(), so both users are
 * seen from the same user namespace.
 *
 * Thread: any.  Owner: nobody, no state.  Start reading at peercred_is_same_user(). */
#include "wire/peercred.h"

#include "base/socket.h"

bool peercred_is_same_user(const struct os *os, int listener, int fd)
{
    struct socket_peer ours, theirs;
    return socket_peer(os, listener, &ours) == 0 && socket_peer(os, fd, &theirs) == 0 &&
           ours.uid == theirs.uid;
}
