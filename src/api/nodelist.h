/* SPDX-License-Identifier: Apache-2.0 */
/* nodelist.h - parses Slurm's node lists, as far as a rank needs them.
 *
 * "n[001-003,7],gpu[1-2]-ib" is a list of hosts, of which rank 0's is the first; "2(x3),1" is the
 * number of tasks on each node. Both come from the environment: parsing is bounded, without
 * recursion or allocation.
 * Thread: any.  Start reading at nodelist_first(). */
#ifndef HVD_API_NODELIST_H
#define HVD_API_NODELIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODELIST_HOST_MAX  256     /* bytes of a host name with its NUL */
#define NODELIST_NODES_MAX 1000000 /* of one job */

/* The first host of a list; false: malformed, ret_host is then "". */
bool nodelist_first(const char *text, char ret_host[NODELIST_HOST_MAX]);

struct nodelist_place {
    int32_t local_size;             /* tasks on the node */
    int32_t cross_rank, cross_size; /* among the nodes that have this local rank, in their order */
    int32_t node_count;
    int64_t task_count; /* of all nodes */
};
/* The placement of the task with `local_rank` on node number `node`; false: malformed, or no such
 * task. */
bool nodelist_place(const char *tasks_per_node, int32_t node, int32_t local_rank,
                    struct nodelist_place *ret);

#endif
