/* SPDX-License-Identifier: Apache-2.0 */
/* fork_linux.h - what a forked child must not keep: the descriptors that os_linux.c has created.
 *
 * A child of fork() without exec() (a worker of a data loader) inherits every descriptor. If it
 * kept our sockets, peers would not see them close when this process dies. So every socket, poller,
 * bell and memory file is recorded here, and the child replaces each with /dev/null before its
 * code runs. The numbers stay in use: objects copied from the parent may still close them.
 *
 * A lock covers the time between creating a descriptor and recording it, for a fork on another
 * thread. No call under it can block. The child's handler calls async-signal-safe functions
 * only: locks held by other threads are never released there.
 *
 * Thread: any.  Owner: static, as the process's table of descriptors is.
 * Start reading at fork_watch(). */
#ifndef HVD_BASE_FORK_LINUX_H
#define HVD_BASE_FORK_LINUX_H

#include <stdbool.h>

void fork_watch(void); /* starts watching; may be called again */

void fork_lock(void); /* around creating and recording a descriptor, forgetting and closing it */
void fork_unlock(void);
void fork_note(int fd);   /* under the lock; negative: nothing */
void fork_forget(int fd); /* under the lock */
bool fork_is_noted(int fd);

#endif
