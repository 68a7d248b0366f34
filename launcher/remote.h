/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h - the command that starts an agent on another host: ssh with its host keys respected,
 * never asking anything, and with nothing secret on the line.
 *
 * The agent is this very program: at our own path if the other host has it there, otherwise along
 * its PATH. `--rsh-agent FILE` replaces ssh: FILE is run with the host's name and that command, and
 * connects its stdin and stdout to an agent there (python/horovod/runner/relay.py does so for Spark
 * and Ray). All hosts are then remote. Pure. Thread: any.  Start reading at remote_command(). */
#ifndef HVD_LAUNCHER_REMOTE_H
#define HVD_LAUNCHER_REMOTE_H

#include "args.h"
#include "hosts.h"
#include "mem.h"

#define REMOTE_KUBEXEC "/etc/mpi/kubexec.sh"

/* ssh takes the first value it finds, so what the user and the machine have set wins over this. */
#define REMOTE_SSH_CONFIG                                                                          \
    "Include ~/.ssh/config\n"                                                                      \
    "Include /etc/ssh/ssh_config\n"                                                                \
    "Host *\n"                                                                                     \
    "    StrictHostKeyChecking accept-new\n"                                                       \
    "    ConnectTimeout 10\n"                                                                      \
    "    ServerAliveInterval 5\n"                                                                  \
    "    ServerAliveCountMax 6\n"

/* config_path: a file with REMOTE_SSH_CONFIG, or NULL: the same as options, which then win. */
void remote_command(struct mem *m, const struct os *os, const struct args *args,
                    const struct host *host, const char *self_path, const char *config_path,
                    struct list *ret);
/* The ssh command to type in order to find out whether it works without a password. */
char *remote_trial(struct mem *m, const struct args *args, const struct host *host);
/* What to do about it, in one sentence. `text` is what ssh printed. */
const char *remote_advice(const char *text);
/* Is it any use to try again after this? `text` is what ssh printed. */
bool remote_is_transient(const char *text);

#endif
