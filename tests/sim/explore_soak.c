/* SPDX-License-Identifier: Apache-2.0 */
/* explore_soak.c - explores small worlds from the command line.
 *
 *      explore_soak                         all programs of explore_programs.h, completely
 *      explore_soak --states 100000         each up to that many states
 *      explore_soak --no-faults             neither crashes nor timeouts
 *      explore_soak --only 3 --trace        one of them; prints the path of a violation
 *
 * Exit status 0: no violation.  Start reading at main(). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "explore_programs.h"

static void trace(const char *line)
{
    puts(line);
}

int main(int argc, char **argv)
{
    uint64_t states_max = 0, states = 0, paths = 0;
    int only = -1, failed = 0, complete = 0, done = 0;
    bool is_tracing = false, has_faults = true;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--states") == 0)
            states_max = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            only = atoi(value);
        else if (strcmp(argv[i], "--trace") == 0)
            is_tracing = true;
        else if (strcmp(argv[i], "--no-faults") == 0)
            has_faults = false;
    }
    for (int i = 0; i < (int)EXPLORE_PROGRAMS; i++) {
        struct explore_options options = explore_programs[i];
        struct explore_report report;
        if (only >= 0 && only != i)
            continue;
        options.states_max = states_max;
        options.crashes = has_faults ? options.crashes : 0;
        options.timeouts = has_faults ? options.timeouts : 0;
        options.trace = is_tracing ? trace : NULL;
        bool is_ok = sim_explore(os_host(), &options, &report);
        printf("%2d: %-12s %-12s %-12s crashes %d timeouts %d: %9" PRIu64 " states, %9" PRIu64
               " paths, longest %3d, %s%s\n",
               i, options.programs[0], options.programs[1],
               options.ranks > 2 ? options.programs[2] : "", options.crashes, options.timeouts,
               report.states, report.paths, report.depth,
               !is_ok               ? "VIOLATED: "
               : report.is_complete ? "complete"
                                    : "up to the limit",
               is_ok ? "" : report.verdict.text);
        fflush(stdout);
        failed += !is_ok;
        complete += report.is_complete;
        done++;
        states += report.states;
        paths += report.paths;
    }
    printf("%d programs, %d failed, %d complete: %" PRIu64 " states, %" PRIu64
           " paths, %.0f s of processor time\n",
           done, failed, complete, states, paths, (double)clock() / CLOCKS_PER_SEC);
    return failed == 0 ? 0 : 1;
}
