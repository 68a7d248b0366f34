/* SPDX-License-Identifier: Apache-2.0 */
/* notice.c - see notice.h. The version is written last: what is newer than the version that a
 * reader sees does not count for it yet, and will when the version does. */
#include "wire/notice.h"

#include <fcntl.h>
#include <stdatomic.h>

#define MAGIC  0x68766e74u
#define LAYOUT 1u

struct notice_page {
    uint32_t magic, layout;
    _Atomic uint64_t version, added_version, removed_version;
};

static struct notice_page *page_map(const struct os *os, int fd)
{
    struct notice_page *page = os->map(os->ctx, fd, os->page_bytes(os->ctx), -1);
    os->close(os->ctx, fd);
    return page;
}

struct notice_page *notice_create(const struct os *os, const char *path)
{
    size_t bytes = os->page_bytes(os->ctx);
    int fd = os->open(os->ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return NULL;
    if (os->pwrite(os->ctx, fd, "", 1, (int64_t)bytes - 1) != 1) {
        os->close(os->ctx, fd);
        return NULL;
    }
    struct notice_page *page = page_map(os, fd);
    if (page != NULL) {
        page->layout = LAYOUT;
        page->magic = MAGIC;
    }
    return page;
}

struct notice_page *notice_open(const struct os *os, const char *path)
{
    struct os_file file;
    int fd = path[0] != '\0' ? os->open(os->ctx, path, O_RDWR | O_NOFOLLOW, 0) : -1;
    if (fd < 0)
        return NULL;
    /* Only a whole page can be touched safely. */
    if (os->fstat(os->ctx, fd, &file) < 0 || file.bytes < os->page_bytes(os->ctx)) {
        os->close(os->ctx, fd);
        return NULL;
    }
    struct notice_page *page = page_map(os, fd);
    if (page != NULL && (page->magic != MAGIC || page->layout != LAYOUT)) {
        notice_close(os, page);
        return NULL;
    }
    return page;
}

void notice_write(struct notice_page *page, const struct notice *notice)
{
    if (page == NULL)
        return;
    atomic_store(&page->added_version, notice->added_version);
    atomic_store(&page->removed_version, notice->removed_version);
    atomic_store(&page->version, notice->version);
}

void notice_read(const struct notice_page *page, struct notice *ret)
{
    *ret = (struct notice){0};
    if (page == NULL)
        return;
    ret->version = atomic_load(&page->version);
    uint64_t added = atomic_load(&page->added_version);
    uint64_t removed = atomic_load(&page->removed_version);
    ret->added_version = added <= ret->version ? added : 0;
    ret->removed_version = removed <= ret->version ? removed : 0;
}

void notice_close(const struct os *os, struct notice_page *page)
{
    if (page != NULL)
        os->unmap(os->ctx, page, os->page_bytes(os->ctx));
}
