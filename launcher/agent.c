/* SPDX-License-Identifier: Apache-2.0 */
/* agent.c - see agent.h. States: waiting for START, running, stopping (SIGTERM sent), killing.
 * Invariant: it leaves only when it has no child any more; the last message is GONE.
 * Thread: one.  Owner: agent_main().  Start reading at agent_main(), then agent_stop(). */
#include "agent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/sha256.h"
#include "horovod/hvd.h"
#include "inspect.h"
#include "mem.h"
#include "message.h"
#include "probe.h"
#include "spawn.h"
#include "wire/ask.h"
#include "wire/cause.h"
#include "wire/notice.h"
#include "wire/store.h"

#define NS_PER_MS          1000000LL
#define OUTPUT_HIGH_BYTES  (1u << 20) /* stop reading from workers while this much is unsent */
#define KILL_PERIOD_MS     50
#define ORPHAN_GRACE_MS    1000
#define LEFT_OVER_GRACE_MS 1000
#define FAREWELL_MS        2000  /* to get the last messages out */
#define SILENCE_MS         30000 /* without a message: the launcher is taken for dead */
#define EVENTS_MAX         64
#define WORKERS_MAX        65536u
#define CAUSES_AT_ONCE     4096
#define LOOKS_MAX          256u

enum tag_kind { TAG_CONTROL_IN, TAG_CONTROL_OUT, TAG_SIGNALS, TAG_CAUSE, TAG_PIPE, TAG_PROCESS };

struct worker;
struct tag {
    enum tag_kind kind;
    struct worker *worker;
    int stream; /* TAG_PIPE: 1 or 2 */
};

struct worker {
    uint32_t index;
    pid_t pid;
    int pidfd;
    int pipes[2]; /* its stdout and stderr, -1: closed */
    struct tag pipe_tags[2], process_tag;
    bool is_running, is_reported;
    struct spawn_end end;
    int64_t ended_ns;
    int64_t kill_at_ns; /* when it alone is to be killed; INT64_MAX: it is not */
};

enum agent_state { AGENT_WAITING, AGENT_RUNNING, AGENT_STOPPING, AGENT_KILLING };

struct agent {
    const struct os *os;
    struct mem mem;
    struct link link;
    int poll_fd, signal_fd;
    struct tag in_tag, out_tag, signal_tag, cause_tag;
    bool is_out_polled, is_orphaned, is_paused;
    enum agent_state state;
    int64_t kill_at_ns;
    uint8_t key[MESSAGE_KEY_BYTES];
    char *key_path;   /* for workers whose wrappers close descriptors; NULL: none */
    char *cause_path; /* where workers say why they broke; NULL: nowhere */
    int cause_fd;
    char *notice_path; /* where workers read that others come or go; NULL: nowhere */
    struct notice_page *notice;
    char *cwd;
    struct list env, command;
    bool is_env_complete;
    struct worker **workers; /* the pollers' tags point into them: they never move */
    uint32_t worker_count, worker_room;
    bool is_lasting;   /* more workers may come when all have ended */
    int64_t oom_kills; /* at the start */
    uint64_t file_limit;
    bool is_local;    /* the launcher is here: our stdin closes when it dies */
    bool is_held;     /* by Ctrl-Z: a launcher that is stopped sends nothing */
    int64_t heard_ns; /* last message of the launcher */
    struct probe_server *probe;
    struct inspect *looks; /* workers that the launcher asks about */
};

static int64_t now_ns(const struct agent *a)
{
    return os_now_ns(a->os);
}

/* ---- telling the launcher ---- */

static void agent_note(struct agent *a, enum message_type type, const char *text)
{
    message_begin(&a->link, type);
    message_text(&a->link, text);
    message_end(&a->link);
}

static void agent_hello(struct agent *a)
{
    char host[256] = "";
    struct utsname machine;
    memset(&machine, 0, sizeof machine);
    gethostname(host, sizeof host - 1);
    uname(&machine);
    const char *peer = a->os->env(a->os->ctx, "SSH_CONNECTION");
    message_raw(&a->link, MESSAGE_GREETING, sizeof MESSAGE_GREETING - 1);
    message_begin(&a->link, MESSAGE_HELLO);
    message_u32(&a->link, MESSAGE_VERSION);
    message_text(&a->link, HVD_VERSION_STRING);
    message_text(&a->link, host);
    message_text(&a->link, peer == NULL ? "" : peer);
    message_text(&a->link, mem_format(&a->mem, "%s %s", machine.sysname, machine.machine));
    message_end(&a->link);
}

static void agent_report_exit(struct agent *a, struct worker *w)
{
    bool is_oom = w->end.signal == SIGKILL && a->oom_kills >= 0 && a->state == AGENT_RUNNING &&
                  spawn_oom_kill_count() > a->oom_kills;
    w->is_reported = true;
    message_begin(&a->link, MESSAGE_EXIT);
    message_u32(&a->link, w->index);
    message_u32(&a->link, (uint32_t)w->pid);
    message_u32(&a->link, (uint32_t)w->end.code);
    message_u32(&a->link, (uint32_t)w->end.signal);
    message_u64(&a->link, (uint64_t)(now_ns(a) - w->ended_ns));
    message_u8(&a->link, is_oom);
    message_end(&a->link);
}

/* ---- why workers broke ---- */

static void agent_pass_cause(struct agent *a, const uint8_t *record)
{
    struct cause cause;
    if (a->is_orphaned || !cause_decode(record, &cause))
        return;
    message_begin(&a->link, MESSAGE_CAUSE);
    message_u32(&a->link, (uint32_t)cause.rank);
    message_u32(&a->link, (uint32_t)cause.culprit);
    message_text(&a->link, cause.text);
    message_u8(&a->link, (uint8_t)cause.kind);
    message_u64(&a->link, cause.epoch);
    message_text(&a->link, cause.worker);
    message_u64(&a->link, (uint64_t)cause.count);
    message_u64(&a->link, (uint64_t)cause.waited_ms);
    message_end(&a->link);
}

/* Bounded by what the pipe holds: a writer without end must not keep us here. */
static void agent_read_causes(struct agent *a)
{
    uint8_t record[CAUSE_BYTES];
    for (int i = 0; i < CAUSES_AT_ONCE && a->cause_fd >= 0; i++) {
        int64_t n = a->os->read(a->os->ctx, a->cause_fd, record, sizeof record);
        if (n <= 0)
            return;
        if (n == (int64_t)sizeof record)
            agent_pass_cause(a, record);
    }
}

static void agent_listen_to_causes(struct agent *a)
{
    a->cause_fd = spawn_pipe_beside(&a->mem, a->key_path, &a->cause_path);
    a->cause_tag.kind = TAG_CAUSE;
    if (a->cause_fd >= 0)
        a->os->poll_add(a->os->ctx, a->poll_fd, a->cause_fd, &a->cause_tag, false);
}

static void agent_make_notice(struct agent *a)
{
    a->notice_path = spawn_path_beside(&a->mem, a->key_path, SPAWN_NOTICE_NAME);
    a->notice = a->notice_path != NULL ? notice_create(a->os, a->notice_path) : NULL;
}

static void agent_announce(struct agent *a, struct reader *r)
{
    struct notice notice;
    notice.version = get_u64(r);
    notice.added_version = get_u64(r);
    notice.removed_version = get_u64(r);
    if (!r->bad)
        notice_write(a->notice, &notice);
}

/* ---- workers ---- */

static void worker_close_pipe(struct agent *a, struct worker *w, int stream)
{
    int *fd = &w->pipes[stream - 1];
    if (*fd < 0)
        return;
    a->os->poll_remove(a->os->ctx, a->poll_fd, *fd);
    a->os->close(a->os->ctx, *fd);
    *fd = -1;
}

/* Forwards one chunk; false: nothing to read now, or closed. */
static bool worker_forward(struct agent *a, struct worker *w, int stream)
{
    uint8_t chunk[MESSAGE_CHUNK];
    if (w->pipes[stream - 1] < 0)
        return false;
    int64_t n = a->os->read(a->os->ctx, w->pipes[stream - 1], chunk, sizeof chunk);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    if (n <= 0) {
        worker_close_pipe(a, w, stream);
        return false;
    }
    if (a->is_orphaned)
        return true;
    message_begin(&a->link, MESSAGE_OUTPUT);
    message_u32(&a->link, w->index);
    message_u8(&a->link, (uint8_t)stream);
    message_raw(&a->link, chunk, (size_t)n);
    message_end(&a->link);
    return true;
}

/* What the worker wrote before it ended; a grandchild may go on writing, so there is a limit. */
static void worker_drain(struct agent *a, struct worker *w)
{
    for (int stream = 1; stream <= 2; stream++)
        for (int i = 0; i < 64 && worker_forward(a, w, stream); i++) {}
}

static void worker_ended(struct agent *a, struct worker *w, const struct spawn_end *end)
{
    if (!w->is_running)
        return;
    w->is_running = false;
    w->end = *end;
    w->ended_ns = now_ns(a);
    if (w->pidfd >= 0) {
        a->os->poll_remove(a->os->ctx, a->poll_fd, w->pidfd);
        a->os->close(a->os->ctx, w->pidfd);
        w->pidfd = -1;
    }
    worker_drain(a, w);
    agent_read_causes(a); /* the launcher must know them before it hears of this end */
    agent_report_exit(a, w);
}

/* Where a worker writes its stacks; NULL: nowhere. */
static char *worker_stack_path(const struct agent *a, struct mem *m, const struct worker *w)
{
    return spawn_path_beside(m, a->key_path, mem_format(m, SPAWN_STACK_NAME "%u", w->index));
}

/* Where a worker answers what it is doing; NULL: nowhere. */
static char *worker_status_path(const struct agent *a, struct mem *m, const struct worker *w)
{
    return spawn_path_beside(m, a->key_path, mem_format(m, SPAWN_STATUS_NAME "%u", w->index));
}

static void worker_environment(const struct agent *a, struct mem *m, const struct worker *w,
                               const struct list *own, struct list *ret)
{
    const char *stack_path = worker_stack_path(a, m, w);
    const char *status_path = worker_status_path(a, m, w);
    for (size_t i = 0; i < a->env.count; i++)
        list_add(m, ret, a->env.items[i]);
    for (size_t i = 0; i < own->count; i++)
        list_put(m, ret, own->items[i]);
    char fd[16];
    snprintf(fd, sizeof fd, "%d", SPAWN_KEPT_FD);
    list_set(m, ret, "HOROVOD_KEY_FD", fd);
    if (a->key_path != NULL)
        list_set(m, ret, "HOROVOD_KEY_FILE", a->key_path);
    if (a->cause_path != NULL)
        list_set(m, ret, "HOROVOD_CAUSE_PIPE", a->cause_path);
    if (a->notice != NULL)
        list_set(m, ret, "HOROVOD_NOTICE_FILE", a->notice_path);
    if (stack_path != NULL)
        list_set(m, ret, "HOROVOD_STACK_FILE", stack_path);
    if (status_path != NULL)
        list_set(m, ret, "HOROVOD_STATUS_SOCKET", status_path);
}

#define KEY_TEXT_BYTES (2 * MESSAGE_KEY_BYTES + 1)

/* Hex, so that the descriptor, HOROVOD_KEY_FILE and HOROVOD_KEY all hold the same text. */
static void key_text(const struct agent *a, char ret_text[KEY_TEXT_BYTES + 1])
{
    for (size_t i = 0; i < MESSAGE_KEY_BYTES; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", a->key[i]);
    ret_text[2 * MESSAGE_KEY_BYTES] = '\n';
}

static int worker_key_file(const struct agent *a)
{
    char text[KEY_TEXT_BYTES + 1];
    key_text(a, text);
    int fd = spawn_secret_file(text, KEY_TEXT_BYTES);
    bytes_wipe(text, sizeof text);
    return fd;
}

static void agent_leave_key(struct agent *a)
{
    char text[KEY_TEXT_BYTES + 1];
    key_text(a, text);
    a->key_path = spawn_secret_path(&a->mem, a->os, text, KEY_TEXT_BYTES);
    bytes_wipe(text, sizeof text);
}

static void worker_watch(struct agent *a, struct worker *w)
{
    for (int stream = 1; stream <= 2; stream++) {
        struct tag *tag = &w->pipe_tags[stream - 1];
        *tag = (struct tag){TAG_PIPE, w, stream};
        spawn_nonblocking(w->pipes[stream - 1]);
        a->os->poll_add(a->os->ctx, a->poll_fd, w->pipes[stream - 1], tag, false);
    }
    w->process_tag = (struct tag){TAG_PROCESS, w, 0};
    if (w->pidfd >= 0)
        a->os->poll_add(a->os->ctx, a->poll_fd, w->pidfd, &w->process_tag, false);
}

/* `own`: the variables of this rank alone. */
static int worker_start(struct agent *a, struct worker *w, const struct list *own)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    struct list env = {0};
    struct mem scratch; /* a job that lasts starts many: none may cost memory for good */
    mem_init(&scratch, a->os);
    worker_environment(a, &scratch, w, own, &env);
    int rc = spawn_pipe(out);
    if (rc == 0)
        rc = spawn_pipe(err);
    int key_fd = rc == 0 ? worker_key_file(a) : -1;
    if (rc == 0 && key_fd < 0)
        rc = key_fd;
    struct spawn s = {.argv = a->command.items,
                      .env = env.items,
                      .cwd = a->cwd[0] == '\0' ? NULL : a->cwd,
                      .fds = {-1, out[1], err[1]},
                      .kept_fd = key_fd,
                      .death_signal = SIGKILL,
                      .file_limit = a->file_limit};
    if (rc == 0)
        rc = spawn_start(&s, &w->pid, &w->pidfd);
    int ours[] = {out[1], err[1], key_fd};
    for (size_t i = 0; i < 3; i++)
        if (ours[i] >= 0)
            a->os->close(a->os->ctx, ours[i]);
    mem_destroy(&scratch);
    w->pipes[0] = out[0];
    w->pipes[1] = err[0];
    w->kill_at_ns = INT64_MAX;
    if (rc == 0) {
        w->is_running = true;
        worker_watch(a, w);
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (w->pipes[i] >= 0)
            a->os->close(a->os->ctx, w->pipes[i]);
        w->pipes[i] = -1;
    }
    return rc;
}

static struct worker *worker_find(const struct agent *a, uint32_t index)
{
    for (uint32_t i = 0; i < a->worker_count; i++)
        if (a->workers[i]->index == index)
            return a->workers[i];
    return NULL;
}

static struct worker *worker_new(struct agent *a, uint32_t index)
{
    if (a->worker_count == a->worker_room) {
        uint32_t room = a->worker_room > 0 ? 2 * a->worker_room : 16;
        struct worker **grown = mem_alloc(&a->mem, room * sizeof *grown);
        if (a->worker_count > 0)
            memcpy(grown, a->workers, a->worker_count * sizeof *grown);
        a->workers = grown;
        a->worker_room = room;
    }
    struct worker *w = a->workers[a->worker_count++] = mem_alloc(&a->mem, sizeof *w);
    *w = (struct worker){.index = index, .pidfd = -1, .pipes = {-1, -1}};
    return w;
}

/* One that has ended and is of no use any more: a job that lasts must not grow. */
static struct worker *worker_find_free(const struct agent *a)
{
    for (uint32_t i = 0; i < a->worker_count; i++)
        if (!a->workers[i]->is_running && a->workers[i]->is_reported)
            return a->workers[i];
    return NULL;
}

/* The one of that number that has ended, or any that has, emptied; or a new one. */
static struct worker *worker_renew(struct agent *a, uint32_t index)
{
    struct worker *w = worker_find(a, index);
    if (w == NULL)
        w = worker_find_free(a);
    if (w == NULL)
        return worker_new(a, index);
    worker_close_pipe(a, w, 1);
    worker_close_pipe(a, w, 2);
    *w = (struct worker){.index = index, .pidfd = -1, .pipes = {-1, -1}};
    return w;
}

/* ---- ending ---- */

static void agent_signal(struct agent *a, int signal_number)
{
    a->is_held = signal_number == SIGSTOP;
    for (uint32_t i = 0; i < a->worker_count; i++)
        if (a->workers[i]->is_running)
            spawn_signal_group(a->workers[i]->pid, signal_number);
}

/* STOP for one worker: its process group, for whatever left that is not known to be its own. */
static void agent_halt(struct agent *a, struct reader *r)
{
    struct worker *w = worker_find(a, get_u32(r));
    int64_t grace_ms = get_u32(r);
    if (r->bad || w == NULL || !w->is_running)
        return;
    if (grace_ms > 0) {
        spawn_signal_group(w->pid, SIGTERM);
        spawn_signal_group(w->pid, SIGCONT);
    }
    int64_t kill_at_ns = now_ns(a) + grace_ms * NS_PER_MS;
    if (kill_at_ns < w->kill_at_ns)
        w->kill_at_ns = kill_at_ns;
}

/* When the next worker is to be killed; those whose time has come are. */
static int64_t agent_tend_halted(struct agent *a)
{
    int64_t next_ns = INT64_MAX, now = now_ns(a);
    for (uint32_t i = 0; i < a->worker_count; i++) {
        struct worker *w = a->workers[i];
        if (!w->is_running)
            continue;
        if (w->kill_at_ns <= now) {
            spawn_signal_group(w->pid, SIGKILL);
            w->kill_at_ns = now + KILL_PERIOD_MS * NS_PER_MS;
        }
        if (w->kill_at_ns < next_ns)
            next_ns = w->kill_at_ns;
    }
    return next_ns;
}

/* Ask, and after the grace time stop asking. Shortens the time if called again. */
static void agent_stop(struct agent *a, int64_t grace_ms)
{
    int64_t kill_at_ns = now_ns(a) + grace_ms * NS_PER_MS;
    if (a->state == AGENT_KILLING)
        return;
    if (a->state == AGENT_STOPPING && kill_at_ns >= a->kill_at_ns)
        return;
    a->kill_at_ns = kill_at_ns;
    if (a->state != AGENT_STOPPING && grace_ms > 0) {
        spawn_signal_descendants(a->os, SIGTERM);
        spawn_signal_descendants(a->os, SIGCONT); /* a stopped process must wake to see it */
    }
    a->state = grace_ms > 0 ? AGENT_STOPPING : AGENT_KILLING;
}

static void agent_orphaned(struct agent *a)
{
    if (a->is_orphaned)
        return;
    a->is_orphaned = true;
    a->os->poll_remove(a->os->ctx, a->poll_fd, a->link.in_fd);
    bytes_drop(&a->link.out, bytes_used(&a->link.out));
    agent_stop(a, ORPHAN_GRACE_MS);
}

static void agent_reap(struct agent *a)
{
    struct spawn_end end;
    while (spawn_reap(-1, &end))
        for (uint32_t i = 0; i < a->worker_count; i++)
            if (a->workers[i]->pid == end.pid)
                worker_ended(a, a->workers[i], &end);
}

static bool agent_has_workers(const struct agent *a)
{
    for (uint32_t i = 0; i < a->worker_count; i++)
        if (a->workers[i]->is_running)
            return true;
    return false;
}

/* ---- what the launcher asks for ---- */

/* A dial-back that fails is the commonest trouble between hosts: find it before the workers do. */
static bool agent_dial(struct agent *a, const char *addresses, uint32_t timeout_ms)
{
    if (addresses[0] == '\0')
        return true;
    struct error error;
    struct store_client *client = NULL;
    error_clear(&error);
    hvd_status_t status =
        store_client_open(a->os, addresses, a->key, 0, 0,
                          now_ns(a) + (int64_t)timeout_ms * NS_PER_MS, &client, &error);
    store_client_close(client);
    if (status == HVD_OK)
        return true;
    agent_note(a, MESSAGE_TROUBLE,
               mem_format(&a->mem, "cannot dial back to %s: %s", addresses, error.text));
    return false;
}

static void env_inherit(void *arg, const char *name, const char *value)
{
    struct agent *a = arg;
    if (list_get(&a->env, name) == NULL)
        list_add(&a->mem, &a->env, mem_format(&a->mem, "%s=%s", name, value));
}

static bool start_read(struct agent *a, struct reader *r, char **ret_addresses,
                       uint32_t *ret_timeout_ms, struct list **ret_envs, uint32_t *ret_count)
{
    get_bytes(r, a->key, sizeof a->key);
    *ret_addresses = message_get_text(&a->mem, r);
    *ret_timeout_ms = get_u32(r);
    a->cwd = message_get_text(&a->mem, r);
    a->is_env_complete = get_u8(r) != 0;
    message_get_list(&a->mem, r, &a->env);
    message_get_list(&a->mem, r, &a->command);
    a->is_lasting = get_u8(r) != 0;
    uint32_t count = get_u32(r);
    if (r->bad || count > WORKERS_MAX || a->command.count == 0)
        return false;
    *ret_envs = mem_alloc(&a->mem, count * sizeof **ret_envs);
    *ret_count = count;
    for (uint32_t i = 0; i < count; i++)
        message_get_list(&a->mem, r, &(*ret_envs)[i]);
    return reader_done(r);
}

static void agent_start(struct agent *a, struct reader *r)
{
    char *addresses = NULL;
    struct list *envs = NULL;
    uint32_t timeout_ms = 0, count = 0;
    if (a->state != AGENT_WAITING)
        return;
    a->state = AGENT_RUNNING;
    if (!start_read(a, r, &addresses, &timeout_ms, &envs, &count)) {
        agent_note(a, MESSAGE_TROUBLE, "the START message is malformed");
        agent_stop(a, 0);
        return;
    }
    if (!a->is_env_complete)
        a->os->env_each(a->os->ctx, env_inherit, a);
    if (!agent_dial(a, addresses, timeout_ms)) {
        agent_stop(a, 0);
        return;
    }
    a->oom_kills = spawn_oom_kill_count();
    agent_leave_key(a);
    agent_listen_to_causes(a);
    if (a->is_lasting)
        agent_make_notice(a);
    for (uint32_t i = 0; i < count; i++) {
        int rc = worker_start(a, worker_new(a, i), &envs[i]);
        if (rc < 0) {
            agent_note(a, MESSAGE_TROUBLE,
                       mem_format(&a->mem, "cannot start a process: %s", strerror(-rc)));
            agent_stop(a, 0);
            return;
        }
    }
    message_begin(&a->link, MESSAGE_STARTED);
    message_u32(&a->link, a->worker_count);
    message_text(&a->link, a->key_path == NULL ? "" : a->key_path);
    message_end(&a->link);
}

/* A worker that can't be started is the launcher's to deal with: the others go on. */
static void agent_spawn(struct agent *a, struct reader *r)
{
    struct mem scratch;
    struct list env = {0};
    uint32_t index = get_u32(r);
    struct worker *w = NULL;
    const char *why = "";
    mem_init(&scratch, a->os);
    message_get_list(&scratch, r, &env);
    const struct worker *known = worker_find(a, index);
    if (r->bad)
        why = "the SPAWN message is malformed";
    else if (a->state != AGENT_RUNNING)
        why = "the agent is not running";
    else if (known != NULL && known->is_running)
        why = "there is such a worker";
    if (why[0] == '\0') {
        w = worker_renew(a, index);
        int rc = worker_start(a, w, &env);
        if (rc < 0)
            why = strerror(-rc);
    }
    message_begin(&a->link, MESSAGE_SPAWNED);
    message_u32(&a->link, index);
    message_u32(&a->link, why[0] == '\0' ? (uint32_t)w->pid : 0);
    message_text(&a->link, why);
    message_end(&a->link);
    mem_destroy(&scratch);
}

static void agent_pong(struct agent *a, struct reader *r)
{
    uint64_t echo = get_u64(r);
    message_begin(&a->link, MESSAGE_PONG);
    message_u64(&a->link, echo);
    message_u64(&a->link, (uint64_t)a->os->wall_us(a->os->ctx));
    message_end(&a->link);
}

static void agent_look(struct agent *a, struct reader *r)
{
    uint32_t number = get_u32(r);
    uint8_t what = get_u8(r);
    uint32_t count = get_u32(r);
    struct mem scratch;
    mem_init(&scratch, a->os);
    for (uint32_t i = 0; i < count && i < LOOKS_MAX && !r->bad; i++) {
        const struct worker *w = worker_find(a, get_u32(r));
        if (w != NULL && w->is_running && !r->bad)
            inspect_add(
                &a->looks, a->os,
                &(struct inspect_question){.number = number,
                                           .index = w->index,
                                           .pid = w->pid,
                                           .stack_path = worker_stack_path(a, &scratch, w),
                                           .wants_stack = (what & LOOK_STACK) != 0,
                                           .status_path = (what & LOOK_STATUS) != 0
                                                              ? worker_status_path(a, &scratch, w)
                                                              : NULL});
    }
    mem_destroy(&scratch);
}

/* How another rank ended: for the errors of the workers here. Each takes it at once or does
 * without.
 */
static void agent_tell_end(struct agent *a, struct reader *r)
{
    uint8_t bytes[1 + ASK_END_MAX] = {ASK_END};
    struct ask_end end = {0};
    struct mem scratch;
    mem_init(&scratch, a->os);
    end.epoch = get_u64(r);
    end.rank = (int32_t)get_u32(r);
    snprintf(end.text, sizeof end.text, "%s", message_get_text(&scratch, r));
    struct iovec iov = {.iov_base = bytes, .iov_len = 1 + ask_end_put(&end, bytes + 1)};
    for (uint32_t i = 0; i < a->worker_count && !r->bad; i++) {
        const struct worker *w = a->workers[i];
        const char *path = w->is_running ? worker_status_path(a, &scratch, w) : NULL;
        int fd = path != NULL ? ask_connect(a->os, path) : -1;
        if (fd < 0)
            continue;
        a->os->send(a->os->ctx, fd, &iov, 1);
        a->os->close(a->os->ctx, fd);
    }
    mem_destroy(&scratch);
}

static void agent_message(struct agent *a, enum message_type type, struct reader *r)
{
    switch (type) {
    case MESSAGE_START: agent_start(a, r); return;
    case MESSAGE_STOP: agent_stop(a, get_u32(r)); return;
    case MESSAGE_SIGNAL: agent_signal(a, (int)get_u32(r)); return;
    case MESSAGE_SPAWN: agent_spawn(a, r); return;
    case MESSAGE_HALT: agent_halt(a, r); return;
    case MESSAGE_NOTICE: agent_announce(a, r); return;
    case MESSAGE_LOOK: agent_look(a, r); return;
    case MESSAGE_END: agent_tell_end(a, r); return;
    case MESSAGE_PING: agent_pong(a, r); return;
    case MESSAGE_SERVE: probe_serve(&a->mem, &a->link, r, &a->probe); return;
    case MESSAGE_DIAL: probe_dial(&a->mem, &a->link, r); return;
    case MESSAGE_HELLO:
    case MESSAGE_STARTED:
    case MESSAGE_OUTPUT:
    case MESSAGE_EXIT:
    case MESSAGE_TROUBLE:
    case MESSAGE_NOTE:
    case MESSAGE_GONE:
    case MESSAGE_PONG:
    case MESSAGE_SERVING:
    case MESSAGE_MEASURED:
    case MESSAGE_CAUSE:
    case MESSAGE_LOOKED:
    case MESSAGE_SPAWNED: return;
    }
}

static void agent_read_control(struct agent *a)
{
    hvd_status_t status = link_fill(&a->link);
    enum message_type type = MESSAGE_PING;
    a->heard_ns = now_ns(a);
    struct reader payload;
    while (status == HVD_OK) {
        status = link_next(&a->link, &type, &payload);
        if (status == HVD_OK)
            agent_message(a, type, &payload);
    }
    a->heard_ns = now_ns(a); /* what took us long to do is not the launcher's silence */
    if (status != HVD_AGAIN)
        agent_orphaned(a);
}

/* ---- the loop ---- */

static void agent_flush(struct agent *a)
{
    if (a->is_orphaned)
        return;
    hvd_status_t status = link_flush(&a->link);
    if (status == HVD_ERR_LINK) {
        agent_orphaned(a);
        return;
    }
    bool wants = status == HVD_IN_PROGRESS;
    if (wants && !a->is_out_polled)
        a->os->poll_add(a->os->ctx, a->poll_fd, a->link.out_fd, &a->out_tag, true);
    if (!wants && a->is_out_polled)
        a->os->poll_remove(a->os->ctx, a->poll_fd, a->link.out_fd);
    a->is_out_polled = wants;
}

static void agent_signals(struct agent *a)
{
    int sender = 0;
    for (int n = spawn_signals_next(a->signal_fd, &sender); n != 0;
         n = spawn_signals_next(a->signal_fd, &sender))
        if (n != SIGCHLD && n != SIGCONT && n != SIGTSTP)
            agent_stop(a, ORPHAN_GRACE_MS);
}

/* While the launcher does not take what we have, the workers wait in write(), as with any pipe. */
static void agent_pause(struct agent *a)
{
    bool is_full = bytes_used(&a->link.out) > OUTPUT_HIGH_BYTES && !a->is_orphaned;
    if (is_full == a->is_paused)
        return;
    a->is_paused = is_full;
    for (uint32_t i = 0; i < a->worker_count; i++)
        for (int k = 0; k < 2; k++) {
            struct worker *w = a->workers[i];
            if (w->pipes[k] >= 0 && is_full)
                a->os->poll_remove(a->os->ctx, a->poll_fd, w->pipes[k]);
            else if (w->pipes[k] >= 0)
                a->os->poll_add(a->os->ctx, a->poll_fd, w->pipes[k], &w->pipe_tags[k], false);
        }
}

static void agent_event(struct agent *a, const struct os_event *event)
{
    struct tag *tag = event->tag;
    struct spawn_end end;
    switch (tag->kind) {
    case TAG_CONTROL_IN: agent_read_control(a); return;
    case TAG_CONTROL_OUT: return; /* agent_flush() comes anyway */
    case TAG_SIGNALS: agent_signals(a); return;
    case TAG_CAUSE: agent_read_causes(a); return;
    case TAG_PIPE: worker_forward(a, tag->worker, tag->stream); return;
    case TAG_PROCESS:
        if (spawn_reap(tag->worker->pid, &end))
            worker_ended(a, tag->worker, &end);
        return;
    }
}

/* A launcher whose machine has vanished closes nothing; its pings stop. INT64_MAX: no limit. */
static int64_t agent_silence_ns(const struct agent *a)
{
    bool is_watched = !a->is_local && !a->is_held && !a->is_orphaned;
    return is_watched ? a->heard_ns + SILENCE_MS * NS_PER_MS : INT64_MAX;
}

static void agent_check_heartbeat(struct agent *a)
{
    if (now_ns(a) >= agent_silence_ns(a))
        agent_orphaned(a);
}

static int64_t agent_timeout_ns(struct agent *a)
{
    int64_t at_ns = agent_tend_halted(a), now = now_ns(a);
    int64_t look_ns = inspect_turn(&a->looks, a->os, &a->link);
    if (look_ns < at_ns)
        at_ns = look_ns;
    if (agent_silence_ns(a) < at_ns)
        at_ns = agent_silence_ns(a);
    if (a->state == AGENT_KILLING)
        return KILL_PERIOD_MS * NS_PER_MS;
    if (a->state == AGENT_STOPPING && a->kill_at_ns < at_ns)
        at_ns = a->kill_at_ns;
    if (at_ns == INT64_MAX)
        return -1;
    return at_ns > now ? at_ns - now : 0;
}

/* True when there is nothing left to do on this host. */
static bool agent_is_done(struct agent *a)
{
    if (a->state == AGENT_STOPPING && now_ns(a) >= a->kill_at_ns)
        a->state = AGENT_KILLING;
    if (a->state == AGENT_KILLING)
        spawn_signal_descendants(a->os, SIGKILL);
    agent_reap(a);
    bool is_kept = a->is_lasting && a->state == AGENT_RUNNING;
    if (a->state == AGENT_WAITING || agent_has_workers(a) || is_kept)
        return false;
    if (!spawn_has_children())
        return true;
    if (a->state == AGENT_RUNNING) {
        agent_note(a, MESSAGE_NOTE, "processes left behind by the workers are ended");
        agent_stop(a, LEFT_OVER_GRACE_MS);
    }
    return false;
}

static void agent_loop(struct agent *a)
{
    struct os_event events[EVENTS_MAX];
    while (!agent_is_done(a)) {
        agent_check_heartbeat(a);
        int64_t timeout_ns = agent_timeout_ns(a);
        agent_flush(a);
        agent_pause(a);
        int n = a->os->poll_wait(a->os->ctx, a->poll_fd, events, EVENTS_MAX, timeout_ns);
        for (int i = 0; i < n; i++)
            agent_event(a, &events[i]);
    }
}

/* The last words may need time to get through; a launcher that does not listen has had its chance.
 */
static void agent_farewell(struct agent *a)
{
    for (uint32_t i = 0; i < a->worker_count; i++)
        worker_drain(a, a->workers[i]);
    message_begin(&a->link, MESSAGE_GONE);
    message_end(&a->link);
    int64_t deadline_ns = now_ns(a) + FAREWELL_MS * NS_PER_MS;
    while (!a->is_orphaned && link_flush(&a->link) == HVD_IN_PROGRESS && now_ns(a) < deadline_ns)
        a->os->sleep_ns(a->os->ctx, NS_PER_MS);
}

static int agent_open(struct agent *a)
{
    int in_fd = -1, out_fd = -1;
    int rc = spawn_take_stdio(&in_fd, &out_fd);
    if (rc < 0)
        return rc;
    link_init(&a->link, a->os, in_fd, out_fd, false);
    spawn_nonblocking(in_fd);
    spawn_nonblocking(out_fd);
    spawn_adopt_orphans();
    a->file_limit = spawn_raise_file_limit();
    a->signal_fd = spawn_signals_open();
    a->poll_fd = a->os->poll_create(a->os->ctx);
    if (a->signal_fd < 0 || a->poll_fd < 0)
        return a->signal_fd < 0 ? a->signal_fd : a->poll_fd;
    a->in_tag.kind = TAG_CONTROL_IN;
    a->out_tag.kind = TAG_CONTROL_OUT;
    a->signal_tag.kind = TAG_SIGNALS;
    rc = a->os->poll_add(a->os->ctx, a->poll_fd, in_fd, &a->in_tag, false);
    if (rc < 0)
        return rc;
    return a->os->poll_add(a->os->ctx, a->poll_fd, a->signal_fd, &a->signal_tag, false);
}

int agent_main(const struct os *os, bool is_local)
{
    struct agent a = {.os = os,
                      .is_local = is_local,
                      .heard_ns = os_now_ns(os),
                      .poll_fd = -1,
                      .signal_fd = -1,
                      .cause_fd = -1,
                      .oom_kills = -1};
    mem_init(&a.mem, os);
    int rc = agent_open(&a);
    if (rc < 0) {
        fprintf(stderr, "horovodrun --agent: %s\n", strerror(-rc));
        mem_destroy(&a.mem);
        return 1;
    }
    agent_hello(&a);
    agent_loop(&a);
    spawn_secret_remove(&a.mem, a.key_path);
    agent_farewell(&a);
    bytes_wipe(a.key, sizeof a.key);
    notice_close(os, a.notice);
    probe_destroy(a.probe);
    inspect_clear(&a.looks, os);
    link_destroy(&a.link);
    if (a.cause_fd >= 0)
        os->close(os->ctx, a.cause_fd);
    os->close(os->ctx, a.signal_fd);
    os->close(os->ctx, a.poll_fd);
    mem_destroy(&a.mem);
    return 0;
}
