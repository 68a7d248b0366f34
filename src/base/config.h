/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the settings from the environment: a field for each setting that the library reads.
 *
 * Parsed once at init; all other code holds a const pointer. The fields, with their types,
 * defaults, limits and help, are the rows of settings.def. An unknown HOROVOD_* name gives one
 * warning with the nearest match. Thread: any (read only).  Start reading at settings.def. */
#ifndef HVD_BASE_CONFIG_H
#define HVD_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/status.h"

#define CONFIG_FIELD_INT     int64_t
#define CONFIG_FIELD_FLOAT   double
#define CONFIG_FIELD_SWITCH  bool
#define CONFIG_FIELD_NONZERO bool
#define CONFIG_FIELD_LEVEL   enum log_level

struct config {
#define SETTING(type, field, ...) CONFIG_FIELD_##type field;
#define TEXT(field, size, ...)    char field[size];
#include "base/settings.def"
    bool is_sealed; /* not a setting: config_seal() */
};

/* Fills `ret` from the defaults and the environment. A malformed number is an error that names
 * variable and value; out-of-range numbers, unknown HOROVOD_* names and settings that are accepted
 * but have no effect here are reported through `warn` (may be NULL), once each. */
hvd_status_t config_load(const struct os *os, struct config *ret,
                         void (*warn)(void *arg, const char *text), void *arg, struct error *error);
/* Formats one field; `ret_text` gets "" for an unset text. */
void config_format(const struct config *config, const struct setting *row, char *ret_text,
                   size_t bytes);
bool config_is_set(const struct os *os, const char *name); /* explicitly in the environment? */

/* The owner of a job's configuration (api/world.h) keeps it const, too. Only these functions write
 * it, while the ranks meet; after config_seal() none does. */
hvd_status_t config_open(const struct os *os, const struct config *ret,
                         void (*warn)(void *arg, const char *text), void *arg, struct error *error);
/* The settings of scope `job`. config_adopt() replaces them with rank 0's; false: malformed or out
 * of range, and `config` is unchanged. config_share_skip() only skips them. */
void config_share(const struct config *config, struct writer *w);
bool config_adopt(const struct config *config, struct reader *r);
bool config_share_skip(struct reader *r);
/* How often a rank gives a sign of life at the least, often enough for HOROVOD_HUNG_ERROR_SECONDS;
 * the same on all ranks once they have met. */
int64_t config_beat_ns(const struct config *config);
void config_disable_plans(const struct config *config);
void config_seal(const struct config *config);
void config_forget_key(const struct config *config); /* sealed or not */

#endif
