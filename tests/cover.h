/* SPDX-License-Identifier: Apache-2.0 */
/* cover.h - included before every test of a coverage build: a forked rank that exits with _exit()
 * writes its counts first, otherwise code that only ranks run would not count. */
#ifndef HVD_TESTS_COVER_H
#define HVD_TESTS_COVER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <unistd.h>

extern void __gcov_dump(void);

static inline _Noreturn void cover_exit(int code)
{
    __gcov_dump();
    _exit(code);
}
#define _exit cover_exit

#endif
