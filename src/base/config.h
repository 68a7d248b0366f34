/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - every setting is one row of one table: environment name, type, default, field, help.
 *
 * Parsed once at init into an immutable struct config; printed by `horovodrun --print-config`; the
 * reference page in the docs is generated from it. An unknown HOROVOD_* name gives one warning with
 * the nearest match. Thread: any (read only).  Start reading at config_rows[] in config.c. */
#ifndef HVD_BASE_CONFIG_H
#define HVD_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"

#define CONFIG_TEXT_MAX  1024
#define CONFIG_FLOWS_MAX 32 /* connections for tensor bytes per pair of ranks */

struct config {
    /* where: -1 = not set */
    int64_t rank, size, local_rank, local_size, cross_rank, cross_size;
    char hostname[256];
    char rendezvous_addr[256]; /* HOROVOD_GLOO_RENDEZVOUS_ADDR */
    int64_t rendezvous_port;   /* HOROVOD_GLOO_RENDEZVOUS_PORT */
    char rendezvous[256]; /* HOROVOD_RENDEZVOUS: "unix:NAME" or "HOST:PORT"; wins over the two above
                           */
    char key[129]; /* HOROVOD_KEY: hex job key; scrubbed from the environment after reading */
    char key_file[CONFIG_TEXT_MAX];
    int64_t key_fd; /* HOROVOD_KEY_FD: inherited descriptor, -1 = none */
    int64_t epoch;
    char interfaces[CONFIG_TEXT_MAX]; /* HOROVOD_GLOO_IFACE / HOROVOD_INTERFACES: comma list, "" =
                                         all */
    char port_range[32];              /* HOROVOD_PORT_RANGE: "A-B", "" = any */

    /* engine */
    int64_t fusion_threshold_bytes;
    double cycle_time_ms;
    int64_t cache_capacity;
    bool disable_group_fusion;
    bool dynamic_process_sets;
    bool elastic;
    bool plan_disable;         /* HOROVOD_PLAN_DISABLE */
    int64_t plan_warmup_steps; /* HOROVOD_PLAN_WARMUP_STEPS: equal steps before a plan starts, 3 */
    char thread_affinity[CONFIG_TEXT_MAX];
    int64_t spin_us; /* HOROVOD_SPIN_US: -1 = by core count */

    /* waiting and failures */
    bool stall_check_disable;
    int64_t stall_check_time_s, stall_shutdown_time_s;
    int64_t hung_warn_s,
        hung_error_s;  /* HOROVOD_HUNG_WARN_SECONDS 5, HOROVOD_HUNG_ERROR_SECONDS 0 = never */
    int64_t timeout_s; /* HOROVOD_GLOO_TIMEOUT_SECONDS: connect and control */

    /* transports and back ends */
    char controller[32], cpu_operations[32];
    char mpi_library[CONFIG_TEXT_MAX];
    bool mpi_threads_disable;
    bool shm_disable;        /* HOROVOD_SHM_DISABLE: TCP also on one host (tests) */
    int64_t cma;             /* HOROVOD_CMA: -1 measure, 0 never, 1 always */
    int64_t arena_max_bytes; /* HOROVOD_ARENA_MAX: address space reserved per rank, 0 = by memory
                                size */
    int64_t tcp_flows;       /* HOROVOD_TCP_FLOWS: bulk connections per pair of ranks */
    char security[16];       /* HOROVOD_SECURITY: auth | mac | tls | off */
    char algorithm[64]; /* HOROVOD_ALLREDUCE_ALGORITHM: force a schedule by name (tests, benchmarks)
                         */
    bool hierarchical_allreduce, hierarchical_allgather, torus_allreduce;
    int64_t adasum_chunk_bytes;

    /* timeline, tuning, logging */
    char timeline[CONFIG_TEXT_MAX];
    bool timeline_mark_cycles;
    bool autotune;
    char autotune_log[CONFIG_TEXT_MAX];
    int64_t autotune_warmup_samples, autotune_steps_per_sample, autotune_bayes_opt_max_samples;
    double autotune_gaussian_process_noise;
    enum log_level log_level;
    bool log_hide_time;
};

enum config_type {
    CONFIG_BOOL,    /* strtol > 0, as the original: "true" is false */
    CONFIG_NONZERO, /* any non-zero number */
    CONFIG_INT,
    CONFIG_FLOAT,
    CONFIG_TEXT,
    CONFIG_LEVEL /* log level */
};

struct config_row {
    const char *name; /* environment variable */
    enum config_type type;
    const char *fallback; /* default, as text */
    size_t offset, bytes; /* of the field in struct config */
    const char *help;
    bool is_secret;          /* never printed */
    int64_t lowest, highest; /* numbers: both ends are allowed */
    bool is_exact;           /* beyond them: an error, not the limit */
};

extern const struct config_row config_rows[];
extern const size_t config_row_count;

/* Fills `ret` from the defaults and the environment. A malformed number is an error that names
 * variable and value; numbers beyond their limits, unknown HOROVOD_* names and settings that are
 * accepted but have no effect here are reported through `warn` (may be NULL), once each. */
hvd_status_t config_load(const struct os *os, struct config *ret,
                         void (*warn)(void *arg, const char *text), void *arg, struct error *error);
/* Formats one field; `ret_text` gets "" for an unset text. */
void config_format(const struct config *config, const struct config_row *row, char *ret_text,
                   size_t bytes);
bool config_is_set(const struct os *os, const char *name); /* explicitly in the environment? */

#endif
