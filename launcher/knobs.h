/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.h - settings that come from the command line or the config file and reach the workers as
 * environment variables: the rows of base/settings.def that have an option.
 *
 * A knob that was not given leaves the environment as it is. The command line wins over the file.
 * Thread: any.  Start reading at knobs_load_file(). */
#ifndef HVD_LAUNCHER_KNOBS_H
#define HVD_LAUNCHER_KNOBS_H

#include "args.h"

/* Fills what the command line left open. Unknown keys become warnings in args->warnings. */
hvd_status_t knobs_load_file(struct mem *m, const char *name, const char *text, size_t n,
                             struct args *args, struct error *error);
/* `<name>=<v> must be >= 0` and the like. */
hvd_status_t knobs_check(const struct args *args, struct error *error);
/* Adds NAME=VALUE for every knob that was given. */
void knobs_export(struct mem *m, const struct args *args, struct list *env);
/* A float the way Python prints it: 20 is "20.0". ret_text: at least 32 bytes. */
void knobs_format_float(double value, char *ret_text);

#endif
