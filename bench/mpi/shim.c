/* SPDX-License-Identifier: Apache-2.0 */
/* shim.c - table.h filled by the MPI library it is compiled against; bench/run.sh builds one shared
 * object per library with that library's mpicc. Thread: one.  Start reading at bench_mpi_table. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "table.h"

static int init(void)
{
    return MPI_Init(NULL, NULL);
}

static int rank(void)
{
    int value = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &value);
    return value;
}

static int size(void)
{
    int value = -1;
    MPI_Comm_size(MPI_COMM_WORLD, &value);
    return value;
}

static int bcast(void *bytes, int n)
{
    return MPI_Bcast(bytes, n, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static int allreduce(float *data, int count)
{
    return MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void version(char *ret_text, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\t' || *c == '"' || *c == '\\')
            *c = ' ';
    text[strcspn(text, ",\n")] = '\0';
    snprintf(ret_text, bytes, "%s", text);
}

static void finalize(void)
{
    MPI_Finalize();
}

extern const struct mpi_table bench_mpi_table;
__attribute__((visibility("default"))) const struct mpi_table bench_mpi_table = {
    .init = init,
    .rank = rank,
    .size = size,
    .bcast = bcast,
    .allreduce = allreduce,
    .version = version,
    .finalize = finalize,
};
