/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - hvd_probe(): the rows of the two tables, and whether this machine can use them.
 *
 * Thread: any.  Start reading at hvd_probe(). */
#include <stdio.h>
#include <string.h>

#include "api/extend.h"
#include "backend/backends.h"
#include "base/sha256.h"
#include "horovod/hvd.h"

_Static_assert(sizeof((hvd_probe_t *)0)->why >= WHY_MAX, "a whole sentence");

static bool probe_row(int32_t index, const struct config *config, hvd_probe_t *ret)
{
    struct transport_place machine = {.os = os_host(), .config = config, .rank = -1};
    struct backend_place place = {.os = os_host(), .config = config, .rank = -1};
    const char *kind = "transport", *name = NULL;
    int32_t transports = 0, backends = 0;
    while (transport_table[transports] != NULL)
        transports++;
    while (backend_table[backends] != NULL)
        backends++;
    if (index < 0 || index >= transports + backends)
        return false;
    if (index < transports) {
        name = transport_table[index]->name;
        ret->is_usable = transport_table[index]->probe(&machine, ret->why);
    } else {
        kind = "backend";
        name = backend_table[index - transports]->name;
        ret->is_usable = backend_table[index - transports]->probe(&place, ret->why);
    }
    snprintf(ret->kind, sizeof ret->kind, "%s", kind);
    snprintf(ret->name, sizeof ret->name, "%s", name);
    return true;
}

bool hvd_probe(int32_t index, hvd_probe_t *ret)
{
    struct config config;
    struct error error = {0};
    hvd_probe_t known = {0};
    size_t size = ret->struct_size;
    struct os looking = *os_host();
    looking.env_wipe = NULL; /* hvd_init() still needs the key that may be set */
    memset(&config, 0, sizeof config);
    hvd_status_t status = config_load(&looking, &config, NULL, NULL, &error);
    bool is_there = probe_row(index, &config, &known);
    bytes_wipe(config.key, sizeof config.key);
    if (status != HVD_OK && is_there) {
        known.is_usable = false;
        snprintf(known.why, sizeof known.why, "%.255s", error.text);
    }
    if (!is_there || size < sizeof size || size > EXTEND_MAX)
        return false;
    known.struct_size = size;
    if (size > sizeof known)
        memset((char *)ret + sizeof known, 0, size - sizeof known);
    memcpy(ret, &known, size < sizeof known ? size : sizeof known);
    return true;
}
