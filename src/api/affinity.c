/* SPDX-License-Identifier: Apache-2.0 */
/* affinity.c - see affinity.h. */
#include "api/affinity.h"

#include <stdio.h>

#define CORE_MAX 65535

/* One entry: blanks, digits, blanks. NULL: it is not that. */
static const char *entry_read(const char *at, int32_t *ret_core)
{
    int32_t core = 0;
    while (*at == ' ')
        at++;
    const char *digits = at;
    for (; *at >= '0' && *at <= '9'; at++) {
        core = core * 10 + (*at - '0');
        if (core > CORE_MAX)
            return NULL;
    }
    if (at == digits)
        return NULL;
    while (*at == ' ')
        at++;
    if (*at != ',' && *at != '\0')
        return NULL;
    *ret_core = core;
    return at;
}

bool affinity_core(const char *list, int32_t local_rank, int32_t local_size, int32_t *ret_core,
                   char *ret_why, size_t bytes)
{
    int32_t count = 0, core = 0, ours = -1;
    const char *at = list;
    ret_why[0] = '\0';
    if (*list == '\0')
        return false;
    for (;; at++) {
        at = entry_read(at, &core);
        if (at == NULL) {
            snprintf(ret_why, bytes,
                     "HOROVOD_THREAD_AFFINITY=%.100s is ignored: entry %d is not the number of a "
                     "core; give a comma list like 0,1,2,3.",
                     list, count);
            return false;
        }
        if (count++ == local_rank)
            ours = core;
        if (*at == '\0')
            break;
    }
    if (count < local_size || ours < 0) {
        snprintf(ret_why, bytes,
                 "HOROVOD_THREAD_AFFINITY=%.100s is ignored: it names %d cores, but %d ranks are "
                 "on this host; give one core for each.",
                 list, count, local_size);
        return false;
    }
    *ret_core = ours;
    return true;
}
