/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - horovodrun: reads the command line, settles the hosts, and hands over to whoever does
 * what was asked for. Exit codes: 2 for a wrong command line, the first failing worker's otherwise.
 * Thread: one.  Start reading at main() at the end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "allocation.h"
#include "args.h"
#include "check_build.h"
#include "doctor.h"
#include "elastic.h"
#include "env.h"
#include "horovod/hvd.h"
#include "job.h"
#include "jsrun.h"
#include "knobs.h"
#include "mpi.h"
#include "print_config.h"
#include "spawn.h"
#include "status.h"

#define EXIT_USAGE 2

static int usage_error(const char *text)
{
    args_print_usage(stderr);
    fprintf(stderr, "horovodrun: error: %s\n", text);
    return EXIT_USAGE;
}

static void print_warnings(const struct args *args)
{
    for (size_t i = 0; i < args->warnings.count; i++)
        fprintf(stderr, "horovodrun: warning: %s\n", args->warnings.items[i]);
}

/* Seconds from the option, else from the environment, else the default. */
static hvd_status_t settle_seconds(const struct os *os, struct arg_int *seconds,
                                   const struct setting *setting, struct error *error)
{
    const char *text = os->env(os->ctx, setting->name);
    if (!seconds->is_set) {
        char *end = NULL;
        seconds->value = strtoll(text == NULL ? setting->fallback : text, &end, 10);
        if (text != NULL && (end == text || *end != '\0'))
            return error_set(error, HVD_ERR_CONFIG, "%s='%s' is not a number of seconds",
                             setting->name, text);
    }
    if (seconds->value < setting->lowest || seconds->value > setting->highest)
        return error_set(error, HVD_ERR_INVALID, "%s must be between %lld and %lld seconds",
                         seconds->is_set ? setting->flags[0].names[0] : setting->name,
                         (long long)setting->lowest, (long long)setting->highest);
    return HVD_OK;
}

static hvd_status_t settle_config_file(struct mem *m, const struct os *os, struct args *args,
                                       struct error *error)
{
    char *text = NULL;
    size_t n = 0;
    if (args->config_file == NULL)
        return HVD_OK;
    hvd_status_t status = allocation_read_file(m, os, args->config_file, &text, &n, error);
    if (status != HVD_OK)
        return status;
    return knobs_load_file(m, args->config_file, text, n, args, error);
}

static hvd_status_t settle(struct mem *m, const struct os *os, struct args *args,
                           struct error *error)
{
    hvd_status_t status = settle_config_file(m, os, args, error);
    if (status == HVD_OK)
        status = knobs_check(args, error);
    if (status == HVD_OK)
        status = settle_seconds(os, &args->start_timeout_s,
                                &setting_rows[ROW_option_start_timeout_s], error);
    if (status == HVD_OK)
        status = settle_seconds(os, &args->elastic_timeout_s,
                                &setting_rows[ROW_option_elastic_timeout_s], error);
    if (status == HVD_OK && args->ssh_port.is_set &&
        (args->ssh_port.value < 1 || args->ssh_port.value > 65535))
        status = error_set(error, HVD_ERR_INVALID, "--ssh-port must be between 1 and 65535");
    if (status == HVD_OK && args->dashboard.is_set &&
        (args->dashboard.value < 0 || args->dashboard.value > 65535))
        status = error_set(error, HVD_ERR_INVALID, "--dashboard must be between 0 and 65535");
    if (status == HVD_OK && args->dashboard.is_set && (args->use_mpi || args->use_jsrun))
        status = error_set(error, HVD_ERR_INVALID,
                           "--dashboard does not work with --mpi or --jsrun: there mpirun or jsrun "
                           "starts the ranks");
    if (status == HVD_OK && args_is_elastic(args))
        status = elastic_check(args, error);
    return status;
}

static bool wants_job(const struct args *args)
{
    return !args->check_build && !args->print_config && !args->doctor;
}

/* Hosts and slots of the job; the number of processes may come from a batch system. */
static hvd_status_t settle_job(struct job *job, struct args *args, struct hosts *hosts,
                               struct error *error)
{
    const char *source = NULL;
    hvd_status_t status = allocation_find(job->mem, job->os, args, hosts, &source, error);
    if (status != HVD_OK)
        return status;
    int64_t slots = hosts_slot_sum(hosts);
    int64_t count = args->num_proc.is_set && !args->doctor ? args->num_proc.value : slots;
    if (count < 1 || count > HOSTS_SLOTS_MAX)
        return error_set(error, HVD_ERR_INVALID, "-np must be between 1 and %d", HOSTS_SLOTS_MAX);
    args->num_proc.value = count;
    job->hosts = hosts;
    struct slot *places = NULL;
    status = hosts_assign(job->mem, hosts, (int32_t)count, &places, error);
    if (status == HVD_OK)
        generation_init(job->mem, &job->generation, places, (int32_t)count);
    return status;
}

static int run_job(struct job *job, struct args *args)
{
    struct error error;
    struct hosts hosts = {0};
    error_clear(&error);
    if (args_is_elastic(args))
        return elastic_run(job);
    if (settle_job(job, args, &hosts, &error) != HVD_OK)
        return usage_error(error.text);
    if (args->doctor)
        return doctor_run(job);
    if (args->use_mpi)
        return mpi_run(job);
    if (args->use_jsrun)
        return jsrun_run(job);
    return supervise_run(job);
}

static int run(struct mem *m, const struct os *os, int argc, char **argv)
{
    struct args args;
    struct error error;
    error_clear(&error);
    if (args_parse(m, argc, argv, &args, &error) != HVD_OK)
        return usage_error(error.text);
    if (args.is_agent || args.is_local_agent)
        return agent_main(os, args.is_local_agent);
    if (args.wants_help || args.wants_version) {
        if (args.wants_help)
            args_print_help(stdout);
        else
            puts(HVD_VERSION_STRING);
        return 0;
    }
    if (args.status)
        return status_run(m, os, args.command, args.watch);
    if (args.watch)
        return usage_error("--watch is only for --status");
    hvd_status_t status = settle(m, os, &args, &error);
    print_warnings(&args);
    if (status != HVD_OK)
        return usage_error(error.text);
    if (args.check_build)
        return check_build_run(m, os, &args);
    if (args.print_config)
        return print_config_run(m, os, &args);
    if (wants_job(&args) && !args.num_proc.is_set && !allocation_is_batch(os))
        return usage_error("the following arguments are required: -np/--num-proc");
    struct job job = {.os = os, .mem = m, .args = &args, .self_path = spawn_self_path(m)};
    env_split_command(m, args.command, &job.assignments, &job.command);
    if (wants_job(&args) && job.command.count == 0)
        return usage_error("the following arguments are required: command");
    return run_job(&job, &args);
}

int main(int argc, char **argv)
{
    const struct os *os = os_host();
    struct mem m;
    spawn_ensure_stdio();
    mem_init(&m, os);
    int code = run(&m, os, argc, argv);
    mem_destroy(&m);
    return code;
}
