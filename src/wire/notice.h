/* SPDX-License-Identifier: Apache-2.0 */
/* notice.h - how a running worker learns that workers come or go: a page of memory that its agent
 * writes and it reads, without a socket, a thread or a system call.
 *
 * The page is a file in the agent's private folder. Changes of membership are numbered from 1 on;
 * the page holds the number of the last change and those of the last ones that added and removed
 * workers. A generation accounts for all changes up to a number that its members are told when they
 * join (store_server_generation()), so that a change is neither lost nor seen twice.
 *
 * Thread: one writer; any reader.  Blocks: never.  Start reading at notice_read(). */
#ifndef HVD_WIRE_NOTICE_H
#define HVD_WIRE_NOTICE_H

#include <stdint.h>

#include "base/os.h"

struct notice_page;

struct notice {
    uint64_t version, added_version, removed_version;
};

/* The agent's end: makes the file. NULL: not possible, and then workers hear nothing. */
struct notice_page *notice_create(const struct os *os, const char *path);
void notice_write(struct notice_page *page, const struct notice *notice);
/* The worker's end. NULL: `path` is "" or not such a file. */
struct notice_page *notice_open(const struct os *os, const char *path);
void notice_read(const struct notice_page *page, struct notice *ret);
void notice_close(const struct os *os, struct notice_page *page); /* NULL is fine */

#endif
