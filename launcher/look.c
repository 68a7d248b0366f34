/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - see look.h. */
#include "look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elastic.h"
#include "job.h"
#include "wire/cause.h"

#define ANSWER_NS    (3 * JOB_NS_PER_S)  /* for the agents */
#define REPORT_NS    (3 * JOB_NS_PER_S)  /* from the first record of a report to its last */
#define AGAIN_NS     (30 * JOB_NS_PER_S) /* the same ranks are missing: it is the same stall */
#define WAITERS_MAX  32                  /* ranks that are asked where they wait */
#define SUSPECTS_MAX 16                  /* missing ranks that are asked */
#define LIST_BYTES   256

struct look_rank {
    int32_t rank;
    bool is_missing;
    int64_t behind, ahead;
    char *behind_name, *ahead_name;

    bool has_answered;
    int32_t pid;
    char *state, *where, *inner, *inside, *frames;
    bool is_inside; /* its main thread is inside Horovod */
};

struct look {
    struct mem mem; /* of this report */
    uint32_t number;
    bool is_open;     /* a report is being received */
    bool is_asked;    /* the agents have been asked */
    int32_t reporter; /* rank */
    int64_t until_ns;
    char *op, *waiters;
    int64_t op_count, waited_ms;
    struct look_rank ranks[WAITERS_MAX + SUSPECTS_MAX];
    int count, missing_count, waiting_count;

    /* what was printed last */
    int64_t printed_ns; /* 0: nothing */
    char printed_op[CAUSE_TEXT_MAX], printed_missing[LIST_BYTES];
};

/* ---- ranks ---- */

int32_t look_size(const struct job *job)
{
    return job->elastic != NULL ? elastic_size(job) : job->generation.count;
}

bool look_seat(const struct job *job, int32_t rank, struct host_run **ret_run, uint32_t *ret_index)
{
    if (job->elastic != NULL)
        return elastic_seat(job, rank, ret_run, ret_index);
    const struct seat *seat = &job->generation.seats[rank];
    if (seat->run < 0)
        return false;
    *ret_run = &job->runs[seat->run];
    *ret_index = seat->index;
    return true;
}

static struct look_rank *rank_find(struct look *look, int32_t rank)
{
    for (int i = 0; i < look->count; i++)
        if (look->ranks[i].rank == rank)
            return &look->ranks[i];
    return NULL;
}

static struct look_rank *rank_add(struct look *look, int32_t rank, bool is_missing)
{
    struct look_rank *r = rank_find(look, rank);
    int *count = is_missing ? &look->missing_count : &look->waiting_count;
    if (r != NULL || *count >= (is_missing ? SUSPECTS_MAX : WAITERS_MAX))
        return r;
    r = &look->ranks[look->count++];
    *r = (struct look_rank){.rank = rank, .is_missing = is_missing};
    (*count)++;
    return r;
}

/* "0-2,5": adds those that fit. */
static void waiters_add(const struct job *job, struct look *look)
{
    const char *at = look->waiters;
    while (*at >= '0' && *at <= '9') {
        char *end = NULL;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long r = first; r <= last && r < look_size(job) && look->waiting_count < WAITERS_MAX;
             r++)
            rank_add(look, (int32_t)r, false);
        at = *end == ',' ? end + 1 : "";
    }
}

/* "0,2,3" */
static void list_add_rank(char text[LIST_BYTES], int32_t rank)
{
    size_t used = strlen(text);
    if (used + 16 < LIST_BYTES)
        snprintf(text + used, LIST_BYTES - used, "%s%d", used > 0 ? "," : "", rank);
}

static void missing_text(const struct look *look, char ret[LIST_BYTES])
{
    ret[0] = '\0';
    for (int i = 0; i < look->count; i++)
        if (look->ranks[i].is_missing)
            list_add_rank(ret, look->ranks[i].rank);
}

/* ---- receiving a report ---- */

static void clear(struct look *look)
{
    mem_destroy(&look->mem);
    look->is_open = look->is_asked = false;
    look->count = look->missing_count = look->waiting_count = 0;
    look->op = look->waiters = NULL;
    look->number++; /* answers that come later are to an old question */
}

static struct look *look_of(struct job *job)
{
    if (job->look == NULL) {
        job->look = mem_alloc(job->mem, sizeof *job->look);
        mem_init(&job->look->mem, job->os);
    }
    return job->look;
}

static bool is_known(const struct look *look, int64_t now_ns)
{
    char missing[LIST_BYTES];
    missing_text(look, missing);
    if (look->printed_ns == 0 || strcmp(missing, look->printed_missing) != 0)
        return false;
    return strcmp(look->op, look->printed_op) == 0 || now_ns - look->printed_ns < AGAIN_NS;
}

static void ask_host(struct job *job, struct look *look, struct host_run *run)
{
    uint32_t indexes[WAITERS_MAX + SUSPECTS_MAX], count = 0;
    for (int i = 0; i < look->count; i++) {
        struct host_run *of = NULL;
        uint32_t index = 0;
        if (look_seat(job, look->ranks[i].rank, &of, &index) && of == run)
            indexes[count++] = index;
    }
    fleet_send_look(job, run, look->number, LOOK_STACK, indexes, count);
}

static void ask(struct job *job, struct look *look, int64_t now_ns)
{
    if (is_known(look, now_ns)) {
        clear(look);
        return;
    }
    waiters_add(job, look);
    look->is_asked = true;
    look->until_ns = now_ns + ANSWER_NS;
    for (int32_t i = 0; i < job->run_count; i++)
        ask_host(job, look, &job->runs[i]);
}

static void open_report(struct job *job, struct look *look, const struct cause *cause)
{
    clear(look);
    mem_init(&look->mem, job->os);
    look->is_open = true;
    look->reporter = cause->rank;
    look->until_ns = os_now_ns(job->os) + REPORT_NS;
    look->op = mem_copy(&look->mem, cause->text);
    look->waiters = mem_copy(&look->mem, "");
    look->op_count = cause->count;
    look->waited_ms = cause->waited_ms;
}

void look_cause(struct job *job, const struct cause *cause)
{
    struct look *look = look_of(job);
    struct look_rank *r = NULL;
    if (cause->kind == CAUSE_STALL && !look->is_open && !job->is_stopping)
        open_report(job, look, cause);
    if (!look->is_open || look->is_asked || look->reporter != cause->rank)
        return;
    if (cause->culprit >= 0)
        r = rank_add(look, cause->culprit, true);
    if (cause->kind == CAUSE_WAITS) {
        look->waiters = mem_copy(&look->mem, cause->text);
    } else if (cause->kind == CAUSE_MISSING && r != NULL) {
        r->behind = cause->count;
        r->behind_name = mem_copy(&look->mem, cause->text);
    } else if (cause->kind == CAUSE_AHEAD && r != NULL) {
        r->ahead = cause->count;
        r->ahead_name = mem_copy(&look->mem, cause->text);
    } else if (cause->kind == CAUSE_LOOK) {
        ask(job, look, os_now_ns(job->os));
    }
}

void look_answer(struct job *job, const struct host_run *run, struct reader *r)
{
    struct look *look = look_of(job);
    uint32_t number = get_u32(r), index = get_u32(r);
    for (int i = 0; i < look->count && look->is_asked && number == look->number; i++) {
        struct look_rank *rank = &look->ranks[i];
        struct host_run *of = NULL;
        uint32_t seat = 0;
        if (rank->has_answered || !look_seat(job, rank->rank, &of, &seat) || of != run ||
            seat != index)
            continue;
        rank->pid = (int32_t)get_u32(r);
        rank->state = message_get_text(&look->mem, r);
        rank->where = message_get_text(&look->mem, r);
        rank->inner = message_get_text(&look->mem, r);
        rank->inside = message_get_text(&look->mem, r);
        rank->frames = message_get_text(&look->mem, r);
        rank->is_inside = get_u8(r) != 0;
        rank->has_answered = !r->bad;
        return;
    }
}

/* ---- printing ---- */

static const char *host_of(const struct job *job, int32_t rank)
{
    struct host_run *run = NULL;
    uint32_t index = 0;
    return look_seat(job, rank, &run, &index) ? run->host->name : "an unknown host";
}

static const char *waits_at(const struct look_rank *r)
{
    if (!r->has_answered)
        return "";
    if (r->inside[0] != '\0')
        return r->inside;
    return r->where[0] != '\0' ? r->where : r->inner;
}

/* One line for all ranks that wait at the same place. */
static void print_waiting(struct job *job, struct look *look, int first)
{
    const char *where = waits_at(&look->ranks[first]);
    char ranks[LIST_BYTES] = "";
    for (int i = 0; i < look->count; i++) {
        const struct look_rank *r = &look->ranks[i];
        if (r->is_missing || strcmp(waits_at(r), where) != 0)
            continue;
        if (i < first)
            return; /* is in that one's line */
        list_add_rank(ranks, r->rank);
    }
    bool is_one = strchr(ranks, ',') == NULL;
    output_say(&job->output, 2, "  rank%s %s submitted it and wait%s%s%s", is_one ? "" : "s", ranks,
               is_one ? "s" : "", where[0] != '\0' ? " at " : "", where);
}

const struct rank_run *look_end(const struct job *job, int32_t rank)
{
    if (job->elastic != NULL || !job->generation.ranks[rank].is_ended)
        return NULL;
    return &job->generation.ranks[rank];
}

/* "is sleeping in futex_wait at loader.py:12 in fetch" */
static void describe(const struct job *job, const struct look_rank *r, char *ret, size_t bytes)
{
    const struct rank_run *end = look_end(job, r->rank);
    if (end != NULL && end->code == 0 && end->signal == 0) {
        snprintf(ret, bytes, "exited normally (code 0)");
    } else if (end != NULL) {
        report_describe_end(end, ret, bytes);
    } else if (!r->has_answered) {
        snprintf(ret, bytes, "is unreachable: the agent on its host has not answered");
    } else {
        const char *where = r->where[0] != '\0' ? r->where : r->inner;
        bool is_deeper = r->where[0] != '\0' && r->inner[0] != '\0' && !r->is_inside;
        snprintf(ret, bytes, "%s%s%s%s%s%s", r->is_inside ? "waits in Horovod" : r->state,
                 where[0] != '\0' ? " at " : "", where, is_deeper ? " (in " : "",
                 is_deeper ? r->inner : "", is_deeper ? ")" : "");
    }
}

static void print_frames(struct job *job, const struct look_rank *r)
{
    const char *at = r->has_answered ? r->frames : "";
    for (size_t n = strcspn(at, "\n"); n > 0; n = strcspn(at, "\n")) {
        output_say(&job->output, 2, "      %.*s", (int)n, at);
        at += n + (at[n] != '\0');
    }
}

static void print_missing(struct job *job, const struct look_rank *r)
{
    char doing[1024], pid[32] = "";
    describe(job, r, doing, sizeof doing);
    if (r->has_answered)
        snprintf(pid, sizeof pid, " (pid %d)", r->pid);
    output_say(&job->output, 2, "  rank %d on %s%s is missing: it %s", r->rank,
               host_of(job, r->rank), pid, doing);
    if (r->behind < 0)
        output_say(&job->output, 2, "    It sends nothing at all.");
    else if (r->behind > 0)
        output_say(&job->output, 2,
                   "    It is %lld collective%s behind: the first that it has not submitted is %s.",
                   (long long)r->behind, r->behind == 1 ? "" : "s", r->behind_name);
    if (r->ahead > 0)
        output_say(&job->output, 2,
                   "    Instead it has submitted %s, which the ranks that wait have not.",
                   r->ahead_name);
    print_frames(job, r);
}

static void print(struct job *job, struct look *look, int64_t now_ns)
{
    char missing[LIST_BYTES], more[64] = "";
    missing_text(look, missing);
    if (look->op_count > 1)
        snprintf(more, sizeof more, " (and %lld more wait)", (long long)(look->op_count - 1));
    output_say(&job->output, 2, "horovodrun: stall: %s has waited %.1f s for rank %s%s.", look->op,
               (double)look->waited_ms / 1e3, missing, more);
    for (int i = 0; i < look->count; i++)
        if (!look->ranks[i].is_missing)
            print_waiting(job, look, i);
    for (int i = 0; i < look->count; i++)
        if (look->ranks[i].is_missing)
            print_missing(job, &look->ranks[i]);
    look->printed_ns = now_ns;
    snprintf(look->printed_op, sizeof look->printed_op, "%s", look->op);
    snprintf(look->printed_missing, sizeof look->printed_missing, "%s", missing);
}

static bool is_complete(const struct job *job, const struct look *look)
{
    for (int i = 0; i < look->count; i++)
        if (!look->ranks[i].has_answered && look_end(job, look->ranks[i].rank) == NULL)
            return false;
    return true;
}

void look_tick(struct job *job, int64_t now_ns)
{
    struct look *look = job->look;
    if (look == NULL || !look->is_open)
        return;
    bool is_late = now_ns >= look->until_ns;
    if (look->is_asked && (is_late || is_complete(job, look))) {
        print(job, look, now_ns);
        clear(look);
    } else if (is_late) {
        clear(look);
    }
}

int64_t look_next_ns(const struct job *job)
{
    return job->look != NULL && job->look->is_open ? job->look->until_ns : INT64_MAX;
}

void look_destroy(struct job *job)
{
    if (job->look != NULL)
        mem_destroy(&job->look->mem);
}
