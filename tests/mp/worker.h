/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - a process whose world changes: it reduces in a loop. When that fails it shuts down and
 * initialises again, after which it is in the next generation or has been refused. It reports each
 * step in a line, which begins with its name. */
#ifndef HVD_TESTS_WORKER_H
#define HVD_TESTS_WORKER_H

#include <stdarg.h>

#include "mp.h"

#define REFUSED  7 /* exit code */
#define LINE_MAX 512

static inline void report(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void report(int fd, const char *format, ...)
{
    char line[LINE_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    line[n++] = '\n';
    if (write(fd, line, (size_t)n) != n)
        _exit(9);
}

/* Two sums: how many we are, and how many are told to end. */
static inline hvd_status_t reduce(bool is_ending, bool *ret_is_over)
{
    float in[2] = {1, is_ending ? 1 : 0}, out[2] = {0, 0};
    int64_t shape[1] = {2};
    hvd_handle_t handle;
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = HVD_ALLREDUCE,
                   .name = "count",
                   .input = {.data = in, .dtype = HVD_FLOAT32, .ndim = 1, .shape = shape},
                   .output = {.data = out, .dtype = HVD_FLOAT32, .ndim = 1, .shape = shape},
                   .reduce = HVD_SUM,
                   .prescale = 1,
                   .postscale = 1};
    hvd_status_t status = hvd_submit(&op, &handle);
    if (status == HVD_OK) {
        status = hvd_wait(handle, -1);
        hvd_release(handle);
    }
    if (status != HVD_OK)
        return status;
    if (out[0] != (float)hvd_size())
        _exit(8);
    *ret_is_over = out[1] > 0;
    return HVD_OK;
}

/* `control`: a byte there ends the job in order; -1: nothing does. */
static inline void worker_main(int control, int reports)
{
    const char *name = getenv("HOROVOD_WORKER");
    for (;;) {
        bool is_over = false;
        char byte;
        hvd_status_t status = hvd_init(NULL);
        if (status != HVD_OK) {
            report(reports, "%s out %d %s", name, (int)status, hvd_last_error());
            _exit(status == HVD_ERR_STALE ? REFUSED : 3);
        }
        report(reports, "%s run %d %d", name, hvd_rank(), hvd_size());
        while (status == HVD_OK && !is_over)
            status = reduce(read(control, &byte, 1) == 1, &is_over);
        if (status != HVD_OK)
            report(reports, "%s broke %d", name, (int)status);
        hvd_shutdown();
        if (is_over)
            _exit(0);
    }
}

#endif
