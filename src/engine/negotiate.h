/* SPDX-License-Identifier: Apache-2.0 */
/* negotiate.h - agree across a process set which ops every rank has submitted: the half that every
 * member runs. The root's half is coordinator.h; apply.h applies its decisions.
 *
 * Thread: token holder.  Blocks: never.  Start reading at negotiate_op(). */
#ifndef HVD_ENGINE_NEGOTIATE_H
#define HVD_ENGINE_NEGOTIATE_H

#include "base/status.h"
#include "engine/message.h"

struct op;
struct procset;

void negotiate_op(struct procset *set, struct op *op); /* a new local op */
void negotiate_flush(struct procset *set);             /* send the collected announcements */
void negotiate_message(struct procset *set, int32_t from, const struct message_head *head,
                       struct reader *r, const void *bytes, size_t n);
/* A peer violates the protocol: fills `error` with its name and what it did ("announced x twice").
 * The function that applies its message returns that, and the set breaks with it on all members. */
hvd_status_t negotiate_misbehaved(const struct procset *set, int32_t index, struct error *error,
                                  const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same about a response: it is the coordinator's, whichever rank relayed it. */
hvd_status_t negotiate_refused(const struct procset *set, struct error *error, const char *format,
                               ...) __attribute__((format(printf, 3, 4)));
hvd_status_t negotiate_announce(struct procset *set, struct op *op, struct error *error);
/* Root: sends items to all members. The first MESSAGE_HEAD_BYTES bytes of `message` are reserved
 * for the header. */
void negotiate_respond(struct procset *set, uint8_t *message, size_t n);
void negotiate_generation(
    struct procset *set); /* a new one begins: nothing announced before counts */
void negotiate_down(struct procset *set, enum message_type type, const void *body, size_t n);
void negotiate_up(struct procset *set, enum message_type type, const void *body, size_t n);
void negotiate_again(struct procset *set); /* announce all pending ops again (new generation) */
/* Marks the set broken; sends the cause to the other members if is_told. */
void negotiate_set_broken(struct procset *set, hvd_status_t status, const char *text, bool is_told);

#endif
