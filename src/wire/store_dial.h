/* SPDX-License-Identifier: Apache-2.0 */
/* store_dial.h - finding the store: all addresses are dialled at once, the first that proves the
 * key and answers is kept.
 *
 * An address that refuses, or does not exist yet, is tried again with growing pauses until the
 * deadline: workers often start before the server does.
 *
 * Thread: the caller's.  Owner: store_client.c.  Blocks: never.  Start reading at
 * store_dial_step(). */
#ifndef HVD_WIRE_STORE_DIAL_H
#define HVD_WIRE_STORE_DIAL_H

#include "wire/address.h"
#include "wire/channel.h"

struct store_attempt;

struct store_dial {
    const struct os *os;
    struct budget *budget;
    const struct cipher *cipher; /* NULL: authentication only */
    const char *addresses;       /* borrowed, as the key */
    const uint8_t *key;
    uint64_t epoch;
    int32_t rank;
    int64_t deadline_ns;
    int poll_fd; /* empty before and after */
    /* the machine's own, zero at the start */
    int64_t next_ns; /* when to step again, ready descriptors or not */
    struct store_attempt *attempts;
    int count;
};

/* HVD_IN_PROGRESS: again when poll_fd has something or next_ns has come. HVD_OK: the winner has
 * moved into *ret_channel and is in no poller. Else it has failed. */
hvd_status_t store_dial_step(struct store_dial *dial, struct channel *ret_channel,
                             struct address *ret_address, struct error *error);
void store_dial_end(struct store_dial *dial); /* also on one that was never stepped */

#endif
