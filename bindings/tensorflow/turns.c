/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - see turns.h. Two lists under one lock: calls in flight, and calls that wait. */
#include "turns.h"

#include <pthread.h>
#include <stddef.h>

static struct {
    pthread_mutex_t lock;
    struct turn *flying, *waiting_head, *waiting_tail;
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool shares_name(const struct turn *a, const struct turn *b)
{
    return a->owner == b->owner && a->set == b->set;
}

static bool has_mate_in_flight(const struct turn *turn)
{
    for (const struct turn *other = turns.flying; other != NULL; other = other->next)
        if (shares_name(turn, other))
            return true;
    return false;
}

static void push_flying(struct turn *turn)
{
    turn->previous = NULL;
    turn->next = turns.flying;
    if (turn->next != NULL)
        turn->next->previous = turn;
    turns.flying = turn;
}

static void remove_flying(struct turn *turn)
{
    if (turn->previous != NULL)
        turn->previous->next = turn->next;
    else
        turns.flying = turn->next;
    if (turn->next != NULL)
        turn->next->previous = turn->previous;
}

static void push_waiting(struct turn *turn)
{
    turn->next = NULL;
    turn->previous = turns.waiting_tail;
    if (turns.waiting_tail != NULL)
        turns.waiting_tail->next = turn;
    else
        turns.waiting_head = turn;
    turns.waiting_tail = turn;
}

static struct turn *take_waiting(const struct turn *mate)
{
    struct turn *turn = turns.waiting_head;
    while (turn != NULL && !shares_name(turn, mate))
        turn = turn->next;
    if (turn == NULL)
        return NULL;
    if (turn->previous != NULL)
        turn->previous->next = turn->next;
    else
        turns.waiting_head = turn->next;
    if (turn->next != NULL)
        turn->next->previous = turn->previous;
    else
        turns.waiting_tail = turn->previous;
    return turn;
}

hvd_status_t turns_submit(struct turn *turn, hvd_status_t (*submit)(void *), void *arg)
{
    pthread_mutex_lock(&turns.lock);
    hvd_status_t status = submit(arg);
    if (status == HVD_OK) {
        push_flying(turn);
    } else if (status == HVD_ERR_DUPLICATE && has_mate_in_flight(turn)) {
        push_waiting(turn);
        status = HVD_IN_PROGRESS;
    }
    pthread_mutex_unlock(&turns.lock);
    return status;
}

struct turn *turns_end(struct turn *turn, bool was_in_flight)
{
    pthread_mutex_lock(&turns.lock);
    if (was_in_flight)
        remove_flying(turn);
    struct turn *next = take_waiting(turn);
    pthread_mutex_unlock(&turns.lock);
    return next;
}
