/* SPDX-License-Identifier: Apache-2.0 */
/* tuned.h - the files of the autotuner, on rank 0: its log, and what it has found, by job.
 *
 * The second one is a text file with a line per job: "key fusion cycle flows percent", all of them
 * numbers. It is read when the job's key is known and replaced as a whole at the end; lines that
 * can't be read are dropped. A file that can't be read or written costs a warning, not the job.
 * Thread: token holder.  Owner: struct world.  Start reading at tuned_options(). */
#ifndef HVD_API_TUNED_H
#define HVD_API_TUNED_H

struct config;
struct engine_options;
struct log;
struct os;

struct tuned {
    const struct os *os;
    const struct config *config;
    const struct log *log;
    int fd; /* of the log; -1: none */
    long long offset;
};

/* Has the engine use the files that the configuration names. */
void tuned_options(struct tuned *tuned, const struct os *os, const struct config *config,
                   const struct log *log, struct engine_options *options);
void tuned_close(struct tuned *tuned);

#endif
