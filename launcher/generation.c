/* SPDX-License-Identifier: Apache-2.0 */
/* generation.c - see generation.h. */
#include "generation.h"

#include <stdio.h>
#include <string.h>

void generation_init(struct mem *m, struct generation *g, struct slot *slots, int32_t count)
{
    *g = (struct generation){.count = count, .slots = slots};
    g->seats = mem_alloc(m, (size_t)count * sizeof *g->seats);
    g->ranks = mem_alloc(m, (size_t)count * sizeof *g->ranks);
    for (int32_t i = 0; i < count; i++)
        g->seats[i].run = -1;
}

void generation_seat(struct generation *g, int32_t rank, int32_t run, uint32_t index)
{
    g->seats[rank] = (struct seat){run, index};
}

static bool is_at(const struct generation *g, int32_t rank, int32_t run, uint32_t index)
{
    return rank < g->count && g->seats[rank].run == run && g->seats[rank].index == index;
}

int32_t generation_rank(const struct generation *g, int32_t run, uint32_t index)
{
    int32_t first = 0;
    while (first < g->count && g->seats[first].run != run)
        first += g->slots[first].local_size > 0 ? g->slots[first].local_size : 1;
    if (index < (uint32_t)g->count && is_at(g, first + (int32_t)index, run, index))
        return first + (int32_t)index; /* nobody was replaced: the numbers are the ranks */
    for (int32_t i = 0; i < g->count; i++)
        if (is_at(g, i, run, index))
            return i;
    return -1;
}

void generation_worker(const struct generation *g, int32_t rank, char *ret_name)
{
    snprintf(ret_name, STORE_WORKER_MAX + 1, "%d.%u", g->seats[rank].run, g->seats[rank].index);
}

void generation_replace(struct mem *m, struct generation *g, int32_t rank, uint32_t index,
                        struct generation *ret)
{
    generation_init(m, ret, g->slots, g->count);
    memcpy(ret->seats, g->seats, (size_t)g->count * sizeof *g->seats);
    memcpy(ret->ranks, g->ranks, (size_t)g->count * sizeof *g->ranks);
    ret->seats[rank].index = index;
    memset(&ret->ranks[rank], 0, sizeof ret->ranks[rank]);
    ret->epoch = g->epoch + 1;
    g->state = GENERATION_OVER;
}

struct store_member *generation_members(struct mem *m, const struct generation *g)
{
    struct store_member *members = mem_alloc(m, (size_t)g->count * sizeof *members);
    for (int32_t i = 0; i < g->count; i++) {
        const struct slot *slot = &g->slots[i];
        generation_worker(g, i, members[i].worker);
        members[i].place = (struct store_place){.local_rank = slot->local_rank,
                                                .local_size = slot->local_size,
                                                .cross_rank = slot->cross_rank,
                                                .cross_size = slot->cross_size};
    }
    return members;
}
