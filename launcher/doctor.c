/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <stdio.h>

int doctor_run(struct job *job)
{
    (void)job;
    fputs("horovodrun: --doctor is not built into this copy\n", stderr);
    return 1;
}
