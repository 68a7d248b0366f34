/* SPDX-License-Identifier: Apache-2.0 */
/* sim_job.h - a simulated world for tests that submit ops by hand. Include it after cmocka.h. */
#ifndef HVD_TESTS_SIM_JOB_H
#define HVD_TESTS_SIM_JOB_H

#include <string.h>

#include "sim_world.h"

struct job {
    struct sim_world *world;
    struct config config;
    int32_t ranks;
};

static inline void job_defaults(struct job *job)
{
    memset(job, 0, sizeof *job);
    assert_int_equal(sim_world_config(os_host(), &job->config, NULL), HVD_OK);
}

static inline void job_open(struct job *job, const struct os *os, struct sim_world_options options)
{
    struct error error = {0};
    options.config = &job->config;
    job->ranks = options.ranks;
    job->world = sim_world_create(os, &options, &error);
    assert_non_null(job->world);
}

static inline void job_run_for(struct job *job, int64_t ns)
{
    int64_t end_ns = sim_world_now_ns(job->world) + ns;
    while (sim_world_step(job->world, end_ns)) {}
}

/* NULL: the op was refused. */
static inline struct ticket *job_try(struct job *job, int32_t rank, hvd_kind_t kind,
                                     const char *name, float *data, int64_t count)
{
    struct ticket *ticket = NULL;
    struct error error = {0};
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = kind,
                   .name = name,
                   .reduce = HVD_SUM,
                   .prescale = 1,
                   .postscale = 1,
                   .input = {data, &count, 1, HVD_FLOAT32, HVD_DEVICE_CPU}};
    op.output = op.input;
    if (kind != HVD_ALLREDUCE && kind != HVD_BROADCAST)
        op.output.data = NULL;
    hvd_status_t status = submit_ops(sim_world_engine(job->world, rank), &op, 1, &ticket, &error);
    sim_world_wake(job->world, rank, 0);
    return status == HVD_OK ? ticket : NULL;
}

static inline struct ticket *job_submit(struct job *job, int32_t rank, hvd_kind_t kind,
                                        const char *name, float *data, int64_t count)
{
    struct ticket *ticket = job_try(job, rank, kind, name, data, count);
    assert_non_null(ticket);
    return ticket;
}

static inline int32_t state_of(const struct ticket *ticket)
{
    return (int32_t)ticket_status(ticket);
}

#endif
