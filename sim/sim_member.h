/* SPDX-License-Identifier: Apache-2.0 */
/* sim_member.h - processes that join, leave, crash and hang while others meet: the state machine of
 * member/member.h against the real table of the store, in virtual time, from a seed.
 *
 * Three kinds of jobs: one whose launcher names the members of each generation and starts
 * replacements; a static one with the launcher's store; a static one whose rank 0 serves a separate
 * store in each life. Messages take a random time, connections to the store may break.
 * The launcher is a simple one in this file, or that of the caller (struct sim_launcher).
 *
 * Checked: members of a generation agree on its number, its list and its key; no process that is
 * not on the list ever runs in it; keys of generations differ; no attempt to meet outlasts its
 * deadline; once the faults stop, every remaining process runs in one generation, or has been
 * refused for good.
 *
 * Thread: one.  Start reading at sim_member_run() in sim_member.c. */
#ifndef HVD_SIM_MEMBER_H
#define HVD_SIM_MEMBER_H

#include "base/os.h"
#include "base/status.h"
#include "sim_verdict.h"
#include "wire/store_table.h"

#define SIM_MEMBER_SCOPE "world"

struct trial;

/* A launcher of the caller's: it starts processes, ends them and names generations by the functions
 * below, and hears what happens. Processes are numbered from 0 and never used again. */
struct sim_launcher {
    void *ctx;
    void (*begin)(void *ctx, struct trial *t, struct table *table);
    /* Something has happened, or it is due; returns when it is due again, INT64_MAX: not by time */
    int64_t (*turn)(void *ctx, int64_t now_ns);
    void (*broke)(void *ctx, int proc, uint64_t epoch, int culprit); /* a process; -1: none */
    /* `is_finished`: it has done the job's work */
    void (*ended)(void *ctx, int proc, int code, int signal, bool is_finished);
    void (*chaos)(void *ctx); /* called from time to time until the faults stop */
    void (*check)(void *ctx); /* at the end of the trial */
    void (*destroy)(void *ctx);
};

/* -1: too many, which is a violation. A spare is good for any generation. */
int sim_member_start(struct trial *t, const char *worker);
/* `signal` 0: it exits by itself with `code`. `is_silent`: nobody reports its end. */
void sim_member_kill(struct trial *t, int proc, int code, int signal, bool is_silent);
void sim_member_hang(struct trial *t, int proc); /* for a while */
bool sim_member_is_alive(const struct trial *t, int proc);
bool sim_member_is_meeting(const struct trial *t, int proc);
/* With the caller's launcher: the generation is in the table from now on. */
void sim_member_generation(struct trial *t, uint64_t epoch, const struct store_member *members,
                           int count, uint64_t notice);
void sim_member_abandon(struct trial *t); /* as store_server_abandon() */
/* Members of generations before this notice leave them soon. */
void sim_member_notice(struct trial *t, uint64_t version);
/* From then on a process that runs finishes the work. */
void sim_member_finish_at(struct trial *t, int64_t at_ns);
void sim_member_stop(struct trial *t); /* the trial is over */
int64_t sim_member_now(const struct trial *t);
uint64_t sim_member_draw(struct trial *t, uint64_t below);
struct sim_verdict *sim_member_verdict(struct trial *t);
void sim_member_trace(struct trial *t, const char *text);

struct sim_member_options {
    uint64_t seed;
    const struct sim_launcher *launcher; /* NULL: the one of this file, or none */
    void (*trace)(const char *line);     /* may be NULL */
};

struct sim_member_report {
    struct sim_verdict verdict;
    uint64_t hash; /* of all events: equal seeds give equal hashes */
    int64_t end_ns;
    uint64_t events, generations, runs, crashes, hangs, refused, failed;
};

/* true: nothing was violated. */
bool sim_member_run(const struct os *os, const struct sim_member_options *options,
                    struct sim_member_report *ret);

#endif
