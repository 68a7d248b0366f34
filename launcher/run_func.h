/* SPDX-License-Identifier: Apache-2.0 */
/* run_func.h - a Python function that horovod.run() wants called: --run-func-folder FOLDER.
 *
 * The folder is the caller's, closed to everybody else. Ranks on this host read `call` from it and
 * write `result.RANK` into it. For ranks elsewhere we put `call` into the rendezvous store, which
 * answers only to holders of the job key, and write their results from there into the folder. We
 * never look into either: both are the caller's bytes. An entry is NAME.0, NAME.1, ... with NAME
 * holding the count (python/horovod/runner/mailbox.py is the other side).
 *
 * In this mode the caller holds the other end of our stdin: when that closes, the caller is gone.
 * Thread: the launcher's.  Start reading at run_func_load(). */
#ifndef HVD_LAUNCHER_RUN_FUNC_H
#define HVD_LAUNCHER_RUN_FUNC_H

#include "job.h"

void run_func_watch(struct job *job, struct job_tag *tag); /* of our stdin */
bool run_func_is_abandoned(const struct job *job);         /* call when it polls readable */
hvd_status_t run_func_load(struct job *job, struct error *error);
hvd_status_t run_func_save(struct job *job, struct error *error);

#endif
