/* SPDX-License-Identifier: Apache-2.0 */
/* sim_verdict.c - see sim_verdict.h. */
#include "sim_verdict.h"

#include <stdarg.h>
#include <stdio.h>

void sim_violate(struct sim_verdict *verdict, const char *format, ...)
{
    va_list args;
    if (!verdict->is_ok)
        return;
    verdict->is_ok = false;
    va_start(args, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, args);
    va_end(args);
}

void sim_trace(void (*sink)(const char *line), const char *format, ...)
{
    char line[1400];
    va_list args;
    if (sink == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    sink(line);
}
