/* SPDX-License-Identifier: Apache-2.0 */
/* policy_private.h - what the files of the policy share: policy_state.c keeps the tables,
 * policy_events.c notes what happens, policy_staff.c and policy.c hold the rules.
 *
 * Thread: the launcher's loop. */
#ifndef HVD_LAUNCHER_POLICY_PRIVATE_H
#define HVD_LAUNCHER_POLICY_PRIVATE_H

#include "policy.h"

#define NS_PER_S    1000000000LL
#define SIGNAL_BASE 128
#define SAY_EVERY_S 10

/* ---- policy_state.c ---- */

void *policy_grow(struct mem *m, void *items, int32_t count, int32_t *room, size_t bytes);
bool policy_is_live(const struct policy_worker *w);
bool policy_is_spare(const struct policy_worker *w);
int32_t policy_host_find(const struct policy *p, const char *name);
void policy_slots_extend(struct policy *p, struct policy_host *h, int32_t count);
int32_t policy_live_on(const struct policy *p, int32_t host, bool spares);
/* Workers that are, or will be, members. */
int32_t policy_staff_on(const struct policy *p, int32_t host); /* -1: on any */
int32_t policy_staff_count(const struct policy *p);
bool policy_is_usable(const struct policy *p, const struct policy_host *h);
int32_t policy_host_slots(const struct policy_host *h); /* those that may be filled */
int32_t policy_slot_sum(const struct policy *p);
void policy_stop(struct policy *p, int code, const char *text);
void policy_stop_for(struct policy *p, const char *text);
void policy_break_generation(struct policy *p, bool is_forced);
void policy_slot_leave(struct policy *p, const struct policy_worker *w);
void policy_evict(struct policy *p, int32_t worker, bool is_at_once, const char *why);
void policy_release(struct policy *p, int32_t worker, const char *why);
int32_t policy_stayer_count(const struct policy *p);
void policy_leave(struct policy *p, int32_t worker, const char *why);
int32_t policy_worker_new(struct policy *p, int32_t host, int32_t slot);

/* ---- policy_events.c ---- */

void policy_note_cause(struct policy *p, int code, bool is_victim, bool is_member,
                       const char *text);

/* ---- policy_staff.c ---- */

void policy_tend_ending(struct policy *p);
void policy_tend_finish(struct policy *p);
int64_t policy_member_limit_ns(const struct policy *p, const struct policy_worker *w);
void policy_tend_members(struct policy *p);
void policy_tend_hosts(struct policy *p);
void policy_tend_staff(struct policy *p);

#endif
