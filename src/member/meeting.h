/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.h - carries out what member.h decides: dials the store, joins, exchanges addresses, and
 * hands over to the transports.
 *
 * Everything waits on one descriptor and one time, so that a loop of any kind can drive it;
 * meeting_run() is such a loop, which blocks. Only ops->connect may block, as transports do today.
 *
 * Thread: the owner's.  Owner: api, or a test.  Start reading at meeting_progress(). */
#ifndef HVD_MEMBER_MEETING_H
#define HVD_MEMBER_MEETING_H

#include "base/os.h"
#include "member/member.h"
#include "wire/store.h"

#define MEETING_ADDRESSES_MAX 512

struct meeting_ops {
    void *ctx;
    /* Where the store is, and the job key. HVD_AGAIN: not known yet; may_redial then looks again.
     * *ret_limit_ns: how long that is worth a try; 0: as long as there is time. */
    hvd_status_t (*find)(void *ctx, char ret_addresses[MEETING_ADDRESSES_MAX], uint8_t ret_key[32],
                         int64_t *ret_limit_ns, struct error *error);
    /* What the others are to know of us; stays until the next call. */
    hvd_status_t (*introduce)(void *ctx, const struct store_generation *g, const void **ret_blob,
                              size_t *ret_n, struct error *error);
    hvd_status_t (*connect)(void *ctx, const struct store_generation *g, const uint8_t *blobs,
                            const size_t *offsets, struct error *error);
    void (*tear_down)(void *ctx); /* what introduce and connect made */
    /* No store was found in time: says it in the words of whoever knows where it should be. NULL:
     * the last trouble says it all. */
    void (*unfound)(void *ctx, const struct error *trouble, struct error *ret_error);
};

struct meeting {
    const struct os *os;
    const struct meeting_ops *ops;
    const char *scope, *worker;
    int32_t index, count; /* of a static job */
    struct member member;
    struct store_generation generation; /* from JOINED on */
    struct store_client *client;
    int poll_fd;
    bool is_over;         /* REPORT: the attempt has ended, well or not */
    struct error trouble; /* the last failure */
};

/* Zeroed before. `scope` and `worker` are borrowed. */
hvd_status_t meeting_init(struct meeting *m, const struct os *os, const struct meeting_ops *ops,
                          const char *scope, const char *worker, struct error *error);
/* Begins to meet, for the first time or again. */
hvd_status_t meeting_begin(struct meeting *m, int64_t deadline_ns, struct error *error);
/* HVD_IN_PROGRESS: again when poll_fd is readable or meeting_next_ns() has come. HVD_OK: running.
 */
hvd_status_t meeting_progress(struct meeting *m, struct error *error);
int64_t meeting_next_ns(const struct meeting *m);
hvd_status_t meeting_run(struct meeting *m, int64_t deadline_ns, struct error *error); /* blocks */
/* What happens to a member that runs: MEMBER_BROKE, MEMBER_STOPPED, MEMBER_LEAVE. */
void meeting_tell(struct meeting *m, enum member_event_kind kind, hvd_status_t status);
/* While ops->connect is at work: has the store closed, so that there is no use in going on? */
bool meeting_is_abandoned(const struct meeting *m);
void meeting_end(struct meeting *m); /* tears nothing down; safe on a zeroed one */

#endif
