/* SPDX-License-Identifier: Apache-2.0 */
/* yaml.h - reads the part of YAML that a config file needs: two levels of block mappings whose
 * values are scalars, comments, and both kinds of quotes.
 *
 * Anything else (lists, flow mappings, anchors, tags, block scalars, tabs as indentation, several
 * documents, a key given twice) is refused with its line number rather than guessed.
 * Pure; no recursion. Thread: any.  Start reading at yaml_read(). */
#ifndef HVD_LAUNCHER_YAML_H
#define HVD_LAUNCHER_YAML_H

#include <stdbool.h>

#include "base/status.h"
#include "mem.h"

struct yaml_entry {
    const char *section; /* NULL at the top level */
    const char *key;
    const char *value; /* NULL: nothing, ~ or null */
    bool is_quoted, is_section;
    int line;
};

struct yaml {
    struct yaml_entry *entries;
    size_t count, capacity;
};

hvd_status_t yaml_read(struct mem *m, const char *name, const char *text, size_t n,
                       struct yaml *ret, struct error *error);
/* Plain true/false, yes/no, on/off in any case. */
bool yaml_bool(const struct yaml_entry *entry, bool *ret);

#endif
