/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - the little of MPI that the benchmark needs, as a table that a shared object exports.
 *
 * Two MPI libraries have different binary interfaces and cannot share a process, so shim.c is
 * compiled once per library and loaded at run time by the program that mpirun starts. */
#ifndef HVD_BENCH_MPI_TABLE_H
#define HVD_BENCH_MPI_TABLE_H

#include <stddef.h>

struct mpi_table { /* functions return 0 on success */
    int (*init)(void);
    int (*rank)(void);
    int (*size)(void);
    int (*bcast)(void *bytes, int n);         /* from rank 0 */
    int (*allreduce)(float *data, int count); /* sum, in place */
    void (*version)(char *ret_text, size_t bytes);
    void (*finalize)(void);
};

#define MPI_TABLE_NAME "bench_mpi_table"

#endif
