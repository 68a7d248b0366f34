/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - see env.h. Thread: any.  Start reading at env_common(). */
#include "env.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "knobs.h"

/* Left over from an outer job, or secrets: never inherited by a worker. */
static const char *const outer_names[] = {
    "HOROVOD_KEY",        "HOROVOD_KEY_FD",      "HOROVOD_KEY_FILE",
    "HOROVOD_RENDEZVOUS", "HOROVOD_ELASTIC",     "HOROVOD_CAUSE_PIPE",
    "HOROVOD_WORKER",     "HOROVOD_NOTICE_FILE", "HOROVOD_STACK_FILE"};

bool env_is_exportable(const char *name)
{
    static const char cuda[] = "CUDA_VISIBLE_DEVICES";
    if (strncmp(name, "BASH_FUNC_", 10) == 0 || strncmp(name, "OLDPWD", 6) == 0 ||
        strncmp(name, "_HOROVOD_SECRET_KEY", 19) == 0)
        return false;
    return strstr(name, cuda) == NULL;
}

static bool is_assignment(const char *word)
{
    size_t n = 0;
    while (isalnum((unsigned char)word[n]) || word[n] == '_')
        n++;
    return n > 0 && !isdigit((unsigned char)word[0]) && word[n] == '=';
}

void env_split_command(struct mem *m, char **words, struct list *ret_assignments,
                       struct list *ret_command)
{
    for (; words != NULL && *words != NULL && is_assignment(*words); words++)
        list_add(m, ret_assignments, *words);
    for (; words != NULL && *words != NULL; words++)
        list_add(m, ret_command, *words);
}

struct inherit {
    struct mem *m;
    struct list *env;
    bool is_remote;
};

static void inherit_one(void *arg, const char *name, const char *value)
{
    struct inherit *i = arg;
    for (size_t k = 0; k < sizeof outer_names / sizeof *outer_names; k++)
        if (strcmp(name, outer_names[k]) == 0)
            return;
    if (!i->is_remote || env_is_exportable(name))
        list_add(i->m, i->env, mem_format(i->m, "%s=%s", name, value));
}

void env_common(struct mem *m, const struct os *os, const struct args *args,
                const struct list *assignments, bool is_remote, struct list *ret)
{
    struct inherit inherit = {m, ret, is_remote};
    os->env_each(os->ctx, inherit_one, &inherit);
    list_set(m, ret, "PYTHONUNBUFFERED", "1");
    list_set(m, ret, "HOROVOD_CONTROLLER", "gloo");
    list_set(m, ret, "HOROVOD_CPU_OPERATIONS", "gloo");
    knobs_export(m, args, ret);
    for (size_t i = 0; i < assignments->count; i++)
        list_put(m, ret, assignments->items[i]);
}

void env_large_pages(struct mem *m, struct list *env)
{
    if (list_get(env, "GLIBC_TUNABLES") == NULL)
        list_set(m, env, "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
}

void env_rendezvous(struct mem *m, const struct args *args, const char *rendezvous,
                    const char *host, int port, struct list *env)
{
    char number[16];
    snprintf(number, sizeof number, "%d", port);
    list_set(m, env, "HOROVOD_GLOO_RENDEZVOUS_ADDR", host);
    list_set(m, env, "HOROVOD_GLOO_RENDEZVOUS_PORT", number);
    list_set(m, env, "HOROVOD_RENDEZVOUS", rendezvous);
    if (args->interfaces.count == 0)
        return;
    char *all = mem_copy(m, args->interfaces.items[0]);
    for (size_t i = 1; i < args->interfaces.count; i++)
        all = mem_format(m, "%s,%s", all, args->interfaces.items[i]);
    list_set(m, env, "HOROVOD_GLOO_IFACE", all);
    list_set(m, env, "NCCL_SOCKET_IFNAME", all);
}

static void set_number(struct mem *m, struct list *env, const char *name, int32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    list_set(m, env, name, text);
}

void env_rank(struct mem *m, const struct slot *slot, const char *hostname, struct list *ret)
{
    list_set(m, ret, "HOROVOD_HOSTNAME", hostname);
    set_number(m, ret, "HOROVOD_RANK", slot->rank);
    set_number(m, ret, "HOROVOD_SIZE", slot->size);
    set_number(m, ret, "HOROVOD_LOCAL_RANK", slot->local_rank);
    set_number(m, ret, "HOROVOD_LOCAL_SIZE", slot->local_size);
    set_number(m, ret, "HOROVOD_CROSS_RANK", slot->cross_rank);
    set_number(m, ret, "HOROVOD_CROSS_SIZE", slot->cross_size);
}
