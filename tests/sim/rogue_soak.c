/* SPDX-License-Identifier: Apache-2.0 */
/* rogue_soak.c - many trials with a rank that violates the protocol, from the command line.
 *
 *      rogue_soak --seconds 900                 until that much processor time is used
 *      rogue_soak --from 4711 --trials 1 --trace    replays one trial
 *
 * Options: --trials N, --from N, --seconds N, --trace, --keep-going. Exit status 0: no violation.
 * Start reading at main(). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim_rogue.h"

static void trace(const char *line)
{
    puts(line);
}

int main(int argc, char **argv)
{
    uint64_t from = 1, trials = UINT64_MAX, failed = 0, done = 0;
    double seconds = 1e9;
    bool is_keeping_going = false;
    struct sim_rogue_options options = {0};
    struct sim_rogue_report sum = {0};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--trace") == 0)
            options.trace = trace;
        else if (strcmp(argv[i], "--keep-going") == 0)
            is_keeping_going = true;
        else if (strcmp(argv[i], "--from") == 0)
            from = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--trials") == 0)
            trials = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(value, NULL);
    }
    for (uint64_t i = 0; i < trials && (failed == 0 || is_keeping_going) &&
                         (double)clock() / CLOCKS_PER_SEC < seconds;
         i++) {
        struct sim_rogue_report report;
        options.seed = from + i;
        if (!sim_rogue_run(os_host(), &options, &report)) {
            printf("trial %" PRIu64 " (%d ranks, rogue rank %d): %s\n", options.seed, report.ranks,
                   report.rogue, report.verdict.text);
            failed++;
        }
        done++;
        if (done % 1000 == 0)
            fflush(stdout);
        sim_rogue_add(&sum, &report);
    }
    printf("%" PRIu64 " trials, %" PRIu64 " failed: %" PRIu64 " messages, %" PRIu64
           " of them mutated; %" PRIu64 " ops of honest ranks ended, %" PRIu64
           " with an error, %" PRIu64 " of those about the protocol; %" PRIu64
           " trials ended by silence; %.0f s of processor time\n",
           done, failed, sum.messages, sum.mutated, sum.ops, sum.errors, sum.refused, sum.silent,
           (double)clock() / CLOCKS_PER_SEC);
    return failed == 0 ? 0 : 1;
}
