/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - a training step for tests with real processes: some allreduces with names that repeat,
 * so that a plan begins after a few of them. */
#ifndef HVD_TESTS_STEPS_H
#define HVD_TESTS_STEPS_H

#include "mp/mp.h"

#define MP_STEPS 12 /* enough for a plan */
#define MP_OPS   3
#define MP_COUNT 64

static inline hvd_status_t mp_submit(float *x, int set, const char *name, hvd_handle_t *ret)
{
    int64_t count = MP_COUNT;
    hvd_op_t op;
    mp_op_floats(&op, name, x, &count);
    op.process_set = set;
    return hvd_submit(&op, ret);
}

static inline hvd_status_t mp_settle(hvd_handle_t handle, bool is_polling)
{
    if (!is_polling)
        return hvd_wait(handle, 60000);
    hvd_status_t status;
    while ((status = hvd_poll(handle)) == HVD_IN_PROGRESS)
        usleep(1000);
    return status;
}

/* One step: `count` ops; false: the job has ended with the error in `text`. */
static inline bool mp_step(int set, bool is_polling, float (*data)[MP_COUNT], int count,
                           hvd_status_t *ret_status, char *text)
{
    static const char *const names[MP_OPS] = {"grad.a", "grad.b", "grad.c"};
    hvd_handle_t handles[MP_OPS] = {0};
    *ret_status = HVD_OK;
    for (int i = 0; i < count && *ret_status == HVD_OK; i++)
        *ret_status = mp_submit(data[i], set, names[i], &handles[i]);
    for (int i = 0; i < count; i++) {
        if (handles[i] == 0)
            continue;
        hvd_status_t status = mp_settle(handles[i], is_polling);
        if (status != HVD_OK && *ret_status == HVD_OK) {
            *ret_status = status;
            snprintf(text, HVD_ERROR_MAX, "%s", hvd_error(handles[i]));
        }
        hvd_release(handles[i]);
    }
    return *ret_status == HVD_OK;
}

#endif
