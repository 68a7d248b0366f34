/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - why the job ends: the first cause, decided when it is known and not before.
 *
 * A rank that fails because of another one has said so (blame.h). If the one that it blames still
 * runs, the job is not stopped yet: only an exit of its own tells how that rank ended. It has
 * JOB_GRACE_MS for that; then it counts as stuck. After the first failure the other ranks are told
 * how that rank ended and have JOB_MOURN_MS to notice it; those that have reported an error have
 * JOB_RAISE_MS to raise it, print it and exit.
 *
 * Thread: the launcher's loop.  Invariant: a verdict once given is replaced only by the end of a
 * rank that happened earlier.  Start reading at settle(). */
#include "job.h"

/* ---- ranks ---- */

static void say_terminating(struct job *job)
{
    if (!job_is_verbose(job) || job->is_stopping)
        return;
    output_say(&job->output, 1, "Process %d exit with status code %d.", job->verdict.rank,
               report_exit_code(job));
    output_say(&job->output, 1, "Terminating remaining workers after failure of Process %d.",
               job->verdict.rank);
}

/* The others learn how a rank ended before they are stopped. */
static void tell_end(struct job *job, int32_t rank)
{
    const struct rank_run *end = &job->generation.ranks[rank];
    char how[128];
    if (job->is_stopping || job->end_count >= JOB_ENDS_MAX || (end->code == 0 && end->signal == 0))
        return;
    job->end_count++;
    report_describe_end(end, how, sizeof how);
    fleet_send_end(job, rank, mem_format(job->mem, "%s on host %s", how, report_host(job, rank)));
}

/* For how long the others may go on after the first failure; 0: none is left. */
static int64_t mourn_ms(const struct job *job)
{
    int64_t ms = 0;
    for (int32_t i = 0; i < job->generation.count; i++) {
        const struct rank_run *rank = &job->generation.ranks[i];
        if (!rank->is_ended && rank->blamed != 0)
            return JOB_RAISE_MS;
        if (!rank->is_ended)
            ms = JOB_MOURN_MS;
    }
    return ms;
}

/* True: the others still have time to raise an error of their own, which SIGTERM would prevent. */
static bool is_mourning(struct job *job, int64_t now_ns)
{
    int64_t ms = job->store != NULL ? mourn_ms(job) : 0;
    if (job->failed_ns == 0)
        job->failed_ns = now_ns;
    job->mourn_limit_ns = job->failed_ns + ms * JOB_NS_PER_MS;
    return now_ns < job->mourn_limit_ns;
}

static void settle(struct job *job, int64_t now_ns)
{
    struct blame b;
    if (job->is_driven)
        return; /* an end is followed by another generation, not by a verdict */
    bool is_open = job->verdict.kind == VERDICT_NONE || job->verdict.kind == VERDICT_RANK;
    if (!is_open ||
        !blame_choose(job->generation.ranks, job->generation.count, job->stopped_ns, &b))
        return;
    if (!b.is_ended && !job->is_stopping) {
        if (job->blame_limit_ns == 0)
            job->blame_limit_ns = now_ns + JOB_GRACE_MS * JOB_NS_PER_MS;
        if (now_ns < job->blame_limit_ns)
            return;
    }
    if (b.is_ended && !job->is_stopping && is_mourning(job, now_ns))
        return;
    job->verdict = (struct verdict){
        .kind = VERDICT_RANK,
        .rank = b.culprit,
        .failed = b.failed,
        .is_stuck = !b.is_ended,
        .at_ns = job->generation.ranks[b.is_ended ? b.culprit : b.failed].ended_ns};
    say_terminating(job);
    if (!job->is_stopping)
        job_stop(job, b.is_ended ? JOB_GRACE_MS : JOB_SHORT_MS);
}

void verdict_rank_ended(struct job *job, int32_t rank, const struct rank_run *end)
{
    struct rank_run *run = &job->generation.ranks[rank];
    int32_t blamed = run->blamed;
    const char *cause = run->cause, *words = run->words;
    if (run->is_ended)
        return;
    *run = *end;
    run->blamed = blamed;
    run->cause = cause;
    run->words = words;
    output_finish_rank(&job->output, rank);
    if (!job->is_driven)
        tell_end(job, rank);
    settle(job, os_now_ns(job->os));
}

void verdict_rank_blames(struct job *job, int32_t rank, int32_t culprit, char *cause)
{
    struct rank_run *run = &job->generation.ranks[rank];
    run->blamed = culprit == rank ? 0 : culprit + 1;
    run->cause = cause[0] == '\0' ? NULL : cause;
    settle(job, os_now_ns(job->os));
}

void verdict_tick(struct job *job, int64_t now_ns)
{
    if ((job->blame_limit_ns != 0 || job->mourn_limit_ns != 0) && !job->is_stopping)
        settle(job, now_ns);
}

/* ---- everything else ---- */

static void decide(struct job *job, enum verdict_kind kind, int32_t rank, int number, char *text)
{
    if (job->verdict.kind == VERDICT_NONE)
        job->verdict = (struct verdict){.kind = kind,
                                        .rank = rank,
                                        .signal = number,
                                        .at_ns = os_now_ns(job->os),
                                        .text = text};
}

void verdict_host(struct job *job, const struct host_run *run, const char *text)
{
    if (job->on_failure != NULL) {
        job->on_failure(job, run, text);
        return;
    }
    decide(job, VERDICT_HOST, 0, 0, mem_format(job->mem, "host %s: %s", run->host->name, text));
    job_stop(job, JOB_GRACE_MS);
}

void verdict_lost(struct job *job, int32_t rank, const char *text)
{
    decide(job, VERDICT_LOST, rank, 0, mem_copy(job->mem, text));
    job_stop(job, JOB_GRACE_MS);
}

/* The second signal does not wait. */
void verdict_signal(struct job *job, int number)
{
    bool is_again = job->is_stopping;
    decide(job, VERDICT_SIGNAL, 0, number, NULL);
    job_stop(job, is_again ? 0 : JOB_GRACE_MS);
}

void verdict_output(struct job *job)
{
    if (job->verdict.kind != VERDICT_NONE)
        return;
    decide(job, VERDICT_OUTPUT, 0, 0, NULL);
    job_stop(job, JOB_GRACE_MS);
}
