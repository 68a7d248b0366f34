/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - `--mpi` and `--jsrun`: the command line of someone else's launcher, which then takes our
 * place. Thread: one.  Start reading at mpi_command(). */
#ifndef HVD_LAUNCHER_MPI_H
#define HVD_LAUNCHER_MPI_H

#include "job.h"

enum mpi_kind {
    MPI_MISSING,
    MPI_UNKNOWN,
    MPI_OPEN,
    MPI_OPEN_5,
    MPI_SPECTRUM,
    MPI_MPICH,
    MPI_INTEL
};

enum mpi_kind mpi_kind_of(const char *version_text); /* what `mpirun --version` printed */
/* The line for a shell; `env` decides which names are passed on. */
hvd_status_t mpi_command(struct mem *m, const struct args *args, enum mpi_kind kind,
                         const struct hosts *hosts, int32_t count, const struct list *env,
                         const struct list *command, char **ret, struct error *error);
int mpi_run(struct job *job);   /* returns only on failure */
int jsrun_run(struct job *job); /* likewise */

#endif
