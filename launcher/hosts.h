/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - which hosts, how many slots, and which rank goes where.
 *
 * Reads `-H a:2,b:2`, host files (the whole Open MPI grammar, plus MPICH's `host:n`), and the node
 * lists that Slurm, PBS and LSF put into the environment. Pure: text in, tables out; no file, name
 * service or environment is touched here.
 * Thread: any.  Owner: the caller's arena.  Start reading at hosts_assign(). */
#ifndef HVD_LAUNCHER_HOSTS_H
#define HVD_LAUNCHER_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "mem.h"

#define HOSTS_NAME_MAX  255u
#define HOSTS_SLOTS_MAX 65536
#define HOSTS_COUNT_MAX 4096

struct host {
    char *name;    /* as the user gave it, without brackets: ssh target and HOROVOD_HOSTNAME */
    char *address; /* the same without "user@": to resolve */
    int32_t slots;
};

struct hosts {
    struct host *items;
    int32_t count, capacity;
};

struct slot {
    int32_t host; /* index into hosts */
    int32_t rank, local_rank, cross_rank;
    int32_t size, local_size, cross_size;
};

/* `a:2,b:4,[fe80::1]:2`: slots are mandatory. A host given twice gets the sum of its slots. */
hvd_status_t hosts_parse_list(struct mem *m, const char *text, struct hosts *ret,
                              struct error *error);
/* A host file, also one that names a host once per slot (PBS, LSF); `name` is for messages. Unknown
 * settings of a line are an error with its number. */
hvd_status_t hosts_parse_file(struct mem *m, const char *name, const char *text, size_t n,
                              struct hosts *ret, struct error *error);
/* `n[1-3,07],m` with `2(x3),1`. tasks == NULL: one slot each. */
hvd_status_t hosts_parse_slurm(struct mem *m, const char *nodes, const char *tasks,
                               struct hosts *ret, struct error *error);
/* `a 4 b 2`: LSB_MCPU_HOSTS. */
hvd_status_t hosts_parse_lsf(struct mem *m, const char *text, struct hosts *ret,
                             struct error *error);
/* What a discovery script printed: a host or host:slots a line, in brackets if it has colons.
 * Without slots it has `slots`. An equal line counts once, and *ret_twice names it, else NULL; a
 * host with two numbers of slots is an error. Hosts without a slot are left out. */
hvd_status_t hosts_parse_found(struct mem *m, const char *text, size_t n, int32_t slots,
                               struct hosts *ret, const char **ret_twice, struct error *error);
int64_t hosts_slot_sum(const struct hosts *hosts);
/* Fills hosts in order and stops at `count` ranks. Fewer slots than that is an error. */
hvd_status_t hosts_assign(struct mem *m, const struct hosts *hosts, int32_t count,
                          struct slot **ret, struct error *error);

#endif
