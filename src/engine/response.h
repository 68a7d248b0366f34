/* SPDX-License-Identifier: Apache-2.0 */
/* response.h - the responses of a coordinator: items are collected into messages, which are sent
 * and applied locally one after the other.
 *
 * Thread: token holder of the set's lowest rank.  Start reading at response_room(). */
#ifndef HVD_ENGINE_RESPONSE_H
#define HVD_ENGINE_RESPONSE_H

#include "engine/message.h"

struct coordinator;
struct procset;

#define RESPONSE_BYTES      (256u << 10) /* of an ordinary message */
#define RESPONSE_ITEM_FIXED 256u /* of any item: all fields of fixed size, including dimensions */

bool response_create(struct coordinator *c); /* false: no memory */
void response_destroy(struct coordinator *c);
/* A writer with room for an item of at most `bytes`. Without memory it stops the job and returns a
 * writer that discards its input. */
struct writer *response_room(struct procset *set, size_t bytes);
/* Sends the collected items, and those that applying them adds. */
void response_deliver(struct procset *set);
/* The same if there is more than one message; not while one is being applied. */
void response_deliver_full(struct procset *set);

#endif
