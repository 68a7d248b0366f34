/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - `--mpi`: the command line of someone else's launcher, which then takes our place.
 * Thread: one.  Start reading at mpi_command(). */
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
int mpi_run(struct job *job); /* returns only on failure */

/* ---- pieces of such a line, for jsrun.c too ---- */

/* Plain words stay; everything else goes into single quotes, as Python's shlex does. */
char *mpi_quote(struct mem *m, const char *word);
char *mpi_join(struct mem *m, char *const *words, size_t count, const char *between);
/* The workers' environment; under MPI they learn from MPI who they are. */
void mpi_environment(struct job *job, struct list *ret);
_Noreturn void mpi_become_shell(struct mem *m, const char *line, const struct list *env);

#endif
