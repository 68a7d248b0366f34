/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h - what horovodrun's agent and a rank of its machine exchange on the rank's Unix socket
 * (HOROVOD_STATUS_SOCKET): the agent asks what the rank is doing, or reports how another rank
 * ended.
 *
 * A connection carries one request: a byte of enum ask_kind and, for ASK_END, a record. The rank
 * answers ASK_STATUS with a record and closes the connection. A thread of the library serves the
 * socket, so a rank answers whatever its own threads do; only a stopped process does not. The
 * socket is in the folder of the key file, which only the job's user can enter, and each side
 * checks the other's user. Neither side trusts what it reads.
 *
 * Thread: any.  Blocks: never.  Start reading at ask_status_put(). */
#ifndef HVD_WIRE_ASK_H
#define HVD_WIRE_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os.h"

#define ASK_STATUS_MAX 4096u /* bytes of a record */
#define ASK_END_MAX    512u
#define ASK_PEERS_MAX  32

enum ask_kind {
    ASK_STATUS = 's',
    ASK_END = 'e' /* an ask_end record follows */
};

/* What a rank has exchanged with another one, and waited for it, since init. */
struct ask_peer {
    int32_t rank;
    int64_t awaits_ns; /* for its data, in memory that both share */
    uint64_t sent_bytes, received_bytes;
    int64_t send_ns, receive_ns; /* with a transfer under way */
};

struct ask_status {
    int32_t rank, size;
    uint64_t epoch;
    char state[24];    /* as in a snapshot: "running", "busy", "broken" ... */
    char cause[320];   /* why it broke; "": it has not */
    int64_t busy_ns;   /* "busy": since when an internal thread does not return */
    uint64_t steps;    /* complete steps; a job without names that repeat has none */
    int64_t step_ns;   /* duration of the last complete step */
    int64_t since_ns;  /* how long ago it ended */
    int32_t in_flight; /* ops submitted and not complete */
    /* The batch in execution or, if there is none, the op that waits longest. */
    char op[160];     /* "": none */
    char doing[24];   /* "moving", "announced" ...; "not submitted": other ranks wait for it here */
    int64_t op_ns;    /* for how long */
    char missing[96]; /* ranks that it waits for, "1,3"; "": not known */
    /* Sums since init. */
    int64_t steps_ns, alone_ns; /* of all complete steps; of that, without an op pending */
    uint64_t op_bytes;          /* inputs of the ops that have run */
    int64_t user_ns, system_ns; /* processor time of the process */
    char slow[96]; /* rank 0: slow ranks and why, "2 late submit,5 late transfer"; "": none */
    int32_t peer_count;
    struct ask_peer peers[ASK_PEERS_MAX]; /* those with the longest waits and transfers */
};

/* How a rank ended, for the errors of the others. */
struct ask_end {
    uint64_t epoch; /* of the generation in which it had this rank; 0: a static job's */
    int32_t rank;
    char text[256]; /* "was killed by signal 9 (SIGKILL) on host b" */
};

/* Writes at most ASK_STATUS_MAX, or ASK_END_MAX, bytes; returns how many. Longer texts are cut. */
size_t ask_status_put(const struct ask_status *status, uint8_t *ret_bytes);
size_t ask_end_put(const struct ask_end *end, uint8_t *ret_bytes);
/* False: the bytes are not a record. Control characters in texts become blanks. */
bool ask_status_get(const uint8_t *bytes, size_t n, struct ask_status *ret);
bool ask_end_get(const uint8_t *bytes, size_t n, struct ask_end *ret);

/* A socket that listens at this path, in place of an older one; negative errno. */
int ask_listen(const struct os *os, const char *path);
/* A connection to it; negative errno: nobody listens, or it is another user's. */
int ask_connect(const struct os *os, const char *path);

#endif
