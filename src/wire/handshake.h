/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.h - mutual challenge and response at the start of every link, as a non-blocking state
 * machine.
 *
 * Both sides send a nonce and prove knowledge of the 32-byte job key by HMAC-SHA256 over (label,
 * version, purpose, epoch, both ranks, role, both nonces); directions have different labels, so
 * nothing can be reflected or replayed. Fixed 128-byte messages; the caller sets the deadline (5 s)
 * and the number of pending ones. HKDF of the key and a hash of both hellos gives one key per
 * direction. Not a byte behind the handshake is read, so frames may follow at once.
 *
 * Thread: the link's owner.  Blocks: never.  Start reading at handshake_step(). */
#ifndef HVD_WIRE_HANDSHAKE_H
#define HVD_WIRE_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "base/status.h"

#define HANDSHAKE_BYTES    128
#define HANDSHAKE_VERSION  1u
#define HANDSHAKE_ANY_RANK (-1)
/* For a service that outlives epochs (the store, the agent): matches every epoch of the peer. */
#define HANDSHAKE_ANY_EPOCH UINT64_MAX

enum handshake_purpose {
    HANDSHAKE_STORE = 1,
    HANDSHAKE_SHM = 2,
    HANDSHAKE_TCP = 3,
    HANDSHAKE_AGENT = 4
};

struct handshake {
    uint8_t key[32];
    enum handshake_purpose purpose;
    bool is_dialer;
    uint64_t epoch;
    int32_t self_rank;
    int32_t peer_rank;  /* in: expected, or HANDSHAKE_ANY_RANK; out: proven. Not bounded:
                           after ANY_RANK the caller compares it with its world's size */
    uint32_t word;      /* in: told to the peer under the MAC (e.g. the number of a flow) */
    uint32_t peer_word; /* out */
    uint8_t send_key[32], recv_key[32]; /* out */
    /* the machine's own */
    int state;
    uint8_t nonce[32], peer_nonce[32];
    uint8_t transcript[32]; /* hash of both hellos: binds the proofs and the link keys to them */
    uint64_t peer_epoch;
    uint8_t out[HANDSHAKE_BYTES], in[HANDSHAKE_BYTES];
    size_t out_done, out_size, in_done;
};

hvd_status_t handshake_begin(struct handshake *h, const struct os *os,
                             enum handshake_purpose purpose, bool is_dialer, const uint8_t key[32],
                             uint64_t epoch, int32_t self_rank, int32_t peer_rank, uint32_t word);
/* HVD_IN_PROGRESS: call again when the socket is ready. HVD_OK: proven. HVD_ERR_AUTH, _STALE (right
 * key, other epoch), _LINK: close the socket; `error` says why in plain words. */
hvd_status_t handshake_step(struct handshake *h, const struct os *os, int fd, struct error *error);
bool handshake_wants_write(const struct handshake *h);
/* Listener: the dialer's hello was made with the key. It may still be a recorded one: the proof
 * that follows can't be. */
bool handshake_is_hello_verified(const struct handshake *h);
/* Listener: nothing has come of the message that is due. */
bool handshake_is_idle(const struct handshake *h);
/* Two verified hellos with one nonce: the second was recorded from the first. */
bool handshake_is_same_hello(const struct handshake *a, const struct handshake *b);
void handshake_end(struct handshake *h); /* wipes keys */

#endif
