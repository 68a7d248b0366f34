/* SPDX-License-Identifier: Apache-2.0 */
/* args.h - the command line of horovodrun: one table of all options, read the way argparse reads
 * them (unique prefixes of long options, `--x=v`, exclusive groups, the command is everything from
 * the first word that is no option).
 *
 * Settings that may also come from a --config-file and end up in the workers' environment are rows
 * of a second table, knobs.h. Thread: any.  Start reading at arg_rows[] in args.c. */
#ifndef HVD_LAUNCHER_ARGS_H
#define HVD_LAUNCHER_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "mem.h"

struct arg_int {
    bool is_set;
    int64_t value;
};
struct arg_float {
    bool is_set;
    double value;
};
struct arg_bool { /* not given, false, true */
    bool is_set, value;
};

struct args {
    /* what to do instead of running a job */
    bool wants_help, wants_version, check_build, print_config, doctor, is_agent;

    struct arg_int num_proc, start_timeout_s;
    bool disable_cache, verbose;
    struct list interfaces;
    const char *output_filename, *config_file;
    struct arg_int ssh_port;
    const char *ssh_identity_file;
    const char *run_func_folder; /* see run_func.h */

    struct arg_int fusion_threshold_mb, cache_capacity;
    struct arg_float cycle_time_ms;
    struct arg_bool hierarchical_allreduce, hierarchical_allgather, torus_allreduce;

    struct arg_bool autotune;
    const char *autotune_log_file;
    struct arg_int autotune_warmup_samples, autotune_steps_per_sample,
        autotune_bayes_opt_max_samples;
    struct arg_float autotune_gaussian_process_noise;

    struct arg_int min_num_proc, max_num_proc, slots_per_host, elastic_timeout_s, reset_limit;
    struct arg_int cooldown_low_s, cooldown_high_s;

    const char *timeline_filename;
    struct arg_bool timeline_mark_cycles;

    struct arg_bool no_stall_check;
    struct arg_int stall_check_warning_time_s, stall_check_shutdown_time_s;

    struct arg_bool mpi_threads_disable;
    const char *mpi_args, *binding_args;
    bool tcp;
    struct arg_int num_nccl_streams, thread_affinity, gloo_timeout_s;

    const char *log_level;
    struct arg_bool log_with_timestamp;
    bool prefix_output_with_timestamp;

    const char *hosts, *hostfile, *host_discovery_script;
    bool use_gloo, use_mpi, use_jsrun;

    char **command; /* NULL-terminated, points into argv; NULL: none given */
    struct list warnings;
};

/* HVD_ERR_INVALID: `error` is the line to print behind "horovodrun: error: ". */
hvd_status_t args_parse(struct mem *m, int argc, char **argv, struct args *ret,
                        struct error *error);
bool args_is_elastic(const struct args *args);
void args_print_usage(FILE *file);
void args_print_help(FILE *file);

#endif
