/* SPDX-License-Identifier: Apache-2.0 */
/* survey.c - see survey.h. */
#include "survey.h"

#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "look.h"

#define LOOKS_AT_ONCE 256u         /* workers in one message */
#define STACK_RANKS   64           /* up to this many, Python stacks are asked for too */
#define LATE_NS       JOB_NS_PER_S /* ranks that wait for less are not worth a verdict */

/* ---- asking ---- */

static void ask(struct job *job, struct survey *s, struct host_run *run)
{
    uint32_t indexes[LOOKS_AT_ONCE], count = 0;
    bool wants_stacks = s->has_stacks && s->count <= STACK_RANKS;
    uint8_t what = wants_stacks ? LOOK_STACK | LOOK_STATUS : LOOK_STATUS;
    for (int32_t rank = 0; rank < s->count; rank++) {
        struct host_run *of = NULL;
        if (look_seat(job, rank, &of, &indexes[count]) && of == run)
            count++;
        if (count == LOOKS_AT_ONCE || rank == s->count - 1) {
            fleet_send_look(job, run, s->number, what, indexes, count);
            count = 0;
        }
    }
}

/* What the last survey found becomes what was before. */
static void keep(struct job *job, struct survey *s)
{
    if (s->count > s->before_count) {
        os_free(job->os, s->before);
        s->before = (struct ask_status *)os_alloc(job->os, (size_t)s->count * sizeof *s->before);
    }
    s->before_count = s->before != NULL ? s->count : 0;
    s->before_ns = s->at_ns;
    for (int32_t i = 0; i < s->before_count; i++)
        s->before[i] = s->ranks[i].has_status ? s->ranks[i].status : (struct ask_status){0};
}

void survey_want(struct job *job, bool wants_stacks, int64_t now_ns)
{
    if (job->survey == NULL)
        job->survey = mem_alloc(job->mem, sizeof *job->survey);
    struct survey *s = job->survey;
    if (s->is_running || s->is_ready)
        return;
    keep(job, s);
    mem_destroy(&s->mem);
    mem_init(&s->mem, job->os);
    s->is_running = true;
    s->has_stacks = wants_stacks;
    s->number = SURVEY_ASKED | (s->number + 1);
    s->until_ns = now_ns + SURVEY_WAIT_NS;
    s->count = look_size(job);
    s->ranks = mem_alloc(&s->mem, ((size_t)s->count + 1) * sizeof *s->ranks);
    for (int32_t i = 0; i < job->run_count; i++)
        ask(job, s, &job->runs[i]);
}

static void answer_read(struct survey *s, struct survey_rank *rank, int32_t number,
                        struct reader *r)
{
    size_t n = 0;
    rank->pid = (int32_t)get_u32(r);
    rank->state = message_get_text(&s->mem, r);
    rank->where = message_get_text(&s->mem, r);
    rank->inner = message_get_text(&s->mem, r);
    rank->inside = message_get_text(&s->mem, r);
    message_get_text(&s->mem, r); /* frames */
    rank->is_inside = get_u8(r) != 0;
    const void *record = get_blob(r, ASK_STATUS_MAX, &n);
    rank->has_answered = !r->bad;
    rank->has_status = !r->bad && record != NULL && n > 0 &&
                       ask_status_get(record, n, &rank->status) && rank->status.rank == number;
}

bool survey_answer(struct job *job, const struct host_run *run, struct reader *r)
{
    struct survey *s = job->survey;
    struct reader ahead = *r;
    uint32_t number = get_u32(&ahead), index = get_u32(&ahead);
    if (ahead.bad || (number & SURVEY_ASKED) == 0)
        return false;
    for (int32_t i = 0; s != NULL && s->is_running && number == s->number && i < s->count; i++) {
        struct host_run *of = NULL;
        uint32_t seat = 0;
        if (s->ranks[i].has_answered || !look_seat(job, i, &of, &seat) || of != run ||
            seat != index)
            continue;
        answer_read(s, &s->ranks[i], i, &ahead);
        break;
    }
    return true;
}

static bool is_complete(const struct job *job, const struct survey *s)
{
    for (int32_t i = 0; i < s->count; i++)
        if (!s->ranks[i].has_answered && look_end(job, i) == NULL)
            return false;
    return true;
}

/* Counts this rank for each rank that its op waits for. */
static void waiting_add(struct survey *s, int32_t rank)
{
    const struct ask_status *status = &s->ranks[rank].status;
    if (!s->ranks[rank].has_status || status->op_ns < LATE_NS ||
        strcmp(status->doing, "not submitted") == 0)
        return;
    const char *at = survey_missing(s, status);
    while (*at >= '0' && *at <= '9') {
        char *end = NULL;
        long other = strtol(at, &end, 10);
        if (other < s->count && other != rank)
            s->waiting[other]++;
        at = *end == ',' ? end + 1 : end;
    }
}

void survey_tick(struct job *job, int64_t now_ns)
{
    struct survey *s = job->survey;
    if (s == NULL)
        return;
    s->is_ready = s->is_running && (now_ns >= s->until_ns || is_complete(job, s));
    if (!s->is_ready)
        return;
    s->is_running = false;
    s->at_ns = now_ns;
    s->waiting = mem_alloc(&s->mem, ((size_t)s->count + 1) * sizeof *s->waiting);
    for (int32_t i = 0; i < s->count; i++)
        waiting_add(s, i);
}

int64_t survey_next_ns(const struct job *job)
{
    const struct survey *s = job->survey;
    if (s != NULL && s->is_ready)
        return 0; /* in the next round another one may begin */
    return s != NULL && s->is_running ? s->until_ns : INT64_MAX;
}

void survey_destroy(struct job *job)
{
    if (job->survey == NULL)
        return;
    mem_destroy(&job->survey->mem);
    os_free(job->os, job->survey->before);
    job->survey = NULL;
}

/* ---- reading ---- */

const struct ask_status *survey_before(const struct survey *s, int32_t rank, double *ret_seconds)
{
    const struct ask_status *now = &s->ranks[rank].status;
    const struct ask_status *before = rank < s->before_count ? &s->before[rank] : NULL;
    *ret_seconds = (double)(s->at_ns - s->before_ns) / (double)JOB_NS_PER_S;
    if (before == NULL || !s->ranks[rank].has_status || before->size != now->size ||
        before->epoch != now->epoch || before->steps > now->steps ||
        before->op_bytes > now->op_bytes || *ret_seconds <= 0)
        return NULL;
    return before;
}

const char *survey_missing(const struct survey *s, const struct ask_status *status)
{
    for (int32_t i = 0; status->missing[0] == '\0' && i < s->count; i++) {
        const struct survey_rank *other = &s->ranks[i];
        if (other->has_status && other->status.missing[0] != '\0' && status->op[0] != '\0' &&
            strcmp(other->status.op, status->op) == 0)
            return other->status.missing;
    }
    return status->missing;
}
