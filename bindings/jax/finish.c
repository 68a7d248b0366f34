/* SPDX-License-Identifier: Apache-2.0 */
/* finish.c - see finish.h. One queue under one lock. Threads are detached: at the end of the
 * process nobody waits for them. If no thread can be started and none is there, the caller's thread
 * does the work: slower, but nothing is lost. */
#include "finish.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum { IDLE_S = 10 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t is_filled;
    struct finish_item *first, **end;
    int queued, idle, threads;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .is_filled = PTHREAD_COND_INITIALIZER};

static struct finish_item *pop(void)
{
    struct finish_item *item = queue.first;
    queue.first = item->next;
    if (queue.first == NULL)
        queue.end = NULL;
    queue.queued--;
    return item;
}

/* The next item, or NULL after a while without one. The lock is held. */
static struct finish_item *await_item(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += IDLE_S;
    queue.idle++;
    while (queue.first == NULL &&
           pthread_cond_timedwait(&queue.is_filled, &queue.lock, &until) != ETIMEDOUT) {}
    queue.idle--;
    return queue.first != NULL ? pop() : NULL;
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    for (struct finish_item *item; (item = await_item()) != NULL;) {
        pthread_mutex_unlock(&queue.lock);
        item->run(item);
        pthread_mutex_lock(&queue.lock);
    }
    queue.threads--;
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

/* The lock is held. */
static bool start_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool is_started = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_attr_destroy(&attributes);
    queue.threads += is_started;
    return is_started;
}

void finish_push(struct finish_item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&queue.lock);
    bool is_short = queue.queued >= queue.idle && queue.threads < FINISH_THREADS_MAX;
    if (is_short && !start_thread() && queue.threads == 0) {
        pthread_mutex_unlock(&queue.lock);
        item->run(item);
        return;
    }
    if (queue.first == NULL)
        queue.first = item;
    else
        *queue.end = item;
    queue.end = &item->next;
    queue.queued++;
    pthread_cond_signal(&queue.is_filled);
    pthread_mutex_unlock(&queue.lock);
}
