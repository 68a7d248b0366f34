/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c - what a worker of an elastic job asks its launcher, and hears from it: notices of
 * workers that come and go (wire/notice.h), the generation, and the wish to leave (wire/cause.h).
 *
 * Thread: any.  Start reading at hvd_notice(). */
#include <pthread.h>
#include <stdio.h>

#include "api/instance.h"
#include "api/meet.h"
#include "wire/cause.h"
#include "wire/notice.h"

/* The page stays where it is for as long as the process lives: a thread may be reading it. */
static pthread_once_t page_once = PTHREAD_ONCE_INIT;
static struct notice_page *page;

static void page_open(void)
{
    const struct os *os = os_host();
    const char *path = os->env(os->ctx, "HOROVOD_NOTICE_FILE");
    page = notice_open(os, path != NULL ? path : "");
}

uint32_t hvd_notice(uint64_t since, uint64_t *ret_version)
{
    struct notice notice;
    pthread_once(&page_once, page_open);
    notice_read(page, &notice);
    *ret_version = notice.version;
    return (notice.added_version > since ? HVD_NOTICE_ADDED : 0) |
           (notice.removed_version > since ? HVD_NOTICE_REMOVED : 0);
}

bool hvd_generation(uint64_t *ret_epoch, uint64_t *ret_notice)
{
    struct world *world = instance_enter();
    bool is_elastic = world != NULL && meet_is_elastic(world);
    *ret_epoch = world != NULL ? world->epoch : 0;
    *ret_notice = world != NULL ? world->notice : 0;
    if (world != NULL)
        instance_leave();
    return is_elastic;
}

hvd_status_t hvd_leave_request(void)
{
    const struct os *os = os_host();
    struct error *error = instance_error();
    const char *worker = os->env(os->ctx, "HOROVOD_WORKER");
    const char *pipe = os->env(os->ctx, "HOROVOD_CAUSE_PIPE");
    struct cause cause = {.kind = CAUSE_LEAVE, .culprit = -1};
    if (worker == NULL || worker[0] == '\0' || pipe == NULL)
        return error_set(error, HVD_ERR_UNSUPPORTED,
                         "This process is not a worker of an elastic horovodrun.");
    snprintf(cause.worker, sizeof cause.worker, "%s", worker);
    int fd = cause_open(os, pipe);
    if (fd < 0)
        return error_set_os(error, fd, "The pipe to horovodrun, %s, can't be opened", pipe);
    cause_send(os, fd, &cause);
    os->close(os->ctx, fd);
    return HVD_OK;
}
