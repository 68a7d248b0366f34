/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c - see elastic.h. The options are read and checked; running such a job is refused with a
 * clear message, because the membership driver does not exist in this release.
 * Thread: the launcher's.  Start reading at elastic_run(). */
#include "elastic.h"

#include <inttypes.h>
#include <stdio.h>

hvd_status_t elastic_check(const struct args *args, struct error *error)
{
    int64_t low = args->min_num_proc.is_set ? args->min_num_proc.value : args->num_proc.value;
    if (args->min_num_proc.is_set && low < 1)
        return error_set(error, HVD_ERR_INVALID, "--min-np must be at least 1");
    if (args->num_proc.is_set && low > args->num_proc.value)
        return error_set(error, HVD_ERR_INVALID, "--min-np %" PRId64 " is over -np %" PRId64, low,
                         args->num_proc.value);
    if (args->max_num_proc.is_set && args->max_num_proc.value < low)
        return error_set(error, HVD_ERR_INVALID, "--max-np %" PRId64 " is under --min-np %" PRId64,
                         args->max_num_proc.value, low);
    if (args->slots_per_host.is_set && args->slots_per_host.value < 1)
        return error_set(error, HVD_ERR_INVALID, "--slots-per-host must be at least 1");
    if (args->cooldown_low_s.is_set && (args->cooldown_low_s.value < 0 ||
                                        args->cooldown_high_s.value < args->cooldown_low_s.value))
        return error_set(error, HVD_ERR_INVALID,
                         "--blacklist-cooldown-range needs 0 <= LOW <= HIGH");
    return HVD_OK;
}

int elastic_run(struct job *job)
{
    fprintf(stderr,
            "horovodrun: elastic jobs (%s) cannot be run by this release yet; without %s the same "
            "command runs with a fixed number of processes\n",
            job->args->host_discovery_script != NULL ? "--host-discovery-script" : "--min-np",
            job->args->host_discovery_script != NULL ? "--host-discovery-script and --min-np"
                                                     : "--min-np");
    return 1;
}
