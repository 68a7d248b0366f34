/* SPDX-License-Identifier: Apache-2.0 */
/* explore_programs.h - the small worlds that are explored; see sim_explore.h for the letters. */
#ifndef HVD_TESTS_EXPLORE_PROGRAMS_H
#define HVD_TESTS_EXPLORE_PROGRAMS_H

#include "sim_explore.h"

#define EXPLORE_PROGRAMS (sizeof explore_programs / sizeof explore_programs[0])

static const struct explore_options explore_programs[] = {
    /* two ranks: other orders, a mismatch, a cached name that changes, joins, shutdown */
    {.ranks = 2, .programs = {"abc", "cab"}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"aB.a", "ab.a"}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"a.A.a.", "a.A.a."}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"a.a.Ab.", "a.a.bA."}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"a.aj", "abj"}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"aja", "baja"}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"ahzyb", "bhzya"}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"abs", "bas"}, .crashes = 1, .timeouts = 1},
    {.ranks = 2, .programs = {"ab.s", "a"}, .crashes = 1, .timeouts = 1},
    /* the same with plans: kept, broken by one rank alone, broken by all, left by a join */
    {.ranks = 2,
     .programs = {"a.a.a.a.a.a.", "a.a.a.a.a.a."},
     .crashes = 1,
     .timeouts = 1,
     .plan_warmup = 1},
    {.ranks = 2,
     .programs = {"ab.ab.ab.", "ab.ab.ab."},
     .crashes = 1,
     .timeouts = 1,
     .plan_warmup = 1},
    {.ranks = 2,
     .programs = {"a.a.a.ba.", "a.a.a.ab."},
     .crashes = 1,
     .timeouts = 1,
     .plan_warmup = 1},
    {.ranks = 2,
     .programs = {"a.a.a.A.a", "a.a.a.A.a"},
     .crashes = 1,
     .timeouts = 1,
     .plan_warmup = 1},
    {.ranks = 2,
     .programs = {"a.a.a.a.j", "a.a.a.j"},
     .crashes = 1,
     .timeouts = 1,
     .plan_warmup = 1},
    {.ranks = 2,
     .programs = {"a.a.a.a.s", "a.a.a.s"},
     .crashes = 1,
     .timeouts = 1,
     .plan_warmup = 1},
    /* three ranks */
    {.ranks = 3, .programs = {"ab", "ba", "ab"}, .crashes = 1, .timeouts = 1},
    {.ranks = 3, .programs = {"aB", "ba", "ba"}, .crashes = 1},
    {.ranks = 3, .programs = {"a.a", "a.A", "a.a"}, .crashes = 1},
    {.ranks = 3, .programs = {"aj", "j", "aj"}, .crashes = 1},
    {.ranks = 3, .programs = {"a.s", "a", "as"}, .crashes = 1},
    {.ranks = 3, .programs = {"a.a.a.a", "a.a.a.a", "a.a.a.b"}, .timeouts = 1, .plan_warmup = 1},
    {.ranks = 3, .programs = {"a.a.a.aj", "a.a.a.j", "a.a.a.aj"}, .plan_warmup = 1},
    {.ranks = 3, .programs = {"abc", "bca", "cab"}},
};

#endif
