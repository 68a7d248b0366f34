/* SPDX-License-Identifier: Apache-2.0 */
/* config_share.c - the owner's few changes to a configuration between config_open() and
 * config_seal(): rank 0's values of the settings that all ranks must share.
 *
 * They are sent in the order of settings.def, each by its type: whole numbers as i64, floats as
 * f64, switches as u8, texts as blobs. Values from rank 0 are checked like those from the
 * environment, because a peer's bytes are not trusted. Thread: that of init.  Start reading at
 * config_share(). */
#include <assert.h>
#include <strings.h>

#include "base/config.h"
#include "base/sha256.h"

/* The one place where the const is taken off. */
static struct config *open_config(const struct config *config)
{
    assert(!config->is_sealed);
    return (struct config *)(uintptr_t)config;
}

static bool is_shared(const struct setting *row)
{
    return row->scope == SCOPE_JOB && setting_is_config(row);
}

static void value_put(struct writer *w, const struct setting *row, const void *field)
{
    switch (row->type) {
    case TYPE_SWITCH:
    case TYPE_NONZERO: put_u8(w, *(const bool *)field); return;
    case TYPE_INT: put_i64(w, *(const int64_t *)field); return;
    case TYPE_FLOAT: put_f64(w, *(const double *)field); return;
    case TYPE_TEXT: put_text(w, field); return;
    case TYPE_LEVEL: put_u8(w, (uint8_t) * (const enum log_level *)field); return;
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: return;
    }
}

static bool is_choice(const struct setting *row, const char *text)
{
    bool is_found = row->choices[0] == NULL || *text == '\0';
    for (int i = 0; i < SETTING_CHOICES_MAX && row->choices[i] != NULL; i++)
        is_found = is_found || strcasecmp(text, row->choices[i]) == 0;
    return is_found;
}

/* Stores a value from another rank in `field`; false: not a value that the environment could give.
 */
static bool value_get(struct reader *r, const struct setting *row, void *field)
{
    switch (row->type) {
    case TYPE_SWITCH:
    case TYPE_NONZERO: *(bool *)field = get_u8(r) != 0; return !r->bad;
    case TYPE_INT: {
        int64_t value = *(int64_t *)field = get_i64(r);
        return !r->bad && value >= row->lowest && value <= row->highest;
    }
    case TYPE_FLOAT: {
        double value = *(double *)field = get_f64(r);
        return !r->bad && value >= (double)row->lowest && value <= (double)row->highest;
    }
    case TYPE_TEXT: get_text(r, field, row->bytes); return !r->bad && is_choice(row, field);
    case TYPE_LEVEL: {
        uint8_t level = get_u8(r);
        *(enum log_level *)field = (enum log_level)level;
        return !r->bad && level <= LOG_FATAL;
    }
    case TYPE_NONE:
    case TYPE_FLAG:
    case TYPE_NAMES:
    case TYPE_PAIR: break;
    }
    return false;
}

static bool values_get(struct reader *r, struct config *ret)
{
    for (size_t i = 0; i < setting_count; i++)
        if (is_shared(&setting_rows[i]) &&
            !value_get(r, &setting_rows[i], (char *)ret + setting_rows[i].offset))
            return false;
    return true;
}

hvd_status_t config_open(const struct os *os, const struct config *ret,
                         void (*warn)(void *arg, const char *text), void *arg, struct error *error)
{
    return config_load(os, open_config(ret), warn, arg, error);
}

void config_share(const struct config *config, struct writer *w)
{
    for (size_t i = 0; i < setting_count; i++)
        if (is_shared(&setting_rows[i]))
            value_put(w, &setting_rows[i], (const char *)config + setting_rows[i].offset);
}

bool config_adopt(const struct config *config, struct reader *r)
{
    struct config theirs = *config;
    bool is_good = values_get(r, &theirs);
    if (is_good)
        *open_config(config) = theirs;
    bytes_wipe(&theirs, sizeof theirs); /* it may hold the key */
    return is_good;
}

bool config_share_skip(struct reader *r)
{
    struct config ignored;
    return values_get(r, &ignored);
}

void config_disable_plans(const struct config *config)
{
    open_config(config)->plan_disable = true;
}

void config_seal(const struct config *config)
{
    open_config(config)->is_sealed = true;
}

void config_forget_key(const struct config *config)
{
    bytes_wipe((void *)(uintptr_t)config->key, sizeof config->key);
}
