/* SPDX-License-Identifier: Apache-2.0 */
/* dump.h - a rank's snapshot in a file, FOLDER/rank.N.json: when the job breaks
 * (HOROVOD_POSTMORTEM_DIR), on SIGUSR1 and by hvd_dump().
 *
 * Taking and writing are separate: the snapshot needs the world, the file may be on a disk that
 * does not answer. Thread: any.  Start reading at hvd_dump() in dump.c. */
#ifndef HVD_API_DUMP_H
#define HVD_API_DUMP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"
#include "base/os.h"

struct world;

struct dump {
    const struct os *os;
    char folder[CONFIG_TEXT_MAX], path[CONFIG_TEXT_MAX + 32], part[CONFIG_TEXT_MAX + 64];
    char *text; /* NULL: none was taken */
    size_t bytes;
};

/* `reason`: "failure", "signal", "dump". is_token: the caller has it; otherwise it is requested.
 * false: out of memory, or the folder's name is too long. */
bool dump_take(struct world *world, const char *folder, const char *reason, bool is_token,
               struct dump *ret);
int dump_write(struct dump *dump); /* frees the text; negative errno: it can't be written */
/* The file of a job that breaks. Token. */
void dump_postmortem(struct world *world);

#endif
