/* SPDX-License-Identifier: Apache-2.0 */
/* args.h - the command line of horovodrun, read the way argparse reads it (unique prefixes of long
 * options, `--x=v`, exclusive options, the command is everything from the first word that is not an
 * option).
 *
 * The options are rows of base/settings.def: those of horovodrun itself fill a field each, those
 * that become variables of the workers a value by row, which knobs.h completes from the config file
 * and passes on. Thread: any.  Start reading at args_parse(). */
#ifndef HVD_LAUNCHER_ARGS_H
#define HVD_LAUNCHER_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/settings.h"
#include "base/status.h"
#include "mem.h"

struct arg_int {
    bool is_set;
    int64_t value;
};

/* Which member counts is said by the setting's option type. */
struct arg_value {
    bool is_set;
    union {
        int64_t whole;
        double real;
        bool is_on;
        const char *text;
    };
};

#define ARG_FIELD_FLAG  bool
#define ARG_FIELD_INT   struct arg_int
#define ARG_FIELD_TEXT  const char *
#define ARG_FIELD_NAMES struct list

struct args {
#define OPTION(type, field, ...) ARG_FIELD_##type field;
#define PAIR(low, high, ...)     struct arg_int low, high;
#include "base/settings.def"

    struct arg_value settings[ROW_COUNT]; /* those that the workers get, by row */
    char **command;                       /* NULL-terminated, points into argv; NULL: none given */
    struct list warnings;
};

/* HVD_ERR_INVALID: `error` is the line to print after "horovodrun: error: ". */
hvd_status_t args_parse(struct mem *m, int argc, char **argv, struct args *ret,
                        struct error *error);
/* One of the setting's choices in its own spelling, whatever the case of `text`; NULL: none. */
const char *args_choice(const struct setting *setting, const char *text);
bool args_is_elastic(const struct args *args);
void args_print_usage(FILE *file);
void args_print_help(FILE *file);

#endif
