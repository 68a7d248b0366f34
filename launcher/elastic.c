/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c - see elastic.h. Host i of the policy is job->runs[i]; worker i of the policy is entry
 * i of job->output. A worker is called "HOST.NUMBER" by the store and in its environment. */
#include "elastic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "discovery.h"
#include "env.h"
#include "look.h"
#include "policy.h"
#include "run_func.h"
#include "wire/cause.h"

#define HOSTS_MAX           HOSTS_COUNT_MAX
#define DISCOVERY_PERIOD_NS JOB_NS_PER_S
#define DISCOVERY_LIMIT_S   30
#define SILENT_S            10
#define SILENT_MIN_S        2
#define REGROUP_S           60
#define BLAME_MS            500
#define COOLDOWN_MAX_S      3600
#define WORKER_TEXT         (STORE_WORKER_MAX + 1)

struct elastic_host {
    struct host host;
    int64_t opened_ns;
    bool is_wanted;      /* to be opened as soon as its last agent is gone */
    bool is_told;        /* the policy knows that it is up */
    bool is_to_drop;     /* its agent is of no use any more */
    const char *trouble; /* why */
};

struct elastic {
    struct job *job;
    struct policy policy;
    struct policy_ops ops;
    struct discovery discovery;
    struct job_tag discovery_tag;
    struct elastic_host *hosts;
    bool has_script, has_found;
    bool is_failing; /* the script's last run was of no use */
    bool has_said_twice;
    uint64_t store_changes;
    uint64_t cause_count;
    struct mem cause_mem;   /* of the two below: another failure may become the first one */
    struct list last_lines; /* of the worker that failed first */
    char *cause_label;
};

/* ---- the command line ---- */

hvd_status_t elastic_check(const struct args *args, struct error *error)
{
    int64_t low = args->min_num_proc.is_set ? args->min_num_proc.value : args->num_proc.value;
    if (args->min_num_proc.is_set && low < 1)
        return error_set(error, HVD_ERR_INVALID, "--min-np must be at least 1");
    if (args->num_proc.is_set && low > args->num_proc.value)
        return error_set(error, HVD_ERR_INVALID, "--min-np %" PRId64 " is over -np %" PRId64, low,
                         args->num_proc.value);
    if (args->max_num_proc.is_set && args->max_num_proc.value < low)
        return error_set(error, HVD_ERR_INVALID, "--max-np %" PRId64 " is under --min-np %" PRId64,
                         args->max_num_proc.value, low);
    if (args->max_num_proc.is_set && args->num_proc.is_set &&
        args->max_num_proc.value < args->num_proc.value)
        return error_set(error, HVD_ERR_INVALID, "--max-np %" PRId64 " is under -np %" PRId64,
                         args->max_num_proc.value, args->num_proc.value);
    if (args->slots_per_host.is_set && args->slots_per_host.value < 1)
        return error_set(error, HVD_ERR_INVALID, "--slots-per-host must be at least 1");
    if (args->spares.is_set && (args->spares.value < 0 || args->spares.value > HOSTS_SLOTS_MAX))
        return error_set(error, HVD_ERR_INVALID, "--spares must be between 0 and %d",
                         HOSTS_SLOTS_MAX);
    if (args->reset_limit.is_set && args->reset_limit.value < 0)
        return error_set(error, HVD_ERR_INVALID, "--reset-limit must not be negative");
    if (args->cooldown_low_s.is_set &&
        (args->cooldown_low_s.value < 1 || args->cooldown_high_s.value > COOLDOWN_MAX_S ||
         args->cooldown_high_s.value < args->cooldown_low_s.value))
        return error_set(error, HVD_ERR_INVALID,
                         "--blacklist-cooldown-range needs 1 <= LOW <= HIGH <= %d", COOLDOWN_MAX_S);
    if (args->use_mpi || args->use_jsrun)
        return error_set(error, HVD_ERR_INVALID,
                         "an elastic job can't be started with %s; leave it out",
                         args->use_mpi ? "--mpi" : "--jsrun");
    return HVD_OK;
}

static int64_t hung_seconds(const struct job *job)
{
    const char *text = list_get(&job->assignments, "HOROVOD_HUNG_ERROR_SECONDS");
    if (text == NULL)
        text = job->os->env(job->os->ctx, "HOROVOD_HUNG_ERROR_SECONDS");
    int64_t seconds = text != NULL ? strtoll(text, NULL, 10) : SILENT_S;
    return seconds < SILENT_MIN_S ? SILENT_MIN_S : seconds > REGROUP_S ? REGROUP_S : seconds;
}

static struct policy_options options_of(const struct job *job)
{
    const struct args *a = job->args;
    int64_t np = a->num_proc.value;
    int64_t max = a->max_num_proc.is_set ? a->max_num_proc.value : HOSTS_SLOTS_MAX;
    return (struct policy_options){
        .np = (int32_t)np,
        .min_np = (int32_t)(a->min_num_proc.is_set ? a->min_num_proc.value : np),
        .max_np = (int32_t)(max < HOSTS_SLOTS_MAX ? max : HOSTS_SLOTS_MAX),
        .spares = a->spares.is_set ? (int32_t)a->spares.value : 0,
        .reset_limit = a->reset_limit.is_set && a->reset_limit.value < INT32_MAX
                           ? (int32_t)a->reset_limit.value
                           : -1,
        .is_fixed = a->host_discovery_script == NULL,
        .has_cooldown = a->cooldown_low_s.is_set,
        .cooldown_low_s = a->cooldown_low_s.value,
        .cooldown_high_s = a->cooldown_high_s.value,
        .timeout_ns = a->elastic_timeout_s.value * JOB_NS_PER_S,
        .silent_ns = hung_seconds(job) * JOB_NS_PER_S,
        .regroup_ns = REGROUP_S * JOB_NS_PER_S,
        .blame_ns = BLAME_MS * JOB_NS_PER_MS,
        .halt_ns = JOB_GRACE_MS * JOB_NS_PER_MS,
    };
}

/* ---- hosts ---- */

static struct host_run *run_of(struct elastic *e, int32_t host)
{
    return &e->job->runs[host];
}

static bool is_local_host(struct job *job, struct host *host)
{
    bool is_local = false;
    struct mem scratch;
    struct hosts one = {.items = host, .count = 1};
    if (job->args->rsh_agent != NULL)
        return false;
    mem_init(&scratch, job->os);
    locality_mark_hosts(&job->locality, job->os, &scratch, &one, &is_local);
    mem_destroy(&scratch);
    return is_local;
}

/* Those that the policy has come to know since; false: more than we can hold. */
static bool learn_hosts(struct elastic *e, const struct hosts *found)
{
    struct job *job = e->job;
    for (int32_t i = job->run_count; i < e->policy.host_count; i++) {
        struct elastic_host *h = &e->hosts[i];
        for (int32_t k = 0; k < found->count; k++)
            if (strcmp(found->items[k].name, e->policy.hosts[i].name) == 0)
                h->host = (struct host){.name = mem_copy(job->mem, found->items[k].name),
                                        .address = mem_copy(job->mem, found->items[k].address),
                                        .slots = found->items[k].slots};
        job->runs[i] = (struct host_run){.host = &h->host,
                                         .is_local = is_local_host(job, &h->host),
                                         .stage = HOST_GONE,
                                         .err_fd = -1,
                                         .link = {.in_fd = -1, .out_fd = -1}};
        job->run_count++;
    }
    return true;
}

static void take_hosts(struct elastic *e, const struct hosts *found)
{
    struct policy_listed *list = os_alloc(e->job->os, (size_t)(found->count + 1) * sizeof *list);
    int32_t known = e->policy.host_count;
    if (list == NULL)
        return;
    int32_t count = 0;
    for (int32_t i = 0; i < found->count; i++)
        if (known + i < HOSTS_MAX)
            list[count++] = (struct policy_listed){found->items[i].name, found->items[i].slots};
    policy_hosts(&e->policy, list, count);
    learn_hosts(e, found);
    os_free(e->job->os, list);
}

static void op_open_host(void *ctx, int32_t host)
{
    struct elastic *e = ctx;
    e->hosts[host].is_wanted = true;
    e->hosts[host].is_told = false;
    e->hosts[host].trouble = NULL;
    e->hosts[host].opened_ns = e->policy.now_ns;
}

static void op_close_host(void *ctx, int32_t host)
{
    struct elastic *e = ctx;
    e->hosts[host].is_wanted = e->hosts[host].is_told = false;
    fleet_stop_host(e->job, run_of(e, host), 0);
}

/* The fleet's trouble with a host is not the end of the job. */
static void on_failure(struct job *job, const struct host_run *run, const char *text)
{
    struct elastic_host *h = &job->elastic->hosts[run - job->runs];
    h->trouble = mem_copy(job->mem, text);
    h->is_to_drop = true;
}

static void host_went(struct elastic *e, int32_t host)
{
    struct elastic_host *h = &e->hosts[host];
    h->is_told = false;
    policy_host_down(&e->policy, host, h->trouble != NULL ? h->trouble : "its agent has ended");
    h->trouble = NULL;
}

static void host_begin(struct elastic *e, int32_t host)
{
    struct error error = {0};
    struct host_run *run = run_of(e, host);
    if (rendezvous_open_for(e->job, run, &error) != HVD_OK) {
        on_failure(e->job, run, error.text);
        return;
    }
    fleet_send_start_to(e->job, run);
    fleet_send_notice(e->job, &e->policy.notice);
}

static void tend_host(struct elastic *e, int32_t host, int64_t now_ns)
{
    struct elastic_host *h = &e->hosts[host];
    struct host_run *run = run_of(e, host);
    int64_t limit_ns = h->opened_ns + e->job->args->start_timeout_s.value * JOB_NS_PER_S;
    enum policy_host_state state = e->policy.hosts[host].state;
    if (h->is_to_drop) {
        h->is_to_drop = false;
        fleet_drop_host(e->job, run);
    }
    if (h->is_wanted && run->stage == HOST_GONE) {
        h->is_wanted = false;
        fleet_start_host(e->job, run);
        fleet_retry(e->job);
        return;
    }
    if (run->stage == HOST_UP)
        host_begin(e, host);
    if (run->stage == HOST_RUNNING && !h->is_told && state == POLICY_HOST_OPENING) {
        h->is_told = true;
        policy_host_up(&e->policy, host);
    }
    if (run->stage == HOST_GONE && !h->is_wanted && state != POLICY_HOST_CLOSED) {
        host_went(e, host);
    } else if (state == POLICY_HOST_OPENING && run->stage < HOST_RUNNING && now_ns >= limit_ns) {
        char text[512];
        ladder_describe(e->job, run, text, sizeof text);
        on_failure(e->job, run,
                   mem_format(e->job->mem, "not up after %lld s (--start-timeout): %s",
                              (long long)e->job->args->start_timeout_s.value, text));
    }
}

/* ---- workers ---- */

static void worker_name(const struct policy *p, int32_t worker, char ret_name[WORKER_TEXT])
{
    snprintf(ret_name, WORKER_TEXT, "%d.%u", p->workers[worker].host, p->workers[worker].index);
}

static int32_t worker_of_name(const struct policy *p, const char *name)
{
    char *end = NULL, again[WORKER_TEXT];
    long host = strtol(name, &end, 10);
    if (*end != '.' || host < 0 || host >= p->host_count)
        return -1;
    unsigned long index = strtoul(end + 1, &end, 10);
    int32_t worker = index <= UINT32_MAX ? policy_find(p, (int32_t)host, (uint32_t)index) : -1;
    if (worker < 0)
        return -1;
    worker_name(p, worker, again);
    return strcmp(again, name) == 0 ? worker : -1;
}

static int32_t count_live(const struct policy *p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->worker_count; i++)
        count += p->workers[i].state != POLICY_NONE && p->workers[i].slot >= 0 &&
                 p->workers[i].state <= POLICY_MEMBER;
    return count;
}

/* Before it knows better, a worker is told the place that it is likely to have. */
static struct slot likely_place(struct elastic *e, int32_t worker)
{
    const struct policy *p = &e->policy;
    const struct policy_worker *w = &p->workers[worker];
    int32_t size = 0, hosts = 0, before = 0, slots_before = 0;
    for (int32_t i = 0; i < p->host_count; i++) {
        if (!p->hosts[i].is_listed)
            continue;
        bool is_before = p->hosts[i].order < p->hosts[w->host].order;
        size += p->hosts[i].listed_slots;
        hosts++;
        before += is_before;
        slots_before += is_before ? p->hosts[i].listed_slots : 0;
    }
    int32_t rank = size;
    if (w->slot >= 0) /* hosts come up in any order, but ranks follow that of discovery */
        rank = p->epoch == 0 ? slots_before + w->slot : count_live(p) - 1;
    int32_t local_size = p->hosts[w->host].listed_slots;
    if (size > p->options.max_np)
        size = p->options.max_np;
    if (rank >= size)
        size = rank + 1;
    return (struct slot){.rank = rank,
                         .size = size,
                         .local_rank = policy_local_rank(p, worker),
                         .local_size = local_size < size ? local_size : size,
                         .cross_rank = before,
                         .cross_size = hosts > before ? hosts : before + 1};
}

static void open_output(struct elastic *e, int32_t worker, const char *name, int32_t rank)
{
    struct job *job = e->job;
    struct error error = {0};
    char label[OUTPUT_LABEL_MAX];
    bool is_first =
        e->policy.epoch == 0 && e->policy.workers[worker].slot >= 0 && !e->policy.has_seen_room;
    output_grow(&job->output, job->mem, worker + 1);
    output_renew_rank(&job->output, worker);
    if (is_first)
        snprintf(label, sizeof label, "%d", rank);
    else
        snprintf(label, sizeof label, "%.30s", name);
    output_label(&job->output, worker, label);
    if (job->args->output_filename == NULL)
        return;
    struct mem scratch;
    mem_init(&scratch, job->os);
    char *folder = mem_format(&scratch, is_first ? "%s/rank.%s" : "%s/worker.%s",
                              job->args->output_filename, label);
    if (output_open_rank(&job->output, &scratch, worker, folder, &error) != HVD_OK)
        output_say(&job->output, 2, "horovodrun: %s", error.text);
    mem_destroy(&scratch);
}

static void op_spawn(void *ctx, int32_t worker)
{
    struct elastic *e = ctx;
    struct mem scratch;
    struct list env = {0};
    char name[WORKER_TEXT];
    const struct policy_worker *w = &e->policy.workers[worker];
    struct slot place = likely_place(e, worker);
    worker_name(&e->policy, worker, name);
    open_output(e, worker, name, place.rank);
    mem_init(&scratch, e->job->os);
    env_rank(&scratch, &place, e->hosts[w->host].host.name, &env);
    list_set(&scratch, &env, "HOROVOD_WORKER", name);
    list_set(&scratch, &env, "HOROVOD_EPOCH", "0");
    fleet_spawn_worker(e->job, run_of(e, w->host), w->index, &env);
    mem_destroy(&scratch);
    if (job_is_verbose(e->job))
        output_say(&e->job->output, 2, "horovodrun: worker %s is started on %s%s", name,
                   e->hosts[w->host].host.name, w->slot < 0 ? " as a spare" : "");
}

static void op_halt(void *ctx, int32_t worker)
{
    struct elastic *e = ctx;
    const struct policy_worker *w = &e->policy.workers[worker];
    struct host_run *run = run_of(e, w->host);
    if (run->stage == HOST_RUNNING)
        fleet_halt_worker(e->job, run, w->index, 0);
}

static hvd_status_t judge(void *ctx, const char *worker, char ret_why[STORE_WHY_MAX])
{
    struct elastic *e = ctx;
    return policy_judge(&e->policy, worker_of_name(&e->policy, worker), ret_why, STORE_WHY_MAX);
}

static void op_review(void *ctx)
{
    struct elastic *e = ctx;
    if (e->job->store != NULL)
        store_server_review(e->job->store, JOB_SCOPE);
}

static void op_announce(void *ctx)
{
    struct elastic *e = ctx;
    fleet_send_notice(e->job, &e->policy.notice);
}

static void op_generation(void *ctx)
{
    struct elastic *e = ctx;
    const struct policy *p = &e->policy;
    struct mem scratch;
    mem_init(&scratch, e->job->os);
    struct store_member *members = mem_alloc(&scratch, (size_t)p->member_count * sizeof *members);
    for (int32_t i = 0; i < p->member_count; i++) {
        int32_t worker = p->members[i];
        struct store_place *place = &members[i].place;
        char label[OUTPUT_LABEL_MAX];
        worker_name(p, worker, members[i].worker);
        place->local_rank = policy_local_rank(p, worker);
        place->local_size = policy_local_size(p, p->workers[worker].host);
        policy_cross(p, worker, &place->cross_rank, &place->cross_size);
        snprintf(label, sizeof label, "%d", i);
        output_label(&e->job->output, worker, label);
    }
    hvd_status_t status = store_server_generation(e->job->store, JOB_SCOPE, p->epoch, members,
                                                  (uint32_t)p->member_count, p->notice.version);
    if (status != HVD_OK || job_is_verbose(e->job))
        output_say(&e->job->output, 2, "horovodrun: generation %llu: %d workers%s%s",
                   (unsigned long long)p->epoch, p->member_count,
                   status != HVD_OK ? ", but the store has refused it: " : "",
                   status != HVD_OK ? hvd_status_name(status) : "");
    mem_destroy(&scratch);
}

static void op_stop(void *ctx)
{
    struct elastic *e = ctx;
    struct job *job = e->job;
    if (job->verdict.kind == VERDICT_NONE && e->policy.end_code != 0)
        job->verdict = (struct verdict){.kind = VERDICT_ELASTIC,
                                        .code = e->policy.end_code,
                                        .at_ns = os_now_ns(job->os),
                                        .text = mem_copy(job->mem, e->policy.end_text)};
    job_stop(job, JOB_GRACE_MS);
}

static void op_say(void *ctx, const char *text)
{
    struct elastic *e = ctx;
    output_say(&e->job->output, 2, "horovodrun: %s", text);
}

static double op_chance(void *ctx)
{
    struct elastic *e = ctx;
    uint32_t number = 0;
    if (e->job->os->random(e->job->os->ctx, &number, sizeof number) < 0)
        return 0;
    return (double)number / 4294967296.0;
}

/* ---- what agents report ---- */

int32_t elastic_find(const struct job *job, const struct host_run *run, uint32_t index)
{
    return policy_find(&job->elastic->policy, (int32_t)(run - job->runs), index);
}

static void keep_line(void *arg, const char *line)
{
    struct elastic *e = arg;
    list_add(&e->cause_mem, &e->last_lines, mem_copy(&e->cause_mem, line));
}

/* The lines of the worker that failed first go into the report, if it comes to that. */
static void keep_tail(struct elastic *e, int32_t worker)
{
    if (e->policy.cause_count == e->cause_count)
        return;
    e->cause_count = e->policy.cause_count;
    mem_destroy(&e->cause_mem);
    e->last_lines = (struct list){0};
    e->cause_label = mem_copy(&e->cause_mem, e->job->output.ranks[worker].label);
    output_tail_each(&e->job->output, worker, keep_line, e);
}

void elastic_ended(struct job *job, const struct host_run *run, uint32_t index,
                   const struct rank_run *end)
{
    struct elastic *e = job->elastic;
    char how[128];
    int32_t worker = elastic_find(job, run, index);
    if (worker < 0)
        return;
    output_finish_rank(&job->output, worker);
    report_describe_end(end, how, sizeof how);
    struct policy_end given = {
        .code = end->code, .signal = end->signal, .is_oom = end->is_oom, .text = how};
    e->policy.now_ns = os_now_ns(job->os);
    if (!job->is_stopping)
        policy_worker_ended(&e->policy, worker, &given);
    keep_tail(e, worker);
}

void elastic_unstarted(struct job *job, const struct host_run *run, uint32_t index, const char *why)
{
    char how[256];
    int32_t worker = elastic_find(job, run, index);
    if (worker < 0)
        return;
    snprintf(how, sizeof how, "could not be started: %s", why);
    struct policy_end given = {.code = 127, .text = how};
    job->elastic->policy.now_ns = os_now_ns(job->os);
    policy_worker_ended(&job->elastic->policy, worker, &given);
}

/* A host speaks for its own workers only. */
void elastic_cause(struct job *job, const struct host_run *run, const struct cause *cause)
{
    struct elastic *e = job->elastic;
    int32_t worker = worker_of_name(&e->policy, cause->worker);
    if (worker < 0 || e->policy.workers[worker].host != (int32_t)(run - job->runs))
        return;
    e->policy.now_ns = os_now_ns(job->os);
    if (cause->kind == CAUSE_LEAVE)
        policy_worker_leaves(&e->policy, worker);
    else if (cause->kind == CAUSE_BROKE)
        policy_worker_broke(&e->policy, worker, cause->epoch, cause->culprit, cause->text);
    else if (cause->kind != CAUSE_WORDS && cause->epoch == e->policy.epoch &&
             cause->culprit < e->policy.member_count)
        look_cause(job, cause);
}

int32_t elastic_size(const struct job *job)
{
    return job->elastic->policy.member_count;
}

bool elastic_seat(const struct job *job, int32_t rank, struct host_run **ret_run,
                  uint32_t *ret_index)
{
    const struct policy *p = &job->elastic->policy;
    if (rank < 0 || rank >= p->member_count || p->members[rank] < 0)
        return false;
    const struct policy_worker *worker = &p->workers[p->members[rank]];
    if (worker->rank != rank || worker->host < 0 || worker->host >= job->run_count)
        return false;
    *ret_run = &job->runs[worker->host];
    *ret_index = worker->index;
    return true;
}

/* ---- what the store knows ---- */

static void look_at_store(struct elastic *e)
{
    struct policy *p = &e->policy;
    struct store_server *store = e->job->store;
    bool is_met = false;
    if (store == NULL || store_server_changes(store) == e->store_changes)
        return;
    e->store_changes = store_server_changes(store);
    if (store_server_epoch(store, JOB_SCOPE, &is_met) == p->epoch && is_met && p->epoch > 0)
        policy_met(p);
    for (int32_t i = 0; i < p->worker_count; i++) {
        char name[WORKER_TEXT];
        const struct policy_worker *w = &p->workers[i];
        bool is_starting = w->state == POLICY_STARTING;
        if (w->state == POLICY_NONE)
            continue;
        worker_name(p, i, name);
        enum store_standing standing = store_server_standing(store, JOB_SCOPE, name);
        policy_worker_seen(p, i, standing == STORE_WAITING, standing == STORE_ARRIVED);
        if (is_starting && w->state == POLICY_WAITING && w->slot < 0 && job_is_verbose(e->job))
            output_say(&e->job->output, 2, "horovodrun: worker %s waits as a spare", name);
    }
}

/* ---- discovery ---- */

void elastic_read_discovery(struct job *job)
{
    discovery_read(&job->elastic->discovery);
}

bool elastic_reaped(struct job *job, pid_t pid, int code)
{
    return discovery_reaped(&job->elastic->discovery, pid, code);
}

static void stop_for_discovery(struct elastic *e, const char *text)
{
    struct job *job = e->job;
    job->verdict = (struct verdict){.kind = VERDICT_ELASTIC,
                                    .code = 1,
                                    .at_ns = os_now_ns(job->os),
                                    .text = mem_copy(job->mem, text)};
    job_stop(job, JOB_GRACE_MS);
}

/* The first failure is a mistake of the user's; a later one may pass, and the hosts stay as they
 * are. */
static void discovery_failed(struct elastic *e, const char *text)
{
    if (!e->has_found) {
        stop_for_discovery(e, text);
        return;
    }
    if (!e->is_failing)
        output_say(&e->job->output, 2, "horovodrun: %s; the hosts known so far are kept", text);
    e->is_failing = true;
}

static void discover(struct elastic *e, int64_t now_ns)
{
    struct mem scratch;
    struct hosts found = {0};
    struct error error = {0};
    const char *twice = NULL;
    mem_init(&scratch, e->job->os);
    enum discovery_result result =
        discovery_tick(&e->discovery, &scratch, now_ns, &found, &twice, &error);
    if (twice != NULL && !e->has_said_twice)
        output_say(&e->job->output, 2,
                   "horovodrun: the discovery script has listed host %s more than once; it counts "
                   "once",
                   twice);
    e->has_said_twice = e->has_said_twice || twice != NULL;
    if (result == DISCOVERY_FAILED) {
        discovery_failed(e, error.text);
    } else if (result == DISCOVERY_HOSTS && found.count == 0 && e->policy.epoch > 0) {
        discovery_failed(e, "the discovery script has listed no host");
    } else if (result == DISCOVERY_HOSTS) {
        e->has_found = true;
        e->is_failing = false;
        take_hosts(e, &found);
    }
    mem_destroy(&scratch);
}

/* ---- the loop ---- */

void elastic_start(struct job *job)
{
    struct error error = {0};
    struct elastic *e = job->elastic;
    const struct store_judge asked = {.ctx = e, .ask = judge};
    struct host_run here = {.is_local = true};
    if (rendezvous_open_for(job, &here, &error) == HVD_OK)
        error.status = store_server_judge(job->store, JOB_SCOPE, &asked);
    if (error.status == HVD_OK)
        error.status = run_func_load(job, &error);
    if (error.status != HVD_OK) {
        stop_for_discovery(e, error.text);
        return;
    }
    store_server_watch(job->store, JOB_SCOPE);
    job->store_tag.kind = JOB_TAG_STORE;
    job->os->poll_add(job->os->ctx, job->poll_fd, store_server_poll_fd(job->store), &job->store_tag,
                      false);
    e->discovery.poll_fd = job->poll_fd;
    if (!e->has_script)
        take_hosts(e, job->hosts);
}

void elastic_turn(struct job *job, int64_t now_ns)
{
    struct elastic *e = job->elastic;
    if (job->is_stopping)
        return;
    e->policy.now_ns = now_ns;
    if (e->has_script)
        discover(e, now_ns);
    for (int32_t i = 0; i < job->run_count && !job->is_stopping; i++)
        tend_host(e, i, now_ns);
    look_at_store(e);
    if (!job->is_stopping && (e->has_found || !e->has_script))
        policy_turn(&e->policy, now_ns);
    if (e->policy.is_broken && job->store != NULL)
        store_server_abandon(job->store, JOB_SCOPE);
    look_at_store(e); /* whom the turn has let in, or back */
}

int64_t elastic_next_ns(const struct job *job)
{
    const struct elastic *e = job->elastic;
    int64_t next_ns = policy_next_ns(&e->policy);
    int64_t script_ns = e->has_script ? discovery_next_ns(&e->discovery) : INT64_MAX;
    return script_ns < next_ns ? script_ns : next_ns;
}

void elastic_report(struct job *job)
{
    const struct elastic *e = job->elastic;
    output_say(&job->output, 2, "horovodrun: %s", job->verdict.text);
    if (e->last_lines.count > 0)
        output_say(&job->output, 2, "  Last lines of %s:", e->cause_label);
    for (size_t i = 0; i < e->last_lines.count; i++)
        output_say(&job->output, 2, "    %s", e->last_lines.items[i]);
    if (e->policy.cause_code == job->verdict.code && e->cause_label != NULL)
        output_say(&job->output, 2,
                   "Horovod detected that one or more processes exited with non-zero status, thus "
                   "causing the job to be terminated. The first process to do so was:\n"
                   "Process name: %s\nExit code: %d",
                   e->cause_label, job->verdict.code);
}

int elastic_run(struct job *job)
{
    struct error error = {0};
    struct hosts hosts = {0};
    const char *source = NULL;
    const struct args *a = job->args;
    struct elastic *e = mem_alloc(job->mem, sizeof *e);
    if (a->num_proc.value < 1 || a->num_proc.value > HOSTS_SLOTS_MAX) {
        fprintf(stderr, "horovodrun: error: -np must be between 1 and %d\n", HOSTS_SLOTS_MAX);
        return 2;
    }
    if (a->host_discovery_script == NULL &&
        allocation_find(job->mem, job->os, a, &hosts, &source, &error) != HVD_OK) {
        fprintf(stderr, "horovodrun: error: %s\n", error.text);
        return 2;
    }
    struct policy_options options = options_of(job);
    *e = (struct elastic){.job = job,
                          .ops = {.ctx = e,
                                  .open_host = op_open_host,
                                  .close_host = op_close_host,
                                  .spawn = op_spawn,
                                  .halt = op_halt,
                                  .review = op_review,
                                  .announce = op_announce,
                                  .generation = op_generation,
                                  .stop = op_stop,
                                  .say = op_say,
                                  .chance = op_chance},
                          .has_script = a->host_discovery_script != NULL};
    mem_init(&e->cause_mem, job->os);
    e->hosts = mem_alloc(job->mem, HOSTS_MAX * sizeof *e->hosts);
    job->runs = mem_alloc(job->mem, HOSTS_MAX * sizeof *job->runs);
    policy_init(&e->policy, job->mem, &e->ops, &options, os_now_ns(job->os));
    int64_t limit_s = a->elastic_timeout_s.value < DISCOVERY_LIMIT_S ? a->elastic_timeout_s.value
                                                                     : DISCOVERY_LIMIT_S;
    e->discovery_tag.kind = JOB_TAG_DISCOVERY;
    e->discovery = (struct discovery){
        .os = job->os,
        .script = a->host_discovery_script,
        .default_slots = a->slots_per_host.is_set ? (int32_t)a->slots_per_host.value : 1,
        .period_ns = DISCOVERY_PERIOD_NS,
        .limit_ns = limit_s * JOB_NS_PER_S,
        .tag = &e->discovery_tag,
        .poll_fd = -1,
        .out_fd = -1};
    job->hosts = &hosts;
    job->elastic = e;
    job->is_driven = true;
    job->on_failure = on_failure;
    int code = supervise_run(job);
    discovery_destroy(&e->discovery);
    mem_destroy(&e->cause_mem);
    return code;
}
