/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - see meet.h. */
#define _GNU_SOURCE
#include "meet.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SPINS_CROWDED 50u

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int meet_core_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void meet_idle(bool is_crowded, unsigned turn)
{
    if (is_crowded && turn >= SPINS_CROWDED) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static struct meet_page *map(int fd)
{
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *page = mmap(NULL, sizeof(struct meet_page), PROT_READ | PROT_WRITE, flags, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

struct meet_page *meet_page_create(int *ret_fd)
{
    if (ret_fd == NULL)
        return map(-1);
    int fd = memfd_create("bench-meet", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct meet_page *page = ftruncate(fd, sizeof *page) == 0 ? map(fd) : NULL;
    if (page == NULL) {
        close(fd);
        return NULL;
    }
    *ret_fd = fd;
    return page;
}

struct meet_page *meet_page_open(int pid, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return NULL;
    struct meet_page *page = map(mine);
    close(mine);
    return page;
}

void meet_init(struct meet *m, struct meet_page *page, int rank, int size)
{
    *m = (struct meet){
        .page = page, .rank = rank, .size = size, .is_crowded = size > meet_core_count()};
}

void meet_barrier(struct meet *m)
{
    uint32_t generation = atomic_load(&m->page->generation);
    if (atomic_fetch_add(&m->page->arrived, 1) + 1 == (uint32_t)m->size) {
        atomic_store(&m->page->arrived, 0);
        atomic_store(&m->page->generation, generation + 1);
        return;
    }
    for (unsigned turn = 0; atomic_load(&m->page->generation) == generation; turn++)
        meet_idle(m->is_crowded, turn);
}

double meet_max(struct meet *m, double mine)
{
    struct meet_slot *slots = m->page->slots[m->turn++ & 1];
    slots[m->rank].number = mine;
    meet_barrier(m);
    double max = slots[0].number;
    for (int i = 1; i < m->size; i++)
        max = slots[i].number > max ? slots[i].number : max;
    return max;
}

void meet_exchange(struct meet *m, const void *mine, size_t bytes, void *ret_all)
{
    struct meet_slot *slots = m->page->slots[m->turn++ & 1];
    memcpy(slots[m->rank].blob, mine, bytes);
    meet_barrier(m);
    for (int i = 0; i < m->size; i++)
        memcpy((uint8_t *)ret_all + (size_t)i * bytes, slots[i].blob, bytes);
}
