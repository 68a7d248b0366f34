/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - `horovodrun --doctor -H a:1,b:1`: is this set of hosts fit for a job?
 * Thread: one.  Start reading at doctor_run(). */
#ifndef HVD_LAUNCHER_DOCTOR_H
#define HVD_LAUNCHER_DOCTOR_H

#include "job.h"

int doctor_run(struct job *job); /* 0: fit */

#endif
