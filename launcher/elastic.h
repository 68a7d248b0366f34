/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.h - jobs whose hosts come and go (--min-np, --max-np, --host-discovery-script).
 * Thread: the launcher's.  Start reading at elastic_run(). */
#ifndef HVD_LAUNCHER_ELASTIC_H
#define HVD_LAUNCHER_ELASTIC_H

#include "job.h"

hvd_status_t elastic_check(const struct args *args, struct error *error);
int elastic_run(struct job *job); /* the exit code */

#endif
