/* SPDX-License-Identifier: Apache-2.0 */
/* nodelist.c - see nodelist.h. Thread: any.  Start reading at nodelist_first(). */
#include "api/nodelist.h"

#include <string.h>

#define DIGITS_MAX 9 /* so that a number fits an int32_t */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_host_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_';
}

/* ---- hosts ---- */

/* "[001-003,7]" yields its first number, keeping zeros. Returns what follows the bracket, NULL if
 * it is malformed. */
static const char *bracket_first(const char *at, char *host, size_t *used)
{
    size_t n = strspn(at + 1, "0123456789");
    const char *close = strchr(at, ']');
    if (n == 0 || n > DIGITS_MAX || close == NULL || *used + n >= NODELIST_HOST_MAX)
        return NULL;
    if (strspn(at + 1, "0123456789,-") != (size_t)(close - at - 1))
        return NULL;
    memcpy(host + *used, at + 1, n);
    *used += n;
    return close + 1;
}

bool nodelist_first(const char *text, char ret_host[NODELIST_HOST_MAX])
{
    char host[NODELIST_HOST_MAX];
    size_t used = 0;
    const char *at = text;
    ret_host[0] = '\0';
    while (at != NULL && *at != '\0' && *at != ',') {
        if (*at == '[')
            at = bracket_first(at, host, &used);
        else if (is_host_char(*at) && used + 1 < sizeof host)
            host[used++] = *at++;
        else
            return false;
    }
    if (at == NULL || used == 0 || host[0] == '-')
        return false;
    host[used] = '\0';
    memcpy(ret_host, host, used + 1);
    return true;
}

/* ---- tasks ---- */

static bool number_read(const char **at, int32_t *ret)
{
    int32_t value = 0;
    int digits = 0;
    for (; is_digit(**at); (*at)++) {
        if (++digits > DIGITS_MAX)
            return false;
        value = value * 10 + (**at - '0');
    }
    *ret = value;
    return digits > 0;
}

/* "2(x3)" or "2" and the comma after it. */
static bool group_read(const char **at, int32_t *ret_tasks, int32_t *ret_nodes)
{
    *ret_nodes = 1;
    if (!number_read(at, ret_tasks))
        return false;
    if (strncmp(*at, "(x", 2) == 0) {
        *at += 2;
        if (!number_read(at, ret_nodes) || **at != ')')
            return false;
        (*at)++;
    }
    if (**at == '\0')
        return true;
    return *(*at)++ == ',' && **at != '\0';
}

bool nodelist_place(const char *text, int32_t node, int32_t local_rank, struct nodelist_place *ret)
{
    struct nodelist_place place = {0};
    const char *at = text;
    if (node < 0 || local_rank < 0)
        return false;
    while (*at != '\0') {
        int32_t tasks = 0, nodes = 0;
        if (!group_read(&at, &tasks, &nodes) || nodes < 1 ||
            nodes > NODELIST_NODES_MAX - place.node_count)
            return false;
        int32_t before = node - place.node_count; /* nodes of this group before ours */
        if (before >= 0 && before < nodes)
            place.local_size = tasks;
        if (tasks > local_rank) {
            place.cross_size += nodes;
            if (before > 0)
                place.cross_rank += before < nodes ? before : nodes;
        }
        place.node_count += nodes;
        place.task_count += (int64_t)tasks * nodes;
    }
    if (node >= place.node_count || local_rank >= place.local_size)
        return false;
    *ret = place;
    return true;
}
