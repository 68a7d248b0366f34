/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_line.c - allreduces of our engine under mpirun, to compare ways to move tensors by MPI.
 *
 * Start it once with HOROVOD_CPU_OPERATIONS=mpi (MPI's own collectives) and once without (our
 * schedules over MPI's messages), by turns, with HOROVOD_SHM_DISABLE=1 or on several hosts. Prints
 * for each size the median, over rounds, of the seconds per call; every result is checked.
 *
 * Use: mpirun -np P [-x ...] mpi_line [ROUNDS]
 * Thread: one per rank.  Start reading at measure(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/meet.h"
#include "common/ranks.h"
#include "common/stats.h"

#define ROUNDS_MAX 1001
#define BYTES_MAX  (64u << 20)

static const size_t sizes[] = {8, 512, 4096, 65536, 262144, 1048576, 4194304, 16777216, 67108864};

/* Seconds per call of `batch` calls back to back. */
static double once(float *data, size_t count, int batch, uint64_t round)
{
    float own = (float)(hvd_rank() + 1) * (float)(1 + round % 7), all = 0;
    for (int r = 0; r < hvd_size(); r++)
        all += (float)(r + 1) * (float)(1 + round % 7);
    double took = 0;
    for (int i = 0; i < batch; i++) {
        for (size_t k = 0; k < count; k++)
            data[k] = own;
        double began = now_s();
        if (!ranks_allreduce("line", data, (int64_t)count))
            exit(1);
        took += now_s() - began;
        for (size_t k = 0; k < count; k++)
            if (data[k] != all) {
                fprintf(stderr, "bench: rank %d: wrong result\n", hvd_rank());
                exit(1);
            }
    }
    return took / batch;
}

static void measure(float *data, size_t bytes, int rounds)
{
    static double seconds[ROUNDS_MAX];
    size_t count = bytes / sizeof *data;
    int batch = bytes <= 65536 ? 20 : 1;
    if (bytes > 4u << 20)
        rounds = rounds > 9 ? 9 : rounds;
    for (int i = 0; i < 3; i++)
        once(data, count, batch, 0);
    for (int i = 0; i < rounds; i++)
        seconds[i] = once(data, count, batch, (uint64_t)i);
    if (hvd_rank() == 0)
        printf("%10zu %12.1f us\n", bytes, stats_quantile(seconds, (size_t)rounds, 0.5) * 1e6);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 21;
    float *data = malloc(BYTES_MAX);
    if (rounds < 1 || rounds > ROUNDS_MAX || data == NULL)
        return 2;
    if (hvd_init(NULL) != HVD_OK) {
        fprintf(stderr, "bench: %s\n", hvd_last_error());
        return 1;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure(data, sizes[i], rounds);
    hvd_shutdown();
    free(data);
    return 0;
}
