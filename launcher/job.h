/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - one job: its hosts, its ranks, how far each got, and why it ended.
 *
 * supervise.c runs the loop, fleet.c talks to the agents, rendezvous.c serves the store, ladder.c
 * tells who is missing, verdict.c decides what went wrong, report.c prints it. Thread: one.
 * Owner: supervise_run().  Invariant: `verdict` is the first cause and, once the job is being
 * stopped, only an end that happened even earlier replaces it.
 * Start reading at supervise_run() in supervise.c. */
#ifndef HVD_LAUNCHER_JOB_H
#define HVD_LAUNCHER_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "args.h"
#include "blame.h"
#include "generation.h"
#include "hosts.h"
#include "locality.h"
#include "mem.h"
#include "message.h"
#include "output.h"
#include "wire/notice.h"
#include "wire/store.h"

#define JOB_NS_PER_MS  1000000LL
#define JOB_NS_PER_S   1000000000LL
#define JOB_KEY_BYTES  32
#define JOB_GRACE_MS   3000 /* between SIGTERM and SIGKILL, and for a blamed rank to exit */
#define JOB_SHORT_MS   1000 /* between SIGTERM and SIGKILL if a blamed rank has used that up */
#define JOB_MOURN_MS   600  /* from the first failure for the others to notice it, until SIGTERM */
#define JOB_RAISE_MS   3000 /* the same if one of them has noticed, and is about to raise */
#define JOB_ENDS_MAX   16   /* ranks whose end is told to the others: the first ones */
#define JOB_GIVE_UP_MS 4500 /* from the first failure until we leave, come what may */
#define JOB_SCOPE      "world" /* of the exchange in which the ranks find each other */

enum host_stage {
    HOST_WAITING,    /* before the first try, or between two */
    HOST_CONNECTING, /* the agent (or ssh) was started */
    HOST_UP,         /* the agent said hello */
    HOST_STARTING,   /* it was told what to do */
    HOST_RUNNING,    /* all its workers were started */
    HOST_GONE        /* nothing of the job is left there */
};

enum tag_kind_job {
    JOB_TAG_SIGNALS,
    JOB_TAG_STORE,
    JOB_TAG_OUTPUT,
    JOB_TAG_LINK_IN,
    JOB_TAG_LINK_OUT,
    JOB_TAG_STDERR,
    JOB_TAG_CALLER,
    JOB_TAG_DISCOVERY,
    JOB_TAG_STATUS,
    JOB_TAG_DASHBOARD
};

struct cause;
struct elastic;
struct host_run;
struct look;
struct status;
struct survey;
struct dashboard;
struct job_tag {
    enum tag_kind_job kind;
    struct host_run *run;
};

struct host_run {
    const struct host *host;
    bool is_local;
    int32_t first_rank, rank_count;
    enum host_stage stage;
    int attempts;
    int64_t retry_at_ns;
    pid_t pid; /* of the agent here, or of ssh; 0: none */
    struct link link;
    int err_fd; /* stderr of ssh and of the agent behind it; -1 */
    struct bytes err_text;
    struct job_tag in_tag, out_tag, err_tag;
    bool is_in_polled, is_out_polled;
    char *ssh_peer; /* SSH_CONNECTION as the agent saw it */
    char *key_path; /* file that the agent made; ours to remove if an agent here was killed */
    bool has_ended; /* the process has been reaped */
    int end_code;
};

enum verdict_kind {
    VERDICT_NONE,
    VERDICT_RANK,   /* a worker failed, or others failed because of it */
    VERDICT_LOST,   /* a rank that others wait for can't come any more; `text` says why */
    VERDICT_HOST,   /* a host could not be used or was lost; `text` says how */
    VERDICT_SIGNAL, /* we were told to stop */
    VERDICT_OUTPUT, /* nobody reads our output any more */
    VERDICT_ELASTIC /* `text` says why, `code` is the exit code */
};

struct verdict {
    enum verdict_kind kind;
    int32_t rank;
    int32_t failed; /* VERDICT_RANK: the rank whose exit code is the job's, if not rank's own */
    bool is_stuck;  /* VERDICT_RANK: the rank had not ended by itself */
    int signal;     /* VERDICT_SIGNAL */
    int code;       /* VERDICT_ELASTIC */
    int64_t at_ns;
    char *text;
};

struct ladder {
    int64_t next_ns;
    int64_t dial_since_ns; /* first rank seen at the rendezvous; 0: none yet */
    bool is_quiet;         /* all have arrived: nothing more to say */
    bool has_spoken;
};

struct job {
    const struct os *os;
    struct mem *mem;
    const struct args *args;
    const char *self_path;
    int ssh_config_fd;   /* our defaults for ssh, -1: none */
    uint64_t file_limit; /* on open files, before we raised it */
    const struct hosts *hosts;
    struct generation generation; /* the one that stands */
    bool is_driven;               /* we decide who is in a generation; false: a static job */
    struct elastic *elastic;      /* NULL: its workers don't come and go */
    struct list assignments, command;

    uint8_t key[JOB_KEY_BYTES];
    struct locality locality;
    struct store_server *store;
    char *rendezvous, *rendezvous_host; /* what the workers are told */
    int rendezvous_port;
    char *rendezvous_local;            /* elastic: the store for workers of this machine */
    struct list listened, listened_at; /* elastic: addresses and what they became */
    char *dial;                        /* what remote agents try before they start workers */

    struct host_run *runs;
    int32_t run_count;
    struct output output;
    struct ladder ladder;

    int poll_fd, signal_fd;
    struct job_tag signal_tag, store_tag, caller_tag, output_tags[2];
    bool is_output_polled[2], is_paused;

    int64_t started_ns, start_limit_ns;
    int64_t next_ping_ns;
    bool is_started; /* START was sent to all */
    bool is_stopping;
    int64_t stopped_ns;     /* INT64_MAX: not yet */
    int64_t failed_ns;      /* when the first failure was seen; 0: none */
    int64_t mourn_limit_ns; /* until when the others may exit by themselves; 0: nobody failed */
    int32_t end_count;      /* ranks whose end the others were told */
    int64_t blame_limit_ns; /* until when a blamed rank may exit by itself; 0: none is waited for */
    int64_t give_up_ns;
    struct verdict verdict;
    struct bytes summary;        /* rank 0's closing paragraph, as far as it has come */
    struct look *look;           /* at ranks of a stall; NULL: there was none */
    struct status *status;       /* answers horovodrun --status; NULL: it can't */
    struct survey *survey;       /* of all ranks; NULL: nobody has asked */
    struct dashboard *dashboard; /* NULL: not wanted */

    /* the doctor listens in: answers to its questions, and hosts that fail without ending it all */
    void *hook_arg;
    void (*on_answer)(struct job *job, struct host_run *run, enum message_type type,
                      struct reader *r);
    void (*on_failure)(struct job *job, const struct host_run *run, const char *text);
};

/* supervise.c */
int supervise_run(struct job *job); /* the exit code */
hvd_status_t supervise_open(struct job *job, struct error *error);
void supervise_signals(struct job *job);
void supervise_close(struct job *job); /* ends what is left; safe on a half-opened job */
void job_stop(struct job *job, int64_t grace_ms);
bool job_is_verbose(const struct job *job);

/* verdict.c */
void verdict_host(struct job *job, const struct host_run *run, const char *text);
void verdict_lost(struct job *job, int32_t rank, const char *text);
void verdict_signal(struct job *job, int number);
void verdict_output(struct job *job);
void verdict_rank_ended(struct job *job, int32_t rank, const struct rank_run *end);
void verdict_rank_blames(struct job *job, int32_t rank, int32_t culprit, char *cause);
void verdict_tick(struct job *job, int64_t now_ns); /* a blamed rank's time is up? */

/* fleet.c */
void fleet_start(struct job *job); /* begins to start an agent on every host */
void fleet_retry(struct job *job); /* those whose time has come */
void fleet_send_start(struct job *job);
/* One rank of a driven job alone: its worker is started, or ended. */
void fleet_spawn_rank(struct job *job, int32_t rank);
/* The same for an elastic job, whose workers have no rank yet. */
void fleet_spawn_worker(struct job *job, struct host_run *run, uint32_t index,
                        const struct list *env);
void fleet_halt_worker(struct job *job, struct host_run *run, uint32_t index, int64_t grace_ms);
void fleet_start_host(struct job *job, struct host_run *run);    /* the agent, not its workers */
void fleet_send_start_to(struct job *job, struct host_run *run); /* START, once it is up */
void fleet_stop_host(struct job *job, struct host_run *run, int64_t grace_ms);
void fleet_drop_host(struct job *job, struct host_run *run); /* its agent is given up */
void fleet_send_notice(struct job *job, const struct notice *notice);
void fleet_halt_rank(struct job *job, int32_t rank, int64_t grace_ms);
void fleet_event(struct job *job, const struct job_tag *tag);
void fleet_flush(struct job *job);
void fleet_reaped(struct job *job, pid_t pid, int code);
void fleet_send_stop(struct job *job, int64_t grace_ms);
void fleet_send_signal(struct job *job, int signal_number);
/* What are these workers of a host doing? `what`: of LOOK_*. Answers go to survey_answer() and
 * look_answer(). */
void fleet_send_look(struct job *job, struct host_run *run, uint32_t number, uint8_t what,
                     const uint32_t *indexes, uint32_t count);
/* How a rank ended, for the errors of all others. */
void fleet_send_end(struct job *job, int32_t rank, const char *text);
void fleet_ping(struct job *job, int64_t now_ns);  /* remote agents, every few seconds */
void fleet_pause(struct job *job, bool is_paused); /* do not read from the agents */
bool fleet_is(const struct job *job, enum host_stage at_least);
int64_t fleet_next_retry_ns(const struct job *job);
void fleet_destroy(struct job *job);

/* rendezvous.c */
hvd_status_t rendezvous_open(struct job *job, struct error *error);
/* Elastic: where the workers of this host, which may be new, find the store. */
hvd_status_t rendezvous_open_for(struct job *job, const struct host_run *run, struct error *error);
void rendezvous_close(struct job *job);

/* ladder.c */
void ladder_tick(struct job *job, int64_t now_ns);
/* A rank that has ended and will not be at the meeting that others wait in, or -1. */
int32_t ladder_never_came(const struct job *job);
/* "ssh ok, started, has not dialled back to ..."; ret_text at least 256 bytes. */
void ladder_describe(const struct job *job, const struct host_run *run, char *ret_text,
                     size_t bytes);

/* report.c */
void summary_take(struct job *job, const struct cause *cause); /* a part of rank 0's paragraph */
void summary_print(struct job *job);                           /* if --summary asks for it */
void report_print(struct job *job);
/* "was killed by signal 9 (SIGKILL)" */
void report_describe_end(const struct rank_run *end, char *ret_text, size_t bytes);
const char *report_host(const struct job *job, int32_t rank); /* of a static job */
int report_exit_code(const struct job *job);

#endif
