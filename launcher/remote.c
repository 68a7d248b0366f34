/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c - see remote.h. Thread: any.  Start reading at remote_command(). */
#include "remote.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* Only a path that no shell in the world would take apart goes onto the line. */
static bool is_plain_path(const char *path)
{
    if (path == NULL || path[0] != '/')
        return false;
    for (; *path != '\0'; path++)
        if (!isalnum((unsigned char)*path) && strchr("/._+-", *path) == NULL)
            return false;
    return true;
}

static char *agent_line(struct mem *m, const char *self_path)
{
    if (!is_plain_path(self_path))
        return mem_copy(m, "exec horovodrun --agent");
    return mem_format(m, "exec sh -c 'test -x %s && exec %s --agent; exec horovodrun --agent'",
                      self_path, self_path);
}

static void add(struct mem *m, struct list *list, const char *word)
{
    list_add(m, list, mem_copy(m, word));
}

void remote_command(struct mem *m, const struct os *os, const struct args *args,
                    const struct host *host, const char *self_path, const char *config_path,
                    struct list *ret)
{
    const char *rsh = os->env(os->ctx, "OMPI_MCA_plm_rsh_agent");
    if (rsh != NULL && strcmp(rsh, REMOTE_KUBEXEC) == 0) { /* Kubeflow's MPI operator, first kind */
        add(m, ret, REMOTE_KUBEXEC);
        add(m, ret, host->name);
        list_add(m, ret, agent_line(m, self_path));
        return;
    }
    static const char *const always[] = {"BatchMode=yes", "EscapeChar=none", "RequestTTY=no"};
    static const char *const defaults[] = {"StrictHostKeyChecking=accept-new", "ConnectTimeout=10",
                                           "ServerAliveInterval=5", "ServerAliveCountMax=6"};
    add(m, ret, "ssh");
    if (config_path != NULL) {
        add(m, ret, "-F");
        add(m, ret, config_path);
    }
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) {
        add(m, ret, "-o");
        add(m, ret, always[i]);
    }
    for (size_t i = 0; config_path == NULL && i < sizeof defaults / sizeof *defaults; i++) {
        add(m, ret, "-o");
        add(m, ret, defaults[i]);
    }
    if (args->ssh_port.is_set) {
        add(m, ret, "-p");
        list_add(m, ret, mem_format(m, "%" PRId64, args->ssh_port.value));
    }
    if (args->ssh_identity_file != NULL) {
        add(m, ret, "-i");
        add(m, ret, args->ssh_identity_file);
    }
    add(m, ret, host->name);
    list_add(m, ret, agent_line(m, self_path));
}

bool remote_is_transient(const char *text)
{
    static const char *const final[] = {"Permission denied",
                                        "Host key verification failed",
                                        "Could not resolve hostname",
                                        "IDENTIFICATION HAS CHANGED",
                                        "Too many authentication failures",
                                        "not accessible"};
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (strstr(text, final[i]) != NULL)
            return false;
    return true;
}
