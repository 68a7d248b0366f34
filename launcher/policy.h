/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h - who is in an elastic job: which workers are started and ended, and which of them are
 * the next generation.
 *
 * Events in, actions out (struct policy_ops): no process, socket or clock is touched here, so that
 * unit tests and the simulator can drive it. elastic.c carries the actions out.
 *
 * A worker is STARTING until it waits in the room: it has called hvd.init(), and the store keeps
 * it. Members of the generation that stands come back to the room when they ask for another one.
 * One rule makes a generation: once a member was lost, was blamed or has asked, all members that
 * live have to ask, and those that do not are evicted in time; then the survivors, in the order of
 * their ranks, and after them whoever else waits in the room, are the next generation. Nobody waits
 * for a process that is still starting, unless fewer than min_np are there.
 *
 * Thread: the launcher's loop.  Owner: struct elastic, or a test.
 * Invariants: a worker's number at its host is never used again; who was evicted never comes back;
 * every wait has an end in policy_next_ns().  Start reading at policy_turn(). */
#ifndef HVD_LAUNCHER_POLICY_H
#define HVD_LAUNCHER_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cooldown.h"
#include "mem.h"
#include "wire/notice.h"

#define POLICY_TEXT_MAX  1024u
#define POLICY_WHY_MAX   400u
#define POLICY_NAME_MAX  256u
#define POLICY_CRASH_MAX 5  /* quick crashes in a row after which a slot or a host is given up */
#define POLICY_QUICK_S   10 /* a member that fails by itself this soon has crashed quickly */
#define POLICY_DELAY_S   1  /* before the second restart, doubled each time */
#define POLICY_DELAY_MAX 30

struct policy_options {
    int32_t np;     /* slots needed before anything is started */
    int32_t min_np; /* members needed to go on */
    int32_t max_np; /* members at the most */
    int32_t spares;
    int32_t reset_limit; /* generations after the first; -1: no limit */
    bool is_fixed;       /* the hosts will not change */
    bool has_cooldown;
    int64_t cooldown_low_s, cooldown_high_s;
    int64_t timeout_ns; /* for enough slots, and for enough workers */
    int64_t silent_ns;  /* for a sign of life from a member, once its generation broke */
    int64_t regroup_ns; /* for a member that lives to ask, once another one has */
    int64_t blame_ns;   /* for a member that others blame to ask, or to end by itself */
    int64_t halt_ns;    /* from its eviction, or removal, to its end */
};

enum policy_state {
    POLICY_NONE, /* free for the next worker */
    POLICY_STARTING,
    POLICY_WAITING, /* in the room, not a member */
    POLICY_MEMBER,
    POLICY_EVICTED, /* refused for ever; it still has to end */
    POLICY_REMOVED  /* told to exit; it still has to end */
};

struct policy_worker {
    enum policy_state state;
    int32_t host;
    uint32_t index; /* at the host */
    int32_t slot;   /* of the host; -1: a spare */
    bool is_asking; /* MEMBER: in the room again */
    bool is_leaving, is_polite;
    bool is_announced; /* WAITING: the members know */
    bool has_arrived;  /* MEMBER: brought its addresses to the generation that stands */
    bool has_reported; /* MEMBER: said that the generation broke */
    bool is_halted;
    bool is_next;                             /* while a generation is chosen */
    int32_t rank;                             /* MEMBER; else -1 */
    int32_t culprit;                          /* worker that it blamed, has_reported; -1: none */
    int64_t started_ns, member_ns, blamed_ns; /* 0: not */
    int64_t unseen_ns; /* MEMBER: when it was last in the room but is no longer; 0: it was not */
    int64_t halt_at_ns;
    char why[POLICY_WHY_MAX]; /* EVICTED, REMOVED */
};

struct policy_slot {
    int32_t worker; /* -1: free */
    int32_t crashes;
    int64_t retry_ns;
    bool is_given_up, is_vacated;
};

enum policy_host_state { POLICY_HOST_CLOSED, POLICY_HOST_OPENING, POLICY_HOST_UP };

struct policy_host {
    char name[POLICY_NAME_MAX];
    enum policy_host_state state;
    bool is_listed, is_seen;
    int32_t order;        /* of discovery */
    int32_t listed_slots; /* those to be filled */
    int32_t slot_count;   /* those that there ever were, or that a spare needed */
    struct policy_slot *slots;
    int32_t slot_room;
    uint32_t next_index;
    struct cooldown cooldown;
    int32_t failures; /* of its agent, or of its spares, in a row */
    int64_t retry_ns;
    int32_t spare_crashes;
    int64_t spare_retry_ns;
    bool is_given_up;
};

struct policy_ops {
    void *ctx;
    void (*open_host)(void *ctx, int32_t host);
    void (*close_host)(void *ctx, int32_t host);
    void (*spawn)(void *ctx, int32_t worker);
    void (*halt)(void *ctx, int32_t worker);
    void (*review)(void *ctx);     /* policy_judge() may answer differently now */
    void (*announce)(void *ctx);   /* policy.notice */
    void (*generation)(void *ctx); /* policy.epoch, members, member_count */
    void (*stop)(void *ctx);       /* policy.end_text, end_code; called once */
    void (*say)(void *ctx, const char *text);
    double (*chance)(void *ctx); /* in [0, 1) */
};

/* How a worker ended. */
struct policy_end {
    int code, signal;
    bool is_oom;
    const char *text; /* "exited with code 1" */
};

struct policy {
    struct mem *mem;
    const struct policy_ops *ops;
    struct policy_options options;
    struct policy_host *hosts;
    int32_t host_count, host_room, order_next;
    struct policy_worker *workers;
    int32_t worker_count, worker_room;
    uint64_t epoch;                              /* 0: no generation yet */
    int32_t *members, member_count, member_room; /* by rank */
    int32_t *next, next_count, next_room;        /* those to be */
    int32_t resets;
    bool is_met, is_broken, is_forced; /* of the generation that stands */
    int64_t named_ns, broken_ns;
    int64_t room_ns;       /* since when a worker waits for the first generation; 0: none does */
    int64_t short_ns;      /* since when there are too few; 0: there are enough */
    int64_t short_said_ns; /* when that was last reported */
    bool has_started;      /* np slots were there */
    bool has_seen_room;    /* a worker has called hvd.init() */
    bool is_finishing, is_over;
    bool needs_review;
    bool is_removal_due; /* a member is to leave, and the members do not know */
    struct notice notice;
    int64_t now_ns;

    /* the first failure since the last generation that met */
    char cause[POLICY_TEXT_MAX];
    int cause_code;       /* exit code that it stands for; 0: none */
    uint64_t cause_count; /* changes when it does */
    bool is_cause_victim;
    uint64_t cause_epoch;
    bool is_cause_member;
    uint64_t failed_epoch; /* 1 + the epoch in which a member failed by itself; 0: none */
    char last_end[POLICY_TEXT_MAX];

    char end_text[2 * POLICY_TEXT_MAX];
    int end_code;
};

void policy_init(struct policy *p, struct mem *mem, const struct policy_ops *ops,
                 const struct policy_options *options, int64_t now_ns);

/* ---- events; after them, policy_turn() ---- */
struct policy_listed {
    const char *name;
    int32_t slots;
};
/* All hosts that there are now, in their order. */
void policy_hosts(struct policy *p, const struct policy_listed *list, int32_t count);
void policy_host_up(struct policy *p, int32_t host);
void policy_host_down(struct policy *p, int32_t host, const char *text);
/* What the store knows: is it in the room; has it brought its addresses? */
void policy_worker_seen(struct policy *p, int32_t worker, bool is_waiting, bool has_arrived);
void policy_met(struct policy *p); /* all members of the generation that stands have arrived */
/* `culprit`: a rank of that epoch, or -1. */
void policy_worker_broke(struct policy *p, int32_t worker, uint64_t epoch, int32_t culprit,
                         const char *text);
void policy_worker_leaves(struct policy *p, int32_t worker);
void policy_worker_ended(struct policy *p, int32_t worker, const struct policy_end *end);

/* ---- decisions ---- */
void policy_turn(struct policy *p, int64_t now_ns);
int64_t policy_next_ns(const struct policy *p); /* when a turn is due; INT64_MAX: not by time */

/* ---- questions ---- */
int32_t policy_find(const struct policy *p, int32_t host, uint32_t index); /* -1: none */
hvd_status_t policy_judge(const struct policy *p, int32_t worker, char *ret_why, size_t bytes);
/* The slot that a worker that starts now will have, for its environment; a spare: one of none. */
int32_t policy_local_rank(const struct policy *p, int32_t worker);
int32_t policy_local_size(const struct policy *p, int32_t host); /* members there */
void policy_cross(const struct policy *p, int32_t worker, int32_t *ret_rank, int32_t *ret_size);

#endif
