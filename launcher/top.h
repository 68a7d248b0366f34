/* SPDX-License-Identifier: Apache-2.0 */
/* top.h - the table of `horovodrun --status --watch` and horovodtop: a line per rank with its
 * steps, its data and what it waits for, then verdicts and the launcher's last lines.
 *
 * Rates are of the time between two surveys; the first one has none.
 * Thread: the launcher's loop.  Start reading at top_write(). */
#ifndef HVD_LAUNCHER_TOP_H
#define HVD_LAUNCHER_TOP_H

struct bytes;
struct job;
struct survey;

void top_write(struct job *job, const struct survey *s, struct bytes *out);

#endif
