/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_find.h - candidates for an MPI library, best first; nothing is loaded.
 *
 * The order: the one that the user names, the one already loaded in this process, the one that
 * belongs to the launcher that started the process (by the program of the nearest ancestor that is
 * one, OPAL_PREFIX), directories of LD_LIBRARY_PATH and PATH, the environment that this library is
 * installed in (PyPI has MPI libraries as wheels), and last the usual names, which the loader looks
 * up.
 *
 * Thread: any.  Start reading at mpi_find(). */
#ifndef HVD_TRANSPORT_MPI_FIND_H
#define HVD_TRANSPORT_MPI_FIND_H

#include "base/os.h"

#define MPI_CANDIDATES_MAX 24
#define MPI_PATH_MAX       512

struct mpi_candidate {
    char path[MPI_PATH_MAX]; /* with no '/': a name for the loader */
    const char *origin;      /* for messages */
    bool is_loaded;          /* already loaded in this process */
};

struct mpi_candidates {
    struct mpi_candidate items[MPI_CANDIDATES_MAX];
    int count;
    char launcher[MPI_PATH_MAX]; /* program that started the process; "": not an MPI launcher */
};

/* `wanted`: a path that the user named, "" or NULL: none. It is then the only candidate. */
void mpi_find(const struct os *os, const char *wanted, struct mpi_candidates *ret);
/* Is there a file for this candidate (or does the loader know the name)? */
bool mpi_find_is_there(const struct os *os, const struct mpi_candidate *candidate);

#endif
