/* SPDX-License-Identifier: Apache-2.0 */
/* dump.c - see dump.h. */
#include "api/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "api/instance.h"

#define NO_FOLDER "There is no folder to write to: pass one, or set HOROVOD_POSTMORTEM_DIR."

/* Written under another name first, so that a reader never sees half of it. */
static int file_write(const struct os *os, const struct dump *dump)
{
    int fd = os->open(os->ctx, dump->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    int64_t done = 1;
    for (size_t at = 0; at < dump->bytes && done > 0; at += (size_t)done)
        done = os->write(os->ctx, fd, dump->text + at, dump->bytes - at);
    os->close(os->ctx, fd);
    int rc =
        done <= 0 ? (done < 0 ? (int)done : -EIO) : os->rename(os->ctx, dump->part, dump->path);
    if (rc < 0)
        os->unlink(os->ctx, dump->part);
    return rc;
}

bool dump_take(struct world *world, const char *folder, const char *reason, bool is_token,
               struct dump *ret)
{
    const struct os *os = world->os;
    unsigned number = atomic_fetch_add(&world->dumps, 1); /* two threads may write at once */
    *ret = (struct dump){.os = os};
    if (strlen(folder) >= sizeof ret->folder)
        return false;
    snprintf(ret->folder, sizeof ret->folder, "%s", folder);
    snprintf(ret->path, sizeof ret->path, "%s/rank.%d.json", folder, world->place.rank);
    snprintf(ret->part, sizeof ret->part, "%s.%u.part", ret->path, number);
    ret->text = os_alloc(os, HVD_SNAPSHOT_BYTES);
    if (ret->text == NULL)
        return false;
    ret->bytes = snapshot_text(world, reason, is_token, ret->text, HVD_SNAPSHOT_BYTES);
    return true;
}

int dump_write(struct dump *dump)
{
    const struct os *os = dump->os;
    os->mkdir(os->ctx, dump->folder, 0700); /* it may be there */
    int rc = file_write(os, dump);
    os_free(os, dump->text);
    dump->text = NULL;
    return rc;
}

void dump_postmortem(struct world *world)
{
    struct dump dump;
    if (!dump_take(world, world->config.postmortem_dir, "failure", true, &dump))
        return;
    int rc = dump_write(&dump);
    if (rc < 0)
        LOG_AT(&world->log, LOG_WARNING, "HOROVOD_POSTMORTEM_DIR: %s can't be written: %s.",
               dump.path, strerror(-rc));
}

hvd_status_t hvd_dump(const char *folder)
{
    struct error *error = instance_error();
    struct dump dump;
    struct world *world = instance_enter();
    if (world == NULL)
        return error_set(error, HVD_ERR_NOT_INITIALIZED,
                         "Horovod has not been initialized; use hvd.init().");
    if (folder == NULL || folder[0] == '\0')
        folder = world->config.postmortem_dir;
    if (folder[0] == '\0') {
        instance_leave();
        return error_set(error, HVD_ERR_CONFIG, NO_FOLDER);
    }
    bool is_taken = dump_take(world, folder, "dump", false, &dump);
    instance_leave(); /* a disk that does not answer must not keep a shutdown */
    if (!is_taken)
        return error_set(error, HVD_ERR_NO_MEMORY,
                         "A snapshot for %.200s does not fit in memory, or that name is too long.",
                         folder);
    int rc = dump_write(&dump);
    return rc < 0 ? error_set_os(error, rc, "%s can't be written", dump.path) : HVD_OK;
}
