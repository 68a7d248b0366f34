/* SPDX-License-Identifier: Apache-2.0 */
/* print_config.c - see print_config.h. The options are put into our own environment first, so that
 * the core's own table and parser say what a worker would make of them.
 * Thread: one.  Start reading at print_config_run(). */
#include "print_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "knobs.h"

static void print_warning(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "horovodrun: warning: %s\n", text);
}

static void export_options(struct mem *m, const struct args *args)
{
    struct list env = {0};
    knobs_export(m, args, &env);
    for (size_t i = 0; i < env.count; i++)
        putenv(env.items[i]);
}

int print_config_run(struct mem *m, const struct os *os, const struct args *args)
{
    struct config *config = mem_alloc(m, sizeof *config);
    struct error error;
    error_clear(&error);
    export_options(m, args);
    if (config_load(os, config, print_warning, NULL, &error) != HVD_OK) {
        fprintf(stderr, "horovodrun: %s\n", error.text);
        return 1;
    }
    char *text = mem_alloc(m, CONFIG_TEXT_MAX);
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &setting_rows[i];
        if (!setting_is_config(row))
            continue;
        bool is_set = config_is_set(os, row->name);
        config_format(config, row, text, CONFIG_TEXT_MAX);
        printf("%s=%s\n    %s%s%s\n", row->name,
               row->is_secret ? (is_set ? "(set, not shown)" : "") : text,
               row->idle != NULL ? "accepted, but has no effect yet: " : "", row->help,
               is_set ? "  [set]" : "");
    }
    return 0;
}
