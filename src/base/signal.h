/* SPDX-License-Identifier: Apache-2.0 */
/* signal.h - a signal as a descriptor to poll, without taking it from a program that handles it.
 *
 * The handler only rings a bell: it needs no lock and no particular thread, so it works while every
 * thread of the program is stuck. It stays installed for the life of the process, because a signal
 * that arrives after a shutdown would otherwise end the program.
 *
 * Thread: any; calls are serialised by the caller.  Blocks: never.  Start reading at signal_bell().
 */
#ifndef HVD_BASE_SIGNAL_H
#define HVD_BASE_SIGNAL_H

#include "base/os.h"

/* Which signals the programs of Horovod handle, by name. */
enum signal_name { SIGNAL_DUMP }; /* SIGUSR1 */

/* A bell (bell_clear()) that rings at each SIGUSR1. It belongs to the process: never close it.
 * -EBUSY: the program handles or ignores that signal itself. */
int signal_bell(const struct os *os, enum signal_name name);

#endif
