/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the last thing a failed job prints, once: which rank on which host, how it ended, its
 * last lines, and what became of the others. Thread: the launcher's.  Start at report_print(). */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "elastic.h"
#include "job.h"
#include "wire/cause.h"

#define SIGNAL_BASE   128
#define RANKS_TEXT    256
#define SUMMARY_BYTES 4096u

static void print_tail_line(void *arg, const char *line)
{
    struct job *job = arg;
    output_say(&job->output, 2, "    %s", line);
}

static const struct host_run *run_of(const struct job *job, int32_t rank)
{
    for (int32_t i = 0; i < job->run_count; i++)
        if (rank >= job->runs[i].first_rank &&
            rank < job->runs[i].first_rank + job->runs[i].rank_count)
            return &job->runs[i];
    return &job->runs[0];
}

const char *report_host(const struct job *job, int32_t rank)
{
    return run_of(job, rank)->host->name;
}

static const char *signal_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
                 {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
                 {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"},
                 {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
                 {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
                 {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number)
            return names[i].name;
    return "a signal";
}

void report_describe_end(const struct rank_run *end, char *ret_text, size_t bytes)
{
    if (end->signal == 0)
        snprintf(ret_text, bytes, "exited with code %d", end->code);
    else
        snprintf(ret_text, bytes, "was killed by signal %d (%s)%s", end->signal,
                 signal_name(end->signal), end->is_oom ? ": the kernel ran out of memory" : "");
}

/* Does the rank that began it tell the job's exit code, or the first that failed because of it? */
static int32_t coded_rank(const struct job *job)
{
    const struct verdict *v = &job->verdict;
    const struct rank_run *end = &job->generation.ranks[v->rank];
    bool is_failure = !v->is_stuck && (end->code != 0 || end->signal != 0);
    return is_failure ? v->rank : v->failed;
}

/* "0,2,3" of those for which the filter holds, shortened when long; returns how many. */
static int list_ranks(const struct job *job, bool (*is_listed)(const struct job *, int32_t),
                      char *ret_text, size_t bytes)
{
    int count = 0;
    size_t used = 0;
    ret_text[0] = '\0';
    for (int32_t i = 0; i < job->generation.count; i++) {
        if (!is_listed(job, i))
            continue;
        count++;
        int n = snprintf(ret_text + used, bytes - used, "%s%d", used == 0 ? "" : ",", i);
        if (n > 0 && (size_t)n + 8 < bytes - used)
            used += (size_t)n;
        else
            snprintf(ret_text + used, bytes - used, ",...");
    }
    return count;
}

static bool ended_well_before(const struct job *job, int32_t rank)
{
    const struct rank_run *r = &job->generation.ranks[rank];
    return r->is_ended && r->code == 0 && r->signal == 0 && rank != job->verdict.rank &&
           r->ended_ns < job->verdict.at_ns;
}

static bool was_stopped(const struct job *job, int32_t rank)
{
    return rank != job->verdict.rank && !ended_well_before(job, rank);
}

/* What the first rank that failed said about the one that began it. */
static const char *accusation(const struct job *job)
{
    const char *cause = job->generation.ranks[job->verdict.failed].cause;
    return cause == NULL ? "it gave no reason" : cause;
}

static void print_head(struct job *job)
{
    const struct verdict *v = &job->verdict;
    const struct rank_run *end = &job->generation.ranks[v->rank];
    const char *host = run_of(job, v->rank)->host->name;
    double seconds = (double)(v->at_ns - job->started_ns) / (double)JOB_NS_PER_S;
    char how[128];
    report_describe_end(end, how, sizeof how);
    if (v->is_stuck)
        output_say(&job->output, 2,
                   "horovodrun: rank %d on %s did not exit, but others failed because of it after "
                   "%.1f s. Rank %d reported: %s",
                   v->rank, host, seconds, v->failed, accusation(job));
    else if (coded_rank(job) == v->rank && end->words != NULL)
        output_say(&job->output, 2,
                   "horovodrun: rank %d on %s failed with %s and %s (pid %d) after %.1f s.",
                   v->rank, host, end->words, how, (int)end->pid, seconds);
    else if (coded_rank(job) == v->rank)
        output_say(&job->output, 2, "horovodrun: rank %d on %s %s (pid %d) after %.1f s.", v->rank,
                   host, how, (int)end->pid, seconds);
    else
        output_say(
            &job->output, 2,
            "horovodrun: rank %d on %s %s (pid %d) after %.1f s while other ranks needed it. "
            "Rank %d reported: %s",
            v->rank, host, how, (int)end->pid, seconds, v->failed, accusation(job));
}

/* Which ranks were stopped because of the culprit, and what that one printed last. */
static void print_rest(struct job *job)
{
    int32_t rank = job->verdict.rank;
    char others[RANKS_TEXT];
    int count = list_ranks(job, was_stopped, others, sizeof others);
    if (count > 0)
        output_say(&job->output, 2, "  Stopped because of it: rank%s %s.", count > 1 ? "s" : "",
                   others);
    if (output_has_tail(&job->output, rank))
        output_say(&job->output, 2, "  Last lines of rank %d:", rank);
    output_tail_each(&job->output, rank, print_tail_line, job);
}

static void print_rank(struct job *job)
{
    char others[RANKS_TEXT];
    print_head(job);
    int count = list_ranks(job, ended_well_before, others, sizeof others);
    if (count > 0)
        output_say(&job->output, 2, "  Before that, rank%s %s had finished normally.",
                   count > 1 ? "s" : "", others);
    print_rest(job);
    output_say(&job->output, 2,
               "Horovod detected that one or more processes exited with non-zero status, thus "
               "causing the job to be terminated. The first process to do so was:\n"
               "Process name: %d\nExit code: %d",
               coded_rank(job), report_exit_code(job));
}

static void print_lost(struct job *job)
{
    const struct verdict *v = &job->verdict;
    output_say(&job->output, 2, "horovodrun: rank %d on %s %s.", v->rank,
               run_of(job, v->rank)->host->name, v->text);
    print_rest(job);
}

void report_print(struct job *job)
{
    switch (job->verdict.kind) {
    case VERDICT_NONE: return;
    case VERDICT_RANK: print_rank(job); return;
    case VERDICT_LOST: print_lost(job); return;
    case VERDICT_HOST: output_say(&job->output, 2, "horovodrun: %s", job->verdict.text); return;
    case VERDICT_SIGNAL:
        output_say(&job->output, 2, "horovodrun: stopped by %s.", signal_name(job->verdict.signal));
        return;
    case VERDICT_ELASTIC: elastic_report(job); return;
    case VERDICT_OUTPUT: return; /* there is nobody to tell */
    }
}

/* ---- --summary ---- */

/* A rank that meets again begins its paragraph anew. */
void summary_take(struct job *job, const struct cause *cause)
{
    if (cause->rank != 0)
        return;
    if (cause->count == 0)
        bytes_drop(&job->summary, bytes_used(&job->summary));
    if (bytes_used(&job->summary) + sizeof cause->text <= SUMMARY_BYTES)
        bytes_add(job->os, &job->summary, cause->text, strlen(cause->text));
}

void summary_print(struct job *job)
{
    const struct arg_value *asked = &job->args->settings[ROW_summary];
    if (!asked->is_set || !asked->is_on)
        return;
    if (bytes_used(&job->summary) > 0)
        output_say(&job->output, 2, "horovodrun: summary: %.*s", (int)bytes_used(&job->summary),
                   (const char *)bytes_at(&job->summary));
    else
        output_say(&job->output, 2,
                   "horovodrun: summary: rank 0 reported nothing. It ended without "
                   "hvd.shutdown(), or does not use Horovod from Python.");
}

int report_exit_code(const struct job *job)
{
    const struct verdict *v = &job->verdict;
    const struct rank_run *end = NULL;
    switch (v->kind) {
    case VERDICT_NONE: return 0;
    case VERDICT_RANK:
        end = &job->generation.ranks[coded_rank(job)];
        return end->signal != 0 ? SIGNAL_BASE + end->signal : end->code;
    case VERDICT_LOST:
    case VERDICT_HOST: return 1;
    case VERDICT_SIGNAL: return SIGNAL_BASE + v->signal;
    case VERDICT_OUTPUT: return SIGNAL_BASE + SIGPIPE;
    case VERDICT_ELASTIC: return v->code;
    }
    return 1;
}
