/* SPDX-License-Identifier: Apache-2.0 */
/* member.h - one process on its way into a generation and out of it again, as a state machine.
 *
 * Events in, actions out, nothing else: no socket, no clock, no memory. meeting.c carries the
 * actions out on a real store; the simulator does so in virtual time. Every wait has an end: while
 * it meets, there is a time at which it must be told MEMBER_TIME.
 *
 *     IDLE -> DIALLING -> JOINING -> EXCHANGING -> CONNECTING -> RUNNING -> BROKEN -> DIALLING ...
 *
 * docs/decisions/0014-membership.md has the picture with all arrows.
 * Thread: the owner's.  Blocks: never.  Start reading at member_step(). */
#ifndef HVD_MEMBER_MEMBER_H
#define HVD_MEMBER_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MEMBER_PAUSE_NS    (INT64_C(20) * 1000 * 1000) /* before the store is looked for again */
#define MEMBER_ACTIONS_MAX 4
#define MEMBER_EPOCH_ANY   UINT64_MAX /* least: a spare, good for whichever counts on it */

enum member_state {
    MEMBER_IDLE,
    MEMBER_DIALLING,   /* meeting: the store is looked for */
    MEMBER_JOINING,    /* meeting: which generation is this? */
    MEMBER_EXCHANGING, /* addresses with all other members */
    MEMBER_CONNECTING, /* to all other members */
    MEMBER_RUNNING,
    MEMBER_BROKEN, /* nothing works until it is asked to meet again */
    MEMBER_LEFT    /* refused as a member, or left: for good */
};

enum member_event_kind {
    MEMBER_ASKED,     /* to meet, for the first time or again; life, deadline_ns */
    MEMBER_REACHED,   /* the store */
    MEMBER_UNREACHED, /* the store; status; is_final: looking again is no use */
    MEMBER_JOINED,    /* epoch */
    MEMBER_EXCHANGED, /* all addresses are here */
    MEMBER_REFUSED,   /* the store answered with an error; status */
    MEMBER_CLOSED,    /* the connection to the store was lost; status */
    MEMBER_LINKED,    /* to all members */
    MEMBER_UNLINKED,  /* could not be; status */
    MEMBER_BROKE,     /* the engine, or a peer; status */
    MEMBER_STOPPED,   /* shut down in order */
    MEMBER_LEAVE,     /* asked to */
    MEMBER_TIME       /* has passed */
};

struct member_event {
    enum member_event_kind kind;
    int64_t now_ns;
    hvd_status_t status;
    bool is_final;
    uint64_t epoch, life;
    int64_t deadline_ns;
};

enum member_action {
    MEMBER_DIAL,      /* look for the store and connect to it */
    MEMBER_JOIN,      /* ask for a generation not before member.least */
    MEMBER_EXCHANGE,  /* addresses */
    MEMBER_CONNECT,   /* the transports, and build the engine on them */
    MEMBER_HANG_UP,   /* the store; whoever lives says so */
    MEMBER_TEAR_DOWN, /* links and engine of the generation */
    MEMBER_REPORT     /* the meeting is over: see state and status */
};

struct member {
    enum member_state state;
    uint64_t epoch;  /* of the generation it is or was last in, once that had met; 0: none */
    uint64_t joined; /* the generation whose members are meeting */
    uint64_t least;  /* it is good for no generation before this */
    uint64_t life;   /* of this attempt to meet */
    uint64_t refused_epoch;
    int64_t deadline_ns; /* of this attempt to meet */
    int64_t wake_ns;     /* DIALLING: when to look for the store again; INT64_MAX: it is dialled */
    bool may_redial;     /* a store that is not found may be found later */
    bool may_return;     /* a store that hangs up may be back under the same address */
    bool may_meet_again; /* a generation that does not connect may be followed by another */
    hvd_status_t status; /* BROKEN, LEFT: why */
};

struct member_actions {
    enum member_action list[MEMBER_ACTIONS_MAX];
    int count;
};

/* `epoch`: of the last generation of this process, 0: none; `least`: as above. */
void member_init(struct member *m, uint64_t epoch, uint64_t least);
void member_step(struct member *m, const struct member_event *event, struct member_actions *ret);
/* When MEMBER_TIME is due; INT64_MAX: never. */
int64_t member_next_ns(const struct member *m);
bool member_is_meeting(const struct member *m); /* an attempt to meet is under way */

#endif
