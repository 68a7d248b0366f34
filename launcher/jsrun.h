/* SPDX-License-Identifier: Apache-2.0 */
/* jsrun.h - `--jsrun`: IBM's launcher in an LSF job takes our place.
 *
 * Each rank gets its share of a host's cores by a rank file (an "explicit resource file"), unless
 * --binding-args says otherwise. What a host has is asked of CSM, the cluster's own service; where
 * there is none, --binding-args is needed.
 *
 * Thread: one.  Start reading at jsrun_run(). */
#ifndef HVD_LAUNCHER_JSRUN_H
#define HVD_LAUNCHER_JSRUN_H

#include "job.h"

struct jsrun_node { /* all hosts of an allocation are alike */
    int32_t cores;  /* for the job: without those that the system keeps */
    int32_t threads_per_core, gpus;
};

/* One paragraph per host, one line per rank; ranks fill the hosts in order. More slots on a host
 * than it has GPUs, or fewer slots in all than `count`, is an error. */
hvd_status_t jsrun_rank_file(struct mem *m, const struct hosts *hosts, int32_t count,
                             const struct jsrun_node *node, char **ret, struct error *error);
/* Out of what csm_allocation_query, csm_node_attributes_query and lscpu print. */
hvd_status_t jsrun_read_hosts(struct mem *m, const char *allocation, int32_t gpus,
                              struct hosts *ret, struct error *error);
hvd_status_t jsrun_read_node(const char *allocation, const char *attributes, const char *lscpu,
                             struct jsrun_node *ret, struct error *error);

int jsrun_run(struct job *job); /* returns only on failure */

#endif
