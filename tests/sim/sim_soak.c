/* SPDX-License-Identifier: Apache-2.0 */
/* sim_soak.c - runs many seeds of the simulator from the command line, or replays one.
 *
 *      sim_soak --seeds 10000 --from 1 --faults       prints progress, and each seed that fails
 *      sim_soak --from 4711 --faults --twice          replays one seed, compares two runs of it
 *
 * Options: --seeds N, --from N, --faults, --ranks N, --sight 0|1, --twice, --keep-going, --quiet,
 * --trace. Exit status 0: no violation.  Start reading at main(). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_run.h"

struct totals {
    uint64_t failed, calls, errors, splits, planned, batches, plan_starts, plan_breaks, turns;
    uint64_t messages;
    double virtual_s;
};

struct settings {
    struct sim_program_options options;
    uint64_t from, seeds;
    bool is_twice, is_keeping_going, is_quiet;
};

static void trace(const char *line)
{
    puts(line);
}

static bool parse(int argc, char **argv, struct settings *ret)
{
    *ret = (struct settings){.from = 1, .seeds = 1, .options = {.sight = -1}};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        bool takes_value = true;
        if (strcmp(argv[i], "--seeds") == 0)
            ret->seeds = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--from") == 0)
            ret->from = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--ranks") == 0)
            ret->options.ranks = atoi(value);
        else if (strcmp(argv[i], "--sight") == 0)
            ret->options.sight = atoi(value);
        else
            takes_value = false;
        if (takes_value)
            i++;
        else if (strcmp(argv[i], "--faults") == 0)
            ret->options.has_faults = true;
        else if (strcmp(argv[i], "--twice") == 0)
            ret->is_twice = true;
        else if (strcmp(argv[i], "--keep-going") == 0)
            ret->is_keeping_going = true;
        else if (strcmp(argv[i], "--races") == 0)
            ret->options.has_races = true;
        else if (strcmp(argv[i], "--tune") == 0)
            ret->options.tune_one_in = 20;
        else if (strcmp(argv[i], "--trace") == 0)
            ret->options.trace = trace;
        else if (strcmp(argv[i], "--quiet") == 0)
            ret->is_quiet = true;
        else
            return false;
    }
    return ret->options.ranks >= 0 && ret->options.ranks <= SIM_RANKS_MAX;
}

static void add(struct totals *t, const struct sim_report *r)
{
    t->calls += r->calls_ended;
    t->errors += r->calls_failed;
    t->splits += r->splits;
    t->planned += r->batches_planned;
    t->batches += r->batches;
    t->plan_starts += r->plan_starts;
    t->plan_breaks += r->plan_breaks;
    t->turns += r->turns;
    t->messages += r->messages;
    t->virtual_s += (double)r->end_ns / 1e9;
}

static void print_totals(const struct totals *t, uint64_t seeds)
{
    printf("%" PRIu64 " seeds, %" PRIu64 " failed: %" PRIu64 " calls ended on ranks (%" PRIu64
           " with an error, %" PRIu64 " split by a fault), %" PRIu64 " batches (%" PRIu64
           " planned; %" PRIu64 " plans begun, %" PRIu64 " broken), %" PRIu64 " turns, %" PRIu64
           " messages, %.0f virtual seconds\n",
           seeds, t->failed, t->calls, t->errors, t->splits, t->batches, t->planned, t->plan_starts,
           t->plan_breaks, t->turns, t->messages, t->virtual_s);
    fflush(stdout);
}

static bool run_one(struct settings *s, uint64_t seed, struct totals *totals)
{
    struct sim_report report, again;
    s->options.seed = seed;
    bool is_ok = sim_run_seed(os_host(), &s->options, &report);
    add(totals, &report);
    if (is_ok && s->is_twice) {
        sim_run_seed(os_host(), &s->options, &again);
        if (again.hash != report.hash) {
            is_ok = false;
            snprintf(report.text, sizeof report.text, "two runs differ");
        }
    }
    if (is_ok)
        return true;
    totals->failed++;
    printf("seed %" PRIu64 " (%d ranks, %s): %s\n    replay: sim_soak --from %" PRIu64 "%s%s%s\n",
           seed, report.ranks, report.is_in_sight ? "in sight" : "network", report.text, seed,
           s->options.has_faults ? " --faults" : "", s->options.has_races ? " --races" : "",
           s->options.tune_one_in != 0 ? " --tune" : "");
    fflush(stdout);
    return false;
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct totals totals = {0};
    if (!parse(argc, argv, &settings)) {
        fprintf(stderr, "usage: sim_soak [--seeds N] [--from N] [--faults] [--ranks N] "
                        "[--sight 0|1] [--twice] [--keep-going] [--quiet] [--trace] [--races] "
                        "[--tune]\n");
        return 2;
    }
    for (uint64_t i = 0; i < settings.seeds; i++) {
        if (!run_one(&settings, settings.from + i, &totals) && !settings.is_keeping_going)
            break;
        if (!settings.is_quiet && (i + 1) % 500 == 0)
            print_totals(&totals, i + 1);
    }
    print_totals(&totals, settings.seeds);
    return totals.failed == 0 ? 0 : 1;
}
