/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - the environment of a worker: what it inherits, what the options add, who it is, and where
 * the rendezvous is.
 *
 * Ranks on this machine get our whole environment; ranks elsewhere get it without what only makes
 * sense here (shell functions, OLDPWD, CUDA_VISIBLE_DEVICES, secrets of an outer job), on top of
 * their own. Pure but for reading our environment. Thread: any.  Start reading at env_common(). */
#ifndef HVD_LAUNCHER_ENV_H
#define HVD_LAUNCHER_ENV_H

#include "args.h"
#include "hosts.h"
#include "mem.h"

/* Splits NAME=VALUE words off the front of the command, of which nothing may be left. */
void env_split_command(struct mem *m, char **words, struct list *ret_assignments,
                       struct list *ret_command);
/* The part that is equal for all ranks of a host. */
void env_common(struct mem *m, const struct os *os, const struct args *args,
                const struct list *assignments, bool is_remote, struct list *ret);
/* Frameworks free their gradients and activations in every step and get them back from the kernel
 * page by page. With large pages that is 512 times rarer; without them it may take a third of a
 * step. Whoever sets GLIBC_TUNABLES, to nothing even, has chosen otherwise. */
void env_large_pages(struct mem *m, struct list *env);
/* `rendezvous`: comma list of addresses; `host` and `port`: the same for those who read the older
 * pair of variables. */
void env_rendezvous(struct mem *m, const struct args *args, const char *rendezvous,
                    const char *host, int port, struct list *env);
void env_rank(struct mem *m, const struct slot *slot, const char *hostname, struct list *ret);
/* May this variable leave the machine? */
bool env_is_exportable(const char *name);

#endif
