/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - what the launcher and its agents say to each other, over the agent's stdin and stdout
 * (a socket pair here, ssh elsewhere).
 *
 * A message is a length, a type and a payload of plain values. The agent's side begins with a
 * greeting line; whatever a remote shell printed before it is kept for error messages and otherwise
 * ignored. The channel is as private as ssh makes it, so the job key may travel on it.
 * Thread: the link's owner.  Blocks: never.  Start reading at link_next(). */
#ifndef HVD_LAUNCHER_MESSAGE_H
#define HVD_LAUNCHER_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/codec.h"
#include "base/os.h"
#include "base/status.h"
#include "mem.h"

#define MESSAGE_VERSION   6u
#define MESSAGE_MAX       (64u << 20) /* START carries whole environments */
#define MESSAGE_TEXT_MAX  (8u << 20)
#define MESSAGE_CHUNK     65536u
#define MESSAGE_GREETING  "HOROVODRUN-AGENT-1\n"
#define MESSAGE_NOISE_MAX (1u << 20)
#define MESSAGE_KEY_BYTES 32u

enum message_type {
    /* to the agent */
    MESSAGE_START = 1,  /* key, addresses to dial, directory, environment, command, u8 is_lasting,
                           ranks; is_lasting: the agent stays when all of them have ended */
    MESSAGE_STOP = 2,   /* u32 grace in ms: SIGTERM, then SIGKILL */
    MESSAGE_SIGNAL = 3, /* u32 signal for every worker's group */
    MESSAGE_PING = 4,   /* u64 echoed; 0: only a sign of life */
    MESSAGE_SERVE = 5,  /* doctor: key; listen for a probe */
    MESSAGE_DIAL = 6,   /* doctor: key, addresses; dial and measure */
    MESSAGE_SPAWN = 7,  /* u32 index, environment: one more worker, after START */
    MESSAGE_HALT = 8,   /* u32 index, u32 grace in ms: STOP for this worker alone */
    MESSAGE_NOTICE = 9, /* u64 version, added, removed: for all workers, wire/notice.h */
    MESSAGE_LOOK = 10,  /* u32 number, u8 of LOOK_*, list of u32 index: what are these workers
                           doing? */
    MESSAGE_END = 11,   /* u64 epoch, u32 rank, text: how that rank ended, for all workers */
    /* from the agent */
    MESSAGE_HELLO = 32,   /* u32 version, texts: release, host, ssh peer, machine, python */
    MESSAGE_STARTED = 33, /* u32 number of workers, text where the key file is or "" */
    MESSAGE_OUTPUT = 34,  /* u32 index of the worker, u8 stream (1, 2), bytes to the end */
    MESSAGE_EXIT = 35,    /* u32 index, u32 pid, u32 code, u32 signal, i64 age_ns, u8 is_oom */
    MESSAGE_TROUBLE = 36, /* text: the agent could not do what it was told; the host is lost */
    MESSAGE_NOTE = 37,    /* text, for --verbose */
    MESSAGE_GONE = 38,    /* nothing of the job is left on this host */
    MESSAGE_PONG = 39,    /* u64 echo, i64 wall clock in us */
    MESSAGE_SERVING = 40, /* doctor: text, the addresses */
    MESSAGE_MEASURED =
        41,               /* doctor: text address or "", f64 round trip us, f64 bytes/s, text why */
    MESSAGE_CAUSE = 42,   /* u32 rank, u32 the rank that it blames or ~0, text; before its EXIT; u8
                             kind, u64 epoch, text worker, i64 count, i64 waited_ms: wire/cause.h */
    MESSAGE_SPAWNED = 43, /* u32 index, u32 pid or 0, text why not */
    MESSAGE_LOOKED = 44   /* u32 number, u32 index, u32 pid, texts: state, where, inner, inside,
                             frames, u8 is_inside: inspect.h; blob: wire/ask.h */
};

/* of MESSAGE_LOOK */
#define LOOK_STACK  1u /* its Python stacks */
#define LOOK_STATUS 2u /* what its core reports */

struct link {
    const struct os *os;
    int in_fd, out_fd; /* -1: closed; may be the same number */
    struct bytes in, out;
    struct bytes noise; /* what came before the greeting */
    bool is_synced;     /* the greeting was seen (or is not expected) */
    size_t consumed;    /* of `in`, by the message handed out last */
    size_t building;    /* offset of the message under construction, from out.start */
};

void link_init(struct link *l, const struct os *os, int in_fd, int out_fd, bool wants_greeting);
void link_destroy(struct link *l); /* closes the descriptors */

void message_begin(struct link *l, enum message_type type);
void message_u8(struct link *l, uint8_t v);
void message_u32(struct link *l, uint32_t v);
void message_u64(struct link *l, uint64_t v);
void message_f64(struct link *l, double v);
void message_raw(struct link *l, const void *bytes, size_t n);
void message_text(struct link *l, const char *text);
void message_list(struct link *l, const struct list *list);
void message_end(struct link *l);

/* HVD_OK: all written. HVD_IN_PROGRESS: more when writable. HVD_ERR_LINK: the other side is gone.
 */
hvd_status_t link_flush(struct link *l);
bool link_has_output(const struct link *l);
/* Reads once. HVD_AGAIN: nothing there. HVD_ERR_LINK: closed. */
hvd_status_t link_fill(struct link *l);
/* The next whole message; the view is good until the next call. HVD_AGAIN: none yet. */
hvd_status_t link_next(struct link *l, enum message_type *ret_type, struct reader *ret_payload);

/* Reads of payloads. */
char *message_get_text(struct mem *m, struct reader *r);
void message_get_list(struct mem *m, struct reader *r, struct list *ret);

#endif
