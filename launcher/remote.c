/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c - see remote.h. Thread: any.  Start reading at remote_command(). */
#include "remote.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
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
    const char *rsh = args->rsh_agent;
    const char *mpi_rsh = os->env(os->ctx, "OMPI_MCA_plm_rsh_agent");
    if (rsh == NULL && mpi_rsh != NULL && strcmp(mpi_rsh, REMOTE_KUBEXEC) == 0)
        rsh = REMOTE_KUBEXEC; /* Kubeflow's MPI operator, first kind */
    if (rsh != NULL) {
        add(m, ret, rsh);
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

char *remote_trial(struct mem *m, const struct args *args, const struct host *host)
{
    char port[32] = "";
    if (args->ssh_port.is_set)
        snprintf(port, sizeof port, " -p %" PRId64, args->ssh_port.value);
    return mem_format(m, "ssh -o BatchMode=yes%s%s%s %s true", port,
                      args->ssh_identity_file != NULL ? " -i " : "",
                      args->ssh_identity_file != NULL ? args->ssh_identity_file : "", host->name);
}

const char *remote_advice(const char *text)
{
    static const struct {
        const char *word, *advice;
    } known[] = {
        {"Permission denied", "The host accepts no key of yours: run ssh-copy-id, name a key with "
                              "-i, or start ssh-agent."},
        {"Could not resolve hostname", "No such name is known here: check the spelling in -H or in "
                                       "the host file."},
        {"IDENTIFICATION HAS CHANGED", "The host's key is not the one in ~/.ssh/known_hosts. If it "
                                       "was reinstalled, remove the old line with ssh-keygen -R."},
        {"Host key verification failed", "Connect once by hand and accept the host's key."},
        {"Connection refused", "No sshd listens there: start it, or give its port with -p."},
        {"timed out", "Nothing answers there: check that the machine is up and no firewall drops "
                      "the packets."},
        {"No route to host", "Nothing answers there: check that the machine is up and its network "
                             "is reachable."},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(text, known[i].word) != NULL)
            return known[i].advice;
    return "That command must succeed without asking for anything.";
}
