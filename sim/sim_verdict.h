/* SPDX-License-Identifier: Apache-2.0 */
/* sim_verdict.h - whether a simulated trial went as it must, and if not, what went wrong first.
 *
 * Thread: any.  Owner: the trial's report.  Start reading at sim_violate(). */
#ifndef HVD_SIM_VERDICT_H
#define HVD_SIM_VERDICT_H

#include <stdbool.h>

struct sim_verdict {
    bool is_ok;
    char text[1024]; /* what was violated */
};

/* Only the first call counts: the rest follows from it. */
void sim_violate(struct sim_verdict *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Hands a line to `sink`; NULL: nobody wants to know. */
void sim_trace(void (*sink)(const char *line), const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
