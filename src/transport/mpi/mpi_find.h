/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_find.h - where may an MPI library be? A list of candidates, best first; nothing is loaded.
 *
 * The order: what the user names, what is in this process already, what belongs to the launcher
 * that started us (by the program of the nearest ancestor that is one, OPAL_PREFIX), folders of
 * LD_LIBRARY_PATH and PATH, the environment that this library is installed in (PyPI has MPI
 * libraries as wheels), and last the usual names, which the loader looks up.
 *
 * Thread: any.  Start reading at mpi_find(). */
#ifndef HVD_TRANSPORT_MPI_FIND_H
#define HVD_TRANSPORT_MPI_FIND_H

#include "base/os.h"

#define MPI_CANDIDATES_MAX 24
#define MPI_PATH_MAX       512

struct mpi_candidate {
    char path[MPI_PATH_MAX]; /* with no '/': a name for the loader */
    const char *origin;      /* for people */
    bool is_loaded;          /* in this process already */
};

struct mpi_candidates {
    struct mpi_candidate items[MPI_CANDIDATES_MAX];
    int count;
    char launcher[MPI_PATH_MAX]; /* program that started us; "": not an MPI launcher */
};

/* `wanted`: a path that the user named, "" or NULL: none. It is then the only candidate. */
void mpi_find(const struct os *os, const char *wanted, struct mpi_candidates *ret);
/* Is there a file for this candidate (or does the loader know the name)? */
bool mpi_find_is_there(const struct os *os, const struct mpi_candidate *candidate);

#endif
