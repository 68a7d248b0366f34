/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the table of memory kinds: a new one is a file and a row. */
#include "memory/memory.h"

const struct memory_ops *const memory_kinds[] = {
    &memory_host,
    NULL,
};

_Static_assert(sizeof memory_kinds / sizeof memory_kinds[0] <= MEMORY_KINDS_MAX + 1, "");

int32_t memory_open(const struct os *os, struct memory_kind *ret[MEMORY_KINDS_MAX])
{
    int32_t count = 0;
    for (const struct memory_ops *const *row = memory_kinds; *row != NULL; row++) {
        struct error error = {0};
        if ((*row)->is_host_visible || (*row)->probe(os, &error) != HVD_OK)
            continue;
        if ((*row)->open(os, &ret[count], &error) == HVD_OK)
            count++;
    }
    return count;
}

void memory_close(struct memory_kind *const *memories, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        memories[i]->ops->close(memories[i]);
}
