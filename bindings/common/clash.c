/* SPDX-License-Identifier: Apache-2.0 */
/* clash.c - see clash.h. One list under one lock. */
#include "clash.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    struct flight *head;
} flights = {.lock = PTHREAD_MUTEX_INITIALIZER};

void clash_enter(struct flight *flight)
{
    pthread_mutex_lock(&flights.lock);
    flight->has_clashed = false;
    flight->previous = NULL;
    flight->next = flights.head;
    if (flight->next != NULL)
        flight->next->previous = flight;
    flights.head = flight;
    pthread_mutex_unlock(&flights.lock);
}

void clash_report(struct flight *flight)
{
    pthread_mutex_lock(&flights.lock);
    for (struct flight *other = flights.head; other != NULL; other = other->next)
        if (other != flight && other->set == flight->set && strcmp(other->name, flight->name) == 0)
            other->has_clashed = true;
    pthread_mutex_unlock(&flights.lock);
}

bool clash_leave(struct flight *flight)
{
    pthread_mutex_lock(&flights.lock);
    assert(flight->previous != NULL || flights.head == flight);
    if (flight->previous != NULL)
        flight->previous->next = flight->next;
    else
        flights.head = flight->next;
    if (flight->next != NULL)
        flight->next->previous = flight->previous;
    bool has_clashed = flight->has_clashed;
    pthread_mutex_unlock(&flights.lock);
    return has_clashed;
}

void clash_describe(const struct flight *flight, char *ret_text, size_t bytes)
{
    snprintf(ret_text, bytes,
             "Requested to allreduce, allgather, or broadcast a tensor with the same name as "
             "another tensor that is currently being processed.  If you want to request another "
             "tensor, use a different tensor name. (tensor: %.400s; both calls fail, because ranks "
             "may have combined one with the other)",
             flight->name);
}
