/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - see doctor.h. Starts an agent on every host, as a job would, and then asks in turn:
 *   clock    how far is its wall clock from ours?
 *   network  which of its addresses can its neighbour reach, how fast? (a ring over the hosts)
 *   python   which versions of Python and of the packages does it have? (dials back first)
 * A host that fails one step is left out of the next; the verdict names every problem.
 * Thread: the launcher's loop.  Start reading at doctor_run(). */
#include "doctor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "spawn.h"

#define STEP_LIMIT_NS  (20 * JOB_NS_PER_S)
#define CLOCK_LIMIT_US 1000000.0 /* logs and time-outs of one job should tell the same story */
#define RATE_LOW       1.0e8     /* bytes per second: below a full gigabit */
#define EVENTS_MAX     16
#define ANSWER_MAX     4096

enum doctor_step { STEP_CLOCK, STEP_SERVE, STEP_DIAL, STEP_PYTHON };

struct patient {
    bool is_lost, has_answered;
    double clock_us, round_trip_us;
    char *addresses;
    char *good, *bad;
    double rate, trip_us;
    uint32_t mtu_here, mtu_there;
    struct bytes python;
};

struct doctor {
    struct job *job;
    struct patient *patients; /* one per run */
    struct list problems, remarks;
};

static const char python_question[] =
    "import sys, importlib.metadata as m\n"
    "def v(n):\n"
    "    try:\n"
    "        return m.version(n)\n"
    "    except Exception:\n"
    "        return 'none'\n"
    "print(' '.join(['python', sys.version.split()[0]] + [x for n in ('horovod', 'torch', "
    "'tensorflow', 'jax', 'numpy') for x in (n, v(n))]))\n";

static struct patient *patient_of(struct doctor *d, const struct host_run *run)
{
    return &d->patients[run - d->job->runs];
}

static void problem(struct doctor *d, const char *host, const char *text)
{
    list_add(d->job->mem, &d->problems, mem_format(d->job->mem, "%s: %s", host, text));
}

/* ---- what the agents answer ---- */

static void on_failure(struct job *job, const struct host_run *run, const char *text)
{
    struct doctor *d = job->hook_arg;
    patient_of(d, run)->is_lost = true;
    problem(d, run->host->name, text);
}

static void on_answer(struct job *job, struct host_run *run, enum message_type type,
                      struct reader *r)
{
    struct doctor *d = job->hook_arg;
    struct patient *p = patient_of(d, run);
    if (type == MESSAGE_PONG) {
        uint64_t sent_ns = get_u64(r);
        if (sent_ns == 0)
            return; /* answers a sign of life */
        int64_t trip_ns = os_now_ns(job->os) - (int64_t)sent_ns;
        double theirs_us = (double)get_i64(r);
        p->round_trip_us = (double)trip_ns / 1000.0;
        p->clock_us = theirs_us - ((double)job->os->wall_us(job->os->ctx) - p->round_trip_us / 2.0);
    } else if (type == MESSAGE_SERVING) {
        p->addresses = message_get_text(job->mem, r);
    } else if (type == MESSAGE_MEASURED) {
        p->good = message_get_text(job->mem, r);
        p->bad = message_get_text(job->mem, r);
        p->trip_us = get_f64(r);
        p->rate = get_f64(r);
        p->mtu_here = get_u32(r);
        p->mtu_there = get_u32(r);
    } else if (type == MESSAGE_OUTPUT) {
        get_u32(r);
        get_u8(r);
        if (!r->bad && bytes_used(&p->python) + r->size - r->at < ANSWER_MAX)
            bytes_add(job->os, &p->python, r->bytes + r->at, r->size - r->at);
        return;
    } else if (type != MESSAGE_EXIT) {
        return;
    }
    p->has_answered = true;
}

/* ---- asking and waiting ---- */

static void turn(struct job *job)
{
    struct os_event events[EVENTS_MAX];
    fleet_ping(job, os_now_ns(job->os));
    fleet_flush(job);
    int n = job->os->poll_wait(job->os->ctx, job->poll_fd, events, EVENTS_MAX, 50 * JOB_NS_PER_MS);
    for (int i = 0; i < n; i++) {
        const struct job_tag *tag = events[i].tag;
        if (tag->kind == JOB_TAG_SIGNALS)
            supervise_signals(job);
        else if (tag->kind != JOB_TAG_STORE && tag->kind != JOB_TAG_OUTPUT)
            fleet_event(job, tag);
    }
    if (job->store != NULL)
        store_server_progress(job->store, os_now_ns(job->os));
    fleet_retry(job);
}

static bool is_pending(struct doctor *d, bool is_about_hello)
{
    for (int32_t i = 0; i < d->job->run_count; i++) {
        const struct host_run *run = &d->job->runs[i];
        const struct patient *p = &d->patients[i];
        if (!p->is_lost && (is_about_hello ? run->stage < HOST_UP : !p->has_answered))
            return true;
    }
    return false;
}

static void wait_for(struct doctor *d, bool is_about_hello, const char *what, int64_t limit_ns)
{
    struct job *job = d->job;
    int64_t deadline_ns = os_now_ns(job->os) + limit_ns;
    while (is_pending(d, is_about_hello) && !job->is_stopping && os_now_ns(job->os) < deadline_ns)
        turn(job);
    for (int32_t i = 0; i < job->run_count; i++) {
        struct patient *p = &d->patients[i];
        bool is_missing = is_about_hello ? job->runs[i].stage < HOST_UP : !p->has_answered;
        if (p->is_lost || !is_missing)
            continue;
        p->is_lost = true;
        problem(d, job->runs[i].host->name, what);
    }
}

static void begin_step(struct doctor *d)
{
    for (int32_t i = 0; i < d->job->run_count; i++)
        d->patients[i].has_answered = false;
}

static void ask_clock(struct doctor *d)
{
    begin_step(d);
    for (int32_t i = 0; i < d->job->run_count; i++) {
        if (d->patients[i].is_lost)
            continue;
        message_begin(&d->job->runs[i].link, MESSAGE_PING);
        message_u64(&d->job->runs[i].link, (uint64_t)os_now_ns(d->job->os));
        message_end(&d->job->runs[i].link);
    }
    wait_for(d, false, "did not answer a question about its clock", STEP_LIMIT_NS);
}

static void ask_serve(struct doctor *d)
{
    begin_step(d);
    for (int32_t i = 0; i < d->job->run_count; i++) {
        if (d->patients[i].is_lost)
            continue;
        message_begin(&d->job->runs[i].link, MESSAGE_SERVE);
        message_raw(&d->job->runs[i].link, d->job->key, sizeof d->job->key);
        message_end(&d->job->runs[i].link);
    }
    wait_for(d, false, "could not listen on its addresses", STEP_LIMIT_NS);
}

static int32_t neighbour(const struct doctor *d, int32_t from)
{
    for (int32_t k = 1; k < d->job->run_count; k++) {
        int32_t to = (from + k) % d->job->run_count;
        if (!d->patients[to].is_lost && d->patients[to].addresses != NULL)
            return to;
    }
    return -1;
}

/* One pair after the other, so that they do not share a wire while it is measured. */
static void ask_dial(struct doctor *d)
{
    for (int32_t i = 0; i < d->job->run_count; i++) {
        int32_t to = neighbour(d, i);
        if (d->patients[i].is_lost || to < 0)
            continue;
        for (int32_t k = 0; k < d->job->run_count; k++)
            d->patients[k].has_answered = k != i;
        struct link *l = &d->job->runs[i].link;
        message_begin(l, MESSAGE_DIAL);
        message_raw(l, d->job->key, sizeof d->job->key);
        message_text(l, d->patients[to].addresses);
        message_end(l);
        wait_for(d, false, "did not finish measuring the network", 3 * STEP_LIMIT_NS);
    }
}

static void ask_python(struct doctor *d)
{
    struct job *job = d->job;
    struct error error;
    error_clear(&error);
    begin_step(d);
    if (rendezvous_open(job, &error) != HVD_OK) {
        list_add(job->mem, &d->problems, mem_copy(job->mem, error.text));
        return;
    }
    list_add(job->mem, &job->command, mem_copy(job->mem, "python3"));
    list_add(job->mem, &job->command, mem_copy(job->mem, "-c"));
    list_add(job->mem, &job->command, mem_copy(job->mem, python_question));
    for (int32_t i = 0; i < job->run_count; i++)
        job->runs[i].rank_count = 1;
    fleet_send_start(job);
    wait_for(d, false, "did not run python3", STEP_LIMIT_NS);
}

/* ---- findings ---- */

/* Small messages pass and large ones are lost: nearly always packets that are too large for
 * something on the way that does not say so. */
static void tell_packets(struct doctor *d, int32_t i, int32_t to)
{
    struct job *job = d->job;
    const struct patient *p = &d->patients[i];
    const char *name = job->runs[i].host->name, *other = job->runs[to].host->name;
    if (p->rate == 0)
        problem(d, name,
                mem_format(job->mem,
                           "reaches %s, but bulk data does not get through (packets of up to %u "
                           "bytes there, %u back; is the MTU too large for the way?)",
                           other, p->mtu_here, p->mtu_there));
    else if (p->rate < RATE_LOW)
        list_add(
            job->mem, &d->remarks,
            mem_format(job->mem, "%s to %s: only %.2f Gbit/s", name, other, p->rate * 8.0 / 1e9));
    if (p->mtu_here != p->mtu_there && p->mtu_here != 0 && p->mtu_there != 0)
        list_add(job->mem, &d->remarks,
                 mem_format(job->mem,
                            "%s and %s have different MTUs on their way: %u and %u bytes; set both "
                            "alike",
                            name, other, p->mtu_here, p->mtu_there));
}

static void tell_host(struct doctor *d, int32_t i)
{
    struct job *job = d->job;
    const struct patient *p = &d->patients[i];
    const char *name = job->runs[i].host->name;
    if (job->runs[i].ssh_peer == NULL) {
        printf("%s: not reached\n", name);
        return;
    }
    printf("%s: %s ok, round trip %.1f ms, clock %+.3f s\n", name,
           job->runs[i].is_local ? "agent" : "ssh", p->round_trip_us / 1000.0, p->clock_us / 1e6);
    if (fabs(p->clock_us) - p->round_trip_us > CLOCK_LIMIT_US)
        problem(d, name,
                mem_format(job->mem, "its clock is off by %.1f s; run NTP", p->clock_us / 1e6));
    int32_t to = neighbour(d, i);
    if (p->good != NULL && to >= 0) {
        printf("    to %s: reaches %s%s%s; %.0f us, %.2f Gbit/s, MTU %u\n",
               job->runs[to].host->name, p->good[0] == '\0' ? "nothing" : p->good,
               p->bad[0] == '\0' ? "" : ", not ", p->bad, p->trip_us, p->rate * 8.0 / 1e9,
               p->mtu_here);
        if (p->good[0] == '\0')
            problem(d, name,
                    mem_format(job->mem, "cannot reach %s on any of %s (firewall? wrong network?)",
                               job->runs[to].host->name, p->bad));
        else
            tell_packets(d, i, to);
    }
    if (bytes_used(&p->python) > 0)
        printf("    %.*s\n", (int)strcspn((const char *)bytes_at(&p->python), "\n"),
               (const char *)bytes_at(&p->python));
}

static void compare_versions(struct doctor *d)
{
    int32_t first = -1;
    for (int32_t i = 0; i < d->job->run_count; i++) {
        const struct bytes *mine = &d->patients[i].python;
        if (bytes_used(mine) == 0)
            continue;
        if (first < 0) {
            first = i;
            continue;
        }
        const struct bytes *other = &d->patients[first].python;
        if (bytes_used(mine) != bytes_used(other) ||
            memcmp(bytes_at(mine), bytes_at(other), bytes_used(mine)) != 0)
            problem(d, d->job->runs[i].host->name,
                    mem_format(d->job->mem, "has other package versions than %s",
                               d->job->runs[first].host->name));
    }
}

static int tell(struct doctor *d)
{
    for (int32_t i = 0; i < d->job->run_count; i++) {
        bytes_add(d->job->os, &d->patients[i].python, "", 1); /* ends it as text */
        d->patients[i].python.end--;
        tell_host(d, i);
    }
    compare_versions(d);
    for (size_t i = 0; i < d->remarks.count; i++)
        printf("note: %s\n", d->remarks.items[i]);
    for (size_t i = 0; i < d->problems.count; i++)
        printf("problem: %s\n", d->problems.items[i]);
    if (d->problems.count == 0)
        printf("verdict: fit for a job (%d host%s)\n", d->job->run_count,
               d->job->run_count == 1 ? "" : "s");
    else
        printf("verdict: NOT fit: %zu problem%s\n", d->problems.count,
               d->problems.count == 1 ? "" : "s");
    return d->problems.count == 0 ? 0 : 1;
}

int doctor_run(struct job *job)
{
    struct doctor d = {.job = job};
    struct error error;
    error_clear(&error);
    job->hook_arg = &d;
    job->on_answer = on_answer;
    job->on_failure = on_failure;
    int code = 1;
    job->command = (struct list){0};
    if (supervise_open(job, &error) == HVD_OK) {
        d.patients = mem_alloc(job->mem, (size_t)job->run_count * sizeof *d.patients);
        fleet_start(job);
        wait_for(&d, true, "did not come up (ssh has not connected)",
                 job->args->start_timeout_s.value * JOB_NS_PER_S);
        ask_clock(&d);
        ask_serve(&d);
        ask_dial(&d);
        ask_python(&d);
        code = tell(&d);
        fleet_send_stop(job, 0);
    } else {
        fprintf(stderr, "horovodrun: %s\n", error.text);
    }
    supervise_close(job);
    for (int32_t i = 0; d.patients != NULL && i < job->run_count; i++)
        bytes_free(job->os, &d.patients[i].python);
    return code;
}
