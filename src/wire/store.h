/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the rendezvous: a small authenticated store served by the launcher (or by rank 0 where
 * there is no launcher), with epochs.
 *
 * Requests on one connection, one after the other, after a handshake:
 *   JOIN(scope, worker, life, least epoch, index, count)  answers with the generation that the
 *       worker is a member of: its epoch, its salt and its members; see store_roster.h
 *   EXCHANGE(scope, epoch, index, count, blob)  answers with all `count` blobs once all have come
 *   PUT(scope, key, blob)   GET(scope, key, wait)   DELETE(scope)   PING
 * Blobs are at most STORE_BLOB_MAX, keys STORE_KEY_MAX, the whole store STORE_TOTAL_MAX; a scope
 * has at most STORE_COUNT_MAX entries. An EXCHANGE of another epoch than the scope's is refused.
 * Frames are sealed with keys from the handshake (see docs/decisions): nothing is parsed before its
 * authenticity is known. Listens only on the addresses it is given.
 *
 * Thread: the server belongs to one loop; the client blocks its caller, never longer than its
 * deadline. Start reading at store_server_progress(). */
#ifndef HVD_WIRE_STORE_H
#define HVD_WIRE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

#define STORE_BLOB_MAX      (64u << 20)
#define STORE_KEY_MAX       256u
#define STORE_COUNT_MAX     65536u
#define STORE_TOTAL_MAX     (512u << 20)
#define STORE_WORKER_MAX    64u
#define STORE_SALT_BYTES    32u
#define STORE_WHY_MAX       512u
#define STORE_EPOCH_ANY     UINT64_MAX /* whatever stands; JOIN: whichever has this worker */
#define STORE_STRANGERS_MAX 256        /* TCP connections without a verified hello */

struct store_server;
struct store_client;

/* Who may join, where the process that serves decides. `ask`: HVD_OK lets the worker in, or makes
 * it wait until it is a member; anything else refuses it with that status, and ret_why has the
 * reason. */
struct store_judge {
    void *ctx;
    hvd_status_t (*ask)(void *ctx, const char *worker, char ret_why[STORE_WHY_MAX]);
};

/* How far a worker has come in its scope. */
enum store_standing {
    STORE_ABSENT,
    STORE_WAITING, /* for a generation that has not begun, or that it is not a member of */
    STORE_JOINED,  /* the generation that stands */
    STORE_ARRIVED  /* and has brought its addresses */
};

/* A rank's place among the machines, where the process that serves decides it. */
struct store_place {
    int32_t local_rank, local_size, cross_rank, cross_size;
};

/* One member of a generation; its rank is its index in the list. */
struct store_member {
    char worker[STORE_WORKER_MAX + 1];
    struct store_place place;
};

/* A generation as a member of it is told. */
struct store_generation {
    uint64_t epoch;
    uint8_t salt[STORE_SALT_BYTES]; /* of the generation's key: wire/key.h */
    int32_t rank, size;
    uint64_t notice;              /* changes up to this one are accounted for; 0: none */
    bool has_members;             /* false: a static job, whose ranks are their own worker ids */
    struct store_member *members; /* size entries by os_alloc; NULL unless has_members */
};

/* address: "unix:NAME" (abstract), "HOST:PORT" or "[V6]:PORT"; port 0 = any, A-B = one of these.
 * The address to give to clients comes back in `ret_address` (at least 256 bytes). */
hvd_status_t store_server_create(const struct os *os, const char *address, const uint8_t key[32],
                                 struct store_server **ret, char *ret_address, struct error *error);
/* More addresses of the same store (several interfaces). */
hvd_status_t store_server_listen(struct store_server *s, const char *address, char *ret_address,
                                 struct error *error);
int store_server_poll_fd(const struct store_server *s); /* readable when progress has work */
void store_server_progress(struct store_server *s, int64_t now_ns); /* never blocks */
int64_t
store_server_deadline_ns(const struct store_server *s); /* next time-out, INT64_MAX = none */
/* Direct access for the process that serves. A blob stays valid until changed. */
hvd_status_t store_server_put(struct store_server *s, const char *scope, const char *key,
                              const void *blob, size_t n);
const void *store_server_get(const struct store_server *s, const char *scope, const char *key,
                             size_t *ret_n);
void store_server_delete(struct store_server *s, const char *scope);
/* From now on the caller decides who is in a generation of `scope`. The epoch must rise. Members of
 * the last generation that wait in its exchange are sent back to join again; whoever waits to join
 * is let in or refused. `notice` is passed on to the members (wire/notice.h). HVD_ERR_INVALID,
 * HVD_ERR_LIMIT: nothing has changed. */
hvd_status_t store_server_generation(struct store_server *s, const char *scope, uint64_t epoch,
                                     const struct store_member *members, uint32_t count,
                                     uint64_t notice);
/* Before the first generation: from now on the judge is asked about every worker that joins. */
hvd_status_t store_server_judge(struct store_server *s, const char *scope,
                                const struct store_judge *judge);
/* The generation that stands is broken, and the next one is not known yet: whoever waits in its
 * exchange, or is connecting, is sent back to join the next; whoever joins waits for that. Scopes
 * that are watched only. */
void store_server_abandon(struct store_server *s, const char *scope);
/* The judge would answer differently now: whoever waits is asked about again. */
void store_server_review(struct store_server *s, const char *scope);
enum store_standing store_server_standing(const struct store_server *s, const char *scope,
                                          const char *worker);
/* Grows with every request and every connection that closes: when to look at standings again. */
uint64_t store_server_changes(const struct store_server *s);
/* The epoch that stands, 0: none; *ret_is_met: its members have exchanged their addresses. */
uint64_t store_server_epoch(const struct store_server *s, const char *scope, bool *ret_is_met);
/* Does this worker wait for a generation that has not begun? */
bool store_server_is_waiting(const struct store_server *s, const char *scope, const char *worker);
/* The first rank that an exchange which timed out waited for, from the error text of the store; -1:
 * the text is about something else. *ret_summary: the part of the text that is for users. */
int32_t store_missing_rank(const char *text, const char **ret_summary);
/* How far an exchange got: bit i of ret_present set if index i has arrived (start-up ladder). */
int32_t store_server_arrived(const struct store_server *s, const char *scope, uint64_t epoch,
                             uint8_t *ret_present, int32_t count);
/* Who of this exchange vanishes? From now on a member is remembered whose connection closes without
 * a LEAVE (store_client_close() says it, a dead process does not), until it comes back. */
void store_server_watch(struct store_server *s, const char *scope);
/* A member that vanished before this time and has not come back, or -1. */
int32_t store_server_vanished(const struct store_server *s, int64_t before_ns);
void store_server_destroy(struct store_server *s);

/* Dials `addresses` (comma separated, all tried in parallel). Every call below ends by deadline_ns
 * (os->now_ns clock) with HVD_ERR_TIMEOUT whose text says what was missing. */
hvd_status_t store_client_open(const struct os *os, const char *addresses, const uint8_t key[32],
                               uint64_t epoch, int32_t rank, int64_t deadline_ns,
                               struct store_client **ret, struct error *error);
/* What a member asks of a scope. */
struct store_join {
    const char *scope, *worker;
    uint64_t life;        /* random, not 0: tells this process and attempt from others */
    uint64_t epoch;       /* the least one that it can be in; 0: any */
    int32_t index, count; /* of a static job; a driven roster overrules them */
};
/* HVD_ERR_STALE: not a member, the text says why. store_generation_end() frees. */
hvd_status_t store_client_join(struct store_client *c, const struct store_join *join,
                               int64_t deadline_ns, struct store_generation *ret,
                               struct error *error);
void store_generation_end(const struct os *os, struct store_generation *g);
/* ret_blobs: one allocation (os_free it) holding `count` entries; ret_offsets[count + 1] are filled
 * by the call. */
hvd_status_t store_client_exchange(struct store_client *c, const char *scope, uint64_t epoch,
                                   int32_t index, int32_t count, const void *blob, size_t n,
                                   int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                   struct error *error);
hvd_status_t store_client_put(struct store_client *c, const char *scope, const char *key,
                              const void *blob, size_t n, int64_t deadline_ns, struct error *error);
/* *ret_blob by os_alloc; HVD_AGAIN if absent and !is_waiting. */
hvd_status_t store_client_get(struct store_client *c, const char *scope, const char *key,
                              bool is_waiting, int64_t deadline_ns, void **ret_blob, size_t *ret_n,
                              struct error *error);
hvd_status_t store_client_delete(struct store_client *c, const char *scope, int64_t deadline_ns,
                                 struct error *error);
/* Says LEAVE if an exchange was entered: whoever lives closes. */
void store_client_close(struct store_client *c);

/* ---- the same without blocking: begin one thing, then call progress until it is over ---- */

/* Never fails but for memory; HVD_IN_PROGRESS otherwise, and store_client_progress() dials. */
hvd_status_t store_client_begin(const struct os *os, const char *addresses, const uint8_t key[32],
                                int32_t rank, int64_t deadline_ns, struct store_client **ret,
                                struct error *error);
/* One request at a time; `blob` must stay until it is over. */
hvd_status_t store_client_begin_join(struct store_client *c, const struct store_join *join,
                                     int64_t deadline_ns, struct error *error);
hvd_status_t store_client_begin_exchange(struct store_client *c, const char *scope, uint64_t epoch,
                                         int32_t index, int32_t count, const void *blob, size_t n,
                                         int64_t deadline_ns, struct error *error);
/* HVD_IN_PROGRESS: call again when the descriptor is readable or the time has come. HVD_OK: dialled
 * or answered; take the answer of the request. Else: failed. */
hvd_status_t store_client_progress(struct store_client *c, struct error *error);
int store_client_poll_fd(const struct store_client *c);
int64_t store_client_next_ns(const struct store_client *c);
bool store_client_is_lost(const struct store_client *c); /* failed since the connection broke */
hvd_status_t store_client_take_join(struct store_client *c, struct store_generation *ret,
                                    struct error *error);
hvd_status_t store_client_take_exchange(struct store_client *c, int32_t count, uint8_t **ret_blobs,
                                        size_t *ret_offsets, struct error *error);

#endif
