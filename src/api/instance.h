/* SPDX-License-Identifier: Apache-2.0 */
/* instance.h - the one process-wide pointer: the world this process is in, if any.
 *
 * enter/leave bracket every use, so that a shutdown waits for threads that are still inside. A
 * forked child sees "not initialised": it has no threads and must not touch the parent's links.
 *
 * Thread: any.  Start reading at instance_enter(). */
#ifndef HVD_API_INSTANCE_H
#define HVD_API_INSTANCE_H

#include "api/memory.h"
#include "api/world.h"

struct world *instance_enter(void); /* NULL and an error text: not initialised */
void instance_leave(void);
struct error *instance_error(void); /* this thread's last error, cleared */
struct memory *instance_memory(void);

#endif
