/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - the table of all settings and options: one row each, written in settings.def.
 *
 * Everything that knows a setting reads it from here: the parser of the environment (config.h),
 * horovodrun's command line, help and config file, the pages and completions that
 * tools/gen_settings.c writes, and, through hvd_settings_json(), the Python modules. A new setting
 * is one new row. Thread: any (read only).  Start reading at settings.def, then struct setting. */
#ifndef HVD_BASE_SETTINGS_H
#define HVD_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_TEXT_MAX  1024
#define CONFIG_FLOWS_MAX 32 /* connections for tensor bytes per pair of ranks */

#define SETTING_FLAGS_MAX   4
#define SETTING_CHOICES_MAX 6

enum setting_type {
    TYPE_NONE,
    TYPE_SWITCH,  /* strtol > 0, as the original: "true" is off */
    TYPE_NONZERO, /* any non-zero number */
    TYPE_INT,
    TYPE_FLOAT,
    TYPE_TEXT,
    TYPE_LEVEL, /* log level */
    /* of options only */
    TYPE_FLAG,  /* takes no value */
    TYPE_NAMES, /* comma list, may be repeated */
    TYPE_PAIR   /* two whole numbers */
};

enum setting_scope {
    SCOPE_JOB,      /* rank 0's value counts on all ranks */
    SCOPE_RANK,     /* each rank reads its own */
    SCOPE_LAUNCHER, /* only horovodrun reads it */
    SCOPE_BINDING,  /* only a framework's binding or a Python module reads it */
    SCOPE_BUILD     /* nothing here reads it: known from builds of the original */
};

/* Sections of the help, in this order. */
enum setting_group {
    GROUP_NONE,
    GROUP_JOB,
    GROUP_HOSTS,
    GROUP_SSH,
    GROUP_CONTROLLER,
    GROUP_TUNING,
    GROUP_AUTOTUNE,
    GROUP_TIMELINE,
    GROUP_STALL,
    GROUP_LOGGING,
    GROUP_LIBRARY,
    GROUP_ELASTIC,
    GROUP_COUNT
};

/* The meaning of a flag of a switch; a flag of any other type has a value. */
enum setting_sense { SENSE_VALUE, SENSE_ON, SENSE_OFF };

struct setting_flag {
    const char *names[2]; /* short or older spelling first; the second may be NULL */
    enum setting_sense sense;
    bool is_hidden;      /* from help, pages and completions */
    bool is_single;      /* TYPE_NAMES: a list in it is a mistake, but is read */
    const char *metavar; /* NULL: that of the row */
    const char *help;    /* NULL: that of the row */
    const char *instead; /* deprecated: the flag to use; NULL: it is not */
};

struct setting {
    const char *id;   /* the C name of the field, or of the row */
    const char *name; /* environment variable; NULL: an option only */
    enum setting_type type;
    const char *fallback; /* default, as text */
    size_t offset, bytes; /* field in struct config; 0 bytes: the library does not read it */
    const char *help;     /* one line */
    enum setting_scope scope;
    bool is_tunable;         /* first value of a tunable (engine/tunables.h) */
    bool is_secret;          /* never printed */
    int64_t lowest, highest; /* numbers: both ends are allowed */
    bool is_exact;           /* out of range: an error, not clamped */
    const char *unit;        /* NULL: none */
    const char *choices[SETTING_CHOICES_MAX];
    const char *complaint; /* the error for a text that is none of the choices */
    const char *idle;      /* not NULL: accepted, but has no effect, and why */

    /* as an option of horovodrun, and in its config file */
    enum setting_group group;
    struct setting_flag flags[SETTING_FLAGS_MAX];
    const char *exclusive;         /* options with the same word exclude each other */
    enum setting_type option_type; /* TYPE_NONE: as `type` */
    const char *option_help;       /* NULL: `help` */
    const char *metavar;           /* NULL: takes no value */
    const char *dest;              /* argparse's name, also in messages; NULL: not in Python */
    int64_t option_scale;          /* the variable is the option times this; 0: 1 */
    int64_t option_highest;        /* 0: the option has no separate upper limit */
    bool is_variable_inverted;     /* a switch: the variable has the opposite sense of the option */
    bool is_file_inverted;         /* a switch: the file has the opposite sense of the option */
    const char *needs;         /* variable of the option without which this one is not passed on */
    const char *exports;       /* TYPE_FLAG: variable that the workers get as 1 */
    const char *section, *key; /* place in the config file */
    const char *example;       /* value shown in the pages' config file; NULL: the default */
};

extern const struct setting setting_rows[];
extern const size_t setting_count;

/* By row: ROW_fusion_threshold_bytes; options ROW_option_num_proc. */
enum setting_row {
#define SETTING(type, field, ...) ROW_##field,
#define TEXT(field, size, ...)    ROW_##field,
#define ALIAS(id, field, ...)     ROW_##id,
#define KNOWN(id, ...)            ROW_##id,
#define OPTION(type, field, ...)  ROW_option_##field,
#define PAIR(low, high, ...)      ROW_option_##low,
#include "base/settings.def"
    ROW_COUNT
};

struct setting_group_text {
    const char *title;
    const char *note; /* NULL, or a remark on all of them */
};
extern const struct setting_group_text setting_groups[GROUP_COUNT];

const struct setting *setting_find(const char *name);  /* by variable; NULL: there is none */
bool setting_is_config(const struct setting *setting); /* has a field in struct config */
/* Has a variable that the launcher sets for the workers from an option or its file. */
bool setting_is_passed_on(const struct setting *setting);
enum setting_type setting_option_type(const struct setting *setting);
/* Help of a flag, with "no effect yet: " before it if that applies. */
const char *setting_flag_help(const struct setting *setting, const struct setting_flag *flag,
                              char *ret_text, size_t bytes);
const char *setting_metavar(const struct setting *setting, const struct setting_flag *flag);
const char *setting_type_word(enum setting_type type);
const char *setting_scope_word(enum setting_scope scope);

/* The table as a JSON array of objects. Writes at most `bytes` and a NUL; returns the length of the
 * whole text without the NUL. */
size_t settings_json(char *ret_text, size_t bytes);

#endif
