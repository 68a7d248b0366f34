/* SPDX-License-Identifier: Apache-2.0 */
/* launcher_mem.h - memory and an error of each test of the launcher's pure parts. The launcher is a
 * program, so they are compiled into their tests: include this after launcher/mem.c. */
#ifndef HVD_TESTS_LAUNCHER_MEM_H
#define HVD_TESTS_LAUNCHER_MEM_H

static struct mem mem;
static struct error error;

static int set_up(void **state)
{
    (void)state;
    mem_init(&mem, os_host());
    error_clear(&error);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mem_destroy(&mem);
    return 0;
}

#endif
