/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - `horovodrun --agent`: starts and watches the workers of one host for the launcher.
 *
 * Everything it needs (job key, environment, command, directory) arrives on its stdin, never on its
 * command line. It adopts whatever its workers leave behind, and when its stdin closes, for
 * whatever reason, it ends every one of its descendants and then itself. On another machine than
 * the launcher it does the same when it has heard nothing for 30 s, from its start on: a cut
 * network closes nothing. Thread: one.  Start reading at agent_main(). */
#ifndef HVD_LAUNCHER_AGENT_H
#define HVD_LAUNCHER_AGENT_H

#include <stdbool.h>

#include "base/os.h"

int agent_main(const struct os *os, bool is_local); /* on the launcher's own machine */

#endif
