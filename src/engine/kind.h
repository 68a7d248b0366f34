/* SPDX-License-Identifier: Apache-2.0 */
/* kind.h - the names of the kinds of ops, in every form that users see. One table; a new kind is a
 * row of it.
 *
 * Thread: any (pure).  Start reading at the table in kind.c. */
#ifndef HVD_ENGINE_KIND_H
#define HVD_ENGINE_KIND_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds beyond hvd_kind_t that requests may have. */
enum {
    KIND_SET_ADD = 16,
    KIND_SET_REMOVE = 17,
    KIND_SET_OPEN = 18, /* a set that one of its members asks for */
    KIND_SEND = 19,     /* direct.h; these two are never negotiated */
    KIND_RECV = 20,
    KIND_SET_CLOSE = 21 /* one member no longer needs a set that it has opened */
};

bool kind_is_set_change(uint8_t kind);
const char *kind_title(uint8_t kind);                          /* "Allreduce": error messages */
const char *kind_prefix(uint8_t kind);                         /* "allreduce": generated names */
const char *kind_name(uint8_t kind, uint8_t reduce);           /* "ALLREDUCE", "ADASUM", ... */
const char *kind_negotiate_name(uint8_t kind, uint8_t reduce); /* "NEGOTIATE_ALLREDUCE", ... */

#endif
