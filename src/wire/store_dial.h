/* SPDX-License-Identifier: Apache-2.0 */
/* store_dial.h - finding the store: all addresses are dialled at once, the first that proves the
 * key and answers is kept.
 *
 * An address that refuses, or does not exist yet, is tried again with growing pauses until the
 * deadline: workers often start before the server does.
 *
 * Thread: the caller's.  Blocks: until the deadline at most.  Start reading at store_dial(). */
#ifndef HVD_WIRE_STORE_DIAL_H
#define HVD_WIRE_STORE_DIAL_H

#include "wire/address.h"
#include "wire/channel.h"

struct store_dial {
    const struct os *os;
    struct budget *budget;
    const struct cipher *cipher; /* NULL: authentication only */
    const char *addresses;
    const uint8_t *key;
    uint64_t epoch;
    int32_t rank;
    int64_t deadline_ns;
    int poll_fd; /* empty before and after */
};

/* Moves the winner into *ret_channel; it is in no poller. */
hvd_status_t store_dial(const struct store_dial *dial, struct channel *ret_channel,
                        struct address *ret_address, struct error *error);

#endif
