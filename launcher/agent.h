/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - `horovodrun --agent`: starts and watches the workers of one host for the launcher.
 *
 * Everything it needs (job key, environment, command, directory) arrives on its stdin, never on its
 * command line. It adopts whatever its workers leave behind, and when its stdin closes, for
 * whatever reason, it ends every one of its descendants and then itself. Thread: one.  Start
 * reading at agent_main(). */
#ifndef HVD_LAUNCHER_AGENT_H
#define HVD_LAUNCHER_AGENT_H

#include "base/os.h"

int agent_main(const struct os *os);

#endif
